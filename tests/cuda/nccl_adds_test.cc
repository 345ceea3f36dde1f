/* SPDX-License-Identifier: Apache-2.0 */
// nccl_adds_test.cc: engines whose gradients NCCL adds (zoff.reduce_scatter "nccl") in an unspecified order. If the order does
// not change the sum, the bits must be those of the reference. Otherwise the error must be within the rounding of any order.
// Runs over the NCCL made of threads and, like the parity matrix, as processes over the real one.
#include "rank_job.h"

#include <cmath>

using namespace zoff_test;

namespace
{
struct cell {
    unsigned stage;
    zoff_dtype dtype;
    unsigned world, accumulation;
    zoff_tier tier = ZOFF_TIER_HOST;
    unsigned chunk_elements = 3000;
};

std::string name(const testing::TestParamInfo<cell> &info)
{
    const cell &c = info.param;
    return "stage" + std::to_string(c.stage) + "_" + (c.tier == ZOFF_TIER_NVME ? "nvme_" : "") +
           (c.dtype == ZOFF_F32   ? "fp32"
            : c.dtype == ZOFF_F16 ? "fp16"
                                  : "bf16") +
           "_world" + std::to_string(c.world) + "_accumulate" + std::to_string(c.accumulation) + "_chunk" +
           std::to_string(c.chunk_elements);
}

std::vector<cell> cells()
{
    std::vector<cell> all;
    for (unsigned stage : {0u, 1u, 2u, 3u}) {
        for (zoff_dtype dtype : {ZOFF_BF16, ZOFF_F16}) {
            for (unsigned world : {2u, 4u})
                all.push_back({stage, dtype, world, 1 + (stage + world / 2 + (dtype == ZOFF_F16)) % 2});
        }
    }
    all.push_back({2, ZOFF_BF16, 1, 2}); // one rank has nothing to add
    all.push_back({2, ZOFF_F32, 3, 2});
    all.push_back({2, ZOFF_BF16, 4, 2, ZOFF_TIER_NVME});
    all.push_back({1, ZOFF_BF16, 4, 2, ZOFF_TIER_HOST, 1024});    // more ranks than blocks in a bucket: some parts are empty
    all.push_back({2, ZOFF_F16, 2, 1, ZOFF_TIER_HOST, 1u << 20}); // one bucket
    return all;
}

class NcclAdds : public testing::TestWithParam<cell>
{
  protected:
    std::string config_text(const std::string &optimizer, double clip) const
    {
        const cell &c = GetParam();
        return "{\"gradient_accumulation_steps\": " + std::to_string(c.accumulation) + ", \"optimizer\": " + optimizer +
               ", \"gradient_clipping\": " + std::to_string(clip) + ", \"zoff\": {\"reduce_scatter\": \"nccl\"}" +
               // Scaling by a power of two does not change the bits of the mean.
               (c.stage == 2 && c.world != 3 ? ", \"prescale_gradients\": true" : "") +
               ", \"zero_optimization\": {\"stage\": " + std::to_string(c.stage) +
               ", \"reduce_bucket_size\": 20000, \"offload_optimizer\": {\"device\": \"" +
               (c.tier == ZOFF_TIER_NVME ? "nvme" : "cpu") + "\", \"nvme_path\": \"" + folder.path +
               "\", \"buffer_count\": 3}}}";
    }

    // One rank's micro-batch: hand over the gradients one by one, in one order or the other, then take the step.
    static void take(rank_trainers &all, unsigned rank, unsigned round, zoff_step_info *info)
    {
        trainer &t = *all.trainers[rank];
        zoff_engine *e = all.engines[rank].get();
        EXPECT_ZOFF_OK(zoff_grad_weight(e, all.weights[rank]));
        auto ready = t.present();
        if (round % 3)
            std::reverse(ready.begin(), ready.end());
        for (auto [i, slice] : ready) {
            t.hand_over(e, i, slice);
            EXPECT_LE(ZOFF_OK, zoff_engine_progress(e));
        }
        EXPECT_ZOFF_OK(zoff_step_begin(e, nullptr));
        EXPECT_ZOFF_OK(zoff_step_wait(e, info));
    }

    scratch_folder folder;
};
INSTANTIATE_TEST_SUITE_P(Matrix, NcclAdds, testing::ValuesIn(cells()), name);

// Gradients and weights are integers, and all sums stay below 2^24. So fp32 is exact in every order.
TEST_P(NcclAdds, SumsThatAreExactHaveTheBitsOfTheReference)
{
    const cell &c = GetParam();
    if (!rank_job::is_possible(c.world))
        GTEST_SKIP() << "this job has another number of ranks";
    rank_job job(c.world);
    rank_trainers all(job, 42, [&](trainer &t) {
        add_awkward(t, c.dtype, c.dtype);
        t.whole_gradients = true;
    });
    all.use_devices(c.stage * 10 + c.world);
    all.seal(config_text("{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}", 2.0), c.chunk_elements);
    if (HasFailure())
        return;
    unsigned round = 0;
    for (int64_t step = 1; step <= 3; step++) {
        std::vector<zoff_step_info> infos(c.world, new_info());
        for (unsigned micro = 0; micro < c.accumulation; micro++, round++) {
            for (unsigned rank = 0; rank < c.world; rank++)
                all.weights[rank] = round % 2 ? 1.0 : (double)((round * 7 + rank * 5) % 11 + (rank == 0));
            all.backward(round, 20.0f, step == 3 ? 0.5 : 0);
            job.on_each([&](unsigned rank) { take(all, rank, round, &infos[rank]); });
        }
        const reference::result want = all.step(config_groups(), step, 2.0);
        for (unsigned rank = 0; rank < c.world; rank++) {
            if (job.is_here(rank)) {
                EXPECT_EQ(want.norm, infos[rank].numbers.grad_norm);
                EXPECT_EQ(want.clip, infos[rank].numbers.clip_factor);
                EXPECT_EQ(step, infos[rank].t);
            }
        }
        job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            t.tensors = all.want.tensors;
            t.expect_weights();
            t.expect_states(all.engines[rank].get());
        });
        if (HasFailure())
            return;
    }
}

// A bound on the difference between a sum of n terms in any order and the exact sum. Each term is rounded once when it is
// multiplied by its weight. Each of n - 1 partial sums is rounded once, and the mean twice. Each rounding is at most 2^-24 of
// the sum of all magnitudes. One more covers the products of these errors. 16-bit sums on the wire would miss the bound by a
// factor of thousands.
class any_order
{
  public:
    explicit any_order(const trainer &like)
    {
        for (const auto &t : like.tensors) {
            sums.emplace_back(t.total());
            sizes.emplace_back(t.total());
        }
    }
    void add(const trainer &t, double weight)
    {
        for (size_t i = 0; i < t.tensors.size(); i++) {
            for (size_t k = 0; k < t.tensors[i].total(); k++) {
                if (t.tensors[i].present[k / t.tensors[i].count]) {
                    sums[i][k] += weight * t.tensors[i].sum[k];
                    sizes[i][k] += fabs(weight * t.tensors[i].sum[k]);
                }
            }
        }
        total += weight;
        terms++;
    }
    void expect(zoff_engine *e, const trainer &t) const
    {
        for (size_t i = 0; i < sums.size(); i++) {
            std::vector<float> have(sums[i].size());
            if (t.tensors[i].frozen)
                continue;
            ASSERT_ZOFF_OK(zoff_state_read(e, (zoff_param)i, ZOFF_STATE_M, 0, have.size(), have.data()));
            for (size_t k = 0; k < have.size(); k++) {
                const double mean = sums[i][k] / total, most = (terms + 3) * 0x1p-24 * sizes[i][k] / total;
                if (!(fabs(have[k] - mean) <= most))
                    FAIL() << "tensor " << i << ", element " << k << ": " << have[k] << " instead of " << mean;
            }
        }
    }

  private:
    std::vector<std::vector<double>> sums, sizes;
    double total = 0;
    unsigned terms = 0;
};

// The first moment of SGD is the mean of the gradients.
TEST_P(NcclAdds, AnyGradientsDifferByNoMoreThanTheirOrderAllows)
{
    const cell &c = GetParam();
    if (!rank_job::is_possible(c.world))
        GTEST_SKIP() << "this job has another number of ranks";
    rank_job job(c.world);
    rank_trainers all(job, 43, [&](trainer &t) { add_awkward(t, c.dtype, c.dtype); });
    all.use_devices(c.stage * 10 + c.world);
    all.seal(config_text("{\"type\": \"SGD\", \"params\": {\"lr\": 0.01, \"momentum\": 0.9}}", 0), c.chunk_elements);
    if (HasFailure())
        return;
    any_order want(all.want);
    for (unsigned micro = 0; micro < c.accumulation; micro++) {
        for (unsigned rank = 0; rank < c.world; rank++)
            all.weights[rank] = 0.1 + rank * 0.37 + micro;
        all.backward(micro, 0.5f);
        for (unsigned rank = 0; rank < c.world; rank++)
            want.add(*all.trainers[rank], (float)all.weights[rank]);
        job.on_each([&](unsigned rank) {
            zoff_step_info info = new_info();
            take(all, rank, micro, &info);
        });
    }
    job.on_each([&](unsigned rank) { want.expect(all.engines[rank].get(), *all.trainers[rank]); });
}

// ---- faults ----

const char *const ONE_BUCKET = "{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
                               "\"zoff\": {\"reduce_scatter\": \"nccl\"}, \"zero_optimization\": {\"stage\": 2}}";

// After the sum nobody can tell which rank had the bad gradient. No rank may be blamed wrongly.
TEST(NcclAddsFaults, AGradientThatIsNotFiniteSkipsTheStep_world2_)
{
    if (!rank_job::is_possible(2))
        GTEST_SKIP() << "this job has another number of ranks";
    log_catcher log;
    rank_job job(2);
    rank_trainers all(job, 3, [](trainer &t) {
        t.add(3000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(9000, 2, ZOFF_F16, ZOFF_F16);
    });
    all.use_devices(7);
    all.seal(ONE_BUCKET, 1u << 20);
    for (unsigned round = 0; round < 4; round++) {
        all.backward(round, 0.5f);
        const bool poisoned = round % 2;
        trainer &t = *all.trainers[round == 1];
        if (poisoned)
            trainer::put(t.grad(1), ZOFF_F16, t.place(1, 9000 + 2050), round == 1 ? INFINITY : NAN);
        std::vector<zoff_step_info> infos(2, new_info());
        job.on_each([&](unsigned rank) {
            for (size_t i = 2; i-- > 0;) {
                for (size_t slice = 0; slice < all.trainers[rank]->tensors[i].slices; slice++)
                    all.trainers[rank]->hand_over(all.engines[rank].get(), i, slice);
            }
            EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, &infos[rank]));
            EXPECT_EQ(poisoned, infos[rank].skipped);
            EXPECT_EQ(poisoned ? ZOFF_OUTCOME_BEFORE : ZOFF_OUTCOME_AFTER, infos[rank].outcome);
            if (poisoned) {
                EXPECT_EQ(1u, infos[rank].culprit.param);
                EXPECT_EQ(1u, infos[rank].culprit.slice);
            }
        });
        // Two terms have the same sum in either order, and a weight of 1 rounds no product. So the bits must be those of the
        // reference.
        const std::vector<reference::tensor> before = all.want.tensors;
        if (poisoned)
            all.forget();
        else
            all.step(config_groups(), round / 2 + 1, 0);
        job.on_each([&](unsigned rank) {
            trainer copy = *all.trainers[rank];
            copy.tensors = poisoned ? before : all.want.tensors;
            copy.expect_weights();
            copy.expect_states(all.engines[rank].get());
        });
        if (HasFailure())
            return;
    }
    if (job.is_here(0)) { // rank 0 checks for all ranks
        log.expect("skipped: the gradient of ");
        EXPECT_EQ(2u,
                  log.count("slice 1, has an inf or nan between its elements 2048 and 3071 in the sum of all ranks (by rank"));
        EXPECT_EQ(0u, log.count("on rank"));
    }
}

// For each n, the nth device call of a step fails once. The engine repeats the packing or the sum exactly once.
TEST(NcclAddsFaults, ACallOfADeviceThatFailsIsMadeAgain_world2_)
{
    if (!rank_job::is_possible(2))
        GTEST_SKIP() << "this job has another number of ranks";
    enum { CALLS = 90 };
    log_catcher log;
    rank_job job(2);
    rank_trainers all(job, 3, [](trainer &t) {
        t.add(1025, 5, ZOFF_BF16, ZOFF_BF16);
        t.whole_gradients = true;
    });
    all.use_devices(0);
    all.seal("{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
             "\"gradient_accumulation_steps\": 2, \"zoff\": {\"reduce_scatter\": \"nccl\"}, "
             "\"zero_optimization\": {\"stage\": 1, \"reduce_bucket_size\": 2048}}",
             2048);
    int failed = 0;
    for (int nth = 1; nth <= CALLS && !HasFailure(); nth++) {
        for (unsigned micro = 0; micro < 2; micro++) {
            all.backward((unsigned)nth * 2 + micro, 20.0f);
            if (micro)
                all.step(config_groups(1), nth, 0);
            job.on_each([&](unsigned rank) {
                trainer &t = *all.trainers[rank];
                zoff_engine *e = all.engines[rank].get();
                for (size_t slice = 0; slice < t.tensors[0].slices; slice++)
                    t.hand_over(e, 0, slice);
                all.devices[rank]->calls = 0;
                all.devices[rank]->fail = rank == 0 && micro == (unsigned)nth % 2 ? (nth + 1) / 2 : 0;
                zoff_step_info info = new_info();
                zoff_status status = zoff_step(e, nullptr, &info);
                if (status < 0) {
                    EXPECT_EQ(ZOFF_ERR_DEVICE, status) << zoff_last_error();
                    EXPECT_ZOFF_OK(zoff_step_retry(e, &info));
                    failed++; // only rank 0 counts failures
                }
                all.devices[rank]->fail = 0;
                trainer copy = t;
                copy.tensors = all.want.tensors;
                if (micro) {
                    copy.expect_weights();
                    copy.expect_states(e);
                }
            });
        }
    }
    EXPECT_TRUE(!job.is_here(0) || failed > CALLS / 2) << failed;
}

// Seal fails on each rank. The other ranks get the same message, or that of the rank that refuses.
TEST(NcclAddsFaults, MissingMemoryIsRefusedAtSeal_world2_)
{
    if (!rank_job::is_possible(2))
        GTEST_SKIP() << "this job has another number of ranks";
    rank_job job(2);
    rank_trainers all(job, 3, [](trainer &t) { t.add(3000, 1, ZOFF_BF16, ZOFF_BF16); });
    const std::string text = ONE_BUCKET;
    job.on_each([&](unsigned rank) {
        engine on_host = make_engine(*all.trainers[rank], text, 0, 0, job.comm_of(rank));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "\"nccl\" cannot do so in memory of accelerator \"host\"",
                          zoff_engine_seal(on_host.get()));
    });
    all.use_devices(0);
    for (const char *type : {"bf16", "fp16", "fp32"}) {
        const std::string with_type = "{\"communication_data_type\": \"" + std::string(type) + "\", " + text.substr(1);
        job.on_each([&](unsigned rank) {
            engine e = make_engine(*all.trainers[rank], with_type, 0, 0, job.comm_of(rank), all.devices[rank]->accel);
            if (std::string(type) == "fp32")
                EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
            else
                EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sums in fp32, and communication_data_type is \"" + std::string(type),
                                  zoff_engine_seal(e.get()));
        });
    }
}

TEST(NcclAddsFaults, RanksThatWantDifferentSumsHearOfIt_world2_)
{
    if (!rank_job::is_possible(2))
        GTEST_SKIP() << "this job has another number of ranks";
    rank_job job(2);
    rank_trainers all(job, 3, [](trainer &t) { t.add(3000, 1, ZOFF_F32, ZOFF_F32); });
    all.use_devices(0);
    job.on_each([&](unsigned rank) {
        engine e = make_engine(*all.trainers[rank], rank ? ONE_BUCKET : "{\"zero_optimization\": {\"stage\": 2}}", 0, 0,
                               job.comm_of(rank), all.devices[rank]->accel);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff.reduce_scatter is \"auto\" on rank 0 and \"nccl\" on rank 1",
                          zoff_engine_seal(e.get()));
    });
}

// With fp32 on the wire each of three slots holds the bucket and one part, which is the sum. In rank order it would hold one
// part per rank. All parts of the sum have the length of the longest.
TEST(NcclAddsFaults, TheSlotsThatThePlanTellsAreSmaller_world4_)
{
    if (!rank_job::is_possible(4))
        GTEST_SKIP() << "this job has another number of ranks";
    rank_job job(4);
    for (size_t blocks : {16, 13}) {
        rank_trainers all(job, 3, [&](trainer &t) { t.add(blocks * 1024, 1, ZOFF_BF16, ZOFF_BF16); });
        all.use_devices(0);
        const size_t longest = (blocks + 3) / 4 * 4096;
        job.on_each([&](unsigned rank) {
            uint64_t bytes[2];
            for (bool adds : {false, true}) {
                std::string text = ONE_BUCKET;
                text.replace(text.find("\"nccl\""), 6, adds ? "\"nccl\"" : "\"ordered\"");
                text.insert(1, "\"communication_data_type\": \"fp32\", ");
                engine e = make_engine(*all.trainers[rank], text, 1u << 20, 0, job.comm_of(rank), all.devices[rank]->accel);
                bytes[adds] = plan_of(e.get()).device_bytes;
            }
            const size_t own = rank == 0 || blocks == 16 ? longest : longest - 4096;
            EXPECT_EQ(3 * (blocks * 4096 + 4 * own), bytes[false] - (uint64_t)own) << blocks;
            EXPECT_EQ(3 * (4 * longest + longest), bytes[true] - (uint64_t)own) << blocks;
        });
    }
}
} // namespace
