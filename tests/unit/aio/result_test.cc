/* SPDX-License-Identifier: Apache-2.0 */
// result_test.cc: the function that every result passes: each comes out unchanged, and no back-end goes around it.
#include "aio_fault.h"
#include "aio_place.h"

#include <limits.h>

#include <set>

extern "C" {
#include "backend_priv.h"
}

using namespace zoff_test;

TEST(AioResult, ComesOutAsItWentIn)
{
    for (int res : {INT_MIN, -4096, -EIO, -EAGAIN, -1, 0, 1, 511, 512, 4095, 4096, 1 << 30, INT_MAX})
        for (bool writes : {false, true})
            for (uint64_t offset : {uint64_t(0), uint64_t(4096), UINT64_MAX})
                for (size_t bytes : {size_t(0), size_t(1), size_t(4096), SIZE_MAX})
                    ASSERT_EQ(res, zoff_aio_result_check(res, writes, offset, bytes));
}

// The test's version of the function sees each transfer once, with its request.
TEST(AioResult, IsWhereEachTransferOfEachBackEndPasses)
{
    const size_t block = 8192, blocks = 5;
    const scratch_folder folder;
    for (const char *name : {"io_uring", "threads", "posix"}) {
        SCOPED_TRACE(name);
        zoff_aio_opts opts = aio_opts(name);
        opts.block_bytes = block;
        opts.depth = 2;
        zoff_aio *raw = nullptr;
        const zoff_status status = zoff_aio_open(folder.file(name).c_str(), &opts, &raw);
        if (status == ZOFF_ERR_UNSUPPORTED)
            continue; // io_uring is forbidden here
        ASSERT_ZOFF_OK(status);
        const aio q(raw);
        aio_buffer memory(blocks * block, 1);
        for (bool writing : {true, false}) {
            aio_fault fault;
            std::multiset<uint64_t> offsets, want;
            for (size_t i = 0; i < blocks; i++)
                want.insert(i * block);
            fault.result = [&](int, int res, bool writes, uint64_t offset, size_t bytes) {
                EXPECT_EQ(writing, writes);
                EXPECT_EQ(block, bytes);
                EXPECT_EQ(static_cast<int>(block), res);
                offsets.insert(offset);
                return res;
            };
            if (writing)
                ASSERT_ZOFF_OK(aio_write(q.get(), 0, memory.data, memory.bytes));
            else
                ASSERT_ZOFF_OK(aio_read(q.get(), 0, memory.data, memory.bytes));
            EXPECT_EQ(want, offsets);
        }
    }
}
