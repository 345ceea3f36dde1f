/* SPDX-License-Identifier: Apache-2.0 */
// saves_ranks_test.cc: the ranks of a job save one checkpoint, stop together when one of them is asked to, and go on as any
// number of ranks.
#include "saves.h"

namespace
{
using namespace zoff_test;

class saves_of_ranks : public gpt_saves_runs
{
  protected:
    void as(unsigned ranks)
    {
        world = ranks;
        // Each rank writes the number of its process.
        launcher = MPIEXEC " -n " + std::to_string(ranks) +
                   " sh -c 'echo $$ > pid.${OMPI_COMM_WORLD_RANK:-$PMIX_RANK}; exec \"$0\" \"$@\"'";
    }
    static std::string stage(unsigned number)
    {
        return config(", \"zero_optimization\": {\"stage\": " + std::to_string(number) + ", \"reduce_bucket_size\": 4096}");
    }
};

TEST_F(saves_of_ranks, sigterm_to_one_of_four_stops_all_with_one_checkpoint)
{
    const std::string options = " --ranks auto --save saves --resume latest";
    as(4);
    const shell_result r = interrupt("first", "--steps 1000000" + options, stage(2), 8, "kill -TERM $(cat pid.2)");
    ASSERT_EQ(0, r.status) << r.output << read_file(folder.file("first.out"));
    const size_t end = last_step("first");
    EXPECT_LE(8u, end);
    for (unsigned rank = 1; rank < 4; rank++)
        EXPECT_EQ((double)end, numbers("first", "step_numbers", suffix(rank)).back()) << "rank " << rank;
    EXPECT_EQ(std::vector<std::string>{checkpoint(end)}, checkpoints("saves"));
    const std::string steps = "--steps " + std::to_string(end + 6);
    ASSERT_EQ(0, run("whole", steps + " --ranks auto", stage(2)).status);
    ASSERT_EQ(0, run("second", steps + options, stage(2)).status);
    EXPECT_EQ(end + 1, first_step("second"));
    expect_part_of("whole", "second", true);
}

TEST_F(saves_of_ranks, the_engine_may_own_the_weights)
{
    const std::string save = " --ranks auto --owned --save saves --save-every 3 --async --resume latest";
    as(2);
    ASSERT_EQ(0, run("whole", "--steps 16 --ranks auto --owned", stage(3)).status);
    ASSERT_EQ(0, run("first", "--steps 8" + save, stage(3)).status);
    ASSERT_EQ(0, run("second", "--steps 16" + save, stage(3)).status);
    EXPECT_EQ(9u, first_step("second"));
    expect_part_of("whole", "second", true);
}

// kill -9 of one rank ends the job. The others must not write a step that it has not. Rank 0 prints a step as soon as it has
// committed its own files, so the rank that is killed may still lack the commit of that step, and the run repeats it.
TEST_F(saves_of_ranks, files_that_persist_go_on_after_kill_of_one_rank)
{
    std::string states = in_files("states", ", \"persist\": true");
    ASSERT_EQ(0, shell("mkdir '" + folder.file("states") + "'").status);
    as(2);
    for (const char *owned : {"", " --owned"}) {
        const std::string options = std::string(" --ranks auto") + owned;
        const shell_result killed = interrupt("killed", "--steps 1000000" + options, states, 9, "kill -KILL $(cat pid.1)");
        EXPECT_NE(0, killed.status);
        const size_t at = position(options, states);
        EXPECT_LE(8u, at);
        const std::string steps = "--steps " + std::to_string(at + 10);
        const shell_result r = run("last", steps + options, states);
        ASSERT_EQ(0, r.status) << r.output;
        EXPECT_EQ(at + 1, first_step("last"));
        ASSERT_EQ(0, run("whole", steps + options, stage(1)).status);
        expect_part_of("whole", "last", true);
        ASSERT_EQ(0, shell("rm -f '" + folder.file("states") + "'/*").status);
    }
}

// One rank loads what four have saved. Its losses are those of the whole batch, so only the weights can be compared.
TEST_F(saves_of_ranks, one_rank_goes_on_with_the_weights_of_four)
{
    as(4);
    ASSERT_EQ(0, run("first", "--steps 6 --ranks auto --save saves", stage(2)).status);
    const std::string hash = value("first", "weights_hash");
    as(1);
    ASSERT_EQ(0, run("alone", "--steps 6 --ranks auto --resume saves", stage(0)).status);
    EXPECT_EQ(hash, value("alone", "weights_hash"));
}
} // namespace
