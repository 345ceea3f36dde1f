/* SPDX-License-Identifier: Apache-2.0 */
// uring_test.cc: the io_uring back-end: alone, so that a test controls submission and reaping, and in a queue for which the
// kernel refuses the ring or its memory.
#include "aio_choice.h"
#include "aio_fault.h"

extern "C" {
#include "backend_priv.h"
}

using namespace zoff_test;

namespace
{
const zoff_aio_backend &uring = zoff_aio_uring_backend;

class AioUring : public aio_choice
{
  protected:
    void SetUp() override
    {
        aio_choice::SetUp();
        if (!have_uring())
            GTEST_SKIP() << "no io_uring here";
        fd = ::open(folder.file("raw").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ASSERT_GE(fd, 0);
    }
    void TearDown() override
    {
        if (self)
            uring.close(self, false);
        if (fd >= 0)
            ::close(fd);
        aio_choice::TearDown();
    }
    void open_ring(int of, unsigned depth)
    {
        if (self)
            uring.close(self, false);
        self = nullptr;
        ASSERT_ZOFF_OK(uring.open(of, depth, &self));
    }
    // Collect results until there are `count`, by address.
    std::map<const zoff_aio_io *, int> reap(size_t count, size_t at_once = 64)
    {
        std::map<const zoff_aio_io *, int> results;
        zoff_aio_done done[64];
        while (results.size() < count) {
            EXPECT_ZOFF_OK(uring.wait(self, -1));
            const size_t got = uring.reap(self, done, at_once);
            EXPECT_LE(got, at_once);
            for (size_t i = 0; i < got; i++)
                EXPECT_TRUE(results.emplace(done[i].io, done[i].res).second) << "it came back twice";
        }
        return results;
    }
    int move(zoff_aio_io io)
    {
        uring.start(self, &io);
        EXPECT_ZOFF_OK(uring.submit(self));
        return reap(1)[&io];
    }
    int fd = -1;
    void *self = nullptr;
};

TEST_F(AioUring, HandsBackEachTransferOnceHoweverFewAtATime)
{
    const unsigned depth = 16;
    std::vector<char> text(depth), back(depth);
    std::vector<zoff_aio_io> all(depth);
    open_ring(fd, depth);
    for (size_t at_once : {size_t(1), size_t(3), size_t(64)}) {
        for (bool writes : {true, false}) {
            for (size_t i = 0; i < depth; i++) {
                text[i] = static_cast<char>('a' + i + at_once);
                all[i] = {writes, i, 1, writes ? &text[i] : &back[i]};
                uring.start(self, &all[i]);
            }
            EXPECT_ZOFF_OK(uring.submit(self));
            for (const auto &result : reap(depth, at_once))
                EXPECT_EQ(1, result.second);
        }
        EXPECT_EQ(text, back);
        zoff_aio_done none = {};
        EXPECT_EQ(0u, uring.reap(self, &none, 1)) << "nothing is out";
        EXPECT_ZOFF_OK(uring.wait(self, -1)) << "and nobody waits for it";
    }
}

TEST_F(AioUring, TellsWhatTheSystemTells)
{
    char bytes[8] = "1234567";
    open_ring(fd, 2);
    EXPECT_EQ(5, move({true, 0, 5, bytes}));
    EXPECT_EQ(2, move({false, 3, 5, bytes})) << "short, where the file ends";
    EXPECT_EQ(0, move({false, 5, 5, bytes}));
    EXPECT_EQ(-EFAULT, move({false, 0, 5, nullptr}));
    open_ring(-1, 2);
    EXPECT_EQ(-EBADF, move({true, 0, 5, bytes})) << "an error is a result";
}

// A pipe has nothing to read until somebody writes.
TEST_F(AioUring, WaitsNoLongerThanRequested)
{
    int ends[2];
    char byte = 0;
    zoff_aio_done done = {};
    zoff_aio_io read = {false, 0, 1, &byte};
    ASSERT_EQ(0, pipe2(ends, O_CLOEXEC));
    open_ring(ends[0], 1);
    uring.start(self, &read);
    for (double seconds : {0.0, 0.001, 0.02}) {
        EXPECT_ZOFF_OK(uring.wait(self, seconds));
        EXPECT_EQ(0u, uring.reap(self, &done, 1)) << "it came back with nothing";
    }
    ASSERT_EQ(1, write(ends[1], "x", 1));
    EXPECT_EQ(1, reap(1)[&read]);
    EXPECT_EQ('x', byte);
    ::close(ends[0]);
    ::close(ends[1]);
}

// Transfers inside registered memory take another path through the kernel than those outside it or over its ends. The kernel
// refuses one that claims to be inside and is not.
TEST_F(AioUring, RegisteredMemoryHasEnds)
{
    const size_t page = 4096, inside = 2 * page;
    aio_buffer memory(4 * page, 7), back(page, 0);
    unsigned char *base = memory.data + page;
    bool registered = false;
    open_ring(fd, 4);
    EXPECT_ZOFF_OK(uring.register_memory(self, base, inside, &registered));
    if (!registered)
        GTEST_SKIP() << "the kernel registers no memory here";
    const struct {
        unsigned char *from;
        size_t bytes;
    } all[] = {{base, inside},
               {base, 1},
               {base + inside - 1, 1},
               {base + inside, 1},
               {base - 1, 1},
               {base + inside - 1, 2},
               {base - 1, page},
               {base - page, 4 * page},
               {memory.data, page},
               {base + page, page},
               {base, 0},
               {base + 1, inside}};
    for (const auto &range : all) {
        SCOPED_TRACE(testing::Message() << range.bytes << " bytes at " << range.from - base);
        std::vector<unsigned char> want(range.from, range.from + range.bytes), got(range.bytes);
        EXPECT_EQ(static_cast<int>(range.bytes), move({true, 0, range.bytes, range.from}));
        EXPECT_EQ(static_cast<ssize_t>(range.bytes), pread(fd, got.data(), range.bytes, 0));
        EXPECT_EQ(want, got);
        EXPECT_EQ(static_cast<int>(range.bytes), move({false, 0, range.bytes, range.from}));
        EXPECT_EQ(want, std::vector<unsigned char>(range.from, range.from + range.bytes));
    }
}

TEST_F(AioUring, MemoryThatIsNotThereIsAnError)
{
    char memory[64];
    bool registered = false;
    {
        aio_fault fault;
        fault.fail_allocation = 1;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "the io_uring back-end", uring.open(fd, 8, &self));
        EXPECT_EQ(nullptr, self);
    }
    open_ring(fd, 1);
    aio_fault fault;
    fault.fail_allocation = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "the list of registered buffers",
                      uring.register_memory(self, memory, sizeof memory, &registered));
}

// The ring exists, but the kernel accepts no more requests: they fail, and nothing hangs.
TEST_F(AioUring, RingThatTakesNothingFailsItsRequests)
{
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

// Memory that may not be locked. The test runs as nobody, because root may lock everything.
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

TEST_F(AioUring, LittleLockedMemoryIsAWarning)
{
    EXPECT_EQ(register_as_nobody(folder.path, 65536, 65536, false, "RLIMIT_MEMLOCK is 65536 bytes"), "");
}

TEST_F(AioUring, TheSoftLimitOfLockedMemoryIsNoObstacle)
{
    rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_max < (6 << 20))
        GTEST_SKIP() << "the hard limit of locked memory is too small";
    EXPECT_EQ(register_as_nobody(folder.path, 65536, limit.rlim_max, true, ""), "");
}

TEST_F(AioUring, MemoryThatCannotBeRegisteredIsAWarning)
{
    log_catcher log;
    log.expect("is not registered with io_uring");
    ASSERT_ZOFF_OK(open("io_uring"));
    void *base = mmap(nullptr, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_ZOFF_OK(zoff_aio_register(q.get(), base, 1 << 20));
    EXPECT_FALSE(aio_info(q.get()).registered);
    EXPECT_EQ(round_trip(), "");
    munmap(base, 1 << 20);
}
} // namespace
