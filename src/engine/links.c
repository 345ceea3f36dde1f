/* links.c: how gradients come from the program, and new weights go to it. In place: the CPU works on the program's memory.
 * Staged: that is memory of a device; gradients come down to memory of the engine, weights go up from staging slots. Reached:
 * the same, but what several ranks exchange stays on their devices, and so do gradients. */
#include "engine_priv.h"

#include "clock.h"
#include "try.h"

/* ---- in place ---- */

static zoff_status in_place_pin(zoff_engine *e, const zoff_map *map)
{
    (void)e;
    (void)map;
    return ZOFF_OK;
}

static void in_place_unpin(zoff_engine *e, const zoff_map *map)
{
    (void)e;
    (void)map;
}

static zoff_status in_place_follow(zoff_engine *e, void *native_stream)
{
    (void)e;
    (void)native_stream;
    return ZOFF_OK;
}

static zoff_status in_place_take(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    (void)e;
    (void)p;
    (void)slice;
    (void)native_stream;
    return ZOFF_OK;
}

/* Memory that was lent, or the program's own. */
static const char *in_place_gradient(const zoff_engine *e, const zoff_plan_piece *piece)
{
    return e->model.params[piece->param].grad ? zoff_model_params_there(&e->model, piece) : zoff_engine_grads_of(e, piece);
}

static zoff_status in_place_lend(zoff_engine *e, size_t bucket, bool load)
{
    (void)e;
    (void)bucket;
    (void)load;
    return ZOFF_OK;
}

static zoff_status in_place_settle(zoff_engine *e)
{
    (void)e;
    return ZOFF_OK;
}

static zoff_status in_place_move(zoff_engine *e, const zoff_cast_piece *moves, size_t count, bool up)
{
    (void)up;
    zoff_adam_cast_run(e->settings.threads, moves, count);
    return ZOFF_OK;
}

static zoff_status in_place_add(zoff_engine *e, const zoff_accumulate_piece *piece)
{
    const double from = zoff_base_clock_seconds();
    zoff_adam_accumulate_run(e->settings.threads, piece, 1, NULL, NULL);
    e->early.read_bytes += piece->count * (zoff_adam_dtype_bytes(piece->dtype) + (piece->first ? 0 : sizeof(float)));
    e->early.write_bytes += piece->count * sizeof(float);
    e->early.measure_seconds += zoff_base_clock_seconds() - from;
    return ZOFF_OK;
}

static zoff_status in_place_add_follow(zoff_engine *e)
{
    (void)e;
    return ZOFF_OK;
}

static zoff_status in_place_sums_alloc(zoff_engine *e, uint64_t bytes, char **out)
{
    ZOFF_TRY(zoff_base_map_alloc(bytes, "sums of gradients", ZOFF_MAP_INTERLEAVED, &e->tied_sums.host));
    *out = e->tied_sums.host.base;
    return ZOFF_OK;
}

static char *in_place_weights(const zoff_engine *e, const zoff_plan_piece *piece, char *weights)
{
    return zoff_model_params_value(&e->model, piece, weights);
}

static void in_place_range(zoff_engine *e, const char *row, size_t bucket)
{
    (void)e;
    (void)row;
    (void)bucket;
}

const zoff_link zoff_engine_links_in_place = {.name = "in place",
                                              .pin = in_place_pin,
                                              .unpin = in_place_unpin,
                                              .follow = in_place_follow,
                                              .take = in_place_take,
                                              .taken = zoff_engine_reduce_scatter_mark,
                                              .gradient = in_place_gradient,
                                              .weights = in_place_weights,
                                              .lend = in_place_lend,
                                              .settle = in_place_settle,
                                              .move = in_place_move,
                                              .add = in_place_add,
                                              .add_follow = in_place_add_follow,
                                              .added = zoff_engine_grads_let_go,
                                              .sums_alloc = in_place_sums_alloc,
                                              .range = in_place_range};

/* ---- staged ---- */

/* It is marked when it has come down; what fails is told by the step. */
static void staged_taken(zoff_engine *e, zoff_param p, size_t slice)
{
    (void)p;
    (void)slice;
    (void)zoff_engine_download_poll(e);
}

static zoff_status staged_add(zoff_engine *e, const zoff_accumulate_piece *piece)
{
    return e->accel->ops->accumulate(e->accel, e->device.compute, piece, 1);
}

/* Gradients of the program are on the device: none is in memory that the engine has lent. */
static void staged_added(zoff_engine *e, size_t number)
{
    (void)e;
    (void)number;
}

static zoff_status staged_sums_alloc(zoff_engine *e, uint64_t bytes, char **out)
{
    ZOFF_TRY(e->accel->ops->alloc(e->accel, bytes, &e->tied_sums.device));
    *out = e->tied_sums.device;
    return ZOFF_OK;
}

static void staged_range(zoff_engine *e, const char *row, size_t bucket)
{
    if (row)
        e->accel->ops->range_begin(e->accel, row, bucket);
    else
        e->accel->ops->range_end(e->accel);
}

#define STAGED                                                                                                                 \
    .pin = zoff_engine_link_pin, .unpin = zoff_engine_link_unpin, .follow = zoff_engine_link_follow,                           \
    .gradient = zoff_engine_grads_of, .weights = zoff_engine_staging_weights, .lend = zoff_engine_device_lend,                 \
    .settle = zoff_engine_device_settle, .move = zoff_engine_link_copy, .add = staged_add,                                     \
    .add_follow = zoff_engine_link_compute_follow, .added = staged_added, .sums_alloc = staged_sums_alloc,                     \
    .range = staged_range

const zoff_link zoff_engine_links_staged = {
    .name = "staged", .take = zoff_engine_device_download, .taken = staged_taken, STAGED};

/* ---- reached ---- */

const zoff_link zoff_engine_links_reached = {
    .name = "reached", .take = zoff_engine_device_stay, .taken = zoff_engine_reduce_scatter_mark, STAGED};
