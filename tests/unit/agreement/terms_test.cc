// terms_test.cc: everything that the update of a step uses is the same on all ranks, or every rank names the difference.
#include "allocation_fault.h"
#include "comm_fault.h"
#include "small_agreement.h"

using namespace zoff_test;

namespace
{
// A step of a model with the groups 0, 1 and 3; group 2 is empty.
struct stepping : small_agreement {
    explicit stepping(zoff_comm *ranks) : small_agreement(ranks), hyper(4)
    {
        for (const unsigned group : {0u, 1u, 3u}) {
            zoff_param_desc d = weights("a", nullptr, 10);
            d.group = group;
            parts.add(d);
        }
        for (auto &h : hyper)
            zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
        step.t = 7;
        step.clip_norm = 1.5;
        step.grad_scale = 64;
        step.loss_scale = 128;
        step.flags = ZOFF_STEP_ZERO_GRADS;
        step.weight = 4;
        step.hyper = hyper.data();
    }
    ~stepping() { zoff_agreement_terms_close(&a); }

    void open()
    {
        ASSERT_NO_FATAL_FAILURE(plan());
        ASSERT_ZOFF_OK(zoff_agreement_terms_open(&a));
        ASSERT_NO_FATAL_FAILURE(wire.open());
    }
    uint64_t digest() { return zoff_agreement_terms_digest(&a, &step); }

    // All ranks' votes, as the walk collects them.
    zoff_status compare(uint64_t digest)
    {
        std::vector<uint64_t> all(wire.size());
        std::vector<zoff_vote> votes(wire.size());
        all[wire.rank()] = digest;
        EXPECT_ZOFF_OK(zoff_agreement_consensus_gather(&a, all.data(), sizeof all[0]));
        for (size_t i = 0; i < votes.size(); i++)
            votes[i].terms = all[i];
        return zoff_agreement_terms_compare(&a, votes.data());
    }

    std::vector<zoff_optimizer_hyper> hyper;
    zoff_step_terms step = {};
};

struct change {
    const char *name, *words; // "": it may differ
    void (*make)(stepping &s);
};

void PrintTo(const change &c, std::ostream *out)
{
    *out << c.name;
}

class Terms : public testing::TestWithParam<change>
{
};

const change CHANGES[] = {
    {"nothing", "", [](stepping &) {}},
    {"t", "zoff_step_args.t (or the number of updates made) is 7 on rank 0 and 8 on rank 2 (", [](stepping &s) { s.step.t++; }},
    {"clip_norm", "zoff_step_args.clip_norm (or gradient_clipping) is 1.5 on rank 0 and 0 on rank 2 (",
     [](stepping &s) { s.step.clip_norm = ZOFF_OFF; }},
    {"grad_scale", "zoff_step_args.grad_scale is 64 on rank 0 and 0.5 on rank 2 (",
     [](stepping &s) { s.step.grad_scale = 0.5; }},
    {"flags", "zoff_step_args.flags is 1 on rank 0 and 0 on rank 2 (", [](stepping &s) { s.step.flags = 0; }},
    {"loss_scale", "zoff_loss_scaler.scale is 128 on rank 0 and 256 on rank 2 (", [](stepping &s) { s.step.loss_scale = 256; }},
    {"iterations", "zoff_loss_scaler.iterations is 0 on rank 0 and 3 on rank 2 (",
     [](stepping &s) { s.parts.m.scaler.iterations = 3; }},
    {"last_overflow", "zoff_loss_scaler.last_overflow is 0 on rank 0 and -1 on rank 2 (",
     [](stepping &s) { s.parts.m.scaler.last_overflow = -1; }},
    {"hysteresis", "zoff_loss_scaler.hysteresis is 0 on rank 0 and 2 on rank 2 (",
     [](stepping &s) { s.parts.m.scaler.hysteresis = 2; }},
    {"weight", "the sum of the weights of all micro-batches (zoff_grad_weight()) is 4 on rank 0 and 4.5 on rank 2 (",
     [](stepping &s) { s.step.weight = 4.5; }},
    {"norm_sum", "zoff_step_args.norm_sum (as a checksum) is 0 on rank 0 and 5 on rank 2 (",
     [](stepping &s) { s.step.norm_sum = 5; }},
    {"lr", "zoff_optimizer_hyper.lr of group 0, after the schedule, is 0.001 on rank 0 and 0.25 on rank 2 (",
     [](stepping &s) { s.hyper[0].lr = 0.25; }},
    {"decay", "zoff_optimizer_hyper.decay of group 3, after the schedule, is decoupled on rank 0 and L2 on rank 2 (",
     [](stepping &s) { s.hyper[3].decay = ZOFF_DECAY_L2; }},
    {"hyper_flags", "zoff_optimizer_hyper.flags of group 1, after the schedule, is 0 on rank 0 and 0x1 on rank 2 (",
     [](stepping &s) { s.hyper[1].flags = ZOFF_HYPER_NO_BIAS_CORRECTION; }},
    {"constants", "the constants of group 1 differ on ranks 0 and 2 (",
     [](stepping &s) { s.a.step_terms[10 + 2 * (zoff_agreement_facts_hyper_count() + 1) - 1]++; }},
    {"unused_group", "", [](stepping &s) { s.hyper[2].lr = 0.25; }},
};

INSTANTIATE_TEST_SUITE_P(Step, Terms, testing::ValuesIn(CHANGES), [](const auto &p) { return std::string(p.param.name); });

// Rank 2 differs. Each change is made twice, because one of them changes the message itself.
TEST_P(Terms, AreTheSameOrAreNamed)
{
    const change &c = GetParam();
    each_rank<stepping>(4, [&c](stepping &self, unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(self.open());
        const uint64_t usual = self.digest();
        if (rank == 2)
            c.make(self);
        uint64_t digest = self.digest();
        if (!*c.words) {
            EXPECT_EQ(usual, digest);
            EXPECT_ZOFF_OK(self.compare(digest));
            return;
        }
        if (rank == 2) {
            c.make(self);
            digest = usual + 1;
        }
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, std::string("ranks take different steps: ") + c.words, self.compare(digest));
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "(ranks 0, 1 and 3 against rank 2). Call zoff_grads_drop() on every rank, "
                                                     "and repeat the step with the same values"))
            << zoff_last_error();
    });
}

TEST(TermsDigest, IsAnotherOneForEachTerm)
{
    each_rank<stepping>(2, [](stepping &self, unsigned) {
        ASSERT_NO_FATAL_FAILURE(self.open());
        std::set<uint64_t> seen{self.digest()};
        size_t changes = 0;
        for (const change &c : CHANGES) {
            if (!*c.words || std::string(c.name) == "constants")
                continue;
            c.make(self); // on top of the changes before
            seen.insert(self.digest());
            changes++;
        }
        EXPECT_EQ(1 + changes, seen.size());
    });
}

TEST(TermsDigest, DoesNotDependOnHowClippingIsTurnedOff)
{
    each_rank<stepping>(2, [](stepping &self, unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(self.open());
        self.step.clip_norm = rank ? -3 : 0;
        EXPECT_ZOFF_OK(self.compare(self.digest()));
    });
}

TEST(TermsThatDiffer, AreSixAtMost)
{
    for (const unsigned count : {6u, 8u}) {
        each_rank<stepping>(2, [count](stepping &self, unsigned rank) {
            ASSERT_NO_FATAL_FAILURE(self.open());
            double *const terms[] = {&self.hyper[0].lr, &self.hyper[0].beta1, &self.hyper[0].beta2, &self.hyper[0].eps,
                                     &self.hyper[1].lr, &self.hyper[1].beta1, &self.hyper[1].beta2, &self.hyper[1].eps};
            for (unsigned i = 0; i < count; i++)
                *terms[i] *= rank ? 0.5 : 1;
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_optimizer_hyper.beta1 of group 1, after the schedule, is 0.9",
                              self.compare(self.digest()));
            const std::string words = zoff_last_error();
            EXPECT_EQ(std::string::npos, words.find("beta2 of group 1")) << words;
            EXPECT_EQ(count == 8, words.find("; and 2 more (rank 0 against rank 1)") != std::string::npos) << words;
        });
    }
}

// The vote carries checksums.
TEST(TermsOfRanksThatAgree, AreNotSent)
{
    each_rank<stepping>(3, [](stepping &self, unsigned) {
        ASSERT_NO_FATAL_FAILURE(self.open());
        std::vector<zoff_vote> votes(3);
        for (auto &vote : votes)
            vote.terms = self.digest();
        passing_comm_fault between(self.wire.ranks);
        between.before = [](const zoff_comm_work &) { return zoff_base_status_fail(ZOFF_ERR_COMM, "something was sent"); };
        EXPECT_ZOFF_OK(zoff_agreement_terms_compare(&self.a, votes.data()));
        votes[2].terms++;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "something was sent", zoff_agreement_terms_compare(&self.a, votes.data()));
    });
}

TEST(TermsOpen, ReservesWordsForThreeRanksWhereThereAreSeveral)
{
    each_rank<stepping>(2, [](stepping &self, unsigned) {
        allocations_left = 0;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "out of memory: 186 x 8 bytes for values of ranks",
                          zoff_agreement_terms_open(&self.a));
        allocations_left = -1;
        EXPECT_EQ(nullptr, self.a.step_terms);
        ASSERT_ZOFF_OK(zoff_agreement_terms_open(&self.a));
        EXPECT_NE(nullptr, self.a.step_terms);
        zoff_agreement_terms_close(&self.a);
        EXPECT_EQ(nullptr, self.a.step_terms);
    });
    each_rank<stepping>(1, [](stepping &self, unsigned) {
        ASSERT_ZOFF_OK(zoff_agreement_terms_open(&self.a));
        EXPECT_EQ(nullptr, self.a.step_terms);
    });
}
} // namespace
