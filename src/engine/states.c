/* SPDX-License-Identifier: Apache-2.0 */
/* states.c: states outside of a step: their initial values, and passes over all of them that convert between weights and
 * masters. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

#include <string.h>

/* Make the cast of one piece between weights and masters. False where there is nothing to do, or are no weights yet. */
static bool make_cast(const zoff_engine *e, const zoff_plan_chunk *chunk, const zoff_plan_piece *piece,
                      zoff_chunk_memory memory, bool to_master, zoff_cast_piece *out)
{
    const zoff_model_param *p = &e->model.params[piece->param];
    void *value = e->transfer.route.link->weights(&e->transfer, piece, memory.weights);
    char *stored = memory.states ? zoff_transfer_pieces_state(chunk, piece, memory.states, ZOFF_STREAM_MASTER) : NULL;
    if (!value || !zoff_model_masters_cast(&e->model, p, value, stored, to_master, out))
        return false;
    out->count = piece->count;
    out->stream = zoff_adam_update_streams(e->plan.state_bytes); /* a chunk is one of many, or goes to a device or a drive */
    return true;
}

enum { ALL = UINT32_MAX }; /* in place of a parameter */

/* Cast the pieces of one parameter, or ALL. */
static void cast_chunk(zoff_engine *e, size_t chunk, zoff_chunk_memory memory, zoff_param only, bool to_master)
{
    const zoff_plan_chunk *c = &e->plan.chunks[chunk];
    size_t used = 0;
    for (size_t i = 0; i < c->piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[c->first_piece + i];
        if (only == ALL || piece->param == only)
            used += make_cast(e, c, piece, memory, to_master, &e->transfer.scratch.cast_pieces[used]);
    }
    zoff_adam_cast_run(e->transfer.threads.now, e->transfer.scratch.cast_pieces, used);
    if (!to_master)
        zoff_lending_param_cache_refresh(&e->lending, chunk, memory.weights, true);
}

void zoff_engine_states_keep_weights(zoff_engine *e, size_t chunk, zoff_chunk_memory memory, bool first)
{
    const zoff_plan_chunk *c = &e->plan.chunks[chunk];
    size_t used = 0;
    for (size_t i = 0; i < c->piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[c->first_piece + i];
        const zoff_model_param *p = &e->model.params[piece->param];
        const bool to_master = first || zoff_model_masters_of(&e->model, p)->in_weights;
        if (p->dtype == ZOFF_F32 && (first || *zoff_model_params_flag(&e->model, piece)))
            used += make_cast(e, c, piece, memory, to_master, &e->transfer.scratch.cast_pieces[used]);
    }
    zoff_adam_cast_run(e->transfer.threads.now, e->transfer.scratch.cast_pieces, used);
}

/* Set the initial accumulators of Adagrad, if they are not zero. */
static void fill_accumulators(const zoff_engine *e, const zoff_plan_chunk *c, char *base)
{
    const float first = (float)e->settings.values.initial_accumulator;
    for (size_t i = 0; first != 0 && i < c->piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[c->first_piece + i];
        const zoff_model_param *p = &e->model.params[piece->param];
        const bool is_sum = !p->frozen && zoff_model_groups_own(&e->model, p->group)->optimizer == ZOFF_OPTIMIZER_ADAGRAD;
        const zoff_dtype dtype = zoff_model_moments_of(&e->model, p) == ZOFF_MOMENTS_BF16 ? ZOFF_BF16 : ZOFF_F32;
        const size_t bytes = zoff_adam_dtype_bytes(dtype);
        char *sums = zoff_transfer_pieces_state(c, piece, base, ZOFF_STREAM_V);
        const zoff_cast_piece cast = {.count = 1, .dst = sums, .src = &first, .dst_dtype = dtype, .src_dtype = ZOFF_F32};
        if (is_sum)
            zoff_adam_cast_run(1, &cast, 1);
        for (size_t k = 1; is_sum && k < piece->count; k++)
            memcpy(sums + k * bytes, sums, bytes);
    }
}

/* The pieces are listed as for an update of the whole chunk, so that each thread first touches the memory that it later
 * updates. */
void zoff_engine_states_fill(void *ctx, size_t chunk, void *base)
{
    zoff_engine *e = ctx;
    const zoff_plan_chunk *c = &e->plan.chunks[chunk];
    size_t used = 0;
    if (!e->transfer.device.fault)
        e->transfer.device.fault = ZOFF_LINK(&e->transfer, lend, (&e->transfer, chunk, true)); /* seal reports the error */
    if (e->transfer.device.fault)
        return;
    const bool is_there = zoff_transfer_device_tier_alone(&e->transfer, chunk);
    base = is_there ? zoff_transfer_device_tier_begin_fill(&e->transfer, chunk) : base;
    const zoff_chunk_memory memory = {.states = base};
    for (size_t i = 0; i < c->piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[c->first_piece + i];
        if (!e->model.params[piece->param].frozen)
            e->transfer.scratch.adam_pieces[used++] = zoff_transfer_pieces_of_update(&e->transfer, c, piece, memory);
    }
    zoff_adam_touch_run(e->settings.threads, e->transfer.scratch.adam_pieces, used);
    fill_accumulators(e, c, base);
    zoff_engine_states_keep_weights(e, chunk, memory, true);
    zoff_transfer_staging_release(&e->transfer, chunk);
    if (is_there)
        e->transfer.device.fault = zoff_transfer_device_tier_put(&e->transfer, chunk, base, ZOFF_STORE_ALL);
}

void zoff_engine_states_fill_weights(void *ctx, size_t chunk, void *base)
{
    zoff_engine *e = ctx;
    const zoff_plan_chunk *c = &e->plan.chunks[chunk];
    for (size_t i = 0; i < c->piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[c->first_piece + i];
        const zoff_model_param *p = &e->model.params[piece->param];
        const char *first = p->engine_owned ? zoff_model_params_value(&e->model, piece, NULL) : NULL;
        if (first)
            memcpy((char *)base + piece->weight_offset, first, piece->count * zoff_adam_dtype_bytes(p->dtype));
    }
    zoff_lending_param_cache_refresh(&e->lending, chunk, base, true);
}

/* A save that is under way reads the same weights. */
zoff_status zoff_engine_states_check_left(zoff_engine *e, const char *call)
{
    const zoff_status status = zoff_traps_weights_compare(e->life.traps, call);
    if (status < 0 && e->io.guard)
        ZOFF_KEEP_ERROR(e->io.guard->changed(e->io.guard->ctx));
    return status;
}

/* ---- borrowing ----
 *
 * A pass borrows the states of a bucket from the store, or from a device, which lends a copy of one bucket at a time. With
 * zoff.persist both have them, and the store lends them. Then the device gets the first states once the store is open, because
 * until then its memory may be freed after any error. */

static zoff_status ask(void *ctx)
{
    return zoff_offload_broker_ask(ctx);
}

/* The streams of a pass, as arrays of the store. */
static unsigned streams_of(const zoff_pass *pass)
{
    return pass->streams ? pass->streams : ZOFF_STORE_ALL;
}

/* Whether all engine-owned weights of a chunk have a master in it. */
static bool has_all_masters(const zoff_engine *e, const zoff_plan_chunk *c)
{
    for (size_t i = 0; i < c->piece_count; i++) {
        const zoff_model_param *p = &e->model.params[e->plan.pieces[c->first_piece + i].param];
        const zoff_master_form *form = zoff_model_masters_of(&e->model, p);
        if (p->engine_owned && (!form->bytes || form->is_split))
            return false;
    }
    return true;
}

zoff_status zoff_engine_states_place_borrow(zoff_engine *e, const zoff_pass *pass, size_t chunk, zoff_lent_chunk *out)
{
    const zoff_plan_chunk *c = &e->plan.chunks[chunk];
    zoff_demand *d = &out->demand;
    *out = (zoff_lent_chunk){.demand = {.kind = ZOFF_DEMAND_PASS, .chunk = chunk}};
    if (pass->states && c->bytes && zoff_transfer_device_tier_alone(&e->transfer, chunk))
        ZOFF_TRY(zoff_transfer_device_tier_borrow(&e->transfer, chunk, &out->memory.states));
    else if (pass->states && c->bytes)
        d->states = (zoff_demand_part){.store = e->store, .arrays = streams_of(pass), .overwrites = pass->claims};
    if (pass->weights && c->weight_bytes)
        d->weights = (zoff_demand_part){
            .store = e->lending.store, .arrays = ZOFF_STORE_ALL, .overwrites = pass->makes_weights && has_all_masters(e, c)};
    zoff_poller *poller = d->states.store ? &e->io.states : &e->io.weights;
    const zoff_status status = zoff_base_progress_wait(&e->progress, poller, ask, d);
    if (status < 0)
        zoff_offload_broker_withdraw(d);
    ZOFF_TRY(status);
    out->memory.weights = d->weights.base;
    if (d->states.store)
        out->memory.states = d->states.base;
    return ZOFF_OK;
}

/* Give the states of a chunk back. After an error of the device the store keeps what it has. */
static zoff_status give_states(zoff_engine *e, const zoff_pass *pass, zoff_lent_chunk *lent)
{
    zoff_demand *d = &lent->demand;
    const unsigned changed = pass->changes_states ? streams_of(pass) : 0;
    if (lent->memory.states)
        ZOFF_TRY(zoff_transfer_device_tier_put(&e->transfer, d->chunk, lent->memory.states, changed));
    return zoff_offload_broker_give(d, &d->states, changed, pass->keeps);
}

/* Give back both, even if the first cannot be written: it then stays in its slot, and the next pass or step writes it again. */
zoff_status zoff_engine_states_place_give_back(zoff_engine *e, const zoff_pass *pass, zoff_lent_chunk *lent)
{
    zoff_saved_error saved;
    zoff_demand *d = &lent->demand;
    const zoff_status status = give_states(e, pass, lent);
    zoff_base_status_save(&saved);
    const zoff_status weights =
        zoff_offload_broker_give(d, &d->weights, pass->changes_weights ? ZOFF_STORE_ALL : 0, pass->keeps);
    if (status >= 0)
        return weights;
    zoff_offload_broker_withdraw(d);
    zoff_base_status_restore(&saved);
    return status;
}

/* Bring the states of the store to the device, because the store was just opened, or went back to a commit. */
zoff_status zoff_engine_states_place_bring_all(zoff_engine *e)
{
    const zoff_pass pass = {.states = true};
    for (size_t chunk = 0; chunk < e->transfer.device.tier.count; chunk++) {
        zoff_lent_chunk lent;
        if (!e->plan.chunks[chunk].bytes || zoff_transfer_device_tier_alone(&e->transfer, chunk))
            continue;
        ZOFF_TRY(zoff_agreement_open_pulse(&e->agreement)); /* the pulse does nothing after seal */
        ZOFF_TRY(zoff_engine_states_place_borrow(e, &pass, chunk, &lent));
        const zoff_status status = zoff_transfer_device_tier_put(&e->transfer, chunk, lent.memory.states, ZOFF_STORE_ALL);
        /* the states are unchanged, so nothing can fail */
        (void)zoff_offload_broker_give(&lent.demand, &lent.demand.states, 0, false);
        ZOFF_TRY(status);
    }
    return ZOFF_OK;
}

/* ---- passes over the chunks ---- */

/* A pass may use all slots: chunks that were prefetched for the next step give theirs up, and are read again afterwards. */
zoff_status zoff_engine_states_begin_pass(zoff_engine *e, const zoff_pass *pass)
{
    if (e->io.guard && (pass->changes_states || pass->changes_weights))
        e->io.guard->before_all(e->io.guard->ctx);
    if (pass->changes_weights)
        ZOFF_TRY(zoff_lending_param_gather_finish(&e->lending));
    if (pass->changes_weights) {
        ZOFF_TRY(zoff_lending_copies_settle(&e->lending));
        zoff_lending_param_cache_clear(&e->lending);
    } else if (pass->weights) {
        ZOFF_TRY(zoff_lending_held_let_go(&e->lending));
    }
    ZOFF_TRY(zoff_transfer_device_tier_calm(&e->transfer));
    return zoff_engine_stores_retry(e);
}

/* After an error, too, no operation of the pass stays in flight. The first error is returned. */
zoff_status zoff_engine_states_end_pass(zoff_engine *e, const zoff_pass *pass, zoff_status status)
{
    if (status < 0) {
        ZOFF_KEEP_ERROR((void)zoff_engine_stores_drain(e));
        return status;
    }
    status = zoff_engine_stores_drain(e);
    ZOFF_TRY(pass->changes_states ? zoff_engine_stores_commit_pass(e, status) : status);
    zoff_engine_admit_ahead(e);
    return ZOFF_OK;
}

static zoff_status cast_one(zoff_engine *e, const zoff_pass *pass, size_t chunk, zoff_param only, bool to_master)
{
    zoff_lent_chunk lent;
    zoff_saved_error saved;
    ZOFF_TRY(ZOFF_LINK(&e->transfer, lend, (&e->transfer, chunk, to_master)));
    zoff_status status = zoff_engine_states_place_borrow(e, pass, chunk, &lent);
    if (status < 0) {
        zoff_transfer_staging_release(&e->transfer, chunk);
        return status;
    }
    cast_chunk(e, chunk, lent.memory, only, to_master);
    if (!to_master)
        status = zoff_transfer_device_upload(&e->transfer, chunk, true);
    zoff_transfer_staging_release(&e->transfer, chunk);
    if (status == ZOFF_OK)
        return zoff_engine_states_place_give_back(e, pass, &lent);
    zoff_base_status_save(&saved);
    (void)zoff_engine_states_place_give_back(e, pass, &lent); /* the store reports its error later */
    zoff_base_status_restore(&saved);
    return status;
}

/* Uploads read staging slots and write the caller's weights, so none may stay in flight, even after an error. */
static zoff_status settle(zoff_engine *e, zoff_status status)
{
    if (status == ZOFF_OK)
        return ZOFF_LINK(&e->transfer, settle, (&e->transfer));
    ZOFF_KEEP_ERROR((void)ZOFF_LINK(&e->transfer, settle, (&e->transfer)));
    return status;
}

/* Weights that are half of their masters need no push. A copy of weights that the engine lends may. */
static bool is_cast(const zoff_engine *e, const zoff_plan_chunk *c, bool to_master)
{
    bool has_whole = false;
    for (size_t i = 0; i < c->piece_count; i++)
        has_whole = has_whole ||
                    !zoff_model_masters_of(&e->model, &e->model.params[e->plan.pieces[c->first_piece + i].param])->is_split;
    return c->lengths[ZOFF_STREAM_MASTER] && (to_master || has_whole || c->weight_bytes);
}

static zoff_pass cast_pass(const zoff_engine *e, bool to_master)
{
    return (zoff_pass){.states = true,
                       .weights = e->lending.store != NULL,
                       .changes_states = to_master,
                       .changes_weights = !to_master,
                       .makes_weights = !to_master};
}

/* All chunks that have masters; end_pass() follows. */
static zoff_status cast_all(zoff_engine *e, const zoff_pass *pass, bool to_master)
{
    ZOFF_TRY(zoff_engine_states_begin_pass(e, pass));
    zoff_status status = ZOFF_OK;
    for (size_t chunk = 0; status == ZOFF_OK && chunk < e->plan.chunk_count; chunk++) {
        if (is_cast(e, &e->plan.chunks[chunk], to_master))
            status = cast_one(e, pass, chunk, ALL, to_master);
    }
    return settle(e, status);
}

zoff_status zoff_engine_states_pull(zoff_engine *e)
{
    const zoff_pass pass = cast_pass(e, true);
    return zoff_engine_states_end_pass(e, &pass, cast_all(e, &pass, true));
}

/* As a range that the program sets: chunks stay in their slots for the next call, and their writes are delayed. */
zoff_status zoff_engine_states_pull_param(zoff_engine *e, zoff_param param)
{
    const zoff_model_param *p = &e->model.params[param];
    zoff_pass pass = cast_pass(e, true);
    size_t next = 0;
    if (!zoff_model_masters_of(&e->model, p)->bytes)
        return ZOFF_OK; /* the weights are the masters, or there are none */
    pass.streams = 1u << ZOFF_STREAM_MASTER;
    pass.keeps = true;
    e->ranges.last = e->ranges.unsaved = true;
    zoff_status status = zoff_engine_states_begin_pass(e, &pass);
    for (size_t slice = 0; slice < p->slices; slice++) {
        const zoff_slice_buckets has = e->model.slice_buckets[p->first_flag + slice];
        for (size_t chunk = zoff_base_bits_max(has.first, next); has.first != UINT32_MAX && chunk <= has.last; chunk++) {
            if (status == ZOFF_OK && is_cast(e, &e->plan.chunks[chunk], true))
                status = cast_one(e, &pass, chunk, param, true);
            next = chunk + 1;
        }
    }
    return settle(e, status);
}

/* A rank that fails here repeats the call, for the others wait for its part of the weights. */
zoff_status zoff_engine_states_push(zoff_engine *e)
{
    const zoff_pass pass = cast_pass(e, false);
    zoff_status status = cast_all(e, &pass, false);
    if (status == ZOFF_OK)
        status = zoff_engine_stores_spread_weights(e);
    return zoff_engine_states_end_pass(e, &pass, status);
}

zoff_status zoff_engine_states_rollback(zoff_engine *e)
{
    ZOFF_TRY(zoff_offload_store_rollback(e->store));
    zoff_base_progress_forget(&e->io.states); /* an error about what was undone */
    return zoff_engine_states_place_bring_all(e);
}

/* ---- a checkpoint replaces states ---- */

static zoff_loading_chunk *loading_of(zoff_states_load *load, size_t chunk)
{
    return &load->chunks[chunk % ZOFF_STATES_LOADING];
}

zoff_status zoff_engine_states_load_begin(zoff_engine *e, zoff_states_load *out)
{
    *out = (zoff_states_load){.engine = e, .was_whole = e->life.phase == ZOFF_PHASE_IDLE};
    out->pass = (zoff_pass){.states = true,
                            .weights = e->lending.store != NULL,
                            .changes_states = true,
                            .changes_weights = e->lending.store != NULL};
    return zoff_engine_states_begin_pass(e, &out->pass);
}

zoff_status zoff_engine_states_load_lend(zoff_states_load *load, size_t chunk, bool fills_all, zoff_chunk_memory *out)
{
    zoff_engine *e = load->engine;
    zoff_loading_chunk *l = loading_of(load, chunk);
    const zoff_pass pass = {.states = true, .weights = load->pass.weights, .makes_weights = true, .claims = fills_all};
    ZOFF_TRY(ZOFF_LINK(&e->transfer, lend, (&e->transfer, chunk, false)));
    const zoff_status status = zoff_engine_states_place_borrow(e, &pass, chunk, &l->lent);
    if (status < 0)
        zoff_transfer_staging_release(&e->transfer, chunk);
    ZOFF_TRY(status);
    l->is_lent = true;
    *out = l->lent.memory;
    return ZOFF_OK;
}

void zoff_engine_states_load_renew(zoff_states_load *load, size_t chunk)
{
    const zoff_plan_chunk *c = &load->engine->plan.chunks[chunk];
    char *states = loading_of(load, chunk)->lent.memory.states;
    for (unsigned stream = ZOFF_STREAM_M; stream <= ZOFF_STREAM_V; stream++) {
        if (c->lengths[stream])
            memset(states + c->starts[stream], 0, c->lengths[stream]);
    }
    if (c->lengths[ZOFF_STREAM_V])
        fill_accumulators(load->engine, c, states);
}

zoff_status zoff_engine_states_load_weights(zoff_states_load *load, size_t chunk)
{
    cast_chunk(load->engine, chunk, loading_of(load, chunk)->lent.memory, ALL, false);
    return zoff_transfer_device_upload(&load->engine->transfer, chunk, true);
}

zoff_status zoff_engine_states_load_take(zoff_states_load *load, size_t chunk)
{
    zoff_loading_chunk *l = loading_of(load, chunk);
    zoff_transfer_staging_release(&load->engine->transfer, chunk);
    l->is_lent = false;
    return zoff_engine_states_place_give_back(load->engine, &load->pass, &l->lent);
}

/* Give up a chunk that is being filled. The store keeps what it has. */
static void give_up(zoff_states_load *load)
{
    for (unsigned i = 0; i < ZOFF_STATES_LOADING; i++) {
        zoff_loading_chunk *l = &load->chunks[i];
        if (!l->is_lent)
            continue;
        zoff_transfer_staging_release(&load->engine->transfer, l->lent.demand.chunk);
        zoff_offload_broker_withdraw(&l->lent.demand);
        l->is_lent = false;
    }
}

/* No more than a ring has slots. Chunks on a device share one copy. */
size_t zoff_engine_states_load_most(const zoff_states_load *load, size_t chunk)
{
    const zoff_engine *e = load->engine;
    const zoff_config_values *v = &e->settings.values;
    size_t most = zoff_transfer_device_tier_alone(&e->transfer, chunk) ? 1 : ZOFF_STATES_LOADING;
    if (e->settings.tier == ZOFF_TIER_NVME)
        most = zoff_base_bits_min(most, (size_t)v->slots);
    if (e->lending.store && e->lending.home->streams)
        most = zoff_base_bits_min(most, (size_t)e->lending.slots);
    return most;
}

static bool sends_weights(const zoff_engine *e)
{
    return zoff_transfer_ranks_have_parts(&e->transfer) || e->lending.secondary.store;
}

/* Write all chunks. No rank commits before all have succeeded. `out_sends`: ranks have begun to send each other the new
 * weights; the same on all ranks. */
static zoff_status write_all(zoff_states_load *load, zoff_status status, bool *out_sends)
{
    zoff_engine *e = load->engine;
    if (status < 0)
        give_up(load);
    status = settle(e, status);
    if (status == ZOFF_OK)
        status = zoff_engine_stores_drain(e);
    ZOFF_TRY(zoff_agreement_vote_success(&e->agreement.ranks, status));
    *out_sends = sends_weights(e);
    return zoff_agreement_vote_success(&e->agreement.ranks, zoff_engine_stores_spread_weights(e));
}

/* Whether states and weights can be those before the load again, on all ranks. Frozen weights are in no commit. */
static bool can_restore(const zoff_engine *e, bool was_whole)
{
    return was_whole && zoff_offload_store_can_rollback(e->store) && !zoff_model_params_owns_frozen(&e->model);
}

/* Go back to the last commit, on all ranks or on none. Nobody repeats this, so no rank sends weights before all have theirs.
 * `out_sends`: as in write_all() */
static zoff_status restore(zoff_engine *e, bool *out_sends)
{
    const zoff_pass pass = cast_pass(e, false);
    ZOFF_TRY(zoff_agreement_vote_success(&e->agreement.ranks, zoff_engine_states_rollback(e)));
    zoff_status status = zoff_agreement_vote_success(&e->agreement.ranks, cast_all(e, &pass, false));
    *out_sends = status == ZOFF_OK && sends_weights(e);
    if (status == ZOFF_OK)
        status = zoff_engine_stores_spread_weights(e);
    return zoff_agreement_vote_success(&e->agreement.ranks, zoff_engine_states_end_pass(e, &pass, status));
}

void zoff_engine_states_unload(zoff_engine *e)
{
    e->life.awaits_weights = true;
    e->life.phase = ZOFF_PHASE_UNLOADED;
}

/* The result is the same on all ranks. */
zoff_status zoff_engine_states_load_end(zoff_states_load *load, int64_t t, zoff_status status)
{
    zoff_engine *e = load->engine;
    zoff_saved_error saved;
    const int64_t before = e->t;
    bool sends = false;
    status = write_all(load, status, &sends);
    const bool commits = status == ZOFF_OK;
    bool is_lost = sends && !commits;
    e->t = t;
    status = zoff_engine_states_end_pass(e, &load->pass, status);
    if (commits)
        status = zoff_agreement_vote_success(&e->agreement.ranks, status);
    zoff_engine_states_unload(e);
    zoff_traps_weights_note(e->life.traps);
    if (status == ZOFF_OK) {
        e->life.phase = ZOFF_PHASE_IDLE;
        e->life.awaits_weights = false;
        e->model.skipped_in_row = 0; /* a load begins a new row of skipped steps */
        return ZOFF_OK;
    }
    zoff_base_status_save(&saved);
    e->t = before;
    if (!is_lost && can_restore(e, load->was_whole)) {
        const bool is_restored = restore(e, &sends) == ZOFF_OK;
        is_lost = sends && !is_restored;
        e->life.phase = is_restored ? ZOFF_PHASE_IDLE : ZOFF_PHASE_UNLOADED;
        e->life.awaits_weights = !is_restored;
        zoff_traps_weights_note(e->life.traps);
    }
    /* Weights that are on their way to other ranks would overwrite later ones. */
    if (is_lost || zoff_engine_stores_is_spreading(e))
        e->life.phase = ZOFF_PHASE_LOST;
    zoff_base_status_restore(&saved);
    return status;
}
