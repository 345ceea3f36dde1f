/* SPDX-License-Identifier: Apache-2.0 */
// kill_calls_test.cc: a program of one or two ranks is killed at each call of its save: under a new name, in place of a
// checkpoint, and in place of one where names cannot be exchanged. Any number of ranks then loads the checkpoint before or the
// new one, whole, by the folder and by the name, and the next save leaves nothing else.
#include "covering.h"
#include "save_fault.h"
#include "saved_run.h"

#include <sys/wait.h>

using namespace zoff_test;
namespace fs = std::filesystem;

namespace
{
struct kind {
    const char *name;
    unsigned world;
    const char *saves; // "early" is there
    bool has_exchange;
};

class KillCalls : public testing::TestWithParam<kind>
{
  protected:
    KillCalls()
    {
        shape.world = GetParam().world;
        shape.stage = shape.world;
        saved_run r(shape, "");
        for (int64_t t = 1; t <= 3; t++) {
            r.step(t);
            want[t] = r.all.want.tensors;
            if (t == 1)
                expect_all_ok(r.save(early.path, options("early")));
        }
    }
    static zoff_checkpoint_opts options(const char *name)
    {
        zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
        opts.name = name;
        return opts;
    }
    // Whether the child has ended its save of step 2.
    bool kill_at(int nth, const std::string &folder)
    {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            quiet_log quiet;
            save_fault fault;
            std::atomic<int> calls{0};
            saved_run r(shape, "");
            r.step(1);
            r.step(2);
            fault.has_exchange = GetParam().has_exchange;
            fault.before = [&](disk_call) {
                if (++calls == nth)
                    kill(getpid(), SIGKILL);
            };
            expect_all_ok(r.save(folder, options(GetParam().saves)));
            fault.before = nullptr;
            _exit(HasFailure() ? 2 : 0);
        }
        int how = 0;
        EXPECT_EQ(child, waitpid(child, &how, 0));
        EXPECT_TRUE(WIFSIGNALED(how) || WEXITSTATUS(how) == 0);
        return !WIFSIGNALED(how);
    }
    static int64_t step_of(const std::string &folder)
    {
        zoff_checkpoint_reader *reader = nullptr;
        zoff_checkpoint_info info = ZOFF_CHECKPOINT_INFO_INIT;
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_open(folder.c_str(), nullptr, &reader));
        EXPECT_ZOFF_OK(zoff_checkpoint_reader_info(reader, &info));
        const int64_t t = info.t;
        zoff_checkpoint_reader_close(reader);
        return t;
    }
    void expect_next(const std::string &folder)
    {
        save_fault fault;
        fault.has_exchange = GetParam().has_exchange;
        saved_run r(shape, "");
        for (int64_t t = 1; t <= 3; t++)
            r.step(t);
        expect_all_ok(r.save(folder, options(GetParam().saves)));
        expect_newest(folder, 3);
        std::set<std::string> names, wanted = {"early", "latest", GetParam().saves};
        for (const auto &entry : fs::directory_iterator(folder))
            names.insert(entry.path().filename());
        EXPECT_EQ(wanted, names);
        const fs::directory_iterator files(folder + "/" + GetParam().saves);
        EXPECT_EQ(1 + shape.world, std::distance(fs::begin(files), fs::end(files)));
    }

    run_shape shape;
    scratch_folder early; // folder with the checkpoint of step 1
    std::map<int64_t, saved_run::tensors> want;
};

INSTANTIATE_TEST_SUITE_P(Kinds, KillCalls,
                         testing::Values(kind{"new_name", 1, "late", true}, kind{"exchange", 1, "early", true},
                                         kind{"aside", 1, "early", false}, kind{"new_name_ranks", 2, "late", true},
                                         kind{"exchange_ranks", 2, "early", true}, kind{"aside_ranks", 2, "early", false}),
                         [](const auto &p) { return std::string(p.param.name); });

TEST_P(KillCalls, LeaveTheOldOrTheNewOneWhole)
{
    quiet_log quiet;
    bool is_done = false;
    unsigned olds = 0, news = 0;
    for (int nth = 1; !is_done && !HasFailure(); nth += fault_stride()) {
        SCOPED_TRACE("killed at call " + std::to_string(nth));
        scratch_folder scratch;
        fs::copy(early.path, scratch.path, fs::copy_options::recursive);
        is_done = kill_at(nth, scratch.path);
        const int64_t t = step_of(scratch.path);
        (t == 1 ? olds : news)++;
        EXPECT_TRUE(t == 2 || !is_done);
        expect_newest(scratch.path, t);
        if (strcmp(GetParam().saves, "early") == 0)
            expect_newest(scratch.file("early"), t);
        run_shape other = shape;
        other.world = other.stage = 3 - shape.world;
        expect_loads(other, scratch.path, t, want[t]);
        expect_next(scratch.path);
    }
    EXPECT_GT(olds, 20u / (unsigned)fault_stride());
    EXPECT_GT(news, 5u / (unsigned)fault_stride());
}
} // namespace
