/* SPDX-License-Identifier: Apache-2.0 */
// autos_test.cc: "auto" never changes training silently. The start of the log names the training's values. stderr is left to
// the trainer.
#include "config_helpers.h"

#include <unistd.h>

extern "C" {
#include "config_priv.h"
}

using namespace config_test;

namespace
{
zoff_status create(const zoff_test::config &config, zoff_engine **out)
{
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.config = config.get();
    *out = nullptr;
    return zoff_engine_create(&opts, out);
}

// Hugging Face's examples: their trainer fills in all of these.
const char TEMPLATE[] =
    "{\"fp16\": {\"enabled\": \"auto\", \"loss_scale\": \"auto\"}, \"bf16\": {\"enabled\": \"auto\"}, \"optimizer\": "
    "{\"type\": "
    "\"AdamW\", \"params\": "
    "{\"lr\": \"auto\", \"betas\": \"auto\", \"eps\": \"auto\", \"weight_decay\": \"auto\"}},\n\"scheduler\": {\"type\": "
    "\"WarmupLR\", \"params\": {\"warmup_min_lr\": \"auto\", \"warmup_max_lr\": \"auto\", \"warmup_num_steps\": \"auto\"}}, "
    "\"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": \"auto\", \"sub_group_size\": \"auto\"}, "
    "\"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\", \"train_batch_size\": \"auto\", "
    "\"train_micro_batch_size_per_gpu\": \"auto\"}";

TEST(config_autos, one_warning_at_create_names_all_that_a_trainer_decides)
{
    zoff_test::log_catcher log;
    auto config = parse(TEMPLATE);
    ASSERT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
    EXPECT_EQ(0u, log.warnings.size()) << "neither check nor plan trains";
    zoff_engine *e;
    log.expect("ds.json: \"auto\" leaves these keys to the trainer, which has not set them; training uses ");
    ASSERT_ZOFF_OK(create(config, &e));
    zoff_engine_destroy(e);
    ASSERT_EQ(1u, log.warnings.size());
    for (const char *taken :
         {"optimizer.params.lr = 0.001 (ds.json:1:", "optimizer.params.betas = [0.9, 0.999] (",
          "optimizer.params.eps = 1e-08 (", "optimizer.params.weight_decay = 0 (",
          "scheduler.params.warmup_min_lr = 0 (ds.json:2:", "scheduler.params.warmup_max_lr = optimizer.params.lr (",
          "scheduler.params.warmup_num_steps = 1000 (", "fp16.enabled = false (", "bf16.enabled = false (",
          "gradient_clipping = 0 (", "gradient_accumulation_steps = 1 ("})
        EXPECT_TRUE(log.contains(taken)) << taken << "\nin " << log.warnings[0];
    for (const char *other : {"reduce_bucket_size", "sub_group_size", "train_batch_size", "fp16.loss_scale", "micro_batch"})
        EXPECT_FALSE(log.contains(other)) << other << " decides nothing that is trained here";
}

// Every key of the sections that decide numbers, from the table: a new key is covered without further work.
TEST(config_autos, every_key_that_decides_is_named)
{
    size_t count, tried = 0;
    const zoff_config_key *table = zoff_config_schema_table(&count);
    const std::string base =
        "{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1, \"cycle_max_lr\": 2}}}";
    for (size_t i = 0; i < count; i++) {
        const std::string path = table[i].path;
        const bool decides = path.rfind("optimizer.", 0) == 0 || path.rfind("scheduler.params.cycle", 0) == 0 ||
                             path == "fp16.enabled" || path == "gradient_clipping";
        const bool needed = path == "scheduler.params.cycle_min_lr" || path == "scheduler.params.cycle_max_lr";
        if (table[i].class_ != ZOFF_CLASS_HONOURED || table[i].type == ZOFF_KEY_SECTION || !decides)
            continue;
        SCOPED_TRACE(path);
        bool of_another = false; // the key belongs to another optimizer than AdamW
        for (const char *word : {"momentum", "dampening", "nesterov", "lr_decay", "initial_accumulator_value", "muon_lr",
                                 "adam_lr", "ns_method", "ns_steps", "adjust_lr_fn"})
            of_another = of_another || path == "optimizer.params." + std::string(word);
        zoff_test::log_catcher log;
        auto config = parse(base);
        ASSERT_ZOFF_OK(zoff_config_set(config.get(), path.c_str(), "auto"));
        zoff_engine *e;
        if (!needed && !of_another)
            log.expect("training uses " + path + " = ");
        EXPECT_EQ(needed, create(config, &e) < 0) << zoff_last_error();
        zoff_engine_destroy(e);
        tried++;
    }
    EXPECT_GT(tried, 15u);
}

TEST(config_autos, values_set_or_computed_are_not_named)
{
    zoff_test::log_catcher log;
    auto config = parse("{\"train_batch_size\": 8, \"train_micro_batch_size_per_gpu\": 2, \"gradient_accumulation_steps\": "
                        "\"auto\", \"optimizer\": {\"params\": {\"lr\": \"auto\"}}}");
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "optimizer.params.lr", "3e-4"));
    zoff_engine *e;
    ASSERT_ZOFF_OK(create(config, &e));
    zoff_engine_destroy(e);
    EXPECT_EQ(0u, log.warnings.size());
}

TEST(config_autos, keys_without_default_are_an_error_at_create)
{
    for (const char *type : {"WarmupDecayLR", "WarmupCosineLR"}) {
        zoff_test::log_catcher log;
        auto config = parse("{\"scheduler\": {\"type\": \"" + std::string(type) +
                            "\",\n\"params\": {\"total_num_steps\": \"auto\", \"warmup_num_steps\": 10}}}");
        ASSERT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
        EXPECT_NE(std::string::npos, dump(config).find("scheduler.params.total_num_steps = auto ")) << dump(config);
        zoff_engine *e;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "ds.json:2:12: scheduler.params.total_num_steps: \"auto\" leaves this key to the trainer",
                          create(config, &e));
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "zoff_config_set(config, \"scheduler.params.total_num_steps\", ...)"));
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "--set of the zoff command"));
        EXPECT_EQ(nullptr, e);
        ASSERT_ZOFF_OK(zoff_config_set(config.get(), "scheduler.params.total_num_steps", "100"));
        ASSERT_ZOFF_OK(create(config, &e));
        zoff_engine_destroy(e);
    }
}

// An engine with one weight, and all lines of the log.
struct one_weight {
    float value = 1, grad = 8;
    std::vector<std::string> lines;
    zoff_engine *e = nullptr;
    explicit one_weight(const std::string &text, bool sink = true)
    {
        if (sink)
            zoff_log_set([](zoff_log_level, const char *, const char *line,
                            void *ctx) { static_cast<one_weight *>(ctx)->lines.push_back(line); },
                         this);
        auto config = parse(text);
        EXPECT_ZOFF_OK(create(config, &e));
        zoff_param_desc desc = {};
        desc.struct_size = sizeof desc;
        desc.count = 1;
        desc.dtype = ZOFF_F32;
        desc.value = &value;
        desc.grad = &grad;
        EXPECT_ZOFF_OK(zoff_engine_add_param(e, &desc, nullptr));
    }
    ~one_weight()
    {
        zoff_engine_destroy(e);
        zoff_log_set(nullptr, nullptr);
    }
    std::string said() const
    {
        std::string all;
        for (const std::string &line : lines)
            all += line + "\n";
        return all;
    }
    double clip_factor(const double *clip_norm)
    {
        zoff_step_args args = {};
        args.struct_size = sizeof args;
        args.clip_norm = clip_norm ? *clip_norm : 0;
        zoff_step_info info = {};
        info.struct_size = sizeof info;
        EXPECT_ZOFF_OK(zoff_step(e, &args, &info));
        return info.numbers.clip_factor;
    }
};

TEST(config_autos, the_start_of_the_log_says_what_is_trained_with)
{
    one_weight plain("{}");
    ASSERT_ZOFF_OK(zoff_engine_seal(plain.e));
    EXPECT_NE(std::string::npos,
              plain.said().find("training: optimizer.type \"AdamW\" (default), lr 0.001 (default), "
                                "scheduler.type null (default), gradient_clipping 0 (default): off, states on "
                                "\"cpu\" (default), weights fp32 (zoff_param_desc.dtype)\n"))
        << plain.said();
    one_weight given("{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"lr\": 0.5}}, \"gradient_clipping\": -1}");
    zoff_optimizer_hyper own;
    zoff_optimizer_hyper_init(&own, ZOFF_OPTIMIZER_SGD);
    ASSERT_ZOFF_OK(zoff_engine_set_group(given.e, 0, &own));
    ASSERT_ZOFF_OK(zoff_engine_seal(given.e));
    EXPECT_NE(
        std::string::npos,
        given.said().find("training: optimizer.type \"SGD\" (ds.json:1:16), lr 0.5 (ds.json:1:42), scheduler.type null "
                          "(default), gradient_clipping -1 (ds.json:1:55): off, states on \"cpu\" (default), weights fp32 "
                          "(zoff_param_desc.dtype); 1 of 1 groups have hyper-parameters of their own"))
        << given.said();
}

TEST(config_autos, the_start_of_the_log_has_the_rates_of_both_kinds)
{
    const char *const CASES[][2] = {
        {"", "muon_lr 0.02 (default), adam_lr 0.0003 (default)"},
        {"\"lr\": 0.5", "lr 0.5 (ds.json:1:43)"},
        {"\"muon_lr\": 0.5", "muon_lr 0.5 (ds.json:1:43), adam_lr 0.0003 (default)"},
        {"\"lr\": 0.5, \"adam_lr\": 0.25", "lr 0.5 (ds.json:1:43), adam_lr 0.25 (ds.json:1:54)"},
    };
    for (const auto &c : CASES) {
        one_weight w("{\"optimizer\": {\"type\": \"Muon\", \"params\": {" + std::string(c[0]) + "}}}");
        ASSERT_ZOFF_OK(zoff_engine_seal(w.e));
        EXPECT_NE(std::string::npos,
                  w.said().find("optimizer.type \"Muon\" (ds.json:1:16), " + std::string(c[1]) + ", scheduler"))
            << w.said();
    }
}

// -1 means the same in both places. 0 turns it off in the file, and means "as in the file" in a step.
TEST(config_autos, clipping_has_one_word_for_off)
{
    const double off = ZOFF_OFF, two = 2, as_configured = 0;
    for (const char *key : {"-1", "0", "\"-1\""}) {
        one_weight w("{\"gradient_clipping\": " + std::string(key) + "}");
        ASSERT_ZOFF_OK(zoff_engine_seal(w.e));
        EXPECT_EQ(1, w.clip_factor(&as_configured)) << key;
        EXPECT_EQ(1, w.clip_factor(&off)) << key;
        EXPECT_NEAR(0.25, w.clip_factor(&two), 1e-6) << key;
    }
    one_weight clipped("{\"gradient_clipping\": 4}");
    ASSERT_ZOFF_OK(zoff_engine_seal(clipped.e));
    EXPECT_NEAR(0.5, clipped.clip_factor(&as_configured), 1e-6);
    EXPECT_EQ(1, clipped.clip_factor(&off));
}

// A program that asks for nothing gets nothing on stderr; steps_per_print asks for lines there.
TEST(config_autos, stderr_is_the_trainers)
{
    for (const bool asks : {false, true}) {
        unsetenv("ZOFF_LOG_LEVEL");
        testing::internal::CaptureStderr();
        {
            one_weight w(asks ? "{\"steps_per_print\": 2}" : "{}", false);
            ASSERT_ZOFF_OK(zoff_engine_seal(w.e));
            for (int i = 0; i < 4; i++)
                EXPECT_ZOFF_OK(zoff_step(w.e, nullptr, nullptr));
        }
        const std::string said = testing::internal::GetCapturedStderr();
        EXPECT_EQ(asks ? 2 : 0, std::count(said.begin(), said.end(), '\n')) << said;
        EXPECT_EQ(asks, said.find("step 4, lr ") != said.npos) << said;
    }
}
} // namespace
