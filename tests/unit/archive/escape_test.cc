/* SPDX-License-Identifier: Apache-2.0 */
// escape_test.cc: names of any bytes survive a manifest, and each name has exactly one text.
#include "sample.h"

#include <random>

using namespace zoff_test;

namespace
{
std::string escaped(const std::string &name)
{
    char *text = nullptr;
    EXPECT_ZOFF_OK(zoff_archive_escape_write(name.c_str(), &text));
    const std::string copy = text ? text : "";
    zoff_base_mem_free(text);
    return copy;
}

std::string unescaped(const std::string &text)
{
    char *name = nullptr;
    EXPECT_ZOFF_OK(zoff_archive_escape_read(text.c_str(), &name)) << text;
    const std::string copy = name ? name : "";
    zoff_base_mem_free(name);
    return copy;
}
} // namespace

TEST(escape, keeps_plain_text_and_whole_characters)
{
    EXPECT_EQ("model.layers.0/attn \"q\"\\", escaped("model.layers.0/attn \"q\"\\"));
    EXPECT_EQ("\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x8d", escaped("\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x8d"));
    EXPECT_EQ("", escaped(""));
}

TEST(escape, replaces_bytes_that_json_cannot_hold)
{
    EXPECT_EQ("100%25%0A%1F%7F", escaped("100%\n\x1f\x7f"));
    EXPECT_EQ("%FF%C3", escaped("\xff\xc3"));        // no character begins so, and one that ends early
    EXPECT_EQ("%C0%80", escaped("\xc0\x80"));        // a longer form of a short character
    EXPECT_EQ("%E0%80%80", escaped("\xe0\x80\x80")); // the same with three bytes
    EXPECT_EQ("%F0%80%80%80", escaped("\xf0\x80\x80\x80"));
    EXPECT_EQ("%ED%A0%80", escaped("\xed\xa0\x80"));        // a surrogate
    EXPECT_EQ("%F4%90%80%80", escaped("\xf4\x90\x80\x80")); // beyond the last character
    EXPECT_EQ("\xf4\x8f\xbf\xbf", escaped("\xf4\x8f\xbf\xbf"));
}

TEST(escape, reads_back_every_name)
{
    std::mt19937 random(1);
    for (int i = 0; i < 20000; i++) {
        std::string name;
        for (unsigned k = random() % 12; k; k--)
            name += (char)(1 + (random() % 4 ? random() % 255 : 0xc0 + random() % 63));
        ASSERT_EQ(name, unescaped(escaped(name)));
    }
}

TEST(escape, refuses_texts_that_it_does_not_write)
{
    char *name = nullptr;
    for (const char *text : {"%", "%4", "%GG", "%ff", "%00", "%41", "\xff", "a\n", "%C3%A9"}) {
        SCOPED_TRACE(testing::Message() << text);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "is not escaped", zoff_archive_escape_read(text, &name));
    }
}
