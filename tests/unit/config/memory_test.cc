/* SPDX-License-Identifier: Apache-2.0 */
// memory_test.cc: the DRAM that a plan announces, part by part, is the memory that an engine takes from the system.
#include "config_helpers.h"

#include <unistd.h>

using namespace config_test;

namespace
{
// Resident pages of this process, without those of files.
size_t resident_bytes()
{
    std::ifstream file("/proc/self/statm");
    size_t size = 0, resident = 0, shared = 0;
    file >> size >> resident >> shared;
    return (resident - shared) * (size_t)sysconf(_SC_PAGESIZE);
}

struct memory_case {
    const char *name, *text;
    bool owned;
    bool nvme;
    // bytes of states of a parameter; 0: not this test's business. The plan must then hold within 2 %
    double state_bytes = 0;
};

#if defined(ZOFF_TEST_SANITIZED)
const bool KEEPS_FREED_MEMORY = true; // resident memory proves nothing under such a sanitizer
#else
const bool KEEPS_FREED_MEMORY = false;
#endif

class config_memory : public testing::TestWithParam<memory_case>
{
};

TEST_P(config_memory, a_plan_is_what_an_engine_takes)
{
    if (KEEPS_FREED_MEMORY)
        GTEST_SKIP() << "a sanitizer keeps what was freed";
    const memory_case &c = GetParam();
    const size_t count = c.state_bytes > 0 ? 32 << 20 : 4 << 20;
    zoff_test::log_catcher log;
    zoff_test::scratch_folder folder;
    auto config = parse(c.text);
    if (c.nvme) {
        ASSERT_ZOFF_OK(zoff_config_set(config.get(), "zero_optimization.offload_optimizer.device", "nvme"));
        ASSERT_ZOFF_OK(zoff_config_set(config.get(), "zoff.nvme_paths", folder.path.c_str()));
    }
    std::vector<uint16_t> weights(count, 0x3f80), grads(count, 0x3c00);
    std::vector<float> warm(2048, 1.0f);
    zoff_plan_info plan = {};
    plan.struct_size = sizeof plan;
    // The first engine of a process also starts its threads.
    for (size_t elements : {warm.size() / 2, count}) {
        const size_t before = resident_bytes();
        zoff_engine_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.config = config.get();
        zoff_engine *e = nullptr;
        ASSERT_ZOFF_OK(zoff_engine_create(&opts, &e));
        zoff_param_desc desc = {};
        desc.struct_size = sizeof desc;
        desc.count = elements;
        desc.dtype = ZOFF_BF16;
        desc.value = weights.data();
        desc.grad = grads.data();
        desc.engine_owned = c.owned;
        ASSERT_ZOFF_OK(zoff_engine_add_param(e, &desc, nullptr));
        ASSERT_ZOFF_OK(zoff_engine_plan(e, &plan));
        ASSERT_ZOFF_OK(zoff_engine_seal(e));
        for (int i = 0; i < 2; i++)
            ASSERT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
        const void *at = nullptr;
        if (c.owned) {
            ASSERT_ZOFF_OK(zoff_param_fetch(e, 0, 0, nullptr, &at));
            ASSERT_ZOFF_OK(zoff_param_release(e, 0, 0, nullptr));
        }
        const size_t after = resident_bytes(), taken = after > before ? after - before : 0;
        zoff_engine_destroy(e);
        if (elements < count)
            continue;
        EXPECT_EQ(plan.memory_bytes, plan.host_bytes + plan.accumulator_bytes + plan.weight_host_bytes + plan.exchange_bytes +
                                         plan.device_host_bytes);
        printf("%s: planned %.1f MiB, taken %.1f MiB\n", c.name, (double)plan.memory_bytes / (1 << 20),
               (double)taken / (1 << 20));
        if (c.state_bytes > 0) {
            EXPECT_EQ(c.state_bytes * (double)count, (double)plan.state_bytes);
            EXPECT_NEAR((double)plan.memory_bytes, (double)taken, 0.02 * (double)plan.memory_bytes);
        }
        EXPECT_LE(taken, plan.memory_bytes + plan.memory_bytes / 20 + (6u << 20)) << "more than planned";
        EXPECT_GE(taken + (6u << 20), plan.memory_bytes - plan.memory_bytes / 5) << "planned too much";
        EXPECT_GT(plan.memory_free_bytes, 0u);
    }
}

INSTANTIATE_TEST_SUITE_P(
    each, config_memory,
    testing::Values(
        memory_case{"dram", "{}", false, false},
        memory_case{"masters_of_fp32", "{\"zoff\": {\"master\": \"fp32\"}}", false, false, 12},
        memory_case{"masters_in_halves", "{}", false, false, 10},
        memory_case{"moments_of_bf16", "{\"zoff\": {\"moments\": \"bf16\"}}", false, false, 6},
        memory_case{"m_in_8_bits", "{\"zoff\": {\"moments\": \"m8v16\"}}", false, false, 5 + 1.0 / 16},
        memory_case{"moments_in_8_bits", "{\"zoff\": {\"moments\": \"q8\"}}", false, false, 4 + 2.0 / 16},
        memory_case{"accumulation", "{\"gradient_accumulation_steps\": 2}", false, false},
        memory_case{"owned", "{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}}}", true, false},
        memory_case{"nvme", "{\"zoff\": {\"host_memory\": \"32MiB\"}, \"gradient_accumulation_steps\": 2}", false, true}),
    [](const testing::TestParamInfo<memory_case> &which) { return std::string(which.param.name); });
} // namespace
