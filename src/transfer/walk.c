/* walk.c: the order in which a step goes over the buckets. */
#include "transfer.h"

/* The first buckets of the plan may keep their states on the device; they come last in the walk. */
size_t zoff_transfer_walk_host_count(const zoff_transfer *t)
{
    return t->plan->chunk_count - t->device.tier.count;
}

/* Ascending order by default. With a device, buckets come first whose gradients are downloaded first: those of the last layers,
 * unless the trainer hands over in ascending order. */
static bool descends(const zoff_transfer *t)
{
    return zoff_transfer_device_is(t) && !zoff_transfer_ranks_several(t) && !t->device.ascends;
}

size_t zoff_transfer_walk_bucket(const zoff_transfer *t, size_t position)
{
    if (position >= zoff_transfer_walk_host_count(t))
        return position - zoff_transfer_walk_host_count(t);
    return descends(t) ? t->plan->chunk_count - 1 - position : position + t->device.tier.count;
}

size_t zoff_transfer_walk_position(const zoff_transfer *t, size_t bucket)
{
    if (zoff_transfer_device_tier_has(t, bucket))
        return bucket + zoff_transfer_walk_host_count(t);
    return descends(t) ? t->plan->chunk_count - 1 - bucket : bucket - t->device.tier.count;
}
