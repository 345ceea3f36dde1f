/* SPDX-License-Identifier: Apache-2.0 */
// comm_test.cc: tests the benchmark of communication as a program. Under mpirun the output has every required figure. Without
// mpirun the program says how to start it. Wrong options are refused.
#include "bench_program.h"

namespace
{
using zoff_test::shell;
using zoff_test::shell_result;

const std::string PROGRAM = "'" COMM "'";
const std::string RANKS = "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 "
                          "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe timeout --kill-after=5 100 '" MPIRUN "' -n 2 " +
                          PROGRAM;

class bench_comm : public zoff_test::bench_program
{
};

TEST_F(bench_comm, has_every_figure)
{
    start(RANKS);
    ASSERT_NO_FATAL_FAILURE(load());
    for (const char *operation : {"all_gather", "reduce_scatter"}) {
        for (const char *size : {"1mib", "16mib", "64mib"}) {
            expect_ratio((std::string(operation) + "_vs_mpi_" + size).c_str());
            const json_t *bytes = at("ratios", (std::string(operation) + "_bytes_" + size).c_str());
            EXPECT_EQ(1.0, json_real_value(bytes)) << operation << " of " << size << ": sends more bytes than necessary";
        }
    }
    EXPECT_EQ(2, json_integer_value(json_object_get(root, "ranks")));
    expect_figure("hidden_share"); // a difference of two times: on a busy machine it may be zero or negative
    expect_figure("hidden_share_by_itself");
    EXPECT_EQ(9u, json_array_size(json_object_get(root, "races")));
    for_each_row([](json_t *, json_t *row) { EXPECT_EQ(1u, json_array_size(json_object_get(row, "seconds"))); });
}

TEST_F(bench_comm, runs_one_part_alone)
{
    start(RANKS + " --only gather");
    ASSERT_NO_FATAL_FAILURE(load());
    EXPECT_EQ(3u, json_array_size(json_object_get(root, "races")));
    EXPECT_EQ(nullptr, at("ratios", "reduce_scatter_vs_mpi_1mib"));
}

TEST(bench_comm_options, help_lists_them)
{
    zoff_test::expect_help(PROGRAM, {"mpirun -n", "--only", "--rounds", "--seconds", "--quick", "--full", "--json"});
}

TEST(bench_comm_options, wrong_ones_are_refused)
{
    zoff_test::expect_refused(PROGRAM, "comm", {"--only=everything", "--rounds=0", "--rounds=65", "--seconds=x", "surplus"});
}

TEST(bench_comm_options, alone_it_says_how_to_start_it)
{
    const shell_result r = shell("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " + PROGRAM);
    EXPECT_EQ(3, r.status) << r.output;
    EXPECT_NE(std::string::npos, r.output.find("mpirun -n 2 ")) << r.output;
}
} // namespace
