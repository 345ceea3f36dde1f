/* SPDX-License-Identifier: Apache-2.0 */
// config_fuzz.cc: the text of a configuration, or "KEY=VALUE" of zoff_config_set() in lines behind one. It becomes a
// configuration, or an error that names the place.
#include "fuzz.h"
#include "zoff_test.h"

extern "C" {
#include "config.h"
}

#include <string.h>

using namespace zoff_fuzz;

// All questions to a configuration, so that every part of it is read.
static void use(zoff_config *config)
{
    for (const unsigned ranks : {1u, 3u}) {
        if (zoff_config_resolve(config, ranks) < 0) {
            require(*zoff_last_error(), "a refused configuration has a reason");
            continue;
        }
        size_t bytes = 0, again = 0;
        require(zoff_config_dump(config, nullptr, 0, &bytes) == ZOFF_OK, "the dump has a size");
        std::string text(bytes + 1, '?');
        require(zoff_config_dump(config, text.data(), text.size(), &again) == ZOFF_OK && bytes == again && !text[bytes],
                "the dump has that size");
        zoff_config_values values;
        require(zoff_config_values_get(config, ranks, &values) == ZOFF_OK, "a resolved configuration has values");
        accept();
    }
}

// A line end behind a zero byte begins the lines of zoff_config_set().
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    quiet_output();
    const auto *behind = bytes ? (const uint8_t *)memchr(data, 0, bytes) : nullptr;
    const size_t count = behind && behind[1 < (size_t)(data + bytes - behind)] == '\n' ? (size_t)(behind - data) : bytes;
    zoff_config *config = nullptr;
    const std::vector<char> exact(data, data + count);
    const zoff_status status = zoff_test::config_from_text(exact.data(), count, "ds.json", &config);
    if (status != ZOFF_OK) {
        require(status == ZOFF_ERR_INVALID || status == ZOFF_ERR_UNSUPPORTED, "the text is invalid or not supported");
        require(strncmp(zoff_last_error(), "ds.json:", 8) == 0, "the error names the text");
        require(!config, "there is no configuration after an error");
        return 0;
    }
    std::string lines(data + count, data + bytes);
    for (size_t at = lines.find('\n'); at != std::string::npos; at = lines.find('\n', at + 1)) {
        const std::string line = lines.substr(at + 1, lines.find('\n', at + 1) - at - 1);
        const size_t equals = line.find('=');
        if (equals != std::string::npos)
            (void)zoff_config_set(config, line.substr(0, equals).c_str(), line.substr(equals + 1).c_str());
    }
    use(config);
    zoff_config_close(config);
    return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t bytes, size_t most, unsigned seed)
{
    static const std::vector<std::string> WORDS = {"\"auto\"",
                                                   "\"64MiB\"",
                                                   "\"99999999999999TiB\"",
                                                   "\"-1GiB\"",
                                                   "\"nvme\"",
                                                   "\"cpu\"",
                                                   "\"none\"",
                                                   "\"q8\"",
                                                   "\"lr\"",
                                                   "\"zoff\"",
                                                   "\"stage\"",
                                                   "\"optimizer\"",
                                                   "\"params\"",
                                                   "\"type\"",
                                                   "\"AdamW\"",
                                                   "\"Lion\"",
                                                   "\"Adagrad\"",
                                                   "\"SGD\"",
                                                   "\"enabled\"",
                                                   "\"moments\"",
                                                   "\"master\"",
                                                   "\"split\"",
                                                   "\"*\"",
                                                   "\"full\"",
                                                   "//\n",
                                                   "#",
                                                   "/*",
                                                   "*/",
                                                   "#\n",
                                                   "\"_x\"",
                                                   "\"WarmupDecayLR\"",
                                                   "\"OneCycle\"",
                                                   "\"nvme_path\"",
                                                   "\"overlap_comm\"",
                                                   "\"scheduler\"",
                                                   "\"strict\""};
    changes c(seed);
    std::string text((const char *)data, bytes);
    if (c.any(32))
        c.json(&text, WORDS);
    else // behind the value
        text += c.one_of(WORDS);
    return give(text, data, bytes, most);
}

static std::vector<std::string> seeds()
{
    return {
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
        R"({"optimizer": {"type": "SGD", "params": {"lr": 0.1, "momentum": 0.9, "nesterov": true}}, "fp16": {"enabled": true, "initial_scale_power": 16},
  "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 1e-3, "warmup_num_steps": 10, "total_num_steps": 100}},
  "zero_optimization": {"stage": 3, "sub_group_size": 1e9, "offload_param": {"device": "nvme", "nvme_path": "/n", "buffer_size": 1e6},
    "offload_optimizer": {"device": "cpu", "ratio": 0.5}}, "zoff": {"persist": true, "master": "split", "moments": "q8", "verify": "full",
    "fp32_moments": ["*.bias", "wte"], "durability": "process"}})",
        std::string(
            "{}\0\noptimizer.params.lr=1e-3\noptimizer.params.betas=[0.9, 0.95]\nzoff.host_memory=64MiB\nbf16.enabled=true\n"
            "zoff.nvme_paths=[\"a\", \"b\"]\ntrain_batch_size=32\ntensorboard={}\noptimizer.type=Lion",
            178)};
}

const target zoff_fuzz::TARGET = {60000, 0.05, seeds};
