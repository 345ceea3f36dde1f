// measure_test.cc: the sums of squares that a rank measures are exact in any order, and a gradient that is not finite is named.
#include "small_transfer.h"

#include <algorithm>
#include <math.h>
#include <random>
#include <tuple>
#include <vector>

using namespace zoff_test;

namespace
{
double total(const small_transfer &self)
{
    return zoff_base_exact_value(&self.t.measure.vote.squares);
}

zoff_plan_piece piece_of(zoff_param p, size_t slice, size_t first, size_t count)
{
    zoff_plan_piece piece = {};
    piece.param = p;
    piece.slice = slice;
    piece.first = first;
    piece.count = count;
    return piece;
}

// A sum of doubles differs in any other order.
TEST(MeasureAdd, IsExact)
{
    const double blocks[] = {1e300, 1, 1e-300, 3.5, 1e16};
    small_transfer self;
    self.add(8);
    for (const bool backwards : {false, true}) {
        zoff_transfer_measure_begin(&self.t);
        EXPECT_EQ(0.0, total(self));
        for (size_t i = 0; i < 4; i++) {
            const size_t k = backwards ? 3 - i : i;
            const zoff_plan_piece piece = piece_of(0, 0, k * ZOFF_NORM_BLOCK, k == 3 ? 2 * ZOFF_NORM_BLOCK : ZOFF_NORM_BLOCK);
            zoff_transfer_measure_add(&self.t, &piece, blocks + k);
        }
        const zoff_plan_piece none = piece_of(0, 0, 0, 0);
        zoff_transfer_measure_add(&self.t, &none, blocks);
        EXPECT_EQ(1e300, total(self));
        EXPECT_FALSE(self.t.measure.vote.poisoned);
    }
    zoff_transfer_measure_begin(&self.t);
    const zoff_plan_piece piece = piece_of(0, 0, 0, ZOFF_NORM_BLOCK + 1); // two blocks
    const double small[] = {9007199254740992.0, 1};
    zoff_transfer_measure_add(&self.t, &piece, small);
    zoff_transfer_measure_add(&self.t, &piece, small);
    EXPECT_EQ(18014398509481986.0, total(self)) << "2^54 + 2";
}

// In the order of parameters, slices and elements, in whichever order they are measured: a random one, some of them twice.
TEST(MeasureAdd, NamesTheFirstBlockThatIsNotFinite)
{
    small_transfer self;
    for (int i = 0; i < 8; i++)
        self.add(8);
    const double blocks[] = {2, INFINITY, NAN, 3};
    std::vector<zoff_plan_piece> pieces;
    for (const zoff_param p : {1u, 5u, 7u})
        for (const size_t slice : {2, 5})
            for (const size_t first : {0, 4096})
                pieces.push_back(piece_of(p, slice, first, 4 * ZOFF_NORM_BLOCK));
    std::mt19937 random(17);
    for (int order = 0; order < 200; order++) {
        std::shuffle(pieces.begin(), pieces.end(), random);
        zoff_transfer_measure_begin(&self.t);
        const size_t count = 1 + random() % pieces.size();
        const auto before = [](const zoff_plan_piece &a, const zoff_plan_piece &b) {
            return std::tie(a.param, a.slice, a.first) < std::tie(b.param, b.slice, b.first);
        };
        const zoff_plan_piece first = *std::min_element(pieces.begin(), pieces.begin() + (ptrdiff_t)count, before);
        for (size_t i = 0; i < count; i++)
            zoff_transfer_measure_add(&self.t, &pieces[i], blocks);
        const zoff_vote &vote = self.t.measure.vote;
        ASSERT_TRUE(vote.poisoned);
        ASSERT_FALSE(vote.rank_is_known);
        ASSERT_EQ(first.param, vote.param);
        ASSERT_EQ(first.slice, vote.slice);
        ASSERT_EQ(first.first + ZOFF_NORM_BLOCK, vote.first);
        ASSERT_EQ(5.0 * (double)count, total(self)) << "finite blocks count all the same";
    }
    zoff_transfer_measure_begin(&self.t);
    EXPECT_FALSE(self.t.measure.vote.poisoned);
    EXPECT_EQ(0u, self.t.measure.buckets);
}

// A replicated parameter counts on another rank of zoff_engine_opts.norm_comm. It must be finite here, too.
TEST(MeasureAdd, SquaresThatCountElsewhereAreLeftOut)
{
    small_transfer self;
    self.add(8);
    self.add(8);
    self.parts.m.params[0].counts_elsewhere = true;
    zoff_transfer_measure_begin(&self.t);
    const double blocks[] = {2, INFINITY};
    const zoff_plan_piece elsewhere = piece_of(0, 0, 0, 8), here = piece_of(1, 0, 0, 8);
    zoff_transfer_measure_add(&self.t, &elsewhere, blocks);
    zoff_transfer_measure_add(&self.t, &here, blocks);
    EXPECT_EQ(2.0, total(self));
    EXPECT_FALSE(self.t.measure.vote.poisoned);
    zoff_transfer_measure_add(&self.t, &elsewhere, blocks + 1);
    EXPECT_TRUE(self.t.measure.vote.poisoned);
}

TEST(MeasureBegin, VotesAsThisRank)
{
    each_rank<small_transfer>(3, [](small_transfer &self, unsigned rank) {
        zoff_transfer_measure_begin(&self.t);
        EXPECT_EQ(rank, self.t.measure.vote.rank);
    });
}

TEST(MeasureBucket, ASingleRankMeasuresSlicesThatTakePart)
{
    small_transfer self;
    self.add(3000, 3, ZOFF_F32, ZOFF_BF16);
    self.add(40, 1, ZOFF_F32, ZOFF_F32, true);
    self.add(1500, 2, ZOFF_F16, ZOFF_F32);
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(1024));
    double want = 0;
    uint64_t bytes = 0;
    for (const auto &[p, slice] : {std::pair<size_t, size_t>{0, 0}, {0, 2}, {2, 1}, {0, 1}, {2, 0}}) {
        const double squares = fill_with_integers(self, p, slice);
        if (p + slice == 1 || (p == 2 && slice == 0))
            continue; // those have no gradient in this step
        self.flag(p, slice) = ZOFF_SLICE_PRESENT;
        want += squares;
    }
    self.flag(1) = ZOFF_SLICE_PRESENT;
    zoff_transfer_measure_begin(&self.t);
    for (size_t b = 0; b < self.parts.plan.chunk_count; b++)
        zoff_transfer_measure_bucket(&self.t, b, nullptr, nullptr, &bytes);
    EXPECT_EQ(want, total(self));
    EXPECT_EQ(self.parts.plan.chunk_count, self.t.measure.buckets);
    EXPECT_EQ(2u * 3000 * 2 + 1500 * 4, bytes);
}

TEST(MeasureBucket, ASingleRankLetsTheOwnerContinue)
{
    small_transfer self;
    self.add(200 * 1024);
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(1 << 20));
    self.flag(0) = ZOFF_SLICE_PRESENT;
    uint64_t bytes = 0;
    int calls = 0;
    zoff_transfer_measure_bucket(
        &self.t, 0, [](void *ctx) { ++*static_cast<int *>(ctx); }, &calls, &bytes);
    EXPECT_EQ(3, calls);
}

// This rank's part, also of gradients that only another rank has.
TEST(MeasureBucket, SeveralRanksMeasureAllTrainedSlices)
{
    std::atomic<uint64_t> all{0};
    each_rank<small_transfer>(2, [&all](small_transfer &self, unsigned) {
        self.add(200 * 1024);
        self.add(300, 2);
        self.add(40, 1, ZOFF_F32, ZOFF_F32, true);
        ASSERT_NO_FATAL_FAILURE(self.open_pieces(1 << 20));
        double want = 0;
        uint64_t bytes = 0, elements = 0;
        zoff_transfer_measure_begin(&self.t);
        for (const zoff_plan_piece &piece : self.pieces()) {
            for (size_t k = 0; k < piece.count && !self.param(piece.param).frozen; k++) {
                const float g = (float)((int)(piece.slice * 300 + piece.first + k) % 23 - 7);
                zoff_transfer_pieces_sum(&self.t, &piece)[k] = g;
                want += (double)g * g;
                elements++;
            }
        }
        for (size_t b = 0; b < self.parts.plan.chunk_count; b++)
            zoff_transfer_measure_bucket(&self.t, b, nullptr, nullptr, &bytes);
        EXPECT_EQ(want, total(self));
        EXPECT_EQ(elements * 4, bytes);
        all += elements;
    });
    EXPECT_EQ(200u * 1024 + 600, all);
}
} // namespace
