/* SPDX-License-Identifier: Apache-2.0 */
// saved_run.h: ranks with their engines and their reference, for tests that save and load. Gradients depend on the step and the
// rank only, so a run that goes on from a checkpoint computes the same ones.
#ifndef ZOFF_SAVED_RUN_H
#define ZOFF_SAVED_RUN_H

#include "rank_job.h"

#include <sys/statvfs.h>

#include <filesystem>

namespace zoff_test
{
// These tests are not about a drive: where /dev/shm has room, folders are there, which is ten times as fast.
inline const bool is_in_memory = [] {
    struct statvfs about;
    const bool has_room = access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &about) == 0 &&
                          (double)about.f_bavail * (double)about.f_frsize > (1u << 30);
    return has_room && setenv("ZOFF_TEST_DIR", "/dev/shm", 0) == 0;
}();

struct run_shape {
    unsigned world = 1, stage = 1;
    zoff_tier tier = ZOFF_TIER_HOST;
    zoff_dtype dtype = ZOFF_BF16;
    bool persist = false;
    bool owned = false; // the engine owns the weights, in files; stage 3
    bool share = false; // the weights are on a device, which updates half of the states
    bool muon = false;  // parameters 0 and 4 are matrices
    unsigned chunk = 2048;
    double timeout_seconds = 60;
    std::string optimizer = "\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}";
    std::string more;   // further keys of the configuration, each with a comma before it
    std::string engine; // further keys of the section "zoff", each with a comma before it
};

inline std::string name_of(const run_shape &s)
{
    return "world" + std::to_string(s.world) + "_stage" + std::to_string(s.stage) +
           (s.tier == ZOFF_TIER_HOST ? "_host"
            : s.persist              ? "_persist"
                                     : "_nvme") +
           (s.dtype == ZOFF_F32   ? "_fp32"
            : s.dtype == ZOFF_F16 ? "_fp16"
                                  : "_bf16") +
           (s.owned ? "_owned" : "") + (s.share ? "_share" : "") + (s.muon ? "_muon" : "");
}

// Warnings that tests provoke by the hundred are not printed.
struct quiet_log {
    quiet_log()
    {
        zoff_log_set([](zoff_log_level, const char *, const char *, void *) {}, nullptr);
    }
    ~quiet_log() { zoff_log_set(nullptr, nullptr); }
    quiet_log(const quiet_log &) = delete;
};

// Catches the log. Folders in memory are not announced.
class save_log : public log_catcher
{
  public:
    ~save_log()
    {
        if (contains(IN_MEMORY))
            expect(IN_MEMORY);
    }

  private:
    static constexpr const char *IN_MEMORY = "is not on a disk but in memory";
};

// The result of a call on one rank.
struct rank_result {
    zoff_status status = ZOFF_PENDING;
    std::string words;
};

class saved_run
{
  public:
    using tensors = std::vector<reference::tensor>;

    // `prepare`: called before an engine is sealed.
    saved_run(const run_shape &s_, const std::string &states, const std::function<void(trainer &)> &fill = nullptr,
              const std::function<void(zoff_engine *, trainer &)> &prepare = nullptr)
        : s(s_), job(s.world, s.timeout_seconds),
          all(
              job, 42, fill ? fill : [this](trainer &t) { add_tensors(t, s.dtype, s.muon); })
    {
        for (auto &h : groups) {
            if (s.muon)
                zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_MUON);
        }
        if (s.share)
            all.use_devices(0);
        job.on_each([&](unsigned rank) {
            all.engines[rank] = make_engine(*all.trainers[rank], text(states), s.chunk, 0, job.comm_of(rank),
                                            s.share ? all.devices[rank]->accel : nullptr);
            if (prepare)
                prepare(engine_of(rank), *all.trainers[rank]);
            EXPECT_ZOFF_OK(zoff_engine_seal(engine_of(rank)));
        });
    }

    // Two groups. Most parameters end in the middle of a chunk.
    static void add_tensors(trainer &t, zoff_dtype dtype, bool muon = false)
    {
        t.add(5000, 1, dtype, dtype);
        t.add(700, 3, dtype, dtype, 1, false, 2);
        t.add(300, 2, dtype, dtype, 0, true);
        t.add(1025, 1, dtype, dtype, 1);
        t.add(4096, 1, ZOFF_F32, ZOFF_F32);
        if (muon) {
            t.shape(0, {2, 50, 50}, {{0, 50, 50}, {2500, 50, 50}});
            t.shape(4, {32, 128}, {{0, 32, 128}});
        }
    }

    std::string text(const std::string &states) const
    {
        const std::string path = states.empty() ? "." : states;
        return "{\"optimizer\": {" + (s.muon ? "\"type\": \"Muon\"" : s.optimizer) +
               "}, \"gradient_clipping\": 2.0, "
               "\"zero_optimization\": {\"stage\": " +
               std::to_string(s.stage) + ", \"reduce_bucket_size\": 4096, \"offload_optimizer\": {\"device\": \"" +
               (s.tier == ZOFF_TIER_NVME ? "nvme" : "cpu") + "\", \"nvme_path\": \"" + (states.empty() ? "." : states) +
               "\", \"buffer_count\": 3, \"ratio\": " + (s.share ? "0.5" : "1") + "}}" + s.more +
               ", \"zoff\": {\"persist\": " + (s.persist ? "true" : "false") + ", \"durability\": \"process\"" + s.engine +
               "}}";
    }

    zoff_engine *engine_of(unsigned rank) const { return all.engines[rank].get(); }

    // The reference alone takes a step.
    void replay(int64_t t)
    {
        all.backward((unsigned)t, 0.5f, leave_out);
        (void)reference_step(t);
    }

    // The update of the reference with the gradients so far.
    reference::result reference_step(int64_t t, unsigned micro_steps = 1)
    {
        const reference::result result =
            reference::step(all.want.tensors, groups, t, 1 / loss_scale, s.world * micro_steps, 2.0);
        all.forget();
        return result;
    }

    // The gradients of step `t`. `overflows`: one of them is infinite.
    void backward(int64_t t, bool overflows = false)
    {
        all.backward((unsigned)t, 0.5f, overflows ? 0 : leave_out);
        if (!overflows)
            return;
        trainer &first = *all.trainers[0];
        trainer::put(first.grad(0), first.tensors[0].grad_dtype, 0, INFINITY);
        all.want.tensors[0].sum[0] = INFINITY;
    }

    // Only this parameter has a gradient.
    void keep_gradient_of(size_t one)
    {
        for (size_t i = 0; i < all.want.tensors.size(); i++) {
            if (i == one)
                continue;
            for (auto &t : all.trainers)
                t->tensors[i].present.assign(t->tensors[i].slices, false);
            all.want.tensors[i].present.assign(all.want.tensors[i].slices, false);
        }
    }

    // Hand the gradients of a rank over, and step.
    zoff_status step_on(unsigned rank, zoff_step_info *info)
    {
        trainer &mine = *all.trainers[rank];
        if (s.owned)
            mine.fetch_all(engine_of(rank));
        for (auto [i, slice] : mine.present())
            mine.hand_over(engine_of(rank), i, slice);
        const zoff_status status = zoff_step_begin(engine_of(rank), nullptr);
        return status < 0 ? status : zoff_step_wait(engine_of(rank), info);
    }

    // Take step `t` on all ranks, and check that it is that one. The infos have a place for each rank.
    reference::result step(int64_t t, bool overflows = false)
    {
        backward(t, overflows);
        EXPECT_ZOFF_OK(zoff_loss_scale(engine_of(0), &loss_scale));
        infos.assign(s.world, new_info());
        job.on_each([&](unsigned rank) {
            EXPECT_ZOFF_OK(step_on(rank, &infos[rank]));
            EXPECT_EQ(t, infos[rank].t);
            EXPECT_EQ(overflows, infos[rank].skipped);
        });
        return reference_step(t);
    }

    // Seconds that the last step waited for a save, on all ranks.
    double save_wait() const
    {
        double sum = 0;
        for (const auto &info : infos)
            sum += info.seconds.save_wait;
        return sum;
    }

    // Call a function on all ranks, and collect status and message.
    std::vector<rank_result> on_each(const std::function<zoff_status(zoff_engine *e, unsigned rank)> &call) const
    {
        std::vector<rank_result> results(s.world);
        job.on_each([&](unsigned rank) {
            results[rank].status = call(engine_of(rank), rank);
            results[rank].words = zoff_last_error();
        });
        return results;
    }

    std::vector<rank_result> save(const std::string &folder, zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT) const
    {
        return on_each([&](zoff_engine *e, unsigned) { return zoff_checkpoint_save(e, folder.c_str(), &opts); });
    }
    std::vector<rank_result> load(const std::string &folder, zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT) const
    {
        return on_each([&](zoff_engine *e, unsigned) { return zoff_checkpoint_load(e, folder.c_str(), &opts); });
    }

    // Save beside steps: begin, and later wait.
    std::vector<rank_result> begin(const std::string &folder, zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT)
    {
        saves.assign(s.world, nullptr);
        return on_each(
            [&](zoff_engine *e, unsigned rank) { return zoff_checkpoint_begin(e, folder.c_str(), &opts, &saves[rank]); });
    }
    std::vector<rank_result> wait()
    {
        return on_each([&](zoff_engine *, unsigned rank) { return zoff_checkpoint_wait(saves[rank]); });
    }

    // Expect that weights and states of all ranks equal `want`.
    void expect(const tensors &want)
    {
        job.on_each([&](unsigned rank) {
            trainer &t = *all.trainers[rank];
            t.tensors = want;
            if (s.owned)
                t.fetch_all(engine_of(rank));
            t.expect_weights();
            t.expect_states(engine_of(rank), groups);
        });
    }
    void expect() { expect(all.want.tensors); }

    // Continue from these states.
    void take(const tensors &from)
    {
        for (size_t i = 0; i < from.size(); i++) {
            all.want.tensors[i].master = from[i].master;
            all.want.tensors[i].m = from[i].m;
            all.want.tensors[i].v = from[i].v;
        }
    }

    const run_shape s;
    rank_job job;
    rank_trainers all;
    std::vector<zoff_optimizer_hyper> groups = config_groups();
    std::vector<zoff_step_info> infos;
    std::vector<zoff_checkpoint *> saves;
    double leave_out = 0, loss_scale = 1;
};

inline void expect_all_ok(const std::vector<rank_result> &results)
{
    for (size_t rank = 0; rank < results.size(); rank++)
        EXPECT_EQ(ZOFF_OK, results[rank].status) << "rank " << rank << ": " << results[rank].words;
}

// The newest checkpoint of a folder is whole, and of this step.
inline void expect_newest(const std::string &folder, int64_t t)
{
    zoff_checkpoint_reader *reader = nullptr;
    zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
    ASSERT_ZOFF_OK(zoff_checkpoint_reader_open(folder.c_str(), nullptr, &reader));
    EXPECT_ZOFF_OK(zoff_checkpoint_reader_info(reader, &info));
    EXPECT_EQ(t, info.t);
    EXPECT_ZOFF_OK(zoff_checkpoint_reader_verify(reader, nullptr, nullptr));
    zoff_checkpoint_reader_close(reader);
}

// A new engine loads a folder and has these states.
inline void expect_loads(const run_shape &s, const std::string &folder, int64_t t, const saved_run::tensors &want)
{
    const std::string states = folder + ".loaded";
    int64_t got = 0;
    std::filesystem::create_directory(states);
    {
        saved_run other(s, states);
        for (auto &mine : other.all.trainers)
            mine->scramble();
        expect_all_ok(other.load(folder));
        EXPECT_ZOFF_OK(zoff_step_count(other.engine_of(0), &got));
        EXPECT_EQ(t, got);
        other.expect(want);
    }
    std::filesystem::remove_all(states);
}
} // namespace zoff_test

#endif
