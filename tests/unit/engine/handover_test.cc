// handover_test.cc: gradients that the program hands over: where they are read from, in which order calls may come.
#include "sgd_engine.h"

#include <math.h>

using namespace zoff_test;

namespace
{
class Handover : public sgd_engine
{
};

TEST_F(Handover, ABufferIsNotBoundAfterItsGradientWasHandedOver)
{
    std::vector<float> w(4096, 0), first(4096, 1), other(4096, 1000);
    make();
    const zoff_param p = add(w.data(), first.data(), w.size(), "w");
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), p, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "slice 0 of w was handed over", zoff_param_bind(made.get(), p, nullptr, other.data()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "slice 0 of w was handed over", zoff_param_bind(made.get(), p, other.data(), nullptr));
    EXPECT_ZOFF_OK(zoff_param_bind(made.get(), p, w.data(), first.data())); // nothing moves
    ASSERT_ZOFF_OK(zoff_step_begin(made.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(made.get(), nullptr));
    EXPECT_EQ(-1, w[0]);
    // After the step, and after gradients were given up.
    ASSERT_ZOFF_OK(zoff_param_bind(made.get(), p, nullptr, other.data()));
    ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), p, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_grads_drop(made.get()));
    ASSERT_ZOFF_OK(zoff_param_bind(made.get(), p, nullptr, first.data()));
    ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, nullptr));
    EXPECT_EQ(-2, w[0]);
}

TEST_F(Handover, ABufferIsNotBoundWhileGradientMemoryIsLent)
{
    std::vector<float> w(64, 0), own(64, 1000);
    void *lent = nullptr;
    make();
    const zoff_param p = add(w.data(), nullptr, w.size(), "w");
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    ASSERT_ZOFF_OK(zoff_grad_acquire(made.get(), p, 0, nullptr, &lent));
    std::fill_n((float *)lent, w.size(), 1.0f);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "zoff_grad_acquire() has lent", zoff_param_bind(made.get(), p, nullptr, own.data()));
    ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), p, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_begin(made.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(made.get(), nullptr));
    EXPECT_EQ(-1, w[0]);
}

// 0 * NaN is NaN: what has no weight must not be read into the sum, be it the first of it or a later one.
TEST_F(Handover, AGradientOfWeight0CountsAsZerosAlsoWhereItIsNotFinite)
{
    for (float poison : {NAN, INFINITY}) {
        for (int which : {0, 1, 2}) {
            std::vector<float> w(40, 0), g(40);
            auto info = new_info();
            make(", \"gradient_accumulation_steps\": 3");
            add(w.data(), g.data(), w.size(), "w");
            ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
            for (int micro = 0; micro < 3; micro++) {
                std::fill(g.begin(), g.end(), micro == which ? poison : 1.0f + (float)micro);
                ASSERT_ZOFF_OK(zoff_grad_weight(made.get(), micro == which ? 0 : 1));
                ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, &info));
            }
            EXPECT_FALSE(info.skipped);
            const float want = -(6.0f - (1.0f + (float)which)) / 2.0f;
            for (float x : w)
                ASSERT_EQ(want, x) << "micro-step " << which << " of weight 0";
        }
    }
}
} // namespace
