/* device_tier.c: buckets whose states stay on the device (offload_optimizer.ratio below 1). They pass through the same rows as
 * other buckets, with the same bits; kernels of the device do the work, in an engine stream beside those for down and up:
 *
 *      compute  accumulate, measure | gate | update 0 | update 1 | update 2
 *      down     gradients of the others ...
 *      CPU                                 | update 9      | update 8 ...
 *
 * These are the first buckets of the plan. Their gradients come last in a backward pass, when the downloads for the other
 * buckets are already in flight. The device keeps their gradients and sends only sums of squares. Code that reads their states
 * outside of a step gets a copy on the host, one bucket at a time.
 *
 * With several ranks, such buckets need a communicator that accesses the device: the gradient sums are then on the device
 * (device_direct.c). Each rank keeps its own part of the states of the same buckets. */
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
    double wanted = 0, before = 0;
    if (t->values->ratio == 1) /* links.c rejects any other ratio where there is no device */
        return 0;
    if (t->values->ratio == 0)
        return plan->chunk_count;
    for (size_t b = 0; b < plan->chunk_count; b++)
        wanted += (1 - t->values->ratio) * (double)elements_of(t, plan, b);
    for (size_t b = 0; b < plan->chunk_count; b++) {
        const double after = before + (double)elements_of(t, plan, b);
        if (after > wanted && after - wanted > wanted - before)
            return b;
        before = after;
    }
    return plan->chunk_count;
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

void zoff_transfer_device_tier_plan(const zoff_transfer *t, const zoff_plan *plan, uint64_t *out_device_bytes,
                                    uint64_t *out_host_bytes)
{
    const size_t buckets = zoff_transfer_device_tier_buckets(t, plan);
    size_t most;
    const size_t bytes = lay_out(plan, buckets, NULL, &most);
    *out_device_bytes = bytes + t->route.gradients->device_sums(t, zoff_transfer_device_tier_sums_of(plan, buckets));
    *out_host_bytes = most;
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
    ZOFF_TRY(t->accel->ops->event_open(t->accel, &k->updated));
    const size_t bytes = lay_out(t->plan, k->count, k->at, &most);
    if (most) {
        ZOFF_TRY(zoff_base_map_alloc(most, "states copied from the device", ZOFF_MAP_INTERLEAVED, &k->landing));
        ZOFF_TRY(zoff_transfer_streams_pin(t, &k->landing));
        k->pinned = true;
    }
    ZOFF_TRY(take(t, bytes, "states", &k->states));
    return take(t, t->route.gradients->device_sums(t, t->accumulator.device_sums), "sums of gradients", &k->sums);
}

/* Call when no work is in a stream. */
void zoff_transfer_device_tier_close(zoff_transfer *t)
{
    zoff_device_tier *k = &t->device.tier;
    void *there[] = {k->states, k->sums};
    for (size_t i = 0; i < sizeof there / sizeof there[0]; i++) {
        if (there[i])
            t->accel->ops->free(t->accel, there[i]);
    }
    if (k->updated)
        t->accel->ops->event_close(t->accel, k->updated);
    if (k->pinned)
        zoff_transfer_streams_unpin(t, &k->landing);
    zoff_base_map_free(&k->landing);
    zoff_base_mem_free(k->at);
    *k = (zoff_device_tier){.count = 0};
}

/* ---- outside of a step ---- */

static zoff_status copy_states(zoff_transfer *t, size_t bucket, bool up)
{
    zoff_device_tier *k = &t->device.tier;
    char *there = k->states + k->at[bucket];
    const zoff_cast_piece move = {.count = t->plan->chunks[bucket].bytes / sizeof(float),
                                  .dst = up ? there : k->landing.base,
                                  .src = up ? k->landing.base : there,
                                  .dst_dtype = ZOFF_F32,
                                  .src_dtype = ZOFF_F32};
    return zoff_transfer_streams_copy(t, &move, 1, up);
}

zoff_status zoff_transfer_device_tier_borrow(zoff_transfer *t, size_t bucket, char **out)
{
    *out = t->device.tier.landing.base;
    return copy_states(t, bucket, false);
}

zoff_status zoff_transfer_device_tier_give_back(zoff_transfer *t, size_t bucket)
{
    return copy_states(t, bucket, true);
}

char *zoff_transfer_device_tier_begin_fill(zoff_transfer *t, size_t bucket)
{
    return memset(t->device.tier.landing.base, 0, t->plan->chunks[bucket].bytes);
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
                                        .sum = t->route.place->device_sum(t, &pieces[i]),
                                        .grad = zoff_transfer_grads_there(t, &pieces[i]),
                                        .dtype = t->model->params[pieces[i].param].grad_dtype,
                                        .first = !(flag & ZOFF_SLICE_PRESENT),
                                        .weights = t->batch.weight == 1 ? NULL : &t->batch.weight};
    }
    t->device.computes = t->device.computes || used;
    return t->accel->ops->kernels.accumulate(t->accel, t->device.compute, t->scratch.accumulate_pieces, used);
}

/* The update of a piece: states, gradients and weights, all in device memory. */
static zoff_adam_piece make_piece(const zoff_transfer *t, const zoff_bucket_run *run, const zoff_plan_piece *piece)
{
    const zoff_device_tier *k = &t->device.tier;
    const zoff_model_param *p = &t->model->params[piece->param];
    const zoff_chunk_memory memory = {.states = k->states + k->at[run->chunk]};
    zoff_adam_piece a = zoff_transfer_pieces_of_update(t, &t->plan->chunks[run->chunk], piece, memory);
    a.consts = &t->scratch.consts[p->group];
    a.grad = zoff_transfer_pieces_kept_gradient(t, piece, &a.grad_dtype);
    a.copy_out = p->dtype != ZOFF_F32 ? zoff_model_params_value(t->model, piece, NULL) : NULL;
    const zoff_adam_states touched = zoff_adam_hyper_rule_states(a.consts->rule);
    a.m = touched.m ? a.m : NULL;
    a.v = touched.v ? a.v : NULL;
    return a;
}

/* fp32 weights are copies of the master weights. Repeating the copy is harmless. */
static zoff_status copy_weights(zoff_transfer *t, const zoff_plan_piece *piece, const zoff_adam_piece *a)
{
    if (t->model->params[piece->param].dtype != ZOFF_F32)
        return ZOFF_OK;
    return t->accel->ops->copy(t->accel, t->device.compute, zoff_model_params_value(t->model, piece, NULL), a->master,
                               a->count * sizeof(float));
}

/* The update waits for the trainer's streams, because their work up to the hand-over of gradients may read the old weights. An
 * error either leaves the states unchanged, or means that the device is lost. */
zoff_status zoff_transfer_device_tier_update(void *ctx, zoff_bucket_run *run)
{
    zoff_transfer *t = ctx;
    size_t count, used = 0;
    const zoff_plan_piece *pieces = pieces_of(t, run, &count);
    uint64_t elements = 0;
    if (!zoff_transfer_pieces_take_part(t, run->chunk))
        return ZOFF_OK;
    for (size_t i = 0; i < count; i++) {
        if (!*zoff_model_params_flag(t->model, &pieces[i]))
            continue;
        t->scratch.adam_pieces[used] = make_piece(t, run, &pieces[i]);
        elements += t->scratch.adam_pieces[used++].count;
    }
    ZOFF_TRY(zoff_transfer_streams_compute_follow(t));
    if (!run->updates) {
        ZOFF_TRY(t->accel->ops->kernels.update(t->accel, t->device.compute, t->scratch.adam_pieces, used));
        run->updates = true;
        t->batch.updated++;
        t->info->numbers.elements_updated += elements;
        t->info->numbers.elements_on_device += elements;
    }
    for (size_t i = 0, n = 0; i < count; i++) {
        if (*zoff_model_params_flag(t->model, &pieces[i]))
            ZOFF_TRY(copy_weights(t, &pieces[i], &t->scratch.adam_pieces[n++]));
    }
    return ZOFF_OK;
}

zoff_status zoff_transfer_device_tier_await(zoff_transfer *t, void *stream)
{
    ZOFF_TRY(t->accel->ops->event_record(t->accel, t->device.tier.updated, t->device.compute));
    return t->accel->ops->event_await(t->accel, stream, t->device.tier.updated);
}
