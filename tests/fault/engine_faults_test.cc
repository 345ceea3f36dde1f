/* SPDX-License-Identifier: Apache-2.0 */
// engine_faults_test.cc: reads and writes of an engine fail at chosen moments. Each failure must be an error with a message,
// and not change a bit of later results. sim.nth has every moment.
#include "aio_fault.h"
#include "small_engine.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <set>

using namespace zoff_test;

namespace
{
class Faults : public testing::TestWithParam<const char *>
{
  protected:
    // A configuration with states in files in the folder, and the back-end of this test.
    static std::string on_disk(const scratch_folder &folder)
    {
        return config_text(folder.path, 1, std::string(", \"zoff\": {\"io_backend\": \"") + GetParam() + "\"}");
    }
};
INSTANTIATE_TEST_SUITE_P(BackEnds, Faults, testing::Values("io_uring", "posix"),
                         [](const auto &p) { return std::string(p.param[0] == 'i' ? "uring" : "posix"); });

// An allocation or a mapping of seal fails, each in its turn. No file is left, and the engine can be sealed again.
TEST(SealFaults, EachAllocationAndMapping)
{
    int failures = 0;
    bool cannot_map = false;
    for (int n = 1, comes = 1; comes; n++) {
        SCOPED_TRACE("allocation " + std::to_string(n));
        log_catcher log;
        scratch_folder folder;
        trainer t(5);
        t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(700, 3, ZOFF_F32, ZOFF_F32, 0, false, 2);
        for (size_t i : {0, 1})
            t.give_away(i);
        engine e = make_engine(t, with_offloaded_weights(config_text(folder.path), folder.path), 2048);
        zoff_status status;
        {
            aio_fault fault;
            fault.fail_allocation = n;
            status = zoff_engine_seal(e.get());
            comes = fault.allocations >= n;
        }
        if (status < 0) {
            failures++;
            EXPECT_EQ(ZOFF_ERR_NO_MEMORY, status) << zoff_last_error();
            cannot_map = cannot_map || strstr(zoff_last_error(), "cannot map");
            EXPECT_TRUE(folder.is_empty());
            ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        }
        for (auto &line : log.warnings) // the engine can do without an optional allocation
            log.expect(line);
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }
    EXPECT_LT(30, failures);
    EXPECT_TRUE(cannot_map);
}

TEST_P(Faults, AStepThatFailedBeforeAnythingCanBeDropped)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(1);
    t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, on_disk(folder), 2048);
    aio_fault fault;
    fault.result = [](int, int res, bool writes, uint64_t, size_t) { return writes ? res : -EIO; };
    t.backward_all(7);
    auto info = new_info();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "before anything was changed", zoff_step(e.get(), nullptr, &info));
    EXPECT_EQ(ZOFF_OUTCOME_BEFORE, info.outcome);
    float x;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step has failed", zoff_step(e.get(), nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step has failed", zoff_state_read(e.get(), 0, ZOFF_STATE_M, 0, 1, &x));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", zoff_step_retry(e.get(), &info)); // the disk is still broken
    ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
    fault.result = nullptr;
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    t.next_step();
    t.backward_all(0.1f);
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    EXPECT_EQ(1, info.t);
    reference::step(t.tensors, config_groups(), 1, 1, 1, 0);
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}

TEST_P(Faults, ReadsThatAFailureLeavesBehindDoNotStopTheNextStep)
{
    log_catcher log;
    scratch_folder folder;
    for (size_t count : {6000, 7000, 9000, 12000, 30000}) {
        trainer t(1);
        t.add(count, 1, ZOFF_BF16, ZOFF_BF16);
        std::string text = on_disk(folder);
        text.replace(text.find("\"buffer_count\": 3"), 17, "\"buffer_count\": 2");
        engine e = seal_engine(t, text, 2048);
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        reference::step(t.tensors, config_groups(), 1, 1, 1, 0);
        std::vector<float> m = t.tensors[0].m;
        {
            aio_fault fault;
            int nth = 0;
            fault.result = [&](int, int res, bool, uint64_t, size_t) { return ++nth % 2 ? res : -ENOSPC; };
            (void)zoff_state_write(e.get(), 0, ZOFF_STATE_M, 0, count, m.data());
            (void)zoff_state_read(e.get(), 0, ZOFF_STATE_M, 0, count, m.data());
        }
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        reference::step(t.tensors, config_groups(), 2, 1, 1, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }
}

// Half of the states are on a device, which updates first. The step learns of the failed read before that. So nothing is
// changed, and the gradients can be dropped.
TEST_P(Faults, AReadThatFailedBeforeTheStepStopsTheDeviceToo)
{
    log_catcher log;
    scratch_folder folder;
    test_device device;
    trainer t(1);
    t.add(30000, 1, ZOFF_BF16, ZOFF_BF16);
    t.put_on(&device);
    engine e = make_engine(t, with_ratio(on_disk(folder), 0.5), 2048, 0, nullptr, device.accel);
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    int step = 1;            // the fault uses both until it ends
    std::set<uint64_t> once; // a chunk that is read again is read for the second step, maybe before the first has returned
    aio_fault fault;
    fault.result = [&](int, int res, bool writes, uint64_t offset, size_t) {
        const bool again = !writes && !once.insert(offset).second;
        return again && step <= 2 ? -EIO : res;
    };
    for (; step <= 3; step++) {
        t.next_step();
        t.backward_all(0.1f);
        t.hand_over_all(e.get());
        for (int i = 0; i < 5000 && zoff_engine_progress(e.get()) == ZOFF_PENDING; i++)
            usleep(1000);
        auto info = new_info();
        if (step == 2) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "before anything was changed", zoff_step(e.get(), nullptr, &info));
            EXPECT_EQ(ZOFF_OUTCOME_BEFORE, info.outcome);
            ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
        } else {
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
            reference::step(t.tensors, config_groups(), info.t, 1, 1, 0);
        }
    }
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

// Between two steps the engine reads the first chunks of the next step, whatever the trainer does. The next step reports a read
// that fails there, and can be retried.
TEST_P(Faults, ReadsBeginBeforeTheStepIsAskedFor)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(1);
    t.add(40000, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, on_disk(folder), 2048);
    const int slots = (int)plan_of(e.get()).slots;
    int reads = 0;
    int64_t step = 1;
    aio_fault fault;
    for (; step <= 3; step++) {
        reads = 0;
        fault.result = [&](int, int res, bool writes, uint64_t, size_t) {
            return !writes && ++reads == 1 && step == 3 ? -EIO : res;
        };
        t.next_step();
        t.backward_all(0.1f);
        zoff_status status = ZOFF_PENDING;
        for (int i = 0; i < 5000 && status == ZOFF_PENDING; i++) {
            status = zoff_engine_progress(e.get());
            usleep(1000);
        }
        ASSERT_ZOFF_OK(status);
        // Each of these chunks is one read. Some were read along with the last writes of the previous step.
        EXPECT_GT(reads, 0);
        EXPECT_LE(reads, slots);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr)); // the step reads again where a read ahead has failed
        reference::step(t.tensors, config_groups(), step, 1, 1, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

TEST_P(Faults, TheMessageBelongsToTheStatus)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(1);
    t.add(40000, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = make_engine(t, on_disk(folder), 2048);
    aio_fault fault;
    int nth = 0;
    fault.result = [&](int, int res, bool writes, uint64_t offset, size_t) {
        return !writes || offset == 0 ? res : ++nth == 1 ? -EIO : -ENOSPC;
    };
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", zoff_engine_seal(e.get()));
    for (auto &line : log.warnings)
        log.expect(line);
}

TEST_P(Faults, ATornStepIsNeitherDroppedNorForgotten)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(1);
    t.add(20000, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, on_disk(folder), 2048);
    aio_fault fault;
    fault.result = [](int, int res, bool writes, uint64_t, size_t) { return writes ? -ENOSPC : res; };
    t.backward_all(0.1f);
    auto info = new_info();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, ".swap", zoff_step(e.get(), nullptr, &info));
    EXPECT_EQ(ZOFF_OUTCOME_TORN, info.outcome);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "step 1 is half done", zoff_grads_drop(e.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "No space", zoff_step_retry(e.get(), &info)); // the disk is still full
    fault.result = nullptr;
    ASSERT_ZOFF_OK(zoff_step_retry(e.get(), &info));
    EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
    EXPECT_EQ(20000u, info.numbers.elements_updated);
    reference::step(t.tensors, config_groups(), 1, 1, 1, 0);
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

// fp32 weights are their own masters, in the caller's memory: a window of masters needs no disk.
TEST_P(Faults, MastersOfTheCallerNeedNoDisk)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(1);
    t.add(20000, 1, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, on_disk(folder), 2048);
    t.backward_all(0.1f);
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr)); // chunks are read from here on
    reference::step(t.tensors, config_groups(), 1, 1, 1, 0);
    aio_fault fault;
    fault.result = [](int, int, bool, uint64_t, size_t) { return -EIO; };
    std::vector<float> masters(20000);
    ASSERT_ZOFF_OK(zoff_state_read(e.get(), 0, ZOFF_STATE_MASTER, 0, masters.size(), masters.data()));
    EXPECT_EQ(t.tensors[0].master, masters);
    t.tensors[0].master[12345] = masters[12345] = 7;
    ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, ZOFF_STATE_MASTER, 0, masters.size(), masters.data()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    EXPECT_EQ(0, fault.results);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error",
                      zoff_state_read(e.get(), 0, ZOFF_STATE_M, 0, masters.size(), masters.data()));
}

// The save fails, and not the step that it has finished.
TEST(OpenStepSave, OnAFullDiskLeavesACompleteStep)
{
    log_catcher log;
    scratch_folder saves;
    trainer t(7);
    for (int i = 0; i < 3; i++)
        t.add(6000, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, config_text(""), 6000); // only the save writes
    for (int64_t step = 1; step <= 2; step++) {
        t.next_step();
        t.backward_all(0.1f);
        t.hand_over_all(e.get());
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
        ASSERT_ZOFF_OK(zoff_param_wait(e.get(), 0, 0, nullptr));
        reference::step(t.tensors, config_groups(), step, 1, 1, 0);
        {
            aio_fault full;
            full.result = [](int, int res, bool writes, uint64_t, size_t) { return writes ? -ENOSPC : res; };
            EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, strerror(ENOSPC), zoff_checkpoint_save(e.get(), saves.path.c_str(), nullptr));
        }
        zoff_step_info info = new_info();
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
        EXPECT_EQ(step, info.t);
        EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
        ASSERT_ZOFF_OK(zoff_checkpoint_save(e.get(), saves.path.c_str(), nullptr)) << "there is space again";
    }
}
} // namespace
