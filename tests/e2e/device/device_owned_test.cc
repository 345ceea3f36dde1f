/* SPDX-License-Identifier: Apache-2.0 */
// device_owned_test.cc: ZeRO-3 on a device: weights that the engine owns, and gradient memory that it lends there. Device
// memory is what the plan says, a limit is kept, the link carries what was derived, and each device call may fail. That the
// bits are those of a host is tested in e2e_ranks (*ToDevice*, *kept*) and in combinations.
#include "covering.h"
#include "small_engine.h"

#include <atomic>

using namespace zoff_test;

namespace
{
// Where the weights are stored: offload_param.device; and the share of the states that is on the host: offload_optimizer.ratio.
class DeviceOwned : public testing::TestWithParam<std::tuple<const char *, double>>
{
  protected:
    DeviceOwned() : device(9), t(17)
    {
        if (home() == "cpu") // every call that takes a stream takes the default one, too
            device.use_default_stream();
    }

    static std::string home() { return std::get<0>(GetParam()); }

    std::string text(const std::string &more = "", const std::string &zoff = "") const
    {
        return "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0, "
               "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 4096, \"offload_param\": {\"device\": \"" +
               home() + "\", \"nvme_path\": \"" + folder.path +
               "\", \"buffer_count\": 3, \"max_in_cpu\": 0}, \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": " +
               std::to_string(std::get<1>(GetParam())) + "}" + more + "}" + zoff + "}";
    }
    void give_all_away()
    {
        t.give_all_away();
        t.put_on(&device);
    }
    void make(const std::string &with) { e = make_engine(t, with, 3000, 0, nullptr, device.accel); }
    uint64_t allocated() const
    {
        zoff_accel_info about = ZOFF_ACCEL_INFO_INIT;
        EXPECT_ZOFF_OK(zoff_accel_get_info(device.accel, &about));
        return about.allocated_bytes - of_trainer;
    }
    // The trainer's own memory is on the same device.
    void count_trainer()
    {
        of_trainer = 0;
        of_trainer = allocated();
    }
    // One pass forward, one backward, and the step.
    void step(int64_t number)
    {
        t.next_step();
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get(), true));
        t.backward_all(0.1f);
        ASSERT_NO_FATAL_FAILURE(t.hand_over_all(e.get()));
        info = new_info();
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        reference::step(t.tensors, config_groups(), number, 1.0, 1.0, 0);
    }
    // Borrow a slice of each parameter. A call of the device that fails may fail the step: then so does the second attempt.
    // @return the number of failures that were not of the step
    int borrow_in_open_step()
    {
        int failures = 0;
        for (size_t i = 0; i < t.tensors.size(); i++) {
            const void *lent = nullptr;
            zoff_status status = zoff_param_fetch(e.get(), (zoff_param)i, 0, device.stream, &lent);
            if (status < 0 && zoff_param_fetch(e.get(), (zoff_param)i, 0, device.stream, &lent) < 0)
                return failures;
            failures += status < 0;
            status = zoff_param_release(e.get(), (zoff_param)i, 0, device.stream);
            failures += status < 0;
            EXPECT_ZOFF_OK(status < 0 ? zoff_param_release(e.get(), (zoff_param)i, 0, device.stream) : ZOFF_OK);
        }
        return failures;
    }
    void expect_all()
    {
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        t.expect_weights();
        t.expect_states(e.get());
    }

    test_device device; // must be destroyed after the engine
    trainer t;
    scratch_folder folder;
    engine e;
    zoff_step_info info = new_info();
    uint64_t of_trainer = 0;
};
INSTANTIATE_TEST_SUITE_P(Weights, DeviceOwned,
                         testing::Combine(testing::Values("none", "cpu", "nvme"), testing::ValuesIn(DEVICE_RATIOS)),
                         [](const auto &one) {
                             return std::string(std::get<0>(one.param)) + (std::get<1>(one.param) < 1 ? "_share" : "");
                         });

// States on the device would exceed these limits.
class DeviceLimit : public DeviceOwned
{
};
INSTANTIATE_TEST_SUITE_P(Weights, DeviceLimit, testing::Combine(testing::Values("none", "cpu", "nvme"), testing::Values(1.0)),
                         [](const auto &one) { return std::string(std::get<0>(one.param)); });

TEST_P(DeviceOwned, DeviceMemoryIsThatOfThePlan)
{
    add_awkward(t, ZOFF_BF16, ZOFF_BF16);
    give_all_away();
    count_trainer();
    make(text(", \"stage3_max_live_parameters\": 40000, \"stage3_param_persistence_threshold\": 1024"));
    const zoff_plan_info plan = plan_of(e.get());
    EXPECT_EQ(0u, allocated());
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    EXPECT_EQ(plan.device_bytes, allocated());
    for (int64_t i = 1; i <= 3; i++)
        ASSERT_NO_FATAL_FAILURE(step(i));
    EXPECT_EQ(plan.device_bytes, allocated()) << "steps need no more";
    ASSERT_NO_FATAL_FAILURE(expect_all());
    e.reset();
    EXPECT_EQ(0u, allocated());
}

// The forward pass fetches while the step before it is open, and a slice may stay lent across the end of that step.
TEST_P(DeviceOwned, WeightsFetchedInAnOpenStepAreNew)
{
    add_awkward(t, ZOFF_BF16, ZOFF_BF16);
    give_all_away();
    make(text(", \"stage3_max_live_parameters\": 80000, \"stage3_prefetch_bucket_size\": 40000, "
              "\"stage3_param_persistence_threshold\": 1024",
              ", \"zoff\": {\"background_threads\": 1}"));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    for (int64_t number = 1; number <= 5; number++) {
        t.next_step();
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get(), true));
        t.backward_all(0.1f);
        ASSERT_NO_FATAL_FAILURE(t.hand_over_all(e.get()));
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
        const void *lent = nullptr;
        const zoff_param kept = (zoff_param)(number % (int64_t)t.tensors.size());
        ASSERT_ZOFF_OK(zoff_param_fetch(e.get(), kept, 0, device.stream, &lent));
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        reference::step(t.tensors, config_groups(), number, 1.0, 1.0, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights()) << "step " << number;
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
        ASSERT_ZOFF_OK(zoff_param_release(e.get(), kept, 0, device.stream));
        ASSERT_NO_FATAL_FAILURE(expect_all());
    }
}

// 40 layers of 8,000 elements are 640,000 bytes of weights, and as many of gradients. The device may hold an eighth of them.
TEST_P(DeviceLimit, AModelLargerThanTheDeviceTrains)
{
    enum { LAYER = 8000, LAYERS = 40, LIMIT = 2 * LAYER * LAYERS / 8 };
    t.add(LAYER, LAYERS, ZOFF_BF16, ZOFF_BF16);
    give_all_away();
    count_trainer();
    make(text(", \"stage3_max_live_parameters\": 16000, \"stage3_prefetch_bucket_size\": 8000, "
              "\"stage3_param_persistence_threshold\": 0",
              ", \"zoff\": {\"device_memory\": " + std::to_string(LIMIT) + "}"));
    if (home() == "none") {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "set offload_param.device to \"cpu\" or \"nvme\"", zoff_engine_seal(e.get()));
        EXPECT_EQ(0u, allocated());
        return;
    }
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    EXPECT_GE((uint64_t)LIMIT, allocated());
    for (int64_t i = 1; i <= 3; i++)
        ASSERT_NO_FATAL_FAILURE(step(i));
    EXPECT_GE((uint64_t)LIMIT, allocated());
    ASSERT_NO_FATAL_FAILURE(expect_all());
}

TEST_P(DeviceOwned, TheLimitOfDeviceMemoryIsRefusedAtSealWithTheKeysToChange)
{
    t.add(50000, 2, ZOFF_BF16, ZOFF_BF16);
    give_all_away();
    count_trainer();
    make(text("", ", \"zoff\": {\"device_memory\": \"10KiB\"}"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "but zoff.device_memory is 10.0 KiB. Lower stage3_max_live_parameters",
                      zoff_engine_seal(e.get()));
    EXPECT_EQ(0u, allocated());
}

// The program that acquires all gradients before it hands one over holds all of them, which the limit forbids.
TEST_P(DeviceLimit, GradientsBeyondTheLimitAreRefusedAndTheStepGoesOn)
{
    t.add(4096, 8, ZOFF_BF16, ZOFF_BF16);
    give_all_away();
    make(text(", \"stage3_max_live_parameters\": 5000, \"stage3_param_persistence_threshold\": 0",
              ", \"zoff\": {\"device_memory\": \"200KiB\"}"));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    void *lent = nullptr;
    ASSERT_ZOFF_OK(zoff_grad_acquire(e.get(), 0, 0, device.stream, &lent));
    ASSERT_ZOFF_OK(zoff_grad_acquire(e.get(), 0, 1, device.stream, &lent));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "hand some over first (zoff_grad_ready()), or raise reduce_bucket_size",
                      zoff_grad_acquire(e.get(), 0, 2, device.stream, &lent));
    ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
    ASSERT_NO_FATAL_FAILURE(step(1));
    ASSERT_NO_FATAL_FAILURE(expect_all());
}

// The table in docs/PERFORMANCE.md. One rank, bf16, two passes over weights of which only one slice fits.
TEST_P(DeviceOwned, TheLinkCarriesWhatWasDerived)
{
    enum { LAYER = 6000, LAYERS = 7, SMALL = 928 };
    const uint64_t large = 2 * LAYER * LAYERS, small = 2 * SMALL; // a multiple of 64, so nothing is padded
    t.add(LAYER, LAYERS, ZOFF_BF16, ZOFF_BF16);
    t.add(SMALL, 1, ZOFF_BF16, ZOFF_BF16);
    give_all_away();
    make(text(", \"stage3_max_live_parameters\": 6000, \"stage3_prefetch_bucket_size\": 0, "
              "\"stage3_param_persistence_threshold\": 1000"));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    const bool stays = home() == "none";
    for (int64_t i = 1; i <= 4; i++) {
        ASSERT_NO_FATAL_FAILURE(step(i));
        /* Updates on the device: each gradient goes up again, and each new weight comes down. */
        const uint64_t there = 2 * info.numbers.elements_on_device;
        EXPECT_EQ(there == 0, std::get<1>(GetParam()) == 1);
        EXPECT_EQ(large + small + there, info.bytes.device_read) << "each gradient comes down once";
        /* The last slice of the forward pass is still there when the backward pass begins. */
        const uint64_t fetched = 2 * large - 2 * LAYER;
        if (stays) { /* new weights go up as whole chunks, whose size is a multiple of a page */
            EXPECT_LE(large + small + there, info.bytes.device_written);
            EXPECT_GE(large + small + there + 4096 * plan_of(e.get()).chunk_count + 2 * small, info.bytes.device_written);
        } else {
            EXPECT_EQ(fetched + small + there, info.bytes.device_written) << "step " << i;
        }
    }
}

// Nothing of the program has run yet, so nothing can be done with any weight. All the same each fetch returns, also of slices
// whose memory is still in use by the slices before them.
TEST_P(DeviceOwned, AFetchDoesNotWaitForTheDevice)
{
    static std::atomic<bool> let_go;
    t.add(6000, 9, ZOFF_BF16, ZOFF_BF16);
    give_all_away();
    make(text(", \"stage3_max_live_parameters\": 12000, \"stage3_param_persistence_threshold\": 0"));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    for (int turn = 0; turn < 2; turn++) { // the second one prefetches
        let_go = home() == "nvme";         // copies read the slots of files, which are few
        ASSERT_ZOFF_OK(zoff_accel_stream_call(
            device.accel, device.stream,
            [](void *) {
                while (!let_go)
                    usleep(100);
            },
            nullptr));
        ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
        let_go = true;
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        ASSERT_NO_FATAL_FAILURE(step(turn + 1));
        EXPECT_EQ(0, info.seconds.io_wait * (home() != "nvme"));
    }
    ASSERT_NO_FATAL_FAILURE(expect_all());
}

// Each call of the device fails once, in turn: in fetches, also in an open step, in gradients and in steps. The engine reports
// it, and goes on from there.
TEST_P(DeviceOwned, EachCallMayFailOnce)
{
    add_awkward(t, ZOFF_BF16, ZOFF_BF16);
    give_all_away();
    make(text(", \"stage3_max_live_parameters\": 40000, \"stage3_param_persistence_threshold\": 1023"));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    int64_t number = 0;
    int failed = 0;
    bool over = false;
    for (int nth = 1; !over && nth < 3000; nth += is_full_run() ? 1 : 13) {
        device.calls = 0;
        device.fail = nth;
        const auto fetch = [&] {
            for (size_t i = 0; i < t.tensors.size(); i++) {
                for (size_t slice = 0; slice < t.tensors[i].slices; slice++) {
                    const void *lent = nullptr;
                    zoff_status status = zoff_param_fetch(e.get(), (zoff_param)i, slice, device.stream, &lent);
                    if (status < 0) {
                        ASSERT_EQ(ZOFF_ERR_DEVICE, status) << zoff_last_error();
                        failed++;
                        ASSERT_ZOFF_OK(zoff_param_fetch(e.get(), (zoff_param)i, slice, device.stream, &lent));
                    }
                    status = zoff_param_release(e.get(), (zoff_param)i, slice, device.stream);
                    if (status < 0) {
                        ASSERT_EQ(ZOFF_ERR_DEVICE, status) << zoff_last_error();
                        failed++;
                        ASSERT_ZOFF_OK(zoff_param_release(e.get(), (zoff_param)i, slice, device.stream))
                            << "it was not released";
                    }
                }
            }
        };
        ASSERT_NO_FATAL_FAILURE(fetch());
        t.next_step();
        t.backward_all(0.1f);
        for (size_t i = t.tensors.size(); i-- > 0;) {
            for (size_t slice = t.tensors[i].slices; slice-- > 0;) {
                const size_t bytes = t.tensors[i].count * 2;
                void *lent = nullptr;
                zoff_status status = t.tensors[i].frozen ? ZOFF_OK : ZOFF_PENDING;
                for (int again = 0; status == ZOFF_PENDING && again < 2; again++) {
                    const zoff_status acquired = zoff_grad_acquire(e.get(), (zoff_param)i, slice, device.stream, &lent);
                    failed += acquired < 0;
                    status = acquired < 0 ? ZOFF_PENDING : ZOFF_OK;
                    if (acquired == ZOFF_OK && again && bytes) {
                        std::vector<char> cleared(bytes, 1);
                        device.copy(cleared.data(), lent, bytes);
                        ASSERT_EQ(std::vector<char>(bytes), cleared) << "memory that was lent at the second attempt";
                    }
                }
                ASSERT_ZOFF_OK(status);
                if (lent && bytes)
                    device.launch_copy(lent, t.grad(i) + t.place(i, slice * t.tensors[i].count) * 2, bytes);
                status = zoff_grad_ready(e.get(), (zoff_param)i, slice, device.stream);
                if (status < 0) {
                    failed++;
                    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), (zoff_param)i, slice, device.stream));
                }
            }
        }
        info = new_info();
        zoff_status status = zoff_step_begin(e.get(), nullptr);
        if (status < 0) {
            failed++;
            ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
        }
        failed += borrow_in_open_step();
        status = zoff_step_wait(e.get(), &info);
        if (status < 0) {
            ASSERT_EQ(ZOFF_ERR_DEVICE, status) << zoff_last_error();
            failed++;
            ASSERT_ZOFF_OK(zoff_step_retry(e.get(), &info));
        }
        over = device.calls < nth;
        device.fail = 0;
        reference::step(t.tensors, config_groups(), ++number, 1.0, 1.0, 0);
        ASSERT_NO_FATAL_FAILURE(expect_all()) << "call " << nth;
    }
    EXPECT_TRUE(over);
    EXPECT_LT(is_full_run() ? 100 : 7, failed);
}

TEST_P(DeviceOwned, SealIsAllOrNothing)
{
    add_awkward(t, ZOFF_BF16, ZOFF_BF16);
    give_all_away();
    count_trainer();
    make(text(", \"stage3_max_live_parameters\": 40000"));
    zoff_status status = ZOFF_ERR_DEVICE;
    int nth = 1;
    for (; status < 0 && nth < 1000; nth++) {
        device.fail = nth;
        device.calls = 0;
        status = zoff_engine_seal(e.get());
        device.fail = 0;
        EXPECT_TRUE(status < 0 || device.calls < nth) << "seal has not seen that call " << nth << " failed";
        if (status < 0) {
            ASSERT_EQ(ZOFF_ERR_DEVICE, status) << zoff_last_error();
            ASSERT_EQ(0u, allocated()) << "call " << nth;
        }
    }
    EXPECT_ZOFF_OK(status);
    EXPECT_LT(15, nth);
    ASSERT_NO_FATAL_FAILURE(expect_all());
}
} // namespace
