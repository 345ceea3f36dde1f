// all_gather_test.cc: one rank's result goes to all ranks: the owners' new weights or, with replicated states, sums of
// gradients.
#include "batches.h"

using namespace zoff_test;

namespace
{
class AllGather : public testing::TestWithParam<unsigned>
{
};

INSTANTIATE_TEST_SUITE_P(Ranks, AllGather, testing::Values(2u, 3u, 5u), testing::PrintToStringParamName());

TEST_P(AllGather, BringsNewWeightsToAllRanks)
{
    each_rank<small_transfer>(GetParam(), [](small_transfer &self, unsigned rank) {
        add_all_types(self);
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        for (unsigned step = 0; step < 3; step++) {
            for (size_t i = 0; i < self.parts.m.slice_count; i++)
                self.parts.m.flags[i] = i % 3 == step ? 0 : ZOFF_SLICE_PRESENT;
            std::vector<float> before;
            for (size_t p = 0; p < self.parts.m.param_count; p++) {
                for (size_t slice = 0; slice < self.param(p).slices && self.param(p).count; slice++)
                    before.push_back(get(self.param(p).dtype, value(self, p, slice), 0));
            }
            update(self, step);
            ASSERT_NO_FATAL_FAILURE(gather(self, zoff_transfer_all_gather_weights));
            EXPECT_EQ(self.parts.plan.chunk_count, self.t.batch.spread);
            size_t at = 0;
            for (size_t p = 0; p < self.parts.m.param_count; p++) {
                for (size_t slice = 0; slice < self.param(p).slices && self.param(p).count; slice++, at++) {
                    if (self.flag(p, slice) && !self.param(p).frozen) {
                        expect_updated(self, p, slice, step);
                    } else {
                        EXPECT_EQ(before[at], get(self.param(p).dtype, value(self, p, slice), 0)) << "rank " << rank;
                    }
                }
            }
            for (size_t b = 0; b < self.parts.plan.chunk_count; b++)
                EXPECT_TRUE(self.t.walk.runs[b].gathered);
        }
    });
}

TEST_P(AllGather, OutsideOfAStepBringsAllWeights)
{
    each_rank<small_transfer>(GetParam(), [](small_transfer &self, unsigned) {
        add_all_types(self);
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        memset(self.parts.m.flags, ZOFF_SLICE_PRESENT, self.parts.m.slice_count);
        update(self, 7);
        memset(self.parts.m.flags, 0, self.parts.m.slice_count); // no slice has a gradient
        ASSERT_ZOFF_OK(zoff_transfer_all_gather_all(&self.t));
        EXPECT_FALSE(self.t.ranks.spreads_all);
        for (const auto &[p, slices] : {std::pair<size_t, size_t>{0, 3}, {1, 1}, {3, 5}, {5, 2}}) {
            for (size_t slice = 0; slice < slices; slice++)
                expect_updated(self, p, slice, 7);
        }
    });
}

// Small weights that the engine keeps whole on every rank.
TEST_P(AllGather, BringsWeightsThatArePersistent)
{
    each_rank<small_transfer>(GetParam(), [](small_transfer &self, unsigned rank) {
        zoff_param_desc d = describe("owned", 100, 2);
        d.engine_owned = true;
        self.parts.add(d);
        self.values.weights.persistent_slice = self.values.weights.persistent_count = 1000;
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        ASSERT_ZOFF_OK(zoff_lending_param_cache_open(&self.l));
        each_own_piece(self, [&](const zoff_plan_piece &piece) {
            for (size_t k = 0; k < piece.count; k++)
                put(ZOFF_F32, zoff_lending_param_cache_persistent(&self.l, &piece), k,
                    updated(0, piece.slice, piece.first + k, 1));
        });
        ASSERT_ZOFF_OK(zoff_transfer_all_gather_all(&self.t));
        for (size_t slice = 0; slice < 2; slice++) {
            for (size_t k = 0; k < 100; k++)
                EXPECT_EQ(updated(0, slice, k, 1), get(ZOFF_F32, self.l.cache.slices[slice].at, k)) << "rank " << rank;
        }
        zoff_lending_param_cache_close(&self.l);
    });
}

// Every rank has the states; each has summed a part of the gradients.
TEST_P(AllGather, ReplicatedStatesGatherSums)
{
    each_rank<small_transfer>(GetParam(), [](small_transfer &self, unsigned) {
        add_all_types(self);
        ASSERT_NO_FATAL_FAILURE(self.open(64, true));
        ASSERT_ZOFF_OK(zoff_transfer_all_gather_all(&self.t)) << "there is nothing to do";
        each_own_piece(self, [&](const zoff_plan_piece &piece) {
            for (size_t k = 0; k < piece.count; k++)
                zoff_transfer_pieces_sum(&self.t, &piece)[k] = updated(piece.param, piece.slice, piece.first + k, 3);
        });
        ASSERT_NO_FATAL_FAILURE(gather(self, zoff_transfer_all_gather_sums));
        size_t elements = 0;
        for (const zoff_plan_piece &piece : self.pieces()) {
            for (size_t k = 0; k < piece.count && !self.param(piece.param).frozen; k++, elements++)
                EXPECT_EQ(updated(piece.param, piece.slice, piece.first + k, 3), zoff_transfer_pieces_sum(&self.t, &piece)[k]);
        }
        EXPECT_EQ(50u * 3 + 200 + 5 + 154, elements);
        zoff_gather_opts opts = {};
        zoff_transfer_all_gather_of_sums(&self.t, &opts);
        EXPECT_EQ((uint32_t)ZOFF_COMM_ABOUT_SUMS, opts.about(&self.t, 4).about);
    });
}

TEST_P(AllGather, NeedsNoMoreThanItReserves)
{
    each_rank<small_transfer>(GetParam(), [](small_transfer &self, unsigned) {
        add_all_types(self);
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        self.t.ranks.spreads_all = true;
        const size_t most = zoff_transfer_all_gather_most(&self.t, &self.parts.plan);
        EXPECT_EQ(0u, most % 64);
        size_t everything = 0;
        for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
            size_t all = 0;
            for (unsigned rank = 0; rank < self.wire.size(); rank++) {
                const size_t bytes = zoff_transfer_all_gather_part_bytes(&self.t, b, rank);
                EXPECT_EQ(0u, bytes % 4) << "what follows may be wider";
                all += bytes;
            }
            EXPECT_LE(all, most);
            everything += all;
        }
        EXPECT_LE(50u * 3 * 2 + 200 * 4 + 5 * 4 + 154 * 2, everything);
        self.t.ranks.spreads_all = false;
        for (size_t b = 0; b < self.parts.plan.chunk_count; b++)
            EXPECT_EQ(0u, zoff_transfer_all_gather_part_bytes(&self.t, b, 0)) << "nothing has a gradient";
        zoff_gather_opts opts = {};
        zoff_transfer_all_gather_of_weights(&self.t, &opts);
        const zoff_comm_item about = opts.about(&self.t, 2);
        EXPECT_EQ((uint32_t)ZOFF_COMM_ABOUT_WEIGHTS, about.about);
        EXPECT_EQ(2u, about.index);
    });
}

// All ranks start buckets in the order of their walk.
TEST(AllGatherOrder, IsThatOfTheWalk)
{
    each_rank<small_transfer>(2, [](small_transfer &self, unsigned) {
        self.add(320);
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        memset(self.parts.m.flags, ZOFF_SLICE_PRESENT, self.parts.m.slice_count);
        ASSERT_LT(1u, self.parts.plan.chunk_count);
        zoff_bucket_run second = {};
        second.chunk = 1;
        EXPECT_EQ(ZOFF_PENDING, zoff_transfer_all_gather_weights(&self.t, &second));
        EXPECT_EQ(0u, self.t.batch.spread);
        update(self, 0);
        ASSERT_NO_FATAL_FAILURE(gather(self, zoff_transfer_all_gather_weights));
        expect_updated(self, 0, 0, 0);
        EXPECT_EQ(self.parts.plan.chunk_count, self.t.batch.updated);
    });
}

TEST(AllGatherPlace, StartsAtAMultipleOfItsElement)
{
    small_transfer self;
    self.add(7, 1, ZOFF_BF16);
    self.add(7, 1, ZOFF_F32);
    zoff_plan_piece half = {}, whole = {};
    half.count = 3;
    whole.param = 1;
    whole.count = 2;
    size_t at = 0;
    EXPECT_EQ(0u, zoff_transfer_all_gather_place(&self.t, &half, &at));
    EXPECT_EQ(8u, zoff_transfer_all_gather_place(&self.t, &whole, &at));
    EXPECT_EQ(16u, zoff_transfer_all_gather_place(&self.t, &half, &at));
    EXPECT_EQ(22u, at);
}
} // namespace
