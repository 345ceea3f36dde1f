/* SPDX-License-Identifier: Apache-2.0 */
/* slices.c: the buckets of each slice, found once at seal, so that zoff_grad_ready() needs no search. */
#include "zoff_model.h"

#include "mem.h"
#include "try.h"

static const zoff_slice_buckets NOWHERE = {UINT32_MAX, UINT32_MAX};

static zoff_slice_buckets find(const zoff_model *m, const zoff_plan *plan, size_t param, size_t slice)
{
    const size_t count = m->params[param].count;
    const size_t first = count ? zoff_zero_plan_find_run(plan, (uint32_t)param, slice, 0) : SIZE_MAX;
    if (first == SIZE_MAX)
        return NOWHERE;
    const size_t last = zoff_zero_plan_find_run(plan, (uint32_t)param, slice, count - 1);
    return (zoff_slice_buckets){plan->runs[first].bucket, plan->runs[last].bucket};
}

zoff_status zoff_model_slices_open(zoff_model *m, const zoff_plan *plan)
{
    ZOFF_TRY(zoff_base_mem_alloc(m->slice_count, sizeof *m->flags, "the flags of slices", &m->flags));
    ZOFF_TRY(zoff_base_mem_alloc(m->param_count, sizeof *m->listed, "the list of gradients", &m->listed));
    ZOFF_TRY(zoff_base_mem_alloc(m->slice_count, sizeof *m->slice_buckets, "the buckets of slices", &m->slice_buckets));
    for (size_t i = 0; i < m->param_count; i++) {
        for (size_t slice = 0; slice < m->params[i].slices; slice++)
            m->slice_buckets[m->params[i].first_flag + slice] = find(m, plan, i, slice);
    }
    return ZOFF_OK;
}

void zoff_model_slices_close(zoff_model *m)
{
    zoff_base_mem_free(m->flags);
    zoff_base_mem_free(m->listed);
    zoff_base_mem_free(m->slice_buckets);
    m->flags = NULL;
    m->listed = NULL;
    m->slice_buckets = NULL;
}

bool zoff_model_slices_has(const zoff_model *m, size_t number)
{
    return m->slice_buckets[number].first != UINT32_MAX;
}
