/* SPDX-License-Identifier: Apache-2.0 */
// launcher.h: the environment variables by which launchers tell a process its rank and the number of ranks.
#ifndef ZOFF_TESTS_LAUNCHER_H
#define ZOFF_TESTS_LAUNCHER_H

#include "zoff_test.h"

#include <map>
#include <set>

extern "C" {
#include "env.h"
}

namespace zoff_test
{
using variables = std::map<std::string, std::string>;

// An environment without any launcher's variables, restored at the end.
class no_launcher
{
  public:
    explicit no_launcher(const char *also = nullptr) // another variable to take away
    {
        take(also);
#define E(id, launcher, rank, size, only_with) take(rank), take(size), take(only_with);
        ZOFF_ENV_WORLD_LIST(E)
#undef E
        for (const char *name : {"LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"})
            take(name);
    }
    ~no_launcher()
    {
        for (const auto &name : names)
            unsetenv(name.c_str());
        for (const auto &line : kept)
            setenv(line.first.c_str(), line.second.c_str(), 1);
    }
    no_launcher(const no_launcher &) = delete;

  private:
    void take(const char *name)
    {
        if (!name || !names.insert(name).second)
            return;
        if (getenv(name))
            kept[name] = getenv(name);
        unsetenv(name);
    }
    std::set<std::string> names;
    variables kept;
};

// Variables that are set as long as this exists.
class with_variables
{
  public:
    explicit with_variables(const variables &set_) : set(set_)
    {
        for (const auto &line : set)
            setenv(line.first.c_str(), line.second.c_str(), 1);
    }
    ~with_variables()
    {
        for (const auto &line : set)
            unsetenv(line.first.c_str());
    }
    with_variables(const with_variables &) = delete;

  private:
    const variables set;
};

// The variables of one rank of two, by launcher. Kubeflow sets torchrun's without LOCAL_RANK. PMIx tells only the rank, so
// there only rank 1 can know that it is not alone.
inline std::vector<std::pair<std::string, variables>> launchers_of_two(unsigned rank)
{
    const std::string r = std::to_string(rank);
    std::vector<std::pair<std::string, variables>> all = {
        {"torchrun",
         {{"RANK", r}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", r}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}}},
        {"Kubeflow", {{"RANK", r}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}}},
        {"Open MPI", {{"OMPI_COMM_WORLD_RANK", r}, {"OMPI_COMM_WORLD_SIZE", "2"}}},
        {"MVAPICH", {{"MV2_COMM_WORLD_RANK", r}, {"MV2_COMM_WORLD_SIZE", "2"}}},
        {"Hydra", {{"PMI_RANK", r}, {"PMI_SIZE", "2"}}},
        {"jsrun", {{"JSM_NAMESPACE_RANK", r}, {"JSM_NAMESPACE_SIZE", "2"}}},
        {"Flux", {{"FLUX_TASK_RANK", r}, {"FLUX_JOB_SIZE", "2"}}},
        {"PALS", {{"PALS_RANKID", r}, {"PALS_SIZE", "2"}}},
        {"Slurm", {{"SLURM_PROCID", r}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_ID", "0"}}}};
    if (rank > 0) {
        all.push_back({"PMIx", {{"PMIX_RANK", r}}});
        all.push_back({"PALS without a size", {{"PALS_RANKID", r}}});
    }
    return all;
}

// Environments of a process that is alone in its world, and right so.
inline std::vector<std::pair<std::string, variables>> launchers_of_one()
{
    return {
        {"nobody", {}},
        {"mpirun -n 1", {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}},
        {"mpiexec.hydra -n 1", {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}},
        {"srun -n 1", {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "0"}}},
        {"the script of sbatch -n 4", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_NPROCS", "4"}}},
        {"the shell of salloc -n 4",
         {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_STEP_ID", "4294967290"}}},
        {"mpirun -n 1 on the second of three hosts, whose daemons srun has started",
         {{"SLURM_PROCID", "1"},
          {"SLURM_STEP_NUM_TASKS", "2"},
          {"SLURM_STEP_ID", "0"},
          {"OMPI_COMM_WORLD_RANK", "0"},
          {"OMPI_COMM_WORLD_SIZE", "1"}}},
        {"the same with Flux",
         {{"FLUX_TASK_RANK", "1"}, {"FLUX_JOB_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}},
        {"the same with PALS", {{"PALS_RANKID", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}},
        {"the same with jsrun",
         {{"JSM_NAMESPACE_RANK", "1"},
          {"JSM_NAMESPACE_SIZE", "2"},
          {"OMPI_COMM_WORLD_RANK", "0"},
          {"OMPI_COMM_WORLD_SIZE", "1"}}},
        {"torchrun --nproc-per-node 1", {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}}},
    };
}
} // namespace zoff_test

#endif
