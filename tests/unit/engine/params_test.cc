/* SPDX-License-Identifier: Apache-2.0 */
// params_test.cc: parameters, groups and the loss scale as the program sets them; weights that are lent.
#include "sgd_engine.h"

#include <thread>

using namespace zoff_test;

namespace
{
TEST(Params, ParametersThatCannotBe)
{
    log_catcher log;
    float x[8];
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(nullptr, &made));
    engine e(made);
    zoff_param_desc d = described(x, 4);
    d.name = "wte";
    d.dtype = (zoff_dtype)9;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "wte: dtype 9", zoff_engine_add_param(made, &d, nullptr));
    d.dtype = ZOFF_F32;
    d.grad_dtype = (zoff_dtype)9;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "wte: grad_dtype 9", zoff_engine_add_param(made, &d, nullptr));
    d = described(x, 4);
    d.slices = 2;
    d.value_stride = 3;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "param0: value_stride 3 is less than count 4",
                      zoff_engine_add_param(made, &d, nullptr));
    d = described(x, SIZE_MAX / 4);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "more than fits in memory", zoff_engine_add_param(made, &d, nullptr));
    d = described(x, 4);
    d.slices = 1 << 30;
    d.count = (size_t)1 << 40;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "more than fits in memory", zoff_engine_add_param(made, &d, nullptr));
    d = described((float *)(void *)((char *)x + 2), 1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "aligned to their element", zoff_engine_add_param(made, &d, nullptr));
    d = described(x, 4);
    d.group = 0xffffffff;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "group 4294967295 is out of range", zoff_engine_add_param(made, &d, nullptr));
    // None of these has added a parameter. One without weights is reported at seal, and can be corrected.
    zoff_param p = 77;
    d = described(x, 4);
    d.value = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, &p));
    EXPECT_EQ(0u, p);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "param0 has 4 elements but value is NULL", zoff_engine_seal(made));
    ASSERT_ZOFF_OK(zoff_param_bind(made, 0, x, nullptr));
    EXPECT_ZOFF_OK(zoff_engine_seal(made));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no parameter 1; the engine has 1", zoff_param_bind(made, 1, x, nullptr));
}

TEST(Params, SizesThatOnlyTheCounterOverflows)
{
    log_catcher log;
    float x[8];
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(nullptr, &made));
    engine e(made);
    zoff_param_desc d = described(x, 0);
    d.slices = SIZE_MAX;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "slices are more than", zoff_engine_add_param(made, &d, nullptr));
    d.frozen = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "slices are more than", zoff_engine_add_param(made, &d, nullptr));
}

TEST(Params, AreFoundByTheirNamesAndEachNameIsNew)
{
    log_catcher log;
    float x[2] = {};
    zoff_param p = 77;
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(nullptr, &made));
    engine e(made);
    zoff_param_desc d = described(&x[0], 1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_engine_find_param: none of the 0 parameters is named 'wte'",
                      zoff_engine_find_param(made, "wte", &p));
    d.name = "wte";
    ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    d.value = &x[1];
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "parameters 0 and 1 are both named 'wte'", zoff_engine_add_param(made, &d, nullptr));
    d.name = nullptr; // the refused one was not added
    ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    for (int sealed = 0; sealed < 2; sealed++) {
        ASSERT_ZOFF_OK(zoff_engine_find_param(made, "param1", &p));
        EXPECT_EQ(1u, p);
        ASSERT_ZOFF_OK(zoff_engine_find_param(made, "wte", &p));
        EXPECT_EQ(0u, p);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "none of the 2 parameters is named 'wpe'", zoff_engine_find_param(made, "wpe", &p));
        EXPECT_EQ(0u, p);
        if (!sealed) {
            ASSERT_ZOFF_OK(zoff_engine_seal(made));
        }
    }
    zoff_param_desc both[2] = {described(&x[0], 1), described(&x[1], 1)};
    both[0].name = both[1].name = "x";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "parameters 0 and 1 are both named 'x'", zoff_engine_open(nullptr, both, 2, &made));
    EXPECT_STREQ(zoff_last_error(), zoff_engine_error(nullptr)) << "there is no engine that could have it";
}

// A task may move to another thread between a call and the question, and the thread that has failed may have ended.
TEST(Params, AnErrorIsThatOfTheEngineOnEveryThread)
{
    for (const char *zoff : {"{}", "{\"zoff\": {\"background_threads\": 1}}"}) {
        SCOPED_TRACE(zoff);
        log_catcher log;
        trainer t(1);
        t.add(3, 1, ZOFF_F32, ZOFF_F32);
        engine first = seal_engine(t, zoff), second = seal_engine(t, zoff);
        EXPECT_STREQ("", zoff_engine_error(first.get()));
        std::thread([&] { EXPECT_EQ(ZOFF_ERR_INVALID, zoff_step_count(first.get(), nullptr)); }).join();
        EXPECT_STREQ("zoff_step_count: engine and out must not be NULL", zoff_engine_error(first.get()));
        EXPECT_STREQ("", zoff_engine_error(second.get()));
        EXPECT_EQ(ZOFF_ERR_STATE, zoff_engine_seal(second.get()));
        EXPECT_STREQ("zoff_engine_seal: the engine is sealed already", zoff_engine_error(second.get()));
        EXPECT_EQ(ZOFF_ERR_STATE, zoff_step_wait(first.get(), nullptr));
        EXPECT_STREQ("zoff_step_wait: no step is open", zoff_engine_error(first.get()));
        std::thread([&] {
            EXPECT_STREQ("", zoff_last_error());
            EXPECT_STREQ("zoff_step_wait: no step is open", zoff_engine_error(first.get()));
        }).join();
    }
}

class Lent : public sgd_engine
{
};

TEST_F(Lent, NumbersAreGivenInOrderAndAShortDescriptionIsEnough)
{
    float x[4] = {1, 2, 3, 4};
    zoff_param p = 77;
    make();
    EXPECT_EQ(0u, add(x, nullptr, 1, "a"));
    zoff_param_desc d = described(x + 1, 2);
    d.grad = nullptr;
    d.frozen = true;
    d.slices = 9;
    d.struct_size = offsetof(zoff_param_desc, slices);
    ASSERT_ZOFF_OK(zoff_engine_add_param(made.get(), &d, &p));
    EXPECT_EQ(1u, p);
    EXPECT_EQ(3u, plan_of(made.get()).elements) << "neither frozen nor of nine slices";
}

TEST_F(Lent, GroupsAreSetUntilAStepIsOpen)
{
    float w[2] = {0, 0}, g[2] = {1, 1};
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_SGD);
    make();
    zoff_param_desc d = described(&w[0], 1);
    d.grad = &g[0];
    ASSERT_ZOFF_OK(zoff_engine_add_param(made.get(), &d, nullptr));
    d.value = &w[1];
    d.grad = &g[1];
    d.group = 1;
    ASSERT_ZOFF_OK(zoff_engine_add_param(made.get(), &d, nullptr));
    h.lr = 0.5;
    ASSERT_ZOFF_OK(zoff_engine_set_group(made.get(), 1, &h));
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, nullptr));
    EXPECT_EQ(-1, w[0]);
    EXPECT_EQ(-0.5, w[1]);
    h.lr = 0.25;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no parameter is in group 2", zoff_engine_set_group(made.get(), 2, &h));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "must not be NULL", zoff_engine_set_group(made.get(), 1, nullptr));
    ASSERT_ZOFF_OK(zoff_engine_set_group(made.get(), 1, &h));
    ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), 1, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_begin(made.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_engine_set_group(made.get(), 1, &h));
    ASSERT_ZOFF_OK(zoff_step_wait(made.get(), nullptr));
    EXPECT_EQ(-0.75, w[1]);
}

// Two groups with a momentum and a decay each: only what is given changes, in a group and in a step, and a struct for all
// groups leaves each its own.
TEST_F(Lent, NumbersOfAGroupStay)
{
    const double momenta[] = {0, 0.5};
    float w[2] = {8, 8}, g[2] = {1, 1};
    zoff_optimizer_hyper h, keep, out;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_SGD);
    zoff_optimizer_hyper_init(&keep, ZOFF_OPTIMIZER_KEEP);
    zoff_optimizer_hyper_init(&out, ZOFF_OPTIMIZER_SGD);
    make();
    zoff_engine *const e = made.get();
    for (unsigned group = 0; group < 2; group++) {
        zoff_param_desc d = described(&w[group], 1);
        d.grad = &g[group];
        d.group = group;
        ASSERT_ZOFF_OK(zoff_engine_add_param(e, &d, nullptr));
        h.momentum = momenta[group];
        h.weight_decay = group * 0.25;
        ASSERT_ZOFF_OK(zoff_engine_set_group(e, group, &h));
        ASSERT_ZOFF_OK(zoff_engine_set_lr(e, group, 1)) << "also before seal";
    }
    ASSERT_ZOFF_OK(zoff_engine_seal(e));
    zoff_step_args args = ZOFF_STEP_ARGS_INIT;
    args.hyper = &keep;
    args.hyper_count = 1;
    keep.lr = 0.5;
    ASSERT_ZOFF_OK(zoff_step(e, &args, nullptr));
    EXPECT_EQ(8 - 0.5, w[0]);
    EXPECT_EQ(8 - 0.5 * (1 + 0.25 * 8), w[1]) << "the rate of the call, the decay of the group";
    w[0] = w[1] = 8;
    ASSERT_ZOFF_OK(zoff_params_pull(e));
    ASSERT_ZOFF_OK(zoff_step(e, nullptr, nullptr));
    EXPECT_EQ(7, w[0]) << "the rate of the step before was of that step alone";
    EXPECT_EQ(8 - (0.5 * 3 + 3), w[1]);
    keep.lr = ZOFF_KEEP;
    keep.weight_decay = 0;
    ASSERT_ZOFF_OK(zoff_engine_set_group(e, 1, &keep));
    ASSERT_ZOFF_OK(zoff_engine_set_lr(e, 1, 0.125));
    ASSERT_ZOFF_OK(zoff_engine_get_group(e, 1, 0, &out));
    EXPECT_EQ(0.125, out.lr);
    EXPECT_EQ(0, out.weight_decay);
    EXPECT_EQ(0.5, out.momentum);
    EXPECT_EQ(ZOFF_OPTIMIZER_SGD, out.optimizer);
    ASSERT_ZOFF_OK(zoff_engine_set_lr(e, 1, ZOFF_KEEP));
    ASSERT_ZOFF_OK(zoff_engine_get_group(e, 1, 0, &out));
    EXPECT_EQ(0.125, out.lr);

    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_engine_set_lr: no parameter is in group 2", zoff_engine_set_lr(e, 2, 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_engine_set_lr: group 1: lr is nan; it must be finite and 0 or more",
                      zoff_engine_set_lr(e, 1, NAN));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_engine_set_lr: engine must not be NULL", zoff_engine_set_lr(nullptr, 1, 1));
    ASSERT_ZOFF_OK(zoff_grad_ready(e, 1, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_begin(e, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_engine_set_lr: a step is open", zoff_engine_set_lr(e, 1, 1));
    ASSERT_ZOFF_OK(zoff_step_wait(e, nullptr));
    ASSERT_ZOFF_OK(zoff_engine_get_group(e, 1, 0, &out));
    EXPECT_EQ(0.125, out.lr);
}

// Without optimizer.params, a group that was never set has the configuration's numbers, and a struct with a choice but no flags
// would lose those.
TEST(Params, TheConfigurationIsKeptToo)
{
    log_catcher log;
    trainer t(1);
    t.add(3, 1, ZOFF_F32, ZOFF_F32);
    zoff_optimizer_hyper keep, out;
    zoff_optimizer_hyper_init(&keep, ZOFF_OPTIMIZER_KEEP);
    zoff_optimizer_hyper_init(&out, ZOFF_OPTIMIZER_ADAM);
    engine e = seal_engine(t, R"({"optimizer": {"type": "Adam", "params": {"lr": 0.5, "betas": [0, 0.5], "weight_decay": 0.125,
                                  "adam_w_mode": false, "bias_correction": false}}})");
    keep.eps = 0.25;
    ASSERT_ZOFF_OK(zoff_engine_set_group(e.get(), 0, &keep));
    ASSERT_ZOFF_OK(zoff_engine_get_group(e.get(), 0, 0, &out));
    EXPECT_EQ(0.5, out.lr);
    EXPECT_EQ(0, out.beta1);
    EXPECT_EQ(0.5, out.beta2);
    EXPECT_EQ(0.25, out.eps);
    EXPECT_EQ(0.125, out.weight_decay);
    EXPECT_EQ(ZOFF_DECAY_L2, out.decay);
    EXPECT_EQ((uint64_t)ZOFF_HYPER_NO_BIAS_CORRECTION, out.flags);
}

TEST_F(Lent, WeightsAreFetchedAndReleasedByTheRules)
{
    float first[6] = {1, 2, 3, 4, 5, 6}, x = 0;
    const void *lent = nullptr;
    make();
    zoff_param_desc d = described(first, 3);
    d.slices = 2;
    d.grad = nullptr;
    d.engine_owned = true;
    ASSERT_ZOFF_OK(zoff_engine_add_param(made.get(), &d, nullptr));
    add(&x, nullptr, 1, "mine");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_param_fetch(made.get(), 0, 0, nullptr, &lent));
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no slice 2 of parameter 0", zoff_param_fetch(made.get(), 0, 2, nullptr, &lent));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no slice 0 of parameter 2", zoff_param_fetch(made.get(), 2, 0, nullptr, &lent));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "weights of mine are in the caller's memory",
                      zoff_param_fetch(made.get(), 1, 0, nullptr, &lent));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has no streams", zoff_param_fetch(made.get(), 0, 0, &x, &lent));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "out must not be NULL", zoff_param_fetch(made.get(), 0, 0, nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_param_release: engine must not be NULL",
                      zoff_param_release(nullptr, 0, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_param_fetch(made.get(), 0, 1, nullptr, &lent));
    EXPECT_EQ(0, memcmp(first + 3, lent, sizeof(float[3])));
    EXPECT_EQ(0u, (size_t)lent % 64);
    ASSERT_ZOFF_OK(zoff_param_release(made.get(), 0, 1, nullptr));
    EXPECT_LT(zoff_param_release(made.get(), 0, 1, nullptr), 0) << "nothing is lent any more";
}

TEST(ParamsOnDevice, WeightsOfTheEngineAreLentThere)
{
    log_catcher log;
    zoff_accel *made = nullptr;
    ASSERT_ZOFF_OK(zoff_accel_open("emulated", 0, &made));
    accel device(made);
    trainer none(1);
    engine e = make_engine(none, "{}", 0, 0, nullptr, made);
    const float first[] = {1, 2, 3, 4};
    zoff_param_desc d = described(nullptr, 4);
    d.engine_owned = true;
    d.value = const_cast<float *>(first);
    ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    const void *lent = nullptr;
    ASSERT_ZOFF_OK(zoff_param_fetch(e.get(), 0, 0, nullptr, &lent));
    EXPECT_EQ(0, memcmp(first, lent, sizeof first)) << "without a stream they are there when the call returns";
    ASSERT_ZOFF_OK(zoff_param_release(e.get(), 0, 0, nullptr));
}
} // namespace
