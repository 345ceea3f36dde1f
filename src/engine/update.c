/* SPDX-License-Identifier: Apache-2.0 */
/* update.c: the row of the pipeline that updates weights and states.
 *
 * States in files have checksums. Reading the states again from DRAM to compute the checksums would cost half as much as the
 * update itself. So a bucket is updated tile by tile, and the final data of a tile is hashed while it is in the cache.
 */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"

#include <string.h>

enum {
    /* elements of a tile: a little more than 3 MiB of states, which are hashed while they are in a cache */
    TILE = 256 * 1024,
    SHORT_TILE = 128 * 1024,     /* elements of a tile beside the program, whose calls wait until it is done */
    LARGE_TILE = ZOFF_ADAM_LARGE /* elements of any other tile: enough to wake a sleeping thread for */
};
_Static_assert(TILE % ZOFF_NORM_BLOCK == 0 && SHORT_TILE % ZOFF_NORM_BLOCK == 0 && LARGE_TILE % ZOFF_NORM_BLOCK == 0,
               "a tile must consist of whole blocks");

typedef struct tiling tiling;

/* A pass over the elements of a bucket: which streams it changes, and what a piece of it is. */
typedef struct update_pass {
    unsigned streams; /* bit k for stream k */
    zoff_adam_piece (*make)(const tiling *t, const zoff_plan_piece *piece);
    /* Matrices: the element at which other constants begin, and the constants of those before it. NULL: a piece has one set */
    size_t (*cut)(tiling *t, const zoff_plan_piece *piece, size_t first, zoff_adam_piece *a);
} update_pass;

/* Where the results of an update go. */
typedef struct update_target {
    void (*add)(tiling *t, const zoff_adam_piece *whole, const zoff_plan_piece *piece, size_t first, size_t count);
    void (*run)(const tiling *t);
} update_target;

/* The progress of a bucket through its tiles. */
struct tiling {
    zoff_engine *engine;
    zoff_bucket_run *run;
    const zoff_plan_chunk *chunk;
    const update_target *target;
    const update_pass *pass;
    size_t most;                         /* elements of a tile */
    size_t used, elements;               /* pieces and elements in the present tile */
    size_t final_end[ZOFF_STREAM_COUNT]; /* bytes of each stream that are final */
    bool settles[ZOFF_STREAM_COUNT];
};

/* The kernels move the bytes of the streams that a piece names. */
static void count_bytes(zoff_step_info *info, const zoff_adam_piece *a)
{
    const zoff_moments moments = (zoff_moments)a->moments;
    const size_t m = a->m ? zoff_adam_moments_size(moments, ZOFF_MOMENT_M, a->count) : 0;
    const size_t states = m + (a->v ? zoff_adam_moments_size(moments, ZOFF_MOMENT_V, a->count) : 0), weights = sizeof(float);
    const size_t copy = a->copy_out && !a->split ? zoff_adam_dtype_bytes(a->copy_dtype) : 0;
    info->bytes.host_read += states + a->count * (weights + zoff_adam_dtype_bytes(a->grad_dtype));
    info->bytes.host_written += states + a->count * (weights + copy);
}

/* The update of one piece, with the states that this step's rule uses. */
static zoff_adam_piece make_piece(const zoff_engine *e, const zoff_bucket_run *run, const zoff_plan_chunk *chunk,
                                  const zoff_plan_piece *piece)
{
    const zoff_chunk_memory memory = {run->lent.states.base, run->lent.weights.base};
    zoff_adam_piece a = zoff_transfer_pieces_of_update(&e->transfer, chunk, piece, memory);
    a.consts = &e->transfer.scratch.consts[zoff_model_groups_index(&e->model, &e->model.params[piece->param])];
    a.grad = zoff_transfer_pieces_gradient(&e->transfer, piece, false, &a.grad_dtype);
    /* SGD sealed with momentum may leave it out of a step. */
    const zoff_adam_states touched = zoff_adam_hyper_rule_states(a.consts->rule);
    a.m = touched.m ? a.m : NULL;
    a.v = touched.v ? a.v : NULL;
    return a;
}

/* Elements [first, first + count) of a piece. */
static zoff_adam_piece part_of(const zoff_adam_piece *a, size_t first, size_t count)
{
    zoff_adam_piece part = *a;
    part.count = count;
    part.master = (char *)a->master + first * (a->split ? sizeof(uint16_t) : sizeof(float));
    const zoff_moments moments = (zoff_moments)a->moments;
    part.m = a->m ? (char *)a->m + zoff_adam_moments_offset(moments, ZOFF_MOMENT_M, first) : NULL;
    part.v = a->v ? (char *)a->v + zoff_adam_moments_offset(moments, ZOFF_MOMENT_V, first) : NULL;
    part.key = a->key + first / ZOFF_NORM_BLOCK;
    part.grad = (const char *)a->grad + first * zoff_adam_dtype_bytes(a->grad_dtype);
    /* Lower halves of split masters, which are here, take as much room as the weights. */
    part.copy_out = a->copy_out ? (char *)a->copy_out + first * zoff_adam_dtype_bytes(a->copy_dtype) : NULL;
    return part;
}

/* The kernels call this between two pieces. */
static void between(void *ctx)
{
    zoff_engine_admit_feed(ctx);
}

static void run_tile(tiling *t)
{
    zoff_engine *e = t->engine;
    t->target->run(t);
    for (int stream = 0; stream < ZOFF_STREAM_COUNT; stream++) {
        const size_t from = t->chunk->starts[stream];
        if (t->settles[stream])
            zoff_offload_store_settle(e->store, t->run->chunk, from, from + t->final_end[stream]);
    }
    t->used = 0;
    t->elements = 0;
}

void zoff_engine_update_guard(const zoff_engine *e, const zoff_bucket_run *run, char *states)
{
    const zoff_guard *g = e->io.guard;
    if (g)
        g->before_chunk(g->ctx, (zoff_chunk_memory){states, run->lent.weights.base}, run->chunk);
}

/* Let a save keep the old values of a part of a piece that is about to change. */
static void guard(const tiling *t, const zoff_plan_piece *piece, size_t first, size_t count)
{
    const zoff_guard *g = t->engine->io.guard;
    if (g)
        g->before(g->ctx, (zoff_chunk_memory){t->run->lent.states.base, t->run->lent.weights.base}, piece, first, count);
}

/* ---- in place ---- */

static void add_in_place(tiling *t, const zoff_adam_piece *whole, const zoff_plan_piece *piece, size_t first, size_t count)
{
    guard(t, piece, first, count);
    t->engine->transfer.scratch.adam_pieces[t->used++] = part_of(whole, first, count);
}

static void run_in_place(const tiling *t)
{
    zoff_engine *e = t->engine;
    zoff_adam_update_run(zoff_engine_update_threads_of_update(e), e->transfer.scratch.adam_pieces, t->used, between, e);
}

static const update_target IN_PLACE = {add_in_place, run_in_place};

/* ---- to another place ---- */

static void *moved(const tiling *t, const void *state)
{
    return state ? t->run->ahead.states + ((const char *)state - t->run->lent.states.base) : NULL;
}

/* `whole` has the old states and, staged, the new weights. */
static void add_apart(tiling *t, const zoff_adam_piece *whole, const zoff_plan_piece *piece, size_t first, size_t count)
{
    const zoff_engine *e = t->engine;
    const zoff_adam_piece to = part_of(whole, first, count);
    zoff_adam_piece from = *whole;
    const bool in_weights = zoff_model_masters_of(&e->model, &e->model.params[piece->param])->in_weights;
    if (in_weights)
        from.master = zoff_model_params_value(&e->model, piece, NULL);
    from = part_of(&from, first, count);
    from.stream = zoff_adam_update_streams(e->plan.state_bytes); /* a tile is small, and the bucket is one of many */
    t->engine->transfer.scratch.apart_pieces[t->used++] =
        (zoff_adam_apart){.old = from,
                          .master = in_weights ? to.master : moved(t, from.master),
                          .m = moved(t, from.m),
                          .v = moved(t, from.v),
                          .low = from.split ? moved(t, from.low) : NULL};
}

static void run_apart(const tiling *t)
{
    zoff_engine *e = t->engine;
    zoff_adam_update_apart_run(zoff_engine_update_threads_of_update(e), e->transfer.scratch.apart_pieces, t->used, between, e);
}

static const update_target APART = {add_apart, run_apart};

/* ---- passes ---- */

static zoff_adam_piece make_plain(const tiling *t, const zoff_plan_piece *piece)
{
    return make_piece(t->engine, t->run, t->chunk, piece);
}

static const update_pass PLAIN = {.streams = ZOFF_STORE_ALL, .make = make_plain};

/* The constants of both passes over the matrix of an entry, in this step. */
static void matrix_consts(const zoff_engine *e, const zoff_matrix_entry *entry, zoff_adam_consts *before,
                          zoff_adam_consts *after)
{
    const zoff_model_param *p = &e->model.params[entry->param];
    zoff_optimizer_hyper hyper = e->gate.hyper[p->group];
    if (zoff_model_groups_index(&e->model, p) != p->group)
        hyper.weight_decay = 0;
    zoff_model_matrices_rule(&e->model, p)
        ->passes(&hyper, entry->rows, entry->cols, e->run.t, (double)e->transfer.scratch.consts[p->group].grad_scale, before,
                 after);
}

/* Momenta change, and directions are written: they stand where the rule has its weights. */
static zoff_adam_piece make_momentum(const tiling *t, const zoff_plan_piece *piece)
{
    zoff_engine *e = t->engine;
    zoff_adam_consts after, *consts = &e->walk.matrices.before[e->model.params[piece->param].group];
    zoff_adam_piece a =
        zoff_transfer_pieces_of_update(&e->transfer, t->chunk, piece, (zoff_chunk_memory){t->run->lent.states.base, NULL});
    matrix_consts(e, zoff_matrices_entry(&e->walk.matrices.all, piece, piece->first), consts, &after);
    a.master = zoff_matrices_place(&e->walk.matrices.all, piece);
    a.master_dtype = ZOFF_F32;
    a.split = false;
    a.copy_out = NULL;
    a.v = NULL;
    a.consts = consts;
    a.grad = zoff_transfer_pieces_gradient(&e->transfer, piece, false, &a.grad_dtype);
    return a;
}

static const update_pass MOMENTUM = {.streams = 1 << ZOFF_STREAM_M, .make = make_momentum};

/* Weights change by orthogonal directions, which stand where the rule has its gradient. */
static zoff_adam_piece make_applied(const tiling *t, const zoff_plan_piece *piece)
{
    const zoff_engine *e = t->engine;
    const zoff_chunk_memory memory = {t->run->lent.states.base, t->run->lent.weights.base};
    zoff_adam_piece a = zoff_transfer_pieces_of_update(&e->transfer, t->chunk, piece, memory);
    a.m = a.v = NULL;
    a.moments = ZOFF_MOMENTS_F32;
    a.grad = zoff_matrices_place(&e->walk.matrices.all, piece);
    a.grad_dtype = ZOFF_F32;
    return a;
}

/* The rate depends on the shape of the matrix. */
static size_t cut_applied(tiling *t, const zoff_plan_piece *piece, size_t first, zoff_adam_piece *a)
{
    zoff_engine *e = t->engine;
    const zoff_matrix_entry *entry = zoff_matrices_entry(&e->walk.matrices.all, piece, piece->first + first);
    zoff_adam_consts before;
    matrix_consts(e, entry, &before, &e->walk.matrices.applied[t->used]);
    a->consts = &e->walk.matrices.applied[t->used];
    return zoff_base_bits_min(piece->count, entry->first + entry->rows * entry->cols - piece->first);
}

static const update_pass APPLIED = {.streams = 1 << ZOFF_STREAM_MASTER, .make = make_applied, .cut = cut_applied};

/* ---- tiles ---- */

/* Whether a tile that was run is the last one for now, because a call of the program waits for this thread. */
static bool stops(const tiling *t)
{
    return zoff_engine_progress_thread_yields(t->engine);
}

/* Add a piece to as many tiles as it needs, from the cursor on. A piece without a gradient is unchanged, and so its data is
 * final at once.  @return false: the cursor is where to go on */
static bool add_piece(tiling *t, const zoff_plan_piece *piece)
{
    zoff_engine *e = t->engine;
    size_t *at = &t->run->cursor.element;
    const bool takes_part = *zoff_model_params_flag(&e->model, piece);
    const zoff_plan_tensor tensor = zoff_model_params_tensor(&e->model, &e->model.params[piece->param]);
    zoff_adam_piece a = takes_part ? t->pass->make(t, piece) : (zoff_adam_piece){0};
    while (*at < piece->count) {
        const size_t end = takes_part && t->pass->cut ? t->pass->cut(t, piece, *at, &a) : piece->count;
        size_t count = zoff_base_bits_min(end - *at, t->most - t->elements);
        if (*at + count < end)
            count -= count % ZOFF_NORM_BLOCK;
        if (takes_part && count) {
            const zoff_adam_piece part = part_of(&a, *at, count);
            t->target->add(t, &a, piece, *at, count);
            count_bytes(&e->run.info, &part);
        }
        *at += count;
        t->elements += count;
        for (int stream = 0; stream < ZOFF_STREAM_COUNT; stream++) {
            if (tensor.bytes[stream] && t->pass->streams >> stream & 1)
                t->final_end[stream] = piece->offsets[stream] + zoff_zero_plan_bytes(&tensor, (unsigned)stream, *at);
        }
        const bool has_entries = !t->pass->cut || t->used < e->plan.most.pieces;
        if (*at == end && t->elements < t->most && has_entries)
            continue;
        run_tile(t);
        if (stops(t))
            return false;
    }
    return true;
}

/* @return PENDING: the cursor is where to go on */
static zoff_status run_tiles(tiling *t, const zoff_plan_piece *pieces)
{
    zoff_update_cursor *cursor = &t->run->cursor;
    while (cursor->piece < t->chunk->piece_count) {
        if (!add_piece(t, &pieces[cursor->piece]))
            return ZOFF_PENDING;
        *cursor = (zoff_update_cursor){.piece = cursor->piece + 1};
    }
    if (t->elements)
        run_tile(t);
    return ZOFF_OK;
}

/* Find the streams that are final after the update of a tile. Copies of fp32 weights are not final, because they are made
 * later. */
static void choose_streams(tiling *t, const zoff_plan_piece *pieces)
{
    const zoff_engine *e = t->engine;
    const bool wants = t->chunk->bytes && zoff_offload_store_wants_settle(e->store);
    for (int stream = 0; stream < ZOFF_STREAM_COUNT; stream++)
        t->settles[stream] = wants && t->chunk->lengths[stream] != 0 && t->pass->streams >> stream & 1;
    for (size_t i = 0; i < t->chunk->piece_count; i++) {
        if (zoff_model_masters_of(&e->model, &e->model.params[pieces[i].param])->is_whole)
            t->settles[ZOFF_STREAM_MASTER] = false;
    }
}

/* Update the bucket without tiles, if no checksums are needed. */
static void update_whole(zoff_engine *e, zoff_bucket_run *run, const zoff_plan_chunk *chunk, const zoff_plan_piece *pieces)
{
    size_t used = 0;
    for (size_t i = 0; i < chunk->piece_count; i++) {
        if (!*zoff_model_params_flag(&e->model, &pieces[i]))
            continue;
        const zoff_adam_piece a = make_piece(e, run, chunk, &pieces[i]);
        e->transfer.scratch.adam_pieces[used++] = a;
        count_bytes(&e->run.info, &a);
    }
    zoff_adam_update_run(zoff_engine_update_threads_of_update(e), e->transfer.scratch.adam_pieces, used, between, e);
}

static size_t tile_of(const zoff_engine *e, bool settles)
{
    return settles ? TILE : e->threads.in_progress ? SHORT_TILE : LARGE_TILE;
}

static zoff_status update_in_tiles(zoff_engine *e, zoff_bucket_run *run, const update_target *target, const update_pass *pass)
{
    const zoff_plan_chunk *chunk = &e->plan.chunks[run->chunk];
    const zoff_plan_piece *pieces = &e->plan.pieces[chunk->first_piece];
    const bool settles = chunk->bytes && zoff_offload_store_wants_settle(e->store);
    tiling t = {.engine = e, .run = run, .chunk = chunk, .target = target, .pass = pass, .most = tile_of(e, settles)};
    choose_streams(&t, pieces);
    return run_tiles(&t, pieces);
}

static size_t count_elements(const zoff_engine *e, const zoff_bucket_run *run)
{
    const zoff_plan_chunk *chunk = &e->plan.chunks[run->chunk];
    size_t elements = 0;
    for (size_t i = 0; i < chunk->piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[chunk->first_piece + i];
        elements += *zoff_model_params_flag(&e->model, piece) ? piece->count : 0;
    }
    return elements;
}

void zoff_engine_update_count(zoff_engine *e, const zoff_bucket_run *run)
{
    e->run.info.numbers.elements_updated += count_elements(e, run);
    e->run.info.buckets.all++;
}

static bool is_at_start(const zoff_bucket_run *run)
{
    return run->cursor.piece == 0 && run->cursor.element == 0;
}

/* A thread beside the program updates in tiles, so that it can stop when a call needs the engine. */
static zoff_status update_bucket(zoff_engine *e, zoff_bucket_run *run)
{
    const zoff_plan_chunk *chunk = &e->plan.chunks[run->chunk];
    const bool settles = chunk->bytes && zoff_offload_store_wants_settle(e->store);
    if (settles || e->io.guard || e->threads.in_progress || !is_at_start(run))
        return update_in_tiles(e, run, &IN_PLACE, &PLAIN);
    update_whole(e, run, chunk, &e->plan.pieces[chunk->first_piece]);
    return ZOFF_OK;
}

/* Change weights by `work`, a pass over the bucket. */
static zoff_status update_weights(zoff_engine *e, zoff_bucket_run *run,
                                  zoff_status (*work)(zoff_engine *e, zoff_bucket_run *run))
{
    zoff_store_stats before;
    zoff_engine_stores_stats(e, &before);
    zoff_traps_weights_enter(e->life.traps, run->chunk);
    const double from = zoff_base_clock_seconds();
    const zoff_status status = work(e, run);
    if (status == ZOFF_OK) {
        zoff_engine_states_keep_weights(e, run->chunk, (zoff_chunk_memory){run->lent.states.base, run->lent.weights.base},
                                        false);
        zoff_lending_param_cache_refresh(&e->lending, run->chunk, run->lent.weights.base, false);
        zoff_engine_update_count(e, run);
    }
    zoff_traps_weights_leave(e->life.traps, run->chunk);
    e->run.info.seconds.update += zoff_engine_stores_worked(e, from, &before);
    return status;
}

zoff_status zoff_engine_update_run(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    if (!zoff_transfer_pieces_take_part(&e->transfer, run->chunk))
        return ZOFF_OK;
    if (is_at_start(run)) {
        zoff_engine_update_guard(e, run, run->lent.states.base);
        e->transfer.batch.updated++; /* from here on the step is half done */
    }
    return update_weights(e, run, update_bucket);
}

/* A save has read the chunks of matrices before this, because not all arrays of a chunk are in memory at a time. */
zoff_status zoff_engine_update_momentum(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    zoff_status status = ZOFF_OK;
    if (zoff_transfer_pieces_take_part(&e->transfer, run->chunk)) {
        zoff_store_stats before;
        zoff_engine_stores_stats(e, &before);
        if (is_at_start(run) && e->io.guard)
            e->io.guard->before_all(e->io.guard->ctx);
        e->transfer.batch.updated += is_at_start(run);
        const double from = zoff_base_clock_seconds();
        status = update_in_tiles(e, run, &IN_PLACE, &MOMENTUM);
        e->run.info.seconds.update += zoff_engine_stores_worked(e, from, &before);
    }
    if (status == ZOFF_OK)
        zoff_matrices_written(&e->walk.matrices.all);
    run->is_written = status == ZOFF_OK;
    return status;
}

static zoff_status apply_bucket(zoff_engine *e, zoff_bucket_run *run)
{
    return update_in_tiles(e, run, &IN_PLACE, &APPLIED);
}

zoff_status zoff_engine_update_apply(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    const bool takes_part = zoff_transfer_pieces_take_part(&e->transfer, run->chunk);
    const zoff_status status = takes_part ? update_weights(e, run, apply_bucket) : ZOFF_OK;
    if (status == ZOFF_OK)
        zoff_matrices_applied(&e->walk.matrices.all);
    return status;
}

/* A rule may leave out a moment that the states have, so it is the same in the second content. */
static void copy_untouched(const zoff_engine *e, const zoff_bucket_run *run)
{
    const zoff_plan_chunk *chunk = &e->plan.chunks[run->chunk];
    const ptrdiff_t apart = run->ahead.states - run->lent.states.base;
    for (size_t i = 0; apart && i < chunk->piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[chunk->first_piece + i];
        const zoff_model_param *p = &e->model.params[piece->param];
        const zoff_plan_tensor tensor = zoff_model_params_tensor(&e->model, p);
        const zoff_adam_states touched =
            zoff_adam_hyper_rule_states(e->transfer.scratch.consts[zoff_model_groups_index(&e->model, p)].rule);
        const bool leaves[ZOFF_STREAM_COUNT] = {[ZOFF_STREAM_M] = !touched.m, [ZOFF_STREAM_V] = !touched.v};
        for (unsigned stream = 0; stream < ZOFF_STREAM_COUNT; stream++) {
            char *from = zoff_transfer_pieces_state(chunk, piece, run->lent.states.base, (zoff_plan_stream)stream);
            if (leaves[stream] && tensor.bytes[stream])
                memcpy(from + apart, from, zoff_zero_plan_bytes(&tensor, stream, piece->count));
        }
    }
}

zoff_status zoff_engine_update_apart(zoff_engine *e, zoff_bucket_run *run)
{
    zoff_store_stats before;
    zoff_engine_stores_stats(e, &before);
    const double from = zoff_base_clock_seconds();
    if (is_at_start(run))
        copy_untouched(e, run);
    const zoff_status status = update_in_tiles(e, run, &APART, &PLAIN);
    if (status == ZOFF_OK)
        zoff_engine_states_keep_weights(e, run->chunk, (zoff_chunk_memory){run->ahead.states, NULL}, false);
    e->run.info.seconds.update += zoff_engine_stores_worked(e, from, &before);
    return status;
}

/* ---- how many threads work on a bucket ----
 *
 * If a step waits for the disk, more threads than needed to keep up with it make nothing faster. They make it slower. Each
 * bucket finds them asleep, because the caller has waited in between. Or they spin on the CPU on which the disk's interrupt
 * woke the caller. So an update uses as many threads as the last step had work for. */

unsigned zoff_engine_update_threads_of_update(const zoff_engine *e)
{
    return e->threads.in_progress ? e->transfer.threads.now : zoff_engine_update_threads_of_calls(e);
}

/* Products have work for all threads, whatever the disk does. */
unsigned zoff_engine_update_threads_of_matrices(const zoff_engine *e)
{
    return e->threads.in_progress ? e->transfer.threads.now : e->settings.threads;
}

unsigned zoff_engine_update_threads_of_calls(const zoff_engine *e)
{
    return e->threads.update ? e->threads.update : e->settings.threads;
}

unsigned zoff_engine_update_threads_enough(double worked, double waited, unsigned used, unsigned most)
{
    const double busy = 2.0 / 3; /* share of the step's time: so much work still overlaps with the disk */
    const double room = busy * (worked + waited);
    if (!(room > 0))
        return used;
    const double wanted = worked * used / room;
    return wanted < most ? 1 + (unsigned)wanted : most;
}

/* Measuring overlaps with nothing: the step waits for the last gradient before it uses the first state. With many cores, all
 * threads are faster. With two, where one thread updates, the other must be woken for each bucket; that was five times slower.
 * So both are tried, and the slower one again from time to time. */
void zoff_engine_update_threads_choose(zoff_measure_threads *m, double seconds)
{
    enum { AGAIN = 50 }; /* steps */
    m->seconds[m->few] = seconds;
    if (m->seconds[!m->few] == 0 || ++m->steps >= AGAIN) {
        m->few = !m->few;
        m->steps = 0;
    } else {
        m->few = m->seconds[1] < m->seconds[0];
    }
}

void zoff_engine_update_threads_learn(zoff_engine *e)
{
    const zoff_step_info *info = &e->run.info;
    /* With background threads, a part of the times is of other threads. */
    if (!zoff_offload_store_overlaps(e->store) || info->outcome != ZOFF_OUTCOME_AFTER ||
        e->settings.values.background_threads || info->buckets.speculated)
        return;
    if (zoff_engine_update_threads_of_update(e) < e->settings.threads)
        zoff_engine_update_threads_choose(&e->threads.measure, info->seconds.measure);
    e->threads.update = zoff_engine_update_threads_enough(info->seconds.update + info->seconds.checksum, info->seconds.io_wait,
                                                          zoff_engine_update_threads_of_update(e), e->settings.threads);
    e->transfer.threads.measure = e->threads.measure.few ? zoff_engine_update_threads_of_calls(e) : 0;
    zoff_engine_stores_set_threads(e, e->threads.update);
}
