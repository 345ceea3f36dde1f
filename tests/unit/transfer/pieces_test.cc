// pieces_test.cc: the memory of a piece: its states, and the gradient that norm and update read.
#include "allocation_fault.h"
#include "small_transfer.h"

using namespace zoff_test;

namespace
{
class Pieces : public testing::Test
{
  protected:
    zoff_dtype dtype_of(const zoff_plan_piece &piece, const void **at)
    {
        zoff_dtype dtype = ZOFF_DTYPE_DEFAULT;
        *at = zoff_transfer_pieces_gradient(&self.t, &piece, false, &dtype);
        return dtype;
    }
    small_transfer self;
};

// Every state of every piece has memory of its own, in its chunk.
TEST_F(Pieces, StatesLieApart)
{
    self.add(100, 2, ZOFF_BF16, ZOFF_BF16);
    self.add(7, 5);
    self.add(300);
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(128));
    for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
        const zoff_plan_chunk &chunk = self.parts.plan.chunks[b];
        std::vector<char> memory(chunk.bytes);
        for (size_t i = 0; i < chunk.piece_count; i++) {
            const zoff_plan_piece &piece = self.parts.plan.pieces[chunk.first_piece + i];
            for (const zoff_plan_stream stream : {ZOFF_STREAM_MASTER, ZOFF_STREAM_M, ZOFF_STREAM_V}) {
                const size_t bytes =
                    zoff_model_params_tensor(&self.parts.m, &self.param(piece.param)).bytes[stream] * piece.count;
                char *at = (char *)zoff_transfer_pieces_state(&chunk, &piece, memory.data(), stream);
                ASSERT_LE(memory.data(), at);
                ASSERT_LE(at + bytes, memory.data() + memory.size());
                EXPECT_EQ(std::string(bytes, 0), std::string(at, bytes)) << "another state is there";
                memset(at, 1, bytes);
            }
        }
    }
}

struct kind {
    const char *name;
    zoff_optimizer optimizer;
    double momentum;
    zoff_dtype dtype;
    bool m, v;
};
void PrintTo(const kind &k, std::ostream *out)
{
    *out << k.name;
}

class PiecesOfUpdate : public testing::TestWithParam<kind>
{
};

INSTANTIATE_TEST_SUITE_P(Kinds, PiecesOfUpdate,
                         testing::Values(kind{"adam", ZOFF_OPTIMIZER_ADAM, 0, ZOFF_F32, true, true},
                                         kind{"adam_bf16", ZOFF_OPTIMIZER_ADAM, 0, ZOFF_BF16, true, true},
                                         kind{"adagrad", ZOFF_OPTIMIZER_ADAGRAD, 0, ZOFF_F32, false, true},
                                         kind{"lion", ZOFF_OPTIMIZER_LION, 0, ZOFF_F16, true, false},
                                         kind{"sgd", ZOFF_OPTIMIZER_SGD, 0, ZOFF_BF16, false, false},
                                         kind{"momentum", ZOFF_OPTIMIZER_SGD, 0.5, ZOFF_F32, true, false}),
                         [](const auto &p) { return std::string(p.param.name); });

TEST_P(PiecesOfUpdate, HaveTheStatesOfTheirOptimizer)
{
    const kind &k = GetParam();
    for (const uint32_t accumulation : {1u, 4u}) {
        small_transfer self;
        zoff_optimizer_hyper_init(&self.values.hyper, k.optimizer);
        self.values.hyper.momentum = k.momentum;
        self.values.accumulation = accumulation;
        self.add(40, 2, k.dtype, ZOFF_F16);
        ASSERT_NO_FATAL_FAILURE(self.open_pieces(32));
        for (const zoff_plan_piece &piece : self.pieces()) {
            const zoff_plan_chunk &chunk = self.parts.plan.chunks[piece.bucket];
            std::vector<char> states(chunk.bytes + 1);
            const zoff_adam_piece a = zoff_transfer_pieces_of_update(&self.t, &chunk, &piece, {states.data(), nullptr});
            const auto state = [&](zoff_plan_stream s) { return zoff_transfer_pieces_state(&chunk, &piece, states.data(), s); };
            char *value = zoff_model_params_value(&self.parts.m, &piece, nullptr);
            EXPECT_EQ(piece.count, a.count);
            const bool splits = k.dtype == ZOFF_BF16;
            EXPECT_EQ(splits, a.split);
            EXPECT_EQ(k.dtype == ZOFF_F16 ? (void *)state(ZOFF_STREAM_MASTER) : (void *)value, (void *)a.master);
            EXPECT_EQ(k.dtype == ZOFF_F32 ? nullptr : splits ? (void *)state(ZOFF_STREAM_MASTER) : (void *)value, a.copy_out);
            EXPECT_EQ(k.dtype, a.copy_dtype);
            EXPECT_EQ(k.m ? state(ZOFF_STREAM_M) : nullptr, a.m);
            EXPECT_EQ(k.v ? state(ZOFF_STREAM_V) : nullptr, a.v);
            EXPECT_EQ(accumulation > 1 ? ZOFF_F32 : ZOFF_F16, a.grad_dtype);
            EXPECT_EQ(nullptr, a.grad) << "that is the caller's";
        }
    }
}

// Weights that the engine keeps lie in the chunk's memory.
TEST_F(Pieces, UpdatesUseTheEnginesWeights)
{
    zoff_param_desc d = describe("owned", 40);
    d.engine_owned = true;
    d.dtype = ZOFF_BF16;
    self.parts.add(d);
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(32));
    for (const zoff_plan_piece &piece : self.pieces()) {
        const zoff_plan_chunk &chunk = self.parts.plan.chunks[piece.bucket];
        std::vector<char> states(chunk.bytes), weights(chunk.weight_bytes);
        const zoff_adam_piece a = zoff_transfer_pieces_of_update(&self.t, &chunk, &piece, {states.data(), weights.data()});
        EXPECT_EQ(weights.data() + piece.weight_offset, (char *)a.master) << "the upper halves";
    }
}

TEST_F(Pieces, ReadTheProgramsGradientWhereNothingIsAddedUp)
{
    self.add(40, 2, ZOFF_F32, ZOFF_BF16);
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(32));
    EXPECT_EQ(nullptr, self.t.accumulator.map.base);
    for (const zoff_plan_piece &piece : self.pieces()) {
        const void *at;
        EXPECT_EQ(ZOFF_BF16, dtype_of(piece, &at));
        EXPECT_EQ(self.param(0).grad + piece.slice * self.param(0).grad_stride + piece.first * 2, at);
        zoff_dtype dtype;
        EXPECT_EQ(at, zoff_transfer_pieces_gradient(&self.t, &piece, true, &dtype));
        EXPECT_EQ(ZOFF_BF16, dtype);
    }
}

// The states of the first buckets are on the device, and so is their part of the accumulator.
TEST_F(Pieces, ReadTheSumWhereGradientsAreAddedUp)
{
    self.add(40, 2, ZOFF_F32, ZOFF_BF16);
    self.values.accumulation = 2;
    self.t.accumulator.device_sums = 32;
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(32));
    EXPECT_EQ((self.parts.plan.owned_elements - 32) * sizeof(float), self.t.accumulator.map.bytes);
    std::vector<float> kept(100);
    self.t.accumulator.there = kept.data();
    for (const zoff_plan_piece &piece : self.pieces()) {
        const void *at;
        zoff_dtype dtype;
        if (piece.bucket > 0) {
            EXPECT_EQ(ZOFF_F32, dtype_of(piece, &at));
            EXPECT_EQ((float *)self.t.accumulator.map.base + piece.owned_offset - 32, at);
            EXPECT_EQ(at, zoff_transfer_pieces_sum(&self.t, &piece));
        }
        EXPECT_EQ(kept.data() + piece.owned_offset, zoff_transfer_pieces_gradient(&self.t, &piece, true, &dtype));
        EXPECT_EQ(ZOFF_F32, dtype);
    }
}

TEST_F(Pieces, TakePartWhereASliceOfTheBucketHasAGradient)
{
    self.add(32, 4);
    ASSERT_NO_FATAL_FAILURE(self.open_pieces(64)); // two slices in each bucket
    ASSERT_EQ(2u, self.parts.plan.chunk_count);
    for (size_t slice = 0; slice < 4; slice++) {
        self.flag(0, slice) = ZOFF_SLICE_PRESENT;
        EXPECT_EQ(slice / 2 == 0, zoff_transfer_pieces_take_part(&self.t, 0));
        EXPECT_EQ(slice / 2 == 1, zoff_transfer_pieces_take_part(&self.t, 1));
        self.flag(0, slice) = 0;
    }
}

TEST_F(Pieces, LeaveNothingBehindWithoutMemory)
{
    self.add(40, 2);
    self.values.accumulation = 2;
    self.parts.make_plan(32);
    self.choose();
    ASSERT_ZOFF_OK(zoff_model_slices_open(&self.parts.m, &self.parts.plan));
    EXPECT_EQ(17, fail_each_allocation([this] {
                  const zoff_status status = zoff_transfer_pieces_open(&self.t);
                  EXPECT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_NO_MEMORY);
                  EXPECT_EQ(status == ZOFF_OK, self.t.accumulator.map.base != nullptr);
                  zoff_transfer_pieces_close(&self.t);
                  EXPECT_EQ(nullptr, self.t.walk.runs);
                  EXPECT_EQ(nullptr, self.t.scratch.adam_pieces);
                  EXPECT_EQ(nullptr, self.t.scratch.consts);
                  EXPECT_EQ(nullptr, self.t.accumulator.map.base);
              }));
}
} // namespace
