/* SPDX-License-Identifier: Apache-2.0 */
// listing_test.cc: which checkpoint is complete, and why one is not.
#include "sample.h"

extern "C" {
#include "archive_priv.h"
}

using namespace zoff_test;

namespace
{
zoff_status write(const std::string &folder, const char *label)
{
    sample written;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.name = "a";
    opts.label = label;
    return written.write(folder, &opts);
}
} // namespace

TEST(listing, judges_files)
{
    scratch_folder scratch;
    ASSERT_ZOFF_OK(write(scratch.path, nullptr));
    const std::string folder = scratch.file("a"), part = part_in(folder), text = read_file(part);
    EXPECT_ZOFF_OK(zoff_archive_listing_judge(folder.c_str(), ""));
    write_file(part, text + "x");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, part, zoff_archive_listing_judge(folder.c_str(), ""));
    ASSERT_EQ(0, remove(part.c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "of rank 0 is not there", zoff_archive_listing_judge(folder.c_str(), ""));
    ASSERT_EQ(0, remove((folder + "/manifest.json").c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "has no manifest: its save ended early", zoff_archive_listing_judge(folder.c_str(), ""));
    EXPECT_FALSE(zoff_archive_listing_has_any(folder.c_str()));
    write_file(part, text);
    EXPECT_TRUE(zoff_archive_listing_has_any(folder.c_str()));
}

TEST(listing, names_the_labels_that_are_there)
{
    scratch_folder scratch;
    ASSERT_ZOFF_OK(write(scratch.path, "tp0"));
    const std::string folder = scratch.file("tp0.a");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "no manifest of the engine '', but of 'tp0': name one",
                      zoff_archive_listing_judge(folder.c_str(), ""));
    EXPECT_ZOFF_OK(zoff_archive_listing_judge(folder.c_str(), "tp0"));
    write_file(folder + "/tp1.manifest.json", read_file(folder + "/tp0.manifest.json"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "another engine", zoff_archive_listing_judge(folder.c_str(), "tp1"));
}
