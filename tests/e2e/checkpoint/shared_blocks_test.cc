/* SPDX-License-Identifier: Apache-2.0 */
// shared_blocks_test.cc: a save whose file shares blocks with state files, all of them, some, or none. Few file systems can
// share, so the call is replaced: the bytes are copied, or it is refused as other file systems do it.
#include "save_fault.h"
#include "saved_run.h"

#include <errno.h>
#include <limits.h>

using namespace zoff_test;

namespace
{
run_shape shape_of(unsigned world, bool persist, zoff_dtype dtype)
{
    run_shape s;
    s.world = world;
    s.stage = world;
    s.tier = ZOFF_TIER_NVME;
    s.persist = persist;
    s.dtype = dtype;
    return s;
}

class SharedBlocks : public testing::TestWithParam<run_shape>
{
  protected:
    SharedBlocks() : r(GetParam(), states.path)
    {
        r.step(++t);
        r.step(++t);
    }
    // Save, and go on beside the save.
    void save_beside()
    {
        want = r.all.want.tensors;
        expect_all_ok(r.on_each([](zoff_engine *e, unsigned) { // reads ahead of the next step are none of the save
            zoff_status status;
            while ((status = zoff_engine_progress(e)) == ZOFF_PENDING)
                std::this_thread::yield();
            return status;
        }));
        reads = fault.seen[CALL_READ];
        expect_all_ok(r.begin(folder.path));
        asked = fault.asked_to_share;
        expect_all_ok(r.wait());
        reads = fault.seen[CALL_READ] - reads;
        const int64_t saved = t;
        for (int i = 0; i < 3; i++) // these write over the arrays that were shared
            r.step(++t);
        r.expect();
        expect_newest(folder.path, saved);
        expect_loads(r.s, folder.path, saved, want);
    }
    // Arrays that have a file of their own in each rank: masters and moments of all chunks.
    int least() const { return 3 * (int)GetParam().world; }

    save_log log;
    save_fault fault;
    scratch_folder folder, states;
    saved_run r;
    saved_run::tensors want;
    int64_t t = 0;
    int asked = 0, reads = 0;
};

INSTANTIATE_TEST_SUITE_P(Runs, SharedBlocks,
                         testing::Values(shape_of(1, false, ZOFF_BF16), shape_of(1, true, ZOFF_F32),
                                         shape_of(2, true, ZOFF_BF16)),
                         [](const auto &p) { return name_of(p.param); });

// The bytes of shared arrays are not read.
TEST_P(SharedBlocks, AreTheStatesOfTheSave)
{
    fault.share(INT_MAX, 0);
    save_beside();
    ASSERT_GT(asked, least()) << "nothing was shared";
    EXPECT_EQ(asked, fault.shared);
    EXPECT_EQ(0, reads);
}

TEST_P(SharedBlocks, AreCopiedWhereTheFileSystemRefuses)
{
    for (int error : {EOPNOTSUPP, EXDEV}) {
        SCOPED_TRACE(strerror(error));
        fault.share(1, error);
        save_beside();
        // A file system that refuses once refuses again, so each rank asks once.
        ASSERT_EQ((int)GetParam().world, asked);
        EXPECT_EQ(0, fault.shared);
        EXPECT_GE(reads, least()) << "nothing was copied";
    }
}

// The rest is copied, and what is shared stays.
TEST_P(SharedBlocks, MayBeSomeOfAll)
{
    const int some = least() - 1;
    fault.share(some + 1, ENOSPC);
    save_beside();
    ASSERT_EQ(some, fault.shared);
    EXPECT_GT(asked, some);
    EXPECT_GT(reads, 0) << "nothing was copied";
}

// State files become a checkpoint in the same way. Their arrays are read, but only for their checksums.
TEST(SharedBlocksOfStateFiles, AreTheStatesOfTheRun)
{
    for (int refused_from : {INT_MAX, 3, 1}) {
        SCOPED_TRACE("refused from call " + std::to_string(refused_from));
        save_log log;
        save_fault fault;
        scratch_folder folder, states;
        const run_shape s = shape_of(1, true, ZOFF_BF16);
        const char *const folders[] = {states.path.c_str()};
        saved_run r(s, states.path);
        r.step(1);
        r.step(2);
        r.all.engines[0].reset();
        fault.share(refused_from, EOPNOTSUPP);
        const int writes = fault.seen[CALL_TRANSFER];
        ASSERT_ZOFF_OK(zoff_state_files_checkpoint(folders, 1, folder.path.c_str(), nullptr, nullptr, nullptr));
        ASSERT_GT(fault.asked_to_share, 3) << "nothing was shared";
        EXPECT_EQ(std::min(refused_from - 1, fault.asked_to_share.load()), fault.shared);
        const bool is_copied = fault.seen[CALL_TRANSFER] > writes;
        EXPECT_EQ(refused_from != INT_MAX, is_copied);
        expect_newest(folder.path, 2);
        fault.share(INT_MAX, 0);
        expect_loads(s, folder.path, 2, r.all.want.tensors);
    }
}
} // namespace
