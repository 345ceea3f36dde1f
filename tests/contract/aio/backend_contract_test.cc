/* SPDX-License-Identifier: Apache-2.0 */
// backend_contract_test.cc: checks the guarantees of a queue on every back-end, through the page cache and with O_DIRECT.
#include <sys/syscall.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>
#include <tuple>

#include "aio_place.h"

using namespace zoff_test;

namespace
{
class AioBackend : public testing::TestWithParam<std::tuple<std::string, zoff_aio_direct>>
{
  protected:
    void SetUp() override
    {
        backend = std::get<0>(GetParam());
        opts = aio_opts(backend.c_str(), std::get<1>(GetParam()));
        zoff_aio *raw = nullptr;
        zoff_status status = zoff_aio_open(path.c_str(), &opts, &raw);
        if (status == ZOFF_ERR_UNSUPPORTED)
            GTEST_SKIP() << zoff_last_error();
        ASSERT_ZOFF_OK(status);
        q.reset(raw);
    }
    aio reopen(zoff_aio_opts changed)
    {
        zoff_aio *raw = nullptr;
        EXPECT_ZOFF_OK(zoff_aio_open(path.c_str(), &changed, &raw));
        return aio(raw);
    }
    scratch_folder folder;
    std::string path = folder.file("file");
    std::string backend;
    zoff_aio_opts opts;
    aio q;
};

long mapped_mib()
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    EXPECT_TRUE(file && fscanf(file, "%ld", &pages) == 1);
    if (file)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE) >> 20;
}

INSTANTIATE_TEST_SUITE_P(Each, AioBackend,
                         testing::Combine(testing::Values<std::string>("io_uring", "threads", "posix"),
                                          testing::Values(ZOFF_DIRECT_AUTO, ZOFF_DIRECT_OFF)),
                         [](const auto &each) {
                             return std::get<0>(each.param) +
                                    (std::get<1>(each.param) == ZOFF_DIRECT_OFF ? "_buffered" : "_direct");
                         });

TEST_P(AioBackend, TellsWhatItIs)
{
    zoff_aio_info info = aio_info(q.get());
    EXPECT_EQ(info.backend, backend);
    if (opts.direct == ZOFF_DIRECT_OFF) {
        EXPECT_FALSE(info.direct);
        EXPECT_EQ(info.alignment, 1u);
    }
    EXPECT_GE(info.alignment, 1u);
    EXPECT_EQ(info.alignment & (info.alignment - 1), 0u);
    EXPECT_EQ(info.read_bytes + info.write_bytes + info.bounce_bytes + info.resumed_pieces, 0u);
    EXPECT_FALSE(info.registered);
}

TEST_P(AioBackend, RoundTripsAnySizeOffsetAndAddress)
{
    const size_t MiB = 1 << 20;
    const size_t sizes[] = {0, 1, 511, 512, 513, 4095, 4096, 4097, MiB - 1, MiB, MiB + 1, 3 * MiB + 1};
    const uint64_t offsets[] = {0, 1, 512, 4096, 12345};
    const size_t skews[] = {0, 1, 512};
    std::string model;
    unsigned seed = 0;
    for (size_t size : sizes) {
        for (uint64_t offset : offsets) {
            for (size_t skew : skews) {
                SCOPED_TRACE(testing::Message() << size << " bytes at " << offset << ", address + " << skew);
                aio_buffer out(size, ++seed, skew), in(size, 0, skew);
                const bool lengthens = offset + size > model.size();
                const uint64_t resumed = aio_info(q.get()).resumed_pieces;
                ASSERT_ZOFF_OK(aio_write(q.get(), offset, out.data, size));
                // The block at the old end of the file may be read while later pieces of the same write extend the file. That
                // read is short and repeated. No other piece is ever resumed.
                ASSERT_LE(aio_info(q.get()).resumed_pieces, resumed + lengthens);
                const uint64_t after = aio_info(q.get()).resumed_pieces;
                if (size) {
                    model.resize(std::max(model.size(), static_cast<size_t>(offset) + size));
                    model.replace(offset, size, reinterpret_cast<const char *>(out.data), size);
                }
                ASSERT_EQ(file_bytes(path), static_cast<off_t>(model.size()));
                ASSERT_ZOFF_OK(aio_read(q.get(), offset, in.data, size));
                ASSERT_TRUE(in == out);
                ASSERT_EQ(after, aio_info(q.get()).resumed_pieces);
            }
        }
    }
    EXPECT_TRUE(file_content(path) == model);
    zoff_aio_info info = aio_info(q.get());
    EXPECT_EQ(info.read_bytes, info.write_bytes);
    EXPECT_EQ(info.read_bytes, 15 * std::accumulate(std::begin(sizes), std::end(sizes), uint64_t(0)));
    EXPECT_EQ(info.bounce_bytes > 0, info.direct);
}

TEST_P(AioBackend, AlignedRequestsAreNotCopied)
{
    size_t unit = std::max<size_t>(aio_info(q.get()).alignment, 4096);
    aio_buffer out(unit * 700, 1), in(unit * 700);
    ASSERT_ZOFF_OK(aio_write(q.get(), unit * 3, out.data, out.bytes));
    ASSERT_ZOFF_OK(aio_read(q.get(), unit * 3, in.data, in.bytes));
    EXPECT_TRUE(in == out);
    EXPECT_EQ(aio_info(q.get()).bounce_bytes, 0u);
}

// Requests whose ranges do not overlap are independent, even if they share blocks. No other byte of the file may change.
TEST_P(AioBackend, DisjointRequestsInFlightTogetherMatchAModel)
{
    std::mt19937 random(20240607);
    std::string model;
    auto cut = [&](size_t end) {
        std::vector<std::pair<size_t, size_t>> ranges; // offset, bytes
        for (size_t at = random() % 700; at < end;) {
            size_t bytes = 1 + random() % (random() % 4 ? 900 : 20000);
            if (random() % 3)
                ranges.push_back({at, bytes});
            at += bytes + (random() % 2 ? random() % 600 : 0);
        }
        std::shuffle(ranges.begin(), ranges.end(), random);
        return ranges;
    };
    zoff_aio_opts small = opts;
    small.block_bytes = 8192;
    small.depth = 7;
    aio queue = reopen(small);
    for (int round = 0; round < 60; round++) {
        std::vector<std::unique_ptr<aio_buffer>> buffers;
        std::vector<uint64_t> tickets;
        for (auto [offset, bytes] : cut(1 + random() % 100000)) {
            uint64_t ticket = 0;
            buffers.push_back(std::make_unique<aio_buffer>(bytes, random(), random() % 3 * 256));
            ASSERT_ZOFF_OK(zoff_aio_write(queue.get(), offset, bytes, buffers.back()->data, &ticket));
            tickets.push_back(ticket);
            model.resize(std::max(model.size(), offset + bytes));
            model.replace(offset, bytes, reinterpret_cast<const char *>(buffers.back()->data), bytes);
        }
        for (uint64_t ticket : tickets)
            ASSERT_ZOFF_OK(zoff_aio_wait(queue.get(), ticket));
        ASSERT_TRUE(file_content(path) == model) << "round " << round;
        buffers.clear();
        tickets.clear();
        std::vector<std::pair<size_t, size_t>> reads = cut(model.size());
        for (auto &[offset, bytes] : reads) {
            uint64_t ticket = 0;
            bytes = std::min(bytes, model.size() - offset);
            buffers.push_back(std::make_unique<aio_buffer>(bytes, 0, random() % 3 * 256));
            ASSERT_ZOFF_OK(zoff_aio_read(queue.get(), offset, bytes, buffers.back()->data, &ticket));
            tickets.push_back(ticket);
        }
        for (size_t i = 0; i < reads.size(); i++) {
            ASSERT_ZOFF_OK(zoff_aio_wait(queue.get(), tickets[i]));
            ASSERT_EQ(memcmp(buffers[i]->data, model.data() + reads[i].first, reads[i].second), 0) << "round " << round;
        }
    }
}

TEST_P(AioBackend, ReadsAndWritesFarInASparseFile)
{
    const uint64_t far = (uint64_t(5) << 30) + 512;
    aio_buffer out((1 << 20) + 3, 9), in((1 << 20) + 3), hole(4096), zeros(4096);
    memset(zeros.data, 0, zeros.bytes);
    ASSERT_ZOFF_OK(aio_write(q.get(), far, out.data, out.bytes));
    ASSERT_ZOFF_OK(aio_read(q.get(), far, in.data, in.bytes));
    EXPECT_TRUE(in == out);
    EXPECT_EQ(static_cast<uint64_t>(file_bytes(path)), far + out.bytes);
    ASSERT_ZOFF_OK(aio_read(q.get(), uint64_t(4) << 30, hole.data, hole.bytes));
    EXPECT_TRUE(hole == zeros);
}

// One request of more than 4 GiB, into 5 GiB of addresses that map the same 2 MiB repeatedly.
TEST_P(AioBackend, MovesMoreThan4GiBInOneRequest)
{
    if (!aio_info(q.get()).direct)
        GTEST_SKIP() << "would fill the page cache with 5 GiB of zeros";
    const size_t bytes = size_t(5) << 30, window = 2 << 20;
    int memory = static_cast<int>(syscall(SYS_memfd_create, "zoff-test", 0u));
    ASSERT_GE(memory, 0);
    ASSERT_EQ(ftruncate(memory, window), 0);
    auto base = static_cast<char *>(mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ASSERT_NE(base, MAP_FAILED);
    for (size_t at = 0; at < bytes; at += window)
        ASSERT_NE(mmap(base + at, window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0), MAP_FAILED);
    memset(base, 1, window);
    ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(bytes)), 0);
    EXPECT_ZOFF_OK(aio_read(q.get(), 0, base, bytes));
    EXPECT_EQ(aio_info(q.get()).read_bytes, bytes);
    EXPECT_EQ(std::count(base, base + window, 0), static_cast<long>(window));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "the file ends at 5368709120", aio_read(q.get(), 4096, base, bytes));
    munmap(base, bytes);
    close(memory);
}

TEST_P(AioBackend, ManyRequestsFinishInAnyOrder)
{
    const size_t count = 300, bytes = 20000;
    aio_buffer out(count * bytes, 3), in(count * bytes);
    std::vector<uint64_t> tickets(2 * count);
    std::vector<size_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(1));
    for (size_t i = 0; i < count; i++)
        ASSERT_ZOFF_OK(zoff_aio_write(q.get(), i * bytes, bytes, out.data + i * bytes, &tickets[i]));
    for (size_t i : order)
        ASSERT_ZOFF_OK(zoff_aio_wait(q.get(), tickets[i]));
    for (size_t i = 0; i < count; i++) // reads and writes in flight together, on separate halves
        ASSERT_ZOFF_OK(i % 2 ? zoff_aio_read(q.get(), i * bytes, bytes, in.data + i * bytes, &tickets[i])
                             : zoff_aio_write(q.get(), i * bytes, bytes, out.data + i * bytes, &tickets[i]));
    for (size_t i : order) {
        zoff_status status;
        while ((status = zoff_aio_poll(q.get(), tickets[i])) == ZOFF_PENDING)
            ASSERT_ZOFF_OK(zoff_aio_wait_any(q.get()));
        ASSERT_ZOFF_OK(status);
    }
    for (size_t i = 1; i < count; i += 2)
        ASSERT_EQ(memcmp(in.data + i * bytes, out.data + i * bytes, bytes), 0) << i;
}

TEST_P(AioBackend, PollingAloneFinishes)
{
    aio_buffer out(5000001, 4), in(5000001);
    uint64_t ticket = 0;
    zoff_status status;
    ASSERT_ZOFF_OK(zoff_aio_write(q.get(), 0, out.bytes, out.data, &ticket));
    while ((status = zoff_aio_poll(q.get(), ticket)) == ZOFF_PENDING) {
    }
    ASSERT_ZOFF_OK(status);
    ASSERT_ZOFF_OK(zoff_aio_read(q.get(), 0, in.bytes, in.data, &ticket));
    for (int i = 0; i < 100000 && aio_info(q.get()).read_bytes < in.bytes; i++) {
        ASSERT_ZOFF_OK(zoff_aio_pump(q.get()));
        usleep(10);
    }
    EXPECT_EQ(zoff_aio_poll(q.get(), ticket), ZOFF_OK);
    EXPECT_TRUE(in == out);
}

TEST_P(AioBackend, TicketsEndOnce)
{
    aio_buffer buffer(4096, 5);
    uint64_t first = 0, second = 0;
    ASSERT_ZOFF_OK(zoff_aio_write(q.get(), 0, 4096, buffer.data, &first));
    ASSERT_ZOFF_OK(zoff_aio_wait(q.get(), first));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "given already", zoff_aio_wait(q.get(), first));
    ASSERT_ZOFF_OK(zoff_aio_read(q.get(), 0, 4096, buffer.data, &second));
    EXPECT_NE(first, second);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "ticket", zoff_aio_poll(q.get(), first));
    EXPECT_EQ(zoff_aio_poll(q.get(), 0), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_wait(q.get(), UINT64_MAX), ZOFF_ERR_INVALID);
    aio other = reopen(opts); // the other queue has its own tickets, in the same slots
    uint64_t theirs = 0;
    ASSERT_ZOFF_OK(aio_read(other.get(), 0, buffer.data, 1));
    ASSERT_ZOFF_OK(zoff_aio_read(other.get(), 0, 1, buffer.data, &theirs));
    EXPECT_EQ(zoff_aio_wait(other.get(), second), ZOFF_ERR_INVALID);
    EXPECT_ZOFF_OK(zoff_aio_wait(other.get(), theirs));
    EXPECT_ZOFF_OK(zoff_aio_wait(q.get(), second));
}

TEST_P(AioBackend, NothingToDoIsDoneAtOnce)
{
    uint64_t ticket = 0;
    EXPECT_ZOFF_OK(zoff_aio_wait_any(q.get()));
    EXPECT_ZOFF_OK(zoff_aio_pump(q.get()));
    ASSERT_ZOFF_OK(zoff_aio_read(q.get(), 12345, 0, nullptr, &ticket));
    EXPECT_EQ(zoff_aio_poll(q.get(), ticket), ZOFF_OK);
    ASSERT_ZOFF_OK(zoff_aio_write(q.get(), 1 << 20, 0, nullptr, &ticket));
    EXPECT_ZOFF_OK(zoff_aio_wait(q.get(), ticket));
    EXPECT_EQ(file_bytes(path), 0);
}

TEST_P(AioBackend, ReadingPastTheEndSaysWhereItIs)
{
    aio_buffer buffer(10000, 6);
    ASSERT_ZOFF_OK(aio_write(q.get(), 0, buffer.data, 5000));
    EXPECT_ZOFF_OK(aio_read(q.get(), 4096, buffer.data, 904));
    EXPECT_ZOFF_OK(aio_read(q.get(), 1, buffer.data, 4999));
    for (auto [offset, bytes] :
         {std::pair<uint64_t, size_t>{0, 8192}, {0, 5001}, {4096, 905}, {4999, 2}, {5000, 1}, {9000, 1}, {8192, 4096}}) {
        SCOPED_TRACE(testing::Message() << bytes << " at " << offset);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "the file ends at 5000", aio_read(q.get(), offset, buffer.data, bytes));
    }
    EXPECT_NE(std::string(zoff_last_error()).find(path), std::string::npos);
    EXPECT_ZOFF_OK(aio_read(q.get(), 0, buffer.data, 5000)) << "the queue still works after an error";
}

TEST_P(AioBackend, WrongArgumentsAreRefused)
{
    char byte = 0;
    uint64_t ticket = 0;
    EXPECT_EQ(zoff_aio_read(nullptr, 0, 1, &byte, &ticket), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_read(q.get(), 0, 1, nullptr, &ticket), ZOFF_ERR_INVALID);
    EXPECT_EQ(zoff_aio_write(q.get(), 0, 1, &byte, nullptr), ZOFF_ERR_INVALID);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "largest offset", zoff_aio_write(q.get(), INT64_MAX, 1, &byte, &ticket));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "largest offset", zoff_aio_write(q.get(), UINT64_MAX, 2, &byte, &ticket));
    zoff_aio_opts reading = opts;
    reading.writable = reading.create = false;
    aio reader = reopen(reading);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "opened for reading", zoff_aio_write(reader.get(), 0, 1, &byte, &ticket));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "opened for reading", zoff_aio_reserve(reader.get(), 1));
}

TEST_P(AioBackend, RegisteredMemoryGivesTheSameBytes)
{
    const size_t bytes = 8 << 20;
    auto base = static_cast<char *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    aio_buffer pattern(bytes / 2, 7), outside(bytes / 2);
    memcpy(base, pattern.data, bytes / 2);
    {
        log_catcher log; // a machine with a small limit of locked memory logs a warning
        ASSERT_ZOFF_OK(zoff_aio_register(q.get(), base, bytes));
        if (log.contains("RLIMIT_MEMLOCK"))
            log.expect("RLIMIT_MEMLOCK");
        else
            EXPECT_EQ(aio_info(q.get()).registered, backend == "io_uring");
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "once", zoff_aio_register(q.get(), base, bytes));
    ASSERT_ZOFF_OK(aio_write(q.get(), 4096, base, bytes / 2));
    ASSERT_ZOFF_OK(aio_read(q.get(), 4096, base + bytes / 2, bytes / 2));
    EXPECT_EQ(memcmp(base + bytes / 2, pattern.data, bytes / 2), 0);
    ASSERT_ZOFF_OK(aio_read(q.get(), 4096, outside.data, bytes / 2));
    EXPECT_TRUE(outside == pattern);
    q.reset();
    munmap(base, bytes);
}

// The kernel registers memory in buffers of 1 GiB. A transfer across two of them must work like any other.
TEST_P(AioBackend, RegisteredMemoryOfMoreThan1GiBHasNoSeam)
{
    const size_t GiB = 1 << 30, window = 2 << 20, bytes = GiB + window;
    if (backend != "io_uring" || !aio_info(q.get()).direct)
        GTEST_SKIP() << "only io_uring registers memory";
    int memory = static_cast<int>(syscall(SYS_memfd_create, "zoff-test", 0u));
    auto base = static_cast<char *>(mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ASSERT_TRUE(memory >= 0 && base != MAP_FAILED && ftruncate(memory, window) == 0);
    for (size_t at = 0; at < bytes; at += window)
        ASSERT_NE(mmap(base + at, window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, 0), MAP_FAILED);
    log_catcher log;
    ASSERT_ZOFF_OK(zoff_aio_register(q.get(), base, bytes));
    bool registered = aio_info(q.get()).registered;
    if (!registered)
        log.expect("is not registered with io_uring");
    aio_buffer out(4096 * 3, 1), in(4096 * 3);
    memcpy(base + GiB - 4096, out.data, out.bytes);
    ASSERT_ZOFF_OK(aio_write(q.get(), 0, base + GiB - 4096, out.bytes));
    ASSERT_ZOFF_OK(aio_write(q.get(), 1 << 20, base + bytes - 8192, 8192));
    memset(base, 0, window);
    ASSERT_ZOFF_OK(aio_read(q.get(), 0, base + GiB - 4096, in.bytes));
    memcpy(in.data, base + GiB - 4096, in.bytes);
    EXPECT_TRUE(in == out);
    q.reset();
    munmap(base, bytes);
    close(memory);
    if (!registered)
        GTEST_SKIP() << "not enough locked memory to register 1 GiB";
}

TEST_P(AioBackend, TwoQueuesShareAFile)
{
    aio other = reopen(opts);
    // Use whole blocks: two queues that extend one file by odd lengths at the same time are not protected from each other
    // (bounce.c).
    const size_t bytes = 75 * 4096;
    aio_buffer a(bytes, 1), b(bytes, 2), in(bytes);
    uint64_t first = 0, second = 0;
    ASSERT_ZOFF_OK(zoff_aio_write(q.get(), 0, a.bytes, a.data, &first));
    ASSERT_ZOFF_OK(zoff_aio_write(other.get(), 1 << 20, b.bytes, b.data, &second));
    ASSERT_ZOFF_OK(zoff_aio_wait(q.get(), first));
    ASSERT_ZOFF_OK(zoff_aio_wait(other.get(), second));
    ASSERT_ZOFF_OK(aio_read(q.get(), 1 << 20, in.data, in.bytes));
    EXPECT_TRUE(in == b);
    ASSERT_ZOFF_OK(aio_read(other.get(), 0, in.data, in.bytes));
    EXPECT_TRUE(in == a);
    EXPECT_EQ(file_bytes(path), (1 << 20) + 75 * 4096);
}

TEST_P(AioBackend, ThreadsMayTakeTurns)
{
    aio_buffer out(3 << 20, 8), in(3 << 20);
    uint64_t tickets[20];
    for (int round = 0; round < 10; round++) { // each request is started by a thread that ends before another thread waits
        std::thread([&] { ASSERT_ZOFF_OK(zoff_aio_write(q.get(), 0, out.bytes, out.data, &tickets[0])); }).join();
        std::thread([&] { ASSERT_ZOFF_OK(zoff_aio_wait(q.get(), tickets[0])); }).join();
        memset(in.data, 0, in.bytes);
        std::thread([&] { ASSERT_ZOFF_OK(zoff_aio_read(q.get(), 0, in.bytes, in.data, &tickets[1])); }).join();
        ASSERT_ZOFF_OK(zoff_aio_wait(q.get(), tickets[1]));
        ASSERT_TRUE(in == out);
    }
    std::thread idle([&] { // a thread that stays alive and only computes
        ASSERT_ZOFF_OK(zoff_aio_read(q.get(), 0, in.bytes, in.data, &tickets[2]));
        std::thread([&] { EXPECT_ZOFF_OK(zoff_aio_wait(q.get(), tickets[2])); }).join();
    });
    idle.join();
}

TEST_P(AioBackend, ClosingFinishesWhatWasBegunAndLeavesNothingOpen)
{
    aio_buffer out(3000001, 9);
    uint64_t ticket = 0;
    q.reset();
    int before = open_descriptors();
    long mapped = mapped_mib();
    for (int i = 0; i < 20; i++) {
        aio queue = reopen(opts);
        ASSERT_ZOFF_OK(zoff_aio_write(queue.get(), 0, out.bytes, out.data, &ticket));
    }
    EXPECT_EQ(open_descriptors(), before);
    EXPECT_LT(mapped_mib(), mapped + 100);
    EXPECT_EQ(file_content(path), std::string(reinterpret_cast<char *>(out.data), out.bytes));
    zoff_aio_close(nullptr);
}

TEST_P(AioBackend, ReservedRoomIsThere)
{
    ASSERT_ZOFF_OK(zoff_aio_reserve(q.get(), (3 << 20) + 5));
    struct stat st;
    ASSERT_EQ(stat(path.c_str(), &st), 0);
    EXPECT_EQ(st.st_size, (3 << 20) + 5);
    EXPECT_GE(st.st_blocks * 512, 3 << 20);
    ASSERT_ZOFF_OK(zoff_aio_reserve(q.get(), 10)) << "never shortens the file";
    EXPECT_EQ(file_bytes(path), (3 << 20) + 5);
    ASSERT_ZOFF_OK(zoff_aio_reserve(q.get(), 0));
}
} // namespace
