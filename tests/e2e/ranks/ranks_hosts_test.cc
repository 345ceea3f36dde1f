/* SPDX-License-Identifier: Apache-2.0 */
// ranks_hosts_test.cc: ranks on several hosts, which two_hosts.py joins by cables. Counts what a cable carries while weights
// are fetched within each host, while new weights go to the other ones, and over two levels of ranks.
#include "rank_job.h"

#include <zoff/mpi.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

using namespace zoff_test;

namespace
{
// Bytes that this host has sent and received over the cable.
uint64_t carried()
{
    uint64_t sum = 0;
    const char *cable = getenv("ZOFF_TEST_CABLE");
    for (const char *end : {"0", "1", "2", "3"}) {
        for (const char *way : {"tx", "rx"}) {
            uint64_t bytes = 0;
            std::ifstream(std::string("/sys/class/net/") + cable + end + "/statistics/" + way + "_bytes") >> bytes;
            sum += bytes;
        }
    }
    return sum;
}

// All ranks are here, and the cable is quiet.
void meet()
{
    MPI_Barrier(MPI_COMM_WORLD);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
}
} // namespace

TEST(RanksHosts, FetchesStayOnTheHost)
{
    if (!getenv("ZOFF_TEST_CABLE") || !rank_job::is_possible(4))
        GTEST_SKIP() << "two_hosts.py runs this";
    enum { COUNT = 1 << 20 }; // weights; 2 MiB
    uint64_t fetched[2] = {0, 0}, pushed[2] = {0, 0};
    for (unsigned group : {1u, 2u}) {
        rank_job job(4);
        rank_trainers all(job, 7, [](trainer &t) {
            t.add(COUNT / 8, 8, ZOFF_BF16, ZOFF_BF16);
            t.give_away(0);
        });
        all.seal("{\"optimizer\": {\"type\": \"AdamW\"}, \"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": " +
                     std::to_string(group) + ", \"stage3_param_persistence_threshold\": 0}}",
                 1 << 16);
        job.on_each([&](unsigned rank) {
            meet();
            uint64_t before = carried();
            all.trainers[rank]->fetch_all(all.engines[rank].get());
            all.trainers[rank]->fetch_all(all.engines[rank].get(), true);
            fetched[group - 1] = carried() - before;
            meet();
            before = carried();
            meet(); /* no rank sends before all have read their counters */
            EXPECT_ZOFF_OK(zoff_params_push(all.engines[rank].get()));
            meet(); /* other ranks may not have received all */
            pushed[group - 1] = carried() - before;
        });
    }

    printf("over the cable, both ways: %llu bytes for fetches from all ranks, %llu within the host; %llu for new weights\n",
           (unsigned long long)fetched[0], (unsigned long long)fetched[1], (unsigned long long)pushed[1]);
    // Each host has half of the weights and needs the other half, each of its two ranks by itself: 4 MiB, of which the last
    // may still be on their way for another rank.
    EXPECT_LE(uint64_t{3} * COUNT, fetched[0]) << "without groups the same fetches cross the cable";
    EXPECT_GE(1000u, fetched[1]) << "only kernels may look for each other";
    // With groups each half crosses the cable once. TCP, MPI and the headers of operations add less than a twentieth.
    EXPECT_LE(uint64_t{2} * COUNT, pushed[1]);
    EXPECT_GE(uint64_t{2} * COUNT * 21 / 20 + 20000, pushed[1]);
}

// Four micro-batches on four hosts of four ranks: with exact sums over two levels a step carries less than a third of the
// bytes. Both take turns, because the machine is shared.
TEST(RanksHosts, LevelsCarryLess)
{
    if (!getenv("ZOFF_TEST_CABLE") || !rank_job::is_possible(16))
        GTEST_SKIP() << "two_hosts.py runs this";
    enum { COUNT = 1 << 20, STEPS = 2, TURNS = 2 };
    uint64_t bytes[2] = {0, 0};
    std::vector<double> seconds[2];
    for (unsigned turn = 0; turn < 2 * TURNS; turn++) {
        rank_job job(16);
        rank_trainers all(job, 7, [](trainer &t) { t.add(COUNT / 4, 4, ZOFF_BF16, ZOFF_BF16); });
        all.seal(std::string("{\"gradient_accumulation_steps\": 4, \"zero_optimization\": {\"stage\": 2}, \"zoff\": ") +
                     (turn % 2 ? "{\"reduce_scatter\": \"exact\", \"node_ranks\": 4}}"
                               : "{\"reduce_scatter\": \"ordered\", \"node_ranks\": 1}}"),
                 0);
        job.on_each([&](unsigned rank) {
            all.trainers[rank]->backward_all(1.0f);
            for (unsigned step = 0; step < STEPS; step++) {
                meet();
                const uint64_t before = carried();
                const auto from = std::chrono::steady_clock::now();
                for (unsigned batch = 0; batch < 4; batch++)
                    EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, nullptr));
                MPI_Barrier(MPI_COMM_WORLD);
                const std::chrono::duration<double> took = std::chrono::steady_clock::now() - from;
                meet(); // the bytes of all have left
                bytes[turn % 2] += carried() - before;
                if (step)
                    seconds[turn % 2].push_back(took.count());
            }
        });
    }
    for (auto &all : seconds)
        std::sort(all.begin(), all.end());
    const double share = (double)bytes[1] / (double)bytes[0];
    printf("over two levels: %.3f of the bytes, and %.3f of the time of flat exchanges\n", share,
           seconds[1][seconds[1].size() / 2] / seconds[0][seconds[0].size() / 2]);
    EXPECT_GE(0.30, share);
}
