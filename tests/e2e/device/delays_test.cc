/* SPDX-License-Identifier: Apache-2.0 */
// delays_test.cc: delays all work beside the caller by random times: the trainer's stream, the streams that download gradients
// and upload weights, operations between ranks, reads and writes of files. The order changes; the bits must not.
#include "comm_fault.h"
#include "covering.h"
#include "rank_job.h"

#include <atomic>

extern "C" {
int __real_zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes);
int __wrap_zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes);
}

namespace
{
std::atomic<unsigned> seed_of_files{0}; // 0: no delays

bool chance(std::mt19937 &random, unsigned of)
{
    return random() % of == 0;
}
} // namespace

// Delay the rank that receives the result of a transfer.
int __wrap_zoff_aio_result_check(int res, bool writes, uint64_t offset, size_t bytes)
{
    thread_local std::mt19937 random(seed_of_files + (unsigned)(offset / 4096));
    if (seed_of_files && chance(random, 3))
        usleep(random() % 500);
    return __real_zoff_aio_result_check(res, writes, offset, bytes);
}

using namespace zoff_test;

namespace
{
struct cell {
    unsigned stage, world, seed;
    zoff_tier tier;
    bool reached = false; // the communicator accesses the devices directly
};

class Delays : public testing::TestWithParam<cell>
{
  protected:
    Delays() { seed_of_files = GetParam().seed; }
    ~Delays() override { seed_of_files = 0; }

    std::string config_text() const
    {
        return "{\"gradient_accumulation_steps\": 2, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
               "\"gradient_clipping\": 2.0, \"zero_optimization\": {\"stage\": " +
               std::to_string(GetParam().stage) + ", \"reduce_bucket_size\": 9000, \"offload_optimizer\": {\"device\": \"" +
               (GetParam().tier == ZOFF_TIER_NVME ? "nvme" : "cpu") + "\", \"nvme_path\": \"" + folder.path +
               "\", \"buffer_count\": 3}}}";
    }

    // Delays the completion of some operations, different ones on each rank.
    void slow_down(const rank_job &job)
    {
        for (unsigned rank = 0; rank < job.size; rank++) {
            slowed.push_back(std::make_unique<comm_fault>(job.comm_of(rank)));
            slowed.back()->not_yet = [random = std::mt19937(GetParam().seed * 10 + rank)](const zoff_comm_work &) mutable {
                return !chance(random, 4);
            };
        }
    }

    scratch_folder folder;
    std::vector<std::unique_ptr<comm_fault>> slowed; // destroyed after the communicators
};

void fill(covering<cell> &all)
{
    for (unsigned world : {1u, 2u, 3u}) {
        for (unsigned stage : {0u, 1u, 2u}) {
            for (zoff_tier tier : {ZOFF_TIER_HOST, ZOFF_TIER_NVME}) {
                for (unsigned seed : {1u, 2u, 3u})
                    all.add({stage, world, seed + 10 * stage, tier});
                if (world > 1)
                    all.add({stage, world, 7 + 10 * stage, tier, true});
            }
        }
    }
}

std::string name(const cell &c)
{
    return "stage" + std::to_string(c.stage) + "_world" + std::to_string(c.world) +
           (c.tier == ZOFF_TIER_NVME ? "_nvme" : "_host") + "_seed" + std::to_string(c.seed) + (c.reached ? "_reached" : "");
}

const covering<cell> &matrix()
{
    static const covering<cell> all(
        "Seeds/Delays.NeverChangeABit/", name,
        [](const cell &c) {
            return covering<cell>::values{{"stage", std::to_string(c.stage)},
                                          {"world", std::to_string(c.world)},
                                          {"tier", c.tier == ZOFF_TIER_NVME ? "nvme" : "host"},
                                          {"seed", std::to_string(c.seed % 10)},
                                          {"reached", c.reached ? "yes" : "no"}};
        },
        fill);
    return all;
}
INSTANTIATE_TEST_SUITE_P(Seeds, Delays, testing::ValuesIn(matrix().cells()), [](const auto &one) { return name(one.param); });

TEST(DelaysCells, CoverAllPairs)
{
    matrix().expect_all_pairs();
}

TEST_P(Delays, NeverChangeABit)
{
    const unsigned world = GetParam().world;
    rank_job job(world);
    slow_down(job);
    rank_trainers all(job, 42, [](trainer &t) { add_awkward(t, ZOFF_BF16, ZOFF_BF16); });
    all.use_devices(GetParam().seed);
    if (GetParam().reached)
        job.reach_devices();
    all.seal(config_text(), 3000);
    unsigned round = 0;
    for (int64_t step = 1; step <= 3; step++) {
        std::vector<zoff_step_info> infos(world, new_info());
        for (int micro = 0; micro < 2; micro++, round++) {
            all.backward(round, step == 2 ? 50.0f : 0.5f);
            job.on_each([&](unsigned rank) {
                zoff_engine *e = all.engines[rank].get();
                trainer &t = *all.trainers[rank];
                for (size_t i = t.tensors.size(); i-- > 0;) {
                    for (size_t slice = t.tensors[i].slices; slice-- > 0;)
                        t.hand_over(e, i, slice);
                }
                EXPECT_ZOFF_OK(zoff_step_begin(e, nullptr));
                EXPECT_ZOFF_OK(zoff_step_wait(e, &infos[rank]));
            });
        }
        const reference::result want = all.step(config_groups(), step, 2.0);
        job.on_each([&](unsigned rank) {
            EXPECT_EQ(want.norm, infos[rank].numbers.grad_norm);
            trainer &t = *all.trainers[rank];
            t.tensors = all.want.tensors;
            t.expect_weights();
        });
    }
    job.on_each([&](unsigned rank) { all.trainers[rank]->expect_states(all.engines[rank].get()); });
}
} // namespace
