/* walk.c: the order in which a step goes over the buckets. */
#include "transfer.h"

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
}

size_t zoff_transfer_walk_bucket(const zoff_transfer *t, size_t position)
{
    if (position >= zoff_transfer_walk_host_count(t))
        return position - zoff_transfer_walk_host_count(t);
    return t->device.descends ? t->plan->chunk_count - 1 - position : position + t->device.tier.count;
}

size_t zoff_transfer_walk_position(const zoff_transfer *t, size_t bucket)
{
    if (bucket < t->device.tier.count)
        return bucket + zoff_transfer_walk_host_count(t);
    return t->device.descends ? t->plan->chunk_count - 1 - bucket : bucket - t->device.tier.count;
}
