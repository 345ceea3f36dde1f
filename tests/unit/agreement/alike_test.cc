// alike_test.cc: checksums of what is declared equal: the totals that votes and norms carry, and the parameter that an error
// names.
#include "small_agreement.h"

using namespace zoff_test;

namespace
{
// An engine of one rank among engines with one norm; or a rank of an engine.
struct rank_of : small_agreement {
    explicit rank_of(zoff_comm *ranks) : small_agreement(ranks) {}
    ~rank_of()
    {
        zoff_agreement_norm_close(&a);
        zoff_agreement_norm_free(&a);
        zoff_transfer_measure_close(&transfer);
    }
    void add(const char *name, bool replicated, bool reduced, float *value = nullptr)
    {
        zoff_param_desc d = weights(name, value, 10);
        d.norm_replicated = replicated;
        d.reduced = reduced;
        parts.add(d);
    }
    void share_norm(zoff_comm *norm)
    {
        a.comm = nullptr;
        ASSERT_ZOFF_OK(zoff_agreement_norm_take(&a, norm));
        ASSERT_ZOFF_OK(zoff_comm_open(nullptr, &self));
        a.comm = self;
        ASSERT_ZOFF_OK(zoff_transfer_measure_open(&transfer));
        ASSERT_ZOFF_OK(zoff_agreement_norm_open(&a));
    }
    void done()
    {
        zoff_agreement_norm_close(&a);
        zoff_comm_close(self);
        self = nullptr;
    }
    uint64_t tell(uint64_t zoff_vote::*total)
    {
        zoff_vote vote = {};
        zoff_agreement_alike_tell(&a, &vote);
        return vote.*total;
    }
    zoff_comm *self = nullptr;
};
} // namespace

TEST(Alike, CopiesAreComparedByTheirTotal)
{
    each_rank<rank_of>(3, [](rank_of &self, unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(self.wire.open());
        for (const char *name : {"one", "two"})
            self.add(name, false, true);
        ASSERT_ZOFF_OK(zoff_transfer_measure_open(&self.transfer));
        zoff_alike *alike = self.transfer.measure.alike;
        alike[0].copies = 5;
        alike[1].copies = 7;
        const uint64_t before = self.tell(&zoff_vote::copies);
        std::swap(alike[0].copies, alike[1].copies);
        EXPECT_NE(before, self.tell(&zoff_vote::copies)) << "copies of two parameters, exchanged";
        std::vector<zoff_vote> votes(3);
        for (zoff_vote &v : votes)
            v.copies = before;
        EXPECT_ZOFF_OK(zoff_agreement_alike_compare(&self.a, votes.data()));
        votes[2].copies++;
        alike[1].copies += rank == 2;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "the gradient of two (zoff_param_desc.reduced) is 5 on ranks 0 and 1 and 6 on rank 2",
                          zoff_agreement_alike_compare(&self.a, votes.data()));
    });
}

TEST(Alike, TotalsOfReplicasAreZeroWhereAllAreEqual)
{
    std::vector<uint64_t> totals(3);
    for (const unsigned differs : {9u, 0u, 1u, 2u}) {
        totals.assign(3, 0);
        each_rank<rank_of>(3, [&](rank_of &self, unsigned rank) {
            std::vector<const char *> names = {"a", "own", "b"};
            if (rank == 1)
                names = {"b", "a"};
            if (rank == 2)
                names = {"alone", "b"};
            for (const char *name : names)
                self.add(name, strcmp(name, "own") != 0, false);
            ASSERT_NO_FATAL_FAILURE(self.share_norm(self.transfer.comm));
            for (size_t i = 0; i < names.size(); i++)
                self.transfer.measure.alike[i].replicas =
                    1000 * (uint64_t)names[i][0] + (names[i][0] == 'b' && rank == differs);
            zoff_norm_part part = {}, all = {};
            part.replicas = self.tell(&zoff_vote::replicas);
            ASSERT_ZOFF_OK(zoff_agreement_norm_ask(&self.a, &part));
            zoff_status status;
            while ((status = zoff_agreement_norm_poll(&self.a, &all)) == ZOFF_PENDING)
                std::this_thread::yield();
            ASSERT_ZOFF_OK(status);
            EXPECT_EQ(differs == 9, all.replicas == 0);
            if (all.replicas) {
                EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the gradients of b differ between ranks 0 and ",
                                  zoff_agreement_alike_explain(&self.a));
            }
            self.done();
        });
    }
}

TEST(Alike, FirstWeightsOfReplicasAreCompared)
{
    for (const bool differs : {false, true}) {
        each_rank<rank_of>(2, [&](rank_of &self, unsigned rank) {
            std::vector<float> value(10, 1.0f);
            value[9] = rank && differs ? 1.0000001f : 1.0f;
            self.add("shared", true, false, value.data());
            ASSERT_NO_FATAL_FAILURE(self.share_norm(self.transfer.comm));
            if (differs) {
                EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the first weights of shared differ between ranks 0 and 1",
                                  zoff_agreement_alike_first_weights(&self.a));
            } else {
                EXPECT_ZOFF_OK(zoff_agreement_alike_first_weights(&self.a));
            }
            self.done();
        });
    }
}
