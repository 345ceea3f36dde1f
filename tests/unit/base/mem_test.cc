/* SPDX-License-Identifier: Apache-2.0 */
// mem_test.cc: small memory from the heap, and the error if there is none.
#include "zoff_test.h"

#include <stdint.h>

#include <algorithm>

extern "C" {
#include "mem.h"
}

TEST(mem, alloc_is_zeroed_and_empty_is_not_null)
{
    unsigned char *bytes = nullptr;
    ASSERT_ZOFF_OK(zoff_base_mem_alloc(1000, 3, "a list", &bytes));
    EXPECT_EQ(3000, std::count(bytes, bytes + 3000, 0));
    zoff_base_mem_free(bytes);
    bytes = nullptr;
    ASSERT_ZOFF_OK(zoff_base_mem_alloc(0, 8, "an empty list", &bytes));
    EXPECT_NE(nullptr, bytes);
    zoff_base_mem_free(bytes);
    zoff_base_mem_free(nullptr);
}

TEST(mem, a_product_that_is_no_number_is_no_memory)
{
    void *pointer = this;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "18446744073709551615 x 2 bytes for the moments",
                      zoff_base_mem_alloc(SIZE_MAX, 2, "the moments", &pointer));
    EXPECT_EQ(this, pointer) << "outputs are written on success only";
}

TEST(mem, text_is_copied)
{
    char text[] = "nvme0";
    char *copy = nullptr;
    ASSERT_ZOFF_OK(zoff_base_mem_copy_text(text, &copy));
    text[0] = 'x';
    EXPECT_STREQ("nvme0", copy);
    zoff_base_mem_free(copy);
    ASSERT_ZOFF_OK(zoff_base_mem_copy_text("", &copy));
    EXPECT_STREQ("", copy);
    zoff_base_mem_free(copy);
    ASSERT_ZOFF_OK(zoff_base_mem_copy_text(nullptr, &copy));
    EXPECT_EQ(nullptr, copy);
}
