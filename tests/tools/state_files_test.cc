/* SPDX-License-Identifier: Apache-2.0 */
// state_files_test.cc: `zoff checkpoint scrub` says of each state file whether it is intact, and `zoff checkpoint reshard`
// makes a checkpoint of them.
#include "small_engine.h"
#include "tool_checkpoints.h"

#include <jansson.h>
#include <string.h>

using namespace tool_files;

namespace
{
class state_files : public testing::Test
{
  protected:
    state_files() : t(3)
    {
        t.add(5000, 1, ZOFF_BF16, ZOFF_BF16);
        t.add(300, 2, ZOFF_F32, ZOFF_F32);
    }
    zoff_test::engine open()
    {
        return zoff_test::seal_engine(
            t, zoff_test::config_text(states.path, 1, ", \"zoff\": {\"persist\": true, \"durability\": \"process\"}"), 2048);
    }
    void train(int steps)
    {
        const zoff_test::engine e = open();
        for (int i = 0; i < steps; i++) {
            t.next_step();
            t.backward_all(0.1f);
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        }
    }
    // Flip a bit in the middle of the file, in an array of one of the two commits, and then in all bytes of a range.
    void spoil()
    {
        std::string bytes = bytes_of(file());
        for (size_t i = bytes.size() / 2; i < bytes.size(); i += 512)
            bytes[i] = (char)(bytes[i] ^ 4);
        write_bytes(file(), bytes);
    }
    std::string file() const { return states.file("zoff-r0.states"); }
    static verb_result run(std::vector<std::string> arguments) { return run_verb(verb_checkpoint_scrub, std::move(arguments)); }

    zoff_test::log_catcher log;
    zoff_test::scratch_folder states;
    zoff_test::trainer t;
};
} // namespace

TEST_F(state_files, scrub_prints_each_commit)
{
    train(3);
    const verb_result r = run({states.path});
    EXPECT_EQ(EXIT_DONE, r.exit) << r.err;
    EXPECT_HAS(r.out, file() + ": rank 0 of 1, file 1 of 1\n");
    EXPECT_HAS(r.out, "  step 3, the last commit: ");
    EXPECT_HAS(r.out, "  step 2, the commit before: ");
    EXPECT_HAS(r.out, " in 1 file: intact\n");
    EXPECT_EQ(std::string::npos, r.out.find("!")) << r.out;
}

TEST_F(state_files, scrub_names_damage_and_fails)
{
    train(3);
    spoil();
    const verb_result r = run({states.path});
    EXPECT_EQ(EXIT_FAILED, r.exit) << r.out;
    EXPECT_HAS(r.out, " WRONG\n");
    EXPECT_HAS(r.out, "  ! step 3: chunk ");
    EXPECT_HAS(r.out, "are not what was written there\n");
    EXPECT_EQ(std::string::npos, r.out.find("in 1 file: intact")) << r.out;
}

TEST_F(state_files, scrub_prints_the_json_of_the_library)
{
    train(1);
    const verb_result r = run({"--json", states.path});
    EXPECT_EQ(EXIT_DONE, r.exit) << r.err;
    json_t *all = json_loads(r.out.c_str(), 0, nullptr);
    ASSERT_NE(nullptr, all) << r.out;
    EXPECT_EQ(1u, json_array_size(json_object_get(all, "files")));
    EXPECT_EQ(0, json_integer_value(json_object_get(all, "wrong")));
    json_decref(all);
    spoil();
    EXPECT_EQ(EXIT_FAILED, run({"--json", states.path}).exit);
}

TEST_F(state_files, scrub_says_what_it_cannot_read)
{
    {
        const zoff_test::engine e = open();
        const verb_result busy = run({states.path});
        EXPECT_EQ(EXIT_FAILED, busy.exit);
        EXPECT_HAS(busy.err, "in use by an engine");
    }
    const verb_result none = run({states.file("none")});
    EXPECT_EQ(EXIT_FAILED, none.exit);
    EXPECT_HAS(none.err, states.file("none"));
    EXPECT_EQ(EXIT_USAGE, run({}).exit);
    EXPECT_EQ(EXIT_USAGE, run({states.path, "--fast"}).exit);
    write_bytes(file(), "no states at all");
    const verb_result other = run({states.path});
    EXPECT_EQ(EXIT_FAILED, other.exit);
    EXPECT_HAS(other.out, file() + ": no states\n  ! it has no whole commit record");
}

TEST_F(state_files, reshard_makes_a_checkpoint_and_says_how_to_go_on)
{
    train(2);
    const std::string to = states.file("resharded");
    const verb_result r = run_verb(verb_checkpoint_reshard, {states.path, "-o", to, "--name", "moved"});
    EXPECT_EQ(EXIT_DONE, r.exit) << r.err;
    EXPECT_HAS(r.out, to + "/moved: step 2, ");
    EXPECT_HAS(r.out, "from 1 rank\n");
    EXPECT_HAS(r.out, "zoff_checkpoint_load(engine, \"" + to + "/moved\", NULL) before its first step. That");
    const verb_result labeled = run_verb(verb_checkpoint_reshard, {states.path, "-o", to + "2", "--label", "tp0"});
    EXPECT_EQ(EXIT_DONE, labeled.exit) << labeled.err;
    EXPECT_HAS(labeled.out, "zoff_checkpoint_load(engine, \"" + to +
                                "2\", &opts) before its first step, where opts.label of zoff_checkpoint_opts is \"tp0\". That");
    zoff_checkpoint_opts opts = ZOFF_CHECKPOINT_OPTS_INIT;
    opts.label = "tp0";
    const zoff_test::scratch_folder empty;
    const zoff_test::engine e = zoff_test::seal_engine(t, zoff_test::config_text(empty.path, 1, ""), 2048);
    EXPECT_ZOFF_OK(zoff_checkpoint_load(e.get(), (to + "2").c_str(), &opts)); // as it says
    const verb_result whole = run_verb(verb_checkpoint, {"verify", to});
    EXPECT_EQ(EXIT_DONE, whole.exit) << whole.err;
    spoil();
    const verb_result damaged = run_verb(verb_checkpoint_reshard, {states.path, "-o", to});
    EXPECT_EQ(EXIT_FAILED, damaged.exit);
    EXPECT_HAS(damaged.err, file());
    EXPECT_EQ(EXIT_USAGE, run_verb(verb_checkpoint_reshard, {states.path}).exit);
    EXPECT_EQ(EXIT_USAGE, run_verb(verb_checkpoint_reshard, {"-o", to}).exit);
    EXPECT_EQ(EXIT_USAGE, run_verb(verb_checkpoint_reshard, {states.path, "-o", to, "--fast"}).exit);
}
