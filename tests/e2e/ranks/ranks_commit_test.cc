/* SPDX-License-Identifier: Apache-2.0 */
// ranks_commit_test.cc: a step of several ranks with persistent states returns when all ranks have recorded it. The test delays
// the record of one rank.
#include "rank_job.h"

#include <atomic>
#include <chrono>
#include <thread>

using namespace zoff_test;

static thread_local bool is_slow;
static std::atomic<int> recorded;

extern "C" {
#include "offload.h"

zoff_status __real_zoff_offload_store_record(zoff_store *store, int64_t t);
zoff_status __wrap_zoff_offload_store_record(zoff_store *store, int64_t t);

zoff_status __wrap_zoff_offload_store_record(zoff_store *store, int64_t t)
{
    if (is_slow)
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
    const zoff_status status = __real_zoff_offload_store_record(store, t);
    recorded++;
    return status;
}
}

TEST(RanksCommit, AStepThatHasReturnedIsRecordedByAll)
{
    scratch_folder folder;
    rank_job job(3);
    rank_trainers all(job, 4, [](trainer &t) { t.add(9000, 1, ZOFF_BF16, ZOFF_BF16); });
    all.seal("{\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" +
                 folder.path + "\"}}, \"zoff\": {\"persist\": true}}",
             3000);
    for (unsigned slow = 0; slow < 3; slow++) {
        all.backward(slow, 0.5f);
        recorded = 0;
        job.on_each([&](unsigned rank) {
            is_slow = rank == slow;
            EXPECT_ZOFF_OK(zoff_step(all.engines[rank].get(), nullptr, nullptr));
            EXPECT_EQ(3, recorded) << "rank " << rank << " has returned, and rank " << slow << " was late";
        });
    }
}
