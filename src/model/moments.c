/* moments.c: how the moments of a parameter are stored. The format of all is in the configuration. Blocks of 8 bits are only
 * for Adam, and not worth their headers for short slices. */
#include "zoff_model.h"

#include "log.h"
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
    for (size_t i = 0; i < m->values->fp32_moments_count; i++) {
        const char *pattern = m->values->fp32_moments[i];
        bool found = false;
        for (size_t k = 0; k < m->param_count && !found; k++)
            found = is_named(pattern, m->params[k].name);
        if (!found)
            ZOFF_WARN("zoff.fp32_moments has \"%s\", but no parameter of rank 0 is named so", pattern);
    }
}

zoff_moments zoff_model_moments_of(const zoff_model *m, const zoff_model_param *p)
{
    const zoff_moments asked = (zoff_moments)m->values->moments;
    if (p->fp32_moments)
        return ZOFF_MOMENTS_F32;
    if (asked == ZOFF_MOMENTS_F32 || asked == ZOFF_MOMENTS_BF16)
        return asked;
    const bool is_adam = zoff_model_groups_own(m, p->group)->optimizer == ZOFF_OPTIMIZER_ADAM;
    return p->count < (size_t)SLICE_LEAST || !is_adam ? ZOFF_MOMENTS_F32 : asked;
}
