/* SPDX-License-Identifier: Apache-2.0 */
// array_test.cc: arrays on the heap grow, keep their content, and stay unchanged if there is no memory.
#include "zoff_test.h"

#include <stdint.h>

extern "C" {
#include "array.h"
#include "mem.h"
}

// An array that grows keeps its content, is zero behind it, and doubles: 100,000 elements added one by one take some 13
// allocations.
TEST(array, grows_by_doubling)
{
    uint32_t *list = nullptr;
    size_t capacity = 0, grown = 0;
    for (size_t count = 0; count < 100000; count++) {
        const size_t before = capacity;
        ASSERT_ZOFF_OK(zoff_base_array_reserve(&list, count, &capacity, count + 1, sizeof *list, "a test"));
        grown += capacity != before;
        ASSERT_EQ(0u, list[capacity - 1]);
        list[count] = static_cast<uint32_t>(count) + 1;
    }
    for (size_t i = 0; i < 100000; i++)
        ASSERT_EQ(i + 1, list[i]);
    EXPECT_LE(grown, 14u);
    uint32_t *const same = list;
    const size_t held = capacity;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "a test",
                      zoff_base_array_reserve(&list, 100000, &capacity, SIZE_MAX / 2, sizeof *list, "a test"));
    EXPECT_EQ(same, list);
    EXPECT_EQ(held, capacity);
    zoff_base_mem_free(list);
}

TEST(array, a_text_grows_and_is_printed_once)
{
    zoff_text text = {};
    std::string want;
    for (int i = 0; i < 3000; i++) {
        zoff_base_array_print(&text, "%d, %s;", i, i % 7 ? "x" : "a longer word");
        want += std::to_string(i) + ", " + (i % 7 ? "x" : "a longer word") + ";";
        ASSERT_EQ(want.size(), text.bytes);
    }
    zoff_base_array_print(&text, "%s", "");
    EXPECT_EQ(ZOFF_OK, text.status);
    EXPECT_EQ(want, text.words);
    zoff_base_mem_free(text.words);
    // Exactly as many bytes as there is room for.
    for (size_t length = 1; length < 70; length++) {
        zoff_text one = {};
        const std::string words(length, 'w');
        for (int i = 0; i < 3; i++)
            zoff_base_array_print(&one, "%s", words.c_str());
        EXPECT_EQ(words + words + words, one.words);
        zoff_base_mem_free(one.words);
    }
}

TEST(array, json_texts_keep_every_byte)
{
    zoff_text text = {};
    zoff_base_array_print_json(&text, "a\"b\\c\n\x7f\xff \u00e9/");
    EXPECT_STREQ("\"a\\u0022b\\u005cc\\u000a\\u007f\\u00ff \\u00c3\\u00a9/\"", text.words);
    zoff_base_mem_free(text.words);
}

TEST(array, a_text_without_memory_prints_nothing_more)
{
    zoff_text text = {};
    text.status = ZOFF_ERR_NO_MEMORY;
    zoff_base_array_print(&text, "x");
    EXPECT_EQ(nullptr, text.words);
    EXPECT_EQ(ZOFF_ERR_NO_MEMORY, text.status);
}
