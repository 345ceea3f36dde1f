/* SPDX-License-Identifier: Apache-2.0 */
// beside_calls_test.cc: calls while a save is under way: a second save, the end of the engine, polls, forks, calls that are
// refused, and a disk that stands still.
#include "save_fault.h"
#include "saved_run.h"

#include <sys/wait.h>

#if defined(ZOFF_TEST_SANITIZED_ADDRESS)
#include <sanitizer/lsan_interface.h>
#endif

using namespace zoff_test;

// Limits of queues are this much shorter.
static std::atomic<double> hurry{1};

extern "C" {
struct zoff_aio;
void __real_zoff_aio_queue_limit(zoff_aio *q, double seconds);
void __wrap_zoff_aio_queue_limit(zoff_aio *q, double seconds);
}

void __wrap_zoff_aio_queue_limit(zoff_aio *q, double seconds)
{
    __real_zoff_aio_queue_limit(q, seconds / hurry);
}

namespace
{
bool is_write(disk_call kind)
{
    return kind == CALL_TRANSFER || kind == CALL_FSYNC;
}

class BesideCalls : public testing::TestWithParam<zoff_tier>
{
  protected:
    run_shape shape(unsigned world = 1) const
    {
        run_shape s;
        s.tier = GetParam();
        s.world = world;
        return s;
    }
    zoff_checkpoint_opts named(const char *name, bool refuses = false) const
    {
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.name = name;
        opts.refuse_if_busy = refuses;
        return opts;
    }

    save_log log;
    save_fault fault;
    scratch_folder folder, states;
    std::vector<std::vector<float>> buffers;
};
INSTANTIATE_TEST_SUITE_P(Tiers, BesideCalls, testing::Values(ZOFF_TIER_HOST, ZOFF_TIER_NVME),
                         [](const auto &p) { return p.param == ZOFF_TIER_HOST ? "host" : "nvme"; });

TEST_P(BesideCalls, ASecondSaveIsRefusedOrWaits)
{
    saved_run r(shape(), states.path);
    r.step(1);
    const auto first = r.all.want.tensors;
    disk_gate gate(fault, is_write);
    expect_all_ok(r.begin(folder.path, named("first")));
    zoff_checkpoint *handle = r.saves[0];
    gate.expect_one();
    const auto refused = named("second", true);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "under way", zoff_checkpoint_save(r.engine_of(0), folder.path.c_str(), &refused));
    zoff_checkpoint *none = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "refuse_if_busy",
                      zoff_checkpoint_begin(r.engine_of(0), folder.path.c_str(), &refused, &none));
    EXPECT_EQ(nullptr, none);
    EXPECT_EQ(ZOFF_PENDING, zoff_checkpoint_poll(handle));
    gate.open_after(std::chrono::milliseconds(20));
    r.step(2);
    const auto second = r.all.want.tensors;
    expect_all_ok(r.begin(folder.path, named("second")));
    r.step(3);
    // Both handles are open. They may be freed in any order.
    expect_all_ok(r.wait());
    EXPECT_ZOFF_OK(zoff_checkpoint_poll(handle));
    EXPECT_ZOFF_OK(zoff_checkpoint_poll(handle));
    expect_all_ok(r.save(folder.path, named("third", true)));
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(handle));
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(nullptr));
    expect_loads(r.s, folder.file("first"), 1, first);
    expect_loads(r.s, folder.file("second"), 2, second);
    expect_loads(r.s, folder.file("third"), 3, r.all.want.tensors);
}

// A second save completes the first one: it neither loses its files to it, nor is replaced by it.
TEST_P(BesideCalls, TheLaterOfTwoSavesUnderOneNameStays)
{
    saved_run r(shape(), states.path);
    int64_t t = 1;
    for (bool first_goes_first : {true, false}) {
        SCOPED_TRACE(first_goes_first);
        r.step(t++);
        expect_all_ok(r.begin(folder.path, named("last")));
        zoff_checkpoint *first = r.saves[0];
        r.step(t);
        const auto want = r.all.want.tensors;
        expect_all_ok(r.begin(folder.path, named("last")));
        r.step(t + 1);
        if (first_goes_first) {
            EXPECT_ZOFF_OK(zoff_checkpoint_wait(first));
        }
        expect_all_ok(r.wait());
        if (!first_goes_first) {
            EXPECT_ZOFF_OK(zoff_checkpoint_wait(first));
        }
        expect_loads(r.s, folder.file("last"), t, want);
        t += 2;
    }
}

// The ranks decide together: one is still writing, and the other is not.
TEST_P(BesideCalls, AllRanksRefuseOrNone)
{
    run_shape s = shape(2);
    s.timeout_seconds = 20;
    saved_run r(s, states.path);
    r.step(1);
    std::atomic<int> flushes{0};
    disk_gate gate(fault, [&](disk_call kind) { return kind == CALL_FSYNC && ++flushes == 1; });
    expect_all_ok(r.begin(folder.path, named("first")));
    const auto handles = r.saves;
    gate.expect_one();
    for (int tries = 0; tries < 50; tries++) { // by then the other rank has finished
        for (const auto &one : r.save(folder.path, named("second", true))) {
            EXPECT_EQ(ZOFF_ERR_STATE, one.status) << one.words;
        }
    }
    gate.open();
    expect_all_ok(r.on_each([&](zoff_engine *, unsigned rank) { return zoff_checkpoint_wait(handles[rank]); }));
    expect_all_ok(r.save(folder.path, named("second", true)));
    expect_newest(folder.path, 1);
}

TEST_P(BesideCalls, TheEndOfTheEngineGivesTheSaveUp)
{
    log.expect("is destroyed before its checkpoint");
    auto r = std::make_unique<saved_run>(shape(), states.path);
    r->step(1);
    expect_all_ok(r->save(folder.path, named("old")));
    r->step(2);
    zoff_checkpoint *first, *second;
    {
        const int files = fault.seen[CALL_FALLOCATE];
        disk_gate gate(fault, [&](disk_call kind) { return kind == CALL_FSYNC && fault.seen[CALL_FALLOCATE] == files + 2; });
        expect_all_ok(r->begin(folder.path, named("first")));
        first = r->saves[0];
        r->step(3);
        expect_all_ok(r->begin(folder.path, named("second"))); // which ends the first one
        gate.expect_one();
        gate.open_after(std::chrono::milliseconds(20));
        second = r->saves[0];
        r.reset();
    }
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(first));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "was destroyed", zoff_checkpoint_poll(second));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "was destroyed", zoff_checkpoint_wait(second));
    expect_newest(folder.path, 2);
    EXPECT_FALSE(std::filesystem::exists(folder.file("second")));
}

// The manifest is written, and old checkpoints are removed, in a thread of the library.
TEST_P(BesideCalls, APollLeavesTheDiskToOthers)
{
    saved_run r(shape(), states.path);
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.keep = 1;
    const auto here = std::this_thread::get_id();
    for (int64_t t : {1, 2}) {
        r.step(t);
        std::atomic<bool> polls{false};
        std::atomic<int> mine{0}, renames{0};
        fault.before = [&](disk_call kind) {
            mine += polls && std::this_thread::get_id() == here;
            renames += kind == CALL_RENAME;
        };
        expect_all_ok(r.begin(folder.path, opts));
        zoff_status status;
        polls = true;
        while ((status = zoff_checkpoint_poll(r.saves[0])) == ZOFF_PENDING)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        EXPECT_EQ(ZOFF_OK, status) << zoff_last_error();
        fault.before = nullptr;
        EXPECT_EQ(0, mine);
        EXPECT_EQ(t == 1 ? 3 : 4, renames) << "of the manifest, its folder, latest, and the folder that is removed";
        expect_newest(folder.path, t); // although the handle is not freed yet
        EXPECT_NE(t == 2, std::filesystem::exists(folder.file("step-0000000001")));
        expect_all_ok(r.wait());
    }
}

TEST_P(BesideCalls, AnErrorIsReturnedAgainAndEndsNothingElse)
{
    saved_run r(shape(), states.path);
    r.step(1);
    fault.arm(CALL_FTRUNCATE, 1, EIO);
    expect_all_ok(r.begin(folder.path));
    r.step(2);
    zoff_status status;
    while ((status = zoff_checkpoint_poll(r.saves[0])) == ZOFF_PENDING)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(ZOFF_ERR_IO, status);
    r.step(3);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, folder.path, zoff_checkpoint_poll(r.saves[0]));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, folder.path, zoff_checkpoint_wait(r.saves[0]));
    fault.disarm();
    expect_all_ok(r.save(folder.path));
    expect_loads(r.s, folder.path, 3, r.all.want.tensors);
}

// Weights in fp32 are their own masters. They are read from the buffer of the program, until it binds another one.
TEST_P(BesideCalls, ABufferIsReadNoMoreOnceAnotherIsBound)
{
    run_shape s = shape();
    s.dtype = ZOFF_F32;
    saved_run r(s, states.path);
    trainer &t = *r.all.trainers[0];
    r.step(1);
    const auto want = r.all.want.tensors;
    disk_gate gate(fault, is_write);
    expect_all_ok(r.begin(folder.path));
    gate.expect_one();
    gate.open_after(std::chrono::milliseconds(30));
    for (size_t i : {0u, 3u, 4u}) {                     // parameters with one slice
        buffers.emplace_back(t.tensors[i].count, 0.0f); // the program fills it later
        EXPECT_ZOFF_OK(zoff_param_bind_opts(r.engine_of(0), (zoff_param)i, buffers.back().data(), nullptr,
                                            i == 4 ? (unsigned)ZOFF_BIND_MOVED : 0u));
        memset(t.value(i), 0x55, t.tensors[i].count * sizeof(float));
    }
    expect_all_ok(r.wait());
    expect_loads(r.s, folder.path, 1, want);
}

TEST_P(BesideCalls, NoStateIsSavedInTheMiddleOfAnUpdate)
{
    run_shape s = shape();
    s.more = ", \"gradient_accumulation_steps\": 2";
    saved_run r(s, states.path);
    zoff_checkpoint *none = nullptr;
    zoff_step_info info = new_info();
    zoff_engine *e = r.engine_of(0);
    const char *path = folder.path.c_str();
    r.backward(1);
    r.all.trainers[0]->hand_over(e, 0, 0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "handed over", zoff_checkpoint_save(e, path, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "handed over", zoff_checkpoint_load(e, path, nullptr));
    EXPECT_ZOFF_OK(zoff_grads_drop(e));
    EXPECT_ZOFF_OK(r.step_on(0, &info));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "1 of 2 micro-steps", zoff_checkpoint_save(e, path, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "1 of 2 micro-steps", zoff_checkpoint_begin(e, path, nullptr, &none));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "1 of 2 micro-steps", zoff_checkpoint_load(e, path, nullptr));
    r.backward(2);
    EXPECT_ZOFF_OK(zoff_step_begin(e, nullptr));
    EXPECT_ZOFF_OK(zoff_checkpoint_save(e, path, nullptr)) << "it finishes the step";
    EXPECT_ZOFF_OK(zoff_step_wait(e, &info));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "out must not be NULL", zoff_checkpoint_begin(e, path, nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "folder", zoff_checkpoint_begin(e, "", nullptr, &none));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "engine", zoff_checkpoint_save(nullptr, path, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "engine", zoff_checkpoint_load(nullptr, path, nullptr));
}

// A child has a copy of the handle and of the engine, but not the thread that saves. It neither waits for the thread nor
// removes the files of its parent.
TEST_P(BesideCalls, AChildOfForkLeavesTheSaveAlone)
{
    saved_run r(shape(), states.path);
    r.step(1);
    const auto want = r.all.want.tensors;
    disk_gate gate(fault, is_write);
    expect_all_ok(r.begin(folder.path));
    gate.expect_one();
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        fault.before = nullptr; // nobody opens the child's copy of the gate
        zoff_engine *e = r.engine_of(0);
        zoff_step_info info = new_info();
        if (GetParam() == ZOFF_TIER_HOST) { // states in DRAM are a copy, too
            r.backward(2);
            EXPECT_ZOFF_OK(r.step_on(0, &info));
            EXPECT_ZOFF_OK(zoff_params_pull(e));
            const auto mine = named("of_the_child", true);
            EXPECT_ZOFF_OK(zoff_checkpoint_save(e, folder.path.c_str(), &mine));
        }
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "parent", zoff_checkpoint_poll(r.saves[0]));
        if (GetParam() == ZOFF_TIER_HOST) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "parent", zoff_checkpoint_wait(r.saves[0]));
            r.all.engines[0].reset();
        } else {
            r.all.engines[0].reset();
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "parent", zoff_checkpoint_wait(r.saves[0]));
        }
        fflush(stdout);
        _exit(HasFailure());
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_EQ(0, status);
    gate.open();
    expect_all_ok(r.wait());
    expect_loads(r.s, folder.file("step-0000000001"), 1, want);
    r.step(2);
    r.expect();
}

// A disk that neither completes a write nor fails it.
class StandsStill : public testing::Test
{
  protected:
    StandsStill()
    {
        setenv("ZOFF_AIO", "threads", 1);
        hurry = 100;
#if !defined(ZOFF_TEST_SANITIZED_THREAD)
        log.expect("stays open: the disk does not finish its writes");
#endif
    }
    ~StandsStill() override
    {
        unsetenv("ZOFF_AIO");
        hurry = 1;
    }
#if defined(ZOFF_TEST_SANITIZED_THREAD)
    void SetUp() override
    {
        GTEST_SKIP() << "the thread that is left with the disk reads the fault while the test takes it away";
    }
#endif
    void begin(double timeout)
    {
        run_shape s;
        s.timeout_seconds = timeout;
        r = std::make_unique<saved_run>(s, "", [](trainer &t) { t.add(5000, 1, ZOFF_BF16, ZOFF_BF16); });
        r->step(1);
#if defined(ZOFF_TEST_SANITIZED_ADDRESS)
        __lsan::ScopedDisabler disabler; // the disk may still use the memory of the queue, so it is never freed
#endif
        expect_all_ok(r->begin(folder.path)); // it would write frozen weights itself
        gate.expect_one();
    }

    save_log log;
    save_fault fault;
    scratch_folder folder;
    disk_gate gate{fault, [](disk_call kind) { return kind == CALL_PWRITE; }};
    std::unique_ptr<saved_run> r;
};

TEST_F(StandsStill, TheSaveFailsAndNotTheSteps)
{
    begin(20); // a quarter of it, in a hurry: 50 ms
    zoff_checkpoint *handle = r->saves[0];
    r->step(2);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "is not written in time: the disk neither completes a transfer nor fails it",
                      zoff_checkpoint_wait(handle));
    r->expect();
}

// Without a limit the save waits for ever, but a program that ends does not.
TEST_F(StandsStill, TheEndOfTheEngineIsNotHeldUp)
{
    log.expect("the engine is destroyed before its checkpoint");
    begin(-1);
    zoff_checkpoint *handle = r->saves[0];
    r.reset();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "was destroyed", zoff_checkpoint_wait(handle));
}
} // namespace
