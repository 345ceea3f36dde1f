// cells_test.cc: the value of a key by its path: the given one, the effective one, and its source.
#include "config_helpers.h"

extern "C" {
#include "config_priv.h"
}

using namespace config_test;

TEST(config_cells, given_is_the_programs_else_the_files_else_nobodys)
{
    auto config = parse(R"({"gradient_clipping": 0.5, "train_batch_size": 8})");
    EXPECT_EQ(nullptr, zoff_config_cells_given(config.get(), "steps_per_print"));
    EXPECT_EQ(0.5, zoff_config_cells_given(config.get(), "gradient_clipping")->number);
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "gradient_clipping", "2"));
    EXPECT_EQ(2, zoff_config_cells_given(config.get(), "gradient_clipping")->number);
    EXPECT_EQ(8, zoff_config_cells_given(config.get(), "train_batch_size")->integer);
}

TEST(config_cells, find_is_what_counts_once_it_is_resolved)
{
    auto config = resolved(R"({"gradient_clipping": 0.5, "train_batch_size": 8})", 2);
    const auto source = [&](const char *path) {
        return std::string(zoff_config_cells_source(zoff_config_cells_find(config.get(), path)));
    };
    EXPECT_EQ(0.5, zoff_config_cells_find(config.get(), "gradient_clipping")->number);
    EXPECT_EQ("ds.json:1:2", source("gradient_clipping"));
    EXPECT_EQ(0, zoff_config_cells_find(config.get(), "zero_optimization.stage")->integer);
    EXPECT_EQ("default", source("zero_optimization.stage"));
    EXPECT_EQ(4, zoff_config_cells_find(config.get(), "train_micro_batch_size_per_gpu")->integer);
    EXPECT_EQ("computed", source("train_micro_batch_size_per_gpu"));
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "gradient_clipping", "2"));
    ASSERT_ZOFF_OK(zoff_config_resolve(config.get(), 2));
    EXPECT_EQ(2, zoff_config_cells_find(config.get(), "gradient_clipping")->number);
    EXPECT_EQ("api", source("gradient_clipping"));
}
