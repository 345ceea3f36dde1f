/* SPDX-License-Identifier: Apache-2.0 */
// ranks_measure_test.cc: two engines of one rank that clip by one norm (zoff_step_measure()). Norm, clip factor and weights are
// those of one engine over all parameters, bit for bit, and both skip the same steps.
#include "covering.h"
#include "rank_job.h"

#include <cmath>

using namespace zoff_test;

namespace
{
struct tensor {
    std::string name;
    std::vector<float> value, grad;
    std::vector<uint16_t> half; // the weights where they have 16 bits
};

std::vector<tensor> all_tensors()
{
    std::vector<tensor> all = {{"a", std::vector<float>(3001), {}, {}}, {"b", std::vector<float>(1300), {}, {}}};
    for (tensor &t : all) {
        t.grad.resize(t.value.size());
        for (size_t i = 0; i < t.value.size(); i++)
            t.value[i] = std::sin((float)i + (float)t.name[0]);
    }
    return all;
}

struct part {
    std::vector<tensor> tensors;
    engine e;
    zoff_step_info info;

    void open(zoff_comm *comm, const std::string &text, zoff_dtype dtype, zoff_comm *norm = nullptr)
    {
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.threads = 1;
        opts.comm = comm;
        opts.norm_comm = norm;
        e = make_engine(text, opts);
        for (tensor &t : tensors) {
            for (size_t i = 0; dtype != ZOFF_F32 && i < t.value.size(); i++)
                t.half.push_back(reference::to_16(dtype, t.value[i]));
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = t.name.c_str();
            d.value = dtype == ZOFF_F32 ? (void *)t.value.data() : (void *)t.half.data();
            d.dtype = dtype;
            d.grad = t.grad.data();
            d.grad_dtype = ZOFF_F32;
            d.count = t.value.size();
            ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        }
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    }
    void fill(unsigned step, unsigned rank)
    {
        for (tensor &t : tensors) {
            for (size_t i = 0; i < t.grad.size(); i++)
                t.grad[i] =
                    (step % 2 ? 0.001f : 3.0f) * std::cos((float)i * 0.37f + (float)(step + 3 * rank) + (float)t.name[0]);
        }
    }
    zoff_status step(const zoff_norm_sum *sum)
    {
        zoff_step_args args = ZOFF_STEP_ARGS_INIT;
        args.norm_sum = sum;
        info = new_info();
        return zoff_step(e.get(), &args, &info);
    }
};

// One rank has the whole model in one engine, and again in two.
struct trio {
    part whole, parts[2];
    trio()
    {
        whole.tensors = all_tensors();
        for (unsigned i = 0; i < 2; i++)
            parts[i].tensors = {all_tensors()[i]};
    }
    void fill(unsigned step, unsigned rank = 0)
    {
        for (part *p : {&whole, &parts[0], &parts[1]})
            p->fill(step, rank);
    }
    void measure(zoff_norm_sum *out, bool back = false)
    {
        zoff_norm_sum sums[2];
        for (unsigned i = 0; i < 2; i++)
            ASSERT_ZOFF_OK(zoff_step_measure(parts[i].e.get(), nullptr, &sums[i]));
        *out = sums[back];
        ASSERT_ZOFF_OK(zoff_norm_sum_join(out, &sums[!back]));
    }
};

std::string text_of(const std::string &folder, unsigned accumulation = 1, const std::string &more = "")
{
    std::string text = config_text(folder, accumulation, more);
    const std::string off = "\"gradient_clipping\": 0";
    return text.replace(text.find(off), off.size(), "\"gradient_clipping\": 1.0");
}

using cell = std::tuple<bool, zoff_dtype, unsigned>;
class RanksMeasure : public testing::TestWithParam<cell>
{
};
INSTANTIATE_TEST_SUITE_P(Cells, RanksMeasure,
                         testing::Combine(testing::Bool(), testing::Values(ZOFF_F32, ZOFF_BF16), testing::Values(1u, 2u)),
                         [](const auto &p) {
                             return std::string(std::get<0>(p.param) ? "nvme" : "host") +
                                    (std::get<1>(p.param) == ZOFF_F32 ? "_fp32" : "_bf16") + "_world" +
                                    std::to_string(std::get<2>(p.param));
                         });

TEST_P(RanksMeasure, TwoEnginesClipAsOneDoes)
{
    const auto [nvme, dtype, world] = GetParam();
    const scratch_folder folder;
    const std::string text = text_of(nvme ? folder.path : "");
    rank_job job(world);
    std::vector<trio> ranks(world);
    log_catcher log;
    job.on_each([&, dtype = dtype](unsigned rank) {
        trio &t = ranks[rank];
        for (part *p : {&t.whole, &t.parts[0], &t.parts[1]})
            p->open(job.comm_of(rank), text, dtype);
        for (unsigned step = 1; step <= 4; step++) {
            zoff_norm_sum sum;
            double value;
            t.fill(step, rank);
            ASSERT_ZOFF_OK(t.whole.step(nullptr));
            ASSERT_NO_FATAL_FAILURE(t.measure(&sum, rank == 1)); // another order on each rank
            ASSERT_ZOFF_OK(zoff_norm_sum_value(&sum, &value));
            EXPECT_EQ(t.whole.info.numbers.grad_norm, value);
            EXPECT_EQ(step % 2 == 0, t.whole.info.numbers.clip_factor < 1);
            for (unsigned i = 0; i < 2; i++) {
                ASSERT_ZOFF_OK(t.parts[i].step(&sum));
                EXPECT_EQ(t.whole.info.numbers.grad_norm, t.parts[i].info.numbers.grad_norm);
                EXPECT_EQ(t.whole.info.numbers.clip_factor, t.parts[i].info.numbers.clip_factor);
                EXPECT_EQ(t.whole.tensors[i].value, t.parts[i].tensors[0].value);
                EXPECT_EQ(t.whole.tensors[i].half, t.parts[i].tensors[0].half);
            }
        }
    });
    job.on_each([&](unsigned rank) { ranks[rank] = trio(); });
}

struct RanksMeasureAlone : testing::Test {
    trio t;
    zoff_norm_sum sum;
    log_catcher log;
    void open(const std::string &text = text_of(""), zoff_dtype dtype = ZOFF_F32)
    {
        for (part *p : {&t.whole, &t.parts[0], &t.parts[1]})
            p->open(nullptr, text, dtype);
    }
};

TEST_F(RanksMeasureAlone, AGradientThatIsNotFiniteSkipsBoth)
{
    open();
    log.expect("the gradient of a, slice 0, has an inf or nan");
    log.expect("another engine of zoff_step_args.norm_sum has a gradient that is not finite");
    t.fill(1);
    t.parts[0].tensors[0].grad[5] = NAN;
    ASSERT_NO_FATAL_FAILURE(t.measure(&sum));
    for (part &p : t.parts) {
        const std::vector<float> before = p.tensors[0].value;
        ASSERT_ZOFF_OK(p.step(&sum));
        EXPECT_TRUE(p.info.skipped);
        EXPECT_EQ(before, p.tensors[0].value);
    }
}

TEST_F(RanksMeasureAlone, ASumOfAnotherStepIsRefused)
{
    open();
    zoff_norm_sum stale;
    t.fill(1);
    ASSERT_NO_FATAL_FAILURE(t.measure(&stale));
    for (part &p : t.parts)
        ASSERT_ZOFF_OK(p.step(&stale));
    t.fill(2);
    ASSERT_NO_FATAL_FAILURE(t.measure(&sum));
    for (part &p : t.parts) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "does not contain the last measurement", p.step(&stale));
        EXPECT_ZOFF_OK(p.step(&sum));
    }
}

TEST_F(RanksMeasureAlone, EnginesWithOtherCountsClipTogether)
{
    open();
    ASSERT_ZOFF_OK(zoff_step_count_set(t.parts[1].e.get(), 7));
    t.fill(1);
    ASSERT_NO_FATAL_FAILURE(t.measure(&sum));
    ASSERT_ZOFF_OK(t.whole.step(nullptr));
    for (unsigned i = 0; i < 2; i++) {
        ASSERT_ZOFF_OK(t.parts[i].step(&sum));
        EXPECT_EQ(i ? 8 : 1, t.parts[i].info.t);
        EXPECT_EQ(t.whole.info.numbers.grad_norm, t.parts[i].info.numbers.grad_norm);
    }
}

TEST_F(RanksMeasureAlone, OnlyTheStepMayFollowAMeasurement)
{
    open();
    part &p = t.parts[0];
    t.fill(1);
    zoff_norm_sum again;
    memset(&sum, 0, sizeof sum);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "call zoff_step_measure() first", p.step(&sum));
    ASSERT_NO_FATAL_FAILURE(t.measure(&sum));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_step_measure() was called", zoff_step_measure(p.e.get(), nullptr, &again));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_step_measure() was called", zoff_params_push(p.e.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_step_measure() was called", zoff_grad_ready(p.e.get(), 0, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "pass the joined sum", p.step(nullptr));
    EXPECT_ZOFF_OK(zoff_grads_drop(p.e.get()));
    EXPECT_ZOFF_OK(zoff_grads_drop(t.parts[1].e.get()));
    ASSERT_ZOFF_OK(t.whole.step(nullptr));
    ASSERT_NO_FATAL_FAILURE(t.measure(&sum));
    for (unsigned i = 0; i < 2; i++) {
        zoff_step_args args = ZOFF_STEP_ARGS_INIT;
        args.norm_sum = &sum;
        ASSERT_ZOFF_OK(zoff_step_begin(t.parts[i].e.get(), &args));
        ASSERT_ZOFF_OK(zoff_step_wait(t.parts[i].e.get(), nullptr));
        EXPECT_EQ(t.whole.tensors[i].value, t.parts[i].tensors[0].value);
    }
}

TEST_F(RanksMeasureAlone, ASumOfADroppedAttemptIsRefused)
{
    open();
    zoff_norm_sum stale, one;
    t.fill(1);
    ASSERT_NO_FATAL_FAILURE(t.measure(&stale));
    for (part &p : t.parts)
        ASSERT_ZOFF_OK(zoff_grads_drop(p.e.get()));
    t.fill(2);
    for (part &p : t.parts)
        ASSERT_ZOFF_OK(zoff_step_measure(p.e.get(), nullptr, &one));
    for (part &p : t.parts)
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "does not contain the last measurement of this engine", p.step(&stale));
    // The last sum is that of parts[1] alone.
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "does not contain the last measurement of this engine", t.parts[0].step(&one));
    EXPECT_ZOFF_OK(t.parts[1].step(&one));
    EXPECT_ZOFF_OK(zoff_grads_drop(t.parts[0].e.get()));
}

TEST_F(RanksMeasureAlone, TheStepKeepsNumberAndScaleOfTheMeasurement)
{
    open();
    t.fill(1);
    ASSERT_NO_FATAL_FAILURE(t.measure(&sum));
    zoff_step_args args = ZOFF_STEP_ARGS_INIT;
    args.norm_sum = &sum;
    args.grad_scale = 0.5;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "with grad_scale 1, but now t is 0 and grad_scale 0.5",
                      zoff_step(t.parts[0].e.get(), &args, nullptr));
    args.grad_scale = 1;
    args.t = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "but now t is 2", zoff_step(t.parts[0].e.get(), &args, nullptr));
    args.t = 1;
    EXPECT_ZOFF_OK(zoff_step(t.parts[0].e.get(), &args, nullptr));
}

TEST_F(RanksMeasureAlone, TheStepMayClipWhereTheConfigurationDoesNot)
{
    open(config_text("", 1, R"(, "zoff": {"skip_nonfinite": false})"));
    t.fill(2);
    ASSERT_NO_FATAL_FAILURE(t.measure(&sum)); // looks at gradients, although nothing else needs their norm
    zoff_step_args args = ZOFF_STEP_ARGS_INIT;
    args.clip_norm = 1;
    t.whole.info = new_info();
    ASSERT_ZOFF_OK(zoff_step(t.whole.e.get(), &args, &t.whole.info));
    EXPECT_LT(t.whole.info.numbers.clip_factor, 1);
    args.norm_sum = &sum;
    for (unsigned i = 0; i < 2; i++) {
        t.parts[i].info = new_info();
        ASSERT_ZOFF_OK(zoff_step(t.parts[i].e.get(), &args, &t.parts[i].info));
        EXPECT_EQ(t.whole.info.numbers.clip_factor, t.parts[i].info.numbers.clip_factor);
        EXPECT_EQ(t.whole.tensors[i].value, t.parts[i].tensors[0].value);
    }
}

TEST_F(RanksMeasureAlone, AFailedMeasurementIsDroppedAndMadeAgain)
{
    open(text_of("", 2));
    part &p = t.parts[0];
    const std::vector<float> before = p.tensors[0].value;
    t.fill(1);
    memset(&sum, 0xab, sizeof sum);
    const zoff_norm_sum untouched = sum;
    ASSERT_ZOFF_OK(zoff_grad_weight(p.e.get(), 0));
    ASSERT_ZOFF_OK(p.step(nullptr));
    ASSERT_ZOFF_OK(zoff_grad_weight(p.e.get(), 0));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "measuring step 1 failed before anything was changed: ", zoff_step_measure(p.e.get(), nullptr, &sum));
    EXPECT_EQ(0, memcmp(&untouched, &sum, sizeof sum));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_step_measure() has failed; call zoff_grads_drop()",
                      zoff_step_retry(p.e.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step has failed", zoff_step_measure(p.e.get(), nullptr, &sum));
    EXPECT_ZOFF_OK(zoff_grads_drop(p.e.get()));
    EXPECT_EQ(before, p.tensors[0].value);
    for (unsigned step = 1; step <= 2; step++) {
        t.fill(step);
        ASSERT_ZOFF_OK(t.whole.step(nullptr));
        if (step == 1) {
            for (part &each : t.parts)
                ASSERT_ZOFF_OK(each.step(nullptr));
        }
    }
    ASSERT_NO_FATAL_FAILURE(t.measure(&sum));
    for (unsigned i = 0; i < 2; i++) {
        ASSERT_ZOFF_OK(t.parts[i].step(&sum));
        EXPECT_EQ(t.whole.tensors[i].value, t.parts[i].tensors[0].value);
    }
}

TEST_F(RanksMeasureAlone, WithALossScaleBothSkipAndTurnItAsOneEngine)
{
    open(text_of("", 1, R"(, "fp16": {"enabled": true, "initial_scale_power": 4, "hysteresis": 1, "loss_scale_window": 2})"),
         ZOFF_F16);
    for (const char *words : {"the gradient of a, slice 0", "the gradient of a, slice 0", "another engine of zoff_step_args"})
        log.expect(words);
    for (unsigned step = 1; step <= 8; step++) {
        t.fill(step);
        if (step == 2)
            t.whole.tensors[0].grad[7] = t.parts[0].tensors[0].grad[7] = INFINITY;
        ASSERT_ZOFF_OK(t.whole.step(nullptr));
        ASSERT_NO_FATAL_FAILURE(t.measure(&sum));
        for (unsigned i = 0; i < 2; i++) {
            ASSERT_ZOFF_OK(t.parts[i].step(&sum));
            EXPECT_EQ(step == 2, t.parts[i].info.skipped);
            if (step < 4) {
                EXPECT_EQ(step < 3 ? 16 : 8, t.parts[i].info.numbers.loss_scale);
            }
            EXPECT_EQ(t.whole.info.numbers.clip_factor, t.parts[i].info.numbers.clip_factor);
            EXPECT_EQ(t.whole.tensors[i].half, t.parts[i].tensors[0].half);
            EXPECT_EQ(t.whole.info.numbers.loss_scale, t.parts[i].info.numbers.loss_scale);
        }
    }
}

TEST_F(RanksMeasureAlone, WithAccumulationTheLastMicroStepIsMeasured)
{
    open(text_of("", 2));
    for (unsigned step = 1; step <= 4; step++) {
        t.fill(step);
        ASSERT_ZOFF_OK(t.whole.step(nullptr));
        if (step % 2) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "micro-step 1 of 2 does not update",
                              zoff_step_measure(t.parts[0].e.get(), nullptr, &sum));
            for (part &p : t.parts)
                ASSERT_ZOFF_OK(p.step(nullptr));
            continue;
        }
        ASSERT_NO_FATAL_FAILURE(t.measure(&sum));
        for (unsigned i = 0; i < 2; i++) {
            ASSERT_ZOFF_OK(t.parts[i].step(&sum));
            EXPECT_EQ(t.whole.tensors[i].value, t.parts[i].tensors[0].value);
        }
    }
}

TEST(RanksMeasureTogether, RanksThatPassDifferentSumsAreRefused)
{
    rank_job job(2);
    std::vector<trio> ranks(2);
    job.on_each([&](unsigned rank) {
        trio &t = ranks[rank];
        zoff_norm_sum own;
        t.parts[0].open(job.comm_of(rank), text_of(""), ZOFF_F32);
        t.fill(1, rank);
        ASSERT_ZOFF_OK(zoff_step_measure(t.parts[0].e.get(), nullptr, &own));
        zoff_norm_sum twice = own;
        if (rank) {
            ASSERT_ZOFF_OK(zoff_norm_sum_join(&twice, &own));
        }
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step_args.norm_sum", t.parts[0].step(&twice));
        EXPECT_EQ(ZOFF_OUTCOME_BEFORE, t.parts[0].info.outcome);
        EXPECT_ZOFF_OK(zoff_grads_drop(t.parts[0].e.get()));
        ASSERT_ZOFF_OK(zoff_step_measure(t.parts[0].e.get(), nullptr, &own));
        EXPECT_ZOFF_OK(t.parts[0].step(&own));
    });
    job.on_each([&](unsigned rank) { ranks[rank] = trio(); });
}

TEST(RanksMeasureTogether, AnEngineMayBeDestroyedOnceItIsMeasured)
{
    const scratch_folder folder;
    rank_job job(2);
    std::vector<trio> ranks(2);
    job.on_each([&](unsigned rank) {
        trio &t = ranks[rank];
        zoff_norm_sum sum;
        for (part &p : t.parts)
            p.open(job.comm_of(rank), text_of(&p == t.parts ? folder.path : ""), ZOFF_F32);
        t.fill(1, rank);
        const std::vector<float> before = t.parts[0].tensors[0].value;
        ASSERT_ZOFF_OK(zoff_grad_ready(t.parts[0].e.get(), 0, 0, nullptr));
        ASSERT_NO_FATAL_FAILURE(t.measure(&sum));
        t.parts[0].e.reset();
        EXPECT_EQ(before, t.parts[0].tensors[0].value);
        // The sum stays valid, and the other engine and the communicator work on.
        EXPECT_ZOFF_OK(t.parts[1].step(&sum));
    });
    job.on_each([&](unsigned rank) { ranks[rank] = trio(); });
}

// Each call of one rank's device fails in turn while it measures. There is no retry, so the other ranks fail with it, at once.
class RanksMeasureFault : public testing::TestWithParam<bool> // whether exchanges access the devices
{
};
INSTANTIATE_TEST_SUITE_P(Wires, RanksMeasureFault, testing::Bool(),
                         [](const auto &p) { return p.param ? "reached" : "bounced"; });

TEST_P(RanksMeasureFault, FailsAllRanks)
{
    enum { RANKS = 3, FAULTY = 1 };
    rank_job job(RANKS);
    rank_trainers all(job, 3, [](trainer &t) { add_awkward(t, ZOFF_BF16, ZOFF_BF16); });
    log_catcher log;
    all.use_devices(0);
    if (GetParam())
        job.reach_devices();
    all.seal(text_of(""), 9000);
    all.devices[FAULTY]->fails_polls = !GetParam();
    unsigned failures = 0;
    std::atomic<bool> is_through{false};
    int step = 0;
    for (int nth = 1; !is_through; nth += GetParam() || zoff_test::is_full_run() ? 1 : 4) {
        step++;
        SCOPED_TRACE(nth);
        zoff_status status[RANKS];
        std::string words[RANKS];
        const std::string failed = "measuring step " + std::to_string(step) + " failed";
        all.backward((unsigned)nth, 1.0f);
        job.on_each([&](unsigned rank) {
            zoff_norm_sum sum;
            zoff_engine *e = all.engines[rank].get();
            if (rank == FAULTY) {
                all.devices[rank]->calls = 0;
                all.devices[rank]->fail = nth;
            }
            status[rank] = zoff_step_measure(e, nullptr, &sum);
            words[rank] = status[rank] < 0 ? zoff_last_error() : "";
            is_through = is_through || (rank == FAULTY && all.devices[rank]->calls < nth);
            if (rank == FAULTY)
                all.devices[rank]->fail = 0;
            // Before anything has begun, only the rank that has failed repeats the call.
            if (status[rank] == ZOFF_ERR_DEVICE && words[rank].find(failed) == words[rank].npos)
                status[rank] = zoff_step_measure(e, nullptr, &sum);
            EXPECT_ZOFF_OK(zoff_grads_drop(e));
        });
        failures += status[FAULTY] == ZOFF_ERR_DEVICE;
        for (unsigned rank = 0; rank < RANKS; rank++) {
            const bool hears = status[FAULTY] < 0 && rank != FAULTY;
            EXPECT_EQ(hears ? ZOFF_ERR_COMM : status[FAULTY], status[rank]) << words[rank];
            EXPECT_TRUE(!hears || words[rank].find(failed + " before anything was changed: ") == 0) << words[rank];
            EXPECT_TRUE(!hears || words[rank].find("rank 1 has failed, and this one has not") != words[rank].npos)
                << words[rank];
        }
        ASSERT_FALSE(HasFailure());
        all.forget();
        // Nothing of the gradients that were dropped is left in this step.
        all.backward((unsigned)nth + 1000, 0.5f);
        job.on_each([&](unsigned rank) {
            zoff_norm_sum sum;
            zoff_engine *e = all.engines[rank].get();
            all.trainers[rank]->hand_over_all(e);
            ASSERT_ZOFF_OK(zoff_step_measure(e, nullptr, &sum));
            zoff_step_args args = ZOFF_STEP_ARGS_INIT;
            args.norm_sum = &sum;
            ASSERT_ZOFF_OK(zoff_step(e, &args, nullptr));
        });
        all.step(config_groups(), step, 1.0);
        for (unsigned rank = 0; rank < RANKS; rank++) {
            all.trainers[rank]->tensors = all.want.tensors;
            all.trainers[rank]->expect_weights();
        }
        ASSERT_FALSE(HasFailure());
    }
    EXPECT_LT(3u, failures);
}

TEST(RanksMeasureTogether, ANormCommunicatorExcludesIt)
{
    rank_job job(2);
    std::vector<trio> ranks(2);
    job.on_each([&](unsigned rank) {
        zoff_norm_sum sum;
        ranks[rank].parts[rank].open(nullptr, text_of(""), ZOFF_F32, job.comm_of(rank));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "zoff_engine_opts.norm_comm, too",
                          zoff_step_measure(ranks[rank].parts[rank].e.get(), nullptr, &sum));
    });
    job.on_each([&](unsigned rank) { ranks[rank] = trio(); });
}
} // namespace
