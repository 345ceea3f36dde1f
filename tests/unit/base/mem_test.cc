// mem_test.cc: small memory from the heap, large memory as mappings, and what is said when there is none.
#include "zoff_test.h"

#include <stdint.h>
#include <string.h>

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

TEST(mem, maps_are_aligned_zeroed_and_whole)
{
    const size_t huge_page = 2 << 20;
    for (size_t bytes : {size_t{0}, size_t{1}, huge_page - 1, huge_page, huge_page + 1, 3 * huge_page}) {
        zoff_map map = {};
        ASSERT_ZOFF_OK(zoff_base_mem_map(bytes, "slots", &map));
        EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(map.base) % huge_page) << bytes;
        EXPECT_EQ(bytes, map.bytes);
        auto data = static_cast<unsigned char *>(map.base);
        EXPECT_EQ(static_cast<ptrdiff_t>(bytes), std::count(data, data + bytes, 0));
        memset(data, 0xa5, bytes); // the last byte is ours too
        // The mapping given back covers what was handed out.
        auto origin = static_cast<unsigned char *>(map.origin);
        EXPECT_LE(origin, data);
        EXPECT_GE(origin + map.reserved, data + bytes);
        zoff_base_mem_unmap(&map);
        EXPECT_EQ(nullptr, map.base);
        zoff_base_mem_unmap(&map); // twice does nothing
    }
}

TEST(mem, a_map_that_cannot_be_names_its_size_and_purpose)
{
    // Just below and just above what rounding up survives, and a size that only the kernel can refuse.
    for (size_t bytes : {SIZE_MAX, SIZE_MAX - (4 << 20), SIZE_MAX - (4 << 20) + 1, size_t{1} << 60}) {
        zoff_map map = {};
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "cannot map " + std::to_string(bytes) + " bytes for the ring",
                          zoff_base_mem_map(bytes, "the ring", &map));
        EXPECT_EQ(nullptr, map.base);
    }
}
