/* SPDX-License-Identifier: Apache-2.0 */
// step_test.cc: tests the benchmark of the whole step as a program. The JSON must hold every required figure, and mark a figure
// that is missing or proves nothing. All contestants must compute the same states, no file may be left, and wrong options must
// be refused. No test depends on the speed of the machine.
#include "bench_program.h"

namespace
{
using zoff_test::json_text;
using zoff_test::shell;
using zoff_test::shell_result;

const std::string PROGRAM = "'" STEP "'";

const char *const RATIOS[] = {
    "wall_over_io",          "wall_over_io_throttled",   "cached50_over_uncached",  "persist_cached50_over_uncached",
    "vs_libaio_pattern",     "vs_libaio_pipelined",      "vs_libaio_pipelined_thp", "rss_growth_mib",
    "two_paths_speedup",     "small_engine_vs_own_loop", "small_engine_step_us",    "engine_vs_plain_loop",
    "looking_over_step",     "resident_over_dram",       "windows_read_over_state", "windows_write_over_state",
    "kinds_read_over_state", "kinds_write_over_state",   "split_wall_over_bytes",   "split_bf16_wall_over_bytes",
    "split_bytes",           "split_bf16_bytes",         "disk_over_library",       "split_bf16_vs_libaio_pattern_grads"};

class step : public zoff_test::bench_program
{
  protected:
    void run(const std::string &options)
    {
        start(PROGRAM + " --elements 512Ki --path '" + folder.path + "' " + options);
        load();
    }
    bool has_row(const std::string &part, const std::string &name) const
    {
        bool found = false;
        for_each_row([&](json_t *race, json_t *row) {
            found = found || (json_text(race, "part") == part && json_text(row, "name") == name);
        });
        return found;
    }
};

TEST_F(step, writes_every_figure)
{
    run("--seconds 10");
    EXPECT_STREQ("step", json_string_value(json_object_get(root, "bench")));
    EXPECT_TRUE(json_is_boolean(json_object_get(root, "enough_clean_rounds")));
    for (const char *name : RATIOS) {
        expect_figure(name);
        // A verdict needs a larger model than this. The JSON must say that this one is void.
        EXPECT_TRUE(json_is_false(json_object_get(at("verdict", name), "held"))) << name;
        EXPECT_TRUE(json_is_null(at("ratios", name)) || json_is_string(json_object_get(at("verdict", name), "void"))) << name;
    }
    for (const char *name : {"small_engine_vs_own_loop_1k", "small_engine_vs_own_loop_32k", "small_engine_vs_own_loop_1m",
                             "looking_vs_plain_loop"})
        expect_figure(name);
    EXPECT_DOUBLE_EQ(1.05, json_real_value(json_object_get(at("verdict", "small_engine_vs_own_loop"), "at_most")));
    EXPECT_DOUBLE_EQ(5, json_real_value(json_object_get(at("verdict", "small_engine_step_us"), "at_most")));
    EXPECT_DOUBLE_EQ(1.02, json_real_value(json_object_get(at("verdict", "engine_vs_plain_loop"), "at_most")));
    EXPECT_DOUBLE_EQ(1.3, json_real_value(json_object_get(at("verdict", "resident_over_dram"), "at_most")));
    for (const char *moved : {"windows_read", "windows_write", "kinds_read", "kinds_write"}) {
        const std::string name = moved + std::string("_over_state");
        EXPECT_DOUBLE_EQ(1.1, json_real_value(json_object_get(at("verdict", name.c_str()), "at_most")));
    }
    EXPECT_DOUBLE_EQ(1.12, json_real_value(json_object_get(at("verdict", "wall_over_io"), "at_most")));
    EXPECT_DOUBLE_EQ(2.0, json_real_value(json_object_get(at("verdict", "vs_libaio_pattern"), "at_least")));
}

TEST_F(step, contestants_have_the_same_states_and_leave_nothing_behind)
{
    run("--only race --seconds 10");
    for (const char *name :
         {"update_only", "zoff", "zoff_split", "zoff_split_bf16", "zoff_unverified", "zoff_cached50", "io_only"})
        EXPECT_TRUE(has_row("race", name)) << name;
    const bool rivals = json_is_object(json_object_get(root, "libaio_buffers"));
    EXPECT_EQ(rivals, has_row("rivals", "libaio_pattern"));
    EXPECT_EQ(rivals, has_row("extra", "libaio_pattern_grads"));
    EXPECT_TRUE(json_is_true(json_object_get(root, "states_agree"))) << output;
    EXPECT_LE(rivals ? 3 : 2, json_integer_value(json_object_get(root, "states_compared")));
    // With the small budget a step reads all states from the file; with the large budget at most half of them.
    const json_int_t states = json_integer_value(at("plan", "state_bytes"));
    EXPECT_LE(states, json_integer_value(json_object_get(root, "step_read_bytes")));
    EXPECT_GE(states / 8, json_integer_value(at("plan", "host_bytes")));
    EXPECT_LE(40, json_integer_value(at("plan", "chunk_count")));
    EXPECT_NEAR(0.5, (double)json_integer_value(at("plan_cached50", "resident_bytes")) / (double)states, 0.05);
    // A part that did not run must be listed as not measured.
    EXPECT_TRUE(json_is_null(at("ratios", "two_paths_speedup")));
    EXPECT_EQ("out.json\n", shell("ls '" + folder.path + "'").output);
}

TEST_F(step, measures_memory_in_processes_of_their_own)
{
    run("--only rss");
    EXPECT_LT(0, json_real_value(at("rss_mib", "model")));
    EXPECT_LT(0, json_real_value(at("rss_mib", "ten_times_the_model")));
    EXPECT_TRUE(json_is_number(at("ratios", "rss_growth_mib")));
}

TEST_F(step, a_signal_removes_its_files)
{
    const std::string program =
        PROGRAM + " --path '" + folder.path + "' --elements 16Mi --only race --seconds 60 >/dev/null 2>&1";
    const shell_result r = shell("cd '" + folder.path + "'; " + program + " & pid=$!; " +
                                 "for i in $(seq 100); do ls zoff-step-*/*/* >/dev/null 2>&1 && break; sleep 0.1; done; " +
                                 "kill -TERM $pid; wait $pid; echo $?; ls");
    EXPECT_EQ("143\n", r.output);
}

TEST(step_options, help_tells_them)
{
    zoff_test::expect_help(PROGRAM, {"--path", "--elements", "--budget", "--only", "--busy", "--rounds", "--seconds", "--quick",
                                     "--full", "--json"});
}

TEST(step_options, wrong_ones_are_refused)
{
    zoff_test::expect_refused(PROGRAM, "step",
                              {"--elements 0", "--elements 1Mb", "--elements 1Ki", "--elements ''", "--budget 1", "--rounds 0",
                               "--rounds 65", "--rounds nine", "--only everything", "--only race,", "--seconds 1h", "--busy 65",
                               "--no-such-option", "--json=x extra"});
}

TEST(step_options, a_folder_that_is_not_there_is_an_error)
{
    const shell_result r = shell(PROGRAM + " --path /no/such/folder");
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos, r.output.find("/no/such/folder: No such file")) << r.output;
}
} // namespace
