/* sum_places.c: where the gradients of all ranks are packed and added up: on the host, or on the devices, where the
 * communicator reaches their memory. */
#include "engine_priv.h"

#include <string.h>

/* ---- on the host ---- */

static const void *host_gradient(const zoff_engine *e, const zoff_plan_piece *piece)
{
    return e->link->gradient(e, piece);
}

static float *host_sum(const zoff_engine *e, const zoff_plan_piece *piece)
{
    return zoff_engine_pieces_sum(e, piece);
}

static zoff_status host_zero(zoff_engine *e, char *to, size_t bytes)
{
    (void)e;
    memset(to, 0, bytes);
    return ZOFF_OK;
}

static const void *host_look(zoff_engine *e, const void *grad, size_t count, zoff_dtype dtype, float *copy)
{
    (void)e;
    (void)count;
    (void)dtype;
    (void)copy;
    return grad;
}

static char *host_slots(const zoff_engine *e)
{
    return e->ranks.staging.base;
}

const zoff_sum_place zoff_engine_sum_places_host = {.name = "host",
                                                    .gradient = host_gradient,
                                                    .sum = host_sum,
                                                    .zero = host_zero,
                                                    .look = host_look,
                                                    .slots = host_slots,
                                                    .pack_bucket = zoff_engine_reduce_scatter_pack,
                                                    .sum_bucket = zoff_engine_reduce_scatter_sum,
                                                    .spread_begin = zoff_engine_all_gather_begin,
                                                    .spread_end = zoff_engine_all_gather_end};

/* ---- on the devices ---- */

static const void *device_gradient(const zoff_engine *e, const zoff_plan_piece *piece)
{
    return zoff_model_params_there(&e->model, piece);
}

static float *device_sum(const zoff_engine *e, const zoff_plan_piece *piece)
{
    return e->device.direct.sums + piece->owned_offset;
}

static zoff_status device_zero(zoff_engine *e, char *to, size_t bytes)
{
    return e->accel->ops->zero(e->accel, e->device.compute, to, bytes);
}

static const void *device_look(zoff_engine *e, const void *grad, size_t count, zoff_dtype dtype, float *copy)
{
    const zoff_cast_piece move = {.count = count, .dst = copy, .src = grad, .dst_dtype = dtype, .src_dtype = dtype};
    return zoff_engine_link_copy(e, &move, 1, false) < 0 ? NULL : copy;
}

static char *device_slots(const zoff_engine *e)
{
    return e->device.direct.slots;
}

const zoff_sum_place zoff_engine_sum_places_device = {.name = "device",
                                                      .gradient = device_gradient,
                                                      .sum = device_sum,
                                                      .zero = device_zero,
                                                      .look = device_look,
                                                      .slots = device_slots,
                                                      .pack_bucket = zoff_engine_device_direct_pack,
                                                      .sum_bucket = zoff_engine_device_direct_sum,
                                                      .spread_begin = zoff_engine_device_direct_begin,
                                                      .spread_end = zoff_engine_device_direct_end};
