/* SPDX-License-Identifier: Apache-2.0 */
// resolve_test.cc: values that depend on other keys: old names, tiers and folders, and keys for several ranks.
#include "config_helpers.h"

using namespace config_test;

namespace
{
TEST(config_resolve, the_device_decides_the_tier_at_every_stage)
{
    for (int stage = 0; stage <= 3; stage++) {
        for (const char *device : {"none", "cpu", "nvme"}) {
            zoff_test::log_catcher log;
            auto config = parse("{\"zero_optimization\": {\"stage\": " + std::to_string(stage) +
                                ", \"offload_optimizer\": {\"device\": \"" + device + "\", \"nvme_path\": \"/n\"}}}");
            EXPECT_EQ(strcmp(device, "nvme") == 0 ? ZOFF_TIER_NVME : ZOFF_TIER_HOST, values(config).state_tier) << device;
        }
    }
}

TEST(config_resolve, weights_are_offloaded_at_stage_3)
{
    zoff_test::log_catcher log;
    zoff_weight_values none = values(resolved("{\"zero_optimization\": {\"stage\": 3}}")).weights;
    EXPECT_EQ(ZOFF_TIER_HOST, none.tier);
    EXPECT_EQ(5u, none.slots);
    EXPECT_EQ(100000000u, none.chunk_count);
    EXPECT_EQ(1000000000u, none.cached_count);
    EXPECT_EQ(50000000u, none.ahead_count);
    EXPECT_EQ(100000u, none.persistent_slice);
    EXPECT_EQ(1000000000u, none.live_count);
    auto config =
        parse("{\"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"nvme_path\": \"/o\"}, "
              "\"stage3_prefetch_bucket_size\": 7, \"stage3_param_persistence_threshold\": 8, "
              "\"stage3_model_persistence_threshold\": 9, \"stage3_max_live_parameters\": 10, "
              "\"offload_param\": {\"device\": \"nvme\", \"buffer_count\": 2, \"buffer_size\": 1e6, \"max_in_cpu\": 0}}}");
    zoff_weight_values v = values(config).weights;
    EXPECT_EQ(ZOFF_TIER_NVME, v.tier);
    EXPECT_EQ(2u, v.slots);
    EXPECT_EQ(1000000u, v.chunk_count);
    EXPECT_EQ(0u, v.cached_count);
    EXPECT_EQ(7u, v.ahead_count);
    EXPECT_EQ(8u, v.persistent_slice);
    EXPECT_EQ(9u, v.persistent_count);
    EXPECT_EQ(10u, v.live_count);
    EXPECT_EQ(0u, v.path_count); // the engine takes the folders of the states
    EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "zero_optimization.offload_param.nvme_path", "/p"));
    EXPECT_STREQ("/p", values(config).weights.paths[0]);
    EXPECT_STREQ("/o", values(config).nvme_paths[0]);
}

TEST(config_resolve, below_stage_3_weights_stay)
{
    zoff_test::log_catcher log;
    log.expect("ds.json:1:54: zero_optimization.offload_param.device \"cpu\" has no effect at stage 2");
    auto config = resolved("{\"zero_optimization\": {\"stage\": 2, \"offload_param\": {\"device\": \"cpu\"}}}");
    EXPECT_EQ("none", word(config, "zero_optimization.offload_param.device"));
}

TEST(config_resolve, groups_divide_the_ranks)
{
    auto config = parse("{\"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 4}}");
    const std::pair<unsigned, unsigned> cells[] = {{1, 1}, {2, 1}, {4, 1}, {8, 4}, {12, 4}}; // ranks, ranks of a group
    for (auto [ranks, members] : cells) {
        zoff_config_values v;
        ASSERT_ZOFF_OK(zoff_config_resolve(config.get(), ranks));
        ASSERT_ZOFF_OK(zoff_config_values_get(config.get(), ranks, &v));
        EXPECT_EQ(members, v.weights.group_ranks) << ranks << " ranks";
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "ds.json:1:36: zero_optimization.zero_hpz_partition_size is 4, which does not divide 6 ranks",
                      zoff_config_resolve(config.get(), 6));
}

TEST(config_resolve, below_stage_3_there_are_no_groups)
{
    zoff_test::log_catcher log;
    log.expect("zero_optimization.zero_hpz_partition_size 4 has no effect at stage 2");
    auto config = parse("{\"zero_optimization\": {\"stage\": 2, \"zero_hpz_partition_size\": 4}}");
    zoff_config_values v;
    ASSERT_ZOFF_OK(zoff_config_resolve(config.get(), 6));
    ASSERT_ZOFF_OK(zoff_config_values_get(config.get(), 6, &v));
    EXPECT_EQ(1u, v.weights.group_ranks);
    auto by_default = parse("{}");
    ASSERT_ZOFF_OK(zoff_config_resolve(by_default.get(), 6));
    const char *path = "zero_optimization.zero_hpz_partition_size";
    EXPECT_STREQ(zoff_config_source(by_default.get(), path), zoff_config_source(config.get(), path)) << "not the file's";
}

TEST(config_resolve, weights_on_nvme_need_a_folder)
{
    auto config = parse("{\"zero_optimization\": {\"stage\": 3,\n \"offload_param\": {\"device\": \"nvme\"}}}");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "ds.json:2:20: zero_optimization.offload_param.device: \"nvme\" needs a folder for its files; expected "
                      "zero_optimization.offload_param.nvme_path",
                      zoff_config_resolve(config.get(), 1));
}

TEST(config_resolve, nvme_needs_a_folder)
{
    auto config = parse("{\"zero_optimization\": {\n \"offload_optimizer\": {\"device\": \"nvme\"}}}");
    EXPECT_ZOFF_FAILS(
        ZOFF_ERR_INVALID,
        "ds.json:2:24: zero_optimization.offload_optimizer.device: \"nvme\" needs a folder for its files; expected "
        "zero_optimization.offload_optimizer.nvme_path (or zoff.nvme_paths)",
        zoff_config_resolve(config.get(), 1));
    zoff_config_values v = values(config); // the engine's caller may name the folder
    EXPECT_EQ(ZOFF_TIER_NVME, v.state_tier);
    EXPECT_EQ(0u, v.nvme_path_count);
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "zoff.nvme_paths", "/x"));
    EXPECT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
}

TEST(config_resolve, the_source_of_the_folders)
{
    zoff_test::log_catcher log;
    log.expect("are both given: the folders of zoff.nvme_paths are used");
    log.expect("are both given: the folders of zero_optimization.offload_optimizer.nvme_path are used");
    std::string both = "{\"zero_optimization\": {\"offload_optimizer\": {\"nvme_path\": \"/a\"}}, \"zoff\": {\"nvme_paths\": "
                       "[\"/b\", \"/c\"]}}";
    auto config = parse(both);
    EXPECT_EQ(2u, values(config).nvme_path_count);
    auto set = parse(both);
    ASSERT_ZOFF_OK(zoff_config_set(set.get(), "zero_optimization.offload_optimizer.nvme_path", "/d"));
    ASSERT_EQ(1u, values(set).nvme_path_count);
    EXPECT_STREQ("/d", values(set).nvme_paths[0]);
    ASSERT_ZOFF_OK(zoff_config_set(set.get(), "zoff.nvme_paths", "/e"));
    EXPECT_STREQ("/e", values(set).nvme_paths[0]);
}

TEST(config_resolve, old_names)
{
    zoff_test::log_catcher log;
    auto old = resolved("{\"zero_optimization\": {\"stage\": 2, \"cpu_offload\": true}}");
    EXPECT_EQ("cpu", word(old, "zero_optimization.offload_optimizer.device"));
    EXPECT_STREQ("ds.json:1:36", zoff_config_source(old.get(), "zero_optimization.offload_optimizer.device"));
    auto off = resolved("{\"zero_optimization\": {\"cpu_offload\": false}}");
    EXPECT_EQ("none", word(off, "zero_optimization.offload_optimizer.device"));
    auto flag = resolved("{\"zero_optimization\": true}");
    EXPECT_EQ(1, number(flag, "zero_optimization.stage"));
    EXPECT_STREQ("ds.json:1:2", zoff_config_source(flag.get(), "zero_optimization.stage"));
    EXPECT_EQ(0, number(resolved("{\"zero_optimization\": false}"), "zero_optimization.stage"));
    EXPECT_EQ(1, number(resolved("{\"bfloat16\": {\"enabled\": true}}"), "bf16.enabled"));
    EXPECT_EQ(5,
              number(resolved("{\"zero_optimization\": {\"stage3_sub_group_size\": 5}}"), "zero_optimization.sub_group_size"));
    auto weights = resolved("{\"zero_optimization\": {\"stage\": 3, \"cpu_offload_param\": true}}");
    EXPECT_EQ("cpu", word(weights, "zero_optimization.offload_param.device"));
    // The program's value also replaces one under the old name.
    ASSERT_ZOFF_OK(zoff_config_set(old.get(), "zero_optimization.offload_optimizer.device", "none"));
    ASSERT_ZOFF_OK(zoff_config_resolve(old.get(), 1));
    EXPECT_EQ("none", word(old, "zero_optimization.offload_optimizer.device"));
    ASSERT_ZOFF_OK(zoff_config_set(off.get(), "zero_optimization.cpu_offload", "true"));
    ASSERT_ZOFF_OK(zoff_config_resolve(off.get(), 1));
    EXPECT_EQ("cpu", word(off, "zero_optimization.offload_optimizer.device"));
}
} // namespace
