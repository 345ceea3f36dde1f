// spares_test.cc: memory for second contents: a stack that is allocated once.
#include "aio_fault.h"
#include "ring_store.h"

#include <set>

using namespace zoff_test;

TEST(Spares, EachIsTakenOnce)
{
    zoff_spares spares = {};
    ASSERT_ZOFF_OK(zoff_offload_spares_open(&spares, 3, 8192, ZOFF_MAP_FIRST_TOUCH, 2));
    std::set<char *> taken;
    for (int i = 0; i < 3; i++) {
        char *memory = zoff_offload_spares_take(&spares);
        ASSERT_NE(nullptr, memory);
        EXPECT_EQ(0u, (uintptr_t)memory % 4096) << "for O_DIRECT";
        memset(memory, i, 8192);
        taken.insert(memory);
    }
    EXPECT_EQ(nullptr, zoff_offload_spares_take(&spares)) << "all are in use";
    EXPECT_EQ(3u, taken.size());
    EXPECT_EQ(2 * 8192, *taken.rbegin() - *taken.begin());
    zoff_offload_spares_give(&spares, *taken.begin());
    char other[8192];
    zoff_offload_spares_give(&spares, other);
    EXPECT_EQ(other, zoff_offload_spares_take(&spares)) << "the one that was returned last";
    EXPECT_EQ(*taken.begin(), zoff_offload_spares_take(&spares));
    EXPECT_EQ(nullptr, zoff_offload_spares_take(&spares));
    zoff_offload_spares_close(&spares, true);
    zoff_offload_spares_close(&spares, true);
}

TEST(Spares, ThereMayBeNone)
{
    zoff_spares spares = {};
    aio_fault count;
    ASSERT_ZOFF_OK(zoff_offload_spares_open(&spares, 0, 8192, ZOFF_MAP_INTERLEAVED, 1));
    ASSERT_ZOFF_OK(zoff_offload_spares_open(&spares, 5, 0, ZOFF_MAP_INTERLEAVED, 1));
    EXPECT_EQ(0, count.allocations);
    EXPECT_EQ(nullptr, zoff_offload_spares_take(&spares));
    zoff_offload_spares_close(&spares, true);
}

TEST(Spares, WithoutMemoryNothingIsLeft)
{
    zoff_spares spares = {};
    EXPECT_EQ(2, fail_each_allocation([&] {
                  const zoff_status status = zoff_offload_spares_open(&spares, 3, 4096, ZOFF_MAP_FIRST_TOUCH, 2);
                  zoff_offload_spares_close(&spares, true);
                  return status;
              }));
    EXPECT_EQ(nullptr, spares.free);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "larger than the address space",
                      zoff_offload_spares_open(&spares, SIZE_MAX / 4096, 8192, ZOFF_MAP_FIRST_TOUCH, 2));
}

// A drive may still access it.
TEST(Spares, MemoryInUseStays)
{
    zoff_spares spares = {};
    ASSERT_ZOFF_OK(zoff_offload_spares_open(&spares, 1, 4096, ZOFF_MAP_FIRST_TOUCH, 2));
    zoff_map map = spares.map;
    char *memory = zoff_offload_spares_take(&spares);
    zoff_offload_spares_close(&spares, false);
    memset(memory, 1, 4096);
    zoff_base_map_free(&map);
}
