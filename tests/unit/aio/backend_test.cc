// backend_test.cc: which back-end a queue gets, and what it does where the kernel refuses something: in child processes with
// fewer rights, as containers have them.
#include "aio_place.h"

using namespace zoff_test;

namespace
{
class AioChoice : public testing::Test
{
  protected:
    zoff_status open(const char *backend)
    {
        zoff_aio_opts opts = aio_opts(backend);
        zoff_aio *raw = nullptr;
        zoff_status status = zoff_aio_open(path.c_str(), &opts, &raw);
        q.reset(raw);
        return status;
    }
    // "" when a write and a read give the same bytes.
    std::string round_trip()
    {
        aio_buffer out(3000001, 1), in(3000001);
        if (aio_write(q.get(), 5, out.data, out.bytes) != ZOFF_OK || aio_read(q.get(), 5, in.data, in.bytes) != ZOFF_OK)
            return zoff_last_error();
        return in == out ? "" : "other bytes came back";
    }
    static bool have_uring()
    {
        char page[248] = {}; // struct io_uring_params
        long fd = syscall(SYS_io_uring_setup, 4, page);
        if (fd >= 0)
            close(static_cast<int>(fd));
        return fd >= 0;
    }
    // In a child where io_uring_setup gives `error`: explicit choice fails with `words`, auto warns with them and works.
    std::string without_uring(int error, const std::string &words)
    {
        return in_child([&]() -> std::string {
            if (!forbid_call(SYS_io_uring_setup, error))
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
    void SetUp() override { unsetenv("ZOFF_AIO"); }
    void TearDown() override { unsetenv("ZOFF_AIO"); }
    scratch_folder folder;
    std::string path = folder.file("file");
    aio q;
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

TEST_F(AioChoice, NoMemoryForTheRingFallsBack)
{
    EXPECT_EQ(without_uring(ENOMEM, "RLIMIT_MEMLOCK"), "");
}

TEST_F(AioChoice, NoDescriptorForTheRingFallsBack)
{
    EXPECT_EQ(without_uring(EMFILE, "Too many open files"), "");
}

// The ring exists, but the kernel stops taking requests: they fail, nobody hangs.
TEST_F(AioChoice, RingThatTakesNothingFailsItsRequests)
{
    if (!have_uring())
        GTEST_SKIP() << "no io_uring here";
    EXPECT_EQ(in_child([&]() -> std::string {
                  aio_buffer buffer(4 << 20, 1);
                  uint64_t ticket = 0;
                  if (open("io_uring") != ZOFF_OK || aio_write(q.get(), 0, buffer.data, buffer.bytes) != ZOFF_OK)
                      return zoff_last_error();
                  if (!forbid_call(SYS_io_uring_enter, EACCES))
                      return "cannot set a seccomp filter";
                  if (zoff_aio_read(q.get(), 0, buffer.bytes, buffer.data, &ticket) != ZOFF_OK)
                      return zoff_last_error();
                  if (zoff_aio_wait(q.get(), ticket) != ZOFF_ERR_IO ||
                      std::string(zoff_last_error()).find("Permission denied") == std::string::npos)
                      return std::string("after wait: ") + zoff_last_error();
                  zoff_aio_read(q.get(), 0, buffer.bytes, buffer.data, &ticket);
                  if (zoff_aio_poll(q.get(), ticket) != ZOFF_ERR_IO)
                      return "poll did not fail";
                  q.reset();
                  return "";
              }),
              "");
}

// Memory that may not be locked: as nobody, because root may lock what it likes.
std::string register_as_nobody(const std::string &folder, rlim_t soft, rlim_t hard, bool registers, const std::string &warning)
{
    return in_child([&]() -> std::string {
        const size_t bytes = 4 << 20;
        rlimit limit = {soft, hard};
        if (chmod(folder.c_str(), 0777) != 0 || chdir(folder.c_str()) != 0 || setrlimit(RLIMIT_MEMLOCK, &limit) != 0)
            return "cannot prepare";
        if (geteuid() == 0 && setuid(65534) != 0)
            return "cannot become nobody";
        log_catcher log;
        if (!warning.empty())
            log.expect(warning);
        zoff_aio_opts opts = aio_opts("io_uring");
        zoff_aio *raw = nullptr;
        if (zoff_aio_open("file", &opts, &raw) != ZOFF_OK)
            return zoff_last_error();
        aio q(raw);
        aio_buffer out(bytes, 1), in(bytes);
        void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (zoff_aio_register(q.get(), base, bytes) != ZOFF_OK)
            return zoff_last_error();
        if (aio_info(q.get()).registered != registers)
            return registers ? "not registered" : "registered after all";
        if (log.warnings.size() != (warning.empty() ? 0u : 1u))
            return "warnings: " + std::to_string(log.warnings.size());
        if (!warning.empty() && log.count("4194304") != 1)
            return "the warning does not say how much was needed: " + log.warnings[0];
        if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur != soft)
            return "the limit was left changed";
        memcpy(base, out.data, bytes);
        if (aio_write(q.get(), 0, base, bytes) != ZOFF_OK || aio_read(q.get(), 0, in.data, bytes) != ZOFF_OK)
            return zoff_last_error();
        return in == out ? "" : "other bytes came back";
    });
}

TEST_F(AioChoice, LittleLockedMemoryIsAWarning)
{
    if (!have_uring())
        GTEST_SKIP() << "no io_uring here";
    EXPECT_EQ(register_as_nobody(folder.path, 65536, 65536, false, "RLIMIT_MEMLOCK is 65536 bytes"), "");
}

TEST_F(AioChoice, TheSoftLimitOfLockedMemoryIsNoObstacle)
{
    rlimit limit;
    if (!have_uring())
        GTEST_SKIP() << "no io_uring here";
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_max < (6 << 20))
        GTEST_SKIP() << "the hard limit of locked memory is too small";
    EXPECT_EQ(register_as_nobody(folder.path, 65536, limit.rlim_max, true, ""), "");
}

TEST_F(AioChoice, MemoryThatCannotBeRegisteredIsAWarning)
{
    if (!have_uring())
        GTEST_SKIP() << "no io_uring here";
    log_catcher log;
    log.expect("is not registered with io_uring");
    ASSERT_ZOFF_OK(open("io_uring"));
    void *base = mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_ZOFF_OK(zoff_aio_register(q.get(), base, 1 << 20));
    EXPECT_FALSE(aio_info(q.get()).registered);
    EXPECT_EQ(round_trip(), "");
    munmap(base, 1 << 20);
}

// RLIMIT_FSIZE is the cheapest way to a write that fails for real.
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
                signal(SIGXFSZ, SIG_IGN);
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
