// swap_place_test.cc: the places of a chunk's arrays, by arithmetic alone.
#include "zoff_test.h"

extern "C" {
#include "swap_priv.h"
}

namespace
{
// Chunk 0 has three arrays, chunk 1 no masters and no second moments.
struct layout {
    layout()
    {
        s.chunks = chunks;
        s.places = places;
        s.chunk_count = 2;
    }
    zoff_store_chunk chunks[2] = {{20480, 4096, {4096, 12288, 20480}}, {8192, 0, {0, 8192, 8192}}};
    zoff_swap_place places[2] = {};
    zoff_swap_store s = {};
};
} // namespace

TEST(SwapPlace, ArraysBeginWhereTheOneBeforeThemEnds)
{
    layout l;
    EXPECT_EQ(0u, zoff_offload_swap_place_begin(&l.chunks[0], 0));
    EXPECT_EQ(4096u, zoff_offload_swap_place_begin(&l.chunks[0], 1));
    EXPECT_EQ(12288u, zoff_offload_swap_place_begin(&l.chunks[0], 2));
    EXPECT_EQ(7u, zoff_offload_swap_place_arrays(&l.s, 0));
    EXPECT_EQ(2u, zoff_offload_swap_place_arrays(&l.s, 1)) << "those without bytes do not count";
}

TEST(SwapPlace, ASecondPlaceLiesAWholeChunkBehindTheFirst)
{
    layout l;
    l.places[0].offset = 16384;
    EXPECT_EQ(16384u + 12288, zoff_offload_swap_place_offset(&l.s, 0, 2));
    l.places[0].now.arrays[2].slot = 1;
    EXPECT_EQ(16384u + 20480 + 12288, zoff_offload_swap_place_offset(&l.s, 0, 2));
    EXPECT_EQ(16384u, zoff_offload_swap_place_offset(&l.s, 0, 0)) << "each array has a place of its own";
}

TEST(SwapPlace, FreshArraysAreWrittenInPart)
{
    layout l;
    for (zoff_swap_array &array : l.places[0].now.arrays)
        array.fresh = true;
    const auto written = [&](size_t first_bytes) {
        l.places[0].first_bytes = first_bytes;
        return std::vector<size_t>{zoff_offload_swap_place_written(&l.s, 0, 0), zoff_offload_swap_place_written(&l.s, 0, 1),
                                   zoff_offload_swap_place_written(&l.s, 0, 2)};
    };
    EXPECT_EQ((std::vector<size_t>{0, 0, 0}), written(0));
    EXPECT_EQ((std::vector<size_t>{4096, 0, 0}), written(4096));
    EXPECT_EQ((std::vector<size_t>{4096, 1024, 0}), written(5120)) << "the end may lie in the middle of an array";
    EXPECT_EQ((std::vector<size_t>{4096, 8192, 8192}), written(20480));
    l.places[0].now.arrays[2].fresh = false;
    EXPECT_EQ((std::vector<size_t>{4096, 0, 8192}), written(4096)) << "one that was flushed is whole";
}
