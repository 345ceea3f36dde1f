/* SPDX-License-Identifier: Apache-2.0 */
// fetch_memory_test.cc: failures while several ranks fetch weights. The nth allocation of one rank fails, for n = 1, 2, 3, ...
// until nothing fails. A failed fetch must lend nothing and can be repeated. Every fetch that succeeds must lend the right
// weights, on both ranks, in this pass and in later passes that prefetch by it. Another test damages a file.
#include "memory_fault.h"
#include "rank_job.h"

#include <atomic>
#include <fstream>

using namespace zoff_test;

namespace
{
enum { RANKS = 2, PARAMS = 3, SLICES = 14, COUNT = 700 };

float weight_of(size_t param, size_t slice)
{
    return 1.0f + (float)(param * SLICES + slice);
}

class FetchMemory : public testing::Test
{
  protected:
    // Two passes over all weights and two steps, in which the nth allocation of `rank` fails once. Returns true if it failed.
    bool live(unsigned rank_that_fails, int n)
    {
        const rank_job job(RANKS, 10);
        bool failed_once = false;
        job.on_each([&](unsigned rank) {
            const bool is_it = rank == rank_that_fails;
            run(job.comm_of(rank), is_it ? n : 0);
            if (is_it)
                failed_once = memory_countdown::failed > 0;
            memory_countdown::failed = 0;
        });
        return failed_once;
    }

  private:
    static void run(zoff_comm *ranks, int n)
    {
        zoff_engine *made = nullptr;
        ASSERT_NO_FATAL_FAILURE(open(ranks, "", &made));
        engine e(made);
        for (int pass = 0; pass < 3; pass++) {
            memory_countdown::left = pass < 2 ? n : 0;
            n = 0;
            for (int turn = 0; turn < 2; turn++) {
                for (size_t i = 0; i < PARAMS * SLICES; i++)
                    fetch(made, i / SLICES, turn ? SLICES - 1 - i % SLICES : i % SLICES);
            }
            n = memory_countdown::left; // the rest, after a pass with fewer allocations
            memory_countdown::left = 0;
            ASSERT_ZOFF_OK(zoff_step(made, nullptr, nullptr));
        }
    }

  protected:
    static void open(zoff_comm *ranks, const std::string &more, zoff_engine **out)
    {
        const std::string text = "{\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 0, "
                                 "\"stage3_max_live_parameters\": 9000, \"stage3_prefetch_bucket_size\": 3000" +
                                 more + "}}";
        zoff_engine_opts opts = {};
        opts.comm = ranks;
        opts.threads = 1;
        opts.chunk_elements = 2048;
        *out = make_engine(text, opts).release();
        zoff_engine *const made = *out;
        ASSERT_TRUE(made);
        std::vector<float> first[PARAMS];
        for (size_t p = 0; p < PARAMS; p++) {
            for (size_t k = 0; k < (size_t)SLICES * COUNT; k++)
                first[p].push_back(weight_of(p, k / COUNT));
            zoff_param_desc d = {};
            d.struct_size = sizeof d;
            d.value = first[p].data();
            d.count = COUNT;
            d.slices = SLICES;
            d.engine_owned = true;
            d.frozen = true; // the step only ends the pass
            ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
        }
        ASSERT_ZOFF_OK(zoff_engine_seal(made));
    }

  private:
    static void fetch(zoff_engine *e, size_t param, size_t slice)
    {
        const void *lent = nullptr;
        const int before = memory_countdown::failed;
        zoff_status status = zoff_param_fetch(e, (zoff_param)param, slice, nullptr, &lent);
        if (status < 0 && memory_countdown::failed > before)
            status = zoff_param_fetch(e, (zoff_param)param, slice, nullptr, &lent);
        ASSERT_ZOFF_OK(status);
        for (size_t k = 0; k < COUNT; k++)
            ASSERT_EQ(weight_of(param, slice), ((const float *)lent)[k]) << "parameter " << param << ", slice " << slice;
        ASSERT_ZOFF_OK(zoff_param_release(e, (zoff_param)param, slice, nullptr));
    }
};

TEST_F(FetchMemory, AnAllocationThatFailsIsAnErrorOrCostsNothing)
{
    int faults = 0;
    for (unsigned rank = 0; rank < RANKS; rank++) {
        for (int n = 1; live(rank, n) && !HasFailure(); n++)
            faults++;
    }
    EXPECT_LE(4, faults);
    RecordProperty("faults", faults);
    printf("%d allocations failed\n", faults);
}

// A slice is damaged on the drive of one rank. No rank may be lent that slice, and this rank must say why.
TEST_F(FetchMemory, ADamagedSliceIsLentToNoRank)
{
    const rank_job job(RANKS, 2);
    const scratch_folder folders[RANKS];
    std::atomic<int> damaged{0}, wrong{0};
    job.on_each([&](unsigned rank) {
        zoff_engine *made = nullptr;
        open(job.comm_of(rank),
             ", \"offload_param\": {\"device\": \"nvme\", \"max_in_cpu\": 0, \"nvme_path\": \"" + folders[rank].path + "\"}",
             &made);
        engine e(made);
        ASSERT_FALSE(HasFatalFailure());
        for (const std::string &file : rank == 1 ? state_files(folders[1].path) : std::vector<std::string>()) {
            std::fstream damage(file, std::ios::in | std::ios::out | std::ios::binary);
            damage.seekp(4096 + 100);
            damage << "damage";
            damaged++;
        }
        zoff_status status = ZOFF_OK;
        for (size_t slice = 0; slice < SLICES && status == ZOFF_OK; slice++) {
            const void *lent = nullptr;
            status = zoff_param_fetch(made, 0, slice, nullptr, &lent);
            for (size_t k = 0; status == ZOFF_OK && k < COUNT; k++)
                wrong += weight_of(0, slice) != ((const float *)lent)[k];
            if (status == ZOFF_OK)
                status = zoff_param_release(made, 0, slice, nullptr);
        }
        EXPECT_EQ(rank == 1 ? ZOFF_ERR_CORRUPT : ZOFF_ERR_COMM, status) << zoff_last_error();
    });
    EXPECT_LT(0, damaged);
    EXPECT_EQ(0, wrong);
}
} // namespace
