// states_place_test.cc: states in a store, on the device, or in both: what a pass borrows and gives back is what is there.
#include "small_engine.h"
#include "store_ptr.h"

#include <atomic>
#include <thread>

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
struct StatesPlace : testing::Test {
    StatesPlace() : device(3), t(5)
    {
        t.add(4096, 2, ZOFF_BF16, ZOFF_BF16);
        t.put_on(&device);
    }
    // Half of the chunks have their states on the device.
    void open(bool persists)
    {
        std::string text = with_ratio(config_text(persists ? folder.path : ""), 0.5);
        if (persists)
            text.insert(1, "\"zoff\": {\"persist\": true}, ");
        e = make_engine(t, text, 1024, 0, nullptr, device.accel);
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        ASSERT_LT(1u, e->transfer.device.tier.count);
        ASSERT_LT(e->transfer.device.tier.count, e->plan.chunk_count);
    }
    std::vector<float> on_device(size_t chunk)
    {
        std::vector<float> there(e->plan.chunks[chunk].bytes / sizeof(float));
        device.copy(there.data(), e->transfer.device.tier.states + e->transfer.device.tier.at[chunk], 4 * there.size());
        return there;
    }
    std::vector<float> in_store(size_t chunk)
    {
        void *base = nullptr;
        zoff_status status;
        while ((status = borrow_chunk(e->store, chunk, &base)) == ZOFF_PENDING)
            (void)zoff_offload_store_wait(e->store);
        EXPECT_ZOFF_OK(status);
        const float *from = static_cast<const float *>(base);
        std::vector<float> here(from, from + e->plan.chunks[chunk].bytes / sizeof(float));
        withdraw(e->store, chunk);
        return here;
    }
    // Set all bytes of these streams of a chunk, in a pass.
    zoff_status set(size_t chunk, unsigned streams, float value)
    {
        const zoff_pass pass = {.states = true, .changes_states = true, .streams = streams};
        const zoff_plan_chunk &c = e->plan.chunks[chunk];
        zoff_lent_chunk lent;
        EXPECT_ZOFF_OK(zoff_engine_states_place_borrow(e.get(), &pass, chunk, &lent));
        for (unsigned stream = 0; stream < ZOFF_STREAM_COUNT; stream++) {
            float *at = reinterpret_cast<float *>(lent.memory.states + c.starts[stream]);
            if (streams & (1u << stream))
                std::fill_n(at, c.lengths[stream] / sizeof(float), value);
        }
        return zoff_engine_states_place_give_back(e.get(), &pass, &lent);
    }

    test_device device;
    trainer t;
    scratch_folder folder;
    engine e;
};

TEST_F(StatesPlace, IsTheDeviceAloneUnlessStatesPersist)
{
    for (const bool persists : {false, true}) {
        ASSERT_NO_FATAL_FAILURE(open(persists));
        const size_t border = e->transfer.device.tier.count;
        EXPECT_EQ(!persists, zoff_transfer_device_tier_alone(&e->transfer, 0));
        EXPECT_EQ(!persists, zoff_transfer_device_tier_alone(&e->transfer, border - 1));
        EXPECT_FALSE(zoff_transfer_device_tier_alone(&e->transfer, border));
        for (size_t chunk = 0; chunk < border; chunk++)
            EXPECT_TRUE(!persists || on_device(chunk) == in_store(chunk)) << "first states, chunk " << chunk;
        e.reset();
    }
}

// Files have the type of their moments: another one is refused before anything is changed.
TEST_F(StatesPlace, FilesWithMomentsOfAnotherTypeAreRefused)
{
    const std::string text = config_text(folder.path);
    const auto with = [&](const char *moments) {
        return std::string(text).insert(1, "\"zoff\": {\"persist\": true, \"moments\": \"" + std::string(moments) + "\"}, ");
    };
    int64_t count = 0;
    int seen = 0;
    for (const char *moments : {"bf16", "fp32", "bf16"}) {
        e = make_engine(t, with(moments), 1024, 0, nullptr, device.accel);
        if (std::string(moments) == "fp32") {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "moments (zoff.moments, zoff.fp32_moments) of the parameters differ",
                              zoff_engine_seal(e.get()));
        } else {
            ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
            EXPECT_EQ(seen == 2, zoff_step_count(e.get(), &count) == ZOFF_OK && count == 1);
            if (seen == 0) { // files without a step would be made anew
                t.backward_all(0.5f);
                t.hand_over_all(e.get());
                ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
            }
        }
        seen++;
        e.reset();
    }
}

TEST_F(StatesPlace, BothHaveWhatAPassHasChanged)
{
    ASSERT_NO_FATAL_FAILURE(open(true));
    const auto before = on_device(1);
    ASSERT_ZOFF_OK(set(1, 1u << ZOFF_STREAM_V, 7));
    ASSERT_ZOFF_OK(zoff_offload_store_drain(e->store));
    const auto after = on_device(1);
    EXPECT_EQ(after, in_store(1));
    const zoff_plan_chunk &c = e->plan.chunks[1];
    for (size_t k = 0; k < after.size(); k++) {
        const bool is_v = 4 * k >= c.starts[ZOFF_STREAM_V] && 4 * k < c.starts[ZOFF_STREAM_V] + c.lengths[ZOFF_STREAM_V];
        ASSERT_EQ(is_v ? 7 : before[k], after[k]) << k;
    }
}

// The store keeps what it has, and the pass can be repeated.
TEST_F(StatesPlace, NeitherChangesWhereTheDeviceFails)
{
    ASSERT_NO_FATAL_FAILURE(open(true));
    const auto before = in_store(0);
    device.calls = 0;
    device.fail = 1;
    EXPECT_EQ(ZOFF_ERR_DEVICE, set(0, ZOFF_STORE_ALL, 3));
    device.fail = 0;
    EXPECT_EQ(before, in_store(0));
    EXPECT_EQ(before, on_device(0));
    ASSERT_ZOFF_OK(set(0, ZOFF_STORE_ALL, 3));
    ASSERT_ZOFF_OK(zoff_offload_store_drain(e->store));
    EXPECT_EQ(in_store(0), on_device(0));
    EXPECT_EQ(3, in_store(0)[0]);
}

// The device stands still with a copy from a slot. The slot is used for something else only when the copy is done.
TEST_F(StatesPlace, ACopyThatStoodStillIsWaitedForBeforeItsSourceIsReused)
{
    ASSERT_NO_FATAL_FAILURE(open(true));
    static std::atomic<bool> let_go;
    let_go = false;
    ASSERT_ZOFF_OK(zoff_accel_stream_call(
        device.accel, e->transfer.device.up,
        [](void *) {
            while (!let_go)
                usleep(100);
        },
        nullptr));
    e->transfer.pollers.device.timeout_seconds = 0.05;
    EXPECT_EQ(ZOFF_ERR_DEVICE, set(0, ZOFF_STORE_ALL, 3));
    EXPECT_TRUE(e->transfer.device.tier.unsettled);
    e->transfer.pollers.device.timeout_seconds = 10;
    std::thread later([] {
        usleep(100000);
        let_go = true;
    });
    const zoff_pass pass = {.states = true};
    EXPECT_ZOFF_OK(zoff_engine_states_begin_pass(e.get(), &pass));
    EXPECT_TRUE(let_go);
    later.join();
    EXPECT_FALSE(e->transfer.device.tier.unsettled);
}

// A step that failed while the device copies states to a slot: the slot is used for something else only when it has them.
TEST_F(StatesPlace, NoCopyIsInFlightAfterADrop)
{
    ASSERT_NO_FATAL_FAILURE(open(true));
    zoff_device_tier &tier = e->transfer.device.tier;
    static std::atomic<bool> let_go;
    zoff_step_info info = new_info();
    device.fails_polls = true;
    for (int nth = 1000; info.outcome != ZOFF_OUTCOME_TORN && nth < 100000000; nth *= 4) { // until the step waits for the copy
        let_go = false;
        t.next_step();
        t.backward_all(0.5f);
        t.hand_over_all(e.get());
        while (zoff_engine_progress(e.get()) == ZOFF_PENDING)
            usleep(100);
        ASSERT_ZOFF_OK(zoff_accel_stream_call(
            device.accel, e->transfer.device.down,
            [](void *) {
                while (!let_go)
                    usleep(100);
            },
            nullptr));
        device.calls = 0;
        device.fail = nth;
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
        EXPECT_EQ(ZOFF_ERR_DEVICE, zoff_step_wait(e.get(), &info));
        device.fail = 0;
        let_go = info.outcome == ZOFF_OUTCOME_BEFORE;
        if (let_go) {
            ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
        }
    }
    EXPECT_EQ(ZOFF_OUTCOME_TORN, info.outcome);
    EXPECT_LT(0u, tier.waits);
    std::thread later([] {
        usleep(100000);
        let_go = true;
    });
    EXPECT_ZOFF_OK(zoff_grads_drop(e.get()));
    EXPECT_TRUE(let_go);
    later.join();
    EXPECT_EQ(0u, tier.waits);
    t.next_step();
    t.expect_weights();
    t.expect_states(e.get());
}

// After a rollback the device has the states of the last commit again.
TEST_F(StatesPlace, TheDeviceGoesBackWithTheStore)
{
    ASSERT_NO_FATAL_FAILURE(open(true));
    const auto before = on_device(0);
    ASSERT_ZOFF_OK(set(0, 1u << ZOFF_STREAM_M, 9));
    ASSERT_ZOFF_OK(zoff_offload_store_drain(e->store));
    EXPECT_NE(before, on_device(0));
    // An error of what is undone, which a poller has kept, does not end it.
    zoff_base_progress_keep(&e->io.states, zoff_base_status_fail(ZOFF_ERR_IO, "a write has failed"));
    ASSERT_ZOFF_OK(zoff_engine_states_rollback(e.get()));
    EXPECT_EQ(before, on_device(0));
    EXPECT_EQ(before, in_store(0));
}
} // namespace
