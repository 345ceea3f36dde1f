/* SPDX-License-Identifier: Apache-2.0 */
// budget_test.cc: the plan, computed by hand, and the errors for budgets that are too small, with the key to change.
#include "sgd_engine.h"

extern "C" {
#include "engine_priv.h"
}

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
    EXPECT_EQ(10 * elements, after.state_bytes) << "masters are split";
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
    EXPECT_TRUE(folder.is_empty());
}

TEST(Budget, MoreStatesThanTheMachineHasMemory)
{
    log_catcher log;
    static float one[1];
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(nullptr, &made));
    engine e(made);
    zoff_param_desc d = described(one, (size_t)1 << 44); // 128 TiB of states; the weights are never read
    ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    EXPECT_ZOFF_FAILS(
        ZOFF_ERR_NO_MEMORY,
        "not enough DRAM: need 128.0 TiB (states 128.0 TiB, gradient sums 0 bytes, engine-owned weights "
        "0 bytes, buffers for other ranks or a device 0 bytes, files in folders that are in memory 0 bytes), have ",
        zoff_engine_seal(made));
    EXPECT_NE(std::string(zoff_last_error()).find("offload_optimizer.device"), std::string::npos);
}

// A communicator of any size, which is only asked for its size.
comm ranks_that_are_counted(unsigned ranks)
{
    static char posted; // a receive that is never done
    zoff_comm_transport t = ZOFF_COMM_TRANSPORT_INIT;
    t.name = "counted";
    t.size = ranks;
    t.close_seconds = 0;
    t.send = [](void *, unsigned, int, const void *, size_t, void **out) {
        *out = nullptr;
        return 0;
    };
    t.receive = [](void *, unsigned, int, void *, size_t, void **out) {
        *out = &posted;
        return 0;
    };
    t.test = [](void *, void **request) { return (int)(*request == nullptr); };
    t.cancel = [](void *, void **request) {
        *request = nullptr;
        return 0;
    };
    t.error = [](void *) -> const char * { return "none"; };
    t.close = [](void *, int) {};
    zoff_comm *made = nullptr;
    EXPECT_ZOFF_OK(zoff_comm_open_transport(nullptr, &t, &made));
    return comm(made);
}

// The part of a rank has at least 128 KiB, up to buckets of 64 Mi elements; a reduce_bucket_size that is given is kept up to
// there. The buffers of the exchange take no more than an eighth of the memory.
TEST(Budget, BucketsAreLargeEnoughForTheRanks)
{
    enum : uint64_t { MI = 1 << 20, COUNT = 1024 * MI };
    const struct {
        unsigned ranks;
        const char *bucket, *memory;
        uint64_t want; // elements
    } cells[] = {{2, "", "64GiB", 8 * MI},         {128, "", "64GiB", 8 * MI},          {129, "", "64GiB", 16 * MI},
                 {512, "", "64GiB", 32 * MI},      {1024, "", "64GiB", 64 * MI},        {4096, "", "64GiB", 64 * MI},
                 {1024, "", "4GiB", 32 * MI}, // six buffers of 64 MiB are less than 512 MiB
                 {1024, "", "1MiB", 8 * MI},       {1024, "3e6", "64GiB", 2929 * 1024}, {2, "5e8", "64GiB", 64 * MI},
                 {2, "\"auto\"", "64GiB", 8 * MI}, {2, "20971520", "64GiB", 20 * MI},   {2, "5e8", "1MiB", 8 * MI}};
    for (const auto &c : cells) {
        const comm several = ranks_that_are_counted(c.ranks);
        const std::string bucket = *c.bucket ? std::string(", \"reduce_bucket_size\": ") + c.bucket : "",
                          text = "{\"zero_optimization\": {\"stage\": 2" + bucket + "}, \"zoff\": {\"host_memory\": \"" +
                                 c.memory + "\"}}";
        const zoff_plan_info plan = plan_of(plan_one(COUNT, text, nullptr, several.get()).get());
        EXPECT_EQ((COUNT + c.want - 1) / c.want, plan.chunk_count) << c.ranks << " " << c.bucket << " " << c.memory;
    }
}

// Chunks of 1024 elements with two moments of 4 bytes, and masters of 2 bytes, or of 4 where states persist. The other figures
// follow from their number and size.
TEST(Budget, ThePlanByHand)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(1);
    t.add(20480, 1, ZOFF_BF16, ZOFF_BF16);
    const uint64_t elements = 20480, states = 10 * elements, count = 20;
    const zoff_plan_info host = plan_of(make_engine(t, config_text(""), 1024).get());
    EXPECT_EQ(ZOFF_TIER_HOST, host.tier);
    EXPECT_EQ(elements, host.elements);
    EXPECT_EQ(states, host.state_bytes);
    EXPECT_EQ(count, host.chunk_count);
    EXPECT_LE(10u * 1024, host.chunk_bytes);
    EXPECT_EQ(0u, host.chunk_bytes % 4096);
    const uint64_t whole =
        plan_of(make_engine(t, config_text("", 1, ", \"zoff\": {\"master\": \"fp32\"}"), 1024).get()).chunk_bytes;
    EXPECT_LE(12u * 1024, whole);
    EXPECT_EQ(count * host.chunk_bytes, host.host_bytes);
    EXPECT_EQ(0u, host.slots + host.nvme_bytes + host.accumulator_bytes + host.weight_bytes + host.exchange_bytes);
    EXPECT_EQ(host.host_bytes, host.memory_bytes);
    const struct {
        uint64_t residents;
        bool persist;
        unsigned accumulation;
    } cases[] = {{0, false, 1}, {5, false, 1}, {0, true, 1}, {5, true, 2}, {20, false, 4}};
    for (const auto &c : cases) {
        const std::string text = config_text(folder.path, c.accumulation, c.persist ? ", \"zoff\": {\"persist\": true}" : "");
        const uint64_t chunk = c.persist ? whole : host.chunk_bytes;
        const zoff_plan_info nvme = plan_of(make_engine(t, text, 1024, (3 + c.residents) * chunk).get());
        EXPECT_EQ(3u, nvme.slots);
        EXPECT_EQ(chunk, nvme.chunk_bytes);
        EXPECT_EQ((3 + c.residents) * chunk, nvme.host_bytes);
        EXPECT_EQ(c.residents * chunk, nvme.resident_bytes);
        EXPECT_EQ((count - c.residents) * chunk, nvme.step_read_bytes);
        EXPECT_EQ((count - (c.persist ? 0 : c.residents)) * chunk, nvme.step_write_bytes);
        EXPECT_EQ(c.persist ? 2 * count * chunk : (count - c.residents) * chunk, nvme.nvme_bytes);
        EXPECT_EQ(c.accumulation > 1 ? 4 * elements : 0, nvme.accumulator_bytes);
        EXPECT_EQ(nvme.host_bytes + nvme.accumulator_bytes, nvme.memory_bytes);
    }
}

// Weights of the engine: all of them in DRAM; or slots, and files for those that max_in_cpu does not keep. A step makes them
// from masters of fp32, so it writes and does not read them. Those that are half of their masters it reads, too.
TEST(Budget, WeightsOfTheEngineByHand)
{
    log_catcher log;
    scratch_folder folder;
    trainer t(1);
    t.add(20480, 1, ZOFF_BF16, ZOFF_BF16);
    t.give_away(0);
    const zoff_plan_info host = plan_of(make_engine(t, config_text(""), 1024).get());
    EXPECT_EQ(2u * 20480, host.weight_bytes);
    EXPECT_LE(2u * 20480, host.weight_host_bytes);
    EXPECT_EQ(0u, host.weight_nvme_bytes);
    EXPECT_EQ(host.host_bytes + host.weight_host_bytes, host.memory_bytes);
    const std::string whole = ", \"zoff\": {\"master\": \"fp32\"}";
    const std::string halves = with_offloaded_weights(config_text(folder.path), folder.path);
    const std::string text = with_offloaded_weights(config_text(folder.path, 1, whole.c_str()), folder.path);
    const zoff_plan_info nvme = plan_of(make_engine(t, text, 1024).get()), split = plan_of(make_engine(t, halves, 1024).get());
    EXPECT_EQ(2u * 20480, nvme.weight_bytes);
    EXPECT_EQ(20 * split.chunk_bytes + split.weight_nvme_bytes, split.step_read_bytes);
    EXPECT_EQ(split.step_read_bytes, split.step_write_bytes);
    EXPECT_EQ(0u, nvme.weight_nvme_bytes % 20);
    const uint64_t chunk = nvme.weight_nvme_bytes / 20;
    EXPECT_LE(2u * 1024, chunk);
    EXPECT_EQ(20 * nvme.chunk_bytes, nvme.step_read_bytes) << "states only";
    EXPECT_EQ(20 * (nvme.chunk_bytes + chunk), nvme.step_write_bytes);
    std::string cached = text;
    cached.replace(cached.find("\"max_in_cpu\": 0"), 15, "\"max_in_cpu\": 4200"); // four chunks and a part of one
    const zoff_plan_info some = plan_of(make_engine(t, cached, 1024).get());
    EXPECT_EQ(16 * chunk, some.weight_nvme_bytes);
    EXPECT_EQ(4 * chunk, some.weight_host_bytes - nvme.weight_host_bytes);
}
} // namespace
