/* sum_places.c: where the gradients of all ranks are packed and summed: on the host, or on the devices if the communicator
 * accesses their memory. Also what norm and update read: gradients as handed over, or sums; for buckets whose states are on the
 * host, or on the device. */
#include "transfer.h"

#include "clock.h"

#include <string.h>

/* ---- on the host ---- */

static const void *host_gradient(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return t->route.link->gradient(t, piece);
}

static zoff_grads *host_pool(zoff_transfer *t)
{
    return &t->grads;
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

static uint64_t host_device_bytes(const zoff_transfer *t, const zoff_plan *plan, size_t staging_bytes)
{
    (void)t;
    (void)plan;
    (void)staging_bytes;
    return 0;
}

static zoff_status host_open(zoff_transfer *t)
{
    (void)t;
    return ZOFF_OK;
}

/* Only a single rank uses this: device_tier.c sums its micro-batches. */
static float *alone_device_sum(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return t->device.tier.sums + piece->owned_offset;
}

static size_t alone_device_sums_apart(size_t elements)
{
    return elements * sizeof(float);
}

/* Device memory that the engine lends for gradients is reused in the same backward pass, so these go to the host. */
static const zoff_sum_use *alone_tier_use(const zoff_transfer *t)
{
    return zoff_transfer_arena_device_bytes(t) ? &zoff_transfer_sum_places_used_from_host
                                               : &zoff_transfer_sum_places_used_by_device;
}

static const zoff_sum_use *host_tier_use(const zoff_transfer *t)
{
    (void)t;
    return &zoff_transfer_sum_places_used_from_host;
}

#define HERE                                                                                                                   \
    .gradient = host_gradient, .pool = host_pool, .sum = host_sum, .zero = host_zero, .look = host_look, .slots = host_slots,  \
    .device_bytes = host_device_bytes, .open = host_open, .device_sum = alone_device_sum,                                      \
    .device_sums_apart = alone_device_sums_apart, .pack_bucket = zoff_transfer_reduce_scatter_pack,                            \
    .sum_bucket = zoff_transfer_reduce_scatter_sum, .spread_begin = zoff_transfer_all_gather_begin,                            \
    .spread_end = zoff_transfer_all_gather_end

const zoff_sum_place zoff_transfer_sum_places_alone = {.name = "alone", .tier_use = alone_tier_use, HERE};
const zoff_sum_place zoff_transfer_sum_places_host = {.name = "host", .tier_use = host_tier_use, HERE};

/* ---- on the devices ---- */

static const void *device_gradient(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return zoff_transfer_arena_there(t, piece);
}

static zoff_grads *device_pool(zoff_transfer *t)
{
    return t->route.lent;
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

/* These sums are part of the sums of all buckets, so they need no memory of their own. */
static size_t device_device_sums_apart(size_t elements)
{
    (void)elements;
    return 0;
}

static const zoff_sum_use *device_tier_use(const zoff_transfer *t)
{
    (void)t;
    return &zoff_transfer_sum_places_used_by_device;
}

const zoff_sum_place zoff_transfer_sum_places_device = {.name = "device",
                                                        .tier_use = device_tier_use,
                                                        .gradient = device_gradient,
                                                        .pool = device_pool,
                                                        .sum = device_sum,
                                                        .zero = device_zero,
                                                        .look = device_look,
                                                        .slots = device_slots,
                                                        .device_bytes = zoff_transfer_device_direct_bytes,
                                                        .open = zoff_transfer_device_direct_open,
                                                        .device_sum = device_sum,
                                                        .device_sums_apart = device_device_sums_apart,
                                                        .pack_bucket = zoff_transfer_device_direct_pack,
                                                        .sum_bucket = zoff_transfer_device_direct_sum,
                                                        .spread_begin = zoff_transfer_device_direct_begin,
                                                        .spread_end = zoff_transfer_device_direct_end};

/* ---- a gradient as it was handed over ---- */

static zoff_dtype given_dtype(const zoff_model_param *p)
{
    return p->grad_dtype;
}

static size_t given_bytes(size_t elements)
{
    (void)elements;
    return 0;
}

static size_t given_device_sums(const zoff_transfer *t, size_t elements)
{
    (void)t;
    (void)elements;
    return 0;
}

/* Memory of the device that the engine lends is used again once the gradient is downloaded. Then the host measures it. */
static size_t given_measured_there(const zoff_transfer *t, const zoff_plan *plan)
{
    return zoff_transfer_arena_device_bytes(t) ? zoff_transfer_device_tier_kept(t, plan) : plan->chunk_count;
}

/* A single gradient is used as it is, without a weight. */
static double given_weight(const zoff_transfer *t)
{
    (void)t;
    return 1;
}

const zoff_gradient_form zoff_transfer_sum_places_given = {.name = "given",
                                                           .dtype = given_dtype,
                                                           .host = host_gradient,
                                                           .device = device_gradient,
                                                           .bytes = given_bytes,
                                                           .device_sums = given_device_sums,
                                                           .measured_there = given_measured_there,
                                                           .weight = given_weight};

/* ---- a sum ---- */

static zoff_dtype summed_dtype(const zoff_model_param *p)
{
    (void)p;
    return ZOFF_F32;
}

static const void *summed_host(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return zoff_transfer_pieces_sum(t, piece);
}

static const void *summed_device(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return t->route.place->device_sum(t, piece);
}

static size_t summed_bytes(size_t elements)
{
    return elements * sizeof(float);
}

static size_t summed_device_sums(const zoff_transfer *t, size_t elements)
{
    return t->route.place->device_sums_apart(elements);
}

static double summed_weight(const zoff_transfer *t)
{
    return t->batch.weight;
}

const zoff_gradient_form zoff_transfer_sum_places_summed = {.name = "summed",
                                                            .dtype = summed_dtype,
                                                            .host = summed_host,
                                                            .device = summed_device,
                                                            .bytes = summed_bytes,
                                                            .device_sums = summed_device_sums,
                                                            .measured_there = zoff_transfer_device_tier_kept,
                                                            .weight = summed_weight};

/* ---- a bucket whose states are on the host ---- */

static void by_host_measure(zoff_transfer *t, size_t bucket)
{
    const double from = zoff_base_clock_seconds();
    zoff_transfer_measure_bucket(t, bucket, NULL, NULL, &t->batch.early.read_bytes);
    t->batch.early.measure_seconds += zoff_base_clock_seconds() - from;
}

static zoff_status by_host_bring(zoff_transfer *t, size_t bucket, const zoff_accumulate_piece *first,
                                 const zoff_accumulate_piece *last)
{
    (void)bucket;
    return zoff_transfer_device_direct_bring_down(t, first, last);
}

static zoff_status by_host_await(zoff_transfer *t, void *stream)
{
    (void)t;
    (void)stream;
    return ZOFF_OK;
}

const zoff_sum_use zoff_transfer_sum_places_used_by_host = {.name = "host",
                                                            .place = ZOFF_USED_BY_HOST,
                                                            .comes_down = true,
                                                            .sum = host_sum,
                                                            .measure = by_host_measure,
                                                            .bring = by_host_bring,
                                                            .await = by_host_await};

/* ---- a bucket whose states stay on the device, but not its gradients ---- */

const zoff_sum_use zoff_transfer_sum_places_used_from_host = {.name = "device, from the host",
                                                              .place = ZOFF_USED_BY_DEVICE_FROM_HOST,
                                                              .comes_down = true,
                                                              .sum = host_sum,
                                                              .measure = by_host_measure,
                                                              .bring = by_host_bring,
                                                              .await = zoff_transfer_device_tier_await};

/* ---- a bucket whose states and gradients stay on the device ---- */

static float *by_device_sum(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return t->route.place->device_sum(t, piece);
}

/* Gradients stay on the device: only sums of their squares go to the host. */
static zoff_status by_device_bring(zoff_transfer *t, size_t bucket, const zoff_accumulate_piece *first,
                                   const zoff_accumulate_piece *last)
{
    (void)first;
    (void)last;
    return zoff_transfer_device_norm_put(t, bucket, t->device.down);
}

const zoff_sum_use zoff_transfer_sum_places_used_by_device = {.name = "device",
                                                              .place = ZOFF_USED_BY_DEVICE,
                                                              .sum = by_device_sum,
                                                              .measure = zoff_transfer_device_norm_take,
                                                              .bring = by_device_bring,
                                                              .await = zoff_transfer_device_tier_await};
