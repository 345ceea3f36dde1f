/* SPDX-License-Identifier: Apache-2.0 */
// batch_test.cc: the three batch sizes: which of them are given, and for how many ranks.
#include "config_helpers.h"

using namespace config_test;

namespace
{
// 0: not given. `want` holds the results, or the error, for 1 and for 2 ranks.
struct batch_case {
    unsigned total, micro, steps, ranks;
    double want_total, want_micro, want_steps;
    const char *error;
};

const batch_case CASES[] = {
    {0, 0, 0, 1, 0, 0, 1, nullptr},
    {0, 0, 0, 2, 0, 0, 1, nullptr},
    {0, 0, 4, 1, 0, 0, 4, nullptr},
    {0, 0, 4, 2, 0, 0, 4, nullptr},
    {0, 3, 0, 1, 3, 3, 1, nullptr},
    {0, 3, 0, 2, 6, 3, 1, nullptr},
    {0, 3, 4, 1, 12, 3, 4, nullptr},
    {0, 3, 4, 2, 24, 3, 4, nullptr},
    {32, 0, 0, 1, 32, 32, 1, nullptr},
    {32, 0, 0, 2, 32, 16, 1, nullptr},
    {33, 0, 0, 2, 0, 0, 0,
     "train_batch_size 33 (ds.json:1:2) != train_micro_batch_size_per_gpu 16 (computed) * gradient_accumulation_steps 1 "
     "(computed) * world size 2 (ranks)"},
    {1, 0, 0, 2, 0, 0, 0, "train_micro_batch_size_per_gpu 0 (computed)"},
    {32, 0, 4, 1, 32, 8, 4, nullptr},
    {32, 0, 4, 2, 32, 4, 4, nullptr},
    {32, 0, 3, 1, 0, 0, 0,
     "train_batch_size 32 (ds.json:1:2) != train_micro_batch_size_per_gpu 10 (computed) * gradient_accumulation_steps 3 "
     "(ds.json:1:26)"},
    {32, 16, 0, 1, 32, 16, 2, nullptr},
    {32, 16, 0, 2, 32, 16, 1, nullptr},
    {33, 17, 0, 2, 0, 0, 0, "gradient_accumulation_steps 0 (computed)"},
    {32, 18, 0, 2, 0, 0, 0, "gradient_accumulation_steps 0 (computed)"},
    {2, 4, 0, 1, 0, 0, 0, "gradient_accumulation_steps 0 (computed)"},
    {32, 16, 2, 1, 32, 16, 2, nullptr},
    {32, 16, 1, 2, 32, 16, 1, nullptr},
    {32, 8, 2, 2, 32, 8, 2, nullptr},
    {33, 17, 2, 2, 0, 0, 0, "!= train_micro_batch_size_per_gpu 17 (ds.json:1:26) * gradient_accumulation_steps 2 (ds.json:1:"},
    {32, 18, 1, 2, 0, 0, 0, "* world size 2 (ranks)"},
    {0, 4294967295u, 2, 1, 0, 0, 0, "is too large"},
    {4294967295u, 4294967295u, 4294967295u, 2, 0, 0, 0, "train_batch_size 4294967295"},
};

std::string text_of(const batch_case &c, const std::string &missing)
{
    std::string text;
    auto add = [&](const char *key, unsigned value) {
        if (value || !missing.empty())
            text += (text.empty() ? "{\"" : ", \"") + std::string(key) + "\": " + (value ? std::to_string(value) : missing);
    };
    add("train_batch_size", c.total);
    add("train_micro_batch_size_per_gpu", c.micro);
    add("gradient_accumulation_steps", c.steps);
    return text.empty() ? "{}" : text + "}";
}

TEST(config_batch, every_combination)
{
    zoff_test::log_catcher log;
    for (const auto &c : CASES) {
        for (const char *missing : {"", "\"auto\"", "null"}) {
            std::string text = text_of(c, missing);
            SCOPED_TRACE(text + " on " + std::to_string(c.ranks));
            auto config = parse(text);
            ASSERT_TRUE(config);
            if (c.error) {
                bool exact = !*missing || strstr(c.error, "ds.json") == nullptr;
                EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, exact && !*missing ? c.error : "world size",
                                  zoff_config_resolve(config.get(), c.ranks));
                continue;
            }
            ASSERT_ZOFF_OK(zoff_config_resolve(config.get(), c.ranks));
            EXPECT_EQ(c.want_total, number(config, "train_batch_size"));
            EXPECT_EQ(c.want_micro, number(config, "train_micro_batch_size_per_gpu"));
            EXPECT_EQ(c.want_steps, number(config, "gradient_accumulation_steps"));
            zoff_config_values v = values(config, c.ranks);
            EXPECT_EQ(c.want_total, v.train_batch);
            EXPECT_EQ(c.want_micro, v.micro_batch);
            EXPECT_EQ(c.want_steps, v.accumulation);
        }
    }
}

TEST(config_batch, the_error_names_every_value_and_its_source)
{
    auto config = parse("{\n  \"train_batch_size\": 16,\n  \"train_micro_batch_size_per_gpu\": 1\n}");
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "gradient_accumulation_steps", "8"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "ds.json:2:3: train_batch_size 16 (ds.json:2:3) != train_micro_batch_size_per_gpu 1 (ds.json:3:3) * "
                      "gradient_accumulation_steps 8 (api) * world size 1 (ranks); expected",
                      zoff_config_resolve(config.get(), 1));
    double value;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_config_resolve", zoff_config_number(config.get(), "train_batch_size", &value));
    ASSERT_ZOFF_OK(zoff_config_resolve(config.get(), 2)) << "a second call starts afresh";
    EXPECT_EQ(8, number(config, "gradient_accumulation_steps"));
}

TEST(config_batch, resolves_again_for_another_number_of_ranks)
{
    auto config = resolved("{\"train_batch_size\": 64, \"train_micro_batch_size_per_gpu\": 4}");
    for (unsigned ranks : {1u, 2u, 4u, 16u, 1u})
        EXPECT_EQ(16u / ranks, values(config, ranks).accumulation) << ranks;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "at least 1", zoff_config_resolve(config.get(), 0));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_resolve(nullptr, 1));
}

TEST(config_batch, says_where_each_size_is_from)
{
    auto config = resolved("{\"train_batch_size\": 8, \"gradient_accumulation_steps\": \"auto\"}");
    EXPECT_STREQ("ds.json:1:2", zoff_config_source(config.get(), "train_batch_size"));
    EXPECT_STREQ("auto at ds.json:1:25", zoff_config_source(config.get(), "gradient_accumulation_steps"));
    EXPECT_STREQ("computed", zoff_config_source(config.get(), "train_micro_batch_size_per_gpu"));
    EXPECT_STREQ("default", zoff_config_source(config.get(), "gradient_clipping"));
    EXPECT_STREQ("unknown", zoff_config_source(config.get(), "no.such.key"));
}
} // namespace
