/* SPDX-License-Identifier: Apache-2.0 */
// fault_test.cc: the nth allocation fails, for n = 1, 2, 3, ... until none does. Each time the error is clear and nothing is
// leaked; the address sanitizer checks that.
#include "allocation_fault.h"
#include "config_helpers.h"

#include <jansson.h>

extern "C" {
#include "mem.h"
}

using namespace zoff_test;

namespace
{
void *jansson_malloc(size_t bytes)
{
    return allocation_fails() ? nullptr : malloc(bytes);
}

const char TEXT[] = R"({"train_batch_size": "8", "optimizer": {"type": "AdamW", "params": {"lr": 3e-4, "betas": [0.9, 0.95]}},
  "zero_optimization": {"stage": 2, "overlap_comm": true, "cpu_offload": true},
  "zoff": {"host_memory": "64MiB", "nvme_paths": ["/a", "/b"]}, "tensorboard": {"a": [{"b": 1}]}})";

// The life of a configuration. Any failed call ends it, as in a program.
zoff_status live()
{
    zoff_config *config = nullptr;
    zoff_status status = zoff_test::config_from_text(TEXT, sizeof TEXT - 1, "ds.json", &config);
    if (status < 0) {
        EXPECT_EQ(nullptr, config);
        return status;
    }
    size_t bytes;
    zoff_config_values values = {};
    status = zoff_config_set(config, "zoff.nvme_paths", "[\"/x\", \"/y\"]");
    if (status == ZOFF_OK)
        status = zoff_config_values_get(config, 1, &values);
    if (status == ZOFF_OK)
        status = zoff_config_dump(config, nullptr, 0, &bytes);
    char *keys = nullptr;
    if (status == ZOFF_OK)
        status = zoff_config_dump_agreed(config, &keys, &bytes);
    zoff_base_mem_free(keys);
    if (status == ZOFF_OK) {
        EXPECT_EQ(8u, values.train_batch);
        EXPECT_EQ(3e-4, values.hyper.lr);
        EXPECT_EQ(2u, values.nvme_path_count);
    }
    zoff_config_close(config);
    return status;
}

TEST(config_fault, every_allocation_may_fail)
{
    zoff_log_set([](zoff_log_level, const char *, const char *, void *) {}, nullptr);
    json_malloc_t old_malloc;
    json_free_t old_free;
    json_get_alloc_funcs(&old_malloc, &old_free);
    json_set_alloc_funcs(jansson_malloc, free);
    int failed = 0;
    const int n = fail_each_allocation([&] {
        const zoff_status status = live();
        if (allocations_left >= 0) {
            EXPECT_EQ(ZOFF_OK, status) << zoff_last_error();
            return;
        }
        // jansson may report a text for which it has no memory as a wrong one. It must never accept it as another one.
        failed += status < 0;
        EXPECT_TRUE(status < 0 && *zoff_last_error());
        EXPECT_TRUE(status == ZOFF_ERR_NO_MEMORY || status == ZOFF_ERR_INVALID) << status;
    });
    json_set_alloc_funcs(old_malloc, old_free);
    zoff_log_set(nullptr, nullptr);
    EXPECT_GT(n, 200);
    EXPECT_EQ(n, failed) << "an allocation failed and nobody said so";
}
} // namespace
