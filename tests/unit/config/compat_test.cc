/* SPDX-License-Identifier: Apache-2.0 */
// compat_test.cc: 80 published configurations: each loads, or is refused for the reason in the table. If the batch sizes show a
// number of ranks, the file is resolved for that number.
#include "config_helpers.h"

#include <dirent.h>

#include <map>
#include <set>

using namespace config_test;

extern "C" {
#include "config.h"
}

namespace
{
enum verdict { LOADS, REFUSED, BROKEN };

struct file_case {
    const char *file;
    verdict expected;
    unsigned ranks;    // number of ranks, if the file loads
    const char *words; // words of the error or the warnings, with | between two; "": there are none
};

const char TEMPLATE[] = "is this a template whose placeholders have not been filled in?";

const file_case FILES[] = {
    // bf16 or fp32, Adam or AdamW or no optimizer, every stage: zoff's purpose.
    {"benchmarks_autosp_configs_torchcompile_config.json", LOADS, 1, "wall_clock_breakdown"},
    {"tests_accelerator_ds_config.json", LOADS, 1, ""},
    {"tests_torch_compile_ds_config_z2.json", LOADS, 8, "zero_optimization.overlap_comm"}, // 8 samples, 1 for each rank
    {"training_BingBertGlue_glue_bert_base.json", LOADS, 4, ""},                           // 32 = 1 * 8 * 4
    {"training_autotuning_hf_bert-base_ds_config_tune.json", LOADS, 1, "autotuning"},
    {"training_autotuning_hf_bert-large_ds_config_tune.json", LOADS, 1, "autotuning"},
    {"training_autotuning_hf_dsconfigs_ds_config_tune.json", LOADS, 1, "autotuning"},
    {"training_autotuning_hf_dsconfigs_ds_config_z0.json", LOADS, 1, ""},
    {"training_autotuning_hf_dsconfigs_ds_config_z1.json", LOADS, 1, ""},
    {"training_autotuning_hf_dsconfigs_ds_config_z2.json", LOADS, 1, ""},
    {"training_gan_gan_deepspeed_config.json", LOADS, 1, ""},
    {"training_imagenet_config_ds_config.json", LOADS, 8, "zero_allow_untested_optimizer"}, // 256 = 32 * 1 * 8
    {"training_pipeline_parallelism_ds_config.json", LOADS, 4, "wall_clock_breakdown"},     // 256 = 8 * 8 * 4
    // random-LTD drops tokens in the model, which is the trainer's work.
    {"training_data_efficiency_gpt_finetuning_config_ds_config_gpt_base_random_ltd.json", LOADS, 1, "data_efficiency"},
    {"training_data_efficiency_gpt_finetuning_config_ds_config_gpt_medium_random_ltd.json", LOADS, 1, "data_efficiency"},
    {"training_data_efficiency_vit_finetuning_config_ds_config_cifar_random_ltd.json", LOADS, 1, "data_efficiency"},
    {"training_data_efficiency_vit_finetuning_config_ds_config_imagenet_random_ltd.json", LOADS, 1, "data_efficiency"},
    // Sequence parallelism changes the meaning of a batch.
    {"benchmarks_autosp_configs_autosp_config.json", REFUSED, 0, "sequence_parallel_size: 2 is not supported"},
    // Stage 3 with weights off the device.
    {"examples_sdma_allgather_ds_config_zero3.json", LOADS, 4, "stage3_max_reuse_distance"},
    {"inference_sglang_ds_offload_cpu.json", LOADS, 1, "offload_param.pin_memory"},
    {"inference_sglang_ds_offload_nvme_aio.json", LOADS, 1, "aio.intra_op_parallelism"},
    {"inference_sglang_ds_offload_nvme_gds.json", LOADS, 1, "aio.use_gds"},
    {"tests_torch_compile_ds_config_z3.json", LOADS, 8, "zero_optimization.overlap_comm"},
    {"tests_torch_compile_ds_config_z3_deepcompile_no_persist.json", LOADS, 8, "compile"},
    {"training_autotuning_hf_dsconfigs_ds_config_z3.json", LOADS, 1, ""},
    {"training_bf16_master_weight_configs_baseline.json", LOADS, 2, "zero_optimization.overlap_comm"},
    {"training_autotuning_hf_dsconfigs_ds_config_fp16_z3.json", LOADS, 1, ""},
    {"training_bf16_master_weight_configs_bf16_full.json", REFUSED, 0,
     "bf16.bf16_master_weights_and_grads: true is not supported"},
    {"tests_hybrid_engine_hybrid_engine_config.json", LOADS, 1,
     "wall_clock_breakdown|zero_optimization.offload_param.device \"cpu\" has no effect"},
    // fp16, with a loss scale.
    {"tests_model_Megatron_GPT2_ds_config_func_bs4_zero1.json", LOADS, 1, ""},
    {"tests_model_Megatron_GPT2_ds_config_func_bs4_zero2.json", LOADS, 1, "zero_optimization.reduce_scatter"},
    {"tests_model_Megatron_GPT2_ds_config_func_bs4_zero2_offload.json", LOADS, 1, "zero_optimization.reduce_scatter"},
    {"tests_model_Megatron_GPT2_ds_config_func_bs8_no_zero.json", LOADS, 1, ""},
    {"tests_model_Megatron_GPT2_ds_config_func_bs8_zero0_gas3.json", LOADS, 1, "zero_optimization.reduce_scatter"},
    {"tests_model_Megatron_GPT2_ds_config_func_bs8_zero1.json", LOADS, 1, ""},
    {"tests_model_Megatron_GPT2_ds_config_func_bs8_zero2.json", LOADS, 1, "zero_optimization.reduce_scatter"},
    {"tests_model_Megatron_GPT2_ds_config_func_bs8_zero2_gas3.json", LOADS, 1, "zero_optimization.reduce_scatter"},
    {"tests_model_Megatron_GPT2_ds_config_func_bs8_zero2_offload.json", LOADS, 1, "zero_optimization.reduce_scatter"},
    {"tests_model_Megatron_GPT2_ds_config_func_scheduler.json", LOADS, 1, ""},
    {"tests_model_Megatron_GPT2_ds_config_perf_bs16.json", LOADS, 1, "disable_allgather"},
    {"tests_model_Megatron_GPT2_ds_config_perf_bs32.json", LOADS, 1, "disable_allgather"},
    {"tests_model_Megatron_GPT2_ds_config_perf_bs8.json", LOADS, 1, "disable_allgather"},
    {"tests_unit_ds_batch_config.json", LOADS, 1, ""},
    {"training_autotuning_hf_deberta_ds_config_fp16_tune.json", LOADS, 1, "autotuning"},
    {"training_autotuning_hf_dsconfigs_ds_config_fp16_tune.json", LOADS, 1, "autotuning"},
    {"training_autotuning_hf_dsconfigs_ds_config_fp16_z0.json", LOADS, 1, ""},
    {"training_autotuning_hf_dsconfigs_ds_config_fp16_z1.json", LOADS, 1, ""},
    {"training_autotuning_hf_dsconfigs_ds_config_fp16_z2.json", LOADS, 1, ""},
    {"training_imagenet_config_ds_fp16_config.json", LOADS, 1, "fp16.auto_cast"},
    {"training_imagenet_config_ds_fp16_z1_config.json", LOADS, 1, "fp16.auto_cast"},
    // Adam without bias correction, most of them in fp16.
    {"tests_model_BingBertSquad_deepspeed_bsz24_fp16_config.json", LOADS, 1, ""},
    {"tests_model_BingBertSquad_deepspeed_bsz24_fp16_eigenvalue_quantize_config.json", REFUSED, 0,
     "quantize_training: this section is not supported"},
    {"tests_model_BingBertSquad_deepspeed_bsz24_fp16_zero2_config.json", LOADS, 1, ""},
    {"tests_model_BingBertSquad_deepspeed_bsz24_fp32_config.json", LOADS, 1, ""},
    {"training_BingBertSquad_deepspeed_bsz24_config.json", LOADS, 1, ""},
    {"training_bing_bert_deepspeed_bsz4k_progressive_layer_drop_config_seq128.json", REFUSED, 0,
     "progressive_layer_drop: this section is not supported"},
    {"training_bing_bert_glue_bert_base.json", LOADS, 1, ""},
    {"training_bing_bert_glue_bert_large.json", LOADS, 1, ""},
    // Other optimizers, and features over several ranks.
    {"training_BingBertSquad_1-bit_adam_mpi_ethernet_deepspeed_onebitadam_bsz96_config.json", REFUSED, 0,
     "\"OneBitAdam\" is not supported"},
    {"training_BingBertSquad_1-bit_adam_mpi_infiniband_deepspeed_onebitadam_bsz96_config.json", REFUSED, 0,
     "\"OneBitAdam\" is not supported"},
    {"training_BingBertSquad_1-bit_adam_nccl_deepspeed_onebitadam_bsz96_config.json", REFUSED, 0,
     "\"OneBitAdam\" is not supported"},
    {"training_bing_bert_01_adam_mpi_ethernet_deepspeed_bsz4k_01adam_config_seq128_mpi_ethernet.json", REFUSED, 0,
     "\"ZeroOneAdam\" is not supported"},
    {"training_bing_bert_01_adam_mpi_ethernet_deepspeed_bsz4k_01adam_config_seq512_mpi_ethernet.json", REFUSED, 0,
     "\"ZeroOneAdam\" is not supported"},
    {"training_bing_bert_1-bit_adam_mpi_ethernet_deepspeed_bsz4k_onebitadam_config_seq128_mpi_ethernet.json", REFUSED, 0,
     "\"OneBitAdam\" is not supported"},
    {"training_bing_bert_1-bit_adam_mpi_infiniband_deepspeed_bsz4k_onebitadam_config_seq128_mpi_infiniband.json", REFUSED, 0,
     "\"OneBitAdam\" is not supported"},
    {"training_bing_bert_1-bit_adam_nccl_deepspeed_bsz4k_onebitadam_config_seq128_nccl.json", REFUSED, 0,
     "\"OneBitAdam\" is not supported"},
    {"training_bing_bert_1-bit_lamb_mpi_ethernet_deepspeed_bsz32k_onebitlamb_config_seq512_mpi_ethernet.json", REFUSED, 0,
     "\"OneBitLamb\" is not supported"},
    {"training_bing_bert_1-bit_lamb_mpi_ethernet_deepspeed_bsz64k_onebitlamb_config_seq128_mpi_ethernet.json", REFUSED, 0,
     "\"OneBitLamb\" is not supported"},
    {"training_bing_bert_1-bit_lamb_mpi_infiniband_deepspeed_bsz32k_onebitlamb_config_seq512_mpi_infiniband.json", REFUSED, 0,
     "\"OneBitLamb\" is not supported"},
    {"training_bing_bert_1-bit_lamb_mpi_infiniband_deepspeed_bsz64k_onebitlamb_config_seq128_mpi_infiniband.json", REFUSED, 0,
     "\"OneBitLamb\" is not supported"},
    {"training_bing_bert_1-bit_lamb_nccl_deepspeed_bsz32k_onebitlamb_config_seq512_nccl.json", REFUSED, 0,
     "\"OneBitLamb\" is not supported"},
    {"training_bing_bert_1-bit_lamb_nccl_deepspeed_bsz64k_onebitlamb_config_seq128_nccl.json", REFUSED, 0,
     "\"OneBitLamb\" is not supported"},
    {"training_bing_bert_deepspeed_bsz32k_lamb_config_seq512.json", REFUSED, 0, "\"Lamb\" is not supported"},
    {"training_bing_bert_deepspeed_bsz64k_lamb_config_seq128.json", REFUSED, 0, "sparse_attention (24:3)"},
    {"training_DeepSpeed-ZenFlow_finetuning_zf_config.json", REFUSED, 0,
     "zero_optimization.zenflow: this section is not supported"},
    {"training_tensor_parallel_hf_integration_configs_ds_config.json", REFUSED, 0,
     "tensor_parallel.autotp_size: 4 is not supported"},
    // Not JSON: a script fills them in first.
    {"training_data_efficiency_gpt_finetuning_finetune_ds_config_gpt2-medium_1clmetric_TEMPLATE.json", BROKEN, 0, TEMPLATE},
    {"training_data_efficiency_gpt_finetuning_finetune_ds_config_gpt2-medium_2clmetrics_TEMPLATE.json", BROKEN, 0, TEMPLATE},
    {"training_data_efficiency_gpt_finetuning_finetune_ds_config_gpt2_TEMPLATE.json", BROKEN, 0, TEMPLATE},
    {"training_tensor_parallel_hf_integration_configs_ds_config_temp.json", BROKEN, 0, TEMPLATE},
};

std::set<std::string> files_present()
{
    std::set<std::string> found;
    if (DIR *folder = opendir(ZOFF_DS_CONFIGS)) {
        while (const dirent *entry = readdir(folder)) {
            std::string name = entry->d_name;
            if (name.size() > 5 && name.substr(name.size() - 5) == ".json")
                found.insert(name);
        }
        closedir(folder);
    }
    return found;
}

class config_compat : public testing::TestWithParam<file_case>
{
};

TEST_P(config_compat, loads_or_is_refused_for_a_reason)
{
    const file_case &c = GetParam();
    std::string path = std::string(ZOFF_DS_CONFIGS) + "/" + c.file;
    if (access(path.c_str(), R_OK) != 0)
        GTEST_SKIP() << path << " is not there: set ZOFF_DS_CONFIGS to the folder of real configurations";
    zoff_test::log_catcher log;
    zoff_config *raw = nullptr;
    zoff_status status = zoff_config_open(path.c_str(), &raw);
    zoff_test::config config(raw);
    if (c.expected != LOADS) {
        ASSERT_EQ(c.expected == REFUSED ? ZOFF_ERR_UNSUPPORTED : ZOFF_ERR_INVALID, status) << zoff_last_error();
        EXPECT_NE(nullptr, strstr(zoff_last_error(), c.words)) << zoff_last_error();
        EXPECT_EQ(0, strncmp(zoff_last_error(), (path + ":").c_str(), path.size() + 1)) << zoff_last_error();
        return;
    }
    ASSERT_EQ(ZOFF_OK, status) << zoff_last_error();
    std::stringstream words(c.words);
    size_t warnings = 0;
    for (std::string of_one; std::getline(words, of_one, '|'); warnings++)
        log.expect(of_one);
    ASSERT_ZOFF_OK(zoff_config_resolve(raw, c.ranks));
    zoff_config_values v = values(config, c.ranks);
    EXPECT_EQ(uint64_t{v.micro_batch} * v.accumulation * c.ranks, v.train_batch);
    EXPECT_GE(v.accumulation, 1u);
    EXPECT_EQ(warnings, log.warnings.size());
    EXPECT_NE("", dump(config));
}

INSTANTIATE_TEST_SUITE_P(each, config_compat, testing::ValuesIn(FILES), [](const testing::TestParamInfo<file_case> &which) {
    std::string name = which.param.file;
    for (char &c : name)
        c = isalnum((unsigned char)c) ? c : '_';
    return name.substr(0, name.size() - 5);
});

TEST(config_compat_table, has_every_file_and_no_other)
{
    std::set<std::string> present = files_present(), listed;
    if (present.empty())
        GTEST_SKIP() << ZOFF_DS_CONFIGS << " is not there: set ZOFF_DS_CONFIGS to the folder of real configurations";
    for (const auto &c : FILES)
        EXPECT_TRUE(listed.insert(c.file).second) << c.file << " twice";
    EXPECT_EQ(present, listed);
    EXPECT_EQ(80u, listed.size());
    size_t counts[3] = {};
    for (const auto &c : FILES)
        counts[c.expected]++;
    EXPECT_EQ(54u, counts[LOADS]);
    EXPECT_EQ(22u, counts[REFUSED])
        << "other optimizers, and what changes weights or spans several ranks of a layer or sequence";
    EXPECT_EQ(4u, counts[BROKEN]) << "templates";
}

// Values that people would check by hand, in one file of each kind.
TEST(config_compat_values, are_those_of_the_files)
{
    if (files_present().empty())
        GTEST_SKIP() << ZOFF_DS_CONFIGS << " is not there: set ZOFF_DS_CONFIGS to the folder of real configurations";
    auto open = [](const char *file, unsigned ranks) {
        zoff_test::log_catcher log;
        log.expect("");
        zoff_config *raw = nullptr;
        EXPECT_ZOFF_OK(zoff_config_open((std::string(ZOFF_DS_CONFIGS) + "/" + file).c_str(), &raw));
        zoff_test::config config(raw);
        return values(config, ranks);
    };
    zoff_config_values z2 = open("tests_torch_compile_ds_config_z2.json", 8);
    EXPECT_EQ(0.8, z2.hyper.beta1);
    EXPECT_EQ(3e-7, z2.hyper.weight_decay);
    EXPECT_EQ(ZOFF_DECAY_DECOUPLED, z2.hyper.decay);
    EXPECT_EQ(ZOFF_SCHEDULE_WARMUP, z2.schedule.type);
    EXPECT_EQ(1e-3, z2.schedule.max_lr);
    EXPECT_EQ(1000u, z2.schedule.warmup);
    EXPECT_TRUE(z2.wants_bf16);
    EXPECT_EQ(2u, z2.zero_stage);
    EXPECT_EQ(1u, z2.micro_batch);
    zoff_config_values imagenet = open("training_imagenet_config_ds_config.json", 8);
    EXPECT_EQ(0, imagenet.clip_norm);
    EXPECT_EQ(32u, imagenet.micro_batch);
    EXPECT_EQ(50u, imagenet.steps_per_print);
    zoff_config_values deberta = open("training_autotuning_hf_deberta_ds_config_fp16_tune.json", 1);
    EXPECT_TRUE(deberta.fp16.enabled);
    EXPECT_TRUE(deberta.fp16.dynamic);
    EXPECT_EQ(4096, deberta.fp16.scale);
    zoff_config_values autotune = open("training_autotuning_hf_bert-base_ds_config_tune.json", 1);
    EXPECT_EQ(0u, autotune.train_batch);
    EXPECT_EQ(1u, autotune.accumulation);
}

// The vision run on 16 cards that this file's batch sizes suggest: the order of the division matters here.
TEST(config_compat_ranks, prescaling_divides_by_their_number)
{
    std::string path =
        std::string(ZOFF_DS_CONFIGS) + "/training_data_efficiency_vit_finetuning_config_ds_config_imagenet_random_ltd.json";
    if (access(path.c_str(), R_OK) != 0)
        GTEST_SKIP() << path << " is not there: set ZOFF_DS_CONFIGS to the folder of real configurations";
    zoff_test::log_catcher log;
    log.expect("data_efficiency");
    zoff_config *raw = nullptr;
    ASSERT_ZOFF_OK(zoff_config_open(path.c_str(), &raw));
    zoff_test::config config(raw);
    EXPECT_ZOFF_OK(zoff_config_resolve(raw, 16));
    EXPECT_EQ(1, number(config, "gradient_accumulation_steps"));
    zoff_config_values values;
    ASSERT_ZOFF_OK(zoff_config_values_get(raw, 16, &values));
    EXPECT_EQ(1.0 / 16, values.grad_factor);
    EXPECT_ZOFF_OK(zoff_config_resolve(raw, 1));
    EXPECT_EQ(16, number(config, "gradient_accumulation_steps"));
}
} // namespace
