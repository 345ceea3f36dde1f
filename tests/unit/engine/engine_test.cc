// lifecycle_test.cc: create, add, seal, destroy: what is legal when, what is left behind, what the plan says.
#include "small_engine.h"

#include <chrono>
#include <dirent.h>

using namespace zoff_test;

namespace
{
TEST(Lifecycle, AnEmptyEngineSteps)
{
    log_catcher log;
    engine e;
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_open(nullptr, nullptr, 0, 0, &made));
    e.reset(made);
    auto info = new_info();
    ASSERT_ZOFF_OK(zoff_step(made, nullptr, &info));
    EXPECT_EQ(0, info.grad_norm);
    EXPECT_EQ(1, info.clip_factor);
    EXPECT_EQ(0u, info.elements_updated);
    EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
    EXPECT_EQ(1, info.t);
}

TEST(Lifecycle, OpenNeedsNoStructSizeInItsArray)
{
    log_catcher log;
    float value[4] = {1, 2, 3, 4}, grad[4] = {1, 1, 1, 1};
    zoff_param_desc desc[1] = {};
    desc[0].value = value;
    desc[0].grad = grad;
    desc[0].count = 4;
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_open(nullptr, desc, sizeof desc[0], 1, &made));
    engine e(made);
    ASSERT_ZOFF_OK(zoff_step(made, nullptr, nullptr));
    EXPECT_LT(value[0], 1);
    EXPECT_EQ(1, grad[0]);
}

TEST(Lifecycle, AShortStructOfAnOlderCallerIsEnough)
{
    log_catcher log;
    float value[2] = {1, 2}, grad[2] = {1, 1};
    struct old_desc {
        size_t struct_size;
        void *value, *grad;
        size_t count;
    } desc[2] = {{0, value, grad, 1}, {0, value + 1, grad + 1, 1}};
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_open(nullptr, (const zoff_param_desc *)(void *)desc, sizeof desc[0], 2, &made));
    engine e(made);
    ASSERT_ZOFF_OK(zoff_step(made, nullptr, nullptr));
    EXPECT_LT(value[0], 1);
    EXPECT_LT(value[1], 2);
}

TEST(Lifecycle, CallsAtTheWrongTimeAreRefused)
{
    log_catcher log;
    trainer t(1);
    t.add(10, 1, ZOFF_F32, ZOFF_F32);
    engine e = make_engine(t, config_text(""));
    float x[1];
    zoff_param_desc d = t.desc(0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_step(e.get(), nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_step_begin(e.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_grad_ready(e.get(), 0, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_params_pull(e.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_state_read(e.get(), 0, ZOFF_STATE_M, 0, 1, x));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_grads_drop(e.get()));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "sealed", zoff_engine_add_param(e.get(), &d, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "sealed", zoff_engine_seal(e.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "no step is open", [&] { return zoff_step_wait(e.get(), nullptr); }());
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "no step has failed", zoff_step_retry(e.get(), nullptr));
    log.expect("step 1 updates nothing");
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_step_begin(e.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_step(e.get(), nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_grad_ready(e.get(), 0, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_param_bind(e.get(), 0, t.value(0), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_state_read(e.get(), 0, ZOFF_STATE_M, 0, 1, x));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_step_count_set(e.get(), 3));
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
}

TEST(Lifecycle, AnOpenStepMayBeDestroyed)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(2);
    t.add(40000, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, config_text(folder.path), 4096);
    t.backward_all(1);
    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), 0, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    e.reset();
    EXPECT_EQ(0, system(("test -z \"$(ls -A '" + folder.path + "')\"").c_str()));
}

TEST(Lifecycle, ThePlanIsWhatSealTakes)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(3);
    add_awkward(t, ZOFF_BF16, ZOFF_BF16);
    uint64_t elements = 0;
    for (auto &x : t.tensors)
        elements += x.frozen ? 0 : x.total();
    engine e = make_engine(t, config_text(folder.path, 4), 4096);
    auto before = plan_of(e.get());
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    auto after = plan_of(e.get());
    EXPECT_EQ(before.tier, after.tier);
    EXPECT_EQ(before.elements, after.elements);
    EXPECT_EQ(before.state_bytes, after.state_bytes);
    EXPECT_EQ(before.host_bytes, after.host_bytes);
    EXPECT_EQ(before.nvme_bytes, after.nvme_bytes);
    EXPECT_EQ(before.accumulator_bytes, after.accumulator_bytes);
    EXPECT_EQ(before.chunk_count, after.chunk_count);
    EXPECT_EQ(before.chunk_bytes, after.chunk_bytes);
    EXPECT_EQ(before.slots, after.slots);
    EXPECT_EQ(before.threads, after.threads);
    EXPECT_EQ(ZOFF_TIER_NVME, after.tier);
    EXPECT_EQ(elements, after.elements);
    EXPECT_EQ(12 * elements, after.state_bytes);
    EXPECT_GE(after.accumulator_bytes, 4 * elements);
    EXPECT_EQ(3u, after.slots);
    EXPECT_EQ(3 * after.chunk_bytes, after.host_bytes);
    EXPECT_GE(after.nvme_bytes, after.state_bytes);
}

TEST(Lifecycle, Fp32WeightsAreTheirOwnMasters)
{
    log_catcher log;
    trainer t(3);
    t.add(1000, 1, ZOFF_F32, ZOFF_F32);
    engine e = make_engine(t, config_text(""));
    EXPECT_EQ(8000u, plan_of(e.get()).state_bytes);
}

TEST(Lifecycle, ThirtyEnginesLeaveNoDescriptorAndNoFile)
{
    log_catcher log;
    scratch_folder folder;
    // Counted in this process: a shell could look before popen() has closed its end of the pipe.
    auto descriptors = [] {
        int count = 0;
        DIR *dir = opendir("/proc/self/fd");
        while (dir && readdir(dir))
            count++;
        closedir(dir);
        return count;
    };
    int before = 0;
    for (int i = 0; i < 30; i++) {
        trainer t(4);
        t.add(5000, 1, ZOFF_BF16, ZOFF_BF16);
        engine e = seal_engine(t, config_text(folder.path), 1024);
        t.backward_all(1);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        e.reset();
        if (i == 0)
            before = descriptors();
    }
    EXPECT_EQ(before, descriptors());
    EXPECT_EQ(0, system(("test -z \"$(ls -A '" + folder.path + "')\"").c_str()));
}

// Trainers that give each parameter a rate of its own register as many groups. A list that grows by one copies half a minute.
TEST(Lifecycle, AGroupForEachOfManyParameters)
{
    log_catcher log;
    enum { MANY = 40000 };
    std::vector<float> value(MANY, 1.0f), grad(MANY, 1.0f);
    zoff_engine *made = nullptr;
    const char *text = "{\"optimizer\": {\"type\": \"SGD\"}, \"gradient_clipping\": 0}";
    zoff_config *config = nullptr;
    ASSERT_ZOFF_OK(zoff_config_parse(text, strlen(text), "groups.json", &config));
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.config = config;
    ASSERT_ZOFF_OK(zoff_engine_create(&opts, &made));
    zoff_config_close(config);
    engine e(made);
    const auto began = std::chrono::steady_clock::now();
    for (unsigned i = 0; i < MANY; i++) {
        zoff_param_desc d = {};
        d.struct_size = sizeof d;
        d.value = &value[i];
        d.grad = &grad[i];
        d.count = 1;
        d.group = i;
        ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    }
    EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
    zoff_adam_hyper h;
    zoff_adam_hyper_init_for(&h, ZOFF_OPTIMIZER_SGD);
    h.lr = 0.5;
    ASSERT_ZOFF_OK(zoff_engine_set_group(made, MANY - 1, &h));
    ASSERT_ZOFF_OK(zoff_engine_seal(made));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no parameter is in group 40000", zoff_engine_set_group(made, MANY, &h));
    ASSERT_ZOFF_OK(zoff_step(made, nullptr, nullptr));
    EXPECT_EQ(1.0f - 1e-3f, value[MANY - 2]);
    EXPECT_EQ(0.5f, value[MANY - 1]);
}

TEST(Lifecycle, ALogLevelThatIsNoneIsTold)
{
    log_catcher log;
    log.expect("ZOFF_LOG_LEVEL is \"loud\"; it may be error, warn, info, debug or trace");
    ASSERT_EQ(0, setenv("ZOFF_LOG_LEVEL", "loud", 1));
    trainer t(4);
    t.add(5, 1, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, "{}");
    ASSERT_EQ(0, unsetenv("ZOFF_LOG_LEVEL"));
}

TEST(Lifecycle, TheProgramMayChangeItsFolder)
{
    log_catcher log;
    scratch_folder folder;
    char before[4096];
    ASSERT_NE(nullptr, getcwd(before, sizeof before));
    ASSERT_EQ(0, chdir(folder.path.c_str()));
    trainer t(4);
    t.add(5000, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, config_text("."), 1024);
    ASSERT_EQ(0, chdir(before));
    e.reset();
    EXPECT_EQ(0, system(("test -z \"$(ls -A '" + folder.path + "')\"").c_str()));
}

TEST(Lifecycle, TwoEnginesOnOneFolderDoNotTouchEachOther)
{
    log_catcher log;
    scratch_folder folder;
    trainer a(5), b(6);
    a.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
    b.add(7000, 1, ZOFF_BF16, ZOFF_BF16);
    engine first = seal_engine(a, config_text(folder.path), 1024);
    engine second = seal_engine(b, config_text(folder.path), 1024);
    for (int step = 1; step <= 3; step++) {
        a.next_step();
        b.next_step();
        a.backward_all(0.1f);
        b.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(first.get(), nullptr, nullptr));
        ASSERT_ZOFF_OK(zoff_step(second.get(), nullptr, nullptr));
        reference::step(a.tensors, config_groups(), step, 1, 1, 0);
        reference::step(b.tensors, config_groups(), step, 1, 1, 0);
    }
    ASSERT_NO_FATAL_FAILURE(a.expect_states(first.get()));
    first.reset();
    ASSERT_NO_FATAL_FAILURE(b.expect_states(second.get()));
}
} // namespace
