// worth_test.cc: from how many elements on a team is woken: measured where it must be, and never for lists that are plainly
// small or large.
#include "zoff_test.h"

#include <omp.h>

extern "C" {
#include "team.h"
#include "worth.h"
}

TEST(worth, is_measured_within_its_bounds)
{
    for (unsigned threads : {2u, 3u, 8u}) {
        const zoff_worth worth = zoff_adam_worth_measure(zoff_adam_dispatch_kernels(), threads);
        EXPECT_GE(worth.from, size_t{ZOFF_WORTH_LEAST});
        EXPECT_LE(worth.from, size_t{ZOFF_WORTH_MOST});
        EXPECT_GE(worth.good, size_t{ZOFF_WORTH_LEAST}) << "it is not measured at every step";
    }
}

TEST(worth, slow_kernels_share_earlier)
{
    // The same region, and an element that takes many times as long: fewer of them are worth it. Both are measured on whatever
    // machine this is, so one good attempt in many counts.
    bool seen = false;
    for (int i = 0; i < 200 && !seen; i++) {
        const size_t slow = zoff_adam_worth_measure(zoff_adam_dispatch_table("scalar"), 2).from;
        const size_t fast = zoff_adam_worth_measure(zoff_adam_dispatch_kernels(), 2).from;
        seen = slow < fast || (slow == fast && (fast == ZOFF_WORTH_LEAST || slow == ZOFF_WORTH_MOST)) ||
               zoff_adam_dispatch_kernels() == zoff_adam_dispatch_table("scalar");
    }
    EXPECT_TRUE(seen);
}

TEST(worth, is_plain_for_few_and_for_many_elements)
{
    EXPECT_FALSE(zoff_adam_dispatch_shares(8, ZOFF_WORTH_LEAST - 1));
    EXPECT_TRUE(zoff_adam_dispatch_shares(2, ZOFF_WORTH_MOST));
    EXPECT_FALSE(zoff_adam_dispatch_shares(1, size_t{1} << 40)) << "one thread is no team";
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
    EXPECT_EQ(from[0], size_t{ZOFF_WORTH_MOST} / 2);
    EXPECT_EQ(inside[0], inside[1]);
    EXPECT_EQ(from[0], from[1]);
}
