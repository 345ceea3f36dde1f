/* SPDX-License-Identifier: Apache-2.0 */
// map_test.cc: large memory as mappings: complete, aligned, zeroed; the error without memory; the count of huge pages.
#include "fake_root.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <fstream>

extern "C" {
#include "map.h"
}

namespace
{
const size_t HUGE_PAGE_BYTES = 2 << 20;

// Huge pages in the one range that begins at `address`, as the kernel counts them.
size_t kernel_count(const void *address)
{
    std::ifstream smaps("/proc/self/smaps");
    std::string line;
    bool ours = false;
    while (std::getline(smaps, line)) {
        size_t begin, end, kib;
        if (sscanf(line.c_str(), "%zx-%zx ", &begin, &end) == 2)
            ours = begin <= reinterpret_cast<size_t>(address) && reinterpret_cast<size_t>(address) < end;
        else if (ours && sscanf(line.c_str(), "AnonHugePages: %zu kB", &kib) == 1)
            return kib * 1024;
    }
    return 0;
}
} // namespace

TEST(map, is_aligned_zeroed_and_whole)
{
    for (zoff_map_nodes nodes : {ZOFF_MAP_FIRST_TOUCH, ZOFF_MAP_INTERLEAVED}) {
        for (size_t bytes :
             {size_t{0}, size_t{1}, HUGE_PAGE_BYTES - 1, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 1, 3 * HUGE_PAGE_BYTES}) {
            zoff_map map = {};
            ASSERT_ZOFF_OK(zoff_base_map_alloc(bytes, "slots", nodes, &map));
            EXPECT_EQ(0u, reinterpret_cast<uintptr_t>(map.base) % HUGE_PAGE_BYTES) << bytes;
            EXPECT_EQ(bytes, map.bytes);
            auto data = static_cast<unsigned char *>(map.base);
            EXPECT_EQ(static_cast<ptrdiff_t>(bytes), std::count(data, data + bytes, 0));
            memset(data, 0xa5, bytes); // the last byte is ours, too
            // munmap covers the whole mapping.
            auto origin = static_cast<unsigned char *>(map.origin);
            EXPECT_LE(origin, data);
            EXPECT_GE(origin + map.reserved, data + bytes);
            zoff_base_map_free(&map);
            EXPECT_EQ(nullptr, map.base);
            zoff_base_map_free(&map); // freeing twice does nothing
        }
    }
}

TEST(map, one_that_cannot_be_names_its_size_and_purpose)
{
    // Just below and just above the size at which rounding up overflows, and a size that only the kernel can refuse.
    for (size_t bytes : {SIZE_MAX, SIZE_MAX - (4 << 20), SIZE_MAX - (4 << 20) + 1, size_t{1} << 60}) {
        zoff_map map = {};
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "cannot map " + std::to_string(bytes) + " bytes for the ring",
                          zoff_base_map_alloc(bytes, "the ring", ZOFF_MAP_FIRST_TOUCH, &map));
        EXPECT_EQ(nullptr, map.base);
    }
}

TEST(map, huge_pages_are_counted_when_touched)
{
    zoff_map map = {};
    EXPECT_EQ(0u, zoff_base_map_huge_bytes(&map));
    ASSERT_ZOFF_OK(zoff_base_map_alloc(16 * HUGE_PAGE_BYTES, "states", ZOFF_MAP_FIRST_TOUCH, &map));
    EXPECT_EQ(0u, zoff_base_map_huge_bytes(&map)) << "nothing was touched yet";
    memset(map.base, 1, 8 * HUGE_PAGE_BYTES);
    const size_t huge = zoff_base_map_huge_bytes(&map);
    EXPECT_EQ(std::min(kernel_count(map.base), 16 * HUGE_PAGE_BYTES), huge);
    EXPECT_EQ(0u, huge % HUGE_PAGE_BYTES);
    // The kernel decides whether it has huge pages free. If it never gives any, there is nothing to test.
    if (huge == 0) {
        zoff_base_map_free(&map);
        GTEST_SKIP() << "the kernel gives no huge pages here";
    }
    EXPECT_LE(huge, 8 * HUGE_PAGE_BYTES);
    ASSERT_EQ(0, madvise(map.base, 16 * HUGE_PAGE_BYTES, MADV_DONTNEED));
    EXPECT_EQ(0u, zoff_base_map_huge_bytes(&map)) << "given back";
    zoff_base_map_free(&map);
}

TEST(map, a_neighbour_is_not_counted_for_more_than_we_have)
{
    // Two mappings of one kind, which the kernel may have joined into one range.
    zoff_map a = {}, b = {};
    ASSERT_ZOFF_OK(zoff_base_map_alloc(2 * HUGE_PAGE_BYTES, "a", ZOFF_MAP_FIRST_TOUCH, &a));
    ASSERT_ZOFF_OK(zoff_base_map_alloc(8 * HUGE_PAGE_BYTES, "b", ZOFF_MAP_FIRST_TOUCH, &b));
    memset(a.base, 1, a.bytes);
    memset(b.base, 1, b.bytes);
    EXPECT_LE(zoff_base_map_huge_bytes(&a), a.bytes);
    EXPECT_LE(zoff_base_map_huge_bytes(&b), b.bytes);
    zoff_base_map_free(&a);
    zoff_base_map_free(&b);
}

TEST(map, huge_pages_switched_off_are_seen)
{
    zoff_test::fake_root root;
    const std::string file = "sys/kernel/mm/transparent_hugepage/enabled";
    EXPECT_EQ(nullptr, zoff_base_map_huge_pages_off(root.path())) << "not known";
    root.put(file, "always [madvise] never");
    EXPECT_EQ(nullptr, zoff_base_map_huge_pages_off(root.path()));
    root.put(file, "[always] madvise never");
    EXPECT_EQ(nullptr, zoff_base_map_huge_pages_off(root.path()));
    root.put(file, "always madvise [never]");
    EXPECT_STREQ(("/" + file).c_str(), zoff_base_map_huge_pages_off(root.path()));
}
