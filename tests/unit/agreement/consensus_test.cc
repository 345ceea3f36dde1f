// consensus_test.cc: small values of all ranks reach all ranks, and so does the failure of one.
#include "allocation_fault.h"
#include "comm_fault.h"
#include "small_agreement.h"

using namespace zoff_test;

namespace
{
class Consensus : public testing::TestWithParam<unsigned>
{
};

INSTANTIATE_TEST_SUITE_P(Ranks, Consensus, testing::Values(1u, 2u, 5u), testing::PrintToStringParamName());

TEST_P(Consensus, GathersWhatEachRankHas)
{
    const unsigned size = GetParam();
    on_ranks(size, [size](small_agreement &self, unsigned rank) {
        for (const size_t bytes : {(size_t)1, (size_t)12, (size_t)5000}) {
            std::string all(size * bytes, '?'), want;
            for (unsigned i = 0; i < size; i++)
                want += std::string(bytes, (char)('a' + i));
            std::fill_n(&all[rank * bytes], bytes, (char)('a' + rank));
            ASSERT_ZOFF_OK(zoff_agreement_consensus_gather(&self.a, &all[0], bytes));
            EXPECT_EQ(want, all);
        }
    });
}

TEST_P(Consensus, FindsTheLeastOfEachNumber)
{
    const unsigned size = GetParam();
    on_ranks(size, [size](small_agreement &self, unsigned rank) {
        uint64_t numbers[ZOFF_CONSENSUS_NUMBERS] = {rank, size - rank, 7, UINT64_MAX, UINT64_MAX - rank};
        ASSERT_ZOFF_OK(zoff_agreement_consensus_least(&self.a, numbers, ZOFF_CONSENSUS_NUMBERS));
        const uint64_t want[] = {0, 1, 7, UINT64_MAX, UINT64_MAX - (size - 1)};
        EXPECT_TRUE(std::equal(numbers, numbers + ZOFF_CONSENSUS_NUMBERS, want));
    });
}

TEST_P(Consensus, IsSuccessWhereAllSucceed)
{
    on_ranks(GetParam(), [](small_agreement &self, unsigned) {
        for (int round = 0; round < 3; round++) {
            ASSERT_ZOFF_OK(zoff_agreement_consensus_success(&self.a, ZOFF_OK));
        }
    });
}

// PENDING is no failure.
TEST(ConsensusOfFailures, IsThatOfTheFirstRankThatFailed)
{
    on_ranks(5, [](small_agreement &self, unsigned rank) {
        const bool fails = rank == 2 || rank == 4;
        const zoff_status own = fails       ? zoff_base_status_fail(ZOFF_ERR_IO, "the words of rank %u", rank)
                                : rank == 1 ? ZOFF_PENDING
                                            : ZOFF_OK;
        const zoff_status status = zoff_agreement_consensus_success(&self.a, own);
        if (fails) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "the words of rank " + std::to_string(rank), status);
        } else {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM,
                              "rank 2 has failed, and this one has not: see the message of that rank for the cause", status);
        }
        EXPECT_ZOFF_OK(zoff_agreement_consensus_success(&self.a, ZOFF_OK)) << "a failure is forgotten";
    });
}

TEST(ConsensusAlone, NeedsNobody)
{
    on_ranks(1, [](small_agreement &self, unsigned) {
        passing_comm_fault between(self.wire.ranks);
        between.before = [](const zoff_comm_work &) { return ZOFF_ERR_COMM; };
        EXPECT_EQ(ZOFF_OK, zoff_agreement_consensus_success(&self.a, ZOFF_OK));
        EXPECT_EQ(ZOFF_ERR_IO, zoff_agreement_consensus_success(&self.a, ZOFF_ERR_IO));
    });
}

TEST(ConsensusOverABrokenCommunicator, FailsWithItsOwnWords)
{
    on_ranks(2, [](small_agreement &self, unsigned rank) {
        passing_comm_fault between(self.wire.ranks);
        between.before = [](const zoff_comm_work &) { return zoff_base_status_fail(ZOFF_ERR_COMM, "the network is gone"); };
        int all[2] = {};
        EXPECT_ZOFF_FAILS(ZOFF_ERR_COMM, "the network is gone", zoff_agreement_consensus_gather(&self.a, all, sizeof *all));
        const zoff_status own = rank ? zoff_base_status_fail(ZOFF_ERR_IO, "my own disk") : ZOFF_OK;
        EXPECT_ZOFF_FAILS(rank ? ZOFF_ERR_IO : ZOFF_ERR_COMM, rank ? "my own disk" : "the network is gone",
                          zoff_agreement_consensus_success(&self.a, own));
    });
}

// Memory is reserved before any message: the exchange itself allocates none.
TEST(ConsensusWithoutMemory, FailsWhenItIsOpened)
{
    on_ranks(3, [](small_agreement &self, unsigned rank) {
        unsigned char all[3] = {};
        all[rank] = (unsigned char)(rank + 1);
        zoff_agreement_consensus_close(&self.a);
        EXPECT_EQ(3, fail_each_allocation([&] {
                      const zoff_status status = zoff_agreement_consensus_open(&self.a);
                      EXPECT_EQ(status == ZOFF_OK, allocations_left >= 0);
                      zoff_agreement_consensus_close(&self.a);
                  }));
        ASSERT_ZOFF_OK(zoff_agreement_consensus_open(&self.a));
        ASSERT_ZOFF_OK(zoff_agreement_consensus_open(&self.a)) << "a second time";
        ASSERT_ZOFF_OK(zoff_agreement_consensus_gather(&self.a, all, 1));
        EXPECT_EQ(std::string("\1\2\3"), std::string((char *)all, 3));
    });
}
} // namespace
