/* SPDX-License-Identifier: Apache-2.0 */
// parallel_ranks_test.cc: the example trainer with --tensor-parallel 2 and data parallel ranks. Losses, norms and decisions to
// clip must be those of one rank, whatever the stage and the place of the states.
#include "gpt_jobs.h"

#include <cmath>

namespace
{
using namespace zoff_test;

enum { STEPS = 20 };
constexpr double CLIP = 2.1; // about half of the steps have a larger norm

class gpt_tensor_parallel : public gpt_jobs
{
  protected:
    // The batch of 5 sequences is 3 and 2 on two copies of the model.
    shell_result run(const std::string &name, unsigned ranks, const std::string &options, const std::string &config)
    {
        return run_job(name, ranks, STEPS, "--batch 5 " + options, config);
    }
    static std::string config(const std::string &stage, const std::string &more = "")
    {
        return "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"betas\": [0.9, 0.99], \"weight_decay\": "
               "0.01}}, \"gradient_clipping\": " +
               std::to_string(CLIP) + more + ", \"zero_optimization\": {\"stage\": " + stage + "}}";
    }
    // Weights and states in files.
    static std::string in_files()
    {
        return config("3, \"sub_group_size\": 4096, \"reduce_bucket_size\": 16384, \"offload_optimizer\": {\"device\": "
                      "\"nvme\", \"nvme_path\": \".\"}, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \".\", "
                      "\"buffer_count\": 2, \"max_in_cpu\": 0}, \"stage3_max_live_parameters\": 20000, "
                      "\"stage3_prefetch_bucket_size\": 5000, \"stage3_param_persistence_threshold\": 100",
                      ", \"zoff\": {\"host_memory\": \"144KiB\"}");
    }

    // Expect a run of `parts` times `copies` ranks to be that of one rank.
    void expect_whole(const std::string &name, unsigned parts, unsigned copies)
    {
        const auto losses = numbers("alone", "losses"), norms = numbers("alone", "grad_norms");
        const auto factors = numbers("alone", "clip_factors");
        std::vector<double> mean(STEPS, 0.0);
        unsigned clipped = 0;
        double worst = 0;
        ASSERT_EQ((size_t)STEPS, losses.size());
        for (unsigned rank = 0; rank < parts * copies; rank++) {
            SCOPED_TRACE(name + ", rank " + std::to_string(rank));
            const std::string to = suffix(rank);
            EXPECT_EQ(parts * copies, number(name, "ranks", to));
            EXPECT_EQ(parts, number(name, "parts", to));
            EXPECT_EQ(rank % parts, number(name, "part", to));
            // The parts of a copy, and all copies of a part.
            EXPECT_EQ(value(name, "loss_bits", suffix(rank - rank % parts)), value(name, "loss_bits", to));
            EXPECT_EQ(value(name, "weights_hash", suffix(rank % parts)), value(name, "weights_hash", to));
            EXPECT_EQ(value(name, "replicated_hash"), value(name, "replicated_hash", to));
            EXPECT_EQ(value(name, "grad_norms"), value(name, "grad_norms", to));
            const auto own = numbers(name, "losses", to), own_norms = numbers(name, "grad_norms", to);
            const auto own_factors = numbers(name, "clip_factors", to);
            ASSERT_EQ((size_t)STEPS, own.size());
            for (size_t i = 0; i < STEPS; i++) {
                mean[i] += number(name, "sequences", to) / (parts * 5) * own[i];
                EXPECT_NEAR(norms[i], own_norms[i], 1e-4 * norms[i]) << i;
                if (std::fabs(norms[i] / CLIP - 1) > 1e-4) {
                    EXPECT_EQ(factors[i] < 1, own_factors[i] < 1) << i;
                }
            }
        }
        for (size_t i = 0; i < STEPS; i++) {
            worst = std::max(worst, std::fabs(mean[i] - losses[i]));
            clipped += factors[i] < 1;
        }
        printf("  %s: %.1e is the largest difference of a loss; %u of %d steps were clipped\n", name.c_str(), worst, clipped,
               STEPS);
        EXPECT_LE(worst, 1e-5) << name;
        EXPECT_LE(4u, clipped) << "steps that clip, and others";
        EXPECT_GE(STEPS - 4u, clipped);
        EXPECT_LT(losses.back(), losses.front() - 1.0);
    }
    void train(const std::string &name, unsigned copies, const std::string &options, const std::string &settings)
    {
        const shell_result r = run(name, 2 * copies, "--tensor-parallel 2 " + options, settings);
        ASSERT_EQ(0, r.status) << r.output;
        expect_whole(name, 2, copies);
    }
    void train_alone()
    {
        const shell_result r = run("alone", 1, "", config("2"));
        ASSERT_EQ(0, r.status) << r.output;
    }
};

TEST_F(gpt_tensor_parallel, two_parts_learn_what_one_rank_learns)
{
    ASSERT_NO_FATAL_FAILURE(train_alone());
    train("parts", 1, "", config("2"));
    EXPECT_LT(number("parts", "parameters"), number("alone", "parameters"));
    EXPECT_EQ(number("parts", "parameters"), number("parts", "parameters", ".1"));
}

TEST_F(gpt_tensor_parallel, two_copies_of_two_parts_learn_what_one_rank_learns)
{
    ASSERT_NO_FATAL_FAILURE(train_alone());
    train("stage0", 2, "", config("0"));
    train("stage2", 2, "", config("2"));
    train("owned", 2, "--owned", in_files());
    for (unsigned rank = 0; rank < 4; rank++) {
        for (const char *name : {"stage0", "owned"}) {
            EXPECT_EQ(value("stage2", "loss_bits", suffix(rank)), value(name, "loss_bits", suffix(rank))) << name;
            EXPECT_EQ(value("stage2", "weights_hash", suffix(rank)), value(name, "weights_hash", suffix(rank))) << name;
        }
    }
    EXPECT_EQ("\"nvme\"", value("owned", "state_tier"));
}

// Both parts save into one checkpoint.
TEST_F(gpt_tensor_parallel, runs_go_on_from_a_checkpoint)
{
    const std::string parts = "--tensor-parallel 2 ";
    ASSERT_EQ(0, run("whole", 4, parts, config("2")).status);
    shell_result r = run("first", 4, parts + "--save saves --save-every 4 --async --steps 10", config("2"));
    ASSERT_EQ(0, r.status) << r.output;
    r = run("second", 4, parts + "--save saves --resume latest --owned", config("3"));
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_NE(std::string::npos, r.output.find("goes on after step 10")) << r.output;
    for (unsigned rank = 0; rank < 4; rank++) {
        EXPECT_EQ(11, numbers("second", "step_numbers", suffix(rank)).at(0));
        EXPECT_EQ(value("whole", "weights_hash", suffix(rank)), value("second", "weights_hash", suffix(rank)));
    }
    EXPECT_NE(value("whole", "weights_hash"), value("whole", "weights_hash", ".1"));
    // Another number of copies goes on with the same weights, and the whole model is no part.
    r = run("two", 2, parts + "--resume saves", config("2"));
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_EQ(value("whole", "weights_hash", ".1"), value("two", "weights_hash", ".1"));
    r = run("alone", 1, "--resume saves", config("2"));
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos, r.output.find("has no manifest of the engine '', but of 'tp0', 'tp1'")) << r.output;
}

TEST_F(gpt_tensor_parallel, says_once_what_cannot_be_split)
{
    const auto expect = [this](unsigned ranks, const std::string &options, const std::string &settings,
                               const std::string &words) {
        const shell_result r = run("bad", ranks, options, settings);
        const size_t at = r.output.find(words);
        EXPECT_NE(0, r.status) << options;
        EXPECT_NE(std::string::npos, at) << r.output;
        EXPECT_EQ(std::string::npos, r.output.find(words, at + 1)) << r.output;
    };
    expect(3, "--tensor-parallel 2", config("2"),
           "gpt: --tensor-parallel 2: 3 ranks cannot be split into groups of 2; start a multiple of 2 with mpirun -n");
    expect(3, "--tensor-parallel 3", config("2"), "heads must be a multiple of --tensor-parallel");
    expect(2, "--tensor-parallel 2",
           config("2, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \".\"}", ", \"zoff\": {\"persist\": true}"),
           "gpt: zoff.persist is not for --tensor-parallel");
    // The command line is refused before any rank joins.
    const std::string gpt = "cd '" + folder.path + "' && '" GPT_BINARY "' --text text --optimizer zoff ";
    for (const char *options : {"--tensor-parallel 2", "--tensor-parallel 2 --ranks self"}) {
        const shell_result r = shell(gpt + options);
        EXPECT_EQ(2, r.status);
        EXPECT_EQ("gpt: --tensor-parallel is for the ranks of MPI: use --ranks auto or mpi, under mpirun\n", r.output);
    }
    EXPECT_EQ("gpt: --tensor-parallel must be 1 to 1024\n", shell(gpt + "--tensor-parallel 0").output);
}
} // namespace
