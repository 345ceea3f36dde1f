/* SPDX-License-Identifier: Apache-2.0 */
// beside_steps_test.cc: a save that takes place beside steps has the states of the step at which it began, whatever further
// steps do meanwhile, and in whatever order its thread and the steps meet.
#include "covering.h"
#include "save_fault.h"
#include "saved_run.h"

#include <errno.h>

using namespace zoff_test;

namespace
{
// ---- random orders ----

struct saving {
    zoff_checkpoint *handle;
    saved_run::tensors want;
    int64_t t;
    std::string name;
};

// Makes calls of all kinds while saves are under way. One rank can also have steps that fail half way.
class scene
{
  public:
    scene(const run_shape &s, unsigned seed, bool has_memory)
        : random(seed), delays(seed), memory(has_memory ? 1u << 24 : 1), r(s, states.path)
    {
        fault.before = [this](disk_call kind) {
            if (is_library_thread() && (kind == CALL_TRANSFER || is_read(kind) || kind == CALL_FSYNC))
                delay();
        };
    }

    void play()
    {
        expect_all_ok(r.save(folder.path, opts_named("base")));
        base = r.all.want.tensors;
        for (int i = 0; i < 3 && !testing::Test::HasFailure(); i++) {
            step();
            begin();
            for (int k = 0; k < 4 && !testing::Test::HasFailure(); k++)
                act();
            if (random() % 2)
                finish();
        }
        while (!saves.empty())
            finish();
        r.expect();
    }

    unsigned copies() const { return (unsigned)fault.copies; }
    double waited = 0;
    unsigned retried = 0, dropped = 0;

  private:
    void delay()
    {
        unsigned usec;
        {
            const std::lock_guard<std::mutex> guard(lock);
            usec = delays() % 2 == 0 ? delays() % 2000 : 0;
        }
        if (usec)
            std::this_thread::sleep_for(std::chrono::microseconds(usec));
    }

    zoff_checkpoint_opts opts_named(const char *name) const
    {
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.name = name;
        opts.memory = memory;
        return opts;
    }

    void begin()
    {
        const std::string name = "save" + std::to_string(++count);
        expect_all_ok(r.begin(folder.path, opts_named(name.c_str())));
        std::vector<saving> all;
        for (zoff_checkpoint *handle : r.saves)
            all.push_back({handle, r.all.want.tensors, t, name});
        saves.push_back(all);
    }

    // End the oldest or the newest save, and load it into another engine.
    void finish()
    {
        const size_t which = random() % 2 ? 0 : saves.size() - 1;
        const std::vector<saving> all = saves[which];
        saves.erase(saves.begin() + (long)which);
        expect_all_ok(r.on_each([&](zoff_engine *, unsigned rank) { return zoff_checkpoint_wait(all[rank].handle); }));
        if (!testing::Test::HasFailure())
            expect_loads(r.s, folder.file(all[0].name), all[0].t, all[0].want);
    }

    void step(bool overflows = false)
    {
        r.leave_out = random() % 3 ? 0 : 0.5;
        r.step(t + 1, overflows);
        t += !overflows;
        waited += r.save_wait();
    }

    // A step of one rank whose nth transfer fails, and which is retried or dropped.
    void step_badly()
    {
        if (r.s.world > 1 || r.s.tier == ZOFF_TIER_HOST)
            return step();
        zoff_step_info info = new_info();
        r.leave_out = 0;
        EXPECT_ZOFF_OK(zoff_state_flush(r.engine_of(0)));
        r.backward(t + 1);
        fault.arm_here(CALL_TRANSFER, 1 + (int)(random() % 12), EIO);
        zoff_status status = r.step_on(0, &info);
        fault.disarm();
        waited += info.seconds.save_wait;
        if (status < 0 && (info.outcome == ZOFF_OUTCOME_BEFORE || r.s.persist) && random() % 2) {
            EXPECT_ZOFF_OK(zoff_grads_drop(r.engine_of(0)));
            dropped += info.outcome == ZOFF_OUTCOME_TORN;
            r.all.forget();
            return;
        }
        retried += status < 0;
        if (status < 0) {
            EXPECT_ZOFF_OK(zoff_step_retry(r.engine_of(0), &info));
        }
        t++;
        (void)r.reference_step(t);
    }

    // Write a moment, or a master in fp32, which may be the weight itself.
    void write_state()
    {
        const bool is_master = random() % 2 && !r.s.share; // on a device it is not the weight itself
        const zoff_param p = is_master ? 4 : 0;
        const size_t first = 1500;
        std::vector<float> mine(100);
        for (float &x : mine)
            x = (float)(random() % 1000) / 64;
        expect_all_ok(r.on_each([&](zoff_engine *e, unsigned) {
            return zoff_state_write(e, p, is_master ? ZOFF_STATE_MASTER : ZOFF_STATE_M, first, mine.size(), mine.data());
        }));
        reference::tensor &want = r.all.want.tensors[p];
        std::copy(mine.begin(), mine.end(), (is_master ? want.master : want.m).begin() + first);
    }

    void pull()
    {
        expect_all_ok(r.on_each([](zoff_engine *e, unsigned) { return zoff_params_pull(e); }));
        for (auto &tensor : r.all.want.tensors) {
            for (float &x : tensor.master)
                x = reference::rounded(tensor.dtype, x);
        }
    }

    void load()
    {
        expect_all_ok(r.load(folder.file("base")));
        r.take(base);
        t = 0;
    }

    void act()
    {
        switch (random() % 10) {
        case 0:
            return step(true);
        case 1:
            return write_state();
        case 2:
            return pull();
        case 3:
            return load();
        case 4:
            return expect_all_ok(r.on_each([](zoff_engine *e, unsigned) { return zoff_params_push(e); }));
        case 5:
        case 6:
            return step_badly();
        default:
            return step();
        }
    }

    save_fault fault;
    fast_random random, delays;
    std::mutex lock; // lock of `delays`
    const uint64_t memory;
    scratch_folder folder, states;
    saved_run r;
    saved_run::tensors base;
    std::vector<std::vector<saving>> saves; // saves of each rank
    int64_t t = 0;
    unsigned count = 0;
};

class BesideSteps : public testing::TestWithParam<run_shape>
{
};

run_shape shape_of(unsigned world, unsigned stage, zoff_tier tier, bool persist, zoff_dtype dtype, const char *more = "")
{
    run_shape s;
    s.world = world;
    s.stage = stage;
    s.tier = tier;
    s.persist = persist;
    s.dtype = dtype;
    s.engine = more;
    return s;
}

run_shape with_share(run_shape s)
{
    s.share = true;
    return s;
}

run_shape with_muon(run_shape s)
{
    s.muon = true;
    return s;
}

INSTANTIATE_TEST_SUITE_P(Runs, BesideSteps,
                         testing::Values(shape_of(1, 1, ZOFF_TIER_HOST, false, ZOFF_BF16),
                                         shape_of(1, 1, ZOFF_TIER_NVME, false, ZOFF_F32),
                                         shape_of(1, 1, ZOFF_TIER_NVME, true, ZOFF_BF16),
                                         shape_of(2, 0, ZOFF_TIER_NVME, true, ZOFF_F32),
                                         shape_of(2, 2, ZOFF_TIER_HOST, false, ZOFF_F32),
                                         with_share(shape_of(1, 1, ZOFF_TIER_NVME, true, ZOFF_BF16)),
                                         with_share(shape_of(2, 1, ZOFF_TIER_NVME, true, ZOFF_F32)),
                                         with_muon(shape_of(1, 1, ZOFF_TIER_NVME, true, ZOFF_BF16)),
                                         with_muon(shape_of(2, 1, ZOFF_TIER_HOST, false, ZOFF_BF16))),
                         [](const auto &p) { return name_of(p.param); });

TEST_P(BesideSteps, TheStatesOfTheFirstStepAreSaved)
{
    save_log log;
    log.expect("has an inf or nan");
    double waited = 0;
    unsigned copies = 0, retried = 0, dropped = 0;
    for (unsigned seed = 1; seed <= share_of(60) && !HasFailure(); seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        scene one(GetParam(), seed, seed % 3 == 0);
        one.play();
        waited += one.waited;
        copies += one.copies();
        retried += one.retried;
        dropped += one.dropped;
    }
    // In few scenes a save may end before a step needs its chunks. The orders below do not depend on time.
    if (share_of(60) == 60) {
        EXPECT_TRUE(copies > 0 || waited > 0);
    }
    if (GetParam().persist && GetParam().world == 1) {
        EXPECT_GT(retried, 0u);
        EXPECT_GT(dropped, 0u);
    }
}

// ---- orders that are held by a gate ----

zoff_checkpoint_opts few_copies()
{
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.memory = 1;
    return opts;
}

// All is written, and only the end of the file is late. Steps wait for nothing.
TEST(SaveWait, IsZeroWhileNothingWaits)
{
    save_log log;
    save_fault fault;
    scratch_folder folder;
    saved_run r(shape_of(1, 1, ZOFF_TIER_HOST, false, ZOFF_BF16), "");
    r.step(1);
    const auto want = r.all.want.tensors;
    EXPECT_EQ(0, r.save_wait());
    disk_gate gate(fault, [](disk_call kind) { return kind == CALL_FTRUNCATE; });
    expect_all_ok(r.begin(folder.path));
    gate.expect_one();
    gate.open_after(std::chrono::seconds(5));
    for (int64_t t = 2; t <= 4; t++) {
        r.step(t);
        EXPECT_EQ(0, r.save_wait());
        EXPECT_EQ(ZOFF_PENDING, zoff_checkpoint_poll(r.saves[0]));
    }
    gate.open();
    expect_all_ok(r.wait());
    expect_loads(r.s, folder.path, 1, want);
    r.step(5);
    EXPECT_EQ(0, r.save_wait());
    r.expect();
}

// States that the disk has not begun with are copied.
TEST(SaveWait, IsZeroWhileCopiesHaveRoom)
{
    save_log log;
    save_fault fault;
    scratch_folder folder;
    run_shape s = shape_of(1, 1, ZOFF_TIER_HOST, false, ZOFF_BF16);
    s.chunk = 1024; // more units than writes in flight
    saved_run r(s, "");
    r.step(1);
    const auto want = r.all.want.tensors;
    disk_gate gate(fault, [](disk_call kind) { return kind == CALL_TRANSFER; });
    expect_all_ok(r.begin(folder.path));
    gate.expect_one();
    gate.open_after(std::chrono::seconds(5));
    for (int64_t t = 2; t <= 4; t++) {
        zoff_step_info info = new_info();
        r.backward(t);
        r.keep_gradient_of(0); // the worker begins with the other end
        EXPECT_ZOFF_OK(r.step_on(0, &info));
        EXPECT_EQ(0, info.seconds.save_wait);
        (void)r.reference_step(t);
        EXPECT_EQ(ZOFF_PENDING, zoff_checkpoint_poll(r.saves[0]));
    }
    EXPECT_GT(fault.copies, 0);
    gate.open();
    expect_all_ok(r.wait());
    r.expect();
    expect_loads(r.s, folder.path, 1, want);
}

TEST(SaveWait, IsTheTimeThatUpdatesWait)
{
    save_log log;
    save_fault fault;
    scratch_folder folder;
    static const char NAME[] = "\"save_wait_seconds\": ";
    char text[8192];
    saved_run r(shape_of(1, 1, ZOFF_TIER_HOST, false, ZOFF_BF16), "");
    r.step(1);
    const auto want = r.all.want.tensors;
    disk_gate gate(fault, [](disk_call kind) { return kind == CALL_TRANSFER; });
    expect_all_ok(r.begin(folder.path, few_copies()));
    gate.expect_one();
    gate.open_when_a_step_waits();
    r.step(2);
    EXPECT_GT(fault.waits, 0);
    EXPECT_GT(r.save_wait(), 0.0);
    EXPECT_LE(r.save_wait(), r.infos[0].seconds.total);
    const double waited = r.save_wait();
    expect_all_ok(r.wait());
    r.step(3);
    EXPECT_EQ(0, r.save_wait());
    ASSERT_ZOFF_OK(zoff_stats_print(r.engine_of(0), text, sizeof text, nullptr));
    const char *const printed = strstr(text, NAME);
    ASSERT_TRUE(printed) << text;
    EXPECT_NEAR(waited, strtod(printed + sizeof NAME - 1, nullptr), 2e-6) << text;
    expect_loads(r.s, folder.path, 1, want);
}

// With persist the update after the save leaves the old states where they are: it does not wait, however few copies there are,
// also where a chunk has many parameters. The update after it does.
class SaveWaitWithPersist : public testing::TestWithParam<bool>
{
};
INSTANTIATE_TEST_SUITE_P(Tiers, SaveWaitWithPersist, testing::Bool(), [](const auto &p) { return p.param ? "share" : "host"; });

TEST_P(SaveWaitWithPersist, IsZeroForOneUpdate)
{
    save_log log;
    save_fault fault;
    scratch_folder folder, states;
    run_shape s = shape_of(1, 1, ZOFF_TIER_NVME, true, ZOFF_BF16);
    s.chunk = 6000;
    s.share = GetParam();
    saved_run r(s, states.path);
    r.step(1);
    const auto want = r.all.want.tensors;
    disk_gate gate(fault, is_read);
    expect_all_ok(r.begin(folder.path, few_copies()));
    gate.expect_one();
    r.step(2);
    EXPECT_EQ(0, r.save_wait());
    EXPECT_EQ(0, fault.waits);
    gate.open_when_a_step_waits();
    r.step(3);
    EXPECT_GT(fault.waits, 0);
    EXPECT_GT(r.save_wait(), 0.0);
    expect_all_ok(r.wait());
    expect_loads(r.s, folder.path, 1, want);
    r.expect();
}

// A chunk is written back as a whole, so an array moves to its other place also in an update that does not change it.
TEST(SaveOfArrays, MovedByAnUpdateIsExact)
{
    save_log log;
    save_fault fault;
    scratch_folder folder, states;
    run_shape s = shape_of(1, 1, ZOFF_TIER_NVME, true, ZOFF_BF16);
    s.chunk = 2048;
    zoff_optimizer_hyper plain;
    zoff_optimizer_hyper_init(&plain, ZOFF_OPTIMIZER_SGD);
    plain.lr = 0.01;
    auto fill = [](trainer &t) {
        t.add(4096, 1, ZOFF_BF16, ZOFF_BF16);    // chunks that use up the copies
        t.add(1024, 1, ZOFF_BF16, ZOFF_BF16);    // moments, and for one step no gradient
        t.add(1024, 1, ZOFF_BF16, ZOFF_BF16, 1); // a parameter in the same chunk: no moments, and a gradient
        t.add(4096, 1, ZOFF_BF16, ZOFF_BF16);
    };
    auto prepare = [&](zoff_engine *e, trainer &) { EXPECT_ZOFF_OK(zoff_engine_set_group(e, 1, &plain)); };
    saved_run r(s, states.path, fill, prepare);
    r.groups[1] = plain;
    r.step(1);
    const auto want = r.all.want.tensors;
    disk_gate gate(fault, is_read);
    expect_all_ok(r.begin(folder.path, few_copies()));
    gate.expect_one();
    r.backward(2);
    r.all.trainers[0]->tensors[1].present[0] = r.all.want.tensors[1].present[0] = false;
    zoff_step_info info = new_info();
    EXPECT_ZOFF_OK(r.step_on(0, &info));
    EXPECT_EQ(0, info.seconds.save_wait);
    (void)r.reference_step(2);
    EXPECT_EQ(0, fault.waits);
    gate.open_when_a_step_waits();
    r.step(3);
    EXPECT_GT(fault.waits, 0);
    r.step(4);
    expect_all_ok(r.wait());
    r.expect();
    scratch_folder other_states;
    saved_run other(s, other_states.path, fill, prepare);
    other.groups = r.groups;
    expect_all_ok(other.load(folder.path));
    other.expect(want);
}

// A step asks for one array of a matrix at a time, so it waits until the save has read all from the file.
TEST(SaveWait, IsForAllArraysOfMatrices)
{
    save_log log;
    save_fault fault;
    scratch_folder folder, states;
    saved_run r(with_muon(shape_of(1, 1, ZOFF_TIER_NVME, false, ZOFF_BF16)), states.path);
    r.step(1);
    const auto want = r.all.want.tensors;
    disk_gate gate(fault, is_read);
    expect_all_ok(r.begin(folder.path, few_copies()));
    gate.expect_one();
    gate.open_when_a_step_waits();
    for (int64_t t = 2; t <= 3; t++) {
        zoff_step_info info = new_info();
        r.backward(t);
        r.keep_gradient_of(0); // elements of other parameters wait for themselves
        EXPECT_ZOFF_OK(r.step_on(0, &info));
        (void)r.reference_step(t);
    }
    EXPECT_GT(fault.waits, 0);
    gate.open();
    expect_all_ok(r.wait());
    r.expect();
    expect_loads(r.s, folder.path, 1, want);
}
} // namespace
