// fetch_memory_test.cc: the nth allocation of one rank fails while weights of several ranks are fetched, for n = 1, 2, 3, ...
// until nothing fails any more. A fetch that fails has lent nothing and is called again; no fetch gives back anything but the
// weights, on either rank, in that pass and in those that have learned from it.
#include "rank_job.h"

extern "C" {
#include "mem.h"
#include "try.h"

zoff_status __real_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer);
zoff_status __wrap_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer);
}

using namespace zoff_test;

namespace
{
// Of the thread that is the rank: allocations left until one fails, 0: none fails; and those that have.
thread_local int left, failed;

enum { RANKS = 2, PARAMS = 3, SLICES = 14, COUNT = 700 };

float weight_of(size_t param, size_t slice)
{
    return 1.0f + (float)(param * SLICES + slice);
}

class FetchMemory : public testing::Test
{
  protected:
    // Two passes over all weights and two steps, in which the nth allocation of `rank` fails once. Returns whether it did.
    bool live(unsigned rank_that_fails, int n)
    {
        const rank_job job(RANKS, 10);
        bool failed_once = false;
        job.on_each([&](unsigned rank) {
            const bool is_it = rank == rank_that_fails;
            run(job.comm_of(rank), is_it ? n : 0);
            if (is_it)
                failed_once = failed > 0;
            failed = 0;
        });
        return failed_once;
    }

  private:
    static void run(zoff_comm *ranks, int n)
    {
        const std::string text = "{\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 0, "
                                 "\"stage3_max_live_parameters\": 9000, \"stage3_prefetch_bucket_size\": 3000}}";
        zoff_config *settings = nullptr;
        zoff_engine *made = nullptr;
        ASSERT_ZOFF_OK(zoff_config_parse(text.data(), text.size(), "test.json", &settings));
        zoff_engine_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.config = settings;
        opts.comm = ranks;
        opts.threads = 1;
        opts.chunk_elements = 2048;
        ASSERT_ZOFF_OK(zoff_engine_create(&opts, &made));
        zoff_config_close(settings);
        engine e(made);
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
            d.frozen = true; // a step is only the end of a pass
            ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
        }
        ASSERT_ZOFF_OK(zoff_engine_seal(made));
        for (int pass = 0; pass < 3; pass++) {
            left = pass < 2 ? n : 0;
            n = 0;
            for (int turn = 0; turn < 2; turn++) {
                for (size_t i = 0; i < PARAMS * SLICES; i++)
                    fetch(made, i / SLICES, turn ? SLICES - 1 - i % SLICES : i % SLICES);
            }
            n = left; // of a pass that had fewer
            left = 0;
            ASSERT_ZOFF_OK(zoff_step(made, nullptr, nullptr));
        }
    }
    static void fetch(zoff_engine *e, size_t param, size_t slice)
    {
        const void *lent = nullptr;
        const int before = failed;
        zoff_status status = zoff_param_fetch(e, (zoff_param)param, slice, nullptr, &lent);
        if (status < 0 && failed > before)
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
} // namespace

zoff_status __wrap_zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer)
{
    if (left && --left == 0) {
        failed++;
        return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "out of memory: provoked, for %s", what);
    }
    return __real_zoff_base_mem_alloc(count, bytes, what, out_pointer);
}
