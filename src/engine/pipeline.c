/* pipeline.c: the life of a bucket, as data. A bucket is one chunk of states with the gradients and weights that belong to it;
 * it walks the rows of a table from top to bottom. Buckets at different rows are the overlap: while one is updated, later
 * ones are being read and earlier ones written.
 *
 * One rank alone and several have tables of their own. Where the CPU reaches weights and gradients, the rows of a device pass.
 */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

typedef struct stage {
    const char *name;
    zoff_status (*step)(zoff_bucket_run *run);
} stage;

/* A micro-step that only adds up. */
static const stage ADD[] = {
    {"unload", zoff_engine_device_unload},         /* device: its gradients have come down */
    {"accumulate", zoff_engine_stages_accumulate}, /* cpu_adam: into fp32 */
};

/* The last micro-step. */
static const stage STEP[] = {
    {"unload", zoff_engine_device_unload},
    {"accumulate", zoff_engine_stages_accumulate}, /* cpu_adam: into fp32, where there is an accumulator */
    {"measure", zoff_engine_stages_measure},       /* cpu_adam: square sums, finite or not */
    {"gate", zoff_engine_stages_gate},             /* engine: opens when all are measured and the ranks have voted */
    {"fetch", zoff_engine_stages_fetch},           /* offload: starts for later buckets while this one waits or updates */
    {"window", zoff_engine_device_window},         /* device: where its new weights will be */
    {"update", zoff_engine_update_run},            /* cpu_adam, on the team; pumps I/O in between */
    {"flush", zoff_engine_stages_flush},           /* offload: write-behind, never waited for here */
    {"upload", zoff_engine_device_upload},         /* device: likewise */
};

/* Where the device measures: the gate does not wait for what comes down. */
static const stage STEP_OF_DEVICE[] = {
    {"measure", zoff_engine_stages_measure}, {"gate", zoff_engine_stages_gate},     {"unload", zoff_engine_device_unload},
    {"fetch", zoff_engine_stages_fetch},     {"window", zoff_engine_device_window}, {"update", zoff_engine_update_run},
    {"flush", zoff_engine_stages_flush},     {"upload", zoff_engine_device_upload},
};

/* The same of several ranks: gradients may have left, and be added up and measured, before the step was asked for. */
static const stage ADD_TOGETHER[] = {
    {"unload", zoff_engine_device_unload},
    {"reduce", zoff_engine_exchange_reduce}, /* zero: all ranks' gradients to their owner, who adds them up and measures them */
};

static const stage STEP_TOGETHER[] = {
    {"unload", zoff_engine_device_unload},
    {"reduce", zoff_engine_exchange_reduce},
    {"agree", zoff_engine_presence_agree}, /* comm: on the slices that take part */
    {"gate", zoff_engine_stages_gate},
    {"sums", zoff_engine_spread_sums}, /* zero: of replicated states */
    {"fetch", zoff_engine_stages_fetch},
    {"window", zoff_engine_device_window},
    {"update", zoff_engine_update_run},
    {"flush", zoff_engine_stages_flush},
    {"upload", zoff_engine_device_upload},
    {"spread", zoff_engine_spread_weights}, /* zero: to all ranks, a few buckets at a time */
};

typedef struct rows {
    const stage *stages;
    unsigned count;
} rows;

#define ROWS(stages) ((rows){stages, sizeof(stages) / sizeof(stages)[0]})

static rows table(const zoff_engine *e)
{
    if (zoff_engine_ranks_several(e))
        return e->run.last ? ROWS(STEP_TOGETHER) : ROWS(ADD_TOGETHER);
    if (e->run.last && zoff_engine_device_is(e) && !zoff_engine_params_accumulates(e))
        return ROWS(STEP_OF_DEVICE);
    return e->run.last ? ROWS(STEP) : ROWS(ADD);
}

static bool streams_weights(const zoff_engine *e)
{
    return e->weights && e->settings.values.weights.tier == ZOFF_TIER_NVME;
}

/* Whether borrowing the states of a bucket takes a slot of their store. */
static bool states_take_slot(const zoff_engine *e, size_t bucket)
{
    return !zoff_engine_kept_has(e, bucket) && !zoff_offload_store_resident(e->store, bucket);
}

static bool weights_take_slot(const zoff_engine *e, size_t bucket)
{
    return streams_weights(e) && !zoff_offload_store_resident(e->weights, bucket);
}

void zoff_engine_pipeline_open(zoff_engine *e)
{
    e->streamed_count = 0;
    if (e->settings.tier != ZOFF_TIER_NVME && !streams_weights(e))
        return;
    for (size_t position = 0; position < e->plan.chunk_count; position++) {
        const size_t bucket = zoff_engine_walk_bucket(e, position);
        if (states_take_slot(e, bucket) || weights_take_slot(e, bucket))
            e->streamed[e->streamed_count++] = position;
    }
}

/* Index of the first streamed position that is not before `first`. */
static size_t streamed_from(const zoff_engine *e, size_t first)
{
    size_t low = 0, high = e->streamed_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (e->streamed[middle] < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The walk may borrow the buckets before this position, once those before `first` are through: a store lends no more chunks
 * than it has slots, and any number of those that are in DRAM anyway. The search looks at streamed buckets only, so its cost
 * depends on the slots and not on the chunks: kernels call it every 64 Ki elements. */
static size_t window_from(const zoff_engine *e, size_t first)
{
    const zoff_config_values *values = &e->settings.values;
    size_t states = 0, weights = 0;
    if (e->settings.tier != ZOFF_TIER_NVME && !streams_weights(e))
        return zoff_base_bits_min(e->plan.chunk_count, first + 1);
    for (size_t k = streamed_from(e, first); k < e->streamed_count; k++) {
        const size_t bucket = zoff_engine_walk_bucket(e, e->streamed[k]);
        states += states_take_slot(e, bucket);
        weights += weights_take_slot(e, bucket);
        if (states > values->slots || weights > values->weights.slots)
            return e->streamed[k];
    }
    return e->plan.chunk_count;
}

bool zoff_engine_pipeline_reaches(const zoff_bucket_run *run)
{
    const zoff_engine *e = run->engine;
    return zoff_engine_kept_has(e, run->chunk) || zoff_engine_walk_position(e, run->chunk) < window_from(e, e->run.first);
}

/* While the last step is written, and while the trainer makes its gradients. An error comes again when the step asks. */
void zoff_engine_pipeline_ahead(zoff_engine *e)
{
    const size_t end = zoff_base_bits_min(window_from(e, 0), zoff_engine_walk_host_count(e));
    for (size_t k = 0; k < e->streamed_count && e->streamed[k] < end; k++)
        (void)zoff_offload_store_ahead(e->store, zoff_engine_walk_bucket(e, e->streamed[k]));
}

/* It would keep slots from the others. */
void zoff_engine_pipeline_drop_useless(zoff_engine *e)
{
    const size_t end = zoff_base_bits_min(window_from(e, 0), zoff_engine_walk_host_count(e));
    for (size_t k = 0; e->run.last && k < e->streamed_count && e->streamed[k] < end; k++) {
        const size_t bucket = zoff_engine_walk_bucket(e, e->streamed[k]);
        if (!zoff_engine_stages_borrows(&e->runs[bucket]))
            zoff_offload_store_drop(e->store, bucket);
    }
}

void zoff_engine_pipeline_begin(zoff_engine *e)
{
    for (size_t i = 0; i < e->plan.chunk_count; i++)
        e->runs[i] = (zoff_bucket_run){.engine = e, .chunk = i};
    e->run.first = 0;
    e->device.next = 0;
    e->device.norm.waits = 0;
    /* Files are read ahead in the order in which the next step is expected to want them: that one stays. */
    e->device.ascends = e->settings.tier == ZOFF_TIER_HOST && e->device.last_bucket > e->device.first_bucket;
    e->device.first_bucket = SIZE_MAX;
    if (e->run.last)
        zoff_engine_live_clear(e);
    if (!zoff_engine_ranks_several(e))
        zoff_engine_pipeline_drop_useless(e);
    zoff_engine_pipeline_feed(e);
}

void zoff_engine_pipeline_feed(zoff_engine *e)
{
    zoff_base_progress_pump(&e->progress);
    if (!e->run.last)
        return;
    /* A bucket in DRAM is borrowed when its turn comes: there is nothing to start for it. */
    const size_t end = window_from(e, e->run.first);
    for (size_t k = streamed_from(e, e->run.first); k < e->streamed_count && e->streamed[k] < end; k++)
        zoff_base_progress_keep(&e->pollers.states,
                                zoff_engine_stages_borrow(&e->runs[zoff_engine_walk_bucket(e, e->streamed[k])]));
}

static void release(zoff_store *store, size_t chunk, zoff_loan *loan)
{
    if (loan->base)
        zoff_offload_store_release(store, chunk);
    loan->base = NULL;
}

void zoff_engine_pipeline_release(zoff_engine *e)
{
    for (size_t i = 0; i < e->plan.chunk_count; i++) {
        release(e->store, i, &e->runs[i].states);
        release(e->weights, i, &e->runs[i].weights);
        zoff_engine_device_release(e, i);
    }
}

/* Take a bucket as far as it goes without waiting. */
static zoff_status advance(zoff_bucket_run *run, rows all, bool *moved)
{
    while (run->row < all.count) {
        const stage *row = &all.stages[run->row];
        zoff_engine_device_range(run->engine, row->name, run->chunk);
        zoff_status status = row->step(run);
        zoff_engine_device_range(run->engine, NULL, 0);
        if (status < 0)
            return zoff_base_status_prefix(status, "bucket %zu, stage %s: ", run->chunk, row->name);
        if (status == ZOFF_PENDING)
            return ZOFF_PENDING;
        run->row++;
        *moved = true;
    }
    return ZOFF_OK;
}

/* Likewise of a part of the walk. */
static zoff_status advance_all(zoff_engine *e, size_t from, size_t to, bool *moved)
{
    const rows all = table(e);
    for (size_t i = from; i < to && e->run.gate != ZOFF_GATE_SKIP; i++)
        ZOFF_TRY(advance(&e->runs[zoff_engine_walk_bucket(e, i)], all, moved));
    return ZOFF_OK;
}

/* What is a device's first: it borrows nothing, and is at work while the CPU is. Of the others each gets its turn before the
 * gate, and behind it only those that can be borrowed. */
static zoff_status take_turn(zoff_engine *e, bool *moved)
{
    const size_t first = e->run.first, host = zoff_engine_walk_host_count(e);
    const size_t end = e->run.gate == ZOFF_GATE_OPEN ? zoff_base_bits_min(window_from(e, first), host) : host;
    ZOFF_TRY(advance_all(e, zoff_base_bits_max(first, host), e->plan.chunk_count, moved));
    return advance_all(e, first, end, moved);
}

typedef struct write_wait {
    zoff_engine *engine;
    const zoff_store *store;
} write_wait;

static zoff_status write_behind(void *ctx)
{
    const write_wait *w = ctx;
    if (!zoff_offload_store_busy(w->store, true))
        return ZOFF_OK;
    zoff_engine_pipeline_ahead(w->engine);
    return ZOFF_PENDING;
}

/* Wait for the last writes. Slots that they free start the first reads of the next step, so that the disk always has reads and
 * writes at the same time. */
static zoff_status drain(zoff_engine *e)
{
    zoff_poller *pollers[] = {&e->pollers.states, e->weights ? &e->pollers.weights : NULL};
    for (unsigned i = 0; i < 2 && pollers[i] && e->run.gate != ZOFF_GATE_SKIP; i++)
        ZOFF_TRY(zoff_base_progress_wait(&e->progress, pollers[i], write_behind, &(write_wait){e, pollers[i]->ctx}));
    return zoff_engine_stores_drain(e);
}

static bool has_opened(const zoff_engine *e)
{
    return e->run.gate == ZOFF_GATE_OPEN || e->run.gate == ZOFF_GATE_SKIP;
}

/* A rank without buckets votes here: ranks compare their steps all the same. */
static zoff_status vote_alone(void *ctx)
{
    zoff_engine *e = ctx;
    const zoff_gate before = e->run.gate;
    ZOFF_TRY(zoff_engine_gate_vote(e));
    if (e->run.gate != before)
        zoff_base_progress_moved(&e->progress);
    return has_opened(e) ? ZOFF_OK : ZOFF_PENDING;
}

/* Other ranks need what this one has, whatever becomes of its own buckets. */
static zoff_status finish_together(zoff_engine *e)
{
    if (!zoff_engine_ranks_several(e))
        return ZOFF_OK;
    ZOFF_TRY(zoff_engine_exchange_finish(e));
    return zoff_engine_spread_finish(e);
}

/* One turn: take each bucket as far as it goes without waiting. */
static zoff_status walk(void *ctx)
{
    zoff_engine *e = ctx;
    const size_t count = e->plan.chunk_count;
    const unsigned last_row = table(e).count;
    const zoff_gate before = e->run.gate;
    bool moved = false;
    if (e->run.first == count || e->run.gate == ZOFF_GATE_SKIP)
        return ZOFF_OK;
    ZOFF_TRY(take_turn(e, &moved));
    while (e->run.first < count && e->runs[zoff_engine_walk_bucket(e, e->run.first)].row == last_row)
        e->run.first++;
    /* A bucket can open the gate and still be unable to pass it. */
    if (moved || e->run.gate != before)
        zoff_base_progress_moved(&e->progress);
    return ZOFF_PENDING;
}

zoff_status zoff_engine_pipeline_run(zoff_engine *e)
{
    if (e->run.last && e->plan.chunk_count == 0)
        ZOFF_TRY(zoff_base_progress_wait(&e->progress, NULL, vote_alone, e));
    ZOFF_TRY(zoff_base_progress_wait(&e->progress, NULL, walk, e));
    ZOFF_TRY(finish_together(e));
    ZOFF_TRY(zoff_engine_device_finish(e));
    ZOFF_TRY(zoff_engine_stores_take_fault(e)); /* behind the last bucket no stage takes it */
    return e->run.last ? drain(e) : ZOFF_OK;
}
