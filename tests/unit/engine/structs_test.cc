/* SPDX-License-Identifier: Apache-2.0 */
// structs_test.cc: each field of an input struct alone changes something, or is refused; and zero is its default: a field that
// is spelled out with its documented default changes nothing.
#include "small_engine.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <regex>

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
    static const size_t DIMS[] = {3000}, ROWS[] = {1000};
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
        [](desc &d) { d.matrix_rows = ROWS; },
        [](desc &d) { d.matrix_row_count = 1; },
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

// A field of a struct, and a way to give it. Each one is given alone, beside what `base` has.
template <class Struct> struct field {
    const char *name;
    size_t offset, bytes;
    std::function<void(Struct &)> give;
};

template <class Struct>
void expect_each_counts(const Struct &base, const std::vector<field<Struct>> &fields,
                        const std::function<std::string(const Struct &)> &outcome)
{
    std::map<size_t, size_t> tried;
    const std::string before = outcome(base);
    EXPECT_EQ(before, outcome(base)) << "an outcome repeats";
    for (const auto &one : fields) {
        Struct changed = base;
        one.give(changed);
        tried[one.offset] = one.bytes;
        EXPECT_NE(before, outcome(changed)) << one.name;
    }
    expect_covered(tried, sizeof(Struct));
}

std::string or_error(zoff_status status)
{
    return status < 0 ? std::string(zoff_last_error()) + "; " : "ok; ";
}

TEST(CommOpts, EachFieldAloneChangesSomethingOrIsRefused)
{
    using opts = zoff_comm_opts;
    const opts none = ZOFF_COMM_OPTS_INIT;
    expect_each_counts<opts>(none,
                             {{"backend", FIELD(opts, backend), [](opts &o) { o.backend = "threads"; }},
                              {"timeout_seconds", FIELD(opts, timeout_seconds), [](opts &o) { o.timeout_seconds = NAN; }}},
                             [](const opts &o) {
                                 zoff_comm *made = nullptr;
                                 zoff_comm_info info = ZOFF_COMM_INFO_INIT;
                                 if (zoff_comm_open(&o, &made) < 0)
                                     return std::string(zoff_last_error());
                                 const comm owned(made);
                                 EXPECT_ZOFF_OK(zoff_comm_get_info(made, &info));
                                 return std::string(info.backend);
                             });
    zoff_comm *both[2] = {};
    opts soon = none;
    soon.timeout_seconds = 0.125;
    ASSERT_ZOFF_OK(zoff_comm_open_threads(&soon, 2, both));
    const comm first(both[0]), second(both[1]);
    zoff_engine_opts of_engine = ZOFF_ENGINE_OPTS_INIT;
    of_engine.comm = both[0];
    const engine e = make_engine("{}", of_engine);
    EXPECT_LT(zoff_engine_seal(e.get()), 0) << "the other rank does not come";
    EXPECT_NE(nullptr, strstr(zoff_last_error(), "0.125")) << zoff_last_error();
}

TEST(AioOpts, EachFieldAloneChangesSomethingOrIsRefused)
{
    using opts = zoff_aio_opts;
    const scratch_folder folder;
    opts none = ZOFF_AIO_OPTS_INIT;
    unsigned number = 0;
    expect_each_counts<opts>(none,
                             {{"backend", FIELD(opts, backend), [](opts &o) { o.backend = "posix"; }},
                              {"block_bytes", FIELD(opts, block_bytes), [](opts &o) { o.block_bytes = (size_t)1 << 31; }},
                              {"depth", FIELD(opts, depth), [](opts &o) { o.depth = 1u << 20; }},
                              {"direct", FIELD(opts, direct), [](opts &o) { o.direct = (zoff_aio_direct)3; }},
                              {"writable", FIELD(opts, writable), [](opts &o) { o.writable = true; }},
                              {"create", FIELD(opts, create), [](opts &o) { o.create = true; }}},
                             [&](const opts &o) {
                                 const std::string path = folder.file("f" + std::to_string(o.create ? ++number : 0));
                                 zoff_aio *q = nullptr;
                                 uint64_t ticket;
                                 zoff_aio_info info = ZOFF_AIO_INFO_INIT;
                                 if (!o.create)
                                     std::ofstream(path) << "one";
                                 if (zoff_aio_open(path.c_str(), &o, &q) < 0)
                                     return std::string(zoff_last_error());
                                 EXPECT_ZOFF_OK(zoff_aio_get_info(q, &info));
                                 const zoff_status status = zoff_aio_write(q, 0, 1, "x", &ticket);
                                 std::string all = or_error(status) + info.backend + (info.direct ? " direct" : "");
                                 if (status == ZOFF_OK) {
                                     EXPECT_ZOFF_OK(zoff_aio_wait(q, ticket));
                                 }
                                 zoff_aio_close(q);
                                 return all;
                             });
}

TEST(AioTuneOpts, EachFieldAloneChangesSomethingOrIsRefused)
{
    using opts = zoff_aio_tune_opts;
    const scratch_folder folder;
    log_catcher log;
    opts base = ZOFF_AIO_TUNE_OPTS_INIT;
    zoff_aio_tune_result ignored = ZOFF_AIO_TUNE_RESULT_INIT;
    base.seconds = 0.02; // the first measurement is kept
    if (zoff_aio_tune(folder.path.c_str(), &base, &ignored) < 0)
        GTEST_SKIP() << zoff_last_error();
    expect_each_counts<opts>(base,
                             {{"backend", FIELD(opts, backend), [](opts &o) { o.backend = "posix"; }},
                              {"seconds", FIELD(opts, seconds), [](opts &o) { o.seconds = 61; }},
                              {"direct", FIELD(opts, direct), [](opts &o) { o.direct = (zoff_aio_direct)3; }},
                              {"fresh", FIELD(opts, fresh), [](opts &o) { o.fresh = true; }}},
                             [&](const opts &o) {
                                 zoff_aio_tune_result out = ZOFF_AIO_TUNE_RESULT_INIT;
                                 if (zoff_aio_tune(folder.path.c_str(), &o, &out) < 0)
                                     return std::string(zoff_last_error());
                                 return std::string(out.backend) + (out.cached ? ", cached" : "");
                             });
}

TEST(OptimizerTensor, EachFieldAloneChangesSomethingOrIsRefused)
{
    using tensor = zoff_optimizer_tensor;
    enum { COUNT = 16 };
    static float given[4][COUNT], arrays[4][COUNT];
    static uint16_t copy[COUNT];
    for (size_t k = 0; k < 4; k++)
        std::fill_n(given[k], COUNT, 0.5f + (float)k);
    tensor base = ZOFF_OPTIMIZER_TENSOR_INIT;
    base.count = COUNT / 2;
    base.master = arrays[0];
    base.m = arrays[1];
    base.v = arrays[2];
    base.grad = arrays[3];
    zoff_optimizer_hyper hyper;
    zoff_optimizer_hyper_init(&hyper, ZOFF_OPTIMIZER_MUON);
    expect_each_counts<tensor>(base,
                               {{"count", FIELD(tensor, count), [](tensor &t) { t.count = COUNT; }},
                                {"master", FIELD(tensor, master), [](tensor &t) { t.master = nullptr; }},
                                {"m", FIELD(tensor, m), [](tensor &t) { t.m = nullptr; }},
                                {"v", FIELD(tensor, v), [](tensor &t) { t.v = nullptr; }},
                                {"grad", FIELD(tensor, grad), [](tensor &t) { t.grad = nullptr; }},
                                {"grad_dtype", FIELD(tensor, grad_dtype), [](tensor &t) { t.grad_dtype = ZOFF_BF16; }},
                                {"copy_out", FIELD(tensor, copy_out), [](tensor &t) { t.copy_out = copy; }},
                                {"copy_dtype", FIELD(tensor, copy_dtype), [](tensor &t) { t.copy_dtype = (zoff_dtype)77; }},
                                {"master_dtype", FIELD(tensor, master_dtype), [](tensor &t) { t.master_dtype = ZOFF_BF16; }},
                                {"rows", FIELD(tensor, rows), [](tensor &t) { t.rows = 2; }},
                                {"cols", FIELD(tensor, cols), [](tensor &t) { t.cols = 2; }}},
                               [&](const tensor &t) {
                                   memcpy(arrays, given, sizeof arrays);
                                   memset(copy, 0, sizeof copy);
                                   const std::string said = or_error(zoff_optimizer_step(&hyper, 1, 1, &t));
                                   return said + std::string((const char *)arrays, sizeof arrays) +
                                          std::string((const char *)copy, sizeof copy);
                               });
}

// All files of a folder with their sizes, and which checkpoint is the latest.
std::string listing(const std::string &folder)
{
    std::map<std::string, uintmax_t> files;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(folder)) {
        if (entry.is_regular_file())
            files[entry.path().string().substr(folder.size())] = entry.file_size();
    }
    std::string all, latest;
    std::getline(std::ifstream(folder + "/latest"), latest);
    for (const auto &one : files)
        all += one.first + " " + std::to_string(one.second) + "; ";
    return all + latest.substr(0, 15) + "; ";
}

// Save with options beside an earlier checkpoint, while a save is under way. Then load that earlier one with them into a model
// that has a parameter more.
std::string saved_and_loaded(const zoff_checkpoint_opts &o)
{
    const scratch_folder folder, before;
    std::vector<float> weights(9000, 1.0f), grads(5000, 0.5f);
    std::vector<zoff_param_desc> descs(3, ZOFF_PARAM_DESC_INIT);
    const char *const NAMES[] = {"w", "frozen", "new"};
    const size_t COUNTS[] = {5000, 3000, 1000};
    for (size_t i = 0, at = 0; i < descs.size(); at += COUNTS[i++]) {
        descs[i].name = NAMES[i];
        descs[i].value = &weights[at];
        descs[i].grad = i == 0 ? grads.data() : nullptr;
        descs[i].count = COUNTS[i];
        descs[i].frozen = i == 1;
    }
    zoff_engine *made[2] = {};
    zoff_checkpoint *under_way = nullptr;
    EXPECT_ZOFF_OK(zoff_engine_open(nullptr, descs.data(), 2, &made[0]));
    EXPECT_ZOFF_OK(zoff_engine_open(nullptr, descs.data(), 3, &made[1]));
    const engine e(made[0]), other(made[1]);
    EXPECT_ZOFF_OK(zoff_step(made[0], nullptr, nullptr));
    EXPECT_ZOFF_OK(zoff_checkpoint_save(made[0], folder.path.c_str(), nullptr));
    EXPECT_ZOFF_OK(zoff_step(made[0], nullptr, nullptr));
    EXPECT_ZOFF_OK(zoff_checkpoint_begin(made[0], before.path.c_str(), nullptr, &under_way));
    std::string all = or_error(zoff_checkpoint_save(made[0], folder.path.c_str(), &o));
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(under_way));
    all += listing(folder.path) + or_error(zoff_checkpoint_load(made[1], before.path.c_str(), &o));
    for (const std::string &part : {before.path, folder.path, std::string("/[0-9a-f]{16}[.]")}) // words of this run
        all = std::regex_replace(all, std::regex(part), "/");
    return all;
}

TEST(CheckpointOpts, EachFieldAloneChangesSomethingOrIsRefused)
{
    using opts = zoff_checkpoint_opts;
    log_catcher log;
    static uint64_t position = 7;
    static zoff_checkpoint_data data = {"position", &position, sizeof position, false};
    static bool found;
    const opts none = ZOFF_CHECKPOINT_OPTS_INIT;
    expect_each_counts<opts>(
        none,
        {{"data, of which data_count counts", FIELD(opts, data),
          [](opts &o) {
              o.data = &data;
              o.data_count = 1;
          }},
         {"data_count", FIELD(opts, data_count), [](opts &o) { o.data_count = 1; }},
         {"name", FIELD(opts, name), [](opts &o) { o.name = "mine"; }},
         {"label", FIELD(opts, label), [](opts &o) { o.label = "tp0"; }},
         {"engines", FIELD(opts, engines), [](opts &o) { o.engines = 2; }},
         {"keep", FIELD(opts, keep), [](opts &o) { o.keep = 1; }},
         {"memory, which e2e_save_memory measures", FIELD(opts, memory), [](opts &o) { o.name = "mine", o.memory = 1; }},
         {"skip_frozen", FIELD(opts, skip_frozen), [](opts &o) { o.skip_frozen = true; }},
         {"refuse_if_busy", FIELD(opts, refuse_if_busy), [](opts &o) { o.refuse_if_busy = true; }},
         {"allow", FIELD(opts, allow), [](opts &o) { o.allow = "new"; }},
         {"data_found, beside data that the checkpoint lacks", FIELD(opts, data_found),
          [](opts &o) {
              o.data = &data;
              o.data_count = 1;
              o.data_found = &found;
          }},
         {"pinned", FIELD(opts, pinned), [](opts &o) { o.pinned = true; }},
         {"weights_only, which e2e_remedy tests", FIELD(opts, weights_only),
          [](opts &o) {
              o.allow = "new";
              o.weights_only = true;
          }}},
        saved_and_loaded);
    opts with_data = none;
    with_data.data = &data;
    with_data.data_count = 1;
    with_data.allow = "new";
    const std::string not_there = saved_and_loaded(with_data);
    with_data.data_found = &found;
    EXPECT_NE(not_there, saved_and_loaded(with_data)) << "data_found";
}
} // namespace
