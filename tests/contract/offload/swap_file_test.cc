/* SPDX-License-Identifier: Apache-2.0 */
// swap_file_test.cc: a state file belongs to one engine. Files that dead runs left are removed. Files of live runs, and files
// of other programs, are not touched.
#include "zoff_test.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>

extern "C" {
#include "swap_file_priv.h"
}

using namespace zoff_test;

// The file system type that statfs() pretends for every folder; 0: the true one.
static long shared_magic;

extern "C" int __real_fstatfs(int fd, struct statfs *out);
extern "C" int __wrap_fstatfs(int fd, struct statfs *out)
{
    const int result = __real_fstatfs(fd, out);
    if (shared_magic)
        out->f_type = shared_magic;
    return result;
}

namespace
{
zoff_aio_opts options()
{
    zoff_aio_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.writable = true;
    return opts;
}

// Open a file, reserve `bytes` and write its head page.
zoff_status open_file(const char *folder, unsigned rank, uint64_t bytes, const zoff_aio_opts *opts, zoff_swap_file *file)
{
    zoff_status status = zoff_offload_swap_file_open(folder, rank, opts, file);
    if (status != ZOFF_OK)
        return status;
    file->bytes = bytes;
    status = zoff_offload_swap_file_reserve(file);
    return status == ZOFF_OK ? zoff_offload_swap_file_write_head(file, rank) : status;
}

bool exists(const std::string &name)
{
    struct stat st;
    return stat(name.c_str(), &st) == 0;
}

// Leave what a process leaves that dies between creating its file and unlinking it: a named file with a head page.
int leave(zoff_swap_file *file)
{
    std::vector<char> page(4096);
    EXPECT_EQ(4096, pread(file->lock, page.data(), page.size(), 0));
    int fd = open(file->name, O_CREAT | O_EXCL | O_RDWR, 0600);
    EXPECT_EQ(4096, pwrite(fd, page.data(), page.size(), 0));
    return fd;
}

bool is_empty(const scratch_folder &folder)
{
    return system(("test $(ls '" + folder.path + "' | wc -l) = 0").c_str()) == 0;
}

TEST(SwapFile, IsReservedPrivateAndHasNoNameOnceItIsOpen)
{
    log_catcher log;
    scratch_folder folder;
    zoff_aio_opts opts = options();
    zoff_swap_file file = {};
    ASSERT_ZOFF_OK(open_file(folder.path.c_str(), 3, 1 << 20, &opts, &file));
    std::string name = file.name;
    struct stat st;
    ASSERT_EQ(0, fstat(file.lock, &st));
    EXPECT_EQ(0600u, st.st_mode & 0777);
    EXPECT_EQ(0u, st.st_nlink);
    EXPECT_GE(st.st_blocks * 512, 1 << 20) << "space must be reserved on the disk, not only as file length";
    EXPECT_NE(name.find("-r3.swap"), std::string::npos);
    EXPECT_TRUE(is_empty(folder));
    zoff_offload_swap_file_close(&file);
    EXPECT_TRUE(is_empty(folder));
}

TEST(SwapFile, AFolderInMemoryIsWarnedOf)
{
    struct statfs fs;
    if (statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS_MAGIC || access("/dev/shm", W_OK) != 0)
        GTEST_SKIP() << "/dev/shm is not a writable tmpfs";
    log_catcher log;
    log.expect("/dev/shm is not on a disk but in memory");
    zoff_aio_opts opts = options();
    opts.direct = ZOFF_DIRECT_OFF;
    zoff_swap_file file = {};
    ASSERT_ZOFF_OK(open_file("/dev/shm", 0, 8192, &opts, &file));
    zoff_offload_swap_file_close(&file);
}

TEST(SwapFile, ALivingEnginesFileIsLeftAlone)
{
    log_catcher log;
    scratch_folder folder;
    zoff_aio_opts opts = options();
    zoff_swap_file file = {};
    ASSERT_ZOFF_OK(open_file(folder.path.c_str(), 0, 8192, &opts, &file));
    int fd = leave(&file);
    ASSERT_EQ(0, flock(fd, LOCK_EX));
    zoff_offload_swap_file_clean(folder.path.c_str());
    EXPECT_TRUE(exists(file.name));
    EXPECT_EQ(0u, log.lines.size());
    close(fd);
    zoff_offload_swap_file_close(&file);
}

TEST(SwapFile, AKilledRunLeavesNothing)
{
    scratch_folder folder;
    pid_t child = fork();
    if (child == 0) {
        zoff_aio_opts opts = options();
        zoff_swap_file file = {};
        if (open_file(folder.path.c_str(), 0, 8192, &opts, &file) != ZOFF_OK)
            _exit(1);
        kill(getpid(), SIGKILL);
    }
    int state = 0;
    ASSERT_EQ(child, waitpid(child, &state, 0));
    ASSERT_TRUE(WIFSIGNALED(state)) << "the child could not create its file";
    EXPECT_TRUE(is_empty(folder));
}

TEST(SwapFile, ADeadRunsFileIsRemovedAndTold)
{
    scratch_folder folder;
    zoff_aio_opts opts = options();
    zoff_swap_file file = {};
    ASSERT_ZOFF_OK(open_file(folder.path.c_str(), 0, 8192, &opts, &file));
    close(leave(&file));
    zoff_offload_swap_file_close(&file);
    log_catcher log;
    zoff_offload_swap_file_clean(folder.path.c_str());
    EXPECT_TRUE(is_empty(folder));
    EXPECT_TRUE(log.contains("removed 1 state file that a dead run left in " + folder.path));
}

// NFS with local locks, BeeGFS, 9p and virtiofs do not show the lock of another host.
TEST(SwapFile, OnASharedFileSystemOnlyFilesOfThisBootAreRemoved)
{
    scratch_folder folder;
    zoff_aio_opts opts = options();
    zoff_swap_file file = {};
    ASSERT_ZOFF_OK(open_file(folder.path.c_str(), 0, 8192, &opts, &file));
    shared_magic = 0x6969;
    int fd = leave(&file); // created since this boot
    close(fd);
    {
        log_catcher log;
        zoff_offload_swap_file_clean(folder.path.c_str());
        EXPECT_TRUE(is_empty(folder));
    }
    fd = leave(&file); // created by another boot: its boot id differs
    char boot = '?';
    ASSERT_EQ(1, pwrite(fd, &boot, 1, 104 + 3));
    close(fd);
    close(open(folder.file("zoff-vm-1-00000000000000aa-r0.swap").c_str(), O_CREAT | O_WRONLY, 0600)); // still empty
    {
        log_catcher log;
        log.expect("may be in use by another host");
        zoff_offload_swap_file_clean(folder.path.c_str());
        EXPECT_TRUE(exists(file.name));
        EXPECT_TRUE(exists(folder.file("zoff-vm-1-00000000000000aa-r0.swap")));
        EXPECT_EQ(2u, log.warnings.size());
    }
    shared_magic = 0;
    zoff_offload_swap_file_close(&file);
}

TEST(SwapFile, APersistentFileOfAnotherUserIsRefused)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "only root can change the owner of a file";
    log_catcher log;
    scratch_folder folder;
    zoff_aio_opts opts = options();
    zoff_swap_file file = {};
    const std::string name = folder.file("zoff-r0.states");
    close(open(name.c_str(), O_CREAT | O_WRONLY, 0666));
    ASSERT_EQ(0, chown(name.c_str(), 65534, 65534));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "belongs to user 65534",
                      zoff_offload_swap_file_open_kept(folder.path.c_str(), {0, 0}, &opts, &file));
    EXPECT_TRUE(exists(name));
}

TEST(SwapFile, StrangersAreNotTouched)
{
    log_catcher log;
    scratch_folder folder;
    // Our kind of name without our head page; our name for a folder, a link or a pipe; another name.
    auto write = [&](const char *name, const std::string &text) {
        FILE *f = fopen(folder.file(name).c_str(), "w");
        fwrite(text.data(), 1, text.size(), f);
        fclose(f);
    };
    write("zoff-thesis-1-final.swap", std::string(5000, 'x'));
    write("zoff-extra.swap", std::string(5000, 0)); // the file is like the beginning of one made by mkswap
    write("zoff-vm-1-0123456789abcdef-r0.swap", std::string(5000, 'x'));
    // the file is not private, because another program made it
    write("zoff-vm-2-0123456789abcdef-r0.swap", std::string(5000, 0));
    write("notes.txt", "");
    write("zoff-.swp", "");
    ASSERT_EQ(0, mkdir(folder.file("zoff-vm-3-0123456789abcdef-r0.swap").c_str(), 0700));
    ASSERT_EQ(0, symlink("notes.txt", folder.file("zoff-vm-4-0123456789abcdef-r0.swap").c_str()));
    ASSERT_EQ(0, mkfifo(folder.file("zoff-vm-5-0123456789abcdef-r0.swap").c_str(), 0600));
    zoff_offload_swap_file_clean(folder.path.c_str());
    EXPECT_EQ(0, system(("test $(ls '" + folder.path + "' | wc -l) = 9").c_str()));
}

TEST(SwapFile, AFileWhoseEngineDiedEarlyIsALeftoverToo)
{
    scratch_folder folder;
    close(open(folder.file("zoff-vm-1-00000000000000aa-r0.swap").c_str(), O_CREAT | O_WRONLY,
               0600)); // the file as it is before its head page is written
    int fd = open(folder.file("zoff-vm-2-00000000000000ab-r0.swap").c_str(), O_CREAT | O_WRONLY, 0600);
    ASSERT_EQ(0, ftruncate(fd, 1 << 20)); // reserved, but still all zeros
    close(fd);
    log_catcher log;
    zoff_offload_swap_file_clean(folder.path.c_str());
    EXPECT_TRUE(log.contains("removed 2 state files"));
}
} // namespace
