/* SPDX-License-Identifier: Apache-2.0 */
// kernels_cast_test.cc: conversions between all pairs of types, with every table, against the oracle. Covers sizes with every
// tail. Every fp16 value is converted, with its neighbours and with the numbers around the tie to the next value.
#include "kernel_tables.h"
#include "oracle.h"

#include <cmath>

using namespace kernel_data;

namespace
{
constexpr zoff_dtype TYPES[] = {ZOFF_F32, ZOFF_BF16, ZOFF_F16};

size_t bytes_of(zoff_dtype dtype)
{
    return dtype == ZOFF_F32 ? 4 : 2;
}

class kernels_cast : public kernel_tables
{
  protected:
    void cast(void *dst, zoff_dtype to, const void *src, zoff_dtype from, size_t begin, size_t count, bool stream = false)
    {
        const zoff_cast_piece piece = {begin + count, dst, src, to, from, nullptr, stream};
        table->cast(&piece, begin, count);
    }
    // Check the rounding of these numbers to both 16-bit types.
    void expect_rounded(const std::vector<float> &wide)
    {
        std::vector<uint16_t> half(wide.size());
        for (zoff_dtype to : {ZOFF_BF16, ZOFF_F16}) {
            cast(half.data(), to, wide.data(), ZOFF_F32, 0, wide.size());
            for (size_t i = 0; i < wide.size(); i++) {
                const uint16_t expected = to == ZOFF_F16 ? oracle_to_f16(wide[i]) : oracle_to_bf16(wide[i]);
                ASSERT_EQ(half[i], expected) << zoff_adam_dtype_name(to) << " of " << std::hex << bits_of(wide[i]);
            }
        }
    }
};
ZOFF_EVERY_TABLE(kernels_cast);

TEST_P(kernels_cast, equals_the_oracle)
{
    fenced<char> src_array((LARGE + 1) * 4), dst_array((LARGE + 1) * 4);
    std::vector<char> expected(LARGE * 4);
    for (zoff_dtype from : TYPES) {
        for (zoff_dtype to : TYPES) {
            const size_t src_bytes = bytes_of(from), dst_bytes = bytes_of(to);
            for (size_t n : sizes()) {
                for (size_t shift : {0, 1}) {
                    // each length is cast from both places, so with and without streaming
                    const bool stream = (n + shift) % 2;
                    SCOPED_TRACE(::testing::Message() << zoff_adam_dtype_name(from) << " to " << zoff_adam_dtype_name(to)
                                                      << ", " << n << " elements, shift " << shift << ", streams " << stream);
                    char *src = src_array.place(n * src_bytes, shift * src_bytes);
                    char *dst = dst_array.place(n * dst_bytes, shift * dst_bytes);
                    number_pool::get().fill(src, from, n, n);
                    for (size_t i = 0; from != to && i < n; i++)
                        oracle_store(expected.data(), to, i, oracle_load(src, from, i));
                    if (from == to && n)
                        memcpy(expected.data(), src, n * src_bytes);
                    const size_t cut = n / 3;
                    cast(dst, to, src, from, cut, n - cut, stream);
                    cast(dst, to, src, from, 0, cut, stream);
                    ASSERT_TRUE(n == 0 || memcmp(expected.data(), dst, n * dst_bytes) == 0);
                    src_array.expect_guards();
                    dst_array.expect_guards();
                    if (HasFatalFailure())
                        return;
                }
            }
        }
    }
}

// Each of the 65536 values of a 16-bit type must convert as the oracle says, and survive a conversion to fp32 and back. NaN
// becomes the canonical one.
TEST_P(kernels_cast, every_half_up_and_down)
{
    std::vector<uint16_t> all(65536), back(65536);
    std::vector<float> wide(65536);
    for (size_t i = 0; i < all.size(); i++)
        all[i] = (uint16_t)i;
    for (zoff_dtype half : {ZOFF_BF16, ZOFF_F16}) {
        const size_t infinity = half == ZOFF_BF16 ? 0x7f80 : 0x7c00, nan = half == ZOFF_BF16 ? 0x7fc0 : 0x7e00;
        cast(wide.data(), ZOFF_F32, all.data(), half, 0, all.size());
        cast(back.data(), half, wide.data(), ZOFF_F32, 0, all.size());
        for (size_t i = 0; i < all.size(); i++) {
            ASSERT_EQ(bits_of(wide[i]), bits_of(oracle_load(all.data(), half, i)))
                << zoff_adam_dtype_name(half) << " " << std::hex << i;
            ASSERT_EQ(back[i], (i & 0x7fff) > infinity ? nan : i) << zoff_adam_dtype_name(half);
        }
    }
}

// Converts each 16-bit value, the midpoint between it and the next one, and the fp32 neighbours of both.
TEST_P(kernels_cast, every_tie_and_neighbour_of_every_half)
{
    for (zoff_dtype half : {ZOFF_BF16, ZOFF_F16}) {
        std::vector<float> wide;
        for (uint32_t i = 0; i < 65536; i++) {
            const float here = half == ZOFF_F16 ? oracle_from_f16((uint16_t)i) : oracle_from_bf16((uint16_t)i);
            const float next = half == ZOFF_F16 ? oracle_from_f16((uint16_t)(i + 1)) : oracle_from_bf16((uint16_t)(i + 1));
            const float middle = here / 2 + next / 2;
            for (float x : {here, std::isfinite(middle) ? middle : here}) {
                for (uint32_t step = 0; step < 3; step++)
                    wide.push_back(float_of(bits_of(x) + step - 1));
            }
        }
        expect_rounded(wide);
    }
}

TEST_P(kernels_cast, two_million_random_patterns)
{
    random_source random(3);
    std::vector<float> wide(1000000);
    for (int round = 0; round < 2 && !HasFatalFailure(); round++) {
        for (auto &x : wide) {
            const uint64_t word = random.next();
            // Every second number is in the range that fp16 can represent: exponents of 2^-27 to 2^17.
            const uint32_t exponent = round ? 100 + (uint32_t)(word >> 40) % 45 : (uint32_t)(word >> 40) & 255;
            x = float_of((uint32_t)(word >> 32 & 0x807fffff) | exponent << 23);
        }
        expect_rounded(wide);
    }
}
} // namespace
