// small_agreement.h: a rank that compares its list of parameters with other ranks. Its contexts are filled in as in an engine.
#ifndef ZOFF_SMALL_AGREEMENT_H
#define ZOFF_SMALL_AGREEMENT_H

#include "rank_channel.h"
#include "small_model.h"

extern "C" {
#include "agreement.h"
}

#include <string.h>

namespace zoff_test
{
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
