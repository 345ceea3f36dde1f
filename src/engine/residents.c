/* residents.c: the chunks that stay in DRAM on the NVMe tier. */
#include "engine_priv.h"

#include "bits.h"

/* Chunks that have states in a store of the host. */
size_t zoff_engine_residents_stored(const zoff_engine *e, const zoff_plan *plan)
{
    size_t count = 0;
    for (size_t i = zoff_engine_residents_kept(e, plan); i < plan->chunk_count; i++)
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

/* Count trained elements of all ranks, so that every rank keeps the same buckets on its device. */
static uint64_t elements_of(const zoff_engine *e, const zoff_plan *plan, size_t bucket)
{
    const zoff_plan_chunk *c = &plan->chunks[bucket];
    uint64_t elements = 0;
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++)
        elements += e->model.params[plan->runs[i].param].frozen ? 0 : plan->runs[i].count;
    return elements;
}

/* As near to the share as whole buckets come; nothing and everything are meant so. */
size_t zoff_engine_residents_kept(const zoff_engine *e, const zoff_plan *plan)
{
    double wanted = 0, before = 0;
    if (!zoff_engine_device_is(e) || e->settings.values.ratio == 1)
        return 0;
    if (e->settings.values.ratio == 0)
        return plan->chunk_count;
    for (size_t b = 0; b < plan->chunk_count; b++)
        wanted += (1 - e->settings.values.ratio) * (double)elements_of(e, plan, b);
    for (size_t b = 0; b < plan->chunk_count; b++) {
        const double after = before + (double)elements_of(e, plan, b);
        if (after > wanted && after - wanted > wanted - before)
            return b;
        before = after;
    }
    return plan->chunk_count;
}
