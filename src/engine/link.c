/* link.c: the link to a device: pinned memory, copies, and the order of its streams. */
#include "engine_priv.h"

#include "try.h"

zoff_status zoff_engine_link_sync(zoff_engine *e, void *stream)
{
    ZOFF_TRY(e->accel->ops->event_record(e->accel, e->device.synced, stream));
    return zoff_engine_device_wait_for(e, e->device.synced);
}

zoff_status zoff_engine_link_pin(zoff_engine *e, const zoff_map *map)
{
    return e->accel->ops->pin(e->accel, map->base, map->bytes);
}

void zoff_engine_link_unpin(zoff_engine *e, const zoff_map *map)
{
    e->accel->ops->unpin(e->accel, map->base);
}

zoff_status zoff_engine_link_copy(zoff_engine *e, const zoff_cast_piece *moves, size_t count, bool up)
{
    void *stream = up ? e->device.up : e->device.down;
    for (size_t i = 0; i < count; i++)
        ZOFF_TRY(e->accel->ops->copy(e->accel, stream, moves[i].dst, moves[i].src,
                                     moves[i].count * zoff_adam_dtype_bytes(moves[i].src_dtype)));
    return zoff_engine_link_sync(e, stream);
}

/* The event is recorded anew by the next call, for a stream that may be another: so whoever is to wait is told here. What goes
 * up overwrites weights that each of these streams may still read. */
zoff_status zoff_engine_link_follow(zoff_engine *e, void *native_stream)
{
    ZOFF_TRY(e->accel->ops->event_record(e->accel, e->device.handed_over, native_stream));
    return e->accel->ops->event_await(e->accel, e->device.up, e->device.handed_over);
}

zoff_status zoff_engine_link_compute_follow(zoff_engine *e)
{
    e->device.computes = true;
    return e->accel->ops->event_await(e->accel, e->device.compute, e->device.handed_over);
}

zoff_status zoff_engine_link_compute_settle(zoff_engine *e)
{
    if (!e->device.computes)
        return ZOFF_OK;
    ZOFF_TRY(e->accel->ops->event_record(e->accel, e->device.norm.settled, e->device.compute));
    ZOFF_TRY(zoff_engine_device_wait_for(e, e->device.norm.settled));
    e->device.computes = false;
    return ZOFF_OK;
}
