/* SPDX-License-Identifier: Apache-2.0 */
// kill_save_test.cc: a trainer is killed with SIGKILL at 200 random moments of its saves (by default a tenth of them), and
// started again each time. It goes on from the newest complete checkpoint, which is whole and no older than the last one that
// it reported. Its states and weights always equal those of a run that was never killed.
#include "covering.h"
#include "lives.h"
#include "saved_run.h"

#include <random>

using namespace zoff_test;

namespace
{
struct kind {
    const char *name;
    run_shape shape;
    bool beside;
    unsigned keep;
    unsigned kills;
};

run_shape shape_of(unsigned world, zoff_tier tier, bool persist)
{
    run_shape s;
    s.world = world;
    s.tier = tier;
    s.persist = persist;
    return s;
}

void say(int to, const char *what, int64_t t)
{
    char line[64];
    const int length = snprintf(line, sizeof line, "%s %lld\n", what, (long long)t);
    if (write(to, line, (size_t)length) != length)
        _exit(3);
}

// The trainer. It reports "open T" once it has the states of step T, and "saved T" once that step's checkpoint is complete. It
// saves after every second step.
class trainer_process
{
  public:
    trainer_process(const kind &k_, const std::string &folder_, int to_) : k(k_), folder(folder_), to(to_) {}

    void live(int64_t last)
    {
        saved_run r(k.shape, folder + "/states");
        int64_t t = open(r);
        say(to, "open", t);
        while (t < last && !testing::Test::HasFailure()) {
            r.step(++t);
            if (t % 2 == 0)
                save(r, t);
        }
        finish(r);
        r.expect();
    }

  private:
    zoff_checkpoint_opts opts() const
    {
        zoff_checkpoint_opts o = ZOFF_CHECKPOINT_OPTS_INIT;
        o.keep = k.keep;
        o.memory = 1 << 16;
        return o;
    }

    // The newest checkpoint, compared with the reference.
    int64_t open(saved_run &r)
    {
        int64_t t = 0;
        zoff_checkpoint_reader *reader = nullptr;
        const std::string saves = folder + "/saves";
        if (zoff_checkpoint_reader_open(saves.c_str(), nullptr, &reader) == ZOFF_OK) {
            EXPECT_ZOFF_OK(zoff_checkpoint_reader_verify(reader, nullptr, nullptr));
            zoff_checkpoint_reader_close(reader);
            for (auto &mine : r.all.trainers)
                mine->scramble();
            expect_all_ok(r.load(saves));
        } else if (k.shape.persist) {
            expect_all_ok(r.on_each([](zoff_engine *e, unsigned) { return zoff_params_push(e); }));
        }
        EXPECT_ZOFF_OK(zoff_step_count(r.engine_of(0), &t));
        for (int64_t i = 1; i <= t; i++)
            r.replay(i);
        r.expect();
        return t;
    }

    void save(saved_run &r, int64_t t)
    {
        finish(r);
        if (k.beside) {
            expect_all_ok(r.begin(folder + "/saves", opts()));
            begun = t;
            return;
        }
        expect_all_ok(r.save(folder + "/saves", opts()));
        say(to, "saved", t);
    }

    void finish(saved_run &r)
    {
        if (!begun)
            return;
        expect_all_ok(r.wait());
        say(to, "saved", begun);
        begun = 0;
    }

    const kind &k;
    const std::string folder;
    const int to;
    int64_t begun = 0; // the step of a save that is under way
};

class KillSave : public testing::TestWithParam<kind>
{
  protected:
    // A trainer that is killed after `usec`, or ends by itself. `opens`: after it has opened its engine.
    life live(int64_t last, unsigned usec, bool opens = false)
    {
        return zoff_test::live(
            [&](int to) {
                quiet_log quiet;
                trainer_process(GetParam(), folder.path, to).live(last);
                return (int)HasFailure();
            },
            usec, opens);
    }

    scratch_folder folder;
};

INSTANTIATE_TEST_SUITE_P(Kinds, KillSave,
                         testing::Values(kind{"host", shape_of(1, ZOFF_TIER_HOST, false), false, 0, share_of(60)},
                                         kind{"hostBeside", shape_of(1, ZOFF_TIER_HOST, false), true, 2, share_of(60)},
                                         kind{"nvmeBesideTwoRanks", shape_of(2, ZOFF_TIER_NVME, false), true, 1, share_of(40)},
                                         kind{"persistBeside", shape_of(1, ZOFF_TIER_NVME, true), true, 1, share_of(40)}),
                         [](const auto &p) { return std::string(p.param.name); });

TEST_P(KillSave, TheNewestCheckpointIsWhole)
{
    std::filesystem::create_directory(folder.file("states"));
    std::mt19937 random(5);
    // The time of a start and ten steps under the present load.
    const auto start = std::chrono::steady_clock::now();
    const life first = live(10, 0);
    ASSERT_EQ(0, first.status);
    ASSERT_EQ(10, first.done);
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
    auto moments = (unsigned)took.count() * 2;
    int64_t saved = first.done;
    unsigned in_steps = 0;
    // Every other life is killed after it had opened its engine. Later moments are used until a life has saved.
    const unsigned kills = GetParam().kills;
    for (unsigned i = 0; i < kills || (saved == first.done && i < 20 * kills); i++) {
        const life l = live(1 << 30, 1000 + random() % moments, i % 2);
        moments += i >= kills && moments < 5000000 ? moments / 8 : 0;
        ASSERT_TRUE(l.was_killed()) << "life " << i << " ended by itself";
        if (l.opened < 0)
            continue;
        in_steps++;
        // A kill may come between the end of one save and its report. With persist the run also goes on from its own files.
        ASSERT_GE(l.opened, saved) << "life " << i << " lost a checkpoint that was complete";
        ASSERT_LE(l.opened, saved + 2) << "life " << i;
        saved = std::max(l.opened, l.done);
    }
    EXPECT_GE(in_steps, kills / 2);
    EXPECT_GT(saved, 10);
    const life last = live(saved + 4, 0);
    EXPECT_EQ(0, last.status);
    EXPECT_EQ(saved + 4 - (saved + 4) % 2, last.done);
    unsigned folders = 0;
    for (const auto &entry : std::filesystem::directory_iterator(folder.file("saves")))
        folders += std::filesystem::exists(entry.path() / "manifest.json");
    EXPECT_TRUE(GetParam().keep == 0 || folders == GetParam().keep) << folders << " checkpoints stay";
}
} // namespace
