/* SPDX-License-Identifier: Apache-2.0 */
// worth_test.cc: from how many elements on a team is woken. It is measured only for lists that are neither clearly small nor
// clearly large.
#include "zoff_test.h"

#include <omp.h>

#include <algorithm>
#include <vector>

extern "C" {
#include "team.h"
#include "worth.h"
}

namespace
{
// Every test of this program has a team that is awake, so that lists of modest size are divided.
class awake : public testing::Environment
{
    void SetUp() override
    {
        EXPECT_ZOFF_OK(zoff_base_team_start(8));
        zoff_base_team_hold(true);
    }
    void TearDown() override { zoff_base_team_hold(false); }
};
[[maybe_unused]] testing::Environment *const registered = testing::AddGlobalTestEnvironment(new awake);
} // namespace

TEST(worth, is_measured_within_its_bounds)
{
    for (unsigned threads : {2u, 3u, 8u}) {
        const zoff_worth worth = zoff_adam_worth_measure(zoff_adam_dispatch_kernels(), threads);
        EXPECT_GE(worth.from, size_t{ZOFF_WORTH_LEAST});
        EXPECT_LE(worth.from, size_t{ZOFF_WORTH_ASLEEP_MOST});
        EXPECT_GE(worth.good, size_t{ZOFF_WORTH_LEAST}) << "it is not measured at every step";
    }
}

namespace
{
volatile float sink;

// Kernels whose update takes this long, for any number of elements.
template <int TURNS> void slow_update(const zoff_adam_piece *, size_t, size_t)
{
    for (int i = 0; i < TURNS; i++)
        sink = sink + 1.0f;
}

size_t from_with(void (*update)(const zoff_adam_piece *, size_t, size_t))
{
    struct zoff_kernels kernels = *zoff_adam_dispatch_kernels();
    kernels.update = update;
    return zoff_adam_worth_measure(&kernels, 2).from;
}
} // namespace

// The given kernels are measured. If 1024 elements take a millisecond, the smallest list needs a team; if they take
// nanoseconds, it does not. Other processes may delay a team, so one attempt of many must succeed.
TEST(worth, slow_kernels_share_earlier)
{
    size_t slow = SIZE_MAX;
    for (int i = 0; i < 100 && slow > ZOFF_WORTH_LEAST; i++)
        slow = from_with(slow_update<1000000>);
    EXPECT_EQ(slow, size_t{ZOFF_WORTH_LEAST});
    std::vector<size_t> fast;
    for (int i = 0; i < 21; i++)
        fast.push_back(from_with(slow_update<1>));
    std::sort(fast.begin(), fast.end());
    EXPECT_GT(fast[fast.size() / 2], size_t{ZOFF_WORTH_LEAST});
}

TEST(worth, is_plain_for_few_and_for_many_elements)
{
    EXPECT_TRUE(zoff_adam_dispatch_shares(2, ZOFF_WORTH_ASLEEP_MOST));
    zoff_base_team_hold(false);
    EXPECT_FALSE(zoff_adam_dispatch_shares(2, ZOFF_WORTH_ASLEEP_LEAST - 1)) << "sleeping threads are not woken for so few";
    zoff_base_team_hold(true);
    EXPECT_FALSE(zoff_adam_dispatch_shares(8, ZOFF_WORTH_LEAST - 1));
    EXPECT_TRUE(zoff_adam_dispatch_shares(2, ZOFF_WORTH_MOST));
    EXPECT_FALSE(zoff_adam_dispatch_shares(1, size_t{1} << 40)) << "one thread is no team";
}

// In a region of the caller the result is a guess, the same each time. So the decisions are known once an earlier measurement
// has expired.
TEST(worth, is_what_decisions_are_made_by_until_it_is_measured_again)
{
    constexpr size_t GUESS = ZOFF_WORTH_ASLEEP_MOST / 2;
    bool renewed = false;
    zoff_base_team_hold(false);
    (void)zoff_adam_dispatch_shares(2, ZOFF_WORTH_ASLEEP_LEAST); // measured outside, unless it was measured before
#pragma omp parallel num_threads(2)
#pragma omp master
    for (int i = 0; i < 4000000 && !renewed; i++)
        renewed = !zoff_adam_dispatch_shares(2, GUESS - 1) && zoff_adam_dispatch_shares(2, GUESS) &&
                  !zoff_adam_dispatch_shares(2, GUESS - 1);
    zoff_base_team_hold(true);
    EXPECT_TRUE(renewed);
}

TEST(worth, cannot_be_known_in_a_region_of_the_caller)
{
    EXPECT_GT(zoff_base_team_region_seconds(2), 0);
    double inside[2] = {-1, -1};
    size_t from[2] = {};
#pragma omp parallel num_threads(2)
    {
        inside[omp_get_thread_num()] = zoff_base_team_region_seconds(2);
        from[omp_get_thread_num()] = zoff_adam_worth_measure(zoff_adam_dispatch_kernels(), 2).from;
    }
    EXPECT_EQ(inside[0], 0);
    EXPECT_EQ(from[0], size_t{ZOFF_WORTH_ASLEEP_MOST} / 2);
    EXPECT_EQ(inside[0], inside[1]);
    EXPECT_EQ(from[0], from[1]);
}
