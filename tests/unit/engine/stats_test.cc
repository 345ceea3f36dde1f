// stats_test.cc: an engine's reports: lines of the log, and its totals as JSON.
#include "on_tiers.h"

extern "C" {
#include "engine_priv.h"
}

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
