/* SPDX-License-Identifier: Apache-2.0 */
// hosts_test.cc: hosts with less memory than the plans of all their ranks need. The hosts are simulated: --wrap replaces the
// function that asks the system. No test allocates that much memory.
#include "rank_job.h"

extern "C" {
#include "budget.h"

size_t __wrap_zoff_base_budget_levels(const char *, zoff_budget_level out[ZOFF_BUDGET_LEVELS]);
}

using namespace zoff_test;

namespace
{
const uint64_t UNIT = 1u << 17; // bytes

// The memory limits that this thread's rank sees.
thread_local std::vector<zoff_budget_level> levels;

struct answer {
    zoff_status status = ZOFF_OK;
    std::string words;
};

// Each rank trains 128 Ki elements. Two fp32 moments and the fp32 sum of gradients need 12 units, and the wire needs some more.
std::vector<answer> seal(const std::vector<std::vector<zoff_budget_level>> &hosts, bool *out_sealed_again = nullptr)
{
    rank_job job((unsigned)hosts.size(), 20);
    std::vector<answer> answers(hosts.size());
    job.on_each([&](unsigned rank) {
        trainer t(1);
        t.add(1u << 17, hosts.size(), ZOFF_F32, ZOFF_F32);
        levels = hosts[rank];
        engine e = make_engine(t, "{\"zero_optimization\": {\"stage\": 1}}", 0, 0, job.comm_of(rank));
        answers[rank].status = zoff_engine_seal(e.get());
        answers[rank].words = answers[rank].status < 0 ? zoff_last_error() : "";
        if (out_sealed_again) {
            levels = {{rank, 1000 * UNIT}};
            EXPECT_ZOFF_OK(zoff_engine_seal(e.get())); // seal as if the ranks were on other hosts
            if (rank == 0)
                *out_sealed_again = true;
        }
    });
    return answers;
}

TEST(Hosts, RanksOfOneHostAreAddedUp)
{
    // Each rank alone would fit, but not both.
    bool again = false;
    for (const answer &a : seal({{{7, 20 * UNIT}}, {{7, 20 * UNIT}}}, &again)) {
        EXPECT_EQ(ZOFF_ERR_NO_MEMORY, a.status);
        for (const char *part : {"the 2 ranks that share this host: together they need ", "rank 0 ", ", rank 1 ",
                                 "have 2.5 MiB (MemAvailable); start fewer ranks there, set offload_optimizer.device"})
            EXPECT_NE(std::string::npos, a.words.find(part)) << part << " is not in: " << a.words;
    }
    EXPECT_TRUE(again);
}

TEST(Hosts, RanksOfTwoHostsAreNotAddedUp)
{
    for (const answer &a : seal({{{7, 20 * UNIT}}, {{8, 20 * UNIT}}}))
        EXPECT_EQ(ZOFF_OK, a.status) << a.words;
}

TEST(Hosts, RanksBelowOneCgroupAreAddedUp)
{
    const auto answers =
        seal({{{7, 900 * UNIT}, {1, 25 * UNIT}}, {{7, 900 * UNIT}, {1, 25 * UNIT}}, {{7, 900 * UNIT}, {2, 25 * UNIT}}});
    for (unsigned rank : {0u, 1u}) {
        EXPECT_EQ(ZOFF_ERR_NO_MEMORY, answers[rank].status);
        EXPECT_NE(std::string::npos, answers[rank].words.find("the 2 ranks that share this cgroup")) << answers[rank].words;
        EXPECT_EQ(std::string::npos, answers[rank].words.find("rank 2")) << answers[rank].words;
    }
    EXPECT_EQ(ZOFF_ERR_COMM, answers[2].status) << "this rank has enough memory, but hears that others have not";
    EXPECT_NE(std::string::npos, answers[2].words.find("rank 0 has failed")) << answers[2].words;
}

TEST(Hosts, TheSmallestReportOfAHostCounts)
{
    for (const answer &a : seal({{{7, 900 * UNIT}}, {{7, 20 * UNIT}}}))
        EXPECT_EQ(ZOFF_ERR_NO_MEMORY, a.status);
}
} // namespace

size_t __wrap_zoff_base_budget_levels(const char *, zoff_budget_level out[ZOFF_BUDGET_LEVELS])
{
    std::copy(levels.begin(), levels.end(), out);
    return levels.size();
}
