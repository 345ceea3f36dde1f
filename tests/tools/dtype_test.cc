/* SPDX-License-Identifier: Apache-2.0 */
// dtype_test.cc: the tool rounds and widens numbers with the bits of the library.
#include "random.h"
#include "tool_files.h"

extern "C" {
#include "cpu_adam.h"
#include "dtype.h"
}

namespace
{
std::vector<float> floats_of(const std::vector<uint32_t> &bits)
{
    std::vector<float> numbers(bits.size());
    memcpy(numbers.data(), bits.data(), bits.size() * sizeof(float));
    return numbers;
}

// Numbers at every border of rounding, and random ones.
std::vector<float> many_numbers()
{
    std::vector<uint32_t> bits;
    for (uint32_t half = 0; half < 0x10000; half++) {
        float wide; // each fp16 number, and those a little beside it and beside the middle to the next
        const uint16_t source = (uint16_t)half;
        const zoff_cast_piece piece = {1, &wide, &source, ZOFF_F32, ZOFF_F16};
        zoff_adam_cast_run(1, &piece, 1);
        uint32_t exact;
        memcpy(&exact, &wide, sizeof exact);
        for (uint32_t step : {0u, 1u, 0xfffu, 0x1000u, 0x1001u, 0x1fffu, 0x800000u - 1})
            bits.push_back(exact + step);
        for (uint32_t step : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu})
            bits.push_back((half << 16) + step); // bits near the borders of bf16
    }
    zoff_test::fast_random random(7);
    for (int i = 0; i < 1000000; i++)
        bits.push_back(random());
    for (int i = 0; i < 1000000; i++) // around the subnormal numbers of fp16
        bits.push_back((random() & 0x80000000u) | (100 + random() % 45) << 23 | (random() & 0x7fffffu));
    return floats_of(bits);
}

TEST(Dtype, RoundsWithTheBitsOfTheLibrary)
{
    const std::vector<float> numbers = many_numbers();
    for (zoff_dtype dtype : {ZOFF_F16, ZOFF_BF16}) {
        std::vector<uint16_t> ours(numbers.size()), theirs(numbers.size());
        const zoff_cast_piece piece = {numbers.size(), theirs.data(), numbers.data(), dtype, ZOFF_F32};
        zoff_adam_cast_run(1, &piece, 1);
        dtype_round(dtype, numbers.data(), numbers.size(), ours.data());
        for (size_t i = 0; i < numbers.size(); i++)
            ASSERT_EQ(theirs[i], ours[i]) << dtype_name(dtype) << " of " << numbers[i];
    }
}

TEST(Dtype, WidensWithTheBitsOfTheLibrary)
{
    std::vector<uint16_t> halves(0x10000);
    for (size_t i = 0; i < halves.size(); i++)
        halves[i] = (uint16_t)i;
    for (zoff_dtype dtype : {ZOFF_F16, ZOFF_BF16}) {
        std::vector<float> ours(halves.size()), theirs(halves.size());
        const zoff_cast_piece piece = {halves.size(), theirs.data(), halves.data(), ZOFF_F32, dtype};
        zoff_adam_cast_run(1, &piece, 1);
        dtype_widen(dtype, halves.data(), halves.size(), ours.data());
        for (size_t i = 0; i < halves.size(); i++)
            ASSERT_EQ(0, memcmp(&theirs[i], &ours[i], 4)) << dtype_name(dtype) << " " << i;
    }
}

TEST(Dtype, Fp32StaysAsItIs)
{
    const std::vector<float> numbers = floats_of({0, 0x80000000u, 0x7f800001u, 0xffffffffu, 1});
    std::vector<float> rounded(numbers.size()), widened(numbers.size());
    dtype_round(ZOFF_F32, numbers.data(), numbers.size(), rounded.data());
    dtype_widen(ZOFF_F32, rounded.data(), numbers.size(), widened.data());
    EXPECT_EQ(0, memcmp(numbers.data(), widened.data(), numbers.size() * sizeof(float)));
}

TEST(Dtype, NamesAreThoseOfTheOptions)
{
    for (zoff_dtype dtype : {ZOFF_F32, ZOFF_F16, ZOFF_BF16})
        EXPECT_EQ(dtype, dtype_of(dtype_name(dtype)));
    EXPECT_EQ(ZOFF_DTYPE_DEFAULT, dtype_of("fp8"));
    EXPECT_EQ(ZOFF_DTYPE_DEFAULT, dtype_of("unknown"));
}
} // namespace
