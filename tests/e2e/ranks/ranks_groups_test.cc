/* SPDX-License-Identifier: Apache-2.0 */
// ranks_groups_test.cc: weights stored once more in each group of ranks (zero_hpz_partition_size): which messages cross from
// one group to another, the memory of the second shard, and that it follows every change of the weights.
#include "post_office.h"
#include "rank_job.h"

#include <atomic>
#include <chrono>
#include <thread>

using namespace zoff_test;

namespace
{
struct groups {
    unsigned world, members;
    const char *weights; // offload_param.device
    bool on_device;
};

std::string name(const groups &g)
{
    return "world" + std::to_string(g.world) + "_groupsOf" + std::to_string(g.members) + "_" + g.weights +
           (g.on_device ? "_onDevice" : "");
}

struct RanksGroups : testing::TestWithParam<groups> {
    unsigned world() const { return GetParam().world; }
    unsigned members() const { return GetParam().members; }
    unsigned group_count() const { return world() / members(); }

    std::string text(unsigned group, const std::string &more = "") const
    {
        return "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 2.0, "
               "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 20000, \"zero_hpz_partition_size\": " +
               std::to_string(group) + ", \"offload_param\": {\"device\": \"" + GetParam().weights + "\", \"nvme_path\": \"" +
               folder.path + "\", \"max_in_cpu\": 0, \"buffer_count\": 3}, \"stage3_param_persistence_threshold\": 0}" + more +
               "}";
    }

    static void add(trainer &t)
    {
        t.add(9000, 3, ZOFF_BF16, ZOFF_BF16);
        t.add(4097, 2, ZOFF_BF16, ZOFF_BF16);
        t.add(3001, 1, ZOFF_F32, ZOFF_F32);
        t.add(5000, 1, ZOFF_BF16, ZOFF_BF16, 0, true); // frozen: only seal sends it
        for (size_t i = 0; i < 4; i++)
            t.give_away(i);
    }

    void place(rank_trainers &all) const
    {
        if (GetParam().on_device)
            all.use_devices(0);
    }

    // One step in which every slice has a gradient.
    static void step(rank_trainers &all, unsigned round, std::vector<zoff_step_info> *out = nullptr)
    {
        std::vector<zoff_step_info> infos(all.job.size, new_info());
        all.backward(round, 0.5f);
        all.job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            for (auto [i, slice] : t.present())
                t.hand_over(all.engines[rank].get(), i, slice);
            EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, &infos[rank]));
        });
        (void)all.step(config_groups(), round, 2.0);
        if (out)
            *out = infos;
    }

    static void expect_weights(rank_trainers &all)
    {
        all.job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            t.fetch_all(all.engines[rank].get());
            t.tensors = all.want.tensors;
            t.expect_weights();
        });
    }

    scratch_folder folder;
};

INSTANTIATE_TEST_SUITE_P(Places, RanksGroups,
                         testing::Values(groups{4, 2, "cpu", false}, groups{6, 3, "nvme", false}, groups{6, 2, "none", true},
                                         groups{4, 2, "nvme", true}),
                         [](const auto &one) { return name(one.param); });

// Traffic from ranks of one group to ranks of another.
post_office::traffic crossed(post_office &office, unsigned world, unsigned members)
{
    post_office::traffic sum;
    for (unsigned from = 0; from < world; from++) {
        for (unsigned to = 0; to < world; to++) {
            const post_office::traffic one = office.between(from, to);
            sum.messages += from / members == to / members ? 0 : one.messages;
            sum.bytes += from / members == to / members ? 0 : one.bytes;
        }
    }
    return sum;
}

// Elements of the parts that each rank updates go to one rank of each group, and fetches send them to the others of its group.
TEST_P(RanksGroups, OnlyTheStepSendsWeightsToOtherGroups)
{
    post_office office(world());
    rank_job job(world(), office);
    rank_trainers all(job, 7, add);
    place(all);
    all.seal(text(members()), 3000);
    uint64_t total = 0, trained = 0, spread = 0;
    for (const auto &t : all.want.tensors) {
        const uint64_t bytes = (t.dtype == ZOFF_F32 ? 4 : 2) * t.total();
        total += bytes;
        trained += t.frozen ? 0 : bytes;
    }
    step(all, 1);
    for (unsigned pass = 0; pass < 2; pass++) {
        std::vector<zoff_step_info> infos;
        const post_office::traffic before = crossed(office, world(), members());
        job.on_each([&](unsigned rank) {
            if (rank == 1 && pass == 1) // this rank's group waits for so long that a rank tells in which call
                std::this_thread::sleep_for(std::chrono::milliseconds(300));
            all.trainers[rank]->fetch_all(all.engines[rank].get());
        });
        job.on_each([&](unsigned rank) { all.trainers[rank]->fetch_all(all.engines[rank].get(), true); });
        EXPECT_EQ(before.messages, crossed(office, world(), members()).messages)
            << "a fetch has sent a message to another group";
        step(all, 2 + pass, &infos);
        uint64_t sent = 0;
        for (const zoff_step_info &info : infos)
            sent += info.bytes.sent_weights;
        // A group's fetch sends each element to the other members. The step sends it to each group, but not from a rank to
        // itself.
        spread = sent - (uint64_t)group_count() * (members() - 1) * total;
        EXPECT_LE(spread, group_count() * trained);
        EXPECT_GE(spread, (group_count() - 1) * trained) << "each group needs all weights of the others";
    }
    expect_weights(all);
}

// Bytes that operations of this rank have sent.
uint64_t sent_by(const rank_job &job, unsigned rank)
{
    zoff_comm_info info = ZOFF_COMM_INFO_INIT;
    EXPECT_ZOFF_OK(zoff_comm_get_info(job.comm_of(rank), &info));
    return info.sent_bytes;
}

// The step's messages: from a group to another go exactly the parts that its ranks update.
TEST_P(RanksGroups, AGroupReceivesEachPartOnce)
{
    post_office office(world());
    rank_job job(world(), office);
    rank_trainers all(job, 7, [](trainer &t) {
        t.add(60000, 2, ZOFF_BF16, ZOFF_BF16);
        t.give_away(0);
    });
    place(all);
    all.seal(text(members()), 3000);
    const uint64_t parts = 2 * 2 * 60000; /* bytes */
    const post_office::traffic before = crossed(office, world(), members());
    std::atomic<uint64_t> sent{0}, want{0};
    job.on_each([&](unsigned rank) {
        const uint64_t sent_before = sent_by(job, rank);
        EXPECT_ZOFF_OK(zoff_params_push(all.engines[rank].get()));
        sent += sent_by(job, rank) - sent_before;
        // A rank sends its part to one rank of each group, but not to itself.
        const bool has_own = rank % members() == rank / group_count();
        want += plan_of(all.engines[rank].get()).weight_bytes * (group_count() - has_own);
    });
    const post_office::traffic after = crossed(office, world(), members());
    EXPECT_EQ(want, sent);
    // Each group lacks the parts of the ranks outside. Small messages travel in headers of 2 KiB, and all have one.
    const uint64_t floor = (group_count() - 1) * parts, headers = (after.messages - before.messages) * 2048;
    EXPECT_GE(after.bytes - before.bytes, floor);
    EXPECT_LE(after.bytes - before.bytes, floor + headers);
}

// Bytes that a device holds for engines.
uint64_t allocated(const test_device &device)
{
    zoff_accel_info info = ZOFF_ACCEL_INFO_INIT;
    EXPECT_ZOFF_OK(zoff_accel_get_info(device.accel, &info));
    return info.allocated_bytes;
}

// The second shard is a member's part of all weights, in whole pages for each chunk, and buffers.
TEST_P(RanksGroups, ThePlanCountsTheSecondShard)
{
    std::vector<zoff_plan_info> plans[2];
    uint64_t share = 0;
    for (bool grouped : {false, true}) {
        rank_job job(world());
        rank_trainers all(job, 7, add);
        place(all);
        std::vector<uint64_t> of_trainer;
        for (const auto &device : all.devices)
            of_trainer.push_back(allocated(*device));
        all.seal(text(grouped ? members() : 1), 3000);
        for (unsigned rank = 0; rank < world(); rank++) {
            plans[grouped].push_back(plan_of(all.engines[rank].get()));
            if (GetParam().on_device) {
                EXPECT_EQ(plans[grouped][rank].device_bytes, allocated(*all.devices[rank]) - of_trainer[rank]);
            }
        }
        share = 0;
        for (const auto &t : all.want.tensors)
            share += (t.dtype == ZOFF_F32 ? 4 : 2) * t.total() / members();
    }
    for (unsigned rank = 0; rank < world(); rank++) {
        const zoff_plan_info &with = plans[true][rank], &without = plans[false][rank];
        const uint64_t slack = 4096 * (with.chunk_count + 1), host = with.weight_host_bytes - without.weight_host_bytes;
        const std::string where = GetParam().weights;
        const uint64_t stored = where == "none"   ? with.device_bytes - without.device_bytes
                                : where == "nvme" ? with.weight_nvme_bytes - without.weight_nvme_bytes
                                                  : host;
        const uint64_t buffers = where == "cpu" ? 3 * 2 * 40000 : 0; /* three buckets on their way */
        EXPECT_GE(stored + slack, share);
        EXPECT_LE(stored, share + slack + buffers);
        EXPECT_LT(0u, host) << "buffers";
    }
}

TEST_P(RanksGroups, FollowEveryChangeOfTheWeights)
{
    rank_job job(world());
    rank_trainers all(job, 7, add);
    place(all);
    all.seal(text(members()), 3000);
    step(all, 1);
    expect_weights(all);
    // All ranks set a range that begins and ends within slices.
    const size_t first = 700, count = 20000;
    std::vector<char> values(2 * count);
    for (size_t k = 0; k < count; k++) {
        all.want.tensors[0].master[first + k] = (float)(k % 128) / 64;
        trainer::put(values.data(), ZOFF_BF16, k, (float)(k % 128) / 64);
    }
    job.on_each(
        [&](unsigned rank) { EXPECT_ZOFF_OK(zoff_param_write(all.engines[rank].get(), 0, first, count, values.data())); });
    expect_weights(all);
    // Masters that are written become weights when they are pushed.
    const std::vector<float> masters(9000, 1.5f);
    std::copy(masters.begin(), masters.end(), all.want.tensors[0].master.begin() + 9000);
    job.on_each([&](unsigned rank) {
        zoff_engine *e = all.engines[rank].get();
        EXPECT_ZOFF_OK(zoff_state_write(e, 0, ZOFF_STATE_MASTER, 9000, 9000, masters.data()));
        EXPECT_ZOFF_OK(zoff_params_push(e));
    });
    expect_weights(all);
    step(all, 2);
    expect_weights(all);
    // A checkpoint brings the weights back that it was saved with.
    const std::string saved = folder.file("saved");
    job.on_each([&](unsigned rank) { EXPECT_ZOFF_OK(zoff_checkpoint_save(all.engines[rank].get(), saved.c_str(), nullptr)); });
    const auto then = all.want.tensors;
    step(all, 3);
    job.on_each([&](unsigned rank) { EXPECT_ZOFF_OK(zoff_checkpoint_load(all.engines[rank].get(), saved.c_str(), nullptr)); });
    all.want.tensors = then;
    expect_weights(all);
}

TEST(RanksGroupsLog, SaysWhoStoresWhat)
{
    for (bool owned : {true, false}) {
        log_catcher log;
        log.expect(owned ? "" : "zero_hpz_partition_size 2 has no effect: no parameter is engine_owned");
        rank_job job(4);
        rank_trainers all(job, 7, [&](trainer &t) {
            t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
            if (owned)
                t.give_away(0);
        });
        all.seal("{\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 2}}", 3000);
        EXPECT_EQ(owned, log.contains("each group of 2 ranks stores all engine-owned weights once more"));
    }
}

// Slices without a gradient are not sent, and stay as they are.
TEST_P(RanksGroups, KeepWhatAStepDoesNotChange)
{
    rank_job job(world());
    rank_trainers all(job, 7, add);
    place(all);
    all.seal(text(members()), 3000);
    for (unsigned round = 1; round <= 4; round++) {
        all.backward(round, 0.5f, round % 2 ? 0.5 : 1);
        job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            for (auto [i, slice] : t.present())
                t.hand_over(all.engines[rank].get(), i, slice);
            EXPECT_ZOFF_OK(zoff_step_begin(all.engines[rank].get(), nullptr));
            EXPECT_ZOFF_OK(zoff_step_wait(all.engines[rank].get(), nullptr));
        });
        (void)all.step(config_groups(), round, 2.0);
        expect_weights(all);
    }
}
} // namespace
