/* SPDX-License-Identifier: Apache-2.0 */
// workers_test.cc: threads of our own: their number, owner and name, a run for which the system refuses threads, and polling.
// Each case starts on a thread without workers.
#include "memory_fault.h"
#include "tally.h"
#include "zoff_test.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <fstream>
#include <functional>
#include <thread>

extern "C" {
#include "topology.h"
#include "try.h"
#include "workers.h"
}

using zoff_test::log_catcher;
using zoff_test::memory_fault;

namespace
{
// A caller without a team yet; its workers end with it.
void new_caller(const std::function<void()> &work)
{
    const size_t before = threads_of_this_process();
    std::thread(work).join();
    EXPECT_TRUE(threads_come_down_to(before)) << "workers have outlived the thread that owned them";
}

// Threads with the workers' name.
size_t workers_of_this_process()
{
    size_t count = 0;
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::string name;
        std::ifstream(task.path() / "comm") >> name;
        count += name == ZOFF_TEAM_NAME;
    }
    return count;
}

// Run with this many threads; returns how many took part.
unsigned run(unsigned threads)
{
    tally t;
    zoff_base_workers_run(threads, false, tally::count, &t);
    t.expect_each_once();
    EXPECT_EQ(t.threads, t.all_tids().size()) << "two threads of a team are one";
    EXPECT_EQ(static_cast<pid_t>(syscall(SYS_gettid)), t.tids[0]) << "thread 0 is the caller's own";
    return t.threads;
}
} // namespace

TEST(workers, start_adds_what_a_team_lacks)
{
    new_caller([] {
        const size_t before = workers_of_this_process();
        for (unsigned threads : {0u, 1u}) {
            EXPECT_ZOFF_OK(zoff_base_workers_start(threads));
            EXPECT_EQ(before, workers_of_this_process());
        }
        for (unsigned threads : {2u, 5u, 5u, 3u, 0u}) {
            EXPECT_ZOFF_OK(zoff_base_workers_start(threads));
            EXPECT_EQ(before + (threads == 2 ? 1 : 4), workers_of_this_process()) << "the caller is one of them";
        }
    });
}

TEST(workers, run_starts_what_was_not_started)
{
    new_caller([] {
        const size_t before = workers_of_this_process();
        for (unsigned threads : {1u, 0u, 3u, 2u, 6u, 1u})
            EXPECT_EQ(threads ? threads : 1, run(threads));
        EXPECT_EQ(before + 5, workers_of_this_process());
    });
}

TEST(workers, take_no_signals)
{
    new_caller([] {
        sigset_t mask;
        ASSERT_ZOFF_OK(zoff_base_workers_start(3));
        ASSERT_EQ(0, pthread_sigmask(SIG_SETMASK, nullptr, &mask));
        EXPECT_EQ(0, sigismember(&mask, SIGUSR1)) << "the caller's own mask was changed";
        std::atomic<int> blocked{0};
        zoff_base_workers_run(
            3, false,
            [](void *ctx, unsigned thread, unsigned) {
                sigset_t own;
                pthread_sigmask(SIG_SETMASK, nullptr, &own);
                if (thread && sigismember(&own, SIGUSR1) == 1 && sigismember(&own, SIGINT) == 1)
                    ++*static_cast<std::atomic<int> *>(ctx);
            },
            &blocked);
        EXPECT_EQ(2, blocked);
    });
}

TEST(workers, start_adds_none_where_one_is_refused)
{
    new_caller([] {
        ASSERT_ZOFF_OK(zoff_base_workers_start(2));
        const size_t before = threads_of_this_process();
        for (int nth = 1; nth <= 3; nth++) {
            memory_fault fault;
            fault.fail_thread = nth;
            EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY,
                              "thread " + std::to_string(nth + 2) +
                                  " of a team of 5 could not be started: Resource temporarily unavailable; set zoff.threads to "
                                  "at most " +
                                  std::to_string(nth + 1) + ", or raise the limit of threads",
                              zoff_base_workers_start(5));
            EXPECT_TRUE(threads_come_down_to(before));
        }
        EXPECT_EQ(2u, run(2)) << "those that were there work";
        EXPECT_ZOFF_OK(zoff_base_workers_start(5)) << "asked again, the system gives them";
        EXPECT_EQ(5u, run(5));
    });
}

TEST(workers, memory_that_is_not_there_is_an_error_and_leaves_nothing)
{
    int faults = 0;
    for (bool failed = true; failed; faults += failed) {
        new_caller([&] {
            memory_fault fault;
            const size_t before = threads_of_this_process();
            fault.fail_allocation = faults + 1;
            const zoff_status status = zoff_base_workers_start(4);
            failed = fault.allocations >= fault.fail_allocation;
            EXPECT_EQ(failed ? ZOFF_ERR_NO_MEMORY : ZOFF_OK, status) << "allocation " << faults + 1;
            EXPECT_TRUE(status == ZOFF_OK || threads_come_down_to(before));
        });
    }
    EXPECT_EQ(4, faults) << "the team, and its three workers";
}

TEST(workers, a_run_makes_do_with_fewer_and_says_so_once)
{
    new_caller([] {
        log_catcher log;
        log.expect("thread 2 of a team of 4 could not be started");
        log.expect("; 1 work instead");
        zoff_base_status_fail(ZOFF_ERR_IO, "what the caller has yet to ask for");
        {
            memory_fault fault;
            fault.fail_thread = 1;
            for (int round = 0; round < 3; round++)
                EXPECT_EQ(1u, run(4));
            EXPECT_EQ(1, fault.threads) << "the system is asked once";
        }
        EXPECT_STREQ("what the caller has yet to ask for", zoff_last_error());
        EXPECT_EQ(1u, run(4)) << "runs do not ask again";
        EXPECT_ZOFF_OK(zoff_base_workers_start(4));
        EXPECT_EQ(4u, run(4)) << "who asks gets them";
        EXPECT_EQ(1u, log.warnings.size());
    });
}

TEST(workers, are_held_for_teams_up_to_their_number)
{
    new_caller([] {
        zoff_base_workers_hold(true);
        EXPECT_FALSE(zoff_base_workers_held(1)) << "there are none yet";
        ASSERT_ZOFF_OK(zoff_base_workers_start(4));
        EXPECT_FALSE(zoff_base_workers_held(4));
        zoff_base_workers_hold(true);
        EXPECT_TRUE(zoff_base_workers_held(2));
        EXPECT_TRUE(zoff_base_workers_held(4));
        EXPECT_FALSE(zoff_base_workers_held(5));
        for (int round = 0; round < 1000; round++)
            ASSERT_EQ(4u, run(4));
        std::thread([] { EXPECT_FALSE(zoff_base_workers_held(2)) << "they are another caller's"; }).join();
        zoff_base_workers_hold(false);
        EXPECT_FALSE(zoff_base_workers_held(2));
    });
}

// Linux may wake a worker there, also where another CPU is free.
TEST(workers, do_not_stay_on_the_cpu_of_their_owner)
{
    struct places {
        zoff_cpus mask;   // mask of the worker, from its next run on
        unsigned of_work; // CPU of the work
    };
    new_caller([] {
        zoff_cpus all, first = {}, two = {};
        ASSERT_TRUE(zoff_base_topology_affinity(&all));
        for (unsigned cpu = 0, found = 0; cpu < ZOFF_CPUS_MAX && found < 2; cpu++) {
            if (!zoff_base_topology_has(&all, cpu))
                continue;
            zoff_base_topology_add(&two, cpu);
            if (!found++)
                zoff_base_topology_add(&first, cpu);
        }
        if (memcmp(&first, &two, sizeof two) == 0)
            GTEST_SKIP() << "there is one CPU";
        ASSERT_ZOFF_OK(zoff_base_workers_start(2));
        ASSERT_TRUE(zoff_base_topology_bind(&first)) << "the owner";
        const auto note = [](void *ctx, unsigned thread, unsigned) {
            auto *p = static_cast<places *>(ctx);
            if (thread) {
                p->of_work = (unsigned)sched_getcpu();
                zoff_base_topology_bind(&p->mask);
            }
        };
        places p = {first, 0};
        zoff_base_workers_run(2, false, note, &p);
        p.mask = two;
        zoff_base_workers_run(2, false, note, &p);
        EXPECT_TRUE(zoff_base_topology_has(&first, p.of_work)) << "it may run nowhere else";
        p.mask = first;
        zoff_base_workers_run(2, true, note, &p);
        p.mask = two;
        zoff_base_workers_run(2, true, note, &p);
        EXPECT_TRUE(zoff_base_topology_has(&first, p.of_work)) << "it is placed by its work";
        for (int round = 0; round < 100; round++) {
            zoff_base_workers_run(2, false, note, &p);
            EXPECT_FALSE(zoff_base_topology_has(&first, p.of_work));
        }
    });
}

TEST(workers, wakes_are_the_callers_runs_on_workers)
{
    new_caller([] {
        EXPECT_EQ(0u, zoff_base_workers_wakes());
        run(1);
        EXPECT_EQ(0u, zoff_base_workers_wakes());
        ASSERT_ZOFF_OK(zoff_base_workers_start(3));
        EXPECT_EQ(0u, zoff_base_workers_wakes()) << "a start is no run";
        run(2);
        run(3);
        run(1);
        EXPECT_EQ(2u, zoff_base_workers_wakes());
        std::thread([] { EXPECT_EQ(0u, zoff_base_workers_wakes()); }).join();
    });
}

TEST(workers, callers_do_not_wait_for_one_another)
{
    // The first caller's run lasts until the second one's is over.
    std::atomic<bool> begun{false}, over{false};
    struct both {
        std::atomic<bool> *begun, *over;
    } flags = {&begun, &over};
    std::thread first([&] {
        zoff_base_workers_run(
            2, false,
            [](void *ctx, unsigned, unsigned) {
                const auto f = static_cast<both *>(ctx);
                *f->begun = true;
                while (!*f->over)
                    usleep(100);
            },
            &flags);
    });
    while (!begun)
        usleep(100);
    std::thread([] { EXPECT_EQ(3u, run(3)); }).join();
    over = true;
    first.join();
}

TEST(workers, a_run_inside_a_run_stays_on_its_thread)
{
    new_caller([] {
        struct outer_run {
            unsigned inner = 0;
            std::atomic<bool> inner_is_over{false}, worker_is_over{false};
        } outer;
        zoff_base_workers_run(
            2, false,
            [](void *ctx, unsigned thread, unsigned) {
                const auto o = static_cast<outer_run *>(ctx);
                if (thread == 0) {
                    zoff_base_workers_run(
                        2, false, [](void *inner, unsigned, unsigned threads) { *static_cast<unsigned *>(inner) = threads; },
                        &o->inner);
                    o->inner_is_over = true;
                    return;
                }
                while (!o->inner_is_over)
                    usleep(100);
                usleep(20000); // time for an owner that waits for the wrong count to leave
                o->worker_is_over = true;
            },
            &outer);
        EXPECT_EQ(1u, outer.inner);
        EXPECT_TRUE(outer.worker_is_over) << "the outer run ended before its worker";
        EXPECT_EQ(2u, run(2)) << "the team is there for the next run";
    });
}

TEST(workers, available_starts_and_ends_as_many)
{
    new_caller([] {
        const size_t before = threads_of_this_process();
        zoff_base_status_fail(ZOFF_ERR_IO, "what the caller has yet to ask for");
        for (unsigned count : {0u, 1u, 5u}) {
            memory_fault counted;
            EXPECT_TRUE(zoff_base_workers_available(count));
            EXPECT_EQ(static_cast<int>(count), counted.threads);
            EXPECT_TRUE(threads_come_down_to(before)) << "they end";
        }
        for (int nth = 1; nth <= 3; nth++) {
            memory_fault fault;
            fault.fail_thread = nth;
            EXPECT_FALSE(zoff_base_workers_available(3));
            EXPECT_TRUE(threads_come_down_to(before));
        }
        for (int nth = 1; nth <= 4; nth++) {
            memory_fault fault;
            fault.fail_allocation = nth;
            EXPECT_FALSE(zoff_base_workers_available(3));
        }
        EXPECT_STREQ("what the caller has yet to ask for", zoff_last_error());
        EXPECT_EQ(0u, zoff_base_workers_wakes());
    });
}
