// engine_faults_test.cc: the nth allocation, read or write of an engine fails, for n = 1, 2, 3, ... until no fault is met. Each
// failure must be an error with a message, leave no file behind, and not change a bit of later results: after a retry a failed
// step must end as if nothing had happened. Under ASan this also proves that no error path leaks.
#include "aio_fault.h"
#include "small_engine.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <set>

using namespace zoff_test;

namespace
{
enum life_end { UNTOUCHED, FAILED_AND_MENDED, REFUSED };

// The use of one engine from creation to the end, with one fault in it. The fault comes once, so a second call must succeed.
class life
{
  public:
    life(const std::string &nvme_folder, const std::string &kind)
        : folder(nvme_folder), backend(kind.substr(0, kind.find('+'))), is_owned(kind.find('+') != kind.npos), t(5)
    {
        t.add(9000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(700, 3, ZOFF_F32, ZOFF_F32, 0, false, 2);
        t.add(2500, 1, ZOFF_F32, ZOFF_F16, 2); // no states at all: a chunk of it is never borrowed
        t.add(1500, 1, ZOFF_F16, ZOFF_F16, 1);
        zoff_optimizer_hyper_init(&groups[1], ZOFF_OPTIMIZER_LION);
        zoff_optimizer_hyper_init(&groups[2], ZOFF_OPTIMIZER_SGD);
        for (size_t i = 0; is_owned && i < t.tensors.size(); i++)
            t.give_away(i);
    }

    // Check a call that may fail once. Counts failures and checks their messages.
    bool ok(zoff_status status)
    {
        if (status == ZOFF_OK)
            return true;
        failures++;
        EXPECT_LT(status, 0);
        EXPECT_GT(strlen(zoff_last_error()), 20u) << zoff_last_error();
        words = zoff_last_error();
        return false;
    }

    // Make a call that may fail once. The second call must succeed.
    void mend(const std::function<zoff_status()> &call)
    {
        if (!ok(call())) {
            EXPECT_ZOFF_OK(call());
        }
    }

    // Check all that is in the engine in the end, without faults.
    void check()
    {
        if (e)
            t.expect_states(e.get(), groups);
        e.reset();
    }

    life_end run()
    {
        if (!build())
            return REFUSED;
        for (int step = 1; step <= 2; step++) {
            t.next_step();
            for (int micro = 0; micro < 2; micro++) {
                fetch_all();
                t.expect_weights();
                t.backward_all(0.1f);
                take_step();
            }
            reference::step(t.tensors, groups, step, 1, 2, 0);
        }
        float x[3];
        mend([&] { return zoff_state_read(e.get(), 0, ZOFF_STATE_V, 5000, 3, x); });
        mend([&] { return zoff_state_write(e.get(), 0, ZOFF_STATE_V, 5000, 3, x); });
        mend([&] { return zoff_params_push(e.get()); });
        if (is_owned) {
            std::vector<uint16_t> weights(9000);
            mend([&] { return zoff_param_read(e.get(), 0, 0, 9000, weights.data()); });
            mend([&] { return zoff_param_write(e.get(), 0, 3000, 3000, weights.data() + 3000); });
            for (size_t k = 3000; k < 6000; k++) // which makes them the masters
                t.tensors[0].master[k] = reference::rounded(ZOFF_BF16, t.tensors[0].master[k]);
        }
        fetch_all();
        t.expect_weights();
        return failures ? FAILED_AND_MENDED : UNTOUCHED;
    }

    std::string words;
    int failures = 0;
    bool torn_seen = false;

  private:
    bool build()
    {
        zoff_config *config = nullptr;
        std::string text = config_text(folder, 2, ", \"zoff\": {\"io_backend\": \"" + backend + "\"}");
        if (is_owned)
            text = with_offloaded_weights(text, folder);
        if (!ok(zoff_test::config_from_text(text.data(), text.size(), "fault.json", &config)))
            return false;
        zoff_engine_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.config = config;
        opts.chunk_elements = 2048;
        opts.threads = 2;
        zoff_engine *made = nullptr;
        bool created = ok(zoff_engine_create(&opts, &made));
        zoff_config_close(config);
        if (!created) {
            EXPECT_EQ(nullptr, made);
            return false;
        }
        e.reset(made);
        for (size_t i = 0; i < t.tensors.size(); i++) {
            zoff_param_desc d = t.desc(i);
            mend([&] { return zoff_engine_add_param(made, &d, nullptr); });
        }
        for (unsigned group : {1, 2})
            mend([&] { return zoff_engine_set_group(made, group, &groups[group]); });
        // A refused seal leaves no file, and the engine can be sealed again.
        if (!ok(zoff_engine_seal(made))) {
            EXPECT_TRUE(std::filesystem::is_empty(folder));
            EXPECT_ZOFF_OK(zoff_engine_seal(made));
        }
        return true;
    }

    // Fetch each slice of the engine's weights. A fetch that fails has lent nothing and can be repeated.
    void fetch_all()
    {
        for (size_t i = 0; is_owned && i < t.tensors.size(); i++) {
            const size_t count = t.tensors[i].count, bytes = trainer::size(t.tensors[i].dtype);
            for (size_t slice = 0; slice < t.tensors[i].slices; slice++) {
                const void *lent = nullptr;
                mend([&] { return zoff_param_fetch(e.get(), (zoff_param)i, slice, nullptr, &lent); });
                ASSERT_NE(nullptr, lent);
                memcpy(t.value(i) + t.place(i, slice * count) * bytes, lent, count * bytes);
                EXPECT_ZOFF_OK(zoff_param_release(e.get(), (zoff_param)i, slice, nullptr));
            }
        }
    }

    void take_step()
    {
        auto info = new_info();
        if (ok(zoff_step(e.get(), nullptr, &info)))
            return;
        if (zoff_step_retry(e.get(), &info) == ZOFF_OK)
            return; // the retry completed the step
        // The step had not begun: the call can simply be repeated.
        EXPECT_EQ(std::string("zoff_step_retry: no step has failed"), zoff_last_error());
        EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    }

    std::string folder;
    std::string backend;
    bool is_owned; // the engine owns the weights, and keeps them in files, too
    std::vector<zoff_optimizer_hyper> groups = config_groups(3);
    engine e;
    trainer t;
};

class Faults : public testing::TestWithParam<const char *>
{
  protected:
    // A configuration with states in files in the folder, and the back-end of this test.
    static std::string on_disk(const scratch_folder &folder)
    {
        const std::string kind = GetParam();
        return config_text(folder.path, 1, ", \"zoff\": {\"io_backend\": \"" + kind.substr(0, kind.find('+')) + "\"}");
    }

    // Run with the nth fault, for n = 1, 2, ... until a run does not meet it. Returns the number of faults met.
    int until_untouched(const std::function<void(aio_fault &, int)> &set)
    {
        for (int n = 1; n < 3000; n++) {
            log_catcher log;
            scratch_folder folder;
            life one(folder.path, GetParam());
            life_end end;
            {
                aio_fault fault;
                came_to_it = false;
                set(fault, n);
                end = one.run();
                came_to_it = came_to_it || (fault.fail_allocation && fault.allocations >= fault.fail_allocation);
            }
            one.check();
            EXPECT_TRUE(folder.is_empty()) << "fault " << n << ": " << one.words;
            seen.insert(one.words);
            // The engine can do without an optional allocation; it logs one warning.
            for (auto &line : log.warnings)
                log.expect(line);
            if (!came_to_it) {
                EXPECT_EQ(UNTOUCHED, end);
                return n;
            }
            if (HasFatalFailure() || HasNonfatalFailure()) {
                ADD_FAILURE() << "with fault number " << n << ": " << one.words;
                return n;
            }
        }
        ADD_FAILURE() << "never untouched";
        return 0;
    }

    bool said(const std::string &words) const
    {
        for (auto &text : seen) {
            if (text.find(words) != std::string::npos)
                return true;
        }
        return false;
    }

    std::set<std::string> seen;
    bool came_to_it = false;
};
INSTANTIATE_TEST_SUITE_P(BackEnds, Faults, testing::Values("io_uring", "posix", "io_uring+owned"), [](const auto &p) {
    return std::string(p.param[0] == 'i' ? "uring" : "posix") + (strchr(p.param, '+') ? "_owned" : "");
});

TEST_P(Faults, EveryAllocation)
{
    int lives = until_untouched([](aio_fault &fault, int n) { fault.fail_allocation = n; });
    EXPECT_GT(lives, 30);
    EXPECT_TRUE(said("out of memory"));
    EXPECT_TRUE(said("cannot map"));
}

TEST_P(Faults, EveryRead)
{
    int lives = until_untouched([this](aio_fault &fault, int n) {
        auto transfers = std::make_shared<int>(0);
        fault.result = [this, n, transfers](int, int res, bool writes, uint64_t, size_t) {
            const bool fails = !writes && ++*transfers == n;
            came_to_it = came_to_it || fails; // also counts a read-ahead whose result nobody uses
            return fails ? -EIO : res;
        };
    });
    EXPECT_GT(lives, 10);
    EXPECT_TRUE(said("Input/output error"));
    EXPECT_TRUE(said("half way (zoff_step_retry() can finish it)"));
}

TEST_P(Faults, EveryWrite)
{
    int lives = until_untouched([this](aio_fault &fault, int n) {
        auto transfers = std::make_shared<int>(0);
        fault.result = [this, n, transfers](int, int res, bool writes, uint64_t, size_t) {
            const bool fails = writes && ++*transfers == n;
            came_to_it = came_to_it || fails;
            return fails ? -ENOSPC : res;
        };
    });
    EXPECT_GT(lives, 10);
    EXPECT_TRUE(said("No space left on device"));
    EXPECT_TRUE(said("half way (zoff_step_retry() can finish it)"));
}

TEST_P(Faults, ShortTransfersAreResumed)
{
    log_catcher log;
    scratch_folder folder;
    life one(folder.path, GetParam());
    aio_fault fault;
    int shortened = 0;
    fault.result = [&](int nth, int res, bool, uint64_t, size_t) {
        if (nth % 3 || res < 8192)
            return res;
        shortened++;
        return res / 2 / 4096 * 4096;
    };
    EXPECT_EQ(UNTOUCHED, one.run()) << one.words;
    EXPECT_GT(shortened, 10);
    one.check();
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
    int reads = 0, step = 1; /* the fault uses them until it ends */
    aio_fault fault;
    fault.result = [&](int, int res, bool writes, uint64_t, size_t) {
        reads += !writes;
        return !writes && step == 2 ? -EIO : res;
    };
    for (; step <= 3; step++) {
        reads = 0;
        t.next_step();
        t.backward_all(0.1f);
        t.hand_over_all(e.get());
        for (int i = 0; i < 5000 && zoff_engine_progress(e.get()) == ZOFF_PENDING; i++)
            usleep(1000);
        auto info = new_info();
        if (step == 2) {
            EXPECT_GT(reads, 0);
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
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr)); // it reads again where a read ahead has failed
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
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr)); // from here on chunks are read
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
