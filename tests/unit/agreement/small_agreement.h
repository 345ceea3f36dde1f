/* SPDX-License-Identifier: Apache-2.0 */
// small_agreement.h: a rank that compares its list of parameters with other ranks. Its contexts are filled in as in an engine.
#ifndef ZOFF_SMALL_AGREEMENT_H
#define ZOFF_SMALL_AGREEMENT_H

#include "rank_job.h"
#include "small_model.h"

extern "C" {
#include "agreement.h"
}

#include <string.h>

namespace zoff_test
{
// A rank, and its channel to the others.
class rank_channel
{
  public:
    explicit rank_channel(zoff_comm *ranks_) : ranks(ranks_)
    {
        snprintf(channel.name, sizeof channel.name, "p");
        zoff_comm_channel_come(ranks, &channel);
    }
    ~rank_channel()
    {
        zoff_comm_channel_close(ranks, &channel);
        zoff_comm_channel_leave(ranks, &channel);
    }
    rank_channel(const rank_channel &) = delete;
    void open() { ASSERT_ZOFF_OK(zoff_comm_channel_open(ranks, &channel)); } // on all ranks
    unsigned rank() const { return zoff_comm_rank(ranks); }
    unsigned size() const { return zoff_comm_size(ranks); }

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
class small_agreement
{
  public:
    explicit small_agreement(zoff_comm *ranks) : wire(ranks)
    {
        transfer.model = a.model = &parts.m;
        transfer.plan = a.plan = &parts.plan;
        transfer.comm = a.comm = ranks;
        transfer.channel = a.channel = &wire.channel;
        transfer.route.link = &zoff_transfer_route_in_place;
        transfer.threads = {1, 1, 0};
        a.transfer = &transfer;
        EXPECT_ZOFF_OK(zoff_agreement_vote_open(&a));
    }
    ~small_agreement() { zoff_agreement_vote_close(&a); }
    small_agreement(const small_agreement &) = delete;

    zoff_param_desc weights(const char *name, void *value, size_t count, size_t slices = 1) const
    {
        zoff_param_desc d = describe(name, count, slices);
        d.value = value;
        return d;
    }
    void plan(size_t chunk_elements = 64)
    {
        parts.make_plan(chunk_elements, wire.rank(), wire.size());
        ASSERT_ZOFF_OK(zoff_model_slices_open(&parts.m, &parts.plan));
    }

    rank_channel wire;
    small_model parts;
    zoff_transfer transfer = {};
    zoff_agreement a = {};
};

inline void on_ranks(unsigned size, const std::function<void(small_agreement &self, unsigned rank)> &run,
                     double timeout_seconds = 20)
{
    each_rank<small_agreement>(
        size,
        [&run](small_agreement &self, unsigned rank) {
            ASSERT_NO_FATAL_FAILURE(self.wire.open());
            run(self, rank);
        },
        timeout_seconds);
}
} // namespace zoff_test

#endif
