/* SPDX-License-Identifier: Apache-2.0 */
// group_test.cc: the shares that the members of a group have of a slice.
#include "small_model.h"

extern "C" {
#include "lending.h"
}

using namespace zoff_test;

namespace
{
// The members' shares follow one another, and together they are the whole run.
TEST(Group, MembersShareEachRunInTheirOrder)
{
    for (unsigned ranks : {1u, 4u, 6u, 12u}) {
        for (unsigned members : {1u, 2u, 3u, ranks}) {
            if (ranks % members)
                continue;
            small_model parts;
            zoff_lending l = {};
            for (size_t count : {1, 100, 3000, 33})
                parts.add(describe("w", count, 3));
            parts.make_plan(64, ranks - 1, ranks);
            l.group = {ranks - members, members, ranks / members, nullptr};
            for (size_t i = 0; i < parts.plan.run_count; i++) {
                const zoff_plan_piece &run = parts.plan.runs[i];
                size_t done = 0;
                for (unsigned rank = ranks - members; rank < ranks; rank++) {
                    size_t first = SIZE_MAX;
                    const size_t count = zoff_lending_group_share(&l, &parts.plan, &run, rank, &first);
                    EXPECT_EQ(count ? run.first + done : SIZE_MAX, first) << "run " << i << " rank " << rank << " of " << ranks;
                    done += count;
                }
                EXPECT_EQ(run.count, done) << "run " << i << ", groups of " << members << " of " << ranks;
            }
        }
    }
}

// Without groups a rank's share is that of the plan.
TEST(Group, AllRanksHaveTheSharesOfThePlan)
{
    small_model parts;
    zoff_lending l = {};
    parts.add(describe("w", 3000, 2));
    parts.make_plan(64, 1, 3);
    l.group = {0, 3, 1, nullptr};
    for (size_t i = 0; i < parts.plan.run_count; i++) {
        for (unsigned rank = 0; rank < 3; rank++) {
            size_t first = 0, want_first = 0;
            const size_t want = zoff_zero_plan_share(&parts.plan, &parts.plan.runs[i], rank, &want_first);
            EXPECT_EQ(want, zoff_lending_group_share(&l, &parts.plan, &parts.plan.runs[i], rank, &first));
            EXPECT_EQ(want_first, first);
        }
    }
}
} // namespace
