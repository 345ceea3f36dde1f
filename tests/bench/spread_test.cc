/* SPDX-License-Identifier: Apache-2.0 */
// spread_test.cc: tests the percentiles that benchmarks report.
#include "zoff_test.h"

#include <math.h>

#include <vector>

extern "C" {
#include "stopwatch.h"
}

namespace
{
bench_spread spread_of(const std::vector<double> &values)
{
    return bench_spread_of(values.data(), (unsigned)values.size());
}

TEST(BenchSpread, PercentilesOfElevenValues)
{
    const bench_spread s = spread_of({7, 3, 11, 1, 9, 5, 2, 10, 4, 8, 6});
    EXPECT_EQ(11u, s.count);
    EXPECT_EQ(1, s.min);
    EXPECT_EQ(2, s.p10);
    EXPECT_EQ(6, s.median);
    EXPECT_EQ(10, s.p90);
    EXPECT_EQ(11, s.max);
}

TEST(BenchSpread, LiesBetweenTwoValues)
{
    const bench_spread s = spread_of({2, 1});
    EXPECT_DOUBLE_EQ(1.1, s.p10);
    EXPECT_DOUBLE_EQ(1.5, s.median);
    EXPECT_DOUBLE_EQ(1.9, s.p90);
}

TEST(BenchSpread, LeavesOutSamplesThatWereNotClean)
{
    const bench_spread s = spread_of({NAN, 4, INFINITY});
    EXPECT_EQ(1u, s.count);
    EXPECT_EQ(4, s.p10);
    EXPECT_EQ(4, s.median);
    EXPECT_EQ(4, s.p90);
}

TEST(BenchSpread, NothingHasNoSpread)
{
    const bench_spread s = spread_of({NAN});
    EXPECT_EQ(0u, s.count);
    EXPECT_TRUE(isnan(s.median));
}
} // namespace
