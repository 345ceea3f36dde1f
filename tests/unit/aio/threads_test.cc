/* SPDX-License-Identifier: Apache-2.0 */
// threads_test.cc: the back-end made of threads: it works while the caller computes, it blocks signals, and it fails cleanly
// without threads.
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>

#include <atomic>
#include <thread>

#include "aio_choice.h"

extern "C" {
#include "aio.h"
ssize_t __real_pwrite(int fd, const void *src, size_t bytes, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset);
}

using namespace zoff_test;

// Writes by threads stand still.
static std::atomic<bool> stands{false};

ssize_t __wrap_pwrite(int fd, const void *src, size_t bytes, off_t offset)
{
    while (stands)
        usleep(100);
    return __real_pwrite(fd, src, bytes, offset);
}

namespace
{
// Count by name: sanitizers have threads, too.
int thread_count()
{
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    while (const dirent *entry = folder ? readdir(folder) : nullptr)
        count += file_content(std::string("/proc/self/task/") + entry->d_name + "/comm") == "zoff-aio\n";
    if (folder)
        closedir(folder);
    return count;
}

class AioThreads : public aio_choice
{
  protected:
    zoff_status open(unsigned depth = 0, const char *backend = "threads", const char *name = nullptr)
    {
        zoff_aio_opts opts = aio_opts(backend);
        opts.depth = depth;
        zoff_aio *raw = nullptr;
        zoff_status status = zoff_aio_open(name ? name : path.c_str(), &opts, &raw);
        q.reset(raw);
        return status;
    }
};

TEST_F(AioThreads, AreAsManyAsThereArePiecesAndAtMost8)
{
    for (auto [depth, threads] : {std::pair<unsigned, int>{1, 1}, {3, 3}, {8, 8}, {200, 8}}) {
        ASSERT_ZOFF_OK(open(depth));
        EXPECT_EQ(thread_count(), threads) << "depth " << depth;
        EXPECT_EQ(round_trip(), "");
        q.reset();
        for (int i = 0; i < 1000 && thread_count() != 0; i++)
            usleep(1000); // the kernel lists a thread for a moment after it is joined
        EXPECT_EQ(thread_count(), 0) << "closing leaves a thread behind";
    }
}

// The caller does not pump, so another thread must have written the bytes in the file.
TEST_F(AioThreads, WorkWhileTheCallerDoesNot)
{
    aio_buffer out(8 << 20, 3);
    uint64_t ticket = 0;
    ASSERT_ZOFF_OK(open());
    ASSERT_ZOFF_OK(zoff_aio_write(q.get(), 0, out.bytes, out.data, &ticket));
    for (int i = 0; i < 10000 && file_bytes(path) < static_cast<off_t>(out.bytes); i++)
        usleep(1000);
    EXPECT_EQ(file_bytes(path), static_cast<off_t>(out.bytes));
    EXPECT_ZOFF_OK(zoff_aio_wait(q.get(), ticket));
}

// One caller submits thousands of small pieces, which all wake a thread, and waits in every possible way.
TEST_F(AioThreads, LoseNoWakeUp)
{
    const size_t pieces = 64, block = 4096;
    zoff_aio_opts opts = aio_opts("threads");
    opts.block_bytes = block;
    aio_buffer memory(pieces * block, 4);
    for (unsigned depth : {1u, 2u, 5u, 64u}) {
        zoff_aio *raw = nullptr;
        opts.depth = depth;
        ASSERT_ZOFF_OK(zoff_aio_open(path.c_str(), &opts, &raw));
        q.reset(raw);
        ASSERT_ZOFF_OK(aio_write(q.get(), 0, memory.data, memory.bytes));
        for (int round = 0; round < 60; round++) {
            uint64_t tickets[4];
            for (size_t i = 0; i < 4; i++)
                ASSERT_ZOFF_OK(zoff_aio_read(q.get(), i * 16 * block, 16 * block, memory.data + i * 16 * block, &tickets[i]));
            zoff_status status;
            ASSERT_ZOFF_OK(zoff_aio_wait(q.get(), tickets[2]));
            while ((status = zoff_aio_poll(q.get(), tickets[0])) == ZOFF_PENDING)
                ASSERT_ZOFF_OK(zoff_aio_wait_any(q.get()));
            ASSERT_ZOFF_OK(status);
            while ((status = zoff_aio_poll(q.get(), tickets[3])) == ZOFF_PENDING) {
            }
            ASSERT_ZOFF_OK(status);
            ASSERT_ZOFF_OK(zoff_aio_wait(q.get(), tickets[1]));
        }
    }
}

// A wait that had no limit ends soon after another thread has set one. It stays in flight, and can be waited for again.
TEST_F(AioThreads, ALimitFromAnotherThreadEndsAWait)
{
    aio_buffer out(4096, 3);
    uint64_t ticket = 0;
    zoff_status status = ZOFF_OK;
    ASSERT_ZOFF_OK(open());
    stands = true;
    EXPECT_ZOFF_OK(zoff_aio_write(q.get(), 0, out.bytes, out.data, &ticket));
    std::thread waits([&] { status = zoff_aio_wait(q.get(), ticket); });
    usleep(10000); // usually it waits by now; if not, it meets the limit at once
    zoff_aio_queue_limit(q.get(), 0.05);
    waits.join();
    EXPECT_EQ(ZOFF_PENDING, status);
    stands = false;
    zoff_aio_queue_limit(q.get(), -1);
    EXPECT_ZOFF_OK(zoff_aio_wait(q.get(), ticket));
}

// A signal to the process is for the program's threads, even if all of them block it.
TEST_F(AioThreads, TakeNoSignals)
{
    static std::atomic<int> taken{0};
    ASSERT_ZOFF_OK(open());
    struct sigaction action = {}, before;
    action.sa_handler = [](int) { taken++; };
    ASSERT_EQ(sigaction(SIGUSR1, &action, &before), 0);
    sigset_t usr1, mask;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    ASSERT_EQ(pthread_sigmask(SIG_BLOCK, &usr1, &mask), 0);
    ASSERT_EQ(kill(getpid(), SIGUSR1), 0);
    EXPECT_EQ(round_trip(), "");
    usleep(50000);
    EXPECT_EQ(taken, 0) << "a helper has run the program's handler";
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    EXPECT_EQ(taken, 1) << "opening a queue has changed the caller's own mask";
    sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(AioThreads, FallBackToPosixWhereThereAreNone)
{
    EXPECT_EQ(in_child([&]() -> std::string {
                  if (!forbid_call(SYS_io_uring_setup, EPERM) || !forbid_call(SYS_clone3, EAGAIN) ||
                      !forbid_call(SYS_clone, EAGAIN))
                      return "cannot set a seccomp filter";
                  if (open() != ZOFF_ERR_UNSUPPORTED)
                      return "threads were started";
                  std::string message = zoff_last_error();
                  for (const char *words : {"asks for threads", "Resource temporarily unavailable", "RLIMIT_NPROC"})
                      if (message.find(words) == message.npos)
                          return "message: " + message;
                  log_catcher log;
                  log.expect("seccomp");
                  log.expect("falling back to threads");
                  log.expect("threads for I/O cannot be started: Resource temporarily unavailable");
                  log.expect("falling back to posix (pread and pwrite by the caller");
                  if (open(0, nullptr) != ZOFF_OK)
                      return zoff_last_error();
                  if (log.warnings.size() != 2)
                      return std::to_string(log.warnings.size()) + " warnings";
                  if (std::string(aio_info(q.get()).backend) != "posix")
                      return "not posix";
                  std::string wrong = round_trip();
                  q.reset();
                  return wrong;
              }),
              "");
}

// A limit with room for some threads. The test runs as a user of its own: root has no limit, and other users have processes.
TEST_F(AioThreads, MakeDoWithFewer)
{
    if (geteuid() != 0)
        GTEST_SKIP() << "becoming a user with few processes needs root";
    EXPECT_EQ(in_child([&]() -> std::string {
                  rlimit limit = {4, 4}; // this process and three threads
                  if (chmod(folder.path.c_str(), 0777) != 0 || chdir(folder.path.c_str()) != 0 ||
                      setrlimit(RLIMIT_NPROC, &limit) != 0 || setuid(54321) != 0)
                      return "cannot prepare";
                  log_catcher log;
                  log.expect(" of 8 threads for I/O could be started: Resource temporarily unavailable");
                  if (open(0, "threads", "file") != ZOFF_OK)
                      return zoff_last_error();
                  if (log.warnings.size() != 1)
                      return std::to_string(log.warnings.size()) + " warnings";
                  std::string wrong = round_trip();
                  q.reset();
                  return wrong;
              }),
              "");
}

// A child of fork() has the queue without its threads and its ring. Calls are refused, closing waits for nobody, and the parent
// does not notice.
TEST_F(AioThreads, ForkedChildIsRefusedAndTheParentContinues)
{
    for (const char *backend : {"io_uring", "threads", "posix"}) {
        SCOPED_TRACE(backend);
        zoff_status status = open(0, backend);
        if (status == ZOFF_ERR_UNSUPPORTED)
            continue; // io_uring is forbidden here
        ASSERT_ZOFF_OK(status);
        aio_buffer out(32 << 20, 5), in(32 << 20);
        uint64_t ticket = 0;
        ASSERT_ZOFF_OK(zoff_aio_register(q.get(), out.data, out.bytes));
        ASSERT_ZOFF_OK(zoff_aio_write(q.get(), 0, out.bytes, out.data, &ticket));
        EXPECT_EQ(in_child([&]() -> std::string {
                      uint64_t other = 0;
                      const zoff_status results[] = {zoff_aio_poll(q.get(), ticket),
                                                     zoff_aio_wait(q.get(), ticket),
                                                     zoff_aio_wait_any(q.get()),
                                                     zoff_aio_pump(q.get()),
                                                     zoff_aio_reserve(q.get(), 1),
                                                     zoff_aio_register(q.get(), in.data, 4096),
                                                     zoff_aio_read(q.get(), 0, 4096, in.data, &other)};
                      for (zoff_status result : results)
                          if (result != ZOFF_ERR_STATE ||
                              std::string(zoff_last_error()).find("opened before fork()") == std::string::npos)
                              return std::to_string(result) + ": " + zoff_last_error();
                      q.reset();
                      /* A file of its own: the parent's write is still in flight. */
                      return open(0, backend, folder.file("of_child").c_str()) == ZOFF_OK ? round_trip()
                                                                                          : "no queue of its own";
                  }),
                  "");
        ASSERT_ZOFF_OK(zoff_aio_wait(q.get(), ticket));
        ASSERT_ZOFF_OK(aio_write(q.get(), 0, out.data, out.bytes));
        ASSERT_ZOFF_OK(aio_read(q.get(), 0, in.data, in.bytes));
        EXPECT_TRUE(in == out);
        q.reset();
    }
}
} // namespace
