/* SPDX-License-Identifier: Apache-2.0 */
// fuse_test.cc: states on a file system whose nth read or write fails, is short, or flips a bit, for n = 1, 2, 3, ... until a
// step meets no fault. So the engine sees a faulty drive as the kernel reports it. Each failure must be an error that names the
// file, and a retry must finish the step. The results must be those of a run without faults. The engine must never use a chunk
// that was read wrongly.
#include "small_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace zoff_test;

#ifdef ZOFF_FAULT_FS
static const char *const FAULT_FS = ZOFF_FAULT_FS;
#else
static const char *const FAULT_FS = nullptr;
#endif

namespace
{
// The file system, mounted for one test.
class faulty
{
  public:
    explicit faulty(const scratch_folder &scratch) : back(scratch.file("back")), front(scratch.file("front"))
    {
        if (!FAULT_FS)
            why_not = "built without libfuse3 (libfuse3-dev)";
        else if (geteuid() != 0 || access("/dev/fuse", R_OK | W_OK) != 0)
            why_not = "mounting by FUSE needs root and /dev/fuse";
        if (!why_not.empty())
            return;
        EXPECT_EQ(0, system(("mkdir -p '" + back + "' '" + front + "'").c_str()));
        child = fork();
        if (child == 0) {
            execl(FAULT_FS, "fault_fs", back.c_str(), front.c_str(), nullptr);
            _exit(127);
        }
        const unsigned FUSE_MAGIC = 0x65735546;
        struct statfs fs = {};
        for (int i = 0; i < 500 && !(statfs(front.c_str(), &fs) == 0 && (unsigned)fs.f_type == FUSE_MAGIC); i++)
            usleep(10000);
        is_mounted = (unsigned)fs.f_type == FUSE_MAGIC;
        if (!is_mounted)
            why_not = "the file system did not mount";
    }
    ~faulty()
    {
        if (child <= 0)
            return;
        // The kernel tears a ring down a little after its queue is closed, so umount may fail at first.
        for (int i = 0; is_mounted && system(("umount '" + front + "' 2>/dev/null").c_str()) != 0; i++) {
            if (i == 200) {
                ADD_FAILURE() << "cannot unmount " << front;
                kill(child, SIGKILL);
                break;
            }
            usleep(20000);
        }
        if (!is_mounted)
            kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
    }
    void set(const std::string &text)
    {
        const int fd = open((front + "/.fault").c_str(), O_WRONLY | O_CLOEXEC);
        EXPECT_GE(fd, 0);
        EXPECT_EQ((ssize_t)text.size(), write(fd, text.data(), text.size())) << text;
        close(fd);
    }
    std::string back, front, why_not;

  private:
    pid_t child = -1;
    bool is_mounted = false;
};

struct kind {
    const char *name;
    const char *config; // more keys of the section "zoff"
};

class Fuse : public testing::TestWithParam<kind>
{
  protected:
    Fuse() : fs(scratch), t(6)
    {
        t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(700, 3, ZOFF_F32, ZOFF_F32, 0, false, 2);
    }

    void SetUp() override
    {
        if (!fs.why_not.empty())
            GTEST_SKIP() << fs.why_not;
        e = seal_engine(t, config_text(fs.front, 1, std::string(", \"zoff\": {") + GetParam().config + "}"), 2048);
    }

    // Take steps in which the nth transfer of a kind fails, until one step meets no fault. Returns the number of failed steps.
    int until_untouched(const std::string &transfer, const std::string &what)
    {
        int wrong = 0;
        for (int n = 1; n < 300; n++) {
            auto info = new_info();
            t.next_step();
            t.backward_all(0.1f);
            fs.set(transfer + " " + std::to_string(n) + " " + what);
            zoff_status status = zoff_step(e.get(), nullptr, &info);
            const bool untouched = status == ZOFF_OK;
            if (!untouched) {
                wrong++;
                words = zoff_last_error();
                EXPECT_NE(std::string::npos, words.find(fs.front + "/zoff-")) << words;
                last = status;
                fs.set("none");
                // Chunks read ahead at that time may be wrong, too. Each one is refused once. An error is not told again.
                for (int i = 0; i < (last == ZOFF_ERR_CORRUPT ? 4 : 1) && status < 0; i++)
                    status = zoff_step_retry(e.get(), &info);
            }
            EXPECT_ZOFF_OK(status);
            fs.set("none");
            reference::step(t.tensors, config_groups(), info.t, 1, 1, 0);
            t.expect_weights();
            if (HasFailure()) {
                ADD_FAILURE() << transfer << " number " << n << " " << what << ": " << words;
                break;
            }
            if (untouched && info.bytes.nvme_read && n > 40)
                break;
        }
        t.expect_states(e.get());
        return wrong;
    }

    scratch_folder scratch;
    log_catcher log;
    faulty fs;
    trainer t;
    engine e;
    std::string words;
    zoff_status last = ZOFF_OK;
};

// Some file systems accept O_DIRECT at open() but refuse the first write, or require another block size. Seal tests a write
// before it relies on O_DIRECT. Here the first write is refused and a larger block size works.
TEST_P(Fuse, TheFirstWriteIsTriedBeforeSealDependsOnIt)
{
    trainer other(8);
    other.add(4000, 1, ZOFF_BF16, ZOFF_BF16);
    const std::string folder = fs.front;
    e.reset();
    unlink((folder + "/zoff-r0.states").c_str()); // seal would only read a file that already has a length
    fs.set("write 1 fail " + std::to_string(EINVAL));
    engine second = seal_engine(other, config_text(folder, 1, std::string(", \"zoff\": {") + GetParam().config + "}"), 2048);
    fs.set("none");
    other.next_step();
    other.backward_all(0.1f);
    EXPECT_ZOFF_OK(zoff_step(second.get(), nullptr, nullptr));
}

INSTANTIATE_TEST_SUITE_P(Kinds, Fuse,
                         testing::Values(kind{"temporary", "\"io_backend\": \"auto\""}, kind{"persistent", "\"persist\": true"},
                                         kind{"posix", "\"persist\": true, \"io_backend\": \"posix\""}),
                         [](const auto &p) { return std::string(p.param.name); });

TEST_P(Fuse, AReadThatFails)
{
    EXPECT_GT(until_untouched("read", "fail " + std::to_string(EIO)), 0); // the error of a read ahead is nobody's
    EXPECT_EQ(ZOFF_ERR_IO, last);
    EXPECT_NE(std::string::npos, words.find("Input/output error")) << words;
}

TEST_P(Fuse, AWriteThatFailsOnAFullDisk)
{
    EXPECT_GT(until_untouched("write", "fail " + std::to_string(ENOSPC)), 3);
    EXPECT_EQ(ZOFF_ERR_NO_SPACE, last);
    EXPECT_NE(std::string::npos, words.find("No space left on device")) << words;
}

TEST_P(Fuse, AWriteThatFails)
{
    EXPECT_GT(until_untouched("write", "fail " + std::to_string(EIO)), 3);
    EXPECT_EQ(ZOFF_ERR_IO, last);
}

TEST_P(Fuse, AShortReadIsCarriedOn)
{
    EXPECT_EQ(0, until_untouched("read", "short")) << words;
}

TEST_P(Fuse, AShortWriteIsCarriedOnOrAnError)
{
    (void)until_untouched("write", "short"); // the kernel returns an error if it had split the request
}

TEST_P(Fuse, ABitFlippedOnTheWayBack)
{
    EXPECT_GT(until_untouched("read", "flip"), 3);
    EXPECT_EQ(ZOFF_ERR_CORRUPT, last);
    EXPECT_NE(std::string::npos, words.find("is not what was written there")) << words;
}

// A bit written wrongly stays wrong. Every step that reads it is refused, and the weights do not change.
TEST_P(Fuse, ABitFlippedOnTheWayThere)
{
    auto info = new_info();
    t.next_step();
    t.backward_all(0.1f);
    fs.set("write 2 flip");
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    fs.set("none");
    reference::step(t.tensors, config_groups(), info.t, 1, 1, 0);
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    t.next_step();
    t.backward_all(0.1f);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "is not what was written there", zoff_step(e.get(), nullptr, &info));
    for (int i = 0; i < 3; i++)
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "is not what was written there", zoff_step_retry(e.get(), &info));
    EXPECT_NE(ZOFF_OUTCOME_AFTER, info.outcome);
}

// The device is gone: from some moment on every transfer fails. No call may hang, each must report the error, and the engine
// can be destroyed.
TEST_P(Fuse, ADeviceThatIsGone)
{
    t.backward_all(0.1f);
    fs.set("write 2+ fail " + std::to_string(EIO));
    auto info = new_info();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", zoff_step(e.get(), nullptr, &info));
    for (int i = 0; i < 3; i++)
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", zoff_step_retry(e.get(), &info));
    float x;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step has failed", zoff_state_read(e.get(), 0, ZOFF_STATE_M, 0, 1, &x));
    e.reset();
}
} // namespace
