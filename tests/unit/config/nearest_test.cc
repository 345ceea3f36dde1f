/* SPDX-License-Identifier: Apache-2.0 */
// nearest_test.cc: the distance of two words, and the known word that a misspelt one probably means.
#include "config_helpers.h"

extern "C" {
#include "config_priv.h"
}

using namespace config_test;

namespace
{
TEST(config_nearest, counts_edits)
{
    EXPECT_EQ(0u, zoff_config_nearest_distance("Abc", "aBC"));
    EXPECT_EQ(1u, zoff_config_nearest_distance("abc", "acb"));
    EXPECT_EQ(1u, zoff_config_nearest_distance("abc", "ab"));
    EXPECT_EQ(1u, zoff_config_nearest_distance("abc", "abxc"));
    EXPECT_EQ(3u, zoff_config_nearest_distance("kitten", "sitting"));
    EXPECT_EQ(4u, zoff_config_nearest_distance("", "four"));
    EXPECT_EQ(4u, zoff_config_nearest_distance("four", ""));
    EXPECT_EQ(64u, zoff_config_nearest_distance(std::string(64, 'a').c_str(), ""));
    for (const size_t length : {65, 100}) { // too long to be compared: all letters count as different
        const std::string word(length, 'a');
        EXPECT_EQ(65u, zoff_config_nearest_distance(word.c_str(), word.c_str()));
    }
}

TEST(config_nearest, names_of_other_programs)
{
    const struct {
        const char *section, *key, *meant;
    } cases[] = {{"", "learning_rate", "optimizer.params.lr"},
                 {"optimizer.params", "learning_rate", "optimizer.params.lr"},
                 {"optimizer", "Learning_Rate", "optimizer.params.lr"},
                 {"optimizer.params", "epsilon", "optimizer.params.eps"},
                 {"", "batch_size", "train_batch_size"},
                 {"", "micro_batch", "train_micro_batch_size_per_gpu"},
                 {"", "micro_batch_size", "train_micro_batch_size_per_gpu"},
                 {"scheduler.params", "warmup_steps", "scheduler.params.warmup_num_steps"},
                 {"", "zero_stage", "zero_optimization.stage"},
                 {"", "grad_clip", "gradient_clipping"},
                 {"", "max_grad_norm", "gradient_clipping"},
                 {"zero_optimization.offload_optimizer", "path", "zero_optimization.offload_optimizer.nvme_path"},
                 {"zero_optimization.offload_param", "path", "zero_optimization.offload_param.nvme_path"},
                 {"optimizer", "name", "optimizer.type"},
                 {"scheduler", "name", "scheduler.type"},
                 {"scheduler.params", "total_steps", "scheduler.params.total_num_steps"},
                 {"zoff", "num_threads", "zoff.threads"},
                 {"", "accumulation_steps", "gradient_accumulation_steps"}};
    for (const auto &c : cases) {
        const char *found = zoff_config_nearest_key(c.section, c.key);
        ASSERT_NE(nullptr, found) << c.key;
        EXPECT_STREQ(c.meant, found) << c.section << " " << c.key;
        EXPECT_EQ(ZOFF_CLASS_HONOURED, zoff_config_schema_find(found)->class_);
    }
}

TEST(config_nearest, nothing_that_is_refused_is_proposed_and_nothing_for_a_long_word)
{
    for (const char *word : {"amsgrd", "maximise", "fp32_optimizer_state", "zenflo", "zero_quantised_weights", "elasticty"}) {
        const char *found = zoff_config_nearest_key("", word);
        if (found) {
            EXPECT_NE(ZOFF_CLASS_REFUSED, zoff_config_schema_target(zoff_config_schema_find(found))->class_)
                << word << " " << found;
        }
    }
    for (size_t length : {65, 300, 3000}) {
        EXPECT_EQ(nullptr, zoff_config_nearest_key("", std::string(length, 'a').c_str()));
        EXPECT_EQ(std::string::npos, error_of(nest("optimizer." + std::string(length, 'a'), "1")).find("did you mean"));
        EXPECT_EQ(std::string::npos,
                  error_of(nest("optimizer.type", "\"" + std::string(length, 'A') + "\"")).find("did you mean"));
    }
}

TEST(config_nearest, the_same_section_goes_before_others)
{
    EXPECT_STREQ("fp16.enabled", zoff_config_nearest_key("fp16", "enabld"));
    EXPECT_STREQ("bf16.enabled", zoff_config_nearest_key("bf16", "enabld"));
    EXPECT_STREQ("optimizer.params.lr", zoff_config_nearest_key("", "lr")) << "the same word elsewhere";
    EXPECT_STREQ("zoff.nvme_paths", zoff_config_nearest_key("zero_optimization.offload_param", "nvme_paths"))
        << "a word that is right elsewhere goes before one that is nearly right here";
    EXPECT_EQ(nullptr, zoff_config_nearest_key("", "xyzzy"));
}

// A third of the letters may be wrong, and at least one.
TEST(config_nearest, a_choice_is_near_or_none)
{
    const struct {
        const char *word, *meant;
    } cases[] = {{"abc", "abc"},    {"ABX", "abc"}, {"axx", ""}, {"abcdefghi", "abcdefghi"}, {"xxxdefghi", "abcdefghi"},
                 {"xxxxefghi", ""}, {"", ""}};
    for (const auto &c : cases) {
        char found[32] = "?";
        zoff_config_nearest_choice("abc|abcdefghi", c.word, found, sizeof found);
        EXPECT_STREQ(c.meant, found) << c.word;
    }
    char cut[4] = "";
    zoff_config_nearest_choice("abc|abcdefghi", "abcdefghi", cut, sizeof cut);
    EXPECT_STREQ("abc", cut) << "what does not fit is cut";
    zoff_config_nearest_choice("a", std::string(65, 'a').c_str(), cut, sizeof cut);
    EXPECT_STREQ("", cut);
}
} // namespace
