// value_test.cc: every way to write a number, a size, a path; what is too large or not one; the same rules for
// zoff_config_set().
#include "config_helpers.h"

using namespace config_test;

namespace
{
TEST(config_value, integers_as_people_write_them)
{
    for (const char *text : {"500000000", "5e8", "500000000.0", "\"500000000\"", "\"5e8\"", "0.5e9"})
        EXPECT_EQ(5e8, number(resolved(nest("zero_optimization.sub_group_size", text)), "zero_optimization.sub_group_size"))
            << text;
    for (const char *text : {"1.5", "\"8 ranks\"", "\"0x10\"", "true", "[8]", "\"\"", "-1", "\"nan\"", "\"inf\"", "{}"})
        EXPECT_NE("", error_of(nest("zero_optimization.sub_group_size", text))) << text;
}

TEST(config_value, sizes_with_units)
{
    struct {
        const char *text;
        double bytes;
    } good[] = {{"67108864", 67108864},
                {"\"64MiB\"", 67108864},
                {"\"64M\"", 67108864},
                {"\"64mib\"", 67108864},
                {"\"64 MiB\"", 67108864},
                {"\"1.5GB\"", 1.5e9},
                {"\"0.5k\"", 512},
                {"\"1KB\"", 1000},
                {"\"3B\"", 3},
                {"\"1TiB\"", 1099511627776.0},
                {"\"2T\"", 2199023255552.0},
                {"6.7e7", 6.7e7},
                {"\"1e3KiB\"", 1024000},
                {"\"1GiB\"", 1073741824},
                {"\"1TB\"", 1e12},
                {"\"4096\"", 4096}};
    for (const auto &c : good)
        EXPECT_EQ(c.bytes, number(resolved(nest("zoff.host_memory", c.text)), "zoff.host_memory")) << c.text;
    for (const char *text : {"\"MiB\"", "\"64XiB\"", "\"-1MiB\"", "\"1e300GiB\"", "0", "\"64MiB MiB\"", "\"1.5.2M\"",
                             "\"0.1B\"", "[]", "true", "1.5", "\" \""})
        EXPECT_NE("", error_of(nest("zoff.host_memory", text))) << text;
}

TEST(config_value, fractions_and_quotes)
{
    EXPECT_EQ(3e-4, number(resolved(nest("optimizer.params.lr", "\"3e-4\"")), "optimizer.params.lr"));
    EXPECT_EQ(0.1, values(resolved(nest("optimizer.params.betas", "[\"0.1\", 0]"))).hyper.beta1);
    for (const char *text : {"\"NaN\"", "\"inf\"", "\"1e400\"", "-0.5", "\"1,5\""})
        EXPECT_NE("", error_of(nest("optimizer.params.lr", text))) << text;
}

TEST(config_value, paths_alone_and_in_lists)
{
    auto one = resolved(nest("zero_optimization.offload_optimizer.nvme_path", "\"/nvme\""));
    EXPECT_EQ("/nvme", word(one, "zero_optimization.offload_optimizer.nvme_path"));
    auto two = resolved(
        nest("zero_optimization.offload_optimizer", "{\"device\": \"nvme\", \"nvme_path\": [\"/a\", \"/b \\u00e4\"]}"));
    zoff_config_values v = values(two);
    ASSERT_EQ(2u, v.nvme_path_count);
    EXPECT_STREQ("/a", v.nvme_paths[0]);
    EXPECT_STREQ("/b \xC3\xA4", v.nvme_paths[1]);
    EXPECT_EQ(ZOFF_TIER_NVME, v.state_tier);
    const char *text;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "list of 2 texts",
                      zoff_config_string(two.get(), "zero_optimization.offload_optimizer.nvme_path", &text));
    for (const char *bad : {"1", "[]", "[1]", "\"\"", "{}", "[[\"/a\"]]", "true"})
        EXPECT_NE("", error_of(nest("zero_optimization.offload_optimizer.nvme_path", bad))) << bad;
}

TEST(config_value, choices_ignore_case_and_come_back_as_the_schema_spells_them)
{
    auto config = resolved("{\"optimizer\": {\"type\": \"adamw\"}, \"scheduler\": {\"type\": \"warmuplr\"}}");
    EXPECT_EQ("AdamW", word(config, "optimizer.type"));
    EXPECT_EQ("WarmupLR", word(config, "scheduler.type"));
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
} // namespace
