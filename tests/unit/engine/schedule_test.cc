// schedule_test.cc: the learning rate that each step really uses, against values worked out by hand from DeepSpeed's formulas:
// its scheduler is stepped after an update, so update t sees iteration t - 2 and update 1 the value before the start.
#include "small_engine.h"

#include <math.h>

using namespace zoff_test;

namespace
{
std::vector<double> rates(const std::string &scheduler, int steps)
{
    log_catcher log;
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32);
    std::vector<double> lr;
    engine e =
        seal_engine(t, "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.5}}, \"scheduler\": " + scheduler + "}");
    for (int i = 0; i < steps; i++) {
        t.next_step();
        t.backward_all(0.1f);
        auto info = new_info();
        EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        lr.push_back(info.lr);
    }
    return lr;
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

TEST(Schedule, HyperParametersOfTheCallAreTakenAsTheyAre)
{
    log_catcher log;
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, "{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {}}}");
    zoff_adam_hyper h;
    zoff_adam_hyper_init(&h);
    h.lr = 0.125;
    zoff_step_args args = {};
    args.struct_size = sizeof args;
    args.hyper = &h;
    args.hyper_count = 1;
    auto info = new_info();
    ASSERT_ZOFF_OK(zoff_step(e.get(), &args, &info));
    EXPECT_EQ(0.125, info.lr);
}
} // namespace
