/* SPDX-License-Identifier: Apache-2.0 */
// durable_test.cc: calls that make something durable with zoff.persist, also before the first step. After each of them the
// process is destroyed in order or killed, and an engine that is opened again has it.
#include "small_engine.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

using namespace zoff_test;

namespace
{
enum { COUNT = 1500 };

struct trained {
    explicit trained(const std::string &folder) : w(COUNT, 1), g(COUNT, 0.5f), first(COUNT, 2), h(COUNT, 0.25f)
    {
        const std::string text = config_text(folder, 1,
                                             ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 3}, \"zoff\": "
                                             "{\"persist\": true, \"durability\": \"process\"}");
        zoff_engine_opts opts = {};
        opts.threads = 1;
        opts.chunk_elements = 1024;
        e = make_engine(text, opts);
        zoff_param_desc d = {};
        d.struct_size = sizeof d;
        d.count = COUNT;
        d.value = w.data();
        d.grad = g.data();
        EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        d.value = first.data();
        d.grad = h.data();
        d.engine_owned = true;
        EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
    }
    // All that files record.
    std::vector<double> look()
    {
        int64_t t = -1;
        zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT;
        EXPECT_ZOFF_OK(zoff_step_count(e.get(), &t));
        EXPECT_ZOFF_OK(zoff_loss_scaler_get(e.get(), &scaler));
        std::vector<double> all = {(double)t, scaler.scale, (double)scaler.iterations, (double)scaler.hysteresis,
                                   (double)position};
        for (zoff_param p : {0u, 1u})
            for (zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V})
                for (size_t at : {0, 1023, 1024, COUNT - 1}) {
                    float x = -1;
                    EXPECT_ZOFF_OK(zoff_state_read(e.get(), p, kind, at, 1, &x));
                    all.push_back(x);
                }
        return all;
    }
    void keep_position()
    {
        const zoff_checkpoint_data data = {"position", &position, sizeof position, false};
        EXPECT_ZOFF_OK(zoff_persist_data(e.get(), &data, 1));
    }
    void write(zoff_param p, zoff_state_kind kind, float value)
    {
        const std::vector<float> x(COUNT, value);
        EXPECT_ZOFF_OK(zoff_state_write(e.get(), p, kind, 0, COUNT, x.data()));
    }
    void flush() { EXPECT_ZOFF_OK(zoff_state_flush(e.get())); }

    std::vector<float> w, g, first, h;
    int64_t position = 0;
    engine e;
};

struct act {
    const char *name;
    void (*run)(trained &x, int64_t t, const std::string &checkpoint);
    bool needs_destroy; // only destroy makes the act durable
    bool loads;         // the act loads a checkpoint
};
const act ACTS[] = {
    {"a_moment", [](trained &x, int64_t, const std::string &) { x.write(0, ZOFF_STATE_M, 7), x.flush(); }},
    {"a_second_moment", [](trained &x, int64_t, const std::string &) { x.write(1, ZOFF_STATE_V, 0.5f), x.flush(); }},
    {"masters_of_the_program", [](trained &x, int64_t, const std::string &) { x.write(0, ZOFF_STATE_MASTER, -3), x.flush(); }},
    {"masters_of_the_engine", [](trained &x, int64_t, const std::string &) { x.write(1, ZOFF_STATE_MASTER, -3), x.flush(); }},
    {"weights_of_the_engine",
     [](trained &x, int64_t, const std::string &) {
         const std::vector<float> mine(COUNT, 9);
         EXPECT_ZOFF_OK(zoff_param_write(x.e.get(), 1, 0, COUNT, mine.data()));
         x.flush();
     }},
    {"a_range_and_the_same_count",
     [](trained &x, int64_t t, const std::string &) {
         x.write(0, ZOFF_STATE_M, 7);
         EXPECT_ZOFF_OK(zoff_step_count_set(x.e.get(), t));
     }},
    {"a_range_and_destroy", [](trained &x, int64_t, const std::string &) { x.write(0, ZOFF_STATE_M, 7); }, true},
    {"another_count",
     [](trained &x, int64_t t, const std::string &) { EXPECT_ZOFF_OK(zoff_step_count_set(x.e.get(), t + 5)); }},
    {"a_count_that_is_set_back",
     [](trained &x, int64_t t, const std::string &) {
         EXPECT_ZOFF_OK(zoff_step_count_set(x.e.get(), t + 5));
         EXPECT_ZOFF_OK(zoff_step_count_set(x.e.get(), t));
     }},
    {"bytes_and_flush",
     [](trained &x, int64_t, const std::string &) {
         x.position = 77;
         x.flush();
     }},
    {"bytes_and_the_same_count",
     [](trained &x, int64_t t, const std::string &) {
         x.position = 78;
         EXPECT_ZOFF_OK(zoff_step_count_set(x.e.get(), t));
     }},
    {"a_loss_scale_and_the_same_count",
     [](trained &x, int64_t t, const std::string &) {
         zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT;
         EXPECT_ZOFF_OK(zoff_persist_data(x.e.get(), nullptr, 0));
         EXPECT_ZOFF_OK(zoff_loss_scaler_get(x.e.get(), &scaler));
         scaler.scale = 4;
         scaler.iterations += 3;
         EXPECT_ZOFF_OK(zoff_loss_scaler_set(x.e.get(), &scaler));
         EXPECT_ZOFF_OK(zoff_step_count_set(x.e.get(), t));
     }},
    {"a_checkpoint",
     [](trained &x, int64_t,
        const std::string &checkpoint) { EXPECT_ZOFF_OK(zoff_checkpoint_load(x.e.get(), checkpoint.c_str(), nullptr)); },
     false, true}};

struct cell {
    act what;
    int64_t t;
    bool kills;
    friend void PrintTo(const cell &c, std::ostream *out)
    {
        *out << c.what.name << "_at_" << c.t << (c.kills ? "_killed" : "_destroyed");
    }
};

std::vector<cell> cells()
{
    std::vector<cell> all;
    for (const act &a : ACTS)
        for (int64_t t : {0, 1})
            for (bool kills : {false, true})
                if (!(kills && a.needs_destroy))
                    all.push_back({a, t, kills});
    return all;
}

class Durable : public testing::TestWithParam<cell>
{
};
INSTANTIATE_TEST_SUITE_P(Calls, Durable, testing::ValuesIn(cells()), testing::PrintToStringParamName());

TEST_P(Durable, IsThereAfterTheEnd)
{
    const cell &c = GetParam();
    log_catcher log;
    log.expect("but param0 is fp32");
    scratch_folder states, others, checkpoint;
    if (c.what.loads) {
        trained x(others.path);
        x.write(0, ZOFF_STATE_M, 11);
        x.write(1, ZOFF_STATE_V, 12);
        ASSERT_ZOFF_OK(zoff_checkpoint_save(x.e.get(), checkpoint.path.c_str(), nullptr));
    }
    int ends[2];
    ASSERT_EQ(0, pipe(ends));
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        trained x(states.path);
        x.keep_position();
        for (int64_t t = 0; t < c.t; t++) {
            EXPECT_ZOFF_OK(zoff_step(x.e.get(), nullptr, nullptr));
        }
        c.what.run(x, c.t, checkpoint.path);
        const auto seen = x.look();
        const ssize_t bytes = (ssize_t)(seen.size() * sizeof seen[0]);
        EXPECT_EQ(bytes, write(ends[1], seen.data(), (size_t)bytes));
        if (c.kills && !HasFailure())
            raise(SIGKILL);
        x.e.reset();
        fflush(stdout);
        _exit(HasFailure());
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(c.kills ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    std::vector<double> want(29);
    ASSERT_EQ((ssize_t)(want.size() * sizeof want[0]), read(ends[0], want.data(), want.size() * sizeof want[0]));
    close(ends[0]);
    close(ends[1]);
    trained again(states.path);
    again.keep_position();
    ASSERT_ZOFF_OK(zoff_params_push(again.e.get()));
    EXPECT_EQ(want, again.look());
}

// Nothing was recorded: the next run begins with its own weights, and neither pushes nor pulls.
TEST(NothingDurable, ARunThatHasRecordedNothingBeginsAnew)
{
    log_catcher log;
    log.expect("but param0 is fp32");
    scratch_folder states;
    {
        trained x(states.path);
    }
    trained again(states.path);
    ASSERT_ZOFF_OK(zoff_step(again.e.get(), nullptr, nullptr));
}
} // namespace
