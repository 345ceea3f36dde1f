/* SPDX-License-Identifier: Apache-2.0 */
// members_test.cc: an object is read member by member. Text that jansson refuses is refused, and values that are too large for
// bounded memory.
#include "sample.h"

extern "C" {
#include "members_priv.h"
}

using namespace zoff_test;

namespace
{
const char *const WANTED[] = {"a", "b", nullptr};
const char *const LISTED[] = {"list", nullptr};

struct object {
    ~object() { json_decref(rest); }
    zoff_status read(const std::string &text_)
    {
        text = text_;
        return zoff_archive_members_read(text.data(), text.size(), WANTED, LISTED, &list, &rest);
    }
    std::string text;
    zoff_archive_value list = {nullptr, 0};
    json_t *rest = nullptr;
};

std::vector<long> numbers(zoff_archive_value list)
{
    size_t count = 0, at = 0;
    std::vector<long> found;
    EXPECT_ZOFF_OK(zoff_archive_members_count(list, &count));
    for (size_t i = 0; i < count; i++) {
        json_t *element = nullptr;
        EXPECT_ZOFF_OK(zoff_archive_members_next(list, &at, &element));
        found.push_back(json_integer_value(element));
        json_decref(element);
    }
    return found;
}
} // namespace

TEST(members, are_read_in_any_order)
{
    object o;
    ASSERT_ZOFF_OK(o.read(" {\"x\": {\"a\": 3, \"s\": \"]}\\\"\"}, \"list\" : [1, 2 ,3 ] ,\n\"b\":\"t\\u00e9\",\"a\":-7} \n"));
    EXPECT_EQ(-7, json_integer_value(json_object_get(o.rest, "a")));
    EXPECT_STREQ("t\xc3\xa9", json_string_value(json_object_get(o.rest, "b")));
    EXPECT_EQ(2u, json_object_size(o.rest));
    EXPECT_EQ((std::vector<long>{1, 2, 3}), numbers(o.list));
}

TEST(members, may_be_missing)
{
    object o;
    size_t count = 0;
    ASSERT_ZOFF_OK(o.read("{}"));
    EXPECT_EQ(nullptr, o.list.text);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "no list", zoff_archive_members_count(o.list, &count));
    object empty;
    ASSERT_ZOFF_OK(empty.read("{\"list\": []}"));
    EXPECT_EQ(std::vector<long>(), numbers(empty.list));
}

TEST(members, must_be_json)
{
    for (const char *text : {"",
                             " ",
                             "[]",
                             "1",
                             "{",
                             "{\"a\"",
                             "{\"a\":",
                             "{\"a\":}",
                             "{\"a\": 1",
                             "{\"a\": 1,}",
                             "{\"a\": 1 \"b\": 2}",
                             "{,}",
                             "{\"a\": 1}x",
                             "{\"a\": [1}",
                             "{\"a\": {]",
                             "{\"a\": \"x}",
                             "{\"a\": \"x\\",
                             "{a: 1}",
                             "{\"a\": 01}",
                             "{\"a\": nul}",
                             "{\"a\": \"\xff\"}",
                             "{\"a\": \"\\u0000\"}",
                             "{\"\xff\": 1}",
                             "{\"a\": 1, \"a\": 1}",
                             "{\"list\": [], \"list\": []}",
                             "{\"a\": {\"x\": 1, \"x\": 1}}",
                             "{\"a\": 99999999999999999999}",
                             "{\"list\":}",
                             "{\"x\":}",
                             "{\"x\": [}"}) {
        object o;
        {
            SCOPED_TRACE(testing::Message() << text);
            EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "", o.read(text));
        }
    }
    for (const char *text :
         {"{\"list\": 3}", "{\"list\": {}}", "{\"list\": [,]}", "{\"list\": [1,]}", "{\"list\": [1] 2}", "{\"list\": [1}]}"}) {
        object o;
        size_t count = 0;
        const zoff_status status = o.read(text);
        EXPECT_EQ(ZOFF_ERR_CORRUPT, status < 0 ? status : zoff_archive_members_count(o.list, &count)) << text;
    }
}

TEST(members, with_bad_elements_are_found_when_they_are_parsed)
{
    object o;
    size_t count = 0, at = 0;
    json_t *element = nullptr;
    ASSERT_ZOFF_OK(o.read("{\"list\": [1 2, 3]}"));
    ASSERT_ZOFF_OK(zoff_archive_members_count(o.list, &count));
    EXPECT_EQ(2u, count);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "'1 2'", zoff_archive_members_next(o.list, &at, &element));
}

TEST(members, not_wanted_may_have_any_size)
{
    object small, large;
    const std::string text(1 << 17, '[');
    ASSERT_ZOFF_OK(small.read("{\"x\": \"" + text + "\"}"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "at most 65536", large.read("{\"a\": \"" + text + "\"}"));
}

TEST(members, deep_or_long_end_without_much_memory)
{
    object deep, open;
    const std::string text(100000, '['), ends(100000, ']');
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "", deep.read("{\"a\": " + text + ends + "}"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "", open.read("{\"x\": " + text + "}"));
}
