/* SPDX-License-Identifier: Apache-2.0 */
// tls_test.cc: a program with more thread-local data than the stacks of a team's threads usually hold.
#include "tally.h"
#include "zoff_test.h"

extern "C" {
#include "workers.h"
}

namespace
{
thread_local volatile char large[24 << 20]; // above the default size of a stack, too
} // namespace

TEST(thread_local_data, a_team_starts_beside_it)
{
    large[1] = 1;
    ASSERT_ZOFF_OK(zoff_base_workers_start(3));
    tally t;
    zoff_base_workers_run(3, false, tally::count, &t);
    t.expect_each_once();
    EXPECT_EQ(3u, t.threads);
    EXPECT_EQ(1, large[1]);
}
