/* residents.c: the chunks that stay in DRAM on the NVMe tier. */
#include "engine_priv.h"

#include "bits.h"

/* Chunks that have states in a store of the host. */
size_t zoff_engine_residents_stored(const zoff_engine *e, const zoff_plan *plan)
{
    size_t count = 0;
    for (size_t i = zoff_transfer_device_tier_buckets(&e->transfer, plan); i < plan->chunk_count; i++)
        count += plan->chunks[i].bytes != 0;
    return count;
}

/* Chunks that have weights of the engine. */
size_t zoff_engine_residents_weights_stored(const zoff_plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->chunk_count; i++)
        count += plan->chunks[i].weight_bytes != 0;
    return count;
}

size_t zoff_engine_residents_states(const zoff_engine *e, const zoff_plan *plan)
{
    const zoff_settings *s = &e->settings;
    return s->tier == ZOFF_TIER_NVME ? zoff_offload_placement_residents(s->host_bytes, s->values.slots, plan->chunk_bytes_max,
                                                                        zoff_engine_residents_stored(e, plan))
                                     : 0;
}

/* offload_param.max_in_cpu, rounded down to whole chunks. */
size_t zoff_engine_residents_weights(const zoff_engine *e, const zoff_plan *plan)
{
    const zoff_weight_values *values = &e->settings.values.weights;
    size_t most = 0;
    if (values->tier != ZOFF_TIER_NVME)
        return 0;
    for (size_t i = 0; i < plan->chunk_count; i++)
        most = zoff_base_bits_max(most, plan->chunks[i].elements);
    return most ? zoff_base_bits_min(values->cached_count / most, zoff_engine_residents_weights_stored(plan)) : 0;
}
