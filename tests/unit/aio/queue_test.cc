/* SPDX-License-Identifier: Apache-2.0 */
// queue_test.cc: tickets, the pool of requests, and allocations that fail.
#include "aio_fault.h"
#include "aio_place.h"

extern "C" {
#include "aio.h"
#include "trace.h"
}

#include <fcntl.h>
#include <fstream>
#include <unistd.h>

using namespace zoff_test;

namespace
{
TEST(AioQueue, InfoGrowsWithTheStruct)
{
    scratch_folder folder;
    zoff_aio_opts opts = aio_opts("posix");
    zoff_aio *raw = nullptr;
    ASSERT_ZOFF_OK(zoff_aio_open(folder.file("file").c_str(), &opts, &raw));
    aio q(raw);
    zoff_aio_info info;
    memset(&info, 0x55, sizeof info);
    info.struct_size = offsetof(zoff_aio_info, read_bytes);
    ASSERT_ZOFF_OK(zoff_aio_get_info(raw, &info));
    EXPECT_STREQ(info.backend, "posix");
    EXPECT_EQ(info.read_bytes, 0x5555555555555555u) << "written beyond what the caller has";
    EXPECT_EQ(info.struct_size, offsetof(zoff_aio_info, read_bytes));
    info.struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "struct_size", zoff_aio_get_info(raw, &info));
    EXPECT_EQ(zoff_aio_get_info(nullptr, &info), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_get_info(raw, nullptr), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_pump(nullptr), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_wait_any(nullptr), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_wait(nullptr, 1), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_reserve(nullptr, 1), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_register(raw, nullptr, 1), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_register(raw, &info, 0), ZOFF_ERR_INVALID);
}

TEST(AioQueue, TimesAreTakenWhileATraceIsOn)
{
    scratch_folder folder;
    zoff_aio_opts opts = aio_opts("posix");
    zoff_aio *raw = nullptr;
    opts.writable = opts.create = true;
    ASSERT_ZOFF_OK(zoff_aio_open(folder.file("file").c_str(), &opts, &raw));
    aio q(raw);
    std::vector<char> memory(8192);
    for (const bool traced : {false, true}) {
        uint64_t ticket;
        double began = -1, ended = -1;
        zoff_trace_flag = traced;
        const double before = zoff_trace_now();
        ASSERT_ZOFF_OK(zoff_aio_write(raw, 0, memory.size(), memory.data(), &ticket));
        ASSERT_ZOFF_OK(zoff_aio_wait(raw, ticket));
        const double after = zoff_trace_now();
        zoff_trace_flag = false;
        zoff_aio_queue_times(raw, ticket, &began, &ended);
        EXPECT_TRUE(before <= began && began <= ended && ended <= after) << began << " " << ended;
        EXPECT_EQ(traced, began > 0);
    }
}

// Places of the pool are used again; a ticket never is.
TEST(AioQueue, TicketsAreNeverTheSame)
{
    scratch_folder folder;
    zoff_aio_opts opts = aio_opts("posix");
    zoff_aio *raw = nullptr;
    ASSERT_ZOFF_OK(zoff_aio_open(folder.file("file").c_str(), &opts, &raw));
    aio q(raw);
    std::vector<uint64_t> all;
    for (int round = 0; round < 100; round++) {
        std::vector<uint64_t> tickets(70);
        for (uint64_t &ticket : tickets)
            ASSERT_ZOFF_OK(zoff_aio_write(raw, 0, 0, nullptr, &ticket));
        for (uint64_t ticket : tickets)
            ASSERT_ZOFF_OK(zoff_aio_poll(raw, ticket));
        all.insert(all.end(), tickets.begin(), tickets.end());
    }
    for (uint64_t ticket : all)
        ASSERT_EQ(zoff_aio_poll(raw, ticket), ZOFF_ERR_INVALID);
    std::sort(all.begin(), all.end());
    EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
    EXPECT_GT(all[0], 0u);
}

TEST(AioQueue, WaitAnyWaitsForOnePiece)
{
    scratch_folder folder;
    zoff_aio_opts opts = aio_opts("posix");
    opts.block_bytes = 4096;
    zoff_aio *raw = nullptr;
    ASSERT_ZOFF_OK(zoff_aio_open(folder.file("file").c_str(), &opts, &raw));
    aio q(raw);
    aio_buffer buffer(10 * 4096, 1);
    uint64_t ticket;
    ASSERT_ZOFF_OK(zoff_aio_write(raw, 0, buffer.bytes, buffer.data, &ticket));
    for (uint64_t done = 1; done <= 10; done++) {
        ASSERT_ZOFF_OK(zoff_aio_wait_any(raw));
        EXPECT_EQ(aio_info(raw).write_bytes, done * 4096);
    }
    ASSERT_ZOFF_OK(zoff_aio_wait_any(raw));
    EXPECT_EQ(zoff_aio_poll(raw, ticket), ZOFF_OK);
}

// The nth allocation fails, for each n, until the whole life of a queue succeeds. Each error is clear, and nothing stays in
// flight, open or allocated; the address sanitizer checks that.
TEST(AioQueue, OutOfMemoryAnywhere)
{
    for (const char *backend : {"io_uring", "threads", "posix"}) {
        scratch_folder folder;
        std::string path = folder.file("file");
        zoff_aio_opts opts = aio_opts(backend);
        aio_buffer buffer(5000, 1), in(5000);
        int before = open_descriptors();
        bool passed = false;
        for (int failing = 1; !passed; failing++) {
            ASSERT_LT(failing, 30);
            aio_fault fault;
            fault.fail_allocation = failing;
            zoff_aio *raw = nullptr;
            zoff_status status = zoff_aio_open(path.c_str(), &opts, &raw);
            if (status == ZOFF_ERR_UNSUPPORTED)
                break;
            if (status == ZOFF_OK) {
                aio q(raw);
                std::vector<uint64_t> tickets;
                status = zoff_aio_register(raw, buffer.origin, 4096);
                for (int i = 0; i < 200 && status == ZOFF_OK; i++) {
                    uint64_t ticket;
                    status = zoff_aio_write(raw, 1, buffer.bytes, buffer.data, &ticket);
                    if (status == ZOFF_OK)
                        tickets.push_back(ticket);
                }
                passed = status == ZOFF_OK;
                for (uint64_t ticket : tickets)
                    ASSERT_ZOFF_OK(zoff_aio_wait(raw, ticket));
                if (!passed) {
                    EXPECT_EQ(status, ZOFF_ERR_NO_MEMORY) << zoff_last_error();
                    EXPECT_ZOFF_OK(aio_write(raw, 1, buffer.data, buffer.bytes)) << "the queue goes on";
                }
                ASSERT_ZOFF_OK(aio_read(raw, 1, in.data, in.bytes));
                EXPECT_TRUE(in == buffer);
            } else {
                EXPECT_EQ(status, ZOFF_ERR_NO_MEMORY) << zoff_last_error();
                EXPECT_NE(std::string(zoff_last_error()).find("provoked"), std::string::npos);
                EXPECT_EQ(raw, nullptr);
            }
            EXPECT_EQ(open_descriptors(), before) << failing;
        }
    }
}

TEST(AioQueue, PumpingWithNothingToDoMakesNoSystemCall)
{
    EXPECT_EQ(in_child([]() -> std::string {
                  scratch_folder folder;
                  zoff_aio_opts opts = aio_opts(nullptr);
                  zoff_aio *raw = nullptr;
                  char byte = 1;
                  if (zoff_aio_open(folder.file("file").c_str(), &opts, &raw) != ZOFF_OK ||
                      aio_write(raw, 0, &byte, 1) != ZOFF_OK)
                      return zoff_last_error();
                  aio q(raw);
                  if (!forbid_call(SYS_io_uring_enter, EACCES))
                      return "cannot set a seccomp filter";
                  for (int i = 0; i < 1000; i++) {
                      if (zoff_aio_pump(raw) != ZOFF_OK)
                          return zoff_last_error();
                  }
                  return "";
              }),
              "");
}
void fill(const std::string &name, const std::string &text)
{
    std::ofstream(name) << text;
}

std::string text_of(const std::string &name)
{
    std::ifstream in(name);
    return {std::istreambuf_iterator<char>(in), {}};
}

// A user who may write to the folder can give the name to another file between two opens.
TEST(AioQueue, AFileThatHasTakenTheNameIsRefused)
{
    scratch_folder folder;
    const std::string name = folder.file("file"), other = folder.file("other");
    const zoff_aio_opts opts = aio_opts("posix");
    zoff_aio *raw = nullptr;
    const int held = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(held, 0);
    ASSERT_ZOFF_OK(zoff_aio_queue_open(name.c_str(), held, &opts, &raw));
    aio(raw).reset();
    fill(other, "theirs");
    ASSERT_EQ(0, rename(other.c_str(), name.c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "was replaced by another file", zoff_aio_queue_open(name.c_str(), held, &opts, &raw));
    EXPECT_EQ("theirs", text_of(name));
    fill(other, "theirs, too");
    ASSERT_EQ(0, unlink(name.c_str()));
    ASSERT_EQ(0, symlink(other.c_str(), name.c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, name.c_str(), zoff_aio_queue_open(name.c_str(), held, &opts, &raw));
    EXPECT_EQ("theirs, too", text_of(other));
    close(held);
}
} // namespace
