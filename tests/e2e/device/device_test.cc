/* SPDX-License-Identifier: Apache-2.0 */
// device_test.cc: an engine over a device with its own memory: the bytes it moves, the memory it uses, and every call that
// reads or writes weights or gradients. The test e2e_ranks checks that the bits are those of a host, for all stages and tiers.
#include "small_engine.h"

#include <atomic>
#include <set>

using namespace zoff_test;

namespace
{
struct Device : testing::Test {
    Device() : device(7), t(3) {}

    void build(zoff_dtype dtype, const std::string &text, uint64_t chunk_elements = 3000)
    {
        add_awkward(t, dtype, dtype);
        t.put_on(&device);
        e = make_engine(t, text, chunk_elements, 0, nullptr, device.accel);
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    }
    void hand_over_all()
    {
        for (size_t i = t.tensors.size(); i-- > 0;) {
            for (size_t slice = t.tensors[i].slices; slice-- > 0;)
                t.hand_over(e.get(), i, slice);
        }
    }
    void skip_ahead(const std::string &where)
    {
        build(ZOFF_BF16, config_text(where, 1, ", \"zoff\": {\"speculation_memory\": \"64MiB\"}"));
        t.backward_all(0.5f);
        trainer::put(t.grad(8), ZOFF_BF16, 77, NAN);
        hand_over_all();
        for (int i = 0, quiet = 0; i < 20000 && quiet < 100; i++) {
            quiet = zoff_engine_progress(e.get()) == ZOFF_PENDING ? 0 : quiet + 1;
            usleep(50);
        }
        info = new_info();
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
        ASSERT_ZOFF_OK(zoff_param_wait(e.get(), 0, 0, nullptr));
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
        EXPECT_TRUE(info.skipped);
        EXPECT_GT(info.buckets.speculated, 0u);
        EXPECT_EQ(0u, info.bytes.device_written);
        t.next_step();
        t.expect_weights();
        ASSERT_NO_FATAL_FAILURE(step(1));
    }
    // Take one step and check its results.
    void step(int64_t number, const zoff_step_args *args = nullptr)
    {
        t.backward_all(0.5f);
        hand_over_all();
        info = new_info();
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), args));
        if (number % 2)
            t.wait_for_weights(e.get());
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
        reference::step(t.tensors, config_groups(), number, 1.0, 1.0, 0);
        t.next_step();
        t.expect_weights();
    }
    uint64_t trained() const
    {
        uint64_t count = 0;
        for (const auto &tensor : t.tensors)
            count += tensor.frozen ? 0 : tensor.total();
        return count;
    }

    test_device device; // must be destroyed after the engine
    trainer t;
    scratch_folder folder;
    engine e;
    zoff_step_info info = new_info();
};

TEST_F(Device, MovesEachGradientDownAndEachWeightUpOnce)
{
    build(ZOFF_BF16, config_text(""));
    for (int64_t i = 1; i <= 3; i++) {
        ASSERT_NO_FATAL_FAILURE(step(i));
        EXPECT_EQ(2 * trained(), info.bytes.device_read) << "a step must not count the bytes of the first weights";
        EXPECT_EQ(2 * trained(), info.bytes.device_written);
    }
    t.expect_states(e.get());
    char text[1024];
    ASSERT_ZOFF_OK(zoff_stats_print(e.get(), text, sizeof text, nullptr));
    const std::string all = std::to_string(3 * 2 * trained());
    EXPECT_NE(nullptr, strstr(text, ("\"device_read_bytes\": " + all + ", \"device_write_bytes\": " + all + ",").c_str()))
        << text;
}

TEST_F(Device, TellsWhatItTakes)
{
    build(ZOFF_BF16, config_text(""));
    const zoff_plan_info plan = plan_of(e.get());
    EXPECT_LE(2 * trained(), plan.device_host_bytes);
    EXPECT_GE(2 * trained() + 6 * (2 * 3000 + 64 * 20), plan.device_host_bytes);
    trainer other(3);
    add_awkward(other, ZOFF_BF16, ZOFF_BF16);
    engine host = make_engine(other, config_text(""), 3000);
    EXPECT_EQ(0u, plan_of(host.get()).device_host_bytes);
}

// By default sub_group_size is a billion elements. As one bucket, its upload could start only after all of it is updated. So
// the engine uses smaller buckets.
TEST_F(Device, ALargeModelIsManyBuckets)
{
    const size_t count = 100u << 20;
    e = plan_one(count, "{}", device.accel);
    const zoff_plan_info plan = plan_of(e.get());
    EXPECT_LE(12u, plan.chunk_count);
    EXPECT_GE(2 * count + 6 * (16u << 20) + count / 1024 * 8, plan.device_host_bytes);
    EXPECT_EQ(0u, plan.device_bytes);
}

TEST_F(Device, WeightsInFp32HaveMastersOfTheirOwn)
{
    build(ZOFF_F32, config_text(folder.path));
    EXPECT_EQ(12 * trained(), plan_of(e.get()).state_bytes);
    for (int64_t i = 1; i <= 2; i++)
        ASSERT_NO_FATAL_FAILURE(step(i));
    t.expect_states(e.get());
}

// Each stream named in a hand-over may read weights up to that point. That also holds for frozen parameters, and for streams
// that were not named last.
TEST_F(Device, NewWeightsWaitForEachStreamThatWasHandedOver)
{
    enum { COUNT = 5000 };
    for (auto [frozen, ratio] : {std::pair{true, 1.0}, {false, 1.0}, {true, 0.0}, {false, 0.0}}) {
        SCOPED_TRACE(ratio);
        trainer tensors(4);
        tensors.add(COUNT, 1, ZOFF_F32, ZOFF_F32);
        tensors.add(COUNT, 1, ZOFF_F32, ZOFF_F32, 0, frozen);
        tensors.put_on(&device);
        engine made = make_engine(tensors, with_ratio(config_text(""), ratio), 3000, 0, nullptr, device.accel);
        ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
        void *slow = nullptr;
        std::vector<float> seen(COUNT), before(COUNT);
        ASSERT_ZOFF_OK(zoff_accel_stream_open(device.accel, &slow));
        memcpy(before.data(), tensors.value(0), COUNT * sizeof(float));
        tensors.backward_all(0.5f);
        device.copy(tensors.desc(1).grad, tensors.grad(1), COUNT * sizeof(float));
        // A forward pass in another stream still reads weights when the step begins.
        ASSERT_ZOFF_OK(zoff_accel_stream_call(
            device.accel, slow, [](void *) { usleep(20000); }, nullptr));
        ASSERT_ZOFF_OK(device.accel->ops->copy(device.accel, slow, seen.data(), tensors.desc(0).value, COUNT * sizeof(float)));
        ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), 1, 0, slow));
        tensors.hand_over(made.get(), 0, 0);
        ASSERT_ZOFF_OK(zoff_step_begin(made.get(), nullptr));
        ASSERT_ZOFF_OK(zoff_step_wait(made.get(), nullptr));
        ASSERT_ZOFF_OK(zoff_accel_stream_wait(device.accel, slow));
        EXPECT_EQ(before, seen) << "weights of step 1 were written while the earlier forward pass was still reading";
        zoff_accel_stream_close(device.accel, slow);
        reference::step(tensors.tensors, config_groups(), 1, 1.0, 1.0, 0);
        tensors.expect_weights();
    }
}

// A framework's current stream is usually the default one. Every call that takes a stream takes that one.
TEST_F(Device, TheDefaultStreamMayComputeGradientsAndUseWeights)
{
    device.use_default_stream();
    build(ZOFF_BF16, config_text(""));
    for (int64_t number = 1; number <= 3; number++) {
        t.backward_all(0.5f);
        ASSERT_ZOFF_OK(zoff_accel_stream_call(
            device.accel, ZOFF_STREAM_DEFAULT, [](void *) { usleep(20000); }, nullptr));
        hand_over_all();
        ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
        for (size_t i = 0; i < t.tensors.size(); i++) {
            for (size_t slice = 0; !t.tensors[i].frozen && slice < t.tensors[i].slices; slice++)
                ASSERT_ZOFF_OK(zoff_grad_reusable(e.get(), (zoff_param)i, slice, ZOFF_STREAM_DEFAULT));
        }
        t.wait_for_weights(e.get());
        reference::step(t.tensors, config_groups(), number, 1.0, 1.0, 0);
        t.next_step();
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
    }
}

TEST_F(Device, ZeroesGradientsWhereTheyAre)
{
    build(ZOFF_F16, config_text(""));
    zoff_step_args args = {};
    args.struct_size = sizeof args;
    args.flags = ZOFF_STEP_ZERO_GRADS;
    ASSERT_NO_FATAL_FAILURE(step(1, &args));
    t.expect_zero_gradients_there();
}

TEST_F(Device, WeightsOfTheProgramBecomeMastersAndBack)
{
    build(ZOFF_BF16, config_text(folder.path));
    ASSERT_NO_FATAL_FAILURE(step(1));
    t.scramble();
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    t.expect_weights();
    for (auto &tensor : t.tensors) {
        for (size_t k = 0; !tensor.frozen && k < tensor.total(); k++)
            tensor.master[k] = 0.125f + (float)(k % 13);
    }
    t.scramble();
    ASSERT_ZOFF_OK(zoff_params_pull(e.get()));
    t.expect_states(e.get());
    ASSERT_NO_FATAL_FAILURE(step(2));
    std::vector<float> zeros(33333);
    ASSERT_ZOFF_OK(zoff_state_write(e.get(), 8, ZOFF_STATE_MASTER, 0, zeros.size(), zeros.data()));
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    t.tensors[8].master = zeros;
    t.expect_weights();
}

TEST_F(Device, AddsUpMicroBatches)
{
    build(ZOFF_BF16, config_text("", 3));
    for (int64_t number = 1; number <= 2; number++) {
        for (int micro = 1; micro <= 3; micro++) {
            t.backward_all(0.5f);
            hand_over_all();
            info = new_info();
            ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
            ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
            EXPECT_EQ(2 * trained(), info.bytes.device_read);
            EXPECT_EQ(micro == 3 ? 2 * trained() : 0, info.bytes.device_written);
        }
        reference::step(t.tensors, config_groups(), number, 1.0, 3.0, 0);
        t.next_step();
        t.expect_weights();
    }
}

// The walk begins with a bucket of which one slice comes last. Others are updated while it waits. No stream of this device is
// delayed: CUDA calls the host from one thread for all streams, so the call that waits would hold up those that delay others.
TEST(DeviceOrder, ABucketWaitsOnlyForItsOwnGradients)
{
    struct {
        std::atomic<bool> sent{false}, saw{false};
    } others;
    test_device device;
    trainer t(3);
    zoff_step_info info = new_info();
    t.add(20000, 1, ZOFF_BF16, ZOFF_BF16);
    t.add(100, 2, ZOFF_BF16, ZOFF_BF16);
    t.put_on(&device);
    engine e = make_engine(t, config_text("", 1, ", \"zoff\": {\"skip_nonfinite\": false}"), 3000, 0, nullptr, device.accel);
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    ASSERT_LE(3u, plan_of(e.get()).chunk_count);
    t.backward_all(0.5f);
    t.hand_over(e.get(), 1, 1);
    t.hand_over(e.get(), 0, 0);
    device.before_copy = [&](void *down, const void *) { // the download of the last gradient
        const auto wait = [](void *ctx) {
            auto *o = static_cast<decltype(&others)>(ctx);
            for (int i = 0; i < 20000 && !o->sent; i++)
                usleep(500);
            o->saw = o->sent.load();
        };
        ASSERT_ZOFF_OK(zoff_accel_stream_call(device.accel, down, wait, &others));
    };
    t.hand_over(e.get(), 1, 0);
    device.before_copy = [&](void *, const void *) { others.sent = true; };
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    device.before_copy = nullptr;
    EXPECT_TRUE(others.saw) << "weights of other buckets were sent before this one's gradient had come";
    reference::step(t.tensors, config_groups(), 1, 1.0, 1.0, 0);
    t.expect_weights();
}

// The program begins the step while the device still computes. (Half of the buckets may be those of the device.) Buckets are
// updated as their gradients come, before it is known whether the step clips.
class DeviceBackward : public testing::TestWithParam<bool>
{
  protected:
    // Two steps, whose gradients come at a pace of at least `pause` and twenty turns of the engine.
    void run(double share, const std::string &clip, useconds_t pause)
    {
        test_device device;
        paced backward{&device, pause};
        trainer t(4);
        zoff_step_info info = new_info();
        for (int i = 0; i < 8; i++)
            t.add(6000, 2, ZOFF_BF16, ZOFF_BF16);
        t.put_on(&device);
        std::string text =
            with_ratio(config_text(GetParam() ? folder.path : "", 1, ", \"zoff\": {\"speculation_memory\": \"64MiB\"}"), share);
        const std::string off = "\"gradient_clipping\": 0";
        text.replace(text.find(off), off.size(), "\"gradient_clipping\": " + clip);
        engine e = make_engine(t, text, 3000, 0, nullptr, device.accel);
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        least = UINT64_MAX;
        for (int64_t step = 1; step <= 2; step++) {
            backward.goes_on = false;
            t.next_step();
            t.backward_all(0.1f);
            for (size_t i = 8; i-- > 0;) {
                for (size_t slice = 2; slice-- > 0;) {
                    ASSERT_ZOFF_OK(zoff_accel_stream_call(device.accel, device.stream, compute, &backward));
                    t.hand_over(e.get(), i, slice);
                }
            }
            ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
            backward.goes_on = true;
            ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
            reference::step(t.tensors, config_groups(), step, 1.0, 1.0, stod(clip));
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
            const bool clips = info.numbers.clip_factor < 1;
            EXPECT_EQ(stod(clip) < 1, clips);
            if (step > 1 && clips) {
                EXPECT_EQ(0u, info.buckets.speculated) << "a step that clipped is followed by plain ones";
            } else {
                least = std::min(least, info.buckets.speculated);
            }
            EXPECT_EQ(clips ? info.buckets.speculated : 0, info.buckets.redone);
            EXPECT_EQ(clips ? 0 : info.buckets.speculated, info.buckets.committed);
        }
        t.expect_states(e.get());
        wanted = info.buckets.all / 4;
    }

    struct paced {
        test_device *device;
        useconds_t pause;
        std::atomic<bool> goes_on{false};
    };
    // Gradients are computed when the step is open, and slowly.
    static void compute(void *ctx)
    {
        auto *b = static_cast<paced *>(ctx);
        for (int i = 0; i < 20000 && !b->goes_on; i++)
            usleep(500);
        const int polls = b->device->polls;
        usleep(b->pause);
        for (int i = 0; i < 20000 && b->device->polls < polls + 20; i++)
            usleep(500);
    }

    log_catcher log;
    scratch_folder folder;
    uint64_t least = 0, wanted = 1; // buckets updated ahead in a step that may; files have three slots for all buckets
};
INSTANTIATE_TEST_SUITE_P(Tiers, DeviceBackward, testing::Bool(), [](const auto &on) { return on.param ? "nvme" : "host"; });

// On a busy disk the first pauses may be too short.
TEST_P(DeviceBackward, UpdatesBucketsWhileOthersAreComputed)
{
    for (const double share : DEVICE_RATIOS) {
        for (const char *clip : {"1e6", "1e-3"}) {
            least = 0;
            for (useconds_t pause = 2000; pause <= 200000 && (least < wanted || least == 0); pause *= 10)
                ASSERT_NO_FATAL_FAILURE(run(share, clip, pause));
            EXPECT_LE(wanted, least) << share << " " << clip;
        }
    }
}

// Buckets go on ahead of the gate while one that cannot finds that the last gradient has come: its weights are the engine's.
// The gate waits until the others have left. Every second poll of a turn is that of such a bucket, so both parities occur.
class DeviceGate : public testing::TestWithParam<bool>
{
};
INSTANTIATE_TEST_SUITE_P(Tiers, DeviceGate, testing::Bool(), [](const auto &on) { return on.param ? "nvme" : "host"; });

TEST_P(DeviceGate, WaitsForBucketsAheadOfIt)
{
    log_catcher log;
    log.expect("skipped");
    for (const int tensors : {7, 8}) {
        scratch_folder folder;
        test_device device;
        trainer t(4);
        std::set<std::pair<int, const void *>> missed; // events that were missed, each with its step
        std::atomic<int> late_step{0};
        std::atomic<bool> goes_on{false}, is_over{false};
        device.is_late = [&](const void *event) { return late_step && missed.insert({late_step, event}).second; };
        for (int i = 0; i < tensors; i++)
            t.add(6000, 1, ZOFF_BF16, ZOFF_BF16);
        t.give_away(0);
        t.put_on(&device);
        const std::string more = ", \"zoff\": {\"speculation_memory\": \"64MiB\"}";
        engine e = make_engine(t, config_text(GetParam() ? folder.path : "", 2, more), 3000, 0, nullptr, device.accel);
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
        int64_t steps = 0;
        for (const bool overflows : {false, true, false}) {
            SCOPED_TRACE(testing::Message() << tensors << " tensors, after step " << steps << (overflows ? ": inf" : ""));
            zoff_step_info info = new_info();
            t.next_step();
            t.backward_all(0.1f);
            t.hand_over_all(e.get());
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
            t.backward_all(0.1f);
            if (overflows)
                trainer::put(t.grad(0), ZOFF_BF16, t.place(0, 7), INFINITY);
            goes_on = is_over = false;
            const auto wait = [](void *ctx) {
                for (int i = 0; i < 20000 && !*static_cast<std::atomic<bool> *>(ctx); i++)
                    usleep(500);
            };
            ASSERT_ZOFF_OK(zoff_accel_stream_call(device.accel, device.stream, wait, &goes_on));
            for (size_t i = t.tensors.size(); i-- > 0;)
                t.hand_over(e.get(), i, 0);
            ASSERT_ZOFF_OK(zoff_accel_stream_call(
                device.accel, device.stream, [](void *ctx) { *static_cast<std::atomic<bool> *>(ctx) = true; }, &is_over));
            late_step++;
            ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
            goes_on = true;
            for (int i = 0; i < 20000 && !is_over; i++) // zoff_accel_stream_wait() would poll, too, beside the engine's thread
                usleep(500);
            for (int round = 0; round < 2; round++) {
                for (zoff_param p = 1; p < (zoff_param)tensors; p++)
                    ASSERT_ZOFF_OK(zoff_param_wait(e.get(), p, 0, device.stream));
            }
            ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
            EXPECT_EQ(overflows, info.skipped);
            if (!overflows)
                reference::step(t.tensors, config_groups(), ++steps, 1.0, 2.0, 0);
            ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
            t.expect_states(e.get());
        }
    }
}

TEST_F(Device, LeavesOutWhatHasNoGradient)
{
    build(ZOFF_BF16, config_text(""));
    t.backward(8, 0, 0.5f);
    t.backward(9, 2, 0.5f);
    t.hand_over(e.get(), 8, 0);
    t.hand_over(e.get(), 9, 2);
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
    reference::step(t.tensors, config_groups(), 1, 1.0, 1.0, 0);
    t.expect_weights();
    EXPECT_EQ(2u * (33333 + 2111), info.bytes.device_read);
    EXPECT_EQ(2u * (33333 + 2111), info.bytes.device_written);
}

TEST_F(Device, ASkippedStepChangesNothing)
{
    build(ZOFF_BF16, config_text(""));
    t.backward_all(0.5f);
    trainer::put(t.grad(8), ZOFF_BF16, 77, NAN);
    hand_over_all();
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
    EXPECT_TRUE(info.skipped);
    EXPECT_EQ(8u, info.culprit.param);
    EXPECT_EQ(0u, info.bytes.device_written);
    t.next_step();
    t.expect_weights();
    ASSERT_NO_FATAL_FAILURE(step(1));
}

// The weights of buckets that are updated ahead of the step are staged, and must not be uploaded.
TEST_F(Device, ASkippedStepThatWasUpdatedAheadChangesNothing)
{
    ASSERT_NO_FATAL_FAILURE(skip_ahead(""));
}

TEST_F(Device, ASkippedStepInFilesThatWasUpdatedAheadChangesNothing)
{
    ASSERT_NO_FATAL_FAILURE(skip_ahead(folder.path));
}

TEST_F(Device, GradientsThatAreDroppedAreNotWaitedForLater)
{
    build(ZOFF_BF16, config_text(""));
    t.backward_all(0.5f);
    hand_over_all();
    ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
    t.next_step();
    ASSERT_NO_FATAL_FAILURE(step(1));
}

TEST_F(Device, MayBeDestroyedWhileGradientsComeDown)
{
    build(ZOFF_BF16, config_text(folder.path));
    t.backward_all(0.5f);
    hand_over_all();
    e.reset();
}

// A step in one call uses the gradients that are on the device at that time.
TEST_F(Device, TakesAStepInOneCall)
{
    build(ZOFF_BF16, config_text(""));
    t.backward_all(0.5f);
    t.launch_all();
    (void)t.gradients_there(0); // enqueued behind them
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    reference::step(t.tensors, config_groups(), 1, 1.0, 1.0, 0);
    t.expect_weights();
}

// Persistent files of states are the same, whether an engine with or without a device wrote them.
TEST_F(Device, ContinuesFromTheStatesOfAHost)
{
    const std::string text = config_text(folder.path, 1, ", \"zoff\": {\"persist\": true}");
    trainer before(3);
    add_awkward(before, ZOFF_F32, ZOFF_F32);
    {
        engine host = seal_engine(before, text, 3000);
        before.backward_all(0.5f);
        ASSERT_ZOFF_OK(zoff_step(host.get(), nullptr, &info));
    }
    build(ZOFF_F32, text);
    int64_t count = 0;
    ASSERT_ZOFF_OK(zoff_step_count(e.get(), &count));
    EXPECT_EQ(1, count);
    reference::step(before.tensors, config_groups(), 1, 1.0, 1.0, 0);
    before.next_step();
    t.tensors = before.tensors;
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    t.expect_weights();
    ASSERT_NO_FATAL_FAILURE(step(2));
    t.expect_states(e.get());
}
} // namespace
