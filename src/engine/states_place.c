/* states_place.c: where the states of a bucket are, and how a pass outside of a step borrows them: in a store of the host, on
 * the device, or in both. */
#include "engine_priv.h"

#include "try.h"

static zoff_status ask(void *ctx)
{
    return zoff_offload_broker_ask(ctx);
}

/* The streams of a pass, as arrays of the store. */
static unsigned streams_of(const zoff_pass *pass)
{
    return pass->streams ? pass->streams : ZOFF_STORE_ALL;
}

/* ---- the store of the host ---- */

static char *host_begin_fill(zoff_engine *e, size_t chunk, char *base)
{
    (void)e;
    (void)chunk;
    return base;
}

static zoff_status host_end_fill(zoff_engine *e, size_t chunk, const char *base)
{
    (void)e;
    (void)chunk;
    (void)base;
    return ZOFF_OK;
}

/* The demand asks for them, with the weights. */
static zoff_status host_borrow(zoff_engine *e, const zoff_pass *pass, zoff_lent_chunk *lent)
{
    lent->demand.states = (zoff_demand_part){.store = e->store, .arrays = streams_of(pass), .overwrites = pass->claims};
    return ZOFF_OK;
}

static zoff_status host_give_back(zoff_engine *e, const zoff_pass *pass, zoff_lent_chunk *lent)
{
    (void)e;
    return zoff_offload_broker_give(&lent->demand, &lent->demand.states, pass->changes_states ? streams_of(pass) : 0,
                                    pass->keeps);
}

static const zoff_states_place HOST = {
    .begin_fill = host_begin_fill, .end_fill = host_end_fill, .borrow = host_borrow, .give_back = host_give_back};

/* ---- the device: a copy of one bucket at a time ---- */

static char *device_begin_fill(zoff_engine *e, size_t chunk, char *base)
{
    (void)base;
    return zoff_transfer_device_tier_begin_fill(&e->transfer, chunk);
}

static zoff_status device_end_fill(zoff_engine *e, size_t chunk, const char *base)
{
    (void)base;
    return zoff_transfer_device_tier_give_back(&e->transfer, chunk);
}

static zoff_status device_borrow(zoff_engine *e, const zoff_pass *pass, zoff_lent_chunk *lent)
{
    (void)pass;
    return zoff_transfer_device_tier_borrow(&e->transfer, lent->demand.chunk, &lent->memory.states);
}

static zoff_status device_give_back(zoff_engine *e, const zoff_pass *pass, zoff_lent_chunk *lent)
{
    return lent->memory.states && pass->changes_states ? zoff_transfer_device_tier_give_back(&e->transfer, lent->demand.chunk)
                                                       : ZOFF_OK;
}

static const zoff_states_place DEVICE = {.is_alone = true,
                                         .begin_fill = device_begin_fill,
                                         .end_fill = device_end_fill,
                                         .borrow = device_borrow,
                                         .give_back = device_give_back};

/* ---- the device, and a store that has the same states (zoff.persist). The device gets the first ones once the store is open:
 * until then its memory may be freed after any error. ---- */

/* Copy the streams that have changed. */
static zoff_status put_streams(zoff_engine *e, size_t chunk, const char *base, unsigned streams)
{
    const zoff_plan_chunk *c = &e->plan.chunks[chunk];
    for (unsigned stream = 0; stream < ZOFF_STREAM_COUNT; stream++) {
        const size_t from = c->starts[stream];
        if (c->lengths[stream] && streams & (1u << stream))
            ZOFF_TRY(zoff_transfer_device_tier_put(&e->transfer, chunk, base, from, from + c->lengths[stream]));
    }
    return ZOFF_OK;
}

/* After an error of the device the store keeps what it has. */
static zoff_status both_give_back(zoff_engine *e, const zoff_pass *pass, zoff_lent_chunk *lent)
{
    if (lent->demand.states.base && pass->changes_states)
        ZOFF_TRY(put_streams(e, lent->demand.chunk, lent->demand.states.base, streams_of(pass)));
    return host_give_back(e, pass, lent);
}

static const zoff_states_place BOTH = {
    .begin_fill = host_begin_fill, .end_fill = host_end_fill, .borrow = host_borrow, .give_back = both_give_back};

const zoff_states_place *zoff_engine_states_place_of(const zoff_engine *e, size_t chunk)
{
    const bool is_here = zoff_transfer_place_of(&e->transfer, chunk) == ZOFF_USED_BY_HOST;
    return is_here ? &HOST : zoff_transfer_device_tier_alone(&e->transfer, chunk) ? &DEVICE : &BOTH;
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
    if (pass->states && c->bytes)
        ZOFF_TRY(zoff_engine_states_place_of(e, chunk)->borrow(e, pass, out));
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

/* Give back both, even if the first cannot be written: it then stays in its slot, and the next pass or step writes it again. */
zoff_status zoff_engine_states_place_give_back(zoff_engine *e, const zoff_pass *pass, zoff_lent_chunk *lent)
{
    zoff_saved_error saved;
    zoff_demand *d = &lent->demand;
    const zoff_status status = zoff_engine_states_place_of(e, d->chunk)->give_back(e, pass, lent);
    zoff_base_status_save(&saved);
    const zoff_status weights =
        zoff_offload_broker_give(d, &d->weights, pass->changes_weights ? ZOFF_STORE_ALL : 0, pass->keeps);
    if (status >= 0)
        return weights;
    zoff_offload_broker_withdraw(d);
    zoff_base_status_restore(&saved);
    return status;
}

/* The states of the store are the right ones: it was just opened, or went back to a commit. */
zoff_status zoff_engine_states_place_bring_all(zoff_engine *e)
{
    const zoff_pass pass = {.states = true};
    for (size_t chunk = 0; chunk < e->transfer.device.tier.count; chunk++) {
        const size_t bytes = e->plan.chunks[chunk].bytes;
        zoff_lent_chunk lent;
        if (!bytes || zoff_transfer_device_tier_alone(&e->transfer, chunk))
            continue;
        ZOFF_TRY(zoff_agreement_open_pulse(&e->agreement)); /* nothing after seal */
        ZOFF_TRY(zoff_engine_states_place_borrow(e, &pass, chunk, &lent));
        const zoff_status status = zoff_transfer_device_tier_put(&e->transfer, chunk, lent.memory.states, 0, bytes);
        (void)zoff_offload_broker_give(&lent.demand, &lent.demand.states, 0, false); /* unchanged: nothing can fail */
        ZOFF_TRY(status);
    }
    return ZOFF_OK;
}
