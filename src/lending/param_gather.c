/* SPDX-License-Identifier: Apache-2.0 */
/* param_gather.c: gathers engine-owned weights that are partitioned, so that they are whole on every rank. A slice lies in one
 * bucket or in several. In each bucket the ranks' parts of a slice follow one another, so the gathered parts go directly to
 * their place in the slice. Groups of ranks that each have all weights gather by themselves.
 *
 * All ranks gather the same slices in the same order. The plan depends only on the calls of the trainer, which are the same on
 * every rank, and never on which parts have arrived. The time at which a part is sent depends on the disk. */
#include "lending.h"

#include "bits.h"
#include "try.h"

#include <string.h>

static zoff_cached_slice *slice_of(const zoff_lending *l, size_t number)
{
    return &l->cache.slices[number];
}

static zoff_assembly *assembly_of(const zoff_lending *l)
{
    return (zoff_assembly *)(uintptr_t)&l->cache.assembly;
}

/* ---- one part of a slice ---- */

static const zoff_plan_piece *run_of(const zoff_lending *l, zoff_assembly_part part)
{
    return &l->plan->runs[part.run];
}

static size_t element_bytes(const zoff_lending *l, zoff_assembly_part part)
{
    return zoff_adam_dtype_bytes(l->model->params[run_of(l, part)->param].dtype);
}

static zoff_assembly_part part_of(const zoff_lending *l, size_t item)
{
    const zoff_assembly *a = assembly_of(l);
    return a->parts[item % a->capacity];
}

static void size_up(const zoff_lending *l, zoff_assembly_part part, size_t *bytes)
{
    for (unsigned i = 0; i < l->group.members; i++) {
        size_t first;
        bytes[i] = zoff_lending_group_share(l, l->plan, run_of(l, part), l->group.first + i, &first) * element_bytes(l, part);
    }
}

/* Tell a slot its part. */
static void describe(const zoff_lending *l, size_t item, zoff_gather_slot *s)
{
    const zoff_assembly_part part = part_of(l, item);
    const zoff_plan_piece *run = run_of(l, part);
    s->item = item;
    s->about = (zoff_comm_item){.about = ZOFF_COMM_ABOUT_SLICE, .param = run->param, .index = run->slice, .extra = run->bucket};
    size_up(l, part, s->bytes);
}

/* Where the parts of all ranks belong. */
static char *place_of(const zoff_lending *l, zoff_assembly_part part)
{
    return slice_of(l, part.slice)->at + run_of(l, part)->first * element_bytes(l, part);
}

/* Whether an open step has yet to update this rank's share. */
static bool is_old(const zoff_lending *l, zoff_assembly_part part)
{
    size_t first;
    return zoff_lending_group_share(l, l->plan, run_of(l, part), l->plan->rank, &first) &&
           !zoff_lending_param_cache_is_new(l, part.slice);
}

/* Put this rank's share in place, and send it. In an open step, whose buckets need slots, one share at a time is read.  @return
 * PENDING: it is not updated yet, its chunk is being read, it is copied, or an earlier part comes first */
static zoff_status send_own(zoff_lending *l, zoff_gather_slot *s)
{
    zoff_assembly *a = &l->cache.assembly;
    const zoff_assembly_part part = part_of(l, s->item);
    if (!a->has_own[s->number] && (is_old(l, part) || (l->cache.in_step && s->item > a->brought)))
        return ZOFF_PENDING;
    const zoff_status status = l->place->landing->begin(l, s->item, s->number, place_of(l, part), &s->parts);
    if (status == ZOFF_OK || a->has_own[s->number])
        a->brought = zoff_base_bits_max(a->brought, s->item + 1);
    else if (status == ZOFF_PENDING)
        zoff_lending_held_read_parts_ahead(l, s->item); /* while one part is read, start reading those after it */
    return status == ZOFF_OK ? zoff_zero_gather_send(a->gather, s) : status;
}

/* The parts of all ranks have come, or none has any. */
static zoff_status end_gather(zoff_lending *l, zoff_gather_slot *s)
{
    const zoff_assembly_part part = part_of(l, s->item);
    if (s->is_used) {
        ZOFF_TRY_DONE(l->place->landing->end(l, s->number, place_of(l, part), run_of(l, part)->count * element_bytes(l, part)));
    }
    l->cache.assembly.has_own[s->number] = false;
    slice_of(l, part.slice)->missing--;
    zoff_zero_gather_end(s);
    return ZOFF_OK;
}

/* ---- the queue ---- */

/* Take the part of a slice that is the run `*run`. `*done` counts the elements of the runs before it. Both advance. */
static zoff_assembly_part take_part(const zoff_lending *l, uint32_t number, size_t *run, size_t *done)
{
    const zoff_assembly_part part = {.slice = number, .run = *run};
    *done += l->plan->runs[(*run)++].count;
    return part;
}

static size_t count_parts(const zoff_lending *l, uint32_t number)
{
    size_t count = 0;
    for (size_t run = slice_of(l, number)->first_run, done = 0; done < slice_of(l, number)->count; count++)
        (void)take_part(l, number, &run, &done);
    return count;
}

static zoff_gather_opts gather_opts(const zoff_lending *l)
{
    return (zoff_gather_opts){.comm = l->comm,
                              .channel = l->channel,
                              .stream = zoff_lending_secondary_is(l) ? ZOFF_COMM_GROUP : ZOFF_COMM_WEIGHTS,
                              .first = l->group.first,
                              .members = zoff_lending_secondary_is(l) ? l->group.members : 0,
                              .slots = ZOFF_PARTS_IN_FLIGHT};
}

zoff_status zoff_lending_param_gather_traffic(const zoff_lending *l, zoff_comm_traffic *sum)
{
    const zoff_gather_opts opts = gather_opts(l);
    size_t *bytes;
    ZOFF_TRY(zoff_base_mem_alloc(l->group.members, sizeof *bytes, "parts of the ranks", &bytes));
    for (uint32_t i = 0; l->source->takes_all && l->cache.slices && i < l->model->slice_count; i++) {
        const zoff_cached_slice *s = slice_of(l, i);
        for (size_t run = s->first_run, done = 0; !s->persistent && done < s->count;) {
            size_up(l, take_part(l, i, &run, &done), bytes);
            zoff_zero_gather_traffic(&opts, bytes, NULL, sum);
        }
    }
    zoff_base_mem_free(bytes);
    return ZOFF_OK;
}

/* Part numbers grow without limit; the ring holds the parts that are not done. It is allocated once, for two passes: a rank
 * that ran out of memory during a pass would plan another order than the others. */
zoff_status zoff_lending_param_gather_open(zoff_lending *l)
{
    zoff_assembly *a = &l->cache.assembly;
    const zoff_gather_opts opts = gather_opts(l);
    size_t parts = 1;
    for (size_t i = 0; i < l->model->slice_count; i++)
        parts += slice_of(l, i)->count ? count_parts(l, (uint32_t)i) : 0;
    ZOFF_TRY(zoff_base_mem_alloc(2 * parts, sizeof *a->parts, "weights in flight", &a->parts));
    a->capacity = 2 * parts;
    return zoff_zero_gather_open(&opts, &a->gather);
}

void zoff_lending_param_gather_close(zoff_lending *l)
{
    zoff_zero_gather_close(l->cache.assembly.gather);
    zoff_base_mem_free(l->cache.assembly.parts);
    l->cache.assembly = (zoff_assembly){.gather = NULL};
}

void zoff_lending_param_gather_plan(zoff_lending *l, uint32_t number)
{
    zoff_assembly *a = &l->cache.assembly;
    zoff_cached_slice *s = slice_of(l, number);
    for (size_t run = s->first_run, done = 0; done < s->count; s->missing++)
        a->parts[a->planned++ % a->capacity] = take_part(l, number, &run, &done);
}

/* Start parts in order, as far as possible. An error of this rank's share comes from the poll, which repeats it. */
static zoff_status start(zoff_lending *l)
{
    zoff_assembly *a = &l->cache.assembly;
    for (; a->started < a->planned; a->started++) {
        zoff_gather_slot *s = zoff_zero_gather_free(a->gather);
        if (!s)
            return ZOFF_PENDING;
        describe(l, a->started, s);
        if (zoff_zero_gather_take(a->gather, s))
            (void)send_own(l, s);
        else
            ZOFF_TRY(end_gather(l, s));
    }
    return ZOFF_OK;
}

static zoff_status poll(zoff_lending *l)
{
    zoff_gather *g = l->cache.assembly.gather;
    bool is_pending = false;
    for (zoff_gather_slot *s = NULL; (s = zoff_zero_gather_next(g, s));) {
        zoff_status status = s->is_sent ? ZOFF_OK : send_own(l, s);
        status = status == ZOFF_OK ? zoff_zero_gather_poll(g, s) : status;
        status = status == ZOFF_OK ? end_gather(l, s) : status;
        ZOFF_TRY(status);
        is_pending = is_pending || status == ZOFF_PENDING;
    }
    return is_pending ? ZOFF_PENDING : ZOFF_OK;
}

zoff_status zoff_lending_param_gather_go_on(zoff_lending *l)
{
    zoff_assembly *a = &l->cache.assembly;
    if (!a->gather || (a->started == a->planned && a->done_before == a->planned))
        return ZOFF_OK;
    zoff_status starting = start(l);
    ZOFF_TRY(starting);
    zoff_status polling = poll(l);
    ZOFF_TRY(polling);
    if (starting == ZOFF_OK && polling == ZOFF_OK)
        a->done_before = a->planned;
    else if (polling == ZOFF_OK)
        a->done_before = a->started;
    return starting == ZOFF_OK ? polling : starting;
}

/* A wait for a whole slice, or for room in the ring of parts. */
typedef struct assemble_wait {
    zoff_lending *lending;
    const zoff_cached_slice *slice; /* NULL: wait for room for `parts` */
    size_t parts;
} assemble_wait;

static bool is_enough(const assemble_wait *w)
{
    const zoff_assembly *a = &w->lending->cache.assembly;
    return w->slice ? !w->slice->missing : a->planned - a->done_before + w->parts <= a->capacity;
}

static zoff_status go_on(zoff_lending *l)
{
    ZOFF_TRY(
        /* because a chunk that cannot be read would otherwise be retried endlessly */
        zoff_base_progress_take(l->pollers.reads));
    const zoff_status status = zoff_lending_param_gather_go_on(l);
    if (status == ZOFF_PENDING)
        ZOFF_TRY(l->pollers.step->pump(l->pollers.step->ctx));
    return status;
}

static zoff_status go_on_until_enough(void *ctx)
{
    const assemble_wait *w = ctx;
    if (is_enough(w))
        return ZOFF_OK;
    ZOFF_TRY(go_on(w->lending));
    return is_enough(w) ? ZOFF_OK : ZOFF_PENDING;
}

zoff_status zoff_lending_param_gather_wait(zoff_lending *l, uint32_t number)
{
    return zoff_lending_held_wait(l, l->pollers.ranks, go_on_until_enough,
                                  &(assemble_wait){.lending = l, .slice = slice_of(l, number)});
}

/* Without a wait no error is taken: a prefetch could not return it, and would plan less than other ranks do. */
zoff_status zoff_lending_param_gather_make_room(zoff_lending *l, uint32_t number)
{
    assemble_wait w = {.lending = l, .parts = count_parts(l, number)};
    if (is_enough(&w))
        return ZOFF_OK;
    return zoff_lending_held_wait(l, l->pollers.ranks, go_on_until_enough, &w);
}

/* Drop the missing parts, because the communicator is broken, so they will never arrive. */
static void abandon(zoff_lending *l)
{
    zoff_assembly *a = &l->cache.assembly;
    for (; a->done_before < a->planned; a->done_before++)
        slice_of(l, part_of(l, a->done_before).slice)->missing = 0;
    a->started = a->planned;
    zoff_lending_param_cache_clear(l);
}

static zoff_status go_on_until_empty(void *ctx)
{
    return go_on(ctx);
}

zoff_status zoff_lending_param_gather_finish(zoff_lending *l)
{
    if (zoff_comm_is_broken(l->comm) && l->cache.assembly.gather) {
        abandon(l);
        return ZOFF_OK;
    }
    return zoff_lending_held_wait(l, l->pollers.ranks, go_on_until_empty, l);
}
