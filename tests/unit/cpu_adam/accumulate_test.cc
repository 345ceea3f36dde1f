/* SPDX-License-Identifier: Apache-2.0 */
// accumulate_test.cc: gradients summed over a list of pieces: over micro-batches, over ranks, with weights, by any team. The
// numbers are small integers and powers of two, so that every sum is known exactly.
#include "kernel_data.h"
#include "zoff_test.h"

extern "C" {
#include "cpu_adam.h"
}

#include <cmath>

using namespace kernel_data;

namespace
{
void run(const zoff_accumulate_piece &piece, unsigned threads = 1)
{
    zoff_adam_accumulate_run(threads, &piece, 1, nullptr, nullptr);
}

zoff_accumulate_piece piece_of(std::vector<float> &sum, const std::vector<float> &grad)
{
    zoff_accumulate_piece piece = {};
    piece.count = sum.size();
    piece.sum = sum.data();
    piece.grad = grad.data();
    piece.dtype = ZOFF_F32;
    return piece;
}
} // namespace

TEST(accumulate, the_first_starts_a_sum_and_the_others_are_added)
{
    std::vector<float> sum = {NAN, INFINITY, 5, -0.0f}, grad = {1, 2, -3, -0.0f};
    zoff_accumulate_piece piece = piece_of(sum, grad);
    piece.first = true;
    run(piece);
    EXPECT_EQ((std::vector<float>{1, 2, -3, 0}), sum) << "what was there does not matter";
    EXPECT_TRUE(std::signbit(sum[3])) << "it is the gradient, not 0 and the gradient";
    piece.first = false;
    run(piece);
    run(piece);
    EXPECT_EQ((std::vector<float>{3, 6, -9, 0}), sum);
}

TEST(accumulate, gradients_of_16_bits_are_added_in_fp32)
{
    const uint16_t bf16[] = {0x3f80, 0xc040, 0x0001}, f16[] = {0x3c00, 0xc200, 0x0001}; // 1, -3, and the smallest
    const float smallest[] = {0x1p-133f, 0x1p-24f};
    for (zoff_dtype dtype : {ZOFF_BF16, ZOFF_F16}) {
        std::vector<float> sum = {0x1p-20f, 0x1p-20f, 0}, none;
        zoff_accumulate_piece piece = piece_of(sum, none);
        piece.grad = dtype == ZOFF_BF16 ? bf16 : f16;
        piece.dtype = dtype;
        run(piece);
        EXPECT_EQ((std::vector<float>{1 + 0x1p-20f, -3 + 0x1p-20f, smallest[dtype == ZOFF_F16]}), sum)
            << zoff_adam_dtype_name(dtype);
    }
}

TEST(accumulate, sources_lie_a_stride_apart)
{
    const size_t n = 3, stride = 5; // elements
    std::vector<float> grads(4 * stride), sum(n, 1000);
    for (size_t i = 0; i < grads.size(); i++)
        grads[i] = static_cast<float>(i);
    zoff_accumulate_piece piece = piece_of(sum, grads);
    piece.stride = stride * sizeof(float);
    for (size_t sources : {0, 1, 2, 4}) {
        piece.sources = sources;
        piece.first = true;
        run(piece);
        for (size_t i = 0; i < n; i++) {
            float want = 0;
            for (size_t s = 0; s < (sources ? sources : 1); s++)
                want += grads[s * stride + i];
            EXPECT_EQ(want, sum[i]) << sources << " sources, element " << i;
        }
    }
}

TEST(accumulate, sources_are_added_in_their_order)
{
    const float large = 0x1p30f;
    std::vector<float> sum(1), grads = {large, 1, -large};
    zoff_accumulate_piece piece = piece_of(sum, grads);
    piece.first = true;
    piece.sources = 3;
    piece.stride = sizeof(float);
    run(piece);
    EXPECT_EQ(0.0f, sum[0]) << "the 1 is lost in the first sum";
    grads = {large, -large, 1};
    run(piece);
    EXPECT_EQ(1.0f, sum[0]);
}

// 3 * (1 + 2^-23) has one digit more than fp32; added to -3 all digits remain.
TEST(accumulate, weights_multiply_without_rounding)
{
    const float weights[] = {3, 0.5f};
    std::vector<float> sum = {-3}, grads = {1 + 0x1p-23f, 0};
    zoff_accumulate_piece piece = piece_of(sum, grads);
    piece.weights = weights;
    run(piece);
    EXPECT_EQ(3 * 0x1p-23f, sum[0]);
    piece.first = true;
    piece.sources = 2;
    piece.stride = sizeof(float);
    grads = {2, 8};
    run(piece);
    EXPECT_EQ(10.0f, sum[0]);
}

TEST(accumulate, a_weight_of_zero_hides_what_is_not_finite)
{
    const float weights[] = {0, 2, 0};
    for (float bad : {INFINITY, -INFINITY, NAN}) {
        for (bool first : {false, true}) {
            std::vector<float> sum = {4}, grads = {bad, 1, bad};
            zoff_accumulate_piece piece = piece_of(sum, grads);
            piece.sources = 3;
            piece.stride = sizeof(float);
            piece.weights = weights;
            piece.first = first;
            run(piece);
            EXPECT_EQ(first ? 2.0f : 6.0f, sum[0]) << bad;
        }
    }
}

TEST(accumulate, non_finite_and_large_values_show_in_the_sum)
{
    std::vector<float> sum = {0, 0, 0x1.fffffep127f}, grad = {INFINITY, NAN, 0x1.fffffep127f};
    run(piece_of(sum, grad));
    EXPECT_EQ(INFINITY, sum[0]);
    EXPECT_TRUE(std::isnan(sum[1]));
    EXPECT_EQ(INFINITY, sum[2]);
}

// A list of several pieces, some of them empty, divided among teams of any size: nothing is added twice, and nothing outside
// them.
TEST(accumulate, each_element_of_a_list_is_added_once_by_any_team)
{
    const size_t counts[] = {0, 1, 700001, 0, 1023, 100003, 2};
    for (unsigned threads : {1u, 2u, 5u}) {
        std::vector<std::vector<float>> sums, grads;
        std::vector<zoff_accumulate_piece> pieces;
        for (size_t n : counts) {
            sums.emplace_back(n + 1, 3.0f);
            grads.emplace_back(n + 1, 4.0f);
        }
        for (size_t i = 0; i < sums.size(); i++) {
            pieces.push_back(piece_of(sums[i], grads[i]));
            pieces.back().count = counts[i];
        }
        int breaths = 0;
        zoff_adam_accumulate_run(
            threads, pieces.data(), pieces.size(), [](void *ctx) { ++*static_cast<int *>(ctx); }, &breaths);
        EXPECT_GT(breaths, 0);
        for (size_t i = 0; i < sums.size(); i++) {
            EXPECT_EQ(std::vector<float>(counts[i], 7.0f), std::vector<float>(sums[i].begin(), sums[i].end() - 1));
            EXPECT_EQ(3.0f, sums[i].back()) << "behind piece " << i;
        }
    }
}
