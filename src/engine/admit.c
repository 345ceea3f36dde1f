/* SPDX-License-Identifier: Apache-2.0 */
/* admit.c: what the buckets of the walk ask the broker for, and in which order. Buckets of a store of files ask in the order of
 * the walk. With several ranks that order is the same on all, because a bucket may need memory of other ranks until they have
 * sent theirs. One that went ahead on one rank could keep the slot that the other ranks wait for. */
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

/* The arrays of a bucket's states that its next pass changes. A bucket of matrices has two passes, the second one once its
 * directions are orthogonal. */
static unsigned arrays_of(const zoff_engine *e, const zoff_bucket_run *run, bool is_whole)
{
    if (!e->plan.chunks[run->chunk].round)
        return ZOFF_STORE_ALL;
    return 1u << (is_whole ? ZOFF_STREAM_MASTER : ZOFF_STREAM_M);
}

static bool has_arrays(const zoff_engine *e, const zoff_bucket_run *run)
{
    const zoff_plan_chunk *c = &e->plan.chunks[run->chunk];
    return c->round ? c->lengths[run->is_whole ? ZOFF_STREAM_MASTER : ZOFF_STREAM_M] != 0 : c->bytes != 0;
}

/* Whether a slice of the bucket has a gradient in this step, and the bucket's states are in a host store. */
static bool needs_states(const zoff_engine *e, const zoff_bucket_run *run)
{
    return has_arrays(e, run) && is_stored(e, zoff_transfer_walk_position(&e->transfer, run->chunk)) &&
           zoff_transfer_pieces_take_part(&e->transfer, run->chunk);
}

static bool borrows_weights(const zoff_engine *e, const zoff_bucket_run *run)
{
    const zoff_plan_chunk *c = &e->plan.chunks[run->chunk];
    return c->weight_bytes && (!c->round || run->is_whole) && zoff_transfer_pieces_take_part(&e->transfer, run->chunk);
}

/* Whether the step overwrites all weights of the bucket without reading them, because each has a master and a gradient. */
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

static bool wants_weights(const zoff_engine *e, const zoff_bucket_run *run)
{
    return borrows_weights(e, run) && !run->lent.weights.done;
}

static bool wants_states(const zoff_engine *e, const zoff_bucket_run *run)
{
    return needs_states(e, run) && !run->lent.states.done;
}

zoff_status zoff_engine_admit_borrow(zoff_engine *e, zoff_bucket_run *run)
{
    zoff_demand *d = &run->lent;
    if (!d->is_granted) {
        d->kind = run->ahead.is_so ? ZOFF_DEMAND_AHEAD : ZOFF_DEMAND_STEP;
        d->chunk = run->chunk;
        d->states.store = wants_states(e, run) ? e->store : NULL;
        d->weights.store = wants_weights(e, run) ? e->lending.store : NULL;
        d->states.arrays = arrays_of(e, run, run->is_whole);
        d->weights.arrays = ZOFF_STORE_ALL;
        d->weights.overwrites = d->weights.store && writes_all_weights(e, run);
    }
    const zoff_status status = d->states.store || d->weights.store ? zoff_offload_broker_ask(d) : ZOFF_OK;
    if (status < 0) /* the bucket has nothing any more, and must not wait behind later ones */
        zoff_engine_admit_ask_anew(e, run->chunk);
    return status;
}

zoff_status zoff_engine_admit_claim(zoff_engine *e, zoff_bucket_run *run)
{
    zoff_demand *d = &run->lent;
    if (!d->is_granted) {
        d->kind = ZOFF_DEMAND_STEP;
        d->chunk = run->chunk;
        d->states = (zoff_demand_part){.store = e->store, .overwrites = true};
    }
    return zoff_offload_broker_ask(d);
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

/* Whether a bucket has memory for all that it needs, or needs none in this step. One that was updated ahead needs none if its
 * update holds; otherwise it asks when it has left the rows ahead of the step. */
static bool is_served(const zoff_engine *e, const zoff_bucket_run *run)
{
    if (run->ahead.is_put)
        return zoff_speculation_holds(&e->walk.speculation, e->transfer.scratch.consts);
    return run->lent.is_granted || (!wants_states(e, run) && !wants_weights(e, run));
}

static size_t round_of(const zoff_engine *e, size_t streamed)
{
    return e->plan.chunks[zoff_transfer_walk_bucket(&e->transfer, e->walk.streamed[streamed])].round;
}

/* Rounds get the memory in the order of the walk, which all ranks have. The buckets of an earlier round may take no slots on
 * this rank, so they would not be asked first. While no round has the memory, buckets that are whole have had it. */
bool zoff_engine_admit_takes_turn(zoff_engine *e, size_t bucket)
{
    zoff_matrices *x = &e->walk.matrices.all;
    const size_t round = e->plan.chunks[bucket].round;
    for (size_t position = zoff_transfer_walk_position(&e->transfer, bucket); !x->turn.round && position--;) {
        const zoff_bucket_run *before = &e->transfer.walk.runs[zoff_transfer_walk_bucket(&e->transfer, position)];
        const size_t other = e->plan.chunks[before->chunk].round;
        if (other && other != round && !before->is_whole)
            return false;
        if (other && other != round)
            break;
    }
    return zoff_matrices_turn(x, bucket);
}

/* A bucket of matrices whose round has no memory would keep a slot that those of another round need. */
static bool may_ask(zoff_engine *e, const zoff_bucket_run *run)
{
    return !e->plan.chunks[run->chunk].round || zoff_engine_admit_takes_turn(e, run->chunk);
}

static zoff_bucket_run *run_of(const zoff_engine *e, size_t streamed)
{
    return &e->transfer.walk.runs[zoff_transfer_walk_bucket(&e->transfer, e->walk.streamed[streamed])];
}

/* Whether the round before a position of the list has all its memory: that of its masters, too, for which its buckets ask once
 * their directions are orthogonal. A bucket behind them that went ahead could keep its slot until they have sent their
 * weights. */
static bool has_served_round(zoff_engine *e, size_t streamed)
{
    const size_t round = streamed ? round_of(e, streamed - 1) : 0;
    size_t k = streamed;
    if (!round || round_of(e, streamed) == round)
        return true;
    while (k && round_of(e, k - 1) == round)
        k--;
    for (; k < streamed; k++) {
        zoff_bucket_run *run = run_of(e, k);
        if (run->is_whole && !is_served(e, run))
            zoff_base_progress_keep(&e->io.states, zoff_engine_admit_borrow(e, run));
        if (!run->is_whole || !is_served(e, run))
            return false;
    }
    return true;
}

/* Before the gate nobody knows whether the step updates anything, so chunks are only read ahead. Behind it the buckets ask in
 * the order of the walk, and none before those in front of it have their memory. */
static void ask_in_order(zoff_engine *e)
{
    while (e->walk.asked < e->walk.streamed_count) {
        zoff_bucket_run *run = run_of(e, e->walk.asked);
        if (!has_served_round(e, e->walk.asked))
            return;
        if (!is_served(e, run) && !run->ahead.is_put && may_ask(e, run))
            zoff_base_progress_keep(&e->io.states, zoff_engine_admit_borrow(e, run));
        if (!is_served(e, run))
            return;
        e->walk.asked++;
    }
}

/* In the order of the walk here, too: a bucket that went ahead of another one of its round could keep the slot that this one
 * needs, and wait for its turn behind it. */
bool zoff_engine_admit_may_fetch(const zoff_engine *e, const zoff_bucket_run *run)
{
    const size_t round = e->plan.chunks[run->chunk].round;
    size_t position = zoff_transfer_walk_position(&e->transfer, run->chunk);
    while (run->is_whole && position--) {
        const zoff_bucket_run *before = &e->transfer.walk.runs[zoff_transfer_walk_bucket(&e->transfer, position)];
        if (e->plan.chunks[before->chunk].round != round)
            break;
        if (!before->is_whole || !is_served(e, before))
            return false;
    }
    return true;
}

/* The first position from this one on whose bucket does not wait for the others of its round. */
static size_t behind_waiting(const zoff_engine *e, size_t position)
{
    while (position < e->plan.chunk_count) {
        const zoff_bucket_run *run = &e->transfer.walk.runs[zoff_transfer_walk_bucket(&e->transfer, position)];
        if (!e->plan.chunks[run->chunk].round || run->is_whole || !run->is_written)
            break;
        position++;
    }
    return position;
}

/* The position behind the last bucket that has its memory, or is the next to ask for it. Without streamed buckets, those whose
 * gradients have arrived are updated first. A parameter of many slices, such as one matrix of all layers, has buckets that wait
 * for the whole backward pass, and the walk may begin with one of them. */
static size_t end_of(const zoff_engine *e)
{
    const size_t count = e->plan.chunk_count;
    if (e->settings.tier != ZOFF_TIER_NVME && !streams_weights(e))
        return e->walk.any_order ? count : zoff_base_bits_min(count, behind_waiting(e, e->run.first) + 1);
    return e->walk.asked < e->walk.streamed_count ? e->walk.streamed[e->walk.asked] + 1 : count;
}

size_t zoff_engine_admit_until(zoff_engine *e)
{
    if (e->walk.asked < e->walk.streamed_count) {
        (void)zoff_lending_held_poll(&e->lending); /* the next fetch returns the error */
        ask_in_order(e);
    }
    return end_of(e);
}

bool zoff_engine_admit_reaches(const zoff_engine *e, const zoff_bucket_run *run)
{
    const size_t position = zoff_transfer_walk_position(&e->transfer, run->chunk);
    const bool waits = is_stored(e, position) || (e->walk.in_order && weights_take_slot(e, run->chunk));
    return !waits || position < end_of(e);
}

bool zoff_engine_admit_has_first(const zoff_engine *e)
{
    for (size_t k = 0; k < e->walk.streamed_count; k++) {
        const zoff_bucket_run *run = run_of(e, k);
        if (wants_states(e, run) && !run->ahead.is_put)
            return run->lent.states.base;
    }
    return true;
}

void zoff_engine_admit_ask_anew(zoff_engine *e, size_t bucket)
{
    const size_t position = zoff_transfer_walk_position(&e->transfer, bucket);
    while (e->walk.asked && e->walk.streamed[e->walk.asked - 1] >= position)
        e->walk.asked--;
}

bool zoff_engine_admit_can_precede(const zoff_engine *e, size_t bucket)
{
    const zoff_plan_chunk *chunk = &e->plan.chunks[bucket];
    return chunk->bytes && !chunk->weight_bytes && !chunk->round && bucket >= e->transfer.device.tier.count;
}

/* The arrays that a bucket needs next in the open step, or first in the next one; 0: none. Between its two passes a bucket of
 * matrices has given back the first array, and does not ask for the second one yet. */
static unsigned arrays_ahead(const zoff_engine *e, const zoff_bucket_run *run, bool is_next)
{
    const bool is_between = run->is_written && !run->is_whole && zoff_transfer_pieces_take_part(&e->transfer, run->chunk);
    if (is_next)
        return arrays_of(e, run, false);
    if (is_between)
        return arrays_of(e, run, true);
    return wants_states(e, run) && !run->ahead.is_put ? arrays_of(e, run, run->is_whole) : 0;
}

/* The first streamed bucket of the open step that may not be through its rows. */
static size_t first_streamed(const zoff_engine *e)
{
    size_t low = 0, high = e->walk.streamed_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (e->walk.streamed[middle] < e->run.first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Read the first chunks of the next step, or those of the open one that have a gradient, in the order of the walk, as many as
 * there are slots. */
static void feed_walk(zoff_engine *e, bool is_next)
{
    size_t count = 0;
    for (size_t k = is_next ? 0 : first_streamed(e); k < e->walk.streamed_count && count < e->walk.hints.most; k++) {
        const zoff_bucket_run *run = run_of(e, k);
        const unsigned arrays = arrays_ahead(e, run, is_next);
        if (!arrays || !is_stored(e, e->walk.streamed[k]) || zoff_offload_store_resident(e->store, run->chunk))
            continue;
        e->walk.hints.arrays[count] = arrays;
        e->walk.hints.chunks[count++] = run->chunk;
    }
    zoff_offload_broker_hint(e->store, e->walk.hints.chunks, e->walk.hints.arrays, count);
}

/* Read chunks of buckets in the order in which their gradients are expected, as many as there are slots. Those that are updated
 * already are in nobody's way, and are not met again. */
static void feed_expected(zoff_engine *e)
{
    zoff_speculation_order *o = &e->walk.speculation.order;
    uint32_t *at = &o->first;
    size_t count = 0;
    for (size_t wanted = 0; e->walk.streamed_count && *at < o->count && wanted < e->walk.hints.most;) {
        const size_t bucket = zoff_speculation_expected(&e->walk.speculation, *at);
        const zoff_bucket_run *run = &e->transfer.walk.runs[bucket];
        const bool is_done = run->ahead.is_refused || run->ahead.is_put;
        if (is_done || !zoff_engine_admit_can_precede(e, bucket) || zoff_offload_store_resident(e->store, bucket)) {
            *at = o->next[*at];
            continue;
        }
        wanted++;
        if (!run->lent.is_granted) {
            e->walk.hints.arrays[count] = ZOFF_STORE_ALL;
            e->walk.hints.chunks[count++] = bucket;
        }
        at = &o->next[*at];
    }
    zoff_offload_broker_hint(e->store, e->walk.hints.chunks, e->walk.hints.arrays, count);
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
        feed_walk(e, true);
}

zoff_status zoff_engine_admit_close_ranges(zoff_engine *e)
{
    if (!e->ranges.last)
        return ZOFF_OK;
    ZOFF_TRY(zoff_engine_stores_commit_ranges(e));
    e->ranges.last = false;
    zoff_engine_admit_ahead(e);
    return ZOFF_OK;
}

static void feed_step(zoff_engine *e)
{
    zoff_base_progress_pump(&e->progress);
    if (!e->run.last || e->run.gate == ZOFF_GATE_SKIP)
        return;
    if (e->run.gate == ZOFF_GATE_OPEN)
        (void)zoff_engine_admit_until(e);
    if (e->run.gate != ZOFF_GATE_OPEN ||
        e->walk.matrices.all.turn.round) /* masters of matrices that are being made orthogonal */
        feed_walk(e, false);
}

void zoff_engine_admit_feed(zoff_engine *e)
{
    if (e->walk.feeds_ahead)
        zoff_engine_admit_feed_ahead(e);
    else
        feed_step(e);
}
