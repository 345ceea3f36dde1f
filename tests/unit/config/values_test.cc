/* SPDX-License-Identifier: Apache-2.0 */
// values_test.cc: the effective values as one typed struct for the engine: defaults, all keys given, and keys left open.
#include "config_helpers.h"

using namespace config_test;

namespace
{
TEST(config_values, defaults_are_deepspeeds_except_where_the_docs_say_so)
{
    zoff_test::log_catcher log;
    zoff_config_values v = values(parse("{}"));
    EXPECT_EQ(1e-3, v.hyper.lr);
    EXPECT_EQ(0.9, v.hyper.beta1);
    EXPECT_EQ(0.999, v.hyper.beta2);
    EXPECT_EQ(1e-8, v.hyper.eps);
    EXPECT_EQ(0, v.hyper.weight_decay);
    EXPECT_EQ(ZOFF_DECAY_DECOUPLED, v.hyper.decay);
    EXPECT_EQ(sizeof v.hyper, v.hyper.struct_size);
    EXPECT_EQ(ZOFF_SCHEDULE_NONE, v.schedule.type);
    EXPECT_EQ(0, v.clip_norm) << "nobody has asked for it";
    EXPECT_EQ(1u, v.accumulation);
    EXPECT_EQ(0u, v.micro_batch);
    EXPECT_EQ(0u, v.train_batch);
    EXPECT_EQ(0u, v.zero_stage);
    EXPECT_EQ(ZOFF_TIER_HOST, v.state_tier);
    EXPECT_EQ(0u, v.nvme_path_count);
    EXPECT_EQ(0u, v.host_bytes);
    EXPECT_EQ(1000000000u, v.chunk_elements);
    EXPECT_EQ(4u, v.slots);
    EXPECT_EQ(0u, v.threads);
    EXPECT_EQ(2u << 20, v.aio_block_bytes);
    EXPECT_EQ(32u, v.aio_depth);
    EXPECT_FALSE(v.aio_tune);
    EXPECT_EQ(ZOFF_DIRECT_AUTO, v.direct);
    EXPECT_EQ(nullptr, v.aio_backend);
    EXPECT_EQ(0u, v.steps_per_print);
    EXPECT_EQ(ZOFF_SUMS_AUTO, v.sums);
    EXPECT_FALSE(v.wants_bf16);
    EXPECT_FALSE(v.fp16.enabled);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_values_get(nullptr, 1, &v));
}

TEST(config_values, everything_given)
{
    zoff_test::log_catcher log;
    auto config = parse(R"({
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2, "gradient_clipping": 0.25, "steps_per_print": 10,
        "optimizer": {"type": "Adam", "params": {"lr": 2e-4, "betas": [0.8, 0.95], "eps": 1e-6, "weight_decay": 0.1, "adam_w_mode": false}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1e-6, "warmup_max_lr": 3e-4, "warmup_num_steps": 50, "warmup_type": "linear"}},
        "bf16": {"enabled": true},
        "zero_optimization": {"stage": 2, "sub_group_size": 1e6,
            "offload_optimizer": {"device": "nvme", "nvme_path": "/n", "buffer_count": 3}},
        "aio": {"block_size": "4MiB", "queue_depth": 64},
        "zoff": {"host_memory": "64MiB", "threads": 6, "direct_io": "require", "io_backend": "posix", "reduce_scatter": "nccl"}})");
    zoff_config_values v = values(config);
    EXPECT_EQ(ZOFF_SUMS_NCCL, v.sums);
    EXPECT_EQ(2e-4, v.hyper.lr);
    EXPECT_EQ(1e-6, v.hyper.eps);
    EXPECT_EQ(0.1, v.hyper.weight_decay);
    EXPECT_EQ(ZOFF_DECAY_L2, v.hyper.decay);
    EXPECT_EQ(ZOFF_SCHEDULE_WARMUP, v.schedule.type);
    EXPECT_EQ(1e-6, v.schedule.min_lr);
    EXPECT_EQ(3e-4, v.schedule.max_lr);
    EXPECT_EQ(50u, v.schedule.warmup);
    EXPECT_TRUE(v.schedule.linear);
    EXPECT_EQ(0.25, v.clip_norm);
    EXPECT_EQ(8u, v.train_batch);
    EXPECT_EQ(10u, v.steps_per_print);
    EXPECT_TRUE(v.wants_bf16);
    EXPECT_EQ(2u, v.zero_stage);
    EXPECT_EQ(1000000u, v.chunk_elements);
    EXPECT_EQ(ZOFF_TIER_NVME, v.state_tier);
    EXPECT_STREQ("/n", v.nvme_paths[0]);
    EXPECT_EQ(3u, v.slots);
    EXPECT_EQ(64u << 20, v.host_bytes);
    EXPECT_EQ(6u, v.threads);
    EXPECT_EQ(ZOFF_DIRECT_REQUIRE, v.direct);
    EXPECT_STREQ("posix", v.aio_backend);
    EXPECT_EQ(4u << 20, v.aio_block_bytes);
    EXPECT_EQ(64u, v.aio_depth);
}

// "auto" for the whole section: 0 leaves a value to the measurement.
TEST(config_values, aio_auto_leaves_to_tuning_what_is_not_given)
{
    struct expected {
        const char *text;
        bool tune;
        uint64_t block;
        unsigned depth;
    };
    const expected cases[] = {
        {R"({"aio": "auto"})", true, 0, 0},
        {R"({"aio": "AUTO", "zoff": {"io_backend": "threads"}})", true, 0, 0},
        {R"({"zero_optimization": {"aio": "auto"}})", true, 0, 0},
        {R"({"aio": {}})", false, 2 << 20, 32},
        {R"({"aio": null})", false, 2 << 20, 32},
        {R"({"aio": {"block_size": "auto", "queue_depth": "auto"}})", false, 2 << 20, 32}, // "auto" for a key is its default
    };
    for (const expected &e : cases) {
        zoff_config_values v = values(resolved(e.text));
        EXPECT_EQ(e.tune, v.aio_tune) << e.text;
        EXPECT_EQ(e.block, v.aio_block_bytes) << e.text;
        EXPECT_EQ(e.depth, v.aio_depth) << e.text;
    }
    auto config = parse("{\n  \"aio\": \"auto\"\n}");
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "aio.queue_depth", "16"));
    zoff_config_values v = values(config);
    EXPECT_TRUE(v.aio_tune);
    EXPECT_EQ(0u, v.aio_block_bytes);
    EXPECT_EQ(16u, v.aio_depth);
    EXPECT_NE(std::string::npos, dump(config).find("aio.block_size = auto ")) << dump(config);
    EXPECT_NE(std::string::npos, dump(config).find("# auto at ds.json:2:3")) << dump(config);
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "aio.block_size", "2MiB"));
    v = values(config);
    EXPECT_FALSE(v.aio_tune) << "nothing is left to measure";
    EXPECT_EQ(2u << 20, v.aio_block_bytes);
    EXPECT_EQ(16u, v.aio_depth);
}

TEST(config_values, aio_auto_from_the_program_and_beside_a_section)
{
    auto config = parse(R"({"aio": {"block_size": 8192}})");
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "aio", "auto"));
    zoff_config_values v = values(config);
    EXPECT_TRUE(v.aio_tune);
    EXPECT_EQ(8192u, v.aio_block_bytes) << "what the file gives stays";
    EXPECT_EQ(0u, v.aio_depth);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "this is a section", zoff_config_set(config.get(), "aio", "tune"));
    EXPECT_NE(std::string::npos, error_of(R"({"aio": "tune"})").find("expected an object")) << "only \"auto\" is a word for it";
    for (const char *text : {R"({"aio": "auto", "zero_optimization": {"aio": {"queue_depth": 4}}})",
                             R"({"zero_optimization": {"aio": {"queue_depth": 4}}, "aio": "auto"})"}) {
        zoff_test::log_catcher log;
        log.expect("aio is given twice");
        v = values(resolved(text));
        EXPECT_TRUE(v.aio_tune) << text;
        EXPECT_EQ(0u, v.aio_block_bytes) << text;
        EXPECT_EQ(4u, v.aio_depth) << text;
    }
    zoff_test::log_catcher log;
    log.expect("aio is given twice");
    EXPECT_FALSE(values(resolved(R"({"zero_optimization": {"aio": "auto"}, "aio": {"queue_depth": 4}})")).aio_tune);
}

// Keys of DeepSpeed's own threads may have any value.
TEST(config_values, aio_keys_that_are_ignored_are_not_looked_into)
{
    for (const char *value : {"1", "8", "\"x\"", "[1, 2]", "{\"a\": 1}", "true", "null", "-1.5", "\"auto\""}) {
        zoff_test::log_catcher log;
        log.expect("known keys that zoff ignores");
        std::string text = "{\"aio\": {\"queue_depth\": 4";
        for (const char *key : {"intra_op_parallelism", "single_submit", "overlap_events", "thread_count", "use_gds"})
            text += std::string(", \"") + key + "\": " + value;
        EXPECT_EQ(4u, values(resolved(text + "}}")).aio_depth) << value;
        EXPECT_EQ(1u, log.warnings.size()) << value;
    }
}

TEST(config_values, every_parameter_of_every_optimizer)
{
    zoff_test::log_catcher log;
    zoff_config_values sgd = values(parse("{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9, "
                                          "\"dampening\": -0.5, \"weight_decay\": 1e-4}}}"));
    EXPECT_EQ(0.1, sgd.hyper.lr);
    EXPECT_EQ(0.9, sgd.hyper.momentum);
    EXPECT_EQ(-0.5, sgd.hyper.dampening);
    EXPECT_EQ(1e-4, sgd.hyper.weight_decay);
    EXPECT_FALSE(sgd.hyper.nesterov);
    EXPECT_TRUE(values(parse("{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentum\": 0.9, \"nesterov\": true}}}"))
                    .hyper.nesterov);
    for (const char *type : {"Adam", "AdamW"}) {
        const std::string text = "{\"optimizer\": {\"type\": \"" + std::string(type) + "\", \"params\": {\"bias_correction\": ";
        EXPECT_EQ(uint64_t{ZOFF_HYPER_NO_BIAS_CORRECTION}, values(parse(text + "false}}}")).hyper.flags);
        EXPECT_EQ(0u, values(parse(text + "true}}}")).hyper.flags);
        EXPECT_EQ(0u, values(parse(text + "\"auto\"}}}")).hyper.flags);
    }
    EXPECT_EQ(0u, sgd.hyper.flags);
    zoff_config_values adagrad =
        values(parse("{\"optimizer\": {\"type\": \"Adagrad\", \"params\": {\"lr_decay\": 0.25, \"eps\": "
                     "1e-6, \"initial_accumulator_value\": 0.5}}}"));
    EXPECT_EQ(0.25, adagrad.hyper.lr_decay);
    EXPECT_EQ(1e-6, adagrad.hyper.eps);
    EXPECT_EQ(0.5, adagrad.initial_accumulator);
    zoff_config_values lion = values(parse("{\"optimizer\": {\"type\": \"Lion\", \"params\": {\"betas\": [0.95, 0.98]}}}"));
    EXPECT_EQ(0.95, lion.hyper.beta1);
    EXPECT_EQ(0.98, lion.hyper.beta2);
    EXPECT_EQ(1e-3, lion.hyper.lr);
}

TEST(config_values, meaning_of_zero)
{
    auto with = [](const char *key, const char *value) { return values(parse(nest(key, value))); };
    EXPECT_EQ(0u, with("zero_optimization.sub_group_size", "0").chunk_elements) << "the largest slice";
    EXPECT_EQ(0u, with("zero_optimization.reduce_bucket_size", "0").bucket_elements) << "the largest slice";
    EXPECT_EQ(2u, with("zero_optimization.offload_optimizer.buffer_count", "0").slots);
    EXPECT_EQ(2u, with("zero_optimization.offload_param.buffer_count", "1").weights.slots);
    EXPECT_EQ(1024u, with("zero_optimization.offload_param.buffer_count", "1e20").weights.slots);
    EXPECT_EQ(1024u, with("zero_optimization.offload_param.buffer_size", "0").weights.chunk_count);
    const zoff_config_values none = with("zero_optimization.stage3_max_live_parameters", "0");
    EXPECT_EQ(0u, none.weights.live_count);
    EXPECT_EQ(0u, none.weights.ahead_count) << "nothing is read ahead";
    EXPECT_EQ(0, with("gradient_clipping", "-1").clip_norm);
    EXPECT_EQ(0, with("gradient_clipping", "0").clip_norm);
    // No count makes a size of memory overflow.
    EXPECT_LE(with("zero_optimization.stage3_max_live_parameters", "9223372036854775807").weights.live_count, 1ull << 53);
    auto config = parse("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 0}}}");
    EXPECT_EQ(2u, values(config).schedule.warmup);
}

TEST(config_values, words_become_numbers)
{
    const std::pair<const char *, zoff_dtype> wires[] = {
        {"\"fp32\"", ZOFF_F32}, {"\"bf16\"", ZOFF_BF16}, {"\"fp16\"", ZOFF_F16}, {"null", (zoff_dtype)0}};
    for (const auto &wire : wires)
        EXPECT_EQ(wire.second, values(parse(nest("communication_data_type", wire.first))).wire_dtype) << wire.first;
    const std::pair<const char *, unsigned> checks[] = {{"full", 0}, {"sample", 1}, {"off", 2}};
    for (const auto &check : checks)
        EXPECT_EQ(check.second, values(parse(nest("zoff.verify", "\"" + std::string(check.first) + "\""))).verify);
    EXPECT_EQ(1u, values(parse(nest("zoff.moments", "\"bf16\""))).moments);
    EXPECT_EQ(0u, values(parse(nest("zoff.moments", "\"fp32\""))).moments);
    EXPECT_TRUE(values(parse(nest("zoff.durability", "\"power\""))).power_safe);
    EXPECT_EQ(ZOFF_DIRECT_OFF, values(parse(nest("zoff.direct_io", "\"off\""))).direct);
    EXPECT_EQ(nullptr, values(parse(nest("zoff.io_backend", "\"auto\""))).aio_backend);
}

TEST(config_values, gradients_are_scaled_for_the_ranks_there_are)
{
    auto config = parse("{\"prescale_gradients\": true}");
    EXPECT_EQ(0.25, values(config, 4).grad_factor);
    EXPECT_EQ(0.5, values(config, 2).grad_factor);
    EXPECT_EQ(1.0, values(parse("{}"), 4).grad_factor);
    EXPECT_EQ(0.125, values(parse("{\"gradient_predivide_factor\": 8}"), 4).grad_factor);
    EXPECT_FALSE(values(parse("{}"), 4).sums_ranks);
    EXPECT_TRUE(values(parse("{\"gradient_allreduce_op\": \"sum\"}"), 4).sums_ranks);
}

TEST(config_values, another_number_of_ranks_is_settled_anew)
{
    auto config = parse("{\"train_batch_size\": 8}");
    EXPECT_EQ(2u, values(config, 4).micro_batch);
    EXPECT_EQ(4u, values(config, 2).micro_batch);
    EXPECT_EQ(4u, values(config, 2).micro_batch);
}

TEST(config_values, a_loss_scale_is_dynamic_or_given)
{
    const zoff_fp16_values dynamic = values(parse(R"({"fp16": {"enabled": true, "initial_scale_power": 10}})")).fp16;
    EXPECT_TRUE(dynamic.enabled && dynamic.dynamic);
    EXPECT_EQ(1024, dynamic.scale);
    const zoff_fp16_values given = values(parse(R"({"fp16": {"enabled": true, "loss_scale": 128}})")).fp16;
    EXPECT_TRUE(given.enabled);
    EXPECT_FALSE(given.dynamic);
    EXPECT_EQ(128, given.scale);
}

TEST(config_values, the_second_half_of_a_cycle_is_as_the_first_where_nothing_is_said)
{
    const std::string start = R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1, "cycle_max_lr": 2,
        "cycle_first_step_size": 7, "cycle_first_stair_count": 3)";
    const zoff_schedule_values same = values(parse(start + "}}}")).schedule;
    EXPECT_EQ(ZOFF_SCHEDULE_ONE_CYCLE, same.type);
    EXPECT_EQ(7, same.cycle.second);
    EXPECT_EQ(3, same.cycle.second_stairs);
    const zoff_schedule_values other =
        values(parse(start + R"(, "cycle_second_step_size": 5, "cycle_second_stair_count": 0}}})")).schedule;
    EXPECT_EQ(5, other.cycle.second);
    EXPECT_EQ(0, other.cycle.second_stairs);
}
} // namespace
