/* SPDX-License-Identifier: Apache-2.0 */
// agreement_step_test.cc: gives one rank a different value for each argument of a step except gradients. The step must fail
// before it changes anything, and the error must name the value. The test drops the step and repeats it with the right values;
// the result must not differ from a run without the error.
#include "agreement.h"

#include <cstddef>

using namespace agreement;

namespace
{
// One difference on one rank: to the arguments of a step, or to the engine before the step. Includes how to undo it.
struct difference {
    const char *name;  // the name that the message must contain; NULL: the difference has no effect
    const char *shown; // the values that the message must contain; NULL: not checked
    std::function<void(zoff_step_args &, std::vector<zoff_optimizer_hyper> &)> args;
    std::function<void(zoff_engine *, bool back)> engine;
};

zoff_loss_scaler scaler_of(const zoff_engine *e)
{
    zoff_loss_scaler s = {};
    s.struct_size = sizeof s;
    EXPECT_ZOFF_OK(zoff_loss_scaler_get(e, &s));
    return s;
}

std::vector<difference> differences()
{
    using h = zoff_optimizer_hyper;
    const auto hyper = [](const char *name, auto field, auto value) {
        return difference{name, nullptr,
                          [=](zoff_step_args &a, std::vector<h> &groups) {
                              groups[1].*field = value;
                              a.hyper = groups.data();
                              a.hyper_count = groups.size();
                              a.hyper_stride = sizeof groups[0];
                          },
                          nullptr};
    };
    const auto scaler = [](const char *name, auto field, auto value) {
        return difference{name, nullptr, nullptr, [=](zoff_engine *e, bool back) {
                              zoff_loss_scaler s = scaler_of(e), was = s;
                              static thread_local zoff_loss_scaler saved;
                              s.iterations = 5;
                              s.last_overflow = 3;
                              s.*field = value;
                              if (!back)
                                  saved = was;
                              EXPECT_ZOFF_OK(zoff_loss_scaler_set(e, back ? &saved : &s));
                          }};
    };
    std::vector<difference> all = {
        {"zoff_step_args.t", "is 2 on rank 0 and 7 on rank 1", [](auto &a, auto &) { a.t = 7; }, nullptr},
        {nullptr, nullptr, [](auto &a, auto &) { a.t = 2; }, nullptr}, // the same step number that the engine counts
        {"zoff_step_args.clip_norm", "is 1 on rank 0 and 0.5 on rank 1", [](auto &a, auto &) { a.clip_norm = 0.5; }, nullptr},
        {"zoff_step_args.clip_norm", "is 1 on rank 0 and 0 on rank 1", [](auto &a, auto &) { a.clip_norm = -1; }, nullptr},
        {nullptr, nullptr, [](auto &a, auto &) { a.clip_norm = 1; }, nullptr}, // the same value as in the configuration
        {"zoff_step_args.grad_scale", "is 1 on rank 0 and 0.5 on rank 1", [](auto &a, auto &) { a.grad_scale = 0.5; }, nullptr},
        {nullptr, nullptr, [](auto &a, auto &) { a.grad_scale = 1; }, nullptr},
        {"zoff_step_args.flags", "is 0 on rank 0 and 1 on rank 1", [](auto &a, auto &) { a.flags = ZOFF_STEP_ZERO_GRADS; },
         nullptr},
        {nullptr, nullptr, [](auto &a, auto &) { a.struct_size = offsetof(zoff_step_args, flags); }, nullptr},
        {nullptr, nullptr, // the same hyper-parameters, given with the call
         [](auto &a, auto &groups) {
             a.hyper = groups.data();
             a.hyper_count = 1;
         },
         nullptr},
        hyper("zoff_optimizer_hyper.lr of group 1, after the schedule, is 0.001", &h::lr, 0.5),
        hyper("zoff_optimizer_hyper.beta1 of group 1", &h::beta1, 0.5),
        hyper("zoff_optimizer_hyper.beta2 of group 1", &h::beta2, 0.5),
        hyper("zoff_optimizer_hyper.eps of group 1", &h::eps, 0.5),
        hyper("zoff_optimizer_hyper.weight_decay of group 1", &h::weight_decay, 0.5),
        hyper("zoff_optimizer_hyper.decay of group 1, after the schedule, is decoupled on rank 0 and L2", &h::decay,
              ZOFF_DECAY_L2),
        hyper("zoff_optimizer_hyper.momentum of group 1", &h::momentum, 0.5),
        hyper("zoff_optimizer_hyper.dampening of group 1", &h::dampening, 0.5),
        hyper("zoff_optimizer_hyper.lr_decay of group 1", &h::lr_decay, 0.5),
        hyper("zoff_optimizer_hyper.flags of group 1, after the schedule, is 0 on rank 0 and 0x1", &h::flags,
              (uint64_t)ZOFF_HYPER_NO_BIAS_CORRECTION),
        {"zoff_optimizer_hyper.lr of group 0", nullptr, nullptr,
         [](zoff_engine *e, bool back) {
             zoff_optimizer_hyper own;
             zoff_optimizer_hyper_init(&own, ZOFF_OPTIMIZER_ADAM);
             own.lr = back ? own.lr : 0.25;
             EXPECT_ZOFF_OK(zoff_engine_set_group(e, 0, &own));
         }},
        {"zoff_step_args.t", "is 2 on rank 0 and 41 on rank 1", nullptr,
         [](zoff_engine *e, bool back) { EXPECT_ZOFF_OK(zoff_step_count_set(e, back ? 1 : 40)); }},
        scaler("zoff_loss_scaler.scale", &zoff_loss_scaler::scale, 256.0),
        scaler("zoff_loss_scaler.iterations", &zoff_loss_scaler::iterations, (int64_t)9),
        scaler("zoff_loss_scaler.last_overflow", &zoff_loss_scaler::last_overflow, (int64_t)1),
        scaler("zoff_loss_scaler.hysteresis", &zoff_loss_scaler::hysteresis, (uint64_t)7),
    };
    return all;
}

struct life {
    zoff_status status = ZOFF_OK, retried = ZOFF_OK;
    zoff_outcome after = ZOFF_OUTCOME_AFTER;
    std::string message;
    bool untouched = true;
    std::vector<char> weights;
};

// Take step 1, then step 2 with the difference on rank 1. If step 2 is refused, retry it, drop it, and take it without the
// difference. Then take step 3.
std::vector<life> live(unsigned ranks, const std::string &json, const difference *d)
{
    rank_job job(ranks, 20);
    std::vector<life> all(ranks);
    std::vector<model> models(ranks);
    std::vector<engine> engines(ranks);
    for (unsigned rank = 0; rank < ranks; rank++) {
        zoff_engine *made = nullptr;
        EXPECT_ZOFF_OK(make(models[rank].usual(json), job.comm_of(rank), &made));
        engines[rank].reset(made);
    }
    job.on_each([&](unsigned rank) {
        zoff_engine *e = engines[rank].get();
        life &mine = all[rank];
        model &m = models[rank];
        EXPECT_ZOFF_OK(zoff_engine_seal(e));
        EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
        m.new_gradients(100 + rank);
        const std::vector<char> before = m.bytes();
        std::vector<zoff_optimizer_hyper> groups(2);
        for (auto &h : groups)
            zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
        zoff_step_args args = {};
        args.struct_size = sizeof args;
        zoff_step_info info = new_info();
        const bool differs = d && rank == 1;
        if (differs && d->args)
            d->args(args, groups);
        if (differs && d->engine)
            d->engine(e, false);
        mine.status = zoff_step(e, &args, &info);
        mine.message = mine.status < 0 ? zoff_last_error() : "";
        mine.after = info.outcome;
        if (mine.status < 0) {
            mine.retried = zoff_step_retry(e, nullptr);
            EXPECT_EQ(mine.message, zoff_last_error());
            mine.untouched = before == m.bytes();
            EXPECT_ZOFF_OK(zoff_grads_drop(e));
            if (differs && d->engine)
                d->engine(e, true);
            EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
        } else if (differs && d->engine) {
            d->engine(e, true);
        }
        m.new_gradients(200 + rank);
        EXPECT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
        mine.weights = m.bytes();
    });
    return all;
}

TEST(Agreement, EveryValueOfAStep)
{
    quiet log;
    size_t number = 0;
    for (const auto &d : differences()) {
        const unsigned ranks = is_full() || number % 6 == 0 ? 4 : 2, stage = (unsigned)number % 3;
        number++;
        SCOPED_TRACE(std::to_string(number) + ": " + (d.name ? d.name : "without effect"));
        const bool has_scale = d.name && strstr(d.name, "loss_scaler");
        const std::string json = "{\"gradient_clipping\": 1.0, \"zero_optimization\": {\"stage\": " + std::to_string(stage) +
                                 "}" + (has_scale ? ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 4}}" : "}");
        const auto want = live(ranks, json, nullptr), got = live(ranks, json, &d);
        for (unsigned rank = 0; rank < ranks; rank++) {
            SCOPED_TRACE("rank " + std::to_string(rank));
            EXPECT_TRUE(want[rank].weights == got[rank].weights) << "other weights";
            if (!d.name) {
                EXPECT_EQ(ZOFF_OK, got[rank].status) << got[rank].message;
                continue;
            }
            EXPECT_EQ(ZOFF_ERR_INVALID, got[rank].status) << got[rank].message;
            EXPECT_EQ(ZOFF_ERR_INVALID, got[rank].retried);
            EXPECT_EQ(ZOFF_OUTCOME_BEFORE, got[rank].after);
            EXPECT_TRUE(got[rank].untouched);
            EXPECT_NE(std::string::npos, got[rank].message.find(d.name)) << got[rank].message;
            std::string shown = d.shown ? d.shown : " on rank 1";
            if (ranks == 4 && shown.find("rank 0") != std::string::npos)
                shown.replace(shown.find("rank 0"), 6, "ranks 0, 2 and 3");
            EXPECT_NE(std::string::npos, got[rank].message.find(shown)) << got[rank].message;
        }
    }
    RecordProperty("values_changed", (int)number);
    printf("agreement: %zu values of a step changed on one rank\n", number);
}
} // namespace
