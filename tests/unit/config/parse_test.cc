/* SPDX-License-Identifier: Apache-2.0 */
// parse_test.cc: errors with their place, and the tolerance that real files need. tests/golden has what is said to wrong
// values.
#include "config_helpers.h"

using namespace config_test;

namespace
{
struct error_case {
    const char *name, *text;
    zoff_status status;
    const char *place;               // the start of the message
    std::vector<const char *> words; // parts of the message
};

const error_case ERRORS[] = {
    {"unknown_key",
     "{\n  \"gradient_clipp1ng\": 1\n}",
     ZOFF_ERR_INVALID,
     "ds.json:2:3: gradient_clipp1ng: ",
     {"not known", "did you mean \"gradient_clipping\"?", "strict"}},
    {"unknown_nested",
     "{\"optimizer\": {\n\t\"params\": {\"weight_deacy\": 0.1}}}",
     ZOFF_ERR_INVALID,
     "ds.json:2:13: optimizer.params.weight_deacy: ",
     {"did you mean \"optimizer.params.weight_decay\"?"}},
    {"misplaced", "{ \"lr\": 1 }", ZOFF_ERR_INVALID, "ds.json:1:3: lr: ", {"did you mean \"optimizer.params.lr\"?"}},
    {"dotted_key", "{\"optimizer.params\": {\"lr\": 1}}", ZOFF_ERR_INVALID, "ds.json:1:2: optimizer.params: ", {"not known"}},
    {"no_idea", "{\"optimizer\": {\"xyzzy\": 1}}", ZOFF_ERR_INVALID, "ds.json:1:16: optimizer.xyzzy: ", {"not known"}},
    {"type_number",
     "{\"optimizer\": {\"params\": {\n  \"lr\": \"fast\"}}}",
     ZOFF_ERR_INVALID,
     "ds.json:2:9: optimizer.params.lr: ",
     {"\"fast\" is not a number", "expected a number >= 0"}},
    {"type_flag",
     "{\"bf16\": {\"enabled\": \"perhaps\"}}",
     ZOFF_ERR_INVALID,
     "ds.json:1:22: bf16.enabled: ",
     {"\"perhaps\" is not a flag", "expected true or false"}},
    {"type_object",
     "{\"optimizer\": \"AdamW\"}",
     ZOFF_ERR_INVALID,
     "ds.json:1:15: optimizer: ",
     {"\"AdamW\" is not an object", "expected an object"}},
    {"list_length",
     "{\"optimizer\": {\"params\": {\"betas\": [0.9]}}}",
     ZOFF_ERR_INVALID,
     "ds.json:1:36: optimizer.params.betas: ",
     {"wrong length"}},
    {"choice",
     "{\"optimizer\": {\"type\": \"AdamV\"}}",
     ZOFF_ERR_INVALID,
     "ds.json:1:24: optimizer.type: ",
     {"\"AdamV\" is not known", "expected \"Adam\", \"AdamW\", \"Adagrad\", \"Lion\", \"SGD\" or \"Muon\"",
      "did you mean \"Adam"}},
    {"bytes",
     "{\"zoff\": {\"host_memory\": \"64 megs\"}}",
     ZOFF_ERR_INVALID,
     "ds.json:1:26: zoff.host_memory: ",
     {"\"64 megs\" is not a number", "\"64MiB\""}},
    {"empty_path",
     "{\"zoff\": {\"nvme_paths\": [\"/a\", \"\"]}}",
     ZOFF_ERR_INVALID,
     "ds.json:1:25: zoff.nvme_paths: ",
     {"is empty"}},
    {"duplicate",
     "{\"steps_per_print\": 1,\n \"bf16\": {},\n  \"steps_per_print\": 2}",
     ZOFF_ERR_INVALID,
     "ds.json:3:3: steps_per_print: ",
     {"given twice", "first at ds.json:1:2"}},
    {"duplicate_escaped",
     "{\"bf16\": {},\n \"bf\\u00316\": {}}",
     ZOFF_ERR_INVALID,
     "ds.json:2:2: bf16: ",
     {"first at ds.json:1:2"}},
    {"duplicate_objects",
     "{\"optimizer\": {\"type\": \"Adam\"},\n\"optimizer\": {\"params\": {\"lr\": 1}}}",
     ZOFF_ERR_INVALID,
     "ds.json:2:1: optimizer: ",
     {"first at ds.json:1:2"}},
    {"duplicate_ignored",
     "{\"tensorboard\": {\"a\": [{\"x\": 1, \"x\": 2}]}}",
     ZOFF_ERR_INVALID,
     "ds.json:1:33: tensorboard.a[].x: ",
     {"first at ds.json:1:25"}},
    {"both_halves",
     "{\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}",
     ZOFF_ERR_INVALID,
     "ds.json:1:38: fp16.enabled: ",
     {"bf16.enabled is true too, at ds.json:1:11"}},
    {"lamb",
     "{\"optimizer\": {\"type\": \"Lamb\", \"params\": {\"max_coeff\": 0.3}}}",
     ZOFF_ERR_UNSUPPORTED,
     "ds.json:1:24: optimizer.type: ",
     {"\"Lamb\" is not supported", "expected \"Adam\", \"AdamW\", \"Adagrad\", \"Lion\", \"SGD\" or \"Muon\""}},
    {"onecycle_of_pytorch",
     "{\"scheduler\": {\"type\": \"OneCycleLR\", \"params\": {}}}",
     ZOFF_ERR_UNSUPPORTED,
     "ds.json:1:24: scheduler.type: ",
     {"\"OneCycleLR\" is not supported", "\"OneCycle\" or \"LRRangeTest\"", "not those of PyTorch"}},
    {"two_refusals",
     "{\"amp\":  {\"enabled\": true},\n\"zero_optimization\": {\"zero_quantized_weights\": true}}",
     ZOFF_ERR_UNSUPPORTED,
     "ds.json:1:22: amp.enabled: ",
     {"refused too: zero_optimization.zero_quantized_weights (2:23)"}},
    {"cpu_offload_twice",
     "{\"zero_optimization\": {\"cpu_offload\": true,\n \"offload_optimizer\": {}}}",
     ZOFF_ERR_INVALID,
     "ds.json:1:24: zero_optimization.cpu_offload: ",
     {"zero_optimization.offload_optimizer", "ds.json:2:2"}},
    {"two_names",
     "{\"bf16\": {\"enabled\": true},\n\"bfloat16\": {\"enabled\": true}}",
     ZOFF_ERR_INVALID,
     "ds.json:2:1: bfloat16: ",
     {"another name of bf16", "ds.json:1:2"}},
    {"stage3_two_names",
     "{\"zero_optimization\": {\"stage3_max_reuse_distance\": 1, \"max_reuse_distance\": 1}}",
     ZOFF_ERR_INVALID,
     "ds.json:1:56: zero_optimization.max_reuse_distance: ",
     {"ds.json:1:24"}},
};

class config_errors : public testing::TestWithParam<error_case>
{
};

TEST_P(config_errors, say_where_what_and_what_was_expected)
{
    zoff_test::log_catcher log;
    std::string words = error_of(GetParam().text, GetParam().status);
    EXPECT_EQ(0u, words.find(GetParam().place)) << words;
    for (const char *part : GetParam().words)
        EXPECT_NE(std::string::npos, words.find(part)) << "missing: " << part << "\nin: " << words;
}

INSTANTIATE_TEST_SUITE_P(each, config_errors, testing::ValuesIn(ERRORS),
                         [](const testing::TestParamInfo<error_case> &which) { return std::string(which.param.name); });

TEST(config_parse, comments_and_trailing_commas_keep_lines_and_columns)
{
    zoff_test::log_catcher log;
    auto config = resolved("// a \"remark\" with { and ,\n"
                           "{ # another\n"
                           "  /* over\n two lines */ \"steps_per_print\": 7, // seven\n"
                           "  \"optimizer\": {\"params\": {\"betas\": [0.5, 0.75, /* x */ ], \"lr\": 2, # y\n }, },\n"
                           "  \"zoff\": {\"nvme_paths\": \"/a//b#c/*d*/,\"},\n"
                           "}\n// end");
    EXPECT_EQ(7, number(config, "steps_per_print"));
    EXPECT_EQ(2, number(config, "optimizer.params.lr"));
    EXPECT_EQ("/a//b#c/*d*/,", word(config, "zoff.nvme_paths"));
    EXPECT_EQ(0.75, values(config).hyper.beta2);
    EXPECT_STREQ("ds.json:4:15", zoff_config_source(config.get(), "steps_per_print"));
    EXPECT_STREQ("ds.json:5:60", zoff_config_source(config.get(), "optimizer.params.lr"));
}

TEST(config_parse, columns_count_characters_not_bytes)
{
    EXPECT_EQ(0u, error_of("{\"_\": \"\xC3\xA4\xE2\x82\xAC\", \"wd\": 1}").find("ds.json:1:13: wd: "));
    EXPECT_EQ(0u, error_of("\xEF\xBB\xBF{\"wd\": 1}").find("ds.json:1:2: wd: "));
    EXPECT_EQ(0u, error_of("{\r\n\t\"wd\": 1}").find("ds.json:2:2: wd: "));
}

TEST(config_parse, remarks_are_keys_too_and_may_repeat)
{
    zoff_test::log_catcher log;
    resolved("{\"_note\": {\"a\": 1}, \"//\": 1, \"//\": {\"b\": 2}, \"// x\": null, \"#\": [1], "
             "\"bf16\": {\"_why\": 1, \"enabled\": true, \"_why\": {\"x\": [{}]}}}");
}

TEST(config_parse, ignored_keys_come_in_one_warning)
{
    zoff_test::log_catcher log;
    log.expect("ds.json: known keys that zoff ignores");
    resolved(
        "{\"tensorboard\": {\"enabled\": true, \"whatever\": {}}, \"wall_clock_breakdown\": 3,\n "
        "\"zero_optimization\": {\"overlap_comm\": \"yes\", \"max_reuse_distance\": 1}, \"amp\": {\"opt_level\": \"O1\"}}");
    EXPECT_EQ(1u, log.warnings.size());
    EXPECT_TRUE(log.contains("tensorboard (1:2), wall_clock_breakdown (1:52), "
                             "zero_optimization.overlap_comm (2:24), zero_optimization.max_reuse_distance (2:47), "
                             "amp.opt_level (2:81)"))
        << log.warnings[0];
}

TEST(config_parse, a_long_list_of_ignored_keys_is_cut_with_a_count)
{
    zoff_test::log_catcher log;
    log.expect(" more");
    std::string text = "{\"amp\": {\"k0\": 0";
    for (int i = 1; i < 5000; i++)
        text += ", \"k" + std::to_string(i) + "\": 0";
    parse(text + "}}");
    ASSERT_EQ(1u, log.warnings.size());
    EXPECT_LT(log.warnings[0].size(), 4000u);
}

TEST(config_parse, sections_that_ask_for_nothing_are_fine)
{
    zoff_test::log_catcher log;
    resolved("{\"quantize_training\": {\"enabled\": false, \"bits\": 3}, \"progressive_layer_drop\": {}, \"sparse_attention\": "
             "null, "
             "\"zero_optimization\": {\"zenflow\": null, \"offload_param\": {\"device\": \"none\"}, \"ratio\": 1}, "
             "\"fp16\": {\"enabled\": \"auto\"}, \"optimizer\": null, \"scheduler\": \"auto\", \"zoff\": {\"strict\": false}}");
    log.expect("zero_optimization.ratio (1:");
}

// Files in use have some of their trainer at the top level, where DeepSpeed ignores what it does not know.
TEST(config_parse, stray_keys_of_the_top_level_are_a_warning)
{
    zoff_test::log_catcher log;
    log.expect("ds.json: unknown keys, which have no effect: num_gpus (1:2), num_nodes (1:17), backend (1:33), logging (2:1), "
               "seed (2:23)");
    auto config = resolved("{\"num_gpus\": 8, \"num_nodes\": 1, \"backend\": \"nccl\",\n"
                           "\"logging\": {\"lr\": 1}, \"seed\": 42, \"fp16\": {\"enabled\": true, \"opt_level\": \"O2\", "
                           "\"dynamic_loss_scale\": true}}");
    log.expect("known keys that zoff ignores (`zoff reference` says why): fp16.opt_level (2:61), fp16.dynamic_loss_scale (2:");
    EXPECT_EQ(2u, log.warnings.size());
    // A slip of a known key is none of them, also where that key is refused; nor is a key of a section.
    for (const char *slip : {"optimzer", "compresion_training", "quantise_training", "learning_rate", "zero_stage"})
        EXPECT_NE("", error_of(nest(slip, "{}"))) << slip;
    EXPECT_NE("", error_of("{\"bf16\": {\"backend\": 1}}"));
}

TEST(config_parse, strict_false_turns_unknown_keys_into_a_warning)
{
    zoff_test::log_catcher log;
    log.expect("unknown keys, which have no effect (zoff.strict is false): frobnicate (1:2), optimizer.tpye (1:40)");
    auto config = resolved("{\"frobnicate\": {\"x\": 1}, \"optimizer\": {\"tpye\": 1}, \"zoff\": {\"strict\": false}}");
    EXPECT_EQ(0, number(config, "zoff.strict"));
    // A refused configuration stays refused.
    EXPECT_NE("", error_of("{\"amp\": {\"enabled\": true}, \"zoff\": {\"strict\": false}}", ZOFF_ERR_UNSUPPORTED));
}

TEST(config_parse, aio_nested_and_at_the_top)
{
    zoff_test::log_catcher log;
    auto nested = resolved("{\"zero_optimization\": {\"aio\": {\"block_size\": 8388608, \"queue_depth\": 4}}}");
    EXPECT_EQ(8388608u, values(nested).aio_block_bytes);
    EXPECT_EQ(4u, values(nested).aio_depth);
    log.expect("aio.queue_depth is given twice");
    const char *both[] = {
        "{\"aio\": {\"queue_depth\": 64}, \"zero_optimization\": {\"aio\": {\"queue_depth\": 4, \"block_size\": 8192}}}",
        "{\"zero_optimization\": {\"aio\": {\"queue_depth\": 4, \"block_size\": 8192}}, \"aio\": {\"queue_depth\": 64}}"};
    for (const char *text : both) {
        auto config = resolved(text);
        EXPECT_EQ(64u, values(config).aio_depth) << text;
        EXPECT_EQ(8192u, values(config).aio_block_bytes) << text;
    }
    EXPECT_EQ(2u, log.warnings.size());
}
} // namespace
