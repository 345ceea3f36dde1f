/* SPDX-License-Identifier: Apache-2.0 */
// handover_test.cc: gradients of the program: where they are read, and in which order calls may come.
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
    EXPECT_ZOFF_OK(zoff_param_bind(made.get(), p, w.data(), first.data())); // nothing is moved
    ASSERT_ZOFF_OK(zoff_step_begin(made.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(made.get(), nullptr));
    EXPECT_EQ(-1, w[0]);
    // A buffer can be bound after the step, and after gradients were dropped.
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

// 0 * NaN is NaN: a gradient of weight 0 must not be read into the sum, neither as the first nor later.
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

TEST_F(Handover, MemoryForAGradientIsLentOnceAndHandedOverOnce)
{
    std::vector<float> w(100, 0), own(100, 1), grad(100, 1);
    void *lent = nullptr, *again = nullptr;
    make();
    const zoff_param p = add(w.data(), nullptr, w.size(), "w"), q = add(own.data(), grad.data(), own.size(), "q");
    zoff_param_desc d = described(own.data() + 50, 10);
    d.frozen = true;
    d.grad = nullptr;
    d.value = nullptr;
    zoff_param frozen = 0;
    ASSERT_ZOFF_OK(zoff_engine_add_param(made.get(), &d, &frozen));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_grad_acquire(made.get(), p, 0, nullptr, &lent));
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "w has no gradient buffer", zoff_grad_ready(made.get(), p, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no slice 1 of parameter 0", zoff_grad_acquire(made.get(), p, 1, nullptr, &lent));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no slice 0 of parameter 9", zoff_grad_acquire(made.get(), 9, 0, nullptr, &lent));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has no streams", zoff_grad_acquire(made.get(), p, 0, &own, &lent));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "q has a gradient buffer", zoff_grad_acquire(made.get(), q, 0, nullptr, &lent));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "is frozen", zoff_grad_acquire(made.get(), frozen, 0, nullptr, &lent));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "out must not be NULL", zoff_grad_acquire(made.get(), p, 0, nullptr, nullptr));
    EXPECT_EQ(nullptr, lent);
    ASSERT_ZOFF_OK(zoff_grad_acquire(made.get(), p, 0, nullptr, &lent));
    for (int i = 0; i < 100; i++)
        EXPECT_EQ(0, ((float *)lent)[i]);
    ((float *)lent)[5] = 2;
    ASSERT_ZOFF_OK(zoff_grad_acquire(made.get(), p, 0, nullptr, &again));
    EXPECT_EQ(lent, again);
    EXPECT_EQ(2, ((float *)lent)[5]) << "what the program wrote stays";
    ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), p, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "handed over twice", zoff_grad_ready(made.get(), p, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "was handed over in this step", zoff_grad_acquire(made.get(), p, 0, nullptr, &lent));
    ASSERT_ZOFF_OK(zoff_step_begin(made.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(made.get(), nullptr));
    EXPECT_EQ(-2, w[5]);
    EXPECT_EQ(0, w[6]);
    ASSERT_ZOFF_OK(zoff_grad_acquire(made.get(), p, 0, nullptr, &lent));
    EXPECT_EQ(0, ((float *)lent)[5]) << "zeros again";
}

TEST_F(Handover, AWeightComesBeforeTheGradients)
{
    float w = 0, g = 1;
    make(", \"gradient_accumulation_steps\": 2");
    const zoff_param p = add(&w, &g, 1, "w");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", zoff_grad_weight(made.get(), 1));
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    for (double bad : {-1.0, (double)NAN, (double)INFINITY, 1e39})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "not a finite fp32 number of at least 0", zoff_grad_weight(made.get(), bad));
    ASSERT_ZOFF_OK(zoff_grad_weight(made.get(), 3));
    ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), p, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "call it before zoff_grad_ready()", zoff_grad_weight(made.get(), 1));
    ASSERT_ZOFF_OK(zoff_step_begin(made.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(made.get(), nullptr));
    g = 5; // weight 1 again: a weight holds for one micro-batch
    ASSERT_ZOFF_OK(zoff_step(made.get(), nullptr, nullptr));
    EXPECT_EQ(-(3.0f * 1 + 1 * 5) / 4, w);
}

TEST_F(Handover, OnlyWhatWasHandedOverIsFilledWithZeros)
{
    float w[2] = {0, 0}, g[2] = {1, 1};
    zoff_step_args args = {};
    args.struct_size = sizeof args;
    args.flags = ZOFF_STEP_ZERO_GRADS;
    make();
    add(&w[0], &g[0], 1, "a");
    const zoff_param b = add(&w[1], &g[1], 1, "b");
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    ASSERT_ZOFF_OK(zoff_grad_ready(made.get(), b, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_step_begin(made.get(), &args));
    ASSERT_ZOFF_OK(zoff_step_wait(made.get(), nullptr));
    EXPECT_EQ(1, g[0]);
    EXPECT_EQ(0, g[1]);
}

// Half of each split master is in the weights, so these move to the new buffer. It may overlap the old one. The states stay.
TEST(HandoverSplit, BindingMovesWeightsThatAreHalfOfTheirMasters)
{
    log_catcher log;
    const size_t count = 1500, slices = 3, stride = 1600;
    trainer t(5);
    t.add(count, slices, ZOFF_BF16, ZOFF_BF16, 0, false, stride - count);
    std::vector<uint16_t> first(2 * stride * slices, 0x7fff);
    memcpy(first.data(), t.value(0), (stride * (slices - 1) + count) * sizeof(uint16_t));
    engine e = make_engine("{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 0}", {});
    zoff_param_desc d = t.desc(0);
    d.value = first.data();
    ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    std::vector<uint16_t> other(stride * slices, 0x7fff);
    uint16_t *buffers[] = {other.data(), first.data() + 700, first.data(), other.data(), first.data() + stride * slices};
    int64_t step = 0;
    for (uint16_t *buffer : buffers) {
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
        reference::step(t.tensors, config_groups(1), ++step, 1, 1, 0);
        ASSERT_ZOFF_OK(zoff_param_bind(e.get(), 0, buffer, nullptr));
        for (size_t k = 0; k < count * slices; k++)
            ASSERT_EQ(reference::to_16(ZOFF_BF16, t.tensors[0].master[k]), buffer[t.place(0, k)]) << "step " << step;
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }
}
} // namespace
