/* SPDX-License-Identifier: Apache-2.0 */
// measure_test.cc: the sums of squares that a rank measures are exact in any order, and a gradient that is not finite is named.
#include "small_model.h"

extern "C" {
#include "transfer.h"
}

#include <algorithm>
#include <math.h>
#include <random>
#include <tuple>
#include <vector>

using namespace zoff_test;

namespace
{
// A rank with so many parameters, whose gradients are nowhere.
struct measured {
    explicit measured(int params)
    {
        for (int i = 0; i < params; i++)
            parts.add(describe("p", 8));
        t.model = &parts.m;
        t.comm = &comm;
    }
    double total() const { return zoff_base_exact_value(&t.measure.vote.squares); }
    small_model parts;
    zoff_comm comm = {};
    zoff_transfer t = {};
};

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
    measured self(1);
    for (const bool backwards : {false, true}) {
        zoff_transfer_measure_begin(&self.t);
        EXPECT_EQ(0.0, self.total());
        for (size_t i = 0; i < 4; i++) {
            const size_t k = backwards ? 3 - i : i;
            const zoff_plan_piece piece = piece_of(0, 0, k * ZOFF_NORM_BLOCK, k == 3 ? 2 * ZOFF_NORM_BLOCK : ZOFF_NORM_BLOCK);
            zoff_transfer_measure_add(&self.t, &piece, blocks + k);
        }
        const zoff_plan_piece none = piece_of(0, 0, 0, 0);
        zoff_transfer_measure_add(&self.t, &none, blocks);
        EXPECT_EQ(1e300, self.total());
        EXPECT_FALSE(self.t.measure.vote.poisoned);
    }
    zoff_transfer_measure_begin(&self.t);
    const zoff_plan_piece piece = piece_of(0, 0, 0, ZOFF_NORM_BLOCK + 1); // two blocks
    const double small[] = {9007199254740992.0, 1};
    zoff_transfer_measure_add(&self.t, &piece, small);
    zoff_transfer_measure_add(&self.t, &piece, small);
    EXPECT_EQ(18014398509481986.0, self.total()) << "2^54 + 2";
}

// In the order of parameters, slices and elements, in whichever order they are measured: a random one, some of them twice.
TEST(MeasureAdd, NamesTheFirstBlockThatIsNotFinite)
{
    measured self(8);
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
        ASSERT_EQ(5.0 * (double)count, self.total()) << "finite blocks count all the same";
    }
    zoff_transfer_measure_begin(&self.t);
    EXPECT_FALSE(self.t.measure.vote.poisoned);
    EXPECT_EQ(0u, self.t.measure.buckets);
}

// A replicated parameter counts on another rank of zoff_engine_opts.norm_comm. It must be finite here, too.
TEST(MeasureAdd, SquaresThatCountElsewhereAreLeftOut)
{
    measured self(2);
    self.parts.m.params[0].counts_elsewhere = true;
    zoff_transfer_measure_begin(&self.t);
    const double blocks[] = {2, INFINITY};
    const zoff_plan_piece elsewhere = piece_of(0, 0, 0, 8), here = piece_of(1, 0, 0, 8);
    zoff_transfer_measure_add(&self.t, &elsewhere, blocks);
    zoff_transfer_measure_add(&self.t, &here, blocks);
    EXPECT_EQ(2.0, self.total());
    EXPECT_FALSE(self.t.measure.vote.poisoned);
    zoff_transfer_measure_add(&self.t, &elsewhere, blocks + 1);
    EXPECT_TRUE(self.t.measure.vote.poisoned);
}
} // namespace
