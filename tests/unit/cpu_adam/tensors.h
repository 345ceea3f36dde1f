/* SPDX-License-Identifier: Apache-2.0 */
// tensors.h: tensors of any rule and type for the tests in this folder, each with arrays of its own.
#ifndef ZOFF_TESTS_TENSORS_H
#define ZOFF_TESTS_TENSORS_H

#include "every_rule.h"
#include "kernel_data.h"
#include "oracle.h"

// The arrays of a tensor. Copies are deep: from a copy made before a step the oracle, or another way to make the step, starts.
struct owned_tensor {
    rule_case rule;
    weights_kind weights;
    zoff_dtype grads;
    size_t count;
    std::vector<unsigned char> master, grad, copy;
    std::vector<float> m, v;

    // Ordinary numbers; states are zeros, or as after some steps.
    owned_tensor(const rule_case &rule_of, zoff_dtype grad_dtype, const weights_kind &kind, size_t n, bool old_states)
        : rule(rule_of), weights(kind), grads(grad_dtype), count(n), master(n * zoff_adam_dtype_bytes(kind.master)),
          grad(n * zoff_adam_dtype_bytes(grad_dtype)), copy(kind.copy ? n * 2 : 0, 0x5a), m(rule_of.states.m ? n : 0),
          v(rule_of.states.v ? n : 0)
    {
        kernel_data::random_source random(n + 3);
        for (size_t i = 0; i < n; i++) {
            oracle_store(master.data(), weights.master, i, kernel_data::number(random, false));
            oracle_store(grad.data(), grads, i, kernel_data::number(random, false));
        }
        for (auto *states : {&m, &v}) {
            for (auto &x : *states)
                x = old_states ? __builtin_fabsf(kernel_data::number(random, false)) : 0;
        }
    }

    zoff_optimizer_tensor tensor()
    {
        zoff_optimizer_tensor t = {};
        t.struct_size = sizeof t;
        t.count = count;
        t.master = master.data();
        t.m = rule.states.m ? m.data() : nullptr;
        t.v = rule.states.v ? v.data() : nullptr;
        t.grad = grad.data();
        t.grad_dtype = grads;
        t.copy_out = weights.copy ? copy.data() : nullptr;
        t.copy_dtype = weights.copy;
        t.master_dtype = weights.master;
        return t;
    }

    zoff_adam_piece piece(const zoff_adam_consts *consts)
    {
        const zoff_optimizer_tensor t = tensor();
        zoff_adam_piece piece = {};
        piece.count = t.count;
        piece.master = t.master;
        piece.m = t.m;
        piece.v = t.v;
        piece.grad = t.grad;
        piece.copy_out = t.copy_out;
        piece.grad_dtype = t.grad_dtype;
        piece.copy_dtype = t.copy_dtype;
        piece.consts = consts;
        piece.master_dtype = t.master_dtype;
        return piece;
    }

    void step_by_oracle(int64_t t, double grad_scale)
    {
        const zoff_optimizer_tensor view = tensor();
        oracle_step(&rule.hyper, t, grad_scale, &view);
    }

    std::string name() const
    {
        return std::string(rule.name) + ", gradients " + zoff_adam_dtype_name(grads) + ", weights " + weights.name + ", " +
               std::to_string(count) + " elements";
    }
};

inline void expect_same(const owned_tensor &expected, const owned_tensor &actual)
{
    EXPECT_TRUE(expected.master == actual.master) << "weights of " << expected.name();
    EXPECT_TRUE(expected.copy == actual.copy) << "copy of " << expected.name();
    EXPECT_TRUE(kernel_data::same_bits(expected.m.data(), actual.m.data(), expected.m.size())) << "m of " << expected.name();
    EXPECT_TRUE(kernel_data::same_bits(expected.v.data(), actual.v.data(), expected.v.size())) << "v of " << expected.name();
    EXPECT_TRUE(expected.grad == actual.grad) << "the gradient of " << expected.name() << " was changed";
}

// One tensor for each combination of a rule, a type of gradients and a kind of weights: 195, with these sizes in turn.
inline std::vector<owned_tensor> every_tensor(const std::vector<size_t> &counts, bool old_states)
{
    std::vector<owned_tensor> all;
    for (const auto &rule : every_rule()) {
        for (zoff_dtype grads : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
            for (const auto &weights : every_weights_kind())
                all.emplace_back(rule, grads, weights, counts[all.size() % counts.size()], old_states);
        }
    }
    return all;
}

#endif
