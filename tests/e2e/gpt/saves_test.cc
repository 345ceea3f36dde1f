/* SPDX-License-Identifier: Apache-2.0 */
// saves_test.cc: runs of the example trainer that save, end early, and go on in another process. Their losses have the same
// bits as those of a run that was not interrupted.
#include "saves.h"

#include <signal.h>

namespace
{
using namespace zoff_test;

class saves : public gpt_saves_runs
{
};

TEST_F(saves, twenty_steps_and_twenty_more_are_forty)
{
    const struct {
        const char *name, *options, *how;
        std::string config;
    } kinds[] = {{"dram", "", "", config()},
                 {"async", "", " --async", config()},
                 {"bf16", " --dtype bf16", "", config(", \"bf16\": {\"enabled\": true}")},
                 {"files", "", "", in_files(".")},
                 {"files_async", "", " --async", in_files(".")},
                 {"hidden", " --just-in-time", " --async", in_files(".")},
                 {"micro", "", "", config(", \"gradient_accumulation_steps\": 4")}};
    for (const auto &k : kinds) {
        const std::string name = k.name, options = k.options;
        const std::string save = options + " --save " + name + ".saves --resume latest" + k.how;
        shell_result r = run(name + ".whole", "--steps 40" + options, k.config);
        ASSERT_EQ(0, r.status) << r.output;
        r = run(name + ".first", "--steps 20 --save-every 5" + save, k.config);
        ASSERT_EQ(0, r.status) << r.output;
        r = run(name + ".second", "--steps 40 --save-every 5" + save, k.config);
        ASSERT_EQ(0, r.status) << r.output;
        EXPECT_NE(std::string::npos, r.output.find("goes on after step 20")) << r.output;
        EXPECT_EQ(1u, first_step(name + ".first"));
        EXPECT_EQ(21u, first_step(name + ".second"));
        EXPECT_EQ(40u, last_step(name + ".second"));
        expect_part_of(name + ".whole", name + ".first", false);
        expect_part_of(name + ".whole", name + ".second", true);
    }
}

// An export has a tensor for each weight of each layer, with its shape. An import of it has no position in the text, so the run
// takes its weights and begins with the first batch.
TEST_F(saves, a_run_goes_on_from_its_own_export)
{
    ASSERT_EQ(0, run("first", "--steps 30 --save saves", config()).status);
    const std::string tool = "cd '" + folder.path + "' && '" ZOFF_TOOL "' ";
    ASSERT_EQ(0, shell(tool + "export saves -o model").status);
    const shell_result found =
        shell(tool + "import safetensors model -o imported && '" ZOFF_TOOL "' checkpoint inspect imported && "
                     "grep -ac '\"h.0.qkv.weight\":{\"dtype\":\"F32\",\"shape\":.32,96.' model/*.safetensors");
    ASSERT_EQ(0, found.status) << found.output;
    EXPECT_NE(std::string::npos,
              found.output.find("  qkv.weight  fp32 [32, 96] as h.{}.qkv.weight master fp32, m fp32, v fp32\n"))
        << found.output;
    EXPECT_NE(std::string::npos, found.output.find("  ln1.gain  fp32 [32] as h.{}.ln1.gain master fp32, m fp32, v fp32\n"))
        << found.output;
    const shell_result r = run("again", "--steps 30 --resume imported", config());
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_NE(std::string::npos, r.output.find("the checkpoint has no position in the text")) << r.output;
    EXPECT_EQ(1u, first_step("again"));
    const auto begin_of = [&](const std::string &name) { return atof(value(name, "losses").c_str() + 1); };
    EXPECT_LT(begin_of("again"), begin_of("first") - 0.5) << "it does not begin with random weights";
}

// A checkpoint that was saved beside steps has the states of its own step.
TEST_F(saves, a_run_goes_on_from_any_of_its_checkpoints)
{
    const std::string states = in_files(".");
    ASSERT_EQ(0, run("whole", "--steps 30 --save saves --save-every 7 --async", states).status);
    EXPECT_EQ((std::vector<std::string>{checkpoint(7), checkpoint(14), checkpoint(21), checkpoint(28), checkpoint(30)}),
              checkpoints("saves"));
    for (const size_t step : {7, 14, 21, 28}) {
        const shell_result r = run("again", "--steps 30 --resume saves/" + checkpoint(step), config());
        ASSERT_EQ(0, r.status) << r.output;
        EXPECT_EQ(step + 1, first_step("again"));
        expect_part_of("whole", "again", true);
    }
}

TEST_F(saves, only_the_newest_stay)
{
    ASSERT_EQ(0, run("run", "--steps 20 --save saves --save-every 4 --keep 2", config()).status);
    EXPECT_EQ((std::vector<std::string>{checkpoint(16), checkpoint(20)}), checkpoints("saves"));
}

// The seed chooses the order of the text, so it is part of the position.
TEST_F(saves, the_order_of_the_text_is_that_of_the_checkpoint)
{
    ASSERT_EQ(0, run("whole", "--steps 16", config()).status);
    ASSERT_EQ(0, run("first", "--steps 8 --save saves", config()).status);
    ASSERT_EQ(0, run("second", "--steps 16 --save saves --resume latest --seed 4", config()).status);
    expect_part_of("whole", "second", true);
}

TEST_F(saves, a_run_that_is_over_has_nothing_to_do)
{
    ASSERT_EQ(0, run("first", "--steps 8 --save saves", config()).status);
    const shell_result r = run("second", "--steps 8 --resume saves", config());
    EXPECT_EQ(0, r.status) << r.output;
    EXPECT_EQ("0", value("second", "steps"));
    EXPECT_EQ("[]", value("second", "losses"));
    EXPECT_EQ("null", value("second", "final_loss"));
    EXPECT_NE(std::string::npos, r.output.find("there is nothing to do")) << r.output;
    EXPECT_EQ(std::string::npos, r.output.find("final loss")) << r.output;
    EXPECT_EQ(value("first", "weights_hash"), value("second", "weights_hash"));
}

TEST_F(saves, a_run_that_ends_within_an_update_saves_the_last_whole_one)
{
    const std::string micro = config(", \"gradient_accumulation_steps\": 4");
    ASSERT_EQ(0, run("whole", "--steps 20", micro).status);
    shell_result r = run("first", "--steps 10 --save saves", micro);
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_EQ(std::vector<std::string>{checkpoint(2)}, checkpoints("saves"));
    EXPECT_NE(std::string::npos, r.output.find("--steps ends after 2 of the 4 micro-steps of an update")) << r.output;
    r = run("second", "--steps 20 --save saves --resume latest", micro);
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_EQ(9u, first_step("second"));
    expect_part_of("whole", "second", true);
    r = run("short", "--steps 3 --save none", micro);
    EXPECT_EQ(0, r.status) << r.output;
    EXPECT_NE(std::string::npos, r.output.find("--steps ends after 3 of the 4 micro-steps of an update")) << r.output;
}

TEST_F(saves, sigterm_ends_a_run_with_a_checkpoint)
{
    for (const char *async : {"", " --async"}) {
        const std::string options = std::string(" --save saves --save-every 1000 --resume latest") + async;
        const shell_result r = interrupt("first", "--steps 1000000" + options, config(), 12, "kill -TERM $job");
        ASSERT_EQ(0, r.status) << r.output << read_file(folder.file("first.out"));
        const size_t end = last_step("first");
        EXPECT_LE(12u, end);
        EXPECT_NE(std::string::npos,
                  read_file(folder.file("first.out")).find("asked to stop after step " + std::to_string(end)));
        EXPECT_EQ(checkpoint(end), checkpoints("saves").back());
        const std::string steps = "--steps " + std::to_string(end + 10);
        ASSERT_EQ(0, run("whole", steps, config()).status);
        ASSERT_EQ(0, run("second", steps + options, config()).status);
        EXPECT_EQ(end + 1, first_step("second"));
        expect_part_of("whole", "second", true);
        ASSERT_EQ(0, shell("rm -r '" + folder.file("saves") + "'").status);
    }
}

// Without --save a run ends cleanly, too.
TEST_F(saves, sigterm_ends_a_run_without_checkpoints)
{
    const shell_result r =
        interrupt("run", "--steps 1000000", config(", \"gradient_accumulation_steps\": 3"), 10, "kill -TERM $job");
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_EQ(0u, last_step("run") % 3) << "after an update";
}

TEST_F(saves, files_that_persist_go_on_after_kill_with_the_next_batch)
{
    for (const unsigned micro : {1u, 3u}) {
        const std::string more = "\"gradient_accumulation_steps\": " + std::to_string(micro);
        std::string states = in_files("states", ", \"persist\": true");
        states.insert(1, more + ", ");
        size_t at = 0;
        ASSERT_EQ(0, shell("mkdir '" + folder.file("states") + "'").status);
        for (const unsigned steps : {7u, 13u}) {
            const unsigned until = (unsigned)at + steps;
            const shell_result r = interrupt("killed", "--steps 1000000", states, until, "kill -KILL $job");
            EXPECT_EQ(128 + SIGKILL, r.status) << r.output;
            at = position("", states);
            EXPECT_LE(until / micro * micro, at);
            EXPECT_EQ(0u, at % micro) << "after an update";
        }
        const std::string steps = "--steps " + std::to_string(at + 20);
        const shell_result r = run("last", steps, states);
        ASSERT_EQ(0, r.status) << r.output;
        EXPECT_EQ(at + 1, first_step("last"));
        ASSERT_EQ(0, run("whole", steps, config(", " + more)).status);
        expect_part_of("whole", "last", true);
        ASSERT_EQ(0, shell("rm -r '" + folder.file("states") + "'").status);
    }
}

// A checkpoint wins over state files, and they continue with it.
TEST_F(saves, files_that_persist_take_the_position_of_a_checkpoint)
{
    const std::string states = in_files("states", ", \"persist\": true");
    ASSERT_EQ(0, shell("mkdir '" + folder.file("states") + "'").status);
    ASSERT_EQ(0, run("whole", "--steps 40", config()).status);
    ASSERT_EQ(0, run("first", "--steps 10 --save saves", config()).status);
    ASSERT_EQ(0, run("files", "--steps 25", states).status);
    ASSERT_EQ(0, run("back", "--steps 15 --resume saves", states).status);
    EXPECT_EQ(11u, first_step("back"));
    ASSERT_EQ(0, run("on", "--steps 40", states).status);
    EXPECT_EQ(16u, first_step("on"));
    expect_part_of("whole", "back", false);
    expect_part_of("whole", "on", true);
}

// A save that fails in the middle of a run is reported, and the run goes on. That of the end is an error of the run.
TEST_F(saves, a_save_that_fails_does_not_end_the_run)
{
    write_file(folder.file("file"), "no folder");
    const shell_result r = run("run", "--steps 12 --save file --save-every 4", config());
    EXPECT_EQ(1, r.status) << r.output;
    EXPECT_NE(r.output.find("gpt: "), std::string::npos) << r.output;
    EXPECT_NE(r.output.find("12/12"), std::string::npos) << r.output;
}
} // namespace
