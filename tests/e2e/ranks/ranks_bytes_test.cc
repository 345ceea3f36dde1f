/* SPDX-License-Identifier: Apache-2.0 */
// ranks_bytes_test.cc: bytes on the wire must equal the theory exactly. With N ranks each gradient is sent N - 1 times per
// micro-batch, and each replicated weight N - 1 times per step. A fetch of weights that the engine owns sends each element to N
// - 1 ranks. All other traffic has a fixed size.
#include "covering.h"
#include "rank_job.h"

using namespace zoff_test;

namespace
{
struct totals {
    uint64_t gradients = 0, weights = 0, all = 0, down = 0, up = 0;
};

class RanksBytes : public testing::TestWithParam<std::tuple<unsigned, unsigned, unsigned>>
{
  protected:
    unsigned stage() const { return std::get<0>(GetParam()); }
    unsigned world() const { return std::get<1>(GetParam()); }
    unsigned accumulation() const { return std::get<2>(GetParam()); }

    // `weights`: offload_param.device.
    std::string text(const std::string &weights = "none") const
    {
        return "{\"gradient_accumulation_steps\": " + std::to_string(accumulation()) +
               ", \"zero_optimization\": {\"stage\": " + std::to_string(stage()) +
               ", \"reduce_bucket_size\": 20000, \"offload_param\": {\"device\": \"" + weights + "\", \"nvme_path\": \"" +
               folder.path + "\"}, \"stage3_param_persistence_threshold\": 0}}";
    }

    // One update, summed over the ranks. `fetches`: how often each slice of the engine's weights is fetched in it.
    totals step(rank_trainers &all, unsigned round, unsigned fetches)
    {
        std::vector<zoff_step_info> infos(world(), new_info());
        std::vector<totals> each(world());
        for (unsigned micro = 0; micro < accumulation(); micro++) {
            all.backward(round + micro, 0.5f);
            all.job.on_each([&](unsigned rank) {
                for (unsigned k = 0; micro == 0 && k < fetches; k++)
                    all.trainers[rank]->fetch_all(all.engines[rank].get());
                trainer &t = *all.trainers[rank];
                for (size_t i = 0; !all.devices.empty() && i < t.tensors.size(); i++) {
                    for (size_t slice = 0; slice < t.tensors[i].slices; slice++)
                        t.hand_over(all.engines[rank].get(), i, slice);
                }
                EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, &infos[rank]));
                each[rank].gradients += infos[rank].bytes.sent_gradients;
                each[rank].weights += infos[rank].bytes.sent_weights;
                each[rank].all += infos[rank].bytes.sent;
                each[rank].down += infos[rank].bytes.device_read;
                each[rank].up += infos[rank].bytes.device_written;
            });
        }
        totals sum;
        for (const totals &t : each) {
            sum.gradients += t.gradients;
            sum.weights += t.weights;
            sum.all += t.all;
            sum.down += t.down;
            sum.up += t.up;
        }
        all.want.next_step();
        return sum;
    }

    scratch_folder folder;
};

using cell = std::tuple<unsigned, unsigned, unsigned>;

std::string name(const cell &c)
{
    return "stage" + std::to_string(std::get<0>(c)) + "_world" + std::to_string(std::get<1>(c)) + "_accumulate" +
           std::to_string(std::get<2>(c));
}

const covering<cell> &matrix()
{
    static const covering<cell> all(
        "Stages/RanksBytes.EqualTheTheory/", name,
        [](const cell &c) {
            return covering<cell>::values{{"stage", std::to_string(std::get<0>(c))},
                                          {"world", std::to_string(std::get<1>(c))},
                                          {"accumulation", std::to_string(std::get<2>(c))}};
        },
        [](covering<cell> &cells) {
            for (unsigned stage : {0u, 1u, 2u, 3u}) {
                for (unsigned world : {2u, 3u, 4u}) {
                    for (unsigned accumulation : {1u, 3u})
                        cells.add({stage, world, accumulation});
                }
            }
        });
    return all;
}
INSTANTIATE_TEST_SUITE_P(Stages, RanksBytes, testing::ValuesIn(matrix().cells()),
                         [](const auto &one) { return name(one.param); });

TEST(RanksBytesCells, CoverAllPairs)
{
    matrix().expect_all_pairs();
}

TEST_P(RanksBytes, EqualTheTheory)
{
    rank_job job(world());
    rank_trainers all(job, 7, [](trainer &t) { add_awkward(t, ZOFF_BF16, ZOFF_BF16); });
    all.seal(text(), 3000);
    uint64_t trained = 0, padded = 0, slices = 0;
    for (const auto &t : all.want.tensors) {
        trained += t.frozen ? 0 : 2 * t.total();
        slices += t.slices;
    }
    const uint64_t others = world() - 1, k = accumulation();
    (void)step(all, 100, 0); // the first step also exchanges the order of buckets
    const totals sent = step(all, 200, 0);
    if (stage() == 0) {
        // The sums are fp32, padded to cache lines: at least twice as many bytes as the gradients.
        padded = sent.gradients - k * others * trained;
        EXPECT_GE(padded, others * 2 * trained);
        EXPECT_LE(padded, others * 2 * trained * 11 / 10);
        EXPECT_EQ(0u, sent.weights);
    } else {
        EXPECT_EQ(k * others * trained, sent.gradients);
        EXPECT_EQ(others * trained, sent.weights);
    }
    // Weights of micro-batches, presence of slices, and votes. Only the presence grows with the model, by one bit per slice.
    const uint64_t small = sent.all - sent.gradients - sent.weights;
    EXPECT_LE(small, world() * others * (k * sizeof(double) + (slices + 7) / 8 + 1024));
}

// Bytes over the link between host and device. If the communicator accesses the devices, the fp32 sums are downloaded and each
// weight is uploaded, once per group. Otherwise all gradients of all ranks are downloaded, and all weights uploaded to each.
TEST_P(RanksBytes, OverTheLinkOfADevice)
{
    for (bool reached : {false, true}) {
        rank_job job(world());
        rank_trainers all(job, 7, [](trainer &t) { add_awkward(t, ZOFF_BF16, ZOFF_BF16); });
        all.use_devices(0);
        if (reached)
            job.reach_devices();
        all.seal(text(), 3000);
        uint64_t trained = 0;
        for (const auto &t : all.want.tensors)
            trained += t.frozen ? 0 : t.total();
        (void)step(all, 100, 0);
        const totals moved = step(all, 200, 0);
        const uint64_t ranks = world(), k = accumulation();
        if (reached) {
            EXPECT_LE(4 * trained, moved.down);
            EXPECT_GE(4 * trained * 11 / 10, moved.down) << "only padding to cache lines between pieces is added";
            EXPECT_EQ(2 * trained * (stage() == 0 ? ranks : 1), moved.up);
        } else {
            EXPECT_EQ(2 * trained * ranks * k, moved.down);
            EXPECT_EQ(2 * trained * ranks, moved.up);
        }
    }
}

// Weights that the engine owns are sent only to the ranks that fetch them.
TEST_P(RanksBytes, FetchedWeights)
{
    rank_job job(world());
    rank_trainers all(job, 7, [](trainer &t) {
        add_awkward(t, ZOFF_BF16, ZOFF_BF16);
        for (size_t i = 0; i < t.tensors.size(); i++)
            t.give_away(i);
    });
    all.seal(text(), 3000);
    uint64_t total = 0;
    for (const auto &t : all.want.tensors)
        total += stage() == 0 ? 0 : 2 * t.total(); // each rank has its copy of replicated weights
    (void)step(all, 100, 0);
    EXPECT_EQ(0u, step(all, 200, 0).weights);
    EXPECT_EQ((world() - 1) * total, step(all, 300, 1).weights);
    // The second fetch finds the weights in memory and costs nothing. Slices used in the previous pass are prefetched, once.
    EXPECT_EQ((world() - 1) * total, step(all, 400, 2).weights);
}

// The table in docs/PERFORMANCE.md: weights that are fetched once in a step, and lent gradients. Where the communicator
// accesses the devices, each rank uploads its share. Otherwise each rank uploads all weights. Weights that stay on the device
// are uploaded by the step; without such a communicator each rank's share comes down for each gather.
TEST_P(RanksBytes, FetchedToADevice)
{
    const uint64_t ranks = world(), k = accumulation();
    for (const char *weights : {"none", "cpu", "nvme"}) {
        for (bool reached : {false, true}) {
            if (stage() != 3)
                continue;
            SCOPED_TRACE(std::string(weights) + (reached ? ", reached" : ""));
            rank_job job(world());
            rank_trainers all(job, 7, [](trainer &t) {
                t.add(9000, 3, ZOFF_BF16, ZOFF_BF16);
                t.add(4096, 2, ZOFF_BF16, ZOFF_BF16);
                t.give_all_away();
            });
            all.use_devices(0);
            if (reached)
                job.reach_devices();
            all.seal(text(weights), 3000);
            const uint64_t total = 3 * 9000 + 2 * 4096, chunks = plan_of(all.engines[0].get()).chunk_count;
            (void)step(all, 100, 1);
            const totals moved = step(all, 200, 1);
            EXPECT_EQ((ranks - 1) * 2 * total, moved.weights);
            EXPECT_EQ(k * (ranks - 1) * 2 * total, moved.gradients);
            const bool stays = std::string(weights) == "none";
            uint64_t up = (stays ? 0 : 2 * total), down = 4 * total;
            if (!reached) {
                up = ranks * 2 * total;
                down = k * ranks * 2 * total + (stays ? 2 * total : 0);
            }
            EXPECT_LE(down, moved.down);
            EXPECT_GE(down * 11 / 10, moved.down) << "only padding to cache lines between pieces is added";
            const uint64_t step_up = stays ? 2 * total : 0; /* bytes of whole pages */
            EXPECT_LE(up + step_up, moved.up);
            EXPECT_GE(up + step_up + (stays ? 4096 * chunks * ranks : 0), moved.up);
        }
    }
}
} // namespace
