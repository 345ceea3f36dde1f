/* SPDX-License-Identifier: Apache-2.0 */
/* moments.c: how the moments of a parameter are stored. The format of all is in the configuration. Blocks of 8 bits are only
 * for Adam, and not worth their headers for short slices. */
#include "zoff_model.h"

#include "bits.h"
#include "try.h"

enum { SLICE_LEAST = 4096 /* elements */ };

zoff_moments zoff_model_moments_of(const zoff_model *m, const zoff_model_param *p)
{
    const zoff_moments asked = (zoff_moments)m->values->moments;
    if (asked == ZOFF_MOMENTS_F32 || zoff_model_params_named(m, p) & ZOFF_NAMED_FP32_MOMENTS)
        return ZOFF_MOMENTS_F32;
    if (asked == ZOFF_MOMENTS_BF16)
        return asked;
    const bool is_adam = zoff_model_groups_own(m, p->group)->optimizer == ZOFF_OPTIMIZER_ADAM;
    return p->count < (size_t)SLICE_LEAST || !is_adam ? ZOFF_MOMENTS_F32 : asked;
}

zoff_status zoff_model_moments_check(const zoff_model *m, const zoff_model_param *p, zoff_moment which, size_t first,
                                     size_t count, const float *numbers)
{
    const zoff_moments moments = zoff_model_moments_of(m, p);
    if (!count || !zoff_adam_moments_in_blocks(moments, which))
        return ZOFF_OK;
    ZOFF_FAIL_IF(first % p->count % ZOFF_NORM_BLOCK || (first + count) % p->count % ZOFF_NORM_BLOCK, ZOFF_ERR_INVALID,
                 "zoff_state_write: %s has moments in blocks of %d elements (zoff.moments \"%s\"), and the elements %zu to %zu "
                 "cut one. Write whole blocks, counted from the begin of each slice",
                 p->name, ZOFF_NORM_BLOCK, zoff_adam_moments_name(moments), first, first + count - 1);
    for (size_t i = 0, now; i < count; i += now) {
        now = zoff_base_bits_min(p->count - (first + i) % p->count, (size_t)ZOFF_NORM_BLOCK);
        const size_t odd = zoff_adam_moments_unfit(moments, which, now, numbers + i);
        ZOFF_FAIL_IF(odd < now, ZOFF_ERR_INVALID,
                     "zoff_state_write: element %zu of a moment of %s is %g, which a block with one scale (zoff.moments "
                     "\"%s\") cannot store: it has to be finite, and a second moment not negative. Up to 10 second moments of "
                     "a block may be infinite",
                     first + i + odd, p->name, (double)numbers[i + odd], zoff_adam_moments_name(moments));
    }
    return ZOFF_OK;
}
