/* SPDX-License-Identifier: Apache-2.0 */
// openmp_test.cc: the program's OpenMP threads become the team if exactly that many of them spin; otherwise they are left
// alone. Each case is a process of its own, so that all its threads are known.
#include "in_process.h"
#include "tally.h"
#include "zoff_test.h"

#include <omp.h>
#include <pthread.h>

#include <thread>

extern "C" {
#include "openmp.h"
#include "workers.h"
}

namespace
{
// The threads of a region of the program, in the order of their numbers.
struct region {
    explicit region(int threads) : tids(static_cast<size_t>(threads))
    {
#pragma omp parallel num_threads(threads)
        tids[static_cast<size_t>(omp_get_thread_num())] = static_cast<pid_t>(syscall(SYS_gettid));
    }
    std::vector<pid_t> tids;
};

// Whether the pool is awake, or asleep, within many attempts: at the first ones threads may still be starting.
bool comes_to_be(unsigned threads, bool awake)
{
    for (int i = 0; i < 2000; i++) {
        if (zoff_base_openmp_awake(threads) == awake)
            return true;
        usleep(5000);
    }
    return false;
}

// A thread that spins under this name as long as it lives.
class busy_thread
{
  public:
    explicit busy_thread(const char *name)
        : thread([this, name] {
              pthread_setname_np(pthread_self(), name);
              named = true;
              while (!stops)
                  ;
          })
    {
        while (!named)
            usleep(100);
    }
    ~busy_thread()
    {
        stops = true;
        thread.join();
    }

  private:
    std::atomic<bool> named{false}, stops{false};
    std::thread thread;
};

bool tells()
{
    return getenv("ZOFF_TEST_TELL") != nullptr;
}
} // namespace

// libgomp's threads spin for long only if each has a CPU: so pools have 2.
TEST(openmp, a_pool_that_spins_is_a_team_of_its_size)
{
    if (omp_get_num_procs() < 2)
        GTEST_SKIP() << "one CPU: no pool spins";
    if (!tells()) {
        EXPECT_EQ("both run on the region's threads\n", in_process("OMP_WAIT_POLICY=active"));
        return;
    }
    const region of_program(2);
    ASSERT_TRUE(comes_to_be(2, true));
    for (unsigned other : {0u, 1u, 3u, 256u, 257u, 5000u})
        EXPECT_FALSE(zoff_base_openmp_awake(other)) << other;
    for (int round = 0; round < 100; round++) {
        tally t;
        zoff_base_openmp_run(2, tally::count, &t);
        t.expect_each_once();
        ASSERT_EQ(of_program.tids[0], t.tids[0]) << "thread 0 is the caller's own";
        ASSERT_EQ(std::set<pid_t>(of_program.tids.begin(), of_program.tids.end()), t.all_tids());
        ASSERT_TRUE(zoff_base_openmp_awake(2));
    }
    if (!HasFailure())
        printf("tell both run on the region's threads\n");
}

TEST(openmp, a_pool_that_sleeps_is_none)
{
    if (!tells()) {
        EXPECT_EQ("it sleeps\n", in_process("OMP_WAIT_POLICY=passive"));
        return;
    }
    const region of_program(2);
    ASSERT_TRUE(comes_to_be(2, false));
    if (!HasFailure())
        printf("tell it sleeps\n");
}

TEST(openmp, a_pool_is_its_threads_own)
{
    if (omp_get_num_procs() < 2)
        GTEST_SKIP() << "one CPU: no pool spins";
    if (!tells()) {
        EXPECT_EQ("not another's\n", in_process("OMP_WAIT_POLICY=active"));
        return;
    }
    const region of_program(2);
    ASSERT_TRUE(comes_to_be(2, true));
    std::thread([] { EXPECT_FALSE(zoff_base_openmp_awake(2)) << "it spins for another caller"; }).join();
    if (!HasFailure())
        printf("tell not another's\n");
}

TEST(openmp, a_pool_that_has_ended_is_none)
{
    if (omp_get_num_procs() < 2)
        GTEST_SKIP() << "one CPU: no pool spins";
    if (!tells()) {
        EXPECT_EQ("noticed\n", in_process("OMP_WAIT_POLICY=active"));
        return;
    }
    const region of_program(2);
    ASSERT_TRUE(comes_to_be(2, true));
    const auto is_there = [&] { return syscall(SYS_tgkill, getpid(), of_program.tids[1], 0) == 0; };
    omp_pause_resource_all(omp_pause_hard);
    for (int i = 0; i < 200 && is_there(); i++)
        usleep(5000);
    usleep(5000); // after that, a caller that knows the pool checks again
    EXPECT_TRUE(is_there() || !zoff_base_openmp_awake(2)) << "the runtime has ended its threads";
    const region anew(2);
    ASSERT_TRUE(comes_to_be(2, true));
    tally t;
    zoff_base_openmp_run(2, tally::count, &t);
    EXPECT_EQ(std::set<pid_t>(anew.tids.begin(), anew.tids.end()), t.all_tids()) << "the pool that is there now";
    if (!HasFailure())
        printf("tell noticed\n");
}

TEST(openmp, a_busy_thread_of_the_program_is_not_its_pool)
{
    if (!tells()) {
        EXPECT_EQ("not the pool\n", in_process("OMP_WAIT_POLICY=passive"));
        return;
    }
    const busy_thread stranger("stranger");
    EXPECT_FALSE(zoff_base_openmp_awake(2)) << "it runs, but no region can use it";
    if (!HasFailure())
        printf("tell not the pool\n");
}

// Checking a pool that may exist starts one. Workers that spin must not cause that.
TEST(openmp, workers_of_our_own_are_not_taken_for_a_pool)
{
    if (!tells()) {
        EXPECT_EQ("no region\n", in_process("OMP_WAIT_POLICY=passive"));
        return;
    }
    const busy_thread ours(ZOFF_TEAM_NAME);
    const size_t before = threads_of_this_process();
    for (int i = 0; i < 50; i++) {
        EXPECT_FALSE(zoff_base_openmp_awake(2));
        usleep(2000);
    }
    EXPECT_TRUE(threads_come_down_to(before)) << "a pool was started";
    if (!HasFailure())
        printf("tell no region\n");
}

TEST(openmp, a_program_without_regions_has_no_pool)
{
    if (!tells()) {
        EXPECT_EQ("none\n", in_process("OMP_WAIT_POLICY=active"));
        return;
    }
    const size_t before = threads_of_this_process();
    for (unsigned threads : {1u, 2u, 3u, 8u})
        EXPECT_FALSE(zoff_base_openmp_awake(threads)) << threads;
    EXPECT_TRUE(threads_come_down_to(before)) << "none is started by asking";
    if (!HasFailure())
        printf("tell none\n");
}
