/* SPDX-License-Identifier: Apache-2.0 */
// scan_test.cc: from text to a tree in which every member knows its place: comments, commas, and repeated keys.
#include "config_helpers.h"

extern "C" {
#include "config_priv.h"
}

using namespace config_test;

namespace
{
// A text and its result.
struct scanned {
    explicit scanned(std::string text_) : text(std::move(text_)) { status = scan(); }
    ~scanned() { zoff_config_scan_free(&tree); }
    zoff_status scan() { return zoff_config_scan(text.data(), text.size(), "t", &tree); }
    // "a.b[] 2:14", and the place of its value if that differs.
    std::string member(size_t i) const
    {
        char path[128];
        const zoff_config_member &m = tree.members[i];
        zoff_config_scan_path(&tree, i, path, sizeof path);
        const auto at = [](zoff_config_place p) { return " " + std::to_string(p.line) + ":" + std::to_string(p.column); };
        return path + at(m.key_at) + (at(m.key_at) == at(m.value_at) ? "" : at(m.value_at));
    }
    std::string text;
    zoff_config_tree tree = {};
    zoff_status status;
};

using words = std::vector<std::string>;

words members_of(const std::string &text)
{
    const scanned s(text);
    EXPECT_ZOFF_OK(s.status);
    words out;
    for (size_t i = 0; i < s.tree.count; i++)
        out.push_back(s.member(i));
    return out;
}

void expect_error(const std::string &text, const char *said)
{
    const scanned s(text);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, said, s.status);
    EXPECT_EQ(nullptr, s.tree.root) << "nothing is left to free";
    EXPECT_EQ(nullptr, s.tree.members);
}
} // namespace

TEST(config_scan, members_are_in_the_order_of_the_text_with_their_places)
{
    EXPECT_EQ((words{"a 2:2 2:7", "a.b 2:8 2:13", "a.b[] 2:14", "a.b[] 2:17", "a.b[].c 2:18 2:23", "d 3:2 3:7"}),
              members_of("{\n \"a\": {\"b\": [1, {\"c\": 2}]},\n \"d\": null\n}"));
    EXPECT_EQ((words{}), members_of("{}"));
    EXPECT_EQ((words{"b 1:2 1:7", "a 1:10 1:15"}), members_of("{\"b\": 1, \"a\": 2}")) << "not in that of the alphabet";
}

TEST(config_scan, members_know_who_holds_them)
{
    const scanned s("{\"a\": {\"b\": [7]}}");
    ASSERT_ZOFF_OK(s.status);
    ASSERT_EQ(3u, s.tree.count);
    EXPECT_EQ(SIZE_MAX, s.tree.members[0].parent);
    EXPECT_EQ(0u, s.tree.members[1].parent);
    EXPECT_EQ(1u, s.tree.members[2].parent);
    EXPECT_EQ(nullptr, s.tree.members[2].key) << "an element of a list has no key";
    EXPECT_EQ(7, json_integer_value(s.tree.members[2].value));
}

TEST(config_scan, extensions_of_json_are_blanked_in_place)
{
    scanned s("{ // x\n \"a\": [1, /* \"b\" */ 2,], # y\n \"c\": \"//\\\",]\",\n}");
    ASSERT_ZOFF_OK(s.status);
    EXPECT_EQ("{     \n \"a\": [1,           2 ],    \n \"c\": \"//\\\",]\" \n}", s.text);
    EXPECT_EQ("c 3:2 3:7", s.member(3));
}

TEST(config_scan, columns_count_characters)
{
    EXPECT_EQ((words{"\xC3\xA4 1:2 1:7", "b 1:12 1:17"}), members_of("{\"\xC3\xA4\": \"\xE2\x82\xAC\", \"b\": 1}"));
    EXPECT_EQ((words{"x 1:2 1:7"}), members_of("\xEF\xBB\xBF{\"x\": 1}")) << "a mark in front of the text has no column";
}

TEST(config_scan, a_path_is_cut_where_its_memory_ends)
{
    const scanned s("{\"ab\": {\"cd\": [1]}}");
    ASSERT_ZOFF_OK(s.status);
    const std::string whole = "ab.cd[]";
    for (size_t bytes = 1; bytes <= whole.size() + 1; bytes++) {
        std::string path(16, '?');
        zoff_config_scan_path(&s.tree, 2, path.data(), bytes);
        EXPECT_EQ(whole.substr(0, bytes - 1) + '\0' + std::string(16 - bytes, '?'), path);
    }
}

TEST(config_scan, a_key_stands_once_but_for_remarks)
{
    expect_error("{\"a\": 1,\n \"b\": 2, \"a\": 3}", "t:2:10: a: this key is given twice, first at t:1:2; expected it once");
    expect_error("{\"a\": {\"x\": 1, \"\\u0078\": 1}}", "t:1:16: a.x: this key is given twice, first at t:1:8");
    expect_error("{\"a\": {\"x\": 1}, \"a\": {\"x\": 1}}", "t:1:17: a: this key is given twice");
    // If there are several, the first one in the text counts, with any keys.
    for (const std::string key : {"a", "b", "q", "z"}) {
        for (const std::string other : {"c", "d", "r", "y"}) {
            const std::string first = "\"" + key + "\": 1, ", second = "\"" + other + "\": 1, ";
            expect_error("{" + first + second + first + second + "\"x\": 1}", ("t:1:18: " + key + ": ").c_str());
        }
    }
    members_of("{\"_\": 1, \"_\": {\"y\": 1}, \"//\": 1, \"//\": 2, \"#\": 1, \"#\": 2}");
    members_of("{\"a\": [{\"x\": 1}, {\"x\": 1}]}"); // the keys are in two objects
}

TEST(config_scan, remarks_begin_with_their_mark)
{
    for (const char *key : {"_", "_note", "#", "# x", "//", "// x"})
        EXPECT_TRUE(zoff_config_scan_is_remark(key)) << key;
    for (const char *key : {"", "/", "/x", "a_", "a#", "a//"})
        EXPECT_FALSE(zoff_config_scan_is_remark(key)) << key;
}

TEST(config_scan, errors_for_other_types_name_the_place)
{
    expect_error("", "t:1:1: the file is empty");
    expect_error("\n\n [1]", "t:3:2: this is not an object");
    expect_error("{\"a\": 1 \"b\"}", "t:1:9: not JSON");
    expect_error(std::string("{\"a\":\n \"\0\"}", 11), "t:2:3: not JSON: a zero byte");
    for (const char *text : {"{,}", "{\"a\": [,]}", "{\"a\": [1,,2]}", "{\"a\":,}"}) // not every comma is superfluous
        expect_error(text, "not JSON");
    expect_error("{ /* }", "t:1:3: a comment starts here and never ends");
}

TEST(config_scan, a_tree_is_freed_as_often_as_one_likes)
{
    scanned s("{\"a\": [1, 2, 3]}");
    ASSERT_ZOFF_OK(s.status);
    zoff_config_scan_free(&s.tree);
    EXPECT_EQ(nullptr, s.tree.root);
    EXPECT_EQ(0u, s.tree.count);
    zoff_config_scan_free(&s.tree);
}
