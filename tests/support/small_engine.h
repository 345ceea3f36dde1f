// small_engine.h: an engine over a trainer's tensors from a configuration text, in one line of a test.
#ifndef ZOFF_SMALL_ENGINE_H
#define ZOFF_SMALL_ENGINE_H

#include "trainer.h"

namespace zoff_test
{
inline zoff_step_info new_info()
{
    zoff_step_info info = {};
    info.struct_size = sizeof info;
    return info;
}

inline zoff_plan_info plan_of(const zoff_engine *e)
{
    zoff_plan_info plan = {};
    plan.struct_size = sizeof plan;
    EXPECT_ZOFF_OK(zoff_engine_plan(e, &plan));
    return plan;
}

// An engine that is only planned: one parameter of bf16 with nothing behind it, in the chunks of the configuration.
inline engine plan_one(uint64_t count, const std::string &text, zoff_accel *device, zoff_comm *ranks = nullptr)
{
    static char nothing;
    zoff_engine_opts opts = {};
    zoff_engine *made = nullptr;
    zoff_config *settings = nullptr;
    EXPECT_ZOFF_OK(zoff_config_parse(text.data(), text.size(), "test.json", &settings));
    opts.struct_size = sizeof opts;
    opts.config = settings;
    opts.accel = device;
    opts.comm = ranks;
    EXPECT_ZOFF_OK(zoff_engine_create(&opts, &made));
    zoff_config_close(settings);
    zoff_param_desc d = {};
    d.struct_size = sizeof d;
    d.count = count;
    d.value = d.grad = &nothing;
    d.dtype = ZOFF_BF16;
    EXPECT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    return engine(made);
}

// The configuration of a test: hyper-parameters are the defaults of AdamW at lr 0.01; NVMe in `folder` unless it is empty.
inline std::string config_text(const std::string &folder, unsigned accumulation = 1, const std::string &more = "")
{
    std::string text = "{\"gradient_accumulation_steps\": " + std::to_string(accumulation) +
                       ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0" + more;
    if (!folder.empty())
        text += ", \"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" +
                folder + "\", \"buffer_count\": 3}}";
    return text + "}";
}

// The same with a share of the states on the device.
inline std::string with_ratio(std::string text, double ratio)
{
    const std::string value = "\"ratio\": " + std::to_string(ratio), count = "\"buffer_count\": 3";
    const size_t at = text.find(count);
    if (at != std::string::npos)
        return text.insert(at, value + ", ");
    return text.insert(1, "\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\", " + value + "}}, ");
}

// The same with the weights that are given away on NVMe too: two buffers, none cached, small slices pinned.
inline std::string with_offloaded_weights(std::string text, const std::string &folder)
{
    const std::string from = "\"stage\": 1";
    return text.replace(text.find(from), from.size(),
                        "\"stage\": 3, \"stage3_param_persistence_threshold\": 1000, \"offload_param\": {\"device\": \"nvme\", "
                        "\"nvme_path\": \"" +
                            folder + "\", \"buffer_count\": 2, \"max_in_cpu\": 0}");
}

// The groups that go with config_text().
inline std::vector<zoff_adam_hyper> config_groups(unsigned count = 2)
{
    std::vector<zoff_adam_hyper> groups(count);
    for (auto &h : groups) {
        zoff_adam_hyper_init(&h);
        h.lr = 0.01;
    }
    return groups;
}

// Ranks that are threads of one process share its processors.
inline unsigned threads_of_rank()
{
    const char *text = getenv("ZOFF_TEST_RANK_THREADS");
    return text ? (unsigned)atoi(text) : 1;
}

// Whether all engines of the program have a thread of their own for progress.
inline bool has_progress_thread()
{
    return getenv("ZOFF_TEST_PROGRESS_THREAD") != nullptr;
}

// Created and filled, not sealed.
inline engine make_engine(trainer &t, const std::string &text, uint64_t chunk_elements = 0, uint64_t host_bytes = 0,
                          zoff_comm *ranks = nullptr, zoff_accel *device = nullptr)
{
    zoff_config *parsed = nullptr;
    zoff_engine *made = nullptr;
    EXPECT_ZOFF_OK(zoff_config_parse(text.data(), text.size(), "test.json", &parsed));
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.config = parsed;
    opts.chunk_elements = chunk_elements;
    opts.host_bytes = host_bytes;
    opts.threads = ranks ? threads_of_rank() : 2;
    opts.comm = ranks;
    opts.accel = device;
    opts.progress_thread = has_progress_thread();
    EXPECT_ZOFF_OK(zoff_engine_create(&opts, &made));
    zoff_config_close(parsed); // read during create
    for (size_t i = 0; made && i < t.tensors.size(); i++) {
        zoff_param_desc d = t.desc(i);
        EXPECT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    }
    return engine(made);
}

inline engine seal_engine(trainer &t, const std::string &text, uint64_t chunk_elements = 0, uint64_t host_bytes = 0)
{
    engine e = make_engine(t, text, chunk_elements, host_bytes);
    EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
    return e;
}
} // namespace zoff_test

#endif
