/* intake.c: a complete gradient of a slice starts its way. */
#include "engine_priv.h"

#include "try.h"

zoff_status zoff_engine_intake_take(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_TRY(e->link->take(e, p, slice, native_stream));
    e->model.flags[e->model.params[p].first_flag + slice] |= ZOFF_SLICE_READY;
    zoff_engine_reduce_scatter_hand_over(e, p, slice);
    return ZOFF_OK;
}
