/* SPDX-License-Identifier: Apache-2.0 */
// every_rule.h: hyper-parameters for each rule of the kernels, such that every constant of its formula has an effect.
#ifndef ZOFF_TESTS_EVERY_RULE_H
#define ZOFF_TESTS_EVERY_RULE_H

extern "C" {
#include "cpu_adam.h"
}

#include <vector>

struct rule_case {
    zoff_adam_rule rule;
    const char *name;
    zoff_optimizer_hyper hyper;
    zoff_adam_states states; // states as the header names them, not as the library computes them
};

inline rule_case make_rule(zoff_adam_rule rule, const char *name, zoff_optimizer optimizer, double weight_decay, bool m, bool v)
{
    rule_case c = {rule, name, {}, {m, v}};
    zoff_optimizer_hyper_init(&c.hyper, optimizer);
    c.hyper.lr = 0.0123;
    c.hyper.weight_decay = weight_decay;
    c.hyper.lr_decay = optimizer == ZOFF_OPTIMIZER_ADAGRAD ? 0.03 : 0;
    return c;
}

inline std::vector<rule_case> every_rule()
{
    std::vector<rule_case> all = {
        make_rule(ZOFF_RULE_ADAM, "Adam", ZOFF_OPTIMIZER_ADAM, 0, true, true),
        make_rule(ZOFF_RULE_ADAM_DECOUPLED, "AdamW", ZOFF_OPTIMIZER_ADAM, 0.1, true, true),
        make_rule(ZOFF_RULE_ADAM_L2, "Adam with L2", ZOFF_OPTIMIZER_ADAM, 0.1, true, true),
        make_rule(ZOFF_RULE_ADAGRAD, "Adagrad", ZOFF_OPTIMIZER_ADAGRAD, 0, false, true),
        make_rule(ZOFF_RULE_ADAGRAD_L2, "Adagrad with L2", ZOFF_OPTIMIZER_ADAGRAD, 0.1, false, true),
        make_rule(ZOFF_RULE_LION, "Lion", ZOFF_OPTIMIZER_LION, 0, true, false),
        make_rule(ZOFF_RULE_LION_DECOUPLED, "Lion with decay", ZOFF_OPTIMIZER_LION, 0.1, true, false),
        make_rule(ZOFF_RULE_SGD, "SGD", ZOFF_OPTIMIZER_SGD, 0, false, false),
        make_rule(ZOFF_RULE_SGD_L2, "SGD with L2", ZOFF_OPTIMIZER_SGD, 0.1, false, false),
        make_rule(ZOFF_RULE_MOMENTUM, "momentum", ZOFF_OPTIMIZER_SGD, 0, true, false),
        make_rule(ZOFF_RULE_MOMENTUM_L2, "momentum with L2", ZOFF_OPTIMIZER_SGD, 0.1, true, false),
        make_rule(ZOFF_RULE_NESTEROV, "Nesterov", ZOFF_OPTIMIZER_SGD, 0, true, false),
        make_rule(ZOFF_RULE_NESTEROV_L2, "Nesterov with L2", ZOFF_OPTIMIZER_SGD, 0.1, true, false),
        // After the cases that can be indexed by rule: the same loops with other constants.
        make_rule(ZOFF_RULE_ADAM_DECOUPLED, "AdamW without bias correction", ZOFF_OPTIMIZER_ADAM, 0.1, true, true),
        make_rule(ZOFF_RULE_ADAM_DECOUPLED, "Muon's AdamW", ZOFF_OPTIMIZER_MUON, 0.1, true, true),
    };
    all[all.size() - 2].hyper.flags = ZOFF_HYPER_NO_BIAS_CORRECTION;
    for (auto &c : all) {
        if (c.rule == ZOFF_RULE_ADAM_L2)
            c.hyper.decay = ZOFF_DECAY_L2;
        if (c.rule >= ZOFF_RULE_MOMENTUM)
            c.hyper.momentum = 0.9;
        if (c.rule == ZOFF_RULE_MOMENTUM || c.rule == ZOFF_RULE_MOMENTUM_L2)
            c.hyper.dampening = 0.3;
        c.hyper.nesterov = c.rule == ZOFF_RULE_NESTEROV || c.rule == ZOFF_RULE_NESTEROV_L2;
    }
    return all;
}

// The passes over a matrix of Muon.
inline std::vector<rule_case> matrix_rules()
{
    std::vector<rule_case> all = {
        make_rule(ZOFF_RULE_MUON_MOMENTUM, "Muon's momentum", ZOFF_OPTIMIZER_MUON, 0, true, false),
        make_rule(ZOFF_RULE_MUON_NESTEROV, "Muon's Nesterov", ZOFF_OPTIMIZER_MUON, 0, true, false),
        make_rule(ZOFF_RULE_ADD, "addition", ZOFF_OPTIMIZER_MUON, 0, false, false),
        make_rule(ZOFF_RULE_ADD_DECOUPLED, "addition with decay", ZOFF_OPTIMIZER_MUON, 0.1, false, false),
    };
    all[0].hyper.nesterov = false;
    return all;
}

inline std::vector<rule_case> every_rule_and_pass()
{
    std::vector<rule_case> all = every_rule(), more = matrix_rules();
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

// The constants of a case. A matrix has 12 rows and 3 columns.
inline zoff_adam_consts consts_of(const rule_case &c, int64_t t, double grad_scale)
{
    zoff_adam_consts consts, after;
    if (c.rule < ZOFF_RULE_MUON_MOMENTUM)
        zoff_adam_hyper_consts(&c.hyper, t, grad_scale, &consts);
    else
        zoff_adam_matrix_rules_of(&c.hyper)->passes(&c.hyper, 12, 3, t, grad_scale, &consts, &after);
    return c.rule < ZOFF_RULE_ADD ? consts : after;
}

// The kinds of weights: in place in any type, fp32 with a 16-bit copy, or fp32 in two halves.
struct weights_kind {
    zoff_dtype master, copy; // no copy: ZOFF_DTYPE_DEFAULT
    const char *name;
    bool split = false;
};

inline const std::vector<weights_kind> &every_weights_kind()
{
    static const std::vector<weights_kind> all = {
        {ZOFF_F32, ZOFF_DTYPE_DEFAULT, "fp32"},         {ZOFF_F32, ZOFF_BF16, "fp32 with a bf16 copy"},
        {ZOFF_F32, ZOFF_F16, "fp32 with an fp16 copy"}, {ZOFF_BF16, ZOFF_DTYPE_DEFAULT, "bf16"},
        {ZOFF_F16, ZOFF_DTYPE_DEFAULT, "fp16"},         {ZOFF_F32, ZOFF_DTYPE_DEFAULT, "fp32 in two halves", true}};
    return all;
}

#endif
