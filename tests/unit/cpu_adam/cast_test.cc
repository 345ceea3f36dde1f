/* SPDX-License-Identifier: Apache-2.0 */
// cast_test.cc: element types converted over a list of pieces: each pair of types, by any team, exact or rounded once.
#include "kernel_data.h"
#include "oracle.h"
#include "zoff_test.h"

extern "C" {
#include "cpu_adam.h"
}

#include <cmath>

using namespace kernel_data;

namespace
{
const zoff_dtype TYPES[] = {ZOFF_F32, ZOFF_BF16, ZOFF_F16};
} // namespace

TEST(cast, every_pair_of_types_by_any_team)
{
    const size_t n = 100003, first = 50 * 1024 + 1;
    for (zoff_dtype from : TYPES) {
        for (zoff_dtype to : TYPES) {
            const size_t src_bytes = zoff_adam_dtype_bytes(from), dst_bytes = zoff_adam_dtype_bytes(to);
            std::vector<char> src(n * src_bytes), expected(n * dst_bytes);
            number_pool::get().fill(src.data(), from, n, 5);
            for (size_t i = 0; i < n && from != to; i++)
                oracle_store(expected.data(), to, i, oracle_load(src.data(), from, i));
            if (from == to)
                expected = src;
            for (unsigned threads : {1u, 2u, 3u, 7u}) {
                std::vector<char> dst(n * dst_bytes);
                const zoff_cast_piece pieces[] = {
                    {first, dst.data(), src.data(), to, from},
                    {n - first, dst.data() + first * dst_bytes, src.data() + first * src_bytes, to, from}};
                zoff_adam_cast_run(threads, pieces, 2);
                EXPECT_TRUE(expected == dst)
                    << zoff_adam_dtype_name(from) << " to " << zoff_adam_dtype_name(to) << ", " << threads << " threads";
            }
        }
    }
}

// Known values: ties go away from zero (bf16) or to even (fp16), values that are too large become infinite, NaN becomes the
// header's.
TEST(cast, to_16_bits_rounds_to_nearest)
{
    const float inf = INFINITY;
    const float values[] = {0.0f,     -0.0f,       1.0f,        -2.0f,        inf,          -inf,     NAN,
                            -NAN,     1 + 0x1p-8f, 1 + 0x3p-8f, 1 + 0x1p-11f, 1 + 0x3p-11f, 65504.0f, 65519.0f,
                            65520.0f, 0x1p-24f,    0x1p-25f,    0x1.8p-25f,   3.4e38f};
    const uint16_t bf16[] = {0x0000, 0x8000, 0x3f80, 0xc000, 0x7f80, 0xff80, 0x7fc0, 0x7fc0, 0x3f81, 0x3f82,
                             0x3f80, 0x3f80, 0x4780, 0x4780, 0x4780, 0x3380, 0x3300, 0x3340, 0x7f80};
    const uint16_t f16[] = {0x0000, 0x8000, 0x3c00, 0xc000, 0x7c00, 0xfc00, 0x7e00, 0x7e00, 0x3c04, 0x3c0c,
                            0x3c00, 0x3c02, 0x7bff, 0x7bff, 0x7c00, 0x0001, 0x0000, 0x0001, 0x7c00};
    const size_t n = sizeof values / sizeof values[0];
    uint16_t halves[2][n];
    const zoff_cast_piece pieces[] = {{n, halves[0], values, ZOFF_BF16, ZOFF_F32}, {n, halves[1], values, ZOFF_F16, ZOFF_F32}};
    zoff_adam_cast_run(1, pieces, 2);
    for (size_t i = 0; i < n; i++) {
        EXPECT_EQ(bf16[i], halves[0][i]) << "bf16 of " << values[i];
        EXPECT_EQ(f16[i], halves[1][i]) << "fp16 of " << values[i];
    }
}

TEST(cast, writes_as_many_elements_as_a_piece_has)
{
    for (size_t n : {0, 1, 2, 7, 8, 9, 15, 16, 17, 33}) {
        for (zoff_dtype from : TYPES) {
            for (zoff_dtype to : TYPES) {
                std::vector<char> src((n + 1) * 4, 0), dst((n + 1) * 4, 0x5a);
                const zoff_cast_piece piece = {n, dst.data(), src.data(), to, from};
                zoff_adam_cast_run(2, &piece, 1);
                const size_t end = n * zoff_adam_dtype_bytes(to);
                for (size_t i = 0; i < dst.size(); i++)
                    ASSERT_EQ(i < end ? 0 : 0x5a, dst[i]) << "byte " << i << ", " << n << " elements";
            }
        }
    }
    zoff_adam_cast_run(2, nullptr, 0);
}

// Both ends of the destination may lie in the middle of a line.
TEST(cast, a_copy_past_the_caches_has_the_same_bytes)
{
    for (size_t n : {0, 1, 7, 31, 32, 33, 64, 1000}) {
        for (size_t first : {0, 1, 5, 31, 32}) {
            std::vector<uint16_t> src(n), dst(n + 100, 0x5a5a), expected(n + 100, 0x5a5a);
            number_pool::get().fill(src.data(), ZOFF_BF16, n, 5);
            std::copy(src.begin(), src.end(), expected.begin() + (ptrdiff_t)first);
            const zoff_cast_piece piece = {n, dst.data() + first, src.data(), ZOFF_BF16, ZOFF_BF16, nullptr, true};
            zoff_adam_cast_run(2, &piece, 1);
            EXPECT_TRUE(expected == dst) << n << " elements from the element " << first;
        }
    }
}

// Two halves give the number again, but NaN becomes the canonical one. All 2^32 words: ZOFF_TEST_FULL=1.
TEST(cast, halves_are_split_and_joined)
{
    const bool full = getenv("ZOFF_TEST_FULL") != nullptr;
    const size_t n = full ? 1 << 24 : 1 << 20;
    const uint32_t step = full ? 1 : 4093; // a prime: every exponent, and all kinds of lower halves
    std::vector<uint32_t> words(n), joined(n), added(n);
    std::vector<uint16_t> high(n), low(n), rounded(n), upper(n);
    uint32_t word = 0;
    for (uint64_t done = 0; done < (uint64_t(1) << 32) / step; done += n) {
        for (size_t i = 0; i < n; i++, word += step)
            words[i] = word;
        const auto cast = [&](void *dst, zoff_dtype to, const void *src, zoff_dtype from, uint16_t *halves) {
            const zoff_cast_piece piece = {n, dst, src, to, from, halves};
            zoff_adam_cast_run(2, &piece, 1);
        };
        cast(high.data(), ZOFF_BF16, words.data(), ZOFF_F32, low.data());
        cast(rounded.data(), ZOFF_BF16, words.data(), ZOFF_F32, nullptr);
        EXPECT_TRUE(rounded == high) << "the upper half is the rounded number";
        cast(joined.data(), ZOFF_F32, high.data(), ZOFF_BF16, low.data());
        cast(added.data(), ZOFF_F32, high.data(), ZOFF_BF16, nullptr);
        cast(added.data(), ZOFF_F32, added.data(), ZOFF_F32, low.data());
        EXPECT_TRUE(joined == added);
        for (size_t i = 0; i < n; i++) {
            const bool is_nan = (words[i] & 0x7fffffff) > 0x7f800000;
            ASSERT_EQ(is_nan ? 0x7fc00000 : words[i], joined[i]) << words[i];
        }
        cast(upper.data(), ZOFF_BF16, high.data(), ZOFF_BF16, low.data());
        EXPECT_TRUE(upper == high && low == std::vector<uint16_t>(n));
    }
}

// An fp16 number needs both halves: all of them.
TEST(cast, fp16_is_split_like_the_same_number_in_fp32)
{
    const size_t n = 1 << 16;
    std::vector<uint16_t> words(n), high(n), low(n, 7), want_high(n), want_low(n);
    std::vector<float> wide(n);
    for (size_t i = 0; i < n; i++)
        words[i] = (uint16_t)i;
    const zoff_cast_piece pieces[] = {{n, high.data(), words.data(), ZOFF_BF16, ZOFF_F16, low.data()},
                                      {n, wide.data(), words.data(), ZOFF_F32, ZOFF_F16}};
    zoff_adam_cast_run(2, pieces, 2);
    const zoff_cast_piece want = {n, want_high.data(), wide.data(), ZOFF_BF16, ZOFF_F32, want_low.data()};
    zoff_adam_cast_run(2, &want, 1);
    EXPECT_EQ(want_high, high);
    EXPECT_EQ(want_low, low);
}
