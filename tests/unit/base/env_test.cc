/* SPDX-License-Identifier: Apache-2.0 */
// env_test.cc: the tables of environment variables, and the values read for each line.
#include "zoff_test.h"

#include <string.h>

#include <set>

extern "C" {
#include "env.h"
}

TEST(env, every_variable_is_ours_and_listed_once)
{
    std::set<std::string> names;
    for (int id = 0; id < ZOFF_ENV_COUNT; id++) {
        const char *name = zoff_base_env_name(static_cast<zoff_env>(id));
        EXPECT_EQ(0, strncmp(name, "ZOFF_", 5)) << name;
        EXPECT_TRUE(names.insert(name).second) << name;
    }
    EXPECT_EQ(static_cast<size_t>(ZOFF_ENV_COUNT), names.size());
    EXPECT_STREQ("ZOFF_ISA", zoff_base_env_name(ZOFF_ENV_ISA));
}

TEST(env, unset_and_empty_are_the_same)
{
    for (int i = 0; i < ZOFF_ENV_COUNT; i++) {
        const auto id = static_cast<zoff_env>(i);
        const char *name = zoff_base_env_name(id);
        const char *before = getenv(name);
        const std::string kept = before ? before : "";
        setenv(name, "some value", 1);
        EXPECT_STREQ("some value", zoff_base_env_get(id));
        setenv(name, "", 1);
        EXPECT_EQ(nullptr, zoff_base_env_get(id));
        unsetenv(name);
        EXPECT_EQ(nullptr, zoff_base_env_get(id));
        if (before)
            setenv(name, kept.c_str(), 1);
    }
}

TEST(env, every_line_of_the_table_has_a_default_and_help)
{
#define E(id, variable, fallback, help)                                                                                        \
    EXPECT_GT(strlen(fallback), 0u) << variable;                                                                               \
    EXPECT_NE(nullptr, strstr(help, fallback)) << variable << ": the help lists the values, the default among them";
    ZOFF_ENV_LIST(E)
#undef E
}

namespace
{
// An environment without a launcher's variables, restored at the end.
class ranks : public ::testing::Test
{
  protected:
    ranks()
    {
#define E(launcher, count, index, only_with) take(count), take(index), take(only_with);
        ZOFF_ENV_LAUNCHER_LIST(E)
#undef E
        take("OMP_WAIT_POLICY");
    }
    ~ranks() override
    {
        for (const auto &name : names)
            unsetenv(name.c_str());
        for (const auto &line : kept)
            setenv(line.first.c_str(), line.second.c_str(), 1);
    }
    void take(const char *name)
    {
        if (!name || !names.insert(name).second)
            return;
        if (getenv(name))
            kept.push_back({name, getenv(name)});
        unsetenv(name);
    }
    void expect(unsigned count, unsigned index, const char *launcher)
    {
        zoff_env_ranks r;
        zoff_base_env_ranks(&r);
        EXPECT_EQ(count, r.count);
        EXPECT_EQ(index, r.index);
        EXPECT_STREQ(launcher, r.launcher);
    }
    std::set<std::string> names;
    std::vector<std::pair<std::string, std::string>> kept;
};
} // namespace

TEST_F(ranks, alone_without_a_launcher)
{
    expect(1, 0, nullptr);
}

TEST_F(ranks, each_launcher_is_understood)
{
    int lines = 0;
#define E(launcher, count, index, only_with)                                                                                   \
    setenv(count, "8", 1);                                                                                                     \
    expect(1, 0, nullptr);                                                                                                     \
    setenv(index, "5", 1);                                                                                                     \
    if (only_with) {                                                                                                           \
        expect(1, 0, nullptr);                                                                                                 \
        setenv(only_with ? only_with : "", "0", 1);                                                                            \
    }                                                                                                                          \
    expect(8, 5, launcher);                                                                                                    \
    for (const auto &name : names)                                                                                             \
        unsetenv(name.c_str());                                                                                                \
    lines++;
    ZOFF_ENV_LAUNCHER_LIST(E)
#undef E
    EXPECT_EQ(8, lines);
}

TEST_F(ranks, the_innermost_launcher_wins)
{
    setenv("SLURM_STEP_ID", "0", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "1", 1);
    setenv("SLURM_LOCALID", "0", 1);
    expect(1, 0, "Slurm step");
    setenv("OMPI_COMM_WORLD_LOCAL_SIZE", "2", 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
    expect(2, 1, "Open MPI");
    setenv("LOCAL_WORLD_SIZE", "4", 1);
    setenv("LOCAL_RANK", "3", 1);
    expect(4, 3, "torchrun");
}

TEST_F(ranks, a_list_of_slurm_counts_by_its_first_number)
{
    setenv("SLURM_STEP_ID", "7", 1);
    setenv("SLURM_LOCALID", "2", 1);
    for (const char *tasks : {"4", "4(x2)", "4(x2),3", "4,3"}) {
        setenv("SLURM_STEP_TASKS_PER_NODE", tasks, 1);
        expect(4, 2, "Slurm step");
    }
    setenv("SLURM_NTASKS_PER_NODE", "3", 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", "1,4", 1); // this is not the first node
    expect(3, 2, "Slurm");
}

TEST_F(ranks, nonsense_is_passed_over)
{
    setenv("MPI_LOCALNRANKS", "6", 1);
    setenv("MPI_LOCALRANKID", "1", 1);
    const char *const pairs[][2] = {{"", "0"},   {"4", ""},      {"0", "0"},    {"4", "4"},
                                    {"-4", "0"}, {"4", "-1"},    {"four", "0"}, {"4x", "0"},
                                    {"4", "1x"}, {"99999", "0"}, {" 4", "0"},   {"18446744073709551617", "0"},
                                    {"+4", "0"}, {"4", "0x1"},   {"1e3", "0"},  {"4.5", "1"}};
    for (const auto &pair : pairs) {
        setenv("LOCAL_WORLD_SIZE", pair[0], 1);
        setenv("LOCAL_RANK", pair[1], 1);
        expect(6, 1, "MPICH");
    }
}

TEST_F(ranks, omp_num_threads_is_a_number_or_a_list)
{
    const std::pair<const char *, unsigned> wanted[] = {{"", 0},   {"1", 1},    {"12", 12}, {"4,2", 4},
                                                        {"-3", 0}, {"four", 0}, {"4x", 0}};
    for (auto [value, threads] : wanted) {
        setenv("OMP_NUM_THREADS", value, 1);
        EXPECT_EQ(threads, zoff_base_env_omp_threads()) << value;
    }
    unsetenv("OMP_NUM_THREADS");
    EXPECT_EQ(0u, zoff_base_env_omp_threads());
}

TEST(env, where_ranks_meet)
{
    const std::pair<const char *, const char *> set[] = {{"MASTER_ADDR", "one"},
                                                         {"MASTER_PORT", "29500"},
                                                         {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                                         {"NCCL_COMM_ID", ""},
                                                         {"LOCAL_RANK", "3"}};
    for (const auto &line : set)
        setenv(line.first, line.second, 1);
    zoff_env_meeting meeting;
    zoff_base_env_meeting(&meeting);
    EXPECT_STREQ("one", meeting.address);
    EXPECT_STREQ("29500", meeting.port);
    EXPECT_TRUE(meeting.is_taken);
    EXPECT_EQ(nullptr, meeting.nccl_comm_id);
    EXPECT_STREQ("3", meeting.local_rank);
    for (const auto &line : set)
        unsetenv(line.first);
    zoff_base_env_meeting(&meeting);
    EXPECT_EQ(nullptr, meeting.address);
    EXPECT_FALSE(meeting.is_taken);
}
