// ranks_test.cc: the memory that a rank reserves for exchanges, the slices that its buckets wait for, and its count of sent
// bytes.
#include "allocation_fault.h"
#include "batches.h"

using namespace zoff_test;

namespace
{
TEST(RanksOpen, ReservesWhatItSaidItWould)
{
    each_rank<small_transfer>(3, [](small_transfer &self, unsigned) {
        add_all_types(self);
        ASSERT_NO_FATAL_FAILURE(self.open_pieces(64));
        zoff_transfer_wire_measure(&self.t);
        const uint64_t bytes = zoff_transfer_ranks_bytes(&self.t, &self.parts.plan);
        ASSERT_NO_FATAL_FAILURE(self.wire.open());
        ASSERT_ZOFF_OK(zoff_transfer_ranks_open(&self.t));
        EXPECT_EQ(bytes, self.t.ranks.staging.bytes);
        EXPECT_LE(3 * zoff_transfer_all_gather_most(&self.t, &self.parts.plan), bytes);
        EXPECT_EQ(0u, zoff_transfer_ranks_device_bytes(&self.t, &self.parts.plan));
        EXPECT_NE(nullptr, self.t.ranks.reduce);
        EXPECT_NE(nullptr, self.t.ranks.gather);
    });
}

TEST(RanksOpen, ReservesNothingForOneRank)
{
    small_transfer self;
    add_all_types(self);
    ASSERT_NO_FATAL_FAILURE(self.open(64));
    EXPECT_EQ(0u, zoff_transfer_ranks_bytes(&self.t, &self.parts.plan));
    EXPECT_EQ(nullptr, self.t.ranks.reduce);
    EXPECT_EQ(nullptr, self.t.ranks.staging.base);
    EXPECT_NE(nullptr, self.progress.first) << "it waits for its own vote";
}

TEST(RanksOpen, LeavesNothingBehindWithoutMemory)
{
    each_rank<small_transfer>(2, [](small_transfer &self, unsigned) {
        add_all_types(self);
        ASSERT_NO_FATAL_FAILURE(self.open_pieces(64));
        zoff_transfer_wire_measure(&self.t);
        ASSERT_NO_FATAL_FAILURE(self.wire.open());
        const int failed = fail_each_allocation([&self] {
            const zoff_status status = zoff_transfer_ranks_open(&self.t);
            EXPECT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_NO_MEMORY);
            EXPECT_EQ(status == ZOFF_OK, self.t.ranks.gather != nullptr);
            zoff_transfer_ranks_abandon(&self.t);
            zoff_transfer_ranks_close(&self.t);
            EXPECT_EQ(nullptr, self.progress.first);
            EXPECT_EQ(nullptr, self.t.ranks.part_bytes);
            EXPECT_EQ(nullptr, self.t.ranks.staging.base);
        });
        EXPECT_LE(4 + 9 + 3, failed);
        EXPECT_FALSE(self.wire.ranks->is_broken);
    });
}

TEST(RanksMissing, AreTheSlicesThatABucketHasAPartOf)
{
    each_rank<small_transfer>(3, [](small_transfer &self, unsigned) {
        add_all_types(self);
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        size_t counted = 0;
        for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
            std::set<size_t> slices;
            for (unsigned rank = 0; rank < 3; rank++) {
                zoff_plan_cursor part = zoff_zero_plan_part(&self.parts.plan, b, rank);
                zoff_plan_piece piece;
                while (zoff_zero_plan_next(&part, &piece)) {
                    if (!self.param(piece.param).frozen)
                        slices.insert(self.number_of(piece.param, piece.slice));
                }
            }
            EXPECT_EQ(slices.size(), self.t.walk.arrivals.slices[b]) << "bucket " << b;
            counted += slices.size();
        }
        EXPECT_LE(3u + 1 + 5 + 2, counted);
    });
}

class RanksCount : public testing::TestWithParam<bool>
{
};

INSTANTIATE_TEST_SUITE_P(States, RanksCount, testing::Bool(),
                         [](const auto &p) { return std::string(p.param ? "replicated" : "sharded"); });

TEST_P(RanksCount, IsWhatWasSentSinceTheStepBefore)
{
    const bool replicated = GetParam();
    each_rank<small_transfer>(3, [replicated](small_transfer &self, unsigned rank) {
        self.values.zero_stage = replicated ? 0 : 2;
        add_all_types(self);
        ASSERT_NO_FATAL_FAILURE(self.open(64, replicated));
        uint64_t gradients = 0, gathered = 0;
        for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
            for (unsigned other = 0; other < 3; other++)
                gradients += other == rank ? 0 : zoff_transfer_wire_part_bytes(&self.t, &self.parts.plan, b, other);
        }
        zoff_gather_opts opts = {};
        if (replicated)
            zoff_transfer_all_gather_of_sums(&self.t, &opts);
        else
            zoff_transfer_all_gather_of_weights(&self.t, &opts);
        batches all(self);
        for (int step = 0; step < 3; step++) {
            zoff_transfer_ranks_count_anew(&self.t);
            ASSERT_NO_FATAL_FAILURE(all.run(0));
            memset(self.parts.m.flags, ZOFF_SLICE_PRESENT, self.parts.m.slice_count);
            gathered = 0;
            for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
                gathered += 2 * opts.part_bytes(&self.t, b, rank);
                zoff_status status;
                while ((status = zoff_zero_gather_start(self.t.ranks.gather, b)) == ZOFF_PENDING) {
                    (void)zoff_zero_gather_poll(self.t.ranks.gather);
                    std::this_thread::yield();
                }
                ASSERT_ZOFF_OK(status);
            }
            ASSERT_ZOFF_OK(zoff_transfer_all_gather_finish(&self.t));
            zoff_transfer_ranks_count(&self.t, &self.info);
            EXPECT_EQ(gradients + (replicated ? gathered : 0), self.info.bytes.sent_gradients);
            EXPECT_EQ(replicated ? 0 : gathered, self.info.bytes.sent_weights);
            EXPECT_LE(gradients + gathered, self.info.bytes.sent) << "the order and weights of the micro-batch, too";
            EXPECT_LT(0u, self.info.bytes.received);
            self.t.batch.micro = 0;
            memset(self.parts.m.flags, 0, self.parts.m.slice_count);
        }
        zoff_transfer_ranks_count_anew(&self.t);
        zoff_transfer_ranks_count(&self.t, &self.info);
        EXPECT_EQ(0u, self.info.bytes.sent + self.info.bytes.received + self.info.bytes.sent_gradients +
                          self.info.bytes.sent_weights);
    });
}
} // namespace
