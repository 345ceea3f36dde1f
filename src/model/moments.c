/* moments.c: how the moments of a parameter are stored. The format of all is in the configuration. Blocks of 8 bits are only
 * for Adam, and not worth their headers for short slices. */
#include "zoff_model.h"

#include "bits.h"
#include "log.h"
#include "try.h"
#include "words.h"

#include <string.h>

enum { SLICE_LEAST = 4096 /* elements */ };

static bool is_named(const char *pattern, const char *name)
{
    return zoff_base_words_match(pattern, strlen(pattern), name);
}

bool zoff_model_moments_stay(const zoff_model *m, const char *name)
{
    bool stays = false;
    for (size_t i = 0; i < m->values->fp32_moments_count; i++)
        stays = stays || is_named(m->values->fp32_moments[i], name);
    return stays;
}

void zoff_model_moments_warn(const zoff_model *m)
{
    const char *first = NULL;
    size_t count = 0;
    for (size_t i = 0; i < m->values->fp32_moments_count; i++) {
        const char *pattern = m->values->fp32_moments[i];
        bool found = false;
        for (size_t k = 0; k < m->param_count && !found; k++)
            found = is_named(pattern, m->params[k].name);
        first = first || found ? first : pattern;
        count += !found;
    }
    if (count)
        ZOFF_WARN("zoff.fp32_moments: %zu of %zu patterns match no parameter of rank 0; the first of them is \"%s\"", count,
                  m->values->fp32_moments_count, first);
}

/* Tied parameters share their moments. */
static bool stays_fp32(const zoff_model *m, const zoff_model_param *p)
{
    bool stays = p->fp32_moments;
    const zoff_tie *tie = p->tie ? &m->ties.all[p->tie - 1] : NULL;
    for (size_t i = 0; tie && i < tie->count; i++)
        stays = stays || m->params[m->ties.members[tie->first + i]].fp32_moments;
    return stays;
}

zoff_moments zoff_model_moments_of(const zoff_model *m, const zoff_model_param *p)
{
    const zoff_moments asked = (zoff_moments)m->values->moments;
    if (asked == ZOFF_MOMENTS_F32 || stays_fp32(m, p))
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
