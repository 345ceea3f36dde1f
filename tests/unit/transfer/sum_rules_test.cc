// sum_rules_test.cc: who adds up the gradients of all ranks: the rank that owns the sum, or the communicator. Each rule has its
// own types, lengths and terms.
#include "device_transfer.h"

#include <math.h>

using namespace zoff_test;

namespace
{
const zoff_sum_rule &ORDERED = zoff_transfer_sum_rules_ordered, &ADDED = zoff_transfer_sum_rules_added;

// A list of several types, with the plan of rank 0 of several.
void prepare(small_transfer &self, unsigned ranks)
{
    self.add(50, 3, ZOFF_BF16, ZOFF_BF16);
    self.add(100, 2, ZOFF_F32, ZOFF_F32);
    self.add(20, 1, ZOFF_F32, ZOFF_F32, true);
    self.add(3, 7, ZOFF_F16, ZOFF_F16);
    self.parts.make_plan(64, 0, ranks);
    ASSERT_ZOFF_OK(zoff_model_slices_open(&self.parts.m, &self.parts.plan));
    zoff_transfer_wire_measure(&self.t);
}

TEST(SumRulesOrdered, SendWhatEachRankHas)
{
    small_transfer self;
    ASSERT_NO_FATAL_FAILURE(prepare(self, 3));
    EXPECT_STREQ("ordered", ORDERED.name);
    EXPECT_FALSE(ORDERED.adds);
    EXPECT_EQ(ZOFF_BF16, ORDERED.dtype(&self.t, &self.param(0)));
    EXPECT_EQ(ZOFF_F32, ORDERED.dtype(&self.t, &self.param(1)));
    self.values.wire_dtype = ZOFF_F16;
    EXPECT_EQ(ZOFF_F16, ORDERED.dtype(&self.t, &self.param(0)));
    EXPECT_EQ(ZOFF_F16, ORDERED.dtype(&self.t, &self.param(1)));
    EXPECT_EQ(4u, ORDERED.align(&self.t));
    self.t.ranks.widest_gradient = 0; // nothing is trained
    EXPECT_EQ(1u, ORDERED.align(&self.t));
    size_t bytes[] = {5, 0, 7};
    ORDERED.level(bytes, 3);
    EXPECT_EQ((std::vector<size_t>{5, 0, 7}), std::vector<size_t>(bytes, bytes + 3)) << "each part is as long as it is";
    char behind[] = "behind";
    ASSERT_ZOFF_OK(ORDERED.pad(&self.t, behind, sizeof behind));
    EXPECT_STREQ("behind", behind);
}

class SumRules : public testing::TestWithParam<std::tuple<const zoff_sum_rule *, unsigned>>
{
};

INSTANTIATE_TEST_SUITE_P(Both, SumRules, testing::Combine(testing::Values(&ORDERED, &ADDED), testing::Values(1u, 2u, 3u, 7u)),
                         [](const auto &p) {
                             return std::string(std::get<0>(p.param)->name) + "_" + std::to_string(std::get<1>(p.param));
                         });

TEST_P(SumRules, ReserveEnoughForEachBucket)
{
    const auto [rule, ranks] = GetParam();
    small_transfer self;
    self.t.route.rule = rule;
    ASSERT_NO_FATAL_FAILURE(prepare(self, ranks));
    for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
        size_t part, all, sum = 0;
        std::vector<size_t> bytes;
        rule->most(&self.t, &self.parts.plan, b, &part, &all);
        for (unsigned rank = 0; rank < ranks; rank++) {
            bytes.push_back(zoff_transfer_wire_part_bytes(&self.t, &self.parts.plan, b, rank));
            EXPECT_EQ(0u, bytes.back() % rule->align(&self.t));
        }
        rule->level(bytes.data(), ranks);
        for (const size_t one : bytes)
            sum += one;
        EXPECT_LE(bytes[self.parts.plan.rank], part);
        EXPECT_LE(sum, all);
        EXPECT_LE(all, 3 * sum + 64 * ranks) << "and not much more";
    }
}

TEST(SumRulesOrdered, MovePiecesToTheWire)
{
    small_transfer self;
    ASSERT_NO_FATAL_FAILURE(prepare(self, 1));
    self.values.wire_dtype = ZOFF_BF16;
    std::vector<zoff_cast_piece> moves(2);
    self.t.ranks.moves = moves.data();
    const zoff_plan_piece *piece = &self.parts.plan.pieces[zoff_zero_plan_find(&self.parts.plan, 1, 1, 0)];
    char wire[1];
    ORDERED.list(&self.t, piece, wire, 1);
    self.t.ranks.moves = nullptr;
    EXPECT_EQ(piece->count, moves[1].count);
    EXPECT_EQ(wire, moves[1].dst);
    EXPECT_EQ(self.param(1).grad + self.param(1).grad_stride, moves[1].src);
    EXPECT_EQ(ZOFF_BF16, moves[1].dst_dtype);
    EXPECT_EQ(ZOFF_F32, moves[1].src_dtype);
    EXPECT_EQ(0u, moves[0].count);
}

TEST(SumRulesTerms, AreAsManyAsHaveCome)
{
    small_transfer self;
    ASSERT_NO_FATAL_FAILURE(prepare(self, 3));
    const float weights[3] = {1, 2, 3};
    zoff_accumulate_piece piece = {};
    ORDERED.terms(&self.t, weights, &piece);
    EXPECT_EQ(3u, piece.sources);
    EXPECT_EQ(weights, piece.weights);
    ADDED.terms(&self.t, weights, &piece);
    EXPECT_EQ(1u, piece.sources);
    EXPECT_EQ(nullptr, piece.weights) << "they came before the wire";
}

TEST(SumRulesTerms, AreChosenByTheParameter)
{
    zoff_model_param p = {};
    EXPECT_TRUE(zoff_transfer_terms_of(&p)->travels);
    EXPECT_FALSE(zoff_transfer_terms_of(&p)->stays);
    p.reduced = true;
    EXPECT_STREQ("reduced", zoff_transfer_terms_of(&p)->name);
    EXPECT_FALSE(zoff_transfer_terms_of(&p)->travels);
    EXPECT_TRUE(zoff_transfer_terms_of(&p)->stays);
    p.frozen = true;
    EXPECT_FALSE(zoff_transfer_terms_of(&p)->travels);
    EXPECT_FALSE(zoff_transfer_terms_of(&p)->stays);
}

TEST(SumRulesTerms, AReducedGradientHasNoBytesOnTheWire)
{
    small_transfer self;
    ASSERT_NO_FATAL_FAILURE(prepare(self, 3));
    size_t before = 0, after = 0;
    for (size_t i : {0, 1, 3}) {
        for (size_t b = 0; b < self.parts.plan.chunk_count; b++)
            before += zoff_transfer_wire_part_bytes(&self.t, &self.parts.plan, b, 1);
        self.parts.m.params[i].reduced = true;
        for (size_t b = 0; b < self.parts.plan.chunk_count; b++)
            after += zoff_transfer_wire_part_bytes(&self.t, &self.parts.plan, b, 1);
        EXPECT_LT(after, before) << i;
        before = after = 0;
    }
    zoff_transfer_wire_measure(&self.t);
    EXPECT_EQ(0u, self.t.ranks.widest_gradient);
    for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
        EXPECT_EQ(0u, zoff_transfer_wire_part_bytes(&self.t, &self.parts.plan, b, 1));
        EXPECT_EQ(0u, zoff_transfer_wire_bucket_most(&self.t, &self.parts.plan, b));
    }
}

TEST(SumRulesAdded, SendAsMuchOfEachRank)
{
    small_transfer self;
    self.t.route.rule = &ADDED;
    ASSERT_NO_FATAL_FAILURE(prepare(self, 3));
    EXPECT_STREQ("communicator", ADDED.name);
    EXPECT_TRUE(ADDED.adds);
    EXPECT_EQ(ZOFF_F32, ADDED.dtype(&self.t, &self.param(0)));
    EXPECT_EQ(4u, self.t.ranks.widest_gradient);
    EXPECT_EQ(16u, ADDED.align(&self.t));
    size_t bytes[] = {16, 0, 48};
    ADDED.level(bytes, 3);
    EXPECT_EQ((std::vector<size_t>{48, 48, 48}), std::vector<size_t>(bytes, bytes + 3));
    char behind[] = "behind.";
    ASSERT_ZOFF_OK(ADDED.pad(&self.t, behind, 4));
    EXPECT_EQ(std::string("\0\0\0\0nd.", 7), std::string(behind, 7)) << "it is added up like the rest";
    ASSERT_ZOFF_OK(ADDED.pad(&self.t, nullptr, 0));
}

// Gradients times this rank's weight, in fp32.
TEST(SumRulesAdded, WeighGradientsBeforeTheWire)
{
    each_rank<device_transfer>(2, [](device_transfer &self, unsigned rank) {
        self.t.route.rule = &ADDED;
        self.add(50, 1, ZOFF_BF16, ZOFF_BF16);
        self.values.grad_factor = 0.5;
        ASSERT_NO_FATAL_FAILURE(self.open(64));
        ASSERT_NE(nullptr, self.t.ranks.terms);
        self.make_gradient(0, 0, 0);
        self.t.route.place = &zoff_transfer_sum_places_device;
        float *wire = (float *)self.there->alloc(4 * 64);
        size_t used = 0;
        for (const zoff_plan_piece &piece : self.pieces())
            ADDED.list(&self.t, &piece, (char *)(wire + piece.first), used++);
        ASSERT_LT(0u, used);
        const float weight = 3.5f + (float)rank;
        *(float *)(uintptr_t)zoff_zero_reduce_own_weight(self.t.ranks.reduce) = weight; // as a micro-batch does
        ASSERT_ZOFF_OK(ADDED.put(&self.t, used));
        ASSERT_NO_FATAL_FAILURE(self.settle(self.t.device.compute));
        for (const zoff_plan_piece &piece : self.pieces()) {
            for (size_t k = piece.first; k < piece.first + piece.count; k++)
                EXPECT_EQ(weight * self.gradient(rank, 0, 0, k, 0), wire[k]);
        }
        self.t.route.place = &zoff_transfer_sum_places_host;
    });
}

TEST(SumRulesOrdered, PutMovesIntoTheStreamOfADevice)
{
    device_transfer self;
    self.add(8);
    ASSERT_NO_FATAL_FAILURE(self.open(16));
    float *from = (float *)self.there->alloc(16);
    uint16_t *to = (uint16_t *)self.there->alloc(8);
    for (int k = 0; k < 4; k++)
        from[k] = 1.001f * (float)(k + 1);
    zoff_cast_piece move = {4, to, from, ZOFF_BF16, ZOFF_F32};
    self.t.ranks.moves = &move;
    ASSERT_ZOFF_OK(ORDERED.put(&self.t, 1));
    self.t.ranks.moves = nullptr;
    ASSERT_NO_FATAL_FAILURE(self.settle(self.t.device.compute));
    for (int k = 0; k < 4; k++)
        EXPECT_EQ(reference::to_bf16(1.001f * (float)(k + 1)), to[k]);
}

// The first slice that counts and whose gradient is not finite.
TEST(SumRulesBlame, FindsTheRankOnlyWhereItsTermsCame)
{
    for (const zoff_sum_rule *rule : {&ORDERED, &ADDED}) {
        small_transfer self;
        self.t.route.rule = rule;
        self.add(40);
        self.parts.make_plan(1024, 0, 4);
        ASSERT_ZOFF_OK(zoff_model_slices_open(&self.parts.m, &self.parts.plan));
        zoff_transfer_wire_measure(&self.t);
        std::vector<size_t> bytes(ZOFF_PART_ROWS * 4), rows(ZOFF_PART_ROWS, SIZE_MAX);
        self.t.ranks.part_bytes = bytes.data();
        self.t.ranks.part_rows = rows.data();
        const zoff_plan_piece own = self.parts.plan.pieces[zoff_zero_plan_own(&self.parts.plan, 0).first_piece];
        const size_t part = zoff_transfer_wire_parts(&self.t, 0)[0] / 4;
        std::vector<float> wire(4 * part, 1.0f);
        wire[1 * part + 3] = NAN; // it has weight 0
        wire[2 * part + 2] = INFINITY;
        wire[3 * part] = INFINITY;
        const float weights[] = {1, 0, 1, 1};
        zoff_vote &vote = self.t.measure.vote;
        vote.param = own.param;
        vote.slice = own.slice;
        vote.first = own.first;
        vote.rank = 77;
        rule->blame(&self.t, 0, (const char *)wire.data(), weights);
        EXPECT_EQ(rule == &ORDERED, vote.rank_is_known);
        EXPECT_EQ(rule == &ORDERED ? 2u : 77u, vote.rank);
        vote.rank_is_known = false;
        vote.slice = 1; // this rank has no part of it
        rule->blame(&self.t, 0, (const char *)wire.data(), weights);
        EXPECT_FALSE(vote.rank_is_known);
        self.t.ranks.part_bytes = self.t.ranks.part_rows = nullptr;
    }
}
} // namespace
