/* SPDX-License-Identifier: Apache-2.0 */
// gpt_jobs.h: runs of the example trainer as the ranks of a job.
#ifndef ZOFF_TESTS_GPT_JOBS_H
#define ZOFF_TESTS_GPT_JOBS_H

#include "gpt_runs.h"

namespace zoff_test
{
class gpt_jobs : public gpt_runs
{
  protected:
    // A rank other than 0 appends this to the name of its JSON file.
    static std::string suffix(unsigned rank) { return rank ? "." + std::to_string(rank) : ""; }

    // Train a small model on `ranks` ranks. The JSON of rank 0 is <name>.json, that of rank 1 is <name>.json.1.
    shell_result run_job(const std::string &name, unsigned ranks, unsigned steps, const std::string &options,
                         const std::string &text)
    {
        write_file(folder.file(name + ".ds"), text);
        return shell("cd '" + folder.path +
                     "' && OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 ZOFF_LOG_LEVEL=warn " MPIEXEC " -n " +
                     std::to_string(ranks) + " '" GPT_BINARY "' --text text --layers 2 --heads 2 --width 64 --context 16 " +
                     "--seed 3 --ranks auto --steps " + std::to_string(steps) + " --config " + name + ".ds --name " + name +
                     " --json " + name + ".json " + options);
    }
};
} // namespace zoff_test

#endif
