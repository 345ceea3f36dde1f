/* SPDX-License-Identifier: Apache-2.0 */
// threads_test.cc: ranks that are threads copy from each other's memory, so a rank that leaves waits for those that are
// copying.
#include "zoff_test.h"

#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <thread>

extern "C" {
#include "comm.h"
}

using namespace zoff_test;

namespace
{
const size_t BYTES = 16 << 20; // bytes of each rank; a copy takes some milliseconds
enum { RANKS = 3, LEAVES = 2 };

// The pieces of all ranks, and this rank's own, which is unmapped when it leaves.
struct pieces {
    char *own = (char *)mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::vector<char> all = std::vector<char>(RANKS * BYTES, 1);
    pieces() { memset(own, 7, BYTES); }
    ~pieces() { munmap(own, BYTES); }
};

// Rank 2 leaves after this time, and unmaps its memory. The others have all bytes, or get an error.
void run_round(std::chrono::microseconds after)
{
    zoff_comm_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.timeout_seconds = 20;
    zoff_comm *comms[RANKS];
    ASSERT_ZOFF_OK(zoff_comm_open_threads(&opts, RANKS, comms));
    std::vector<std::thread> ranks;
    for (unsigned rank = 0; rank < RANKS; rank++) {
        ranks.emplace_back([&, rank] {
            pieces memory;
            const std::vector<size_t> bytes(RANKS, BYTES);
            zoff_comm_call call = {};
            call.kind = ZOFF_COMM_GATHER;
            call.in = memory.own;
            call.out = memory.all.data();
            call.receive_bytes = bytes.data();
            zoff_comm_work work = {};
            EXPECT_ZOFF_OK(zoff_comm_start(comms[rank], &call, &work));
            if (rank == LEAVES) {
                std::this_thread::sleep_for(after);
                zoff_comm_close(comms[rank]);
                return;
            }
            const zoff_status status = zoff_comm_wait(comms[rank], &work);
            EXPECT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_COMM) << zoff_last_error();
            if (status == ZOFF_OK) {
                EXPECT_EQ(std::string::npos, std::string_view(memory.all.data(), memory.all.size()).find_first_not_of(7));
            }
            zoff_comm_close(comms[rank]);
        });
    }
    for (auto &rank : ranks)
        rank.join();
}
} // namespace

TEST(CommThreads, OneThatLeavesWaitsForThoseThatCopy)
{
    for (int i = 0; i < 12; i++)
        ASSERT_NO_FATAL_FAILURE(run_round(std::chrono::microseconds(700 * i)));
}
