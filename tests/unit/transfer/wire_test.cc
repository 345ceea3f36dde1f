// wire_test.cc: which elements go to other ranks, in which type, and their place in the part of a rank.
#include "small_transfer.h"

using namespace zoff_test;

namespace
{
TEST(WirePlace, StartsAtAMultipleOfItsElement)
{
    size_t at = 0;
    EXPECT_EQ(0u, zoff_transfer_wire_place(&at, 3, 2));
    EXPECT_EQ(6u, at);
    EXPECT_EQ(8u, zoff_transfer_wire_place(&at, 1, 4));
    EXPECT_EQ(12u, at);
    EXPECT_EQ(12u, zoff_transfer_wire_place(&at, 0, 4));
    EXPECT_EQ(12u, at);
    EXPECT_EQ(12u, zoff_transfer_wire_place(&at, 5, 2));
    EXPECT_EQ(22u, at);
}

TEST(WireMeasure, FindsTheWidestElements)
{
    small_transfer self;
    zoff_transfer_wire_measure(&self.t);
    EXPECT_EQ(0u, self.t.ranks.widest_weight);
    EXPECT_EQ(0u, self.t.ranks.widest_gradient);
    self.add(8, 1, ZOFF_BF16, ZOFF_BF16);
    zoff_transfer_wire_measure(&self.t);
    EXPECT_EQ(2u, self.t.ranks.widest_weight);
    EXPECT_EQ(2u, self.t.ranks.widest_gradient);
    self.add(8, 1, ZOFF_F32, ZOFF_F32, true); // no rank has its gradient
    zoff_transfer_wire_measure(&self.t);
    EXPECT_EQ(4u, self.t.ranks.widest_weight);
    EXPECT_EQ(2u, self.t.ranks.widest_gradient);
    self.add(8, 1, ZOFF_BF16, ZOFF_F32);
    zoff_transfer_wire_measure(&self.t);
    EXPECT_EQ(4u, self.t.ranks.widest_gradient);
    self.values.wire_dtype = ZOFF_F16;
    zoff_transfer_wire_measure(&self.t);
    EXPECT_EQ(2u, self.t.ranks.widest_gradient);
}

class Wire : public testing::TestWithParam<std::tuple<unsigned, zoff_dtype>>
{
};

INSTANTIATE_TEST_SUITE_P(Ranks, Wire,
                         testing::Combine(testing::Values(1u, 2u, 3u, 7u), testing::Values(ZOFF_DTYPE_DEFAULT, ZOFF_BF16)),
                         [](const auto &p) {
                             return std::to_string(std::get<0>(p.param)) +
                                    (std::get<1>(p.param) == ZOFF_BF16 ? "_ranks_bf16" : "_ranks");
                         });

struct lists {
    std::vector<size_t> bytes, rows;
};

// A list of all types, as rank 0 of several sees it.
void prepare(small_transfer &self, unsigned ranks, lists &rows)
{
    self.add(21, 3, ZOFF_BF16, ZOFF_BF16);
    self.add(100, 1, ZOFF_F32, ZOFF_F32);
    self.add(50, 2, ZOFF_F32, ZOFF_F32, true);
    self.add(1, 9, ZOFF_F16, ZOFF_F32);
    self.add(77, 1, ZOFF_F32, ZOFF_F16);
    self.parts.make_plan(48, 0, ranks);
    ASSERT_ZOFF_OK(zoff_model_slices_open(&self.parts.m, &self.parts.plan));
    zoff_transfer_wire_measure(&self.t);
    rows.bytes.resize(ZOFF_PART_ROWS * ranks);
    rows.rows.assign(ZOFF_PART_ROWS, SIZE_MAX);
    self.t.ranks.part_bytes = rows.bytes.data();
    self.t.ranks.part_rows = rows.rows.data();
}
void leave(small_transfer &self)
{
    self.t.ranks.part_bytes = self.t.ranks.part_rows = nullptr; // memory of the test
}

size_t element_bytes(const small_transfer &self, const zoff_plan_piece &run, zoff_dtype wire)
{
    const zoff_dtype dtype = wire != ZOFF_DTYPE_DEFAULT ? wire : self.param(run.param).grad_dtype;
    return dtype == ZOFF_F32 ? 4 : 2;
}

size_t most_of(const zoff_transfer *t, const zoff_plan *plan, size_t bucket)
{
    size_t part, all;
    zoff_transfer_wire_most(t, plan, bucket, &part, &all);
    return all;
}

TEST_P(Wire, PartsHaveWhatARankOwns)
{
    const auto [ranks, wire] = GetParam();
    small_transfer self;
    self.values.wire_dtype = wire;
    lists rows;
    ASSERT_NO_FATAL_FAILURE(prepare(self, ranks, rows));
    const zoff_plan &plan = self.parts.plan;
    size_t everything = 0;
    for (size_t b = 0; b < plan.chunk_count; b++) {
        size_t all = 0;
        for (unsigned rank = 0; rank < ranks; rank++) {
            size_t at = 0, elements = 0;
            for (size_t i = 0; i < plan.chunks[b].run_count; i++) {
                const zoff_plan_piece &run = plan.runs[plan.chunks[b].first_run + i];
                size_t first;
                const size_t count = zoff_zero_plan_share(&plan, &run, rank, &first);
                if (!count || self.param(run.param).frozen)
                    continue;
                const size_t bytes = element_bytes(self, run, wire);
                at = (at + bytes - 1) / bytes * bytes + count * bytes;
                elements += count;
            }
            const size_t widest = wire == ZOFF_BF16 ? 2 : 4;
            EXPECT_EQ((at + widest - 1) / widest * widest, zoff_transfer_wire_part_bytes(&self.t, &plan, b, rank));
            all += zoff_transfer_wire_part_bytes(&self.t, &plan, b, rank);
            everything += elements;
        }
        EXPECT_LE(all, most_of(&self.t, &plan, b)) << "bucket " << b;
    }
    EXPECT_EQ(21u * 3 + 100 + 9 + 77, everything);
    leave(self);
}

// The rows of the last buckets stay, so a second call for one of them gets the same.
TEST_P(Wire, PartsAreRememberedByBucket)
{
    const auto [ranks, wire] = GetParam();
    small_transfer self;
    self.values.wire_dtype = wire;
    lists rows;
    ASSERT_NO_FATAL_FAILURE(prepare(self, ranks, rows));
    ASSERT_LT(0u, self.parts.plan.chunk_count);
    for (size_t i = 0; i < 60; i++) {
        const size_t b = i * 7 % self.parts.plan.chunk_count;
        const size_t *parts = zoff_transfer_wire_parts(&self.t, b);
        EXPECT_EQ(parts, zoff_transfer_wire_parts(&self.t, b));
        for (unsigned rank = 0; rank < ranks; rank++)
            EXPECT_EQ(zoff_transfer_wire_part_bytes(&self.t, &self.parts.plan, b, rank), parts[rank]);
    }
    const size_t *parts = zoff_transfer_wire_parts(&self.t, 0);
    const size_t before = parts[0];
    self.t.ranks.part_bytes[0] = 12345;
    EXPECT_EQ(12345u, zoff_transfer_wire_parts(&self.t, 0)[0]) << "it is looked up, not counted again";
    self.t.ranks.part_rows[0] = SIZE_MAX;
    EXPECT_EQ(before, zoff_transfer_wire_parts(&self.t, 0)[0]);
    leave(self);
}

TEST(WireTakes, WeightsThatChangeAndAreWholeEverywhere)
{
    small_transfer self;
    const zoff_param trained = self.add(8, 2), frozen = self.add(8, 1, ZOFF_F32, ZOFF_F32, true);
    zoff_param_desc d = describe("owned", 8, 2);
    d.engine_owned = true;
    const zoff_param owned = self.parts.add(d);
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(1024));
    const auto takes = [&](zoff_param p, size_t slice, bool all) {
        zoff_plan_piece piece = {};
        piece.param = p;
        piece.slice = slice;
        const bool now = zoff_transfer_wire_takes(&self.t, &piece, all);
        self.t.ranks.spreads_all = all;
        EXPECT_EQ(now, zoff_transfer_wire_takes_now(&self.t, &piece));
        return now;
    };
    self.flag(trained, 1) = self.flag(owned, 0) = self.flag(owned, 1) = self.flag(frozen) = ZOFF_SLICE_PRESENT;
    EXPECT_FALSE(takes(trained, 0, false)) << "it has no gradient";
    EXPECT_TRUE(takes(trained, 1, false));
    EXPECT_TRUE(takes(trained, 0, true));
    EXPECT_FALSE(takes(frozen, 0, false));
    EXPECT_TRUE(takes(frozen, 0, true));
    EXPECT_FALSE(takes(owned, 0, true)) << "nothing is persistent";
    std::vector<zoff_cached_slice> slices(self.parts.m.slice_count);
    slices[self.number_of(owned, 1)].persistent = true;
    self.l.cache.slices = slices.data();
    EXPECT_FALSE(takes(owned, 0, true));
    EXPECT_TRUE(takes(owned, 1, true));
    EXPECT_TRUE(takes(owned, 1, false));
    self.flag(owned, 1) = 0;
    EXPECT_FALSE(takes(owned, 1, false));
}

TEST(WireWait, IsForOtherRanksOrForAVote)
{
    small_transfer self;
    zoff_transfer_wire_watch(&self.t);
    zoff_poller &poller = self.t.pollers.ranks;
    EXPECT_EQ(&poller, self.progress.first);
    EXPECT_FALSE(poller.is_busy(poller.ctx));
    self.t.measure.votes = true;
    EXPECT_TRUE(poller.is_busy(poller.ctx));
    int asked = 0;
    const auto until = [](void *ctx) { return ++*(int *)ctx < 3 ? ZOFF_PENDING : ZOFF_OK; };
    ASSERT_ZOFF_OK(zoff_transfer_wire_wait_until(&self.t, until, &asked));
    EXPECT_EQ(3, asked);
    EXPECT_LT(0.0, self.info.seconds.comm_wait);
    zoff_transfer_wire_unwatch(&self.t);
    EXPECT_EQ(nullptr, self.progress.first);
    each_rank<small_transfer>(2, [](small_transfer &two, unsigned) {
        zoff_transfer_wire_watch(&two.t);
        EXPECT_TRUE(two.t.pollers.ranks.is_busy(&two.t)) << "another rank may send at any time";
    });
}
} // namespace
