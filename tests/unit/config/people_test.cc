// people_test.cc: what files of DeepSpeed's users say that zoff once refused: zeros, "never", scaling keys under bf16, parts
// that are switched off; and the words for what is misspelt or misnamed.
#include "config_helpers.h"

extern "C" {
#include "config_priv.h"
#include "nearest_priv.h"
}

using namespace config_test;

namespace
{
// DeepSpeed's own types: an integer from 0 on, of any size.
TEST(config_people, zero_and_never_are_legal_where_deepspeed_has_them)
{
    for (const char *key :
         {"steps_per_print", "scheduler.params.warmup_num_steps", "scheduler.params.total_num_steps",
          "scheduler.params.cycle_second_step_size", "scheduler.params.cycle_first_stair_count",
          "scheduler.params.decay_step_size", "zero_optimization.sub_group_size", "zero_optimization.reduce_bucket_size",
          "zero_optimization.stage3_max_live_parameters", "zero_optimization.stage3_prefetch_bucket_size",
          "zero_optimization.stage3_param_persistence_threshold", "zero_optimization.stage3_model_persistence_threshold",
          "zero_optimization.offload_optimizer.buffer_count", "zero_optimization.offload_param.buffer_count",
          "zero_optimization.offload_param.buffer_size", "zero_optimization.offload_param.max_in_cpu"}) {
        SCOPED_TRACE(key);
        for (const char *text : {"0", "0.0", "\"0\"", "20000000000000000", "2e16", "9223372036854775807", "1e20",
                                 "100000000000000000000", "\"1e300\""}) {
            zoff_test::log_catcher log;
            if (strncmp(key, "scheduler", 9) == 0)
                log.expect("without scheduler.type");
            EXPECT_GE(number(resolved(nest(key, text)), key), 0) << text;
        }
        EXPECT_NE("", error_of(nest(key, "-1")));
        EXPECT_NE("", error_of(nest(key, "0.5")));
    }
    EXPECT_EQ(9007199254740993, [] {
        auto config = resolved(nest("steps_per_print", "9007199254740993"));
        return std::stoll(dump(config).substr(dump(config).find("steps_per_print = ") + 18));
    }()) << "to the last digit";
}

TEST(config_people, what_zero_means)
{
    auto with = [](const char *key, const char *value) { return values(parse(nest(key, value))); };
    EXPECT_EQ(0u, with("zero_optimization.sub_group_size", "0").chunk_elements) << "the largest slice";
    EXPECT_EQ(0u, with("zero_optimization.reduce_bucket_size", "0").bucket_elements) << "the largest slice";
    EXPECT_EQ(2u, with("zero_optimization.offload_optimizer.buffer_count", "0").slots);
    EXPECT_EQ(2u, with("zero_optimization.offload_param.buffer_count", "1").weights.slots);
    EXPECT_EQ(1024u, with("zero_optimization.offload_param.buffer_count", "1e20").weights.slots);
    EXPECT_EQ(1024u, with("zero_optimization.offload_param.buffer_size", "0").weights.chunk_count);
    const zoff_config_values none = with("zero_optimization.stage3_max_live_parameters", "0");
    EXPECT_EQ(0u, none.weights.live_count);
    EXPECT_EQ(0u, none.weights.ahead_count) << "nothing is read ahead";
    EXPECT_EQ(0, with("gradient_clipping", "-1").clip_norm);
    EXPECT_EQ(0, with("gradient_clipping", "0").clip_norm);
    // No count makes a size of memory overflow.
    EXPECT_LE(with("zero_optimization.stage3_max_live_parameters", "9223372036854775807").weights.live_count, 1ull << 53);
    auto config = parse("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 0}}}");
    EXPECT_EQ(2u, values(config).schedule.warmup);
}

// An engine that is made by these zeros works, and has chunks of the size of its largest slice.
TEST(config_people, engines_of_zeros)
{
    zoff_config *config = parse("{\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 0, \"reduce_bucket_size\": 0, "
                                "\"stage3_max_live_parameters\": 0, \"stage3_param_persistence_threshold\": 0}}")
                              .release();
    zoff_engine_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.config = config;
    zoff_engine *e = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(&opts, &e));
    zoff_config_close(config);
    std::vector<float> weights(3 * 5000, 1.0f), grads(3 * 5000, 0.25f);
    zoff_param_desc desc = {};
    desc.struct_size = sizeof desc;
    desc.count = 5000;
    desc.slices = 3;
    desc.dtype = ZOFF_F32;
    desc.value = weights.data();
    desc.engine_owned = true;
    zoff_param kept, small;
    ASSERT_ZOFF_OK(zoff_engine_add_param(e, &desc, &kept));
    std::vector<float> bias(64), bias_grads(64, 1.0f);
    desc.count = 64;
    desc.slices = 1;
    desc.value = bias.data();
    desc.grad = bias_grads.data();
    desc.engine_owned = false;
    ASSERT_ZOFF_OK(zoff_engine_add_param(e, &desc, &small));
    ASSERT_ZOFF_OK(zoff_engine_seal(e));
    zoff_plan_info info = {};
    info.struct_size = sizeof info;
    ASSERT_ZOFF_OK(zoff_engine_plan(e, &info));
    EXPECT_GE(info.chunk_count, 3u) << "chunks are no larger than the largest slice";
    EXPECT_LE(info.chunk_bytes, (5000u + 2048) * 12);
    for (size_t slice = 0; slice < 3; slice++) {
        const void *at = nullptr;
        ASSERT_ZOFF_OK(zoff_param_fetch(e, kept, slice, nullptr, &at));
        EXPECT_EQ(1.0f, *(const float *)at);
        ASSERT_ZOFF_OK(zoff_param_release(e, kept, slice, nullptr));
    }
    EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
    EXPECT_LT(bias[0], 0);
    zoff_engine_destroy(e);
}

TEST(config_people, scaling_keys_under_bf16_are_ignored_with_the_one_warning)
{
    zoff_test::log_catcher log;
    log.expect("known keys that zoff ignores");
    auto config =
        resolved("{\"bf16\": {\"enabled\": true, \"auto_cast\": false, \"loss_scale\": 0, \"initial_scale_power\": 16, "
                 "\"loss_scale_window\": 1000, \"hysteresis\": 2, \"consecutive_hysteresis\": false, "
                 "\"min_loss_scale\": 1}, \"log\": {\"level\": 3}, \"comms_config\": {}, \"vocabulary_size\": 50257}");
    ASSERT_EQ(1u, log.warnings.size());
    for (const char *key : {"bf16.loss_scale (", "bf16.min_loss_scale (", "log (", "comms_config (", "vocabulary_size ("})
        EXPECT_TRUE(log.contains(key)) << key;
    EXPECT_FALSE(values(config).fp16.enabled);
}

TEST(config_people, compression_with_every_part_disabled_is_none)
{
    const std::string quantize = "\"weight_quantization\": {\"shared_parameters\": {\"enabled\": ",
                      different = ", \"quantizer_kernel\": false, \"schedule_offset\": 0}, \"different_groups\": {\"wq1\": "
                                  "{\"params\": {\"start_bits\": 8}}}}";
    zoff_test::log_catcher log;
    resolved("{\"compression_training\": {" + quantize + "false" + different +
             ", \"sparse_pruning\": {\"shared_parameters\": {\"method\": \"l1\"}, \"different_groups\": {}}, "
             "\"head_pruning\": {}, \"layer_reduction\": {\"enabled\": false, \"keep_number_layer\": 6}}}");
    resolved("{\"compression_training\": {\"_note\": \"off\", \"layer_reduction\": {\"enabled\": false}}}");
    for (const std::string &part : {quantize + "true" + different, std::string("\"layer_reduction\": {\"enabled\": true}"),
                                    std::string("\"layer_reduction\": {\"enabled\": false}, \"bits\": 8")}) {
        EXPECT_NE(std::string::npos, error_of("{\"compression_training\": {" + part + "}}", ZOFF_ERR_UNSUPPORTED)
                                         .find("compression_training: this section is not supported"))
            << part;
    }
}

// All of them in one report, each with its place and what was perhaps meant.
TEST(config_people, all_unknown_keys_are_told_at_once)
{
    const std::string words = error_of("{\"learning_rate\": 1, \"optimizer\": {\"params\": {\"epsilon\": 2, \"xyzzy\": 3}},\n"
                                       "\"zero_optimization\": {\"offload_optimizer\": {\"path\": \"/x\"}}}");
    EXPECT_EQ(0u, words.find("ds.json:1:2: learning_rate: this key is not known")) << words;
    for (const char *part :
         {"did you mean \"optimizer.params.lr\"?; not known either: ",
          "optimizer.params.epsilon (1:47, did you mean \"optimizer.params.eps\"?)", "optimizer.params.xyzzy (1:61)",
          "zero_optimization.offload_optimizer.path (2:45, did you mean "
          "\"zero_optimization.offload_optimizer.nvme_path\"?)"})
        EXPECT_NE(std::string::npos, words.find(part)) << part << "\nin " << words;
    const std::string refused =
        error_of("{\"amp\": {\"enabled\": true}, \"frob\": 1, \"optimiser\": {}}", ZOFF_ERR_UNSUPPORTED);
    EXPECT_NE(std::string::npos, refused.find("; not known: frob (1:28), optimiser (1:39, did you mean \"optimizer\"?)"))
        << refused;
    std::string many = "{\"k0\": 0";
    for (int i = 1; i < 3000; i++)
        many += ", \"k" + std::to_string(i) + "\": 0";
    const std::string cut = error_of(many + "}");
    EXPECT_LT(cut.size(), 2000u);
    EXPECT_NE(std::string::npos, cut.find(" more")) << cut;
}

TEST(config_people, names_of_other_programs)
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

TEST(config_people, nothing_that_is_refused_is_proposed_and_nothing_for_a_long_word)
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
        EXPECT_EQ(std::string::npos, error_of("{\"" + std::string(length, 'a') + "\": 1}").find("did you mean"));
        EXPECT_EQ(std::string::npos,
                  error_of(nest("optimizer.type", "\"" + std::string(length, 'A') + "\"")).find("did you mean"));
    }
}

// What the program has set counts already while a file is read.
TEST(config_read, what_was_set_before_lifts_what_the_file_would_be_refused_for)
{
    const std::string text =
        "{\"frob\": 1, \"optimizer\": {\"type\": \"Lamb\"}, \"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}";
    zoff_test::log_catcher log;
    auto config = parse("{}");
    auto read = [&](zoff_status expected, const char *words) {
        EXPECT_EQ(expected, zoff_config_read_text(config.get(), text.data(), text.size(), "later.json")) << zoff_last_error();
        if (expected < 0) {
            EXPECT_NE(nullptr, strstr(zoff_last_error(), words)) << zoff_last_error();
        }
    };
    read(ZOFF_ERR_INVALID, "bf16.enabled is true too");
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "fp16.enabled", "false"));
    read(ZOFF_ERR_UNSUPPORTED, "\"Lamb\" is not supported");
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "optimizer.type", "AdamW"));
    read(ZOFF_ERR_INVALID, "later.json:1:2: frob: this key is not known");
    ASSERT_ZOFF_OK(zoff_config_resolve(config.get(), 1));
    EXPECT_EQ(0u, dump(config).find("# ds.json, ")) << "a refused file leaves no trace";
    EXPECT_EQ(0, number(config, "bf16.enabled"));
    ASSERT_ZOFF_OK(zoff_config_set(config.get(), "zoff.strict", "false"));
    log.expect("later.json: keys that are not known, let pass because zoff.strict is false: frob (1:2)");
    read(ZOFF_OK, "");
    zoff_config_values v = values(config);
    EXPECT_EQ(ZOFF_OPTIMIZER_ADAM, v.hyper.optimizer);
    EXPECT_TRUE(v.wants_bf16);
    EXPECT_FALSE(v.fp16.enabled);
    // Another file takes the place of the first.
    ASSERT_ZOFF_OK(zoff_config_read_text(config.get(), "{}", 2, nullptr));
    EXPECT_FALSE(values(config).wants_bf16);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "No such file", zoff_config_read(config.get(), "/nonexistent.json"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_read(nullptr, "x"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_read(config.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_read_text(config.get(), nullptr, 1, "x"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_read_text(nullptr, "{}", 2, "x"));
}
} // namespace
