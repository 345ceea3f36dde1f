/* SPDX-License-Identifier: Apache-2.0 */
// engine_test.cc: create, open, seal, destroy: an error changes nothing, and destroy leaves nothing behind.
#include "memory_fault.h"
#include "small_engine.h"

#include <chrono>
#include <dirent.h>

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
TEST(Engine, AnEmptyEngineSteps)
{
    log_catcher log;
    engine e;
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_open_sized(nullptr, nullptr, 0, 0, &made));
    e.reset(made);
    auto info = new_info();
    ASSERT_ZOFF_OK(zoff_step(made, nullptr, &info));
    EXPECT_EQ(0, info.numbers.grad_norm);
    EXPECT_EQ(1, info.numbers.clip_factor);
    EXPECT_EQ(0u, info.numbers.elements_updated);
    EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
    EXPECT_EQ(1, info.t);
}

TEST(Engine, OpenNeedsNoStructSizeInItsArray)
{
    log_catcher log;
    float value[4] = {1, 2, 3, 4}, grad[4] = {1, 1, 1, 1};
    zoff_param_desc desc[1] = {};
    desc[0].value = value;
    desc[0].grad = grad;
    desc[0].count = 4;
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_open(nullptr, desc, 1, &made));
    engine e(made);
    ASSERT_ZOFF_OK(zoff_step(made, nullptr, nullptr));
    EXPECT_LT(value[0], 1);
    EXPECT_EQ(1, grad[0]);
}

TEST(Engine, AShortStructOfAnOlderCallerIsEnough)
{
    log_catcher log;
    float value[2] = {1, 2}, grad[2] = {1, 1};
    struct old_desc {
        size_t struct_size;
        void *value, *grad;
        size_t count;
    } desc[2] = {{0, value, grad, 1}, {0, value + 1, grad + 1, 1}};
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_open_sized(nullptr, (const zoff_param_desc *)(void *)desc, sizeof desc[0], 2, &made));
    engine e(made);
    ASSERT_ZOFF_OK(zoff_step(made, nullptr, nullptr));
    EXPECT_LT(value[0], 1);
    EXPECT_LT(value[1], 2);
}

TEST(Engine, ThirtyEnginesLeaveNoDescriptorAndNoFile)
{
    log_catcher log;
    scratch_folder folder;
    // Count in this process: a shell might look before popen() has closed its end of the pipe.
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
    EXPECT_TRUE(folder.is_empty());
}

// A trainer that gives each parameter its own rate registers that many groups. With a list that grows by one this takes half a
// minute.
TEST(Engine, AGroupForEachOfManyParameters)
{
    log_catcher log;
    enum { MANY = 40000 };
    std::vector<float> value(MANY, 1.0f), grad(MANY, 1.0f);
    zoff_engine *made = nullptr;
    const char *text = "{\"optimizer\": {\"type\": \"SGD\"}, \"gradient_clipping\": 0}";
    zoff_config *config = nullptr;
    ASSERT_ZOFF_OK(zoff_test::config_from_text(text, strlen(text), "groups.json", &config));
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
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_SGD);
    h.lr = 0.5;
    ASSERT_ZOFF_OK(zoff_engine_set_group(made, MANY - 1, &h));
    ASSERT_ZOFF_OK(zoff_engine_seal(made));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no parameter is in group 40000", zoff_engine_set_group(made, MANY, &h));
    ASSERT_ZOFF_OK(zoff_step(made, nullptr, nullptr));
    EXPECT_EQ(1.0f - 1e-3f, value[MANY - 2]);
    EXPECT_EQ(0.5f, value[MANY - 1]);
}

TEST(Engine, TheProgramMayChangeItsFolder)
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
    EXPECT_TRUE(folder.is_empty());
}

TEST(Engine, TwoEnginesOnOneFolderDoNotTouchEachOther)
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

// Seal is all or nothing: after any failed allocation the engine is unchanged and may be sealed again.
TEST(Engine, ASealWithoutMemoryLeavesItAsItWas)
{
    for (bool files : {false, true}) {
        log_catcher log;
        scratch_folder folder;
        int failures = 0;
        for (int n = 1, fails = 1; fails; n++) {
            SCOPED_TRACE("allocation " + std::to_string(n));
            trainer t(7);
            t.add(3000, 2, ZOFF_BF16, ZOFF_BF16);
            t.add(500, 1, ZOFF_F32, ZOFF_F32);
            t.give_away(1);
            engine e = make_engine(t, config_text(files ? folder.path : "", 2), 1024);
            const zoff_plan_info before = plan_of(e.get());
            zoff_status status;
            {
                memory_fault fault;
                fault.fail_allocation = n;
                status = zoff_engine_seal(e.get());
                fails = fault.allocations >= n;
            }
            if (status < 0) {
                failures++;
                EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "provoked", status);
                EXPECT_EQ(0u, state_files(folder.path).size());
                const zoff_plan_info after = plan_of(e.get());
                EXPECT_EQ(before.chunk_count, after.chunk_count);
                EXPECT_EQ(before.state_bytes, after.state_bytes);
                EXPECT_EQ(before.memory_bytes, after.memory_bytes);
                ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
            }
            for (int micro = 0; micro < 2; micro++) {
                t.backward_all(0.1f);
                ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
            }
            reference::step(t.tensors, config_groups(), 1, 1, 2, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
        }
        EXPECT_LT(20, failures);
    }
}

TEST(Engine, CreateAndOpenWithoutMemoryLeaveNothing)
{
    log_catcher log;
    float value[4] = {1, 2, 3, 4}, grad[4] = {1, 1, 1, 1};
    zoff_param_desc d = {};
    d.value = value;
    d.grad = grad;
    d.count = 4;
    int failures[2] = {0, 0};
    for (bool opens : {false, true}) {
        for (int n = 1, fails = 1; fails; n++) {
            zoff_engine *made = nullptr;
            zoff_status status;
            {
                memory_fault fault;
                fault.fail_allocation = n;
                status = opens ? zoff_engine_open(nullptr, &d, 1, &made) : zoff_engine_create(nullptr, &made);
                fails = fault.allocations >= n;
            }
            failures[opens] += status < 0;
            EXPECT_EQ(status < 0, made == nullptr) << "allocation " << n;
            EXPECT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_NO_MEMORY) << zoff_last_error();
            zoff_engine_destroy(made);
        }
    }
    EXPECT_LT(3, failures[0]);
    EXPECT_LT(failures[0], failures[1]);
}

// A plan of an engine that is not sealed binds nothing: parameters may still be added.
TEST(Engine, APlanLeavesNoTies)
{
    log_catcher log;
    float x[8] = {}, g[8] = {};
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(nullptr, &made));
    engine e(made);
    for (int i = 0; i < 2; i++) {
        zoff_param_desc d = {};
        d.struct_size = sizeof d;
        d.value = x;
        d.grad = g + 4 * i;
        d.count = 4;
        ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
        EXPECT_EQ(4u, plan_of(made).elements) << "tied weights are there once";
        EXPECT_EQ(0u, made->model.ties.count);
        EXPECT_EQ(0u, made->model.params[i].tie);
    }
    zoff_plan_info shorter = {};
    shorter.struct_size = offsetof(zoff_plan_info, state_bytes);
    shorter.state_bytes = 77;
    ASSERT_ZOFF_OK(zoff_engine_plan(made, &shorter));
    EXPECT_EQ(4u, shorter.elements);
    EXPECT_EQ(77u, shorter.state_bytes) << "behind the end of the caller's struct";
    EXPECT_EQ(offsetof(zoff_plan_info, state_bytes), shorter.struct_size);
    ASSERT_ZOFF_OK(zoff_engine_seal(made));
}
} // namespace
