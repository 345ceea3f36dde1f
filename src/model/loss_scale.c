/* SPDX-License-Identifier: Apache-2.0 */
/* loss_scale.c: the fp16 loss scale, by which the trainer multiplies its loss, and how overflows and good steps change it; how
 * many steps in a row may be skipped. The rules are DeepSpeed's. A step is skipped on all ranks or on none, so all ranks have
 * the same scale. */
#include "zoff_model.h"

#include "bits.h"
#include "structs.h"
#include "try.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LARGEST 0x1p127 /* the largest power of two in fp32: a trainer cannot multiply by more */

void zoff_model_loss_scale_start(zoff_model *m)
{
    const zoff_fp16_values *v = &m->values->fp16;
    m->scaler = (zoff_loss_scaler){.struct_size = sizeof m->scaler,
                                   .scale = v->enabled ? v->scale : 1.0,
                                   .last_overflow = -1,
                                   .hysteresis = v->enabled && v->dynamic ? v->hysteresis : 1};
}

/* Apply an overflow. Returns false if the scale has to be halved but is at its minimum. The overflow is recorded even then,
 * because the scale is doubled only after a whole window of good steps. */
static bool overflow_on(const zoff_fp16_values *v, zoff_loss_scaler *s)
{
    const bool is_least = s->scale == v->min_scale, is_due = v->hysteresis == 1 || s->hysteresis == 1;
    if (is_due)
        s->scale = fmax(s->scale / 2.0, v->min_scale);
    else
        s->hysteresis--;
    s->last_overflow = s->iterations;
    return !(is_due && is_least);
}

static void good_on(const zoff_fp16_values *v, zoff_loss_scaler *s)
{
    const int64_t stable = s->iterations - (s->last_overflow + 1);
    const bool grows = stable > 0 && stable % v->window == 0;
    if (v->refills_at_once || grows)
        s->hysteresis = v->hysteresis;
    if (grows)
        s->scale = fmin(s->scale * 2.0, fmax(s->scale, LARGEST));
}

zoff_loss_scaler zoff_model_loss_scale_after_update(const zoff_model *m)
{
    zoff_loss_scaler next = m->scaler;
    if (!m->values->fp16.enabled)
        return next;
    if (m->values->fp16.dynamic)
        good_on(&m->values->fp16, &next);
    next.iterations += next.iterations < INT64_MAX;
    return next;
}

void zoff_model_loss_scale_continue(zoff_model *m, const zoff_loss_scaler *recorded)
{
    const zoff_fp16_values *v = &m->values->fp16;
    if (!v->enabled)
        return;
    m->scaler = *recorded;
    if (!v->dynamic)
        m->scaler.scale = v->scale;
}

static zoff_status check_skips(const zoff_model *m, int64_t t, const char *why)
{
    const double most = m->values->most_skipped;
    ZOFF_FAIL_IF(most > 0 && (double)m->skipped_in_row >= most, ZOFF_ERR_OVERFLOW,
                 "step %lld was skipped: %s. It is skip %llu in a row, and zoff.skip_nonfinite is %.0f. Weights and states are "
                 "unchanged, and training can go on. Look for the cause: bad data, a rate that is too high, or weights that "
                 "are not finite; go back to a checkpoint if they are not",
                 (long long)t, why, (unsigned long long)m->skipped_in_row, most);
    return ZOFF_OK;
}

zoff_status zoff_model_loss_scale_turn(zoff_model *m, int64_t t, bool overflow, const char *why)
{
    const zoff_fp16_values *v = &m->values->fp16;
    zoff_loss_scaler *s = &m->scaler;
    bool can_go_on = true;
    m->skipped_in_row = overflow ? m->skipped_in_row + 1 : 0;
    if (!overflow)
        *s = zoff_model_loss_scale_after_update(m);
    if (overflow && v->enabled) {
        if (v->dynamic)
            can_go_on = overflow_on(v, s);
        else
            s->last_overflow = s->iterations;
        s->iterations += s->iterations < INT64_MAX;
    }
    if (can_go_on)
        return check_skips(m, t, why);
    return zoff_base_status_fail(
        ZOFF_ERR_OVERFLOW,
        "step %lld was skipped: %s, and the loss scale is %.10g, the minimum (fp16.min_loss_scale). Weights "
        "and "
        "states are unchanged, and training can go on. If the next step overflows too, the loss itself is too large: lower "
        "the learning rate, go back to a checkpoint, or train in bf16%s",
        (long long)t, why, s->scale, s->scale > 1 ? " (fp16.min_loss_scale may be as low as 1)" : "");
}

double zoff_model_loss_scale_next(const zoff_model *m, bool overflow)
{
    zoff_loss_scaler next = overflow ? m->scaler : zoff_model_loss_scale_after_update(m);
    if (overflow && m->values->fp16.enabled && m->values->fp16.dynamic)
        (void)overflow_on(&m->values->fp16, &next);
    return next.scale;
}

void zoff_model_loss_scale_describe(const zoff_model *m, char *dst, size_t dst_bytes)
{
    const zoff_fp16_values *v = &m->values->fp16;
    const double old = m->scaler.scale;
    zoff_loss_scaler next = m->scaler;
    dst[0] = 0;
    if (!v->enabled)
        return;
    if (!v->dynamic)
        snprintf(dst, dst_bytes, "; the loss scale stays %.10g: it is static", old);
    else if (!overflow_on(v, &next))
        snprintf(dst, dst_bytes, "; the loss scale stays %.10g: fp16.min_loss_scale", old);
    else if (next.scale == old)
        snprintf(dst, dst_bytes, "; the loss scale stays %.10g (fp16.hysteresis): overflows until it is halved: %llu", old,
                 (unsigned long long)next.hysteresis);
    else
        snprintf(dst, dst_bytes, "; the loss scale changes from %.10g to %.10g for the next step", old, next.scale);
}

zoff_status zoff_model_loss_scale_check(const zoff_model *m, double grad_scale)
{
    ZOFF_FAIL_IF(!(fabs(grad_scale / m->scaler.scale) <= (double)FLT_MAX), ZOFF_ERR_INVALID,
                 "zoff_step: grad_scale %g divided by the loss scale %g is not a finite fp32 number", grad_scale,
                 m->scaler.scale);
    return ZOFF_OK;
}

static zoff_status check_scaler(const zoff_fp16_values *v, const zoff_loss_scaler *s)
{
    ZOFF_FAIL_IF(!v->dynamic && s->scale != v->scale, ZOFF_ERR_INVALID,
                 "zoff_loss_scaler_set: scale is %.10g, but fp16.loss_scale is %.10g: a static scale cannot be changed",
                 s->scale, v->scale);
    ZOFF_FAIL_IF(!(s->scale >= (double)FLT_MIN && s->scale <= (double)FLT_MAX), ZOFF_ERR_INVALID,
                 "zoff_loss_scaler_set: scale is %g; expected a positive fp32 number", s->scale);
    ZOFF_FAIL_IF(s->iterations < 0 || s->last_overflow < -1 || s->last_overflow >= s->iterations, ZOFF_ERR_INVALID,
                 "zoff_loss_scaler_set: iterations is %lld and last_overflow %lld; expected iterations >= 0 and -1 <= "
                 "last_overflow < iterations",
                 (long long)s->iterations, (long long)s->last_overflow);
    ZOFF_FAIL_IF(s->hysteresis == 0, ZOFF_ERR_INVALID, "zoff_loss_scaler_set: hysteresis is 0; expected 1 or more");
    return ZOFF_OK;
}

zoff_status zoff_model_loss_scale_set(zoff_model *m, const zoff_loss_scaler *scaler)
{
    const zoff_fp16_values *v = &m->values->fp16;
    ZOFF_FAIL_IF(!v->enabled, ZOFF_ERR_STATE,
                 "zoff_loss_scaler_set: fp16.enabled is false: gradients are not divided by a loss scale");
    zoff_loss_scaler known = m->scaler;
    ZOFF_TRY(zoff_base_structs_read("zoff_loss_scaler", "ZOFF_LOSS_SCALER_INIT", scaler, &known, sizeof known));
    ZOFF_TRY(check_scaler(v, &known));
    m->scaler = known;
    return ZOFF_OK;
}
