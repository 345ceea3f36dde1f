/* SPDX-License-Identifier: Apache-2.0 */
// out_file_test.cc: a file appears under its name with all of its bytes, or not at all.
#include "tool_files.h"

using namespace tool_files;

namespace
{
TEST(OutFile, AppearsWhenItIsComplete)
{
    zoff_test::scratch_folder folder;
    const std::string path = folder.file("a");
    write_bytes(path, "old");
    out_file f;
    ASSERT_EQ(EXIT_DONE, out_file_open(&f, path.c_str()));
    ASSERT_EQ(EXIT_DONE, out_file_write(&f, "new ", 4));
    ASSERT_EQ(EXIT_DONE, out_file_write(&f, "bytes", 5));
    EXPECT_EQ("old", bytes_of(path));
    ASSERT_EQ(EXIT_DONE, out_file_commit(&f));
    EXPECT_EQ("new bytes", bytes_of(path));
    out_file_close(&f);
    EXPECT_EQ("new bytes", bytes_of(path));
    EXPECT_NE(0, access((path + ".zoff-part").c_str(), F_OK));
}

TEST(OutFile, LeavesNothingBehindWithoutACommit)
{
    zoff_test::scratch_folder folder;
    const std::string path = folder.file("a");
    out_file f;
    ASSERT_EQ(EXIT_DONE, out_file_open(&f, path.c_str()));
    ASSERT_EQ(EXIT_DONE, out_file_write(&f, "bytes", 5));
    EXPECT_EQ(0, access((path + ".zoff-part").c_str(), F_OK));
    out_file_close(&f);
    out_file_close(&f);
    EXPECT_NE(0, access(path.c_str(), F_OK));
    EXPECT_NE(0, access((path + ".zoff-part").c_str(), F_OK));
}

TEST(OutFile, TheFileOfAKilledCommandIsOverwritten)
{
    zoff_test::scratch_folder folder;
    const std::string path = folder.file("a"), part = path + ".zoff-part";
    write_bytes(part, "half of a longer file");
    out_file f;
    ASSERT_EQ(EXIT_DONE, out_file_open(&f, path.c_str()));
    out_file second;
    const outcome result = run([&] { return out_file_open(&second, path.c_str()); });
    EXPECT_EQ(EXIT_FAILED, result.exit);
    EXPECT_HAS(result.err, "error: " + part + ": another command writes this file");
    ASSERT_EQ(EXIT_DONE, out_file_write(&f, "whole", 5));
    ASSERT_EQ(EXIT_DONE, out_file_commit(&f));
    out_file_close(&f);
    EXPECT_EQ("whole", bytes_of(path));
    EXPECT_NE(0, access(part.c_str(), F_OK));
}

TEST(OutFile, ErrorsNameTheFile)
{
    zoff_test::scratch_folder folder;
    out_file f;
    outcome result = run([&] { return out_file_open(&f, folder.file("none/a").c_str()); });
    EXPECT_EQ(EXIT_FAILED, result.exit);
    EXPECT_HAS(result.err, "error: " + folder.file("none/a") + ".zoff-part: cannot write: No such file");
    ASSERT_EQ(0, mkdir(folder.file("b").c_str(), 0700));
    write_bytes(folder.file("b/x"), "");
    ASSERT_EQ(EXIT_DONE, out_file_open(&f, folder.file("b").c_str()));
    result = run([&] { return out_file_commit(&f); });
    EXPECT_EQ(EXIT_FAILED, result.exit);
    EXPECT_HAS(result.err, "cannot rename it to " + folder.file("b"));
    out_file_close(&f);
    EXPECT_NE(0, access(folder.file("b.zoff-part").c_str(), F_OK));
}

TEST(OutFile, AFullDiskIsAnError)
{
    if (access("/dev/full", W_OK) != 0)
        GTEST_SKIP() << "there is no /dev/full";
    out_file f = {fopen("/dev/full", "wb"), strdup("x"), strdup("x.zoff-part")};
    ASSERT_NE(nullptr, f.to);
    const outcome result = run([&] {
        EXPECT_EQ(EXIT_DONE, out_file_write(&f, "bytes", 5)) << "they are still in a buffer";
        return out_file_commit(&f);
    });
    EXPECT_EQ(EXIT_FAILED, result.exit);
    EXPECT_HAS(result.err, "x.zoff-part: cannot write: No space left on device");
    out_file_close(&f);
}

TEST(OutFile, AnEarlierFailedWriteIsRemembered)
{
    if (access("/dev/full", W_OK) != 0)
        GTEST_SKIP() << "there is no /dev/full";
    out_file f = {fopen("/dev/full", "wb"), strdup("x"), strdup("x.zoff-part")};
    ASSERT_NE(nullptr, f.to);
    ASSERT_EQ(EXIT_DONE, out_file_write(&f, "bytes", 5));
    fflush(f.to); // loses the bytes, and the next fflush() succeeds
    EXPECT_EQ(EXIT_FAILED, run([&] { return out_file_commit(&f); }).exit);
    out_file_close(&f);
}
} // namespace
