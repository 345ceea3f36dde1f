// presence_test.cc: a slice takes part in a step on every rank if it has a gradient on any of them.
#include "allocation_fault.h"
#include "comm_fault.h"
#include "small_agreement.h"

using namespace zoff_test;

namespace
{
constexpr size_t SLICES = 130; // more than two words of bits

bool has(unsigned rank, size_t slice, unsigned step)
{
    return (slice * 7 + rank * 31 + step * 5) % 11 == 0 || (slice == SLICES - 1 && rank == step % 2);
}

struct present : small_agreement {
    explicit present(zoff_comm *ranks) : small_agreement(ranks) {}
    ~present() { zoff_agreement_presence_close(&a); }

    void open()
    {
        parts.add(weights("a", nullptr, 3, SLICES - 1));
        parts.add(weights("b", nullptr, 40));
        ASSERT_NO_FATAL_FAILURE(plan(1024));
        ASSERT_ZOFF_OK(zoff_agreement_presence_open(&a));
        ASSERT_NO_FATAL_FAILURE(wire.open());
    }
    void mark(unsigned rank, unsigned step)
    {
        for (size_t i = 0; i < SLICES; i++)
            parts.m.flags[i] = has(rank, i, step) ? (i % 2 ? ZOFF_SLICE_READY : ZOFF_SLICE_PRESENT) : 0;
        zoff_agreement_presence_begin(&a);
    }
    void settle()
    {
        zoff_status status;
        while ((status = zoff_agreement_presence_poll(&a)) == ZOFF_PENDING)
            std::this_thread::yield();
        ASSERT_ZOFF_OK(status);
    }
};

class Presence : public testing::TestWithParam<unsigned>
{
};

INSTANTIATE_TEST_SUITE_P(Ranks, Presence, testing::Values(1u, 2u, 3u, 5u), testing::PrintToStringParamName());

// The owner of an element reads its own copy, so it must have one.
TEST_P(Presence, RefusesAReducedGradientThatOneRankLacks)
{
    const unsigned size = GetParam();
    if (size == 1)
        return;
    each_rank<present>(size, [size](present &self, unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(self.open());
        self.parts.m.params[1].reduced = true;
        for (bool last_lacks_it : {false, true}) {
            zoff_agreement_presence_begin(&self.a);
            self.parts.m.flags[0] = rank == 0 ? ZOFF_SLICE_READY : 0; // of another parameter
            self.parts.m.flags[SLICES - 1] = last_lacks_it && rank == size - 1 ? 0 : ZOFF_SLICE_READY;
            zoff_status status;
            while ((status = zoff_agreement_presence_poll(&self.a)) == ZOFF_PENDING)
                std::this_thread::yield();
            if (last_lacks_it)
                EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                                  "b has zoff_param_desc.reduced, but only rank 0 of ranks 0 and " + std::to_string(size - 1),
                                  status);
            else
                EXPECT_ZOFF_OK(status);
        }
    });
}

TEST_P(Presence, IsThatOfAnyRank)
{
    const unsigned size = GetParam();
    if (size == 1)
        return; // a single rank asks nobody: see below
    each_rank<present>(size, [size](present &self, unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(self.open());
        for (unsigned step = 0; step < 4; step++) {
            self.mark(rank, step);
            ASSERT_NO_FATAL_FAILURE(self.settle());
            for (size_t i = 0; i < SLICES; i++) {
                bool any = false;
                for (unsigned r = 0; r < size; r++)
                    any = any || has(r, i, step);
                const unsigned own = has(rank, i, step) && i % 2 ? (unsigned)ZOFF_SLICE_READY : 0u;
                EXPECT_EQ((any ? (unsigned)ZOFF_SLICE_PRESENT : 0u) | own, self.parts.m.flags[i]) << "slice " << i;
            }
        }
    });
}

TEST_P(Presence, CountsTheElementsOfThisRankThatTakePart)
{
    const unsigned size = GetParam();
    std::vector<uint64_t> counted(size);
    each_rank<present>(size, [&](present &self, unsigned rank) {
        zoff_param_desc d = self.weights("frozen", nullptr, 500);
        d.frozen = d.engine_owned = true;
        self.parts.add(d);
        self.parts.add(self.weights("absent", nullptr, 77));
        self.parts.add(self.weights("there", nullptr, 100, 3));
        ASSERT_NO_FATAL_FAILURE(self.plan(64));
        for (const size_t flag : {0, 2, 4})
            self.parts.m.flags[flag] = ZOFF_SLICE_PRESENT;
        counted[rank] = zoff_agreement_presence_elements(&self.a);
    });
    uint64_t all = 0;
    for (const uint64_t one : counted) {
        EXPECT_TRUE(one > 0 || size == 5); // with 5 ranks a bucket has fewer blocks than ranks
        all += one;
    }
    EXPECT_EQ(200u, all);
}

// The last rank asks only after the first one was told to wait.
TEST(PresencePoll, IsPendingUntilAllHaveAnswered)
{
    std::atomic<bool> has_waited{false};
    each_rank<present>(2, [&](present &self, unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(self.open());
        self.mark(rank, 0);
        if (rank == 0) {
            for (int i = 0; i < 3; i++)
                EXPECT_EQ(ZOFF_PENDING, zoff_agreement_presence_poll(&self.a));
            has_waited = true;
        }
        while (!has_waited)
            std::this_thread::yield();
        ASSERT_NO_FATAL_FAILURE(self.settle());
    });
}

TEST(PresencePoll, AsksOnceAStep)
{
    each_rank<present>(2, [](present &self, unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(self.open());
        int asked = 0;
        passing_comm_fault between(self.wire.ranks);
        between.before = [&asked](const zoff_comm_work &work) {
            asked += work.call.item.about == ZOFF_COMM_ABOUT_PRESENCE;
            return ZOFF_OK;
        };
        for (int step = 1; step < 4; step++) {
            self.mark(rank, (unsigned)step);
            ASSERT_NO_FATAL_FAILURE(self.settle());
            self.parts.m.flags[0] = 0;
            EXPECT_EQ(ZOFF_OK, zoff_agreement_presence_poll(&self.a));
            EXPECT_EQ(0, self.parts.m.flags[0]) << "what was agreed is not looked at again";
            EXPECT_EQ(step, asked);
        }
    });
}

TEST(PresencePoll, ReturnsTheErrorOfTheCommunicator)
{
    each_rank<present>(2, [](present &self, unsigned rank) {
        ASSERT_NO_FATAL_FAILURE(self.open());
        self.mark(rank, 0);
        const std::vector<uint8_t> before(self.parts.m.flags, self.parts.m.flags + SLICES);
        passing_comm_fault between(self.wire.ranks);
        between.before = [](const zoff_comm_work &) { return zoff_base_status_fail(ZOFF_ERR_COMM, "the network is gone"); };
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "the network is gone", zoff_agreement_presence_poll(&self.a));
        EXPECT_EQ(before, std::vector<uint8_t>(self.parts.m.flags, self.parts.m.flags + SLICES));
        between.before = nullptr;
        ASSERT_NO_FATAL_FAILURE(self.settle()); // nothing was asked: the step can be tried again
    });
}

TEST(PresenceOpen, LeavesNothingBehindWithoutMemory)
{
    each_rank<present>(2, [](present &self, unsigned) {
        self.parts.add(self.weights("a", nullptr, 3, SLICES));
        ASSERT_NO_FATAL_FAILURE(self.plan(1024));
        EXPECT_EQ(2, fail_each_allocation([&self] {
                      const zoff_status status = zoff_agreement_presence_open(&self.a);
                      if (status != ZOFF_OK) {
                          EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "slices of ranks", status);
                      }
                      zoff_agreement_presence_close(&self.a);
                      EXPECT_EQ(nullptr, self.a.presence.bits);
                      EXPECT_EQ(nullptr, self.a.presence.bits_bytes);
                  }));
    });
}

TEST(PresenceOpen, ReservesNothingForOneRank)
{
    each_rank<present>(1, [](present &self, unsigned) {
        self.parts.add(self.weights("a", nullptr, 3, SLICES));
        ASSERT_NO_FATAL_FAILURE(self.plan(1024));
        ASSERT_ZOFF_OK(zoff_agreement_presence_open(&self.a));
        EXPECT_EQ(nullptr, self.a.presence.bits);
    });
}

TEST(PresenceJoin, MakesTheUnionOfAllRanksAndLeavesTheirsAlone)
{
    for (const unsigned ranks : {1u, 2u, 7u}) {
        for (const size_t words : {(size_t)0, (size_t)1, (size_t)3}) {
            std::vector<uint64_t> bits(words * ranks + 1, 0);
            std::vector<uint64_t> want;
            for (size_t i = 0; i < words * ranks; i++)
                bits[i] = 0x9e3779b97f4a7c15u * (i + 3) & 0x1111222244448888u << i % 3;
            bits.back() = ~(uint64_t)0;
            want = bits;
            for (size_t i = 0; i < words * ranks; i++)
                want[i % words] |= bits[i];
            zoff_agreement_presence_join(bits.data(), words, ranks);
            EXPECT_EQ(want, bits) << ranks << " ranks, " << words << " words";
        }
    }
}
} // namespace
