// discover_test.cc: the group that "auto" chooses, for every environment that a launcher creates.
#include "zoff_test.h"

#include <map>
#include <set>

extern "C" {
#include "comm.h"
#include "env.h"
}

using namespace zoff_test;

namespace
{
using variables = std::map<std::string, std::string>;

// An environment without any launcher's variables, restored at the end.
class Discover : public testing::Test
{
  protected:
    Discover()
    {
#define E(id, launcher, rank, size, only_with) take(rank), take(size), take(only_with);
        ZOFF_ENV_WORLD_LIST(E)
#undef E
        for (const char *name : {"LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "ZOFF_PLUGIN_PATH"})
            take(name);
    }
    ~Discover() override
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
            kept[name] = getenv(name);
        unsetenv(name);
    }

    // The meaning of these variables: a back-end, or the words of an error.
    std::string meaning(const variables &set, bool mpi_is_up = false)
    {
        const char *backend = nullptr;
        for (const auto &line : set)
            setenv(line.first.c_str(), line.second.c_str(), 1);
        const zoff_status status = zoff_comm_discover(mpi_is_up, &backend);
        for (const auto &line : set)
            unsetenv(line.first.c_str());
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

    std::set<std::string> names;
    variables kept;
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
    const variables step = {{"SLURM_PROCID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_ID", "0"}};
    expect_error(ZOFF_ERR_UNSUPPORTED, {"SLURM_PROCID=1", "SLURM_NTASKS=4", "srun --mpi=pmix", "mpirun"}, step);
    variables with = step;
    with["PMIX_RANK"] = "1";
    EXPECT_EQ("mpi", meaning(with));
    with = step;
    with["PMI_RANK"] = "1";
    with["PMI_SIZE"] = "4";
    EXPECT_EQ("mpi", meaning(with));
    // mpirun in a job of two hosts, with a daemon on each, started by srun.
    with = step;
    with["SLURM_NTASKS"] = "2";
    with["OMPI_COMM_WORLD_RANK"] = "5";
    with["OMPI_COMM_WORLD_SIZE"] = "8";
    EXPECT_EQ("mpi", meaning(with));
    // One task; and the batch script itself, which is alone in a job of any size.
    EXPECT_EQ("self", meaning({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_ID", "0"}}));
    EXPECT_EQ("self", meaning({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}));
}

TEST_F(Discover, Torchrun)
{
    const variables set = {
        {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "one"}, {"MASTER_PORT", "29500"}};
    expect_error(ZOFF_ERR_UNSUPPORTED,
                 {"RANK=1", "WORLD_SIZE=2", "NCCL", "mpirun", "srun --mpi=pmix", "\"self\"", "NCCL: ", "libzoff_nccl.so"}, set);
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

// Some clouds set it to the number of hosts.
TEST_F(Discover, WithoutALocalRankItMayCountHosts)
{
    EXPECT_EQ("self", meaning({{"RANK", "0"}, {"WORLD_SIZE", "2"}}));
    EXPECT_EQ("self", meaning({{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "one"}, {"MASTER_PORT", "1"}}));
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
