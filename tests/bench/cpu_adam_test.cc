/* SPDX-License-Identifier: Apache-2.0 */
// cpu_adam_test.cc: tests the benchmark of the CPU step as a program. The JSON must hold every required figure, and mark a
// figure that is missing or proves nothing. Wrong options must be refused. No test depends on the speed of the machine.
#include "bench_program.h"

namespace
{
using zoff_test::json_text;
using zoff_test::shell;
using zoff_test::shell_result;

const std::string PROGRAM = "'" CPU_ADAM "'";

const char *const RATIOS[] = {
    "share_bf16",        "share_fp32",          "scaling_1_to_2",         "vs_chain",
    "vs_plain_loop",     "vs_plain_loop_worst", "bf16_vs_fp32_bytes",     "list_vs_calls_1k",
    "list_vs_calls_256", "list_vs_one_tensor",  "layout_worst_over_best", "layout_naive_over_staggered",
};

// The number of threads an engine would use if it had enough elements for all of them.
unsigned library_threads()
{
    float value = 0, grad = 0;
    zoff_param_desc param = {};
    zoff_plan_info plan = {};
    zoff_engine *engine = nullptr;
    param.struct_size = sizeof param;
    param.value = &value;
    param.grad = &grad;
    param.count = 1;
    plan.struct_size = sizeof plan;
    EXPECT_ZOFF_OK(zoff_engine_create(nullptr, &engine));
    EXPECT_ZOFF_OK(zoff_engine_add_param(engine, &param, nullptr));
    EXPECT_ZOFF_OK(zoff_engine_plan(engine, &plan));
    zoff_engine_destroy(engine);
    return plan.threads;
}

class cpu_adam : public zoff_test::bench_program
{
  protected:
    // Returns false if this machine cannot run the benchmark.
    bool run(const std::string &options)
    {
        if (start(PROGRAM + " " + options).output.find("lacks") != std::string::npos)
            return false; // the CPU has no AVX2
        load();
        return root != nullptr;
    }
};

TEST_F(cpu_adam, writes_every_figure)
{
    if (!run("--sizes 4096,64Ki --seconds 6"))
        GTEST_SKIP() << "the loops to compare with need AVX2";
    EXPECT_STREQ("cpu_adam", json_string_value(json_object_get(root, "bench")));
    EXPECT_TRUE(json_is_boolean(json_object_get(root, "enough_clean_rounds")));
    EXPECT_EQ(library_threads(), json_integer_value(json_object_get(root, "threads")));
    for (const char *name : RATIOS)
        expect_ratio(name);
    // A verdict needs more than these 64 Ki elements. The JSON must say that this one is void.
    EXPECT_TRUE(json_is_false(json_object_get(at("verdict", "share_bf16"), "held")));
    EXPECT_NE(std::string::npos, json_text(at("verdict", "share_bf16"), "void").find("65536 elements"));
    EXPECT_DOUBLE_EQ(1.75, json_real_value(json_object_get(at("verdict", "vs_chain"), "at_least")));
    EXPECT_DOUBLE_EQ(1.1, json_real_value(json_object_get(at("verdict", "layout_worst_over_best"), "at_most")));
    // One round is never enough for a verdict.
    EXPECT_TRUE(json_is_false(json_object_get(root, "enough_clean_rounds")));
}

TEST_F(cpu_adam, lists_all_contestants)
{
    if (!run("--sizes 4096 --only compare --seconds 6"))
        GTEST_SKIP() << "the loops to compare with need AVX2";
    std::string names = " ";
    for_each_row([&](json_t *, json_t *row) {
        names += json_text(row, "name") + " ";
        EXPECT_GT(json_real_value(json_object_get(row, "bytes_per_element")), 0);
    });
    for (const char *name :
         {"nomath_fp32",    "nomath_bf16",   "triad",        "memcpy",     "zoff_fp32",         "zoff_bf16", "zoff_f16",
          "zoff_bf16_keep", "zoff_f16_keep", "zoff_adagrad", "zoff_lion",  "zoff_sgd_momentum", "zoff_sgd",  "plain_fp32",
          "chain_upcast",   "chain_norm",    "chain_scale",  "chain_adam", "chain_cast",        "chain",     "norm_zoff_bf16"})
        EXPECT_NE(std::string::npos, names.find(std::string(" ") + name + " ")) << name;
    // A part that did not run must be listed as not measured.
    EXPECT_TRUE(json_is_null(at("ratios", "list_vs_calls_1k")));
    EXPECT_TRUE(json_is_string(at("not_measured", "list_vs_calls_1k")));
}

TEST_F(cpu_adam, obeys_its_options)
{
    if (!run("--sizes 4096 --only compare --dtype fp32 --threads 1 --isa scalar --seconds 6"))
        GTEST_SKIP() << "the loops to compare with need AVX2";
    EXPECT_STREQ("scalar", json_string_value(json_object_get(root, "isa")));
    EXPECT_EQ(1, json_integer_value(json_object_get(root, "threads")));
    EXPECT_TRUE(json_is_null(at("ratios", "share_bf16")));
    EXPECT_TRUE(json_is_null(at("ratios", "scaling_1_to_2"))) << "scaling needs more than one thread";
    EXPECT_EQ(std::string::npos, output.find("zoff_bf16"));
}

TEST(cpu_adam_options, help_tells_them)
{
    zoff_test::expect_help(
        PROGRAM, {"--sizes", "--threads", "--isa", "--dtype", "--rounds", "--quick", "--json", "--only", "--seconds"});
}

TEST(cpu_adam_options, wrong_ones_are_refused)
{
    zoff_test::expect_refused(PROGRAM, "cpu_adam",
                              {"--sizes 0", "--sizes 12Q", "--sizes 1,,2", "--sizes=-4", "--sizes ''", "--rounds 0",
                               "--rounds 65", "--rounds nine", "--threads 0", "--threads -1", "--dtype fp8", "--dtype ''",
                               "--only everything", "--only lists,", "--isa mmx", "--isa ''", "--seconds 1h",
                               "--no-such-option", "--json=x extra"});
}

TEST(cpu_adam_options, more_threads_than_cpus_are_refused)
{
    const shell_result r = shell(PROGRAM + " --threads 1024 --sizes 4096");
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos, r.output.find("may use")) << r.output;
}

TEST(cpu_adam_options, a_file_that_cannot_be_written_is_an_error)
{
    const shell_result r = shell(PROGRAM + " --sizes 64 --only layout --rounds 1 --seconds 5 --json=/no/such/folder/x");
    if (r.output.find("lacks") != std::string::npos)
        GTEST_SKIP() << "the loops to compare with need AVX2";
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos, r.output.find("cannot write")) << r.output;
}
} // namespace
