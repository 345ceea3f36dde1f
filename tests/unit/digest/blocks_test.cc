/* SPDX-License-Identifier: Apache-2.0 */
// blocks_test.cc: the checksum of an array does not depend on the order of hashing its blocks, on the number of threads, or on
// other arrays of its chunk. It changes with any byte.
#include "zoff_test.h"

#include <array>
#include <random>
#include <vector>

extern "C" {
#include "digest.h"
}

namespace
{
class Digest : public testing::TestWithParam<size_t> // bytes
{
  protected:
    Digest() : data(GetParam()), hashes(zoff_digest_blocks_room(GetParam())), done(new bool[hashes.size()]())
    {
        std::mt19937 random(1);
        for (auto &byte : data)
            byte = (char)random();
        digest = {hashes.data(), done.get(), hashes.size(), {0}, {0}};
    }
    // The ends of the arrays: one array, and three of which some are empty.
    std::vector<std::array<size_t, 3>> cuts() const
    {
        const size_t all = GetParam(), third = all / 3 / 4096 * 4096, half = all / 2 / 4096 * 4096;
        return {{all, all, all}, {0, half, all}, {third, half, all}, {third, third, all}};
    }
    void begin(const std::array<size_t, 3> &ends) { zoff_digest_blocks_begin(&digest, ends.data()); }
    std::array<uint64_t, 3> end(unsigned threads, unsigned arrays = 7)
    {
        std::array<uint64_t, 3> sums = {1, 2, 3};
        zoff_digest_blocks_end(&digest, threads, data.data(), arrays, sums.data());
        return sums;
    }
    std::array<uint64_t, 3> whole(const std::array<size_t, 3> &ends, unsigned threads)
    {
        begin(ends);
        return end(threads);
    }
    std::vector<char> data;
    std::vector<uint64_t> hashes;
    std::unique_ptr<bool[]> done;
    zoff_digest digest;
};

const size_t BLOCK = ZOFF_DIGEST_BLOCK;
INSTANTIATE_TEST_SUITE_P(Bytes, Digest,
                         testing::Values(1, 4096, BLOCK - 4096, BLOCK, BLOCK + 4096, 7 * BLOCK, 8 * BLOCK, 40 * BLOCK + 8192),
                         [](const auto &p) { return std::to_string(p.param); });

TEST_P(Digest, OrderAndThreadsDoNotMatter)
{
    for (const auto &ends : cuts()) {
        const auto want = whole(ends, 1);
        for (unsigned threads : {1, 2, 3}) {
            EXPECT_EQ(want, whole(ends, threads));
            std::mt19937 random(threads);
            for (int trial = 0; trial < 30; trial++) {
                begin(ends);
                for (int i = 0; i < trial; i++) {
                    const size_t from = random() % (data.size() + 1), to = from + random() % (data.size() - from + 1);
                    zoff_digest_blocks_add(&digest, threads, data.data(), from, to);
                }
                EXPECT_EQ(want, end(threads));
            }
        }
    }
}

// An array has the same checksum alone, beside any other arrays, and when others are computed in the same call.
TEST_P(Digest, AnArrayIsKnownAlone)
{
    for (const auto &ends : cuts()) {
        const auto want = whole(ends, 2);
        for (unsigned array = 0; array < 3; array++) {
            const size_t from = array ? ends[array - 1] : 0, bytes = ends[array] - from;
            std::vector<char> all = data;
            data.assign(all.begin() + (ptrdiff_t)from, all.begin() + (ptrdiff_t)(from + bytes));
            begin({bytes, bytes, bytes});
            EXPECT_EQ(want[array], end(1, 1)[0]) << array;
            data = std::move(all);
            begin(ends);
            const auto one = end(3, 1u << array);
            for (unsigned other = 0; other < 3; other++)
                EXPECT_EQ(other == array ? want[other] : other + 1, one[other]);
        }
    }
}

// Only whole blocks of a range are hashed: bytes at its edges may still change.
TEST_P(Digest, EdgesOfARangeMayStillChange)
{
    std::mt19937 random(9);
    for (int trial = 0; trial < 20; trial++) {
        const auto ends = cuts()[(size_t)trial % 4];
        const size_t from = random() % (data.size() + 1), to = from + random() % (data.size() - from + 1);
        begin(ends);
        zoff_digest_blocks_add(&digest, 2, data.data(), from, to);
        for (size_t i = 0; i < data.size(); i++) {
            if (i < from || i >= to)
                data[i] = (char)(data[i] + 1);
        }
        const auto have = end(2);
        EXPECT_EQ(whole(ends, 1), have);
    }
}

// A byte counts in its own array, and in no other.
TEST_P(Digest, AnyByteCounts)
{
    for (const auto &ends : cuts()) {
        const auto want = whole(ends, 2);
        for (size_t at : {(size_t)0, data.size() / 2, data.size() - 1}) {
            data[at] = (char)(data[at] ^ 1);
            const auto have = whole(ends, 2);
            for (unsigned array = 0; array < 3; array++) {
                const bool has = at < ends[array] && at >= (array ? ends[array - 1] : 0);
                EXPECT_EQ(!has, want[array] == have[array]) << "byte " << at << " of array " << array;
            }
            data[at] = (char)(data[at] ^ 1);
        }
        EXPECT_EQ(want, whole(ends, 2));
    }
}

// The definition: one array of a chunk, and a run of bytes.
TEST_P(Digest, AWholeRunHasTheChecksumOfAnArray)
{
    const size_t all = data.size();
    const auto want = whole({all, all, all}, 1)[0];
    EXPECT_EQ(want, zoff_digest_blocks_whole(data.data(), all, 1));
    EXPECT_EQ(want, zoff_digest_blocks_whole(data.data(), all, 2));
}

// More blocks than one batch has.
TEST(DigestOfManyBlocks, IsThatOfAnArray)
{
    const size_t bytes = (size_t)1300 * ZOFF_DIGEST_BLOCK + 77;
    std::vector<char> data(bytes);
    for (size_t i = 0; i < bytes; i += 1001)
        data[i] = (char)(i >> 10);
    std::vector<uint64_t> hashes(zoff_digest_blocks_room(bytes));
    const std::unique_ptr<bool[]> done(new bool[hashes.size()]());
    zoff_digest digest = {hashes.data(), done.get(), hashes.size(), {0}, {0}};
    const size_t ends[] = {bytes, bytes, bytes};
    uint64_t sums[3] = {0};
    zoff_digest_blocks_begin(&digest, ends);
    zoff_digest_blocks_end(&digest, 2, data.data(), 1, sums);
    EXPECT_EQ(sums[0], zoff_digest_blocks_whole(data.data(), bytes, 1));
    EXPECT_EQ(sums[0], zoff_digest_blocks_whole(data.data(), bytes, 2));
}
} // namespace
