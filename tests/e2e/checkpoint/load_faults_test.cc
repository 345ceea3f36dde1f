/* SPDX-License-Identifier: Apache-2.0 */
// load_faults_test.cc: a load that fails. An error that is found before anything changes leaves the engine as it was. A later
// one leaves it without states, and every call says so, until another load makes it whole; with persist it goes back to its
// last commit. All ranks are alike.
#include "covering.h"
#include "file_bytes.h"
#include "save_fault.h"
#include "saved_run.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include <fstream>
#include <regex>

using namespace zoff_test;
namespace fs = std::filesystem;

namespace
{
enum condition { WHOLE, UNLOADED, MIXED };

const char NO_STATES[] = "zoff_checkpoint_load() has failed and left no states; load a checkpoint, or destroy the engine";

// A run at step 3, and a checkpoint of its step 2, which is loaded.
class LoadFaults : public testing::TestWithParam<run_shape>
{
  protected:
    void start()
    {
        r = std::make_unique<saved_run>(GetParam(), states.path);
        const zoff_plan_info plan = plan_of(r->engine_of(0));
        const bool has_residents = plan.resident_bytes > 0 && plan.resident_bytes < plan.state_bytes;
        EXPECT_EQ(!GetParam().engine.empty(), has_residents) << plan.resident_bytes << " of " << plan.state_bytes;
    }

    void open()
    {
        start();
        r->step(1);
        r->step(2);
        saved = r->all.want.tensors;
        note = 2;
        expect_all_ok(r->on_each([&](zoff_engine *e, unsigned rank) {
            uint64_t own = 20 + rank;
            return with_data(
                own, [&](const zoff_checkpoint_opts &opts) { return zoff_checkpoint_save(e, folder.path.c_str(), &opts); });
        }));
        go_on();
    }

    // Call with the program's bytes. The note is that of rank 0; only one thread may load into it.
    zoff_status with_data(uint64_t &own, const std::function<zoff_status(const zoff_checkpoint_opts &opts)> &call,
                          uint64_t *to = nullptr)
    {
        zoff_checkpoint_data data[] = {{"note", to ? to : &note, sizeof note, false}, {"own", &own, sizeof own, true}};
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.data = data;
        opts.data_count = 2;
        return call(opts);
    }

    // Load on all ranks. A failed load leaves the program's bytes as they were.
    std::vector<rank_result> load(bool fails)
    {
        return r->on_each([&](zoff_engine *e, unsigned rank) {
            uint64_t own = 7, mine = 8;
            const zoff_status status = with_data(
                own, [&](const zoff_checkpoint_opts &opts) { return zoff_checkpoint_load(e, checkpoint.c_str(), &opts); },
                &mine);
            if (status == ZOFF_OK) {
                EXPECT_EQ(2u, mine);
                EXPECT_EQ(20 + rank, own);
            } else if (fails) {
                EXPECT_EQ(8u, mine);
                EXPECT_EQ(7u, own);
            }
            return status;
        });
    }

    // Another step, and what the engines then are.
    void go_on()
    {
        t++;
        r->step(t == 1 ? t = 3 : t);
        now = r->all.want.tensors;
        scaler = scaler_of();
    }

    zoff_loss_scaler scaler_of() const
    {
        zoff_loss_scaler s = ZOFF_LOSS_SCALER_INIT;
        EXPECT_ZOFF_OK(zoff_loss_scaler_get(r->engine_of(0), &s));
        return s;
    }

    // Whether all ranks have states, or none has.
    condition look() const
    {
        unsigned whole = 0;
        for (unsigned rank = 0; rank < GetParam().world; rank++) {
            int64_t count = 0;
            const zoff_status status = zoff_step_count(r->engine_of(rank), &count);
            whole += status == ZOFF_OK;
            if (status == ZOFF_OK) {
                EXPECT_EQ(t, count);
            }
        }
        return whole == GetParam().world ? WHOLE : whole == 0 ? UNLOADED : MIXED;
    }

    // After a load that has failed: each engine is as it was, or has no states. Then a good load makes it whole.
    void expect_whole_or_unloaded(bool may_be_unloaded)
    {
        const condition is = look();
        EXPECT_TRUE(is == WHOLE || (is == UNLOADED && may_be_unloaded)) << is;
        if (is == WHOLE) {
            r->expect(now);
            const zoff_loss_scaler after = scaler_of();
            EXPECT_EQ(0, memcmp(&scaler, &after, sizeof after));
        } else {
            unloaded++;
            for (const auto &one : r->on_each([](zoff_engine *e, unsigned) { return zoff_step(e, nullptr, nullptr); })) {
                EXPECT_EQ(ZOFF_ERR_STATE, one.status) << one.words;
                EXPECT_NE(std::string::npos, one.words.find(NO_STATES)) << one.words;
            }
        }
    }

    // Load the good checkpoint, and train on from it.
    void load_well()
    {
        expect_all_ok(load(false));
        r->take(saved);
        r->expect(saved);
        t = 2;
        go_on();
        r->expect(now);
    }

    // At least one rank names the place.
    void expect_failed(const std::vector<rank_result> &results, const std::string &words)
    {
        bool names = false;
        for (const auto &one : results) {
            EXPECT_GT(0, one.status);
            names = names || one.words.find(words) != std::string::npos;
        }
        EXPECT_TRUE(names) << words << " is not in: " << results[0].words;
    }

    quiet_log quiet;
    save_fault fault;
    scratch_folder folder, states;
    const std::string checkpoint = folder.file("step-0000000002");
    std::unique_ptr<saved_run> r;
    saved_run::tensors saved, now;
    zoff_loss_scaler scaler;
    uint64_t note = 0;
    int64_t t = 0;
    int unloaded = 0;
};

// Half of the chunks stay in DRAM.
run_shape with_residents(run_shape s)
{
    s.engine = ", \"host_memory\": \"170KiB\"";
    return s;
}

run_shape shape_of(unsigned world, unsigned stage, zoff_tier tier, zoff_dtype dtype, bool persist = false, bool owned = false)
{
    run_shape s;
    s.world = world;
    s.stage = stage;
    s.tier = tier;
    s.dtype = dtype;
    s.persist = persist;
    s.owned = owned;
    if (dtype == ZOFF_F16)
        s.more = ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 4, \"loss_scale_window\": 2}";
    return s;
}

std::string name_of_cell(const testing::TestParamInfo<run_shape> &p)
{
    return name_of(p.param);
}

const run_shape HOST = shape_of(1, 1, ZOFF_TIER_HOST, ZOFF_BF16), NVME = shape_of(1, 0, ZOFF_TIER_NVME, ZOFF_F16),
                PERSIST = with_residents(shape_of(1, 1, ZOFF_TIER_NVME, ZOFF_F32, true)),
                RANKS_PERSIST = shape_of(2, 1, ZOFF_TIER_NVME, ZOFF_BF16, true),
                OWNED_PERSIST = shape_of(2, 3, ZOFF_TIER_NVME, ZOFF_F32, true, true);

std::vector<run_shape> shapes()
{
    return {HOST,          NVME,
            PERSIST,       shape_of(2, 2, ZOFF_TIER_HOST, ZOFF_F16),
            RANKS_PERSIST, shape_of(2, 3, ZOFF_TIER_NVME, ZOFF_BF16, false, true),
            OWNED_PERSIST};
}

INSTANTIATE_TEST_SUITE_P(Runs, LoadFaults, testing::ValuesIn(shapes()), name_of_cell);

// ---- single bits ----

struct place {
    fs::path path;
    uint64_t from, to;
    bool is_data; // the bytes are read when states are replaced
};

// Manifest, and head, regions and table of each file.
std::vector<place> places_in(const fs::path &checkpoint)
{
    std::vector<place> all;
    for (const auto &entry : fs::directory_iterator(checkpoint)) {
        const uint64_t bytes = fs::file_size(entry.path());
        if (entry.path().extension() == ".json") {
            all.push_back({entry.path(), 0, bytes, false});
            continue;
        }
        uint64_t end = 0; // end of the regions, as the head has it
        std::ifstream file(entry.path(), std::ios::binary);
        file.seekg(40);
        file.read((char *)&end, sizeof end);
        all.push_back({entry.path(), 0, 4096, false});
        all.push_back({entry.path(), 4096, end, true});
        all.push_back({entry.path(), end, bytes, false});
    }
    return all;
}

TEST_P(LoadFaults, ByOneBitAreNamedAndLoadNothing)
{
    open();
    fast_random random(3);
    const std::vector<place> places = places_in(checkpoint);
    for (unsigned i = 0; i < 2 + share_of(120) && !HasFailure(); i++) {
        const place &p = places[i % places.size()];
        const uint64_t byte = p.from + (((uint64_t)random() << 32) + random()) % (p.to - p.from);
        SCOPED_TRACE(p.path.string() + ", byte " + std::to_string(byte));
        const unsigned bit = random() % 8;
        flip_bit(p.path.string(), byte, bit);
        expect_failed(load(true), p.path.string());
        expect_whole_or_unloaded(p.is_data && !GetParam().persist);
        flip_bit(p.path.string(), byte, bit);
        load_well();
    }
    EXPECT_TRUE(unloaded > 0 || GetParam().persist);
}

// ---- calls that fail ----

class LoadFromDisk : public LoadFaults
{
  protected:
    // The engine is as it was where the file was not yet open, and with persist, which goes back to its last commit. Ranks that
    // have committed cannot go back.
    static bool may_unload(disk_call kind)
    {
        return kind == CALL_READ ? !GetParam().persist : kind == CALL_TRANSFER && (!GetParam().persist || GetParam().world > 1);
    }

    // The nth call in a load fails. Returns whether there are as many.
    bool load_badly(disk_call kind, int nth)
    {
        fault.arm(kind, nth, EIO);
        const auto results = load(true);
        const bool has_struck = fault.has_struck();
        fault.disarm();
        if (has_struck) { // a load writes into state files only
            expect_failed(results, kind == CALL_TRANSFER ? states.path : checkpoint);
            expect_failed(results, strerror(EIO));
            expect_whole_or_unloaded(may_unload(kind));
        } else {
            expect_all_ok(results);
            t = 2;
            EXPECT_EQ(WHOLE, look());
            r->expect(saved);
        }
        load_well();
        return has_struck;
    }
};
INSTANTIATE_TEST_SUITE_P(Runs, LoadFromDisk, testing::ValuesIn(shapes()), name_of_cell);

TEST_P(LoadFromDisk, LoadsNothingAfterAnError)
{
    open();
    for (disk_call kind : {CALL_OPEN, CALL_PREAD, CALL_READ, CALL_TRANSFER}) {
        int failed = 0, nth = 1;
        for (bool more = true; more && !HasFailure(); nth += nth < 4 || is_full_run() ? 1 : nth / 3) {
            SCOPED_TRACE(std::string(DISK_CALL_NAMES[kind]) + " number " + std::to_string(nth));
            more = load_badly(kind, nth);
            failed += more;
        }
        const bool writes_none = kind == CALL_TRANSFER && GetParam().tier == ZOFF_TIER_HOST;
        EXPECT_EQ(writes_none, failed < 4) << failed << " calls failed of " << DISK_CALL_NAMES[kind];
    }
    EXPECT_TRUE(unloaded > 0 || GetParam().persist) << "no load has ended in the middle";
}

// Frozen weights are loaded last. If they cannot be read a second time, no rank goes on, also with persist.
TEST_P(LoadFaults, OnlyOfFrozenWeightsUnloadAllRanks)
{
    open();
    fault.fail_frozen = true;
    expect_failed(load(true), "provoked");
    EXPECT_EQ(UNLOADED, look());
    load_well();
}

// With persist another process finds the last commit, or the loaded states, as a whole.
class LoadOfPersist : public LoadFaults
{
  protected:
    // A new engine over the same state files. Returns its step, which is that of all ranks.
    int64_t open_again()
    {
        std::vector<int64_t> counts(GetParam().world);
        r.reset();
        start();
        expect_all_ok(r->on_each([&](zoff_engine *e, unsigned rank) { return zoff_step_count(e, &counts[rank]); }));
        expect_all_ok(r->on_each([](zoff_engine *e, unsigned) { return zoff_params_push(e); }));
        EXPECT_EQ(std::vector<int64_t>(counts.size(), counts[0]), counts);
        return counts[0];
    }
    // The nth write of a load fails. Returns whether there are as many.
    bool load_badly(int nth)
    {
        fault.arm(CALL_TRANSFER, nth, EIO);
        const auto results = load(true);
        const bool has_struck = fault.has_struck();
        bool may_be_loaded = !has_struck;
        fault.disarm();
        if (has_struck) {
            expect_failed(results, states.path); // a load writes into state files only
            expect_failed(results, strerror(EIO));
        } else {
            expect_all_ok(results);
        }
        for (const auto &one : results) // the record that makes it the last commit may be on the disk
            may_be_loaded = may_be_loaded || one.words.find("the commit of step 2 failed") != std::string::npos;
        const auto before = now;
        const int64_t found = open_again();
        EXPECT_TRUE((has_struck && found == t) || (may_be_loaded && found == 2)) << found;
        r->take(found == 2 ? saved : before);
        t = found;
        return has_struck;
    }
};
INSTANTIATE_TEST_SUITE_P(Runs, LoadOfPersist, testing::Values(PERSIST, RANKS_PERSIST, OWNED_PERSIST), name_of_cell);

TEST_P(LoadOfPersist, LeavesACommitThatOpensAgain)
{
    open();
    int failed = 0;
    for (int nth = 1, more = true; more && !HasFailure(); nth += is_full_run() ? 1 : 3) {
        SCOPED_TRACE("write " + std::to_string(nth));
        more = load_badly(nth);
        failed += more;
        r->expect();
        go_on();
        r->expect();
    }
    EXPECT_GE(failed, 3) << "writes that failed";
}

// ---- an engine without states ----

struct call {
    const char *name;
    std::function<zoff_status(zoff_engine *e)> make;
    const char *words = NO_STATES;
};

std::vector<call> all_calls(const char *folder)
{
    static float floats[8];
    static zoff_checkpoint *save;
    static const void *lent;
    static zoff_norm_sum norm;
    static void *grad;
    static zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT;
    static double scale;
    static int64_t t;
    static zoff_optimizer_hyper hyper;
    return {{"zoff_checkpoint_save", [=](auto *e) { return zoff_checkpoint_save(e, folder, nullptr); }},
            {"zoff_checkpoint_begin", [=](auto *e) { return zoff_checkpoint_begin(e, folder, nullptr, &save); }},
            {"zoff_engine_add_param",
             [](auto *e) {
                 zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
                 return zoff_engine_add_param(e, &d, nullptr);
             },
             "the engine is sealed; add all parameters before zoff_engine_seal()"},
            {"zoff_engine_set_group", [](auto *e) { return zoff_engine_set_group(e, 0, &hyper); }},
            {"zoff_engine_set_lr", [](auto *e) { return zoff_engine_set_lr(e, 0, 1); }},
            {"zoff_engine_seal", [](auto *e) { return zoff_engine_seal(e); }, "the engine is sealed already"},
            {"zoff_param_bind", [](auto *e) { return zoff_param_bind(e, 0, floats, nullptr); }},
            {"zoff_engine_progress", [](auto *e) { return zoff_engine_progress(e); }},
            {"zoff_persist_data", [](auto *e) { return zoff_persist_data(e, nullptr, 0); }},
            {"zoff_loss_scale", [](auto *e) { return zoff_loss_scale(e, &scale); }},
            {"zoff_loss_scaler_get", [](auto *e) { return zoff_loss_scaler_get(e, &scaler); }},
            {"zoff_loss_scaler_set", [](auto *e) { return zoff_loss_scaler_set(e, &scaler); }},
            {"zoff_param_bind_opts", [](auto *e) { return zoff_param_bind_opts(e, 0, floats, nullptr, ZOFF_BIND_MOVED); }},
            {"zoff_param_pull", [](auto *e) { return zoff_param_pull(e, 0); }},
            {"zoff_params_pull", [](auto *e) { return zoff_params_pull(e); }},
            {"zoff_params_push", [](auto *e) { return zoff_params_push(e); }},
            {"zoff_state_read", [](auto *e) { return zoff_state_read(e, 0, ZOFF_STATE_M, 0, 8, floats); }},
            {"zoff_state_write", [](auto *e) { return zoff_state_write(e, 0, ZOFF_STATE_M, 0, 8, floats); }},
            {"zoff_state_flush", [](auto *e) { return zoff_state_flush(e); }},
            {"zoff_param_fetch", [](auto *e) { return zoff_param_fetch(e, 0, 0, nullptr, &lent); }},
            {"zoff_params_wait", [](auto *e) { return zoff_params_wait(e, 0, 1, 0, nullptr); }},
            {"zoff_param_wait", [](auto *e) { return zoff_param_wait(e, 0, 0, nullptr); }},
            {"zoff_param_release", [](auto *e) { return zoff_param_release(e, 0, 0, nullptr); }},
            {"zoff_param_write", [](auto *e) { return zoff_param_write(e, 0, 0, 8, floats); }},
            {"zoff_param_read", [](auto *e) { return zoff_param_read(e, 0, 0, 8, floats); }},
            {"zoff_grad_ready", [](auto *e) { return zoff_grad_ready(e, 0, 0, nullptr); }},
            {"zoff_grads_hand_over", [](auto *e) { return zoff_grads_hand_over(e, nullptr, 0, 0); }},
            {"zoff_grad_reusable", [](auto *e) { return zoff_grad_reusable(e, 0, 0, nullptr); }},
            {"zoff_grad_acquire", [](auto *e) { return zoff_grad_acquire(e, 0, 0, nullptr, &grad); }},
            {"zoff_grad_weight", [](auto *e) { return zoff_grad_weight(e, 2); }},
            {"zoff_step", [](auto *e) { return zoff_step(e, nullptr, nullptr); }},
            {"zoff_step_measure", [](auto *e) { return zoff_step_measure(e, nullptr, &norm); }},
            {"zoff_step_prepare", [](auto *e) { return zoff_step_prepare(e, nullptr); }},
            {"zoff_step_begin", [](auto *e) { return zoff_step_begin(e, nullptr); }},
            {"zoff_step_wait", [](auto *e) { return zoff_step_wait(e, nullptr); }},
            {"zoff_step_retry", [](auto *e) { return zoff_step_retry(e, nullptr); }},
            {"zoff_grads_drop", [](auto *e) { return zoff_grads_drop(e); }},
            {"zoff_step_count", [](auto *e) { return zoff_step_count(e, &t); }},
            {"zoff_step_count_set", [](auto *e) { return zoff_step_count_set(e, 5); }}};
}

// Calls of the API that work without states. A new call belongs here or into the list above.
const char *const WITHOUT_STATES[] = {
    "zoff_state_files_checkpoint", "zoff_state_files_scrub", "zoff_checkpoint_load", "zoff_checkpoint_poll",
    "zoff_checkpoint_wait",        "zoff_engine_destroy",    "zoff_engine_plan",     "zoff_engine_comm",
    "zoff_engine_get_group",       "zoff_engine_find_param", "zoff_engine_error",    "zoff_engine_request_stop",
    "zoff_engine_create",          "zoff_engine_open_sized", "zoff_stats_print"};

class Unloaded : public LoadFaults
{
};
INSTANTIATE_TEST_SUITE_P(Runs, Unloaded, testing::Values(HOST, NVME), name_of_cell);

TEST_P(Unloaded, EnginesRefuseAllOtherCalls)
{
    open();
    const auto flip_all = [this] {
        for (const place &p : places_in(checkpoint)) {
            if (p.is_data)
                flip_bit(p.path.string(), p.from + 10, 3);
        }
    };
    flip_all();
    expect_failed(load(true), "is damaged in the bytes from");
    ASSERT_EQ(UNLOADED, look());
    for (const call &one : all_calls(folder.path.c_str())) {
        EXPECT_EQ(ZOFF_ERR_STATE, one.make(r->engine_of(0))) << one.name;
        const std::string words = zoff_last_error();
        EXPECT_EQ(0u, words.find(std::string(one.name) + ": ")) << one.name << ": " << words;
        EXPECT_NE(std::string::npos, words.find(one.words)) << one.name << ": " << words;
        EXPECT_EQ(UNLOADED, look()) << one.name;
    }
    EXPECT_GT(plan_of(r->engine_of(0)).state_bytes, 0u);
    EXPECT_ZOFF_OK(zoff_stats_print(r->engine_of(0), nullptr, 0, nullptr));
    flip_all();
    load_well();
}

TEST(CallsWithoutStates, AreListed)
{
    std::ifstream map(ZOFF_SYMBOLS);
    std::set<std::string> known;
    for (const call &one : all_calls(""))
        known.insert(one.name);
    for (const char *name : WITHOUT_STATES)
        known.insert(name);
    std::set<std::string> seen;
    const std::regex without_engine("zoff_checkpoint_(reader_.*|writer_.*|list|pin|unpin)");
    for (std::string word; map >> word;) {
        const std::string name = word.substr(0, word.find(';'));
        if (std::regex_match(name, without_engine))
            continue;
        const char *const begins[] = {"zoff_engine_", "zoff_param", "zoff_state_",   "zoff_step",       "zoff_grad",
                                      "zoff_loss_",   "zoff_stats", "zoff_persist_", "zoff_checkpoint_"};
        for (const char *begin : begins) {
            if (name.rfind(begin, 0) == 0)
                seen.insert(name);
        }
    }
    EXPECT_EQ(known, seen) << "the lists of this file, and the calls of the library";
}
} // namespace
