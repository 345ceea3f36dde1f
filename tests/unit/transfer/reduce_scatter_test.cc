// reduce_scatter_test.cc: gradients of all ranks go to the rank that owns their sum. The sum has the bits of a plain loop over
// micro-batches and ranks.
#include "batches.h"

using namespace zoff_test;

namespace
{
double weight_of(unsigned rank, unsigned round)
{
    return 0.25 + 1.5 * rank + 0.125 * round;
}

struct cell {
    unsigned ranks, stage;
    zoff_dtype wire;
    uint32_t micro_steps;
};
void PrintTo(const cell &c, std::ostream *out)
{
    *out << c.ranks << " ranks, stage " << c.stage << ", wire " << c.wire << ", " << c.micro_steps << " micro-steps";
}

class ReduceScatter : public testing::TestWithParam<cell>
{
};

INSTANTIATE_TEST_SUITE_P(Cells, ReduceScatter,
                         testing::Values(cell{2, 2, ZOFF_DTYPE_DEFAULT, 1}, cell{2, 1, ZOFF_BF16, 3},
                                         cell{2, 0, ZOFF_DTYPE_DEFAULT, 2}, cell{3, 2, ZOFF_F32, 2}, cell{3, 0, ZOFF_F16, 1},
                                         cell{5, 2, ZOFF_DTYPE_DEFAULT, 3}, cell{5, 1, ZOFF_F32, 1}));

TEST_P(ReduceScatter, AddsUpMicroBatchByMicroBatchAndRankByRank)
{
    const cell c = GetParam();
    std::atomic<size_t> elements{0};
    each_rank<small_transfer>(c.ranks, [&](small_transfer &self, unsigned rank) {
        self.values.zero_stage = c.stage;
        self.values.accumulation = c.micro_steps;
        self.values.wire_dtype = c.wire;
        self.values.grad_factor = 0.75;
        add_all_types(self);
        ASSERT_NO_FATAL_FAILURE(self.open(64, c.stage == 0));
        batches all(self);
        for (int step = 0; step < 2; step++) { // the second one in the order that ranks have learned
            zoff_transfer_measure_begin(&self.t);
            for (unsigned round = 0; round < c.micro_steps; round++) {
                ASSERT_NO_FATAL_FAILURE(all.run(round, weight_of(rank, round)));
                const bool is_last = round + 1 == c.micro_steps;
                EXPECT_EQ(is_last ? self.parts.plan.chunk_count : 0, self.t.measure.buckets);
                double weights = 0;
                for (unsigned r = 0; r < c.ranks; r++)
                    weights += (float)(weight_of(r, round) * 0.75);
                EXPECT_EQ(weights, zoff_transfer_reduce_scatter_total_weight(&self.t));
            }
            double squares = 0;
            each_own_piece(self, [&](const zoff_plan_piece &piece) {
                const float *sum = zoff_transfer_pieces_sum(&self.t, &piece);
                for (size_t k = 0; k < piece.count; k++) {
                    const float want = sum_of(self, piece.param, piece.slice, piece.first + k, c.micro_steps, weight_of);
                    EXPECT_EQ(want, sum[k]) << "parameter " << piece.param << ", element " << piece.first + k;
                    squares += (double)want * want;
                    elements += step == 0;
                }
            });
            EXPECT_NEAR(squares, zoff_base_exact_value(&self.t.measure.vote.squares), squares * 1e-12);
            self.t.batch.micro = 0;
            memset(self.parts.m.flags, 0, self.parts.m.slice_count);
        }
        for (size_t i = 0; i < self.t.grads.count; i++)
            EXPECT_TRUE(zoff_transfer_arena_is_idle(&self.t.grads.arena, self.t.grads.extents[i].first))
                << "what is packed needs no memory";
    });
    EXPECT_EQ(50u * 3 + 200 + 5 + 154, elements) << "each element has one owner";
}

// From stage 2 on gradients are sent while the trainer computes others.
TEST(ReduceScatterBucket, IsDoneWhenAllRanksHaveItsGradients)
{
    std::atomic<bool> has_waited{false};
    each_rank<small_transfer>(2, [&](small_transfer &self, unsigned rank) {
        self.values.zero_stage = 2;
        self.add(32, 3);
        ASSERT_NO_FATAL_FAILURE(self.open(16));
        ASSERT_EQ(3u, self.parts.plan.chunk_count);
        zoff_bucket_run last = {}, first = {};
        last.chunk = 2;
        batches all(self);
        all.begin();
        EXPECT_FALSE(zoff_transfer_reduce_scatter_go_on(&self.t)) << "nothing is under way";
        while (rank == 1 && !has_waited)
            std::this_thread::yield();
        ASSERT_NO_FATAL_FAILURE(all.hand_over(0, 2, 0));
        if (rank == 0) {
            EXPECT_TRUE(zoff_transfer_reduce_scatter_go_on(&self.t));
            EXPECT_EQ(ZOFF_PENDING, zoff_transfer_reduce_scatter_bucket(&self.t, &last));
        }
        has_waited = true;
        zoff_status status;
        while ((status = zoff_transfer_reduce_scatter_bucket(&self.t, &last)) == ZOFF_PENDING)
            std::this_thread::yield();
        ASSERT_ZOFF_OK(status);
        EXPECT_EQ(ZOFF_PENDING, zoff_transfer_reduce_scatter_bucket(&self.t, &first)) << "its gradients are not there";
        ASSERT_NO_FATAL_FAILURE(all.end());
        EXPECT_EQ(ZOFF_OK, zoff_transfer_reduce_scatter_bucket(&self.t, &first));
    });
}

// The error of a gradient that is not finite names its rank and its place.
TEST(ReduceScatterBlame, IsOnTheRankWhoseGradientIsNotFinite)
{
    for (const bool counts : {true, false}) {
        std::atomic<int> poisoned{0};
        each_rank<small_transfer>(3, [&](small_transfer &self, unsigned rank) {
            self.values.zero_stage = 2;
            self.add(40);
            self.add(3000, 2, ZOFF_BF16, ZOFF_BF16);
            ASSERT_NO_FATAL_FAILURE(self.open(4096));
            batches all(self);
            all.begin(rank == 1 && !counts ? 0 : 1);
            for (const auto &[p, slice] : {std::pair<size_t, size_t>{1, 1}, {1, 0}, {0, 0}}) {
                self.make_gradient(p, slice, 0);
                if (rank == 1 && p == 1 && slice == 1)
                    put(ZOFF_BF16, self.param(1).grad + self.param(1).grad_stride, 2345, INFINITY);
                ASSERT_ZOFF_OK(zoff_transfer_intake_take(&self.t, (zoff_param)p, slice, nullptr));
                self.t.route.link->taken(&self.t, (zoff_param)p, slice);
            }
            ASSERT_NO_FATAL_FAILURE(all.end());
            const zoff_vote &vote = self.t.measure.vote;
            poisoned += vote.poisoned;
            if (!vote.poisoned)
                return;
            EXPECT_TRUE(vote.rank_is_known);
            EXPECT_EQ(1u, vote.rank);
            EXPECT_EQ(1u, vote.param);
            EXPECT_EQ(1u, vote.slice);
            EXPECT_LE(vote.first, 2345u);
            EXPECT_LT(2345u, vote.first + ZOFF_NORM_BLOCK);
        });
        EXPECT_EQ(counts ? 1 : 0, poisoned) << "only its owner sees it; with weight 0 it counts as zeros";
    }
}

// A rank may begin a micro-batch again, where another one does not: after a drop that has failed there. The blocks of copies
// that all compare follow from what they have exchanged.
TEST(ReduceScatterCopies, AreComparedInTheSameBlocksByAllRanks)
{
    enum { STEPS = 4, COUNT = 100 * ZOFF_NORM_BLOCK };
    std::vector<uint64_t> sums[2];
    each_rank<small_transfer>(2, [&](small_transfer &self, unsigned rank) {
        self.add(COUNT);
        self.parts.m.params[0].reduced = true;
        ASSERT_NO_FATAL_FAILURE(self.open(COUNT));
        ASSERT_ZOFF_OK(zoff_transfer_measure_open(&self.t));
        for (size_t k = 0; k < COUNT; k++)
            put(ZOFF_F32, self.param(0).grad, k, (float)k);
        batches all(self);
        for (unsigned step = 0; step < STEPS; step++) {
            for (unsigned again = 0; rank == 0 && again < step; again++)
                all.begin();
            all.begin();
            ASSERT_ZOFF_OK(zoff_transfer_intake_take(&self.t, 0, 0, nullptr));
            self.t.route.link->taken(&self.t, 0, 0);
            ASSERT_NO_FATAL_FAILURE(all.end());
            sums[rank].push_back(self.t.measure.alike[0].copies);
            self.t.batch.micro = 0;
            self.flag(0) = 0;
        }
        zoff_transfer_measure_close(&self.t);
    });
    EXPECT_EQ((size_t)STEPS, sums[0].size());
    EXPECT_EQ(sums[0], sums[1]);
}

TEST(ReduceScatterAlone, WeighsWhatIsAddedUp)
{
    small_transfer self;
    self.add(40);
    ASSERT_NO_FATAL_FAILURE(self.open(16));
    zoff_transfer_reduce_scatter_begin(&self.t);
    EXPECT_EQ(1.0f, self.t.batch.weight);
    zoff_transfer_reduce_scatter_weigh(&self.t, 2.5);
    EXPECT_EQ(1.0, zoff_transfer_reduce_scatter_total_weight(&self.t)) << "a single gradient is taken as it is";
    self.values.accumulation = 2;
    self.choose();
    EXPECT_EQ(2.5, zoff_transfer_reduce_scatter_total_weight(&self.t));
    EXPECT_FALSE(zoff_transfer_reduce_scatter_go_on(&self.t));
    zoff_transfer_reduce_scatter_mark(&self.t, 0, 0);
    zoff_transfer_reduce_scatter_close(&self.t);
}

TEST(ReduceScatterHandOver, LetsEachBucketOfTheSliceTakeItsPart)
{
    small_transfer self;
    self.add(40, 2, ZOFF_F32, ZOFF_F32, false, false);
    ASSERT_NO_FATAL_FAILURE(self.open(16)); // a slice is in three buckets
    char *at;
    ASSERT_ZOFF_OK(zoff_transfer_intake_lend(&self.t, self.t.route.lent, 0, 160, &at));
    zoff_transfer_reduce_scatter_hand_over(&self.t, 0, 0);
    EXPECT_EQ(3u, self.t.grads.slots[0].waits_for);
    zoff_transfer_reduce_scatter_hand_over(&self.t, 0, 1);
    EXPECT_EQ(0u, self.t.grads.slots[1].waits_for) << "it has no memory of the engine";
    zoff_transfer_reduce_scatter_begin(&self.t);
    EXPECT_EQ(nullptr, zoff_transfer_arena_at(&self.t.grads, 0)) << "the next micro-batch has others";
}

// Parts for which no rank has a gradient.
TEST(ReduceScatterParts, MayBeEmpty)
{
    small_transfer self;
    self.add(40);
    ASSERT_NO_FATAL_FAILURE(self.open(16));
    size_t moves = 7;
    ASSERT_ZOFF_OK(zoff_transfer_reduce_scatter_list_parts(&self.t, 0, nullptr, &moves));
    EXPECT_EQ(0u, moves);
}
} // namespace
