/* walk.c: the order in which a step goes over the buckets. */
#include "transfer.h"

#include "try.h"

zoff_status zoff_transfer_walk_open(zoff_transfer *t)
{
    zoff_walk *w = &t->walk;
    const size_t count = t->plan->chunk_count;
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *w->runs, "buckets", &w->runs));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *w->order, "the order of buckets", &w->order));
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *w->place, "the order of buckets", &w->place));
    return zoff_base_mem_alloc(count, sizeof *w->uses, "the order of buckets", &w->uses);
}

void zoff_transfer_walk_close(zoff_transfer *t)
{
    zoff_base_mem_free(t->walk.runs);
    zoff_base_mem_free(t->walk.order);
    zoff_base_mem_free(t->walk.place);
    zoff_base_mem_free(t->walk.uses);
    t->walk = (zoff_walk){.runs = NULL};
}

/* The first buckets of the plan may keep their states on the device; those come last in the walk. */
size_t zoff_transfer_walk_host_count(const zoff_transfer *t)
{
    return t->plan->chunk_count - t->device.tier.count;
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
    for (size_t b = buckets.first; b <= buckets.last; b++)
        note(t, b);
}

/* Other ranks have uses of their own, and all must have one order. */
bool zoff_transfer_walk_learn(zoff_transfer *t)
{
    zoff_walk *w = &t->walk;
    const size_t count = zoff_transfer_walk_host_count(t);
    bool differs = false;
    if (w->use_count == 0 || !t->route.peers->any_order)
        return false;
    for (size_t position = 0; position < count; position++)
        note(t, zoff_transfer_walk_bucket(t, position));
    for (size_t position = 0; position < count; position++)
        differs = differs || w->uses[position] != zoff_transfer_walk_bucket(t, position);
    for (size_t position = 0; position < count; position++) {
        w->order[position] = w->uses[position];
        w->place[w->uses[position]] = (uint32_t)position;
    }
    w->is_learned = true;
    return differs;
}
