/* SPDX-License-Identifier: Apache-2.0 */
// terms_test.cc: what was assumed of a step, and whether the step agrees.
#include <gtest/gtest.h>

extern "C" {
#include "speculation.h"
}

namespace
{

struct Terms : ::testing::Test {
    void SetUp() override { ASSERT_EQ(zoff_speculation_open(&s, 4, 2, 3), ZOFF_OK); }
    void TearDown() override { zoff_speculation_close(&s); }
    zoff_speculation s{};
};

TEST_F(Terms, TheSameConstantsHold)
{
    zoff_adam_consts assumed[4]{}, step[4]{};
    assumed[1].grad_scale = step[1].grad_scale = 0.25f;
    zoff_speculation_assume(&s, assumed);
    EXPECT_TRUE(zoff_speculation_holds(&s, step));
}

TEST_F(Terms, OneBitOfTheLastGroupIsADifference)
{
    zoff_adam_consts assumed[4]{}, step[4]{};
    zoff_speculation_assume(&s, assumed);
    step[1].dither = 1;
    EXPECT_FALSE(zoff_speculation_holds(&s, step));
    step[1].dither = 0;
    step[0].beta1 = -0.0f; // another bit pattern is another rule, even where the number is equal
    EXPECT_FALSE(zoff_speculation_holds(&s, step));
}

TEST_F(Terms, TheEndBeginsAnew)
{
    s.is_begun = s.is_over = s.terms.is_said = true;
    zoff_speculation_end(&s);
    EXPECT_FALSE(s.is_begun || s.is_over || s.terms.is_said);
    EXPECT_EQ(s.places, 4u);
}

} // namespace
