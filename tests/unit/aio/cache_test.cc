/* SPDX-License-Identifier: Apache-2.0 */
// cache_test.cc: how much of a file stays in the page cache if O_DIRECT is refused, counted as fincore counts it.
#include <algorithm>

#include "aio_fault.h"
#include "aio_place.h"

using namespace zoff_test;

namespace
{
const size_t MiB = 1 << 20;

double cached_mib(const std::string &path)
{
    int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    size_t bytes = static_cast<size_t>(file_bytes(path)), pages = (bytes + 4095) / 4096;
    void *base = mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
    std::vector<unsigned char> present(pages);
    EXPECT_TRUE(base != MAP_FAILED && mincore(base, bytes, present.data()) == 0);
    munmap(base, bytes);
    close(fd);
    return static_cast<double>(std::count_if(present.begin(), present.end(), [](unsigned char c) { return c & 1; })) / 256;
}

class AioCache : public testing::TestWithParam<std::string>
{
  protected:
    // Requests over the whole file, two of them in flight. Returns the most that the cache held meanwhile.
    double pass(zoff_aio *q, bool writes, size_t file, size_t bytes)
    {
        double most = 0;
        aio_buffer memory(2 * bytes, 1);
        uint64_t tickets[2] = {};
        for (size_t i = 0; i <= file / bytes; i++) {
            unsigned char *place = memory.data + i % 2 * bytes;
            if (i < file / bytes) {
                EXPECT_ZOFF_OK(writes ? zoff_aio_write(q, i * bytes, bytes, place, &tickets[i % 2])
                                      : zoff_aio_read(q, i * bytes, bytes, place, &tickets[i % 2]));
            }
            if (i > 0) {
                EXPECT_ZOFF_OK(zoff_aio_wait(q, tickets[(i - 1) % 2]));
            }
            if (i % 8 == 7)
                most = std::max(most, cached_mib(path));
        }
        return most;
    }
    scratch_folder folder;
    std::string path = folder.file("file");
};

INSTANTIATE_TEST_SUITE_P(Each, AioCache, testing::Values<std::string>("io_uring", "threads", "posix"),
                         [](const auto &each) { return each.param; });

// Move 1 GiB each way. The limit allows 32 MiB behind the transfers, and 2 requests of 16 MiB in flight. The rest is for
// reading ahead: 8 MiB on some machines, in one folio with the last transfer.
TEST_P(AioCache, StaysSmallWhereODirectIsRefused)
{
    const size_t file = 1024 * MiB, bytes = 16 * MiB;
    aio_fault fault;
    fault.refuse_o_direct = true;
    log_catcher log;
    zoff_aio_opts opts = aio_opts(GetParam().c_str());
    zoff_aio *raw = nullptr;
    zoff_status status = zoff_aio_open(path.c_str(), &opts, &raw);
    aio q(raw);
    if (status == ZOFF_ERR_UNSUPPORTED)
        GTEST_SKIP() << zoff_last_error();
    ASSERT_ZOFF_OK(status);
    log.expect("refuses O_DIRECT: going through the page cache, of which 32 MiB are used");
    if (zoff_aio_reserve(q.get(), file) == ZOFF_ERR_NO_SPACE)
        GTEST_SKIP() << zoff_last_error();
    EXPECT_LT(pass(q.get(), true, file, bytes), 100.0) << "while writing";
    EXPECT_LT(cached_mib(path), 50.0) << "after writing";
    EXPECT_EQ(file, fault.begun_bytes) << "the disk has nothing to do until a write is waited for";
    EXPECT_LT(pass(q.get(), false, file, bytes), 100.0) << "while reading";
    EXPECT_LT(cached_mib(path), 50.0) << "after reading";
    q.reset();
    EXPECT_LT(cached_mib(path), 10.0) << "after closing";
}

// A write is done for the caller when it is in the page cache. A later failure is reported as soon as it is known, and is not
// forgotten: the bytes are lost, and a read would return older ones.
TEST_P(AioCache, LateWriteErrorsAreReported)
{
    for (int error : {EIO, ENOSPC}) {
        aio_fault fault;
        fault.refuse_o_direct = true;
        log_catcher log;
        log.expect("refuses O_DIRECT");
        zoff_aio_opts opts = aio_opts(GetParam().c_str());
        zoff_aio *raw = nullptr;
        zoff_status status = zoff_aio_open(path.c_str(), &opts, &raw);
        aio q(raw);
        if (status == ZOFF_ERR_UNSUPPORTED)
            GTEST_SKIP() << zoff_last_error();
        ASSERT_ZOFF_OK(status);
        aio_buffer memory(16 * MiB, 1);
        fault.lose_writes = error;
        ASSERT_ZOFF_OK(aio_write(q.get(), 0, memory.data, memory.bytes));
        ASSERT_ZOFF_OK(aio_write(q.get(), 16 * MiB, memory.data, memory.bytes));
        const zoff_status expected = error == EIO ? ZOFF_ERR_IO : ZOFF_ERR_NO_SPACE;
        EXPECT_ZOFF_FAILS(expected, "the disk has lost", aio_write(q.get(), 32 * MiB, memory.data, memory.bytes));
        fault.lose_writes = 0;
        EXPECT_ZOFF_FAILS(expected, "that were written earlier", aio_read(q.get(), 0, memory.data, 4096));
        q.reset();
        EXPECT_EQ(log.warnings.size(), 1u) << "it has been told";
        fault.lose_writes = error;
        ASSERT_ZOFF_OK(zoff_aio_open(path.c_str(), &opts, &raw));
        q.reset(raw);
        ASSERT_ZOFF_OK(aio_write(q.get(), 0, memory.data, memory.bytes));
        log.expect("that were written before the queue was closed");
        q.reset();
    }
}

// If the configuration asks for the page cache, it is used and left to the kernel.
TEST_P(AioCache, IsLeftAloneWhereItIsAskedFor)
{
    zoff_aio_opts opts = aio_opts(GetParam().c_str(), ZOFF_DIRECT_OFF);
    zoff_aio *raw = nullptr;
    zoff_status status = zoff_aio_open(path.c_str(), &opts, &raw);
    aio q(raw);
    if (status == ZOFF_ERR_UNSUPPORTED)
        GTEST_SKIP() << zoff_last_error();
    ASSERT_ZOFF_OK(status);
    pass(q.get(), true, 64 * MiB, 4 * MiB);
    q.reset();
    EXPECT_GT(cached_mib(path), 60.0);
}
} // namespace
