/* SPDX-License-Identifier: Apache-2.0 */
// step_test.cc: the public step on one tensor: every rule and type against the oracle, errors and their words, defaults, empty
// tensors, and callers on several threads. While it computes it sets the floating-point control register.
#include "tensors.h"
#include "zoff_test.h"

extern "C" {
#include "update_priv.h"
}

#include <math.h>
#include <string.h>

#include <thread>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace kernel_data;

namespace
{
// An AdamW tensor, fp32 throughout.
owned_tensor adamw(size_t n)
{
    return {every_rule()[ZOFF_RULE_ADAM_DECOUPLED], ZOFF_F32, every_weights_kind()[0], n, false};
}

TEST(step, five_steps_of_every_rule_and_type_equal_the_oracle)
{
    for (auto &actual : every_tensor({1, 1000, 130, 33000}, false)) { // the largest needs the team
        owned_tensor expected = actual;
        const zoff_optimizer_tensor tensor = actual.tensor();
        for (int t = 1; t <= 5; t++) {
            ASSERT_ZOFF_OK(zoff_optimizer_step(&actual.rule.hyper, t, 0.5, &tensor));
            expected.step_by_oracle(t, 0.5);
        }
        expect_same(expected, actual);
    }
}

TEST(step, zero_means_fp32_and_a_bf16_copy)
{
    owned_tensor actual(every_rule()[ZOFF_RULE_LION], ZOFF_F32, every_weights_kind()[1], 1000, false), expected = actual;
    zoff_optimizer_tensor tensor = actual.tensor();
    tensor.master_dtype = tensor.grad_dtype = tensor.copy_dtype = ZOFF_DTYPE_DEFAULT;
    ASSERT_ZOFF_OK(zoff_optimizer_step(&actual.rule.hyper, 1, 1, &tensor));
    expected.step_by_oracle(1, 1);
    expect_same(expected, actual);
}

// States that a rule does not use may be passed; they stay unchanged.
TEST(step, states_of_other_rules_are_not_touched)
{
    for (const auto &rule : every_rule()) {
        owned_tensor actual(rule, ZOFF_F32, every_weights_kind()[0], 100, false), expected = actual;
        std::vector<float> spare(100, 7.0f);
        zoff_optimizer_tensor tensor = actual.tensor();
        for (float **state : {&tensor.m, &tensor.v})
            *state = *state ? *state : spare.data();
        ASSERT_ZOFF_OK(zoff_optimizer_step(&rule.hyper, 1, 1, &tensor));
        expected.step_by_oracle(1, 1);
        expect_same(expected, actual);
        for (float x : spare)
            ASSERT_EQ(x, 7.0f) << rule.name;
    }
}

// In step 1 SGD's m becomes g with any dampening, to the bit: a zero keeps its sign.
TEST(step, the_first_momentum_is_the_gradient)
{
    const size_t n = 100;
    for (const auto &rule : every_rule()) {
        if (rule.rule != ZOFF_RULE_MOMENTUM && rule.rule != ZOFF_RULE_NESTEROV)
            continue;
        owned_tensor actual(rule, ZOFF_F32, every_weights_kind()[0], n, false), expected = actual;
        for (size_t i = 0; i < n; i += 3) {
            oracle_store(actual.grad.data(), ZOFF_F32, i, -0.0f);
            oracle_store(actual.master.data(), ZOFF_F32, i, i % 2 ? -0.0f : 0.0f);
        }
        expected = actual;
        const zoff_optimizer_tensor tensor = actual.tensor();
        ASSERT_ZOFF_OK(zoff_optimizer_step(&rule.hyper, 1, 1, &tensor));
        EXPECT_EQ(memcmp(actual.m.data(), actual.grad.data(), n * sizeof(float)), 0) << rule.name;
        expected.step_by_oracle(1, 1);
        expect_same(expected, actual);
    }
}

// A grad_scale of any sign and size in fp32. If the product is infinite or NaN, the result follows the formula.
TEST(step, any_finite_grad_scale)
{
    for (double scale : {-1.0, 0.0, -0.0, 1e-45, 1e-300, -3e38}) {
        for (const auto &rule : every_rule()) {
            owned_tensor actual(rule, ZOFF_F32, every_weights_kind()[1], 100, true), expected = actual;
            const zoff_optimizer_tensor tensor = actual.tensor();
            ASSERT_ZOFF_OK(zoff_optimizer_step(&rule.hyper, 2, scale, &tensor));
            expected.step_by_oracle(2, scale);
            const auto floats = [](const owned_tensor &t) { return (const float *)(const void *)t.master.data(); };
            EXPECT_TRUE(same_bits(floats(expected), floats(actual), 100)) << rule.name << ", " << scale;
            EXPECT_TRUE(expected.copy == actual.copy) << rule.name << ", " << scale;
            EXPECT_TRUE(same_bits(expected.m.data(), actual.m.data(), expected.m.size())) << rule.name << ", " << scale;
            EXPECT_TRUE(same_bits(expected.v.data(), actual.v.data(), expected.v.size())) << rule.name << ", " << scale;
        }
    }
}

// Tensors of sizes for which a measurement decides about waking a team. Several threads of the caller step them at once, alone
// or as a list.
void step_all(std::vector<owned_tensor> &own)
{
    for (size_t i = 0; i < own.size(); i++) {
        const zoff_optimizer_tensor tensor = own[i].tensor();
        const zoff_optimizer_hyper *hyper = &own[i].rule.hyper;
        EXPECT_ZOFF_OK(i % 2 ? zoff_optimizer_step(hyper, 3, 0.5, &tensor)
                             : zoff_optimizer_step_list(hyper, 0, 3, 0.5, &tensor, sizeof tensor, 1));
    }
}

TEST(step, callers_on_several_threads_and_in_regions_of_their_own)
{
    const std::vector<owned_tensor> before = every_tensor({2047, 2048, 9000, 33000, 65536, 70001}, true);
    std::vector<owned_tensor> expected = before;
    for (auto &one : expected)
        one.step_by_oracle(3, 0.5);
    for (bool region : {false, true}) {
        std::vector<owned_tensor> actual[3] = {before, before, before};
        if (region) {
#pragma omp parallel for num_threads(3)
            for (int i = 0; i < 3; i++)
                step_all(actual[i]);
        } else {
            std::vector<std::thread> callers;
            for (auto &own : actual)
                callers.emplace_back([&own] { step_all(own); });
            for (auto &caller : callers)
                caller.join();
        }
        for (auto &own : actual) {
            for (size_t i = 0; i < own.size(); i++)
                expect_same(expected[i], own[i]);
        }
    }
}

TEST(step, each_error_names_its_cause)
{
    owned_tensor f = adamw(10), before = f;
    zoff_optimizer_hyper hyper = f.rule.hyper;
    const zoff_optimizer_tensor good = f.tensor();
    std::vector<uint16_t> copy(10);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "hyper-parameters are NULL", zoff_optimizer_step(nullptr, 1, 1, &good));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_optimizer_step: tensor is NULL", zoff_optimizer_step(&hyper, 1, 1, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the first step is 1", zoff_optimizer_step(&hyper, 0, 1, &good));
    for (double scale : {(double)NAN, (double)INFINITY, 1e39})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "grad_scale is", zoff_optimizer_step(&hyper, 1, scale, &good));
    hyper.beta2 = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "beta2 is 1", zoff_optimizer_step(&hyper, 1, 1, &good));
    hyper.beta2 = 0.999;

    auto fails_with = [&](const char *words, auto change) {
        zoff_optimizer_tensor bad = good;
        change(bad);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, zoff_optimizer_step(&hyper, 1, 1, &bad));
    };
    fails_with("zoff_optimizer_step: tensor.struct_size is 0", [](zoff_optimizer_tensor &t) { t.struct_size = 0; });
    fails_with("sizeof(zoff_optimizer_tensor)",
               [](zoff_optimizer_tensor &t) { t.struct_size = offsetof(zoff_optimizer_tensor, rows) - 1; });
    fails_with("zoff_optimizer_step: tensor.master is NULL, but count is 10",
               [](zoff_optimizer_tensor &t) { t.master = nullptr; });
    fails_with("tensor.m is NULL", [](zoff_optimizer_tensor &t) { t.m = nullptr; });
    fails_with("tensor.v is NULL", [](zoff_optimizer_tensor &t) { t.v = nullptr; });
    fails_with("tensor.grad is NULL", [](zoff_optimizer_tensor &t) { t.grad = nullptr; });
    fails_with("more elements than memory", [](zoff_optimizer_tensor &t) { t.count = SIZE_MAX / 2; });
    fails_with("tensor.grad_dtype is 99 (unknown)", [](zoff_optimizer_tensor &t) { t.grad_dtype = (zoff_dtype)99; });
    fails_with("tensor.master_dtype is -1 (unknown)", [](zoff_optimizer_tensor &t) { t.master_dtype = (zoff_dtype)-1; });
    fails_with("tensor.copy_dtype is 1 (fp32); use ZOFF_BF16 or ZOFF_F16", [&](zoff_optimizer_tensor &t) {
        t.copy_out = copy.data();
        t.copy_dtype = ZOFF_F32;
    });
    fails_with("tensor.copy_out is given, but master is bf16", [&](zoff_optimizer_tensor &t) {
        t.copy_out = copy.data();
        t.master_dtype = ZOFF_BF16;
    });
    expect_same(before, f);
}

// Only the rule's own states are required.
TEST(step, each_rule_asks_for_its_own_states)
{
    for (const auto &rule : every_rule()) {
        owned_tensor f(rule, ZOFF_F32, every_weights_kind()[0], 10, false);
        zoff_optimizer_tensor tensor = f.tensor();
        tensor.m = nullptr;
        if (rule.states.m)
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "tensor.m is NULL", zoff_optimizer_step(&rule.hyper, 1, 1, &tensor));
        tensor = f.tensor();
        tensor.v = nullptr;
        if (rule.states.v)
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "tensor.v is NULL", zoff_optimizer_step(&rule.hyper, 1, 1, &tensor));
        tensor = f.tensor(); // NULL for states that the rule does not have
        EXPECT_ZOFF_OK(zoff_optimizer_step(&rule.hyper, 1, 1, &tensor));
    }
}

TEST(step, empty_tensor_is_legal)
{
    zoff_optimizer_tensor nothing = {};
    nothing.struct_size = sizeof nothing;
    for (const auto &rule : every_rule())
        EXPECT_ZOFF_OK(zoff_optimizer_step(&rule.hyper, 1, 1, &nothing));
}

TEST(step, larger_structs_of_newer_callers_are_accepted)
{
    owned_tensor actual = adamw(100), expected = actual;
    struct {
        zoff_optimizer_tensor tensor;
        char newer[16];
    } grown = {actual.tensor(), {}};
    grown.tensor.struct_size = sizeof grown;
    ASSERT_ZOFF_OK(zoff_optimizer_step(&actual.rule.hyper, 1, 1, &grown.tensor));
    expected.step_by_oracle(1, 1);
    expect_same(expected, actual);
}

#if defined(__x86_64__)
// One step while the process has set flush-to-zero, denormals-are-zero and rounding towards zero.
void step_strangely(owned_tensor &actual)
{
    const zoff_optimizer_tensor tensor = actual.tensor();
    const unsigned before = _mm_getcsr();
    const unsigned strange = 0x8040 | 0x6000 | 0x1f80;
    _mm_setcsr(strange);
    const zoff_status status = zoff_optimizer_step(&actual.rule.hyper, 2, 0.5, &tensor);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    ASSERT_EQ(status, ZOFF_OK) << zoff_last_error();
    EXPECT_EQ(after & 0xffc0u, strange & 0xffc0u) << "the caller's control bits were not restored";
}

// Subnormal moments, gradients and weights, as in unused embedding rows.
void make_subnormal(owned_tensor &t)
{
    t.rule.hyper.eps = t.rule.hyper.optimizer == ZOFF_OPTIMIZER_ADAM ? 1e-40 : t.rule.hyper.eps;
    for (size_t i = 0; i < t.count; i++) {
        const float tiny = t.grads == ZOFF_F16 ? (float)(1 + i % 1023) * 0x1p-24f : float_of(1 + (uint32_t)i);
        oracle_store(t.grad.data(), t.grads, i, i % 3 ? 1e-19f * oracle_load(t.grad.data(), t.grads, i) : tiny);
        if (i % 2 == 0)
            oracle_store(t.master.data(), t.weights.master, i,
                         t.weights.master == ZOFF_F16 ? (float)(i % 1023) * 0x1p-24f : float_of((uint32_t)i * 100));
    }
    for (size_t i = 0; i < t.m.size(); i++)
        t.m[i] = float_of(3 + (uint32_t)i * 7);
    for (size_t i = 0; i < t.v.size(); i++)
        t.v[i] = float_of(5 + (uint32_t)i * 11);
}
#endif

TEST(step, flush_to_zero_of_the_process_changes_nothing_and_stays_as_it_was)
{
#if defined(__x86_64__)
    for (auto &actual : every_tensor({33000}, true)) { // enough for a team, whose threads must be set, too
        if (actual.rule.hyper.weight_decay == 0)
            continue; // such a rule has the same operations without one of them
        make_subnormal(actual);
        owned_tensor expected = actual;
        expected.step_by_oracle(2, 0.5);
        step_strangely(actual);
        expect_same(expected, actual);
        if (HasFailure())
            return;
    }
#else
    GTEST_SKIP() << "the test sets MXCSR, which this CPU does not have";
#endif
}

// A process that treats subnormals as zero sees no momentum in this one. The required states must still be those that the step
// uses.
TEST(step, a_subnormal_momentum_asks_for_its_state_whatever_the_process_has_set)
{
#if defined(__x86_64__)
    zoff_optimizer_hyper hyper;
    zoff_optimizer_hyper_init(&hyper, ZOFF_OPTIMIZER_SGD);
    hyper.momentum = 1e-310;
    float weight = 1, grad = 1;
    zoff_optimizer_tensor tensor = {};
    tensor.struct_size = sizeof tensor;
    tensor.count = 1;
    tensor.master = &weight;
    tensor.grad = &grad;
    const unsigned before = _mm_getcsr();
    _mm_setcsr(0x8040 | 0x1f80);
    const zoff_status status = zoff_optimizer_step(&hyper, 1, 1, &tensor);
    _mm_setcsr(before);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "tensor.m is NULL", status);
    EXPECT_EQ(weight, 1);
#else
    GTEST_SKIP() << "the test sets MXCSR, which this CPU does not have";
#endif
}

// Take such a step on a list so large that copies are written past the caches.
TEST(step, flush_to_zero_of_the_process_changes_nothing_in_a_streaming_step)
{
#if defined(__x86_64__)
    const zoff_adam_consts any = {};
    for (const auto &weights : {every_weights_kind()[1], every_weights_kind()[2]}) {
        owned_tensor actual(every_rule()[ZOFF_RULE_ADAM_DECOUPLED], ZOFF_BF16, weights, (64u << 20) / 28 + 12345, true);
        const zoff_adam_piece piece = actual.piece(&any);
        ASSERT_TRUE(zoff_adam_update_streams(actual.count * zoff_adam_update_cost(&piece)));
        make_subnormal(actual);
        owned_tensor expected = actual;
        expected.step_by_oracle(2, 0.5);
        step_strangely(actual);
        expect_same(expected, actual);
    }
#else
    GTEST_SKIP() << "the test sets MXCSR, which this CPU does not have";
#endif
}
} // namespace
