/* SPDX-License-Identifier: Apache-2.0 */
// ranks_test.cc: the example trainer as the ranks of a job. Several ranks must learn what one rank learns. The stage, the place
// of states and weights, and the owner of the weights must not change a bit.
#include "covering.h"
#include "gpt_jobs.h"

#include <algorithm>
#include <cmath>

namespace
{
using namespace zoff_test;

enum { STEPS = 25 };

class gpt_ranks : public gpt_jobs, public testing::WithParamInterface<unsigned>
{
  protected:
    shell_result run(const std::string &name, unsigned ranks, const std::string &options, const std::string &config)
    {
        return run_job(name, ranks, STEPS, options, config);
    }
    static std::string config(const std::string &stage, const std::string &more = "")
    {
        return "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, \"betas\": [0.9, 0.99], \"weight_decay\": "
               "0.01}}, "
               "\"gradient_clipping\": 1.0" +
               more + ", \"zero_optimization\": {\"stage\": " + stage + "}}";
    }
    // States in files: a window of 144 KiB for 118,000 parameters with 8 bytes each.
    static std::string in_files(const std::string &stage, const std::string &more = "")
    {
        return config(stage + ", \"sub_group_size\": 4096, \"reduce_bucket_size\": 16384, \"offload_optimizer\": {\"device\": "
                              "\"nvme\", \"nvme_path\": \".\"}",
                      ", \"zoff\": {\"host_memory\": \"144KiB\"}" + more);
    }
    // Weights in files, too: 461 KiB, of which 20,000 elements may be live.
    static std::string all_in_files(const std::string &more = "")
    {
        return in_files(
            "3, \"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \".\", \"buffer_count\": 2, \"max_in_cpu\": "
            "0}, \"stage3_max_live_parameters\": 20000, \"stage3_prefetch_bucket_size\": 5000, "
            "\"stage3_param_persistence_threshold\": 100",
            more);
    }

    // The mean loss over the tokens of all ranks, for each step.
    std::vector<double> losses(const std::string &name, unsigned world)
    {
        std::vector<double> sums(STEPS, 0.0);
        double sequences = 0;
        for (unsigned rank = 0; rank < world; rank++) {
            const auto own = numbers(name, "losses", suffix(rank));
            const double weight = number(name, "sequences", suffix(rank));
            EXPECT_EQ(sums.size(), own.size());
            for (size_t i = 0; i < std::min(sums.size(), own.size()); i++)
                sums[i] += weight * own[i];
            sequences += weight;
        }
        for (double &sum : sums)
            sum /= sequences;
        EXPECT_EQ(sequences, number(name, "batch"));
        return sums;
    }

    void expect_near(const std::vector<double> &a, const std::vector<double> &b, const std::string &what)
    {
        double worst = 0;
        for (size_t i = 0; i < std::min(a.size(), b.size()); i++)
            worst = std::max(worst, std::fabs(a[i] / b[i] - 1));
        EXPECT_EQ(a.size(), b.size());
        EXPECT_LE(worst, 1e-4) << what;
        printf("  %s: %.1e is the worst relative difference of a loss from that of one rank\n", what.c_str(), worst);
    }

    // Expect the same losses on every rank and the same weights after the last step, bit for bit.
    void expect_same(const std::string &a, const std::string &b, unsigned world)
    {
        for (unsigned rank = 0; rank < world; rank++) {
            EXPECT_EQ(value(a, "loss_bits", suffix(rank)), value(b, "loss_bits", suffix(rank))) << b << ", rank " << rank;
            EXPECT_EQ(value(a, "weights_hash"), value(b, "weights_hash", suffix(rank))) << b << ", rank " << rank;
            EXPECT_EQ(world, number(b, "ranks", suffix(rank)));
        }
    }

    struct kind {
        std::string name, options, config;
        bool is_for_two = false;
    };
    void train_alike(const std::vector<kind> &kinds, const std::string &options)
    {
        const unsigned world = GetParam();
        for (const kind &k : kinds) {
            if (world == 1 && k.name != kinds[0].name && k.config.find("\"stage\": 3") == std::string::npos)
                continue; /* before stage 3 one rank alone has nothing to shard */
            if (k.is_for_two && (world == 4 || !is_full_run()))
                continue; /* a job is slow, and the matrices of e2e_ranks have the same bits */
            const shell_result r = run(k.name, world, options + k.options, k.config);
            ASSERT_EQ(0, r.status) << k.name << ": " << r.output;
            expect_same(kinds[0].name, k.name, world);
        }
        const shell_result r = run("alone", 1, options, kinds[0].config);
        ASSERT_EQ(0, r.status) << r.output;
        const auto mean = losses(kinds[0].name, world);
        expect_near(mean, losses("alone", 1), std::to_string(world) + " ranks" + options);
        EXPECT_LT(mean.back(), mean.front() - 1.0);
    }
};

// 6 sequences on 4 ranks are 2, 1, 2 and 1.
TEST_P(gpt_ranks, learn_the_same_in_every_stage_and_tier)
{
    train_alike({{"stage0", "", config("0")},
                 {"stage1", "", config("1")},
                 {"stage2", "", config("2"), true},
                 {"stage3", "", config("3"), true},
                 {"stage0_files", "", in_files("0"), true},
                 {"stage1_files", "", in_files("1"), true},
                 {"stage2_files", "", in_files("2")},
                 {"stage3_files", "", in_files("3"), true},
                 {"stage1_owned", " --owned", config("1"), true},
                 {"stage2_owned", " --owned", in_files("2")},
                 {"stage3_owned", " --owned", config("3")},
                 {"stage3_all_files", " --owned", all_in_files()}},
                " --batch 6");
    const double weights = 4 * number("stage3_all_files", "parameters") / GetParam();
    EXPECT_GT(number("stage3_all_files", "weight_host_bytes"), 0);
    EXPECT_LT(number("stage3_all_files", "weight_host_bytes"), 0.6 * weights * GetParam());
    EXPECT_EQ(8 * number("stage0", "parameters"), number("stage0", "state_bytes"));
    EXPECT_EQ("\"nvme\"", value("stage3_all_files", "state_tier"));
    EXPECT_LE(number("stage3_all_files", "state_host_bytes"), 144 * 1024);
    EXPECT_GT(number("stage3_all_files", "state_bytes"), 144 * 1024);
}

TEST_P(gpt_ranks, learn_the_same_with_three_micro_batches)
{
    if (GetParam() == 1)
        GTEST_SKIP() << "trainer_test.cc tests accumulation on one rank";
    const std::string accumulate = ", \"gradient_accumulation_steps\": 3";
    train_alike({{"stage0", "", config("0", accumulate)},
                 {"stage2", "", in_files("2", accumulate)},
                 {"stage3", " --owned", all_in_files(accumulate)}},
                " --batch 6");
}

// Some ranks have no sequence; all ranks must have the same weights.
TEST_P(gpt_ranks, learn_from_fewer_sequences_than_ranks)
{
    if (GetParam() < 4)
        GTEST_SKIP() << "there are more sequences than ranks";
    train_alike({{"stage1", "", config("1")}, {"stage3", " --owned", all_in_files()}}, " --batch 3 --dtype fp32");
}

INSTANTIATE_TEST_SUITE_P(world, gpt_ranks, testing::Values(1u, 2u, 4u), testing::PrintToStringParamName());
} // namespace
