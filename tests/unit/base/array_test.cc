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
