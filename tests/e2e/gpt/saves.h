/* SPDX-License-Identifier: Apache-2.0 */
// saves.h: runs of the example trainer that end early and go on, in one process or as the ranks of a job.
#ifndef ZOFF_TESTS_GPT_SAVES_H
#define ZOFF_TESTS_GPT_SAVES_H

#include "gpt_runs.h"

#include <dirent.h>

#include <algorithm>

namespace zoff_test
{
class gpt_saves_runs : public gpt_runs
{
  protected:
    // Begins the command of a run: mpirun with its arguments, or nothing.
    std::string launcher;
    unsigned world = 1;

    std::string command(const std::string &name, const std::string &options, const std::string &config)
    {
        write_file(folder.file(name + ".ds"), config);
        // AddressSanitizer of clang 14 takes the 16 bytes before a thread's memory for libomp as those of glibc 2.19, if that
        // memory begins 16 bytes into a page. Then LeakSanitizer crashes.
        const std::string sanitizer = "ASAN_OPTIONS=\"$ASAN_OPTIONS:intercept_tls_get_addr=0\" ";
        return sanitizer + "OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 ZOFF_LOG_LEVEL=warn " + launcher +
               " '" GPT_BINARY "' --text text" + " --layers 1 --heads 2 --width 32 --context 16 --batch 4 --seed 3 --config " +
               name + ".ds --name " + name + " --json " + name + ".json " + options;
    }
    shell_result run(const std::string &name, const std::string &options, const std::string &config)
    {
        return shell("cd '" + folder.path + "' && " + command(name, options, config));
    }
    // Start a run in the background and wait until it has printed step `step`. Then run `commands`, where $job is its process,
    // and wait for its end, whose status is that of the shell.
    shell_result interrupt(const std::string &name, const std::string &options, const std::string &config, unsigned step,
                           const std::string &commands)
    {
        const std::string out = name + ".out", wanted = "'  step *" + std::to_string(step) + "/'";
        return shell("cd '" + folder.path + "'; rm -f pid.* " + out + "; " +
                     command(name, options + " --print-every 1", config) + " > " + out + " & job=$!; until grep -sq " + wanted +
                     " " + out + "; do kill -0 $job || exit 99; sleep 0.01; done; " + commands + "; wait $job");
    }

    // The step after which a run would go on. The run that finds it takes no step.
    size_t position(const std::string &options, const std::string &config)
    {
        const shell_result r = run("position", "--steps 1 " + options, config);
        const std::string words = "goes on after step ";
        const size_t at = r.output.find(words);
        EXPECT_EQ(0, r.status) << r.output;
        EXPECT_NE(std::string::npos, at) << r.output;
        return at == std::string::npos ? 0 : strtoul(r.output.c_str() + at + words.size(), nullptr, 10);
    }

    static std::string config(const std::string &more = "")
    {
        return "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"weight_decay\": 0.01}}, "
               "\"gradient_clipping\": 1.0" +
               more + "}";
    }
    static std::string in_files(const std::string &path, const std::string &zoff = "")
    {
        return config(", \"zero_optimization\": {\"stage\": 1, \"sub_group_size\": 4096, \"offload_optimizer\": {\"device\": "
                      "\"nvme\", \"nvme_path\": \"" +
                      path + "\"}}, \"zoff\": {\"host_memory\": \"144KiB\"" + zoff + "}");
    }
    static std::string suffix(unsigned rank) { return rank ? "." + std::to_string(rank) : ""; }

    size_t first_step(const std::string &name) { return (size_t)numbers(name, "step_numbers").at(0); }
    size_t last_step(const std::string &name) { return (size_t)numbers(name, "step_numbers").back(); }

    // Expect that a run has the losses that `whole`, which was not interrupted, has at the same steps; and in the end its
    // weights.
    void expect_part_of(const std::string &whole, const std::string &part, bool to_its_end)
    {
        for (unsigned rank = 0; rank < world; rank++) {
            const auto all = words(whole, "loss_bits", rank), some = words(part, "loss_bits", rank);
            const auto steps = numbers(part, "step_numbers", suffix(rank));
            ASSERT_EQ(some.size(), steps.size());
            ASSERT_FALSE(some.empty());
            for (size_t i = 0; i < steps.size(); i++) {
                EXPECT_EQ(steps[0] + (double)i, steps[i]);
                ASSERT_LE((size_t)steps[i], all.size());
                EXPECT_EQ(all[(size_t)steps[i] - 1], some[i]) << part << ", rank " << rank << ", step " << steps[i];
            }
            if (to_its_end) {
                EXPECT_EQ(value(whole, "weights_hash", suffix(rank)), value(part, "weights_hash", suffix(rank)));
            }
        }
    }

    // The checkpoints in a folder, by name.
    std::vector<std::string> checkpoints(const std::string &name)
    {
        std::vector<std::string> found;
        DIR *dir = opendir(folder.file(name).c_str());
        for (struct dirent *entry; dir && (entry = readdir(dir));) {
            if (strncmp(entry->d_name, "step-", 5) == 0)
                found.push_back(entry->d_name);
        }
        if (dir)
            closedir(dir);
        std::sort(found.begin(), found.end());
        return found;
    }
    static std::string checkpoint(size_t step)
    {
        char name[32];
        snprintf(name, sizeof name, "step-%010zu", step);
        return name;
    }

  private:
    std::vector<std::string> words(const std::string &name, const std::string &key, unsigned rank)
    {
        std::vector<std::string> list;
        std::stringstream text(value(name, key, suffix(rank)));
        for (std::string word; std::getline(text, word, ',');)
            list.push_back(word.substr(word.find('"') + 1, 16));
        return list;
    }
};
} // namespace zoff_test

#endif
