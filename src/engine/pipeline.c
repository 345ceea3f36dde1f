/* SPDX-License-Identifier: Apache-2.0 */
/* pipeline.c: takes buckets through their rows (rows.c). Buckets at different rows overlap: while one is updated, later ones
 * are read and earlier ones are written. */
#include "engine_priv.h"

#include "bits.h"
#include "team.h"
#include "try.h"

static void open_runs(zoff_engine *e)
{
    for (size_t i = 0; i < e->plan.chunk_count; i++)
        e->transfer.walk.runs[i] = (zoff_bucket_run){.chunk = i};
    e->transfer.device.staging.next = 0;
    e->transfer.device.norm.waits = e->transfer.device.tier.waits = 0;
    e->lending.secondary.next = 0;
    zoff_matrices_begin(&e->walk.matrices.all);
}

/* Whether a bucket is being updated before its step is known to count. */
static bool is_on_its_way(const zoff_engine *e, const zoff_bucket_run *run)
{
    const zoff_row *row = run->ahead.is_so ? zoff_engine_rows_next(e, run) : NULL;
    return row && row->number < e->walk.rows[ZOFF_USED_BY_HOST].joint;
}

/* Buckets that are not updated yet take the rows of the others. */
static void join_step(zoff_engine *e)
{
    for (size_t i = 0; i < e->plan.chunk_count; i++) {
        zoff_bucket_run *run = &e->transfer.walk.runs[i];
        if (is_on_its_way(e, run) && !run->ahead.is_put)
            (void)zoff_engine_rows_leave(e, run); /* no write of the bucket is in flight */
    }
}

bool zoff_engine_pipeline_knows_new(const zoff_engine *e, zoff_slice_buckets wanted)
{
    bool all = __atomic_load_n(&e->walk.tells_now, __ATOMIC_ACQUIRE);
    for (size_t b = wanted.first; b <= wanted.last && all; b++)
        all = __atomic_load_n(&e->walk.is_new[b], __ATOMIC_ACQUIRE);
    return all;
}

/* Buckets are read in the order of gradients. */
static void turn_ahead(zoff_engine *e)
{
    e->walk.feeds_ahead = true;
    zoff_engine_admit_feed_ahead(e);
}

/* All gradients have come: buckets are read in the order of the walk. */
static void turn_to_walk(zoff_engine *e)
{
    e->walk.feeds_ahead = false;
    zoff_speculation_list(&e->walk.speculation);
    zoff_engine_admit_feed(e);
}

/* Nothing may be updated before its step decides while a save reads states, while ranges of states wait to be written, or while
 * the drive's content is in doubt. */
static bool may_speculate(const zoff_engine *e)
{
    return !e->life.awaits_weights && !e->io.guard && !e->ranges.unsaved && !zoff_offload_store_is_in_doubt(e->store);
}

/* A device may still compute gradients when the step begins: buckets are then updated until the last one has come. */
static bool goes_on_in_step(zoff_engine *e)
{
    zoff_speculation *s = &e->walk.speculation;
    return e->walk.speculates_in_step && e->run.last && e->run.looks && !e->run.measures && !s->is_over &&
           zoff_speculation_is_likely(s) && may_speculate(e) && zoff_transfer_device_norm_waits(&e->transfer) == ZOFF_PENDING &&
           zoff_engine_gate_still_assumes(e);
}

void zoff_engine_pipeline_begin(zoff_engine *e)
{
    zoff_speculation *s = &e->walk.speculation;
    s->in_step = goes_on_in_step(e);
    s->updates = s->updates || s->in_step;
    if (!s->is_begun)
        open_runs(e);
    else if (!s->in_step)
        join_step(e);
    e->run.first = e->walk.asked = 0;
    for (size_t b = 0; b < e->plan.chunk_count; b++)
        __atomic_store_n(&e->walk.is_new[b], false, __ATOMIC_RELEASE);
    __atomic_store_n(&e->walk.tells_now, e->walk.tells_new && e->run.last, __ATOMIC_RELEASE);
    e->lending.is_updated = e->run.last;
    /* Files are prefetched in the order that the next step is expected to use, so that order is kept. */
    zoff_transfer_walk_begin(&e->transfer, e->settings.tier != ZOFF_TIER_HOST);
    if (e->run.last)
        zoff_lending_param_cache_clear(&e->lending);
    if (s->in_step)
        turn_ahead(e);
    else
        turn_to_walk(e);
}

void zoff_engine_pipeline_end(zoff_engine *e)
{
    for (size_t i = 0; i < e->plan.chunk_count; i++)
        e->transfer.walk.runs[i].ahead = (zoff_bucket_ahead){.is_so = false};
    e->lending.cache.in_step = e->lending.is_updated = false;
    zoff_speculation_end(&e->walk.speculation);
}

zoff_status zoff_engine_pipeline_release(zoff_engine *e)
{
    for (size_t i = 0; i < e->plan.chunk_count; i++) {
        if (e->transfer.walk.runs[i].ahead.is_so)
            ZOFF_TRY(zoff_engine_rows_leave(e, &e->transfer.walk.runs[i]));
        zoff_offload_broker_withdraw(&e->transfer.walk.runs[i].lent);
        zoff_transfer_staging_release(&e->transfer, i);
    }
    return ZOFF_OK;
}

/* The present row of a bucket. NULL: it is through, or, before the step, it needs the step to go on. */
static const zoff_row *row_of(const zoff_engine *e, const zoff_bucket_run *run)
{
    const zoff_row *row = zoff_engine_rows_next(e, run);
    const bool needs_step = row && row->number >= zoff_engine_rows_of(e, run->chunk)->joint;
    return needs_step && e->life.phase == ZOFF_PHASE_IDLE ? NULL : row;
}

static bool is_through(const zoff_engine *e, size_t bucket)
{
    return !zoff_engine_rows_next(e, &e->transfer.walk.runs[bucket]);
}

/* Whether the weights of a bucket are new, which is noted. Those of other ranks may still be on their way when the rows are
 * done. */
static bool is_bucket_new(zoff_engine *e, size_t bucket)
{
    const zoff_bucket_run *run = &e->transfer.walk.runs[bucket];
    const bool is = is_through(e, bucket) && (run->gathered || !zoff_transfer_ranks_have_parts(&e->transfer)) &&
                    zoff_lending_secondary_has_come(&e->lending, bucket);
    if (is)
        __atomic_store_n(&e->walk.is_new[bucket], true, __ATOMIC_RELEASE);
    return is;
}

/* Advance a bucket until it would have to wait, or has opened the gate: those before it come first. A row may move it to
 * another column. */
static zoff_status advance(zoff_engine *e, zoff_bucket_run *run, bool *moved)
{
    const zoff_gate before = e->run.gate;
    const zoff_row *row;
    while ((row = row_of(e, run)) && (before == ZOFF_GATE_OPEN || e->run.gate != ZOFF_GATE_OPEN)) {
        zoff_transfer_route_range(&e->transfer, row->name, run->chunk);
        const double from = zoff_trace_begin_row(e->life.trace, row->name);
        zoff_status status = row->run(row->ctx, run);
        zoff_trace_end_row(e->life.trace, &(zoff_trace_row){row->name, run->chunk, e->plan.chunks[run->chunk].elements}, from,
                           status);
        zoff_transfer_route_range(&e->transfer, NULL, 0);
        if (status < 0)
            return zoff_base_status_prefix(status, "bucket %zu, stage %s: ", run->chunk, row->name);
        if (status == ZOFF_PENDING)
            return ZOFF_PENDING;
        run->passed |= (uint64_t)1 << row->number;
        *moved = true;
    }
    if (!row && e->life.phase == ZOFF_PHASE_OPEN && e->run.last)
        (void)is_bucket_new(e, run->chunk);
    return ZOFF_OK;
}

/* Whether the weights of all buckets are new. `wanted` becomes the rest from the first one that is not, so that each bucket is
 * looked at once. */
static bool are_new(zoff_engine *e, zoff_slice_buckets *wanted)
{
    while (wanted->first <= wanted->last && is_bucket_new(e, wanted->first))
        wanted->first++;
    return wanted->first > wanted->last;
}

/* Whether the bucket waits for its gradient, or is being updated, beside the walk: see precede_in_step(). */
static bool is_left_to_speculation(const zoff_engine *e, size_t bucket)
{
    const zoff_bucket_run *run = &e->transfer.walk.runs[bucket];
    const bool is_untouched = !run->ahead.is_so && !run->ahead.is_refused && !run->passed;
    return e->walk.speculation.in_step && (is_untouched || is_on_its_way(e, run)) && zoff_engine_admit_can_precede(e, bucket);
}

/* Advance a part of the walk; with `wanted` only until those buckets are new. The progress thread stops for a call. */
static zoff_status advance_all(zoff_engine *e, size_t from, size_t to, zoff_slice_buckets *wanted, bool *moved)
{
    const zoff_gate before = e->run.gate;
    for (size_t i = from; i < to && e->run.gate != ZOFF_GATE_SKIP && !(wanted && are_new(e, wanted)); i++) {
        const size_t bucket = zoff_transfer_walk_bucket(&e->transfer, i);
        if (zoff_engine_progress_thread_yields(e) || (e->run.gate == ZOFF_GATE_OPEN && before != ZOFF_GATE_OPEN))
            break;
        if (!is_left_to_speculation(e, bucket))
            ZOFF_TRY(advance(e, &e->transfer.walk.runs[bucket], moved));
    }
    return ZOFF_OK;
}

/* ---- ahead of the step ---- */

/* A thread beside the program also measures gradients whose buckets are not updated ahead: the first update of the step waits
 * for all of them. */
static bool measures_early(const zoff_engine *e)
{
    return e->walk.measures_early && e->threads.in_progress;
}

static bool may_precede(const zoff_engine *e)
{
    const zoff_speculation *s = &e->walk.speculation;
    const bool is_last = e->transfer.batch.micro + 1 == e->settings.values.accumulation;
    const bool may_begin = (zoff_speculation_is_likely(s) || measures_early(e)) && may_speculate(e);
    return !s->is_over && e->life.phase == ZOFF_PHASE_IDLE && is_last && e->transfer.batch.handed_over &&
           (s->is_begun || may_begin);
}

static bool open_ahead(zoff_engine *e)
{
    zoff_speculation *s = &e->walk.speculation;
    if (!s->is_begun && zoff_engine_gate_assume(e) != ZOFF_OK)
        return false;
    e->walk.feeds_ahead = true;
    if (s->is_begun)
        return true;
    open_runs(e);
    zoff_trace_step_ahead(e->life.trace, e->run.t);
    s->is_begun = true;
    s->updates = zoff_speculation_is_likely(s);
    return true;
}

/* An error is not reported here: the bucket is updated in the step, which meets it again. */
static void precede(zoff_engine *e, zoff_bucket_run *run, bool *moved)
{
    const zoff_status status = advance(e, run, moved);
    e->walk.speculation.is_over = e->walk.speculation.is_over || status < 0;
    if (!run->ahead.is_so || (status >= 0 && !run->ahead.is_refused))
        return;
    (void)zoff_engine_rows_leave(e, run);
    if (status >= 0 && measures_early(e))
        precede(e, run, moved);
}

/* Buckets whose gradients are complete get memory, in the order of their arrival. */
static void enter(zoff_engine *e)
{
    zoff_speculation *s = &e->walk.speculation;
    zoff_speculation_order *o = &s->order;
    for (; o->entered < o->arrived_count && !s->is_over; o->entered++) {
        const size_t bucket = o->arrived[o->entered];
        zoff_bucket_run *run = &e->transfer.walk.runs[bucket];
        if (!s->updates || run->ahead.is_refused || !zoff_engine_admit_can_precede(e, bucket))
            continue;
        run->ahead.is_so = zoff_transfer_staging_lend_ahead(&e->transfer, bucket) == ZOFF_OK;
        if (run->ahead.is_so)
            o->active[o->active_count++] = (uint32_t)bucket;
        else if (s->in_step)
            run->ahead.is_refused = true; /* there is no memory for the bucket */
        else
            break; /* nor for those behind it */
    }
}

/* Each bucket that has memory goes as far as it can. Where states stream, no more of them are visited that wait than there are
 * slots: others could not have one.  @return whether a call of the program waits for this thread */
static bool go_on_ahead(zoff_engine *e, bool *moved)
{
    zoff_speculation *s = &e->walk.speculation;
    zoff_speculation_order *o = &s->order;
    const size_t most = e->walk.streamed_count ? e->settings.values.slots + 1 : SIZE_MAX;
    for (size_t visits = o->active_count, waiting = 0; visits && waiting < most && !s->is_over; visits--) {
        o->turn = o->turn < o->active_count ? o->turn : 0;
        zoff_bucket_run *run = &e->transfer.walk.runs[o->active[o->turn]];
        precede(e, run, moved);
        if (is_on_its_way(e, run)) {
            waiting++;
            o->turn++;
        } else {
            o->active[o->turn] = o->active[--o->active_count];
        }
        if (zoff_engine_progress_thread_yields(e))
            return true;
    }
    return false;
}

/* Measure the other buckets at least, each once. */
static bool measure_ahead(zoff_engine *e, bool *moved)
{
    zoff_speculation *s = &e->walk.speculation;
    while (measures_early(e) && s->order.measured < s->order.arrived_count && !s->is_over) {
        zoff_bucket_run *run = &e->transfer.walk.runs[s->order.arrived[s->order.measured++]];
        if (!run->ahead.is_so)
            precede(e, run, moved);
        if (zoff_engine_progress_thread_yields(e))
            return true;
    }
    return false;
}

static void hear(zoff_engine *e)
{
    zoff_speculation_order *o = &e->walk.speculation.order;
    while (o->heard < e->transfer.walk.arrivals.count)
        zoff_speculation_note_arrival(&e->walk.speculation, e->transfer.walk.arrivals.buckets[o->heard++]);
}

static bool precede_all(zoff_engine *e)
{
    bool moved = false;
    hear(e);
    if (!e->walk.speculation.order.arrived_count || !open_ahead(e))
        return false;
    enter(e);
    return go_on_ahead(e, &moved) || measure_ahead(e, &moved);
}

zoff_status zoff_engine_pipeline_precede(zoff_engine *e)
{
    if (!may_precede(e))
        return ZOFF_OK;
    zoff_base_team_hold(e->threads.holds_team);
    /* Beside the backward pass checksums take no more threads than updates: others would take cores from the program, and the
     * thread of the engine would wait for them. In an open step a call may wait for a checksum. */
    zoff_engine_stores_set_threads(e, zoff_engine_update_threads_of_update(e));
    const bool yields = precede_all(e);
    zoff_engine_stores_set_threads(e, zoff_engine_update_threads_of_calls(e));
    zoff_base_team_hold(false);
    if (yields)
        return ZOFF_PENDING;
    zoff_engine_admit_feed_ahead(e);
    /* The caller sees reads and writes in flight. A bucket that has no slot goes on when other gradients have come. */
    return e->transfer.device.norm.waits ? ZOFF_PENDING : ZOFF_OK;
}

/* The step is open, and a device still computes gradients: buckets whose own have come go on as before the step. Once the last
 * one has come, those that are not updated yet take the rows of the others. */
static void precede_in_step(zoff_engine *e, bool *moved)
{
    zoff_speculation *s = &e->walk.speculation;
    if (!s->in_step)
        return;
    if (s->is_over || zoff_transfer_device_norm_waits(&e->transfer) != ZOFF_PENDING) {
        s->in_step = false;
        join_step(e);
        turn_to_walk(e);
        return;
    }
    hear(e);
    enter(e);
    (void)go_on_ahead(e, moved);
    zoff_engine_admit_feed_ahead(e);
}

/* ---- one turn ---- */

/* Advance device buckets first: they borrow nothing, and the device works in parallel with the CPU. Then the others: all of
 * them before the gate opens, and after it only those that can borrow. */
static zoff_status take_turn(zoff_engine *e, zoff_slice_buckets *wanted, bool *moved)
{
    precede_in_step(e, moved);
    const size_t first = e->run.first, host = zoff_transfer_walk_host_count(&e->transfer);
    const size_t end = e->run.gate == ZOFF_GATE_OPEN ? zoff_base_bits_min(zoff_engine_admit_until(e), host) : host;
    ZOFF_TRY(advance_all(e, zoff_base_bits_max(first, host), e->plan.chunk_count, NULL, moved));
    return advance_all(e, first, end, wanted, moved);
}

/* ---- waiting ---- */

typedef struct write_wait {
    zoff_engine *engine;
    const zoff_store *store;
} write_wait;

static zoff_status write_behind(void *ctx)
{
    const write_wait *w = ctx;
    if (!zoff_offload_store_busy(w->store, true))
        return ZOFF_OK;
    zoff_engine_admit_ahead(w->engine);
    return ZOFF_PENDING;
}

/* Wait for the last writes. Slots that they free start the first reads of the next step, so that the disk always has reads and
 * writes at the same time. */
static zoff_status drain(zoff_engine *e)
{
    zoff_poller *pollers[] = {&e->io.states, &e->io.weights, &e->io.secondary};
    for (unsigned i = 0; i < 3 && pollers[i]->ctx && e->run.gate != ZOFF_GATE_SKIP; i++)
        ZOFF_TRY(zoff_base_progress_wait(&e->progress, pollers[i], write_behind, &(write_wait){e, pollers[i]->ctx}));
    return zoff_engine_stores_drain(e);
}

static bool has_opened(const zoff_engine *e)
{
    return e->run.gate >= ZOFF_GATE_MEASURED;
}

/* A rank without buckets votes here, because every rank must take part in comparing the step. */
static zoff_status vote_alone(void *ctx)
{
    zoff_engine *e = ctx;
    const zoff_gate before = e->run.gate;
    ZOFF_TRY(zoff_engine_gate_vote(e));
    if (e->run.gate != before)
        zoff_base_progress_moved(&e->progress);
    return has_opened(e) ? ZOFF_OK : ZOFF_PENDING;
}

/* Other ranks need data from this one, even when its own buckets are finished. */
static zoff_status finish_together(zoff_engine *e)
{
    ZOFF_TRY(zoff_transfer_reduce_scatter_finish(&e->transfer));
    ZOFF_TRY(zoff_transfer_all_gather_finish(&e->transfer));
    return zoff_lending_secondary_finish(&e->lending);
}

/* Do in one turn what other ranks wait for in an open step. Weights that have come are noted here, because the next bucket of
 * the walk may wait for matrices of a rank that has all that it wants. */
static zoff_status poll_together(zoff_engine *e)
{
    const zoff_status gathers = zoff_transfer_all_gather_poll(&e->transfer);
    const zoff_status copies = zoff_lending_secondary_poll(&e->lending);
    ZOFF_TRY(copies);
    return gathers != ZOFF_OK ? gathers : copies;
}

/* One turn: advance each bucket until it would have to wait, or until those that are wanted are new. */
static zoff_status walk_for(zoff_engine *e, zoff_slice_buckets *wanted)
{
    const size_t count = e->plan.chunk_count;
    const zoff_gate before = e->run.gate;
    bool moved = false;
    if (e->run.first == count || e->run.gate == ZOFF_GATE_SKIP || e->run.gate == ZOFF_GATE_MEASURED)
        return ZOFF_OK;
    e->transfer.device.downloads.was_asked = false;
    ZOFF_TRY(take_turn(e, wanted, &moved));
    while (e->run.first < count && is_through(e, zoff_transfer_walk_bucket(&e->transfer, e->run.first)))
        e->run.first++;
    /* A bucket can open the gate and still be unable to pass it. */
    if (moved || e->run.gate != before)
        zoff_base_progress_moved(&e->progress);
    return ZOFF_PENDING;
}

static zoff_status walk_to_end(void *ctx)
{
    return walk_for(ctx, NULL);
}

typedef struct weights_wait {
    zoff_engine *engine;
    zoff_slice_buckets wanted;
} weights_wait;

static zoff_status walk_until(void *ctx)
{
    weights_wait *w = ctx;
    zoff_engine *e = w->engine;
    const zoff_status status = walk_for(e, &w->wanted);
    if (status < 0 || e->run.gate == ZOFF_GATE_SKIP)
        return status < 0 ? status : ZOFF_OK;
    ZOFF_TRY(poll_together(e));
    return are_new(e, &w->wanted) ? ZOFF_OK : ZOFF_PENDING;
}

/* Other ranks wait for weights that are on their way when the rows of all buckets are done. */
zoff_status zoff_engine_pipeline_turn(zoff_engine *e)
{
    zoff_status status = walk_for(e, NULL);
    ZOFF_TRY(status);
    const zoff_status together = poll_together(e);
    status = status == ZOFF_OK || together < 0 ? together : status;
    for (size_t b = 0; b < e->plan.chunk_count; b++)
        (void)(e->walk.is_new[b] || is_bucket_new(e, b));
    return status;
}

/* Where states stream, buckets that have been read are updated and written, so that others can be read into their slots while
 * the program computes. Where states are in DRAM, an update before its turn gains nothing, and a background thread does it
 * without keeping the program. */
zoff_status zoff_engine_pipeline_until(zoff_engine *e, zoff_slice_buckets wanted)
{
    const bool alone = !e->settings.values.background_threads;
    ZOFF_TRY(alone && e->walk.streamed_count ? walk_for(e, NULL) : ZOFF_PENDING);
    return zoff_base_progress_wait(&e->progress, NULL, walk_until, &(weights_wait){e, wanted});
}

static zoff_status walk_until_read(void *ctx)
{
    weights_wait *w = ctx;
    zoff_engine *e = w->engine;
    const zoff_status status = walk_for(e, NULL);
    ZOFF_TRY(status);
    ZOFF_TRY(poll_together(e));
    const bool is_through = e->run.gate == ZOFF_GATE_SKIP || are_new(e, &w->wanted);
    return is_through ? zoff_transfer_reduce_scatter_poll(&e->transfer) : ZOFF_PENDING;
}

/* A gradient that goes to other ranks is read when all have come, because they are sent in one order. */
zoff_status zoff_engine_pipeline_until_read(zoff_engine *e, zoff_slice_buckets wanted)
{
    return zoff_base_progress_wait(&e->progress, NULL, walk_until_read, &(weights_wait){e, wanted});
}

static zoff_status walk_to_gate(void *ctx)
{
    zoff_engine *e = ctx;
    const zoff_status status = e->plan.chunk_count ? walk_for(e, NULL) : vote_alone(e);
    return status < 0 || e->run.gate >= ZOFF_GATE_OPEN ? status < 0 ? status : ZOFF_OK : ZOFF_PENDING;
}

zoff_status zoff_engine_pipeline_decide(zoff_engine *e)
{
    return zoff_base_progress_wait(&e->progress, NULL, walk_to_gate, e);
}

zoff_status zoff_engine_pipeline_measure(zoff_engine *e)
{
    if (e->run.last && e->plan.chunk_count == 0)
        ZOFF_TRY(zoff_base_progress_wait(&e->progress, NULL, vote_alone, e));
    return zoff_base_progress_wait(&e->progress, NULL, walk_to_end, e);
}

zoff_status zoff_engine_pipeline_run(zoff_engine *e)
{
    ZOFF_TRY(zoff_engine_pipeline_measure(e));
    /* No bucket has a position any more that matters, and nothing was read ahead for the next step. */
    if (e->run.last && zoff_transfer_walk_learn(&e->transfer))
        zoff_engine_admit_open(e);
    ZOFF_TRY(finish_together(e));
    ZOFF_TRY(ZOFF_LINK(&e->transfer, step.finish, (&e->transfer, e->run.flags & ZOFF_STEP_ZERO_GRADS)));
    ZOFF_TRY(zoff_engine_stores_take_fault(e)); /* no stage reports an error after the last bucket */
    return e->run.last ? drain(e) : ZOFF_OK;
}
