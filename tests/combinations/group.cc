/* SPDX-License-Identifier: Apache-2.0 */
// group.cc: runs the ranks of a cell, each on its own thread.
#include "group.h"

#include "life.h"

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace combinations
{
namespace
{
// Sends bytes from rank 0 to all ranks, as MPI_Bcast does.
class broadcast
{
  public:
    struct door {
        broadcast *all;
        unsigned rank;
    };
    static int call(void *ctx, void *data, size_t bytes)
    {
        const auto *d = static_cast<const door *>(ctx);
        std::unique_lock<std::mutex> hold(d->all->lock);
        if (d->rank == 0)
            d->all->kept.assign(static_cast<char *>(data), static_cast<char *>(data) + bytes);
        d->all->changed.notify_all();
        if (!d->all->changed.wait_for(hold, std::chrono::seconds(30), [&] { return d->all->kept.size() == bytes; }))
            return -1;
        memcpy(data, d->all->kept.data(), bytes);
        return 0;
    }

  private:
    std::mutex lock;
    std::condition_variable changed;
    std::vector<char> kept;
};

void on_each(unsigned ranks, const std::function<void(unsigned)> &work)
{
    std::vector<std::thread> threads;
    for (unsigned rank = 0; rank < ranks; rank++)
        threads.emplace_back(work, rank);
    for (std::thread &t : threads)
        t.join();
}

zoff_status join_over_nccl(const cell &c, unsigned rank, broadcast &all, zoff_comm **out)
{
    broadcast::door door = {&all, rank};
    zoff_nccl_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.rank = rank;
    opts.size = c.ranks;
    opts.device = static_cast<int>(rank % 2); // the test runtime has two devices
    opts.timeout_seconds = 60;
    opts.broadcast = broadcast::call;
    opts.ctx = &door;
    return zoff_comm_open_nccl(&opts, out);
}

// The message of the first rank that has one; otherwise the results of all ranks.
std::string put_together(const std::vector<std::string> &results)
{
    std::string text;
    for (const std::string &one : results) {
        if (one.find(' ') != std::string::npos)
            return one;
        text += (text.empty() ? "" : "/") + one;
    }
    return text;
}
} // namespace

std::string group::join(const cell &c)
{
    if (comms.size() == c.ranks && memory == c.memory && wire == c.wire)
        return "";
    leave();
    memory = c.memory;
    wire = c.wire;
    comms.assign(c.ranks, nullptr);
    places.resize(c.ranks);
    zoff_comm_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.timeout_seconds = 60;
    if (wire == "threads" && zoff_comm_open_threads(&opts, c.ranks, comms.data()) < 0)
        return zoff_last_error();
    broadcast all;
    std::vector<std::string> reasons(c.ranks);
    on_each(c.ranks, [&](unsigned rank) {
        if (wire == "nccl" && join_over_nccl(c, rank, all, &comms[rank]) < 0)
            reasons[rank] = zoff_last_error();
        else if (memory == "host")
            places[rank] = make_host();
        else if (wire == "nccl")
            places[rank] = make_cuda(static_cast<int>(rank % 2), &reasons[rank]);
        else
            places[rank] = make_emulated(&reasons[rank]);
    });
    for (const std::string &reason : reasons) {
        if (!reason.empty())
            return reason;
    }
    return "";
}

void group::leave()
{
    places.clear();
    on_each(static_cast<unsigned>(comms.size()), [&](unsigned rank) { zoff_comm_close(comms[rank]); });
    comms.clear();
}

std::string group::run(const cell &c, const std::string &folder)
{
    const std::string reason = join(c);
    std::vector<std::string> results(c.ranks);
    if (reason.empty())
        on_each(c.ranks, [&](unsigned rank) { results[rank] = life(c, folder, comms[rank], rank, *places[rank]).run(); });
    const std::string result = reason.empty() ? put_together(results) : "error: " + reason;
    if (result.compare(0, 6, "error:") == 0)
        leave(); // the failure may have broken the communicator
    return result;
}
} // namespace combinations
