/* SPDX-License-Identifier: Apache-2.0 */
// people_test.cc: values in files of DeepSpeed's users that zoff once refused: zeros, "never", scaling keys under bf16,
// disabled parts. Also: one report names all misspelt keys.
#include "config_helpers.h"

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
        if (strncmp(key, "zero", 4) != 0 || strstr(key, "buffer_count"))
            EXPECT_NE("", error_of(nest(key, "0.5")));
        else
            EXPECT_EQ(0, number(resolved(nest(key, "0.5")), key)) << "a size in elements, which a script has computed";
    }
    EXPECT_EQ(9007199254740993, [] {
        auto config = resolved(nest("steps_per_print", "9007199254740993"));
        return std::stoll(dump(config).substr(dump(config).find("steps_per_print = ") + 18));
    }()) << "to the last digit";
}

// An engine with these zeros works, and has chunks of the size of its largest slice.
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

// One report names all of them, each with its place and the likely key.
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
        error_of("{\"amp\": {\"enabled\": true}, \"clip\": 1, \"optimiser\": {}}", ZOFF_ERR_UNSUPPORTED);
    EXPECT_NE(
        std::string::npos,
        refused.find(
            "; not known: clip (1:28, did you mean \"gradient_clipping\"?), optimiser (1:39, did you mean \"optimizer\"?)"))
        << refused;
    std::string many = "{\"optimizer\": {\"k0\": 0";
    for (int i = 1; i < 3000; i++)
        many += ", \"k" + std::to_string(i) + "\": 0";
    const std::string cut = error_of(many + "}}");
    EXPECT_LT(cut.size(), 2000u);
    EXPECT_NE(std::string::npos, cut.find(" more")) << cut;
}
} // namespace
