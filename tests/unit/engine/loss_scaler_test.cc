/* SPDX-License-Identifier: Apache-2.0 */
// loss_scaler_test.cc: the loss scale and its counters in a checkpoint: a run that stops continues with the same scales.
#include "fp16_engine.h"

#include <string.h>

#include <algorithm>
#include <random>

using namespace zoff_test;

namespace
{
// Stop at any step and continue in another engine: the scales are the same from there on.
TEST(LossScaler, ContinuesWhereItStopped)
{
    log_catcher log;
    log.expect("skipped");
    const std::string text = fp16_text("\"loss_scale_window\": 3, \"hysteresis\": 3, \"initial_scale_power\": 6");
    std::mt19937 random(11);
    std::vector<bool> overflows;
    for (int i = 0; i < 40; i++)
        overflows.push_back(random() % 3 == 0);
    std::vector<double> scales;
    tiny whole(text);
    for (bool overflow : overflows) {
        whole.step(overflow);
        scales.push_back(whole.scale());
    }
    for (size_t stop = 1; stop < overflows.size(); stop += 3) {
        tiny before(text), after(text);
        for (size_t i = 0; i < stop; i++)
            before.step(overflows[i]);
        auto kept = before.scaler();
        EXPECT_EQ(64, after.scale()) << "a new engine starts anew";
        ASSERT_ZOFF_OK(zoff_loss_scaler_set(after.e.get(), &kept));
        for (size_t i = stop; i < overflows.size(); i++) {
            after.step(overflows[i]);
            ASSERT_EQ(scales[i], after.scale()) << "stopped at " << stop << ", step " << i;
        }
    }
}

std::string persistent_text(const std::string &folder, const std::string &fp16)
{
    return config_text(folder, 1, ", \"fp16\": {\"enabled\": true, " + fp16 + "}, \"zoff\": {\"persist\": true}");
}

// With persist the scale is committed with the update that leaves it behind. Skipped steps commit nothing. A run that ends
// after them takes them again, and then has the same scales as a run that did not end.
TEST(LossScaler, ContinuesWithTheStatesThatPersist)
{
    log_catcher log;
    log.expect("skipped");
    const std::string fp16 = "\"loss_scale_window\": 3, \"hysteresis\": 2, \"initial_scale_power\": 6";
    std::mt19937 random(5);
    std::vector<bool> overflows;
    for (int i = 0; i < 24; i++)
        overflows.push_back(random() % 3 == 0);
    std::vector<zoff_loss_scaler> scalers;
    tiny whole(fp16_text(fp16));
    for (bool overflow : overflows) {
        whole.step(overflow);
        scalers.push_back(whole.scaler());
    }
    for (size_t stop = 1; stop < overflows.size(); stop++) {
        scratch_folder folder;
        int64_t count = 0;
        size_t updated = 0; // steps up to the last update
        {
            tiny before(persistent_text(folder.path, fp16));
            for (size_t i = 0; i < stop; i++) {
                before.step(overflows[i]);
                updated = overflows[i] ? updated : i + 1;
            }
        }
        tiny after(persistent_text(folder.path, fp16));
        ASSERT_ZOFF_OK(zoff_step_count(after.e.get(), &count));
        ASSERT_EQ(std::count(overflows.begin(), overflows.begin() + (long)stop, false), count);
        if (updated) {
            const zoff_loss_scaler now = after.scaler();
            ASSERT_EQ(0, memcmp(&scalers[updated - 1], &now, sizeof now)) << "stopped at " << stop;
            ASSERT_ZOFF_OK(zoff_params_push(after.e.get()));
        }
        for (size_t i = updated; i < overflows.size(); i++) {
            after.step(overflows[i]);
            ASSERT_EQ(scalers[i].scale, after.scale()) << "stopped at " << stop << ", step " << i;
        }
    }
}

// The configuration wins over the record: a static scale stays, and without fp16 there is none.
TEST(LossScaler, AStaticScaleIsTheConfigurations)
{
    log_catcher log;
    scratch_folder folder;
    const std::string dynamic = persistent_text(folder.path, "\"loss_scale_window\": 1, \"initial_scale_power\": 6");
    zoff_loss_scaler set = new_scaler();
    {
        tiny first(dynamic);
        ASSERT_ZOFF_OK(first.step(false));
        ASSERT_ZOFF_OK(first.step(false));
        EXPECT_EQ(128, first.scale());
    }
    {
        tiny second(persistent_text(folder.path, "\"loss_scale\": 32"));
        EXPECT_EQ(32, second.scale());
        EXPECT_EQ(2, second.scaler().iterations);
    }
    EXPECT_EQ(1, tiny(config_text(folder.path, 1, ", \"zoff\": {\"persist\": true}")).scale());
    {
        tiny third(dynamic);
        EXPECT_EQ(128, third.scale());
        set = third.scaler();
        set.scale = 8;
        ASSERT_ZOFF_OK(zoff_loss_scaler_set(third.e.get(), &set));
        ASSERT_ZOFF_OK(zoff_step_count_set(third.e.get(), 7)); // this call records the scale, too
    }
    EXPECT_EQ(8, tiny(dynamic).scale());
}

TEST(LossScaler, InvalidValuesAreRefused)
{
    log_catcher log;
    tiny engine(fp16_text("", 2));
    auto *e = engine.e.get();
    const zoff_loss_scaler good = engine.scaler();
    EXPECT_EQ(65536, good.scale);
    EXPECT_EQ(0, good.iterations);
    EXPECT_EQ(-1, good.last_overflow);
    EXPECT_EQ(2u, good.hysteresis);
    auto bad = good;
    for (double scale : {0.0, -1.0, (double)INFINITY, (double)NAN, 1e39, 1e-39}) {
        bad.scale = scale;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "expected a positive fp32 number", zoff_loss_scaler_set(e, &bad));
    }
    bad = good;
    bad.hysteresis = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "hysteresis is 0", zoff_loss_scaler_set(e, &bad));
    const std::pair<int64_t, int64_t> counters[] = {{-1, -1}, {0, 0}, {5, 5}, {5, -2}};
    for (const auto &c : counters) {
        bad = good;
        bad.iterations = c.first;
        bad.last_overflow = c.second;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "expected iterations >= 0 and -1 <= last_overflow < iterations",
                          zoff_loss_scaler_set(e, &bad));
    }
    bad = good;
    bad.struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sizeof(zoff_loss_scaler)", zoff_loss_scaler_set(e, &bad));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sizeof(zoff_loss_scaler)", zoff_loss_scaler_get(e, &bad));
    double scale;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_loss_scaler_set(e, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_loss_scaler_set(nullptr, &bad));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_loss_scaler_get(nullptr, &bad));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_loss_scaler_get(e, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_loss_scale(nullptr, &scale));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_loss_scale(e, nullptr));
    // A program with an older, shorter struct sets only the fields of that struct.
    bad = good;
    bad.struct_size = offsetof(zoff_loss_scaler, iterations);
    bad.scale = 8;
    bad.iterations = -77;
    ASSERT_ZOFF_OK(zoff_loss_scaler_set(e, &bad));
    EXPECT_EQ(8, engine.scaler().scale);
    EXPECT_EQ(0, engine.scaler().iterations);
    bad.iterations = 1234;
    ASSERT_ZOFF_OK(zoff_loss_scaler_get(e, &bad));
    EXPECT_EQ(1234, bad.iterations) << "behind what the caller has";
    EXPECT_EQ(offsetof(zoff_loss_scaler, iterations), bad.struct_size);
    // Half of an update was taken with one scale.
    ASSERT_ZOFF_OK(engine.step(false));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "1 of 2 micro-steps of the next update are done", zoff_loss_scaler_set(e, &good));
    ASSERT_ZOFF_OK(zoff_step_begin(e, nullptr));
    EXPECT_ZOFF_OK(zoff_loss_scaler_set(e, &good)) << "it finishes the step";
    ASSERT_ZOFF_OK(zoff_step_wait(e, nullptr));
    // A static scale comes from the configuration.
    tiny fixed(fp16_text("\"loss_scale\": 128"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "fp16.loss_scale is 128", zoff_loss_scaler_set(fixed.e.get(), &good));
    auto same = fixed.scaler();
    EXPECT_ZOFF_OK(zoff_loss_scaler_set(fixed.e.get(), &same));
}
} // namespace
