/* SPDX-License-Identifier: Apache-2.0 */
// malformed_test.cc: malformed files: one clear error with its place, for any bytes.
#include "config_helpers.h"

using namespace config_test;

namespace
{
struct broken_case {
    const char *name;
    std::string text;
    const char *place;
    const char *words;
};

const broken_case BROKEN[] = {
    {"empty", "", "ds.json:1:1: ", "the file is empty; expected a JSON object"},
    {"blank", " \n\t\r\n", "ds.json:1:1: ", "the file is empty"},
    {"only_comments", "// nothing\n/* here */ # at all", "ds.json:1:1: ", "the file is empty"},
    {"only_bom", "\xEF\xBB\xBF", "ds.json:1:1: ", "the file is empty"},
    {"list", "\n [1]", "ds.json:2:2: ", "not an object"},
    {"scalar", "3", "ds.json:1:1: ", "not an object"},
    {"text", "\"x\"", "ds.json:1:1: ", "not an object"},
    {"open_object", "{\"train_batch_size\": 1", "ds.json:1:23: ", "not JSON"},
    {"open_string", "{\"a\": \"abc", "ds.json:1:", "not JSON"},
    {"open_comment", "{\n  /* here", "ds.json:2:3: ", "never ends; expected */"},
    {"slash_star_slash", "{}/*/", "ds.json:1:3: ", "never ends"},
    {"wrong_bracket", "{\"a\": [1}", "ds.json:1:9: ", "not JSON"},
    {"missing_comma", "{\"a\": 1\n \"b\": 2}", "ds.json:2:2: ", "this looks like Hjson"},
    {"missing_colon", "{\"a\" 1}", "ds.json:1:6: ", "not JSON"},
    {"two_commas", "{\"a\": [1,,2]}", "ds.json:1:10: ", "not JSON"},
    {"comma_alone", "{,}", "ds.json:1:2: ", "not JSON"},
    {"comma_in_list", "{\"a\": [,]}", "ds.json:1:8: ", "not JSON"},
    {"comma_after_colon", "{\"a\":,}", "ds.json:1:6: ", "not JSON"},
    {"bare_key", "{a: 1}", "ds.json:1:2: ", "this looks like Hjson"},
    {"single_quotes", "{'a': 1}", "ds.json:1:2: ", "this looks like Hjson"},
    {"nan", "{\"a\": NaN}", "ds.json:1:7: ", "\"NaN\" is not a value"},
    {"infinity", "{\"a\": -Infinity}", "ds.json:1:7: ", "not JSON"},
    {"python", "{\"a\": True}", "ds.json:1:7: ", "\"True\" is not a value"},
    {"template", "{\n  \"train_batch_size\" : GB_SIZE,\n}",
     "ds.json:2:24: ", "\"GB_SIZE\" is not a value; expected a value: is this a template"},
    {"shell_template", "{\"zero_optimization\": {\"stage\": ${zero_stage}}}", "ds.json:1:33: ", "is this a template"},
    {"huge_number", "{\"a\": 1e400}", "ds.json:1:7: ", "overflow"},
    {"huge_integer", "{\"wd\": 99999999999999999999}", "ds.json:1:2: wd: ", "not known"}, // a number like any other
    {"octal", "{\"a\": 01}", "ds.json:1:7: ", "not JSON"},
    {"newline_in_text", "{\"a\": \"x\n\"}", "ds.json:1:", "newline"},
    {"bad_escape", "{\"a\": \"\\x\"}", "ds.json:1:", "not JSON"},
    {"half_surrogate", "{\"a\": \"\\ud800\"}", "ds.json:1:", "not JSON"},
    {"nul_escape", "{\"a\": \"\\u0000\"}", "ds.json:1:", "not JSON"},
    {"bad_utf8", "{\"a\": \"\xff\"}", "ds.json:1:8: ", "0xff"},
    {"utf16", std::string("\xFF\xFE{\0}\0", 6), "ds.json:1:4: ", "not JSON: a zero byte; expected text in UTF-8"},
    {"nul_byte", std::string("{\0}", 3), "ds.json:1:2: ", "a zero byte"},
    {"nul_behind_number", std::string("{\"a\": 1\0}", 9), "ds.json:1:8: ", "a zero byte"},
    {"nul_in_key", std::string("{\"a\0b\": 1}", 10), "ds.json:1:", "not JSON"},
    {"something_behind", "{} x", "ds.json:1:4: ", "not JSON"},
    {"two_objects", "{}\n{}", "ds.json:2:1: ", "not JSON"},
    {"binary",
     std::string("\x7f"
                 "ELF\2\1\1\0\0",
                 9),
     "ds.json:1:8: ", "a zero byte"},
};

class config_malformed : public testing::TestWithParam<broken_case>
{
};

TEST_P(config_malformed, one_error_with_its_place)
{
    zoff_test::log_catcher log;
    std::string words = error_of(GetParam().text);
    EXPECT_EQ(0u, words.find(GetParam().place)) << words;
    EXPECT_NE(std::string::npos, words.find(GetParam().words)) << words;
}

INSTANTIATE_TEST_SUITE_P(each, config_malformed, testing::ValuesIn(BROKEN),
                         [](const testing::TestParamInfo<broken_case> &which) { return std::string(which.param.name); });

std::string repeat(const std::string &text, size_t times)
{
    std::string out;
    out.reserve(text.size() * times);
    for (size_t i = 0; i < times; i++)
        out += text;
    return out;
}

TEST(config_deep, nesting_is_an_error_not_a_crash)
{
    zoff_test::log_catcher log;
    for (size_t depth : {100u, 2000u, 3000u, 1000000u}) {
        for (const char *open : {"[", "{\"a\":"}) {
            std::string close = *open == '[' ? "]" : "}";
            error_of("{\"wd\": " + repeat(open, depth) + "1" + repeat(close, depth) + "}");
            error_of("{\"x\": " + repeat(open, depth));
        }
    }
    log.expect("known keys that zoff ignores");
    parse("{\"tensorboard\": " + repeat("{\"a\": [", 500) + repeat("]}", 500) + "}");
    std::string twin =
        error_of("{\"tensorboard\": " + repeat("{\"a\": ", 200) + "{\"b\": 1, \"b\": 2}" + repeat("}", 200) + "}");
    EXPECT_NE(std::string::npos, twin.find("given twice")) << twin;
}

TEST(config_long, names_and_texts_are_cut_in_messages)
{
    zoff_test::log_catcher log;
    std::string long_word(100000, 'k');
    EXPECT_LT(error_of(nest("zoff." + long_word, "1")).size(), 2048u);
    EXPECT_LT(error_of("{\"optimizer\": {\"" + long_word + "\": 1}}").size(), 2048u);
    EXPECT_LT(error_of(nest("optimizer.params.lr", "\"" + long_word + "\"")).size(), 2048u);
    EXPECT_LT(error_of(nest("optimizer.type", "\"" + long_word + "\"")).size(), 2048u);
    EXPECT_LT(error_of("{\"" + long_word + "\": 1, \"" + long_word + "\": 1}").size(), 2048u);
    EXPECT_LT(error_of("{\"a\": " + long_word + "}").size(), 2048u);
    auto config = parse("{}");
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_config_set(config.get(), long_word.c_str(), "1"));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_config_set(config.get(), ("optimizer." + long_word).c_str(), "1"));
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_config_set(config.get(), "optimizer.params.lr", long_word.c_str()));
    for (const char *key : {"", ".", "..", "optimizer.", ".lr", "optimizer..lr", "\xff", "zoff.threads.x"})
        EXPECT_EQ(ZOFF_ERR_INVALID, zoff_config_set(config.get(), key, "1")) << key;
}

TEST(config_long, many_equal_keys_take_no_more_than_sorting)
{
    zoff_test::log_catcher log;
    std::string text = "{\"tensorboard\": {\"k\": 0";
    for (int i = 0; i < 100000; i++)
        text += ",\"k\": 0";
    std::string words = error_of(text + "}}");
    EXPECT_EQ(0u, words.find("ds.json:1:25: tensorboard.k: this key is given twice, first at ds.json:1:18")) << words;
}
} // namespace
