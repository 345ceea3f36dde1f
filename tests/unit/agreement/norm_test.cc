// norm_test.cc: the norm of several engines: which rank counts a parameter that several have, how parts are joined, and what is
// refused. The engines are the ranks of one communicator.
#include "small_agreement.h"

#include <cmath>

using namespace zoff_test;

namespace
{
struct part : small_agreement {
    explicit part(zoff_comm *ranks) : small_agreement(ranks)
    {
        a.comm = nullptr; // each is an engine of its own
        EXPECT_ZOFF_OK(zoff_agreement_norm_take(&a, ranks));
        a.comm = ranks;
    }
    ~part()
    {
        zoff_agreement_norm_close(&a);
        zoff_agreement_norm_free(&a);
        zoff_transfer_measure_close(&transfer);
    }
    zoff_status open()
    {
        EXPECT_ZOFF_OK(zoff_transfer_measure_open(&transfer));
        return zoff_agreement_norm_open(&a);
    }
    void add(const std::string &name, bool replicated)
    {
        zoff_param_desc d = weights(name.c_str(), nullptr, 10);
        d.norm_replicated = replicated;
        parts.add(d);
    }
    bool counts(size_t i) const { return !parts.m.params[i].counts_elsewhere; }
    zoff_status join(const zoff_norm_part &own, zoff_norm_part *out)
    {
        EXPECT_ZOFF_OK(zoff_agreement_norm_ask(&a, &own));
        zoff_status status;
        while ((status = zoff_agreement_norm_poll(&a, out)) == ZOFF_PENDING)
            std::this_thread::yield();
        return status;
    }
};

void on_parts(unsigned size, const std::function<void(part &self, unsigned rank)> &run)
{
    each_rank<part>(size, [&run](part &self, unsigned rank) { run(self, rank); });
}

TEST(Norm, AReplicatedParameterCountsOnTheLowestRankThatHasIt)
{
    on_parts(3, [](part &self, unsigned rank) {
        self.add("own", false); // by the same name, but of this rank alone
        if (rank != 0)
            self.add("late", true);
        if (rank != 1)
            self.add("outer", true);
        ASSERT_ZOFF_OK(self.open());
        EXPECT_TRUE(self.counts(0));
        if (rank != 0) {
            EXPECT_EQ(rank == 1, self.counts(1));
        }
        if (rank != 1) {
            EXPECT_EQ(rank == 0, self.counts(rank == 0 ? 1 : 2));
        }
    });
}

TEST(Norm, AParameterOfOneRankAloneCountsThere)
{
    on_parts(2, [](part &self, unsigned rank) {
        self.add("stage" + std::to_string(rank), true);
        ASSERT_ZOFF_OK(self.open());
        EXPECT_TRUE(self.counts(0));
    });
}

TEST(Norm, PartsAreJoined)
{
    on_parts(3, [](part &self, unsigned rank) {
        ASSERT_ZOFF_OK(self.open());
        for (const bool poisoned : {false, true}) {
            zoff_norm_part own = {}, all = {};
            zoff_base_exact_add(&own.squares, std::ldexp(1.0, -40 * (int)rank));
            own.is_poisoned = poisoned && rank > 0;
            own.stop_requested = rank == 2;
            snprintf(own.why, sizeof own.why, "words of %u", rank);
            own.terms[ZOFF_NORM_SCALE] = 0.25;
            ASSERT_ZOFF_OK(self.join(own, &all));
            EXPECT_EQ(1 + std::ldexp(1.0, -40), zoff_base_exact_value(&all.squares)) << "the third is below the last bit";
            EXPECT_EQ(0.25, all.terms[ZOFF_NORM_SCALE]);
            EXPECT_TRUE(all.stop_requested);
            EXPECT_EQ(poisoned, all.is_poisoned);
            if (poisoned) {
                EXPECT_EQ(1u, all.rank);
                EXPECT_STREQ("words of 1", all.why);
            }
        }
    });
}

TEST(Norm, DifferentTermsAreNamedOnEveryRank)
{
    const char *const WORDS[ZOFF_NORM_TERMS] = {"zoff_step_args.t", "clip_norm", "factor of the gradients", "skip_nonfinite"};
    on_parts(3, [&](part &self, unsigned rank) {
        ASSERT_ZOFF_OK(self.open());
        for (unsigned term = 0; term < ZOFF_NORM_TERMS; term++) {
            zoff_norm_part own = {}, all = {};
            own.terms[term] = rank == 2 ? 5 : 4;
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, WORDS[term], self.join(own, &all));
            EXPECT_NE(nullptr, strstr(zoff_last_error(), "is 4 on rank 0 and 5 on rank 2")) << zoff_last_error();
        }
    });
}

TEST(Norm, APartThatTrainsNothingHasNoFactor)
{
    on_parts(3, [&](part &self, unsigned rank) {
        ASSERT_ZOFF_OK(self.open());
        for (unsigned idle = 0; idle < 3; idle++) {
            zoff_norm_part own = {}, all = {};
            own.terms[ZOFF_NORM_SCALE] = rank == idle ? 0 : 0.5;
            ASSERT_ZOFF_OK(self.join(own, &all)) << zoff_last_error();
            EXPECT_EQ(0.5, all.terms[ZOFF_NORM_SCALE]);
        }
    });
}

TEST(Norm, AnErrorOfOnePartIsToldToTheOthers)
{
    on_parts(2, [](part &self, unsigned rank) {
        ASSERT_ZOFF_OK(self.open());
        zoff_norm_part own = {}, all = {};
        own.status = rank == 1 ? ZOFF_ERR_INVALID : ZOFF_OK;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "rank 1 of zoff_engine_opts.norm_comm cannot take the step", self.join(own, &all));
        ASSERT_ZOFF_OK(self.join(zoff_norm_part(), &all)) << "the next step";
    });
}

TEST(Norm, WithoutACommunicatorThereIsNothingToDo)
{
    on_ranks(1, [](small_agreement &self, unsigned) {
        ASSERT_ZOFF_OK(zoff_agreement_norm_take(&self.a, nullptr));
        EXPECT_ZOFF_OK(zoff_agreement_norm_open(&self.a));
        EXPECT_ZOFF_OK(zoff_agreement_norm_finish(&self.a));
        zoff_agreement_norm_abandon(&self.a);
        zoff_agreement_norm_close(&self.a);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "norm_comm is zoff_engine_opts.comm",
                          zoff_agreement_norm_take(&self.a, self.a.comm));
    });
}
} // namespace
