/* SPDX-License-Identifier: Apache-2.0 */
/* fetch.c: lends a slice of weights, and takes it back. */
#include "lending.h"

#include "try.h"

static zoff_cached_slice *slice_of(const zoff_lending *l, zoff_param p, size_t slice)
{
    return &l->cache.slices[l->model->params[p].first_flag + slice];
}

/* All ranks agree on whether a slice needs other ranks, but not on whether one has to wait. So each announces that it is in
 * this call. */
static bool is_joint(const zoff_lending *l, const zoff_cached_slice *s)
{
    return l->source->takes_all && s->count && !s->persistent;
}

void zoff_lending_fetch_enter(zoff_lending *l, zoff_param p, size_t slice, bool in_step)
{
    if (in_step && !l->cache.in_step) {
        l->cache.in_step = true;
        l->source->ahead(l);
    }
    l->cache.in_step = in_step;
    const zoff_comm_item item = {.about = ZOFF_COMM_ABOUT_SLICE, .param = p, .index = slice, .extra = ZOFF_COMM_ALL};
    if (is_joint(l, slice_of(l, p, slice)))
        zoff_comm_enter(l->comm, l->channel, ZOFF_COMM_IN_FETCH, item);
}

zoff_status zoff_lending_fetch_exit(const zoff_lending *l, zoff_param p, size_t slice, zoff_status status)
{
    if (is_joint(l, slice_of(l, p, slice)))
        zoff_comm_exit(l->comm, status >= 0);
    return status;
}

zoff_status zoff_lending_fetch_slice(zoff_lending *l, zoff_param p, size_t slice, void *native_stream, const void **out)
{
    zoff_cached_slice *s = slice_of(l, p, slice);
    ZOFF_TRY(l->source->fetch(l, p, slice));
    ZOFF_TRY(l->place->lend(l, s, native_stream));
    l->cache.ahead_elements -= s->ahead ? s->count : 0;
    s->ahead = false;
    s->used = ++l->cache.clock;
    s->lent++;
    l->cache.lent++;
    *out = s->at;
    if (s->count && !s->persistent)
        zoff_lending_prefetch_note(l, (uint32_t)(s - l->cache.slices));
    l->source->ahead(l);
    return ZOFF_OK;
}

zoff_status zoff_lending_fetch_release(zoff_lending *l, zoff_param p, size_t slice, void *native_stream)
{
    zoff_cached_slice *s = slice_of(l, p, slice);
    ZOFF_FAIL_IF(!s->lent, ZOFF_ERR_STATE, "zoff_param_release: slice %zu of %s is not lent", slice, l->model->params[p].name);
    ZOFF_TRY(l->place->take_back(l, s, native_stream));
    s->lent--;
    l->cache.lent--;
    l->source->ahead(l);
    return ZOFF_OK;
}
