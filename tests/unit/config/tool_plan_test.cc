/* SPDX-License-Identifier: Apache-2.0 */
// tool_plan_test.cc: `zoff plan` as a user runs it: its figures are those of an engine, and add up.
#include "config_helpers.h"
#include "shell.h"

#include <string.h>

using namespace config_test;
using zoff_test::shell;

namespace
{
class plan_tool : public testing::Test
{
  protected:
    plan_tool()
    {
        std::ofstream(folder.file("c.json"))
            << "{\"zero_optimization\": {\"stage\": 1, \"offload_optimizer\": {\"device\": \"nvme\", "
               "\"nvme_path\": \"/nonexistent\"}}, \"zoff\": {\"host_memory\": \"1GiB\"}}";
    }
    zoff_test::shell_result run(const std::string &arguments) { return shell(std::string(ZOFF_TOOL) + " plan " + arguments); }
    std::string file() const { return folder.file("c.json"); }

    // The exact figure at the end of the line that begins with `what`.
    static uint64_t figure(const std::string &output, const std::string &what)
    {
        const size_t line = output.find("\n" + what + " ");
        EXPECT_NE(std::string::npos, line) << what << " in " << output;
        const size_t end = output.find('\n', line + 1);
        const std::string text = output.substr(line, end - line);
        return strtoull(text.c_str() + text.rfind(' '), nullptr, 10);
    }
    zoff_test::scratch_folder folder;
};

TEST_F(plan_tool, MemoryOfAModelByTier)
{
    auto r = run(file() + " --elements 1e9 --tbw 600");
    ASSERT_EQ(0, r.status) << r.output;
    const uint64_t files = figure(r.output, "files"), resident = figure(r.output, "  of these, resident chunks");
    EXPECT_EQ(10000000000u, figure(r.output, "states")) << "the upper halves of the masters are the trainer's weights";
    EXPECT_LE(figure(r.output, "DRAM for states"), 1u << 30);
    EXPECT_GT(resident, 700u << 20);
    EXPECT_GE(files + resident, 10000000000u);
    EXPECT_LT(files + resident, 10010000000u) << "padding is small";
    EXPECT_EQ(files, figure(r.output, "read from files in a step"));
    EXPECT_EQ(files, figure(r.output, "written to files in a step"));
    const std::string steps = std::to_string(600000000000000u / files);
    EXPECT_NE(std::string::npos, r.output.find("a drive with an endurance of 600 TB written lasts " + steps + " steps"))
        << r.output;
}

TEST_F(plan_tool, StatesThatPersistAreWrittenThrough)
{
    auto r = run(file() + " --elements 1000000000 --tbw 600 --set zoff.persist=true");
    ASSERT_EQ(0, r.status) << r.output;
    const uint64_t stored = figure(r.output, "written to files in a step");
    EXPECT_EQ(2 * stored, figure(r.output, "files"));
    EXPECT_EQ(stored - figure(r.output, "  of these, resident chunks"), figure(r.output, "read from files in a step"));
    // fp32 weights are their own masters: 8 bytes of states for each element, or 12 with a copy.
    EXPECT_EQ(8000000000u, figure(run(file() + " --elements 1e9 --dtype fp32").output, "states"));
    const auto q8 = run(file() + " --elements 1.024e9 --set zoff.moments=q8");
    EXPECT_EQ(uint64_t{1024000000} * 33 / 8, figure(q8.output, "states")) << "headers of 64 bytes for 1,024 elements";
    EXPECT_NE(std::string::npos, q8.output.find("zoff.master \"auto\", zoff.moments \"q8\""));
    EXPECT_EQ(12000000000u, figure(run(file() + " --elements 1e9 --dtype fp32 --set zoff.persist=true").output, "states"));
}

// A matrix has no second moment; all other elements are AdamW's.
TEST_F(plan_tool, MatricesHaveOneMoment)
{
    const std::string muon = file() + " --set optimizer.type=Muon --set zero_optimization.offload_optimizer.device=cpu";
    auto r = run(muon + " --elements 1e6 --matrices 100x200*10,50x60 --set zoff.muon_rows=qkv=3");
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_EQ(203000u * 6 + 797000u * 10, figure(r.output, "states"));
    EXPECT_NE(std::string::npos,
              r.output.find("\nmatrices                                     11  of 203000 elements together\n"))
        << r.output;
    r = run(muon + " --elements 200M --matrices 768x2304*12,768x768*12,3072x768*24");
    // 3 n^2 m + n^3 for each iteration, or 6 n^2 m + 14 n^3 for all five, as m is at least 2 n or not.
    EXPECT_NE(std::string::npos, r.output.find("their orthogonalization                   0.696 TFLOP  in a step\n"))
        << r.output;
    EXPECT_NE(std::string::npos, r.output.find("\northogonalize matrices  ")) << r.output;
    r = run(muon + " --matrices 4096x11008*96,4096x4096*128");
    EXPECT_NE(std::string::npos, r.output.find("\n  more than 10 s  ")) << r.output;
    r = run(muon + " --ranks 4 --matrices 1000x1000*4 --set optimizer.params.ns_steps=1");
    EXPECT_NE(std::string::npos, r.output.find("0.004 TFLOP  in a step, of one rank\n")) << r.output;
    r = run(muon + " --ranks 4 --matrices 1000x1000*4 --set optimizer.params.ns_steps=1 --set zero_optimization.stage=0");
    EXPECT_NE(std::string::npos, r.output.find("0.016 TFLOP  in a step, of one rank\n")) << r.output;
    r = run(muon + " --matrices 100x200");
    EXPECT_EQ(std::string::npos, r.output.find("\n  more than 10 s  ")) << r.output;
    EXPECT_EQ(20000u * 6, figure(r.output, "states")) << "they are all elements, unless more are given";
    EXPECT_EQ(10000000u, figure(run(muon + " --elements 1e6").output, "states"));
    EXPECT_EQ(80000u, figure(run(muon + " --matrices 100x200 --dtype fp32").output, "states")) << "weights are the masters";
    EXPECT_EQ(1, (r = run(muon + " --elements 100 --matrices 20x20")).status);
    EXPECT_NE(std::string::npos,
              r.output.find("error: --matrices have 400 elements, and --elements is 100, which counts them"));
    EXPECT_EQ(1, (r = run(file() + " --matrices 20x20")).status);
    EXPECT_NE(std::string::npos, r.output.find("error: --matrices is for optimizer.type Muon, and it is AdamW")) << r.output;
    for (const char *bad : {"20", "20x", "x20", "20x20*", "20x20,", ",20x20", "20x20;20x20", "0x20", "20x20*0", "-1x20",
                            "20x20x2", "2e3x20", "99999999999x20", "20x20*2*3", "''"}) {
        r = run(muon + " --elements 1e6 --matrices " + (strchr(bad, ';') ? "'20x20;20x20'" : bad));
        EXPECT_EQ(2, r.status) << bad;
        EXPECT_NE(std::string::npos, r.output.find("zoff: --matrices needs shapes as in 768x2304*12,768x768, not \""))
            << r.output;
    }
}

// The command has no ranks and no GPU: it plans configurations that only seal would refuse.
TEST_F(plan_tool, KnowsNoCommunicator)
{
    auto r = run(file() + " --elements 1e6 --set zoff.reduce_scatter=nccl");
    EXPECT_EQ(0, r.status) << r.output;
}

TEST_F(plan_tool, InDramNoDriveWears)
{
    auto r = run(file() + " --elements 1e6 --tbw 1 --set zero_optimization.offload_optimizer.device=cpu");
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_NE(std::string::npos, r.output.find("states on DRAM"));
    EXPECT_NE(std::string::npos, r.output.find("no step writes to a drive"));
    EXPECT_EQ(std::string::npos, r.output.find("files"));
}

TEST_F(plan_tool, SaysWhatItAssumesAndWhatThisMachineHas)
{
    auto r = run(file() + " --elements 1.3B --dtype fp16 --set optimizer.type=Lion");
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_NE(r.output.npos,
              r.output.find("1300000000 elements of fp16 (--dtype), ZeRO stage 1, Lion, 1 rank; weights are in the program's "
                            "own memory\n"))
        << r.output;
    EXPECT_EQ(uint64_t{8} * 1300000000, figure(r.output, "states"));
    EXPECT_NE(r.output.npos, r.output.find("\nthis machine\nDRAM ")) << r.output;
    EXPECT_NE(r.output.npos, r.output.find("the folder does not exist")) << r.output;
    EXPECT_NE(r.output.npos, r.output.find("\nmeasure and update ")) << r.output;
    EXPECT_NE(r.output.npos, r.output.find(" measured now: ")) << r.output;
    auto large = run("- --elements 500b --set zero_optimization.stage=2 </dev/null");
    EXPECT_EQ(1, large.status) << "an empty standard input is no configuration";
    large = run(file() + " --elements 1T --set zero_optimization.offload_optimizer.device=cpu");
    ASSERT_EQ(0, large.status) << large.output;
    EXPECT_NE(large.output.npos, large.output.find("NOT ENOUGH")) << large.output;
}

TEST_F(plan_tool, OneOfSeveralRanks)
{
    auto one = run(file() + " --elements 1e9"), four = run(file() + " --elements 1e9 --ranks 4"),
         replicated = run(file() + " --elements 1e9 --ranks 4 --set zero_optimization.stage=0");
    ASSERT_EQ(0, four.status) << four.output;
    EXPECT_NEAR(2.5e9, (double)figure(four.output, "states"), 1e6);
    EXPECT_EQ(10000000000u, figure(replicated.output, "states"));
    EXPECT_EQ(one.output.npos, one.output.find("DRAM for exchange between ranks"));
    EXPECT_GT(figure(four.output, "DRAM for exchange between ranks"), 0u);
    EXPECT_NE(four.output.npos, four.output.find("4 ranks; weights")) << four.output;
    EXPECT_NE(four.output.npos, four.output.find("this machine, if all ranks run on it")) << four.output;
    uint64_t sum = figure(four.output, "DRAM for states") + figure(four.output, "DRAM for exchange between ranks");
    if (four.output.find("\nDRAM for gradient accumulation") != four.output.npos)
        sum += figure(four.output, "DRAM for gradient accumulation");
    EXPECT_EQ(sum, figure(four.output, "DRAM in total"));
    EXPECT_EQ(2, run(file() + " --elements 1e9 --ranks 20000").status);
}

// The bytes between nodes of 4 x 4 ranks: 2/G (M-1)/M for weights, 7/G (M-1)/M for gradients in each micro-batch, and 9/G once
// a step.
TEST_F(plan_tool, TrafficByLinks)
{
    const std::string links = " --ranks-per-node 4 --link-intra 100 --link-inter 10 --message-us 0.001",
                      cpu = file() + " --set zero_optimization.offload_optimizer.device=cpu --set zoff.host_memory=auto"
                                     " --set gradient_accumulation_steps=2";
    auto r = run(cpu + " --elements 1e9 --ranks 16 --compute-seconds 0.5" + links);
    ASSERT_EQ(0, r.status) << r.output;
    auto row = [&r](const char *what) {
        const size_t at = r.output.find(std::string("\n") + what);
        double notes = 0, messages = 0, node = 0, between = 0, seconds = 0;
        EXPECT_NE(r.output.npos, at) << what << " in " << r.output;
        const std::string line = at == r.output.npos ? "" : r.output.substr(at + 35);
        EXPECT_EQ(5, sscanf(line.c_str(), "%lf %lf %lf %lf %lf", &notes, &messages, &node, &between, &seconds));
        EXPECT_NEAR(std::max(node / 100, between / 10), seconds, 0.001) << what;
        return between;
    };
    const double gradients = row("reduce: gradients"), weights = row("gather: new weights");
    const bool is_once = r.output.find("\nroute                              levels, once a step: exact sums") != r.output.npos;
    EXPECT_NEAR((is_once ? 9 : 2 * 7) / 4.0 * 0.75, gradients, 0.03) << r.output;
    EXPECT_NEAR(2 / 4.0 * 0.75, weights, 0.004);
    EXPECT_EQ(0, row("fetch: weights for use, once"));
    EXPECT_NEAR(gradients + weights, row("in all"), 0.002);
    for (const char *route :
         {"\n  flat  ", "\n  levels  ", "\n  levels, once a step  ", "s if all of it is hidden behind 0.5 s"})
        EXPECT_NE(r.output.npos, r.output.find(route)) << r.output;
    r = run(cpu + " --elements 1e7 --ranks 16 --set zoff.reduce_scatter=ordered" + links);
    EXPECT_NE(r.output.npos, r.output.find("flat: only \"exact\" sums take two levels, and zoff.reduce_scatter is another"));
    r = run(cpu + " --elements 1e7 --ranks 4" + links);
    EXPECT_NE(r.output.npos, r.output.find("flat: there are no nodes of several ranks beside each other")) << r.output;
    r = run(cpu +
            " --elements 1e7 --ranks 4 --set gradient_accumulation_steps=1 --ranks-per-node 2 --link-intra 1 --link-inter 1");
    EXPECT_NE(r.output.npos, r.output.find("flat: sums of a node would save no byte between nodes")) << r.output;
    r = run(cpu + " --elements 1e7 --ranks 8 --sweep" + links);
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_EQ(r.output.find("ranks,node_ranks,route,"), 0u) << r.output;
    for (const char *line : {"\n1,1,\"flat\",0,0,0,0,", "\n2,2,\"flat\",", "\n4,4,\"flat\",", "\n8,4,\"flat\",",
                             "\n8,4,\"levels\",", "\n8,4,\"levels, once a step\","})
        EXPECT_NE(r.output.npos, r.output.find(line)) << line << r.output;
}

TEST_F(plan_tool, LinksThatDoNotFit)
{
    const std::pair<const char *, const char *> wrong[] = {
        {"--ranks 6 --ranks-per-node 4 --link-intra 1 --link-inter 1",
         "nodes of 4 ranks do not divide 6 ranks, and unequal nodes exchange as if each rank were a node: choose another "
         "--ranks, "
         "or --ranks-per-node 1"},
        {"--ranks 8 --ranks-per-node 4 --link-intra 1", "--ranks-per-node needs --link-intra and --link-inter"},
        {"--ranks-per-node 4 --link-intra 1 --link-inter 1", "--ranks-per-node is for several ranks: add --ranks N"},
        {"--ranks 8 --sweep", "--sweep needs --ranks-per-node N, --link-intra GB/s and --link-inter GB/s"},
        {"--ranks 8 --compute-seconds 3", "the time of links needs --ranks-per-node N"},
        {"--ranks 8 --link-inter -3", "--link-inter needs a number above 0, not \"-3\""},
        {"--ranks 8 --ranks-per-node none", "--ranks-per-node needs a number from 1 to 16384, not \"none\""},
        {"--ranks 16385", "--ranks is at most 16384, not 16385"}};
    for (const auto &[arguments, words] : wrong) {
        auto r = run(file() + " --elements 1e6 " + arguments);
        EXPECT_EQ(2, r.status) << arguments;
        EXPECT_NE(r.output.npos, r.output.find(words)) << arguments << ": " << r.output;
    }
}

TEST_F(plan_tool, WeightsOfTheEngineAreCounted)
{
    const std::string stage3 = file() + " --elements 4e9 --set zero_optimization.stage=3 ";
    auto cpu = run(stage3 + "--set zero_optimization.offload_param.device=cpu"),
         nvme = run(stage3 + "--set zero_optimization.offload_param.device=nvme"), none = run(stage3);
    EXPECT_EQ(none.output.npos, none.output.find("weights of the engine"));
    ASSERT_EQ(0, cpu.status) << cpu.output;
    EXPECT_EQ(8000000000u, figure(cpu.output, "weights of the engine"));
    EXPECT_GE(figure(cpu.output, "DRAM for weights of the engine"), 8000000000u);
    ASSERT_EQ(0, nvme.status) << nvme.output;
    EXPECT_GT(figure(nvme.output, "files of weights"), 5000000000u);
    EXPECT_LT(figure(nvme.output, "DRAM for weights of the engine"), 5000000000u);
}

TEST_F(plan_tool, FoldersAreMeasuredWhereThatIsAskedFor)
{
    auto r = run(file() + " --elements 1e7 --measure --set zoff.host_memory=32MiB --set zoff.nvme_paths=" + folder.path);
    ASSERT_EQ(0, r.status) << r.output;
    EXPECT_NE(r.output.npos, r.output.find("GB/s in " + folder.path)) << r.output;
    EXPECT_NE(r.output.npos, r.output.find("at least")) << r.output;
}

// A plan that no machine can hold ends at once. A schedule that the trainer completes does not matter to it.
TEST_F(plan_tool, EndsSoon)
{
    auto r = run(file() + " --elements 1e15");
    EXPECT_EQ(1, r.status);
    EXPECT_NE(r.output.npos, r.output.find("raise zoff.host_memory or zero_optimization.sub_group_size")) << r.output;
    EXPECT_EQ(0, run(file() + " --elements 1e15 --set zero_optimization.offload_optimizer.device=cpu").status);
    r = run(file() + " --elements 1e6 --set scheduler.type=WarmupDecayLR --set scheduler.params.total_num_steps=auto --set "
                     "optimizer.params.lr=auto");
    EXPECT_EQ(0, r.status) << r.output;
    EXPECT_EQ(r.output.npos, r.output.find("warning")) << r.output;
}

TEST_F(plan_tool, UsedWrongly)
{
    for (const char *arguments :
         {"", "FILE", "FILE --elements", "FILE --elements many", "FILE --elements 0", "FILE --elements -1",
          "FILE --elements 1e6 --dtype int8", "FILE --elements 1e6 --tbw none", "FILE FILE --elements 1",
          "FILE --elements 1e6 --fast yes", "FILE --elements 7X", "FILE --elements 7BB", "FILE --elements 1e6 --ranks 0",
          "FILE --elements 1e6 --set zoff.persist"}) {
        std::string text = arguments;
        for (size_t at; (at = text.find("FILE")) != std::string::npos;)
            text.replace(at, 4, file());
        auto r = run(text);
        EXPECT_EQ(2, r.status) << arguments << ": " << r.output;
        EXPECT_NE(std::string::npos, r.output.find("see `zoff help`")) << r.output;
    }
    auto r = run("/nonexistent.json --elements 1e6");
    EXPECT_EQ(1, r.status);
    EXPECT_NE(std::string::npos, r.output.find("cannot open this configuration"));
}
} // namespace
