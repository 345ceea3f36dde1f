// structs_test.cc: each field of an input struct alone changes something, or is refused; and zero is its default: a field that
// is spelled out with its documented default changes nothing.
#include "small_engine.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>

#include <functional>
#include <map>

using namespace zoff_test;

namespace
{
// Every byte of a struct belongs to a field that was tried, or is padding. A new field fails here until it is tried.
void expect_covered(const std::map<size_t, size_t> &fields, size_t size)
{
    std::vector<bool> covered(size, false);
    for (const auto &field : fields)
        std::fill_n(covered.begin() + (ptrdiff_t)field.first, field.second, true);
    for (size_t i = sizeof(size_t), hole = 0; i < size; i++) {
        hole = covered[i] ? 0 : hole + 1;
        EXPECT_LT(hole, sizeof(size_t)) << "the bytes before offset " << i + 1 << " belong to a field that is not tried";
    }
}

#define FIELD(type, name) offsetof(type, name), sizeof(((type *)nullptr)->name)

bool cancels(const char *, uint64_t, uint64_t, void *ctx)
{
    if (ctx)
        ++*(int *)ctx;
    return ctx != nullptr;
}

class EngineOpts : public testing::Test
{
  protected:
    void SetUp() override
    {
        const std::string text = "{\"optimizer\": {\"params\": {\"lr\": 0.25}}}";
        path = folder.file("ds.json");
        std::ofstream(path) << text;
        zoff_config *made = nullptr;
        ASSERT_ZOFF_OK(config_from_text(text.data(), text.size(), "given.json", &made));
        configuration.reset(made);
        zoff_accel *device_made = nullptr;
        ASSERT_ZOFF_OK(zoff_accel_open("emulated", 0, &device_made));
        device.reset(device_made);
        ASSERT_ZOFF_OK(zoff_comm_open_threads(nullptr, 1, &one));
        ranks.reset(one);
        states = folder.file("states");
        ASSERT_EQ(0, mkdir(states.c_str(), 0700));
    }
    // All that a program can see of an engine: its plan, its hyper-parameters, its weights after a step, or its error.
    std::string outcome(const zoff_engine_opts &opts)
    {
        std::vector<float> weights(5000, 1.0f), grads(5000, 0.5f);
        zoff_param_desc desc = ZOFF_PARAM_DESC_INIT;
        desc.value = weights.data();
        desc.grad = grads.data();
        desc.count = weights.size();
        desc.name = "w";
        zoff_engine *made = nullptr;
        calls = 0;
        if (zoff_engine_open(&opts, &desc, 1, &made) < 0)
            return zoff_last_error();
        engine e(made);
        zoff_plan_info info = ZOFF_PLAN_INFO_INIT;
        EXPECT_ZOFF_OK(zoff_engine_plan(made, &info));
        if (zoff_step(made, nullptr, nullptr) < 0)
            return zoff_last_error();
        char text[400];
        snprintf(text, sizeof text,
                 "tier %d, chunks %llu, threads %u, weight %.9g, %s, progress thread %d, calls %d, norm of %d", (int)info.tier,
                 (unsigned long long)info.chunk_count, info.threads, (double)weights[7],
                 info.device_host_bytes ? "device" : "host", opts.progress_thread && has_thread(), calls > 0,
                 opts.norm_comm ? (int)zoff_comm_size(opts.norm_comm) : 0);
        std::string all = text;
        zoff_comm_info about = ZOFF_COMM_INFO_INIT;
        EXPECT_ZOFF_OK(zoff_comm_get_info(zoff_engine_comm(made), &about));
        return all + ", over " + about.backend;
    }
    static bool has_thread()
    {
        size_t found = 0;
        if (FILE *self = fopen("/proc/self/status", "r")) {
            for (char line[256]; fgets(line, sizeof line, self);)
                sscanf(line, "Threads: %zu", &found);
            fclose(self);
        }
        return found > 1;
    }
    zoff_engine_opts none = ZOFF_ENGINE_OPTS_INIT;
    scratch_folder folder;
    std::string path, states;
    config configuration;
    accel device;
    comm ranks;
    zoff_comm *one = nullptr;
    int calls = 0;
    log_catcher log;
};

TEST_F(EngineOpts, EachFieldAloneChangesSomethingOrIsRefused)
{
    using opts = zoff_engine_opts;
    const struct {
        const char *name;
        size_t offset, bytes;
        std::function<void(opts &)> set;
        bool with_files; // beside states in files
    } fields[] = {
        {"config_path", FIELD(opts, config_path), [&](opts &o) { o.config_path = path.c_str(); }, false},
        {"config", FIELD(opts, config), [&](opts &o) { o.config = configuration.get(); }, false},
        {"accel", FIELD(opts, accel), [&](opts &o) { o.accel = device.get(); }, false},
        {"comm", FIELD(opts, comm), [&](opts &o) { o.comm = one; }, false},
        {"ranks", FIELD(opts, ranks), [](opts &o) { o.ranks = "absent"; }, false},
        {"state_tier", FIELD(opts, state_tier), [](opts &o) { o.state_tier = ZOFF_TIER_NVME; }, false},
        {"nvme_path", FIELD(opts, nvme_path), [&](opts &o) { o.nvme_path = states.c_str(); }, false},
        {"host_bytes", FIELD(opts, host_bytes), [](opts &o) { o.host_bytes = 100; }, false},
        {"chunk_elements", FIELD(opts, chunk_elements), [](opts &o) { o.chunk_elements = 1024; }, false},
        {"threads", FIELD(opts, threads), [](opts &o) { o.threads = 3; }, false},
        {"progress_thread", FIELD(opts, progress_thread), [](opts &o) { o.progress_thread = true; }, false},
        {"persist_t", FIELD(opts, persist_t), [](opts &o) { o.persist_t = 1; }, false},
        {"progress", FIELD(opts, progress), [](opts &o) { o.progress = cancels; }, true},
        {"progress_ctx", FIELD(opts, progress_ctx),
         [&](opts &o) {
             o.progress = cancels;
             o.progress_ctx = &calls;
         },
         true},
        {"norm_comm", FIELD(opts, norm_comm), [&](opts &o) { o.norm_comm = one; }, false},
    };
    std::map<size_t, size_t> tried;
    for (const auto &field : fields) {
        SCOPED_TRACE(field.name);
        zoff_engine_opts base = none;
        if (field.with_files)
            base.nvme_path = states.c_str();
        zoff_engine_opts changed = base;
        field.set(changed);
        tried[field.offset] = field.bytes;
        // A device reads other pointers than these; what it does with them is not asked here.
        const std::string before = outcome(base);
        if (changed.accel) {
            zoff_engine *made = nullptr;
            ASSERT_ZOFF_OK(zoff_engine_create(&changed, &made));
            zoff_engine_destroy(made);
            continue;
        }
        EXPECT_NE(before, outcome(changed));
    }
    expect_covered(tried, sizeof(zoff_engine_opts));
}

// A folder alone puts the states there, and a tier that the program gives wins.
TEST_F(EngineOpts, AFolderMeansFiles)
{
    zoff_engine_opts opts = none;
    opts.nvme_path = states.c_str();
    EXPECT_EQ(0u, outcome(opts).find("tier 2")) << outcome(opts);
    opts.state_tier = ZOFF_TIER_HOST;
    EXPECT_EQ(0u, outcome(opts).find("tier 1")) << outcome(opts);
    opts.state_tier = ZOFF_TIER_AUTO;
    opts.nvme_path = "/proc/none";
    EXPECT_NE(std::string::npos, outcome(opts).find("/proc/none")) << outcome(opts);
}

// A configuration with a folder and without a device is told that nothing goes there. One that names a device is not.
TEST_F(EngineOpts, AFolderOfTheConfigurationWithoutADeviceIsAWarning)
{
    const struct {
        std::string text;
        bool warns;
    } cases[] = {
        {"{\"zoff\": {\"nvme_paths\": \"" + states + "\"}}", true},
        {"{\"zero_optimization\": {\"offload_optimizer\": {\"nvme_path\": \"" + states + "\"}}}", true},
        {"{\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\", \"nvme_path\": \"" + states + "\"}}}", false},
        {"{\"zero_optimization\": {\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" + states + "\"}}}", false}};
    log.expect("the states stay in DRAM. Set it to \"nvme\"");
    for (const auto &c : cases) {
        const size_t before = log.count("the states stay in DRAM");
        zoff_config *made = nullptr;
        ASSERT_ZOFF_OK(config_from_text(c.text.data(), c.text.size(), "folders.json", &made));
        config parsed(made);
        zoff_engine_opts opts = none;
        opts.config = made;
        outcome(opts);
        EXPECT_EQ(before + c.warns, log.count("the states stay in DRAM")) << c.text;
    }
}

// Weights after two steps of a parameter that is described so, or the error.
std::string trained(const std::function<void(zoff_param_desc &)> &set)
{
    const size_t count = 3000;
    std::vector<float> weights(4 * count, 1.0f), grads(4 * count);
    for (size_t i = 0; i < grads.size(); i++)
        grads[i] = 0.001f * (float)(i % 7) - 0.002f;
    zoff_param_desc desc = ZOFF_PARAM_DESC_INIT;
    desc.value = weights.data();
    desc.grad = grads.data();
    desc.count = count;
    set(desc);
    zoff_engine *made = nullptr;
    if (zoff_engine_open(nullptr, &desc, 1, &made) < 0)
        return zoff_last_error();
    engine e(made);
    for (int step = 0; step < 2; step++)
        EXPECT_ZOFF_OK(zoff_step(made, nullptr, nullptr));
    return std::string((const char *)weights.data(), weights.size() * sizeof(float));
}

// The documented default of each field of zoff_param_desc is what zero does, beside each other field that is given.
TEST(ParamDesc, ZeroIsTheDefaultOfEachField)
{
    log_catcher log;
    using desc = zoff_param_desc;
    static const size_t DIMS[] = {3000};
    const std::function<void(desc &)> GIVEN[] = {
        [](desc &) {},
        [](desc &d) { d.slices = 2; },
        [](desc &d) { d.slices = 2, d.value_stride = 3001; },
        [](desc &d) { d.slices = 2, d.grad_stride = 3001; },
        [](desc &d) { d.dtype = ZOFF_BF16; },
        [](desc &d) { d.grad_dtype = ZOFF_BF16; },
        [](desc &d) { d.group = 1; },
        [](desc &d) { d.frozen = true; },
        [](desc &d) { d.name = "w"; },
        [](desc &d) { d.dims = DIMS; },
        [](desc &d) { d.dim_count = 1; },
        [](desc &d) { d.slice_name = "h.{}"; },
        [](desc &d) { d.norm_replicated = true; },
        [](desc &d) { d.reduced = true; },
    };
    for (const auto &given : GIVEN) {
        const std::string plain = trained(given), spelled = trained([&](desc &d) {
                                                      given(d);
                                                      d.slices = d.slices ? d.slices : 1;
                                                      d.value_stride = d.value_stride ? d.value_stride : d.count;
                                                      d.grad_stride = d.grad_stride ? d.grad_stride : d.count;
                                                      d.dtype = d.dtype ? d.dtype : ZOFF_F32;
                                                      d.grad_dtype = d.grad_dtype ? d.grad_dtype : d.dtype;
                                                      d.name = d.name ? d.name : "param0";
                                                      if (!d.dims && !d.dim_count)
                                                          d.dims = DIMS, d.dim_count = 1;
                                                  });
        EXPECT_EQ(plain, spelled);
    }
}

// Weights after two steps with these arguments, or the error.
std::string after_steps(const std::function<void(zoff_step_args &)> &set)
{
    trainer t(3);
    t.add(3000, 2, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, "{\"optimizer\": {\"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0.5}");
    zoff_step_args args = ZOFF_STEP_ARGS_INIT;
    set(args);
    for (int step = 0; step < 2; step++) {
        t.backward_all(0.1f);
        if (zoff_step(e.get(), &args, nullptr) < 0)
            return zoff_last_error();
        t.next_step();
    }
    return std::string((const char *)t.value(0), 6000 * sizeof(float));
}

// The documented default of each field of zoff_step_args is what zero does, beside each other field that is given.
TEST(StepArgs, ZeroIsTheDefaultOfEachField)
{
    log_catcher log;
    zoff_optimizer_hyper hyper = config_groups(1)[0];
    hyper.lr = 0.5;
    const std::function<void(zoff_step_args &)> GIVEN[] = {
        [](zoff_step_args &) {},
        [&](zoff_step_args &a) { a.hyper = &hyper, a.hyper_count = 1; },
        [](zoff_step_args &a) { a.clip_norm = ZOFF_OFF; },
        [](zoff_step_args &a) { a.grad_scale = 3; },
        [](zoff_step_args &a) { a.flags = ZOFF_STEP_ZERO_GRADS; },
        [](zoff_step_args &a) { a.hyper_stride = 8; },
        [](zoff_step_args &a) { a.hyper_count = 1; },
        [&](zoff_step_args &a) { a.hyper = &hyper; },
    };
    for (const auto &given : GIVEN) {
        const std::string plain = after_steps(given);
        const std::string spelled = after_steps([&](zoff_step_args &a) {
            given(a);
            a.clip_norm = a.clip_norm == 0 ? 0.5 : a.clip_norm;
            a.grad_scale = a.grad_scale == 0 ? 1 : a.grad_scale;
            a.hyper_stride = a.hyper && !a.hyper_stride ? sizeof hyper : a.hyper_stride;
        });
        EXPECT_EQ(plain, spelled);
    }
    EXPECT_NE(std::string::npos, after_steps(GIVEN[7]).find("hyper_count is 0"));
}
} // namespace
