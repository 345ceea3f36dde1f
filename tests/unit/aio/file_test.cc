/* SPDX-License-Identifier: Apache-2.0 */
// file_test.cc: opening a file: refusals, O_DIRECT, alignment, and space on the disk.
#include "aio_fault.h"
#include "aio_place.h"

extern "C" {
#include "aio.h"
}

#include <sys/resource.h>

using namespace zoff_test;

namespace
{
class AioFile : public testing::Test
{
  protected:
    zoff_status open(const std::string &name, zoff_aio_opts opts)
    {
        zoff_aio *raw = nullptr;
        zoff_status status = zoff_aio_open(name.c_str(), &opts, &raw);
        q.reset(raw);
        return status;
    }
    static zoff_aio_opts reading()
    {
        zoff_aio_opts opts = aio_opts("posix");
        opts.writable = opts.create = false;
        return opts;
    }
    // Write awkward pieces through `q` and read them back.
    void round_trip()
    {
        for (size_t size : {1, 511, 4096, 4097, 300001}) {
            for (uint64_t offset : {0, 512, 4095}) {
                aio_buffer out(size, static_cast<unsigned>(size + offset)), in(size);
                ASSERT_ZOFF_OK(aio_write(q.get(), offset, out.data, size));
                ASSERT_ZOFF_OK(aio_read(q.get(), offset, in.data, size));
                ASSERT_TRUE(in == out) << size << " at " << offset;
            }
        }
    }
    scratch_folder folder;
    std::string path = folder.file("file");
    aio q;
};

TEST_F(AioFile, MissingFile)
{
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "No such file", open(path, reading()));
    EXPECT_NE(std::string(zoff_last_error()).find(path), std::string::npos);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot create", open(folder.file("none/file"), aio_opts("posix")));
    EXPECT_EQ(file_bytes(path), -1);
}

TEST_F(AioFile, FolderAndPipeInsteadOfAFile)
{
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "is a directory", open(folder.path, reading()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "is a directory", open(folder.path, aio_opts("posix")));
    ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "neither a regular file", open(path, reading()));
}

TEST_F(AioFile, FileThatMayNotBeWritten)
{
    ASSERT_ZOFF_OK(open(path, aio_opts("posix")));
    q.reset();
    ASSERT_EQ(chmod(path.c_str(), 0444), 0);
    EXPECT_EQ(in_child([&]() -> std::string {
                  if (chmod(folder.path.c_str(), 0755) != 0 || chdir(folder.path.c_str()) != 0)
                      return "cannot prepare";
                  if (geteuid() == 0 && setuid(65534) != 0)
                      return "cannot become nobody";
                  if (open("file", aio_opts("posix")) != ZOFF_ERR_IO)
                      return "it was opened";
                  std::string message = zoff_last_error();
                  if (message != "cannot open 'file' for reading and writing: Permission denied")
                      return message;
                  return open("file", reading()) == ZOFF_OK ? "" : zoff_last_error();
              }),
              "");
}

TEST_F(AioFile, WrongOptions)
{
    zoff_aio *raw = nullptr;
    zoff_aio_opts opts = aio_opts("posix");
    EXPECT_EQ(zoff_aio_open(path.c_str(), nullptr, &raw), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_open(nullptr, &opts, &raw), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_open(path.c_str(), &opts, nullptr), ZOFF_ERR_INVALID);
    opts.struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "struct_size", open(path, opts));
    opts = aio_opts("posix");
    opts.writable = false;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "create needs writable", open(path, opts));
    opts = aio_opts("posix");
    opts.block_bytes = (size_t(1) << 30) + 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "block_bytes is 1073741825", open(path, opts));
    opts = aio_opts("posix");
    opts.depth = 5000;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "depth is 5000", open(path, opts));
    struct {
        zoff_aio_opts known;
        char later[16];
    } newer = {aio_opts("posix"), {}};
    newer.known.struct_size = sizeof newer;
    EXPECT_ZOFF_OK(zoff_aio_open(path.c_str(), &newer.known, &raw));
    zoff_aio_close(raw);
    newer.later[3] = 1;
    EXPECT_EQ(zoff_aio_open(path.c_str(), &newer.known, &raw), ZOFF_ERR_UNSUPPORTED);
    zoff_aio_opts older = {};
    older.struct_size = sizeof older.struct_size;
    EXPECT_ZOFF_OK(open(path, older)) << "what an older caller does not have is the default";
}

// There is no /proc, as in some containers.
TEST_F(AioFile, ALinkToAHeldFileIsReadWithoutProc)
{
    const std::string linked = folder.file("linked");
    aio_fault fault;
    fault.has_no_proc = true;
    ASSERT_EQ(0, symlink(path.c_str(), linked.c_str()));
    ASSERT_ZOFF_OK(open(path, aio_opts("posix")));
    const int held = ::open(linked.c_str(), O_RDONLY | O_CLOEXEC);
    zoff_aio *got = nullptr;
    zoff_aio_opts opts = aio_opts("posix");
    opts.writable = opts.create = false;
    EXPECT_ZOFF_OK(zoff_aio_queue_open(linked.c_str(), held, &opts, &got));
    zoff_aio_close(got);
    opts.writable = opts.create = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot open", zoff_aio_queue_open(linked.c_str(), held, &opts, &got));
    close(held);
}

TEST_F(AioFile, SmallBlocksAndAnyDepth)
{
    for (size_t block : {1, 512, 5000}) {
        for (unsigned depth : {1, 2, 40}) {
            zoff_aio_opts opts = aio_opts(nullptr);
            opts.block_bytes = block;
            opts.depth = depth;
            ASSERT_ZOFF_OK(open(path, opts));
            round_trip();
        }
    }
}

TEST_F(AioFile, KeepsWhatAFileHolds)
{
    aio_buffer out(5000, 3);
    ASSERT_ZOFF_OK(open(path, aio_opts("posix")));
    ASSERT_ZOFF_OK(aio_write(q.get(), 0, out.data, out.bytes));
    ASSERT_ZOFF_OK(open(path, aio_opts("posix")));
    EXPECT_EQ(file_content(path), std::string(reinterpret_cast<char *>(out.data), out.bytes));
    struct stat st;
    ASSERT_EQ(stat(path.c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, 0600u);
}

TEST_F(AioFile, RefusalOfODirectIsOneWarning)
{
    for (const char *backend : {"posix", "threads", static_cast<const char *>(nullptr)}) {
        aio_fault fault;
        fault.refuse_o_direct = true;
        log_catcher log;
        log.expect("refuses O_DIRECT");
        ASSERT_ZOFF_OK(open(path, aio_opts(backend)));
        EXPECT_EQ(log.warnings.size(), 1u);
        EXPECT_TRUE(log.contains(path));
        EXPECT_FALSE(aio_info(q.get()).direct);
        EXPECT_EQ(aio_info(q.get()).alignment, 1u);
        round_trip();
        EXPECT_EQ(log.warnings.size(), 1u);
    }
}

TEST_F(AioFile, RefusalOfODirectIsAnErrorWhereItIsRequired)
{
    aio_fault fault;
    fault.refuse_o_direct = true;
    int before = open_descriptors();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "refuses O_DIRECT", open(path, aio_opts("posix", ZOFF_DIRECT_REQUIRE)));
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_EQ(file_bytes(path), -1) << "a file made for nothing is left behind";
}

TEST_F(AioFile, RamfsRefusesODirect)
{
    mounted ramfs(folder.file("ramfs"), "ramfs", "mode=755");
    if (!ramfs.why_not.empty())
        GTEST_SKIP() << ramfs.why_not;
    {
        log_catcher log;
        log.expect("is on ramfs, which refuses O_DIRECT");
        ASSERT_ZOFF_OK(open(ramfs.file("file"), aio_opts(nullptr)));
        round_trip();
        ASSERT_ZOFF_OK(zoff_aio_reserve(q.get(), 1 << 20)) << "a file system without limits and without fallocate";
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "ramfs", open(ramfs.file("other"), aio_opts(nullptr, ZOFF_DIRECT_REQUIRE)));
    EXPECT_EQ(file_bytes(ramfs.file("other")), -1);
}

TEST_F(AioFile, ODirectOffIsSilent)
{
    log_catcher log;
    ASSERT_ZOFF_OK(open(path, aio_opts("posix", ZOFF_DIRECT_OFF)));
    EXPECT_FALSE(aio_info(q.get()).direct);
}

// With 4096-byte sectors an alignment of 512 is not enough.
TEST_F(AioFile, AlignmentIsThatOfTheDevice)
{
    for (unsigned sector : {512u, 4096u}) {
        mounted disk(folder.file("disk" + std::to_string(sector)), sector, 64);
        if (!disk.why_not.empty())
            GTEST_SKIP() << disk.why_not;
        for (const char *backend : {"posix", "threads", static_cast<const char *>(nullptr)}) {
            log_catcher log;
            ASSERT_ZOFF_OK(open(disk.file("file"), aio_opts(backend, ZOFF_DIRECT_REQUIRE)));
            EXPECT_EQ(aio_info(q.get()).alignment, sector);
            round_trip();
            q.reset();
        }
        ASSERT_ZOFF_OK(open(disk.device, reading())) << "a block device is a file too";
        EXPECT_EQ(aio_info(q.get()).alignment, sector);
        std::vector<char> block(5000);
        EXPECT_ZOFF_OK(aio_read(q.get(), 1000, block.data(), block.size()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "the file ends at 67108864", aio_read(q.get(), (64 << 20) - 100, block.data(), 101));
        q.reset();
    }
}

TEST_F(AioFile, ReservationSaysWhatItNeedsAndWhatThereIs)
{
    ASSERT_ZOFF_OK(open(path, aio_opts("posix")));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "needs 1125899906842624 more bytes", zoff_aio_reserve(q.get(), uint64_t(1) << 50));
    EXPECT_NE(std::string(zoff_last_error()).find(path), std::string::npos);
    EXPECT_NE(std::string(zoff_last_error()).find(" has "), std::string::npos);
    EXPECT_EQ(file_bytes(path), 0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "at most", zoff_aio_reserve(q.get(), UINT64_MAX));
}

TEST_F(AioFile, ReservationBeyondTheLimitOfTheProcessIsRefusedNotKilled)
{
    ASSERT_ZOFF_OK(open(path, aio_opts("posix")));
    struct rlimit before, low;
    ASSERT_EQ(0, getrlimit(RLIMIT_FSIZE, &before));
    low = before;
    low.rlim_cur = 1 << 20;
    ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &low));
    zoff_status status = zoff_aio_reserve(q.get(), 2 << 20);
    std::string words = zoff_last_error();
    ASSERT_EQ(0, setrlimit(RLIMIT_FSIZE, &before));
    EXPECT_EQ(ZOFF_ERR_NO_SPACE, status);
    EXPECT_NE(words.find("2097152 bytes, but RLIMIT_FSIZE of this process is 1048576"), std::string::npos) << words;
}

TEST_F(AioFile, ReservationThatFailsIsGivenBack)
{
    aio_fault fault;
    ASSERT_ZOFF_OK(open(path, aio_opts("posix")));
    fault.refuse_fallocate = ENOSPC;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "needs 1048576 more bytes (1.0 MiB)", zoff_aio_reserve(q.get(), 1 << 20));
    EXPECT_EQ(file_bytes(path), 0);
    fault.refuse_fallocate = EDQUOT;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "quota", zoff_aio_reserve(q.get(), 1 << 20));
    fault.refuse_fallocate = EIO;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot reserve 1048576 bytes", zoff_aio_reserve(q.get(), 1 << 20));
    EXPECT_EQ(file_bytes(path), 0);
    fault.refuse_fallocate = EINTR;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Interrupted", zoff_aio_reserve(q.get(), 1 << 20));
    fault.refuse_fallocate = EOPNOTSUPP;
    EXPECT_ZOFF_OK(zoff_aio_reserve(q.get(), 1 << 20));
    EXPECT_EQ(file_bytes(path), 1 << 20);
}

TEST_F(AioFile, FullFileSystem)
{
    mounted small(folder.file("small"), "tmpfs", "size=2m");
    if (!small.why_not.empty())
        GTEST_SKIP() << small.why_not;
    for (const char *backend : {"posix", "threads", static_cast<const char *>(nullptr)}) {
        log_catcher log; // the tmpfs of an older kernel refuses O_DIRECT
        ASSERT_ZOFF_OK(open(small.file("file"), aio_opts(backend)));
        if (log.contains("refuses O_DIRECT"))
            log.expect("refuses O_DIRECT");
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "needs 3145728 more bytes (3.0 MiB) and tmpfs has 2097152 (2.0 MiB)",
                          zoff_aio_reserve(q.get(), 3 << 20));
        aio_buffer big(3 << 20, 1), in(1 << 20);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "No space left", aio_write(q.get(), 0, big.data, big.bytes));
        EXPECT_NE(std::string(zoff_last_error()).find("free some space"), std::string::npos);
        ASSERT_EQ(truncate(small.file("file").c_str(), 0), 0);
        EXPECT_ZOFF_OK(aio_write(q.get(), 0, big.data, in.bytes)) << "the queue goes on after an error";
        EXPECT_ZOFF_OK(aio_read(q.get(), 0, in.data, in.bytes));
        EXPECT_EQ(memcmp(in.data, big.data, in.bytes), 0);
        q.reset();
        unlink(small.file("file").c_str());
    }
}
} // namespace
