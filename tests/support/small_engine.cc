/* SPDX-License-Identifier: Apache-2.0 */
// small_engine.cc: implements small_engine.h.
#include "small_engine.h"

namespace zoff_test
{
zoff_step_info new_info()
{
    zoff_step_info info = {};
    info.struct_size = sizeof info;
    return info;
}

zoff_plan_info plan_of(const zoff_engine *e)
{
    zoff_plan_info plan = {};
    plan.struct_size = sizeof plan;
    EXPECT_ZOFF_OK(zoff_engine_plan(e, &plan));
    return plan;
}

engine plan_one(uint64_t count, const std::string &text, zoff_accel *device, zoff_comm *ranks)
{
    alignas(8) static char nothing;
    zoff_engine_opts opts = {};
    zoff_engine *made = nullptr;
    zoff_config *settings = nullptr;
    EXPECT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "test.json", &settings));
    opts.struct_size = sizeof opts;
    opts.config = settings;
    opts.accel = device;
    opts.comm = ranks;
    EXPECT_ZOFF_OK(zoff_engine_create(&opts, &made));
    zoff_config_close(settings);
    zoff_param_desc d = {};
    d.struct_size = sizeof d;
    d.count = count;
    d.value = &nothing;
    d.grad = (void *)((uintptr_t)&nothing ^ (uintptr_t)1 << 62); // far from the weights; neither is accessed
    d.dtype = ZOFF_BF16;
    EXPECT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    return engine(made);
}

std::string config_text(const std::string &folder, unsigned accumulation, const std::string &more)
{
    std::string text = "{\"gradient_accumulation_steps\": " + std::to_string(accumulation) +
                       ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0" + more;
    if (!folder.empty())
        text += ", \"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" +
                folder + "\", \"buffer_count\": 3}}";
    return text + "}";
}

std::string with_ratio(std::string text, double ratio)
{
    const std::string value = "\"ratio\": " + std::to_string(ratio), count = "\"buffer_count\": 3";
    const size_t at = text.find(count);
    if (at != std::string::npos)
        return text.insert(at, value + ", ");
    return text.insert(1, "\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\", " + value + "}}, ");
}

std::string with_offloaded_weights(std::string text, const std::string &folder)
{
    const std::string from = "\"stage\": 1";
    return text.replace(text.find(from), from.size(),
                        "\"stage\": 3, \"stage3_param_persistence_threshold\": 1000, \"offload_param\": {\"device\": \"nvme\", "
                        "\"nvme_path\": \"" +
                            folder + "\", \"buffer_count\": 2, \"max_in_cpu\": 0}");
}

std::vector<zoff_optimizer_hyper> config_groups(unsigned count)
{
    std::vector<zoff_optimizer_hyper> groups(count);
    for (auto &h : groups) {
        zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
        h.lr = 0.01;
    }
    return groups;
}

unsigned threads_of_rank()
{
    const char *text = getenv("ZOFF_TEST_RANK_THREADS");
    return text ? (unsigned)atoi(text) : 1;
}

bool has_progress_thread()
{
    return getenv("ZOFF_TEST_PROGRESS_THREAD") != nullptr;
}

bool updates_ahead()
{
    return getenv("ZOFF_TEST_SPECULATION") != nullptr;
}

engine make_engine(const std::string &text, zoff_engine_opts opts)
{
    zoff_config *parsed = nullptr;
    zoff_engine *made = nullptr;
    EXPECT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "test.json", &parsed));
    if (opts.progress_thread && has_progress_thread()) { // the progress thread updates, too
        EXPECT_ZOFF_OK(zoff_config_set(parsed, "zoff.background_threads", "1"));
    }
    if (updates_ahead() && text.find("speculation_memory") == std::string::npos) {
        EXPECT_ZOFF_OK(zoff_config_set(parsed, "zoff.speculation_memory", "64MiB"));
    }
    opts.struct_size = sizeof opts;
    opts.config = parsed;
    EXPECT_ZOFF_OK(zoff_engine_create(&opts, &made));
    zoff_config_close(parsed); // zoff_engine_create() has read it
    return engine(made);
}

engine make_engine(trainer &t, const std::string &text, uint64_t chunk_elements, uint64_t host_bytes, zoff_comm *ranks,
                   zoff_accel *device)
{
    zoff_engine_opts opts = {};
    opts.chunk_elements = chunk_elements;
    opts.host_bytes = host_bytes;
    opts.threads = ranks ? threads_of_rank() : 2;
    opts.comm = ranks;
    opts.accel = device;
    opts.progress_thread = has_progress_thread();
    engine made = make_engine(text, opts);
    for (size_t i = 0; made && i < t.tensors.size(); i++) {
        zoff_param_desc d = t.desc(i);
        EXPECT_ZOFF_OK(zoff_engine_add_param(made.get(), &d, nullptr));
    }
    return made;
}

engine seal_engine(trainer &t, const std::string &text, uint64_t chunk_elements, uint64_t host_bytes)
{
    engine e = make_engine(t, text, chunk_elements, host_bytes);
    EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
    return e;
}
} // namespace zoff_test
