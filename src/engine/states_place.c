/* states_place.c: where the states of a bucket are, and how a pass outside of a step borrows them: in a store of the host, on
 * the device, or in both. */
#include "engine_priv.h"

#include "try.h"

/* A wait for a chunk of a store. `arrays` 0: the caller overwrites the whole chunk, so nothing is read. */
typedef struct chunk_wait {
    zoff_store *store;
    size_t chunk;
    unsigned arrays;
    void *base;
} chunk_wait;

static zoff_status fetch_or_claim(void *ctx)
{
    chunk_wait *w = ctx;
    const zoff_status status = w->arrays ? zoff_offload_store_fetch_arrays(w->store, w->chunk, w->arrays, &w->base)
                                         : zoff_offload_store_claim(w->store, w->chunk, &w->base);
    return status == ZOFF_OK ? zoff_offload_store_check(w->store, w->chunk) : status;
}

/* Borrow a chunk, and wait for it. */
static zoff_status bring(zoff_engine *e, zoff_store *store, size_t chunk, unsigned arrays, char **out)
{
    zoff_saved_error saved;
    chunk_wait w = {.store = store, .chunk = chunk, .arrays = arrays};
    zoff_poller *poller = store == e->store ? &e->io.states : &e->io.weights;
    const zoff_status status = zoff_base_progress_wait(&e->progress, poller, fetch_or_claim, &w);
    if (status < 0) {
        /* A later step must not meet a read of this pass in flight. */
        zoff_base_status_save(&saved);
        zoff_offload_store_forget(store);
        zoff_base_status_restore(&saved);
        return status;
    }
    *out = w.base;
    return ZOFF_OK;
}

/* The streams of a pass, as arrays of the store. */
static unsigned streams_of(const zoff_pass *pass)
{
    return pass->streams ? pass->streams : ZOFF_STORE_ALL;
}

static zoff_status give(zoff_store *store, size_t chunk, const char *base, unsigned changed, bool keeps)
{
    if (base && keeps)
        return zoff_offload_store_keep(store, chunk, changed);
    if (base && changed)
        return zoff_offload_store_flush(store, chunk);
    if (base)
        zoff_offload_store_release(store, chunk);
    return ZOFF_OK;
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

static zoff_status host_borrow(zoff_engine *e, const zoff_pass *pass, size_t chunk, char **out)
{
    return bring(e, e->store, chunk, pass->claims ? 0 : streams_of(pass), out);
}

static zoff_status host_give_back(zoff_engine *e, const zoff_pass *pass, size_t chunk, const char *base)
{
    return give(e->store, chunk, base, pass->changes_states ? streams_of(pass) : 0, pass->keeps);
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

static zoff_status device_borrow(zoff_engine *e, const zoff_pass *pass, size_t chunk, char **out)
{
    (void)pass;
    return zoff_transfer_device_tier_borrow(&e->transfer, chunk, out);
}

static zoff_status device_give_back(zoff_engine *e, const zoff_pass *pass, size_t chunk, const char *base)
{
    return base && pass->changes_states ? zoff_transfer_device_tier_give_back(&e->transfer, chunk) : ZOFF_OK;
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

/* Give a chunk back unchanged, also after an error. */
static zoff_status release_after(zoff_engine *e, size_t chunk, zoff_status status)
{
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    zoff_offload_store_release(e->store, chunk);
    zoff_base_status_restore(&saved);
    return status;
}

/* After an error of the device the store keeps what it has. */
static zoff_status both_give_back(zoff_engine *e, const zoff_pass *pass, size_t chunk, const char *base)
{
    const zoff_status status = base && pass->changes_states ? put_streams(e, chunk, base, streams_of(pass)) : ZOFF_OK;
    return status < 0 ? release_after(e, chunk, status) : host_give_back(e, pass, chunk, base);
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

zoff_status zoff_engine_states_place_borrow(zoff_engine *e, const zoff_pass *pass, size_t chunk, zoff_chunk_memory *out)
{
    const zoff_plan_chunk *c = &e->plan.chunks[chunk];
    const unsigned weights = pass->makes_weights && has_all_masters(e, c) ? 0 : ZOFF_STORE_ALL;
    zoff_chunk_memory memory = {.states = NULL};
    if (pass->states && c->bytes)
        ZOFF_TRY(zoff_engine_states_place_of(e, chunk)->borrow(e, pass, chunk, &memory.states));
    if (pass->weights && c->weight_bytes) {
        zoff_status status = bring(e, e->lending.store, chunk, weights, &memory.weights);
        if (status < 0 && memory.states && !zoff_engine_states_place_of(e, chunk)->is_alone)
            zoff_offload_store_release(e->store, chunk);
        ZOFF_TRY(status);
    }
    *out = memory;
    return ZOFF_OK;
}

/* Give back both, even if the first cannot be written: it then stays in its slot, and the next pass or step writes it again. */
zoff_status zoff_engine_states_place_give_back(zoff_engine *e, const zoff_pass *pass, size_t chunk, zoff_chunk_memory memory)
{
    zoff_saved_error saved;
    const unsigned weights = pass->changes_weights ? ZOFF_STORE_ALL : 0;
    const zoff_status status = zoff_engine_states_place_of(e, chunk)->give_back(e, pass, chunk, memory.states);
    if (status >= 0)
        return give(e->lending.store, chunk, memory.weights, weights, pass->keeps);
    zoff_base_status_save(&saved);
    (void)give(e->lending.store, chunk, memory.weights, weights, pass->keeps);
    zoff_base_status_restore(&saved);
    return status;
}

/* The states of the store are the right ones: it was just opened, or went back to a commit. */
zoff_status zoff_engine_states_place_bring_all(zoff_engine *e)
{
    const zoff_pass pass = {.states = true};
    for (size_t chunk = 0; chunk < e->transfer.device.tier.count; chunk++) {
        const size_t bytes = e->plan.chunks[chunk].bytes;
        char *base;
        if (!bytes || zoff_transfer_device_tier_alone(&e->transfer, chunk))
            continue;
        ZOFF_TRY(zoff_agreement_open_pulse(&e->agreement)); /* nothing after seal */
        ZOFF_TRY(host_borrow(e, &pass, chunk, &base));
        ZOFF_TRY(release_after(e, chunk, zoff_transfer_device_tier_put(&e->transfer, chunk, base, 0, bytes)));
    }
    return ZOFF_OK;
}
