/* param_gather.c: weights of the engine that are sharded, made whole on every rank. A slice lies in one bucket or in several;
 * in each of them the ranks' parts of it follow one another, so what is gathered of a bucket goes straight to its place in the
 * slice.
 *
 * All ranks gather the same in the same order: what is planned depends on nothing but the calls of the trainer, which are the
 * same everywhere, and never on what has arrived. When a part leaves depends on the disk. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

#include <string.h>

enum { SLOTS = 4 }; /* parts of slices under way */

static zoff_cached_slice *slice_of(const zoff_engine *e, size_t number)
{
    return &e->param_cache.slices[number];
}

static zoff_assembly *assembly_of(const zoff_engine *e)
{
    return (zoff_assembly *)(uintptr_t)&e->param_cache.assembly;
}

/* ---- one part of a slice ---- */

static const zoff_plan_piece *run_of(const zoff_engine *e, zoff_assembly_part part)
{
    return &e->plan.runs[part.run];
}

static size_t element_bytes(const zoff_engine *e, zoff_assembly_part part)
{
    return zoff_adam_dtype_bytes(e->params[run_of(e, part)->param].dtype);
}

static zoff_assembly_part part_of(const zoff_engine *e, size_t item)
{
    const zoff_assembly *a = assembly_of(e);
    return a->parts[item % a->capacity];
}

static size_t part_bytes(void *ctx, size_t item, unsigned rank)
{
    const zoff_engine *e = ctx;
    const zoff_assembly_part part = part_of(e, item);
    size_t first;
    return zoff_zero_plan_share(&e->plan, run_of(e, part), rank, &first) * element_bytes(e, part);
}

static zoff_comm_item about(void *ctx, size_t item)
{
    const zoff_engine *e = ctx;
    const zoff_assembly_part part = part_of(e, item);
    const zoff_plan_piece *run = run_of(e, part);
    return (zoff_comm_item){.about = ZOFF_COMM_ABOUT_SLICE, .param = run->param, .index = run->slice, .extra = run->bucket};
}

static char *place_of(const zoff_engine *e, zoff_assembly_part part, size_t first)
{
    return slice_of(e, part.slice)->at + first * element_bytes(e, part);
}

static zoff_status begin(void *ctx, size_t item, unsigned slot, char **out)
{
    const zoff_engine *e = ctx;
    const zoff_assembly_part part = part_of(e, item);
    (void)slot;
    *out = place_of(e, part, run_of(e, part)->first);
    return ZOFF_OK;
}

static zoff_status end(void *ctx, size_t item, unsigned slot, const char *parts)
{
    const zoff_engine *e = ctx;
    (void)slot;
    (void)parts;
    slice_of(e, part_of(e, item).slice)->missing--;
    return ZOFF_OK;
}

/* What this rank has of it to its place: one piece.  @return PENDING: it is being read */
static zoff_status put_own(zoff_engine *e, zoff_assembly_part part)
{
    const zoff_plan_piece *run = run_of(e, part);
    size_t first;
    char *base;
    if (!zoff_zero_plan_share(&e->plan, run, e->plan.rank, &first))
        return ZOFF_OK;
    zoff_status status = zoff_engine_held_borrow(e, run->bucket, &base);
    if (status != ZOFF_OK)
        return status;
    const zoff_plan_piece *own = &e->plan.pieces[zoff_zero_plan_find(&e->plan, run->param, run->slice, first)];
    memcpy(place_of(e, part, first), base + own->weight_offset, own->count * element_bytes(e, part));
    return ZOFF_OK;
}

/* ---- the queue ---- */

/* The part of a slice that is a run, of which `done` elements lie before it; both go on behind it. */
static zoff_assembly_part take_part(const zoff_engine *e, uint32_t number, size_t *run, size_t *done)
{
    const zoff_assembly_part part = {.slice = number, .run = *run};
    *done += e->plan.runs[(*run)++].count;
    return part;
}

static size_t count_parts(const zoff_engine *e, uint32_t number)
{
    size_t count = 0;
    for (size_t run = slice_of(e, number)->first_run, done = 0; done < slice_of(e, number)->count; count++)
        (void)take_part(e, number, &run, &done);
    return count;
}

/* Numbers of parts go on for ever; the ring has room for those that are not done. It is made once and for two passes: a rank
 * that had no memory for a part in the middle of one would plan another order than all others. */
zoff_status zoff_engine_param_gather_open(zoff_engine *e)
{
    zoff_assembly *a = &e->param_cache.assembly;
    const zoff_gather_opts opts = {.comm = e->comm,
                                   .channel = &e->channel,
                                   .stream = ZOFF_COMM_WEIGHTS,
                                   .slots = SLOTS,
                                   .about = about,
                                   .part_bytes = part_bytes,
                                   .begin = begin,
                                   .end = end,
                                   .ctx = e};
    size_t parts = 1;
    for (size_t i = 0; i < e->slice_count; i++)
        parts += slice_of(e, i)->count ? count_parts(e, (uint32_t)i) : 0;
    ZOFF_TRY(zoff_base_mem_alloc(2 * parts, sizeof *a->parts, "weights on their way", &a->parts));
    a->capacity = 2 * parts;
    return zoff_zero_gather_open(&opts, &a->gather);
}

void zoff_engine_param_gather_close(zoff_engine *e)
{
    zoff_zero_gather_close(e->param_cache.assembly.gather);
    zoff_base_mem_free(e->param_cache.assembly.parts);
    e->param_cache.assembly = (zoff_assembly){.gather = NULL};
}

void zoff_engine_param_gather_plan(zoff_engine *e, uint32_t number)
{
    zoff_assembly *a = &e->param_cache.assembly;
    zoff_cached_slice *s = slice_of(e, number);
    for (size_t run = s->first_run, done = 0; done < s->count; s->missing++)
        a->parts[a->planned++ % a->capacity] = take_part(e, number, &run, &done);
}

/* While one part is read from files, those after it may be. */
static void read_ahead(zoff_engine *e)
{
    enum { FURTHEST = 8 };
    const zoff_assembly *a = &e->param_cache.assembly;
    const size_t end = zoff_base_bits_min(a->planned, a->started + FURTHEST);
    for (size_t i = a->started; i < end; i++) {
        const zoff_plan_piece *run = run_of(e, part_of(e, i));
        size_t first;
        if (zoff_zero_plan_share(&e->plan, run, e->plan.rank, &first))
            (void)zoff_offload_store_ahead(e->weights, run->bucket); /* what fails is told by the fetch */
    }
}

/* Start what can be started, in order. */
static zoff_status start(zoff_engine *e)
{
    zoff_assembly *a = &e->param_cache.assembly;
    for (; a->started < a->planned; a->started++) {
        const zoff_assembly_part part = part_of(e, a->started);
        if (!zoff_zero_gather_has_room(a->gather))
            return ZOFF_PENDING;
        zoff_status status = put_own(e, part);
        if (status == ZOFF_PENDING)
            read_ahead(e);
        if (status == ZOFF_OK)
            status = zoff_zero_gather_start(a->gather, a->started);
        if (status != ZOFF_OK)
            return status;
    }
    return ZOFF_OK;
}

zoff_status zoff_engine_param_gather_go_on(zoff_engine *e)
{
    zoff_assembly *a = &e->param_cache.assembly;
    if (!a->gather || (a->started == a->planned && a->done_before == a->planned))
        return ZOFF_OK;
    zoff_status starting = start(e);
    ZOFF_TRY(starting);
    zoff_status polling = zoff_zero_gather_poll(a->gather);
    ZOFF_TRY(polling);
    if (starting == ZOFF_OK && polling == ZOFF_OK)
        a->done_before = a->planned;
    else if (polling == ZOFF_OK)
        a->done_before = a->started;
    return starting == ZOFF_OK ? polling : starting;
}

/* A wait for a whole slice, or for room in the ring of parts. */
typedef struct assemble_wait {
    zoff_engine *engine;
    const zoff_cached_slice *slice; /* NULL: wait for room for `parts` */
    size_t parts;
} assemble_wait;

static bool is_enough(const assemble_wait *w)
{
    const zoff_assembly *a = &w->engine->param_cache.assembly;
    return w->slice ? !w->slice->missing : a->planned - a->done_before + w->parts <= a->capacity;
}

/* Poll gradients as well: another rank may send its weights only after it has memory for gradients, and it has that only after
 * this rank has taken some. */
static zoff_status go_on(zoff_engine *e)
{
    ZOFF_TRY(zoff_base_progress_take(&e->pollers.weights)); /* else a chunk that cannot be read is read again for ever */
    const zoff_status status = zoff_engine_param_gather_go_on(e);
    if (status == ZOFF_PENDING)
        (void)zoff_engine_reduce_scatter_go_on(e);
    return status;
}

static zoff_status go_on_until_enough(void *ctx)
{
    const assemble_wait *w = ctx;
    if (is_enough(w))
        return ZOFF_OK;
    ZOFF_TRY(go_on(w->engine));
    return is_enough(w) ? ZOFF_OK : ZOFF_PENDING;
}

zoff_status zoff_engine_param_gather_wait(zoff_engine *e, uint32_t number)
{
    zoff_base_progress_forget(&e->pollers.weights);
    return zoff_engine_ranks_wait_until(e, go_on_until_enough, &(assemble_wait){.engine = e, .slice = slice_of(e, number)});
}

zoff_status zoff_engine_param_gather_make_room(zoff_engine *e, uint32_t number)
{
    zoff_base_progress_forget(&e->pollers.weights);
    return zoff_engine_ranks_wait_until(e, go_on_until_enough, &(assemble_wait){.engine = e, .parts = count_parts(e, number)});
}

/* Nothing of it will come any more. */
static void abandon(zoff_engine *e)
{
    zoff_assembly *a = &e->param_cache.assembly;
    for (; a->done_before < a->planned; a->done_before++)
        slice_of(e, part_of(e, a->done_before).slice)->missing = 0;
    a->started = a->planned;
    zoff_engine_param_cache_clear(e);
}

static zoff_status go_on_until_empty(void *ctx)
{
    return go_on(ctx);
}

zoff_status zoff_engine_param_gather_finish(zoff_engine *e)
{
    if (zoff_comm_is_broken(e->comm) && e->param_cache.assembly.gather) {
        abandon(e);
        return ZOFF_OK;
    }
    zoff_base_progress_forget(&e->pollers.weights);
    return zoff_engine_ranks_wait_until(e, go_on_until_empty, e);
}
