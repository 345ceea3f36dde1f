/* SPDX-License-Identifier: Apache-2.0 */
// update_test.cc: the step over a list of pieces: the cost of an element, the size from which copies are written past the
// caches, and that no result depends on this.
#include "tensors.h"
#include "zoff_test.h"

extern "C" {
#include "update_priv.h"
}

#include <string.h>

using namespace kernel_data;

TEST(update, bytes_of_an_element)
{
    float state = 0;
    const zoff_adam_consts consts = {};
    const struct {
        bool m, v;
        zoff_dtype grads, master, copy;
        size_t bytes;
        zoff_moments moments = ZOFF_MOMENTS_F32;
        bool split = false;
    } cases[] = {
        {true, true, ZOFF_F32, ZOFF_F32, ZOFF_DTYPE_DEFAULT, 28},
        {true, true, ZOFF_BF16, ZOFF_F32, ZOFF_BF16, 28},
        {true, true, ZOFF_F16, ZOFF_F32, ZOFF_F16, 28},
        {true, true, ZOFF_BF16, ZOFF_BF16, ZOFF_DTYPE_DEFAULT, 22},
        {true, false, ZOFF_F32, ZOFF_F32, ZOFF_DTYPE_DEFAULT, 20},
        {false, true, ZOFF_F16, ZOFF_F32, ZOFF_F16, 20},
        {false, false, ZOFF_F32, ZOFF_F32, ZOFF_BF16, 14},
        {false, false, ZOFF_F16, ZOFF_F16, ZOFF_DTYPE_DEFAULT, 6},
        {true, true, ZOFF_BF16, ZOFF_F32, ZOFF_BF16, 20, ZOFF_MOMENTS_BF16},
        {true, false, ZOFF_F32, ZOFF_F32, ZOFF_DTYPE_DEFAULT, 16, ZOFF_MOMENTS_BF16},
        {true, true, ZOFF_BF16, ZOFF_BF16, ZOFF_DTYPE_DEFAULT, 26, ZOFF_MOMENTS_F32, true},
        {true, true, ZOFF_BF16, ZOFF_BF16, ZOFF_DTYPE_DEFAULT, 18, ZOFF_MOMENTS_BF16, true},
        {true, true, ZOFF_BF16, ZOFF_BF16, ZOFF_DTYPE_DEFAULT, 16, ZOFF_MOMENTS_M8V16, true},
        {true, true, ZOFF_BF16, ZOFF_BF16, ZOFF_DTYPE_DEFAULT, 14, ZOFF_MOMENTS_Q8, true},
        {true, true, ZOFF_BF16, ZOFF_F32, ZOFF_BF16, 16, ZOFF_MOMENTS_Q8},
    };
    for (const auto &c : cases) {
        zoff_adam_piece piece = {};
        piece.count = 1;
        piece.master = &state;
        piece.m = c.m ? &state : nullptr;
        piece.v = c.v ? &state : nullptr;
        piece.grad = &state;
        piece.copy_out = c.copy || c.split ? &state : nullptr;
        piece.grad_dtype = c.grads;
        piece.copy_dtype = c.copy;
        piece.consts = &consts;
        piece.master_dtype = c.master;
        piece.moments = (uint8_t)c.moments;
        piece.split = c.split;
        EXPECT_EQ(zoff_adam_update_cost(&piece), c.bytes);
    }
}

TEST(update, streams_from_64_mib_on)
{
    const size_t limit = (size_t)64 << 20;
    EXPECT_FALSE(zoff_adam_update_streams(0));
    EXPECT_FALSE(zoff_adam_update_streams(limit - 1));
    EXPECT_TRUE(zoff_adam_update_streams(limit));
    EXPECT_TRUE(zoff_adam_update_streams(SIZE_MAX));
}

// One list that is written past the caches, the same one in two halves that are not, and the oracle.
TEST(update, a_list_that_is_streamed_gives_the_same_bits)
{
    const rule_case rule = every_rule()[ZOFF_RULE_ADAM_DECOUPLED];
    const size_t bytes = 28, n = ((size_t)64 << 20) / bytes + 1;
    zoff_adam_consts consts;
    zoff_adam_hyper_consts(&rule.hyper, 3, 0.5, &consts);
    owned_tensor expected(rule, ZOFF_BF16, {ZOFF_F32, ZOFF_BF16, "fp32 with a bf16 copy"}, n, true);
    owned_tensor whole = expected, halves = expected;
    expected.step_by_oracle(3, 0.5);
    const zoff_adam_piece piece = whole.piece(&consts);
    ASSERT_TRUE(zoff_adam_update_streams(n * zoff_adam_update_cost(&piece)));
    ASSERT_FALSE(zoff_adam_update_streams((n - 1) * zoff_adam_update_cost(&piece)));
    zoff_adam_update_run(2, &piece, 1, nullptr, nullptr);
    EXPECT_FALSE(piece.stream) << "the list is the caller's";
    expect_same(expected, whole);
    const zoff_adam_piece from = halves.piece(&consts);
    const size_t cut = 1001;
    for (bool second : {false, true}) {
        zoff_adam_piece half = from;
        half.count = second ? n - cut : cut;
        half.master = (float *)from.master + (second ? cut : 0);
        half.m = (float *)from.m + (second ? cut : 0);
        half.v = (float *)from.v + (second ? cut : 0);
        half.grad = (const uint16_t *)from.grad + (second ? cut : 0);
        half.copy_out = (uint16_t *)from.copy_out + (second ? cut : 0);
        zoff_adam_update_run(2, &half, 1, nullptr, nullptr);
    }
    expect_same(expected, halves);
}

TEST(update, nothing_to_do_is_legal)
{
    const rule_case rule = every_rule()[ZOFF_RULE_ADAM];
    zoff_adam_consts consts;
    zoff_adam_hyper_consts(&rule.hyper, 1, 1, &consts);
    int calls = 0;
    const zoff_adam_between count = [](void *ctx) { ++*static_cast<int *>(ctx); };
    zoff_adam_update_run(2, nullptr, 0, count, &calls);
    zoff_adam_piece empty = {};
    empty.consts = &consts;
    zoff_adam_update_run(2, &empty, 1, count, &calls);
    EXPECT_EQ(0, calls);
}

// Each piece has constants, states and types of its own.
TEST(update, each_piece_of_a_list_is_a_step_of_its_own)
{
    std::vector<owned_tensor> expected = every_tensor({0, 1, 5, 31, 1023, 1024, 1025}, true);
    std::vector<zoff_adam_consts> consts(expected.size());
    for (unsigned threads : {1u, 3u}) {
        std::vector<owned_tensor> actual = expected, by_oracle = expected;
        std::vector<zoff_adam_piece> pieces;
        for (size_t i = 0; i < actual.size(); i++) {
            zoff_adam_hyper_consts(&actual[i].rule.hyper, 2, 0.25, &consts[i]);
            pieces.push_back(actual[i].piece(&consts[i]));
            by_oracle[i].step_by_oracle(2, 0.25);
        }
        zoff_adam_update_run(threads, pieces.data(), pieces.size(), nullptr, nullptr);
        for (size_t i = 0; i < actual.size(); i++)
            expect_same(by_oracle[i], actual[i]);
    }
}
