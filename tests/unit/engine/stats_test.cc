/* SPDX-License-Identifier: Apache-2.0 */
// stats_test.cc: an engine's reports: lines of the log, and its totals as JSON.
#include "on_tiers.h"

extern "C" {
#include "engine_priv.h"
}

#include <pty.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <functional>

using namespace zoff_test;

namespace
{
class Stats : public on_tiers
{
};
INSTANTIATE_TEST_SUITE_P(Tiers, Stats, testing::Bool(), tier_name);

TEST_P(Stats, OneLineForEachStepsPerPrint)
{
    trainer t(8);
    t.add(2500, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, text(1, ", \"steps_per_print\": 3"), 1024);
    t.backward_all(0.1f);
    for (int step = 0; step < 7; step++)
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    EXPECT_EQ(2u, log.count("engine: step "));
    EXPECT_TRUE(log.contains("step 3, lr 0.01, norm "));
    EXPECT_TRUE(log.contains("step 6, lr 0.01, norm "));
}

TEST_P(Stats, TheStatisticsAddUp)
{
    trainer t(9);
    t.add(4096, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, text(), 1024);
    t.backward_all(0.1f);
    auto info = new_info();
    uint64_t read = 0, written = 0;
    for (int step = 0; step < 3; step++) {
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        read += info.bytes.nvme_read;
        written += info.bytes.nvme_written;
        // The norm reads 2 bytes for each gradient. The update reads gradient, both halves of the master, m and v, and writes
        // all but the gradient.
        EXPECT_EQ(4096u * (2 + 2 + 12), info.bytes.host_read);
        EXPECT_EQ(4096u * 12, info.bytes.host_written);
        EXPECT_GE(info.seconds.total, info.seconds.update);
    }
    EXPECT_EQ(GetParam(), written > 0);
    char json[1024];
    size_t length = 0;
    ASSERT_ZOFF_OK(zoff_stats_print(e.get(), json, sizeof json, &length));
    EXPECT_EQ(strlen(json), length);
    EXPECT_NE(std::string(json).find("\"steps\": 3, \"skipped\": 0, \"micro_steps\": 3"), std::string::npos) << json;
    EXPECT_NE(std::string(json).find("\"nvme_read_bytes\": " + std::to_string(read) + ","), std::string::npos) << json;
    size_t same = 0;
    ASSERT_ZOFF_OK(zoff_stats_print(e.get(), nullptr, 0, &same));
    EXPECT_NEAR((double)length, (double)same, 1);
}

TEST(StatsLog, AnInvalidLogLevelIsReported)
{
    log_catcher log;
    log.expect("ZOFF_LOG_LEVEL is \"loud\"; it may be error, warn, info, debug or trace");
    ASSERT_EQ(0, setenv("ZOFF_LOG_LEVEL", "loud", 1));
    trainer t(4);
    t.add(5, 1, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, "{}");
    ASSERT_EQ(0, unsetenv("ZOFF_LOG_LEVEL"));
}

TEST(StatsLog, Bf16AskedForButNotRegistered)
{
    log_catcher log;
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32);
    log.expect("bf16.enabled is true (test.json:1:");
    engine e = seal_engine(t, "{\"bf16\": {\"enabled\": true}}");
}

// Catches the lines of rank 0 on stderr, which is a terminal or a pipe.
class Told : public testing::Test
{
  protected:
    static std::string by(bool is_terminal, const char *level, const std::function<void()> &work)
    {
        int ends[2];
        char text[8192];
        const int before = dup(STDERR_FILENO);
        EXPECT_EQ(0, is_terminal ? openpty(&ends[0], &ends[1], nullptr, nullptr, nullptr) : pipe(ends));
        EXPECT_EQ(STDERR_FILENO, dup2(ends[1], STDERR_FILENO));
        close(ends[1]);
        zoff_log_set(nullptr, nullptr);
        if (level)
            setenv("ZOFF_LOG_LEVEL", level, 1);
        work();
        unsetenv("ZOFF_LOG_LEVEL");
        fputs("end", stderr);
        EXPECT_EQ(STDERR_FILENO, dup2(before, STDERR_FILENO));
        close(before);
        std::string all;
        for (ssize_t got; all.find("end") == std::string::npos && (got = read(ends[0], text, sizeof text)) > 0;)
            all.append(text, (size_t)got);
        close(ends[0]);
        return all;
    }
};

TEST_F(Told, ByATerminalOrWhereTheLevelAsks)
{
    const char LINE[] = "zoff info engine: AdamW lr 0.001, no clipping, fp32 weights, states in DRAM 24 bytes, 2 threads";
    const auto open = [] {
        trainer t(1);
        t.add(3, 1, ZOFF_F32, ZOFF_F32);
        engine e = seal_engine(t, "{}");
    };
    for (const bool is_terminal : {false, true}) {
        for (const char *level : {(const char *)nullptr, "warn", "info"}) {
            SCOPED_TRACE(testing::Message() << is_terminal << (level ? level : ""));
            const std::string said = by(is_terminal, level, open);
            const bool wants = level ? !strcmp(level, "info") : is_terminal;
            EXPECT_EQ(wants, said.find(LINE) != std::string::npos) << said;
            if (!level) {
                EXPECT_EQ(wants ? 1 : 0, std::count(said.begin(), said.end(), '\n')) << said;
            }
        }
    }
}

TEST(StatsLog, OneLineSaysHowTheRunTrains)
{
    log_catcher log;
    const scratch_folder folder;
    trainer t(1);
    t.add(1024, 1, ZOFF_BF16, ZOFF_BF16, 0);
    t.add(1024, 1, ZOFF_F32, ZOFF_F32, 1);
    t.add(8, 1, ZOFF_F32, ZOFF_F32, 1, true);
    const std::string name = t.desc(1).name ? t.desc(1).name : "param1";
    engine e =
        seal_engine(t, R"({"optimizer": {"type": "Adam", "params": {"lr": 0.5, "weight_decay": 0.1, "adam_w_mode": false}},
               "gradient_clipping": 0.5, "scheduler": {"type": "WarmupLR"}, "fp16": {"enabled": false},
               "zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": ")" +
                           folder.path + R"("}},
               "zoff": {"threads": 2, "no_decay": ")" +
                           name + R"("}})");
    EXPECT_EQ(
        1u, log.count("engine: Adam lr 0.5 with a scheduler, decay 0.1 for all but 1 of 2 parameters (group 0 of 2), clip 0.5, "
                      "fp32 and bf16 weights, states in files, through "))
        << log.lines.front();
    EXPECT_TRUE(log.contains(" of DRAM: 18.0 KiB, 2 threads")) << log.lines.front();
    trainer frozen(1);
    frozen.add(8, 1, ZOFF_F32, ZOFF_F32, 0, true);
    engine none = seal_engine(frozen, R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.5}}})");
    EXPECT_TRUE(log.contains("engine: SGD with momentum lr 0.001, no clipping, all frozen, states in DRAM 0 bytes, 2 threads"))
        << log.lines.back();
}

TEST_P(Stats, TheStartIsLogged)
{
    trainer t(3);
    t.add(4096, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, text(), 1024);
    EXPECT_TRUE(log.contains("1 parameters, 4096 elements; states of 40.0 KiB in " +
                             (GetParam() ? "files under " + folder.path : "DRAM")));
    EXPECT_EQ(GetParam(), log.contains("(3 slots"));
    EXPECT_TRUE(log.contains("training: optimizer.type \"AdamW\"")) << "the optimizer of the configuration";
    EXPECT_TRUE(log.contains(std::string("states on \"") + (GetParam() ? "nvme" : "cpu") + "\" ("));
    EXPECT_TRUE(log.contains("weights bf16 (zoff_param_desc.dtype)"));
    EXPECT_FALSE(log.contains("hyper-parameters of their own"));
    zoff_optimizer_hyper h = config_groups(1)[0];
    engine own = make_engine(t, text(), 1024);
    ASSERT_ZOFF_OK(zoff_engine_set_group(own.get(), 0, &h));
    ASSERT_ZOFF_OK(zoff_engine_seal(own.get()));
    EXPECT_TRUE(log.contains("1 of 1 groups have hyper-parameters of their own"));
}

TEST_P(Stats, EachStepIsAddedToWhatItIs)
{
    trainer t(3);
    t.add(10, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, text());
    zoff_step_info info = new_info();
    info.bytes.host_read = 5;
    info.bytes.device_written = 7;
    info.seconds.total = 1.25;
    info.seconds.visible = 0.75;
    info.seconds.save_wait = 0.5;
    e->run.last = false; // a micro-step
    zoff_engine_stats_add(e.get(), &info);
    e->run.last = true;
    zoff_engine_stats_add(e.get(), &info);
    info.skipped = true;
    zoff_engine_stats_add(e.get(), &info);
    char json[1024];
    ASSERT_ZOFF_OK(zoff_stats_print(e.get(), json, sizeof json, nullptr));
    for (const char *words :
         {"\"steps\": 1, \"skipped\": 1, \"micro_steps\": 3,", "\"host_read_bytes\": 15,", "\"device_write_bytes\": 21,",
          "\"seconds\": 3.750000,", "\"hidden_seconds\": 1.500000,", "\"save_wait_seconds\": 1.500000}"})
        EXPECT_NE(nullptr, strstr(json, words)) << words << " in " << json;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_stats_print(e.get(), nullptr, 5, nullptr));
}
} // namespace
