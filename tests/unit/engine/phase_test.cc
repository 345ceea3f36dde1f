// phase_test.cc: which calls are allowed in which phase, and the errors of the others.
#include "sgd_engine.h"

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
class Phase : public sgd_engine
{
};

// All calls that read states, or change states, weights or counts, by one rule.
TEST_F(Phase, StatesAreLeftAloneInTheMiddleOfAnUpdate)
{
    std::vector<float> w(64, 0), g(64, 1), x(64, 5);
    int64_t t = -1;
    make(", \"gradient_accumulation_steps\": 2, \"fp16\": {\"enabled\": true, \"loss_scale\": 1}");
    const zoff_param p = add(w.data(), g.data(), w.size(), "w");
    zoff_loss_scaler scaler = {};
    scaler.struct_size = sizeof scaler;
    log.expect("w is fp32");
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    ASSERT_ZOFF_OK(zoff_loss_scaler_get(made.get(), &scaler));
    const auto refused = [&](const char *why) {
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, why, zoff_state_read(made.get(), p, ZOFF_STATE_MASTER, 0, 64, x.data()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, why, zoff_state_write(made.get(), p, ZOFF_STATE_MASTER, 0, 64, x.data()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, why, zoff_step_count_set(made.get(), 7));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, why, zoff_params_pull(made.get()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, why, zoff_params_push(made.get()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, why, zoff_loss_scaler_set(made.get(), &scaler));
    };
    const auto allowed = [&] {
        EXPECT_ZOFF_OK(zoff_state_read(made.get(), p, ZOFF_STATE_MASTER, 0, 64, x.data()));
        EXPECT_ZOFF_OK(zoff_state_write(made.get(), p, ZOFF_STATE_MASTER, 0, 64, x.data()));
        EXPECT_ZOFF_OK(zoff_params_pull(made.get()));
        EXPECT_ZOFF_OK(zoff_params_push(made.get()));
        EXPECT_ZOFF_OK(zoff_loss_scaler_set(made.get(), &scaler));
        EXPECT_ZOFF_OK(zoff_step_count(made.get(), &t));
        EXPECT_ZOFF_OK(zoff_step_count_set(made.get(), t));
    };
    allowed();
    ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), p, 0, nullptr));
    refused("gradients of the next step were handed over");
    ASSERT_ZOFF_OK(zoff_step_begin(made.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(made.get(), nullptr));
    refused("1 of 2 micro-steps of the next update are done");
    ASSERT_ZOFF_OK(zoff_grads_drop(made.get()));
    allowed();
    ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, nullptr));
    refused("zoff_grads_drop()");
    ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, nullptr));
    EXPECT_EQ(-1, w[0]);
    allowed();
}

TEST_F(Phase, WeightsOfTheEngineAreNotSetInTheMiddleOfAnUpdate)
{
    std::vector<float> x(64, 5);
    make(", \"gradient_accumulation_steps\": 2");
    zoff_param_desc d = {};
    zoff_param p = 0;
    d.struct_size = sizeof d;
    d.count = x.size();
    d.grad = x.data();
    d.engine_owned = true;
    ASSERT_ZOFF_OK(zoff_engine_add_param(made.get(), &d, &p));
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_param_write: 1 of 2 micro-steps", zoff_param_write(made.get(), p, 0, 64, x.data()));
    EXPECT_ZOFF_OK(zoff_param_read(made.get(), p, 0, 64, x.data())); // only weights are complete
}

TEST_F(Phase, CallsAtTheWrongTimeAreRefused)
{
    trainer t(1);
    t.add(10, 1, ZOFF_F32, ZOFF_F32);
    engine e = make_engine(t, config_text(""));
    float x[1];
    zoff_param_desc d = t.desc(0);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_step(e.get(), nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_step_begin(e.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_grad_ready(e.get(), 0, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_params_pull(e.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_state_read(e.get(), 0, ZOFF_STATE_M, 0, 1, x));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_grads_drop(e.get()));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "sealed", zoff_engine_add_param(e.get(), &d, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "sealed", zoff_engine_seal(e.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "no step is open", [&] { return zoff_step_wait(e.get(), nullptr); }());
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "no step has failed", zoff_step_retry(e.get(), nullptr));
    log.expect("step 1 updates nothing");
    ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_step_begin(e.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_step(e.get(), nullptr, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_grad_ready(e.get(), 0, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_param_bind(e.get(), 0, t.value(0), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
}

TEST_F(Phase, EachHasItsWords)
{
    make();
    const std::pair<zoff_phase, const char *> words[] = {{ZOFF_PHASE_BUILDING, "not sealed yet"},
                                                         {ZOFF_PHASE_IDLE, "no step is open"},
                                                         {ZOFF_PHASE_OPEN, "a step is open"},
                                                         {ZOFF_PHASE_FAILED, "a step has failed"}};
    for (const auto &is : words) {
        made->life.phase = is.first;
        /* Calls that are legal in one of these phases alone. */
        for (const auto &one : {std::pair<zoff_call, zoff_phase>{ZOFF_CALL_SEAL, ZOFF_PHASE_BUILDING},
                                {ZOFF_CALL_GRAD_WEIGHT, ZOFF_PHASE_IDLE},
                                {ZOFF_CALL_STEP_RETRY, ZOFF_PHASE_FAILED}}) {
            const std::string own = one.first == ZOFF_CALL_SEAL         ? "zoff_engine_seal: the engine is sealed already"
                                    : one.first == ZOFF_CALL_STEP_RETRY ? "zoff_step_retry: no step has failed"
                                                                        : std::string("zoff_grad_weight: ");
            if (one.second == is.first) {
                EXPECT_ZOFF_OK(zoff_engine_phase_check(made.get(), one.first));
                continue;
            }
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, own, zoff_engine_phase_check(made.get(), one.first));
            EXPECT_TRUE(one.first != ZOFF_CALL_GRAD_WEIGHT || strstr(zoff_last_error(), is.second)) << zoff_last_error();
        }
        EXPECT_EQ(is.first == ZOFF_PHASE_IDLE ? ZOFF_OK : ZOFF_ERR_STATE, zoff_engine_phase_idle(made.get(), "call"));
    }
    made->life.phase = ZOFF_PHASE_BUILDING;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_grad_weight: engine must not be NULL",
                      zoff_engine_phase_check(nullptr, ZOFF_CALL_GRAD_WEIGHT));
    EXPECT_ZOFF_OK(zoff_engine_phase_check_weights(made.get(), "call"));
    made->life.awaits_weights = true;
    made->t = 12;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "call: the states are those after step 12",
                      zoff_engine_phase_check_weights(made.get(), "call"));
}
} // namespace
