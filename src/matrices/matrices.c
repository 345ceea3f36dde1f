/* SPDX-License-Identifier: Apache-2.0 */
/* matrices.c: the memory of a round, and the round that has it. */
#include "matrices.h"

#include "bits.h"
#include "mem.h"
#include "try.h"

enum { LINE = 64 }; /* parts of the memory begin at cache lines */

/* ---- lists ---- */

/* Without an exchange the whole matrices are this rank's own elements. */
static void place_entries(zoff_matrices *x)
{
    for (size_t r = 0; r < x->plan->rounds.count; r++) {
        size_t at = 0;
        for (size_t i = x->rounds[r].entries; i < x->rounds[r + 1].entries; i++) {
            x->entries[i].at = at;
            at += x->entries[i].rows * x->entries[i].cols;
        }
    }
}

static zoff_status list(zoff_matrices *x, const zoff_matrices_opts *opts)
{
    *x = (zoff_matrices){.plan = opts->plan,
                         .model = opts->model,
                         .exchanges = opts->exchanges,
                         .comm = opts->comm,
                         .channel = opts->channel,
                         .threads = opts->threads};
    if (!opts->plan->rounds.count)
        return ZOFF_OK;
    ZOFF_TRY(zoff_matrices_entries_list(x));
    if (opts->exchanges)
        return zoff_matrices_exchange_list(x);
    place_entries(x);
    return ZOFF_OK;
}

/* ---- memory ---- */

/* Bytes of the parts of the memory. */
typedef struct parts {
    size_t own, whole, scratch;
} parts;

static const zoff_matrix_rule *rule_of(const zoff_matrices *x, const zoff_matrix_entry *e)
{
    return zoff_model_matrices_rule(x->model, &x->model->params[e->param]);
}

static parts parts_of(const zoff_matrices *x)
{
    const zoff_plan *plan = x->plan;
    parts p = {.own = 0};
    for (size_t r = 0; r < plan->rounds.count; r++) {
        const zoff_plan_round *round = &plan->rounds.all[r];
        size_t own = 0, whole = 0;
        for (size_t c = round->first_chunk; c < round->first_chunk + round->chunk_count; c++)
            own += plan->chunks[c].elements;
        for (size_t i = x->rounds[r].entries; i < x->rounds[r + 1].entries; i++) {
            const zoff_matrix_entry *e = &x->entries[i];
            if (x->exchanges && e->worker != plan->rank)
                continue;
            whole += e->rows * e->cols;
            p.scratch = zoff_base_bits_max(p.scratch, rule_of(x, e)->scratch_bytes(e->rows, e->cols, x->threads));
        }
        p.own = zoff_base_bits_max(p.own, own * sizeof(float));
        p.whole = zoff_base_bits_max(p.whole, whole * sizeof(float));
    }
    p.own = zoff_base_bits_align(p.own, LINE);
    p.whole = zoff_base_bits_align(p.whole, LINE);
    return p;
}

static size_t sum_of(const zoff_matrices *x, parts p)
{
    return (x->exchanges ? 2 * (p.own + p.whole) : p.own) + p.scratch;
}

zoff_status zoff_matrices_bytes(const zoff_matrices_opts *opts, uint64_t *out)
{
    zoff_matrices x;
    const zoff_status status = list(&x, opts);
    *out = status == ZOFF_OK && opts->plan->rounds.count ? sum_of(&x, parts_of(&x)) : 0;
    zoff_matrices_close(&x);
    return status;
}

zoff_status zoff_matrices_traffic(const zoff_matrices_opts *opts, zoff_comm_traffic *sum)
{
    zoff_matrices x;
    const zoff_status status = list(&x, opts);
    for (size_t r = 0; status == ZOFF_OK && opts->exchanges && r < opts->plan->rounds.count; r++) {
        for (int is_back = 0; is_back < 2; is_back++) {
            const zoff_comm_call call = zoff_matrices_exchange_call(&x, r, is_back);
            zoff_comm_call_add_traffic(opts->comm, &call, sum);
        }
    }
    zoff_matrices_close(&x);
    return status;
}

static zoff_status allocate(zoff_matrices *x)
{
    const parts p = parts_of(x);
    zoff_matrix_memory *memory = &x->memory;
    ZOFF_TRY(zoff_base_map_alloc(sum_of(x, p), "the directions of matrices", ZOFF_MAP_INTERLEAVED, &memory->map));
    char *at = memory->map.base;
    memory->own = memory->whole = (float *)(void *)at;
    at += p.own;
    if (x->exchanges) {
        memory->whole = (float *)(void *)at;
        memory->own_wire = (float *)(void *)(at + p.whole);
        memory->whole_wire = (float *)(void *)(at + p.whole + p.own);
        at += p.whole + p.own + p.whole;
    }
    memory->scratch = at;
    return ZOFF_OK;
}

/* After an error: close() frees what was allocated. */
zoff_status zoff_matrices_open(zoff_matrices *x, const zoff_matrices_opts *opts)
{
    ZOFF_TRY(list(x, opts));
    return opts->plan->rounds.count ? allocate(x) : ZOFF_OK;
}

void zoff_matrices_close(zoff_matrices *x)
{
    void *blocks[] = {x->entries, x->own_at, x->rounds, x->own_segments, x->whole_segments, x->sizes};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        zoff_base_mem_free(blocks[i]);
    zoff_base_map_free(&x->memory.map);
    *x = (zoff_matrices){.plan = NULL};
}

void zoff_matrices_begin(zoff_matrices *x)
{
    x->turn = (zoff_matrix_turn){.round = 0};
    x->flop = 0;
}

/* ---- the round that has memory ---- */

static size_t round_of(const zoff_matrices *x, size_t bucket)
{
    return x->plan->chunks[bucket].round;
}

bool zoff_matrices_turn(zoff_matrices *x, size_t bucket)
{
    if (!x->turn.round)
        x->turn = (zoff_matrix_turn){.round = round_of(x, bucket), .next = x->rounds[round_of(x, bucket) - 1].entries};
    return x->turn.round == round_of(x, bucket);
}

bool zoff_matrices_is_written(const zoff_matrices *x, size_t bucket)
{
    return x->turn.round == round_of(x, bucket) && x->turn.written == x->plan->rounds.all[x->turn.round - 1].chunk_count;
}

void zoff_matrices_written(zoff_matrices *x)
{
    x->turn.written++;
}

void zoff_matrices_applied(zoff_matrices *x)
{
    if (++x->turn.applied == x->plan->rounds.all[x->turn.round - 1].chunk_count)
        x->turn = (zoff_matrix_turn){.round = 0};
}

/* ---- orthogonal directions ---- */

/* Without a gradient in this step directions were not written, and nobody reads them. */
static bool is_wanted(const zoff_matrices *x, const zoff_matrix_entry *e)
{
    const bool has_gradient = x->model->flags[x->model->params[e->param].first_flag + e->slice];
    return has_gradient && (!x->exchanges || e->worker == x->plan->rank);
}

static void feed_between(void *ctx)
{
    const zoff_matrices_work *work = ctx;
    work->feed(work->ctx);
}

static bool is_to_stop(void *ctx)
{
    return *((const zoff_matrices_work *)ctx)->stops;
}

static zoff_status orthogonalize(zoff_matrices *x, const zoff_matrix_entry *e, const zoff_matrices_work *work)
{
    zoff_matrix_turn *turn = &x->turn;
    const unsigned threads = work->threads < x->threads ? work->threads : x->threads;
    if (!turn->is_working) {
        turn->work =
            (zoff_orthogonal){.rows = e->rows, .cols = e->cols, .x = x->memory.whole + e->at, .scratch = x->memory.scratch};
        rule_of(x, e)->begin(&work->hyper[x->model->params[e->param].group], &turn->work);
    }
    turn->is_working = true;
    const zoff_status status =
        rule_of(x, e)->transform(threads, &turn->work, feed_between, is_to_stop, (void *)(uintptr_t)work);
    turn->is_working = status == ZOFF_PENDING;
    if (status == ZOFF_OK)
        x->flop += rule_of(x, e)->flop(&turn->work);
    return status;
}

static zoff_status orthogonalize_all(zoff_matrices *x, const zoff_matrices_work *work)
{
    for (; x->turn.next < x->rounds[x->turn.round].entries; x->turn.next++) {
        const zoff_matrix_entry *e = &x->entries[x->turn.next];
        if (is_wanted(x, e))
            ZOFF_TRY_DONE(orthogonalize(x, e, work));
    }
    return ZOFF_OK;
}

zoff_status zoff_matrices_poll(zoff_matrices *x, size_t bucket, const zoff_matrices_work *work)
{
    zoff_matrix_turn *turn = &x->turn;
    if (!zoff_matrices_is_written(x, bucket))
        return ZOFF_PENDING;
    if (turn->stage == ZOFF_MATRICES_DONE)
        return ZOFF_OK;
    if (turn->stage < ZOFF_MATRICES_WORKING && x->exchanges)
        ZOFF_TRY_DONE(zoff_matrices_exchange_run(x, false));
    turn->stage = turn->stage < ZOFF_MATRICES_WORKING ? ZOFF_MATRICES_WORKING : turn->stage;
    ZOFF_TRY_DONE(orthogonalize_all(x, work));
    if (x->exchanges)
        ZOFF_TRY_DONE(zoff_matrices_exchange_run(x, true));
    turn->stage = ZOFF_MATRICES_DONE;
    return ZOFF_OK;
}
