// options_test.cc: options of the program and the configuration, merged; what cannot be, and who owns what.
#include "small_engine.h"

using namespace zoff_test;

namespace
{

TEST(Options, AnOverflowThatNobodySkipsBesideALossScale)
{
    log_catcher log;
    trainer t(1);
    zoff_engine *made = nullptr;
    zoff_config *config = nullptr;
    const std::string text = R"({"fp16": {"enabled": true}, "zoff": {"skip_nonfinite": false}})";
    ASSERT_ZOFF_OK(zoff_config_parse(text.data(), text.size(), "test.json", &config));
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.config = config;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff.skip_nonfinite is false, but fp16.enabled is true",
                      zoff_engine_create(&opts, &made));
    EXPECT_EQ(nullptr, made);
    zoff_config_close(config);
}

TEST(Options, MoreThreadsThanASystemGives)
{
    log_catcher log;
    zoff_engine *made = nullptr;
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.threads = 4096;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "4096 threads: zoff_engine_opts.threads may be at most 1024",
                      zoff_engine_create(&opts, &made));
}

TEST(Options, NvmeWithoutAFolder)
{
    log_catcher log;
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.state_tier = ZOFF_TIER_NVME;
    zoff_engine *made = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "offload_optimizer.nvme_path", zoff_engine_create(&opts, &made));
    EXPECT_EQ(nullptr, made);
}

TEST(Options, AConfigurationWithAnError)
{
    log_catcher log;
    scratch_folder folder;
    std::string path = folder.file("ds.json");
    FILE *f = fopen(path.c_str(), "w");
    fputs("{\n  \"gradient_cliping\": 1.0\n}\n", f);
    fclose(f);
    zoff_engine *made = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, path + ":2:3: ", zoff_engine_open(path.c_str(), nullptr, 0, 0, &made));
    EXPECT_NE(std::string(zoff_last_error()).find("gradient_clipping"), std::string::npos);
    EXPECT_EQ(nullptr, made);
}
} // namespace
