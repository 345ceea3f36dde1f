/* SPDX-License-Identifier: Apache-2.0 */
// lr_schedule_test.cc: the schedules' hyper-parameters, against values worked out by hand from DeepSpeed's formulas. DeepSpeed
// steps its scheduler after an update: update t sees iteration t - 2, and update 1 the value before the start.
#include "zoff_test.h"

extern "C" {
#include "zoff_model.h"
}

#include <math.h>

using namespace zoff_test;

namespace
{
// The hyper-parameters that a configured scheduler gives in these updates.
std::vector<zoff_optimizer_hyper> scheduled(const std::string &scheduler, const std::vector<int64_t> &updates,
                                            zoff_optimizer_hyper own)
{
    const std::string text = "{\"scheduler\": " + scheduler + "}";
    zoff_config *made = nullptr;
    zoff_config_values values = {};
    EXPECT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "ds.json", &made));
    const config keeper(made);
    EXPECT_ZOFF_OK(zoff_config_values_get(made, 1, &values));
    std::vector<zoff_optimizer_hyper> all;
    for (int64_t update : updates) {
        all.push_back(own);
        zoff_model_lr_schedule_apply(&values.schedule, update, &all.back());
    }
    return all;
}

// The rates if the group's own is 0.5.
std::vector<double> rates_at(const std::string &scheduler, const std::vector<int64_t> &updates)
{
    zoff_optimizer_hyper own;
    zoff_optimizer_hyper_init(&own, ZOFF_OPTIMIZER_ADAM);
    own.lr = 0.5;
    std::vector<double> lr;
    for (const zoff_optimizer_hyper &h : scheduled(scheduler, updates, own))
        lr.push_back(h.lr);
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

TEST(LrSchedule, WarmupLinear)
{
    expect_near(
        {0.1, 0.1, 0.325, 0.55, 0.775, 1, 1, 1},
        rates("{\"type\": \"WarmupLR\", \"params\": {\"warmup_min_lr\": 0.1, \"warmup_max_lr\": 1, \"warmup_num_steps\": 4, "
              "\"warmup_type\": \"linear\"}}",
              8));
}

TEST(LrSchedule, WarmupLogToTheOptimizersRate)
{
    double l = log(4);
    expect_near({0, 0, 0.5 * log(2) / l, 0.5 * log(3) / l, 0.5, 0.5, 0.5},
                rates("{\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 4}}", 7));
}

TEST(LrSchedule, WarmupCosine)
{
    auto cosine = [](double x) { return 0.5 * (0.1 + 0.9 * (1 + cos(M_PI * x)) / 2); };
    expect_near({0, 0.1, 0.3, cosine(0.25), cosine(0.5), cosine(0.75), cosine(1), cosine(1), cosine(1)},
                rates("{\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 6, \"warmup_min_ratio\": 0.2, "
                      "\"warmup_num_steps\": 2, \"cos_min_ratio\": 0.1, \"warmup_type\": \"linear\"}}",
                      9));
}

// Up in N updates, then a straight line to 0 in update total + 2.
TEST(LrSchedule, WarmupDecay)
{
    expect_near(
        {0.1, 0.1, 0.55, 1, 0.1 + 0.9 * 3 / 4, 0.1 + 0.9 * 2 / 4, 0.1 + 0.9 / 4, 0.1, 0.1, 0.1},
        rates(
            "{\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": 0.1, \"warmup_max_lr\": 1, \"total_num_steps\": 6, "
            "\"warmup_num_steps\": 2, \"warmup_type\": \"linear\"}}",
            10));
}

// Without a top the rate rises to DeepSpeed's 0.001; null and "auto" leave it to the optimizer, whose rate here is 0.5.
TEST(LrSchedule, WarmupDecayByLogarithmsToEachTop)
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

// A warm-up that is longer than the run: after it the rate is 0.
TEST(LrSchedule, WarmupDecayWithoutARest)
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

// OneCycle by whole numbers: update t is step t - 1 of the cycle. After the cycle the rate decays from its end.
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

TEST(LrSchedule, OneCycle)
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

// Without parameters the second half is like the first: 2000 steps each way, or as long and with as many stairs.
TEST(LrSchedule, OneCycleHalvesAreAlike)
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

// Without an interval neither rate decays, and without a rate nothing does.
TEST(LrSchedule, OneCycleMomentumStaysWithoutDecay)
{
    for (const char *decay : {"\"decay_mom_rate\": 5", "\"decay_step_size\": 3"}) {
        log_catcher log;
        expect_near({1, 1, 1}, rates_at("{\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1, \"cycle_max_lr\": 2, "
                                        "\"cycle_first_step_size\": 2, " +
                                            std::string(decay) + "}}",
                                        {1, 1000, 1000000000000}));
    }
}

// Each schedule treats both rates of Muon in the same way, from where each begins.
TEST(LrSchedule, BothRatesOfMuonFollowIt)
{
    log_catcher log;
    zoff_optimizer_hyper own;
    zoff_optimizer_hyper_init(&own, ZOFF_OPTIMIZER_MUON);
    own.lr = 0.5;
    own.adam_lr = 0.125;
    for (const char *scheduler :
         {"null", "{\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": null, \"warmup_num_steps\": 5}}",
          "{\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": 2, \"warmup_num_steps\": 5}}",
          "{\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_max_lr\": null, \"total_num_steps\": 20, \"warmup_num_steps\": "
          "5}}",
          "{\"type\": \"WarmupCosineLR\", \"params\": {\"total_num_steps\": 20, \"warmup_num_steps\": 5}}",
          "{\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0.25, \"cycle_max_lr\": 2, \"cycle_first_step_size\": 5}}",
          "{\"type\": \"LRRangeTest\"}"}) {
        SCOPED_TRACE(scheduler);
        zoff_optimizer_hyper other = own;
        other.lr = own.adam_lr;
        const auto both = scheduled(scheduler, first_updates(24), own), one = scheduled(scheduler, first_updates(24), other);
        for (size_t i = 0; i < both.size(); i++) {
            EXPECT_EQ(one[i].lr, both[i].adam_lr) << "update " << i + 1;
            EXPECT_EQ(own.beta1, both[i].beta1) << "as in DeepSpeed, whose Muon hides its betas";
        }
        zoff_optimizer_hyper_init(&other, ZOFF_OPTIMIZER_ADAM);
        for (const zoff_optimizer_hyper &h : scheduled(scheduler, first_updates(24), other))
            EXPECT_EQ(other.adam_lr, h.adam_lr) << "it has no second rate";
    }
}

// SGD and Adagrad have no betas, and keep those of their struct.
TEST(LrSchedule, OneCycleMovesBetasOfOptimizersThatHaveThem)
{
    const one_cycle c = {4, 12, 0, 0, 4, 0.5};
    for (const zoff_optimizer optimizer :
         {ZOFF_OPTIMIZER_ADAM, ZOFF_OPTIMIZER_LION, ZOFF_OPTIMIZER_SGD, ZOFF_OPTIMIZER_ADAGRAD}) {
        for (const char *moves : {"true", "false"}) {
            SCOPED_TRACE(testing::Message() << "optimizer " << optimizer << ", cycle_momentum " << moves);
            zoff_optimizer_hyper own;
            zoff_optimizer_hyper_init(&own, optimizer);
            log_catcher log;
            const std::vector<int64_t> updates = first_updates(24);
            const auto all = scheduled("{\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 0.25, \"cycle_max_lr\": 2, "
                                       "\"cycle_first_step_size\": 4, \"cycle_second_step_size\": 12, \"decay_step_size\": 4, "
                                       "\"decay_lr_rate\": 0.5, \"cycle_min_mom\": 0.5, \"cycle_max_mom\": 0.75, "
                                       "\"decay_mom_rate\": 0.125, \"cycle_momentum\": " +
                                           std::string(moves) + "}}",
                                       updates, own);
            const bool move = *moves == 't' && (optimizer == ZOFF_OPTIMIZER_ADAM || optimizer == ZOFF_OPTIMIZER_LION);
            for (size_t i = 0; i < updates.size(); i++) {
                const int64_t t = updates[i];
                const double beta1 = t == 1 ? 0.5 : c.is_over(t) ? 0.75 * (1 + 0.125 * c.intervals(t)) : 0.75 - 0.25 * c.up(t);
                EXPECT_NEAR(c.lr(t, 0.25, 2), all[i].lr, 1e-12) << "update " << t;
                EXPECT_NEAR(move ? beta1 : own.beta1, all[i].beta1, 1e-12) << "update " << t;
                EXPECT_EQ(move ? 0.99 : own.beta2, all[i].beta2) << "update " << t;
                EXPECT_EQ(own.momentum, all[i].momentum);
            }
        }
    }
}

TEST(LrSchedule, RangeTest)
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

TEST(LrSchedule, NoneLeavesEverythingAsItIs)
{
    zoff_schedule_values none = {};
    none.max_lr = 2;
    zoff_optimizer_hyper own;
    zoff_optimizer_hyper_init(&own, ZOFF_OPTIMIZER_ADAM);
    const zoff_optimizer_hyper before = own;
    zoff_model_lr_schedule_apply(&none, 5, &own);
    EXPECT_EQ(before.lr, own.lr);
    EXPECT_EQ(before.beta1, own.beta1);
    EXPECT_EQ(before.beta2, own.beta2);
}
} // namespace
