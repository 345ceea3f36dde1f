/* SPDX-License-Identifier: Apache-2.0 */
// loss_scale_test.cc: the scaler without an engine: its functions agree with one another, and a refusal changes nothing.
// tests/unit/engine/loss_scale_test.cc compares its changes with the rules.
#include "small_model.h"

#include <math.h>
#include <stddef.h>

#include <random>

using namespace zoff_test;

namespace
{
class Scaler : public testing::Test
{
  protected:
    Scaler()
    {
        fp16.enabled = fp16.dynamic = true;
        fp16.scale = 1024;
        fp16.min_scale = 1;
        fp16.window = 3;
        fp16.hysteresis = 2;
    }
    std::string words() const
    {
        char text[200] = "untouched";
        zoff_model_loss_scale_describe(m, text, sizeof text);
        return text;
    }
    zoff_status turn(bool overflow) { return zoff_model_loss_scale_turn(m, 7, overflow, "why"); }

    small_model parts;
    zoff_model *m = &parts.m;
    zoff_fp16_values &fp16 = parts.values.fp16;
    const zoff_loss_scaler &now = parts.m.scaler;
};

TEST_F(Scaler, StartsAsTheConfigurationSays)
{
    zoff_model_loss_scale_start(m);
    EXPECT_EQ(sizeof now, now.struct_size);
    EXPECT_EQ(1024, now.scale);
    EXPECT_EQ(0, now.iterations);
    EXPECT_EQ(-1, now.last_overflow);
    EXPECT_EQ(2u, now.hysteresis);
    fp16.dynamic = false;
    zoff_model_loss_scale_start(m);
    EXPECT_EQ(1024, now.scale);
    EXPECT_EQ(1u, now.hysteresis) << "a static one waits for nothing";
}

TEST_F(Scaler, IsOneAndStaysWithoutFp16)
{
    fp16.enabled = false;
    zoff_model_loss_scale_start(m);
    EXPECT_ZOFF_OK(turn(true));
    EXPECT_EQ(1, now.scale);
    EXPECT_EQ(0, now.iterations);
    EXPECT_EQ("", words());
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "fp16.enabled is false", zoff_model_loss_scale_set(m, &now));
}

// The log announces exactly what an overflow then does.
TEST_F(Scaler, SaysWhatAnOverflowWillDo)
{
    std::mt19937 random(3);
    unsigned halved = 0, waited = 0, least = 0;
    fp16.min_scale = 64;
    fp16.refills_at_once = true;
    zoff_model_loss_scale_start(m);
    for (int step = 0; step < 400; step++) {
        const bool overflow = random() % 2 == 0;
        const double before = now.scale;
        const uint64_t left = now.hysteresis;
        const std::string said = words();
        const zoff_status status = turn(overflow);
        EXPECT_EQ(step + 1, now.iterations);
        if (!overflow) {
            EXPECT_ZOFF_OK(status);
            continue;
        }
        EXPECT_EQ(step, now.last_overflow);
        if (status == ZOFF_ERR_OVERFLOW) {
            least++;
            EXPECT_EQ(1u, left) << "it waits there, too";
            EXPECT_EQ(64, now.scale);
            EXPECT_EQ("; the loss scale stays 64: fp16.min_loss_scale", said);
            EXPECT_NE(std::string::npos,
                      std::string(zoff_last_error()).find("step 7 was skipped: why, and the loss scale is 64"));
        } else if (now.scale < before) {
            halved++;
            EXPECT_EQ(before / 2, now.scale);
            EXPECT_NE(std::string::npos, said.find(" to " + std::to_string((int)now.scale) + " for the next step")) << said;
        } else {
            waited++;
            EXPECT_EQ(left - 1, now.hysteresis);
            EXPECT_NE(std::string::npos, said.find("overflows until it is halved: " + std::to_string(now.hysteresis))) << said;
        }
    }
    EXPECT_LT(0u, halved);
    EXPECT_LT(0u, waited);
    EXPECT_LT(0u, least);
}

TEST_F(Scaler, AStaticOneCountsOverflowsAndStays)
{
    fp16.dynamic = false;
    zoff_model_loss_scale_start(m);
    EXPECT_EQ("; the loss scale stays 1024: it is static", words());
    for (int step = 0; step < 9; step++)
        EXPECT_ZOFF_OK(turn(step == 4));
    EXPECT_EQ(1024, now.scale);
    EXPECT_EQ(9, now.iterations);
    EXPECT_EQ(4, now.last_overflow);
}

TEST_F(Scaler, BothScalesTogetherAreAnFp32Number)
{
    zoff_model_loss_scale_start(m);
    EXPECT_ZOFF_OK(zoff_model_loss_scale_check(m, 1024.0 * 0x1.fffffep127));
    EXPECT_ZOFF_OK(zoff_model_loss_scale_check(m, 0));
    for (double scale : {1024.0 * 0x1p128, -1024.0 * 0x1p128, (double)INFINITY, (double)NAN})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is not a finite fp32 number", zoff_model_loss_scale_check(m, scale));
}

TEST_F(Scaler, RefusedValuesChangeNothing)
{
    zoff_model_loss_scale_start(m);
    ASSERT_ZOFF_OK(turn(true));
    const zoff_loss_scaler before = now;
    zoff_loss_scaler bad = before;
    bad.scale = 512;
    bad.iterations = 9;
    bad.hysteresis = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "hysteresis is 0", zoff_model_loss_scale_set(m, &bad));
    bad.hysteresis = 1;
    bad.last_overflow = 9;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "iterations is 9 and last_overflow 9", zoff_model_loss_scale_set(m, &bad));
    EXPECT_EQ(before.scale, now.scale);
    EXPECT_EQ(before.iterations, now.iterations);
    EXPECT_EQ(before.hysteresis, now.hysteresis);
    bad.last_overflow = 8;
    bad.struct_size = offsetof(zoff_loss_scaler, hysteresis);
    bad.hysteresis = 0; // beyond the caller's struct
    EXPECT_ZOFF_OK(zoff_model_loss_scale_set(m, &bad));
    EXPECT_EQ(512, now.scale);
    EXPECT_EQ(9, now.iterations);
    EXPECT_EQ(before.hysteresis, now.hysteresis);
    EXPECT_EQ(sizeof now, now.struct_size);
}
} // namespace
