/* SPDX-License-Identifier: Apache-2.0 */
// checkpoint_test.cc: tests the benchmark of checkpoints as a program. The JSON must hold every required figure, and mark a
// figure that is missing or proves nothing. No file may be left, and wrong options must be refused. No test depends on the
// speed of the machine.
#include "bench_program.h"

namespace
{
using zoff_test::json_text;
using zoff_test::shell;
using zoff_test::shell_result;

const std::string PROGRAM = "'" CHECKPOINT "'";

const char *const RATIOS[] = {"save_host_vs_aio",
                              "save_nvme_vs_copy",
                              "load_host_vs_aio",
                              "load_nvme_vs_aio",
                              "load_vs_aio",
                              "throttled_save_host_vs_aio",
                              "throttled_save_nvme_vs_aio",
                              "throttled_load_host_vs_aio",
                              "throttled_load_nvme_vs_aio",
                              "moved_over_state",
                              "save_nvme_reflink_seconds_per_gib",
                              "save_peak_over_plan",
                              "load_peak_over_plan"};
// The difference of two times: on a busy machine it may be negative.
const char *const DIFFERENCES[] = {"async_save_over_bytes", "async_save_over_bytes_throttled", "async_save_over_bytes_compute",
                                   "async_save_over_bytes_reflink"};

class checkpoint : public zoff_test::bench_program
{
  protected:
    void run(const std::string &options, const std::string &elements = "512Ki")
    {
        start(PROGRAM + " --elements " + elements + " --path '" + folder.path + "' " + options);
        load();
        EXPECT_EQ("out.json\n", shell("ls '" + folder.path + "'").output) << "it left files behind";
    }
    double limit(const char *name, const char *way) const { return json_real_value(json_object_get(at("verdict", name), way)); }
};

TEST_F(checkpoint, writes_every_figure)
{
    run("--seconds 20");
    EXPECT_EQ("checkpoint", json_text(root, "bench"));
    for (const char *name : RATIOS) {
        expect_ratio(name);
        // A verdict needs a larger model than this. The JSON must say that this one is void.
        EXPECT_TRUE(json_is_false(json_object_get(at("verdict", name), "held"))) << name;
        EXPECT_TRUE(json_is_null(at("ratios", name)) || json_is_string(json_object_get(at("verdict", name), "void"))) << name;
    }
    for (const char *name : DIFFERENCES)
        expect_figure(name);
    for (const char *name : {"save_host_vs_aio", "save_nvme_vs_copy", "load_vs_aio"})
        EXPECT_DOUBLE_EQ(0.9, limit(name, "at_least")) << name;
    EXPECT_DOUBLE_EQ(1.02, limit("moved_over_state", "at_most"));
    EXPECT_DOUBLE_EQ(1.15, limit("async_save_over_bytes", "at_most"));
}

// Bytes are counted, so they do not depend on the machine. A save also writes a head, a table and a manifest.
TEST_F(checkpoint, counts_the_bytes_of_each_way)
{
    run("--only save --busy 0", "8Mi"); // small chunks would consist of padding
    for (const char *tier : {"host", "nvme"}) {
        const double files = std::string(tier) == "nvme"; // files are used both ways
        EXPECT_NEAR(files, json_real_value(at(tier, "save_read")), 0.05) << tier;
        EXPECT_NEAR(1, json_real_value(at(tier, "save_written")), 0.05) << tier;
        EXPECT_NEAR(1, json_real_value(at(tier, "load_read")), 0.05) << tier;
        EXPECT_NEAR(files, json_real_value(at(tier, "load_written")), 0.05) << tier;
    }
    EXPECT_TRUE(json_is_number(at("ratios", "save_host_vs_aio")));
    EXPECT_TRUE(json_is_null(at("ratios", "load_vs_aio"))) << "a part that did not run is not measured";
}

TEST_F(checkpoint, measures_memory_in_a_process_of_its_own)
{
    run("--only memory");
    for (const char *name : {"save_peak_over_plan", "load_peak_over_plan"})
        EXPECT_TRUE(json_is_number(at("ratios", name))) << name << "\n" << output;
}

TEST_F(checkpoint, measures_saves_beside_steps)
{
    run("--only async --busy 0");
    for (const char *name : {"async_save_over_bytes", "async_save_over_bytes_compute"})
        EXPECT_TRUE(json_is_number(at("ratios", name))) << name << "\n" << output;
}

TEST(checkpoint_options, help_tells_them)
{
    zoff_test::expect_help(PROGRAM, {"--path", "--elements", "--budget", "--only", "--busy", "--rounds", "--seconds", "--quick",
                                     "--full", "--json"});
}

TEST(checkpoint_options, wrong_ones_are_refused)
{
    zoff_test::expect_refused(PROGRAM, "checkpoint",
                              {"--elements 0", "--elements 1Mb", "--elements ''", "--budget 1", "--rounds 0", "--rounds 65",
                               "--only everything", "--only save,", "--seconds 1h", "--busy 65", "--no-such-option",
                               "--json=x extra"});
}

TEST(checkpoint_options, a_folder_that_is_not_there_is_an_error)
{
    const shell_result r = shell(PROGRAM + " --path /no/such/folder");
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos, r.output.find("/no/such/folder")) << r.output;
}
} // namespace
