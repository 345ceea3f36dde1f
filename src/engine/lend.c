/* lend.c: zoff_param_fetch() and zoff_param_release(). */
#include "engine_priv.h"

#include "try.h"

static zoff_cached_slice *slice_of(zoff_engine *e, zoff_param p, size_t slice)
{
    return &e->param_cache.slices[e->params[p].first_flag + slice];
}

static zoff_status check_call(const zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const char *call)
{
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "%s: engine must not be NULL", call);
    ZOFF_FAIL_IF(e->phase != ZOFF_PHASE_IDLE, ZOFF_ERR_STATE, "%s: %s", call, zoff_engine_phase_words(e));
    ZOFF_FAIL_IF(p >= e->param_count || slice >= e->params[p].slices, ZOFF_ERR_INVALID,
                 "%s: there is no slice %zu of parameter %u", call, slice, p);
    ZOFF_FAIL_IF(!e->params[p].engine_owned, ZOFF_ERR_INVALID,
                 "%s: the weights of %s are in the caller's memory (zoff_param_desc.engine_owned is false)", call,
                 e->params[p].name);
    ZOFF_FAIL_IF(native_stream, ZOFF_ERR_INVALID, "%s: accelerator \"%s\" has no streams; pass NULL", call,
                 zoff_accel_name(e->accel));
    return ZOFF_OK;
}

/* Make it whole in the arena; or leave it as it was. */
static zoff_status load(zoff_engine *e, zoff_param p, uint32_t number)
{
    zoff_cached_slice *s = &e->param_cache.slices[number];
    const bool is_sharded = zoff_engine_param_cache_is_sharded(e);
    ZOFF_TRY(is_sharded ? zoff_engine_param_gather_make_room(e, number) : ZOFF_OK);
    ZOFF_TRY(zoff_engine_room_find(e, number, e->params[p].name));
    if (is_sharded) {
        zoff_engine_param_gather_plan(e, number); /* cannot fail: what has a place is either planned or whole */
        return ZOFF_OK;
    }
    zoff_status status = zoff_engine_held_copy(e, s, zoff_adam_dtype_bytes(e->params[p].dtype));
    if (status < 0) {
        zoff_engine_param_cache_remove(&e->param_cache, s);
        return zoff_base_status_prefix(status, "zoff_param_fetch: %s: ", e->params[p].name);
    }
    return ZOFF_OK;
}

static zoff_status load_and_wait(zoff_engine *e, zoff_param p, size_t slice)
{
    const zoff_cached_slice *s = slice_of(e, p, slice);
    const uint32_t number = (uint32_t)(s - e->param_cache.slices);
    ZOFF_TRY(zoff_engine_prefetch_reserve(e)); /* before anything has changed */
    if (!s->at && s->count)
        ZOFF_TRY(load(e, p, number));
    if (s->missing) {
        zoff_status status = zoff_engine_param_gather_wait(e, number);
        if (status < 0)
            return zoff_base_status_prefix(status, "zoff_param_fetch: %s: ", e->params[p].name);
    }
    return ZOFF_OK;
}

/* Whether that takes other ranks is the same on all of them; whether it waits for them is not. */
static zoff_status make_whole(zoff_engine *e, zoff_param p, size_t slice)
{
    const zoff_cached_slice *s = slice_of(e, p, slice);
    if (!zoff_engine_param_cache_is_sharded(e) || !s->count || s->persistent)
        return load_and_wait(e, p, slice);
    const zoff_comm_item item = {.about = ZOFF_COMM_ABOUT_SLICE, .param = p, .index = slice, .extra = ZOFF_COMM_ALL};
    zoff_engine_identity_enter(e, ZOFF_COMM_IN_FETCH, item);
    return zoff_engine_identity_exit(e, load_and_wait(e, p, slice));
}

zoff_status zoff_param_fetch(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const void **out)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(check_call(e, p, slice, native_stream, "zoff_param_fetch"));
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_param_fetch: out must not be NULL");
    ZOFF_TRY(zoff_engine_phase_check_weights(e, "zoff_param_fetch"));
    zoff_cached_slice *s = slice_of(e, p, slice);
    const uint32_t number = (uint32_t)(s - e->param_cache.slices);
    ZOFF_TRY(make_whole(e, p, slice));
    s->ahead = false;
    s->used = ++e->param_cache.clock;
    s->lent++;
    e->param_cache.lent++;
    *out = s->at;
    if (s->count && !s->persistent)
        zoff_engine_prefetch_note(e, number);
    zoff_engine_prefetch_ahead(e);
    return ZOFF_OK;
}

zoff_status zoff_param_release(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(check_call(e, p, slice, native_stream, "zoff_param_release"));
    zoff_cached_slice *s = slice_of(e, p, slice);
    ZOFF_FAIL_IF(!s->lent, ZOFF_ERR_STATE, "zoff_param_release: slice %zu of %s is not lent", slice, e->params[p].name);
    s->lent--;
    e->param_cache.lent--;
    zoff_engine_prefetch_ahead(e);
    return ZOFF_OK;
}
