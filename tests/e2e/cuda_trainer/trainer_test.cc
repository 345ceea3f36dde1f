/* SPDX-License-Identifier: Apache-2.0 */
// trainer_test.cc: whole runs of the GPU trainer's program, compiled for the host. It must learn as the CPU trainer does. Its
// losses must have the same bits wherever states and weights are, and its recipe must be short.
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
    std::string in_files(const std::string &sub_group, const std::string &own = "")
    {
        return ", \"zero_optimization\": {\"sub_group_size\": " + sub_group +
               ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \".\"}}, \"zoff\": {\"host_memory\": "
               "\"192KiB\"" +
               own + "}";
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
    // ZeRO-3 for the tests' model with four layers, of which a layer has 12,704 weights: two are whole on the device at a time.
    std::string in_layers(const std::string &states)
    {
        return ", \"zero_optimization\": {\"reduce_bucket_size\": 13000, \"stage3_max_live_parameters\": 26000, "
               "\"stage3_prefetch_bucket_size\": 13000, \"stage3_param_persistence_threshold\": 200, \"offload_optimizer\": {" +
               states +
               "}, \"offload_param\": {\"nvme_path\": \".\", \"buffer_size\": 12000, \"buffer_count\": 3, \"max_in_cpu\": 0}}";
    }

    // Device memory of the library, in bytes: as planned, after the seal, and at most after a step.
    struct memory {
        unsigned long long planned = 0, sealed = 0, most = 0;
    };
    static memory device_memory(const std::string &output)
    {
        memory m;
        const auto found = lines(output, "  device memory of the library: ");
        if (found.size() != 1 ||
            sscanf(found[0].c_str(), "  device memory of the library: %llu bytes planned; %llu at first, %llu at most",
                   &m.planned, &m.sealed, &m.most) != 3)
            ADD_FAILURE() << output;
        return m;
    }
    static void expect_as_planned(const memory &m)
    {
        EXPECT_NEAR((double)m.planned, (double)m.sealed, 0.005 * (double)m.planned);
        EXPECT_EQ(m.sealed, m.most) << "device memory grows in steps";
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
    others.push_back(config("hidden.ds", in_files("4096", ", \"background_threads\": 1")) + " --just-in-time");
#if !defined(ZOFF_TEST_SANITIZED_ADDRESS) // the sanitizer makes a run too slow
    others.push_back(config("dram1.ds", ", \"zero_optimization\": {\"sub_group_size\": 2048}"));
    others.push_back(config("nvme.ds", in_files("4096")));
    others.push_back(config("dram2.ds") + " --just-in-time");
    others.push_back(config("nvme2.ds", in_files("2048")) + " --just-in-time");
#endif
    for (const std::string &other : others) {
        const shell_result r = run("--steps 12" + other);
        ASSERT_EQ(0, r.status) << r.output;
        EXPECT_EQ(lines(dram.output, "  step "), lines(r.output, "  step ")) << other;
        EXPECT_EQ(lines(dram.output, "  weights "), lines(r.output, "  weights ")) << other;
    }
}

TEST_F(cuda_trainer, has_the_losses_and_weights_of_stage_2_when_the_weights_are_lent)
{
    const std::string dram = config("dram.ds", in_layers("\"device\": \"cpu\"")) + " --layers 4 --steps 5 ",
                      nvme =
                          config("nvme.ds", in_layers("\"device\": \"nvme\", \"nvme_path\": \".\"")) + " --layers 4 --steps 5 ";
    const shell_result own = run(dram + "--stage 2");
    ASSERT_EQ(0, own.status) << own.output;
    ASSERT_EQ(5u, losses(own.output).size()) << own.output;
    expect_as_planned(device_memory(own.output));
    const double parameters = strtod(lines(own.output, "  ").at(5).c_str(), nullptr);
    ASSERT_EQ(60096.0, parameters) << own.output;

    memory stored;
    const std::vector<std::pair<std::string, std::string>> places = {
        {"none", dram}, {"cpu", dram}, {"cpu", nvme}, {"nvme", dram}, {"nvme", nvme}};
    for (const auto &[where, states] : places) {
        const shell_result lent = run(states + "--stage 3 --offload-param " + where);
        ASSERT_EQ(0, lent.status) << lent.output;
        EXPECT_EQ(lines(own.output, "  step "), lines(lent.output, "  step ")) << where;
        EXPECT_EQ(lines(own.output, "  weights "), lines(lent.output, "  weights ")) << where;
        const memory m = device_memory(lent.output);
        expect_as_planned(m);
        const bool on_device = where == "none";
        stored = on_device ? m : stored;
        // Weights and gradients of two layers each, and vectors that stay whole: 5 % of the weights.
        const double most = 2.0 * (2 * 13000 + 2 * 13000 + 0.05 * parameters);
        EXPECT_LE((double)m.most, most + (on_device ? 2.0 * parameters : 0.0)) << where;
        // The step uploads 2 bytes of each to the device's store. From other stores both passes fetch, so more than 3 come up.
        EXPECT_NE(lent.output.find(on_device ? "each down, 2.0" : "each down, 3."), std::string::npos) << lent.output;
    }
    EXPECT_GE((double)stored.most, 2.0 * parameters);
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
    for (const char *const more : {"", " --offload-param cpu", " --offload-param nvme"}) {
        const shell_result zero3 = run("--steps 3 --config '" CUDA_TRAINER_FOLDER "/zero3.json'" + std::string(more));
        ASSERT_EQ(0, zero3.status) << zero3.output;
        EXPECT_EQ(lines(dram.output, "  step "), lines(zero3.output, "  step ")) << more;
    }
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
    expect("--stage 4", 1, "cuda_trainer: api: zero_optimization.stage: 4 is out of range; expected an integer from 0 to 3");
    expect("--stage 2 --offload-param cpu", 1, "cuda_trainer: --offload-param cpu has no effect at stage 2");
    expect("--stage 3 --offload-param gpu", 1,
           "cuda_trainer: api: zero_optimization.offload_param.device: \"gpu\" is not known");
    expect("--stage 3 --offload-param nvme", 1, "expected zero_optimization.offload_param.nvme_path");
    // Half a layer fits: the first layer asks for more.
    const std::string little = config("little.ds", ", \"zero_optimization\": {\"stage3_max_live_parameters\": 9000, "
                                                   "\"stage3_param_persistence_threshold\": 0}");
    expect(little + " --stage 3 --offload-param cpu", 1, "stage3_max_live_parameters");
    expect("--stage 3 --just-in-time", 1, "cuda_trainer: --just-in-time is for weights of this program");
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

TEST_F(cuda_trainer, passes_do_not_know_where_weights_are)
{
    const std::string lender = read_file(CUDA_TRAINER_FOLDER "/gpu_lent.c");
    for (const char *call : {"zoff_param_fetch(", "zoff_param_release(", "zoff_grad_acquire("})
        EXPECT_NE(lender.find(call), std::string::npos) << call;
    for (const char *name : {"/gpu_passes.c", "/gpu_model.c", "/gpu_model.h"}) {
        const std::string source = read_file(std::string(CUDA_TRAINER_FOLDER) + name);
        ASSERT_FALSE(source.empty()) << name;
        for (const char *word : {"zoff", "lent", "resident", "stage"})
            EXPECT_EQ(source.find(word), std::string::npos) << name << " has " << word;
    }
}
} // namespace
