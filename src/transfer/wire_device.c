/* SPDX-License-Identifier: Apache-2.0 */
/* wire_device.c: several ranks whose communicator accesses the memory of their devices. Gradients are packed, exchanged and
 * summed on the device, in rank order and with the same bits as on the host. Updated weights go from device to device:
 *
 *      device   pack | exchange | add up |                              lift -> gather | scatter
 *      host                               | sum of this rank's part | update
 *
 * The link to the host carries 4 bytes down for each gradient whose sum this rank owns, and 2 bytes up for each weight that
 * this rank updates. With a communicator of the host it would carry all gradients and all weights. The host starts each
 * operation only when its polls show that the input is complete.
 * Buckets whose states stay on the device (device_tier.c) send only sums of squares to the host.
 *
 * With zoff.reduce_scatter "nccl", the wire carries gradients in fp32, multiplied by their weight. The communicator sums them
 * in an order of its own. Only the sum over ranks arrives; it is added to the sum of the earlier micro-batches. */
#include "transfer.h"

#include "bits.h"
#include "try.h"

#include <string.h>

/* Slots of reductions, followed by those of gathers. */
enum { SLOTS = ZOFF_REDUCE_SLOTS + ZOFF_GATHER_SLOTS };

typedef struct exchange {
    char *slots;                   /* device memory */
    float *sums;                   /* gradient sums, in device memory */
    void *moved[SLOTS];            /* events: the work enqueued for a slot is done */
    bool moves[SLOTS];             /* work is enqueued for the slot */
    bool added[SLOTS];             /* reductions: the gradients are in the sums, or their addition is enqueued */
    bool lifted[SLOTS];            /* gathers: this rank's part is in the slot */
    bool counted[SLOTS];           /* gathers: copying the weights to where they are used is enqueued, and counted */
    bool pinned;                   /* the accumulator is pinned */
    zoff_accumulate_piece terms[]; /* sums of a bucket, if the communicator sums; otherwise none */
} exchange;

static bool serves(const zoff_transfer *t)
{
    return t->comm->reaches && !zoff_accel_in_place(t->accel) && strcmp(t->comm->reaches, zoff_accel_name(t->accel)) == 0;
}

static uint64_t device_bytes(const zoff_transfer *t, const zoff_plan *plan, size_t staging_bytes)
{
    return staging_bytes + plan->owned_elements * sizeof(float);
}

static zoff_status take(zoff_transfer *t, size_t bytes, const char *what, void **out)
{
    *out = NULL;
    const zoff_status status = bytes ? t->accel->ops->alloc(t->accel, bytes, out) : ZOFF_OK;
    return status < 0 ? zoff_base_status_prefix(status, "%s, %s of device memory: ", what, zoff_base_words_bytes(bytes))
                      : status;
}

static zoff_status open_device(zoff_transfer *t)
{
    const size_t terms = t->route.adds ? zoff_transfer_wire_most_pieces(t->plan) : 0;
    const zoff_accel_ops *ops = t->accel->ops;
    void *memory;
    if (!t->ranks.wire.own)
        ZOFF_TRY(zoff_base_mem_alloc(1, sizeof(exchange) + terms * sizeof(zoff_accumulate_piece),
                                     "the exchange between devices", &t->ranks.wire.own));
    exchange *r = t->ranks.wire.own;
    ZOFF_TRY(take(t, t->ranks.staging.bytes,
                  "buffers for the exchange between ranks (a smaller reduce_bucket_size reduces them)", &memory));
    r->slots = memory;
    ZOFF_TRY(take(t, t->plan->owned_elements * sizeof(float), "sums of gradients (more ranks reduce them)", &memory));
    r->sums = memory;
    for (unsigned i = 0; i < SLOTS; i++)
        ZOFF_TRY(ops->event_open(t->accel, &r->moved[i]));
    if (t->accumulator.map.base)
        ZOFF_TRY(zoff_transfer_streams_pin(t, &t->accumulator.map));
    r->pinned = t->accumulator.map.base != NULL;
    t->ranks.wire.slots = r->slots;
    t->ranks.wire.sums = t->accumulator.there = r->sums;
    return ZOFF_OK;
}

/* Exchange one sum. Its content is uninitialized and never read. */
static zoff_status add_up_once(zoff_transfer *t, size_t part_bytes)
{
    size_t *bytes;
    zoff_comm_work work = {.active = false};
    ZOFF_TRY(zoff_base_mem_alloc(t->plan->ranks, sizeof *bytes, "the first sum of the ranks", &bytes));
    for (unsigned rank = 0; rank < t->plan->ranks; rank++)
        bytes[rank] = part_bytes;
    const zoff_comm_call call = {.kind = ZOFF_COMM_EXCHANGE,
                                 .stream = ZOFF_COMM_REDUCE,
                                 .channel = t->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_GRADIENTS, .index = ZOFF_COMM_ALL},
                                 .in = t->ranks.wire.slots,
                                 .out = t->ranks.wire.slots + t->plan->ranks * part_bytes,
                                 .send_bytes = bytes,
                                 .adds = true};
    zoff_status status = zoff_comm_start(t->comm, &call, &work);
    if (status == ZOFF_OK)
        status = zoff_comm_wait(t->comm, &work);
    zoff_base_mem_free(bytes);
    return status;
}

/* NCCL connects the ranks, and allocates memory, in the first sum. That sum is made here, while no work of the engine on the
 * device waits for another rank. NCCL chooses its algorithm by size, so the largest and the smallest size are both used. */
static zoff_status connect_sums(zoff_transfer *t)
{
    size_t most = 0, least = SIZE_MAX;
    if (!t->route.adds)
        return ZOFF_OK;
    for (size_t b = 0; b < t->plan->chunk_count; b++) {
        const size_t bytes = zoff_transfer_wire_parts(t, b)[0];
        most = zoff_base_bits_max(most, bytes);
        least = bytes ? zoff_base_bits_min(least, bytes) : least;
    }
    if (most)
        ZOFF_TRY(add_up_once(t, most));
    return most > least ? add_up_once(t, least) : ZOFF_OK;
}

/* Memory that other ranks may still read or write is left alone. */
static void close_device(zoff_transfer *t)
{
    exchange *r = t->ranks.wire.own;
    if (!r || !(r->slots || r->sums || r->moved[0]) || !zoff_comm_lets_go(t->comm))
        return;
    const zoff_accel_ops *ops = t->accel->ops;
    for (unsigned i = 0; i < SLOTS; i++) {
        if (r->moved[i])
            ops->event_close(t->accel, r->moved[i]);
    }
    if (r->slots)
        ops->free(t->accel, r->slots);
    if (r->sums)
        ops->free(t->accel, r->sums);
    if (r->pinned)
        zoff_transfer_streams_unpin(t, &t->accumulator.map);
    *r = (exchange){.slots = NULL};
    t->ranks.wire.waits = 0;
}

/* Poll the work that was enqueued and marked for a slot. */
static zoff_status finish(zoff_transfer *t, unsigned slot)
{
    exchange *r = t->ranks.wire.own;
    const zoff_status status = t->accel->ops->event_poll(t->accel, r->moved[slot]);
    r->moves[slot] = status != ZOFF_OK;
    t->ranks.wire.waits -= status == ZOFF_OK;
    return status;
}

static zoff_status mark(zoff_transfer *t, unsigned slot, void *stream)
{
    exchange *r = t->ranks.wire.own;
    ZOFF_TRY(t->accel->ops->event_record(t->accel, r->moved[slot], stream));
    r->moves[slot] = true;
    t->ranks.wire.waits++;
    return ZOFF_OK;
}

/* An error of a stream does not matter here: the step has failed, and no result of the slots is used. */
static void forget_all(zoff_transfer *t)
{
    exchange *r = t->ranks.wire.own;
    (void)zoff_transfer_streams_sync(t, t->device.compute);
    (void)zoff_transfer_streams_sync(t, t->device.down);
    for (unsigned i = 0; i < ZOFF_REDUCE_SLOTS; i++) {
        t->ranks.wire.waits -= r->moves[i];
        r->moves[i] = r->added[i] = false;
    }
}

static zoff_status zero(zoff_transfer *t, char *to, size_t bytes)
{
    return t->accel->ops->zero(t->accel, t->device.compute, to, bytes);
}

static const void *look_at_grad(zoff_transfer *t, const void *grad, size_t count, zoff_dtype dtype, float *copy)
{
    const zoff_cast_piece move = {.count = count, .dst = copy, .src = grad, .dst_dtype = dtype, .src_dtype = dtype};
    return zoff_transfer_streams_copy(t, &move, 1, false) < 0 ? NULL : copy;
}

/* ---- gradients ---- */

/* The communicator sums what is multiplied by its weight, in fp32. */
static zoff_status put_weighted(zoff_transfer *t, size_t count)
{
    zoff_accumulate_piece *terms = ((exchange *)t->ranks.wire.own)->terms;
    for (size_t i = 0; i < count; i++) {
        const zoff_cast_piece *m = &t->ranks.moves[i];
        terms[i] = (zoff_accumulate_piece){.count = m->count,
                                           .sum = m->dst,
                                           .grad = m->src,
                                           .dtype = m->src_dtype,
                                           .first = true,
                                           .weights = zoff_zero_reduce_own_weight(t->ranks.reduce)};
    }
    return t->accel->ops->kernels.accumulate(t->accel, t->device.compute, terms, count);
}

static zoff_status put_parts(zoff_transfer *t, size_t bucket, char *out)
{
    size_t moves;
    t->device.computes = true;
    ZOFF_TRY(zoff_transfer_reduce_scatter_list_parts(t, bucket, out, &moves));
    return t->route.adds ? put_weighted(t, moves)
                         : t->accel->ops->kernels.cast(t->accel, t->device.compute, t->ranks.moves, moves);
}

static zoff_status pack_part(void *ctx, size_t bucket, unsigned slot, char *out)
{
    zoff_transfer *t = ctx;
    exchange *r = t->ranks.wire.own;
    if (!r->moves[slot]) {
        ZOFF_TRY(put_parts(t, bucket, out));
        ZOFF_TRY(mark(t, slot, t->device.compute));
    }
    const zoff_status status = finish(t, slot);
    if (status == ZOFF_OK)
        zoff_transfer_reduce_scatter_forget(t, bucket, false);
    return status;
}

/* Enqueue the copy of a bucket's sums, contiguous in memory from `first` to `last`, to the accumulator in host memory. If the
 * states of the bucket are on the device, only sums of squares go to the host. */
static zoff_status bring_down(zoff_transfer *t, size_t bucket, const zoff_accumulate_piece *first,
                              const zoff_accumulate_piece *last)
{
    if (zoff_transfer_place_of(t, bucket) == ZOFF_USED_BY_DEVICE)
        return zoff_transfer_device_norm_put(t, bucket, t->device.down);
    const size_t count = (size_t)(last->sum - first->sum) + last->count;
    float *to = (float *)t->accumulator.map.base + ((size_t)(first->sum - t->ranks.wire.sums) - t->accumulator.device_sums);
    t->device.read_bytes += count * sizeof(float);
    return t->accel->ops->copy(t->accel, t->device.down, to, first->sum, count * sizeof(float));
}

/* The received parts are complete, and the host knows it. The additions go into `down`, which is idle, and not into the stream
 * that packs: that one waits for the trainer's later gradients. */
static zoff_status put_sums(zoff_transfer *t, size_t bucket, unsigned slot, const char *parts, const float *weights)
{
    exchange *r = t->ranks.wire.own;
    const size_t used = zoff_transfer_reduce_scatter_list_sums(t, bucket, parts, weights);
    zoff_accumulate_piece *pieces = t->scratch.accumulate_pieces;
    for (size_t i = 0; t->route.adds && i < used; i++) { /* the sum over ranks has arrived */
        pieces[i].sources = 1;
        pieces[i].weights = NULL;
    }
    if (!r->added[slot])
        ZOFF_TRY(t->accel->ops->kernels.accumulate(t->accel, t->device.down, pieces, used));
    r->added[slot] = true; /* set before anything else can fail, because a retry must not add twice */
    if (used == 0 || t->batch.micro + 1 < t->values->accumulation)
        return ZOFF_OK;
    return bring_down(t, bucket, pieces, pieces + used - 1);
}

static void measure_parts(zoff_transfer *t, size_t bucket, const char *parts, const float *weights)
{
    const zoff_vote before = t->measure.vote;
    if (zoff_transfer_place_of(t, bucket) == ZOFF_USED_BY_DEVICE)
        zoff_transfer_device_norm_take(t, bucket);
    else
        zoff_transfer_measure_early(t, bucket);
    zoff_transfer_reduce_scatter_measured(t, bucket, &before, parts, weights);
}

static zoff_status sum_parts(void *ctx, size_t bucket, unsigned slot, const char *parts, const float *weights)
{
    zoff_transfer *t = ctx;
    exchange *r = t->ranks.wire.own;
    if (!r->moves[slot]) {
        ZOFF_TRY(put_sums(t, bucket, slot, parts, weights));
        ZOFF_TRY(mark(t, slot, t->device.down));
    }
    const zoff_status status = finish(t, slot);
    r->added[slot] = status != ZOFF_OK;
    if (status == ZOFF_OK && t->batch.micro + 1 == t->values->accumulation)
        measure_parts(t, bucket, parts, weights);
    return status;
}

/* ---- weights ---- */

/* In the lists of this file, slots of gathers follow those of reductions. */
static unsigned number_of(unsigned slot)
{
    return ZOFF_REDUCE_SLOTS + slot;
}

/* Weights of a piece in host memory that go to all ranks. NULL: they are on the device, as frozen ones of the program are, and
 * those of a bucket whose states are there. */
static const char *here(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    const zoff_model_param *p = &t->model->params[piece->param];
    return p->engine_owned ? zoff_lending_param_cache_persistent(t->lending, piece)
           : p->frozen     ? NULL
                           : zoff_transfer_staging_weights(t, piece, NULL);
}

/* Put this rank's part into its slot. A bucket has no staging slot if this rank owns nothing of it, or if its states are on the
 * device. */
static zoff_status put_own(zoff_transfer *t, size_t bucket, char *own)
{
    const zoff_plan_span part = zoff_zero_plan_own(t->plan, bucket);
    size_t at = 0;
    if (zoff_transfer_place_of(t, bucket) != ZOFF_USED_BY_HOST) /* the update on the device comes first */
        ZOFF_TRY(zoff_transfer_device_tier_await(t, t->device.up));
    for (size_t i = part.first_piece; i < part.first_piece + part.piece_count; i++) {
        const zoff_plan_piece *piece = &t->plan->pieces[i];
        if (!zoff_transfer_wire_takes_now(t, piece))
            continue;
        const size_t start = zoff_transfer_all_gather_place(t, piece, &at);
        const char *whole = here(t, piece), *from = whole ? whole : zoff_model_params_value(t->model, piece, NULL);
        const bool uploads = whole;
        t->device.write_bytes += uploads ? at - start : 0;
        ZOFF_TRY(t->accel->ops->copy(t->accel, t->device.up, own + start, from, at - start));
    }
    return ZOFF_OK;
}

static zoff_status gather_begin(zoff_transfer *t, size_t bucket, unsigned slot, char **out)
{
    exchange *r = t->ranks.wire.own;
    char *parts = t->ranks.wire.slots + slot * t->ranks.spread_bytes, *own = parts;
    *out = parts;
    if (r->lifted[slot])
        return ZOFF_OK;
    if (!r->moves[number_of(slot)]) {
        for (unsigned rank = 0; rank < t->plan->rank; rank++)
            own += zoff_transfer_all_gather_part_bytes(t, bucket, rank);
        ZOFF_TRY(put_own(t, bucket, own));
        ZOFF_TRY(mark(t, number_of(slot), t->device.up));
    }
    const zoff_status status = finish(t, number_of(slot));
    r->lifted[slot] = status == ZOFF_OK;
    return status;
}

static char *place_there(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return t->model->params[piece->param].engine_owned ? zoff_lending_param_cache_lent(t->lending, piece)
                                                       : zoff_model_params_value(t->model, piece, NULL);
}

static zoff_status put_weights(zoff_transfer *t, size_t bucket, const char *parts)
{
    size_t used = 0;
    for (unsigned rank = 0; rank < t->plan->ranks; rank++) {
        zoff_plan_cursor part = zoff_zero_plan_part(t->plan, bucket, rank);
        zoff_plan_piece piece;
        size_t at = 0;
        while (zoff_zero_plan_next(&part, &piece)) {
            const zoff_dtype dtype = t->model->params[piece.param].dtype;
            if (zoff_transfer_wire_takes_now(t, &piece))
                t->ranks.moves[used++] = (zoff_cast_piece){.count = piece.count,
                                                           .dst = place_there(t, &piece),
                                                           .src = parts + zoff_transfer_all_gather_place(t, &piece, &at),
                                                           .dst_dtype = dtype,
                                                           .src_dtype = dtype};
        }
        parts += zoff_transfer_all_gather_part_bytes(t, bucket, rank);
    }
    return t->accel->ops->kernels.cast(t->accel, t->device.up, t->ranks.moves, used);
}

static zoff_status scatter(zoff_transfer *t, size_t bucket, unsigned slot, const char *parts)
{
    exchange *r = t->ranks.wire.own;
    if (!r->moves[number_of(slot)]) {
        ZOFF_TRY(put_weights(t, bucket, parts));
        /* Count the weights as new from here on, even if this rank owns nothing of the bucket. */
        t->batch.updated += !r->counted[slot];
        r->counted[slot] = true;
        ZOFF_TRY(mark(t, number_of(slot), t->device.up));
    }
    ZOFF_TRY_DONE(finish(t, number_of(slot)));
    r->lifted[slot] = r->counted[slot] = false;
    zoff_transfer_staging_release(t, bucket);
    return ZOFF_OK;
}

static zoff_status gather_end(zoff_transfer *t, size_t bucket, unsigned slot, const char *parts)
{
    const zoff_status status = parts ? scatter(t, bucket, slot, parts) : ZOFF_OK;
    if (!parts)
        zoff_transfer_staging_release(t, bucket);
    t->walk.runs[bucket].gathered = t->walk.runs[bucket].gathered || status == ZOFF_OK;
    return status;
}

const zoff_wire zoff_transfer_wire_device = {.name = "device",
                                             .is_there = true,
                                             .serves = serves,
                                             .open = open_device,
                                             .connect = connect_sums,
                                             .close = close_device,
                                             .device_bytes = device_bytes,
                                             .forget = forget_all,
                                             .zero = zero,
                                             .look = look_at_grad,
                                             .pack = pack_part,
                                             .sum = sum_parts,
                                             .gather_begin = gather_begin,
                                             .gather_end = gather_end};
