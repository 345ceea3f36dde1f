/* SPDX-License-Identifier: Apache-2.0 */
// mutation_test.cc: files with every truncation, and with every byte replaced: never a crash, always a configuration or an
// error with a text. tests/fuzz/config_fuzz.cc changes them at random.
#include "config_helpers.h"

using namespace config_test;

namespace
{
const char *const SEEDS[] = {
    R"({ "train_batch_size": 8, // eight
  "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95,], "eps": "1e-8"},},
  /* a
     remark */ "scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 100, "warmup_num_steps": 10}},
  "bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 0}, "gradient_clipping": "auto",
  "zero_optimization": {"stage": 2, "overlap_comm": true, "aio": {"queue_depth": 8},
    "offload_optimizer": {"device": "nvme", "nvme_path": ["/a", "/b\u00e4\\"], "buffer_count": 4}},
  "zoff": {"host_memory": "64MiB", "strict": false}, "_note": [[], {}, null, -1.5e-3], "what": {"is": "this"} })",
    R"({"sequence_parallel_size": 2, "zero_optimization": true, "aio": {"block_size": "1MiB"}, "data_types": {"grad_accum_dtype": "fp32"}})",
    "\xEF\xBB\xBF{\"optimizer\":{\"params\":{\"lr\":1}},\"optimizer\":{\"type\":\"Adam\"}}",
    "{\"a\":[[[[{\"b\":{\"c\":[{}]}}]]]],\"zoff\":{\"strict\":false}}",
};

// All questions to a configuration, so that every part of a damaged one is read.
void use(const std::string &text)
{
    zoff_config *raw = nullptr;
    zoff_status status = zoff_test::config_from_text(text.data(), text.size(), "ds.json", &raw);
    if (status != ZOFF_OK) {
        ASSERT_TRUE(status == ZOFF_ERR_INVALID || status == ZOFF_ERR_UNSUPPORTED) << status;
        ASSERT_EQ(0, strncmp(zoff_last_error(), "ds.json:", 8)) << zoff_last_error();
        ASSERT_EQ(nullptr, raw);
        return;
    }
    zoff_test::config config(raw);
    for (unsigned ranks : {1u, 3u}) {
        status = zoff_config_resolve(raw, ranks);
        ASSERT_TRUE(status == ZOFF_OK || *zoff_last_error());
        if (status == ZOFF_OK) {
            dump(config);
            values(config, ranks);
        }
    }
}

class quiet
{
  public:
    quiet()
    {
        zoff_log_set([](zoff_log_level, const char *, const char *, void *) {}, nullptr);
    }
    ~quiet() { zoff_log_set(nullptr, nullptr); }
};

TEST(config_mutation, every_truncation)
{
    quiet log;
    for (const char *seed : SEEDS) {
        std::string text = seed;
        for (size_t length = 0; length <= text.size(); length++) {
            // A copy of exactly this size: a read behind it is detected.
            std::string cut(text.data(), length);
            cut.shrink_to_fit();
            ASSERT_NO_FATAL_FAILURE(use(cut)) << cut;
        }
    }
}

TEST(config_mutation, every_byte_replaced)
{
    quiet log;
    for (const char *seed : SEEDS) {
        std::string text = seed;
        for (size_t i = 0; i < text.size(); i++) {
            for (char c : {'"', '\\', '{', '}', '[', ']', ',', ':', '/', '*', '#', '\n', '\0', '\xff', '0', 'e', '-'}) {
                std::string changed = text;
                changed[i] = c;
                ASSERT_NO_FATAL_FAILURE(use(changed)) << changed;
            }
        }
    }
}
} // namespace
