/* SPDX-License-Identifier: Apache-2.0 */
// optimizer_test.cc: the parameters of each optimizer.type, and their defaults.
#include "config_helpers.h"

#include <functional>

extern "C" {
#include "config_priv.h"
}

using namespace config_test;

namespace
{
TEST(config_optimizer, decay_of_adam_and_adamw)
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

// If the file leaves a value open, each optimizer takes DeepSpeed's default. zoff_optimizer_hyper_init() gives the program the
// same value, except for Lion.
TEST(config_optimizer, defaults_are_those_of_the_optimizer)
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
            zoff_optimizer_hyper want;
            zoff_optimizer_hyper_init(&want, c.optimizer);
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
            // A parameter that the optimizer does not have is shown only if it was given.
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

// The keys of DeepSpeed and PyTorch with their defaults, and those of zoff.
TEST(config_optimizer, keys_of_muon)
{
    zoff_optimizer_hyper defaults;
    zoff_optimizer_hyper_init(&defaults, ZOFF_OPTIMIZER_MUON);
    struct {
        const char *params, *own; // optimizer.params, and the section zoff
        std::function<void(zoff_optimizer_hyper &)> change;
    } cases[] = {
        {"", "", [](auto &) {}},
        {"\"lr\": \"auto\", \"muon_lr\": null, \"nesterov\": null", "", [](auto &) {}},
        {"\"lr\": 0.5", "", [](auto &h) { h.lr = h.adam_lr = 0.5; }},
        {"\"lr\": 0.5, \"muon_lr\": 0.25", "", [](auto &h) { h.lr = 0.25, h.adam_lr = 0.5; }},
        {"\"lr\": 0.5, \"adam_lr\": 0.25", "", [](auto &h) { h.lr = 0.5, h.adam_lr = 0.25; }},
        {"\"muon_lr\": 0.5", "", [](auto &h) { h.lr = 0.5; }},
        {"\"adam_lr\": 0", "", [](auto &h) { h.adam_lr = 0; }},
        {"\"momentum\": 0, \"weight_decay\": 0.125, \"nesterov\": false", "",
         [](auto &h) { h.momentum = 0, h.weight_decay = 0.125, h.nesterov = false; }},
        {"\"betas\": [0.5, 0.75], \"eps\": 0.25, \"ns_steps\": 7", "",
         [](auto &h) { h.beta1 = 0.5, h.beta2 = 0.75, h.eps = 0.25, h.ns_steps = 7; }},
        {"\"ns_method\": \"Standard\", \"adjust_lr_fn\": \"match_rms_adamw\"", "",
         [](auto &h) { h.ns_method = ZOFF_MUON_STANDARD, h.scale = ZOFF_MUON_SCALE_MATCH_RMS_ADAMW; }},
        {"\"adjust_lr_fn\": \"match_rms_adamw\"", "\"muon_scale\": \"original\"", [](auto &) {}},
        {"", "\"muon_scale\": \"match_rms_adamw\"", [](auto &h) { h.scale = ZOFF_MUON_SCALE_MATCH_RMS_ADAMW; }},
        {"", "\"muon_scale\": \"spectral\"", [](auto &h) { h.scale = ZOFF_MUON_SCALE_SPECTRAL; }},
        {"", "\"muon_scale\": \"unit_rms_norm\"", [](auto &h) { h.scale = ZOFF_MUON_SCALE_UNIT_RMS_NORM; }},
        {"", "\"muon_coefficients\": \"quintic\"", [](auto &h) { h.coefficients = ZOFF_MUON_QUINTIC; }},
        {"", "\"muon_coefficients\": \"polar_express\"", [](auto &h) { h.coefficients = ZOFF_MUON_POLAR_EXPRESS; }},
        {"", "\"muon_coefficients\": \"cans\"", [](auto &h) { h.coefficients = ZOFF_MUON_CANS; }},
        {"", "\"muon_coefficients\": \"deepseekv4\"", [](auto &h) { h.coefficients = ZOFF_MUON_DEEPSEEKV4; }},
    };
    for (const auto &c : cases) {
        SCOPED_TRACE(std::string(c.params) + c.own);
        auto config = parse("{\"optimizer\": {\"type\": \"muon\", \"params\": {" + std::string(c.params) + "}}, \"zoff\": {" +
                            c.own + "}}");
        zoff_optimizer_hyper want = defaults;
        c.change(want);
        const zoff_optimizer_hyper have = values(config).hyper;
        EXPECT_EQ(want.optimizer, have.optimizer);
        EXPECT_EQ(want.lr, have.lr);
        EXPECT_EQ(want.adam_lr, have.adam_lr);
        EXPECT_EQ(want.beta1, have.beta1);
        EXPECT_EQ(want.beta2, have.beta2);
        EXPECT_EQ(want.eps, have.eps);
        EXPECT_EQ(want.weight_decay, have.weight_decay);
        EXPECT_EQ(ZOFF_DECAY_DECOUPLED, have.decay);
        EXPECT_EQ(want.momentum, have.momentum);
        EXPECT_EQ(want.nesterov, have.nesterov);
        EXPECT_EQ(want.ns_steps, have.ns_steps);
        EXPECT_EQ(want.ns_method, have.ns_method);
        EXPECT_EQ(want.scale, have.scale);
        EXPECT_EQ(want.coefficients, have.coefficients);
    }
    const std::string shown = dump(resolved("{\"optimizer\": {\"type\": \"Muon\"}}"));
    for (const char *line : {"lr = 0.02 ", "muon_lr = 0.02 ", "adam_lr = 0.0003 ", "momentum = 0.95 ", "nesterov = true ",
                             "betas = [0.9, 0.95] ", "eps = 1e-10 ", "ns_steps = 5 "})
        EXPECT_NE(std::string::npos, shown.find("optimizer.params." + std::string(line))) << line << "\n" << shown;
}

TEST(config_optimizer, values_that_muon_refuses)
{
    struct {
        const char *text, *words;
    } cases[] = {
        {"\"params\": {\"momentum\": 1}}}",
         "ds.json:2:12: optimizer.params.momentum is 1; expected a number from 0 to below 1 with optimizer.type Muon"},
        {"\"params\": {\"adam_lr\": 1e39}}}", "ds.json:2:12: optimizer.params.adam_lr: 1e+39 is beyond fp32"},
        {"\"params\": {\"muon_lr\": 1e39}}}", "ds.json:2:12: optimizer.params.muon_lr: 1e+39 is beyond fp32"},
    };
    for (const auto &c : cases) {
        auto config = parse("{\"optimizer\": {\"type\": \"Muon\",\n" + std::string(c.text));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, c.words, zoff_config_resolve(config.get(), 1));
    }
    EXPECT_EQ(1, values(parse("{\"optimizer\": {\"type\": \"SGD\", \"params\": {\"momentum\": 1}}}")).hyper.momentum);
}

// An entry is a pattern, the last "=", and rows.
TEST(config_optimizer, rows_of_matrices)
{
    size_t rows[3] = {};
    EXPECT_EQ(3u, zoff_config_optimizer_rows("*qkv*=4096,1024,17", rows));
    EXPECT_EQ((std::vector<size_t>{4096, 1024, 17}), std::vector<size_t>(rows, rows + 3));
    EXPECT_EQ(1u, zoff_config_optimizer_rows("a=b=9007199254740991", rows));
    EXPECT_EQ(9007199254740991u, rows[0]);
    zoff_test::log_catcher log;
    for (const std::string text :
         {"qkv", "=4", "qkv=", "qkv=0", "qkv=4,", "qkv=,4", "qkv=4,,4", "qkv=4 ", "qkv= 4", "qkv=-4", "qkv=4x", "qkv=1e3",
          "qkv=9007199254740992", "qkv=9007199254740991,1", "qkv=99999999999999999999999999"}) {
        EXPECT_EQ(0u, zoff_config_optimizer_rows(text.c_str(), nullptr)) << text;
        auto config = parse("{\"zoff\": {\"muon_rows\": [\"ok=1\",\n\"" + text + "\"]}}");
        const std::string words = "ds.json:1:11: zoff.muon_rows: \"" + text +
                                  "\" is no list of rows; expected PATTERN=ROWS,ROWS,... "
                                  "with numbers from 1 on, as in \"*qkv.weight=4096,1024,1024\"";
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words.c_str(), zoff_config_resolve(config.get(), 1));
        ASSERT_ZOFF_OK(zoff_config_set(config.get(), "zoff.muon_rows", "ok=1,2"));
        EXPECT_EQ(1u, values(config).muon_rows.count);
    }
    const auto config = parse("{\"zoff\": {\"muon_params\": \"a\", \"adam_params\": [\"b\", \"c\"]}}");
    const zoff_config_values v = values(config);
    EXPECT_STREQ("a", v.muon_params.texts[0]);
    EXPECT_EQ(2u, v.adam_params.count);
}

// A parameter that would change another optimizer's training is not silently ignored. One whose value turns it off is accepted.
TEST(config_optimizer, parameters_of_another_optimizer)
{
    struct {
        const char *type, *param, *value, *owners; // NULL: it is accepted
    } cases[] = {
        {"SGD", "betas", "[0.9, 0.999]", "\"Adam\", \"AdamW\", \"Lion\" or \"Muon\""},
        {"Adagrad", "betas", "[0.9, 0.999]", "\"Adam\", \"AdamW\", \"Lion\" or \"Muon\""},
        {"Lion", "eps", "1e-8", "\"Adam\", \"AdamW\", \"Adagrad\" or \"Muon\""},
        {"SGD", "eps", "1e-8", "\"Adam\", \"AdamW\", \"Adagrad\" or \"Muon\""},
        {"Lion", "adam_w_mode", "true", "\"Adam\" or \"AdamW\""},
        {"SGD", "bias_correction", "true", "\"Adam\" or \"AdamW\""},
        {"AdamW", "momentum", "0.9", "\"SGD\" or \"Muon\""},
        {"AdamW", "momentum", "0", nullptr},
        {"Lion", "dampening", "0.1", "\"SGD\""},
        {"Adam", "nesterov", "true", "\"SGD\" or \"Muon\""},
        {"Adam", "nesterov", "false", nullptr},
        {"Adam", "lr_decay", "0.1", "\"Adagrad\""},
        {"SGD", "lr_decay", "0.0", nullptr},
        {"SGD", "initial_accumulator_value", "0.1", "\"Adagrad\""},
        {"AdamW", "muon_lr", "0.1", "\"Muon\""},
        {"Adam", "adam_lr", "0", "\"Muon\""},
        {"SGD", "ns_method", "\"gram\"", "\"Muon\""},
        {"Lion", "ns_steps", "5", "\"Muon\""},
        {"AdamW", "adjust_lr_fn", "\"original\"", "\"Muon\""},
        {"Muon", "adam_w_mode", "true", "\"Adam\" or \"AdamW\""},
        {"Muon", "bias_correction", "true", "\"Adam\" or \"AdamW\""},
        {"Muon", "dampening", "0.1", "\"SGD\""},
        {"Muon", "dampening", "0", nullptr},
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
                            c.owners + ", but " + c.type + " (ds.json:1:16) does not have it";
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words.c_str(), zoff_config_resolve(config.get(), 1));
        ASSERT_ZOFF_OK(zoff_config_set(config.get(), ("optimizer.params." + std::string(c.param)).c_str(), "null"));
        EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
    }
}

// A step would refuse them, too, but could not name their place.
TEST(config_optimizer, numbers_beyond_fp32)
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

TEST(config_optimizer, nesterov_needs_momentum)
{
    for (const char *params : {"{\"nesterov\": true}", "{\"nesterov\": true, \"momentum\": 0.9, \"dampening\": 0.1}"}) {
        auto config = parse("{\"optimizer\": {\"type\": \"SGD\", \"params\": " + std::string(params) + "}}");
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "ds.json:1:42: optimizer.params.nesterov needs a momentum above 0 and a dampening of 0",
                          zoff_config_resolve(config.get(), 1));
    }
}

TEST(config_optimizer, it_has_its_parameters_and_every_other_key)
{
    const struct {
        const char *type;
        zoff_optimizer optimizer;
        std::vector<const char *> has;
    } cases[] = {{"Adam", ZOFF_OPTIMIZER_ADAM, {"betas", "eps", "adam_w_mode", "bias_correction"}},
                 {"AdamW", ZOFF_OPTIMIZER_ADAM, {"betas", "eps", "adam_w_mode", "bias_correction"}},
                 {"Adagrad", ZOFF_OPTIMIZER_ADAGRAD, {"eps", "lr_decay", "initial_accumulator_value"}},
                 {"Lion", ZOFF_OPTIMIZER_LION, {"betas"}},
                 {"SGD", ZOFF_OPTIMIZER_SGD, {"momentum", "dampening", "nesterov"}}};
    for (const auto &c : cases) {
        const zoff_test::config config = resolved(nest("optimizer.type", "\"" + std::string(c.type) + "\""));
        EXPECT_EQ(c.optimizer, zoff_config_optimizer_type(config.get()));
        for (const char *param : {"betas", "eps", "adam_w_mode", "bias_correction", "momentum", "dampening", "nesterov",
                                  "lr_decay", "initial_accumulator_value"}) {
            const bool wanted = std::any_of(c.has.begin(), c.has.end(), [&](const char *p) { return strcmp(p, param) == 0; });
            EXPECT_EQ(wanted, zoff_config_optimizer_has(config.get(), (std::string("optimizer.params.") + param).c_str()))
                << c.type << " " << param;
        }
        for (const char *key : {"optimizer.params.lr", "optimizer.params.weight_decay", "zoff.threads"})
            EXPECT_TRUE(zoff_config_optimizer_has(config.get(), key)) << c.type << " " << key;
    }
}
} // namespace
