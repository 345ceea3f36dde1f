// swap_source_test.cc: where the content of an array is, for a checkpoint: in DRAM, or at which place of which file.
#include "ring_store.h"

#include <fcntl.h>

extern "C" {
#include "aio.h"
#include "digest.h"
}

using namespace zoff_test;

namespace
{
class SwapSource : public Ring
{
  protected:
    zoff_store_source source_of(size_t chunk, unsigned array)
    {
        zoff_store_source source = {};
        EXPECT_ZOFF_OK(zoff_offload_store_source(store, chunk, array, &source));
        EXPECT_EQ(chunks[chunk].ends[array] - begin_in(chunk, array), source.bytes);
        EXPECT_EQ(begin_in(chunk, array), source.begin);
        return source;
    }
    size_t begin_in(size_t chunk, unsigned array) const { return array ? chunks[chunk].ends[array - 1] : 0; }
    // The bytes of an array as a checkpoint reads them. -1: they differ.
    int value_of(const zoff_store_source &source)
    {
        std::string bytes(source.bytes, 0);
        if (source.memory) {
            bytes.assign(source.memory, source.bytes);
        } else {
            const std::string path = "/proc/self/fd/" + std::to_string(source.fd);
            const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
            EXPECT_EQ((ssize_t)source.written, pread(fd, bytes.data(), source.written, (off_t)source.offset));
            ::close(fd);
        }
        if (source.has_checksum) {
            EXPECT_EQ(source.checksum, zoff_digest_blocks_whole(bytes.data(), bytes.size(), 1));
        }
        return bytes.find_first_not_of(bytes[0]) == bytes.npos ? bytes[0] : -1;
    }
    std::vector<int> values_at(size_t chunk)
    {
        std::vector<int> all;
        for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++)
            all.push_back(value_of(source_of(chunk, array)));
        return all;
    }
    using values = std::vector<int>;
};
} // namespace

TEST_F(SwapSource, StatesInDramAreThere)
{
    opts.tier = ZOFF_TIER_HOST;
    open();
    void *base = nullptr;
    ASSERT_ZOFF_OK(borrow_arrays(store, 2, ALL, &base));
    withdraw(store, 2);
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
        const zoff_store_source source = source_of(2, array);
        EXPECT_EQ((char *)base + begin_in(2, array), source.memory);
        EXPECT_FALSE(source.stays);
        EXPECT_FALSE(source.has_checksum);
    }
    EXPECT_EQ((values{3, 0, 0}), values_at(2));
}

TEST_F(SwapSource, StatesOfTheRingAreInTheFile)
{
    open();
    for (size_t chunk = 0; chunk < chunks.size(); chunk++)
        flush(chunk, (char)(chunk + 40));
    drain();
    for (size_t chunk = 0; chunk < chunks.size(); chunk++) {
        EXPECT_EQ(values(3, (int)chunk + 40), values_at(chunk));
        for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
            const zoff_store_source source = source_of(chunk, array);
            EXPECT_EQ(nullptr, source.memory);
            EXPECT_EQ(zoff_aio_queue_fd(s()->files[place(chunk).file].aio), source.fd);
            EXPECT_EQ(0u, source.offset % 4096);
            EXPECT_EQ(source.bytes, source.written);
            EXPECT_TRUE(source.has_checksum);
            EXPECT_FALSE(source.stays) << "the next flush overwrites it";
        }
    }
}

TEST_F(SwapSource, ChunksOfSeveralPathsAreInTheirFiles)
{
    opts.path_count = 2;
    open();
    std::set<int> files;
    for (size_t chunk = 0; chunk < chunks.size(); chunk++) {
        flush(chunk, (char)(chunk + 40));
        drain();
        files.insert(source_of(chunk, 0).fd);
        EXPECT_EQ(values(3, (int)chunk + 40), values_at(chunk));
    }
    EXPECT_EQ(2u, files.size());
}

// The chunk of the fixture has 4 KiB of masters. Nothing was ever written of its moments.
TEST_F(SwapSource, FreshArraysHaveOnlyTheirFirstBytes)
{
    open();
    EXPECT_EQ(4096u, source_of(3, 0).written);
    EXPECT_EQ(0u, source_of(3, 1).written);
    EXPECT_EQ(0u, source_of(3, 2).written);
    EXPECT_EQ((values{4, 0, 0}), values_at(3));
    flush(3, 9, 2);
    drain();
    EXPECT_EQ(8192u, source_of(3, 1).written);
    EXPECT_EQ((values{4, 9, 0}), values_at(3));
}

TEST_F(SwapSource, ResidentsAreInDram)
{
    opts.residents = 7;
    open();
    flush(4, 50);
    drain();
    const zoff_store_source source = source_of(4, 1);
    ASSERT_NE(nullptr, source.memory);
    EXPECT_EQ(source.bytes, source.written);
    EXPECT_FALSE(source.stays);
    EXPECT_EQ((values{50, 50, 50}), values_at(4));
}

// Their memory changes with the next step, and the place in the file does not.
TEST_F(SwapSource, ResidentsThatPersistAreInTheFile)
{
    opts.residents = 7;
    ASSERT_NO_FATAL_FAILURE(open_persistent());
    flush(4, 50);
    drain();
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store, 1));
    const zoff_store_source source = source_of(4, 2);
    EXPECT_EQ(nullptr, source.memory);
    EXPECT_TRUE(source.stays);
    EXPECT_EQ(50, value_of(source));
}

TEST_F(SwapSource, APersistentPlaceStaysForOneFlush)
{
    ASSERT_NO_FATAL_FAILURE(open_persistent());
    flush(0, 60);
    drain();
    EXPECT_FALSE(source_of(0, 1).stays) << "not recorded yet: the same place is written again";
    ASSERT_ZOFF_OK(zoff_offload_store_commit(store, 1));
    const zoff_store_source before = source_of(0, 1);
    EXPECT_TRUE(before.stays);
    flush(0, 61);
    drain();
    EXPECT_EQ(60, value_of(before)) << "the flush has written the other place";
    const zoff_store_source after = source_of(0, 1);
    EXPECT_NE(before.offset, after.offset);
    EXPECT_EQ(61, value_of(after));
}

TEST_F(SwapSource, BytesThatTheFileLacksAreRefused)
{
    open();
    flush(0, 70);
    flush(1, 70);
    drain();
    flush(1, 71);
    zoff_store_source source = {};
    {
        aio_fault fault;
        fail_all(fault, true);
        EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_drain(store));
    }
    ASSERT_EQ(ZOFF_SLOT_DIRTY, state_of(1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a slot has newer states than '" + folders[0].path,
                      zoff_offload_store_source(store, 1, 0, &source));
    EXPECT_NE(nullptr, strstr(zoff_last_error(), "zoff_state_flush()"));
    EXPECT_EQ(0u, source.bytes) << "nothing is written on an error";
    EXPECT_EQ((values{70, 70, 70}), values_at(0)) << "another chunk";
    ASSERT_ZOFF_OK(zoff_offload_store_retry(store));
    drain();
    EXPECT_EQ((values{71, 71, 71}), values_at(1));
}

TEST_F(SwapSource, BytesOnTheirWayAreRefused)
{
    open();
    flush(1, 71);
    zoff_store_source source = {};
    ASSERT_EQ(ZOFF_SLOT_WRITING, state_of(1));
    EXPECT_EQ(ZOFF_ERR_STATE, zoff_offload_store_source(store, 1, 0, &source)) << "drain was not called";
    drain();
    EXPECT_ZOFF_OK(zoff_offload_store_source(store, 1, 0, &source));
}
