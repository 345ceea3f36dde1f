/* SPDX-License-Identifier: Apache-2.0 */
// tally.h: which threads took part in a run of a team.
#ifndef ZOFF_TESTS_TALLY_H
#define ZOFF_TESTS_TALLY_H
#include "process_threads.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <set>

// Counts for each thread of a team: its calls, the size of the team that it was given, and its thread id.
struct tally {
    std::atomic<int> visits[64] = {};
    std::atomic<unsigned> threads{0};
    std::atomic<pid_t> tids[64] = {};
    static void count(void *ctx, unsigned thread, unsigned threads)
    {
        auto self = static_cast<tally *>(ctx);
        self->visits[thread]++;
        self->tids[thread] = static_cast<pid_t>(syscall(SYS_gettid));
        self->threads = threads;
    }
    void expect_each_once() const
    {
        for (unsigned i = 0; i < 64; i++)
            EXPECT_EQ(i < threads ? 1 : 0, visits[i]) << "thread " << i << " of " << threads;
    }
    std::set<pid_t> all_tids() const { return {tids, tids + threads}; }
};
#endif
