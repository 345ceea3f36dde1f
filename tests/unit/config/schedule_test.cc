/* SPDX-License-Identifier: Apache-2.0 */
// schedule_test.cc: the required parameters of each schedule, its defaults, and the errors for parameters that it does not
// have.
#include "config_helpers.h"

using namespace config_test;

namespace
{
TEST(config_schedule, schedules)
{
    zoff_test::log_catcher log;
    auto warmup =
        parse("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": \"auto\", \"warmup_num_steps\": 1}}}");
    zoff_schedule_values s = values(warmup).schedule;
    EXPECT_EQ(-1, s.max_lr) << "the group's own";
    EXPECT_EQ(2u, s.warmup);
    EXPECT_FALSE(s.linear);
    auto cosine = parse(
        "{\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 2000, \"cos_min_ratio\": 0.1}}}");
    s = values(cosine).schedule;
    EXPECT_EQ(ZOFF_SCHEDULE_WARMUP_COSINE, s.type);
    EXPECT_EQ(2000u, s.total);
    EXPECT_EQ(1000u, s.warmup);
    EXPECT_EQ(0.1, s.cos_ratio);
    EXPECT_EQ(0, s.min_ratio);
    for (const char *params : {"", ", \"params\": {\"total_num_steps\": null}"}) {
        auto missing = parse("{\"scheduler\": {\"type\": \"WarmupCosineLR\"" + std::string(params) + "}}");
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "ds.json:1:16: scheduler.type: WarmupCosineLR needs scheduler.params.total_num_steps",
                          zoff_config_resolve(missing.get(), 1));
    }
}

TEST(config_schedule, schedules_with_all_their_keys)
{
    zoff_test::log_catcher log;
    zoff_schedule_values s =
        values(parse("{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1, \"cycle_max_lr\": 2}}}"))
            .schedule;
    EXPECT_EQ(ZOFF_SCHEDULE_ONE_CYCLE, s.type);
    EXPECT_EQ(1, s.cycle.min_lr);
    EXPECT_EQ(2, s.cycle.max_lr);
    EXPECT_EQ(0, s.cycle.lr_rate);
    EXPECT_EQ(2000, s.cycle.first);
    EXPECT_EQ(2000, s.cycle.second);
    EXPECT_EQ(0, s.cycle.first_stairs);
    EXPECT_EQ(0, s.cycle.second_stairs);
    EXPECT_EQ(0, s.cycle.decay_step);
    EXPECT_TRUE(s.cycle.moves_momentum);
    EXPECT_EQ(0.8, s.cycle.min_momentum);
    EXPECT_EQ(0.9, s.cycle.max_momentum);
    EXPECT_EQ(0, s.cycle.momentum_rate);
    s = values(
            parse(
                "{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1, \"cycle_max_lr\": 2, "
                "\"decay_lr_rate\": 3, "
                "\"cycle_first_step_size\": 4, \"cycle_second_step_size\": 0, \"cycle_first_stair_count\": 5, "
                "\"cycle_second_stair_count\": 6, \"decay_step_size\": 7, \"cycle_momentum\": false, \"cycle_min_mom\": 0.125, "
                "\"cycle_max_mom\": 0.25, \"decay_mom_rate\": 0.5}}}"))
            .schedule;
    EXPECT_EQ(3, s.cycle.lr_rate);
    EXPECT_EQ(4, s.cycle.first);
    EXPECT_EQ(0, s.cycle.second);
    EXPECT_EQ(5, s.cycle.first_stairs);
    EXPECT_EQ(6, s.cycle.second_stairs);
    EXPECT_EQ(7, s.cycle.decay_step);
    EXPECT_FALSE(s.cycle.moves_momentum);
    EXPECT_EQ(0.125, s.cycle.min_momentum);
    EXPECT_EQ(0.25, s.cycle.max_momentum);
    EXPECT_EQ(0.5, s.cycle.momentum_rate);
    s = values(parse("{\"scheduler\": {\"type\": \"LRRangeTest\"}}")).schedule;
    EXPECT_EQ(ZOFF_SCHEDULE_RANGE_TEST, s.type);
    EXPECT_EQ(1e-3, s.range_test.min_lr);
    EXPECT_EQ(2000, s.range_test.step);
    EXPECT_EQ(1, s.range_test.rate);
    EXPECT_FALSE(s.range_test.stairs);
    s = values(parse("{\"scheduler\": {\"type\": \"LRRangeTest\", \"params\": {\"lr_range_test_min_lr\": 1, "
                     "\"lr_range_test_step_size\": 2, "
                     "\"lr_range_test_step_rate\": 3, \"lr_range_test_staircase\": true}}}"))
            .schedule;
    EXPECT_EQ(1, s.range_test.min_lr);
    EXPECT_EQ(2, s.range_test.step);
    EXPECT_EQ(3, s.range_test.rate);
    EXPECT_TRUE(s.range_test.stairs);
    // The top of WarmupDecayLR: DeepSpeed's number if it is left out, else the group's own.
    auto decay = parse("{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 2000}}}");
    s = values(decay).schedule;
    EXPECT_EQ(ZOFF_SCHEDULE_WARMUP_DECAY, s.type);
    EXPECT_EQ(2000u, s.total);
    EXPECT_EQ(0.001, s.max_lr);
    EXPECT_EQ(0.001, number(decay, "scheduler.params.warmup_max_lr"));
    for (const char *own : {"null", "auto"}) {
        ASSERT_ZOFF_OK(zoff_config_set(decay.get(), "scheduler.params.warmup_max_lr", own));
        EXPECT_EQ(-1, values(decay).schedule.max_lr) << own;
    }
}

TEST(config_schedule, required_parameters_of_schedules)
{
    const struct {
        const char *type, *params, *missing;
    } cases[] = {{"WarmupDecayLR", "", "scheduler.params.total_num_steps; expected an integer >= 0"},
                 {"WarmupDecayLR", ", \"params\": {\"total_num_steps\": null}", "scheduler.params.total_num_steps"},
                 {"OneCycle", ", \"params\": {\"cycle_max_lr\": 1}", "scheduler.params.cycle_min_lr; expected a number >= 0"},
                 {"OneCycle", ", \"params\": {\"cycle_min_lr\": 1}", "scheduler.params.cycle_max_lr; expected a number >= 0"},
                 {"OneCycle", ", \"params\": {\"cycle_min_lr\": 1, \"cycle_max_lr\": null}", "scheduler.params.cycle_max_lr"}};
    for (const auto &c : cases) {
        auto config = parse("{\"scheduler\": {\"type\": \"" + std::string(c.type) + "\"" + c.params + "}}");
        const std::string words = "ds.json:1:16: scheduler.type: " + std::string(c.type) + " needs " + c.missing;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, zoff_config_resolve(config.get(), 1));
    }
}

TEST(config_schedule, a_momentum_that_is_not_there_does_not_cycle)
{
    for (const char *type : {"SGD", "Adagrad"}) {
        zoff_test::log_catcher log;
        const std::string text =
            "{\"optimizer\": {\"type\": \"" + std::string(type) +
            "\"}, \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1, \"cycle_max_lr\": 2";
        log.expect("default: scheduler.params.cycle_momentum has no effect with optimizer.type " + std::string(type));
        resolved(text + "}}}");
        resolved(text + ", \"cycle_momentum\": false}}}");
        EXPECT_EQ(1u, log.warnings.size());
    }
}

TEST(config_schedule, parameters_of_a_schedule_that_do_nothing_are_told_once)
{
    zoff_test::log_catcher log;
    log.expect("ds.json:1:48: scheduler.params.total_num_steps has no effect with scheduler.type WarmupLR");
    auto warmup = resolved("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": { \"total_num_steps\": 10}}}");
    ASSERT_ZOFF_OK(zoff_config_resolve(warmup.get(), 2));
    log.expect("scheduler.params.warmup_num_steps has no effect without scheduler.type");
    resolved("{\"scheduler\": {\"params\": {\"warmup_num_steps\": 10}}}");
    log.expect("the warm-up never ends");
    resolved("{\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 10}}}");
    EXPECT_EQ(3u, log.warnings.size());
}

} // namespace
