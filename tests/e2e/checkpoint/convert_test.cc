/* SPDX-License-Identifier: Apache-2.0 */
// convert_test.cc: the persistent state files of any ranks become a checkpoint without an engine. Engines of another number of
// ranks, tier and list of paths load it, and have the same masters, moments, step, loss scale and data. Their next step equals
// that of a reference that was never interrupted.
#include "covering.h"
#include "file_bytes.h"
#include "rank_job.h"

#include <signal.h>
#include <sys/wait.h>

using namespace zoff_test;

namespace
{
enum kind { FP32, BF16, BF16_HALVES, FP16_SCALED }; // HALVES: moments in bf16

struct cell {
    unsigned world, stage, paths;
    kind type;
    unsigned to_world;
    zoff_tier to_tier;
};

std::string name(const cell &c)
{
    static const char *const TYPES[] = {"fp32", "bf16", "bf16_halves", "fp16_scaled"};
    return "world" + std::to_string(c.world) + "_stage" + std::to_string(c.stage) + "_paths" + std::to_string(c.paths) + "_" +
           TYPES[c.type] + "_to_world" + std::to_string(c.to_world) + (c.to_tier == ZOFF_TIER_HOST ? "_host" : "_nvme");
}

void fill(covering<cell> &cells)
{
    for (unsigned world : {1u, 2u, 3u})
        for (unsigned stage : {0u, 1u, 2u, 3u})
            for (unsigned paths : {1u, 2u})
                for (kind type : {FP32, BF16, BF16_HALVES, FP16_SCALED})
                    for (unsigned to_world : {1u, 2u, 3u})
                        for (zoff_tier to : {ZOFF_TIER_HOST, ZOFF_TIER_NVME})
                            cells.add({world, stage, paths, type, to_world, to});
}

const covering<cell> &matrix()
{
    static const covering<cell> all(
        "Matrix/Convert.AnyEngineLoadsIt/", [](const cell &c) { return name(c); },
        [](const cell &c) {
            return covering<cell>::values{{"world", std::to_string(c.world)},
                                          {"stage", std::to_string(c.stage)},
                                          {"paths", std::to_string(c.paths)},
                                          {"type", std::to_string((int)c.type)},
                                          {"loading world", std::to_string(c.to_world)},
                                          {"loading tier", c.to_tier == ZOFF_TIER_HOST ? "host" : "nvme"}};
        },
        fill);
    return all;
}

// One side: ranks, and the program's data of each.
class run
{
  public:
    run(unsigned world, unsigned stage, zoff_tier tier, kind type, bool persist, const std::vector<std::string> &paths,
        const std::string &verify = "full")
        : job(world), all(job, 42, [type](trainer &t) {
              const zoff_dtype d = type == FP32 ? ZOFF_F32 : type == FP16_SCALED ? ZOFF_F16 : ZOFF_BF16;
              add_awkward(t, d, d);
              for (auto &tensor : t.tensors)
                  tensor.halves = type == BF16_HALVES;
          })
    {
        std::string list;
        for (const std::string &path : paths)
            list += (list.empty() ? "\"" : ", \"") + path + "\"";
        std::string text = "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 2.0, ";
        if (type == FP16_SCALED) // a scale of 1, which the reference does not see, and counters
            text += "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 0, \"loss_scale_window\": 1000}, ";
        text += "\"zero_optimization\": {\"stage\": " + std::to_string(stage) +
                ", \"reduce_bucket_size\": 20000, \"offload_optimizer\": {\"device\": \"" +
                (tier == ZOFF_TIER_NVME ? "nvme" : "cpu") + "\", \"nvme_path\": [" + list + "], \"buffer_count\": 3}}";
        text += ", \"zoff\": {\"moments\": \"" + std::string(type == BF16_HALVES ? "bf16" : "fp32") + "\"";
        if (persist)
            text += ", \"persist\": true, \"durability\": \"process\", \"verify\": \"" + verify + "\"";
        all.seal(text + "}}", 3000);
    }
    // Each commit has the number of its step in the program's data.
    void record()
    {
        own.assign(job.size, 0);
        job.on_each([this](unsigned rank) {
            const zoff_checkpoint_data data[] = {{"position", &position, sizeof position, false},
                                                 {"own", &own[rank], sizeof own[rank], true}};
            EXPECT_ZOFF_OK(zoff_persist_data(engine_of(rank), data, 2));
        });
    }
    void step(int64_t t)
    {
        position = (uint64_t)t * 100;
        for (unsigned rank = 0; rank < own.size(); rank++)
            own[rank] = position + rank;
        all.backward((unsigned)t, 0.5f);
        job.on_each([&](unsigned rank) {
            zoff_step_info info = new_info();
            all.trainers[rank]->hand_over_all(engine_of(rank));
            EXPECT_ZOFF_OK(zoff_step(engine_of(rank), nullptr, &info));
            EXPECT_EQ(t, info.t);
        });
        (void)all.step(config_groups(), t, 2.0);
    }
    void end()
    {
        job.on_each([this](unsigned rank) { all.engines[rank].reset(); });
    }
    void load(const std::string &folder, int64_t t, bool has_own, bool scaled)
    {
        for (auto &trainer : all.trainers)
            trainer->scramble();
        job.on_each([&](unsigned rank) {
            uint64_t got = 0, mine = 0;
            int64_t count = 0;
            zoff_checkpoint_data data[] = {{"position", &got, sizeof got, false}, {"own", &mine, sizeof mine, true}};
            zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
            opts.data = data;
            opts.data_count = has_own ? 2 : 1;
            ASSERT_ZOFF_OK(zoff_checkpoint_load(engine_of(rank), folder.c_str(), &opts));
            EXPECT_EQ((uint64_t)t * 100, got);
            EXPECT_EQ(has_own ? (uint64_t)t * 100 + rank : 0, mine);
            EXPECT_ZOFF_OK(zoff_step_count(engine_of(rank), &count));
            EXPECT_EQ(t, count);
            zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT;
            EXPECT_ZOFF_OK(zoff_loss_scaler_get(engine_of(rank), &scaler));
            EXPECT_EQ(1, scaler.scale);
            EXPECT_EQ(scaled ? t : 0, scaler.iterations);
        });
    }
    void expect(const std::vector<reference::tensor> &want)
    {
        job.on_each([&](unsigned rank) {
            all.trainers[rank]->tensors = want;
            all.trainers[rank]->expect_weights();
            all.trainers[rank]->expect_states(engine_of(rank));
        });
    }
    // Go on as the reference: the next step has its bits, too.
    void expect_next(const std::vector<reference::tensor> &saved, int64_t t)
    {
        expect(saved);
        for (size_t i = 0; i < saved.size(); i++) {
            all.want.tensors[i].master = saved[i].master;
            all.want.tensors[i].m = saved[i].m;
            all.want.tensors[i].v = saved[i].v;
        }
        step(t);
        expect(all.want.tensors);
    }
    zoff_engine *engine_of(unsigned rank) { return all.engines[rank].get(); }

    rank_job job;
    rank_trainers all;
    uint64_t position = 0;
    std::vector<uint64_t> own;
};

class Files : public testing::Test
{
  protected:
    std::vector<std::string> paths(unsigned count) const
    {
        return count == 1 ? std::vector<std::string>{states[0].path} : std::vector<std::string>{states[0].path, states[1].path};
    }
    zoff_status convert(unsigned count, zoff_progress_fn progress = nullptr)
    {
        const char *folders[] = {states[0].path.c_str(), states[1].path.c_str()};
        return zoff_state_files_checkpoint(folders, count, to.path.c_str(), nullptr, progress, nullptr);
    }
    std::string state_file(unsigned rank, unsigned path = 0) const
    {
        return states[path].file("zoff-r" + std::to_string(rank) + ".states");
    }
    void expect_nothing()
    {
        zoff_checkpoint_reader *r = nullptr;
        EXPECT_EQ(ZOFF_ERR_IO, zoff_checkpoint_reader_open(to.path.c_str(), nullptr, &r));
        EXPECT_TRUE(to.is_empty()) << "files are left in " << to.path;
    }
    // Two ranks with two paths each; stage 2.
    void train(int64_t steps)
    {
        run from(2, 2, ZOFF_TIER_NVME, BF16, true, paths(2));
        from.record();
        for (int64_t t = 1; t <= steps; t++)
            from.step(t);
        saved = from.all.want.tensors;
    }

    scratch_folder states[2], to, others[2];
    std::vector<reference::tensor> saved;
};

class Convert : public Files, public testing::WithParamInterface<cell>
{
};
INSTANTIATE_TEST_SUITE_P(Matrix, Convert, testing::ValuesIn(matrix().cells()), [](const auto &one) { return name(one.param); });

TEST(ConvertCells, CoverAllPairs)
{
    matrix().expect_all_pairs();
}

TEST_P(Convert, AnyEngineLoadsIt)
{
    const cell &c = GetParam();
    {
        run from(c.world, c.stage, ZOFF_TIER_NVME, c.type, true, paths(c.paths));
        from.record();
        from.step(1);
        from.step(2);
        saved = from.all.want.tensors;
    }
    ASSERT_ZOFF_OK(convert(c.paths));
    run loads(c.to_world, (c.stage + 1) % 4, c.to_tier, c.type, c.to_tier == ZOFF_TIER_NVME && c.paths == 1,
              {others[0].path, others[1].path});
    loads.load(to.path, 2, c.to_world == c.world, c.type == FP16_SCALED);
    if (!HasFailure())
        loads.expect_next(saved, 3);
    // Every byte of the checkpoint is in order, and the files are as they were: a run of the same kind continues with them.
    zoff_checkpoint_reader *r = nullptr;
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(to.path.c_str(), nullptr, &r));
    EXPECT_ZOFF_OK(zoff_checkpoint_reader_verify(r, nullptr, nullptr));
    zoff_checkpoint_reader_close(r);
    loads.end();
    run again(c.world, c.stage, ZOFF_TIER_NVME, c.type, true, paths(c.paths));
    again.job.on_each([&](unsigned rank) { EXPECT_ZOFF_OK(zoff_params_push(again.engine_of(rank))); });
    again.expect(saved);
}

// A rank that was killed before it could commit step 3: its file is that of step 2.
TEST_F(Files, TheStepThatAllRanksHaveIsTaken)
{
    std::vector<reference::tensor> after_two;
    std::string old[2];
    {
        run from(2, 2, ZOFF_TIER_NVME, BF16, true, paths(2));
        from.record();
        from.step(1);
        from.step(2);
        after_two = from.all.want.tensors;
        for (unsigned i = 0; i < 2; i++)
            old[i] = bytes_of(state_file(1, i));
        from.step(3);
    }
    write_bytes(state_file(1, 0), old[0]);
    write_bytes(state_file(1, 1), old[1]);
    ASSERT_ZOFF_OK(convert(2));
    run loads(3, 1, ZOFF_TIER_HOST, BF16, false, {others[0].path});
    loads.load(to.path, 2, false, false);
    if (!HasFailure())
        loads.expect_next(after_two, 3);
}

// Without checksums nothing shows whether a step has overwritten an older commit. The last one may be taken.
TEST_F(Files, AnOlderStepNeedsChecksums)
{
    std::string old[2];
    {
        run from(2, 2, ZOFF_TIER_NVME, BF16, true, paths(2), "off");
        from.record();
        from.step(1);
        from.step(2);
        for (unsigned i = 0; i < 2; i++)
            old[i] = bytes_of(state_file(1, i));
        from.step(3);
        saved = from.all.want.tensors;
    }
    ASSERT_ZOFF_OK(convert(2));
    run loads(1, 0, ZOFF_TIER_HOST, BF16, false, {others[0].path});
    loads.load(to.path, 3, false, false);
    loads.expect(saved);
    write_bytes(state_file(1, 0), old[0]);
    write_bytes(state_file(1, 1), old[1]);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has no checksum", convert(2));
}

class Killed : public Files
{
};

// The ranks are killed at some moment of a step. The checkpoint has a step that the reference has, too.
TEST_F(Killed, AtAnyMomentOfAStep)
{
    std::vector<std::vector<reference::tensor>> after;
    {
        run never_killed(2, 2, ZOFF_TIER_HOST, BF16, false, {others[0].path});
        for (int64_t t = 1; t <= 12; t++) {
            never_killed.step(t);
            after.push_back(never_killed.all.want.tensors);
        }
    }
    fast_random random(9);
    for (unsigned round = 0; round < 1 + share_of(30) && !HasFailure(); round++) {
        scratch_folder killed[2], checkpoints;
        int steps[2];
        ASSERT_EQ(0, pipe(steps));
        const pid_t child = fork();
        if (child == 0) {
            run from(2, 2, ZOFF_TIER_NVME, BF16, true, {killed[0].path, killed[1].path});
            from.record();
            for (int64_t t = 1; t <= 12; t++) {
                from.step(t);
                if (write(steps[1], "s", 1) != 1)
                    _exit(1);
            }
            pause();
        }
        close(steps[1]);
        char byte;
        for (unsigned i = 0; i < 1 + round % 4; i++)
            ASSERT_EQ(1, read(steps[0], &byte, 1)) << "the child has ended";
        usleep((useconds_t)(random() % 20000));
        kill(child, SIGKILL);
        ASSERT_EQ(child, waitpid(child, nullptr, 0));
        close(steps[0]);
        const char *folders[] = {killed[0].path.c_str(), killed[1].path.c_str()};
        ASSERT_ZOFF_OK(zoff_state_files_checkpoint(folders, 2, checkpoints.path.c_str(), nullptr, nullptr, nullptr));
        zoff_checkpoint_reader *r = nullptr;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(checkpoints.path.c_str(), nullptr, &r));
        zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
        ASSERT_ZOFF_OK(zoff_checkpoint_reader_info(r, &info));
        const int64_t t = info.t;
        zoff_checkpoint_reader_close(r);
        ASSERT_GE(t, 1 + round % 4) << "the step was reported";
        run loads(3, 1, ZOFF_TIER_HOST, BF16, false, {others[0].path});
        loads.load(checkpoints.path, t, false, false);
        loads.expect(after[(size_t)t - 1]);
    }
}

// Ranks that are two steps apart have no step together.
TEST_F(Files, NoCommonStepIsAnError)
{
    std::string old[2];
    {
        run from(2, 2, ZOFF_TIER_NVME, BF16, true, paths(2));
        from.step(1);
        for (unsigned i = 0; i < 2; i++)
            old[i] = bytes_of(state_file(1, i));
        from.step(2);
        from.step(3);
    }
    write_bytes(state_file(1, 0), old[0]);
    write_bytes(state_file(1, 1), old[1]);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "no step is in all files", convert(2));
    expect_nothing();
}

// The record of the last step is damaged in one file: the step before it is in all.
TEST_F(Files, ADamagedRecordGoesOneStepBack)
{
    log_catcher log;
    {
        run from(2, 2, ZOFF_TIER_NVME, BF16, true, paths(2));
        from.record();
        from.step(1);
        from.step(2);
        saved = from.all.want.tensors;
        from.step(3);
    }
    std::string bytes = bytes_of(state_file(1, 0)); // generation 4 is in head 0
    bytes[40] = (char)(bytes[40] ^ 1);
    write_bytes(state_file(1, 0), bytes);
    log.expect("the record of a later commit in '" + state_file(1, 0) + "' is not valid");
    ASSERT_ZOFF_OK(convert(2));
    run loads(1, 0, ZOFF_TIER_HOST, BF16, false, {others[0].path});
    loads.load(to.path, 2, false, false);
    loads.expect(saved);
}

// Files of a run without a step: moments were never written, and are zero.
TEST_F(Files, TheFirstContentIsStepZero)
{
    {
        run from(2, 1, ZOFF_TIER_NVME, BF16, true, paths(2));
        saved = from.all.want.tensors;
    }
    ASSERT_ZOFF_OK(convert(2));
    run loads(1, 0, ZOFF_TIER_HOST, BF16, false, {others[0].path});
    loads.all.trainers[0]->scramble();
    ASSERT_ZOFF_OK(zoff_checkpoint_load(loads.engine_of(0), to.path.c_str(), nullptr));
    loads.expect_next(saved, 1);
}

TEST_F(Files, ADamagedArrayIsNamedAndNothingIsLeft)
{
    train(3);
    const std::string damaged = state_file(1, 1);
    std::string bytes = bytes_of(damaged);
    for (size_t i = bytes.size() / 2; i < bytes.size(); i += 512)
        bytes[i] = (char)(bytes[i] ^ 8);
    write_bytes(damaged, bytes);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, damaged, convert(2));
    expect_nothing();
}

// An earlier checkpoint stays complete when the new one fails.
TEST_F(Files, AnEarlierCheckpointStays)
{
    train(2);
    ASSERT_ZOFF_OK(convert(2));
    std::string bytes = bytes_of(state_file(0, 0));
    for (size_t i = bytes.size() / 2; i < bytes.size(); i += 512)
        bytes[i] = (char)(bytes[i] ^ 8);
    write_bytes(state_file(0, 0), bytes);
    const char *folders[] = {states[0].path.c_str(), states[1].path.c_str()};
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.name = "other";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, state_file(0, 0),
                      zoff_state_files_checkpoint(folders, 2, to.path.c_str(), &opts, nullptr, nullptr));
    EXPECT_NE(0, access(to.file("other").c_str(), F_OK));
    run loads(1, 0, ZOFF_TIER_HOST, BF16, false, {others[0].path});
    loads.load(to.path, 2, false, false);
    loads.expect(saved);
}

TEST_F(Files, AMissingFileIsNamed)
{
    train(1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "file 2 of 2 of rank 0 (of 2) is missing", convert(1));
    const char *twice[] = {states[0].path.c_str(), states[0].path.c_str()};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "are both file 1 of rank 0",
                      zoff_state_files_checkpoint(twice, 2, to.path.c_str(), nullptr, nullptr, nullptr));
    ASSERT_EQ(0, unlink((state_file(1) + ".layout").c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, state_file(1) + ".layout", convert(2));
    ASSERT_EQ(0, unlink(state_file(1, 0).c_str()));
    ASSERT_EQ(0, unlink(state_file(1, 1).c_str()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "file 1 of 1 of rank 1 (of 2) is missing", convert(2));
    expect_nothing();
}

TEST_F(Files, FilesOfDifferentRunsAreRefused)
{
    train(1);
    {
        run other(1, 2, ZOFF_TIER_NVME, BF16, true, {others[0].path});
        other.step(1);
    }
    const char *folders[] = {states[0].path.c_str(), states[1].path.c_str(), others[0].path.c_str()};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "different models or numbers of ranks",
                      zoff_state_files_checkpoint(folders, 3, to.path.c_str(), nullptr, nullptr, nullptr));
    expect_nothing();
}

TEST_F(Files, AnOpenFileIsRefused)
{
    run from(2, 2, ZOFF_TIER_NVME, BF16, true, paths(2));
    from.step(1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "in use by an engine", convert(2));
    expect_nothing();
}

TEST_F(Files, TheProgramCanEndIt)
{
    train(1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CANCELED, "the program ended it",
                      convert(2, [](const char *, uint64_t, uint64_t, void *) { return false; }));
    expect_nothing();
    static uint64_t last, total;
    ASSERT_ZOFF_OK(convert(2, [](const char *what, uint64_t done, uint64_t all, void *) {
        EXPECT_STREQ("reshard", what);
        EXPECT_LT(last, done);
        last = done;
        total = all;
        return true;
    }));
    EXPECT_EQ(total, last);
}

TEST_F(Files, ReplacesNoCheckpoint)
{
    train(1);
    ASSERT_ZOFF_OK(convert(2));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, to.path + "/step-0000000001' is a checkpoint already", convert(2));
    zoff_checkpoint_reader *r = nullptr;
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(to.path.c_str(), nullptr, &r));
    EXPECT_ZOFF_OK(zoff_checkpoint_reader_verify(r, nullptr, nullptr));
    zoff_checkpoint_reader_close(r);
}

TEST_F(Files, ArgumentsAreChecked)
{
    const char *none[] = {nullptr};
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "folders must not be NULL",
                      zoff_state_files_checkpoint(nullptr, 1, to.path.c_str(), nullptr, nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "folder 0 is NULL",
                      zoff_state_files_checkpoint(none, 1, to.path.c_str(), nullptr, nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "checkpoints must not be NULL",
                      zoff_state_files_checkpoint(none, 1, nullptr, nullptr, nullptr, nullptr));
    train(1);
    const char *folders[] = {states[0].path.c_str(), states[1].path.c_str()};
    uint64_t position = 0;
    const zoff_checkpoint_data data = {"position", &position, sizeof position, false};
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.data = &data;
    opts.data_count = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "data_count must be 0",
                      zoff_state_files_checkpoint(folders, 2, to.path.c_str(), &opts, nullptr, nullptr));
    expect_nothing();
}
} // namespace
