/* walk.c: the order in which a step goes over the buckets. */
#include "engine_priv.h"

/* The first buckets of the plan may keep their states on the device; they come last in the walk. */
size_t zoff_engine_walk_host_count(const zoff_engine *e)
{
    return e->plan.chunk_count - e->device.tier.count;
}

/* Ascending order by default. With a device, buckets come first whose gradients are downloaded first: those of the last layers,
 * unless the trainer hands over in ascending order. */
static bool descends(const zoff_engine *e)
{
    return zoff_engine_device_is(e) && !zoff_engine_ranks_several(e) && !e->device.ascends;
}

size_t zoff_engine_walk_bucket(const zoff_engine *e, size_t position)
{
    if (position >= zoff_engine_walk_host_count(e))
        return position - zoff_engine_walk_host_count(e);
    return descends(e) ? e->plan.chunk_count - 1 - position : position + e->device.tier.count;
}

size_t zoff_engine_walk_position(const zoff_engine *e, size_t bucket)
{
    if (zoff_engine_device_tier_has(e, bucket))
        return bucket + zoff_engine_walk_host_count(e);
    return descends(e) ? e->plan.chunk_count - 1 - bucket : bucket - e->device.tier.count;
}
