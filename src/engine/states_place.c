/* states_place.c: how a pass outside of a step borrows the states of a bucket: from the store, or from a device, which lends a
 * copy of one bucket at a time. With zoff.persist both have them, and the store lends them. Then the device gets the first
 * states once the store is open, because until then its memory may be freed after any error. */
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
