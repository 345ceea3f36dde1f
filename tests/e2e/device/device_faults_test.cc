/* SPDX-License-Identifier: Apache-2.0 */
// device_faults_test.cc: a device that fails. After a failure of any call the step reports its outcome, and the engine can
// continue.
#include "covering.h"
#include "rank_job.h"

using namespace zoff_test;

namespace
{
struct DeviceFaults : testing::Test {
    DeviceFaults() : device(5), t(3)
    {
        add_awkward(t, ZOFF_BF16, ZOFF_BF16);
        t.put_on(&device);
    }
    void make(const std::string &text) { e = make_engine(t, text, 9000, 0, nullptr, device.accel); }

    test_device device;
    trainer t;
    scratch_folder folder;
    engine e;
};

TEST_F(DeviceFaults, SealIsAllOrNothing)
{
    make(with_ratio(config_text(folder.path), 0.5));
    zoff_status status = ZOFF_OK;
    int nth = 1;
    for (; nth < 1000; nth++) {
        device.fail = nth;
        device.calls = 0;
        status = zoff_engine_seal(e.get());
        device.fail = 0;
        if (status == ZOFF_OK)
            break;
        ASSERT_EQ(ZOFF_ERR_DEVICE, status) << zoff_last_error();
        ASSERT_NE(nullptr, strstr(zoff_last_error(), "as the test asked for")) << zoff_last_error();
    }
    EXPECT_ZOFF_OK(status);
    EXPECT_LT(20, nth);
    t.expect_states(e.get());
}

// Hand over the gradients that are still left; some calls may fail.
zoff_status hand_over(trainer &t, zoff_engine *e, void *stream, std::vector<std::pair<size_t, size_t>> &left)
{
    while (!left.empty()) {
        const auto [i, slice] = left.back();
        t.launch(i, slice);
        const zoff_status status = zoff_grad_ready(e, (zoff_param)i, slice, stream);
        if (status < 0)
            return status;
        left.pop_back();
    }
    return ZOFF_OK;
}

// A full run lets each call of a step fail in turn. By default every seventh call fails, starting at another one for each kind
// of engine.
int first_fault(int kind)
{
    return is_full_run() ? 1 : 1 + kind * 2 % 7;
}
int next_fault(int nth)
{
    return nth + (is_full_run() ? 1 : 7);
}
// A lower bound on the number of faults in this run, from the one for a full run.
unsigned of_faults(unsigned in_full)
{
    return is_full_run() ? in_full : in_full / 7 - 1;
}

// For each n, the nth call of a step fails, until no call fails. Nothing may be lost. A retry must end as if there had been no
// fault, including gradients that are to be zeroed. The number of event polls depends on the scheduler.
enum tier { HOST, FILES, KEPT_FILES };
class EachCall : public DeviceFaults, public testing::WithParamInterface<std::tuple<tier, bool, double>>
{
};
std::string name_of(const testing::TestParamInfo<std::tuple<tier, bool, double>> &one)
{
    const char *const tiers[] = {"host", "nvme", "persist"};
    return std::string(tiers[std::get<0>(one.param)]) + (std::get<1>(one.param) ? "_polls" : "_calls") +
           (std::get<2>(one.param) < 1 ? "_half" : "");
}
INSTANTIATE_TEST_SUITE_P(Device, EachCall,
                         testing::Combine(testing::Values(HOST, FILES, KEPT_FILES), testing::Bool(),
                                          testing::ValuesIn(DEVICE_RATIOS)),
                         name_of);

TEST_P(EachCall, InAStepMayFailOnce)
{
    const bool polls = std::get<1>(GetParam());
    const tier where = std::get<0>(GetParam());
    const int kind = 2 * where + (std::get<2>(GetParam()) < 1);
    std::string text = with_ratio(config_text(where == HOST ? "" : folder.path), std::get<2>(GetParam()));
    if (where == KEPT_FILES)
        text.insert(1, "\"zoff\": {\"persist\": true}, ");
    make(text);
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    int64_t number = 0;
    unsigned failed = 0;
    int torn = 0;
    bool over = false;
    device.fails_polls = polls;
    for (int nth = polls ? 1 : first_fault(kind); !over && nth < 10000; nth = polls ? nth + 1 + nth / 4 : next_fault(nth)) {
        t.backward_all(0.5f);
        std::vector<std::pair<size_t, size_t>> left;
        for (size_t i = 0; i < t.tensors.size(); i++) {
            for (size_t slice = 0; slice < t.tensors[i].slices; slice++)
                left.emplace_back(i, slice);
        }
        device.fail = nth;
        device.calls = 0;
        zoff_status status = hand_over(t, e.get(), device.stream, left);
        if (status < 0) {
            ASSERT_EQ(ZOFF_ERR_DEVICE, status);
            ASSERT_ZOFF_OK(hand_over(t, e.get(), device.stream, left));
        }
        zoff_step_info info = new_info();
        zoff_step_args args = {};
        args.struct_size = sizeof args;
        args.flags = ZOFF_STEP_ZERO_GRADS;
        status = zoff_step_begin(e.get(), &args);
        if (status < 0) { // a gradient was left to a thread that updates ahead, which met the fault
            ASSERT_TRUE(updates_ahead() && has_progress_thread()) << zoff_last_error();
            ASSERT_EQ(ZOFF_ERR_DEVICE, status) << zoff_last_error();
            ASSERT_ZOFF_OK(zoff_step_begin(e.get(), &args));
        }
        // Another call may work on the step first, or finish it: zoff_step_wait() returns its error, too.
        zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT;
        const zoff_status before = nth % 3 == 0   ? zoff_grad_reusable(e.get(), t.tensors.size() - 1, 0, device.stream)
                                   : nth % 3 == 1 ? zoff_loss_scaler_get(e.get(), &scaler)
                                                  : ZOFF_OK;
        const zoff_status ended = zoff_step_wait(e.get(), &info);
        ASSERT_TRUE(before == ZOFF_OK || before == ended) << zoff_last_error();
        if (ended < 0) {
            ASSERT_EQ(ZOFF_ERR_DEVICE, ended) << zoff_last_error();
            torn += info.outcome == ZOFF_OUTCOME_TORN;
            info = new_info();
            ASSERT_ZOFF_OK(zoff_step_retry(e.get(), &info));
        }
        EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
        failed += device.calls >= nth;
        over = device.calls < nth;
        reference::step(t.tensors, config_groups(), ++number, 1.0, 1.0, 0);
        t.next_step();
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        device.fail = 0;
        ASSERT_NO_FATAL_FAILURE(t.expect_zero_gradients_there());
    }
    t.expect_states(e.get());
    // Fewer buckets on the host make fewer calls.
    EXPECT_LT(polls ? 3u : of_faults(std::get<2>(GetParam()) < 1 ? 60 : 100), failed);
    EXPECT_LT(polls ? -1 : (int)of_faults(10), torn);
}

TEST_F(DeviceFaults, ADeviceThatIsGoneStopsTheStepBeforeAnythingHasChanged)
{
    make(config_text(""));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    t.backward_all(0.5f);
    for (size_t i = 0; i < t.tensors.size(); i++) {
        for (size_t slice = 0; slice < t.tensors[i].slices; slice++)
            t.hand_over(e.get(), i, slice);
    }
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device.accel, device.stream));
    device.calls = device.fail = 1; /* the very next call fails */
    device.fails_for_ever = true;
    zoff_step_info info = new_info();
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "failed before anything was changed", zoff_step_wait(e.get(), &info));
    EXPECT_EQ(ZOFF_OUTCOME_BEFORE, info.outcome);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "as the test asked for", zoff_step_retry(e.get(), &info));
    EXPECT_ZOFF_OK(zoff_grads_drop(e.get()));
    t.next_step();
    t.expect_weights();
    t.expect_states(e.get());
}

// One of two ranks loses its device at some call of a step with many buckets. The step must fail on both ranks. The
// communicator may access the devices, and these may hold a share of the states.
class DeviceOfOneRank : public testing::TestWithParam<std::pair<bool, double>>
{
  protected:
    static bool is_reached() { return GetParam().first; }
    static int kind() { return is_reached() + (GetParam().second < 1); }
    static std::string text()
    {
        return "{\"gradient_clipping\": 0, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
               "\"zero_optimization\": {\"stage\": 1, \"reduce_bucket_size\": 1024, \"offload_optimizer\": "
               "{\"device\": \"cpu\", \"ratio\": " +
               std::to_string(GetParam().second) + "}}}";
    }
    struct opened { // engines of both ranks, with a bucket for each slice
        opened() : job(2, 20), all(job, 3, [](trainer &t) { t.add(1024, 20, ZOFF_BF16, ZOFF_BF16); })
        {
            all.use_devices(0);
            if (is_reached())
                job.reach_devices();
            all.seal(text(), 1024);
        }
        rank_job job;
        rank_trainers all;
    };
};
INSTANTIATE_TEST_SUITE_P(Device, DeviceOfOneRank, testing::ValuesIn([] {
                             std::vector<std::pair<bool, double>> all;
                             for (bool reached : {false, true}) {
                                 for (double share : DEVICE_RATIOS)
                                     all.emplace_back(reached, share);
                             }
                             return all;
                         }()),
                         [](const auto &one) {
                             return std::string(one.param.first ? "reached" : "notReached") +
                                    (one.param.second < 1 ? "_half" : "");
                         });

TEST_P(DeviceOfOneRank, ItsLossFailsTheStepEverywhere)
{
    unsigned failed = 0, torn = 0;
    bool over = false;
    for (int nth = first_fault(kind()); !over && nth < 5000; nth = next_fault(nth)) {
        opened run;
        rank_job &job = run.job;
        rank_trainers &all = run.all;
        if (HasFailure())
            return;
        all.backward(1, 0.5f);
        test_device &lost = *all.devices[0];
        lost.calls = 0;
        lost.fail = nth;
        lost.fails_for_ever = true;
        job.on_each([&](unsigned rank) {
            zoff_engine *e = all.engines[rank].get();
            trainer &t = *all.trainers[rank];
            zoff_status status = ZOFF_OK;
            for (size_t i = 0; i < t.tensors.size(); i++) {
                for (size_t slice = 0; status == ZOFF_OK && slice < t.tensors[i].slices; slice++) {
                    t.launch(i, slice);
                    status = zoff_grad_ready(e, (zoff_param)i, slice, all.devices[rank]->stream);
                }
            }
            zoff_step_info info = new_info();
            status = status == ZOFF_OK ? zoff_step_begin(e, nullptr) : status;
            status = status == ZOFF_OK ? zoff_step_wait(e, &info) : status;
            if (rank == 0) {
                EXPECT_TRUE(status == ZOFF_ERR_DEVICE || (status == ZOFF_OK && lost.calls < nth)) << zoff_last_error();
                failed += status < 0;
                torn += info.outcome == ZOFF_OUTCOME_TORN;
                over = status == ZOFF_OK;
            } else {
                EXPECT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_COMM) << zoff_last_error();
            }
            all.engines[rank].reset();
            job.leave(rank);
        });
    }
    EXPECT_TRUE(over);
    EXPECT_LT(of_faults(100), failed);
    EXPECT_LT(of_faults(30), torn);
}

// A push, outside of a step: weights are made from the masters and sent to all ranks.
TEST_P(DeviceOfOneRank, ItsLossFailsThePushEverywhere)
{
    unsigned failed = 0;
    bool over = false;
    for (int nth = first_fault(kind()); !over && nth < 5000; nth = next_fault(nth)) {
        opened run;
        rank_job &job = run.job;
        rank_trainers &all = run.all;
        if (HasFailure())
            return;
        test_device &lost = *all.devices[0];
        lost.calls = 0;
        lost.fail = nth;
        lost.fails_for_ever = true;
        job.on_each([&](unsigned rank) {
            const zoff_status status = zoff_params_push(all.engines[rank].get());
            if (rank == 0) {
                EXPECT_TRUE(status == ZOFF_ERR_DEVICE || (status == ZOFF_OK && lost.calls < nth)) << zoff_last_error();
                failed += status < 0;
                over = status == ZOFF_OK;
            } else {
                EXPECT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_COMM) << zoff_last_error();
            }
            all.engines[rank].reset();
            job.leave(rank);
        });
    }
    EXPECT_TRUE(over);
    EXPECT_LT(of_faults(20), failed);
}

// Whether an engine whose push has failed refuses what would change states or take them, because weights are on their way.
bool refuses_others(zoff_engine *e, const std::vector<float> &masters)
{
    const zoff_status status = zoff_state_write(e, 0, ZOFF_STATE_MASTER, 0, masters.size(), masters.data());
    if (status == ZOFF_OK) // nothing was sent yet
        return false;
    for (zoff_status next : {status, zoff_params_pull(e), zoff_grads_drop(e), zoff_step(e, nullptr, nullptr)})
        EXPECT_EQ(ZOFF_ERR_STATE, next);
    EXPECT_STREQ(
        "zoff_step: zoff_params_push() has failed while ranks sent each other weights; call it again, or destroy the engine",
        zoff_last_error());
    return true;
}

// A call that fails only once: the rank repeats the push, for which the other one waits, and both have all weights.
TEST_P(DeviceOfOneRank, APushThatFailedOnceIsRepeated)
{
    unsigned failed = 0, refused = 0;
    bool over = false;
    opened run;
    rank_trainers &all = run.all;
    rank_job &job = run.job;
    for (int nth = 1; !over && nth < 5000 && !HasFailure(); nth++) {
        test_device &flaky = *all.devices[0];
        const float value = (float)(nth % 100);
        const std::vector<float> masters(20 * 1024, value);
        job.on_each([&](unsigned rank) {
            EXPECT_ZOFF_OK(zoff_state_write(all.engines[rank].get(), 0, ZOFF_STATE_MASTER, 0, masters.size(), masters.data()));
        });
        flaky.calls = 0;
        flaky.fail = nth;
        job.on_each([&](unsigned rank) {
            zoff_status status = zoff_params_push(all.engines[rank].get());
            if (rank == 0) {
                over = status == ZOFF_OK;
                EXPECT_TRUE(status == ZOFF_OK || status == ZOFF_ERR_DEVICE) << zoff_last_error();
                failed += status < 0;
                if (status == ZOFF_ERR_DEVICE) {
                    refused += refuses_others(all.engines[rank].get(), masters);
                    status = zoff_params_push(all.engines[rank].get());
                }
            }
            EXPECT_ZOFF_OK(status);
        });
        flaky.fail = 0;
        all.want.tensors[0].master = masters;
        job.on_each([&](unsigned rank) {
            all.trainers[rank]->tensors = all.want.tensors;
            all.trainers[rank]->expect_weights();
        });
    }
    EXPECT_TRUE(over);
    EXPECT_LT(20u, failed);
    EXPECT_LT(is_reached() ? -1 : 0, (int)refused);
}
} // namespace
