/* SPDX-License-Identifier: Apache-2.0 */
// team_test.cc: how many threads a team has, that each runs once, where they are, and their floating-point settings.
#include "fake_root.h"
#include "float_control.h"
#include "in_process.h"
#include "tally.h"

#include <float.h>
#include <omp.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

extern "C" {
#include "budget.h"
#include "cpu.h"
#include "team.h"
#include "workers.h"
}

namespace
{
unsigned cpus_in_mask()
{
    cpu_set_t mask;
    return sched_getaffinity(0, sizeof mask, &mask) ? 1 : static_cast<unsigned>(CPU_COUNT(&mask));
}
} // namespace

TEST(team, a_wanted_number_is_taken)
{
    EXPECT_EQ(1u, zoff_base_team_threads(1));
    EXPECT_EQ(7u, zoff_base_team_threads(7));
}

TEST(team, the_policy_stays_inside_mask_and_quota)
{
    const unsigned threads = zoff_base_team_threads(0), quota = zoff_base_budget_cpus("");
    EXPECT_GE(threads, 1u);
    EXPECT_LE(threads, cpus_in_mask());
    if (quota) {
        EXPECT_LE(threads, quota);
    }
}

TEST(team, a_mask_of_one_cpu_makes_a_team_of_one)
{
    // Use a new thread, because the mask belongs to a thread.
    unsigned threads = 0;
    std::thread([&] {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
        if (sched_setaffinity(0, sizeof one, &one) == 0)
            threads = zoff_base_team_threads(0);
    }).join();
    EXPECT_EQ(1u, threads);
}

TEST(team, a_number_of_threads_set_by_the_program_is_a_limit)
{
    const int before = omp_get_max_threads();
    const unsigned policy = zoff_base_team_threads(0);
    const char *why = "";
    omp_set_num_threads(static_cast<int>(policy) + 5);
    EXPECT_EQ(policy, zoff_base_team_threads(0)) << "no more than there are cores";
    omp_set_num_threads(1);
    EXPECT_EQ(1u, zoff_base_team_count(0, &why));
    if (policy > 1) {
        EXPECT_STREQ("omp_set_num_threads()", why);
    }
    EXPECT_EQ(3u, zoff_base_team_count(3, &why)) << "who asks zoff for threads gets them";
    EXPECT_STREQ("as it was asked for", why);
    omp_set_num_threads(before);
}

TEST(team, each_thread_runs_once)
{
    for (unsigned threads : {0u, 1u, 2u, 3u, 8u}) {
        tally t;
        zoff_base_team_run(threads, tally::count, &t);
        EXPECT_EQ(threads ? threads : 1, t.threads);
        t.expect_each_once();
    }
}

TEST(team, a_watch_hears_of_each_share_of_the_runs_that_it_wants)
{
    static std::atomic<unsigned> shares, threads_heard;
    static std::atomic<bool> wants;
    static const zoff_team_watch watch = {[](const char **out_work) -> const void * {
                                              *out_work = "some work";
                                              return wants ? &shares : nullptr;
                                          },
                                          [](const void *who, const char *work, unsigned thread, double from) {
                                              EXPECT_EQ(&shares, who);
                                              EXPECT_STREQ("some work", work);
                                              EXPECT_LT(0, from);
                                              shares++;
                                              threads_heard |= 1u << thread;
                                          }};
    zoff_base_team_watch(&watch);
    for (const bool wanted : {false, true}) {
        wants = wanted;
        tally t;
        zoff_base_team_run(3, tally::count, &t);
        EXPECT_EQ(wanted ? 3u : 0u, shares);
    }
    EXPECT_EQ(7u, threads_heard);
    tally t;
    zoff_base_team_run(1, tally::count, &t);
    EXPECT_EQ(3u, shares) << "a run of one thread is all its caller's";
    zoff_base_team_watch(nullptr);
}

TEST(team, thread_0_is_the_callers_own)
{
    struct {
        std::thread::id caller = std::this_thread::get_id();
        std::atomic<bool> same{false};
    } seen;
    zoff_base_team_run(
        4,
        [](void *ctx, unsigned thread, unsigned) {
            auto s = static_cast<decltype(seen) *>(ctx);
            if (thread == 0)
                s->same = std::this_thread::get_id() == s->caller;
        },
        &seen);
    EXPECT_TRUE(seen.same);
}

TEST(team, is_one_thread_inside_a_callers_parallel_region)
{
    tally teams[2];
    int regions = 0;
#pragma omp parallel num_threads(2)
    {
#pragma omp single
        regions = omp_get_num_threads();
        zoff_base_team_run(4, tally::count, &teams[omp_get_thread_num()]);
    }
    ASSERT_EQ(2, regions);
    for (const auto &t : teams) {
        EXPECT_EQ(1u, t.threads) << "the other cores are busy with the region";
        t.expect_each_once();
    }
}

// Sizes in any order: a thread that a run does not need sleeps through it, and misses no later run.
TEST(team, sizes_may_change_from_run_to_run)
{
    unsigned random = 1;
    for (int i = 0; i < 3000; i++) {
        random = random * 1103515245 + 12345;
        const unsigned threads = 1 + (random >> 16) % (i % 100 ? 6 : 40);
        tally t;
        zoff_base_team_hold(i % 7 == 0);
        zoff_base_team_run(threads, tally::count, &t);
        ASSERT_EQ(threads, t.threads) << "run " << i;
        t.expect_each_once();
    }
    zoff_base_team_hold(false);
}

TEST(team, wakes_are_counted)
{
    const uint64_t before = zoff_base_workers_wakes();
    tally t;
    zoff_base_team_run(1, tally::count, &t);
    EXPECT_EQ(before, zoff_base_workers_wakes());
#pragma omp parallel num_threads(2)
    zoff_base_team_run(1, tally::count, &t);
    EXPECT_EQ(before, zoff_base_workers_wakes());
}

TEST(team, ends_with_the_thread_that_had_it)
{
    const size_t before = threads_of_this_process();
    std::thread([] {
        tally t;
        EXPECT_ZOFF_OK(zoff_base_team_start(8));
        zoff_base_team_run(8, tally::count, &t);
        EXPECT_EQ(8u, t.threads);
    }).join();
    EXPECT_TRUE(threads_come_down_to(before));
}

TEST(team, teams_of_several_threads_do_not_meet)
{
    tally teams[3];
    std::vector<std::thread> callers;
    for (auto &t : teams)
        callers.emplace_back([&t] { zoff_base_team_run(2, tally::count, &t); });
    for (auto &caller : callers)
        caller.join();
    for (auto &t : teams) {
        EXPECT_EQ(2u, t.threads);
        t.expect_each_once();
    }
}

TEST(team, a_child_of_fork_works_alone)
{
    tally before, after;
    zoff_base_team_run(3, tally::count, &before); // now the runtime has threads, which the child will not have
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        alarm(20); // end the child if it waits for ever
        tally t;
        zoff_base_team_run(3, tally::count, &t);
        _exit(t.threads == 1 && t.visits[0] == 1 ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(child, waitpid(child, &status, 0));
    EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
    EXPECT_EQ(0, WEXITSTATUS(status));
    zoff_base_team_run(3, tally::count, &after);
    EXPECT_EQ(3u, after.threads) << "the parent has its team still";
}

#if defined(__x86_64__)
TEST(team, each_thread_computes_with_subnormals_and_gets_its_mode_back)
{
    const unsigned mine = get_control();
    for (unsigned threads : {1u, 4u}) {
        std::atomic<int> right{0};
        set_control(FLUSH_TO_ZERO_AND_ROUND_UP);
        zoff_base_team_run(
            threads,
            [](void *ctx, unsigned, unsigned) {
                if (halved(FLT_MIN) == FLT_MIN / 2)
                    (*static_cast<std::atomic<int> *>(ctx))++;
            },
            &right);
        const unsigned after = get_control();
        set_control(mine);
        EXPECT_EQ(static_cast<int>(threads), right);
        EXPECT_EQ(FLUSH_TO_ZERO_AND_ROUND_UP, after & FLOAT_MODES);
    }
}
#endif

namespace
{
// The team by policy: the counted size, and the threads that ran.
std::string team_in_words()
{
    tally t;
    const unsigned threads = zoff_base_team_threads(0);
    zoff_base_team_run(threads, tally::count, &t);
    return std::to_string(threads) + " threads, " + std::to_string(t.threads) + " ran\n";
}
} // namespace

TEST(team, variables_of_openmp_do_not_change_it)
{
    if (getenv("ZOFF_TEST_TELL")) {
        printf("tell %s", team_in_words().c_str());
        return;
    }
    const std::string want = team_in_words();
    for (const char *environment : {"OMP_NUM_THREADS=700", "OMP_PROC_BIND=true", "OMP_PROC_BIND=close OMP_PLACES=cores",
                                    "OMP_WAIT_POLICY=active", "OMP_MAX_ACTIVE_LEVELS=4"})
        EXPECT_EQ(want, in_process(environment)) << environment;
}

TEST(team, omp_num_threads_is_honoured_unless_torchrun_has_set_it)
{
    if (getenv("ZOFF_TEST_TELL")) {
        const char *why = "";
        const unsigned threads = zoff_base_team_count(0, &why);
        printf("tell %u (%s)\n", threads, why);
        return;
    }
    if (zoff_base_team_threads(0) < 2)
        GTEST_SKIP() << "one CPU: there is nothing to limit";
    EXPECT_EQ("1 (OMP_NUM_THREADS)\n", in_process("OMP_NUM_THREADS=1"));
    EXPECT_EQ("1 (OMP_NUM_THREADS)\n", in_process("OMP_NUM_THREADS=1,4 LOCAL_WORLD_SIZE=1 LOCAL_RANK=0"));
    const std::string alone = in_process("LOCAL_WORLD_SIZE=2 LOCAL_RANK=0");
    EXPECT_EQ(alone, in_process("LOCAL_WORLD_SIZE=2 LOCAL_RANK=0 OMP_NUM_THREADS=1"));
}

TEST(team, is_the_share_of_a_rank)
{
    if (getenv("ZOFF_TEST_TELL")) {
        printf("tell %u\n", zoff_base_team_threads(0));
        return;
    }
    EXPECT_EQ("1\n", in_process("LOCAL_WORLD_SIZE=4096 LOCAL_RANK=17"));
    EXPECT_EQ(std::to_string(zoff_base_team_threads(0)) + "\n", in_process("LOCAL_WORLD_SIZE=1 LOCAL_RANK=0"));
}

namespace
{
// A machine on which the first of our CPUs is one node and the others are another, and which thread was where.
class seats : public ::testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_TRUE(zoff_base_topology_affinity(&mine));
        cpus = zoff_test::members(mine);
        if (cpus.size() < 2)
            GTEST_SKIP() << "one CPU: there is no other place to be";
        std::string others;
        for (size_t i = 1; i < cpus.size(); i++)
            others += (i > 1 ? "," : "") + std::to_string(cpus[i]);
        root.nodes({std::to_string(cpus[0]), others});
        const zoff_env_ranks alone = {1, 0, nullptr};
        zoff_base_policy_make(root.path(), &mine, &alone, -1, &policy);
        ASSERT_TRUE(policy.places);
    }
    // The mask of each thread, and the CPU on which it runs.
    struct look {
        std::vector<unsigned> masks[8];
        int cpu[8];
        static void take(void *ctx, unsigned thread, unsigned)
        {
            auto self = static_cast<look *>(ctx);
            zoff_cpus mask = {};
            zoff_base_topology_affinity(&mask);
            self->masks[thread] = zoff_test::members(mask);
            self->cpu[thread] = sched_getcpu();
        }
    };
    zoff_test::fake_root root;
    zoff_cpus mine;
    std::vector<unsigned> cpus;
    zoff_policy policy;
};
} // namespace

TEST_F(seats, are_taken_in_a_region_and_left_after_it)
{
    const std::vector<unsigned> others(cpus.begin() + 1, cpus.end());
    look after;
    for (int round = 0; round < 20; round++) {
        look inside;
        zoff_base_team_run_seated(&policy, 2, look::take, &inside);
        EXPECT_EQ(std::vector<unsigned>{cpus[0]}, inside.masks[0]);
        EXPECT_EQ(static_cast<int>(cpus[0]), inside.cpu[0]) << "not asked to be there, but there";
        EXPECT_EQ(others, inside.masks[1]);
    }
    zoff_base_team_run_seated(nullptr, 2, look::take, &after);
    EXPECT_EQ(cpus, after.masks[0]);
    std::vector<unsigned> without_owner = cpus;
    without_owner.erase(std::find(without_owner.begin(), without_owner.end(), (unsigned)after.cpu[0]));
    EXPECT_TRUE(after.masks[1] == cpus || after.masks[1] == without_owner);
}

TEST_F(seats, preferred_node_comes_first)
{
    const zoff_env_ranks alone = {1, 0, nullptr};
    zoff_base_policy_make(root.path(), &mine, &alone, 1, &policy);
    look inside;
    zoff_base_team_run_seated(&policy, static_cast<unsigned>(cpus.size() < 8 ? cpus.size() : 8), look::take, &inside);
    EXPECT_EQ(std::vector<unsigned>(cpus.begin() + 1, cpus.end()), inside.masks[0]);
    if (cpus.size() <= 8) {
        EXPECT_EQ(std::vector<unsigned>{cpus[0]}, inside.masks[cpus.size() - 1]);
    }
}

TEST_F(seats, are_not_taken_by_a_thread_that_somebody_has_put_elsewhere)
{
    // Use a new thread, which has its own mask and pool.
    std::thread([&] {
        const zoff_cpus last = zoff_test::cpu_set({cpus.back()});
        ASSERT_TRUE(zoff_base_topology_bind(&last));
        look inside;
        zoff_base_team_run_seated(&policy, 2, look::take, &inside);
        EXPECT_EQ(std::vector<unsigned>{cpus.back()}, inside.masks[0]) << "its seat is on the other node";
        EXPECT_EQ(std::vector<unsigned>{cpus.back()}, inside.masks[1]);
    }).join();
}

// LLVM's runtime gives all threads the mask of the thread that starts it. While the first thread runs, another thread's team
// looked as if it had an OpenMP pool that was awake, and started the runtime.
TEST_F(seats, are_of_a_bound_thread_which_does_not_start_openmp)
{
    std::atomic<bool> done{false};
    std::thread bound([&] {
        const zoff_cpus last = zoff_test::cpu_set({cpus.back()});
        ASSERT_TRUE(zoff_base_topology_bind(&last));
        look inside;
        zoff_base_team_run_seated(nullptr, 2, look::take, &inside);
        done = true;
    });
    while (!done)
        zoff_base_cpu_pause();
    bound.join();
    look inside[2];
#pragma omp parallel num_threads(2)
    look::take(&inside[omp_get_thread_num()], 0, 1);
    for (const auto &l : inside)
        EXPECT_EQ(cpus, l.masks[0]);
}

TEST_F(seats, are_not_taken_in_a_parallel_region_of_the_caller)
{
    look inside[2];
#pragma omp parallel num_threads(2)
    zoff_base_team_run_seated(&policy, 2, look::take, &inside[omp_get_thread_num()]);
    for (const auto &l : inside)
        EXPECT_EQ(cpus, l.masks[0]) << "both teams would sit on one CPU";
}

TEST_F(seats, this_machine_has_whole_nodes)
{
    // A machine of one node moves no thread.
    look inside;
    zoff_base_team_prefer(0);
    zoff_base_team_run(2, look::take, &inside);
    zoff_topology here;
    zoff_base_topology_read_under("", &mine, &here);
    for (unsigned thread = 0; thread < 2; thread++) {
        const unsigned node = here.node[inside.masks[thread].at(0)];
        size_t of_node = 0;
        for (unsigned cpu : cpus)
            of_node += here.node[cpu] == node;
        const auto &mask = inside.masks[thread];
        const bool keeps_off = thread && std::count(mask.begin(), mask.end(), (unsigned)inside.cpu[0]) == 0;
        EXPECT_EQ(of_node - keeps_off, mask.size()) << "all CPUs of one node, but for a worker that of its caller";
    }
}
