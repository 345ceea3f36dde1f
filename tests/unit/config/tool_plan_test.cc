// tool_plan_test.cc: `zoff plan` as a person runs it: its figures are those of an engine, and add up.
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

TEST_F(plan_tool, WhatAModelTakesByTier)
{
    auto r = run(file() + " --elements 1e9 --tbw 600");
    ASSERT_EQ(0, r.status) << r.output;
    const uint64_t files = figure(r.output, "files"), resident = figure(r.output, "  of it chunks that stay there");
    EXPECT_EQ(12000000000u, figure(r.output, "states"));
    EXPECT_LE(figure(r.output, "DRAM for states"), 1u << 30);
    EXPECT_GT(resident, 700u << 20);
    EXPECT_GE(files + resident, 12000000000u);
    EXPECT_LT(files + resident, 12010000000u) << "padding is small";
    EXPECT_EQ(files, figure(r.output, "read from files in a step"));
    EXPECT_EQ(files, figure(r.output, "written to files in a step"));
    const std::string steps = std::to_string(600000000000000u / files);
    EXPECT_NE(std::string::npos, r.output.find("a drive that may be written 600 TB lasts " + steps + " steps")) << r.output;
}

TEST_F(plan_tool, StatesThatPersistAreWrittenThrough)
{
    auto r = run(file() + " --elements 1000000000 --tbw 600 --set zoff.persist=true");
    ASSERT_EQ(0, r.status) << r.output;
    const uint64_t stored = figure(r.output, "written to files in a step");
    EXPECT_EQ(2 * stored, figure(r.output, "files"));
    EXPECT_EQ(stored - figure(r.output, "  of it chunks that stay there"), figure(r.output, "read from files in a step"));
    // fp32 weights are their own masters: 8 bytes of states an element, and 12 where a copy of them is kept.
    EXPECT_EQ(8000000000u, figure(run(file() + " --elements 1e9 --dtype fp32").output, "states"));
    EXPECT_EQ(12000000000u, figure(run(file() + " --elements 1e9 --dtype fp32 --set zoff.persist=true").output, "states"));
}

// The command has neither ranks nor a GPU: what only sealing refuses can be planned.
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

TEST_F(plan_tool, UsedWrongly)
{
    for (const char *arguments :
         {"", "FILE", "FILE --elements", "FILE --elements many", "FILE --elements 0", "FILE --elements -1",
          "FILE --elements 1e6 --dtype int8", "FILE --elements 1e6 --tbw none", "FILE FILE --elements 1",
          "FILE --elements 1e6 --fast yes", "FILE --elements 1e6 --set zoff.persist"}) {
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
