/* SPDX-License-Identifier: Apache-2.0 */
// discover_test.cc: the group that "auto" chooses, for every environment that a launcher creates.
#include "launcher.h"
#include "plugin.h"
#include "post_office.h"

#include <dlfcn.h>

extern "C" {
#include "comm.h"
}

using namespace zoff_test;

namespace
{
class Discover : public testing::Test
{
  protected:
    // The meaning of these variables: a back-end, or the words of an error.
    std::string meaning(const variables &set, bool mpi_is_up = false)
    {
        const char *backend = nullptr;
        const with_variables here(set);
        const zoff_status status = zoff_comm_discover(mpi_is_up, &backend);
        last = status;
        return status < 0 ? zoff_last_error() : backend;
    }
    void expect_error(zoff_status status, std::initializer_list<const char *> words, const variables &set)
    {
        const std::string said = meaning(set);
        EXPECT_EQ(status, last) << said;
        for (const char *one : words)
            EXPECT_NE(std::string::npos, said.find(one)) << one << " is not in: " << said;
    }

    const no_launcher clean{"ZOFF_PLUGIN_PATH"};
    zoff_status last = ZOFF_OK;
};

TEST_F(Discover, NobodyHasLaunchedIt)
{
    EXPECT_EQ("self", meaning({}));
    EXPECT_EQ("self", meaning({{"OMPI_COMM_WORLD_RANK", ""}, {"WORLD_SIZE", ""}}));
}

TEST_F(Discover, TheProgramHasMpi)
{
    EXPECT_EQ("mpi", meaning({}, true));
    EXPECT_EQ("mpi", meaning({{"OMPI_COMM_WORLD_SIZE", "4"}, {"WORLD_SIZE", "2"}}, true)) << "it knows better than variables";
    EXPECT_FALSE(zoff_comm_discover_mpi()) << "this test has none";
}

TEST_F(Discover, LaunchersOfMpi)
{
    EXPECT_EQ("mpi", meaning({{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"PMIX_RANK", "3"}}));
    EXPECT_EQ("mpi", meaning({{"MV2_COMM_WORLD_RANK", "0"}, {"MV2_COMM_WORLD_SIZE", "2"}}));
    EXPECT_EQ("mpi", meaning({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}));
    EXPECT_EQ("mpi", meaning({{"PMIX_RANK", "1"}}));
    EXPECT_EQ("mpi", meaning({{"OMPI_COMM_WORLD_SIZE", "1"}}));
}

TEST_F(Discover, Slurm)
{
    const variables step = {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_ID", "0"}};
    expect_error(ZOFF_ERR_UNSUPPORTED, {"SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=4", "srun --mpi=pmix", "mpirun"}, step);
    variables with = step;
    with["PMIX_RANK"] = "1";
    EXPECT_EQ("mpi", meaning(with));
    with = step;
    with["PMI_RANK"] = "1";
    with["PMI_SIZE"] = "4";
    EXPECT_EQ("mpi", meaning(with));
    // mpirun in a job of two hosts, with a daemon on each, started by srun.
    with = step;
    with["SLURM_STEP_NUM_TASKS"] = "2";
    with["OMPI_COMM_WORLD_RANK"] = "5";
    with["OMPI_COMM_WORLD_SIZE"] = "8";
    EXPECT_EQ("mpi", meaning(with));
    // One task; and the batch script itself, which is alone in a job of any size.
    EXPECT_EQ("self", meaning({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "0"}}));
    EXPECT_EQ("self", meaning({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
    EXPECT_EQ("self",
              meaning({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "4"}}));
}

// Each batch system starts a launcher on each of two hosts, and the launcher starts the ranks.
TEST_F(Discover, ABatchSystemMayCountHosts)
{
    for (const variables &outer :
         {variables{{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}}, variables{{"PALS_RANKID", "1"}, {"PALS_SIZE", "2"}},
          variables{{"JSM_NAMESPACE_RANK", "1"}, {"JSM_NAMESPACE_SIZE", "2"}},
          variables{{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_ID", "0"}}}) {
        variables with = outer;
        with["OMPI_COMM_WORLD_RANK"] = "5";
        with["OMPI_COMM_WORLD_SIZE"] = "8";
        EXPECT_EQ("mpi", meaning(with)) << outer.begin()->first;
        with = outer;
        with["RANK"] = "5";
        with["WORLD_SIZE"] = "8";
        with["LOCAL_RANK"] = "1";
        expect_error(ZOFF_ERR_UNSUPPORTED, {"RANK=5, WORLD_SIZE=8", "as by torchrun"}, with);
        with["RANK"] = "0";
        with["WORLD_SIZE"] = "1";
        EXPECT_EQ("self", meaning(with)) << outer.begin()->first;
    }
}

TEST_F(Discover, Torchrun)
{
    const variables set = {
        {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "one"}, {"MASTER_PORT", "29500"}};
    expect_error(ZOFF_ERR_UNSUPPORTED,
                 {"RANK=1", "WORLD_SIZE=2", "NCCL", "mpirun", "srun --mpi=pmix", "\"self\"", "NCCL: ", "libzoff_nccl.so",
                  "UCX: ", "libzoff_ucx.so"},
                 set);
    variables alone = set;
    alone["WORLD_SIZE"] = "1";
    alone["RANK"] = "0";
    EXPECT_EQ("self", meaning(alone));
    // A script that sets torchrun's variables from mpirun's.
    variables both = set;
    both["OMPI_COMM_WORLD_RANK"] = "1";
    both["OMPI_COMM_WORLD_SIZE"] = "2";
    EXPECT_EQ("mpi", meaning(both));
}

// Kubeflow sets these variables so. On some clouds they count hosts.
TEST_F(Discover, WithoutALocalRankNobodyKnowsWhatTheyCount)
{
    for (const char *rank : {"0", "1"})
        expect_error(ZOFF_ERR_UNSUPPORTED, {"WORLD_SIZE=2", "RANK=", "LOCAL_RANK", "\"nccl\"", "\"self\""},
                     {{"RANK", rank}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "one"}, {"MASTER_PORT", "1"}});
    expect_error(ZOFF_ERR_UNSUPPORTED, {"WORLD_SIZE=2", "LOCAL_RANK"}, {{"WORLD_SIZE", "2"}});
    EXPECT_EQ("self", meaning({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
}

TEST_F(Discover, ContradictionsAreNamed)
{
    expect_error(ZOFF_ERR_INVALID, {"OMPI_COMM_WORLD_SIZE=4", "WORLD_SIZE=2", "contradicts"},
                 {{"OMPI_COMM_WORLD_SIZE", "4"}, {"WORLD_SIZE", "2"}});
    expect_error(ZOFF_ERR_INVALID, {"OMPI_COMM_WORLD_RANK=1", " RANK=0"},
                 {{"OMPI_COMM_WORLD_RANK", "1"},
                  {"OMPI_COMM_WORLD_SIZE", "2"},
                  {"RANK", "0"},
                  {"WORLD_SIZE", "2"},
                  {"LOCAL_RANK", "0"}});
    expect_error(ZOFF_ERR_INVALID, {"PMI_SIZE=2", "MV2_COMM_WORLD_SIZE=3"}, {{"MV2_COMM_WORLD_SIZE", "3"}, {"PMI_SIZE", "2"}});
    expect_error(ZOFF_ERR_INVALID, {"PMIX_RANK=1", "OMPI_COMM_WORLD_RANK=0"},
                 {{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_RANK", "1"}});
}

// Each launcher, each word, each rank of two, over an MPI that has started this process alone: an error, never a rank of one.
// Only "self" and the default stay alone, as they promise.
TEST_F(Discover, TheWorldThatWasStartedIsTheWorldThatIsJoined)
{
    post_office office(1);
    zoff_comm_transport transport = office.transport(0);
    transport.world_size = 1;
    const with_variables fake(variables{{"ZOFF_PLUGIN_PATH", ZOFF_TEST_PLUGINS}});
    void *library = dlopen(ZOFF_TEST_PLUGINS "/libzoff_mpi.so", RTLD_NOW | RTLD_GLOBAL);
    ASSERT_NE(nullptr, library) << dlerror();
    void *found = dlsym(library, "test_plugin_get");
    test_plugin *(*get)() = nullptr;
    memcpy(&get, &found, sizeof get);
    get()->transport = &transport;
    unsigned cells = 0;
    for (unsigned rank = 0; rank < 2; rank++) {
        for (const auto &launcher : launchers_of_two(rank)) {
            const with_variables here(launcher.second);
            for (const char *word : {"auto", "mpi", "nccl", "self"}) {
                SCOPED_TRACE(launcher.first + ", \"" + word + "\", rank " + std::to_string(rank));
                zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
                zoff_engine *made = nullptr;
                opts.ranks = word;
                const zoff_status status = zoff_engine_create(&opts, &made);
                const engine closes(made);
                cells++;
                if (strcmp(word, "self") == 0) {
                    EXPECT_EQ(ZOFF_OK, status) << zoff_last_error();
                    continue;
                }
                EXPECT_EQ(ZOFF_ERR_UNSUPPORTED, status);
                if (strcmp(word, "nccl") == 0)
                    continue; // it has the launcher's number of ranks, and no library here
                for (const char *words : {"=" /* the variables */, "\"self\""})
                    EXPECT_NE(nullptr, strstr(zoff_last_error(), words)) << zoff_last_error();
            }
        }
    }
    for (const auto &launcher : launchers_of_one()) {
        const with_variables here(launcher.second);
        for (const char *word : {"auto", "mpi", "self"}) {
            SCOPED_TRACE(launcher.first + ", \"" + word + "\"");
            zoff_comm_opts opts = ZOFF_COMM_OPTS_INIT;
            zoff_comm *made = nullptr;
            opts.backend = word;
            EXPECT_ZOFF_OK(zoff_comm_open(&opts, &made));
            zoff_comm_close(made);
            cells++;
        }
    }
    RecordProperty("cells", std::to_string(cells));
    zoff_comm *part = nullptr;
    const with_variables here({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "Open MPI has started 2 (OMPI_COMM_WORLD_RANK=1, OMPI_COMM_WORLD_SIZE=2)",
                      zoff_comm_open_transport(nullptr, &transport, &part));
    transport.world_size = 2; // the program asked for one rank of a larger world
    EXPECT_ZOFF_OK(zoff_comm_open_transport(nullptr, &transport, &part));
    zoff_comm_close(part);
}

// NCCL takes its number of ranks from the innermost launcher.
TEST_F(Discover, NcclAloneBesideALauncherOfMore)
{
    zoff_comm_opts opts = ZOFF_COMM_OPTS_INIT;
    zoff_comm *made = nullptr;
    opts.backend = "nccl";
    const with_variables here({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}});
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "the job has started 2 (RANK=1, WORLD_SIZE=2)", zoff_comm_open(&opts, &made));
}

TEST_F(Discover, AutoOpensWhatItFinds)
{
    zoff_comm_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.backend = "auto";
    zoff_comm *made = nullptr;
    ASSERT_ZOFF_OK(zoff_comm_open(&opts, &made));
    comm alone(made);
    EXPECT_EQ(1u, zoff_comm_size(made));
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_RANK", "1", 1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "torchrun", zoff_comm_open(&opts, &made));
    opts.backend = nullptr;
    zoff_comm *self = nullptr;
    ASSERT_ZOFF_OK(zoff_comm_open(&opts, &self)) << "who does not ask is alone, as ever";
    zoff_comm_close(self);
}
} // namespace
