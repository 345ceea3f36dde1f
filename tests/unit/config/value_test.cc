/* SPDX-License-Identifier: Apache-2.0 */
// value_test.cc: every form of a number, a size, a path, a list; and values that are too large or malformed.
#include "config_helpers.h"

using namespace config_test;

namespace
{
TEST(config_value, integers_as_people_write_them)
{
    for (const char *text : {"500000000", "5e8", "500000000.0", "\"500000000\"", "\"5e8\"", "0.5e9"})
        EXPECT_EQ(5e8, number(resolved(nest("zero_optimization.sub_group_size", text)), "zero_optimization.sub_group_size"))
            << text;
    EXPECT_EQ(15099494, number(resolved(nest("zero_optimization.stage3_prefetch_bucket_size", "15099494.4")),
                               "zero_optimization.stage3_prefetch_bucket_size"));
    for (const char *text : {"-0.5", "\"8 ranks\"", "\"0x10\"", "true", "[8]", "\"\"", "-1", "\"nan\"", "\"inf\"", "{}"})
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

// zoff.persist: a flag that has a third value.
TEST(config_value, a_flag_may_have_a_word)
{
    const struct {
        const char *given, *printed;
        bool persist, required;
    } cases[] = {{"true", "true", true, false},
                 {"false", "false", false, false},
                 {"\"require\"", "\"require\"", true, true},
                 {"\"REQUIRE\"", "\"require\"", true, true}};
    for (const auto &c : cases) {
        auto config = resolved(nest("zoff.persist", c.given));
        const zoff_config_values v = values(config);
        EXPECT_EQ(c.persist, v.persist) << c.given;
        EXPECT_EQ(c.required, v.persist_required) << c.given;
        EXPECT_NE(std::string::npos, dump(config).find(std::string("zoff.persist = ") + c.printed)) << dump(config);
    }
    zoff_config *made = nullptr;
    ASSERT_ZOFF_OK(zoff_config_open(nullptr, &made));
    zoff_test::config by_api(made);
    ASSERT_ZOFF_OK(zoff_config_set(made, "zoff.persist", "require"));
    EXPECT_TRUE(values(by_api).persist_required);
    EXPECT_NE(std::string::npos, error_of(nest("zoff.persist", "\"required\"")).find("true, false or \"require\""));
    EXPECT_NE("", error_of(nest("zoff.skip_nonfinite", "\"require\""))) << "other flags have none";
}

// As DeepSpeed takes them: JSON's own, 0 and 1, and words. The last key may have only one of the two values.
TEST(config_value, flags_as_people_write_them)
{
    zoff_test::log_catcher log;
    for (const char *key : {"fp16.enabled", "zoff.persist", "prescale_gradients", "managed_gradient_accumulation"}) {
        for (const char *yes : {"true", "1", "1.0", "\"true\"", "\"True\"", "\"yes\"", "\"on\"", "\"1\"", "\"T\"", "\"y\""})
            EXPECT_EQ(1, number(resolved(nest(key, yes)), key)) << key << " " << yes;
        for (const char *no : {"false", "0", "0.0", "\"false\"", "\"FALSE\"", "\"no\"", "\"off\"", "\"0\"", "\"f\"", "\"n\""}) {
            if (strcmp(key, "managed_gradient_accumulation") == 0)
                EXPECT_NE("", error_of(nest(key, no), ZOFF_ERR_UNSUPPORTED)) << no;
            else
                EXPECT_EQ(0, number(resolved(nest(key, no)), key)) << key << " " << no;
        }
        for (const char *bad : {"2", "-1", "0.5", "\"\"", "\"2\"", "\"tru\"", "[true]", "{}"})
            EXPECT_NE("", error_of(nest(key, bad))) << key << " " << bad;
    }
    // Whether a section is on.
    for (const char *off : {"false", "0", "\"false\"", "\"off\"", "null"})
        resolved("{\"compression_training\": {\"enabled\": " + std::string(off) +
                 "}, \"zero_optimization\": {\"zenflow\": " + off + "}}");
    for (const char *on : {"true", "1", "\"true\"", "\"yes\""})
        EXPECT_NE("", error_of("{\"compression_training\": {\"enabled\": " + std::string(on) + "}}", ZOFF_ERR_UNSUPPORTED));
}

// zoff.skip_nonfinite: a flag, or the number of skipped steps in a row that is an error.
TEST(config_value, a_flag_may_be_a_number)
{
    const struct {
        const char *given, *printed;
        bool skips;
        double most;
    } cases[] = {{"true", "true", true, 0},      {"\"yes\"", "true", true, 0}, {"false", "false", false, 0},
                 {"\"off\"", "false", false, 0}, {"1", "1 ", true, 1},         {"5", "5 ", true, 5},
                 {"\"7\"", "7 ", true, 7},       {"1e3", "1000", true, 1000}};
    for (const auto &c : cases) {
        auto config = resolved(nest("zoff.skip_nonfinite", c.given));
        const zoff_config_values v = values(config);
        EXPECT_EQ(c.skips, v.skip_nonfinite) << c.given;
        EXPECT_EQ(c.most, v.most_skipped) << c.given;
        EXPECT_NE(std::string::npos, dump(config).find(std::string("zoff.skip_nonfinite = ") + c.printed)) << dump(config);
    }
    for (const char *bad : {"0", "-1", "2.5", "\"0\"", "[1]"})
        EXPECT_NE(std::string::npos, error_of(nest("zoff.skip_nonfinite", bad)).find("true, false or a number >= 1")) << bad;
}

TEST(config_value, choices_ignore_case_and_come_back_as_the_schema_spells_them)
{
    auto config = resolved("{\"optimizer\": {\"type\": \"adamw\"}, \"scheduler\": {\"type\": \"warmuplr\"}}");
    EXPECT_EQ("AdamW", word(config, "optimizer.type"));
    EXPECT_EQ("WarmupLR", word(config, "scheduler.type"));
    for (const char *bf16 : {"\"bf16\"", "\"bfp16\"", "\"BFP16\""})
        EXPECT_EQ(ZOFF_BF16, values(resolved(nest("communication_data_type", bf16))).wire_dtype) << bf16;
}
} // namespace
