/* SPDX-License-Identifier: Apache-2.0 */
// trainer_test.cc: whole runs of the example trainer. It must learn, its losses must have the same bits wherever the states
// are, its recipe must be short, and errors must be reported.
#include "gpt_runs.h"

#include <cmath>

namespace
{
using namespace zoff_test;

class trainer : public gpt_runs
{
  protected:
    // Run gpt; its JSON is <name>.json.
    shell_result run(const std::string &name, const std::string &options, const std::string &environment = "")
    {
        return shell("cd '" + folder.path + "' && OMP_WAIT_POLICY=passive " + environment +
                     " '" GPT_BINARY "' --text text --layers 2 --heads 2 --width 32 " +
                     "--context 16 --batch 8 --seed 3 --name " + name + " --json " + name + ".json " + options);
    }

    // Write a ds_config with the given text in the middle, and the hyper-parameters of `plain_flags`.
    std::string config(const std::string &name, const std::string &more, double lr = 1e-3)
    {
        std::stringstream text;
        text << "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": " << lr
             << ", \"betas\": [0.9, 0.99], \"eps\": 1e-8, \"weight_decay\": 0.01}}, \"gradient_clipping\": 1.0" << more << "}";
        write_file(folder.file(name), text.str());
        return name;
    }
    std::string nvme(const std::string &more = "")
    {
        return ", \"zero_optimization\": {\"sub_group_size\": 4096, \"offload_optimizer\": {\"device\": \"nvme\", "
               "\"nvme_path\": \".\"}}, "
               "\"zoff\": {\"host_memory\": \"192KiB\"}" +
               more;
    }
    const std::string plain_flags = " --lr 1e-3 --beta2 0.99 --weight-decay 0.01 --clip 1";
};

TEST_F(trainer, learns_with_its_own_optimizer)
{
    const shell_result r = run("plain", "--steps 150 --lr 3e-3");
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_LT(number("plain", "final_loss"), number("plain", "unigram_entropy_nats") - 0.4) << r.output;
    EXPECT_GT(number("plain", "tokens_per_second"), 0);
    EXPECT_EQ(number("plain", "state_bytes"), 8 * number("plain", "parameters"));
}

TEST_F(trainer, has_the_same_losses_with_one_thread_and_two)
{
    ASSERT_EQ(0, run("one", "--steps 30", "OMP_NUM_THREADS=1").status);
    ASSERT_EQ(0, run("two", "--steps 30", "OMP_NUM_THREADS=2").status);
    EXPECT_EQ(value("one", "loss_bits"), value("two", "loss_bits"));
    EXPECT_EQ("2", value("two", "threads"));
}

TEST_F(trainer, agrees_with_zoff_in_dram_and_on_nvme)
{
    ASSERT_EQ(0, run("plain", "--steps 50" + plain_flags).status);
    shell_result r = run("dram", "--steps 50 --config " + config("dram.ds", ""));
    ASSERT_EQ(0, r.status) << r.output;
    r = run("nvme", "--steps 50 --config " + config("nvme.ds", nvme()));
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_EQ(value("dram", "loss_bits"), value("nvme", "loss_bits"));
    EXPECT_EQ(value("dram", "weights_hash"), value("nvme", "weights_hash"));
    const auto a = numbers("plain", "losses"), b = numbers("dram", "losses");
    ASSERT_EQ(50u, a.size());
    ASSERT_EQ(50u, b.size());
    for (size_t i = 0; i < a.size(); i++)
        EXPECT_NEAR(a[i], b[i], 1e-5 * a[i]) << "step " << i;
    EXPECT_LT(b.back(), b.front() - 1.0);

    EXPECT_EQ("\"nvme\"", value("nvme", "state_tier"));
    EXPECT_LE(number("nvme", "state_host_bytes"), 192 * 1024);
    EXPECT_GT(number("nvme", "chunk_count"), 1);
    EXPECT_GE(number("nvme", "state_files"), 1);
    const double moving = number("nvme", "state_bytes") - number("nvme", "state_host_bytes");
    ASSERT_GT(moving, 0);
    const auto read = numbers("nvme", "state_read_bytes"), written = numbers("nvme", "state_write_bytes");
    for (size_t i = 1; i < read.size(); i++) {
        EXPECT_GE(read[i], moving) << i;
        EXPECT_GE(written[i], moving) << i;
    }
}

// Muon updates the matrices, and AdamW the rest. `--optimizer muon` of this trainer is its configuration.
TEST_F(trainer, trains_with_muon_in_dram_and_on_nvme)
{
    std::string nvme = read_file(GPT_FOLDER "/small-muon.json");
    const std::string cpu = "\"device\": \"cpu\" }\n  }";
    ASSERT_NE(std::string::npos, nvme.find(cpu));
    nvme.replace(nvme.find(cpu), cpu.size(),
                 "\"device\": \"nvme\", \"nvme_path\": \".\" }, \"sub_group_size\": 4096\n  }, \"zoff\": "
                 "{\"host_memory\": \"192KiB\"}");
    write_file(folder.file("nvme.ds"), nvme);
    shell_result r = run("dram", "--steps 20 --config " GPT_FOLDER "/small-muon.json", "ZOFF_LOG_LEVEL=info");
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_NE(std::string::npos, r.output.find("Muon updates 8 matrices in 4 parameters (0.02458 M elements), AdamW 12 other"))
        << r.output;
    r = run("nvme", "--steps 20 --config nvme.ds");
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_EQ(value("dram", "loss_bits"), value("nvme", "loss_bits"));
    EXPECT_EQ(value("dram", "weights_hash"), value("nvme", "weights_hash"));
    EXPECT_GT(number("nvme", "chunk_count"), 1);
    const auto losses = numbers("dram", "losses");
    ASSERT_EQ(20u, losses.size());
    EXPECT_LT(losses.back(), losses.front() - 0.5) << losses.front();
    run("adamw", "--steps 20 --config " GPT_FOLDER "/small-dram.json");
    EXPECT_NE(value("adamw", "loss_bits"), value("dram", "loss_bits"));
}

// The forward pass of each step runs beside the step before it.
TEST_F(trainer, hides_steps_without_changing_a_bit)
{
    const std::string one = ", \"bf16\": {\"enabled\": true}", four = one + ", \"gradient_accumulation_steps\": 4";
    std::string background = nvme(one);
    background.replace(background.find("192KiB\""), 7, "192KiB\", \"background_threads\": 1");
    const struct {
        const char *name, *like, *options;
        std::string config;
    } kinds[] = {{"dram", "dram", "", one},
                 {"dram_hidden", "dram", " --just-in-time", one},
                 {"nvme_hidden", "dram", " --just-in-time", nvme(one)},
                 {"background", "dram", " --just-in-time", background},
                 {"micro", "micro", "", four},
                 {"micro_hidden", "micro", " --just-in-time", nvme(four)}};
    for (const auto &k : kinds) {
        const std::string flags =
            std::string("--steps 40 --dtype bf16 --config ") + config(k.name + std::string(".ds"), k.config);
        const shell_result r = run(k.name, flags + k.options);
        ASSERT_EQ(0, r.status) << r.output;
        EXPECT_EQ(value(k.like, "loss_bits"), value(k.name, "loss_bits")) << k.name;
        EXPECT_EQ(value(k.like, "weights_hash"), value(k.name, "weights_hash")) << k.name;
    }
}

TEST_F(trainer, keeps_bf16_weights_with_masters_in_zoff)
{
    shell_result r =
        run("dram", "--steps 60 --dtype bf16 --config " + config("dram.ds", ", \"bf16\": {\"enabled\": true}", 3e-3));
    ASSERT_EQ(0, r.status) << r.output;
    r = run("nvme", "--steps 60 --dtype bf16 --config " + config("nvme.ds", nvme(", \"bf16\": {\"enabled\": true}"), 3e-3));
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_EQ(value("dram", "loss_bits"), value("nvme", "loss_bits"));
    const std::string whole = ", \"bf16\": {\"enabled\": true}, \"zoff\": {\"master\": \"fp32\"}";
    r = run("whole", "--steps 60 --dtype bf16 --config " + config("whole.ds", whole, 3e-3));
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_EQ(value("dram", "loss_bits"), value("whole", "loss_bits"));
    EXPECT_EQ(number("whole", "state_bytes"), 12 * number("dram", "parameters"));
    EXPECT_EQ(number("dram", "state_bytes"), 10 * number("dram", "parameters")) << "half of each master is the weight";
    EXPECT_LT(number("dram", "final_loss"), 3.0) << "the first loss is ln 256 = 5.5";
}

TEST_F(trainer, accumulates_when_the_configuration_says_so)
{
    const std::string accumulate = ", \"gradient_accumulation_steps\": 4";
    ASSERT_EQ(0, run("dram", "--steps 12 --config " + config("dram.ds", accumulate)).status);
    ASSERT_EQ(0, run("nvme", "--steps 12 --config " + config("nvme.ds", nvme(accumulate))).status);
    EXPECT_EQ(value("dram", "loss_bits"), value("nvme", "loss_bits"));
    const auto written = numbers("nvme", "state_write_bytes");
    ASSERT_EQ(12u, written.size());
    for (size_t i = 0; i < written.size(); i++)
        EXPECT_EQ(i % 4 == 3, written[i] > 0) << "step " << i;
    EXPECT_EQ(number("dram", "accumulator_bytes"), 4 * number("dram", "parameters"));
}

TEST_F(trainer, says_what_is_wrong)
{
    const auto expect = [this](const std::string &options, int status, const std::string &words) {
        const shell_result r = run("bad", options);
        EXPECT_EQ(status, r.status) << options;
        EXPECT_NE(r.output.find(words), std::string::npos) << options << ": " << r.output;
    };
    expect("--text missing.txt", 1, "gpt: cannot open missing.txt: No such file or directory");
    expect("--steps x", 2, "gpt: --steps x: expected a whole number");
    expect("--steps -1", 2, "expected a whole number");
    expect("--steps 0", 2, "--steps must be at least 1");
    expect("--lr nan", 2, "gpt: --lr nan: expected a number that is not negative");
    expect("--dtype fp8", 2, "expected fp32 or bf16");
    expect("--dtype bf16", 2, "--optimizer plain keeps no fp32 masters");
    expect("--heads 5", 1, "gpt: width must be a multiple of heads");
    expect("--context 60000", 1, "it needs more than --context 60000");
    expect("--batch 0", 2, "--batch must be at least 1");
    expect("--owned", 2, "--ranks and --owned are for --optimizer zoff");
    expect("--optimizer zoff --ranks nobody", 1, "nobody");
    expect("--save saves", 2, "--save and --resume are for --optimizer zoff");
    expect("--optimizer zoff --save-every 3", 2, "--save-every, --async and --keep need --save FOLDER");
    expect("--optimizer zoff --async", 2, "need --save FOLDER");
    expect("--optimizer zoff --keep 3", 2, "need --save FOLDER");
    expect("--optimizer zoff --resume latest", 2, "--resume latest needs --save FOLDER");
    expect("--optimizer zoff --resume nowhere", 1, "nowhere");
    expect("stray", 2, "what is 'stray'?");
    expect("--steps 1 --json /nowhere/x.json", 1, "gpt: cannot write /nowhere/x.json: No such file or directory");
    expect("--config missing.json", 1, "missing.json");
    config("typo.ds", ", \"zero_optimisation\": {}");
    expect("--config typo.ds", 1, "zero_optimization");
    const shell_result r = shell("cd '" + folder.path +
                                 "' && '" GPT_WITHOUT_MPI "' --text text --optimizer zoff --ranks auto --tensor-parallel 2");
    EXPECT_EQ(1, r.status);
    EXPECT_EQ("gpt: --tensor-parallel 2 needs MPI, and this program was built without: install one and build again\n",
              r.output);
}

TEST_F(trainer, recipe_has_at_most_ten_lines_of_at_most_120_columns)
{
    std::ifstream source(GPT_FOLDER "/main.c");
    std::string line, recipe;
    bool inside = false;
    int lines = 0;
    while (std::getline(source, line)) {
        const bool begin = line.find("/* zoff: begin */") != std::string::npos,
                   end = line.find("/* zoff: end */") != std::string::npos;
        if (inside && !end) {
            lines++;
            recipe += line + "\n";
            EXPECT_LE(line.size(), 120u) << line;
        }
        // No line outside of the recipe may use the library, except for the results of a step.
        if (!inside && !begin && line.compare(0, 3, "/* ") && line.compare(0, 3, " * ")) {
            EXPECT_TRUE(line.find("zoff_") == std::string::npos || line.find("zoff_step_info") != std::string::npos) << line;
        }
        inside = (inside || begin) && !end;
    }
    EXPECT_LE(lines, 10) << recipe;
    for (const char *call : {"zoff_engine_open(", "zoff_step(", "zoff_engine_destroy(", "#include <zoff/zoff.h>"})
        EXPECT_NE(recipe.find(call), std::string::npos) << call;
}

TEST_F(trainer, report_finds_what_does_not_hold)
{
    // A run compared with itself is bit-identical. Without a second tier nothing is saved, read or written, and the report must
    // say so.
    ASSERT_EQ(0, run("plain", "--steps 4").status);
    const shell_result r =
        shell("cd '" + folder.path + "' && '" GPT_REPORT "' out.json plain=plain.json dram=plain.json nvme=plain.json " +
              "big-dram=plain.json big-nvme=plain.json hidden=plain.json long-dram=plain.json long-hidden=plain.json "
              "long-ahead=plain.json");
    EXPECT_EQ(1, r.status) << r.output;
    EXPECT_NE(r.output.find("ok    losses of DRAM and NVMe are equal to the last bit"), std::string::npos) << r.output;
    EXPECT_NE(r.output.find("ok    losses of DRAM and of hidden steps are equal"), std::string::npos) << r.output;
    EXPECT_NE(r.output.find("FAIL  peak memory is lower"), std::string::npos) << r.output;
    EXPECT_NE(r.output.find("FAIL  state files are open with O_DIRECT"), std::string::npos) << r.output;
    EXPECT_NE(r.output.find("FAIL  buckets are updated during the backward pass"), std::string::npos) << r.output;
    EXPECT_NE(r.output.find("FAIL  the final loss is 0.4 nat below"), std::string::npos) << r.output;
    const std::string json = read_file(folder.file("out.json"));
    EXPECT_NE(json.find("\"passed\": false"), std::string::npos) << json;
    EXPECT_NE(json.find("\"bit_identical\": true"), std::string::npos);

    // Change one bit of one loss.
    std::string changed = read_file(folder.file("plain.json"));
    const size_t at = changed.find('"', changed.find("\"loss_bits\": [") + 15) - 1;
    changed[at] = changed[at] == '0' ? '1' : '0';
    write_file(folder.file("changed.json"), changed);
    const shell_result other = shell("cd '" + folder.path + "' && '" GPT_REPORT "' out.json plain=plain.json dram=plain.json " +
                                     "nvme=changed.json big-dram=plain.json big-nvme=plain.json hidden=changed.json " +
                                     "long-dram=plain.json long-hidden=plain.json long-ahead=plain.json");
    EXPECT_EQ(1, other.status);
    EXPECT_NE(other.output.find("FAIL  losses of DRAM and of hidden steps are equal"), std::string::npos) << other.output;
    EXPECT_NE(other.output.find("FAIL  losses of DRAM and NVMe are equal to the last bit"), std::string::npos) << other.output;
    EXPECT_NE(read_file(folder.file("out.json")).find("\"bit_identical\": false"), std::string::npos);

    EXPECT_EQ(2, shell("'" GPT_REPORT "'").status);
    EXPECT_EQ(
        2, shell("cd '" + folder.path + "' && '" GPT_REPORT "' out.json plain=no.json a=b c=d e=f g=h i=j k=l m=n o=p").status);
}

// Four steps of a run in which all holds, but for the given figures.
std::string report_input(const char *step_seconds, const char *ahead, const char *redone, const char *peak_rss)
{
    const auto four = [](const std::string &value) { return "[" + value + "," + value + "," + value + "," + value + "]"; };
    const std::string mib600 = "629145600";
    return "{\"losses\":" + four("1.0") + ",\"loss_bits\":" + four("\"0x1\"") +
           ",\"weights_hash\":\"1\",\"dtype\":\"bf16\",\"unigram_entropy_nats\":3.0,\"final_loss\":1.0,\"state_bytes\":" +
           mib600 + ",\"state_host_bytes\":1048576,\"peak_rss_bytes\":" + peak_rss + ",\"process_read_bytes\":" + four(mib600) +
           ",\"process_write_bytes\":" + four(mib600) +
           ",\"state_files\":1,\"state_files_direct\":1,\"forward_seconds\":" + four("2.0") +
           ",\"backward_seconds\":" + four("4.0") + ",\"step_seconds\":" + four(step_seconds) + ",\"buckets\":" + four("8") +
           ",\"buckets_ahead\":" + four(ahead) + ",\"buckets_redone\":" + four(redone) + "}";
}

// A busy machine is named and does not decide. Wrong numbers of updates decide.
TEST_F(trainer, report_shows_times_and_judges_bits_and_bytes)
{
    write_file(folder.file("good.json"), report_input("1.0", "6", "0", "1000"));
    write_file(folder.file("much.json"), report_input("1.0", "6", "0", "629146600"));
    write_file(folder.file("slow.json"), report_input("9.0", "1", "0", "1000"));
    write_file(folder.file("late.json"), report_input("1.0", "0", "0", "1000"));
    write_file(folder.file("twice.json"), report_input("1.0", "6", "1", "1000"));
    const auto report = [&](const std::string &ahead) {
        return shell("cd '" + folder.path + "' && '" GPT_REPORT "' out.json plain=good.json dram=good.json nvme=good.json " +
                     "big-dram=much.json big-nvme=good.json hidden=good.json long-dram=good.json long-hidden=good.json "
                     "long-ahead=" +
                     ahead);
    };
    const shell_result good = report("good.json");
    EXPECT_EQ(0, good.status) << good.output;
    EXPECT_NE(good.output.find("\nAll of it holds"), std::string::npos) << good.output;
    EXPECT_EQ(good.output.find("slow"), std::string::npos) << good.output;

    const shell_result slow = report("slow.json");
    EXPECT_EQ(0, slow.status) << slow.output;
    for (const char *words : {"slow  at least half of the buckets are updated then               0.12 of them\n",
                              "slow  the same with updates during the backward pass              0.467 of at least 0.95\n",
                              "build/bench/step --quick --only ahead,hidden measures them", "\nAll bits and bytes hold; "})
        EXPECT_NE(slow.output.find(words), std::string::npos) << words << slow.output;
    const std::string json = read_file(folder.file("out.json"));
    EXPECT_NE(json.find("\"passed\": true"), std::string::npos) << json;

    for (const char *wrong : {"late.json", "twice.json"}) {
        const shell_result r = report(wrong);
        EXPECT_EQ(1, r.status) << r.output;
        EXPECT_NE(r.output.find("FAIL  buckets are updated during the backward pass, none twice"), std::string::npos)
            << r.output;
    }
}
} // namespace
