// digest_test.cc: the checksum of a chunk does not depend on the order in which its blocks are hashed, nor on how many threads
// do it, and is another one for any byte that differs.
#include "zoff_test.h"

#include <random>
#include <vector>

extern "C" {
#include "digest_priv.h"
}

namespace
{
class Digest : public testing::TestWithParam<size_t> // bytes
{
  protected:
    Digest() : data(GetParam()), hashes(blocks() + 1), done(new bool[blocks() + 1]())
    {
        std::mt19937 random(1);
        for (auto &byte : data)
            byte = (char)random();
        digest = {hashes.data(), done.get(), hashes.size()};
    }
    size_t blocks() const { return zoff_offload_digest_blocks(GetParam()); }
    uint64_t whole(unsigned threads)
    {
        zoff_offload_digest_begin(&digest, data.size());
        return zoff_offload_digest_end(&digest, threads, data.data(), data.size());
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
    const uint64_t want = whole(1);
    for (unsigned threads : {1, 2, 3}) {
        EXPECT_EQ(want, whole(threads));
        std::mt19937 random(threads);
        for (int trial = 0; trial < 30; trial++) {
            zoff_offload_digest_begin(&digest, data.size());
            for (int i = 0; i < trial; i++) {
                const size_t from = random() % (data.size() + 1), to = from + random() % (data.size() - from + 1);
                zoff_offload_digest_add(&digest, threads, data.data(), data.size(), from, to);
            }
            EXPECT_EQ(want, zoff_offload_digest_end(&digest, threads, data.data(), data.size()));
        }
    }
}

// Only what a range has as a whole is hashed: what lies at its edges may still change.
TEST_P(Digest, EdgesOfARangeMayStillChange)
{
    std::mt19937 random(9);
    for (int trial = 0; trial < 20; trial++) {
        const size_t from = random() % (data.size() + 1), to = from + random() % (data.size() - from + 1);
        zoff_offload_digest_begin(&digest, data.size());
        zoff_offload_digest_add(&digest, 2, data.data(), data.size(), from, to);
        for (size_t i = 0; i < data.size(); i++) {
            if (i < from || i >= to)
                data[i] = (char)(data[i] + 1);
        }
        const uint64_t have = zoff_offload_digest_end(&digest, 2, data.data(), data.size());
        EXPECT_EQ(whole(1), have);
    }
}

TEST_P(Digest, AnyByteCounts)
{
    const uint64_t want = whole(2);
    for (size_t at : {(size_t)0, data.size() / 2, data.size() - 1}) {
        data[at] = (char)(data[at] ^ 1);
        EXPECT_NE(want, whole(2)) << "byte " << at;
        data[at] = (char)(data[at] ^ 1);
    }
    EXPECT_EQ(want, whole(2));
}
} // namespace
