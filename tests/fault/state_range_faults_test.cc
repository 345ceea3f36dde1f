/* SPDX-License-Identifier: Apache-2.0 */
// state_range_faults_test.cc: the engine defers the writes of windows. None may be lost, and they must become durable all
// together. The tests look at the files as a power cut would leave them: they copy them while the engine runs, and open the
// copies with another engine.
#include "aio_fault.h"
#include "rank_job.h"

#include <errno.h>

#include <algorithm>
#include <atomic>

using namespace zoff_test;

namespace
{
struct place {
    const char *name;
    const char *backend;
    uint64_t residents;   // chunks in DRAM
    bool by_kind = false; // true: one kind of all parameters before the next; false: all kinds of a window before the next
                          // window
};

class StateRangeFaults : public testing::TestWithParam<place>
{
  protected:
    StateRangeFaults() : t(5)
    {
        t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(700, 3, ZOFF_BF16, ZOFF_BF16, 0, false, 2);
    }

    engine open(const std::string &where)
    {
        const std::string text = config_text(
            where, 1, std::string(", \"zoff\": {\"persist\": true, \"io_backend\": \"") + GetParam().backend + "\"}");
        const zoff_plan_info plan = plan_of(make_engine(t, text, 2048).get());
        const uint64_t host = GetParam().residents ? plan.chunk_bytes * (plan.slots + GetParam().residents) : 0;
        return seal_engine(t, text, 2048, host);
    }

    // Take a first step, so that the files can be opened again. Then write a second value for each state, in windows of 500.
    void SetUp() override
    {
        e = open(folder.path);
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    }

    static float value(size_t p, zoff_state_kind kind, size_t k) { return (float)(1 + p * 7 + (size_t)kind * 3 + k % 5); }

    void write_window(size_t p, zoff_state_kind kind, size_t first)
    {
        std::vector<float> window(std::min<size_t>(500, t.tensors[p].total() - first));
        for (size_t k = 0; k < window.size(); k++)
            window[k] = value(p, kind, first + k);
        ASSERT_ZOFF_OK(zoff_state_write(e.get(), (zoff_param)p, kind, first, window.size(), window.data()));
    }

    void write_all()
    {
        const std::vector<zoff_state_kind> kinds = {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V};
        for (size_t pass = 0; pass < (GetParam().by_kind ? kinds.size() : 1); pass++) {
            for (size_t p = 0; p < t.tensors.size(); p++) {
                for (size_t first = 0; first < t.tensors[p].total(); first += 500) {
                    for (zoff_state_kind kind : GetParam().by_kind ? std::vector{kinds[pass]} : kinds)
                        ASSERT_NO_FATAL_FAILURE(write_window(p, kind, first));
                }
            }
        }
    }

    // The share of an engine's states that have the written value: 1, 0, or something else, which is an error.
    static double share_written(zoff_engine *of, trainer &t)
    {
        size_t same = 0, all = 0;
        for (size_t p = 0; p < t.tensors.size(); p++) {
            for (zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
                std::vector<float> have(t.tensors[p].total());
                EXPECT_ZOFF_OK(zoff_state_read(of, (zoff_param)p, kind, 0, have.size(), have.data()));
                for (size_t k = 0; k < have.size(); k++, all++)
                    same += have[k] == value(p, kind, k);
            }
        }
        return (double)same / (double)all;
    }

    // The same for the files as they are now, without what the engine has not written yet.
    double share_in_files(int64_t *count = nullptr)
    {
        scratch_folder copy;
        EXPECT_EQ(0, system(("cp " + folder.path + "/*.states " + copy.path).c_str()));
        engine other = open(copy.path);
        int64_t t_of = -1;
        EXPECT_ZOFF_OK(zoff_step_count(other.get(), count ? count : &t_of));
        return share_written(other.get(), t);
    }

    log_catcher log;
    scratch_folder folder;
    trainer t;
    engine e;
};

INSTANTIATE_TEST_SUITE_P(Places, StateRangeFaults,
                         testing::Values(place{"uring", "io_uring", 0}, place{"posix", "posix", 0},
                                         place{"residents", "auto", 3}, place{"all_resident", "auto", 6},
                                         place{"by_kind", "auto", 0, true}, place{"residents_by_kind", "posix", 3, true}),
                         [](const auto &p) { return std::string(p.param.name); });

TEST_P(StateRangeFaults, WritesAreDeferredAndThenDurableTogether)
{
    ASSERT_NO_FATAL_FAILURE(write_all());
    EXPECT_EQ(1, share_written(e.get(), t)); // the engine itself has the new values at once
    EXPECT_EQ(0, share_in_files());
    ASSERT_ZOFF_OK(zoff_state_flush(e.get()));
    EXPECT_EQ(1, share_in_files());
    EXPECT_EQ(1, share_written(e.get(), t));
}

TEST_P(StateRangeFaults, TheCountMakesThemDurable)
{
    int64_t count = 0;
    ASSERT_NO_FATAL_FAILURE(write_all());
    ASSERT_ZOFF_OK(zoff_step_count_set(e.get(), 1)); // the number is the same as before
    EXPECT_EQ(1, share_in_files(&count));
    EXPECT_EQ(1, count);
    const float other = -3;
    ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, ZOFF_STATE_M, 0, 1, &other));
    ASSERT_ZOFF_OK(zoff_step_count_set(e.get(), 7));
    EXPECT_GT(1, share_in_files(&count));
    EXPECT_EQ(7, count);
}

// A step that is skipped or undone makes them durable, too: windows written before it stay.
TEST_P(StateRangeFaults, AStepMakesThemDurableBeforeItBegins)
{
    ASSERT_NO_FATAL_FAILURE(write_all());
    t.next_step();
    t.backward_all(0.1f);
    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), 0, 0, nullptr));
    EXPECT_EQ(1, share_in_files());
    ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
    EXPECT_EQ(1, share_written(e.get(), t));
}

TEST_P(StateRangeFaults, DestroyMakesThemDurable)
{
    ASSERT_NO_FATAL_FAILURE(write_all());
    e.reset();
    EXPECT_EQ(1, share_in_files());
}

TEST_P(StateRangeFaults, DestroySaysWhatItCouldNotWrite)
{
    ASSERT_NO_FATAL_FAILURE(write_all());
    log.expect("data that zoff_state_write(), zoff_param_write() and zoff_param_pull() wrote since the last commit is lost");
    {
        aio_fault fault;
        fault.result = [&](int, int res, bool writes, uint64_t, size_t) { return writes ? -ENOSPC : res; };
        e.reset();
    }
    EXPECT_EQ(0, share_in_files());
}

// A part of the masters may be those of the new weights. No step takes them, and the call is repeated.
TEST_P(StateRangeFaults, APullThatFailsIsRepeated)
{
    unsigned failed = 0;
    for (zoff_param p : {0u, 1u}) {
        const uint16_t sign = 0x8000;
        for (size_t k = 0; k < t.tensors[p].total(); k++)
            *(uint16_t *)(t.value(p) + 2 * t.place(p, k)) ^= sign;
        zoff_status status;
        {
            aio_fault fault;
            fault.result = [](int, int, bool, uint64_t, size_t) { return -EIO; };
            status = zoff_param_pull(e.get(), p);
        }
        failed += status < 0;
        if (status < 0) {
            EXPECT_EQ(ZOFF_ERR_IO, status) << zoff_last_error();
            const char *words = p ? "zoff_param_pull() of param1 has failed" : "zoff_param_pull() of param0 has failed";
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, words, zoff_step(e.get(), nullptr, nullptr));
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, words, zoff_param_pull(e.get(), 1 - p));
            ASSERT_ZOFF_OK(zoff_param_pull(e.get(), p));
        }
        std::vector<float> masters(t.tensors[p].total());
        ASSERT_ZOFF_OK(zoff_state_read(e.get(), p, ZOFF_STATE_MASTER, 0, masters.size(), masters.data()));
        for (size_t k = 0; k < masters.size(); k++)
            ASSERT_EQ(trainer::get(t.value(p), ZOFF_BF16, t.place(p, k)), masters[k]) << k;
    }
    EXPECT_TRUE(failed || GetParam().residents) << "no transfer was needed"; // chunks in DRAM need none
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
}

// The first rank to see the error may have had no error itself. The ranks repeat the call together.
TEST(StateRangeFault, AFaultOfOneRankIsAnErrorOnAll)
{
    scratch_folder folder;
    log_catcher log;
    rank_job job(2, 20);
    aio_fault fault;
    std::atomic<bool> broken{false};
    std::atomic<int> failed{0};
    fault.result = [&](int, int res, bool writes, uint64_t, size_t) {
        return broken && writes && !failed.exchange(1) ? -EIO : res;
    };
    job.on_each([&](unsigned rank) {
        trainer t(4);
        t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
        engine e = make_engine(t, config_text(folder.path, 1, ", \"zoff\": {\"persist\": true, \"io_backend\": \"posix\"}"),
                               2048, 0, job.comm_of(rank));
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        std::vector<float> window(9000, 0.25f);
        ASSERT_ZOFF_OK(zoff_state_flush(e.get())); // nothing to flush
        ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, ZOFF_STATE_M, 0, 500, window.data()));
        broken = rank == 0 || broken;
        const zoff_status first = zoff_state_flush(e.get());
        EXPECT_GT(0, first) << rank;
        ASSERT_ZOFF_OK(zoff_state_flush(e.get()));
        ASSERT_ZOFF_OK(zoff_state_read(e.get(), 0, ZOFF_STATE_M, 0, 500, window.data()));
        EXPECT_EQ(0.25f, window[499]);
    });
    EXPECT_EQ(1, failed);
}
} // namespace
