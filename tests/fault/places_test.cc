/* SPDX-License-Identifier: Apache-2.0 */
// places_test.cc: an engine with states in files on a restricted system: io_uring forbidden, little lockable memory, a file
// system in memory, sectors of 512 and of 4096 bytes, too little space. If a step is possible, its numbers must be those of the
// reference. If not, the error must name what is missing, and nothing may be left behind.
#include "aio_place.h"
#include "small_engine.h"

#include <grp.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

using namespace zoff_test;

namespace
{
class Places : public testing::TestWithParam<bool> // states persist
{
  protected:
    std::string text(const std::string &folder) const
    {
        return config_text(folder, 1,
                           std::string(", \"zoff\": {\"persist\": ") + (GetParam() ? "true" : "false") +
                               ", \"durability\": \"process\"}");
    }

    static void fill(trainer &t)
    {
        t.add(90000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(700, 3, ZOFF_F32, ZOFF_F32, 0, false, 2);
    }

    // Four steps in a folder. If states persist, another engine takes over in between.
    void take_steps(const std::string &folder)
    {
        trainer t(8);
        fill(t);
        engine e = seal_engine(t, text(folder), 2048);
        for (int64_t k = 1; k <= 4; k++) {
            if (k == 3 && GetParam()) {
                e.reset();
                t.scramble();
                e = seal_engine(t, text(folder), 2048);
                ASSERT_ZOFF_OK(zoff_params_push(e.get()));
            }
            t.next_step();
            t.backward_all(0.1f);
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
            reference::step(t.tensors, config_groups(), k, 1, 1, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        }
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }

    // The same in a process that first gives up a resource. `said`: the text that the log must contain, or "".
    std::string in_a_process(const std::function<bool()> &give_up, const std::string &folder, const std::string &said)
    {
        return in_child([&]() -> std::string {
            if (!give_up())
                return "could not be set up";
            log_catcher log;
            take_steps(folder);
            if (!said.empty() && !log.contains(said))
                return "nothing was said of \"" + said + "\"";
            for (auto &line : log.warnings)
                log.expect(line);
            return "";
        });
    }

    // Run in a file system of its own.
    void on(const mounted &fs)
    {
        if (!fs.why_not.empty())
            GTEST_SKIP() << fs.why_not;
        log_catcher log;
        ASSERT_NO_FATAL_FAILURE(take_steps(fs.folder));
        for (auto &line : log.warnings)
            log.expect(line);
    }

    scratch_folder scratch;
};

INSTANTIATE_TEST_SUITE_P(Files, Places, testing::Bool(),
                         [](const auto &p) { return std::string(p.param ? "persistent" : "temporary"); });

TEST_P(Places, IoUringForbidden)
{
    for (int error : {EPERM, ENOSYS}) {
        scratch_folder own;
        auto forbid = [error] { return forbid_call(SYS_io_uring_setup, error); };
        EXPECT_EQ("", in_a_process(forbid, own.path, "io_uring cannot be used")) << "errno " << error;
    }
}

TEST_P(Places, OneTransferAtATimeByTheCaller)
{
    EXPECT_EQ("", in_a_process([] { return setenv("ZOFF_AIO", "posix", 1) == 0; }, scratch.path, ""));
}

TEST_P(Places, LittleMemoryMayBeLocked)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "only root can give up being root";
    const std::string folder = scratch.path;
    ASSERT_EQ(0, system(("chmod 777 '" + folder + "'").c_str()));
    std::string wrong = in_a_process(
        [] {
            const rlimit limit = {65536, 65536};
            return setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setgroups(0, nullptr) == 0 && setgid(65534) == 0 &&
                   setuid(65534) == 0;
        },
        folder, "is not registered with io_uring: RLIMIT_MEMLOCK is 65536 bytes");
    if (wrong.find("Permission denied") != std::string::npos)
        GTEST_SKIP() << "the user nobody cannot access the scratch folder";
    EXPECT_EQ("", wrong);
}

TEST_P(Places, InMemory)
{
    on(mounted(scratch.file("tmpfs"), "tmpfs", "size=64m"));
}

TEST_P(Places, SectorsOf512Bytes)
{
    on(mounted(scratch.file("ext4"), 512, 64));
}

TEST_P(Places, SectorsOf4096Bytes)
{
    on(mounted(scratch.file("ext4"), 4096, 64));
}

// Seal must report too little space, with the numbers, and leave nothing behind. With more space it must succeed. After that a
// full disk does not matter, because seal has reserved all that steps write.
TEST_P(Places, ADiskThatIsFull)
{
    mounted fs(scratch.file("ext4"), 512, 32);
    if (!fs.why_not.empty())
        GTEST_SKIP() << fs.why_not;
    log_catcher log;
    trainer t(8);
    fill(t);
    ASSERT_NE(0, run("dd if=/dev/zero of='" + fs.file("others") + "' bs=64k"));
    engine e = make_engine(t, text(fs.folder), 2048);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "no room for the states or weights of this engine", zoff_engine_seal(e.get()));
    EXPECT_EQ(0, run("test $(ls '" + fs.folder + "' | grep -c zoff) = 0"));
    ASSERT_EQ(0, run("rm '" + fs.file("others") + "'"));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    ASSERT_NE(0, run("dd if=/dev/zero of='" + fs.file("others") + "' bs=64k"));
    for (int64_t k = 1; k <= 3; k++) {
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        reference::step(t.tensors, config_groups(), k, 1, 1, 0);
    }
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

// The file system is shut down under the engine, as if its drive were pulled. Every call must report it, and the engine can be
// destroyed. After a new mount the states must be those of the last step that returned, because each step was flushed to the
// drive.
TEST(Place, AFileSystemThatIsShutDown)
{
    scratch_folder scratch;
    mounted fs(scratch.file("ext4"), 512, 64);
    if (!fs.why_not.empty())
        GTEST_SKIP() << fs.why_not;
    log_catcher log;
    trainer t(8);
    t.add(90000, 1, ZOFF_BF16, ZOFF_BF16);
    const std::string text = config_text(fs.folder, 1, ", \"zoff\": {\"persist\": true, \"durability\": \"power\"}");
    engine e = seal_engine(t, text, 2048);
    for (int64_t k = 1; k <= 3; k++) {
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        reference::step(t.tensors, config_groups(), k, 1, 1, 0);
    }
    // Like a power cut: no page of the cache and no commit of the journal is written any more.
    const unsigned long SHUTDOWN = _IOR('X', 125, uint32_t);
    uint32_t no_log_flush = 2;
    const int fd = open(fs.folder.c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_EQ(0, ioctl(fd, SHUTDOWN, &no_log_flush)) << strerror(errno);
    close(fd);
    auto info = new_info();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "step 4 failed", zoff_step(e.get(), nullptr, &info));
    for (int i = 0; i < 3; i++)
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "step 4 failed", zoff_step_retry(e.get(), &info));
    e.reset();
    for (auto &line : log.warnings)
        log.expect(line);
    // Unmounting also drops the caches of the system.
    for (int i = 0; run("umount '" + fs.folder + "'") != 0 && i < 100; i++)
        usleep(20000);
    ASSERT_EQ(0, run("mount '" + fs.device + "' '" + fs.folder + "'"));
    t.scramble();
    e = seal_engine(t, text, 2048);
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    int64_t count = 0;
    ASSERT_ZOFF_OK(zoff_step_count(e.get(), &count));
    EXPECT_EQ(3, count);
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}
} // namespace
