/* SPDX-License-Identifier: Apache-2.0 */
// agree_test.cc: the list of keys that ranks compare: every key that decides a number, once, with its effective value.
#include "config_helpers.h"
#include "schema_rows.h"

#include <map>

extern "C" {
#include "mem.h"
}

using namespace config_test;

namespace
{
using pairs = std::vector<std::pair<std::string, std::string>>;

// Keys and values in the order of the list.
pairs list_of(const zoff_test::config &config)
{
    char *text = nullptr;
    size_t bytes = 0;
    EXPECT_ZOFF_OK(zoff_config_dump_agreed(config.get(), &text, &bytes));
    pairs out;
    const char *at = text;
    while (at < text + bytes) {
        const std::string key = at, value = at + key.size() + 1;
        at += key.size() + value.size() + 2;
        out.push_back({key, value});
    }
    EXPECT_EQ(text + bytes, at) << "the list ends behind its last value";
    zoff_base_mem_free(text);
    return out;
}

std::vector<std::string> keys_that_differ(const pairs &a, const pairs &b)
{
    std::vector<std::string> keys;
    EXPECT_EQ(a.size(), b.size());
    for (size_t i = 0; i < std::min(a.size(), b.size()); i++) {
        EXPECT_EQ(a[i].first, b[i].first);
        if (a[i].second != b[i].second)
            keys.push_back(a[i].first);
    }
    return keys;
}
} // namespace

TEST(config_agree, every_key_that_a_number_depends_on_is_listed_once)
{
    const pairs list = list_of(resolved("{}"));
    std::map<std::string, int> seen;
    for (const auto &pair : list)
        seen[pair.first]++;
    size_t wanted = 0;
    for (const auto *row : rows()) {
        const bool is_value = row->class_ == ZOFF_CLASS_HONOURED && row->type != ZOFF_KEY_SECTION;
        EXPECT_EQ(is_value && !row->may_differ ? 1 : 0, seen[row->path]) << row->path;
        wanted += is_value && !row->may_differ;
    }
    EXPECT_EQ(wanted, list.size());
    EXPECT_LT(20u, wanted);
}

TEST(config_agree, the_value_is_the_one_that_counts)
{
    const zoff_test::config file = resolved(R"({"optimizer": {"params": {"lr": 0.5}}})");
    const pairs defaults = list_of(resolved("{}")), given = list_of(file);
    EXPECT_EQ((std::vector<std::string>{"optimizer.params.lr"}), keys_that_differ(defaults, given));
    EXPECT_NE(given.end(),
              std::find(given.begin(), given.end(), std::make_pair(std::string("optimizer.params.lr"), std::string("0.5"))));
    ASSERT_ZOFF_OK(zoff_config_set(file.get(), "optimizer.params.lr", "null"));
    ASSERT_ZOFF_OK(zoff_config_resolve(file.get(), 1));
    EXPECT_EQ(defaults, list_of(file)) << "the program's value wins over the file's";
}

TEST(config_agree, other_spellings_of_a_value_are_the_same)
{
    EXPECT_EQ(list_of(resolved(R"({"optimizer": {"type": "adamw", "params": {"lr": 1e-3}}, "bfloat16": {"enabled": true}})")),
              list_of(resolved(R"({"optimizer": {"type": "AdamW", "params": {"lr": "0.001"}}, "bf16": {"enabled": true}})")));
}

TEST(config_agree, keys_that_may_differ_change_nothing)
{
    const pairs defaults = list_of(resolved("{}"));
    EXPECT_EQ(defaults, list_of(resolved(R"({"steps_per_print": 10, "zoff": {"threads": 3}})")));
}

TEST(config_agree, long_lists_are_compared_to_their_end)
{
    const auto with = [](const std::string &last) {
        std::string list;
        for (int i = 0; i < 500; i++)
            list += "\"layer." + std::to_string(i) + ".bias\", ";
        return list_of(resolved("{\"zoff\": {\"fp32_moments\": [" + list + "\"" + last + "\"]}}"));
    };
    EXPECT_EQ(with("wte"), with("wte"));
    EXPECT_EQ((std::vector<std::string>{"zoff.fp32_moments"}), keys_that_differ(with("wte"), with("wpe")));
}
