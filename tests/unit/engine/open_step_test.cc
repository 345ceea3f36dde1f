/* SPDX-License-Identifier: Apache-2.0 */
// open_step_test.cc: calls between zoff_step_begin() and zoff_step_wait() that need whole states: they finish the step, whose
// result zoff_step_wait() still returns. And the two that ask for less: the next loss scale, and a gradient's buffer.
#include "fp16_engine.h"
#include "on_tiers.h"
#include "rank_job.h"
#include "trace_file.h"

#include <string.h>

using namespace zoff_test;

namespace
{
class OpenStep : public on_tiers
{
  protected:
    enum { TENSORS = 4, COUNT = 6000 };

    void add(trainer &t, zoff_dtype dtype = ZOFF_F32)
    {
        for (int i = 0; i < TENSORS; i++)
            t.add(COUNT, 1, dtype, dtype);
    }

    void add_owned(trainer &t)
    {
        add(t, ZOFF_BF16);
        for (size_t i = 0; i < TENSORS; i++)
            t.give_away(i);
    }

    static void begin(trainer &t, zoff_engine *e, const zoff_step_args *args = nullptr)
    {
        t.backward_all(0.1f);
        t.hand_over_all(e);
        ASSERT_ZOFF_OK(zoff_step_begin(e, args));
    }

    // The weights are in files. A step overwrites them: split masters would be read from them.
    std::string text_with_files() const
    {
        const std::string nvme = "\"offload_optimizer\": {\"device\": \"nvme\"",
                          cpu = "\"offload_optimizer\": {\"device\": \"cpu\"";
        std::string made = config_text(folder.path, 1, ", \"zoff\": {\"master\": \"fp32\"}");
        made = with_offloaded_weights(made, folder.path);
        return GetParam() ? made : made.replace(made.find(nvme), nvme.size(), cpu);
    }

    scratch_folder saves;
};
INSTANTIATE_TEST_SUITE_P(Tiers, OpenStep, testing::Bool(), tier_name);

TEST_P(OpenStep, IsFinishedByACallThatNeedsItsStates)
{
    const std::vector<std::pair<const char *, std::function<zoff_status(zoff_engine *, int64_t)>>> calls = {
        {"pull", [](auto *e, int64_t) { return zoff_params_pull(e); }},
        {"push", [](auto *e, int64_t) { return zoff_params_push(e); }},
        {"read",
         [](auto *e, int64_t) {
             std::vector<float> x(COUNT);
             return zoff_state_read(e, 1, ZOFF_STATE_M, 0, COUNT, x.data());
         }},
        {"flush", [](auto *e, int64_t) { return zoff_state_flush(e); }},
        {"count", [](auto *e, int64_t t) { return zoff_step_count_set(e, t); }},
        {"scaler",
         [](auto *e, int64_t) {
             zoff_loss_scaler s = new_scaler();
             return zoff_loss_scaler_get(e, &s);
         }},
        {"save", [this](auto *e, int64_t) { return zoff_checkpoint_save(e, saves.path.c_str(), nullptr); }},
        {"save beside", [this](auto *e, int64_t) {
             zoff_checkpoint *save = nullptr;
             zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
             opts.name = "beside";
             EXPECT_ZOFF_OK(zoff_checkpoint_begin(e, saves.path.c_str(), &opts, &save));
             return zoff_checkpoint_wait(save);
         }}};
    trainer t(1);
    add(t);
    engine e = seal_engine(t, text(), COUNT);
    int64_t step = 0;
    for (const auto &call : calls) {
        for (const bool used : {false, true}) {
            SCOPED_TRACE(std::string(call.first) + (used ? ", half updated" : ""));
            t.next_step();
            ASSERT_NO_FATAL_FAILURE(begin(t, e.get()));
            ASSERT_ZOFF_OK(used ? zoff_param_wait(e.get(), 0, 0, nullptr) : ZOFF_OK);
            reference::step(t.tensors, config_groups(), ++step, 1, 1, 0);
            ASSERT_ZOFF_OK(call.second(e.get(), step));
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
            ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
            EXPECT_ZOFF_OK(zoff_param_wait(e.get(), 2, 0, nullptr));
            const char *const words = "the step is complete; zoff_step_wait() returns its result";
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, words, zoff_grad_ready(e.get(), 0, 0, nullptr));
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, words, zoff_step_begin(e.get(), nullptr));
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, words, zoff_grads_drop(e.get()));
            zoff_step_info info = new_info();
            ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
            EXPECT_EQ(step, info.t);
            EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
            EXPECT_EQ((uint64_t)TENSORS * COUNT, info.numbers.elements_updated);
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "no step is open", zoff_step_wait(e.get(), nullptr));
        }
    }
    // The checkpoint has the states after the step that the save has finished.
    trainer other(2);
    add(other);
    engine loaded = seal_engine(other, config_text(""), COUNT);
    ASSERT_ZOFF_OK(zoff_checkpoint_load(loaded.get(), (saves.path + "/beside").c_str(), nullptr));
    std::vector<float> x(COUNT), y(COUNT);
    for (zoff_param p = 0; p < TENSORS; p++) {
        ASSERT_ZOFF_OK(zoff_state_read(e.get(), p, ZOFF_STATE_V, 0, COUNT, x.data()));
        ASSERT_ZOFF_OK(zoff_state_read(loaded.get(), p, ZOFF_STATE_V, 0, COUNT, y.data()));
        EXPECT_EQ(x, y);
    }
}

TEST_P(OpenStep, AMicroStepIsFinishedToo)
{
    trainer t(3);
    add(t);
    engine e = seal_engine(t, text(2), COUNT);
    zoff_step_info info = new_info();
    t.next_step();
    ASSERT_NO_FATAL_FAILURE(begin(t, e.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_params_push: 1 of 2 micro-steps", zoff_params_push(e.get()));
    EXPECT_ZOFF_OK(zoff_grad_reusable(e.get(), 1, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
    EXPECT_TRUE(info.accumulated);
    ASSERT_NO_FATAL_FAILURE(begin(t, e.get()));
    EXPECT_ZOFF_OK(zoff_params_push(e.get()));
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
    reference::step(t.tensors, config_groups(), 1, 1, 2, 0);
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}

// The trace tells in which call a bucket was updated: with one thread, rows are inside of calls.
static int64_t begin_of(const std::vector<trace_event> &events, const std::string &name, int64_t bucket, int nth = 0)
{
    for (const auto &x : events) {
        if (x.phase == "X" && x.name == name && (bucket < 0 || x.bucket == bucket) && nth-- == 0)
            return x.begin;
    }
    ADD_FAILURE() << name << " " << bucket;
    return 0;
}

TEST_P(OpenStep, AFetchOfTheEnginesWeightsUpdatesThem)
{
    trainer t(4);
    add(t, ZOFF_BF16);
    t.give_away(1);
    const std::string path = folder.file("trace.json");
    ASSERT_EQ(0, setenv("ZOFF_TRACE", path.c_str(), 1));
    engine e = seal_engine(t, text(), COUNT);
    unsetenv("ZOFF_TRACE");
    const void *lent = nullptr;
    for (int64_t step = 1; step <= 2; step++) {
        t.next_step();
        ASSERT_NO_FATAL_FAILURE(begin(t, e.get()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "call zoff_param_fetch()", zoff_param_wait(e.get(), 1, 0, nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no slice 9", zoff_param_fetch(e.get(), 1, 9, nullptr, &lent));
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        ASSERT_ZOFF_OK(zoff_param_fetch(e.get(), 1, 0, nullptr, &lent));
        for (zoff_param p = 0; p < TENSORS; p++)
            ASSERT_ZOFF_OK(p == 1 ? ZOFF_OK : zoff_param_wait(e.get(), p, 0, nullptr));
        reference::step(t.tensors, config_groups(), step, 1, 1, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        zoff_step_info info = new_info();
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
        EXPECT_EQ((uint64_t)TENSORS * COUNT, info.numbers.elements_updated);
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
        ASSERT_ZOFF_OK(zoff_param_release(e.get(), 1, 0, nullptr)); // the slice was lent across the end of the step
    }
    e.reset();
    const auto events = read_trace(path);
    const int64_t fetch = begin_of(events, "zoff_param_fetch", -1, 1), wait = begin_of(events, "zoff_param_wait", -1, 1);
    EXPECT_LT(fetch, begin_of(events, "update", 1));
    EXPECT_GT(wait, begin_of(events, "update", 1));
    if (!GetParam()) { // where states stream, all buckets that were read are updated
        EXPECT_LT(wait, begin_of(events, "update", 3)) << "the fetch updates no more than its weights";
    }
}

// The second pass knows the order of the first. Its slices have places when they are updated, and no file is read for them.
TEST_P(OpenStep, WeightsInFilesAreCopiedWhereTheyAreUpdated)
{
    trainer t(7);
    add_owned(t);
    engine e = seal_engine(t, text_with_files(), COUNT / 2);
    uint64_t read[3];
    for (int64_t step = 1; step <= 3; step++) {
        zoff_step_info info = new_info();
        t.next_step();
        ASSERT_NO_FATAL_FAILURE(begin(t, e.get()));
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
        reference::step(t.tensors, config_groups(), step, 1, 1, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        read[step - 1] = info.bytes.nvme_read;
    }
    const uint64_t states = plan_of(e.get()).step_read_bytes;
    EXPECT_LT(0u, read[0]);
    EXPECT_EQ(states, read[1]);
    EXPECT_EQ(states, read[2]);
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

// While a slice is lent, its step is not undone. Without files that persist nothing is undone.
TEST_P(OpenStep, IsNotDroppedWhileItsWeightsAreLent)
{
    trainer t(5);
    add(t, ZOFF_BF16);
    t.give_away(1);
    std::string config = text();
    if (GetParam())
        config.insert(1, "\"zoff\": {\"persist\": true}, ");
    engine e = seal_engine(t, config, COUNT);
    const void *lent = nullptr;
    t.next_step();
    ASSERT_NO_FATAL_FAILURE(begin(t, e.get()));
    ASSERT_ZOFF_OK(zoff_param_fetch(e.get(), 1, 0, nullptr, &lent));
    const char *const words = GetParam() ? "zoff_grads_drop: slice 0 of param1 is still lent" : "step 1 is half done";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, words, zoff_grads_drop(e.get()));
    ASSERT_ZOFF_OK(zoff_param_release(e.get(), 1, 0, nullptr));
    if (GetParam()) {
        ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.expect_weights()) << "those before the step";
        t.next_step();
        ASSERT_NO_FATAL_FAILURE(begin(t, e.get()));
    }
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
    reference::step(t.tensors, config_groups(), 1, 1, 1, 0);
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}

// One rank saves the step that the others wait for.
TEST_P(OpenStep, IsFinishedByOneRankWhileOthersWait)
{
    enum { RANKS = 3 };
    rank_job job(RANKS);
    const std::string config = GetParam() ? text() : config_text("", 1, ", \"zero_optimization\": {\"stage\": 1}");
    job.on_each([&](unsigned rank) {
        trainer t(9);
        add(t, ZOFF_BF16);
        engine e = make_engine(t, config, COUNT, 0, job.comm_of(rank));
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        for (int64_t step = 1; step <= 3; step++) {
            t.next_step();
            ASSERT_NO_FATAL_FAILURE(begin(t, e.get()));
            zoff_step_info info = new_info();
            if (rank == 1) {
                ASSERT_ZOFF_OK(zoff_grad_reusable(e.get(), 2, 0, nullptr));
            }
            if (rank == 0) {
                ASSERT_ZOFF_OK(zoff_params_push(e.get()));
                ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
            } else {
                ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
                ASSERT_ZOFF_OK(zoff_params_push(e.get()));
            }
            EXPECT_EQ(step, info.t);
            reference::step(t.tensors, config_groups(), step, 1, 1, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        }
    });
}

// Two parameters with the same weights, and one buffer for their gradients. Whichever of them is asked for, and whichever was
// handed over, the buffer is cleared once, and not again at the end of the step.
TEST_P(OpenStep, ABufferOfTiedWeightsIsClearedOnce)
{
    for (const zoff_param handed_over : {0u, 1u}) {
        for (const zoff_param asked_for : {0u, 1u}) {
            SCOPED_TRACE(testing::Message() << handed_over << " was handed over, " << asked_for << " is asked for");
            std::vector<float> w(COUNT, 1), g(COUNT, 0.5f);
            zoff_engine_opts opts = {};
            engine e = make_engine(text(), opts);
            for (const char *name : {"wte", "lm_head"}) {
                zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
                d.name = name;
                d.value = w.data();
                d.grad = g.data();
                d.count = COUNT;
                ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
            }
            ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
            zoff_step_args args = ZOFF_STEP_ARGS_INIT;
            args.flags = ZOFF_STEP_ZERO_GRADS;
            ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), handed_over, 0, nullptr));
            ASSERT_ZOFF_OK(zoff_step_begin(e.get(), &args));
            ASSERT_ZOFF_OK(zoff_grad_reusable(e.get(), asked_for, 0, nullptr));
            EXPECT_EQ(std::vector<float>(COUNT, 0), g);
            g.assign(COUNT, 2);
            ASSERT_ZOFF_OK(zoff_grad_reusable(e.get(), 1 - asked_for, 0, nullptr));
            ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
            EXPECT_EQ(std::vector<float>(COUNT, 2), g);
        }
    }
}

TEST_P(OpenStep, AsksForABufferOfTheProgram)
{
    trainer t(6);
    add(t);
    t.give_away_grad(1);
    engine e = seal_engine(t, text(), COUNT);
    int stream;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "engine must not be NULL", zoff_grad_reusable(nullptr, 0, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "there is no slice 1", zoff_grad_reusable(e.get(), 0, 1, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has no streams", zoff_grad_reusable(e.get(), 0, 0, &stream));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has no gradient buffer", zoff_grad_reusable(e.get(), 1, 0, nullptr));
    EXPECT_ZOFF_OK(zoff_grad_reusable(e.get(), 0, 0, nullptr)) << "no step is open";
}

// The scale for the next loss, before the step is over that decides about it.
TEST(OpenStepLossScale, IsThatAfterTheStep)
{
    log_catcher log;
    log.expect("skipped");
    tiny one(fp16_text("\"initial_scale_power\": 3, \"loss_scale_window\": 2, \"min_loss_scale\": 4, \"hysteresis\": 1"));
    const double want[] = {8, 8, 16, 8, 4, 4}; // doubled after two good steps; two overflows, and a third at the minimum
    for (int step = 0; step < 6; step++) {
        const bool overflow = step >= 3, ends = step == 5;
        SCOPED_TRACE(step);
        trainer::put(one.t.grad(0), ZOFF_F32, 1, overflow ? INFINITY : 1.0f);
        ASSERT_ZOFF_OK(zoff_grad_ready(one.e.get(), 0, 0, nullptr));
        ASSERT_ZOFF_OK(zoff_step_begin(one.e.get(), nullptr));
        EXPECT_EQ(want[step], one.scale());
        EXPECT_EQ(want[step], one.scale()) << "asked again";
        EXPECT_EQ(want[step], one.scaler().scale) << "this call has finished the step";
        EXPECT_EQ(want[step], one.scale());
        zoff_step_info info = new_info();
        // An error about a step that is over is that of zoff_step_wait(), and not of the call that has finished it.
        EXPECT_EQ(ends ? ZOFF_ERR_OVERFLOW : ZOFF_OK, zoff_step_wait(one.e.get(), &info));
        EXPECT_EQ(!ends, strstr(zoff_last_error(), "the minimum (fp16.min_loss_scale)") == nullptr);
        EXPECT_EQ(overflow, info.skipped);
        EXPECT_EQ(want[step], one.scale());
    }
}
} // namespace
