/* SPDX-License-Identifier: Apache-2.0 */
// backend_test.cc: the choice of a queue's back-end, and what it does if the kernel refuses something. The tests use child
// processes with fewer rights, like those in containers.
#include "aio_choice.h"

using namespace zoff_test;

namespace
{
class AioChoice : public aio_choice
{
  protected:
    // In a child in which a system call returns `error`, choosing io_uring fails with `words`, and auto warns with them and
    // works.
    std::string without_uring(int error, const std::string &words, long call = SYS_io_uring_setup)
    {
        return in_child([&]() -> std::string {
            if (!forbid_call(call, error))
                return "cannot set a seccomp filter";
            if (open("io_uring") != ZOFF_ERR_UNSUPPORTED)
                return "io_uring was opened";
            std::string message = zoff_last_error();
            if (message.find(words) == message.npos || message.find("io_uring") == message.npos)
                return "message: " + message;
            log_catcher log;
            log.expect("falling back to threads (pread and pwrite by helper threads");
            for (const char *choice : {static_cast<const char *>(nullptr), "auto"}) {
                if (open(choice) != ZOFF_OK)
                    return zoff_last_error();
            }
            if (log.count(words) != 2 || log.warnings.size() != 2)
                return "warnings: " + (log.warnings.empty() ? "none" : log.warnings[0]);
            if (std::string(aio_info(q.get()).backend) != "threads")
                return "not threads";
            std::string wrong = round_trip();
            q.reset();
            return wrong;
        });
    }
};

TEST_F(AioChoice, TakesIoUringWhereItIs)
{
    if (!have_uring())
        GTEST_SKIP() << "no io_uring here";
    log_catcher log;
    ASSERT_ZOFF_OK(open(nullptr));
    EXPECT_STREQ(aio_info(q.get()).backend, "io_uring");
    ASSERT_ZOFF_OK(open("auto"));
    EXPECT_STREQ(aio_info(q.get()).backend, "io_uring");
}

TEST_F(AioChoice, TheEnvironmentDecidesWhatIsLeftOpen)
{
    for (const char *name : {"threads", "posix"}) {
        setenv("ZOFF_AIO", name, 1);
        ASSERT_ZOFF_OK(open(nullptr));
        EXPECT_STREQ(aio_info(q.get()).backend, name);
        ASSERT_ZOFF_OK(open("auto"));
        EXPECT_STREQ(aio_info(q.get()).backend, name);
    }
    if (have_uring()) {
        ASSERT_ZOFF_OK(open("io_uring"));
        EXPECT_STREQ(aio_info(q.get()).backend, "io_uring") << "options go before the environment";
    }
    setenv("ZOFF_AIO", "libaio", 1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "ZOFF_AIO is 'libaio'", open(nullptr));
    unlink(path.c_str());
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "auto, io_uring, threads or posix", open("Posix"));
}

TEST_F(AioChoice, SeccompWithEpermFallsBack)
{
    EXPECT_EQ(without_uring(EPERM, "seccomp"), "");
}

TEST_F(AioChoice, SeccompWithEnosysFallsBack)
{
    EXPECT_EQ(without_uring(ENOSYS, "seccomp"), "");
}

// A ring can be set up, and takes nothing.
TEST_F(AioChoice, EachErrorOfEnteringTheRingFallsBack)
{
    if (!have_uring())
        GTEST_SKIP() << "no io_uring here";
    for (const auto &[error, words] : std::initializer_list<std::pair<int, const char *>>{{EPERM, "seccomp"},
                                                                                          {EACCES, "seccomp"},
                                                                                          {ENOSYS, "seccomp"},
                                                                                          {ENOMEM, "RLIMIT_MEMLOCK"},
                                                                                          {EINVAL, "Invalid argument"}})
        EXPECT_EQ(without_uring(error, words, SYS_io_uring_enter), "") << error;
}

// Without it io_uring works: a queue has no registered file, and its memory is not registered.
TEST_F(AioChoice, ARingThatMayRegisterNothingIsUsed)
{
    if (!have_uring())
        GTEST_SKIP() << "no io_uring here";
    for (int error : {EPERM, ENOSYS, ENOMEM, EINVAL})
        EXPECT_EQ(in_child([&]() -> std::string {
                      if (!forbid_call(SYS_io_uring_register, error))
                          return "cannot set a seccomp filter";
                      if (open(nullptr) != ZOFF_OK || open("io_uring") != ZOFF_OK)
                          return zoff_last_error();
                      const std::string wrong = round_trip();
                      q.reset();
                      return wrong;
                  }),
                  "")
            << error;
}

TEST_F(AioChoice, NoMemoryForTheRingFallsBack)
{
    EXPECT_EQ(without_uring(ENOMEM, "RLIMIT_MEMLOCK"), "");
}

TEST_F(AioChoice, NoDescriptorForTheRingFallsBack)
{
    EXPECT_EQ(without_uring(EMFILE, "Too many open files"), "");
}

// The queue refuses the write: the kernel would also send SIGXFSZ.
TEST_F(AioChoice, WritesBeyondTheFileSizeLimitFail)
{
    for (const char *backend : {"io_uring", "threads", "posix"}) {
        if (!have_uring() && std::string(backend) == "io_uring")
            continue;
        EXPECT_EQ(
            in_child([&]() -> std::string {
                rlimit limit = {1 << 20, 1 << 20};
                aio_buffer buffer(3 << 20, 1), in(1 << 20);
                if (open(backend) != ZOFF_OK)
                    return zoff_last_error();
                signal(SIGXFSZ, SIG_DFL);
                setrlimit(RLIMIT_FSIZE, &limit);
                if (aio_write(q.get(), 0, buffer.data, buffer.bytes) != ZOFF_ERR_IO)
                    return "the write did not fail";
                std::string message = zoff_last_error();
                for (const std::string &words : {std::string("File too large"), path, std::string("3145728 bytes at offset 0")})
                    if (message.find(words) == message.npos)
                        return message;
                if (zoff_aio_reserve(q.get(), 3 << 20) != ZOFF_ERR_NO_SPACE)
                    return "the reservation did not fail";
                if (aio_write(q.get(), 0, buffer.data, 1 << 20) != ZOFF_OK ||
                    aio_read(q.get(), 0, in.data, in.bytes) != ZOFF_OK)
                    return zoff_last_error();
                return memcmp(in.data, buffer.data, in.bytes) == 0 ? "" : "other bytes came back";
            }),
            "")
            << backend;
    }
}
} // namespace
