/* SPDX-License-Identifier: Apache-2.0 */
// mutation_test.cc: truncated and damaged files: never a crash, always a configuration or an error with a text. Run it under
// the sanitizers.
#include "config_helpers.h"

#include <random>

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

TEST(config_mutation, random_damage)
{
    quiet log;
    std::mt19937 random(20240229); // the same damage in every run
    auto below = [&](size_t limit) { return limit ? random() % limit : 0; };
    for (int round = 0; round < 20000; round++) {
        std::string text = SEEDS[below(sizeof SEEDS / sizeof SEEDS[0])];
        for (size_t edits = 1 + below(6); edits > 0; edits--) {
            size_t at = below(text.size()), length = below(12);
            switch (below(5)) {
            case 0:
                text[at] = (char)random();
                break;
            case 1:
                text[at] = (char)(text[at] ^ (1 << below(8)));
                break;
            case 2:
                text.erase(at, length);
                break;
            case 3:
                text.insert(at, text.substr(below(text.size()), length));
                break;
            default:
                text.insert(at, 1, "{}[]\",:/#*\\"[below(11)]);
            }
            if (text.empty())
                break;
        }
        ASSERT_NO_FATAL_FAILURE(use(text)) << "round " << round << ": " << text;
    }
}

TEST(config_mutation, random_sets)
{
    quiet log;
    std::mt19937 random(7);
    auto config = parse("{}");
    const char *keys[] = {"optimizer.params.lr", "optimizer.params.betas", "zoff.nvme_paths",  "zoff.host_memory",
                          "optimizer.type",      "bf16.enabled",           "train_batch_size", "quantize_training",
                          "tensorboard",         "zero_optimization.stage"};
    for (int round = 0; round < 20000; round++) {
        std::string value;
        for (size_t length = random() % 12; length > 0; length--)
            value += "{}[]\",:/#*\\0123456789.eE-+ MiBGTkabcntruefls\xff\xc3\xa4"[random() % 48];
        zoff_status status = zoff_config_set(config.get(), keys[random() % 10], value.c_str());
        ASSERT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_INVALID || status == ZOFF_ERR_UNSUPPORTED) << value;
        if (status == ZOFF_OK && zoff_config_resolve(config.get(), 1) == ZOFF_OK)
            dump(config);
    }
}
} // namespace
