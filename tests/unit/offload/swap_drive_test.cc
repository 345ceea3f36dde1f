// swap_drive_test.cc: a drive is flushed if that is configured. A record in doubt is erased before the bytes that it names are
// overwritten. Bytes are counted over all files.
#include "ring_store.h"

#include <fcntl.h>

using namespace zoff_test;

namespace
{
class SwapDrive : public Ring
{
  protected:
    // Whether the file has a complete record of a generation.
    bool has_record(uint64_t generation)
    {
        zoff_swap_found found;
        EXPECT_ZOFF_OK(zoff_offload_swap_record_read(s()->files[0].lock, "file", &found));
        const unsigned which = generation & 1;
        const bool has = found.is_whole[which] && found.heads[which].generation == generation;
        zoff_offload_swap_record_free(&found);
        return has;
    }
    // A commit whose record the drive takes, and says that it did not. It goes on to refuse records.
    void commit_in_doubt(aio_fault *fault)
    {
        open_persistent();
        flush(0, 7);
        drain();
        fault->result = [](int, int res, bool writes, uint64_t offset, size_t) { return writes && offset < 8192 ? -EIO : res; };
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "the commit of step 1 failed: ", zoff_offload_store_commit(store, 1));
        EXPECT_TRUE(s()->record.in_doubt);
        EXPECT_TRUE(has_record(2));
    }
};
} // namespace

TEST_F(SwapDrive, AFlushIsAskedForWhereThePowerMayGo)
{
    open_persistent();
    EXPECT_ZOFF_OK(zoff_offload_swap_move_flush_drive(s(), &s()->files[0]));
    failing_flushes = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, std::string("cannot flush '") + s()->files[0].name + "' to the drive: Input/output error",
                      zoff_offload_swap_move_flush_drive(s(), &s()->files[0]));
    EXPECT_EQ(0, failing_flushes);
    s()->record.power_safe = false;
    failing_flushes = 1;
    EXPECT_ZOFF_OK(zoff_offload_swap_move_flush_drive(s(), &s()->files[0]));
    EXPECT_EQ(1, failing_flushes) << "the drive was not asked";
}

TEST_F(SwapDrive, ARecordInDoubtIsTakenBackBeforeItsPlacesAreWritten)
{
    aio_fault fault;
    commit_in_doubt(&fault);
    EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_swap_move_take_back(s()));
    EXPECT_TRUE(s()->record.in_doubt) << "as long as it could not be erased";
    fault.result = nullptr;
    flush(0, 8); // a write erases it first
    EXPECT_FALSE(s()->record.in_doubt);
    EXPECT_FALSE(has_record(2));
    EXPECT_TRUE(has_record(1));
    drain();
    fault.results = 0;
    EXPECT_ZOFF_OK(zoff_offload_swap_move_take_back(s()));
    EXPECT_EQ(0, fault.results) << "nothing is in doubt";
}

// The next process must not go on with what was rolled back.
TEST_F(SwapDrive, ARecordInDoubtIsTakenBackByARollback)
{
    aio_fault fault;
    commit_in_doubt(&fault);
    EXPECT_EQ(ZOFF_ERR_IO, zoff_offload_store_rollback(store));
    fault.result = nullptr;
    EXPECT_ZOFF_OK(zoff_offload_store_rollback(store)) << "the call is repeated";
    EXPECT_FALSE(has_record(2));
    EXPECT_TRUE(has_record(1));
    EXPECT_FALSE(s()->record.in_doubt);
}

TEST_F(SwapDrive, BytesOfAllFilesAreCounted)
{
    opts.path_count = 2;
    open();
    const uint64_t before = zoff_offload_swap_move_lifetime(s());
    EXPECT_EQ(7u * 20480, before) << "the first content";
    flush(0, 7);
    flush(1, 7, 2);
    drain();
    EXPECT_NE(place(0).file, place(1).file);
    EXPECT_EQ(before + 20480 + 8192, zoff_offload_swap_move_lifetime(s()));
    EXPECT_EQ(zoff_offload_swap_move_lifetime(s()), s()->files[0].write_bytes + s()->files[1].write_bytes);
}
