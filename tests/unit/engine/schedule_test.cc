/* SPDX-License-Identifier: Apache-2.0 */
// schedule_test.cc: each step uses the schedule's hyper-parameters for a group, and fails if the schedule gives none. The
// schedules themselves are tested in tests/unit/model/lr_schedule_test.cc.
#include "small_engine.h"

extern "C" {
#include "zoff_model.h"
}

#include <math.h>

using namespace zoff_test;

namespace
{
TEST(Schedule, GroupsKeepTheirOwnRate)
{
    log_catcher log;
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32, 0);
    t.add(3, 1, ZOFF_F32, ZOFF_F32, 1);
    engine e = seal_engine(
        t,
        "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}, \"gradient_clipping\": 0, \"scheduler\": {\"type\": "
        "\"WarmupLR\", \"params\": {\"warmup_num_steps\": 4, \"warmup_type\": \"linear\"}}}");
    zoff_optimizer_hyper second;
    zoff_optimizer_hyper_init(&second, ZOFF_OPTIMIZER_ADAM);
    second.lr = 0.25;
    ASSERT_ZOFF_OK(zoff_engine_set_group(e.get(), 1, &second));
    auto groups = config_groups();
    for (int step = 1; step <= 7; step++) {
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        double share = step < 2 ? 0 : fmin(1, (step - 2) / 4.0);
        groups[0].lr = 0.5 * share;
        groups[1].lr = 0.25 * share;
        reference::step(t.tensors, groups, step, 1, 1, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }
}

// The rate of zoff_engine_set_lr() is scaled by the schedule, as that of the configuration is, and ZOFF_KEEP in a step is the
// scheduled one.
TEST(Schedule, ScalesTheRateThatIsSetAndIsKept)
{
    log_catcher log;
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(
        t,
        "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}, \"gradient_clipping\": 0, \"scheduler\": {\"type\": "
        "\"WarmupLR\", \"params\": {\"warmup_num_steps\": 4, \"warmup_type\": \"linear\"}}}");
    zoff_optimizer_hyper keep;
    zoff_optimizer_hyper_init(&keep, ZOFF_OPTIMIZER_KEEP);
    zoff_step_args args = ZOFF_STEP_ARGS_INIT;
    args.hyper = &keep;
    args.hyper_count = 1;
    auto groups = config_groups();
    for (int step = 1; step <= 7; step++) {
        t.next_step();
        t.backward_all(0.1f);
        if (step == 3) {
            ASSERT_ZOFF_OK(zoff_engine_set_lr(e.get(), 0, 0.25));
        }
        keep.weight_decay = step % 3 ? ZOFF_KEEP : 0.5;
        ASSERT_ZOFF_OK(zoff_step(e.get(), step % 2 ? &args : nullptr, nullptr));
        groups[0].lr = (step < 3 ? 0.5 : 0.25) * (step < 2 ? 0 : fmin(1, (step - 2) / 4.0));
        groups[0].weight_decay = step == 3 ? 0.5 : 0;
        reference::step(t.tensors, groups, step, 1, 1, 0);
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }
}

TEST(Schedule, ARateThatItDoesNotUseIsRefused)
{
    static const struct {
        const char *scheduler;
        bool uses;
    } CASES[] = {
        {"null", true},
        {R"({"type": "WarmupCosineLR", "params": {"total_num_steps": 9000}})", true},
        {R"({"type": "WarmupDecayLR", "params": {"total_num_steps": 9000, "warmup_max_lr": null}})", true},
        {R"({"type": "WarmupDecayLR", "params": {"total_num_steps": 9000}})", false},
        {R"({"type": "WarmupLR", "params": {"warmup_max_lr": 0}})", false},
        {R"({"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2}})", false},
        {R"({"type": "LRRangeTest"})", false},
    };
    for (const auto &c : CASES) {
        SCOPED_TRACE(c.scheduler);
        log_catcher log;
        trainer t(1);
        t.add(3, 1, ZOFF_F32, ZOFF_F32);
        engine e = seal_engine(t, std::string("{\"scheduler\": ") + c.scheduler + "}");
        if (c.uses) {
            EXPECT_ZOFF_OK(zoff_engine_set_lr(e.get(), 0, 0.5));
            continue;
        }
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                          "zoff_engine_set_lr: the scheduler computes the rate of each step from its own parameters. Set its "
                          "warmup_max_lr to null, if it has one, or remove the scheduler, or give the rate with the step",
                          zoff_engine_set_lr(e.get(), 0, 0.5));
    }
}

// The schedule sets lr before the optimizer's rule reads it: Adagrad's own decay comes on top. Without an lr the top of the
// warm-up is the optimizer's default.
TEST(Schedule, ActsOnEveryOptimizer)
{
    const std::pair<const char *, zoff_optimizer> cases[] = {{"Adagrad", ZOFF_OPTIMIZER_ADAGRAD},
                                                             {"Lion", ZOFF_OPTIMIZER_LION},
                                                             {"SGD", ZOFF_OPTIMIZER_SGD},
                                                             {"AdamW", ZOFF_OPTIMIZER_ADAM}};
    for (const auto &c : cases) {
        SCOPED_TRACE(c.first);
        log_catcher log;
        trainer t(1);
        t.add(300, 1, ZOFF_F32, ZOFF_F32);
        const std::string params = c.second == ZOFF_OPTIMIZER_ADAGRAD ? "\"lr_decay\": 0.5" : "";
        engine e = seal_engine(t, "{\"optimizer\": {\"type\": \"" + std::string(c.first) + "\", \"params\": {" + params +
                                      "}}, \"gradient_clipping\": 0, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                                      "{\"warmup_num_steps\": 4, \"warmup_type\": \"linear\"}}}");
        zoff_optimizer_hyper h;
        zoff_optimizer_hyper_init(&h, c.second);
        h.lr_decay = params.empty() ? 0 : 0.5;
        if (c.second == ZOFF_OPTIMIZER_LION) { // without values in the file, DeepSpeed's defaults apply
            h.lr = 1e-3;
            h.beta2 = 0.999;
        }
        const double top = h.lr;
        for (int step = 1; step <= 7; step++) {
            t.next_step();
            t.backward_all(0.1f);
            auto info = new_info();
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
            h.lr = top * (step < 2 ? 0 : fmin(1, (step - 2) / 4.0));
            EXPECT_EQ(h.lr, info.numbers.lr);
            reference::step(t.tensors, {h}, step, 1, 1, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        }
    }
}

// Weights reveal the betas. tests/unit/model/lr_schedule_test.cc checks the numbers.
TEST(Schedule, OneCycleMovesBetas)
{
    zoff_schedule_values schedule = {};
    schedule.type = ZOFF_SCHEDULE_ONE_CYCLE;
    schedule.cycle = {0.015625, 0.0625, 0.5, 4, 12, 0, 0, 4, true, 0.5, 0.75, 0.125};
    for (const char *type : {"AdamW", "Adam", "Lion", "SGD", "Adagrad"}) {
        for (const bool moves : {true, false}) {
            SCOPED_TRACE(testing::Message() << type << (moves ? "" : ", betas stay"));
            log_catcher log;
            trainer t(1);
            t.add(300, 1, ZOFF_F32, ZOFF_F32);
            const zoff_optimizer optimizer = *type == 'S'              ? ZOFF_OPTIMIZER_SGD
                                             : *type == 'L'            ? ZOFF_OPTIMIZER_LION
                                             : strstr(type, "Adagrad") ? ZOFF_OPTIMIZER_ADAGRAD
                                                                       : ZOFF_OPTIMIZER_ADAM;
            zoff_optimizer_hyper h;
            zoff_optimizer_hyper_init(&h, optimizer);
            h.beta2 =
                optimizer == ZOFF_OPTIMIZER_LION ? 0.999 : h.beta2; // without values in the file, DeepSpeed's defaults apply
            h.momentum = optimizer == ZOFF_OPTIMIZER_SGD ? 0.625 : 0;
            const bool has_betas = optimizer == ZOFF_OPTIMIZER_ADAM || optimizer == ZOFF_OPTIMIZER_LION;
            if (moves && !has_betas)
                log.expect("scheduler.params.cycle_momentum has no effect with optimizer.type " + std::string(type) +
                           ", whose betas no cycle moves");
            engine e = seal_engine(
                t, "{\"optimizer\": {\"type\": \"" + std::string(type) + "\"" +
                       (h.momentum != 0 ? ", \"params\": {\"momentum\": 0.625}" : "") +
                       "}, \"gradient_clipping\": 0, \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": "
                       "0.015625, "
                       "\"cycle_max_lr\": 0.0625, \"cycle_first_step_size\": 4, \"cycle_second_step_size\": 12, "
                       "\"decay_step_size\": 4, "
                       "\"decay_lr_rate\": 0.5, \"cycle_min_mom\": 0.5, \"cycle_max_mom\": 0.75, \"decay_mom_rate\": 0.125, "
                       "\"cycle_momentum\": " +
                       (moves ? "true" : "false") + "}}}");
            for (int64_t update = 1; update <= 24; update++) {
                t.next_step();
                t.backward_all(0.1f);
                ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
                zoff_optimizer_hyper scheduled = h;
                schedule.cycle.moves_momentum = moves;
                zoff_model_lr_schedule_apply(&schedule, update, &scheduled);
                reference::step(t.tensors, {scheduled}, update, 1, 1, 0);
                ASSERT_NO_FATAL_FAILURE(t.expect_weights());
            }
        }
    }
}

TEST(Schedule, AMomentumOfOneIsAnError)
{
    log_catcher log;
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, "{\"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1, \"cycle_max_lr\": 2, "
                              "\"cycle_first_step_size\": 1, \"decay_step_size\": 1, \"decay_mom_rate\": 0.5}}}");
    for (int i = 0; i < 3; i++)
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step: group 0, values of the scheduler: beta1 is 1.35",
                      zoff_step(e.get(), nullptr, nullptr));
    // The remedy: pass hyper-parameters to the call.
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    zoff_step_args args = {};
    args.struct_size = sizeof args;
    args.hyper = &h;
    args.hyper_count = 1;
    EXPECT_ZOFF_OK(zoff_step(e.get(), &args, nullptr));
}

// A range test continues until somebody stops it, at the latest at the end of fp32's range.
TEST(Schedule, RatesThatAreNoneAreErrors)
{
    log_catcher log;
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32);
    for (const char *rate : {"1e38", "-1"}) {
        engine e = seal_engine(t, "{\"scheduler\": {\"type\": \"LRRangeTest\", \"params\": {\"lr_range_test_min_lr\": 1, "
                                  "\"lr_range_test_step_size\": 1, \"lr_range_test_step_rate\": " +
                                      std::string(rate) + "}}}");
        zoff_step_args args = {};
        args.struct_size = sizeof args;
        args.t = 10;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step: group 0, values of the scheduler: lr is ",
                          zoff_step(e.get(), &args, nullptr));
    }
}

TEST(Schedule, HyperParametersOfTheCallAreTakenAsTheyAre)
{
    for (const char *scheduler : {"\"WarmupLR\"", "\"WarmupDecayLR\", \"params\": {\"total_num_steps\": 5000}",
                                  "\"WarmupCosineLR\", \"params\": {\"total_num_steps\": 5000}",
                                  "\"OneCycle\", \"params\": {\"cycle_min_lr\": 1, \"cycle_max_lr\": 2}", "\"LRRangeTest\""}) {
        log_catcher log;
        trainer t(1);
        t.add(3, 1, ZOFF_F32, ZOFF_F32);
        engine e = seal_engine(t, "{\"gradient_clipping\": 0, \"scheduler\": {\"type\": " + std::string(scheduler) + "}}");
        zoff_optimizer_hyper h;
        zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
        h.lr = 0.125;
        h.beta1 = 0.625;
        zoff_step_args args = {};
        args.struct_size = sizeof args;
        args.hyper = &h;
        args.hyper_count = 1;
        for (int64_t update = 1; update <= 3; update++) {
            auto info = new_info();
            t.next_step();
            t.backward_all(0.1f);
            ASSERT_ZOFF_OK(zoff_step(e.get(), &args, &info));
            EXPECT_EQ(0.125, info.numbers.lr);
            reference::step(t.tensors, {h}, update, 1, 1, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        }
    }
}
} // namespace
