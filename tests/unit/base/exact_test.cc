/* SPDX-License-Identifier: Apache-2.0 */
// exact_test.cc: a sum without rounding against another implementation, in any order, over the whole range of a double.
#include "exact_sum.h"
#include "zoff_test.h"

#include <algorithm>
#include <random>

extern "C" {
#include "exact.h"
}

namespace
{
double sum_of(const std::vector<double> &terms)
{
    zoff_exact sum = {};
    for (double x : terms)
        zoff_base_exact_add(&sum, x);
    return zoff_base_exact_value(&sum);
}

std::vector<double> random_terms(std::mt19937_64 &random, int lowest, int highest)
{
    std::vector<double> terms(1 + random() % 60);
    for (double &x : terms)
        x = ldexp((double)(random() >> 11), lowest + (int)(random() % (unsigned)(highest - lowest + 1)) - 53);
    return terms;
}

TEST(Exact, EqualsAnotherWayInAnyOrder)
{
    static const int RANGES[][2] = {{-3, 3}, {-60, 60}, {-1074, -1000}, {-1074, 960}, {-300, 250}};
    std::mt19937_64 random(1);
    for (const auto &range : RANGES) {
        for (int round = 0; round < 4000; round++) {
            std::vector<double> terms = random_terms(random, range[0], range[1]);
            reference::exact_sum want;
            for (double x : terms)
                want.add(x);
            const double first = sum_of(terms);
            ASSERT_EQ(want.value(), first) << "round " << round << " from 2^" << range[0];
            std::shuffle(terms.begin(), terms.end(), random);
            ASSERT_EQ(first, sum_of(terms));
            // Several sums, joined.
            zoff_exact parts[3] = {}, all = {};
            for (double x : terms)
                zoff_base_exact_add(&parts[random() % 3], x);
            for (const auto &part : parts)
                zoff_base_exact_join(&all, &part);
            ASSERT_EQ(first, zoff_base_exact_value(&all));
        }
    }
}

TEST(Exact, RoundsOnceAndHalfWayToEven)
{
    EXPECT_EQ(0.0, sum_of({}));
    EXPECT_EQ(0.0, sum_of({0.0, 0.0}));
    EXPECT_EQ(1.0, sum_of({1.0, 0x1p-53}));
    EXPECT_EQ(1.0 + 0x1p-52, sum_of({1.0, 0x1p-53, 0x1p-1074}));
    EXPECT_EQ(1.0 + 0x1p-51, sum_of({1.0 + 0x1p-52, 0x1p-53}));
    EXPECT_EQ(0x1p-1074, sum_of({0x1p-1074}));
    EXPECT_EQ(0x1.fffffffffffffp1023, sum_of({0x1.fffffffffffffp1023}));
    EXPECT_EQ(INFINITY, sum_of({0x1.fffffffffffffp1023, 0x1p1023}));
}

// Limbs that are almost full are carried in time.
TEST(Exact, ManyTerms)
{
    zoff_exact sum = {};
    zoff_base_exact_add(&sum, 0x1.fffffffffffffp0);
    for (int doubled = 0; doubled < 70; doubled++) {
        const zoff_exact copy = sum;
        zoff_base_exact_join(&sum, &copy);
    }
    EXPECT_EQ(0x1.fffffffffffffp70, zoff_base_exact_value(&sum));
    sum = {};
    sum.terms = (1ull << 31) - 1;
    sum.limbs[33] = (1ull << 63) - (1ull << 32);
    zoff_base_exact_add(&sum, 0);
    EXPECT_EQ(0u, sum.terms);
    EXPECT_LT(sum.limbs[33], 1ull << 32);
}
} // namespace
