/* admit.c: decides which buckets of the walk may borrow states and weights, and borrows them. */
#include "engine_priv.h"

#include "bits.h"

static const zoff_plan_piece *pieces_of(const zoff_engine *e, const zoff_bucket_run *run, size_t *out_count)
{
    const zoff_plan_chunk *chunk = &e->plan.chunks[run->chunk];
    *out_count = chunk->piece_count;
    return &e->plan.pieces[chunk->first_piece];
}

/* Buckets of the second part of the walk have their states on the device and borrow none. */
static bool is_stored(const zoff_engine *e, size_t position)
{
    return position < zoff_transfer_walk_host_count(&e->transfer);
}

bool zoff_engine_admit_needs_states(const zoff_engine *e, const zoff_bucket_run *run)
{
    return e->plan.chunks[run->chunk].bytes && is_stored(e, zoff_transfer_walk_position(&e->transfer, run->chunk)) &&
           zoff_transfer_pieces_take_part(&e->transfer, run->chunk);
}

static bool borrows_weights(const zoff_engine *e, const zoff_bucket_run *run)
{
    return e->plan.chunks[run->chunk].weight_bytes && zoff_transfer_pieces_take_part(&e->transfer, run->chunk);
}

/* Whether the step overwrites all weights of the bucket without reading them: each has a master and a gradient. */
static bool writes_all_weights(const zoff_engine *e, const zoff_bucket_run *run)
{
    size_t count;
    const zoff_plan_piece *pieces = pieces_of(e, run, &count);
    for (size_t i = 0; i < count; i++) {
        const zoff_model_param *p = &e->model.params[pieces[i].param];
        const bool reads = zoff_model_masters_of(&e->model, p)->in_weights || p->frozen;
        if (p->engine_owned && (reads || !*zoff_model_params_flag(&e->model, &pieces[i])))
            return false;
    }
    return true;
}

static bool is_wanted(const zoff_loan *loan)
{
    return !loan->base && !loan->done;
}

/* After an error nothing is borrowed. */
static zoff_status ask(zoff_store *store, size_t chunk, bool as_a_whole, zoff_loan *loan)
{
    void *base;
    zoff_status status =
        as_a_whole ? zoff_offload_store_claim(store, chunk, &base) : zoff_offload_store_fetch(store, chunk, &base);
    loan->base = status == ZOFF_OK ? base : NULL;
    return status;
}

/* Request both states and weights before waiting for either. */
zoff_status zoff_engine_admit_borrow(zoff_engine *e, zoff_bucket_run *run)
{
    zoff_status states = ZOFF_OK, weights = ZOFF_OK;
    if (is_wanted(&run->states) && zoff_engine_admit_needs_states(e, run))
        states = ask(e->store, run->chunk, false, &run->states);
    if (states >= 0 && is_wanted(&run->weights) && borrows_weights(e, run))
        weights = ask(e->lending.store, run->chunk, writes_all_weights(e, run), &run->weights);
    return states != ZOFF_OK ? states : weights;
}

zoff_status zoff_engine_admit_claim(zoff_engine *e, zoff_bucket_run *run)
{
    return is_wanted(&run->states) ? ask(e->store, run->chunk, true, &run->states) : ZOFF_OK;
}

static bool streams_weights(const zoff_engine *e)
{
    return e->lending.store && e->lending.home->streams;
}

/* Whether borrowing the states of the bucket at a position takes a slot of their store. */
static bool states_take_slot(const zoff_engine *e, size_t position, size_t bucket)
{
    return is_stored(e, position) && !zoff_offload_store_resident(e->store, bucket);
}

static bool weights_take_slot(const zoff_engine *e, size_t bucket)
{
    return streams_weights(e) && !zoff_offload_store_resident(e->lending.store, bucket);
}

void zoff_engine_admit_open(zoff_engine *e)
{
    e->walk.streamed_count = 0;
    if (e->settings.tier != ZOFF_TIER_NVME && !streams_weights(e))
        return;
    for (size_t position = 0; position < e->plan.chunk_count; position++) {
        const size_t bucket = zoff_transfer_walk_bucket(&e->transfer, position);
        if (states_take_slot(e, position, bucket) || weights_take_slot(e, bucket))
            e->walk.streamed[e->walk.streamed_count++] = position;
    }
}

/* Index of the first streamed position that is not before `first`. */
static size_t streamed_from(const zoff_engine *e, size_t first)
{
    size_t low = 0, high = e->walk.streamed_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (e->walk.streamed[middle] < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The first walk position that may not borrow yet, if the buckets before `first` are done. A store lends at most as many
 * streamed chunks as it has slots, and any number of chunks that are in DRAM anyway. The search visits only streamed buckets,
 * so its cost depends on the number of slots: kernels call it every 64 Ki elements.
 *
 * Without streamed buckets, those whose gradients have arrived are updated first. A parameter of many slices, such as one
 * matrix of all layers, has buckets that wait for the whole backward pass, and the walk may begin with one of them. */
size_t zoff_engine_admit_until(const zoff_engine *e, size_t first)
{
    const zoff_config_values *values = &e->settings.values;
    const size_t weight_slots = e->lending.slots - zoff_lending_held_kept(&e->lending, e->walk.in_order);
    size_t states = 0, weights = 0;
    if (e->settings.tier != ZOFF_TIER_NVME && !streams_weights(e))
        return e->walk.any_order ? e->plan.chunk_count : zoff_base_bits_min(e->plan.chunk_count, first + 1);
    for (size_t k = streamed_from(e, first); k < e->walk.streamed_count; k++) {
        const size_t position = e->walk.streamed[k], bucket = zoff_transfer_walk_bucket(&e->transfer, position);
        states += states_take_slot(e, position, bucket);
        weights += weights_take_slot(e, bucket);
        if (states > values->slots || weights > weight_slots)
            return position;
    }
    return e->plan.chunk_count;
}

bool zoff_engine_admit_reaches(const zoff_engine *e, const zoff_bucket_run *run)
{
    const size_t position = zoff_transfer_walk_position(&e->transfer, run->chunk);
    const bool waits = is_stored(e, position) || (e->walk.in_order && weights_take_slot(e, run->chunk));
    return !waits || position < zoff_engine_admit_until(e, e->run.first);
}

bool zoff_engine_admit_can_precede(const zoff_engine *e, size_t bucket)
{
    const zoff_plan_chunk *chunk = &e->plan.chunks[bucket];
    return chunk->bytes && !chunk->weight_bytes && bucket >= e->transfer.device.tier.count;
}

static void read_ahead(zoff_engine *e, size_t bucket)
{
    (void)zoff_offload_store_ahead(e->store, bucket); /* its error is reported when the chunk is requested */
}

/* Read the first chunks of the next step, in the order of its walk. */
static void feed_walk(zoff_engine *e)
{
    const size_t end = zoff_base_bits_min(zoff_engine_admit_until(e, 0), zoff_transfer_walk_host_count(&e->transfer));
    for (size_t k = 0; k < e->walk.streamed_count && e->walk.streamed[k] < end; k++)
        read_ahead(e, zoff_transfer_walk_bucket(&e->transfer, e->walk.streamed[k]));
}

/* Read chunks of buckets in the order in which their gradients are expected, as many as there are slots. Those that are updated
 * already are in nobody's way, and are not met again. */
static void feed_expected(zoff_engine *e)
{
    zoff_speculation_order *o = &e->walk.speculation.order;
    uint32_t *at = &o->first;
    for (size_t wanted = 0; e->walk.streamed_count && *at < o->count && wanted < e->settings.values.slots;) {
        const size_t bucket = zoff_speculation_expected(&e->walk.speculation, *at);
        const zoff_bucket_run *run = &e->transfer.walk.runs[bucket];
        const bool is_done = run->ahead.is_refused || run->ahead.is_put;
        if (is_done || !zoff_engine_admit_can_precede(e, bucket) || zoff_offload_store_resident(e->store, bucket)) {
            *at = o->next[*at];
            continue;
        }
        wanted++;
        if (!run->states.base)
            read_ahead(e, bucket);
        at = &o->next[*at];
    }
}

void zoff_engine_admit_feed_ahead(zoff_engine *e)
{
    zoff_base_progress_pump(&e->progress);
    if (zoff_speculation_is_likely(&e->walk.speculation))
        feed_expected(e);
}

/* Read while the last step is still being written, and while the trainer computes gradients. */
void zoff_engine_admit_ahead(zoff_engine *e)
{
    if (zoff_speculation_is_likely(&e->walk.speculation))
        feed_expected(e);
    else
        feed_walk(e);
}

/* Buckets in the order of gradients may hold all slots, while the walk begins with others. */
void zoff_engine_admit_turn_round(zoff_engine *e)
{
    const size_t end = zoff_engine_admit_until(e, 0);
    for (size_t k = 0; e->walk.speculation.places && k < e->walk.streamed_count; k++) {
        if (e->walk.streamed[k] >= end)
            zoff_offload_store_drop(e->store, zoff_transfer_walk_bucket(&e->transfer, e->walk.streamed[k]));
    }
}

/* A prefetched bucket without a gradient would only occupy a slot that others need. */
void zoff_engine_admit_drop_useless(zoff_engine *e)
{
    const size_t end = zoff_base_bits_min(zoff_engine_admit_until(e, 0), zoff_transfer_walk_host_count(&e->transfer));
    for (size_t k = 0; e->run.last && k < e->walk.streamed_count && e->walk.streamed[k] < end; k++) {
        const size_t bucket = zoff_transfer_walk_bucket(&e->transfer, e->walk.streamed[k]);
        if (!zoff_engine_admit_needs_states(e, &e->transfer.walk.runs[bucket]))
            zoff_offload_store_drop(e->store, bucket);
    }
}

static void feed_step(zoff_engine *e)
{
    zoff_base_progress_pump(&e->progress);
    if (!e->run.last || e->run.gate == ZOFF_GATE_SKIP)
        return;
    /* A bucket in DRAM is borrowed in its turn: no read has to be started for it. */
    const size_t end = zoff_engine_admit_until(e, e->run.first);
    for (size_t k = streamed_from(e, e->run.first); k < e->walk.streamed_count && e->walk.streamed[k] < end; k++)
        zoff_base_progress_keep(
            &e->io.states,
            zoff_engine_admit_borrow(e, &e->transfer.walk.runs[zoff_transfer_walk_bucket(&e->transfer, e->walk.streamed[k])]));
}

void zoff_engine_admit_feed(zoff_engine *e)
{
    if (e->walk.feeds_ahead)
        zoff_engine_admit_feed_ahead(e);
    else
        feed_step(e);
}
