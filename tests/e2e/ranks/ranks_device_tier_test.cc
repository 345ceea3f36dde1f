/* SPDX-License-Identifier: Apache-2.0 */
// ranks_device_tier_test.cc: several ranks with devices, which their communicator may access, and offload_optimizer.ratio
// below 1. Tests the bytes that are moved, the memory that is used, and calls that must work as without a share on the devices.
// Parity over the whole matrix is in ranks_parity_test.cc, in cells with a ratio.
#include "covering.h"
#include "rank_job.h"

#include <cmath>

using namespace zoff_test;

namespace
{
std::string text(unsigned stage, double ratio, unsigned accumulation = 1, unsigned bucket = 6144)
{
    return "{\"gradient_accumulation_steps\": " + std::to_string(accumulation) +
           ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0, "
           "\"zero_optimization\": {\"stage\": " +
           std::to_string(stage) + ", \"reduce_bucket_size\": " + std::to_string(bucket) +
           ", \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": " + std::to_string(ratio) + "}}}";
}

// Take one update; return what each rank reports about it.
std::vector<zoff_step_info> step(rank_trainers &all, int64_t number, unsigned accumulation = 1)
{
    std::vector<zoff_step_info> infos(all.job.size, new_info());
    for (unsigned micro = 0; micro < accumulation; micro++) {
        all.backward((unsigned)number * 10 + micro, 0.5f);
        all.job.on_each([&](unsigned rank) {
            all.trainers[rank]->hand_over_all(all.engines[rank].get());
            infos[rank] = new_info();
            EXPECT_ZOFF_OK(zoff_step_begin(all.engines[rank].get(), nullptr));
            EXPECT_ZOFF_OK(zoff_step_wait(all.engines[rank].get(), &infos[rank]));
        });
    }
    all.step(config_groups(), number, 0);
    return infos;
}

void expect_all(rank_trainers &all)
{
    all.job.on_each([&](unsigned rank) {
        trainer &t = *all.trainers[rank];
        t.tensors = all.want.tensors;
        t.expect_weights();
        t.expect_states(all.engines[rank].get());
    });
}

class RanksDeviceTier : public testing::TestWithParam<std::tuple<unsigned, unsigned, double>>
{
};
INSTANTIATE_TEST_SUITE_P(onDeviceReached, RanksDeviceTier,
                         testing::Combine(testing::Values(0u, 2u), testing::Values(2u, 3u), testing::Values(0.0, 0.25, 1.0)),
                         [](const auto &p) {
                             return "stage" + std::to_string(std::get<0>(p.param)) + "_fp16_world" +
                                    std::to_string(std::get<1>(p.param)) + "_ratio" +
                                    std::to_string((int)(100 * std::get<2>(p.param)));
                         });

// For elements updated on a device nothing crosses the link to the host.
TEST_P(RanksDeviceTier, MovesAndTakesWhatIsDocumented)
{
    const auto [stage, world, ratio] = GetParam();
    rank_job job(world);
    rank_trainers all(job, 7, [](trainer &t) { add_awkward(t, ZOFF_F16, ZOFF_F16); });
    all.use_devices(0);
    job.reach_devices();
    std::vector<zoff_plan_info> without(world), plans(world);
    all.seal(text(stage, 1), 3000);
    for (unsigned rank = 0; rank < world; rank++)
        without[rank] = plan_of(all.engines[rank].get());
    job.on_each([&](unsigned rank) { all.engines[rank].reset(); });
    all.seal(text(stage, ratio), 3000);
    for (unsigned rank = 0; rank < world; rank++)
        plans[rank] = plan_of(all.engines[rank].get());
    (void)step(all, 1);
    const auto infos = step(all, 2);
    expect_all(all);

    uint64_t trained = 0, there = 0, updated = 0, down = 0, up = 0;
    for (const auto &t : all.want.tensors)
        trained += t.frozen ? 0 : t.total();
    for (unsigned rank = 0; rank < world; rank++) {
        there += infos[rank].numbers.elements_on_device;
        updated += infos[rank].numbers.elements_updated;
        down += infos[rank].bytes.device_read;
        up += infos[rank].bytes.device_written;
        const double kept = (double)infos[rank].numbers.elements_on_device;
        const double states = (double)plans[rank].device_bytes - (double)without[rank].device_bytes;
        EXPECT_LE(kept * 12, states) << "masters and two moments";
        EXPECT_GE(kept * 12 * 1.02 + (kept > 0 ? 12 * 4096 * 10 : 0), states) << "and padding";
        EXPECT_GE((double)without[rank].accumulator_bytes - 4 * kept, (double)plans[rank].accumulator_bytes);
        EXPECT_EQ(plans[rank].state_bytes, without[rank].state_bytes);
    }
    const uint64_t copies = stage == 0 ? world : 1;
    EXPECT_EQ(trained * copies, updated);
    EXPECT_GE(6144 / 2.0 * (double)copies, std::abs((double)there - (1 - ratio) * (double)(trained * copies)))
        << "the share is exact to half a bucket";
    const uint64_t host = trained - there / copies;
    EXPECT_LE(4 * host, down);
    EXPECT_GE(4 * host * 11 / 10, down) << "only padding to cache lines between pieces is added";
    EXPECT_EQ(2 * host * copies, up);
}

// A model so large that padding is negligible. It is only planned: no memory is touched.
TEST_P(RanksDeviceTier, PlansWhatIsDocumented)
{
    const auto [stage, world, ratio] = GetParam();
    const uint64_t count = 256u << 20;
    rank_job job(world);
    rank_trainers all(job, 7, [](trainer &) {});
    all.use_devices(0);
    job.reach_devices();
    for (unsigned rank = 0; rank < world; rank++) {
        zoff_plan_info plans[2];
        for (bool shares : {false, true})
            plans[shares] = plan_of(
                plan_one(count, text(stage, shares ? ratio : 1, 1, 8u << 20), all.devices[rank]->accel, job.comm_of(rank))
                    .get());
        const double own = (double)count / (stage == 0 ? 1 : world), kept = (1 - ratio) * own, allowed = 0.005 * 12 * own;
        EXPECT_NEAR(kept * 12, (double)(plans[1].device_bytes - plans[0].device_bytes), allowed);
        EXPECT_NEAR(kept * 12, (double)(plans[0].host_bytes - plans[1].host_bytes), allowed);
        EXPECT_NEAR(kept * 4, (double)(plans[0].accumulator_bytes - plans[1].accumulator_bytes), allowed);
    }
}

class RanksDeviceTierOverTheHost : public RanksDeviceTier
{
};
INSTANTIATE_TEST_SUITE_P(onDevice, RanksDeviceTierOverTheHost,
                         testing::Combine(testing::Values(0u, 2u), testing::Values(2u, 3u), testing::Values(0.0, 0.25, 1.0)),
                         [](const auto &p) {
                             return "stage" + std::to_string(std::get<0>(p.param)) + "_world" +
                                    std::to_string(std::get<1>(p.param)) + "_ratio" +
                                    std::to_string((int)(100 * std::get<2>(p.param)));
                         });

// A communicator of the host: sums of gradients go up, and updated weights come down, unless every rank updates all of them.
TEST_P(RanksDeviceTierOverTheHost, MovesWhatIsDocumented)
{
    const auto [stage, world, ratio] = GetParam();
    rank_job job(world);
    rank_trainers all(job, 7, [](trainer &t) { add_awkward(t, ZOFF_F16, ZOFF_F16); });
    all.use_devices(0);
    all.seal(text(stage, ratio), 3000);
    (void)step(all, 1);
    const auto infos = step(all, 2);
    expect_all(all);
    uint64_t trained = 0, there = 0, down = 0, up = 0;
    for (const auto &t : all.want.tensors)
        trained += t.frozen ? 0 : t.total();
    for (const zoff_step_info &info : infos) {
        there += info.numbers.elements_on_device;
        down += info.bytes.device_read;
        up += info.bytes.device_written;
    }
    const uint64_t gradients = 2 * trained * world, weights = 2 * trained * world;
    EXPECT_EQ(gradients + (stage == 0 ? 0 : 2 * there), down);
    EXPECT_EQ(4 * there + weights - (stage == 0 ? 2 * there : 0), up);
}

// A call outside of a step treats these states like any others.
TEST_P(RanksDeviceTier, StatesAreReadAndWritten)
{
    const auto [stage, world, ratio] = GetParam();
    rank_job job(world);
    rank_trainers all(job, 7, [](trainer &t) { add_awkward(t, ZOFF_F16, ZOFF_F16); });
    all.use_devices(3);
    if (ratio > 0) /* 0: a communicator of the host */
        job.reach_devices();
    all.seal(text(stage, ratio, 2), 3000);
    (void)step(all, 1, 2);
    expect_all(all);
    const std::vector<float> ones(1000, 1.5f);
    job.on_each([&](unsigned rank) {
        for (zoff_param i : {3u, 8u}) {
            EXPECT_ZOFF_OK(zoff_state_write(all.engines[rank].get(), i, ZOFF_STATE_MASTER, 10, ones.size(), ones.data()));
            EXPECT_ZOFF_OK(zoff_state_write(all.engines[rank].get(), i, ZOFF_STATE_V, 20, 500, ones.data()));
        }
        EXPECT_ZOFF_OK(zoff_params_push(all.engines[rank].get()));
    });
    for (size_t i : {3u, 8u}) {
        std::copy_n(ones.begin(), 1000, all.want.tensors[i].master.begin() + 10);
        std::copy_n(ones.begin(), 500, all.want.tensors[i].v.begin() + 20);
    }
    expect_all(all);
    (void)step(all, 2, 2);
    expect_all(all);
    job.on_each([&](unsigned rank) { EXPECT_ZOFF_OK(zoff_params_pull(all.engines[rank].get())); });
    for (auto &tensor : all.want.tensors) {
        for (auto &x : tensor.master)
            x = reference::rounded(tensor.dtype, x);
    }
    expect_all(all);
    (void)step(all, 3, 2);
    expect_all(all);
}

TEST_P(RanksDeviceTier, WhoseGradientIsNotFiniteIsNamed)
{
    const auto [stage, world, ratio] = GetParam();
    log_catcher log;
    rank_job job(world);
    rank_trainers all(job, 7, [](trainer &t) { t.add(4096, 6, ZOFF_F16, ZOFF_F16); });
    all.use_devices(3);
    job.reach_devices();
    all.seal(text(stage, ratio), 3000);
    log.expect("on rank 1; weights and states are unchanged");
    for (size_t slice : {0u, 3u, 5u}) {
        all.backward((unsigned)slice, 0.5f);
        trainer &poisoned = *all.trainers[1];
        trainer::put(poisoned.grad(0), ZOFF_F16, poisoned.place(0, slice * 4096 + 2050), INFINITY);
        all.forget();
        job.on_each([&](unsigned rank) {
            all.trainers[rank]->hand_over_all(all.engines[rank].get());
            zoff_step_info info = new_info();
            EXPECT_ZOFF_OK(zoff_step_begin(all.engines[rank].get(), nullptr));
            EXPECT_ZOFF_OK(zoff_step_wait(all.engines[rank].get(), &info));
            EXPECT_TRUE(info.skipped);
            EXPECT_EQ(slice, info.culprit.slice);
            EXPECT_EQ(1u, info.culprit.rank);
        });
        EXPECT_NE(0u, log.count("slice " + std::to_string(slice) +
                                ", has an inf or nan between its elements 2048 and 3071 on rank 1"));
    }
    expect_all(all);
    (void)step(all, 1);
    expect_all(all);
}

// For each n, the nth device call of a step fails once. The engine repeats the call, and its work is done exactly once.
class RanksDeviceTierFaults : public testing::TestWithParam<std::tuple<unsigned, zoff_dtype, bool>>
{
};
std::string name_of(const testing::TestParamInfo<std::tuple<unsigned, zoff_dtype, bool>> &p)
{
    return "stage" + std::to_string(std::get<0>(p.param)) + (std::get<1>(p.param) == ZOFF_F32 ? "_fp32" : "_fp16");
}
INSTANTIATE_TEST_SUITE_P(onDeviceReached, RanksDeviceTierFaults,
                         testing::Combine(testing::Values(0u, 1u), testing::Values(ZOFF_F16, ZOFF_F32), testing::Values(true)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(onDevice, RanksDeviceTierFaults,
                         testing::Combine(testing::Values(0u, 1u), testing::Values(ZOFF_F16, ZOFF_F32), testing::Values(false)),
                         name_of);

TEST_P(RanksDeviceTierFaults, ACallOfADeviceThatFailsIsMadeAgain)
{
    const auto [stage, dtype, reached] = GetParam();
    rank_job job(2);
    rank_trainers all(job, 3, [dtype = dtype](trainer &t) { t.add(2048, 9, dtype, dtype); });
    all.use_devices(0);
    if (reached)
        job.reach_devices();
    all.seal(text(stage, 0.5), 3000);
    int failed = 0, torn = 0;
    bool over = false;
    // A full run lets each call fail. By default every third call fails, starting at another one for each kind.
    const int stride = is_full_run() ? 1 : 3;
    int64_t number = 0;
    for (int nth = 1 + (int)(stage + 2 * (dtype == ZOFF_F32)) % stride; !over && nth < 1000 && !HasFailure(); nth += stride) {
        all.backward((unsigned)nth, 0.5f);
        all.step(config_groups(1), ++number, 0);
        job.on_each([&](unsigned rank) {
            all.trainers[rank]->hand_over_all(all.engines[rank].get());
            zoff_engine *e = all.engines[rank].get();
            test_device &device = *all.devices[rank];
            device.calls = 0;
            device.fail = rank == 0 ? nth : 0;
            zoff_step_info info = new_info();
            // A gradient that was left to a thread that updates ahead may have met the fault.
            const bool leaves = updates_ahead() && has_progress_thread();
            if (!leaves || zoff_step_begin(e, nullptr) < 0) {
                EXPECT_ZOFF_OK(zoff_step_begin(e, nullptr));
            }
            const zoff_status status = zoff_step_wait(e, &info);
            if (status < 0) {
                EXPECT_EQ(ZOFF_ERR_DEVICE, status) << zoff_last_error();
                failed++; // only rank 0 counts
                torn += info.outcome == ZOFF_OUTCOME_TORN;
                info = new_info();
                EXPECT_ZOFF_OK(zoff_step_retry(e, &info));
            }
            EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
            if (rank == 0)
                over = device.calls < nth;
            device.fail = 0;
        });
        expect_all(all);
    }
    EXPECT_TRUE(over);
    EXPECT_LT((reached ? 20 : 4) / stride, failed) << "a rank over the host has fewer calls that can fail";
    EXPECT_LT(is_full_run() ? 5 : 0, torn);
}

TEST(RanksDeviceTierSeal, OneShareForAll_fp16_onDeviceReached)
{
    rank_job job(2);
    rank_trainers all(job, 3, [](trainer &t) { t.add(2048, 9, ZOFF_F16, ZOFF_F16); });
    all.use_devices(0);
    job.reach_devices();
    job.on_each([&](unsigned rank) {
        engine e =
            make_engine(*all.trainers[rank], text(1, rank ? 0.5 : 0.25), 3000, 0, job.comm_of(rank), all.devices[rank]->accel);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zero_optimization.offload_optimizer.ratio is 0.25 on rank 0 and 0.5 on rank 1",
                          zoff_engine_seal(e.get()));
    });
}
} // namespace
