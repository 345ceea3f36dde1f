/* SPDX-License-Identifier: Apache-2.0 */
// load_test.cc: corners of saves and loads that no whole run reaches: one of several checkpoints, a static loss scale, large
// frozen weights, and damaged states. Others are what a failed load leaves behind, and lack of memory or of threads.
#include "memory_fault.h"
#include "rank_job.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

extern "C" {
#include "checkpoint_priv.h"
}

using namespace zoff_test;

namespace
{
uint64_t least; // of zoff_archive_choose()

const std::string PERSIST = ", \"zoff\": {\"persist\": true, \"durability\": \"process\"}";

// Change a bit of a byte in a file, or change it back.
void flip_byte(const std::string &path, uint64_t offset)
{
    char byte = 0;
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_LE(0, fd);
    EXPECT_EQ(1, pread(fd, &byte, 1, (off_t)offset));
    byte = (char)(byte ^ 8);
    EXPECT_EQ(1, pwrite(fd, &byte, 1, (off_t)offset));
    close(fd);
}

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
        char *chosen = nullptr, path[4096];
        zoff_archive *a = nullptr;
        ASSERT_ZOFF_OK(zoff_archive_choose(folder.path.c_str(), "", &chosen, &least));
        ASSERT_ZOFF_OK(zoff_archive_open(chosen, "", 0, &a));
        const zoff_archive_ref *ref = zoff_archive_find(a, 0, ZOFF_STATE_M, 0, 4000);
        zoff_archive_path(a, 0, path);
        flip_byte(path, a->tables[ref->file].regions[ref->piece.region].offset + ref->piece.at + 3);
        zoff_archive_close(a);
        zoff_base_mem_free(chosen);
    }

    log_catcher log;
    scratch_folder folder, states;
    trainer t;
    engine e;
    uint64_t position = 5;
    std::vector<reference::tensor> saved;
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
};

TEST_F(Load, TakesTheCheckpointThatIsNamed)
{
    seal();
    for (int64_t number : {1, 2}) {
        ASSERT_NO_FATAL_FAILURE(step(number));
        ASSERT_NO_FATAL_FAILURE(save());
    }
    opts.name = "step-0000000001";
    ASSERT_ZOFF_OK(load());
    EXPECT_EQ(1, updates());
    opts.name = "best";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, folder.file("best"), load());
    opts.name = "../best";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_checkpoint_opts.name is '../best'", load());
    EXPECT_EQ(1, updates());
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
    zoff_checkpoint_data data = {"position", &position, sizeof position, false};
    seal(PERSIST, states.path);
    ASSERT_ZOFF_OK(zoff_persist_data(e.get(), &data, 1));
    ASSERT_NO_FATAL_FAILURE(step(1));
    ASSERT_NO_FATAL_FAILURE(save());
    position = 9;
    ASSERT_NO_FATAL_FAILURE(step(2));
    for (const bool fails : {true, false}) {
        e.reset();
        seal(PERSIST, states.path);
        if (fails) {
            ASSERT_NO_FATAL_FAILURE(damage());
        }
        EXPECT_EQ(fails ? ZOFF_ERR_CORRUPT : ZOFF_OK, load_with_position());
        if (fails) {
            ASSERT_NO_FATAL_FAILURE(damage()); // undone
        }
        e.reset();
        seal(PERSIST, states.path);
        position = 0;
        ASSERT_ZOFF_OK(zoff_persist_data(e.get(), &data, 1));
        EXPECT_EQ(fails ? 9u : 5u, position);
        EXPECT_EQ(fails ? 2 : 1, updates());
    }
}

// They are in no commit, so a load that fails may have replaced them for good.
TEST_F(Load, DamageFoundLateUnloadsFrozenWeightsThatTheEngineOwns)
{
    t.tensors[1].frozen = true;
    t.give_away(1);
    seal(PERSIST, states.path);
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

TEST_F(Load, ASaveWithoutThreads)
{
    zoff_checkpoint *c = nullptr;
    seal();
    ASSERT_NO_FATAL_FAILURE(step(1));
    memory_fault fault;
    fault.fail_thread = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "no thread can be started for a checkpoint",
                      zoff_checkpoint_begin(e.get(), folder.path.c_str(), nullptr, &c));
    EXPECT_EQ(nullptr, c);
    fault.fail_thread = 0;
    ASSERT_ZOFF_OK(zoff_checkpoint_begin(e.get(), folder.path.c_str(), nullptr, &c));
    fault.fail_thread = 1; // then the caller writes the manifest
    EXPECT_ZOFF_OK(zoff_checkpoint_wait(c));
    EXPECT_ZOFF_OK(load());
}

// Frozen weights in the program's memory: slices with gaps, of odd sizes, and units that end beside them.
class LoadFrozen : public testing::TestWithParam<bool> // true: on a device
{
};
INSTANTIATE_TEST_SUITE_P(Weights, LoadFrozen, testing::Bool(),
                         [](const auto &p) { return std::string(p.param ? "OnADevice" : "OnTheHost"); });

TEST_P(LoadFrozen, ComeBackFromUnitsOfAnyCut)
{
    enum { UNIT = ZOFF_ARCHIVE_UNIT / 2 }; // elements of 16 bits
    log_catcher log;
    const std::vector<std::function<void(trainer &)>> models = {
        [](trainer &t) {
            t.add(1, 3, ZOFF_F16, ZOFF_F16, 0, true, 4);
            t.add(33, 2, ZOFF_F32, ZOFF_F32, 0, true, 1);
            t.add(0, 2, ZOFF_BF16, ZOFF_BF16, 0, true);
        },
        [](trainer &t) {
            t.add(999999, 3, ZOFF_BF16, ZOFF_BF16, 0, true, 5); // 6 MB
            t.add(1234567, 1, ZOFF_F32, ZOFF_F32, 0, true);
        },
        [](trainer &t) { t.add(UNIT, 1, ZOFF_BF16, ZOFF_BF16, 0, true); },
        [](trainer &t) { t.add(0, 3, ZOFF_BF16, ZOFF_BF16, 0, true); }};
    for (size_t model = 0; model < models.size() + 4; model++) {
        SCOPED_TRACE(model);
        const scratch_folder folder;
        test_device device;
        trainer t(3);
        t.add(10, 1, ZOFF_BF16, ZOFF_BF16); // something to train
        if (model < models.size()) {
            models[model](t);
        } else { // a unit ends in the padding behind a slice, or with it, or one element later
            const int more[] = {-31, -1, 0, 1};
            t.add((size_t)(UNIT + more[model - models.size()]), 1, ZOFF_BF16, ZOFF_BF16, 0, true);
            t.add(5, 1, ZOFF_BF16, ZOFF_BF16, 0, true);
        }
        if (GetParam())
            t.put_on(&device);
        const engine e = make_engine(t, config_text(""), 0, 0, nullptr, GetParam() ? device.accel : nullptr);
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        ASSERT_ZOFF_OK(zoff_checkpoint_save(e.get(), folder.path.c_str(), nullptr));
        zoff_checkpoint_reader *reader = nullptr;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(folder.path.c_str(), nullptr, &reader));
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_verify(reader, nullptr, nullptr));
        for (size_t i = 1; i < t.tensors.size(); i++) {
            const reference::tensor &x = t.tensors[i];
            std::vector<float> want(x.total()), got(x.total());
            for (size_t k = 0; k < want.size(); k++)
                want[k] = trainer::get(t.value(i), x.dtype, t.place(i, k));
            EXPECT_ZOFF_OK(zoff_checkpoint_reader_read(reader, i, ZOFF_STATE_WEIGHTS, 0, got.size(), got.data()));
            EXPECT_TRUE(want == got) << "tensor " << i;
        }
        zoff_checkpoint_reader_close(reader);
    }
}

// A file system that shares blocks reads nothing. Then the checkpoint has the damage, and its reader finds it.
TEST(LoadRanks, DamagedStatesOfOneRankAreSavedByNone)
{
    log_catcher log;
    const scratch_folder folder, states;
    rank_job job(3);
    rank_trainers all(job, 42, [](trainer &t) { add_awkward(t, ZOFF_BF16, ZOFF_BF16); });
    all.seal(config_text(states.path), 2048);
    job.on_each([&](unsigned rank) {
        zoff_engine *e = all.engines[rank].get();
        all.trainers[rank]->backward_all(0.1f);
        EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
        zoff_store_source damaged = {};
        EXPECT_ZOFF_OK(zoff_engine_stores_drain(e));
        EXPECT_ZOFF_OK(zoff_offload_store_source(zoff_engine_engine_view(e).store, 1, 0, &damaged));
        const std::string path = "/proc/self/fd/" + std::to_string(damaged.fd);
        if (rank == 2)
            flip_byte(path, damaged.offset);
        const zoff_status status = zoff_checkpoint_save(e, folder.path.c_str(), nullptr);
        const std::string words = zoff_last_error();
        if (status == ZOFF_OK) {
            EXPECT_GT(0, zoff_checkpoint_load(e, folder.path.c_str(), nullptr));
            return;
        }
        EXPECT_EQ(rank == 2 ? ZOFF_ERR_CORRUPT : ZOFF_ERR_COMM, status) << words;
        EXPECT_NE(words.npos, words.find(rank == 2 ? "is not what was written" : "rank 2 has failed")) << words;
        if (rank == 2)
            flip_byte(path, damaged.offset);
        EXPECT_ZOFF_OK(zoff_checkpoint_save(e, folder.path.c_str(), nullptr));
    });
}
} // namespace
