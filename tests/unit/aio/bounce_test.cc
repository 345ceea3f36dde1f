/* SPDX-License-Identifier: Apache-2.0 */
// bounce_test.cc: unaligned requests under O_DIRECT: edges, the end of the file, and failures in between.
#include "aio_fault.h"
#include "aio_place.h"

using namespace zoff_test;

namespace
{
class AioBounce : public testing::TestWithParam<std::string>
{
  protected:
    void SetUp() override
    {
        const std::string &backend = GetParam();
        zoff_aio_opts opts = aio_opts(backend.c_str(), ZOFF_DIRECT_REQUIRE);
        zoff_aio *raw = nullptr;
        zoff_status status = zoff_aio_open(path.c_str(), &opts, &raw);
        if (status == ZOFF_ERR_UNSUPPORTED)
            GTEST_SKIP() << zoff_last_error();
        ASSERT_ZOFF_OK(status);
        q.reset(raw);
        unit = aio_info(q.get()).alignment;
    }
    // Put `bytes` bytes of `letter` at `offset`, in the file and in the model.
    zoff_status put(uint64_t offset, size_t bytes, char letter)
    {
        std::string text(bytes, letter);
        zoff_status status = aio_write(q.get(), offset, text.data(), bytes);
        if (status == ZOFF_OK) {
            model.resize(std::max<size_t>(model.size(), offset + bytes));
            model.replace(offset, bytes, text);
        }
        return status;
    }
    scratch_folder folder;
    std::string path = folder.file("file"), model;
    size_t unit = 0;
    aio q;
};

INSTANTIATE_TEST_SUITE_P(Each, AioBounce, testing::Values<std::string>("io_uring", "threads", "posix"),
                         [](const auto &each) { return each.param; });

TEST_P(AioBounce, TheEndIsWhereTheLastByteIs)
{
    for (uint64_t offset : {0, 1, 100, 511, 512, 600, 4095, 4097, 9000, 50000}) {
        for (size_t bytes : {1, 3, 511, 513, 4096, 4097, 10001}) {
            ASSERT_ZOFF_OK(put(offset, bytes, static_cast<char>('a' + (offset + bytes) % 26)));
            ASSERT_EQ(file_bytes(path), static_cast<off_t>(model.size())) << bytes << " at " << offset;
        }
    }
    EXPECT_TRUE(file_content(path) == model);
}

TEST_P(AioBounce, NeighboursInABlockSurviveEachOther)
{
    aio_buffer out(unit * 3, 1);
    uint64_t tickets[64];
    size_t step = unit * 3 / 64;
    for (size_t i = 0; i < 64; i++) { // started in reverse order, all in flight together
        size_t at = (63 - i) * step;
        ASSERT_ZOFF_OK(zoff_aio_write(q.get(), at, step, out.data + at, &tickets[i]));
    }
    for (uint64_t ticket : tickets)
        ASSERT_ZOFF_OK(zoff_aio_wait(q.get(), ticket));
    EXPECT_EQ(file_content(path), std::string(reinterpret_cast<char *>(out.data), 64 * step));
}

TEST_P(AioBounce, OnlyTheEdgesAreCopiedWhereTheMiddleIsAligned)
{
    aio_buffer out(unit * 5, 1), in(unit * 5);
    ASSERT_ZOFF_OK(aio_write(q.get(), unit - 1, out.data + unit - 1, 3 * unit + 2));
    EXPECT_EQ(aio_info(q.get()).bounce_bytes, 2u);
    ASSERT_ZOFF_OK(aio_read(q.get(), unit - 1, in.data + unit - 1, 3 * unit + 2));
    EXPECT_EQ(aio_info(q.get()).bounce_bytes, 4u);
    EXPECT_EQ(memcmp(in.data + unit - 1, out.data + unit - 1, 3 * unit + 2), 0);
    ASSERT_ZOFF_OK(aio_read(q.get(), unit, in.data + 1, 2 * unit));
    EXPECT_EQ(aio_info(q.get()).bounce_bytes, 4 + 2 * unit);
    EXPECT_EQ(memcmp(in.data + 1, out.data + unit, 2 * unit), 0);
}

TEST_P(AioBounce, BytesAppendedByAnotherProgramStay)
{
    ASSERT_ZOFF_OK(put(0, 5000, 'a'));
    int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    std::string appended(3000, 'z');
    ASSERT_EQ(write(fd, appended.data(), appended.size()), 3000);
    close(fd);
    model += appended;
    ASSERT_ZOFF_OK(put(4900, 10, 'b'));
    ASSERT_ZOFF_OK(put(7990, 5, 'c'));
    EXPECT_TRUE(file_content(path) == model);
}

TEST_P(AioBounce, ReservedRoomIsNotCutOff)
{
    ASSERT_ZOFF_OK(zoff_aio_reserve(q.get(), 100001));
    model.resize(100001);
    ASSERT_ZOFF_OK(put(99990, 5, 'a'));
    ASSERT_ZOFF_OK(put(10, 5, 'b'));
    EXPECT_TRUE(file_content(path) == model);
}

// A write inside one block is a read and a write. A failure of either is the result, and the block stays unchanged until the
// write.
TEST_P(AioBounce, FaultsOfEachHalfOfAnEdge)
{
    ASSERT_ZOFF_OK(put(0, 3 * unit, 'a'));
    for (int failing : {1, 2}) {
        aio_fault fault;
        fault.result = [&](int nth, int res, bool writes, uint64_t, size_t) {
            EXPECT_EQ(writes, nth == 2);
            return nth == failing ? -EIO : res;
        };
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot write 10 bytes at offset 5 of", put(5, 10, 'x'));
        EXPECT_EQ(fault.results, failing);
        if (failing == 1) {
            EXPECT_TRUE(file_content(path) == model);
        }
    }
    for (int failing : {1, 2}) {
        for (int moved : {1, 100, -EAGAIN, -EINTR}) {
            aio_fault fault;
            fault.result = [&](int nth, int res, bool, uint64_t, size_t) { return nth == failing ? moved : res; };
            ASSERT_ZOFF_OK(put(5, 10, static_cast<char>('b' + failing)));
            EXPECT_EQ(fault.results, 3);
            EXPECT_TRUE(file_content(path) == model);
        }
    }
}

// The fault comes in every transfer of a request with edges, a staged middle and an end beyond the file's.
TEST_P(AioBounce, FaultsOfEachTransfer)
{
    const size_t bytes = (3 << 20) + 77;
    for (int kind = 0; kind < 3; kind++) {
        bool untouched = false;
        for (int failing = 1; !untouched; failing++) {
            ASSERT_LT(failing, 50);
            ASSERT_EQ(truncate(path.c_str(), 0), 0);
            aio_buffer out(bytes, static_cast<unsigned>(failing), 3), in(bytes, 0, 5);
            aio_fault fault;
            fault.result = [&](int nth, int res, bool, uint64_t, size_t) {
                if (nth != failing || res < 2)
                    return res;
                return kind == 0 ? res / 2 : kind == 1 ? -EAGAIN : -EIO;
            };
            zoff_status written = aio_write(q.get(), 101, out.data, bytes);
            zoff_status status = written == ZOFF_OK ? aio_read(q.get(), 101, in.data, bytes) : written;
            untouched = fault.results < failing;
            ASSERT_TRUE(status == ZOFF_OK || (kind == 2 && status == ZOFF_ERR_IO)) << failing << zoff_last_error();
            if (written == ZOFF_OK) {
                ASSERT_EQ(file_bytes(path), static_cast<off_t>(101 + bytes));
            }
            if (status == ZOFF_OK) {
                ASSERT_TRUE(in == out) << failing;
            }
        }
        EXPECT_ZOFF_OK(put(1, 1, 'a')) << "staging memory is given back";
    }
}

TEST_P(AioBounce, StagingIsGivenBack)
{
    aio_buffer out(100, 1), in(100, 0, 1);
    for (int i = 0; i < 500; i++) {
        aio_fault fault;
        fault.result = [&](int, int res, bool, uint64_t, size_t) { return i % 3 == 0 ? -EIO : res; };
        EXPECT_EQ(aio_write(q.get(), 50 * i, out.data, out.bytes), i % 3 ? ZOFF_OK : ZOFF_ERR_IO);
    }
    ASSERT_ZOFF_OK(aio_read(q.get(), 499 * 50, in.data, in.bytes));
    EXPECT_TRUE(in == out);
}
} // namespace
