// budget_test.cc: the plan by hand, and what does not fit with the key to change.
#include "sgd_engine.h"

using namespace zoff_test;

namespace
{

TEST(Budget, ThePlanIsWhatSealTakes)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(3);
    add_awkward(t, ZOFF_BF16, ZOFF_BF16);
    uint64_t elements = 0;
    for (auto &x : t.tensors)
        elements += x.frozen ? 0 : x.total();
    engine e = make_engine(t, config_text(folder.path, 4), 4096);
    auto before = plan_of(e.get());
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    auto after = plan_of(e.get());
    EXPECT_EQ(before.tier, after.tier);
    EXPECT_EQ(before.elements, after.elements);
    EXPECT_EQ(before.state_bytes, after.state_bytes);
    EXPECT_EQ(before.host_bytes, after.host_bytes);
    EXPECT_EQ(before.nvme_bytes, after.nvme_bytes);
    EXPECT_EQ(before.accumulator_bytes, after.accumulator_bytes);
    EXPECT_EQ(before.chunk_count, after.chunk_count);
    EXPECT_EQ(before.chunk_bytes, after.chunk_bytes);
    EXPECT_EQ(before.slots, after.slots);
    EXPECT_EQ(before.threads, after.threads);
    EXPECT_EQ(ZOFF_TIER_NVME, after.tier);
    EXPECT_EQ(elements, after.elements);
    EXPECT_EQ(12 * elements, after.state_bytes);
    EXPECT_GE(after.accumulator_bytes, 4 * elements);
    EXPECT_EQ(3u, after.slots);
    EXPECT_EQ(3 * after.chunk_bytes, after.host_bytes);
    EXPECT_GE(after.nvme_bytes, after.state_bytes);
}

TEST(Budget, Fp32WeightsAreTheirOwnMasters)
{
    log_catcher log;
    trainer t(3);
    t.add(1000, 1, ZOFF_F32, ZOFF_F32);
    engine e = make_engine(t, config_text(""));
    EXPECT_EQ(8000u, plan_of(e.get()).state_bytes);
}

TEST(Budget, ABudgetThatIsTooSmall)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(1);
    t.add(1 << 20, 1, ZOFF_F32, ZOFF_F32);
    engine host = make_engine(t, "{\"zoff\": {\"host_memory\": \"1MiB\"}}");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "need 8.0 MiB of DRAM, but zoff.host_memory is 1.0 MiB: raise it to ",
                      zoff_engine_seal(host.get()));
    engine nvme = make_engine(t, config_text(folder.path), 0, 20000);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY,
                      "at least 48.0 KiB of DRAM (3 slots of 16.0 KiB), but zoff_engine_opts.host_bytes is 19.5 KiB",
                      zoff_engine_seal(nvme.get()));
    EXPECT_EQ(0, system(("test -z \"$(ls -A '" + folder.path + "')\"").c_str()));
}

TEST(Budget, MoreStatesThanTheMachineHasMemory)
{
    log_catcher log;
    static float one[1];
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(nullptr, &made));
    engine e(made);
    zoff_param_desc d = described(one, (size_t)1 << 44); // 128 TiB of states; the weights are never looked at
    ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY,
                      "not enough DRAM: need 128.0 TiB (states 128.0 TiB, gradient sums 0 bytes, weights of the engine "
                      "0 bytes, what goes to other ranks or to a device 0 bytes), have ",
                      zoff_engine_seal(made));
    EXPECT_NE(std::string(zoff_last_error()).find("offload_optimizer.device"), std::string::npos);
}
} // namespace
