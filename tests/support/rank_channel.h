// rank_channel.h: a rank of a test and its channel to the other ranks, for rooms that are tested without an engine.
#ifndef ZOFF_RANK_CHANNEL_H
#define ZOFF_RANK_CHANNEL_H

#include "rank_job.h"
#include "zoff_test.h"

namespace zoff_test
{
class rank_channel
{
  public:
    // `ranks`: NULL means a single rank without a communicator.
    explicit rank_channel(zoff_comm *ranks_) : ranks(ranks_)
    {
        snprintf(channel.name, sizeof channel.name, "p");
        if (ranks)
            zoff_comm_channel_come(ranks, &channel);
    }
    ~rank_channel()
    {
        if (!ranks)
            return;
        zoff_comm_channel_close(ranks, &channel);
        zoff_comm_channel_leave(ranks, &channel);
    }
    rank_channel(const rank_channel &) = delete;

    // Call on all ranks.
    void open()
    {
        if (ranks) {
            ASSERT_ZOFF_OK(zoff_comm_channel_open(ranks, &channel));
        }
    }
    unsigned rank() const { return ranks ? zoff_comm_rank(ranks) : 0; }
    unsigned size() const { return ranks ? zoff_comm_size(ranks) : 1; }

    zoff_comm *ranks;
    zoff_comm_channel channel = {};
};

// Run all ranks at the same time, each on its own thread, with its own `Rank`, which is constructed from its communicator.
template <typename Rank>
void each_rank(unsigned size, const std::function<void(Rank &self, unsigned rank)> &run, double timeout_seconds = 20)
{
    const rank_job job(size, timeout_seconds);
    job.on_each([&](unsigned rank) {
        Rank self(job.comm_of(rank));
        run(self, rank);
    });
}
} // namespace zoff_test

#endif
