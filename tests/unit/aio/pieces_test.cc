/* SPDX-License-Identifier: Apache-2.0 */
// pieces_test.cc: every result that the system can return, provoked for each transfer of a request. The test checks the
// request's result, and that the queue and other requests are not affected.
#include <algorithm>

#include "aio_fault.h"
#include "aio_place.h"

using namespace zoff_test;

namespace
{
class AioPieces : public testing::TestWithParam<std::string>
{
  protected:
    static constexpr size_t block = 65536, blocks = 5;
    void SetUp() override
    {
        const std::string &backend = GetParam();
        zoff_aio_opts opts = aio_opts(backend.c_str());
        opts.block_bytes = block;
        opts.depth = 3;
        zoff_aio *raw = nullptr;
        zoff_status status = zoff_aio_open(path.c_str(), &opts, &raw);
        if (status == ZOFF_ERR_UNSUPPORTED)
            GTEST_SKIP() << zoff_last_error();
        ASSERT_ZOFF_OK(status);
        q.reset(raw);
        ASSERT_ZOFF_OK(aio_write(q.get(), 0, content.data, content.bytes));
    }
    // Write new bytes or read these, with `fault` set, and again without it.
    zoff_status transfer(bool writes)
    {
        aio_buffer in(content.bytes);
        if (writes) {
            content.fill(++seed);
            return aio_write(q.get(), 0, content.data, content.bytes);
        }
        zoff_status status = aio_read(q.get(), 0, in.data, in.bytes);
        EXPECT_TRUE(status != ZOFF_OK || in == content);
        return status;
    }
    void expect_healthy()
    {
        ASSERT_ZOFF_OK(transfer(true));
        ASSERT_ZOFF_OK(transfer(false));
        ASSERT_EQ(file_content(path), std::string(reinterpret_cast<char *>(content.data), content.bytes));
    }
    scratch_folder folder;
    std::string path = folder.file("file");
    unsigned seed = 1;
    aio_buffer content{blocks * block, 1};
    aio q;
};

INSTANTIATE_TEST_SUITE_P(Each, AioPieces, testing::Values<std::string>("io_uring", "threads", "posix"),
                         [](const auto &each) { return each.param; });

TEST_P(AioPieces, AnErrorOfAnyPieceIsTheResult)
{
    for (bool writes : {false, true}) {
        for (int failing = 1; failing <= static_cast<int>(blocks); failing++) {
            SCOPED_TRACE(testing::Message() << (writes ? "write " : "read ") << failing);
            aio_fault fault;
            uint64_t where = 0;
            fault.result = [&](int nth, int res, bool, uint64_t offset, size_t) {
                where = nth == failing ? offset : where;
                return nth == failing ? -EIO : res;
            };
            EXPECT_EQ(transfer(writes), ZOFF_ERR_IO);
            std::string message = zoff_last_error();
            for (const std::string &words :
                 {std::string("Input/output error"), path, std::string(writes ? "cannot write 327680" : "cannot read 327680"),
                  "piece of 65536 bytes at offset " + std::to_string(where)})
                EXPECT_NE(message.find(words), message.npos) << message;
            int seen = fault.results;
            fault.result = nullptr;
            EXPECT_ZOFF_OK(zoff_aio_wait_any(q.get()));
            EXPECT_EQ(fault.results, seen) << "a piece was still in flight when the request was done";
            expect_healthy();
        }
    }
}

TEST_P(AioPieces, TheFirstErrorCounts)
{
    aio_fault fault;
    fault.result = [](int nth, int, bool, uint64_t, size_t) { return nth == 1 ? -ENOSPC : -EIO; };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "No space left on device", transfer(true));
    EXPECT_LE(fault.results, 3) << "pieces were begun after the request had failed";
    fault.result = [](int, int, bool, uint64_t, size_t) { return -EDQUOT; };
    EXPECT_EQ(transfer(true), ZOFF_ERR_NO_SPACE);
}

TEST_P(AioPieces, OtherRequestsDoNotSuffer)
{
    aio_fault fault;
    aio_buffer in(3 * 2 * block);
    uint64_t tickets[3];
    fault.result = [](int, int res, bool, uint64_t offset, size_t) { return offset == 3 * block ? -EIO : res; };
    for (size_t i = 0; i < 3; i++)
        ASSERT_ZOFF_OK(zoff_aio_read(q.get(), (i == 2 ? 0 : i) * 2 * block, 2 * block, in.data + i * 2 * block, &tickets[i]));
    EXPECT_ZOFF_OK(zoff_aio_wait(q.get(), tickets[2]));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "at offset 131072 of", zoff_aio_wait(q.get(), tickets[1]));
    EXPECT_ZOFF_OK(zoff_aio_wait(q.get(), tickets[0]));
    EXPECT_EQ(memcmp(in.data, content.data, 2 * block), 0);
    EXPECT_EQ(memcmp(in.data + 4 * block, content.data, 2 * block), 0);
}

// Every short count, in whole units or not, from the first byte to all but one.
TEST_P(AioPieces, ShortTransfersAreResumed)
{
    for (bool writes : {false, true}) {
        for (int failing = 1; failing <= static_cast<int>(blocks); failing++) {
            for (int moved : {1, 511, 512, 4096, 5000, 32768, 65535}) {
                SCOPED_TRACE(testing::Message() << (writes ? "write " : "read ") << failing << " moved " << moved);
                aio_fault fault;
                uint64_t before = aio_info(q.get()).resumed_pieces;
                fault.result = [&](int nth, int res, bool, uint64_t, size_t) { return nth == failing ? moved : res; };
                ASSERT_ZOFF_OK(transfer(writes));
                EXPECT_EQ(fault.results, static_cast<int>(blocks) + 1);
                EXPECT_EQ(aio_info(q.get()).resumed_pieces, before + 1);
                ASSERT_EQ(file_content(path), std::string(reinterpret_cast<char *>(content.data), content.bytes));
            }
        }
    }
}

// Every transfer is cut in half, again and again, down to single units.
TEST_P(AioPieces, ShortAllTheWay)
{
    aio_fault fault;
    fault.result = [](int, int res, bool, uint64_t, size_t) { return res > 4096 ? res / 2 : res; };
    ASSERT_ZOFF_OK(transfer(true));
    ASSERT_ZOFF_OK(transfer(false));
    EXPECT_EQ(file_content(path), std::string(reinterpret_cast<char *>(content.data), content.bytes));
}

TEST_P(AioPieces, InterruptionsAreRetriedButNotForEver)
{
    for (int error : {EAGAIN, EINTR, ECANCELED}) {
        for (bool writes : {false, true}) {
            aio_fault fault;
            fault.result = [&](int nth, int res, bool, uint64_t, size_t) { return nth % 2 ? -error : res; };
            EXPECT_ZOFF_OK(transfer(writes));
            EXPECT_EQ(fault.results, 2 * static_cast<int>(blocks));
            fault.results = 0;
            fault.result = [&](int, int, bool, uint64_t, size_t) { return -error; };
            EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, strerror(error), transfer(writes));
            EXPECT_LE(fault.results, 3 * 101);
            fault.result = nullptr;
            expect_healthy();
        }
    }
}

TEST_P(AioPieces, MovingNothingIsAnErrorInTheEnd)
{
    for (bool writes : {false, true}) {
        aio_fault fault;
        fault.result = [&](int, int, bool, uint64_t, size_t) { return 0; };
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "moved nothing", transfer(writes));
        fault.result = nullptr;
        expect_healthy();
    }
}

TEST_P(AioPieces, AFileCutShortSaysWhere)
{
    ASSERT_EQ(truncate(path.c_str(), 3 * block + 100), 0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "the file ends at 196708", transfer(false));
    ASSERT_EQ(truncate(path.c_str(), 0), 0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "the file ends at 0", transfer(false));
    expect_healthy();
}

// A backlog of reads does not delay a write, nor the other way round.
TEST_P(AioPieces, ReadsAndWritesAreInFlightTogether)
{
    for (bool backlog_writes : {true, false}) {
        std::vector<bool> order;
        aio_fault fault;
        const size_t backlog = 20;
        aio_buffer a(backlog * block, 1), b(2 * block, 2);
        uint64_t long_one, short_one;
        fault.result = [&](int, int res, bool writes, uint64_t, size_t) {
            order.push_back(writes);
            return res;
        };
        if (backlog_writes) {
            ASSERT_ZOFF_OK(zoff_aio_write(q.get(), 2 * block, a.bytes, a.data, &long_one));
            ASSERT_ZOFF_OK(zoff_aio_read(q.get(), 0, b.bytes, b.data, &short_one));
        } else {
            ASSERT_ZOFF_OK(zoff_aio_read(q.get(), 0, a.bytes, a.data, &long_one));
            ASSERT_ZOFF_OK(zoff_aio_write(q.get(), backlog * block, b.bytes, b.data, &short_one));
        }
        ASSERT_ZOFF_OK(zoff_aio_wait(q.get(), short_one));
        if (GetParam() == "posix") { // its results come in the order of the requests
            EXPECT_LE(std::count(order.begin(), order.end(), backlog_writes), 6);
        }
        ASSERT_ZOFF_OK(zoff_aio_wait(q.get(), long_one));
        EXPECT_EQ(order.size(), backlog + 2);
    }
}

TEST_P(AioPieces, ClosingTellsOfAFailureThatNobodyAskedFor)
{
    aio_fault fault;
    log_catcher log;
    uint64_t ticket;
    fault.result = [](int nth, int res, bool, uint64_t, size_t) { return nth == 2 ? -EIO : res; };
    ASSERT_ZOFF_OK(zoff_aio_write(q.get(), 0, content.bytes, content.data, &ticket));
    ASSERT_ZOFF_OK(zoff_aio_write(q.get(), content.bytes, content.bytes, content.data, &ticket));
    log.expect("before anybody asked for its result: cannot write 327680 bytes at offset 0");
    q.reset();
    EXPECT_EQ(log.warnings.size(), 1u);
}
} // namespace
