/* SPDX-License-Identifier: Apache-2.0 */
// norm_test.cc: sums of squares of blocks over a list of pieces: their number and content, when they are finite, and that every
// team computes the same bits.
#include "kernel_data.h"
#include "zoff_test.h"

extern "C" {
#include "cpu_adam.h"
}

#include <cmath>

using namespace kernel_data;

namespace
{
constexpr size_t BLOCK = ZOFF_NORM_BLOCK;

// The sums of one piece, and one more place behind them.
std::vector<double> sums_of(const void *grad, zoff_dtype dtype, size_t n, unsigned threads = 1)
{
    std::vector<double> sums((n + BLOCK - 1) / BLOCK + 1, -1.0);
    const zoff_norm_piece piece = {n, grad, dtype, sums.data()};
    zoff_adam_norm_run(threads, &piece, 1, nullptr, nullptr);
    EXPECT_EQ(-1.0, sums.back()) << "more sums than there are blocks of " << n;
    sums.pop_back();
    return sums;
}
} // namespace

TEST(norm, has_a_sum_for_each_block_that_was_begun)
{
    const std::vector<float> twos(3 * BLOCK + 7, 2.0f);
    const struct {
        size_t n;
        std::vector<double> sums;
    } cases[] = {{0, {}},
                 {1, {4}},
                 {BLOCK - 1, {4.0 * (BLOCK - 1)}},
                 {BLOCK, {4.0 * BLOCK}},
                 {BLOCK + 1, {4.0 * BLOCK, 4}},
                 {3 * BLOCK + 7, {4.0 * BLOCK, 4.0 * BLOCK, 4.0 * BLOCK, 28}}};
    for (const auto &c : cases)
        EXPECT_EQ(c.sums, sums_of(twos.data(), ZOFF_F32, c.n)) << c.n;
}

TEST(norm, squares_are_exact_in_every_type)
{
    const uint16_t bf16[] = {0x3f80, 0xc040, 0x0001}, f16[] = {0x3c00, 0xc200, 0x0001}; // 1, -3, and the smallest
    const float f32[] = {1, -3, 0x1p-149f};
    EXPECT_EQ(std::vector<double>{10 + 0x1p-266}, sums_of(bf16, ZOFF_BF16, 3));
    EXPECT_EQ(std::vector<double>{10 + 0x1p-48}, sums_of(f16, ZOFF_F16, 3));
    EXPECT_EQ(std::vector<double>{0x1p-298}, sums_of(f32 + 2, ZOFF_F32, 1)) << "no square is too small";
    EXPECT_EQ(std::vector<double>{0x1p-48}, sums_of(f16 + 2, ZOFF_F16, 1));
}

TEST(norm, is_not_finite_exactly_when_an_element_is_not)
{
    std::vector<float> grad(2 * BLOCK, 0x1.fffffep127f);
    for (double sum : sums_of(grad.data(), ZOFF_F32, grad.size()))
        EXPECT_TRUE(std::isfinite(sum)) << "a block of the largest numbers";
    for (float bad : {INFINITY, -INFINITY, NAN}) {
        for (size_t at : {(size_t)0, BLOCK - 1}) {
            const float before = grad[at];
            grad[at] = bad;
            const std::vector<double> sums = sums_of(grad.data(), ZOFF_F32, grad.size());
            EXPECT_FALSE(std::isfinite(sums[0])) << bad << " at " << at;
            EXPECT_TRUE(std::isfinite(sums[1])) << "its neighbour has nothing to do with it";
            grad[at] = before;
        }
    }
}

// Against long double: the tree of a block rounds a few times.
TEST(norm, is_right_to_the_last_digits_but_a_few)
{
    random_source random(4);
    std::vector<float> grad(5 * BLOCK + 333);
    for (auto &x : grad)
        x = number(random, false);
    const std::vector<double> sums = sums_of(grad.data(), ZOFF_F32, grad.size());
    for (size_t block = 0; block < sums.size(); block++) {
        long double exact = 0;
        for (size_t i = block * BLOCK; i < std::min((block + 1) * BLOCK, grad.size()); i++)
            exact += (long double)grad[i] * grad[i];
        EXPECT_LE(fabsl(exact - sums[block]), 0x1p-44L * exact) << "block " << block; // 2^-53 for each of some 70 roundings
    }
}

TEST(norm, no_team_and_no_list_changes_a_bit)
{
    random_source random(5);
    const size_t n = 700 * BLOCK + 5, cut = 300 * BLOCK;
    std::vector<float> grad(n);
    for (auto &x : grad)
        x = number(random, false);
    const std::vector<double> alone = sums_of(grad.data(), ZOFF_F32, n);
    for (unsigned threads : {2u, 3u, 7u}) {
        EXPECT_EQ(alone, sums_of(grad.data(), ZOFF_F32, n, threads)) << threads << " threads";
        std::vector<double> in_pieces(alone.size());
        const zoff_norm_piece pieces[] = {{n - cut, grad.data() + cut, ZOFF_F32, in_pieces.data() + cut / BLOCK},
                                          {0, nullptr, ZOFF_F32, nullptr},
                                          {cut, grad.data(), ZOFF_F32, in_pieces.data()}};
        int breaths = 0;
        zoff_adam_norm_run(
            threads, pieces, 3, [](void *ctx) { ++*static_cast<int *>(ctx); }, &breaths);
        EXPECT_EQ(alone, in_pieces) << threads << " threads";
        EXPECT_GT(breaths, 0);
    }
}
