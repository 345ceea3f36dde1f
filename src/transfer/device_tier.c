/* SPDX-License-Identifier: Apache-2.0 */
/* device_tier.c: buckets whose states stay on the device (offload_optimizer.ratio below 1). They pass through the same rows as
 * other buckets, with the same bits; kernels of the device do the work, in an engine stream beside those for down and up:
 *
 *      compute  accumulate, measure | gate | update 0 | update 1 | update 2
 *      down     gradients of the others ... | states 0 (zoff.persist)
 *      CPU                                 | update 9      | update 8 ...
 *
 * These are the first buckets of the plan. Their gradients come last in a backward pass, when the downloads for the other
 * buckets are already in flight. The device keeps their gradients and sends only sums of squares. Code that reads their states
 * outside of a step gets a copy on the host, one bucket at a time.
 *
 * With several ranks, each rank keeps its own part of the states of the same buckets. A communicator that accesses the device
 * leaves the gradient sums there (wire_device.c). A communicator of the host sums on the host: then the sums go up before the
 * update, and the updated weights come down behind it. Weights of the engine come down, too, to where the engine keeps them.
 *
 * With zoff.persist the store has these states as well: each step copies them there, and the commit waits for it. */
#include "transfer.h"

#include "bits.h"
#include "try.h"

#include <string.h>

/* ---- which buckets ---- */

/* Count trained elements of all ranks, so that every rank keeps the same buckets on its device. */
static uint64_t elements_of(const zoff_transfer *t, const zoff_plan *plan, size_t bucket)
{
    const zoff_plan_chunk *c = &plan->chunks[bucket];
    uint64_t elements = 0;
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++)
        elements += t->model->params[plan->runs[i].param].frozen ? 0 : plan->runs[i].count;
    return elements;
}

/* The number of whole buckets whose elements come nearest to the share 1 - ratio. Ratios 1 and 0 mean exactly none and all. */
size_t zoff_transfer_device_tier_buckets(const zoff_transfer *t, const zoff_plan *plan)
{
    /* The states of matrices stay on the host, which makes their directions orthogonal. */
    const size_t most = plan->rounds.count ? plan->rounds.all[0].first_chunk : plan->chunk_count;
    double wanted = 0, before = 0;
    if (t->values->ratio == 1) /* route.c rejects any other ratio where there is no device */
        return 0;
    if (t->values->ratio == 0)
        return most;
    for (size_t b = 0; b < plan->chunk_count; b++)
        wanted += (1 - t->values->ratio) * (double)elements_of(t, plan, b);
    for (size_t b = 0; b < most; b++) {
        const double after = before + (double)elements_of(t, plan, b);
        if (after > wanted && after - wanted > wanted - before)
            return b;
        before = after;
    }
    return most;
}

/* A communicator of the device leaves the sums there, and one of the host has them on the host. Device memory that the engine
 * lends for gradients of one rank is reused in the same backward pass, so these go to the host, too. */
zoff_used_place zoff_transfer_device_tier_place(const zoff_transfer *t)
{
    const bool stays = t->route.wire ? t->route.wire->is_there : !zoff_transfer_arena_device_bytes(t);
    return stays ? ZOFF_USED_BY_DEVICE : ZOFF_USED_BY_DEVICE_FROM_HOST;
}

/* ---- memory ---- */

size_t zoff_transfer_device_tier_sums_of(const zoff_plan *plan, size_t buckets)
{
    if (buckets == 0)
        return 0;
    const size_t next = buckets < plan->chunk_count ? plan->chunks[buckets].first_piece : plan->piece_count;
    return next < plan->piece_count ? plan->pieces[next].owned_offset : plan->owned_elements;
}

/* Bytes of the states of these buckets, and of the largest bucket. `at`, unless NULL, receives the offset of each bucket. */
static size_t lay_out(const zoff_plan *plan, size_t buckets, size_t *at, size_t *out_most)
{
    size_t bytes = 0, most = 0;
    for (size_t b = 0; b < buckets; b++) {
        if (at)
            at[b] = bytes;
        bytes += plan->chunks[b].bytes;
        most = zoff_base_bits_max(most, plan->chunks[b].bytes);
    }
    *out_most = most;
    return bytes;
}

/* Bytes of gradients from the host, and of weights for the host, for the largest of these buckets. */
typedef struct passing {
    size_t gradients, weights;
} passing;

enum { ALIGN = 64 };

static size_t padded(size_t bytes)
{
    return zoff_base_bits_align(bytes, ALIGN);
}

static size_t gradient_bytes(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    return padded(piece->count * zoff_adam_dtype_bytes(zoff_transfer_pieces_dtype(t, &t->model->params[piece->param])));
}

/* Bytes of a piece's weights to pass; 0 for fp32 weights, because these are copied from their masters. */
static size_t weight_bytes(const zoff_transfer *t, const zoff_plan_piece *piece)
{
    const zoff_model_param *p = &t->model->params[piece->param];
    return p->dtype == ZOFF_F32 ? 0 : padded(piece->count * zoff_adam_dtype_bytes(p->dtype));
}

static passing measure_passing(const zoff_transfer *t, const zoff_plan *plan, size_t buckets)
{
    passing most = {.gradients = 0};
    const bool is_down = zoff_transfer_device_tier_place(t) == ZOFF_USED_BY_DEVICE_FROM_HOST;
    for (size_t b = 0; b < buckets; b++) {
        passing one = {.gradients = 0};
        for (size_t i = 0; i < plan->chunks[b].piece_count; i++) {
            const zoff_plan_piece *piece = &plan->pieces[plan->chunks[b].first_piece + i];
            const zoff_model_param *p = &t->model->params[piece->param];
            if (p->frozen)
                continue;
            one.gradients += is_down ? gradient_bytes(t, piece) : 0;
            one.weights += is_down || p->engine_owned ? weight_bytes(t, piece) : 0;
        }
        most.gradients = zoff_base_bits_max(most.gradients, one.gradients);
        most.weights = zoff_base_bits_max(most.weights, one.weights);
    }
    return most;
}

size_t zoff_transfer_device_tier_kept(const zoff_transfer *t, const zoff_plan *plan)
{
    return zoff_transfer_device_tier_place(t) == ZOFF_USED_BY_DEVICE_FROM_HOST ? 0 : zoff_transfer_device_tier_buckets(t, plan);
}

static size_t sums_bytes(const zoff_transfer *t, const zoff_plan *plan)
{
    const size_t kept = zoff_transfer_device_tier_kept(t, plan);
    /* With several ranks these sums are part of the sums of all buckets, so they need no memory of their own. */
    return t->route.sums && !t->route.wire ? zoff_transfer_device_tier_sums_of(plan, kept) * sizeof(float) : 0;
}

static size_t landing_bytes(const zoff_transfer *t, size_t most)
{
    return t->values->persist ? 0 : most;
}

void zoff_transfer_device_tier_plan(const zoff_transfer *t, const zoff_plan *plan, uint64_t *out_device_bytes,
                                    uint64_t *out_host_bytes)
{
    const size_t buckets = zoff_transfer_device_tier_buckets(t, plan);
    const passing pass = measure_passing(t, plan, buckets);
    size_t most;
    *out_device_bytes = lay_out(plan, buckets, NULL, &most);
    *out_device_bytes += sums_bytes(t, plan) + pass.gradients + pass.weights;
    *out_host_bytes = landing_bytes(t, most);
}

static zoff_status take(zoff_transfer *t, size_t bytes, const char *what, void *out)
{
    void *memory = NULL;
    if (bytes) {
        zoff_status status = t->accel->ops->alloc(t->accel, bytes, &memory);
        if (status < 0)
            return zoff_base_status_prefix(status, "offload_optimizer.ratio is %g, which needs %s of device memory for %s: ",
                                           t->values->ratio, zoff_base_words_bytes(bytes), what);
    }
    memcpy(out, &memory, sizeof memory);
    return ZOFF_OK;
}

zoff_status zoff_transfer_device_tier_open(zoff_transfer *t)
{
    zoff_device_tier *k = &t->device.tier;
    size_t most;
    if (k->count == 0)
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(k->count, sizeof *k->at, "states on the device", &k->at));
    ZOFF_TRY(zoff_base_mem_alloc(k->count, sizeof *k->landed, "states on the device", &k->landed));
    ZOFF_TRY(t->accel->ops->event_open(t->accel, &k->updated));
    for (size_t b = 0; b < k->count; b++)
        ZOFF_TRY(t->accel->ops->event_open(t->accel, &k->landed[b]));
    const size_t bytes = lay_out(t->plan, k->count, k->at, &most);
    if (landing_bytes(t, most)) {
        ZOFF_TRY(zoff_base_map_alloc(most, "states copied from the device", ZOFF_MAP_INTERLEAVED, &k->landing));
        ZOFF_TRY(zoff_transfer_streams_pin(t, &k->landing));
        k->pinned = true;
    }
    if (k->place == ZOFF_USED_BY_DEVICE_FROM_HOST && t->accumulator.map.base) {
        ZOFF_TRY(zoff_transfer_streams_pin(t, &t->accumulator.map));
        k->sums_here = t->accumulator.map.base;
    }
    const passing pass = measure_passing(t, t->plan, k->count);
    k->weights_at = pass.gradients;
    ZOFF_TRY(take(t, bytes, "states", &k->states));
    ZOFF_TRY(take(t, pass.gradients + pass.weights, "gradients and weights on their way", &k->passing));
    ZOFF_TRY(take(t, sums_bytes(t, t->plan), "sums of gradients", &k->sums));
    t->accumulator.there = k->sums ? k->sums : t->accumulator.there;
    return ZOFF_OK;
}

static void unpin_weights(zoff_transfer *t)
{
    if (t->device.tier.slots)
        t->accel->ops->pages.unpin(t->accel, t->device.tier.slots);
    t->device.tier.slots = NULL;
}

/* Free everything. Call when no work is in a stream. */
void zoff_transfer_device_tier_close(zoff_transfer *t)
{
    zoff_device_tier *k = &t->device.tier;
    void *there[] = {k->states, k->sums, k->passing};
    for (size_t i = 0; i < sizeof there / sizeof there[0]; i++) {
        if (there[i])
            t->accel->ops->free(t->accel, there[i]);
    }
    if (k->updated)
        t->accel->ops->event_close(t->accel, k->updated);
    for (size_t b = 0; k->landed && b < k->count; b++) {
        if (k->landed[b])
            t->accel->ops->event_close(t->accel, k->landed[b]);
    }
    unpin_weights(t);
    if (k->sums_here)
        t->accel->ops->pages.unpin(t->accel, k->sums_here);
    if (k->pinned)
        zoff_transfer_streams_unpin(t, &k->landing);
    zoff_base_map_free(&k->landing);
    zoff_base_mem_free(k->at);
    zoff_base_mem_free(k->landed);
    *k = (zoff_device_tier){.count = 0};
}

zoff_status zoff_transfer_device_tier_pin(zoff_transfer *t, const void *slots, size_t bytes)
{
    void *memory = (void *)(uintptr_t)slots;
    if (t->device.tier.count == 0 || bytes == 0)
        return ZOFF_OK;
    ZOFF_TRY(t->accel->ops->pages.pin(t->accel, memory, bytes));
    t->device.tier.slots = memory;
    return ZOFF_OK;
}

/* ---- outside of a step ---- */

zoff_status zoff_transfer_device_tier_borrow(zoff_transfer *t, size_t bucket, char **out)
{
    const zoff_device_tier *k = &t->device.tier;
    const zoff_cast_piece move = {.count = t->plan->chunks[bucket].bytes / sizeof(float),
                                  .dst = k->landing.base,
                                  .src = k->states + k->at[bucket],
                                  .dst_dtype = ZOFF_F32,
                                  .src_dtype = ZOFF_F32};
    *out = k->landing.base;
    return zoff_transfer_streams_copy(t, &move, 1, false);
}

/* The padding between two streams belongs to the first, so that a store gets the same bytes each time. */
zoff_status zoff_transfer_device_tier_put(zoff_transfer *t, size_t bucket, const char *base, unsigned streams)
{
    zoff_device_tier *k = &t->device.tier;
    const zoff_plan_chunk *c = &t->plan->chunks[bucket];
    zoff_cast_piece moves[ZOFF_STREAM_COUNT];
    size_t count = 0, end = c->bytes;
    for (unsigned stream = ZOFF_STREAM_COUNT; bucket < k->count && stream-- > 0;) {
        const size_t from = c->starts[stream];
        if (c->lengths[stream] && streams & (1u << stream))
            moves[count++] = (zoff_cast_piece){.count = (end - from) / sizeof(float),
                                               .dst = k->states + k->at[bucket] + from,
                                               .src = base + from,
                                               .dst_dtype = ZOFF_F32,
                                               .src_dtype = ZOFF_F32};
        end = c->lengths[stream] ? from : end;
    }
    const zoff_status status = count ? zoff_transfer_streams_copy(t, moves, count, true) : ZOFF_OK;
    k->unsettled = k->unsettled || (status < 0 && t->pollers.device.is_overdue);
    return status;
}

char *zoff_transfer_device_tier_begin_fill(zoff_transfer *t, size_t bucket)
{
    char *base = t->device.tier.landing.base;
    if (base) /* base is NULL if the rank owns nothing of these buckets */
        memset(base, 0, t->plan->chunks[bucket].bytes);
    return base;
}

/* ---- a step ---- */

static const zoff_plan_piece *pieces_of(const zoff_transfer *t, const zoff_bucket_run *run, size_t *out_count)
{
    const zoff_plan_chunk *chunk = &t->plan->chunks[run->chunk];
    *out_count = chunk->piece_count;
    return &t->plan->pieces[chunk->first_piece];
}

zoff_status zoff_transfer_device_tier_accumulate(void *ctx, zoff_bucket_run *run)
{
    zoff_transfer *t = ctx;
    size_t count, used = 0;
    const zoff_plan_piece *pieces = pieces_of(t, run, &count);
    for (size_t i = 0; i < count; i++) {
        const uint8_t flag = *zoff_model_params_flag(t->model, &pieces[i]);
        if (flag & ZOFF_SLICE_READY)
            t->scratch.accumulate_pieces[used++] =
                (zoff_accumulate_piece){.count = pieces[i].count,
                                        .sum = t->accumulator.there + pieces[i].owned_offset,
                                        .grad = zoff_transfer_arena_there(t, &pieces[i]),
                                        .dtype = t->model->params[pieces[i].param].grad_dtype,
                                        .first = !(flag & ZOFF_SLICE_PRESENT),
                                        .weights = t->batch.weight == 1 ? NULL : &t->batch.weight};
    }
    t->device.computes = t->device.computes || used;
    return t->accel->ops->kernels.accumulate(t->accel, t->device.compute, t->scratch.accumulate_pieces, used);
}

/* The place of a piece's weights on the host. NULL: they are updated in place, on the device. */
static char *weights_here(const zoff_transfer *t, const zoff_bucket_run *run, const zoff_plan_piece *piece)
{
    return zoff_transfer_staging_weights(t, piece, run->lent.weights.base);
}

/* The update of a piece: states, gradients and weights, all in device memory. `gradient`: that from the host, or NULL. */
static zoff_adam_piece make_piece(const zoff_transfer *t, const zoff_bucket_run *run, const zoff_plan_piece *piece,
                                  const char *gradient)
{
    const zoff_device_tier *k = &t->device.tier;
    const zoff_model_param *p = &t->model->params[piece->param];
    const zoff_chunk_memory memory = {.states = k->states + k->at[run->chunk]};
    zoff_adam_piece a = zoff_transfer_pieces_of_update(t, &t->plan->chunks[run->chunk], piece, memory);
    a.consts = &t->scratch.consts[zoff_model_groups_index(t->model, p)];
    a.grad = gradient ? gradient : zoff_transfer_pieces_gradient(t, piece, true, &a.grad_dtype);
    const bool is_here = p->dtype != ZOFF_F32 && !weights_here(t, run, piece);
    a.copy_out = is_here ? zoff_model_params_value(t->model, piece, NULL) : NULL;
    const zoff_adam_states touched = zoff_adam_hyper_rule_states(a.consts->rule);
    a.m = touched.m ? a.m : NULL;
    a.v = touched.v ? a.v : NULL;
    return a;
}

/* Copy the gradient of a piece to `at`. */
static zoff_status bring_gradient(zoff_transfer *t, const zoff_plan_piece *piece, char *at)
{
    zoff_dtype dtype;
    const void *from = zoff_transfer_pieces_gradient(t, piece, false, &dtype);
    const size_t bytes = piece->count * zoff_adam_dtype_bytes(dtype);
    t->device.write_bytes += bytes;
    return t->accel->ops->copy(t->accel, t->device.compute, at, from, bytes);
}

/* List the updates of a bucket, and start to bring their gradients. `out_used`: their number. */
static zoff_status list_updates(zoff_transfer *t, const zoff_bucket_run *run, size_t *out_used, uint64_t *out_elements)
{
    size_t count, used = 0;
    const zoff_plan_piece *pieces = pieces_of(t, run, &count);
    const bool is_down = t->device.tier.place == ZOFF_USED_BY_DEVICE_FROM_HOST;
    char *at = t->device.tier.passing;
    *out_elements = 0;
    for (size_t i = 0; i < count; i++) {
        if (!*zoff_model_params_flag(t->model, &pieces[i]))
            continue;
        if (is_down)
            ZOFF_TRY(bring_gradient(t, &pieces[i], at));
        t->scratch.adam_pieces[used++] = make_piece(t, run, &pieces[i], is_down ? at : NULL);
        if (is_down)
            at += gradient_bytes(t, &pieces[i]);
        *out_elements += pieces[i].count;
    }
    *out_used = used;
    return ZOFF_OK;
}

/* Copy the weights of a piece from its masters: on the device, or by way of `at` to the host. This may be repeated, unlike an
 * update. */
static zoff_status copy_weights(zoff_transfer *t, const zoff_bucket_run *run, const zoff_plan_piece *piece, char *at)
{
    const zoff_device_tier *k = &t->device.tier;
    const zoff_accel_ops *ops = t->accel->ops;
    const zoff_dtype dtype = t->model->params[piece->param].dtype;
    char *states = k->states + k->at[run->chunk], *here = weights_here(t, run, piece);
    const void *master = zoff_transfer_pieces_state(&t->plan->chunks[run->chunk], piece, states, ZOFF_STREAM_MASTER);
    const size_t bytes = piece->count * zoff_adam_dtype_bytes(dtype);
    if (!here && dtype != ZOFF_F32)
        return ZOFF_OK;
    if (!here)
        return ops->copy(t->accel, t->device.compute, zoff_model_params_value(t->model, piece, NULL), master, bytes);
    const zoff_cast_piece cast = {.count = piece->count, .dst = at, .src = master, .dst_dtype = dtype, .src_dtype = ZOFF_F32};
    if (dtype != ZOFF_F32)
        ZOFF_TRY(ops->kernels.cast(t->accel, t->device.compute, &cast, 1));
    ZOFF_TRY(ops->copy(t->accel, t->device.compute, here, dtype != ZOFF_F32 ? at : master, bytes));
    t->device.read_bytes += bytes;
    return ZOFF_OK;
}

static zoff_status copy_all_weights(zoff_transfer *t, const zoff_bucket_run *run)
{
    size_t count;
    const zoff_plan_piece *pieces = pieces_of(t, run, &count);
    char *at = t->device.tier.passing ? t->device.tier.passing + t->device.tier.weights_at : NULL;
    for (size_t i = 0; i < count; i++) {
        if (!*zoff_model_params_flag(t->model, &pieces[i]))
            continue;
        ZOFF_TRY(copy_weights(t, run, &pieces[i], at));
        if (weights_here(t, run, &pieces[i]) && at)
            at += weight_bytes(t, &pieces[i]);
    }
    return ZOFF_OK;
}

/* The update waits for the trainer's streams, because their work up to the hand-over of gradients may read the old weights. An
 * error either leaves the states unchanged, or means that the device is lost. */
zoff_status zoff_transfer_device_tier_update(void *ctx, zoff_bucket_run *run)
{
    zoff_transfer *t = ctx;
    size_t used;
    uint64_t elements;
    if (!zoff_transfer_pieces_take_part(t, run->chunk))
        return ZOFF_OK;
    ZOFF_TRY(zoff_transfer_streams_compute_follow(t));
    if (!run->updates) {
        ZOFF_TRY(list_updates(t, run, &used, &elements));
        ZOFF_TRY(t->accel->ops->kernels.update(t->accel, t->device.compute, t->scratch.adam_pieces, used));
        run->updates = true;
        t->batch.updated++;
        t->info->numbers.elements_updated += elements;
        t->info->numbers.elements_on_device += elements;
    }
    ZOFF_TRY(copy_all_weights(t, run));
    return t->accel->ops->event_record(t->accel, t->device.tier.landed[run->chunk], t->device.compute);
}

static zoff_status poll(zoff_transfer *t, zoff_bucket_run *run)
{
    zoff_device_tier *k = &t->device.tier;
    k->waits += !run->lands;
    run->lands = true;
    ZOFF_TRY_DONE(t->accel->ops->event_poll(t->accel, k->landed[run->chunk]));
    k->waits--;
    run->lands = false;
    return ZOFF_OK;
}

zoff_status zoff_transfer_device_tier_poll(zoff_transfer *t, zoff_bucket_run *run)
{
    return zoff_transfer_pieces_take_part(t, run->chunk) ? poll(t, run) : ZOFF_OK;
}

/* The copy has a stream of its own, so that updates of other buckets do not wait for it. */
static zoff_status start_save(zoff_transfer *t, const zoff_bucket_run *run)
{
    const zoff_device_tier *k = &t->device.tier;
    const zoff_accel_ops *ops = t->accel->ops;
    const size_t bytes = t->plan->chunks[run->chunk].bytes;
    ZOFF_TRY(ops->event_await(t->accel, t->device.down, k->landed[run->chunk]));
    ZOFF_TRY(ops->copy(t->accel, t->device.down, run->lent.states.base, k->states + k->at[run->chunk], bytes));
    ZOFF_TRY(ops->event_record(t->accel, k->landed[run->chunk], t->device.down));
    t->device.read_bytes += bytes;
    return ZOFF_OK;
}

zoff_status zoff_transfer_device_tier_save(zoff_transfer *t, zoff_bucket_run *run)
{
    if (!run->saves)
        ZOFF_TRY(start_save(t, run));
    run->saves = true;
    return poll(t, run);
}

zoff_status zoff_transfer_device_tier_settle(zoff_transfer *t)
{
    if (t->device.tier.count == 0)
        return ZOFF_OK;
    ZOFF_TRY(zoff_transfer_streams_sync(t, t->device.compute));
    ZOFF_TRY(zoff_transfer_streams_sync(t, t->device.down));
    ZOFF_TRY(zoff_transfer_streams_sync(t, t->device.up));
    t->device.tier.waits = 0;
    t->device.tier.unsettled = false;
    return ZOFF_OK;
}

zoff_status zoff_transfer_device_tier_calm(zoff_transfer *t)
{
    return t->device.tier.unsettled ? zoff_transfer_device_tier_settle(t) : ZOFF_OK;
}

zoff_status zoff_transfer_device_tier_await(zoff_transfer *t, void *stream)
{
    ZOFF_TRY(t->accel->ops->event_record(t->accel, t->device.tier.updated, t->device.compute));
    return t->accel->ops->event_await(t->accel, stream, t->device.tier.updated);
}
