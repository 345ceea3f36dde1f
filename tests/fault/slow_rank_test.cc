/* SPDX-License-Identifier: Apache-2.0 */
// slow_rank_test.cc: the drive of one rank takes longer than timeout_seconds to write the first states. The other ranks must
// wait while that rank makes progress. A rank that stops must still be detected.
#include "aio_fault.h"
#include "rank_job.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>

using namespace zoff_test;

namespace
{
thread_local double seconds_a_write = 0;

void nap(double seconds)
{
    usleep((useconds_t)(seconds * 1e6));
}

struct slow_drives {
    slow_drives()
    {
        fault.result = [](int, int res, bool writes, uint64_t, size_t) {
            if (writes)
                nap(seconds_a_write);
            return res;
        };
    }
    aio_fault fault;
};

std::string config_text(const std::string &folder, bool persist)
{
    return std::string("{\"zoff\": {\"io_backend\": \"posix\", \"persist\": ") + (persist ? "true" : "false") +
           "}, \"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" + folder +
           "\", \"buffer_count\": 3}}}";
}

void fill(trainer &t)
{
    t.add(60000, 1, ZOFF_F32, ZOFF_F32);
}

// The seconds that two ranks need to seal an engine of 30 chunks, half of them each; -1: seal failed.
double seal_seconds(bool persist, double timeout, double slow)
{
    slow_drives drives;
    scratch_folder folder;
    log_catcher log;
    rank_job job(2, timeout);
    rank_trainers all(job, 5, fill);
    double seconds = 0;
    std::atomic<bool> failed{false};
    job.on_each([&](unsigned rank) {
        seconds_a_write = rank == 1 ? slow : 0;
        const auto from = std::chrono::steady_clock::now();
        all.engines[rank] = make_engine(*all.trainers[rank], config_text(folder.path, persist), 2048, 0, job.comm_of(rank));
        const zoff_status status = zoff_engine_seal(all.engines[rank].get());
        EXPECT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_COMM) << zoff_last_error();
        failed = failed || status < 0;
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - from;
        if (rank == 0)
            seconds = took.count();
        seconds_a_write = 0;
    });
    return failed ? -1 : seconds;
}

TEST(SlowRank, WritingDoesNotCountAgainstTheTimeout)
{
    for (const bool persist : {false, true}) {
        // A flush on a busy drive reports no progress, sometimes for longer than the deadline. Then a longer deadline is tried.
        // Each write takes a tenth of the deadline, so every deadline would be missed if writing counted.
        double timeout = std::max(0.5, 10 * seal_seconds(persist, 60, 0));
        double took = seal_seconds(persist, timeout, timeout / 10);
        for (int tries = 1; took < 0 && tries < 3; tries++) {
            timeout *= 4;
            took = seal_seconds(persist, timeout, timeout / 10);
        }
        EXPECT_LT(timeout, took) << zoff_last_error();
    }
}

// The rank stops in the middle of writing, for longer than the timeout.
TEST(SlowRank, OneThatStopsIsFoundOut)
{
    slow_drives drives;
    scratch_folder folder;
    log_catcher log;
    rank_job job(2, 0.25);
    rank_trainers all(job, 5, fill);
    job.on_each([&](unsigned rank) {
        seconds_a_write = rank == 1 ? 0.4 : 0;
        all.engines[rank] = make_engine(*all.trainers[rank], config_text(folder.path, true), 30000, 0, job.comm_of(rank));
        EXPECT_EQ(ZOFF_ERR_COMM, zoff_engine_seal(all.engines[rank].get()));
        if (rank == 0) {
            EXPECT_NE(nullptr, strstr(zoff_last_error(), "rank 1 of 2 did not arrive")) << zoff_last_error();
        }
        all.engines[rank].reset();
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

// One rank fails in the middle. All ranks must get an error, and none may leave a file.
TEST(SlowRank, OneThatFailsLeavesNoFileOnAny)
{
    aio_fault fault;
    scratch_folder folder;
    log_catcher log;
    rank_job job(3, 20);
    rank_trainers all(job, 5, fill);
    fault.result = [](int, int res, bool writes, uint64_t, size_t) { return writes && seconds_a_write > 0 ? -ENOSPC : res; };
    job.on_each([&](unsigned rank) {
        seconds_a_write = rank == 2;
        all.engines[rank] = make_engine(*all.trainers[rank], config_text(folder.path, true), 2048, 0, job.comm_of(rank));
        EXPECT_GT(0, zoff_engine_seal(all.engines[rank].get()));
        if (rank != 2) {
            EXPECT_NE(nullptr, strstr(zoff_last_error(), "rank 2 has failed")) << zoff_last_error();
        }
        seconds_a_write = 0;
    });
    EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

double cpu_seconds()
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// A rank that waits for another one must sleep, so that others can use its core. In the second round there is only one element,
// so rank 1 has no bucket.
TEST(SlowRank, OthersSleepWhileTheyWait)
{
    for (const bool frozen : {false, true}) {
        SCOPED_TRACE(frozen ? "frozen" : "trained");
        log_catcher log;
        rank_job job(2);
        rank_trainers all(job, 5, [&](trainer &t) { t.add(60000, 1, ZOFF_F32, ZOFF_F32, 0, frozen); });
        all.seal("{\"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": \"cpu\"}}}", 2048);
        if (!frozen)
            all.backward(0, 1);
        job.on_each([&](unsigned rank) {
            if (rank == 0)
                nap(0.5);
            zoff_step_info info = {};
            info.struct_size = sizeof info;
            if (!frozen)
                all.trainers[rank]->hand_over_all(all.engines[rank].get());
            const double from = cpu_seconds();
            EXPECT_ZOFF_OK(zoff_step_begin(all.engines[rank].get(), nullptr));
            EXPECT_ZOFF_OK(zoff_step_wait(all.engines[rank].get(), &info));
            EXPECT_GT(0.2, cpu_seconds() - from);
            if (rank == 1) {
                EXPECT_LT(0.3, info.seconds.comm_wait) << "rank 0 was not slow enough";
            }
        });
        all.forget();
    }
}
} // namespace
