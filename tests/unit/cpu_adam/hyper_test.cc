/* SPDX-License-Identifier: Apache-2.0 */
// hyper_test.cc: for all optimizers: defaults, growing structs, ranges and their messages, rules, states, and the constants of
// a step.
#include "every_rule.h"
#include "zoff_test.h"

extern "C" {
#include "cpu_adam.h"
}

#include <fenv.h>
#include <math.h>
#include <string.h>

namespace
{
zoff_optimizer_hyper defaults(zoff_optimizer optimizer = ZOFF_OPTIMIZER_ADAM)
{
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, optimizer);
    return h;
}

zoff_adam_consts constants(const zoff_optimizer_hyper &h, int64_t t, double grad_scale = 1)
{
    zoff_adam_consts c;
    zoff_adam_hyper_consts(&h, t, grad_scale, &c);
    return c;
}

const zoff_optimizer OPTIMIZERS[] = {ZOFF_OPTIMIZER_ADAM, ZOFF_OPTIMIZER_ADAGRAD, ZOFF_OPTIMIZER_LION, ZOFF_OPTIMIZER_SGD,
                                     ZOFF_OPTIMIZER_MUON};

TEST(hyper, defaults_are_those_of_the_header)
{
    zoff_optimizer_hyper h;
    memset(&h, 0xA5, sizeof h);
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    EXPECT_EQ(h.struct_size, sizeof h);
    EXPECT_EQ(h.lr, 1e-3);
    EXPECT_EQ(h.beta1, 0.9);
    EXPECT_EQ(h.beta2, 0.999);
    EXPECT_EQ(h.eps, 1e-8);
    EXPECT_EQ(h.weight_decay, 0);
    EXPECT_EQ(h.decay, ZOFF_DECAY_DECOUPLED);
    EXPECT_EQ(h.optimizer, ZOFF_OPTIMIZER_ADAM);

    const zoff_optimizer_hyper adagrad = defaults(ZOFF_OPTIMIZER_ADAGRAD), lion = defaults(ZOFF_OPTIMIZER_LION),
                               sgd = defaults(ZOFF_OPTIMIZER_SGD);
    EXPECT_EQ(adagrad.lr, 1e-2);
    EXPECT_EQ(adagrad.eps, 1e-10);
    EXPECT_EQ(adagrad.lr_decay, 0);
    EXPECT_EQ(lion.lr, 1e-4);
    EXPECT_EQ(lion.beta1, 0.9);
    EXPECT_EQ(lion.beta2, 0.99);
    EXPECT_EQ(sgd.lr, 1e-3);
    EXPECT_EQ(sgd.momentum, 0);
    EXPECT_EQ(sgd.dampening, 0);
    EXPECT_FALSE(sgd.nesterov);
    const zoff_optimizer_hyper muon = defaults(ZOFF_OPTIMIZER_MUON);
    EXPECT_EQ(muon.lr, 0.02);
    EXPECT_EQ(muon.adam_lr, 3e-4);
    EXPECT_EQ(muon.momentum, 0.95);
    EXPECT_TRUE(muon.nesterov);
    EXPECT_EQ(muon.ns_steps, 5u);
    EXPECT_EQ(muon.beta1, 0.9);
    EXPECT_EQ(muon.beta2, 0.95);
    EXPECT_EQ(muon.eps, 1e-10);
    EXPECT_EQ(muon.ns_method, ZOFF_MUON_GRAM);
    EXPECT_EQ(muon.scale, ZOFF_MUON_SCALE_ORIGINAL);
    EXPECT_EQ(muon.coefficients, ZOFF_MUON_SIMPLE);
    for (zoff_optimizer optimizer : OPTIMIZERS) {
        const zoff_optimizer_hyper any = defaults(optimizer);
        EXPECT_EQ(any.struct_size, sizeof any);
        EXPECT_EQ(any.optimizer, optimizer);
        EXPECT_EQ(any.weight_decay, 0);
        EXPECT_ZOFF_OK(zoff_adam_hyper_check(&any, 1));
    }
}

// If a struct ends before a field, the field has its default.
TEST(hyper, missing_fields_have_defaults)
{
    zoff_optimizer_hyper h = defaults(ZOFF_OPTIMIZER_SGD);
    h.momentum = 0.9;
    h.weight_decay = 0.1;
    h.eps = 1e-8;
    h.struct_size = 56; // the struct ends after `decay`; the next bytes belong to another struct
    EXPECT_ZOFF_OK(zoff_adam_hyper_check(&h, 1));
    EXPECT_EQ(constants(h, 1).rule, ZOFF_RULE_ADAM_DECOUPLED);
    const zoff_adam_states states = zoff_adam_hyper_states(&h);
    EXPECT_TRUE(states.m && states.v);
    // A struct that says Muon, but ends before its fields.
    zoff_optimizer_hyper muon = defaults(ZOFF_OPTIMIZER_MUON), kept;
    const float rate = constants(muon, 1).step_size;
    muon.adam_lr = NAN;
    muon.ns_steps = 0;
    muon.struct_size = offsetof(zoff_optimizer_hyper, adam_lr);
    EXPECT_ZOFF_OK(zoff_adam_hyper_check(&muon, 1));
    EXPECT_EQ(rate, constants(muon, 1).step_size);
    // One that keeps what the group has keeps the fields behind its end, too.
    zoff_optimizer_hyper own = defaults(ZOFF_OPTIMIZER_MUON), keep = defaults(ZOFF_OPTIMIZER_KEEP);
    own.adam_lr = 0.125;
    own.ns_steps = 7;
    keep.adam_lr = NAN;
    keep.struct_size = muon.struct_size;
    ASSERT_ZOFF_OK(zoff_adam_hyper_keep(&own, &keep, &kept));
    EXPECT_EQ(0.125, kept.adam_lr);
    EXPECT_EQ(7u, kept.ns_steps);
    EXPECT_EQ(sizeof kept, kept.struct_size);
}

TEST(hyper, each_rule_is_reached_and_has_its_states)
{
    std::vector<bool> seen(ZOFF_RULE_COUNT);
    for (const auto &c : every_rule_and_pass()) {
        SCOPED_TRACE(c.name);
        EXPECT_ZOFF_OK(zoff_adam_hyper_check(&c.hyper, 1));
        EXPECT_EQ(consts_of(c, 7, 1).rule, c.rule);
        const zoff_adam_states of_rule = zoff_adam_hyper_rule_states(c.rule);
        for (const zoff_adam_states states :
             {c.rule < ZOFF_RULE_MUON_MOMENTUM ? zoff_adam_hyper_states(&c.hyper) : of_rule, of_rule}) {
            EXPECT_EQ(states.m, c.states.m);
            EXPECT_EQ(states.v, c.states.v);
        }
        seen[c.rule] = true;
    }
    for (size_t rule = 0; rule < seen.size(); rule++)
        EXPECT_TRUE(seen[rule]) << "rule " << rule;
}

TEST(hyper, without_bias_correction_the_moments_are_taken_as_they_are)
{
    zoff_optimizer_hyper h = defaults(ZOFF_OPTIMIZER_ADAM);
    h.lr = 0.01;
    h.flags = ZOFF_HYPER_NO_BIAS_CORRECTION;
    for (int64_t t : {1, 2, 1000}) {
        EXPECT_EQ(1.0f, constants(h, t).inv_sqrt_bias2);
        EXPECT_EQ(-0.01f, constants(h, t).step_size);
    }
    // In a step so late that the correction is 1, the constants are the same.
    zoff_optimizer_hyper late = h;
    late.flags = 0;
    const zoff_adam_consts a = constants(h, 3), b = constants(late, 1000000000);
    EXPECT_NEAR(a.step_size, b.step_size, 1e-8);
    EXPECT_EQ(a.rule, b.rule);
    h.flags = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "flags are 0x2; use ZOFF_HYPER_*", zoff_adam_hyper_check(&h, 1));
    h.struct_size = 88; // a program from before the flags
    EXPECT_ZOFF_OK(zoff_adam_hyper_check(&h, 1));
    EXPECT_LT(constants(h, 1).step_size, -0.05f) << "the correction of step 1 is ten times lr";
}

TEST(hyper, init_writes_no_byte_beyond_the_size_it_was_given)
{
    unsigned char bytes[sizeof(zoff_optimizer_hyper) + 64];
    for (size_t size = 0; size <= sizeof bytes; size++) {
        memset(bytes, 0xA5, sizeof bytes);
        zoff_optimizer_hyper_init_sized(reinterpret_cast<zoff_optimizer_hyper *>(bytes), size, ZOFF_OPTIMIZER_ADAM);
        for (size_t i = size < sizeof(size_t) ? 0 : size; i < sizeof bytes; i++)
            ASSERT_EQ(bytes[i], 0xA5) << "byte " << i << " of a struct of " << size;
        if (size >= sizeof(size_t)) {
            size_t said;
            memcpy(&said, bytes, sizeof said);
            EXPECT_EQ(said, size);
        }
    }
    for (size_t i = sizeof(zoff_optimizer_hyper); i < sizeof bytes; i++)
        EXPECT_EQ(bytes[i], 0) << "a newer caller's field at byte " << i << " was not zeroed";
    zoff_optimizer_hyper_init_sized(nullptr, sizeof(zoff_optimizer_hyper), ZOFF_OPTIMIZER_ADAM);
}

TEST(hyper, each_value_out_of_range_is_named)
{
    const double nan = NAN, inf = INFINITY;
    const auto adam = ZOFF_OPTIMIZER_ADAM, adagrad = ZOFF_OPTIMIZER_ADAGRAD, lion = ZOFF_OPTIMIZER_LION,
               sgd = ZOFF_OPTIMIZER_SGD, muon = ZOFF_OPTIMIZER_MUON;
    struct {
        double zoff_optimizer_hyper::*field;
        const char *name;
        std::vector<zoff_optimizer> optimizers; // optimizers that read the number
        std::vector<double> bad, good;
    } cases[] = {
        {&zoff_optimizer_hyper::lr, "lr", {adam, adagrad, lion, sgd, muon}, {-1e-9, nan, inf, 1e39}, {0, 1e-45, 10}},
        {&zoff_optimizer_hyper::weight_decay, "weight_decay", {adam, adagrad, lion, sgd, muon}, {-0.01, nan, inf}, {0, 0.1}},
        {&zoff_optimizer_hyper::beta1, "beta1", {adam, lion, muon}, {-0.1, 1, 1.5, nan}, {0, 0.9999999999999999}},
        {&zoff_optimizer_hyper::beta2, "beta2", {adam, lion, muon}, {-0.1, 1, 1.5, nan}, {0, 0.9999999999999999}},
        {&zoff_optimizer_hyper::eps, "eps", {adam, adagrad, muon}, {-1e-8, nan, inf, 0, 7e-46}, {1e-45, 1}},
        {&zoff_optimizer_hyper::lr_decay, "lr_decay", {adagrad}, {-1e-8, nan, inf, 1e39}, {0, 1}},
        {&zoff_optimizer_hyper::momentum, "momentum", {sgd}, {-0.1, nan, inf, 1e39}, {0, 0.9, 1, 2}},
        {&zoff_optimizer_hyper::momentum, "momentum", {muon}, {-0.1, nan, inf, 1, 2}, {0, 0.9, 0.9999999999999999}},
        {&zoff_optimizer_hyper::adam_lr, "adam_lr", {muon}, {-1e-9, nan, inf, 1e39}, {0, 1e-45, 10}},
        {&zoff_optimizer_hyper::dampening, "dampening", {sgd}, {nan, inf, -inf, 1e39}, {-1, 0, 0.5, 2}},
    };
    for (const auto &c : cases) {
        for (zoff_optimizer optimizer : OPTIMIZERS) {
            if (c.field == &zoff_optimizer_hyper::momentum && (optimizer == sgd || optimizer == muon) &&
                optimizer != c.optimizers[0])
                continue; // both read it, with other ranges
            SCOPED_TRACE(::testing::Message() << c.name << ", optimizer " << optimizer);
            bool reads = false;
            for (zoff_optimizer one : c.optimizers)
                reads = reads || one == optimizer;
            zoff_optimizer_hyper h = defaults(optimizer);
            for (double value : c.bad) {
                h.*c.field = value;
                if (reads)
                    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, std::string(c.name) + " is", zoff_adam_hyper_check(&h, 1));
                else if (!std::isfinite(value)) // a checkpoint would have it
                    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, std::string(c.name) + " is", zoff_adam_hyper_check(&h, 1));
                else
                    EXPECT_ZOFF_OK(zoff_adam_hyper_check(&h, 1)); // the optimizer does not read the field
            }
            for (double value : c.good) {
                h.*c.field = value;
                EXPECT_ZOFF_OK(zoff_adam_hyper_check(&h, 1));
            }
        }
    }
}

TEST(hyper, choices_and_their_combinations)
{
    zoff_optimizer_hyper h = defaults();
    h.decay = (zoff_decay)7;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "decay is 7", zoff_adam_hyper_check(&h, 1));
    h = defaults((zoff_optimizer)9);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "optimizer is 9; use one of ZOFF_OPTIMIZER_", zoff_adam_hyper_check(&h, 1));
    h = defaults(ZOFF_OPTIMIZER_SGD);
    h.nesterov = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "nesterov needs a momentum above 0", zoff_adam_hyper_check(&h, 1));
    h.momentum = 0.9;
    EXPECT_ZOFF_OK(zoff_adam_hyper_check(&h, 1));
    h.dampening = 0.1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "a dampening of 0; they are 0.9 and 0.1", zoff_adam_hyper_check(&h, 1));

    const auto muon_fails = [](const char *words, auto change) {
        zoff_optimizer_hyper muon = defaults(ZOFF_OPTIMIZER_MUON);
        change(muon);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, zoff_adam_hyper_check(&muon, 1));
    };
    using hyper = zoff_optimizer_hyper;
    muon_fails("lr is 1.1e+28; it must be at most 1e28", [](hyper &m) { m.lr = 1.1e28; });
    muon_fails("lr * weight_decay is 4", [](hyper &m) { m.lr = m.weight_decay = 2; });
    muon_fails("adam_lr * weight_decay is 4", [](hyper &m) { m.adam_lr = m.weight_decay = 2; });
    muon_fails("adam_lr / (1 - beta1), by which step 1 multiplies, is 1e+39", [](hyper &m) { m.adam_lr = 1e38; });
    muon_fails("ns_steps is 0; use 1 to 99", [](hyper &m) { m.ns_steps = 0; });
    muon_fails("ns_steps is 100; use 1 to 99", [](hyper &m) { m.ns_steps = 100; });
    muon_fails("ns_method is 2; use ZOFF_MUON_GRAM or ZOFF_MUON_STANDARD", [](hyper &m) { m.ns_method = (zoff_muon_method)2; });
    muon_fails("scale is 4; use one of ZOFF_MUON_SCALE_*", [](hyper &m) { m.scale = (zoff_muon_scale)4; });
    muon_fails("coefficients is -1; use one of", [](hyper &m) { m.coefficients = (zoff_muon_coefficients)-1; });

    h = defaults();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the first step is 1", zoff_adam_hyper_check(&h, 0));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "step number t is -3", zoff_adam_hyper_check(&h, -3));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_adam_hyper_check(nullptr, 1));
    h.struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "struct_size is 0", zoff_adam_hyper_check(&h, 1));
    h.struct_size = 48;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_optimizer_hyper_init", zoff_adam_hyper_check(&h, 1));
}

// Sum of (1 - beta) * beta^k over t gradients.
static long double weights_of(float beta, float rest, int64_t t)
{
    long double sum = 0, weight = rest;
    for (int64_t k = 0; k < t && k < 100000; k++, weight *= beta) // later terms are zero
        sum += weight;
    return sum;
}

TEST(hyper, a_beta_that_fp32_rounds_to_1_keeps_a_sum)
{
    zoff_optimizer_hyper h = defaults();
    h.beta1 = h.beta2 = 1 - 0x1p-40;
    for (int64_t t : {1, 2, 1000}) {
        zoff_adam_consts c;
        zoff_adam_hyper_consts(&h, t, 1, &c);
        EXPECT_EQ(c.beta1, 1.0f);
        EXPECT_NEAR(c.step_size, -h.lr / ((double)t * 0x1p-40), -1e-6 * c.step_size)
            << "m is 2^-40 times the sum of t gradients";
        EXPECT_NEAR(c.inv_sqrt_bias2, 1 / sqrt((double)t * 0x1p-40), 1e-6 * c.inv_sqrt_bias2);
    }
}

// A zero that nobody has filled in may be forgotten: the result is that of the defaults, or an error. After a call that fills
// the struct it is meant.
TEST(hyper, zero_is_the_default_or_refused_where_no_call_has_filled_the_struct)
{
    double zoff_optimizer_hyper::*const NUMBERS[] = {
        &zoff_optimizer_hyper::lr,       &zoff_optimizer_hyper::beta1,     &zoff_optimizer_hyper::beta2,
        &zoff_optimizer_hyper::eps,      &zoff_optimizer_hyper::momentum,  &zoff_optimizer_hyper::weight_decay,
        &zoff_optimizer_hyper::lr_decay, &zoff_optimizer_hyper::dampening, &zoff_optimizer_hyper::adam_lr,
    };
    const unsigned all = 1u << (sizeof NUMBERS / sizeof NUMBERS[0]);
    unsigned taken = 0, refused = 0;
    for (zoff_optimizer optimizer : OPTIMIZERS) {
        for (unsigned set = 0; set < all; set++) { // which numbers the program gives
            zoff_optimizer_hyper given = {}, meant = defaults(optimizer);
            given.struct_size = sizeof given;
            given.optimizer = optimizer;
            given.ns_steps = meant.ns_steps; // 0 is refused everywhere
            given.nesterov = optimizer == ZOFF_OPTIMIZER_MUON;
            for (unsigned i = 0; 1u << i < all; i++) {
                if (set >> i & 1)
                    given.*NUMBERS[i] = meant.*NUMBERS[i] = 0.25;
            }
            if (zoff_adam_hyper_check(&given, 1) < 0) {
                EXPECT_NE(nullptr, strstr(zoff_last_error(), "that no call has filled")) << zoff_last_error();
                refused++;
                continue;
            }
            taken++;
            const zoff_adam_consts a = constants(given, 3), b = constants(meant, 3);
            EXPECT_EQ(a.rule, b.rule) << optimizer << " " << set;
            const float mine[] = {a.beta1, a.one_minus_beta1, a.beta2,   a.one_minus_beta2, a.inv_sqrt_bias2, a.step_size,
                                  a.eps,   a.decay,           a.momentum},
                        theirs[] = {b.beta1, b.one_minus_beta1, b.beta2,   b.one_minus_beta2, b.inv_sqrt_bias2, b.step_size,
                                    b.eps,   b.decay,           b.momentum};
            const bool reads_all = optimizer == ZOFF_OPTIMIZER_ADAM ||
                                   optimizer == ZOFF_OPTIMIZER_MUON; // others leave what they do not read as it is
            for (size_t i = 0; i < sizeof mine / sizeof mine[0]; i++) {
                const bool reads = reads_all || i == 5 || i == 7 || (optimizer == ZOFF_OPTIMIZER_LION && i < 4) ||
                                   (optimizer == ZOFF_OPTIMIZER_ADAGRAD && i == 6) ||
                                   (optimizer == ZOFF_OPTIMIZER_SGD && (i < 2 || i == 8));
                EXPECT_TRUE(!reads || mine[i] == theirs[i])
                    << "optimizer " << optimizer << ", numbers " << set << ", constant " << i;
            }
        }
    }
    EXPECT_GT(taken, 100u);
    EXPECT_GT(refused, 500u);
    // A flag or a choice alone gives no numbers.
    zoff_optimizer_hyper h = {};
    h.struct_size = sizeof h;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "lr is 0", zoff_adam_hyper_check(&h, 1));
    h.lr = 1e-3;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "beta1 is 0 in a zoff_optimizer_hyper that no call has filled",
                      zoff_adam_hyper_check(&h, 1));
    for (double zoff_optimizer_hyper::*number :
         {&zoff_optimizer_hyper::lr, &zoff_optimizer_hyper::beta1, &zoff_optimizer_hyper::beta2}) {
        zoff_optimizer_hyper filled = defaults();
        filled.*number = 0;
        EXPECT_ZOFF_OK(zoff_adam_hyper_check(&filled, 1));
    }
}

double zoff_optimizer_hyper::*const KEPT[] = {
    &zoff_optimizer_hyper::lr,           &zoff_optimizer_hyper::beta1,    &zoff_optimizer_hyper::beta2,
    &zoff_optimizer_hyper::eps,          &zoff_optimizer_hyper::momentum, &zoff_optimizer_hyper::dampening,
    &zoff_optimizer_hyper::weight_decay, &zoff_optimizer_hyper::lr_decay, &zoff_optimizer_hyper::adam_lr,
};

// Fields without a number stay together, and only where the optimizer stays.
TEST(hyper, kept_numbers_come_from_the_group_and_others_from_the_call)
{
    zoff_optimizer_hyper own = defaults(ZOFF_OPTIMIZER_SGD);
    own.ns_steps = 9;
    own.ns_method = ZOFF_MUON_STANDARD;
    own.scale = ZOFF_MUON_SCALE_SPECTRAL;
    own.coefficients = ZOFF_MUON_CANS;
    own.decay = ZOFF_DECAY_L2;
    own.nesterov = true;
    own.flags = ZOFF_HYPER_NO_BIAS_CORRECTION;
    for (size_t i = 0; i < sizeof KEPT / sizeof KEPT[0]; i++)
        own.*KEPT[i] = i == 1 ? 0 : 0.5 + (double)i; // a 0 of the group is meant, also where the caller's struct is not filled
    for (unsigned set = 0; set < 1u << (sizeof KEPT / sizeof KEPT[0]); set++) {
        for (const zoff_optimizer optimizer : {ZOFF_OPTIMIZER_KEEP, ZOFF_OPTIMIZER_LION}) {
            zoff_optimizer_hyper h = defaults(ZOFF_OPTIMIZER_KEEP);
            h.filled = set % 2;
            h.optimizer = optimizer;
            for (size_t i = 0; i < sizeof KEPT / sizeof KEPT[0]; i++) {
                EXPECT_EQ(ZOFF_KEEP, h.*KEPT[i]);
                h.*KEPT[i] = set >> i & 1 ? 7 : ZOFF_KEEP;
            }
            const zoff_optimizer_hyper given = h;
            ASSERT_ZOFF_OK(zoff_adam_hyper_keep(&own, &given, &h));
            for (size_t i = 0; i < sizeof KEPT / sizeof KEPT[0]; i++)
                ASSERT_EQ(set >> i & 1 ? 7 : own.*KEPT[i], h.*KEPT[i]) << i << " of " << set;
            const bool keeps = optimizer == ZOFF_OPTIMIZER_KEEP;
            EXPECT_EQ(keeps ? ZOFF_OPTIMIZER_SGD : ZOFF_OPTIMIZER_LION, h.optimizer);
            EXPECT_EQ(keeps, h.nesterov);
            EXPECT_EQ(keeps ? ZOFF_DECAY_L2 : ZOFF_DECAY_DECOUPLED, h.decay);
            EXPECT_EQ(keeps ? own.flags : 0, h.flags);
            EXPECT_EQ(keeps, h.ns_steps == 9 && h.ns_method == ZOFF_MUON_STANDARD && h.scale == ZOFF_MUON_SCALE_SPECTRAL &&
                                 h.coefficients == ZOFF_MUON_CANS);
            EXPECT_TRUE(h.filled);
        }
    }
    zoff_optimizer_hyper forgotten = {};
    forgotten.struct_size = sizeof forgotten;
    forgotten.lr = ZOFF_KEEP;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "beta1 is 0 in a zoff_optimizer_hyper that no call has filled",
                      zoff_adam_hyper_keep(&own, &forgotten, &forgotten));
    zoff_optimizer_hyper muon = defaults(ZOFF_OPTIMIZER_MUON);
    muon.filled = false;
    muon.nesterov = false;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "nesterov is 0 in a zoff_optimizer_hyper that no call has filled",
                      zoff_adam_hyper_check(&muon, 1));
}

TEST(hyper, nothing_is_kept_where_there_is_no_group)
{
    float w = 0, g = 1, m = 0, v = 0;
    zoff_optimizer_tensor tensor = ZOFF_OPTIMIZER_TENSOR_INIT;
    tensor.count = 1;
    tensor.master = &w;
    tensor.m = &m;
    tensor.v = &v;
    tensor.grad = &g;
    zoff_optimizer_hyper h = defaults(ZOFF_OPTIMIZER_KEEP);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "optimizer is ZOFF_OPTIMIZER_KEEP, but there is no group whose optimizer could stay; use another one",
                      zoff_optimizer_step(&h, 1, 1, &tensor));
    for (double zoff_optimizer_hyper::*number : KEPT) {
        h = defaults();
        h.*number = ZOFF_KEEP;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, " is ZOFF_KEEP, but there is no group whose number could stay; give a number",
                          zoff_optimizer_step(&h, 1, 1, &tensor));
    }
    EXPECT_EQ(0, w);
}

// Each number of each rule from 10^-50 to 10^38, over weights whose gradients are 0: the weights stay finite, or the number is
// refused. Momentum and dampening multiply what a decay adds, so there is none beside them.
TEST(hyper, a_number_of_any_size_leaves_weights_finite_or_is_refused)
{
    const float WEIGHTS[] = {0, -0.0f, 1, -1, 1e-40f, 10, -1e4f};
    enum { COUNT = sizeof WEIGHTS / sizeof WEIGHTS[0] };
    const std::vector<float> none(COUNT, 0.0f);
    double zoff_optimizer_hyper::*const NUMBERS[] = {
        &zoff_optimizer_hyper::lr,       &zoff_optimizer_hyper::beta1,     &zoff_optimizer_hyper::beta2,
        &zoff_optimizer_hyper::eps,      &zoff_optimizer_hyper::lr_decay,  &zoff_optimizer_hyper::weight_decay,
        &zoff_optimizer_hyper::momentum, &zoff_optimizer_hyper::dampening, &zoff_optimizer_hyper::adam_lr};
    unsigned taken = 0, refused = 0;
    for (const auto &rule : every_rule()) {
        for (double zoff_optimizer_hyper::*number : NUMBERS) {
            for (int power = -51; power <= 38; power++) {
                zoff_optimizer_hyper h = rule.hyper;
                h.*number = power < -50 ? 0 : pow(10, power);
                if (number == &zoff_optimizer_hyper::momentum || number == &zoff_optimizer_hyper::dampening)
                    h.weight_decay = 0;
                std::vector<float> weights(WEIGHTS, WEIGHTS + COUNT), m(COUNT), v(COUNT);
                zoff_optimizer_tensor tensor = ZOFF_OPTIMIZER_TENSOR_INIT;
                tensor.count = COUNT;
                tensor.master = weights.data();
                tensor.m = m.data();
                tensor.v = v.data();
                tensor.grad = none.data();
                zoff_status status = ZOFF_OK;
                for (int64_t t : {1, 2, 3, 4, 5, 1000, 1001}) {
                    if (status == ZOFF_OK)
                        status = zoff_optimizer_step(&h, t, 1, &tensor);
                }
                refused += status < 0;
                taken += status == ZOFF_OK;
                for (size_t i = 0; i < COUNT; i++)
                    ASSERT_TRUE(isfinite(weights[i]))
                        << rule.name << ": weight " << WEIGHTS[i] << " is " << weights[i] << ", number 10^" << power
                        << " at byte " << (size_t)((char *)&(h.*number) - (char *)&h) << " of the struct";
            }
        }
    }
    EXPECT_GT(taken, 5000u);
    EXPECT_GT(refused, 200u);
}

TEST(hyper, a_decay_that_fp32_cannot_hold_is_refused)
{
    zoff_optimizer_hyper h = defaults();
    h.lr = h.weight_decay = 1e30;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "lr * weight_decay is 1e+60", zoff_adam_hyper_check(&h, 1));
    h.weight_decay = 0;
    EXPECT_ZOFF_OK(zoff_adam_hyper_check(&h, 1));
}

TEST(hyper, constants_are_made_in_double_and_rounded_once)
{
    zoff_optimizer_hyper h = defaults();
    h.lr = 3e-4;
    h.weight_decay = 0.1;
    for (int64_t t : {(int64_t)1, (int64_t)2, (int64_t)1000, (int64_t)1 << 40}) {
        zoff_adam_consts c;
        zoff_adam_hyper_consts(&h, t, 1.0 / 3, &c);
        EXPECT_EQ(c.grad_scale, (float)(1.0 / 3));
        EXPECT_EQ(c.beta1, 0.9f);
        EXPECT_EQ(c.one_minus_beta1, (float)(1 - 0.9)); // 0.1, not 1.0f - 0.9f = 0.100000024
        EXPECT_EQ(c.beta2, 0.999f);
        EXPECT_EQ(c.one_minus_beta2, (float)(1 - 0.999));
        EXPECT_EQ(c.eps, 1e-8f);
        // Corrections use the rounded betas; the tolerance is half a unit of fp32 and a little.
        EXPECT_NEAR(c.inv_sqrt_bias2, (double)(1 / sqrtl(weights_of(c.beta2, c.one_minus_beta2, t))), 1e-7 * c.inv_sqrt_bias2);
        EXPECT_NEAR(c.step_size, (double)(-3e-4L / weights_of(c.beta1, c.one_minus_beta1, t)), -1e-7 * c.step_size);
        // The constants approximate 1 - beta^t, up to the rounding of 1 - beta2 = 0.001.
        EXPECT_NEAR(c.inv_sqrt_bias2, (double)(1 / sqrtl(1 - powl(0.999, (long double)t))), 1e-5 * c.inv_sqrt_bias2);
        EXPECT_NEAR(c.step_size, (double)(-3e-4L / (1 - powl(0.9, (long double)t))), -1e-6 * c.step_size);
        EXPECT_EQ(c.decay, (float)(-3e-4 * 0.1));
        EXPECT_EQ(c.rule, ZOFF_RULE_ADAM_DECOUPLED);
    }
    h.decay = ZOFF_DECAY_L2;
    zoff_adam_consts c;
    zoff_adam_hyper_consts(&h, 1, 1, &c);
    EXPECT_EQ(c.decay, 0.1f);
    EXPECT_EQ(c.step_size, (float)(-3e-4 / (1 - 0.9)));
    EXPECT_EQ(c.rule, ZOFF_RULE_ADAM_L2);
    h.weight_decay = 0;
    EXPECT_EQ(constants(h, 1).rule, ZOFF_RULE_ADAM);
}

TEST(hyper, constants_of_the_other_optimizers)
{
    zoff_optimizer_hyper h = defaults(ZOFF_OPTIMIZER_ADAGRAD);
    h.lr_decay = 0.1;
    h.weight_decay = 0.2;
    EXPECT_EQ(constants(h, 1).step_size, (float)-1e-2);
    EXPECT_EQ(constants(h, 31).step_size, (float)(-1e-2 / (1 + 30 * 0.1)));
    EXPECT_EQ(constants(h, 31).decay, 0.2f);
    EXPECT_EQ(constants(h, 31).eps, 1e-10f);

    h = defaults(ZOFF_OPTIMIZER_LION);
    h.weight_decay = 0.3;
    for (int64_t t : {1, 1000}) { // there is no bias to correct
        const zoff_adam_consts c = constants(h, t, 0.5);
        EXPECT_EQ(c.grad_scale, 0.5f);
        EXPECT_EQ(c.step_size, (float)-1e-4);
        EXPECT_EQ(c.decay, (float)(-1e-4 * 0.3));
        EXPECT_EQ(c.one_minus_beta1, (float)(1 - 0.9));
        EXPECT_EQ(c.one_minus_beta2, (float)(1 - 0.99));
    }

    h = defaults(ZOFF_OPTIMIZER_SGD);
    h.lr = 0.1;
    h.momentum = 0.8;
    h.dampening = 0.3;
    h.weight_decay = 0.4;
    for (int64_t t : {1, 2, 1000}) {
        const zoff_adam_consts c = constants(h, t);
        EXPECT_EQ(c.step_size, -0.1f);
        EXPECT_EQ(c.decay, 0.4f);
        EXPECT_EQ(c.momentum, 0.8f);
        EXPECT_EQ(c.beta1, t == 1 ? -0.0f : 0.8f);
        EXPECT_EQ(signbit(c.beta1), t == 1) << "+0 would make +0 of a first gradient that is -0";
        EXPECT_EQ(c.one_minus_beta1, t == 1 ? 1.0f : (float)(1 - 0.3));
    }
}

TEST(hyper, constants_of_muon)
{
    zoff_optimizer_hyper h = defaults(ZOFF_OPTIMIZER_MUON);
    h.lr = 0.3;
    h.momentum = 0.7;
    h.weight_decay = 0.1;
    const double scales[] = {2, 0.2 * sqrt(12), sqrt(12), 2};
    for (int scale = ZOFF_MUON_SCALE_ORIGINAL; scale <= ZOFF_MUON_SCALE_UNIT_RMS_NORM; scale++) {
        h.scale = (zoff_muon_scale)scale;
        zoff_adam_consts before, after, wide;
        zoff_adam_matrix_rules_of(&h)->passes(&h, 12, 3, 7, 0.25, &before, &after);
        EXPECT_EQ(before.grad_scale, 0.25f);
        EXPECT_EQ(before.beta1, 0.7f);
        EXPECT_EQ(before.one_minus_beta1, (float)(1 - 0.7));
        EXPECT_EQ(after.grad_scale, 1);
        EXPECT_EQ(after.step_size, (float)(-0.3 * scales[scale]));
        EXPECT_EQ(after.decay, (float)(-0.3 * 0.1)) << "decay has no factor";
        EXPECT_EQ(before.dither, constants(h, 7).dither) << "states of 16 bits are rounded as with any rule";
        zoff_adam_matrix_rules_of(&h)->passes(&h, 3, 12, 7, 0.25, &before, &wide);
        const double flat[] = {1, 0.2 * sqrt(12), sqrt(12), 0.5};
        EXPECT_EQ(wide.step_size, (float)(-0.3 * flat[scale]));
    }
    // Other tensors take AdamW's step, with a rate of their own.
    zoff_optimizer_hyper adam = defaults();
    adam.lr = h.adam_lr = 0.01;
    adam.beta2 = 0.95;
    adam.eps = 1e-10;
    adam.weight_decay = 0.1;
    for (uint64_t flags : {0, (int)ZOFF_HYPER_NO_BIAS_CORRECTION}) {
        adam.flags = h.flags = flags;
        const zoff_adam_consts a = constants(h, 7), b = constants(adam, 7);
        EXPECT_EQ(a.rule, b.rule);
        EXPECT_EQ(a.step_size, b.step_size);
        EXPECT_EQ(a.decay, b.decay);
        EXPECT_EQ(a.inv_sqrt_bias2, b.inv_sqrt_bias2);
        EXPECT_EQ(a.eps, b.eps);
    }
}

// Only Muon has a rule of matrices. The struct of an older caller, which ends before its optimizer, is Adam's.
TEST(hyper, rules_of_matrices)
{
    for (int optimizer = ZOFF_OPTIMIZER_KEEP; optimizer <= ZOFF_OPTIMIZER_MUON + 1; optimizer++) {
        zoff_optimizer_hyper h = defaults((zoff_optimizer)optimizer);
        EXPECT_EQ(optimizer == ZOFF_OPTIMIZER_MUON, zoff_adam_matrix_rules_of(&h) != nullptr) << optimizer;
        h.struct_size = offsetof(zoff_optimizer_hyper, momentum);
        EXPECT_EQ(nullptr, zoff_adam_matrix_rules_of(&h));
    }
    zoff_optimizer_hyper h = defaults(ZOFF_OPTIMIZER_MUON);
    const zoff_matrix_rule *rule = zoff_adam_matrix_rules_of(&h);
    EXPECT_STREQ("muon", rule->name);
    EXPECT_TRUE(zoff_adam_matrix_rules_has("muon"));
    EXPECT_FALSE(zoff_adam_matrix_rules_has("Muon"));
    EXPECT_FALSE(zoff_adam_matrix_rules_has(""));
    for (size_t cols : {100, 199, 200, 900}) {
        for (zoff_muon_method method : {ZOFF_MUON_GRAM, ZOFF_MUON_STANDARD}) {
            zoff_orthogonal o = {};
            o.rows = 100;
            o.cols = cols;
            h.ns_method = method;
            rule->begin(&h, &o);
            EXPECT_EQ(o.consts.gram, method == ZOFF_MUON_GRAM && cols >= 200);
            EXPECT_EQ(rule->scratch_bytes(100, cols, 3), zoff_adam_orthogonal_scratch(100, cols, cols >= 200, 3))
                << "it serves both methods, and has no matrix that none of them needs";
        }
    }
}

TEST(hyper, constants_do_not_depend_on_the_rounding_mode_of_the_caller)
{
    for (const auto &rule : every_rule()) {
        for (int64_t t = 1; t < 50; t++) {
            zoff_adam_consts nearest, upward;
            memset(&nearest, 0, sizeof nearest);
            memset(&upward, 0, sizeof upward);
            zoff_adam_hyper_consts(&rule.hyper, t, 0.3, &nearest);
            ASSERT_EQ(fesetround(FE_UPWARD), 0);
            zoff_adam_hyper_consts(&rule.hyper, t, 0.3, &upward);
            const int mode = fegetround();
            fesetround(FE_TONEAREST);
            EXPECT_EQ(mode, FE_UPWARD) << "the caller's mode was not restored";
            EXPECT_EQ(nearest.rule, upward.rule);
            EXPECT_EQ(nearest.grad_scale, upward.grad_scale);
            EXPECT_EQ(nearest.beta1, upward.beta1);
            EXPECT_EQ(nearest.one_minus_beta1, upward.one_minus_beta1);
            EXPECT_EQ(nearest.beta2, upward.beta2);
            EXPECT_EQ(nearest.one_minus_beta2, upward.one_minus_beta2);
            EXPECT_EQ(nearest.inv_sqrt_bias2, upward.inv_sqrt_bias2);
            EXPECT_EQ(nearest.step_size, upward.step_size);
            EXPECT_EQ(nearest.eps, upward.eps);
            EXPECT_EQ(nearest.decay, upward.decay);
            EXPECT_EQ(nearest.momentum, upward.momentum);
        }
    }
}
} // namespace
