/* SPDX-License-Identifier: Apache-2.0 */
// norm_sum_test.cc: norms of several engines, joined by the program.
#include "small_agreement.h"

#include <cmath>

using namespace zoff_test;

namespace
{
zoff_norm_sum sum_of(std::vector<double> squares, double scale = 0.5, bool poisoned = false)
{
    zoff_norm_record r = {};
    for (double s : squares)
        zoff_base_exact_add(&r.squares, s);
    r.scale = scale;
    r.is_poisoned = poisoned;
    zoff_norm_sum out;
    zoff_agreement_norm_sum_write(&r, &out);
    return out;
}

double value_of(const zoff_norm_sum &sum)
{
    double value = -1;
    EXPECT_ZOFF_OK(zoff_norm_sum_value(&sum, &value));
    return value;
}

TEST(NormSum, JoinsInAnyOrderToTheSameBytes)
{
    const zoff_norm_sum parts[] = {sum_of({1e-30, 3}), sum_of({1e20, 0x1p-1000}), sum_of({0.1, 0.2, 0.7})};
    zoff_norm_sum forth = parts[0], back = parts[2];
    EXPECT_ZOFF_OK(zoff_norm_sum_join(&forth, &parts[1]));
    EXPECT_ZOFF_OK(zoff_norm_sum_join(&forth, &parts[2]));
    EXPECT_ZOFF_OK(zoff_norm_sum_join(&back, &parts[1]));
    EXPECT_ZOFF_OK(zoff_norm_sum_join(&back, &parts[0]));
    EXPECT_EQ(0, memcmp(&forth, &back, sizeof forth));
    const zoff_norm_sum whole = sum_of({1e-30, 3, 1e20, 0x1p-1000, 0.1, 0.2, 0.7});
    EXPECT_EQ(0, memcmp(&forth, &whole, sizeof forth));
    EXPECT_EQ(2.5, value_of(sum_of({9, 16})));
    EXPECT_EQ(2.5, value_of(sum_of({9, 16}, -0.5)));
}

TEST(NormSum, IsNotFiniteWhereAPartIsNot)
{
    zoff_norm_sum sum = sum_of({1});
    const zoff_norm_sum bad = sum_of({1}, 0.5, true);
    EXPECT_ZOFF_OK(zoff_norm_sum_join(&sum, &bad));
    EXPECT_TRUE(std::isnan(value_of(sum)));
}

TEST(NormSum, TakesItsFactorFromAnEngineThatTrains)
{
    zoff_norm_sum sum = sum_of({}, 0);
    const zoff_norm_sum other = sum_of({4});
    EXPECT_ZOFF_OK(zoff_norm_sum_join(&sum, &other));
    EXPECT_EQ(1, value_of(sum));
}

TEST(NormSum, ServesAnEngineWhoseMeasurementItHas)
{
    zoff_comm_channel channels[16] = {};
    zoff_norm_record owns[16] = {}, got;
    zoff_norm_sum sum = sum_of({}), without = sum;
    for (unsigned i = 0; i < 16; i++) {
        zoff_agreement a = {};
        channels[i].hash = 1000 + i;
        a.channel = &channels[i];
        owns[i].scale = 0.5;
        zoff_agreement_norm_sum_name(&a, 2, &owns[i]);
        zoff_norm_sum own;
        zoff_agreement_norm_sum_write(&owns[i], &own);
        EXPECT_ZOFF_OK(zoff_norm_sum_join(&sum, &own));
        if (i < 15) {
            EXPECT_ZOFF_OK(zoff_norm_sum_join(&without, &own));
        }
        zoff_norm_record next = {};
        zoff_agreement_norm_sum_name(&a, 3, &next); // the same engine has measured again
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "does not contain the last measurement",
                          zoff_agreement_norm_sum_take(&own, &next, &got));
    }
    for (const zoff_norm_record &own : owns)
        EXPECT_ZOFF_OK(zoff_agreement_norm_sum_take(&sum, &own, &got));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "does not contain the last measurement",
                      zoff_agreement_norm_sum_take(&without, &owns[15], &got));
    owns[1].scale = 0.25;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "was 0.25 when they were measured, but is 0.5",
                      zoff_agreement_norm_sum_take(&sum, &owns[1], &got));
}

TEST(NormSum, RefusesWhatDoesNotBelongTogether)
{
    zoff_norm_sum sum = sum_of({1});
    const zoff_norm_sum before = sum, scaled = sum_of({1}, 0.25), nothing = {};
    double value;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is 0.5 in one engine and 0.25 in the other", zoff_norm_sum_join(&sum, &scaled));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "are not a zoff_norm_sum", zoff_norm_sum_join(&sum, &nothing));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_norm_sum_join(&sum, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "are not a zoff_norm_sum", zoff_norm_sum_value(&nothing, &value));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "out must not be NULL", zoff_norm_sum_value(&sum, nullptr));
    EXPECT_EQ(0, memcmp(&before, &sum, sizeof sum));
}
} // namespace
