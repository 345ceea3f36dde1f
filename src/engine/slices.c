/* slices.c: the buckets that a slice is in, found once: a gradient that the program hands over needs no search. */
#include "engine_priv.h"

#include "try.h"

static const zoff_slice_buckets NOWHERE = {UINT32_MAX, UINT32_MAX};

static zoff_slice_buckets find(const zoff_engine *e, size_t param, size_t slice)
{
    const size_t count = e->params[param].count;
    const size_t first = count ? zoff_zero_plan_find_run(&e->plan, (uint32_t)param, slice, 0) : SIZE_MAX;
    if (first == SIZE_MAX)
        return NOWHERE;
    const size_t last = zoff_zero_plan_find_run(&e->plan, (uint32_t)param, slice, count - 1);
    return (zoff_slice_buckets){e->plan.runs[first].bucket, e->plan.runs[last].bucket};
}

zoff_status zoff_engine_slices_open(zoff_engine *e)
{
    ZOFF_TRY(zoff_base_mem_alloc(e->slice_count, sizeof *e->slice_buckets, "the slices' buckets", &e->slice_buckets));
    for (size_t i = 0; i < e->param_count; i++) {
        for (size_t slice = 0; slice < e->params[i].slices; slice++)
            e->slice_buckets[e->params[i].first_flag + slice] = find(e, i, slice);
    }
    return ZOFF_OK;
}

void zoff_engine_slices_close(zoff_engine *e)
{
    zoff_base_mem_free(e->slice_buckets);
    e->slice_buckets = NULL;
}

bool zoff_engine_slices_has(const zoff_engine *e, size_t number)
{
    return e->slice_buckets[number].first != UINT32_MAX;
}
