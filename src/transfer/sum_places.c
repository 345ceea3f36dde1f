/* sum_places.c: where the gradients of all ranks are packed and added up: on the host, or on the devices, where the
 * communicator reaches their memory. */
#include "transfer.h"

#include <string.h>

/* ---- on the host ---- */

static const void *host_gradient(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return t->route.link->gradient(t, piece);
}

static float *host_sum(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return zoff_transfer_pieces_sum(t, piece);
}

static zoff_status host_zero(zoff_transfer *t, char *to, size_t bytes)
{
    (void)t;
    memset(to, 0, bytes);
    return ZOFF_OK;
}

static const void *host_look(zoff_transfer *t, const void *grad, size_t count, zoff_dtype dtype, float *copy)
{
    (void)t;
    (void)count;
    (void)dtype;
    (void)copy;
    return grad;
}

static char *host_slots(const zoff_transfer *t)
{
    return t->ranks.staging.base;
}

const zoff_sum_place zoff_transfer_sum_places_host = {.name = "host",
                                                      .gradient = host_gradient,
                                                      .sum = host_sum,
                                                      .zero = host_zero,
                                                      .look = host_look,
                                                      .slots = host_slots,
                                                      .pack_bucket = zoff_transfer_reduce_scatter_pack,
                                                      .sum_bucket = zoff_transfer_reduce_scatter_sum,
                                                      .spread_begin = zoff_transfer_all_gather_begin,
                                                      .spread_end = zoff_transfer_all_gather_end};

/* ---- on the devices ---- */

static const void *device_gradient(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return zoff_model_params_there(t->model, piece);
}

static float *device_sum(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return t->device.direct.sums + piece->owned_offset;
}

static zoff_status device_zero(zoff_transfer *t, char *to, size_t bytes)
{
    return t->accel->ops->zero(t->accel, t->device.compute, to, bytes);
}

static const void *device_look(zoff_transfer *t, const void *grad, size_t count, zoff_dtype dtype, float *copy)
{
    const zoff_cast_piece move = {.count = count, .dst = copy, .src = grad, .dst_dtype = dtype, .src_dtype = dtype};
    return zoff_transfer_streams_copy(t, &move, 1, false) < 0 ? NULL : copy;
}

static char *device_slots(const zoff_transfer *t)
{
    return t->device.direct.slots;
}

const zoff_sum_place zoff_transfer_sum_places_device = {.name = "device",
                                                        .gradient = device_gradient,
                                                        .sum = device_sum,
                                                        .zero = device_zero,
                                                        .look = device_look,
                                                        .slots = device_slots,
                                                        .pack_bucket = zoff_transfer_device_direct_pack,
                                                        .sum_bucket = zoff_transfer_device_direct_sum,
                                                        .spread_begin = zoff_transfer_device_direct_begin,
                                                        .spread_end = zoff_transfer_device_direct_end};
