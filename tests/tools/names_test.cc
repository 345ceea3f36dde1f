/* SPDX-License-Identifier: Apache-2.0 */
// names_test.cc: names with any bytes become names of tensors, and come back.
#include "random.h"
#include "tool_files.h"

extern "C" {
#include "names.h"
}

namespace
{
class names : public testing::Test
{
  protected:
    std::string encoded(const std::string &name) { return name_encode(&memory, name.c_str()); }
    std::string tensor(const std::string &pattern, size_t slice) { return name_of_tensor(&memory, pattern.c_str(), slice); }
    void TearDown() override { pool_free(&memory); }
    pool memory = {};
};

TEST_F(names, utf8_is_what_json_can_hold)
{
    for (const char *name :
         {"", "a.b", "\x7f", "caf\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf", "\n\x01"})
        EXPECT_TRUE(name_is_utf8(name)) << name;
    for (const char *name : {"\xff", "\x80", "a\xc3", "\xc3(", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80",
                             "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80", "\xe2\x82"})
        EXPECT_FALSE(name_is_utf8(name)) << name;
}

TEST_F(names, jansson_agrees_about_utf8)
{
    zoff_test::fast_random random(5);
    static const unsigned char BYTES[] = {0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf,
                                          0xe0, 0xe1, 0xec, 0xed, 0xee, 0xef, 0xf0, 0xf1, 0xf3, 0xf4, 0xf5, 0xff};
    for (int i = 0; i < 200000; i++) {
        char name[6] = {0};
        for (size_t k = random() % 6; k > 0; k--)
            name[k - 1] = (char)BYTES[random() % sizeof BYTES];
        json_t *text = json_string(name);
        ASSERT_EQ(text != nullptr, name_is_utf8(name));
        json_decref(text);
    }
}

TEST_F(names, any_bytes_come_back)
{
    zoff_test::fast_random random(6);
    for (int i = 0; i < 20000; i++) {
        std::string name;
        for (size_t k = random() % 12; k > 0; k--)
            name += random() % 3 ? (char)(1 + random() % 255) : "%A0{}"[random() % 5];
        const std::string text = encoded(name);
        ASSERT_TRUE(name_is_utf8(text.c_str()));
        const char *decoded = name_decode(&memory, text.c_str());
        ASSERT_NE(nullptr, decoded);
        ASSERT_EQ(name, decoded);
    }
    EXPECT_EQ("a%25b%FF\xc3\xa9", encoded("a%b\xff\xc3\xa9"));
}

TEST_F(names, texts_that_are_not_encoded_names_are_refused)
{
    for (const char *text : {"%", "%4", "%4g", "%ff", "%00", "a%", "%%41"})
        EXPECT_EQ(nullptr, name_decode(&memory, text)) << text;
}

TEST_F(names, slices_have_their_index_in_their_name)
{
    EXPECT_EQ("layers.12.w", tensor("layers.{}.w", 12));
    EXPECT_EQ("0", tensor("{}", 0));
    EXPECT_EQ("18446744073709551614-18446744073709551614", tensor("{}-{}", NAME_WHOLE - 1));
    EXPECT_EQ("plain", tensor("plain", 3));
    EXPECT_EQ("{0}", tensor("{{}}", 0));
    EXPECT_EQ("w.{}", tensor("w.{}", NAME_WHOLE)) << "the name of a whole parameter is no pattern";
    EXPECT_EQ("%FF.7%25", tensor("\xff.{}%", 7));
    EXPECT_EQ("7%", tensor("{}%", 7)) << "a name in UTF-8 stays as it is";
}
} // namespace
