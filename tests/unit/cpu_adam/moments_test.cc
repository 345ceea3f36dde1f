/* SPDX-License-Identifier: Apache-2.0 */
// moments_test.cc: elements of a moment as fp32 numbers, in every format.
#include "zoff_test.h"

#include <cfenv>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

extern "C" {
#include "cpu_adam.h"
}

namespace
{
const zoff_moments FORMATS[] = {ZOFF_MOMENTS_F32, ZOFF_MOMENTS_BF16, ZOFF_MOMENTS_M8V16, ZOFF_MOMENTS_Q8};

// The memory of one moment.
struct state {
    state(zoff_moments moments_, zoff_moment which_, size_t count_)
        : moments(moments_), which(which_), count(count_), bytes(zoff_adam_moments_size(moments_, which_, count_))
    {
    }
    std::vector<float> load(size_t first, size_t n) const
    {
        std::vector<float> out(n);
        zoff_adam_moments_load(moments, which, bytes.data(), first, n, out.data());
        return out;
    }
    void store(size_t first, const std::vector<float> &in)
    {
        zoff_adam_moments_store(moments, which, bytes.data(), count, first, in.size(), in.data());
    }
    bool has_blocks() const { return moments == ZOFF_MOMENTS_Q8 || (moments == ZOFF_MOMENTS_M8V16 && which == ZOFF_MOMENT_M); }

    zoff_moments moments;
    zoff_moment which;
    size_t count;
    std::vector<char> bytes;
};

// A range is a part of the whole, and zeros are zeros.
TEST(moments, a_range_is_a_part_of_the_whole)
{
    std::mt19937 random(1);
    std::lognormal_distribution<float> sizes(-8, 3);
    for (const zoff_moments moments : FORMATS) {
        for (const zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
            const size_t count = 3000;
            state s(moments, which, count);
            EXPECT_EQ(std::vector<float>(count), s.load(0, count));
            std::vector<float> numbers(count);
            for (float &x : numbers)
                x = sizes(random) * (which == ZOFF_MOMENT_M && random() % 2 ? -1.0f : 1.0f);
            s.store(0, numbers);
            const std::vector<float> all = s.load(0, count);
            for (const size_t first : {0, 1, 1000, 1024, 2047, 2999}) {
                for (const size_t n : {1, 24, 1024, 1977})
                    if (first + n <= count) {
                        EXPECT_EQ(std::vector<float>(&all[first], &all[first] + n), s.load(first, n));
                    }
            }
            // Each number is the nearest of its format: at most half of a digit, or half a quantum, away.
            for (size_t i = 0; i < count; i++) {
                float largest = 0;
                for (size_t k = i / 1024 * 1024; k < std::min(i / 1024 * 1024 + 1024, count); k++)
                    largest = std::max(largest, std::fabs(numbers[k]));
                const float quantum = largest * (which == ZOFF_MOMENT_M ? 0x1p-16f : 0x1p-32f);
                const float digit = s.has_blocks() ? 0x1p-4f : moments == ZOFF_MOMENTS_F32 ? 0 : 0x1p-8f;
                ASSERT_LE(std::fabs(all[i] - numbers[i]), digit * std::fabs(numbers[i]) + (s.has_blocks() ? quantum : 0)) << i;
            }
        }
    }
}

// Numbers that were loaded are stored as they are, and a part that is stored leaves the bytes of other blocks alone.
TEST(moments, loaded_numbers_are_stored_as_they_were)
{
    std::mt19937 random(2);
    std::lognormal_distribution<float> sizes(-20, 8);
    for (const zoff_moments moments : FORMATS) {
        for (const zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
            state s(moments, which, 5000);
            std::vector<float> numbers(5000);
            for (float &x : numbers)
                x = sizes(random) * (which == ZOFF_MOMENT_M && random() % 2 ? -1.0f : 1.0f);
            s.store(0, numbers);
            const std::vector<float> all = s.load(0, 5000);
            const std::vector<char> before = s.bytes;
            s.store(0, all);
            EXPECT_EQ(all, s.load(0, 5000));
            s.bytes = before;
            s.store(1500, std::vector<float>(200, 1e-3f));
            const size_t from = zoff_adam_moments_offset(moments, which, 1024),
                         to = zoff_adam_moments_offset(moments, which, 2048);
            EXPECT_EQ(0, memcmp(before.data(), s.bytes.data(), from));
            EXPECT_EQ(0, memcmp(before.data() + to, s.bytes.data() + to, before.size() - to));
        }
    }
}

TEST(moments, every_code_is_a_number_of_its_own)
{
    for (const zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
        state s(ZOFF_MOMENTS_Q8, which, 256);
        const float bound = which == ZOFF_MOMENT_M ? 0x1.ep16f - 2 : 0x1.ep32f; // the scale is 1
        memcpy(s.bytes.data(), &bound, sizeof bound);
        for (int code = 0; code < 256; code++)
            s.bytes[(size_t)(64 + code)] = (char)code;
        const std::vector<char> before = s.bytes;
        const std::vector<float> numbers = s.load(0, 256);
        for (int code = 1; code < (which == ZOFF_MOMENT_M ? 128 : 256); code++)
            EXPECT_LT(numbers[(size_t)code - 1], numbers[(size_t)code]);
        s.store(0, numbers);
        EXPECT_EQ(before, s.bytes);
    }
}

// A step computes the bound of a block before its numbers, which may all be far below it.
TEST(moments, numbers_far_below_their_bound_are_stored_as_they_were)
{
    for (const zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
        for (const int most : {1, 2, 9, 40, 100}) {
            std::mt19937 random(3);
            state s(ZOFF_MOMENTS_Q8, which, 1000);
            const float bound = 1.5f;
            memcpy(s.bytes.data(), &bound, sizeof bound);
            for (int i = 0; i < 1000; i++) {
                const unsigned sign = which == ZOFF_MOMENT_M ? random() % 2 * 128 : 0;
                s.bytes[(size_t)(64 + i)] = (char)(random() % (unsigned)(most + 1) + sign);
            }
            const std::vector<float> numbers = s.load(0, 1000);
            s.store(0, numbers);
            EXPECT_EQ(numbers, s.load(0, 1000)) << most;
        }
    }
}

// The program's rounding mode changes no number.
TEST(moments, rounding_of_the_program_does_not_matter)
{
    for (const zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
        state s(ZOFF_MOMENTS_Q8, which, 256), same = s;
        const float bound = 1.5f;
        memcpy(s.bytes.data(), &bound, sizeof bound);
        for (int code = 0; code < 256; code++)
            s.bytes[(size_t)(64 + code)] = (char)code;
        const std::vector<float> numbers = s.load(0, 256), others(256, 0.1f);
        s.store(0, others);
        same.bytes = s.bytes;
        for (const int mode : {FE_DOWNWARD, FE_UPWARD}) {
            s.store(0, numbers);
            ASSERT_EQ(0, fesetround(mode));
            const std::vector<float> loaded = s.load(0, 256);
            s.store(0, others);
            fesetround(FE_TONEAREST);
            EXPECT_EQ(numbers, loaded);
            EXPECT_EQ(same.bytes, s.bytes);
        }
    }
}

// Finite numbers do not get an infinite bound, however large.
TEST(moments, large_numbers_are_not_lost)
{
    for (const float large : {0x1p117f, 0x1.2p117f, 0x1p123f, 0x1.ep127f}) {
        for (const zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
            state s(ZOFF_MOMENTS_Q8, which, 100);
            std::vector<float> numbers(100, large);
            numbers[7] = large / 8;
            s.store(0, numbers);
            const std::vector<float> have = s.load(0, 100);
            for (size_t i = 0; i < numbers.size(); i++)
                ASSERT_NEAR(numbers[i] * 0x1p-10, have[i] * 0x1p-10, numbers[i] * 0x1p-14) << large;
        }
    }
}

// Ten numbers that are not finite are stored as they are. More take their block along: no weight of it moves any more. A step
// divides 0 by infinity then, also in a format that the block is converted to.
TEST(moments, a_block_that_is_lost_moves_no_weight)
{
    for (const zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
        for (const size_t infinite : {1, 10, 11}) {
            state s(ZOFF_MOMENTS_Q8, which, 2000);
            std::vector<float> numbers(2000, 1.0f);
            std::fill_n(numbers.begin() + 5, infinite, INFINITY);
            s.store(0, numbers);
            const std::vector<float> have = s.load(0, 2000);
            for (size_t i = 0; i < 2000; i++)
                ASSERT_EQ(infinite < 11 || i >= 1024 ? numbers[i] : which == ZOFF_MOMENT_M ? 0 : INFINITY, have[i]) << i;
        }
    }
}

// Up to ten numbers far above the others are stored as they are, and the others as if those were not there.
TEST(moments, outliers_change_no_other_number)
{
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
        for (const size_t outliers : {1, 3, 10, 11}) {
            state s(ZOFF_MOMENTS_Q8, which, 1024), plain = s;
            std::vector<float> numbers(1024);
            for (float &x : numbers)
                x = which == ZOFF_MOMENT_M ? normal(random) : std::fabs(normal(random));
            plain.store(0, numbers);
            const std::vector<float> without = plain.load(0, 1024);
            for (size_t e = 0; e < outliers; e++)
                numbers[100 * e + 3] = (e % 3 ? 1e12f : 1e25f) * (which == ZOFF_MOMENT_M && e % 2 ? -1.1f : 1.1f);
            s.store(0, numbers);
            const std::vector<float> have = s.load(0, 1024), part = s.load(103, 500);
            EXPECT_EQ(std::vector<float>(have.begin() + 103, have.begin() + 603), part);
            size_t same = 0;
            for (size_t i = 0; i < 1024; i++) {
                same += have[i] == without[i];
                if (outliers <= 10) {
                    ASSERT_EQ(i % 100 == 3 && i / 100 < outliers ? numbers[i] : without[i], have[i]) << i;
                }
            }
            EXPECT_EQ(outliers <= 10, same > 1000) << "with more they are all rounded to one scale";
            const std::vector<char> before = s.bytes;
            s.store(0, have);
            EXPECT_EQ(have, s.load(0, 1024)) << "loaded numbers are stored as they were";
        }
    }
}

// A header of a damaged file may name elements that are not there.
TEST(moments, a_place_outside_of_a_block_is_ignored)
{
    state s(ZOFF_MOMENTS_Q8, ZOFF_MOMENT_M, 100);
    const uint16_t places[10] = {101, 1025, 65535, 7};
    memcpy(s.bytes.data() + 44, places, sizeof places);
    EXPECT_EQ(std::vector<float>(100), s.load(0, 100));
}

TEST(moments, no_number_is_undefined)
{
    for (const float odd : {INFINITY, NAN, -1.0f, 3e38f, 1e-45f}) {
        for (const zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
            state s(ZOFF_MOMENTS_Q8, which, 100);
            s.store(0, std::vector<float>(100, odd));
            const float x = s.load(99, 1)[0];
            EXPECT_EQ(std::isfinite(odd) || which == ZOFF_MOMENT_M, std::isfinite(x)) << odd;
            EXPECT_TRUE(which == ZOFF_MOMENT_M || x >= 0) << odd;
        }
    }
}
} // namespace
