/* lend.c: zoff_param_fetch() and zoff_param_release(). */
#include "engine_priv.h"

#include "try.h"

static zoff_status check_call(const zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const char *call)
{
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "%s: engine must not be NULL", call);
    ZOFF_FAIL_IF(e->phase != ZOFF_PHASE_IDLE, ZOFF_ERR_STATE, "%s: %s", call, zoff_engine_phase_words(e));
    ZOFF_FAIL_IF(p >= e->model.param_count || slice >= e->model.params[p].slices, ZOFF_ERR_INVALID,
                 "%s: there is no slice %zu of parameter %u", call, slice, p);
    ZOFF_FAIL_IF(!e->model.params[p].engine_owned, ZOFF_ERR_INVALID,
                 "%s: the weights of %s are in the caller's memory (zoff_param_desc.engine_owned is false)", call,
                 e->model.params[p].name);
    ZOFF_FAIL_IF(native_stream, ZOFF_ERR_INVALID, "%s: accelerator \"%s\" has no streams; pass NULL", call,
                 zoff_accel_name(e->accel));
    return ZOFF_OK;
}

zoff_status zoff_param_fetch(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const void **out)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(check_call(e, p, slice, native_stream, "zoff_param_fetch"));
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_param_fetch: out must not be NULL");
    ZOFF_TRY(zoff_engine_phase_check_weights(e, "zoff_param_fetch"));
    return zoff_lending_fetch_slice(&e->lending, p, slice, out);
}

zoff_status zoff_param_release(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(check_call(e, p, slice, native_stream, "zoff_param_release"));
    return zoff_lending_fetch_release(&e->lending, p, slice);
}
