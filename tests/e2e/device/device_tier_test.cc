/* SPDX-License-Identifier: Apache-2.0 */
// device_tier_test.cc: offload_optimizer.ratio keeps a share of the states on the device and updates it there. For every share
// the bits must be the same as without one, and only the rest may be moved.
#include "covering.h"
#include "rank_job.h"

#include <cmath>

using namespace zoff_test;

namespace
{
struct cell {
    double ratio;
    bool nvme;
    zoff_dtype dtype;
    unsigned accumulation;
};

std::string name_of(const cell &c)
{
    return std::to_string((int)(c.ratio * 100)) + (c.nvme ? "_nvme" : "_host") +
           (c.dtype == ZOFF_F32    ? "_fp32"
            : c.dtype == ZOFF_BF16 ? "_bf16"
                                   : "_fp16") +
           "_" + std::to_string(c.accumulation);
}

void fill(covering<cell> &all)
{
    for (double ratio : {0.0, 0.25, 0.5, 0.75, 1.0}) {
        for (bool nvme : {false, true}) {
            for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
                for (unsigned accumulation : {1u, 3u})
                    all.add({ratio, nvme, dtype, accumulation});
            }
        }
    }
}

const covering<cell> &matrix()
{
    static const covering<cell> all(
        "Device/Kept.TheBitsAreThoseOfNone/", name_of,
        [](const cell &c) {
            return covering<cell>::values{{"ratio", std::to_string((int)(100 * c.ratio))},
                                          {"states", c.nvme ? "nvme" : "host"},
                                          {"type", std::to_string(c.dtype)},
                                          {"accumulation", std::to_string(c.accumulation)}};
        },
        fill);
    return all;
}

class Kept : public testing::TestWithParam<cell>
{
  protected:
    Kept() : device(11), t(5) { add_awkward(t, GetParam().dtype, GetParam().dtype); }

    // Hand over all slices or, with `holes`, all but some that change with each round.
    void micro_step(bool holes, unsigned round)
    {
        for (size_t i = t.tensors.size(); i-- > 0;) {
            for (size_t slice = t.tensors[i].slices; slice-- > 0;) {
                if (holes && (i + slice + round) % 3 == 0)
                    continue;
                t.backward(i, slice, 0.5f);
                t.hand_over(e.get(), i, slice);
            }
        }
    }
    void step(bool holes)
    {
        for (unsigned micro = 0; micro < GetParam().accumulation; micro++) {
            micro_step(holes, micro + (unsigned)number);
            info = new_info();
            ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
            ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
        }
        reference::step(t.tensors, config_groups(), ++number, 1.0, GetParam().accumulation, 0);
        t.next_step();
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }
    uint64_t trained() const
    {
        uint64_t count = 0;
        for (const auto &tensor : t.tensors)
            count += tensor.frozen ? 0 : tensor.total();
        return count;
    }

    test_device device;
    trainer t;
    scratch_folder folder;
    engine e;
    zoff_step_info info = new_info();
    int64_t number = 0;
};
INSTANTIATE_TEST_SUITE_P(Device, Kept, testing::ValuesIn(matrix().cells()), [](const auto &one) { return name_of(one.param); });

TEST(KeptCells, CoverAllPairs)
{
    matrix().expect_all_pairs();
}

TEST_P(Kept, TheBitsAreThoseOfNone)
{
    const cell c = GetParam();
    const size_t bytes = c.dtype == ZOFF_F32 ? 4 : 2;
    t.put_on(&device);
    e = make_engine(t, with_ratio(config_text(c.nvme ? folder.path : "", c.accumulation), c.ratio), 3000, 0, nullptr,
                    device.accel);
    const zoff_plan_info plan = plan_of(e.get());
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    t.expect_states(e.get());

    ASSERT_NO_FATAL_FAILURE(step(false));
    const double there = (double)info.numbers.elements_on_device, all = (double)trained();
    EXPECT_EQ(trained(), info.numbers.elements_updated);
    EXPECT_GE(1500.0, std::abs(there - (1 - c.ratio) * all)) << "the share is exact to half a chunk of 3000";
    if (c.ratio == 1 || c.ratio == 0) {
        EXPECT_EQ(c.ratio == 1 ? 0 : all, there);
    }
    /* For elements updated on the device no gradient is downloaded and no weight uploaded. The slice that contains the border
     * is the exception. */
    EXPECT_LE(bytes * (trained() - info.numbers.elements_on_device), info.bytes.device_read);
    if (c.accumulation == 1) {
        EXPECT_GE(bytes * (trained() - info.numbers.elements_on_device) + bytes * 33333, info.bytes.device_read);
    }
    EXPECT_EQ(bytes * (trained() - info.numbers.elements_on_device), info.bytes.device_written);
    /* Masters, two moments, and the accumulator if there are micro-batches; padding. */
    const double documented = there * (12 + (c.accumulation > 1 ? 4 : 0));
    EXPECT_LE(documented, (double)plan.device_bytes);
    EXPECT_GE(documented * 1.02 + 16 * 30 * 20 + (there > 0 ? 300000 : 0), (double)plan.device_bytes);

    ASSERT_NO_FATAL_FAILURE(step(true));
    t.expect_states(e.get());
    /* A call outside of a step treats it like any other state. */
    std::vector<float> ones(1000, 1.5f);
    for (size_t i : {(size_t)3, (size_t)8}) {
        ASSERT_ZOFF_OK(zoff_state_write(e.get(), (zoff_param)i, ZOFF_STATE_MASTER, 10, ones.size(), ones.data()));
        ASSERT_ZOFF_OK(zoff_state_write(e.get(), (zoff_param)i, ZOFF_STATE_V, 20, 500, ones.data()));
        std::copy_n(ones.begin(), 1000, t.tensors[i].master.begin() + 10);
        std::copy_n(ones.begin(), 500, t.tensors[i].v.begin() + 20);
    }
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    t.expect_states(e.get());
    ASSERT_NO_FATAL_FAILURE(step(false));
    ASSERT_ZOFF_OK(zoff_params_pull(e.get()));
    for (auto &tensor : t.tensors) {
        for (auto &x : tensor.master)
            x = reference::rounded(tensor.dtype, x);
    }
    t.expect_states(e.get());
    ASSERT_NO_FATAL_FAILURE(step(true));
    t.expect_states(e.get());
}

// A model so large that padding is negligible. It is only planned: no memory is touched.
TEST(KeptPlan, TakesOfTheDeviceWhatIsDocumented)
{
    const uint64_t count = 256u << 20;
    test_device device;
    for (double ratio : {0.0, 0.25, 0.5, 0.75, 1.0}) {
        engine e = plan_one(count, with_ratio(config_text(""), ratio), device.accel);
        const zoff_plan_info plan = plan_of(e.get());
        const double kept = (1 - ratio) * (double)count;
        EXPECT_NEAR(12 * kept, (double)plan.device_bytes, 0.005 * 12 * (double)count) << ratio;
        EXPECT_NEAR(12 * ((double)count - kept), (double)plan.host_bytes, 0.005 * 12 * (double)count) << ratio;
    }
}

struct KeptOnce : testing::Test {
    KeptOnce() : device(0), t(3) { add_awkward(t, ZOFF_BF16, ZOFF_BF16); }
    // A step with all gradients; the weights must be those of the reference.
    void step(zoff_engine *e, int64_t number, zoff_step_info *info)
    {
        t.backward_all(0.5f);
        t.hand_over_all(e);
        *info = new_info();
        ASSERT_ZOFF_OK(zoff_step_begin(e, nullptr));
        ASSERT_ZOFF_OK(zoff_step_wait(e, info));
        reference::step(t.tensors, config_groups(), number, 1.0, 1.0, 0);
        t.next_step();
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }
    test_device device;
    trainer t;
    scratch_folder folder;
};

TEST_F(KeptOnce, ANumberThatIsNotFiniteSkipsTheStepAndIsNamed)
{
    log_catcher log;
    t.put_on(&device);
    engine e = make_engine(t, with_ratio(config_text(""), 0), 3000, 0, nullptr, device.accel);
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    t.backward_all(0.5f);
    trainer::put(t.grad(8), ZOFF_BF16, t.place(8, 5000), INFINITY);
    t.hand_over_all(e.get());
    zoff_step_info info = new_info();
    log.expect("step 1 skipped: the gradient of param8, slice 0, has an inf or nan between its elements 4096 and 5119");
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
    EXPECT_TRUE(info.skipped);
    t.expect_weights();
    t.expect_states(e.get());
}

TEST_F(KeptOnce, IsForADeviceWithMemoryOfItsOwn)
{
    zoff_engine *made = nullptr;
    zoff_engine_opts opts = {};
    zoff_config *settings = nullptr;
    const std::string text = with_ratio(config_text(""), 0.25);
    ASSERT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "ds.json", &settings));
    const config closes(settings);
    opts.struct_size = sizeof opts;
    opts.config = settings;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED,
                      "offload_optimizer.ratio is 0.25: the rest of the states would stay on the accelerator",
                      zoff_engine_create(&opts, &made));
}

TEST_F(KeptOnce, ACommunicatorOnAnotherDeviceIsRefused)
{
    zoff_engine *made = nullptr;
    zoff_engine_opts opts = {};
    zoff_comm *ranks[2];
    ASSERT_ZOFF_OK(zoff_comm_open_threads(nullptr, 2, ranks));
    opts.struct_size = sizeof opts;
    opts.accel = device.accel;
    opts.comm = ranks[1];
    ranks[1]->reaches = accel_under_test();
    ranks[1]->device = 3;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "rank 1: the communicator is on device 3 of ", zoff_engine_create(&opts, &made));
    for (zoff_comm *rank : ranks)
        zoff_comm_close(rank);
}

// The DRAM that a budget leaves beside the slots is used for chunks that stay on the host.
TEST_F(KeptOnce, StatesOnTheDeviceTakeNoDram)
{
    t.put_on(&device);
    const std::string text = with_ratio(config_text(folder.path), 0.5);
    engine e = make_engine(t, text, 3000, 0, nullptr, device.accel);
    const zoff_plan_info streamed = plan_of(e.get());
    EXPECT_LT(0u, streamed.step_read_bytes);
    const uint64_t budget = (streamed.step_read_bytes / streamed.chunk_bytes + 1 + streamed.slots) * streamed.chunk_bytes;
    ASSERT_LT(budget, streamed.state_bytes);
    e = make_engine(t, text, 3000, budget, nullptr, device.accel);
    const zoff_plan_info plan = plan_of(e.get());
    EXPECT_EQ(0u, plan.step_read_bytes);
    EXPECT_EQ(streamed.step_read_bytes, plan.resident_bytes);
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    for (int64_t number = 1; number <= 2; number++) {
        zoff_step_info info;
        ASSERT_NO_FATAL_FAILURE(step(e.get(), number, &info));
        EXPECT_EQ(0u, info.bytes.nvme_read);
        EXPECT_EQ(0u, info.bytes.nvme_written);
    }
    t.expect_states(e.get());
}

// Files that persist have all states, so any share, and none, can continue with them.
TEST_F(KeptOnce, FilesThatPersistAreOpenedWithAnyShare)
{
    int64_t number = 0;
    std::string text = config_text(folder.path);
    text.insert(1, "\"zoff\": {\"persist\": true}, ");
    t.put_on(&device);
    const zoff_plan_info without = plan_of(make_engine(t, text, 3000, 0, nullptr, device.accel).get());
    for (double ratio : {0.5, 0.0, 1.0, 0.25}) {
        engine e = make_engine(t, with_ratio(text, ratio), 3000, 0, nullptr, device.accel);
        const zoff_plan_info plan = plan_of(e.get());
        EXPECT_EQ(without.nvme_bytes, plan.nvme_bytes);
        EXPECT_EQ(without.step_write_bytes, plan.step_write_bytes);
        EXPECT_NEAR(ratio * (double)without.step_read_bytes, (double)plan.step_read_bytes, 12 * 3000 + 3 * 4096);
        if (ratio != 0.5) // the program has lost its weights
            t.scramble();
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        int64_t found = 0;
        ASSERT_ZOFF_OK(zoff_step_count(e.get(), &found));
        EXPECT_EQ(number, found);
        ASSERT_ZOFF_OK(zoff_params_push(e.get()));
        for (int i = 0; i < 2; i++) {
            zoff_step_info info;
            ASSERT_NO_FATAL_FAILURE(step(e.get(), ++number, &info));
            EXPECT_EQ(plan.step_write_bytes, info.bytes.nvme_written) << "a step writes all states";
        }
        t.expect_states(e.get());
    }
}

// Memory that the engine lends for gradients is reused before the step, also for weights of the program.
TEST_F(KeptOnce, GradientsMayBeLent)
{
    for (size_t i = 0; i < t.tensors.size(); i++) {
        if (!t.tensors[i].frozen)
            t.give_away_grad(i);
    }
    t.put_on(&device);
    engine e = make_engine(t, with_ratio(config_text(""), 0.5), 3000, 0, nullptr, device.accel);
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    for (int64_t number = 1; number <= 3; number++) {
        zoff_step_info info;
        ASSERT_NO_FATAL_FAILURE(step(e.get(), number, &info));
        EXPECT_LT(0u, info.numbers.elements_on_device);
    }
    t.expect_states(e.get());
}

TEST_F(KeptOnce, GradientsMayBeDroppedAndZeroed)
{
    t.put_on(&device);
    engine e = make_engine(t, with_ratio(config_text(""), 0.5), 3000, 0, nullptr, device.accel);
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    for (int64_t number = 1; number <= 3; number++) {
        t.backward_all(0.5f);
        t.hand_over_all(e.get());
        if (number == 2) {
            ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
            t.next_step();
            continue;
        }
        zoff_step_args args = {};
        args.struct_size = sizeof args;
        args.flags = ZOFF_STEP_ZERO_GRADS;
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), &args));
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
        ASSERT_NO_FATAL_FAILURE(t.expect_zero_gradients_there());
        reference::step(t.tensors, config_groups(), number == 1 ? 1 : 2, 1.0, 1.0, 0);
        t.next_step();
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }
    t.expect_states(e.get());
}
} // namespace
