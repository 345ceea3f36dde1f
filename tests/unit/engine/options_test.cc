/* SPDX-License-Identifier: Apache-2.0 */
// options_test.cc: options of the program and the configuration, merged; refusals; ownership.
#include "small_engine.h"

extern "C" {
#include "engine_priv.h"
}

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
    ASSERT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "test.json", &config));
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
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    opts.config_path = path.c_str();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, path + ":2:3: ", zoff_engine_open_sized(&opts, nullptr, 0, 0, &made));
    EXPECT_NE(std::string(zoff_last_error()).find("gradient_clipping"), std::string::npos);
    EXPECT_EQ(nullptr, made);
}

engine create(const zoff_engine_opts &opts)
{
    zoff_engine *made = nullptr;
    EXPECT_ZOFF_OK(zoff_engine_create(&opts, &made));
    return engine(made);
}

class Merge : public testing::Test
{
  protected:
    Merge() { opts.struct_size = sizeof opts; }
    void configure(const std::string &text)
    {
        zoff_config *made = nullptr;
        ASSERT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "test.json", &made));
        parsed.reset(made);
        opts.config = made;
    }
    zoff_engine_opts opts = {};
    config parsed;
    log_catcher log;
    scratch_folder folder;
};

TEST_F(Merge, WithoutOptionsAllIsDefault)
{
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(nullptr, &made));
    engine e(made);
    EXPECT_EQ(ZOFF_TIER_HOST, e->settings.tier);
    EXPECT_EQ(0u, e->settings.host_bytes);
    EXPECT_EQ(0u, e->settings.paths.count);
    EXPECT_EQ(1u, e->settings.values.accumulation);
    EXPECT_LE(1u, e->settings.threads);
    EXPECT_FALSE(e->settings.threads_asked);
    EXPECT_EQ(0u, e->settings.values.aio_depth) << "nobody has chosen one";
    EXPECT_TRUE(e->settings.owns_accel);
    EXPECT_TRUE(e->settings.owns_comm);
}

TEST_F(Merge, TheProgramWinsOverTheConfiguration)
{
    ASSERT_NO_FATAL_FAILURE(
        configure("{\"zoff\": {\"host_memory\": \"64MiB\", \"threads\": 2}, \"aio\": {\"queue_depth\": 16}, "
                  "\"zero_optimization\": {\"stage\": 1, \"sub_group_size\": 5000, \"offload_optimizer\": {\"device\": "
                  "\"nvme\", \"nvme_path\": \"/elsewhere\"}}}"));
    engine e = create(opts);
    EXPECT_EQ(ZOFF_TIER_NVME, e->settings.tier);
    EXPECT_STREQ("/elsewhere", e->settings.paths.texts[0]);
    EXPECT_EQ(64u << 20, e->settings.host_bytes);
    EXPECT_STREQ("zoff.host_memory", e->settings.host_bytes_key);
    EXPECT_EQ(5000u, e->settings.chunk_elements);
    EXPECT_EQ(2u, e->settings.threads);
    EXPECT_EQ(16u, e->settings.values.aio_depth);
    opts.nvme_path = folder.path.c_str();
    opts.host_bytes = 1 << 20;
    opts.chunk_elements = 2048;
    opts.threads = 1;
    e = create(opts);
    EXPECT_EQ(ZOFF_TIER_NVME, e->settings.tier);
    EXPECT_EQ(folder.path, e->settings.paths.texts[0]);
    EXPECT_EQ(folder.path, e->settings.weight_paths.texts[0]) << "weights go where the states go";
    EXPECT_EQ(1u << 20, e->settings.host_bytes);
    EXPECT_STREQ("zoff_engine_opts.host_bytes", e->settings.host_bytes_key);
    EXPECT_EQ(2048u, e->settings.chunk_elements);
    EXPECT_EQ(1u, e->settings.threads);
    EXPECT_TRUE(e->settings.threads_asked);
    opts.state_tier = ZOFF_TIER_HOST;
    e = create(opts);
    EXPECT_EQ(ZOFF_TIER_HOST, e->settings.tier);
}

TEST_F(Merge, AShorterStructSetsNoMoreThanItHas)
{
    opts.threads = 1;
    opts.chunk_elements = 2048;
    opts.struct_size = offsetof(zoff_engine_opts, threads);
    engine e = create(opts);
    EXPECT_EQ(2048u, e->settings.chunk_elements);
    EXPECT_FALSE(e->settings.threads_asked);
}

// Objects of the program are borrowed: it may close its configuration at once, and the others after the engine.
TEST_F(Merge, ObjectsOfTheProgramAreBorrowed)
{
    zoff_accel *accel_made = nullptr;
    zoff_comm *comm_made = nullptr;
    ASSERT_ZOFF_OK(zoff_accel_open("host", 0, &accel_made));
    accel device(accel_made);
    ASSERT_ZOFF_OK(zoff_comm_open(nullptr, &comm_made));
    comm ranks(comm_made);
    ASSERT_NO_FATAL_FAILURE(configure(config_text(folder.path)));
    opts.accel = accel_made;
    opts.comm = comm_made;
    engine e = create(opts);
    parsed.reset();
    EXPECT_FALSE(e->settings.owns_accel);
    EXPECT_FALSE(e->settings.owns_comm);
    EXPECT_EQ(accel_made, e->accel);
    EXPECT_EQ(comm_made, e->comm);
    EXPECT_EQ(folder.path, e->settings.paths.texts[0]) << "a copy";
    EXPECT_EQ(nullptr, e->settings.values.nvme_paths) << "the configuration's, and it is closed";
    e.reset();
    EXPECT_EQ(1u, zoff_comm_size(comm_made));
    EXPECT_STREQ("host", zoff_accel_name(accel_made));
    e = nullptr;
    opts.config = nullptr;
    EXPECT_NE(nullptr, create(opts).get());
}

TEST_F(Merge, ContradictionsAreRefused)
{
    zoff_engine *made = nullptr;
    ASSERT_NO_FATAL_FAILURE(configure("{\"zoff\": {\"persist\": true}}"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff.persist keeps states in files", zoff_engine_create(&opts, &made));
    ASSERT_NO_FATAL_FAILURE(configure("{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"nvme\"}}}"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zero_optimization.offload_param.nvme_path", zoff_engine_create(&opts, &made));
    opts.config = nullptr;
    opts.state_tier = (zoff_tier)9;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "state_tier 9 is not a zoff_tier", zoff_engine_create(&opts, &made));
    opts.struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "sizeof(zoff_engine_opts)", zoff_engine_create(&opts, &made));
    EXPECT_EQ(nullptr, made);
}
TEST(OptionsMoments, BlocksAreForAdamAndFiniteGradients)
{
    log_catcher log;
    for (const char *moments : {"m8v16", "q8"}) {
        const std::string own = std::string("\"zoff\": {\"moments\": \"") + moments + "\"";
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        zoff_engine *e = nullptr;
        zoff_config *config = nullptr;
        const auto create = [&](const std::string &text) {
            zoff_config_close(config);
            config = nullptr;
            EXPECT_ZOFF_OK(config_from_text(text.data(), text.size(), "test.json", &config));
            opts.config = config;
            return zoff_engine_create(&opts, &e);
        };
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "which is for Adam and AdamW",
                          create("{\"optimizer\": {\"type\": \"Lion\"}, " + own + "}}"));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "would spoil a block", create("{" + own + ", \"skip_nonfinite\": false}}"));
        ASSERT_ZOFF_OK(create("{" + own + "}}"));
        zoff_engine_destroy(e);
        zoff_config_close(config);
    }
}
} // namespace
