/* SPDX-License-Identifier: Apache-2.0 */
// optimizers_test.cc: at seal the optimizers of the groups decide which states an engine has: their size, later changes, and
// refusals. The parity matrix checks the numbers.
#include "small_engine.h"

#include <math.h>

using namespace zoff_test;

namespace
{
class Optimizers : public testing::TestWithParam<bool>
{
  protected:
    // A configuration with this optimizer, on the tier of the test.
    std::string text(const std::string &type, const std::string &params = "") const
    {
        std::string all = config_text(GetParam() ? folder.path : "");
        const std::string adamw = "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}";
        return all.replace(all.find(adamw), adamw.size(), "{\"type\": \"" + type + "\", \"params\": {" + params + "}}");
    }

    // A step of the engine, and of the reference.
    zoff_step_info step(engine &e, trainer &t, const std::vector<zoff_optimizer_hyper> &groups, int64_t number)
    {
        auto info = new_info();
        t.next_step();
        t.backward_all(0.1f);
        EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
        reference::step(t.tensors, groups, number, 1, 1, 0);
        t.expect_weights();
        t.expect_states(e.get(), groups);
        return info;
    }

    static zoff_optimizer_hyper hyper(zoff_optimizer optimizer, double momentum = 0)
    {
        zoff_optimizer_hyper h;
        zoff_optimizer_hyper_init(&h, optimizer);
        h.momentum = momentum;
        return h;
    }

    scratch_folder folder;
    log_catcher log;
};
INSTANTIATE_TEST_SUITE_P(Tiers, Optimizers, testing::Bool(),
                         [](const auto &p) { return std::string(p.param ? "nvme" : "host"); });

// The patterns outlive the configuration, which is closed when parameters are added.
TEST(Muon, AMatrixHasOneMoment)
{
    log_catcher log;
    const size_t dims[] = {20, 30};
    std::vector<float> weights(3 * 600);
    const zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    engine e =
        make_engine("{\"optimizer\": {\"type\": \"Muon\"}, \"zoff\": {\"adam_params\": [\"b\"], \"muon_params\": [\"wte\"], "
                    "\"muon_rows\": [\"a=15,5\"]}}",
                    opts);
    zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
    d.count = 600;
    d.dims = dims;
    d.dim_count = 2;
    const char *names[] = {"a", "b", "wte"};
    for (size_t i = 0; i < 3; i++) {
        d.name = names[i];
        d.value = &weights[600 * i];
        ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
    }
    zoff_plan_info plan = ZOFF_PLAN_INFO_INIT;
    ASSERT_ZOFF_OK(zoff_engine_plan(e.get(), &plan));
    EXPECT_EQ(600u * (4 + 8 + 4), plan.state_bytes) << "fp32 weights are their own masters";
    EXPECT_EQ(1200u, plan.matrix_elements);
    // 15 x 30 and 5 x 30 are long enough for the Gram matrix, 20 x 30 is not.
    const auto gram = [](uint64_t n, uint64_t m) { return 6 * n * n * m + 14 * n * n * n; };
    EXPECT_EQ(gram(15, 30) + gram(5, 30) + 5 * (3 * 20 * 20 * 30 + 20 * 20 * 20), plan.matrix_flop);
    log.expect("Muon lr 0.02 (AdamW's 0.0003), ");
    log.expect("Muon updates 3 matrices in 2 parameters (0.0012 M elements), AdamW 1 other parameters (0.0006 M elements)");
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
}

TEST_P(Optimizers, StatesTakeWhatTheOptimizerKeeps)
{
    struct {
        const char *type, *params;
        size_t streams; // beside the master
    } cases[] = {{"Adam", "", 2}, {"AdamW", "", 2}, {"Adagrad", "", 1}, {"Lion", "", 1}, {"SGD", "\"momentum\": 0.9", 1},
                 {"SGD", "", 0}};
    for (const auto &c : cases) {
        for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
            SCOPED_TRACE(std::string(c.type) + " " + c.params + " " + std::to_string(dtype));
            trainer t(1);
            t.add(65536, 1, dtype, dtype);
            const size_t streams = c.streams + (dtype != ZOFF_F32);
            const size_t master = dtype == ZOFF_F16 ? 4 : dtype == ZOFF_BF16 ? 2 : 0; // bytes in a chunk
            const uint64_t states = (c.streams * 4 + master) * 65536;
            const uint64_t bytes = states + (streams ? streams - 1 : 0) * 12288; // see Plan.EveryCombinationOfStates
            engine e = make_engine(t, text(c.type, c.params));
            zoff_plan_info before = plan_of(e.get());
            EXPECT_EQ(states, before.state_bytes);
            EXPECT_EQ(1u, before.chunk_count);
            EXPECT_EQ(bytes, before.chunk_bytes);
            EXPECT_EQ(GetParam() ? 3 * bytes : bytes, before.host_bytes);
            EXPECT_EQ(GetParam() ? bytes : 0, before.nvme_bytes);
            ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
            zoff_plan_info after = plan_of(e.get());
            EXPECT_EQ(before.state_bytes, after.state_bytes);
            EXPECT_EQ(before.host_bytes, after.host_bytes);
            EXPECT_EQ(before.nvme_bytes, after.nvme_bytes);
            EXPECT_EQ(before.chunk_bytes, after.chunk_bytes);
            t.backward_all(0.1f);
            auto info = new_info();
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
            EXPECT_EQ(65536u, info.numbers.elements_updated);
            EXPECT_EQ(GetParam() ? bytes : 0, info.bytes.nvme_written);
        }
    }
}

// A chunk holds a fortieth of the states, at most 48 MiB: one moment gives smaller chunks than two.
TEST(OptimizersPlan, ChunksFollowTheStates)
{
    log_catcher log;
    scratch_folder folder;
    struct {
        const char *type;
        uint64_t state_bytes, chunk_bytes;
    } cases[] = {{"AdamW", 2ull << 30, 48 << 20}, {"Lion", 1ull << 30, (1ull << 30) / 40}, {"SGD", 0, 0}};
    for (const auto &c : cases) {
        SCOPED_TRACE(c.type);
        trainer none(14);
        std::string text = config_text(folder.path);
        engine e = make_engine(none, text.replace(text.find("AdamW"), 5, c.type));
        float one[1]; // the weights are not read before seal
        zoff_param_desc d = {};
        d.struct_size = sizeof d;
        d.value = one;
        d.count = (size_t)1 << 28;
        ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        zoff_plan_info plan = plan_of(e.get());
        EXPECT_EQ(c.state_bytes, plan.state_bytes);
        EXPECT_LE(plan.chunk_bytes, c.chunk_bytes);
        EXPECT_GE(plan.chunk_bytes, c.chunk_bytes / 16 * 15);
        EXPECT_EQ(3 * plan.chunk_bytes, plan.host_bytes);
    }
}

TEST_P(Optimizers, TheSumOfSquaresStartsWhereTheConfigurationSays)
{
    trainer t(3);
    add_awkward(t, ZOFF_BF16, ZOFF_BF16);
    zoff_optimizer_hyper adam = hyper(ZOFF_OPTIMIZER_ADAM), adagrad = hyper(ZOFF_OPTIMIZER_ADAGRAD);
    engine e = make_engine(t, text("Adagrad", "\"initial_accumulator_value\": 0.3"), 3000);
    ASSERT_ZOFF_OK(zoff_engine_set_group(e.get(), 1, &adam)); // Adam's second moment has another meaning and starts with 0
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    for (auto &x : t.tensors)
        x.v.assign(x.total(), x.group == 0 ? 0.3f : 0.0f);
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get(), {adagrad, adam}));
    step(e, t, {adagrad, adam}, 1);
}

TEST_P(Optimizers, TheProgramChoosesUntilSeal)
{
    trainer t(4);
    add_awkward(t, ZOFF_F16, ZOFF_F32);
    engine e = make_engine(t, text("AdamW"), 5000);
    const uint64_t adam_bytes = plan_of(e.get()).state_bytes;
    std::vector<zoff_optimizer_hyper> groups = {hyper(ZOFF_OPTIMIZER_LION), hyper(ZOFF_OPTIMIZER_ADAGRAD)};
    for (unsigned group : {0, 1}) {
        zoff_optimizer_hyper other = hyper(ZOFF_OPTIMIZER_SGD);
        ASSERT_ZOFF_OK(zoff_engine_set_group(e.get(), group, &other));
        ASSERT_ZOFF_OK(zoff_engine_set_group(e.get(), group, &groups[group]));
    }
    EXPECT_EQ(adam_bytes / 3 * 2, plan_of(e.get()).state_bytes);
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    step(e, t, groups, 1);
    groups[0].lr = 0.5; // numbers may change
    groups[0].beta1 = 0.5;
    ASSERT_ZOFF_OK(zoff_engine_set_group(e.get(), 0, &groups[0]));
    step(e, t, groups, 2);
}

TEST_P(Optimizers, AnotherOptimizerAfterSealIsRefused)
{
    trainer t(5);
    t.add(3000, 1, ZOFF_BF16, ZOFF_BF16);
    t.add(100, 1, ZOFF_BF16, ZOFF_BF16, 2, true); // frozen: group 2 trains no parameter
    engine e = seal_engine(t, text("Lion", "\"lr\": 1e-4, \"betas\": [0.9, 0.99]"));
    zoff_optimizer_hyper adam = hyper(ZOFF_OPTIMIZER_ADAM), sgd = hyper(ZOFF_OPTIMIZER_SGD, 0.9);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE,
                      "zoff_engine_set_group: group 0 was sealed for Lion and has no states for Adam; choose the optimizer "
                      "before zoff_engine_seal(), with optimizer.type and optimizer.params or zoff_engine_set_group()",
                      zoff_engine_set_group(e.get(), 0, &adam));
    // The states of SGD with momentum would fit, but they are not Lion's.
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "group 0 was sealed for Lion and has no states for SGD with momentum",
                      zoff_engine_set_group(e.get(), 0, &sgd));
    EXPECT_ZOFF_OK(zoff_engine_set_group(e.get(), 2, &adam));
    zoff_step_args args = {};
    args.struct_size = sizeof args;
    args.hyper = &adam;
    args.hyper_count = 1;
    t.backward_all(0.1f);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_step: group 0 was sealed for Lion and has no states for Adam",
                      zoff_step(e.get(), &args, nullptr));
    EXPECT_NE(nullptr, strstr(zoff_last_error(), "zoff_optimizer_hyper_init()"));
    // Nothing has changed, and the engine trains on.
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    step(e, t, {hyper(ZOFF_OPTIMIZER_LION), adam, adam}, 1);
}

TEST_P(Optimizers, MomentumAfterSealNeedsAPlace)
{
    trainer without(6), with(6);
    without.add(3000, 1, ZOFF_F32, ZOFF_F32);
    with.add(3000, 1, ZOFF_F32, ZOFF_F32);
    zoff_optimizer_hyper none = hyper(ZOFF_OPTIMIZER_SGD), some = hyper(ZOFF_OPTIMIZER_SGD, 0.9);
    engine poor = seal_engine(without, text("SGD"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "group 0 was sealed for SGD without momentum and has no states for SGD with momentum",
                      zoff_engine_set_group(poor.get(), 0, &some));
    step(poor, without, {none}, 1);
    // A step without momentum leaves the moment unchanged, for later steps with momentum.
    engine rich = seal_engine(with, text("SGD", "\"momentum\": 0.9"));
    step(rich, with, {some}, 1);
    ASSERT_ZOFF_OK(zoff_engine_set_group(rich.get(), 0, &none));
    with.next_step();
    with.backward_all(0.1f);
    auto info = new_info();
    ASSERT_ZOFF_OK(zoff_step(rich.get(), nullptr, &info));
    EXPECT_EQ(3000u * 12, info.bytes.host_read) << "the gradient twice, and the weights";
    reference::step(with.tensors, {none}, 2, 1, 1, 0);
    ASSERT_NO_FATAL_FAILURE(with.expect_states(rich.get(), {some}));
    ASSERT_ZOFF_OK(zoff_engine_set_group(rich.get(), 0, &some));
    step(rich, with, {some}, 3);
}

TEST_P(Optimizers, StatesThatAreNotThereAreRefusedByName)
{
    struct {
        const char *type;
        zoff_state_kind kind;
        const char *words;
    } cases[] = {
        {"Adagrad", ZOFF_STATE_M, "the optimizer of param0 is Adagrad, which has no first moment (ZOFF_STATE_M)"},
        {"Lion", ZOFF_STATE_V, "the optimizer of param0 is Lion, which has no second moment (ZOFF_STATE_V)"},
        {"SGD", ZOFF_STATE_M, "the optimizer of param0 is SGD without momentum, which has no first moment (ZOFF_STATE_M)"},
        {"SGD", ZOFF_STATE_V, "which has no second moment (ZOFF_STATE_V)"}};
    for (const auto &c : cases) {
        trainer t(7);
        t.add(10, 1, ZOFF_F16, ZOFF_F16);
        engine e = seal_engine(t, text(c.type));
        float x[10] = {};
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, c.words, zoff_state_read(e.get(), 0, c.kind, 0, 10, x));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, c.words, zoff_state_write(e.get(), 0, c.kind, 0, 10, x));
        EXPECT_ZOFF_OK(zoff_state_read(e.get(), 0, ZOFF_STATE_MASTER, 0, 10, x));
    }
}

// The weights may change under the engine: the masters follow, the moments and the sums of squares stay.
TEST_P(Optimizers, PullTakesHalfPrecisionAsItIs)
{
    trainer t(13);
    t.add(3000, 2, ZOFF_F16, ZOFF_F16, 0, false, 1);
    engine e = seal_engine(t, text("Adagrad", "\"initial_accumulator_value\": 0.25"), 1024);
    std::vector<zoff_optimizer_hyper> groups = {hyper(ZOFF_OPTIMIZER_ADAGRAD)};
    t.tensors[0].v.assign(6000, 0.25f);
    step(e, t, groups, 1);
    const float odd[] = {65504.0f, -0.0f, 0x1p-24f, INFINITY, 1.0f / 3};
    for (size_t k = 0; k < 6000; k++) {
        trainer::put(t.value(0), ZOFF_F16, t.place(0, k), odd[k % 5]);
        t.tensors[0].master[k] = trainer::get(t.value(0), ZOFF_F16, t.place(0, k));
    }
    ASSERT_ZOFF_OK(zoff_params_pull(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get(), groups));
    // Masters between two halves, and beyond the largest, are rounded to nearest even.
    const float wide[] = {65519.9f, 65520.0f, 2049.0f, 2051.0f, 0x1p-25f, 0x1.8p-24f};
    for (size_t k = 0; k < 6000; k++)
        t.tensors[0].master[k] = wide[k % 6];
    ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, ZOFF_STATE_MASTER, 0, 6000, t.tensors[0].master.data()));
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    EXPECT_EQ(65504, trainer::get(t.value(0), ZOFF_F16, 0));
    EXPECT_EQ(INFINITY, trainer::get(t.value(0), ZOFF_F16, 1));
    EXPECT_EQ(2048, trainer::get(t.value(0), ZOFF_F16, 2));
    EXPECT_EQ(2052, trainer::get(t.value(0), ZOFF_F16, 3));
    step(e, t, groups, 2);
}

// A program from before the other optimizers passes a shorter struct: it is accepted for Adam, and refused for others.
TEST_P(Optimizers, OldHyperParametersAreAdams)
{
    const size_t old_bytes = offsetof(zoff_optimizer_hyper, momentum);
    trainer t(8);
    t.add(2000, 1, ZOFF_BF16, ZOFF_BF16);
    std::vector<char> memory(old_bytes);
    auto *old = (zoff_optimizer_hyper *)(void *)memory.data();
    zoff_optimizer_hyper_init_sized(old, old_bytes, ZOFF_OPTIMIZER_ADAM);
    engine adam = seal_engine(t, text("AdamW"));
    EXPECT_ZOFF_OK(zoff_engine_set_group(adam.get(), 0, old));
    step(adam, t, {hyper(ZOFF_OPTIMIZER_ADAM)}, 1);
    engine lion = seal_engine(t, text("Lion"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "sealed for Lion and has no states for Adam", zoff_engine_set_group(lion.get(), 0, old));
}

TEST_P(Optimizers, WeightsInFp16AreReportedWhereTheConfigurationSaysBf16)
{
    trainer t(10);
    t.add(10, 1, ZOFF_F16, ZOFF_BF16);
    log.expect("bf16.enabled is true (test.json:1:");
    log.expect("), but param0 is fp16: the program sets the type of weights in zoff_param_desc.dtype");
    std::string with = text("AdamW");
    with.insert(1, "\"bf16\": {\"enabled\": true}, ");
    engine e = seal_engine(t, with);
}

// Parameters of which half have no decay: by zoff.no_decay, or by groups 1 and 3, whose other numbers are those of 0 and 2.
struct decayed_run {
    enum { COUNT = 6 };
    decayed_run(bool by_name, const std::string &optimizer, const std::string &zoff, const std::string &more = "",
                bool lists = true)
        : by_name(by_name)
    {
        static const char *const NAMES[COUNT] = {"a.weight", "a.bias", "b.weight", "b.bias", "tied.a", "tied.b"};
        static const unsigned GROUPS[COUNT] = {0, 1, 2, 3, 1, 1};
        const std::string text = "{\"optimizer\": {\"type\": " + optimizer +
                                 R"("lr": 0.01, "weight_decay": 0.25}}, "gradient_clipping": 0, "zoff": {)" + zoff +
                                 (by_name && lists ? R"("no_decay": ["*bias", "tied.b"], )" : "") + "\"threads\": 1}" + more +
                                 "}";
        zoff_config *config = nullptr;
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        zoff_engine *made = nullptr;
        EXPECT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "test.json", &config));
        opts.config = config;
        opts.chunk_elements = 2048;
        EXPECT_ZOFF_OK(zoff_engine_create(&opts, &made));
        zoff_config_close(config);
        e = engine(made);
        for (size_t i = 0; i < COUNT; i++) {
            const bool is_tied = i == COUNT - 1;
            weights[i].resize(is_tied ? 0 : 3000 + 7 * i);
            for (size_t k = 0; k < weights[i].size(); k++)
                weights[i][k] = sinf((float)(k + 1000 * i));
            const size_t of = is_tied ? i - 1 : i;
            grads[i].resize(weights[of].size());
            zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
            d.name = NAMES[i];
            d.value = weights[of].data();
            d.grad = grads[i].data();
            d.count = grads[i].size();
            d.group = by_name ? GROUPS[i] / 2 * 2 : GROUPS[i];
            EXPECT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
        }
        set(0, ZOFF_KEEP, ZOFF_KEEP);
        set(2, 0.02, 0.5);
        EXPECT_ZOFF_OK(zoff_engine_seal(made));
    }
    void set(unsigned group, double lr, double decay)
    {
        zoff_optimizer_hyper h;
        for (unsigned odd = 0; odd < (by_name ? 1 : 2); odd++) {
            zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_KEEP);
            h.lr = lr;
            h.weight_decay = odd ? 0 : decay;
            EXPECT_ZOFF_OK(zoff_engine_set_group(e.get(), group + odd, &h));
        }
    }
    void step(int number, const zoff_step_args *args = nullptr)
    {
        for (auto &g : grads) {
            for (size_t k = 0; k < g.size(); k++)
                g[k] = cosf((float)(k * (size_t)number + g.size()));
        }
        for (zoff_param p = 0; p < COUNT; p++)
            ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), p, 0, nullptr));
        ASSERT_ZOFF_OK(zoff_step(e.get(), args, nullptr));
    }

    bool by_name;
    std::vector<float> weights[COUNT], grads[COUNT];
    engine e;
};

// Each optimizer, with decay in both ways. Decay and rate of a group change, also for one step, and updates ahead of a step are
// made again then.
using no_decay_case = std::tuple<const char *, const char *>;
class NoDecay : public testing::TestWithParam<no_decay_case>
{
};
INSTANTIATE_TEST_SUITE_P(Optimizers, NoDecay,
                         testing::Combine(testing::Values(R"("AdamW", "params": {)",
                                                          R"("Adam", "params": {"adam_w_mode": false, )",
                                                          R"("Adagrad", "params": {)", R"("Lion", "params": {)",
                                                          R"("SGD", "params": {"momentum": 0.5, )"),
                                          testing::Values("host", "nvme", "ahead")));

TEST_P(NoDecay, HasTheBitsOfASecondGroup)
{
    log_catcher log;
    const std::string tier = std::get<1>(GetParam());
    std::vector<std::vector<float>> after[2];
    for (const bool by_name : {false, true}) {
        const scratch_folder folder;
        decayed_run run(by_name, std::get<0>(GetParam()), tier == "ahead" ? R"("speculation_memory": "1MiB", )" : "",
                        tier == "nvme" ? R"(, "zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": ")" +
                                             folder.path + R"("}})"
                                       : "");
        zoff_optimizer_hyper given[4];
        for (unsigned group = 0; group < 4; group++) {
            zoff_optimizer_hyper_init(&given[group], ZOFF_OPTIMIZER_KEEP);
            given[group].weight_decay = by_name || group % 2 == 0 ? 0.0625 * (1 + group / 2) : 0;
        }
        zoff_step_args args = ZOFF_STEP_ARGS_INIT;
        args.hyper = given;
        args.hyper_count = 4;
        for (int step = 1; step <= 7; step++) {
            if (step == 4)
                run.set(0, ZOFF_KEEP, 0.125);
            for (unsigned group = 0; group < 4 && step == 5; group++) {
                if (!by_name || group % 2 == 0) {
                    ASSERT_ZOFF_OK(zoff_engine_set_lr(run.e.get(), group, 0.005));
                }
            }
            ASSERT_NO_FATAL_FAILURE(run.step(step, step == 6 ? &args : nullptr));
        }
        after[by_name].assign(run.weights, run.weights + decayed_run::COUNT);
    }
    for (size_t i = 0; i < decayed_run::COUNT; i++)
        ASSERT_EQ(after[0][i], after[1][i]) << i;
}

// A checkpoint records for each parameter the decay that it had, so runs that differ in nothing else but the way in which they
// say so load each other's.
TEST(NoDecayCheckpoint, RecordsTheDecayOfEachParameter)
{
    static const char ADAMW[] = R"("AdamW", "params": {)";
    for (const bool saved_by_name : {false, true}) {
        const scratch_folder folder;
        log_catcher log;
        decayed_run saved(saved_by_name, ADAMW, "");
        saved.step(1);
        ASSERT_ZOFF_OK(zoff_checkpoint_save(saved.e.get(), folder.path.c_str(), nullptr));
        saved.step(2);
        for (const bool by_name : {false, true}) {
            decayed_run loaded(by_name, ADAMW, "");
            ASSERT_ZOFF_OK(zoff_checkpoint_load(loaded.e.get(), folder.path.c_str(), nullptr));
            loaded.step(2);
            for (size_t i = 0; i < decayed_run::COUNT; i++)
                ASSERT_EQ(saved.weights[i], loaded.weights[i]) << i;
        }
        decayed_run other(saved_by_name, ADAMW, "");
        other.set(0, ZOFF_KEEP, 0.125);
        log.expect("in 1 places: 'group 0' has weight_decay 0.25, here 0.125");
        ASSERT_ZOFF_OK(zoff_checkpoint_load(other.e.get(), folder.path.c_str(), nullptr));
    }
    const scratch_folder folder;
    log_catcher log;
    decayed_run all(true, ADAMW, "", "", false), named(true, ADAMW, "");
    ASSERT_ZOFF_OK(zoff_checkpoint_save(all.e.get(), folder.path.c_str(), nullptr));
    log.expect(
        "in 2 places: 'group 0 (zoff.no_decay)' has weight_decay 0.25, here 0; 'group 2 (zoff.no_decay)' has weight_decay "
        "0.5, here 0");
    ASSERT_ZOFF_OK(zoff_checkpoint_load(named.e.get(), folder.path.c_str(), nullptr));
}
} // namespace
