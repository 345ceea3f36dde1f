/* hyper.c: hyper-parameters: their defaults, their ranges, and what a step makes of them in double. */
#include "cpu_adam.h"

#include "bits.h"
#include "cpu.h"
#include "try.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Bytes of the struct when it was first published: no caller has less. Fields appended later get their default when the
 * caller's struct ends before them. */
enum { FIRST_BYTES = 56 };
_Static_assert(sizeof(zoff_adam_hyper) == FIRST_BYTES, "a new field: give it a default, a check, and keep FIRST_BYTES");

static const zoff_adam_hyper DEFAULTS = {
    .struct_size = sizeof(zoff_adam_hyper),
    .lr = 1e-3,
    .beta1 = 0.9,
    .beta2 = 0.999,
    .eps = 1e-8,
    .weight_decay = 0,
    .decay = ZOFF_DECAY_DECOUPLED,
};

void zoff_adam_hyper_init_sized(zoff_adam_hyper *h, size_t struct_size)
{
    if (!h || struct_size < sizeof h->struct_size)
        return;
    zoff_adam_hyper filled = DEFAULTS;
    filled.struct_size = struct_size;
    memset(h, 0, struct_size); /* a newer caller's fields: zero is their default */
    memcpy(h, &filled, zoff_base_bits_min(struct_size, sizeof filled));
}

/* The caller's struct with the defaults behind its end. */
static zoff_adam_hyper complete(const zoff_adam_hyper *hyper)
{
    zoff_adam_hyper full = DEFAULTS;
    memcpy(&full, hyper, zoff_base_bits_min(hyper->struct_size, sizeof full));
    return full;
}

/* In range as fp32, in which the kernels compute; false for NaN. */
static bool is_magnitude(double x)
{
    return x >= 0 && x <= (double)FLT_MAX;
}

zoff_status zoff_adam_hyper_check(const zoff_adam_hyper *hyper, int64_t t)
{
    ZOFF_FAIL_IF(!hyper, ZOFF_ERR_INVALID, "hyper-parameters are NULL; pass a struct filled by zoff_adam_hyper_init()");
    ZOFF_FAIL_IF(hyper->struct_size < FIRST_BYTES, ZOFF_ERR_INVALID,
                 "zoff_adam_hyper.struct_size is %zu; fill the struct with zoff_adam_hyper_init() first", hyper->struct_size);
    const zoff_adam_hyper h = complete(hyper);
    ZOFF_FAIL_IF(!is_magnitude(h.lr), ZOFF_ERR_INVALID, "lr is %g; it must be finite and 0 or more", h.lr);
    ZOFF_FAIL_IF(!(h.beta1 >= 0 && h.beta1 < 1), ZOFF_ERR_INVALID, "beta1 is %.17g; it must lie in [0, 1)", h.beta1);
    ZOFF_FAIL_IF(!(h.beta2 >= 0 && h.beta2 < 1), ZOFF_ERR_INVALID, "beta2 is %.17g; it must lie in [0, 1)", h.beta2);
    ZOFF_FAIL_IF(!is_magnitude(h.eps), ZOFF_ERR_INVALID, "eps is %g; it must be finite and 0 or more", h.eps);
    ZOFF_FAIL_IF(!is_magnitude(h.weight_decay), ZOFF_ERR_INVALID, "weight_decay is %g; it must be finite and 0 or more",
                 h.weight_decay);
    ZOFF_FAIL_IF(h.decay != ZOFF_DECAY_DECOUPLED && h.decay != ZOFF_DECAY_L2, ZOFF_ERR_INVALID,
                 "decay is %d; use ZOFF_DECAY_DECOUPLED or ZOFF_DECAY_L2", (int)h.decay);
    ZOFF_FAIL_IF(t < 1, ZOFF_ERR_INVALID, "step number t is %lld; the first step is 1", (long long)t);
    return ZOFF_OK;
}

void zoff_adam_hyper_consts(const zoff_adam_hyper *hyper, int64_t t, double grad_scale, zoff_adam_consts *out)
{
    /* The caller's thread may flush subnormals or round upwards: constants must not depend on that either. */
    const unsigned saved = zoff_base_cpu_float_enter();
    const zoff_adam_hyper h = complete(hyper);
    const double bias1 = 1.0 - pow(h.beta1, (double)t);
    const double bias2 = 1.0 - pow(h.beta2, (double)t);
    *out = (zoff_adam_consts){
        .grad_scale = (float)grad_scale,
        .beta1 = (float)h.beta1,
        .one_minus_beta1 = (float)(1.0 - h.beta1),
        .beta2 = (float)h.beta2,
        .one_minus_beta2 = (float)(1.0 - h.beta2),
        .eps = (float)h.eps,
        .inv_sqrt_bias2 = (float)(1.0 / sqrt(bias2)),
        .step_size = (float)(-h.lr / bias1),
        .decay = (float)(h.decay == ZOFF_DECAY_L2 ? h.weight_decay : -h.lr * h.weight_decay),
        .mode = h.decay,
        .decays = h.weight_decay != 0,
    };
    zoff_base_cpu_float_leave(saved);
}
