/* SPDX-License-Identifier: Apache-2.0 */
/* stores.c: the stores of states, of engine-owned weights and of the secondary shard, used together: opened with the same
 * chunks, pumped, waited for and committed. Weights can be computed again from the masters, so their files never persist. */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

/* How many bytes at the start of a chunk may initially be nonzero: the masters; or all, if Adagrad's accumulators start
 * nonzero. */
static size_t first_bytes(const zoff_engine *e, const zoff_plan_chunk *c)
{
    enum { PAGE = 4096 };
    if (e->settings.values.initial_accumulator != 0 && c->lengths[ZOFF_STREAM_V])
        return c->bytes;
    return zoff_base_bits_align(c->lengths[ZOFF_STREAM_MASTER], PAGE);
}

/* A stream is an array of the store. It ends where the next one starts, so the padding between them belongs to it. */
_Static_assert((int)ZOFF_STORE_ARRAYS == (int)ZOFF_STREAM_COUNT, "an array for each stream");

static zoff_store_chunk store_chunk(const zoff_engine *e, const zoff_plan_chunk *c)
{
    zoff_store_chunk chunk = {.bytes = c->bytes, .first_bytes = first_bytes(e, c)};
    for (unsigned stream = 0; stream < ZOFF_STREAM_COUNT; stream++)
        chunk.ends[stream] = zoff_zero_plan_end(c, stream);
    return chunk;
}

enum { ZOFF_ENGINE_STORES = 3 };

/* List the open stores, that of the states first.  @return their number */
static unsigned list(const zoff_engine *e, zoff_store *out[ZOFF_ENGINE_STORES])
{
    zoff_store *const all[] = {e->store, e->lending.store, e->lending.secondary.store};
    unsigned count = 0;
    while (count < ZOFF_ENGINE_STORES && all[count]) {
        out[count] = all[count];
        count++;
    }
    return count;
}

/* Options that both stores share. */
static zoff_store_opts common_opts(const zoff_engine *e, const zoff_store_chunk *chunks)
{
    const zoff_settings *s = &e->settings;
    return (zoff_store_opts){.chunks = chunks,
                             .chunk_count = e->plan.chunk_count,
                             .fill_ctx = (void *)(uintptr_t)e,
                             .threads = s->threads,
                             .rank = zoff_comm_rank(e->comm),
                             .ranks = zoff_comm_size(e->comm),
                             .part = zoff_agreement_norm_part(&e->agreement),
                             .aio_backend = s->aio_backend,
                             .aio_tune = s->values.aio_tune,
                             .aio_block_bytes = s->values.aio_block_bytes,
                             .aio_depth = s->values.aio_depth,
                             .direct = s->values.direct,
                             .timeout_seconds = e->comm->timeout_seconds,
                             .verify = (zoff_store_verify)s->values.verify,
                             .progress = {.report = e->io.opening.progress, .ctx = e->io.opening.progress_ctx}};
}

/* With zoff.persist the device copies its states to slots of the store, and from them. */
static zoff_status share_with_device(zoff_engine *e)
{
    const void *base;
    size_t bytes;
    if (!e->settings.values.persist)
        return ZOFF_OK;
    zoff_offload_store_memory(e->store, &base, &bytes); /* chunks that stay in DRAM are behind the slots */
    bytes = zoff_base_bits_min(bytes, (size_t)e->settings.values.slots * e->plan.most.chunk_bytes);
    return zoff_transfer_device_tier_pin(&e->transfer, base, bytes);
}

static bool needs_blocks(const zoff_engine *e)
{
    for (size_t i = 0; i < e->model.param_count; i++) {
        const zoff_model_param *p = &e->model.params[i];
        if (!p->frozen && zoff_adam_moments_in_blocks(zoff_model_moments_of(&e->model, p), ZOFF_MOMENT_M))
            return true;
    }
    return false;
}

static zoff_status open_states(zoff_engine *e, zoff_store_chunk *chunks, zoff_fill *fill)
{
    const zoff_settings *s = &e->settings;
    for (size_t i = 0; i < e->plan.chunk_count; i++) {
        chunks[i] = (zoff_store_chunk){.bytes = 0}; /* on the device alone: the store only fills it */
        if (!zoff_transfer_device_tier_alone(&e->transfer, i))
            chunks[i] = store_chunk(e, &e->plan.chunks[i]);
        chunks[i].is_elsewhere = i < e->transfer.device.tier.count;
    }
    zoff_store_opts opts = common_opts(e, chunks);
    opts.tier = s->tier;
    opts.what = "the optimizer states";
    opts.progress.write = "write states";
    opts.progress.read = "read states";
    opts.progress.verify = "verify states";
    opts.fill = fill;
    opts.slots = s->values.slots;
    const zoff_planning planning = zoff_engine_planning(e);
    opts.residents = zoff_planning_budget_states(&planning, &e->plan);
    const zoff_planning_places places = zoff_planning_budget_places(&planning, &e->plan);
    opts.has_seconds = places.buckets > 0;
    opts.spares = places.spares;
    opts.paths = (const char *const *)s->paths.texts;
    opts.path_count = s->paths.count;
    opts.persist = s->values.persist;
    opts.required = s->values.persist_required;
    opts.power_safe = s->values.power_safe;
    opts.limit_bytes = e->plan.max_chunk_bytes;
    opts.limit_elements = e->plan.max_chunk_elements;
    opts.has_blocks = needs_blocks(e);
    opts.wanted_t = e->io.opening.persist_t;
    ZOFF_TRY(zoff_planning_layout_checksums(&planning, &e->plan, &opts.layout, &opts.cut));
    char *description = NULL;
    if (opts.persist)
        ZOFF_TRY(zoff_planning_describe_files(&e->model, &e->plan, &description, &opts.description_bytes));
    opts.description = description;
    const zoff_status status = zoff_agreement_open_store(&e->agreement, &opts, &e->store);
    zoff_base_mem_free(description);
    return status == ZOFF_OK ? share_with_device(e) : status;
}

static zoff_store_opts weight_opts(const zoff_engine *e, const zoff_store_chunk *chunks)
{
    const zoff_weight_values *values = &e->settings.values.weights;
    zoff_store_opts opts = common_opts(e, chunks);
    opts.tier = values->tier;
    opts.what = "the weights";
    opts.progress.write = "write weights";
    opts.paths = (const char *const *)e->settings.weight_paths.texts;
    opts.path_count = e->settings.weight_paths.count;
    return opts;
}

static zoff_status open_weights(zoff_engine *e, zoff_store_chunk *chunks, zoff_fill *fill)
{
    zoff_lending *l = &e->lending;
    for (size_t i = 0; i < e->plan.chunk_count; i++) {
        const size_t bytes = e->plan.chunks[i].weight_bytes;
        chunks[i] = (zoff_store_chunk){.bytes = bytes, .first_bytes = bytes};
    }
    zoff_store_opts opts = weight_opts(e, chunks);
    opts.fill = fill;
    const zoff_planning planning = zoff_engine_planning(e);
    opts.residents = zoff_planning_budget_weights(&planning, &e->plan);
    ZOFF_TRY(zoff_lending_homes_open(l, &opts, ZOFF_PINNED_STORE, &l->store));
    l->group.store = l->store;
    return zoff_agreement_open_fill(&e->agreement, l->store, &opts);
}

/* Fill nothing, because the shard is filled when all ranks have their weights. */
static void fill_nothing(void *ctx, size_t chunk, void *base) {}

/* Slices are fetched from the secondary shard, so its errors are those of fetches. */
static zoff_status open_secondary(zoff_engine *e, zoff_store_chunk *chunks)
{
    zoff_lending *l = &e->lending;
    for (size_t i = 0; i < e->plan.chunk_count; i++)
        chunks[i] = (zoff_store_chunk){.bytes = l->secondary.bytes[i]};
    zoff_store_opts opts = weight_opts(e, chunks);
    opts.what = "the weights of the secondary shard";
    opts.fill = fill_nothing;
    opts.residents = zoff_lending_secondary_residents(l);
    ZOFF_TRY(zoff_lending_homes_open(l, &opts, ZOFF_PINNED_SECONDARY, &l->secondary.store));
    l->group.store = l->secondary.store;
    l->pollers.reads = &e->io.secondary;
    return zoff_agreement_open_fill(&e->agreement, l->secondary.store, &opts);
}

static bool is_store_busy(void *store)
{
    return zoff_offload_store_busy(store, false);
}

static zoff_status pump_store(void *store)
{
    return zoff_offload_store_pump(store);
}

static zoff_status park(void *store)
{
    return zoff_offload_store_wait(store);
}

/* The store has a deadline for each disk, and counts its own waits. */
static void watch(zoff_engine *e, zoff_store *store, zoff_poller *poller)
{
    *poller = (zoff_poller){.pump = pump_store, .park = park, .is_busy = is_store_busy, .ctx = store, .timeout_seconds = -1};
    zoff_base_progress_add(&e->progress, poller);
}

/* Open the states first: ranks compare what they found before anything is written. */
zoff_status zoff_engine_stores_open(zoff_engine *e, zoff_fill *states, zoff_fill *weights)
{
    zoff_store_chunk *chunks;
    ZOFF_TRY(zoff_base_mem_alloc(e->plan.chunk_count, sizeof *chunks, "the table of chunks", &chunks));
    zoff_status status = open_states(e, chunks, states);
    if (status == ZOFF_OK && zoff_model_params_any_owned(&e->model))
        status = open_weights(e, chunks, weights);
    if (status == ZOFF_OK && zoff_model_params_any_owned(&e->model) && zoff_lending_secondary_is(&e->lending))
        status = open_secondary(e, chunks);
    zoff_base_mem_free(chunks);
    if (status != ZOFF_OK)
        return status;
    zoff_store *all[ZOFF_ENGINE_STORES];
    zoff_poller *const pollers[] = {&e->io.states, &e->io.weights, &e->io.secondary};
    const unsigned count = list(e, all);
    for (unsigned i = 0; i < count; i++)
        watch(e, all[i], pollers[i]);
    return ZOFF_OK;
}

void zoff_engine_stores_close(zoff_engine *e)
{
    zoff_base_progress_remove(&e->progress, &e->io.states);
    zoff_base_progress_remove(&e->progress, &e->io.weights);
    zoff_base_progress_remove(&e->progress, &e->io.secondary);
    zoff_offload_store_close(e->store);
    zoff_offload_store_close(e->lending.store);
    zoff_offload_store_close(e->lending.secondary.store);
    e->store = NULL;
    zoff_engine_stores_leave_weights(e);
}

void zoff_engine_stores_leave_states(zoff_engine *e)
{
    zoff_base_progress_remove(&e->progress, &e->io.states);
    e->store = NULL;
}

void zoff_engine_stores_leave_weights(zoff_engine *e)
{
    zoff_base_progress_remove(&e->progress, &e->io.weights);
    zoff_base_progress_remove(&e->progress, &e->io.secondary);
    e->lending.store = e->lending.group.store = e->lending.secondary.store = NULL;
    e->lending.pollers.reads = &e->io.weights;
}

/* Call a function for all stores, even if one fails. The first error is returned. */
static zoff_status to_all(zoff_engine *e, zoff_status (*call)(zoff_store *store))
{
    zoff_store *all[ZOFF_ENGINE_STORES];
    zoff_saved_error first;
    zoff_status status = ZOFF_OK;
    const unsigned count = list(e, all);
    for (unsigned i = 0; i < count; i++) {
        const zoff_status one = call(all[i]);
        if (status < 0)
            zoff_base_status_restore(&first);
        else if (one != ZOFF_OK)
            status = one;
        if (one < 0 && status == one)
            zoff_base_status_save(&first);
    }
    return status;
}

zoff_status zoff_engine_stores_take_fault(zoff_engine *e)
{
    ZOFF_TRY(zoff_base_progress_take(&e->io.states));
    ZOFF_TRY(zoff_base_progress_take(&e->io.weights));
    return zoff_base_progress_take(&e->io.secondary);
}

zoff_status zoff_engine_stores_drain(zoff_engine *e)
{
    return to_all(e, zoff_offload_store_drain);
}

/* Forget earlier errors, because the retry reads or writes the same chunks again. */
zoff_status zoff_engine_stores_retry(zoff_engine *e)
{
    zoff_base_progress_forget(&e->io.states);
    zoff_base_progress_forget(&e->io.weights);
    zoff_base_progress_forget(&e->io.secondary);
    return to_all(e, zoff_offload_store_retry);
}

_Static_assert((int)ZOFF_PROGRAM_BYTES_MOST == (int)ZOFF_STORE_ATTACHED_MOST, "a block fits into a record");

/* Attach the program's bytes and the loss scale to the commit. The scale of a step changes after its commit, because that can
 * be an error about a step that is over. The record has the scale that the step leaves behind. */
static void attach(zoff_engine *e, bool is_step)
{
    const zoff_loss_scaler scaler = is_step ? zoff_model_loss_scale_after_update(&e->model) : e->model.scaler;
    if (!e->settings.values.persist)
        return;
    const size_t bytes =
        zoff_model_program_bytes_pack(&e->model.program, zoff_comm_rank(e->comm),
                                      e->settings.values.fp16.enabled ? &scaler : NULL, e->model.exact_sums, is_step);
    zoff_offload_store_attach(e->store, e->model.program.block, bytes);
}

/* Record the states last, because they are authoritative, and weights can be computed from them. */
static zoff_status record(zoff_engine *e, int64_t t, bool is_step)
{
    if (e->lending.store)
        ZOFF_TRY(zoff_offload_store_commit(e->lending.store, t));
    if (e->lending.secondary.store)
        ZOFF_TRY(zoff_offload_store_commit(e->lending.secondary.store, t));
    attach(e, is_step);
    return zoff_offload_store_record(e->store, t);
}

static void confirm(zoff_engine *e, int64_t t, bool is_step)
{
    zoff_offload_store_confirm(e->store, t);
    zoff_model_program_bytes_committed(&e->model.program, is_step);
}

static zoff_status commit(zoff_engine *e, int64_t t, bool is_step)
{
    ZOFF_TRY(record(e, t, is_step));
    confirm(e, t, is_step);
    return ZOFF_OK;
}

zoff_status zoff_engine_stores_take_program(zoff_engine *e)
{
    size_t bytes;
    int64_t t;
    const void *block = zoff_offload_store_attached(e->store, &bytes);
    if (!zoff_offload_store_reopened(e->store, &t))
        return ZOFF_OK;
    const zoff_status status = zoff_model_program_bytes_take(&e->model.program, block, bytes);
    return status < 0 ? zoff_base_status_prefix(status, "'%s': ", e->settings.paths.texts[0]) : ZOFF_OK;
}

bool zoff_engine_stores_busy(const zoff_engine *e, bool writes_only)
{
    zoff_store *all[ZOFF_ENGINE_STORES];
    const unsigned count = list(e, all);
    bool busy = false;
    for (unsigned i = 0; i < count; i++)
        busy = busy || zoff_offload_store_busy(all[i], writes_only);
    return busy;
}

void zoff_engine_stores_set_threads(const zoff_engine *e, unsigned threads)
{
    zoff_store *all[ZOFF_ENGINE_STORES];
    const unsigned count = list(e, all);
    for (unsigned i = 0; i < count; i++)
        zoff_offload_store_set_threads(all[i], threads);
}

uint64_t zoff_engine_stores_huge_bytes(const zoff_engine *e)
{
    zoff_store *all[ZOFF_ENGINE_STORES];
    const unsigned count = list(e, all);
    uint64_t bytes = 0;
    for (unsigned i = 0; i < count; i++)
        bytes += zoff_offload_store_huge_bytes(all[i]);
    return bytes;
}

/* Add the counters of a store of weights. */
static void add_stats(const zoff_store *store, zoff_store_stats *out)
{
    zoff_store_stats weights;
    zoff_offload_store_stats(store, &weights);
    out->read_bytes += weights.read_bytes;
    out->write_bytes += weights.write_bytes;
    out->ahead_bytes += weights.ahead_bytes;
    out->lifetime_write_bytes += out->lifetime_write_bytes ? weights.write_bytes : 0;
    out->wait_seconds += weights.wait_seconds;
    out->check_seconds += weights.check_seconds;
}

/* Weights read since the last step count for this one, because the trainer fetched them for it. */
void zoff_engine_stores_begin_count(const zoff_engine *e, zoff_store_stats *out)
{
    zoff_store_stats weights = {.read_bytes = 0};
    zoff_engine_stores_stats(e, out);
    if (!e->lending.group.store)
        return;
    add_stats(e->lending.group.store, &weights);
    out->read_bytes -= weights.read_bytes - e->io.counted.read_bytes;
    out->ahead_bytes -= weights.ahead_bytes - e->io.counted.ahead_bytes;
}

void zoff_engine_stores_end_count(zoff_engine *e)
{
    if (e->lending.group.store)
        zoff_offload_store_stats(e->lending.group.store, &e->io.counted);
}

void zoff_engine_stores_stats(const zoff_engine *e, zoff_store_stats *out)
{
    zoff_store *all[ZOFF_ENGINE_STORES];
    const unsigned count = list(e, all);
    zoff_offload_store_stats(e->store, out);
    for (unsigned i = 1; i < count; i++)
        add_stats(all[i], out);
}

double zoff_engine_stores_worked(const zoff_engine *e, double from, const zoff_store_stats *before)
{
    zoff_store_stats now;
    zoff_engine_stores_stats(e, &now);
    return zoff_base_clock_seconds() - from - (now.wait_seconds - before->wait_seconds) -
           (now.check_seconds - before->check_seconds);
}

/* ---- commits ---- */

/* Persistent states are recorded after a step or a pass. With several ranks, no rank records before all have written. */
bool zoff_engine_stores_commit_together(const zoff_engine *e)
{
    return e->io.commits_together;
}

static zoff_status poll_commit(void *ctx)
{
    zoff_engine *e = ctx;
    return zoff_comm_poll(e->comm, &e->run.talks.commit);
}

zoff_comm_call zoff_engine_stores_commit_call(const zoff_engine *e, zoff_commit_stage stage)
{
    return (zoff_comm_call){.kind = ZOFF_COMM_BARRIER,
                            .channel = (zoff_comm_channel *)(uintptr_t)&e->channel,
                            .item = {.about = ZOFF_COMM_ABOUT_COMMIT, .index = stage}};
}

/* Start a barrier; `stage`: the one in which this rank waits for it. */
static zoff_status meet(zoff_engine *e, zoff_commit_stage stage)
{
    const zoff_comm_call call = zoff_engine_stores_commit_call(e, stage);
    ZOFF_TRY(zoff_comm_start(e->comm, &call, &e->run.talks.commit));
    e->run.talks.stage = stage;
    return ZOFF_OK;
}

/* No rank records a step before all have written it, so all can open the one before. And the step returns on no rank before all
 * have recorded it: then it is not lost, whenever the ranks are killed. */
zoff_status zoff_engine_stores_commit_step(zoff_engine *e)
{
    zoff_step_talks *talks = &e->run.talks;
    if (!zoff_engine_stores_commit_together(e))
        return commit(e, e->run.t, true);
    if (talks->stage == ZOFF_COMMIT_NEW)
        ZOFF_TRY(meet(e, ZOFF_COMMIT_WRITTEN));
    if (talks->stage == ZOFF_COMMIT_WRITTEN) {
        ZOFF_TRY(zoff_transfer_wire_wait_until(&e->transfer, poll_commit, e));
        ZOFF_TRY(commit(e, e->run.t, true));
        talks->stage = ZOFF_COMMIT_RECORDED;
    }
    if (talks->stage == ZOFF_COMMIT_RECORDED)
        ZOFF_TRY(meet(e, ZOFF_COMMIT_TOLD));
    return zoff_transfer_wire_wait_until(&e->transfer, poll_commit, e);
}

/* Outside of a step, no rank remembers that it has committed what others repeat. So all confirm their records, or none does. */
zoff_status zoff_engine_stores_commit_pass(zoff_engine *e, zoff_status own)
{
    if (!zoff_engine_stores_commit_together(e)) {
        ZOFF_TRY(own);
        return commit(e, e->t, false);
    }
    ZOFF_TRY(zoff_agreement_vote_success(&e->agreement.ranks, own));
    ZOFF_TRY(zoff_agreement_vote_success(&e->agreement.ranks, record(e, e->t, false)));
    confirm(e, e->t, false);
    return ZOFF_OK;
}

/* ---- copies of weights ---- */

bool zoff_engine_stores_is_spreading(const zoff_engine *e)
{
    return e->io.has_spread || e->transfer.ranks.spread_next > 0 || e->lending.secondary.fill_next > 0;
}

/* After an error of its own a rank repeats the call and goes on where it was, because the others wait only for the rest. So
 * each part counts as done when no error of this rank can follow. */
zoff_status zoff_engine_stores_spread_weights(zoff_engine *e)
{
    ZOFF_TRY(zoff_engine_stores_drain(e));
    if (!e->io.has_spread)
        ZOFF_TRY(zoff_transfer_all_gather_all(&e->transfer));
    e->io.has_spread = true;
    ZOFF_TRY(zoff_lending_secondary_fill(&e->lending));
    e->io.has_spread = false;
    return ZOFF_OK;
}

/* ---- ranges of states ---- */

static zoff_status write_all(zoff_engine *e)
{
    ZOFF_TRY(zoff_engine_stores_retry(e));
    return zoff_engine_stores_drain(e);
}

zoff_status zoff_engine_stores_record_ranges(zoff_engine *e, unsigned call)
{
    if (zoff_engine_stores_commit_together(e)) {
        zoff_agreement_identity_enter(&e->agreement, call, (zoff_comm_item){.about = ZOFF_COMM_ABOUT_NOTHING});
        ZOFF_TRY(zoff_agreement_identity_exit(&e->agreement, zoff_engine_stores_commit_pass(e, write_all(e))));
    } else {
        ZOFF_TRY(zoff_engine_stores_commit_pass(e, write_all(e)));
    }
    e->ranges.unsaved = false;
    return ZOFF_OK;
}

zoff_status zoff_engine_stores_commit_ranges(zoff_engine *e)
{
    return e->ranges.unsaved ? zoff_engine_stores_record_ranges(e, ZOFF_COMM_IN_STATE_FLUSH) : ZOFF_OK;
}
