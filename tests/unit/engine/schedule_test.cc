// schedule_test.cc: the learning rate that each step really uses, against values worked out by hand from DeepSpeed's formulas:
// its scheduler is stepped after an update, so update t sees iteration t - 2 and update 1 the value before the start.
#include "small_engine.h"

#include <math.h>

using namespace zoff_test;

namespace
{
// The rates of the given updates.
std::vector<double> rates_at(const std::string &scheduler, const std::vector<int64_t> &updates)
{
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32);
    std::vector<double> lr;
    engine e =
        seal_engine(t, "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}, \"scheduler\": " + scheduler + "}");
    t.backward_all(0.1f);
    for (int64_t update : updates) {
        zoff_step_args args = {};
        args.struct_size = sizeof args;
        args.t = update;
        auto info = new_info();
        EXPECT_ZOFF_OK(zoff_step(e.get(), &args, &info)) << zoff_last_error();
        lr.push_back(info.lr);
    }
    return lr;
}

std::vector<int64_t> first_updates(int count)
{
    std::vector<int64_t> all;
    for (int i = 1; i <= count; i++)
        all.push_back(i);
    return all;
}

std::vector<double> rates(const std::string &scheduler, int steps)
{
    log_catcher log;
    return rates_at(scheduler, first_updates(steps));
}

void expect_near(const std::vector<double> &want, const std::vector<double> &have)
{
    ASSERT_EQ(want.size(), have.size());
    for (size_t i = 0; i < want.size(); i++)
        EXPECT_NEAR(want[i], have[i], 1e-12) << "step " << i + 1;
}

TEST(Schedule, WarmupLinear)
{
    expect_near(
        {0.1, 0.1, 0.325, 0.55, 0.775, 1, 1, 1},
        rates("{\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 0.1, \"warmup_max_lr\": 1, \"warmup_num_steps\": 4, "
              "\"warmup_type\": \"linear\"}}",
              8));
}

TEST(Schedule, WarmupLogToTheOptimizersRate)
{
    double l = log(4);
    expect_near({0, 0, 0.5 * log(2) / l, 0.5 * log(3) / l, 0.5, 0.5, 0.5},
                rates("{\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 4}}", 7));
}

TEST(Schedule, WarmupCosine)
{
    auto cosine = [](double x) { return 0.5 * (0.1 + 0.9 * (1 + cos(M_PI * x)) / 2); };
    expect_near({0, 0.1, 0.3, cosine(0.25), cosine(0.5), cosine(0.75), cosine(1), cosine(1), cosine(1)},
                rates("{\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 6, \"warmup_min_ratio\": 0.2, "
                      "\"warmup_num_steps\": 2, \"cos_min_ratio\": 0.1, \"warmup_type\": \"linear\"}}",
                      9));
}

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
    zoff_adam_hyper second;
    zoff_adam_hyper_init(&second);
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

// The schedule sets lr before the optimizer's rule sees it: Adagrad's own decay comes on top. Without an lr the top of the
// warm-up is what the optimizer takes by itself.
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
        zoff_adam_hyper h;
        zoff_adam_hyper_init_for(&h, c.second);
        h.lr_decay = params.empty() ? 0 : 0.5;
        if (c.second == ZOFF_OPTIMIZER_LION) { // a file without them means DeepSpeed's
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
            EXPECT_EQ(h.lr, info.lr);
            reference::step(t.tensors, {h}, step, 1, 1, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        }
    }
}

// Up in N updates, then a straight line that is 0 from update total + 2 on.
TEST(Schedule, WarmupDecay)
{
    expect_near(
        {0.1, 0.1, 0.55, 1, 0.1 + 0.9 * 3 / 4, 0.1 + 0.9 * 2 / 4, 0.1 + 0.9 / 4, 0.1, 0.1, 0.1},
        rates(
            "{\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": 0.1, \"warmup_max_lr\": 1, \"total_num_steps\": 6, "
            "\"warmup_num_steps\": 2, \"warmup_type\": \"linear\"}}",
            10));
}

// Left out, the top is DeepSpeed's 0.001; null and "auto" leave it to the optimizer, whose rate here is 0.5.
TEST(Schedule, WarmupDecayByLogarithmsToEachTop)
{
    const std::pair<const char *, double> cases[] = {
        {"", 0.001}, {", \"warmup_max_lr\": null", 0.5}, {", \"warmup_max_lr\": 2", 2}};
    for (const auto &c : cases) {
        std::vector<double> want = {0};
        for (int i = 0; i < 30; i++)
            want.push_back(c.second * (i < 8 ? log(i + 1) / log(8) : i < 20 ? (20 - i) / 12.0 : 0));
        expect_near(want, rates("{\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 20, \"warmup_num_steps\": 8" +
                                    std::string(c.first) + "}}",
                                31));
    }
}

// A warm-up that is longer than the run: after it there is nothing left.
TEST(Schedule, WarmupDecayWithoutARest)
{
    for (int total : {4, 5}) {
        log_catcher log;
        if (total < 5)
            log.expect("total_num_steps 4 is less than warmup_num_steps 5");
        expect_near({0, 0, 0.1, 0.2, 0.3, 0.4, 0, 0},
                    rates_at("{\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_max_lr\": 0.5, \"total_num_steps\": " +
                                 std::to_string(total) + ", \"warmup_num_steps\": 5, \"warmup_type\": \"linear\"}}",
                             first_updates(8)));
    }
}

// OneCycle by whole numbers: update t stands at step t - 1 of the cycle; after the cycle it starts anew only as far as its end.
struct one_cycle {
    int64_t first, second, first_stairs, second_stairs, decay_step;
    double rate;

    double up(int64_t update) const
    {
        const int64_t length = first + second, at = (update - 1) % length;
        const bool rises = at <= first;
        const int64_t done = rises ? at : length - at, of = rises ? first : second,
                      stairs = rises ? first_stairs : second_stairs;
        return stairs ? (double)(done * stairs / of) / (double)stairs : (double)done / (double)of;
    }
    bool is_over(int64_t update) const { return update - 2 >= first + second; }
    double intervals(int64_t update) const
    {
        return decay_step ? (double)(update - 1 - first - second) / (double)decay_step : 0;
    }
    double lr(int64_t update, double low, double high) const
    {
        return is_over(update) ? low / (1 + rate * intervals(update)) : low + (high - low) * up(update);
    }
};

TEST(Schedule, OneCycle)
{
    const one_cycle cases[] = {
        {4, 4, 0, 0, 0, 0},    {3, 5, 0, 0, 0, 0.5}, {7, 2, 0, 0, 3, 0.5},   {5, 0, 0, 0, 2, 1},
        {1, 1, 0, 0, 1, 0.25}, {6, 6, 2, 3, 0, 0},   {7, 5, 3, 2, 4, 2},     {9, 4, 4, 9, 1, 0},
        {3, 3, 10, 10, 5, 1},  {5, 0, 2, 1, 2, 1},   {10, 30, 1, 1, 7, 0.1},
    };
    for (const auto &c : cases) {
        SCOPED_TRACE(testing::Message() << c.first << " + " << c.second << ", stairs " << c.first_stairs << ", "
                                        << c.second_stairs);
        std::vector<double> want;
        std::vector<int64_t> updates = first_updates((int)(c.first + c.second) + 12);
        updates.push_back(1000000007);
        for (int64_t update : updates)
            want.push_back(c.lr(update, 0.25, 2));
        auto param = [](const char *name, double value) { return ", \"" + std::string(name) + "\": " + std::to_string(value); };
        log_catcher log;
        expect_near(want, rates_at("{\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0.25, \"cycle_max_lr\": 2" +
                                       param("cycle_first_step_size", (double)c.first) +
                                       param("cycle_second_step_size", (double)c.second) +
                                       param("cycle_first_stair_count", (double)c.first_stairs) +
                                       param("cycle_second_stair_count", (double)c.second_stairs) +
                                       param("decay_step_size", (double)c.decay_step) + param("decay_lr_rate", c.rate) + "}}",
                                   updates));
    }
}

// The second half is like the first where nothing is said of it: 2000 steps each way, or as long and with as many stairs.
TEST(Schedule, OneCycleHalvesAreAlike)
{
    log_catcher log;
    expect_near({1, 1.0005, 2, 1.9995, 1, 1},
                rates_at("{\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1, \"cycle_max_lr\": 2}}",
                         {1, 2, 2001, 2002, 4001, 4002}));
    expect_near(
        {1, 1, 1.5, 1.5, 2, 1.5, 1.5, 1, 1},
        rates("{\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1, \"cycle_max_lr\": 2, \"cycle_first_step_size\": 4, "
              "\"cycle_first_stair_count\": 2}}",
              9));
}

// Betas are seen by the weights they make. Sizes are such that each of them is a number of fp32, as are the rates.
TEST(Schedule, OneCycleMovesBetas)
{
    const one_cycle c = {4, 12, 0, 0, 4, 0.5};
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
            zoff_adam_hyper h;
            zoff_adam_hyper_init_for(&h, optimizer);
            h.beta2 = optimizer == ZOFF_OPTIMIZER_LION ? 0.999 : h.beta2; // a file without them means DeepSpeed's
            h.momentum = optimizer == ZOFF_OPTIMIZER_SGD ? 0.625 : 0;
            const bool has_betas = optimizer == ZOFF_OPTIMIZER_ADAM || optimizer == ZOFF_OPTIMIZER_LION;
            if (moves && !has_betas)
                log.expect("scheduler.params.cycle_momentum has no effect with optimizer.type " + std::string(type) +
                           ", which has no betas");
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
                h.lr = c.lr(update, 0.015625, 0.0625);
                if (moves && has_betas) {
                    h.beta1 = update == 1         ? 0.5
                              : c.is_over(update) ? 0.75 * (1 + 0.125 * c.intervals(update))
                                                  : 0.75 - 0.25 * c.up(update);
                    h.beta2 = 0.99;
                }
                reference::step(t.tensors, {h}, update, 1, 1, 0);
                ASSERT_NO_FATAL_FAILURE(t.expect_weights());
            }
        }
    }
}

// Without an interval neither rate decays, and without a rate nothing does.
TEST(Schedule, OneCycleMomentumStaysWithoutDecay)
{
    for (const char *decay : {"\"decay_mom_rate\": 5", "\"decay_step_size\": 3"}) {
        log_catcher log;
        expect_near({1, 1, 1}, rates_at("{\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1, \"cycle_max_lr\": 2, "
                                        "\"cycle_first_step_size\": 2, " +
                                            std::string(decay) + "}}",
                                        {1, 1000, 1000000000000}));
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
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step: group 0, as the scheduler has it: beta1 is 1.35",
                      zoff_step(e.get(), nullptr, nullptr));
    // Hyper-parameters of the call are a way out.
    zoff_adam_hyper h;
    zoff_adam_hyper_init(&h);
    zoff_step_args args = {};
    args.struct_size = sizeof args;
    args.hyper = &h;
    args.hyper_count = 1;
    EXPECT_ZOFF_OK(zoff_step(e.get(), &args, nullptr));
}

TEST(Schedule, RangeTest)
{
    std::vector<double> line, stairs;
    for (int i = 0; i < 20; i++) {
        line.push_back(0.25 * (1 + 3 * i / 4.0));
        stairs.push_back(0.25 * (1 + 3 * (i / 4)));
    }
    const std::string params = "\"lr_range_test_min_lr\": 0.25, \"lr_range_test_step_size\": 4, \"lr_range_test_step_rate\": 3";
    expect_near(line, rates("{\"type\": \"LRRangeTest\", \"params\": {" + params + "}}", 20));
    expect_near(stairs,
                rates("{\"type\": \"LRRangeTest\", \"params\": {" + params + ", \"lr_range_test_staircase\": true}}", 20));
    log_catcher log;
    expect_near({0.001, 0.001 * (1 + 1 / 2000.0), 0.002, 0.501},
                rates_at("{\"type\": \"LRRangeTest\"}", {1, 2, 2001, 1000001}));
}

// A range test goes on until somebody stops it, at the latest where fp32 ends.
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
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step: group 0, as the scheduler has it: lr is ",
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
        zoff_adam_hyper h;
        zoff_adam_hyper_init(&h);
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
            EXPECT_EQ(0.125, info.lr);
            reference::step(t.tensors, {h}, update, 1, 1, 0);
            ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        }
    }
}
} // namespace
