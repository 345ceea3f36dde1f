/* SPDX-License-Identifier: Apache-2.0 */
/* hyper.c: hyper-parameters: their defaults, their ranges, and the constants of a step, computed in double. */
#include "cpu_adam.h"

#include "bits.h"
#include "cpu.h"
#include "structs.h"
#include "try.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Bytes of the struct in its first release, the fewest that a caller has. A field that was appended later gets its default if
 * the caller's struct ends before it. */
enum { FIRST_BYTES = 56 };
/* Names of the struct and of its initializer, in messages. */
#define HYPER "zoff_optimizer_hyper", "zoff_optimizer_hyper_init()"
_Static_assert(sizeof(zoff_optimizer_hyper) == 120, "a new field: give it a default and a check, and keep FIRST_BYTES");

static const zoff_optimizer_hyper DEFAULTS[] = {
    [ZOFF_OPTIMIZER_ADAM] =
        {.optimizer = ZOFF_OPTIMIZER_ADAM, .filled = true, .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
    [ZOFF_OPTIMIZER_ADAGRAD] = {.optimizer = ZOFF_OPTIMIZER_ADAGRAD, .filled = true, .lr = 1e-2, .eps = 1e-10},
    [ZOFF_OPTIMIZER_LION] = {.optimizer = ZOFF_OPTIMIZER_LION, .filled = true, .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.99},
    [ZOFF_OPTIMIZER_SGD] = {.optimizer = ZOFF_OPTIMIZER_SGD, .filled = true, .lr = 1e-3},
    [ZOFF_OPTIMIZER_MUON] = {.optimizer = ZOFF_OPTIMIZER_MUON,
                             .filled = true,
                             .lr = 0.02,
                             .adam_lr = 3e-4,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-10,
                             .momentum = 0.95,
                             .nesterov = true,
                             .ns_steps = 5},
};
enum { OPTIMIZER_COUNT = sizeof DEFAULTS / sizeof DEFAULTS[0] };

/* The numbers of the struct. */
static const struct {
    const char *name;
    size_t offset;
} NUMBERS[] = {{"lr", offsetof(zoff_optimizer_hyper, lr)},
               {"beta1", offsetof(zoff_optimizer_hyper, beta1)},
               {"beta2", offsetof(zoff_optimizer_hyper, beta2)},
               {"eps", offsetof(zoff_optimizer_hyper, eps)},
               {"weight_decay", offsetof(zoff_optimizer_hyper, weight_decay)},
               {"momentum", offsetof(zoff_optimizer_hyper, momentum)},
               {"dampening", offsetof(zoff_optimizer_hyper, dampening)},
               {"lr_decay", offsetof(zoff_optimizer_hyper, lr_decay)},
               {"adam_lr", offsetof(zoff_optimizer_hyper, adam_lr)}};
enum { NUMBER_COUNT = sizeof NUMBERS / sizeof NUMBERS[0] };

static double *number_of(zoff_optimizer_hyper *h, size_t i)
{
    return (double *)(void *)((char *)h + NUMBERS[i].offset);
}

void zoff_optimizer_hyper_init_sized(zoff_optimizer_hyper *h, size_t struct_size, zoff_optimizer optimizer)
{
    if (!h || struct_size < sizeof h->struct_size)
        return;
    const bool known = (unsigned)optimizer < OPTIMIZER_COUNT;
    zoff_optimizer_hyper filled = DEFAULTS[known ? optimizer : ZOFF_OPTIMIZER_ADAM];
    filled.optimizer = optimizer; /* an unknown optimizer is refused where the struct is used */
    filled.struct_size = struct_size;
    for (size_t i = 0; optimizer == ZOFF_OPTIMIZER_KEEP && i < NUMBER_COUNT; i++)
        *number_of(&filled, i) = ZOFF_KEEP;
    memset(h, 0, struct_size); /* the fields of a newer caller have zero as their default */
    memcpy(h, &filled, zoff_base_bits_min(struct_size, sizeof filled));
}

const zoff_optimizer_hyper *zoff_adam_hyper_complete(const zoff_optimizer_hyper *hyper, zoff_optimizer_hyper *copy)
{
    if (hyper->struct_size >= sizeof *copy)
        return hyper;
    const bool says_which = hyper->struct_size > offsetof(zoff_optimizer_hyper, optimizer);
    zoff_optimizer_hyper_init(copy, says_which ? hyper->optimizer : ZOFF_OPTIMIZER_ADAM);
    memcpy(copy, hyper, hyper->struct_size);
    return copy;
}

/* Whether it is in range as fp32, the type of the kernels; false for NaN. */
static bool is_magnitude(double x)
{
    return x >= 0 && x <= (double)FLT_MAX;
}

/* Compare bits: a thread that flushes subnormals must choose the same rule and states as the constants, which keep them. */
static bool is_zero(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits << 1 == 0;
}

static zoff_status check_betas(const zoff_optimizer_hyper *h)
{
    ZOFF_FAIL_IF(!(h->beta1 >= 0 && h->beta1 < 1), ZOFF_ERR_INVALID, "beta1 is %.17g; it must lie in [0, 1)", h->beta1);
    ZOFF_FAIL_IF(!(h->beta2 >= 0 && h->beta2 < 1), ZOFF_ERR_INVALID, "beta2 is %.17g; it must lie in [0, 1)", h->beta2);
    return ZOFF_OK;
}

static zoff_status check_eps(const zoff_optimizer_hyper *h)
{
    ZOFF_FAIL_IF(!is_magnitude(h->eps), ZOFF_ERR_INVALID, "eps is %g; it must be finite and above 0", h->eps);
    /* A number up to half of the least fp32 number is rounded to 0. */
    ZOFF_FAIL_IF(h->eps <= 0x1p-150, ZOFF_ERR_INVALID,
                 "eps is %g, which is 0 in fp32: a weight whose gradients were all 0 would become NaN; use 1e-45 or more",
                 h->eps);
    return ZOFF_OK;
}

/* Check Adam's numbers. Step 1 has the largest correction because it divides by 1 - beta1. */
static zoff_status check_adam(const zoff_optimizer_hyper *h, const char *name, double lr)
{
    const bool corrects = !(h->flags & ZOFF_HYPER_NO_BIAS_CORRECTION);
    ZOFF_TRY(check_betas(h));
    ZOFF_FAIL_IF(corrects && !is_magnitude(lr / (1 - h->beta1)), ZOFF_ERR_INVALID,
                 "%s is %g, and %s / (1 - beta1), by which step 1 multiplies, is %g; it must be finite in fp32", name, lr, name,
                 lr / (1 - h->beta1));
    return check_eps(h);
}

/* A decay beyond these limits makes weights infinite, whatever the gradients are. */
static zoff_status check_decay(const zoff_optimizer_hyper *h)
{
    const bool is_added = h->optimizer == ZOFF_OPTIMIZER_ADAGRAD || h->optimizer == ZOFF_OPTIMIZER_SGD ||
                          (h->optimizer == ZOFF_OPTIMIZER_ADAM && h->decay == ZOFF_DECAY_L2);
    const bool shrinks = !is_added || h->optimizer == ZOFF_OPTIMIZER_SGD;
    ZOFF_FAIL_IF(!is_magnitude(h->weight_decay), ZOFF_ERR_INVALID, "weight_decay is %g; it must be finite and 0 or more",
                 h->weight_decay);
    ZOFF_FAIL_IF(shrinks && !(h->lr * h->weight_decay <= 2), ZOFF_ERR_INVALID,
                 "lr * weight_decay is %g; it must be at most 2, because a step multiplies weights by 1 - lr * weight_decay",
                 h->lr * h->weight_decay);
    ZOFF_FAIL_IF(
        is_added && h->weight_decay > 1e9, ZOFF_ERR_INVALID,
        "weight_decay is %g; it must be at most 1e9, because its product with a weight is added to the gradient, whose "
        "square must be finite in fp32",
        h->weight_decay);
    return ZOFF_OK;
}

static zoff_status check_sgd(const zoff_optimizer_hyper *h)
{
    ZOFF_FAIL_IF(!is_magnitude(h->momentum), ZOFF_ERR_INVALID, "momentum is %g; it must be finite and 0 or more", h->momentum);
    ZOFF_FAIL_IF(!(fabs(h->dampening) <= (double)FLT_MAX), ZOFF_ERR_INVALID, "dampening is %g; it must be finite",
                 h->dampening);
    ZOFF_FAIL_IF(h->nesterov && (is_zero(h->momentum) || !is_zero(h->dampening)), ZOFF_ERR_INVALID,
                 "nesterov needs a momentum above 0 and a dampening of 0; they are %g and %g", h->momentum, h->dampening);
    return ZOFF_OK;
}

static zoff_status check_muon(const zoff_optimizer_hyper *h)
{
    /* The factor of a matrix is at most 2^32, the square root of the most rows that there may be. */
    ZOFF_FAIL_IF(h->lr > 1e28, ZOFF_ERR_INVALID,
                 "lr is %g; it must be at most 1e28, because its product with the factor of a matrix must be finite in fp32",
                 h->lr);
    ZOFF_FAIL_IF(!is_magnitude(h->adam_lr), ZOFF_ERR_INVALID, "adam_lr is %g; it must be finite and 0 or more", h->adam_lr);
    ZOFF_FAIL_IF(!(h->adam_lr * h->weight_decay <= 2), ZOFF_ERR_INVALID,
                 "adam_lr * weight_decay is %g; it must be at most 2, because a step multiplies weights by 1 - adam_lr * "
                 "weight_decay",
                 h->adam_lr * h->weight_decay);
    ZOFF_FAIL_IF(!(h->momentum >= 0 && h->momentum < 1), ZOFF_ERR_INVALID, "momentum is %.17g; it must lie in [0, 1)",
                 h->momentum);
    ZOFF_FAIL_IF(h->ns_steps < 1 || h->ns_steps > ZOFF_MUON_STEPS_MOST, ZOFF_ERR_INVALID, "ns_steps is %u; use 1 to %d",
                 h->ns_steps, ZOFF_MUON_STEPS_MOST);
    ZOFF_FAIL_IF(h->ns_method != ZOFF_MUON_GRAM && h->ns_method != ZOFF_MUON_STANDARD, ZOFF_ERR_INVALID,
                 "ns_method is %d; use ZOFF_MUON_GRAM or ZOFF_MUON_STANDARD", (int)h->ns_method);
    ZOFF_FAIL_IF((unsigned)h->scale > ZOFF_MUON_SCALE_UNIT_RMS_NORM, ZOFF_ERR_INVALID,
                 "scale is %d; use one of ZOFF_MUON_SCALE_*", (int)h->scale);
    ZOFF_FAIL_IF((unsigned)h->coefficients > ZOFF_MUON_DEEPSEEKV4, ZOFF_ERR_INVALID,
                 "coefficients is %d; use one of zoff_muon_coefficients, ZOFF_MUON_SIMPLE to ZOFF_MUON_DEEPSEEKV4",
                 (int)h->coefficients);
    return check_adam(h, "adam_lr", h->adam_lr);
}

/* Refuse a zero in a struct that no call has filled, because it may have been forgotten. */
static zoff_status check_filled(const zoff_optimizer_hyper *h)
{
    const bool is_muon = h->optimizer == ZOFF_OPTIMIZER_MUON;
    const bool has_betas = h->optimizer == ZOFF_OPTIMIZER_ADAM || h->optimizer == ZOFF_OPTIMIZER_LION || is_muon;
    const bool has_eps = h->optimizer == ZOFF_OPTIMIZER_ADAM || h->optimizer == ZOFF_OPTIMIZER_ADAGRAD || is_muon;
    const char *empty = h->lr == 0                    ? "lr"
                        : has_betas && h->beta1 == 0  ? "beta1"
                        : has_betas && h->beta2 == 0  ? "beta2"
                        : has_eps && h->eps == 0      ? "eps"
                        : is_muon && h->momentum == 0 ? "momentum"
                        : is_muon && !h->nesterov     ? "nesterov"
                        : is_muon && h->adam_lr == 0  ? "adam_lr"
                                                      : NULL;
    ZOFF_FAIL_IF(empty && !h->filled, ZOFF_ERR_INVALID,
                 "%s is 0 in a zoff_optimizer_hyper that no call has filled: begin with zoff_optimizer_hyper_init() or "
                 "zoff_engine_get_group(), and change what you need; then 0 means 0",
                 empty);
    return ZOFF_OK;
}

/* Refuse numbers that are not finite, because checkpoints store all of them, and JSON has no such numbers. */
static zoff_status check_finite(zoff_optimizer_hyper h)
{
    for (size_t i = 0; i < NUMBER_COUNT; i++)
        ZOFF_FAIL_IF(
            !isfinite(*number_of(&h, i)), ZOFF_ERR_INVALID,
            "%s is %g; it must be finite, although this optimizer does not use it: zoff_optimizer_hyper_init() sets it",
            NUMBERS[i].name, *number_of(&h, i));
    return ZOFF_OK;
}

static zoff_status check_given(zoff_optimizer_hyper h)
{
    ZOFF_FAIL_IF(h.optimizer == ZOFF_OPTIMIZER_KEEP, ZOFF_ERR_INVALID,
                 "optimizer is ZOFF_OPTIMIZER_KEEP, but there is no group whose optimizer could stay; use another one");
    for (size_t i = 0; i < NUMBER_COUNT; i++)
        ZOFF_FAIL_IF(*number_of(&h, i) == ZOFF_KEEP, ZOFF_ERR_INVALID,
                     "%s is ZOFF_KEEP, but there is no group whose number could stay; give a number", NUMBERS[i].name);
    return ZOFF_OK;
}

zoff_status zoff_adam_hyper_keep(const zoff_optimizer_hyper *own, const zoff_optimizer_hyper *given, zoff_optimizer_hyper *out)
{
    zoff_optimizer_hyper had = *own, h;
    ZOFF_TRY(zoff_base_structs_check(HYPER, given, sizeof h));
    h = *zoff_adam_hyper_complete(given, &h);
    h.struct_size = sizeof h;
    if (h.optimizer == ZOFF_OPTIMIZER_KEEP) {
        h.optimizer = had.optimizer;
        h.decay = had.decay;
        h.nesterov = had.nesterov;
        h.flags = had.flags;
        h.ns_steps = had.ns_steps;
        h.ns_method = had.ns_method;
        h.scale = had.scale;
        h.coefficients = had.coefficients;
    }
    ZOFF_TRY(check_filled(&h)); /* first, because a 0 that stays is meant */
    h.filled = true;
    for (size_t i = 0; i < NUMBER_COUNT; i++) {
        if (*number_of(&h, i) == ZOFF_KEEP)
            *number_of(&h, i) = *number_of(&had, i);
    }
    *out = h;
    return ZOFF_OK;
}

/* Check the hyper-parameters that the optimizer uses. */
static zoff_status check_used(const zoff_optimizer_hyper *h)
{
    switch (h->optimizer) {
    case ZOFF_OPTIMIZER_ADAM:
        ZOFF_FAIL_IF(h->decay != ZOFF_DECAY_DECOUPLED && h->decay != ZOFF_DECAY_L2, ZOFF_ERR_INVALID,
                     "decay is %d; use ZOFF_DECAY_DECOUPLED or ZOFF_DECAY_L2", (int)h->decay);
        return check_adam(h, "lr", h->lr);
    case ZOFF_OPTIMIZER_ADAGRAD:
        ZOFF_FAIL_IF(!is_magnitude(h->lr_decay), ZOFF_ERR_INVALID, "lr_decay is %g; it must be finite and 0 or more",
                     h->lr_decay);
        return check_eps(h);
    case ZOFF_OPTIMIZER_LION:
        return check_betas(h);
    case ZOFF_OPTIMIZER_SGD:
        return check_sgd(h);
    case ZOFF_OPTIMIZER_MUON:
        return check_muon(h);
    case ZOFF_OPTIMIZER_KEEP:
        break;
    }
    return zoff_base_status_fail(ZOFF_ERR_INVALID, "optimizer is %d; use one of ZOFF_OPTIMIZER_*", (int)h->optimizer);
}

zoff_status zoff_adam_hyper_check(const zoff_optimizer_hyper *hyper, int64_t t)
{
    ZOFF_FAIL_IF(!hyper, ZOFF_ERR_INVALID, "hyper-parameters are NULL; pass a struct filled by zoff_optimizer_hyper_init()");
    ZOFF_FAIL_IF(hyper->struct_size < FIRST_BYTES, ZOFF_ERR_INVALID,
                 "zoff_optimizer_hyper.struct_size is %zu; fill the struct with zoff_optimizer_hyper_init() first",
                 hyper->struct_size);
    ZOFF_TRY(zoff_base_structs_check(HYPER, hyper, sizeof *hyper));
    zoff_optimizer_hyper copy;
    const zoff_optimizer_hyper *h = zoff_adam_hyper_complete(hyper, &copy);
    ZOFF_TRY(check_given(*h));
    ZOFF_TRY(check_filled(h));
    ZOFF_FAIL_IF(!is_magnitude(h->lr), ZOFF_ERR_INVALID, "lr is %g; it must be finite and 0 or more", h->lr);
    ZOFF_TRY(check_decay(h));
    ZOFF_FAIL_IF(h->flags & ~(uint64_t)ZOFF_HYPER_NO_BIAS_CORRECTION, ZOFF_ERR_INVALID,
                 "flags are %#llx; use ZOFF_HYPER_*, and zoff_optimizer_hyper_init() to fill the struct",
                 (unsigned long long)h->flags);
    ZOFF_FAIL_IF(t < 1, ZOFF_ERR_INVALID, "step number t is %lld; the first step is 1", (long long)t);
    ZOFF_TRY(check_used(h));
    return check_finite(*h);
}

static zoff_adam_rule rule_of(const zoff_optimizer_hyper *h)
{
    const bool decays = !is_zero(h->weight_decay);
    switch (h->optimizer) {
    case ZOFF_OPTIMIZER_ADAGRAD:
        return decays ? ZOFF_RULE_ADAGRAD_L2 : ZOFF_RULE_ADAGRAD;
    case ZOFF_OPTIMIZER_LION:
        return decays ? ZOFF_RULE_LION_DECOUPLED : ZOFF_RULE_LION;
    case ZOFF_OPTIMIZER_SGD:
        if (h->nesterov)
            return decays ? ZOFF_RULE_NESTEROV_L2 : ZOFF_RULE_NESTEROV;
        if (!is_zero(h->momentum))
            return decays ? ZOFF_RULE_MOMENTUM_L2 : ZOFF_RULE_MOMENTUM;
        return decays ? ZOFF_RULE_SGD_L2 : ZOFF_RULE_SGD;
    case ZOFF_OPTIMIZER_MUON: /* of a tensor that is no matrix */
        return decays ? ZOFF_RULE_ADAM_DECOUPLED : ZOFF_RULE_ADAM;
    case ZOFF_OPTIMIZER_ADAM:
    case ZOFF_OPTIMIZER_KEEP:
        break;
    }
    if (!decays)
        return ZOFF_RULE_ADAM;
    return h->decay == ZOFF_DECAY_L2 ? ZOFF_RULE_ADAM_L2 : ZOFF_RULE_ADAM_DECOUPLED;
}

zoff_adam_states zoff_adam_hyper_rule_states(zoff_adam_rule rule)
{
    const bool adam = rule <= ZOFF_RULE_ADAM_L2;
    return (zoff_adam_states){
        .m = adam || rule == ZOFF_RULE_LION || rule == ZOFF_RULE_LION_DECOUPLED ||
             (rule >= ZOFF_RULE_MOMENTUM && rule <= ZOFF_RULE_MUON_NESTEROV),
        .v = adam || rule == ZOFF_RULE_ADAGRAD || rule == ZOFF_RULE_ADAGRAD_L2,
    };
}

zoff_adam_states zoff_adam_hyper_states(const zoff_optimizer_hyper *hyper)
{
    zoff_optimizer_hyper copy;
    return zoff_adam_hyper_rule_states(rule_of(zoff_adam_hyper_complete(hyper, &copy)));
}

/* x^n for n >= 1 by squaring. pow() may differ between C libraries in the last place, and the bits of a step must not;
 * multiplication is exact in that sense. For x below 1 the relative error stays below n * 2^-53 while x^n is not negligible. */
static double power(double x, int64_t n)
{
    double result = 1;
    for (; n > 0; n /= 2, x *= x) {
        if (n % 2)
            result *= x;
    }
    return result;
}

/* Sum of the first t weights of a moment. A moment is a sum of gradients weighted by (1 - beta) * beta^k, with both factors as
 * the kernels have them, rounded to fp32. Unrounded factors would make the correction drift from the moment: by 6e-6 of an
 * update for a beta2 of 0.999. */
static double sum_of_weights(float beta, float one_minus_beta, int64_t t)
{
    const double gap = 1.0 - (double)beta;
    return (double)one_minus_beta * (gap > 0 ? (1.0 - power((double)beta, t)) / gap : (double)t);
}

static void blend(double keep, double rest, float *out_keep, float *out_rest)
{
    *out_keep = (float)keep;
    *out_rest = (float)rest;
}

void zoff_adam_hyper_consts(const zoff_optimizer_hyper *hyper, int64_t t, double grad_scale, zoff_adam_consts *out)
{
    /* The caller's thread may flush subnormals or round upwards, and constants must not depend on that. */
    const unsigned saved = zoff_base_cpu_float_enter();
    zoff_optimizer_hyper copy;
    const zoff_optimizer_hyper *h = zoff_adam_hyper_complete(hyper, &copy);
    zoff_adam_consts k = {
        .rule = rule_of(h), .grad_scale = (float)grad_scale, .eps = (float)h->eps, .dither = (uint32_t)t * 0x9e3779b9u};
    const bool is_muon = h->optimizer == ZOFF_OPTIMIZER_MUON, is_adam = h->optimizer == ZOFF_OPTIMIZER_ADAM || is_muon;
    const double lr = is_muon ? h->adam_lr : h->lr;
    double step_size = -lr;
    blend(h->beta1, 1.0 - h->beta1, &k.beta1, &k.one_minus_beta1);
    blend(h->beta2, 1.0 - h->beta2, &k.beta2, &k.one_minus_beta2);
    if (is_adam && h->flags & ZOFF_HYPER_NO_BIAS_CORRECTION) {
        k.inv_sqrt_bias2 = 1;
    } else if (is_adam) {
        step_size /= sum_of_weights(k.beta1, k.one_minus_beta1, t);
        k.inv_sqrt_bias2 = (float)(1.0 / sqrt(sum_of_weights(k.beta2, k.one_minus_beta2, t)));
    } else if (h->optimizer == ZOFF_OPTIMIZER_ADAGRAD) {
        step_size /= 1.0 + (double)(t - 1) * h->lr_decay;
    } else if (h->optimizer == ZOFF_OPTIMIZER_SGD) {
        /* In step 1 m becomes g. A g of -0 must stay -0, so the term is -0 * 0, because 0 * 0 + g would be +0. */
        blend(t == 1 ? -0.0 : h->momentum, t == 1 ? 1 : 1.0 - h->dampening, &k.beta1, &k.one_minus_beta1);
        k.momentum = (float)h->momentum;
    }
    k.step_size = (float)step_size;
    const bool shrinks = k.rule == ZOFF_RULE_ADAM_DECOUPLED || k.rule == ZOFF_RULE_LION_DECOUPLED;
    k.decay = (float)(shrinks ? -lr * h->weight_decay : h->weight_decay);
    *out = k;
    zoff_base_cpu_float_leave(saved);
}

/* The factor of Muon's learning rate. */
static double scale_of(zoff_muon_scale scale, double rows, double cols)
{
    const double most = rows > cols ? rows : cols;
    switch (scale) {
    case ZOFF_MUON_SCALE_MATCH_RMS_ADAMW:
        return 0.2 * sqrt(most);
    case ZOFF_MUON_SCALE_SPECTRAL:
        return sqrt(most);
    case ZOFF_MUON_SCALE_UNIT_RMS_NORM:
        return sqrt(rows / cols);
    case ZOFF_MUON_SCALE_ORIGINAL:
        break;
    }
    return rows > cols ? sqrt(rows / cols) : 1;
}

void zoff_adam_hyper_muon_passes(const zoff_optimizer_hyper *hyper, size_t rows, size_t cols, int64_t t, double grad_scale,
                                 zoff_adam_consts *before, zoff_adam_consts *after)
{
    const unsigned saved = zoff_base_cpu_float_enter();
    zoff_optimizer_hyper copy;
    const zoff_optimizer_hyper *h = zoff_adam_hyper_complete(hyper, &copy);
    const uint32_t dither = (uint32_t)t * 0x9e3779b9u;
    zoff_adam_consts k = {.rule = h->nesterov ? ZOFF_RULE_MUON_NESTEROV : ZOFF_RULE_MUON_MOMENTUM,
                          .grad_scale = (float)grad_scale,
                          .dither = dither};
    blend(h->momentum, 1.0 - h->momentum, &k.beta1, &k.one_minus_beta1);
    *before = k;
    *after = (zoff_adam_consts){.rule = is_zero(h->weight_decay) ? ZOFF_RULE_ADD : ZOFF_RULE_ADD_DECOUPLED,
                                .grad_scale = 1,
                                .step_size = (float)(-h->lr * scale_of(h->scale, (double)rows, (double)cols)),
                                .decay = (float)(-h->lr * h->weight_decay),
                                .dither = dither};
    zoff_base_cpu_float_leave(saved);
}
