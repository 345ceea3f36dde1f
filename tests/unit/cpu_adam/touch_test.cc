/* SPDX-License-Identifier: Apache-2.0 */
// touch_test.cc: the first values of states: masters equal the weights, m and v are zero, and every page exists.
#include "zoff_test.h"

#include <string.h>
#include <sys/mman.h>

#include <random>

extern "C" {
#include "cpu_adam.h"
#include "map.h"
}

namespace
{
const size_t PAGE = 4096;

// A mapping without huge pages, so that each page can be checked.
class mapping
{
  public:
    explicit mapping(size_t bytes)
    {
        EXPECT_ZOFF_OK(zoff_base_map_alloc(bytes, "a test", ZOFF_MAP_FIRST_TOUCH, &map));
        EXPECT_EQ(0, madvise(map.base, bytes, MADV_NOHUGEPAGE));
    }
    ~mapping() { zoff_base_map_free(&map); }
    float *at(size_t byte) { return reinterpret_cast<float *>(static_cast<char *>(map.base) + byte); }
    bool has(const void *address)
    {
        unsigned char there = 0;
        const auto page = reinterpret_cast<uintptr_t>(address) / PAGE * PAGE;
        EXPECT_EQ(0, mincore(reinterpret_cast<void *>(page), PAGE, &there));
        return there & 1;
    }

  private:
    zoff_map map = {};
};
} // namespace

// Moments in bf16 or 8 bits have fewer bytes, and the pages behind them are nobody's.
TEST(Touch, PagesOfShortMomentsAreThere)
{
    const size_t count = 100001, v_byte = 1 << 20;
    for (unsigned turn = 0; turn < 6; turn++) {
        const unsigned threads = turn % 2 ? 3 : 1;
        const zoff_moments moments[] = {ZOFF_MOMENTS_BF16, ZOFF_MOMENTS_M8V16, ZOFF_MOMENTS_Q8};
        mapping map(2 << 20);
        std::vector<float> own(count);
        zoff_adam_piece piece = {};
        piece.count = count;
        piece.master = own.data();
        piece.m = map.at(0);
        piece.v = map.at(v_byte);
        piece.moments = (uint8_t)moments[turn / 2];
        zoff_adam_touch_run(threads, &piece, 1);
        for (zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
            const size_t at = which == ZOFF_MOMENT_M ? 0 : v_byte,
                         size = zoff_adam_moments_size(moments[turn / 2], which, count);
            for (size_t byte = 0; byte < size; byte += PAGE)
                ASSERT_TRUE(map.has(map.at(at + byte))) << byte;
            EXPECT_TRUE(map.has(map.at(at + size - 4)));
            EXPECT_FALSE(map.has(map.at(at + size + PAGE))) << "nobody's";
        }
    }
}

TEST(Touch, StatesAreFilledAndEveryPageIsThere)
{
    // Two pieces that share pages, one without a master, with a gap of pages that belong to neither.
    const size_t first = 100001, second = 70003, m_byte = 1 << 20, v_byte = 2 << 20;
    std::vector<uint16_t> bf16(first);
    std::mt19937 random(1);
    for (auto &x : bf16)
        x = static_cast<uint16_t>(random() % 0x7f80);
    std::vector<float> own(second, 1.5f), want(first);
    for (size_t i = 0; i < first; i++) {
        const uint32_t bits = static_cast<uint32_t>(bf16[i]) << 16;
        memcpy(&want[i], &bits, sizeof bits);
    }
    for (unsigned threads : {1u, 2u, 5u}) {
        mapping map(4 << 20);
        zoff_adam_piece pieces[2] = {};
        pieces[0].count = first;
        pieces[0].master = map.at(0);
        pieces[0].copy_out = bf16.data();
        pieces[0].copy_dtype = ZOFF_BF16;
        pieces[0].m = map.at(m_byte);
        pieces[0].v = map.at(v_byte);
        pieces[0].grad_dtype = ZOFF_BF16;
        pieces[1].count = second;
        pieces[1].master = own.data();
        pieces[1].m = map.at(m_byte) + first + 15;
        pieces[1].v = nullptr; // an optimizer without it
        pieces[1].grad_dtype = ZOFF_F32;
        zoff_adam_touch_run(threads, pieces, 2);

        EXPECT_EQ(0, memcmp(want.data(), map.at(0), first * sizeof(float)));
        EXPECT_EQ(std::vector<float>(second, 1.5f), own) << "weights that are their own masters are the caller's";
        for (size_t i = 0; i < first; i += 500) { // more than once for each page
            ASSERT_TRUE(map.has(map.at(m_byte) + i)) << i;
            ASSERT_TRUE(map.has(map.at(v_byte) + i)) << i;
        }
        for (size_t i = 0; i < second; i += 500)
            ASSERT_TRUE(map.has(static_cast<float *>(pieces[1].m) + i)) << i;
        EXPECT_FALSE(map.has(map.at(v_byte) + first + PAGE)) << "nobody's";
        EXPECT_FALSE(map.has(map.at(m_byte) + first + second + 2 * PAGE)) << "nobody's";
        for (size_t i = 0; i < first + second; i++)
            ASSERT_EQ(0, map.at(m_byte)[i]);
        for (size_t i = 0; i < first; i++)
            ASSERT_EQ(0, map.at(v_byte)[i]);
    }
}
