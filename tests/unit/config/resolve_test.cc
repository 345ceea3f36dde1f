// resolve_test.cc: what depends on other keys: defaults, old names, tiers and folders, schedules; and the typed values behind
// the door.
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
    EXPECT_EQ(1.0, v.clip_norm);
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
    EXPECT_FALSE(v.nccl_adds);
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
    EXPECT_TRUE(v.nccl_adds);
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

// The section as a whole: what nobody gives is left to measuring, which 0 says.
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
        {R"({"aio": {"block_size": "auto", "queue_depth": "auto"}})", false, 2 << 20, 32}, // of a key it is the default
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

// Keys of DeepSpeed's own threads: whatever they hold.
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

TEST(config_resolve, decay_of_adam_and_adamw)
{
    struct {
        const char *params;
        zoff_decay decay;
        bool warns;
    } cases[] = {{"\"type\": \"Adam\"", ZOFF_DECAY_DECOUPLED, false},
                 {"\"type\": \"Adam\", \"params\": {\"adam_w_mode\": true}", ZOFF_DECAY_DECOUPLED, false},
                 {"\"type\": \"Adam\", \"params\": {\"adam_w_mode\": false}", ZOFF_DECAY_L2, false},
                 {"\"type\": \"AdamW\"", ZOFF_DECAY_DECOUPLED, false},
                 {"\"type\": \"AdamW\", \"params\": {\"adam_w_mode\": false}", ZOFF_DECAY_DECOUPLED, true}};
    for (const auto &c : cases) {
        zoff_test::log_catcher log;
        if (c.warns)
            log.expect("ds.json:1:44: optimizer.params.adam_w_mode has no effect with optimizer.type AdamW");
        EXPECT_EQ(c.decay, values(parse("{\"optimizer\": {" + std::string(c.params) + "}}")).hyper.decay) << c.params;
    }
}

// What each optimizer takes when the file leaves it open is what DeepSpeed takes, which is what the program gets from
// zoff_adam_hyper_init_for(), but for Lion.
TEST(config_resolve, defaults_are_those_of_the_optimizer)
{
    struct {
        const char *type;
        zoff_optimizer optimizer;
        const char *lr, *betas, *eps;
    } cases[] = {{"Adam", ZOFF_OPTIMIZER_ADAM, "0.001", "[0.9, 0.999]", "1e-08"},
                 {"adamw", ZOFF_OPTIMIZER_ADAM, "0.001", "[0.9, 0.999]", "1e-08"},
                 {"ADAGRAD", ZOFF_OPTIMIZER_ADAGRAD, "0.01", nullptr, "1e-10"},
                 {"lion", ZOFF_OPTIMIZER_LION, "0.001", "[0.9, 0.999]", nullptr},
                 {"SGD", ZOFF_OPTIMIZER_SGD, "0.001", nullptr, nullptr}};
    zoff_test::log_catcher log;
    for (const auto &c : cases) {
        SCOPED_TRACE(c.type);
        for (const char *params : {"{}", "{\"lr\": \"auto\", \"betas\": \"auto\", \"eps\": null}"}) {
            auto config = resolved("{\"optimizer\": {\"type\": \"" + std::string(c.type) + "\", \"params\": " + params + "}}");
            zoff_adam_hyper want;
            zoff_adam_hyper_init_for(&want, c.optimizer);
            if (c.optimizer == ZOFF_OPTIMIZER_LION) {
                want.lr = 1e-3;
                want.beta2 = 0.999;
            }
            zoff_config_values v = values(config);
            EXPECT_EQ(want.optimizer, v.hyper.optimizer);
            EXPECT_EQ(want.lr, v.hyper.lr);
            EXPECT_EQ(want.eps, v.hyper.eps);
            EXPECT_EQ(want.weight_decay, v.hyper.weight_decay);
            EXPECT_EQ(want.momentum, v.hyper.momentum);
            EXPECT_EQ(want.dampening, v.hyper.dampening);
            EXPECT_EQ(want.nesterov, v.hyper.nesterov);
            EXPECT_EQ(want.lr_decay, v.hyper.lr_decay);
            EXPECT_TRUE(!c.betas || (want.beta1 == v.hyper.beta1 && want.beta2 == v.hyper.beta2));
            EXPECT_EQ(0, v.initial_accumulator);
            EXPECT_NE(std::string::npos, dump(config).find("optimizer.params.lr = " + std::string(c.lr) + " ")) << dump(config);
            std::string text = dump(config);
            // What the optimizer does not have is shown only where it was given.
            bool given = strcmp(params, "{}") != 0;
            auto shows = [&](const char *param, const char *value) {
                return text.find("optimizer.params." + std::string(param) + " = " + (value ? value : "")) != text.npos;
            };
            EXPECT_EQ(c.betas || given, shows("betas", c.betas)) << text;
            EXPECT_EQ(c.eps || given, shows("eps", c.eps)) << text;
            EXPECT_EQ(c.optimizer == ZOFF_OPTIMIZER_SGD, shows("momentum", "0 ")) << text;
        }
    }
    // The program may change the type: defaults follow it.
    auto config = parse("{\"optimizer\": {\"type\": \"SGD\"}}");
    EXPECT_EQ(1e-3, values(config).hyper.lr);
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "optimizer.type", "Adagrad"));
    EXPECT_EQ(1e-2, values(config).hyper.lr);
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "optimizer.params.lr", "0.5"));
    EXPECT_EQ(0.5, values(config).hyper.lr);
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

// A parameter that would change the training of another optimizer is not dropped in silence; one that says "none of it" passes.
TEST(config_resolve, parameters_of_another_optimizer)
{
    struct {
        const char *type, *param, *value, *owners; // NULL: it passes
    } cases[] = {
        {"SGD", "betas", "[0.9, 0.999]", "\"Adam\", \"AdamW\" or \"Lion\""},
        {"Adagrad", "betas", "[0.9, 0.999]", "\"Adam\", \"AdamW\" or \"Lion\""},
        {"Lion", "eps", "1e-8", "\"Adam\", \"AdamW\" or \"Adagrad\""},
        {"SGD", "eps", "1e-8", "\"Adam\", \"AdamW\" or \"Adagrad\""},
        {"Lion", "adam_w_mode", "true", "\"Adam\" or \"AdamW\""},
        {"SGD", "bias_correction", "true", "\"Adam\" or \"AdamW\""},
        {"AdamW", "momentum", "0.9", "\"SGD\""},
        {"AdamW", "momentum", "0", nullptr},
        {"Lion", "dampening", "0.1", "\"SGD\""},
        {"Adam", "nesterov", "true", "\"SGD\""},
        {"Adam", "nesterov", "false", nullptr},
        {"Adam", "lr_decay", "0.1", "\"Adagrad\""},
        {"SGD", "lr_decay", "0.0", nullptr},
        {"SGD", "initial_accumulator_value", "0.1", "\"Adagrad\""},
        {"SGD", "eps", "null", nullptr},
        {"SGD", "betas", "\"auto\"", nullptr},
        {"Lion", "weight_decay", "0.1", nullptr},
    };
    for (const auto &c : cases) {
        SCOPED_TRACE(std::string(c.type) + " " + c.param);
        auto config = parse("{\"optimizer\": {\"type\": \"" + std::string(c.type) + "\",\n\"params\": {\"" + c.param +
                            "\": " + c.value + "}}}");
        if (!c.owners) {
            EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
            continue;
        }
        std::string words = "ds.json:2:12: optimizer.params." + std::string(c.param) + " is a parameter of optimizer.type " +
                            c.owners + ", and " + c.type + " (ds.json:1:16) has none of this name";
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words.c_str(), zoff_config_resolve(config.get(), 1));
        ASSERT_ZOFF_OK(zoff_config_set(config.get(), ("optimizer.params." + std::string(c.param)).c_str(), "null"));
        EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
    }
}

// A step would refuse them too, but could not say where they stand.
TEST(config_resolve, numbers_beyond_fp32)
{
    zoff_test::log_catcher log;
    struct {
        const char *type, *param;
    } cases[] = {{"AdamW", "lr"},
                 {"Lion", "weight_decay"},
                 {"Adam", "eps"},
                 {"SGD", "momentum"},
                 {"SGD", "dampening"},
                 {"Adagrad", "lr_decay"},
                 {"Adagrad", "initial_accumulator_value"}};
    for (const auto &c : cases) {
        SCOPED_TRACE(c.param);
        const std::string path = "optimizer.params." + std::string(c.param);
        auto config =
            parse("{\"optimizer\": {\"type\": \"" + std::string(c.type) + "\",\n\"params\": {\"" + c.param + "\": 1e39}}}");
        const std::string words = "ds.json:2:12: " + path + ": 1e+39 is beyond fp32, in which steps are computed";
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words.c_str(), zoff_config_resolve(config.get(), 1));
        ASSERT_ZOFF_OK(zoff_config_set(config.get(), path.c_str(), "3e38"));
        EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
    }
    auto negative = parse("{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentum\": 0.9, \"dampening\": -1e39}}}");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "optimizer.params.dampening: -1e+39 is beyond fp32",
                      zoff_config_resolve(negative.get(), 1));
    for (const char *param : {"warmup_min_lr", "warmup_max_lr", "cycle_min_lr", "cycle_max_lr", "lr_range_test_min_lr"}) {
        zoff_test::log_catcher warnings;
        if (param[0] != 'w')
            warnings.expect("has no effect with scheduler.type WarmupLR");
        auto config = parse("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"" + std::string(param) + "\": 1e39}}}");
        const std::string words = "ds.json:1:47: scheduler.params." + std::string(param) + ": 1e+39 is beyond fp32";
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words.c_str(), zoff_config_resolve(config.get(), 1));
    }
}

TEST(config_resolve, nesterov_needs_momentum)
{
    for (const char *params : {"{\"nesterov\": true}", "{\"nesterov\": true, \"momentum\": 0.9, \"dampening\": 0.1}"}) {
        auto config = parse("{\"optimizer\": {\"type\": \"SGD\", \"params\": " + std::string(params) + "}}");
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "ds.json:1:42: optimizer.params.nesterov needs a momentum above 0 and a dampening of 0",
                          zoff_config_resolve(config.get(), 1));
    }
}

TEST(config_resolve, the_device_decides_the_tier_at_every_stage)
{
    for (int stage = 0; stage <= 3; stage++) {
        for (const char *device : {"none", "cpu", "nvme"}) {
            zoff_test::log_catcher log;
            auto config = parse("{\"zero_optimization\": {\"stage\": " + std::to_string(stage) +
                                ", \"offload_optimizer\": {\"device\": \"" + device + "\", \"nvme_path\": \"/n\"}}}");
            EXPECT_EQ(strcmp(device, "nvme") == 0 ? ZOFF_TIER_NVME : ZOFF_TIER_HOST, values(config).state_tier) << device;
        }
    }
}

TEST(config_resolve, weights_are_offloaded_at_stage_3)
{
    zoff_test::log_catcher log;
    zoff_weight_values none = values(resolved("{\"zero_optimization\": {\"stage\": 3}}")).weights;
    EXPECT_EQ(ZOFF_TIER_HOST, none.tier);
    EXPECT_EQ(5u, none.slots);
    EXPECT_EQ(100000000u, none.chunk_count);
    EXPECT_EQ(1000000000u, none.cached_count);
    EXPECT_EQ(50000000u, none.ahead_count);
    EXPECT_EQ(100000u, none.persistent_slice);
    EXPECT_EQ(1000000000u, none.live_count);
    auto config =
        parse("{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"nvme_path\": \"/o\"}, "
              "\"stage3_prefetch_bucket_size\": 7, \"stage3_param_persistence_threshold\": 8, "
              "\"stage3_model_persistence_threshold\": 9, \"stage3_max_live_parameters\": 10, "
              "\"offload_param\": {\"device\": \"nvme\", \"buffer_count\": 2, \"buffer_size\": 1e6, \"max_in_cpu\": 0}}}");
    zoff_weight_values v = values(config).weights;
    EXPECT_EQ(ZOFF_TIER_NVME, v.tier);
    EXPECT_EQ(2u, v.slots);
    EXPECT_EQ(1000000u, v.chunk_count);
    EXPECT_EQ(0u, v.cached_count);
    EXPECT_EQ(7u, v.ahead_count);
    EXPECT_EQ(8u, v.persistent_slice);
    EXPECT_EQ(9u, v.persistent_count);
    EXPECT_EQ(10u, v.live_count);
    EXPECT_EQ(0u, v.path_count); // then the engine takes those of the states
    EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "zero_optimization.offload_param.nvme_path", "/p"));
    EXPECT_STREQ("/p", values(config).weights.paths[0]);
    EXPECT_STREQ("/o", values(config).nvme_paths[0]);
}

TEST(config_resolve, below_stage_3_weights_stay)
{
    zoff_test::log_catcher log;
    log.expect("ds.json:1:54: zero_optimization.offload_param.device \"cpu\" has no effect at stage 2");
    auto config = resolved("{\"zero_optimization\": {\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}}}");
    EXPECT_EQ("none", word(config, "zero_optimization.offload_param.device"));
}

TEST(config_resolve, weights_on_nvme_need_a_folder)
{
    auto config = parse("{\"zero_optimization\": {\"stage\": 3,\n \"offload_param\": {\"device\": \"nvme\"}}}");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "ds.json:2:20: zero_optimization.offload_param.device: \"nvme\" needs a folder for its files; expected "
                      "zero_optimization.offload_param.nvme_path",
                      zoff_config_resolve(config.get(), 1));
}

TEST(config_resolve, nvme_needs_a_folder)
{
    auto config = parse("{\"zero_optimization\": {\n \"offload_optimizer\": {\"device\": \"nvme\"}}}");
    EXPECT_ZOFF_FAILS(
        ZOFF_ERR_INVALID,
        "ds.json:2:24: zero_optimization.offload_optimizer.device: \"nvme\" needs a folder for its files; expected "
        "zero_optimization.offload_optimizer.nvme_path (or zoff.nvme_paths)",
        zoff_config_resolve(config.get(), 1));
    zoff_config_values v = values(config); // the engine's caller may name the folder
    EXPECT_EQ(ZOFF_TIER_NVME, v.state_tier);
    EXPECT_EQ(0u, v.nvme_path_count);
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "zoff.nvme_paths", "/x"));
    EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
}

TEST(config_resolve, who_names_the_folders)
{
    zoff_test::log_catcher log;
    log.expect("are both given: the folders of zoff.nvme_paths are used");
    log.expect("are both given: the folders of zero_optimization.offload_optimizer.nvme_path are used");
    std::string both = "{\"zero_optimization\": {\"offload_optimizer\": {\"nvme_path\": \"/a\"}}, \"zoff\": {\"nvme_paths\": "
                       "[\"/b\", \"/c\"]}}";
    auto config = parse(both);
    EXPECT_EQ(2u, values(config).nvme_path_count);
    auto set = parse(both);
    ASSERT_ZOFF_OK(zoff_config_set(set.get(), "zero_optimization.offload_optimizer.nvme_path", "/d"));
    ASSERT_EQ(1u, values(set).nvme_path_count);
    EXPECT_STREQ("/d", values(set).nvme_paths[0]);
    ASSERT_ZOFF_OK(zoff_config_set(set.get(), "zoff.nvme_paths", "/e"));
    EXPECT_STREQ("/e", values(set).nvme_paths[0]);
}

TEST(config_resolve, old_names)
{
    zoff_test::log_catcher log;
    auto old = resolved("{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}}");
    EXPECT_EQ("cpu", word(old, "zero_optimization.offload_optimizer.device"));
    EXPECT_STREQ("ds.json:1:36", zoff_config_source(old.get(), "zero_optimization.offload_optimizer.device"));
    auto off = resolved("{\"zero_optimization\": {\"cpu_offload\": false}}");
    EXPECT_EQ("none", word(off, "zero_optimization.offload_optimizer.device"));
    auto flag = resolved("{\"zero_optimization\": true}");
    EXPECT_EQ(1, number(flag, "zero_optimization.stage"));
    EXPECT_STREQ("ds.json:1:2", zoff_config_source(flag.get(), "zero_optimization.stage"));
    EXPECT_EQ(0, number(resolved("{\"zero_optimization\": false}"), "zero_optimization.stage"));
    EXPECT_EQ(1, number(resolved("{\"bfloat16\": {\"enabled\": true}}"), "bf16.enabled"));
    EXPECT_EQ(5,
              number(resolved("{\"zero_optimization\": {\"stage3_sub_group_size\": 5}}"), "zero_optimization.sub_group_size"));
    auto weights = resolved("{\"zero_optimization\": {\"stage\": 3, \"cpu_offload_param\": true}}");
    EXPECT_EQ("cpu", word(weights, "zero_optimization.offload_param.device"));
    // The program has the last word over the old name, too.
    ASSERT_ZOFF_OK(zoff_config_set(old.get(), "zero_optimization.offload_optimizer.device", "none"));
    ASSERT_ZOFF_OK(zoff_config_resolve(old.get(), 1));
    EXPECT_EQ("none", word(old, "zero_optimization.offload_optimizer.device"));
    ASSERT_ZOFF_OK(zoff_config_set(off.get(), "zero_optimization.cpu_offload", "true"));
    ASSERT_ZOFF_OK(zoff_config_resolve(off.get(), 1));
    EXPECT_EQ("cpu", word(off, "zero_optimization.offload_optimizer.device"));
}

TEST(config_resolve, keys_for_several_ranks_sleep_on_one)
{
    zoff_test::log_catcher log;
    log.expect("known keys that zoff ignores");
    auto config = parse("{\"gradient_allreduce_op\": \"sum\"}");
    EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED,
                      "ds.json:1:2: gradient_allreduce_op: \"sum\" is not supported with several ranks; expected \"mean\"",
                      zoff_config_resolve(config.get(), 4));
    EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
}
} // namespace
