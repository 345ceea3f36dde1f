/* SPDX-License-Identifier: Apache-2.0 */
// seal_memory_test.cc: the nth allocation of one rank fails while ranks seal their engines, for n = 1, 2, 3, ... until none
// fails. Every rank must get an error and free all that it allocated.
#include "rank_job.h"

#include <mutex>
#include <set>

extern "C" {
#include "mem.h"
#include "try.h"

zoff_status __real_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer);
zoff_status __wrap_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer);
void __real_zoff_base_mem_free(void *pointer);
void __wrap_zoff_base_mem_free(void *pointer);
}

using namespace zoff_test;

namespace
{
thread_local int left, failed; // left: allocations until one fails, 0: none fails; failed: number of failures

std::mutex lock;
std::set<const void *> taken;

enum { RANKS = 2 };

// Seal with the nth allocation of `rank` failing. Returns the error, or "" if nothing failed.
std::string seal(unsigned rank_that_fails, int n)
{
    std::string words;
    rank_job job(RANKS, 2); // the deadline of the other ranks if the failing rank lacks the memory to tell them why
    rank_trainers all(job, 5, [](trainer &t) { t.add(5000, 2, ZOFF_BF16, ZOFF_BF16); });
    job.on_each([&](unsigned rank) {
        all.engines[rank] =
            make_engine(*all.trainers[rank], "{\"zero_optimization\": {\"stage\": 2}}", 2048, 0, job.comm_of(rank));
        left = rank == rank_that_fails ? n : 0;
        const zoff_status status = zoff_engine_seal(all.engines[rank].get());
        left = 0;
        if (rank == rank_that_fails && failed) {
            words = zoff_last_error();
            EXPECT_TRUE(status == ZOFF_ERR_NO_MEMORY || status == ZOFF_OK) << words; // OK: only a log line was lost
        } else if (status < 0) {
            EXPECT_EQ(ZOFF_ERR_COMM, status) << zoff_last_error();
        }
        failed = 0;
        all.engines[rank].reset();
    });
    return words;
}
} // namespace

TEST(SealMemory, MemoryIsFreed)
{
    log_catcher log;
    ASSERT_EQ("", seal(0, 0));
    const std::set<const void *> before = taken;
    for (unsigned rank = 0; rank < RANKS; rank++) {
        int faults = 0;
        for (std::string words; !(words = seal(rank, faults + 1)).empty() && !HasFailure(); faults++) {
            ASSERT_EQ(before.size(), taken.size()) << "allocation " << faults + 1 << " of rank " << rank << ": " << words;
        }
        EXPECT_LT(20, faults);
    }
}

zoff_status __wrap_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer)
{
    if (left && --left == 0) {
        failed++;
        return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "out of memory: provoked, for %s", what);
    }
    const zoff_status status = __real_zoff_base_mem_alloc(count, bytes, what, out_pointer);
    const std::lock_guard<std::mutex> hold(lock);
    if (status == ZOFF_OK)
        taken.insert(*static_cast<void **>(out_pointer));
    return status;
}

void __wrap_zoff_base_mem_free(void *pointer)
{
    {
        const std::lock_guard<std::mutex> hold(lock);
        taken.erase(pointer);
    }
    __real_zoff_base_mem_free(pointer);
}
