/* SPDX-License-Identifier: Apache-2.0 */
// memory_test.cc: each allocation of a save and of a load fails once. That is an error, changes nothing, and leaks nothing.
#include "allocation_fault.h"
#include "sample.h"

using namespace zoff_test;

TEST(memory, may_be_missing_for_a_save)
{
    scratch_folder scratch;
    sample early, late;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.keep = 2;
    late.shift = 1;
    ASSERT_ZOFF_OK(early.write(scratch.path, nullptr, 1));
    const int failed = fail_each_allocation([&] {
        const zoff_status status = late.write(scratch.path, &opts, 2);
        const bool has_struck = allocations_left < 0;
        // OK also where old checkpoints stay because they could not be listed.
        EXPECT_TRUE(status == ZOFF_OK || (has_struck && status == ZOFF_ERR_NO_MEMORY)) << zoff_last_error();
        const long left = allocations_left;
        allocations_left = -1;
        (status == ZOFF_OK ? late : early).compare(scratch.path, status == ZOFF_OK ? 2 : 1);
        if (status == ZOFF_OK) {
            EXPECT_EQ(0, system(("rm -r '" + scratch.file("step-0000000002") + "' '" + scratch.file("latest") + "'").c_str()));
        }
        allocations_left = left;
    });
    EXPECT_GT(failed, 30);
}

TEST(memory, may_be_missing_for_a_load)
{
    scratch_folder scratch;
    sample written;
    ASSERT_ZOFF_OK(written.write(scratch.path, nullptr, 1));
    ASSERT_ZOFF_OK(written.write(scratch.path, nullptr, 2));
    const int failed = fail_each_allocation([&] {
        zoff_checkpoint_reader *r = nullptr;
        zoff_status status = zoff_checkpoint_reader_open(scratch.path.c_str(), nullptr, &r);
        if (status == ZOFF_OK)
            status = zoff_checkpoint_reader_verify(r, nullptr, nullptr);
        zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
        if (r) { // never the older one
            EXPECT_ZOFF_OK(zoff_checkpoint_reader_info(r, &info));
            EXPECT_EQ(2, info.t);
        }
        if (allocations_left < 0) {
            EXPECT_TRUE(status == ZOFF_ERR_NO_MEMORY || status == ZOFF_OK) << zoff_last_error();
        }
        zoff_checkpoint_reader_close(r);
    });
    EXPECT_GT(failed, 20);
}

TEST(memory, may_be_missing_for_a_list)
{
    scratch_folder scratch;
    sample written;
    ASSERT_ZOFF_OK(written.write(scratch.path, nullptr, 1));
    ASSERT_ZOFF_OK(written.write(scratch.path, nullptr, 2));
    char whole[4096], text[4096];
    ASSERT_ZOFF_OK(zoff_checkpoint_list(scratch.path.c_str(), whole, sizeof whole, nullptr));
    const int failed = fail_each_allocation([&] {
        const zoff_status status = zoff_checkpoint_list(scratch.path.c_str(), text, sizeof text, nullptr);
        EXPECT_EQ(allocations_left < 0 ? ZOFF_ERR_NO_MEMORY : ZOFF_OK, status) << zoff_last_error();
        if (status == ZOFF_OK) {
            EXPECT_STREQ(whole, text);
        }
    });
    EXPECT_GT(failed, 10);
}
