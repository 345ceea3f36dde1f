// load_test.cc: the public call that loads: arguments, phases of the engine, what is left alone by a load that fails, and what
// a load that succeeds replaces.
#include "memory_fault.h"
#include "small_save.h"

using namespace zoff_test;

namespace
{
class Load : public testing::Test
{
  protected:
    Load() : t(1)
    {
        t.add(5000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(300, 2, ZOFF_F32, ZOFF_F32);
    }
    void seal(const std::string &more = "", const std::string &states_folder = "")
    {
        e = seal_engine(t, config_text(states_folder, 1, more), 1024);
    }
    // A step of the engine and of the reference.
    void step(int64_t number)
    {
        t.next_step();
        t.backward_all(0.1f);
        t.hand_over_all(e.get());
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        reference::step(t.tensors, config_groups(), number, 1, 1, 0);
    }
    void save()
    {
        zoff_checkpoint_data data = {"position", &position, sizeof position, false};
        zoff_checkpoint_opts with = ZOFF_CHECKPOINT_OPTS_INIT;
        with.data = &data;
        with.data_count = 1;
        ASSERT_ZOFF_OK(zoff_checkpoint_save(e.get(), folder.path.c_str(), &with));
        saved = t.tensors;
    }
    zoff_status load() { return zoff_checkpoint_load(e.get(), folder.path.c_str(), &opts); }
    zoff_status load_with_position()
    {
        zoff_checkpoint_data data = {"position", &position, sizeof position, false};
        opts.data = &data;
        opts.data_count = 1;
        return load();
    }
    void expect_states(const std::vector<reference::tensor> &want)
    {
        t.tensors = want;
        t.expect_states(e.get());
        t.expect_weights();
    }
    int64_t updates()
    {
        int64_t out = -1;
        EXPECT_ZOFF_OK(zoff_step_count(e.get(), &out));
        return out;
    }
    // Damage a moment in the newest checkpoint, or repair it.
    void damage()
    {
        const archive a = open_archive(folder.path);
        const zoff_archive_ref *ref = zoff_archive_find(a.get(), 0, ZOFF_STATE_M, 0, 4000);
        flip_byte(path_of(a.get(), 0), a->tables[ref->file].regions[ref->piece.region].offset + ref->piece.at + 3);
    }

    log_catcher log;
    scratch_folder folder, states;
    trainer t;
    engine e;
    uint64_t position = 5;
    std::vector<reference::tensor> saved;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
};
using LoadArguments = Load;
using LoadPhase = Load;

TEST_F(LoadArguments, ImpossibleOnesAreRefused)
{
    seal();
    const char *path = folder.path.c_str();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_load: engine must not be NULL",
                      zoff_checkpoint_load(nullptr, path, nullptr));
    for (const char *none : {(const char *)nullptr, ""}) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_load: folder must not be NULL or empty",
                          zoff_checkpoint_load(e.get(), none, nullptr));
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, folder.path, load());
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "/not/there", zoff_checkpoint_load(e.get(), "/not/there", nullptr));
    opts.struct_size = 3;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_opts", load());
    opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.label = "tp/0";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "label", load());
    opts.label = nullptr;
    opts.data_count = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_load: data must not be NULL", load());
    ASSERT_NO_FATAL_FAILURE(expect_states(t.tensors));
}

TEST_F(LoadPhase, OnlyBetweenUpdates)
{
    seal();
    ASSERT_NO_FATAL_FAILURE(save());
    e = make_engine(t, config_text("", 2));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_checkpoint_load", load());
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    t.next_step();
    t.backward_all(0.1f);
    t.hand_over_all(e.get());
    EXPECT_EQ(ZOFF_ERR_STATE, load()) << "a gradient was handed over";
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_checkpoint_load", load()); // an update is half done
    ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
    EXPECT_ZOFF_OK(load());
}

TEST_F(Load, ReplacesStatesWeightsAndTheProgramsBytes)
{
    seal();
    for (int64_t number = 1; number <= 3; number++)
        ASSERT_NO_FATAL_FAILURE(step(number));
    ASSERT_NO_FATAL_FAILURE(save());
    ASSERT_NO_FATAL_FAILURE(step(4));
    position = 9;
    ASSERT_ZOFF_OK(load_with_position());
    EXPECT_EQ(5u, position);
    EXPECT_EQ(3, updates());
    ASSERT_NO_FATAL_FAILURE(expect_states(saved));
    ASSERT_NO_FATAL_FAILURE(step(4));
    ASSERT_NO_FATAL_FAILURE(expect_states(t.tensors));
}

TEST_F(Load, TakesTheFolderOfACheckpointToo)
{
    seal();
    ASSERT_NO_FATAL_FAILURE(step(1));
    ASSERT_NO_FATAL_FAILURE(save());
    const std::vector<reference::tensor> first = saved;
    ASSERT_NO_FATAL_FAILURE(step(2));
    ASSERT_NO_FATAL_FAILURE(save());
    ASSERT_ZOFF_OK(zoff_checkpoint_load(e.get(), folder.file("step-0000000001").c_str(), nullptr));
    EXPECT_EQ(1, updates());
    ASSERT_NO_FATAL_FAILURE(expect_states(first));
    ASSERT_ZOFF_OK(load());
    EXPECT_EQ(2, updates());
    ASSERT_NO_FATAL_FAILURE(expect_states(saved));
}

TEST_F(Load, TakesTheCheckpointThatIsNamed)
{
    seal();
    ASSERT_NO_FATAL_FAILURE(step(1));
    ASSERT_NO_FATAL_FAILURE(save());
    ASSERT_NO_FATAL_FAILURE(step(2));
    ASSERT_NO_FATAL_FAILURE(save());
    opts.name = "step-0000000001";
    ASSERT_ZOFF_OK(load());
    EXPECT_EQ(1, updates());
    opts.name = "best";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, folder.file("best"), load());
    opts.name = "../best";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_opts.name is '../best'", load());
    EXPECT_EQ(1, updates());
}

// Everything that can be compared is compared before anything changes.
TEST_F(Load, ADifferenceLeavesTheEngineAsItWas)
{
    uint64_t seed = 0;
    seal();
    ASSERT_NO_FATAL_FAILURE(step(1));
    ASSERT_NO_FATAL_FAILURE(save());
    ASSERT_NO_FATAL_FAILURE(step(2));
    zoff_checkpoint_data data[] = {{"position", &position, sizeof position, false}, {"seed", &seed, 8, false}};
    opts.data = data;
    opts.data_count = 2;
    position = 9;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has no data 'seed'", load());
    EXPECT_EQ(9u, position);
    trainer other(2);
    other.add(5000, 1, ZOFF_BF16, ZOFF_BF16);
    other.add(300, 2, ZOFF_F32, ZOFF_F32);
    other.add(8, 1, ZOFF_F32, ZOFF_F32);
    const engine more = seal_engine(other, config_text(""));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "'param2' is not in the checkpoint",
                      zoff_checkpoint_load(more.get(), folder.path.c_str(), nullptr));
    ASSERT_NO_FATAL_FAILURE(other.expect_states(more.get()));
    EXPECT_EQ(2, updates());
    ASSERT_NO_FATAL_FAILURE(expect_states(t.tensors));
}

TEST_F(Load, DamageFoundLateLeavesTheEngineUnloaded)
{
    seal();
    ASSERT_NO_FATAL_FAILURE(step(1));
    ASSERT_NO_FATAL_FAILURE(save());
    ASSERT_NO_FATAL_FAILURE(damage());
    position = 9;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "'param0'", load_with_position());
    EXPECT_EQ(9u, position) << "the program's bytes are put back";
    float one;
    EXPECT_EQ(ZOFF_ERR_STATE, zoff_state_read(e.get(), 0, ZOFF_STATE_MASTER, 0, 1, &one));
    EXPECT_EQ(ZOFF_ERR_STATE, zoff_step(e.get(), nullptr, nullptr));
    EXPECT_EQ(ZOFF_ERR_STATE, zoff_checkpoint_save(e.get(), folder.path.c_str(), nullptr));
    EXPECT_EQ(ZOFF_ERR_CORRUPT, load_with_position()) << "and again";
    ASSERT_NO_FATAL_FAILURE(damage()); // undone
    ASSERT_ZOFF_OK(load_with_position());
    EXPECT_EQ(5u, position);
    ASSERT_NO_FATAL_FAILURE(expect_states(saved));
    ASSERT_NO_FATAL_FAILURE(step(2));
    ASSERT_NO_FATAL_FAILURE(expect_states(t.tensors));
}

TEST_F(Load, DamageFoundLateLeavesPersistentStatesAtTheirCommit)
{
    seal(", \"zoff\": {\"persist\": true, \"durability\": \"process\"}", states.path);
    ASSERT_NO_FATAL_FAILURE(step(1));
    ASSERT_NO_FATAL_FAILURE(save());
    ASSERT_NO_FATAL_FAILURE(step(2));
    ASSERT_NO_FATAL_FAILURE(damage());
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "'param0'", load());
    EXPECT_EQ(2, updates());
    ASSERT_NO_FATAL_FAILURE(expect_states(t.tensors));
    ASSERT_NO_FATAL_FAILURE(step(3));
    ASSERT_NO_FATAL_FAILURE(damage());
    ASSERT_ZOFF_OK(load());
    EXPECT_EQ(1, updates());
    ASSERT_NO_FATAL_FAILURE(expect_states(saved));
}

TEST_F(Load, TheLossScaleIsThatOfTheCheckpoint)
{
    const std::string fp16 = ", \"fp16\": {\"enabled\": true}";
    log.expect("fp16.enabled is true"); // the weights are bf16
    zoff_loss_scaler scaler = {sizeof scaler, 512, 33, 12, 2}, got = ZOFF_LOSS_SCALER_INIT;
    seal(fp16);
    ASSERT_ZOFF_OK(zoff_loss_scaler_set(e.get(), &scaler));
    ASSERT_NO_FATAL_FAILURE(save());
    seal(fp16);
    ASSERT_ZOFF_OK(load());
    ASSERT_ZOFF_OK(zoff_loss_scaler_get(e.get(), &got));
    EXPECT_EQ(512, got.scale);
    EXPECT_EQ(33, got.iterations);
    EXPECT_EQ(12, got.last_overflow);
    EXPECT_EQ(2u, got.hysteresis);
    seal();
    EXPECT_ZOFF_OK(load()) << "an engine without one takes none";
}

// The configuration decides whether the scale is static, and then what it is.
TEST_F(Load, AStaticLossScaleIsThatOfTheConfiguration)
{
    log.expect("fp16.enabled is true"); // the weights are bf16
    zoff_loss_scaler scaler = {sizeof scaler, 512, 33, 12, 2}, got = ZOFF_LOSS_SCALER_INIT;
    seal(", \"fp16\": {\"enabled\": true}");
    ASSERT_ZOFF_OK(zoff_loss_scaler_set(e.get(), &scaler));
    ASSERT_NO_FATAL_FAILURE(save());
    seal(", \"fp16\": {\"enabled\": true, \"loss_scale\": 128}");
    ASSERT_ZOFF_OK(load());
    ASSERT_ZOFF_OK(zoff_loss_scaler_get(e.get(), &got));
    EXPECT_EQ(128, got.scale);
    EXPECT_EQ(33, got.iterations);
}

// A run that ends right behind the load goes on with what was loaded.
TEST_F(Load, TheCommitOfALoadRecordsTheProgramsBytes)
{
    const std::string persist = ", \"zoff\": {\"persist\": true, \"durability\": \"process\"}";
    zoff_checkpoint_data data = {"position", &position, sizeof position, false};
    seal(persist, states.path);
    ASSERT_ZOFF_OK(zoff_persist_data(e.get(), &data, 1));
    ASSERT_NO_FATAL_FAILURE(step(1));
    ASSERT_NO_FATAL_FAILURE(save());
    position = 9;
    ASSERT_NO_FATAL_FAILURE(step(2));
    for (const bool fails : {true, false}) {
        e.reset();
        seal(persist, states.path);
        if (fails) {
            ASSERT_NO_FATAL_FAILURE(damage());
        }
        EXPECT_EQ(fails ? ZOFF_ERR_CORRUPT : ZOFF_OK, load_with_position());
        if (fails) {
            ASSERT_NO_FATAL_FAILURE(damage()); // undone
        }
        e.reset();
        seal(persist, states.path);
        position = 0;
        ASSERT_ZOFF_OK(zoff_persist_data(e.get(), &data, 1));
        EXPECT_EQ(fails ? 9u : 5u, position);
        EXPECT_EQ(fails ? 2 : 1, updates());
    }
}

// They are in no commit, so a load that fails may have replaced them for good.
TEST_F(Load, DamageFoundLateUnloadsFrozenWeightsThatTheEngineOwns)
{
    const std::string persist = ", \"zoff\": {\"persist\": true, \"durability\": \"process\"}";
    t.tensors[1].frozen = true;
    t.give_away(1);
    seal(persist, states.path);
    ASSERT_NO_FATAL_FAILURE(step(1));
    ASSERT_NO_FATAL_FAILURE(save());
    ASSERT_NO_FATAL_FAILURE(damage());
    EXPECT_EQ(ZOFF_ERR_CORRUPT, load());
    float one;
    EXPECT_EQ(ZOFF_ERR_STATE, zoff_param_read(e.get(), 1, 0, 1, &one));
    EXPECT_EQ(ZOFF_ERR_STATE, zoff_step(e.get(), nullptr, nullptr));
    ASSERT_NO_FATAL_FAILURE(damage()); // undone
    EXPECT_ZOFF_OK(load());
    EXPECT_ZOFF_OK(zoff_param_read(e.get(), 1, 0, 1, &one));
}

// After each failed allocation the engine is as it was, or unloaded, and the next load succeeds. A manifest that was not read
// for want of memory may be found again in the list of the folder: then nothing has failed.
TEST_F(Load, WithoutMemory)
{
    seal();
    ASSERT_NO_FATAL_FAILURE(step(1));
    ASSERT_NO_FATAL_FAILURE(save());
    int failures = 0;
    for (int n = 1; n == 1 || memory_countdown::failed; n++) {
        SCOPED_TRACE(n);
        memory_countdown::failed = 0;
        memory_countdown::left = n;
        const zoff_status status = load_with_position();
        memory_countdown::left = 0;
        failures += status < 0;
        if (status < 0) {
            EXPECT_NE(nullptr, strstr(zoff_last_error(), "provoked")) << zoff_last_error();
        }
        EXPECT_EQ(5u, position);
        ASSERT_ZOFF_OK(load_with_position());
        ASSERT_NO_FATAL_FAILURE(expect_states(saved));
    }
    EXPECT_LE(10, failures);
}

/* ---- several ranks ---- */

TEST(LoadRanks, ArgumentsMustBeAlike)
{
    log_catcher log;
    const scratch_folder folder;
    save_ranks ranks({"stage1", 2}, "");
    ranks.job.on_each([&](unsigned rank) {
        zoff_engine *e = ranks.engine_of(rank);
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        EXPECT_ZOFF_OK(zoff_checkpoint_save(e, folder.path.c_str(), nullptr));
        opts.allow = rank ? "*" : "none";
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_opts.allow", zoff_checkpoint_load(e, folder.path.c_str(), &opts));
        opts.allow = nullptr;
        opts.label = rank ? "tp1" : nullptr;
        EXPECT_GT(0, zoff_checkpoint_load(e, folder.path.c_str(), &opts));
        EXPECT_ZOFF_OK(zoff_checkpoint_load(e, folder.path.c_str(), nullptr));
    });
}
} // namespace
