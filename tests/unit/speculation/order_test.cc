/* SPDX-License-Identifier: Apache-2.0 */
// order_test.cc: when buckets are updated ahead of a step, and in which order they are expected.
#include <gtest/gtest.h>

#include <vector>

extern "C" {
#include "speculation.h"
}

namespace
{

struct Order : ::testing::Test {
    void SetUp() override { ASSERT_EQ(zoff_speculation_open(&s, 1, 1, 4), ZOFF_OK); }
    void TearDown() override { zoff_speculation_close(&s); }

    std::vector<size_t> expected() const
    {
        std::vector<size_t> all;
        for (size_t i = 0; i < 4; i++)
            all.push_back(zoff_speculation_expected(&s, i));
        return all;
    }

    zoff_speculation s{};
};

TEST_F(Order, TheFirstOrderDescends)
{
    EXPECT_EQ(expected(), (std::vector<size_t>{3, 2, 1, 0}));
}

TEST_F(Order, BucketsThatDidNotComeAreExpectedLast)
{
    for (size_t bucket : {1, 3, 1}) // the second time is not counted
        zoff_speculation_note_arrival(&s, bucket);
    EXPECT_EQ(expected(), (std::vector<size_t>{3, 2, 1, 0})) << "the order of this pass is for the next one";
    zoff_speculation_end(&s);
    EXPECT_EQ(expected(), (std::vector<size_t>{1, 3, 2, 0}));
}

TEST_F(Order, APassWithoutGradientsKeepsTheOrder)
{
    zoff_speculation_note_arrival(&s, 0);
    zoff_speculation_end(&s);
    zoff_speculation_end(&s);
    EXPECT_EQ(expected(), (std::vector<size_t>{0, 3, 2, 1}));
}

TEST_F(Order, TwoStepsWithoutClippingMustFollowOneThatClips)
{
    EXPECT_TRUE(zoff_speculation_is_likely(&s));
    zoff_speculation_note_step(&s, false, true);
    EXPECT_TRUE(zoff_speculation_is_likely(&s)) << "an overflow says nothing about the next step";
    zoff_speculation_note_step(&s, true, false);
    EXPECT_FALSE(zoff_speculation_is_likely(&s));
    zoff_speculation_note_step(&s, false, false);
    EXPECT_FALSE(zoff_speculation_is_likely(&s));
    zoff_speculation_note_step(&s, false, true);
    EXPECT_FALSE(zoff_speculation_is_likely(&s)) << "nor about the clipping of others";
    zoff_speculation_note_step(&s, false, false);
    EXPECT_TRUE(zoff_speculation_is_likely(&s));
}

TEST_F(Order, WithoutMemoryNothingIsUpdatedAhead)
{
    s.places = 0;
    for (int i = 0; i < 5; i++)
        zoff_speculation_note_step(&s, false, false);
    EXPECT_FALSE(zoff_speculation_is_likely(&s));
}

} // namespace
