/* SPDX-License-Identifier: Apache-2.0 */
// nccl_group.h: ranks that are threads and join over NCCL. Each rank calls zoff_comm_open_nccl() with a broadcast function of
// the test.
#ifndef ZOFF_NCCL_GROUP_H
#define ZOFF_NCCL_GROUP_H

#include "zoff_test.h"

#include <string.h>

#include <condition_variable>
#include <functional>
#include <thread>

namespace zoff_test
{
// Sends bytes from rank 0 to all ranks, as MPI_Bcast does.
class thread_broadcast
{
  public:
    struct place {
        thread_broadcast *all;
        unsigned rank;
    };
    static int call(void *ctx, void *data, size_t bytes)
    {
        const place *p = (const place *)ctx;
        return p->all->copy(p->rank, data, bytes);
    }

  private:
    int copy(unsigned rank, void *data, size_t bytes)
    {
        std::unique_lock<std::mutex> hold(lock);
        if (rank == 0) {
            kept.assign((char *)data, (char *)data + bytes);
            changed.notify_all();
            return 0;
        }
        if (!changed.wait_for(hold, std::chrono::seconds(30), [&] { return kept.size() == bytes; }))
            return -1;
        memcpy(data, kept.data(), bytes);
        return 0;
    }

    std::mutex lock;
    std::condition_variable changed;
    std::vector<char> kept;
};

inline void on_threads(unsigned count, const std::function<void(unsigned)> &run)
{
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < count; i++)
        threads.emplace_back([&run, i] { run(i); });
    for (auto &thread : threads)
        thread.join();
}

// The device of a rank. The runtime made of threads has two devices; over the real one each rank has its own.
inline int nccl_device_of(unsigned rank)
{
    const char *devices = getenv("ZOFF_TEST_DEVICES");
    return (int)(devices ? rank % (unsigned)atoi(devices) : rank);
}

// Close all communicators at the same time: a rank that leaves waits a while for the others.
inline void close_group(const std::vector<zoff_comm *> &comms)
{
    on_threads((unsigned)comms.size(), [&](unsigned rank) { zoff_comm_close(comms[rank]); });
}

// Open the communicators of all ranks of a group, by number. Returns "", or the message of the first rank that did not join;
// then no communicator is open.
inline std::string open_nccl_group(double timeout_seconds, std::vector<zoff_comm *> &made)
{
    const unsigned size = (unsigned)made.size();
    thread_broadcast broadcast;
    std::vector<std::string> words(size);
    on_threads(size, [&](unsigned rank) {
        thread_broadcast::place place = {&broadcast, rank};
        zoff_nccl_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.rank = rank;
        opts.size = size;
        opts.device = nccl_device_of(rank);
        opts.timeout_seconds = timeout_seconds < 5 ? 5 : timeout_seconds; // the deadline of joining; longer for busy machines
        opts.broadcast = thread_broadcast::call;
        opts.ctx = &place;
        if (zoff_comm_open_nccl(&opts, &made[rank]) < 0) {
            words[rank] = zoff_last_error();
            made[rank] = nullptr;
        }
    });
    for (const auto &text : words) {
        if (text.empty())
            continue;
        close_group(made);
        made.assign(size, nullptr);
        return text;
    }
    return "";
}
} // namespace zoff_test

#endif
