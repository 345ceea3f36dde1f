/* SPDX-License-Identifier: Apache-2.0 */
// precision_test.cc: fp16 and bf16: the keys of a loss scale, and refused values.
#include "config_helpers.h"

using namespace config_test;

namespace
{
TEST(config_precision, loss_scales)
{
    zoff_test::log_catcher log;
    zoff_fp16_values v = values(parse("{\"fp16\": {\"enabled\": true}}")).fp16;
    EXPECT_TRUE(v.enabled);
    EXPECT_TRUE(v.dynamic);
    EXPECT_EQ(65536, v.scale);
    EXPECT_EQ(1, v.min_scale);
    EXPECT_EQ(1000, v.window);
    EXPECT_EQ(2u, v.hysteresis);
    EXPECT_FALSE(v.refills_at_once);
    v = values(parse("{\"fp16\": {\"enabled\": true, \"initial_scale_power\": 32, \"loss_scale_window\": 5, \"hysteresis\": 3, "
                     "\"consecutive_hysteresis\": true, \"min_loss_scale\": 8}}"))
            .fp16;
    EXPECT_EQ(4294967296, v.scale);
    EXPECT_EQ(8, v.min_scale);
    EXPECT_EQ(5, v.window);
    EXPECT_EQ(3u, v.hysteresis);
    EXPECT_TRUE(v.refills_at_once);
    v = values(
            parse(
                "{\"fp16\": {\"enabled\": true, \"loss_scale\": \"128.5\", \"loss_scale_window\": 0, \"min_loss_scale\": -3}}"))
            .fp16;
    EXPECT_FALSE(v.dynamic);
    EXPECT_EQ(128.5, v.scale);
    EXPECT_FALSE(values(parse("{\"fp16\": {\"loss_scale_window\": 0, \"hysteresis\": 0, \"loss_scale\": 1e40}}")).fp16.enabled);
    log.expect("fp16.auto_cast (1:28)");
    resolved("{\"fp16\": {\"enabled\": true, \"auto_cast\": true}}");
}

TEST(config_precision, loss_scales_that_cannot_be)
{
    for (const char *key : {"loss_scale_window", "hysteresis", "min_loss_scale"}) {
        auto config = parse("{\"fp16\": {\"enabled\": true,\n\"" + std::string(key) + "\": 0}}");
        const std::string words = "ds.json:2:1: fp16." + std::string(key) +
                                  ": 0 is out of range; expected an integer >= 1, because fp16.loss_scale is 0: dynamic";
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, zoff_config_resolve(config.get(), 1));
        ASSERT_ZOFF_OK(zoff_config_set(config.get(), "fp16.loss_scale", "2"));
        EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
    }
    for (const char *scale : {"1e39", "1e-39"}) {
        auto config = parse("{\"fp16\": {\"enabled\": true,\n\"loss_scale\": " + std::string(scale) + "}}");
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is beyond fp32, in which steps are computed",
                          zoff_config_resolve(config.get(), 1));
        EXPECT_EQ(0, strncmp("ds.json:2:1: fp16.loss_scale: 1e", zoff_last_error(), 32)) << zoff_last_error();
    }
    // Two keys that exclude each other, from each pair of sources. Within a file the conflict is found while it is read.
    auto both = parse("{\"bf16\": {\"enabled\": true}}");
    ASSERT_ZOFF_OK(zoff_config_set(both.get(), "fp16.enabled", "true"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "api: fp16.enabled: bf16.enabled is true too, at ds.json:1:11; expected one of the two",
                      zoff_config_resolve(both.get(), 1));
    ASSERT_ZOFF_OK(zoff_config_set(both.get(), "bf16.enabled", "false"));
    EXPECT_ZOFF_OK(zoff_config_resolve(both.get(), 1));
}

} // namespace
