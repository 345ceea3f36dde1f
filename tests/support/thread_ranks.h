/* SPDX-License-Identifier: Apache-2.0 */
// thread_ranks.h: a group of ranks under the control of one test. The test's own thread can act for all of them in turn, or
// each rank runs on its own thread.
#ifndef ZOFF_THREAD_RANKS_H
#define ZOFF_THREAD_RANKS_H

#include "zoff_test.h"

#include <functional>
#include <thread>

extern "C" {
#include "comm.h"
}

namespace zoff_test
{
struct thread_ranks {
    explicit thread_ranks(unsigned size, double timeout_seconds = 20)
    {
        zoff_comm_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.timeout_seconds = timeout_seconds;
        std::vector<zoff_comm *> made(size);
        EXPECT_ZOFF_OK(zoff_comm_open_threads(&opts, size, made.data()));
        for (zoff_comm *one : made)
            comms.emplace_back(one);
    }

    unsigned size() const { return (unsigned)comms.size(); }
    zoff_comm *operator[](unsigned rank) const { return comms[rank].get(); }

    // Call a function for all ranks at once, each on its own thread.
    void on_each(const std::function<void(zoff_comm *, unsigned)> &run) const
    {
        std::vector<std::thread> threads;
        for (unsigned rank = 0; rank < size(); rank++)
            threads.emplace_back([&, rank] { run(comms[rank].get(), rank); });
        for (auto &thread : threads)
            thread.join();
    }

    // Poll the operation of each rank in turn until none is pending. Returns the status of each rank.
    std::vector<zoff_status> finish(std::vector<zoff_comm_work> &works) const
    {
        std::vector<zoff_status> ends(size(), ZOFF_PENDING);
        for (unsigned pending = size(); pending > 0;) {
            for (unsigned rank = 0; rank < size(); rank++) {
                if (ends[rank] != ZOFF_PENDING)
                    continue;
                ends[rank] = zoff_comm_poll(comms[rank].get(), &works[rank]);
                pending -= ends[rank] != ZOFF_PENDING;
            }
        }
        return ends;
    }

    std::vector<comm> comms;
};
} // namespace zoff_test

#endif
