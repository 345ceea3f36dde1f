/* SPDX-License-Identifier: Apache-2.0 */
// configuration_test.cc: the life of a configuration: opened, read again, set by the program, asked for values.
#include "config_helpers.h"

extern "C" {
#include "config_priv.h"
}

using namespace config_test;

namespace
{
TEST(config_open, tells_what_cannot_be_read)
{
    zoff_test::scratch_folder folder;
    zoff_config *config = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "No such file", zoff_config_open(folder.file("none.json").c_str(), &config));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "this is a folder", zoff_config_open(folder.path.c_str(), &config));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "a device or a pipe", zoff_config_open("/dev/null", &config));
    std::string fifo = folder.file("pipe"), large = folder.file("large"), good = folder.file("good"),
                empty = folder.file("empty");
    ASSERT_EQ(0, system(("mkfifo " + fifo).c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "a device or a pipe", zoff_config_open(fifo.c_str(), &config));
    std::ofstream(large) << std::string((16 << 20) + 1, ' ');
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "larger than 16 MiB", zoff_config_open(large.c_str(), &config));
    std::ofstream(large) << "{}" << std::string((16 << 20) - 2, ' ');
    ASSERT_ZOFF_OK(zoff_config_open(large.c_str(), &config)) << "16 MiB are not too large";
    zoff_config_close(config);
    config = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "/proc/version:1:1: not JSON", zoff_config_open("/proc/version", &config));
    std::ofstream(empty).close();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "empty:1:1: the file is empty", zoff_config_open(empty.c_str(), &config));
    EXPECT_EQ(nullptr, config);
    std::ofstream(good) << "{\"train_batch_size\": 8}";
    ASSERT_ZOFF_OK(zoff_config_open(good.c_str(), &config));
    ASSERT_ZOFF_OK(zoff_config_resolve(config, 2));
    double micro = 0;
    EXPECT_ZOFF_OK(zoff_config_number(config, "train_micro_batch_size_per_gpu", &micro));
    EXPECT_EQ(4, micro);
    zoff_config_close(config);
    zoff_config_close(nullptr);
}

TEST(config_open, refuses_null)
{
    zoff_config *config = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_open("x", nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_test::config_from_text(nullptr, 1, "x", &config));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "x:1:1: the file is empty", zoff_test::config_from_text(nullptr, 0, "x", &config));
    EXPECT_EQ(nullptr, config);
    EXPECT_ZOFF_OK(zoff_config_open(nullptr, &config)) << "the defaults";
    zoff_config_close(config);
}

TEST(config_set, wins_over_the_file_and_says_so)
{
    auto config =
        resolved("{\"optimizer\": {\"params\": {\"lr\": 1, \"betas\": [0.5, 0.5]}}, \"gradient_clipping\": \"auto\"}");
    EXPECT_EQ(1, number(config, "optimizer.params.lr"));
    const std::pair<const char *, const char *> sets[] = {{"optimizer.params.lr", "3e-4"},
                                                          {"optimizer.params.betas", "[0.8, 0.95]"},
                                                          {"gradient_clipping", "0.5"},
                                                          {"bfloat16.enabled", "true"},
                                                          {"zoff.host_memory", "64MiB"},
                                                          {"zoff.nvme_paths", "[\"/x\", \"/y\"]"},
                                                          {"zero_optimization.stage", "\"2\""},
                                                          {"zero_optimization.offload_optimizer.device", "nvme"},
                                                          {"zero_optimization.aio.block_size", "2MiB"}};
    for (const auto &set : sets)
        EXPECT_ZOFF_OK(zoff_config_set(config.get(), set.first, set.second)) << set.first;
    double stale;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_config_resolve", zoff_config_number(config.get(), "gradient_clipping", &stale));
    zoff_config_values v = values(config);
    EXPECT_EQ(3e-4, v.hyper.lr);
    EXPECT_EQ(0.95, v.hyper.beta2);
    EXPECT_EQ(0.5, v.clip_norm);
    EXPECT_TRUE(v.wants_bf16);
    EXPECT_EQ(64u << 20, v.host_bytes);
    EXPECT_EQ(2u, v.nvme_path_count);
    EXPECT_EQ(2u, v.zero_stage);
    EXPECT_EQ(ZOFF_TIER_NVME, v.state_tier);
    EXPECT_EQ(2u << 20, v.aio_block_bytes);
    EXPECT_STREQ("api", zoff_config_source(config.get(), "optimizer.params.lr"));
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "optimizer.params.lr", "null"));
    EXPECT_EQ(1e-3, values(config).hyper.lr) << "null is the default, not the file";
}

TEST(config_set, takes_folders_that_look_like_numbers)
{
    auto config = parse("{}");
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "zoff.nvme_paths", "7"));
    EXPECT_STREQ("7", values(config).nvme_paths[0]);
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "zoff.nvme_paths", "/mnt/nvme 0"));
    EXPECT_STREQ("/mnt/nvme 0", values(config).nvme_paths[0]);
}

TEST(config_set, refuses_like_the_file_and_leaves_the_old_value)
{
    auto config = resolved("{}");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "did you mean \"optimizer.params.lr\"?",
                      zoff_config_set(config.get(), "optimizer.params.lt", "1"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "did you mean", zoff_config_set(config.get(), "trainbatch_size", "1"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "this is a section", zoff_config_set(config.get(), "optimizer", "{}"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "api: optimizer.params.lr: \"fast\"",
                      zoff_config_set(config.get(), "optimizer.params.lr", "fast"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "api: optimizer.params.betas: this value is not JSON: ",
                      zoff_config_set(config.get(), "optimizer.params.betas", "[0.8, "));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "out of range", zoff_config_set(config.get(), "optimizer.params.lr", "-1"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "api: amp.enabled: true", zoff_config_set(config.get(), "amp.enabled", "true"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "UTF-8", zoff_config_set(config.get(), "zoff.nvme_paths", "/\xff"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_set(config.get(), nullptr, "1"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_set(nullptr, "zoff.threads", "1"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_set(config.get(), "zoff.threads", nullptr));
    EXPECT_EQ(1e-3, number(config, "optimizer.params.lr")) << "a refused set leaves the configuration resolved";
}

TEST(config_read, tells_numbers_from_texts)
{
    auto config = resolved("{\"bf16\": {\"enabled\": true}}");
    double value;
    const char *text;
    EXPECT_EQ(1, number(config, "bf16.enabled"));
    EXPECT_EQ(1, number(config, "bfloat16.enabled"));
    EXPECT_EQ(0, number(config, "zoff.threads")) << "auto";
    EXPECT_EQ("(null)", word(config, "scheduler.type"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "not a number", zoff_config_number(config.get(), "optimizer.type", &value));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "not a number", zoff_config_number(config.get(), "optimizer", &value));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "not set", zoff_config_number(config.get(), "scheduler.params.warmup_max_lr", &value));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "not known", zoff_config_number(config.get(), "nothing.like.this", &value));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "not a text", zoff_config_string(config.get(), "gradient_clipping", &text));
    auto fresh = parse("{}");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_config_resolve", zoff_config_number(fresh.get(), "gradient_clipping", &value));
}

// Values that the program has set count already while a file is read.
TEST(config_read, values_set_before_replace_refused_ones)
{
    const std::string text =
        "{\"clip\": 1, \"optimizer\": {\"type\": \"Lamb\"}, \"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}";
    zoff_test::log_catcher log;
    auto config = parse("{}");
    auto read = [&](zoff_status expected, const char *words) {
        EXPECT_EQ(expected, zoff_config_read_text(config.get(), text.data(), text.size(), "later.json")) << zoff_last_error();
        if (expected < 0) {
            EXPECT_NE(nullptr, strstr(zoff_last_error(), words)) << zoff_last_error();
        }
    };
    read(ZOFF_ERR_INVALID, "bf16.enabled is true too");
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "fp16.enabled", "false"));
    read(ZOFF_ERR_UNSUPPORTED, "\"Lamb\" is not supported");
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "optimizer.type", "AdamW"));
    read(ZOFF_ERR_INVALID, "later.json:1:2: clip: this key is not known");
    ASSERT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
    EXPECT_EQ(0u, dump(config).find("# ds.json, ")) << "a refused file leaves no trace";
    EXPECT_EQ(0, number(config, "bf16.enabled"));
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "zoff.strict", "false"));
    log.expect("later.json: unknown keys, which have no effect (zoff.strict is false): clip (1:2)");
    read(ZOFF_OK, "");
    zoff_config_values v = values(config);
    EXPECT_EQ(ZOFF_OPTIMIZER_ADAM, v.hyper.optimizer);
    EXPECT_TRUE(v.wants_bf16);
    EXPECT_FALSE(v.fp16.enabled);
    // Another file replaces the first.
    ASSERT_ZOFF_OK(zoff_config_read_text(config.get(), "{}", 2, nullptr));
    EXPECT_FALSE(values(config).wants_bf16);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "No such file", zoff_config_read(config.get(), "/nonexistent.json"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_read(nullptr, "x"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_read(config.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_read_text(config.get(), nullptr, 1, "x"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_read_text(nullptr, "{}", 2, "x"));
}

// A refused file changes nothing, and the values before it can still be read.
TEST(config_read, a_file_that_is_refused_changes_nothing)
{
    auto config = resolved("{\"gradient_clipping\": 2}");
    const std::string bad = "{\"gradient_clipping\": 3, \"clip\": 1}", good = "{\"gradient_clipping\": 4}";
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_config_read_text(config.get(), bad.data(), bad.size(), "later.json"));
    EXPECT_EQ(2, number(config, "gradient_clipping"));
    EXPECT_STREQ("ds.json:1:2", zoff_config_source(config.get(), "gradient_clipping"));
    ASSERT_ZOFF_OK(zoff_config_read_text(config.get(), good.data(), good.size(), "later.json"));
    double stale;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_config_resolve", zoff_config_number(config.get(), "gradient_clipping", &stale));
    ASSERT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
    EXPECT_EQ(4, number(config, "gradient_clipping"));
    EXPECT_STREQ("later.json:1:2", zoff_config_source(config.get(), "gradient_clipping"));
}

TEST(config_source, it_is_known_before_all_is_resolved)
{
    auto config = parse("{\"gradient_clipping\": 2, \"train_batch_size\": 8}");
    const auto source = [&](const char *key) { return std::string(zoff_config_source(config.get(), key)); };
    EXPECT_EQ("ds.json:1:2", source("gradient_clipping"));
    EXPECT_EQ("default", source("steps_per_print"));
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "gradient_clipping", "3"));
    EXPECT_EQ("api", source("gradient_clipping"));
    ASSERT_ZOFF_OK(zoff_config_resolve(config.get(), 2));
    EXPECT_EQ("computed", source("train_micro_batch_size_per_gpu"));
    EXPECT_EQ("unknown", source("no.such.key"));
    EXPECT_STREQ("unknown", zoff_config_source(config.get(), nullptr));
    EXPECT_STREQ("unknown", zoff_config_source(nullptr, "gradient_clipping"));
}
} // namespace
