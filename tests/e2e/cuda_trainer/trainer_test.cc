// trainer_test.cc: whole runs of the GPU trainer's program, compiled for the host. It must learn as the CPU trainer does. Its
// losses must have the same bits wherever the states are, and its recipe must be short.
#include "gpt_runs.h"

#include <cmath>

namespace
{
using namespace zoff_test;

class cuda_trainer : public gpt_runs
{
  protected:
    void SetUp() override
    {
        if (!*CUDA_TRAINER_BINARY)
            GTEST_SKIP() << "not built: the CUDA toolkit's header cublas_v2.h was not found";
        gpt_runs::SetUp();
    }

    const std::string model = " --layers 2 --heads 2 --width 32 --context 32 --batch 4 --seed 3 --steps 30 ";

    shell_result run(const std::string &options)
    {
        return shell("cd '" + folder.path +
                     "' && ZOFF_LOG_LEVEL=info OMP_WAIT_POLICY=passive '" CUDA_TRAINER_BINARY "' --accel emulated --data text" +
                     model + options);
    }

    // Write a ds_config that ends with the given text.
    std::string config(const std::string &name, const std::string &more = "")
    {
        write_file(folder.file(name),
                   "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 3e-3, \"betas\": [0.9, 0.99], "
                   "\"weight_decay\": 0.01}}, \"gradient_clipping\": 1.0, \"bf16\": {\"enabled\": true}" +
                       more + "}");
        return " --config " + name;
    }
    std::string in_files(const std::string &sub_group)
    {
        return ", \"zero_optimization\": {\"sub_group_size\": " + sub_group +
               ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \".\"}}, \"zoff\": {\"host_memory\": "
               "\"192KiB\"}";
    }

    // The lines with this beginning, without the numbers that change from run to run.
    static std::vector<std::string> lines(const std::string &output, const std::string &start)
    {
        std::vector<std::string> found;
        std::stringstream text(output);
        for (std::string line; std::getline(text, line);)
            if (line.compare(0, start.size(), start) == 0)
                found.push_back(line);
        return found;
    }
    static std::vector<double> losses(const std::string &output)
    {
        std::vector<double> list;
        for (const std::string &line : lines(output, "  step "))
            list.push_back(strtod(line.c_str() + line.find("loss ") + 5, nullptr));
        return list;
    }
};

TEST_F(cuda_trainer, learns_as_the_trainer_for_the_cpu_does)
{
    const shell_result r = run(config("dram.ds"));
    ASSERT_EQ(0, r.status) << r.output;
    const shell_result cpu =
        shell("cd '" + folder.path +
              "' && OMP_WAIT_POLICY=passive '" GPT_BINARY "' --text text --dtype bf16 --print-every 0 --json cpu.json" + model +
              config("dram.ds"));
    ASSERT_EQ(0, cpu.status) << cpu.output;
    const auto a = losses(r.output), b = numbers("cpu", "losses");
    ASSERT_EQ(30u, a.size()) << r.output;
    ASSERT_EQ(30u, b.size());
    double worst = 0;
    for (size_t i = 0; i < a.size(); i++)
        worst = std::max(worst, std::fabs(a[i] / b[i] - 1));
    printf("  loss %.4f to %.4f; %.5f is the worst relative difference from the CPU's\n", a.front(), a.back(), worst);
    EXPECT_LT(worst, 0.01);
    EXPECT_NEAR(std::log(256.0), a.front(), 0.1);
    EXPECT_LT(a.back(), 3.5);
    // bf16 gradients are downloaded, bf16 weights are uploaded.
    EXPECT_NE(r.output.find("over the link in a step: 2.000 bytes of each down, 2.000 up"), std::string::npos) << r.output;
}

TEST_F(cuda_trainer, has_the_same_losses_and_weights_whatever_holds_the_states)
{
    const shell_result dram = run("--steps 12" + config("dram.ds"));
    ASSERT_EQ(0, dram.status) << dram.output;
    ASSERT_EQ(12u, losses(dram.output).size()) << dram.output;
    ASSERT_EQ(1u, lines(dram.output, "  weights ").size());
    std::vector<std::string> others = {config("nvme1.ds", in_files("1500"))};
#if !defined(ZOFF_TEST_SANITIZED_ADDRESS) // the sanitizer makes a run too slow
    others.push_back(config("dram1.ds", ", \"zero_optimization\": {\"sub_group_size\": 2048}"));
    others.push_back(config("nvme.ds", in_files("4096")));
#endif
    for (const std::string &other : others) {
        const shell_result r = run("--steps 12" + other);
        ASSERT_EQ(0, r.status) << r.output;
        EXPECT_EQ(lines(dram.output, "  step "), lines(r.output, "  step ")) << other;
        EXPECT_EQ(lines(dram.output, "  weights "), lines(r.output, "  weights ")) << other;
    }
}

TEST_F(cuda_trainer, takes_the_configurations_that_lie_beside_it)
{
    ASSERT_EQ(0, shell("mkdir '" + folder.file("states") + "'").status);
    const shell_result dram = run("--steps 3 --config '" CUDA_TRAINER_FOLDER "/dram.json'");
    const shell_result nvme = run("--steps 3 --config '" CUDA_TRAINER_FOLDER "/nvme.json'");
    ASSERT_EQ(0, dram.status) << dram.output;
    ASSERT_EQ(0, nvme.status) << nvme.output;
    EXPECT_EQ(3u, losses(dram.output).size());
    EXPECT_EQ(lines(dram.output, "  step "), lines(nvme.output, "  step "));
    EXPECT_NE(nvme.output.find("in files under states"), std::string::npos) << nvme.output;
}

TEST_F(cuda_trainer, says_what_is_wrong)
{
    const auto expect = [this](const std::string &options, int status, const std::string &words) {
        const shell_result r = run(options);
        EXPECT_EQ(status, r.status) << options;
        EXPECT_NE(r.output.find(words), std::string::npos) << options << ": " << r.output;
    };
    expect("--data missing.txt", 1, "cannot open missing.txt: No such file or directory");
    expect("--steps x", 2, "cuda_trainer: --steps x: expected a whole number");
    expect("--batch 0", 2, "cuda_trainer: --batch 0: expected a whole number from 1 on");
    expect("--heads 5", 1, "cuda_trainer: width must be a multiple of heads");
    expect("--context 60000", 1, "cuda_trainer: the text is not longer than --context");
    expect("--accel nothing", 1, "cuda_trainer: this build has no accelerator \"nothing\"");
    expect("--device 1", 1, "cuda_trainer: cudaSetDevice(options.device): invalid device ordinal");
    expect("--config missing.json", 1, "missing.json");
    expect("stray", 2, "what is 'stray'?");
    expect("--help", 0, "Usage: cuda_trainer");
}

TEST_F(cuda_trainer, recipe_has_at_most_25_lines_of_at_most_120_columns)
{
    std::ifstream source(CUDA_TRAINER_FOLDER "/main.c");
    std::string line, recipe;
    bool inside = false;
    int lines = 0;
    while (std::getline(source, line)) {
        const bool begin = line.find("/* zoff: begin */") != std::string::npos,
                   end = line.find("/* zoff: end */") != std::string::npos;
        if (inside && !end && !line.empty()) {
            lines++;
            recipe += line + "\n";
            EXPECT_LE(line.size(), 120u) << line;
        }
        // No line outside of the recipe may use the library, except for the results of a step and error messages.
        if (!inside && !begin && line.compare(0, 3, "/* ") && line.compare(0, 3, " * ")) {
            const char *const may_pass[] = {"zoff_step_info", "complain(zoff_last_error())", "from zoff_step_begin() to"};
            bool passes = line.find("zoff_") == std::string::npos;
            for (const char *words : may_pass)
                passes = passes || line.find(words) != std::string::npos;
            EXPECT_TRUE(passes) << line;
        }
        inside = (inside || begin) && !end;
    }
    EXPECT_LE(lines, 25) << recipe;
    printf("  %d lines\n", lines);
    for (const char *call : {"zoff_accel_open(", "zoff_engine_open(", "zoff_grad_ready(", "zoff_step_begin(", "zoff_step_wait(",
                             "zoff_engine_destroy("})
        EXPECT_NE(recipe.find(call), std::string::npos) << call;
}
} // namespace
