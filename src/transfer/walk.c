/* SPDX-License-Identifier: Apache-2.0 */
/* walk.c: the order in which a step goes over the buckets. */
#include "transfer.h"

#include "bits.h"
#include "try.h"

#include <string.h>

static zoff_status open_arrivals(zoff_transfer *t)
{
    zoff_arrivals *a = &t->walk.arrivals;
    const size_t count = t->plan->chunk_count;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *a->slices, "the slices of buckets", &a->slices));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *a->buckets, "the slices of buckets", &a->buckets));
    for (size_t i = 0; i < t->model->param_count; i++) {
        const zoff_model_param *p = &t->model->params[i];
        for (size_t slice = 0; !p->frozen && p->count && slice < p->slices; slice++) {
            const zoff_slice_buckets in = t->model->slice_buckets[p->first_flag + slice];
            for (size_t b = in.first; b <= in.last; b++)
                a->slices[b]++;
        }
    }
    return ZOFF_OK;
}

zoff_status zoff_transfer_walk_open(zoff_transfer *t)
{
    zoff_walk *w = &t->walk;
    const size_t count = t->plan->chunk_count;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *w->runs, "buckets", &w->runs));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *w->order, "the order of buckets", &w->order));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *w->place, "the order of buckets", &w->place));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *w->uses, "the order of buckets", &w->uses));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *w->candidate, "the order of buckets", &w->candidate));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *w->heard, "the order of buckets", &w->heard));
    if (t->plan->rounds.count)
        ZOFF_TRY(zoff_base_mem_alloc(count + t->plan->rounds.count, sizeof *w->together, "the order of buckets", &w->together));
    return open_arrivals(t);
}

void zoff_transfer_walk_close(zoff_transfer *t)
{
    zoff_base_mem_free(t->walk.runs);
    zoff_base_mem_free(t->walk.order);
    zoff_base_mem_free(t->walk.place);
    zoff_base_mem_free(t->walk.uses);
    zoff_base_mem_free(t->walk.together);
    zoff_base_mem_free(t->walk.candidate);
    zoff_base_mem_free(t->walk.heard);
    zoff_base_mem_free(t->walk.arrivals.slices);
    zoff_base_mem_free(t->walk.arrivals.missing);
    zoff_base_mem_free(t->walk.arrivals.buckets);
    t->walk = (zoff_walk){.runs = NULL};
}

/* The first buckets of the plan may keep their states on the device; those come last in the walk. */
size_t zoff_transfer_walk_host_count(const zoff_transfer *t)
{
    return t->plan->chunk_count - t->device.tier.count;
}

void zoff_transfer_walk_begin_batch(zoff_transfer *t)
{
    zoff_arrivals *a = &t->walk.arrivals;
    for (size_t b = 0; a->missing && b < t->plan->chunk_count; b++)
        a->missing[b] = a->slices[b];
    a->count = 0;
}

void zoff_transfer_walk_complete(zoff_transfer *t, size_t bucket)
{
    zoff_arrivals *a = &t->walk.arrivals;
    a->buckets[a->count++] = (uint32_t)bucket;
}

/* With a device, the buckets whose gradients are downloaded first come first. These are the last layers, unless the program
 * hands gradients over in ascending order. */
void zoff_transfer_walk_begin(zoff_transfer *t, bool reads_ahead)
{
    zoff_device *d = &t->device;
    const bool ascends = !reads_ahead && d->last_bucket > d->first_bucket;
    d->descends = d->turns && !ascends;
    d->first_bucket = SIZE_MAX;
    t->walk.use_count = 0;
    t->walk.is_used = false;
}

size_t zoff_transfer_walk_bucket(const zoff_transfer *t, size_t position)
{
    if (position >= zoff_transfer_walk_host_count(t))
        return position - zoff_transfer_walk_host_count(t);
    if (t->walk.is_learned)
        return t->walk.order[position];
    return t->device.descends ? t->plan->chunk_count - 1 - position : position + t->device.tier.count;
}

size_t zoff_transfer_walk_position(const zoff_transfer *t, size_t bucket)
{
    if (bucket < t->device.tier.count)
        return bucket + zoff_transfer_walk_host_count(t);
    if (t->walk.is_learned)
        return t->walk.place[bucket];
    return t->device.descends ? t->plan->chunk_count - 1 - bucket : bucket - t->device.tier.count;
}

static void note(zoff_transfer *t, size_t bucket)
{
    zoff_bucket_run *run = &t->walk.runs[bucket];
    if (bucket >= t->device.tier.count && !run->used)
        t->walk.uses[t->walk.use_count++] = (uint32_t)bucket;
    run->used = true;
}

void zoff_transfer_walk_use(zoff_transfer *t, zoff_slice_buckets buckets)
{
    t->walk.is_used = true;
    for (size_t b = buckets.first; b <= buckets.last; b++)
        note(t, b);
}

static bool is_present(const zoff_transfer *t, const uint32_t *order)
{
    bool same = true;
    for (size_t position = 0; position < zoff_transfer_walk_host_count(t); position++)
        same = same && order[position] == zoff_transfer_walk_bucket(t, position);
    return same;
}

static void use(zoff_transfer *t, const uint32_t *order)
{
    zoff_walk *w = &t->walk;
    for (size_t position = 0; position < zoff_transfer_walk_host_count(t); position++) {
        w->order[position] = order[position];
        w->place[order[position]] = (uint32_t)position;
    }
    w->is_learned = true;
}

void zoff_transfer_walk_tell(const zoff_transfer *t, zoff_walk_news *out)
{
    const zoff_walk *w = &t->walk;
    const size_t first = w->begins ? 0 : w->heard_count, left = zoff_transfer_walk_host_count(t) - first;
    *out = (zoff_walk_news){.heard = {(uint32_t)w->heard_count, (uint32_t)w->heard_count},
                            .first = zoff_comm_rank(t->comm) == 0 ? (uint32_t)first : UINT32_MAX};
    if (zoff_comm_rank(t->comm) != 0 || !w->has_news)
        return;
    out->count = (uint32_t)zoff_base_bits_min(left, ZOFF_WALK_NEWS);
    memcpy(out->buckets, w->candidate + first, out->count * sizeof *out->buckets);
}

/* Every rank has the same joined vote, so all come to the same count, and a rank that has missed one, because its step failed,
 * makes all of them begin anew. */
void zoff_transfer_walk_hear(zoff_transfer *t, const zoff_vote *vote)
{
    zoff_walk *w = &t->walk;
    const zoff_walk_news *news = &vote->order;
    const bool all = news->heard[0] == news->first && news->heard[1] == news->first;
    w->begins = false;
    w->heard_count = news->first && all ? news->first : 0;
    if (news->first != w->heard_count || news->count > zoff_transfer_walk_host_count(t) - w->heard_count)
        return;
    memcpy(w->heard + w->heard_count, news->buckets, news->count * sizeof *news->buckets);
    w->heard_count += news->count;
}

static bool learn_together(zoff_transfer *t)
{
    zoff_walk *w = &t->walk;
    const size_t count = zoff_transfer_walk_host_count(t);
    const bool is_whole = count && w->heard_count == count, differs = is_whole && !is_present(t, w->heard);
    if (is_whole)
        use(t, w->heard);
    w->has_news = w->has_news && !is_whole;
    w->heard_count = is_whole ? 0 : w->heard_count;
    if (w->use_count && !is_present(t, w->uses) &&
        !(w->has_news && memcmp(w->candidate, w->uses, count * sizeof *w->uses) == 0)) {
        memcpy(w->candidate, w->uses, count * sizeof *w->uses);
        w->has_news = w->begins = true;
    }
    return differs;
}

static bool learn_alone(zoff_transfer *t)
{
    if (t->walk.use_count == 0 || is_present(t, t->walk.uses))
        return false;
    use(t, t->walk.uses);
    return true;
}

/* Buckets of a round wait for each other, and one round has memory at a time. So a round comes whole where its first bucket is
 * used: one that came between its buckets would wait for it, and keep the others from asking. */
static void keep_rounds(zoff_transfer *t)
{
    zoff_walk *w = &t->walk;
    const zoff_plan *plan = t->plan;
    uint32_t *is_listed = w->together + plan->chunk_count; /* by round */
    size_t used = 0;
    memset(is_listed, 0, plan->rounds.count * sizeof *is_listed);
    for (size_t i = 0; i < w->use_count; i++) {
        const size_t round = plan->chunks[w->uses[i]].round;
        const zoff_plan_round *r = round ? &plan->rounds.all[round - 1] : NULL;
        if (!r)
            w->together[used++] = w->uses[i];
        for (size_t b = 0; r && !is_listed[round - 1] && b < r->chunk_count; b++)
            w->together[used++] = (uint32_t)(r->first_chunk + b);
        if (r)
            is_listed[round - 1] = true;
    }
    memcpy(w->uses, w->together, used * sizeof *w->uses);
}

bool zoff_transfer_walk_learn(zoff_transfer *t)
{
    for (size_t position = 0; position < zoff_transfer_walk_host_count(t) && t->walk.use_count; position++)
        note(t, zoff_transfer_walk_bucket(t, position)); /* note the buckets that the program has not used */
    if (t->walk.together && t->walk.use_count)
        keep_rounds(t);
    return t->ranks.reduce ? learn_together(t) : learn_alone(t);
}
