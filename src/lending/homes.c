/* homes.c: where the weights of this rank are stored: chunks in DRAM, in files behind a ring of slots, or in the memory of a
 * device (shards.c). */
#include "lending.h"

#include "try.h"

static zoff_status open_store(zoff_lending *l, const zoff_store_opts *opts)
{
    const void *base;
    size_t bytes;
    ZOFF_TRY(zoff_offload_store_open(opts, &l->store));
    zoff_offload_store_memory(l->store, &base, &bytes);
    return l->there.stream ? zoff_lending_copies_pin(l, base, bytes, ZOFF_PINNED_STORE) : ZOFF_OK;
}

static void plan_dram(const zoff_lending *l, const zoff_plan *plan, uint64_t stored, uint64_t cached, size_t residents,
                      zoff_plan_info *info)
{
    (void)l;
    (void)plan;
    (void)cached;
    (void)residents;
    info->weight_host_bytes += stored;
}

static void plan_files(const zoff_lending *l, const zoff_plan *plan, uint64_t stored, uint64_t cached, size_t residents,
                       zoff_plan_info *info)
{
    info->weight_host_bytes += (uint64_t)(l->slots + residents) * plan->most.chunk_weights;
    info->weight_nvme_bytes += stored - cached;
}

/* Chunks in DRAM stay where they are, so nothing is held, and nothing waits for copies that read them. */
static zoff_status find_in_dram(zoff_lending *l, size_t chunk, char **out)
{
    void *base;
    ZOFF_TRY(zoff_offload_store_fetch(l->store, chunk, &base));
    zoff_offload_store_release(l->store, chunk);
    *out = base;
    return ZOFF_OK;
}

static zoff_status borrow_in_dram(zoff_lending *l, size_t chunk, size_t piece, size_t count, char **out)
{
    (void)piece;
    (void)count;
    return find_in_dram(l, chunk, out);
}

const zoff_weight_home zoff_lending_homes_dram = {.name = "DRAM",
                                                  .is_dram = true,
                                                  .open = open_store,
                                                  .borrow = borrow_in_dram,
                                                  .try_to_borrow = find_in_dram,
                                                  .plan = plan_dram};

const zoff_weight_home zoff_lending_homes_files = {.name = "files",
                                                   .streams = true,
                                                   .open = open_store,
                                                   .borrow = zoff_lending_held_hold,
                                                   .try_to_borrow = zoff_lending_held_borrow,
                                                   .plan = plan_files};

/* ---- a device ---- */

static zoff_status open_shards(zoff_lending *l, const zoff_store_opts *opts)
{
    return zoff_lending_shards_open(l, opts, &l->store);
}

static zoff_status find_there(zoff_lending *l, size_t chunk, char **out)
{
    *out = zoff_lending_shards_there(l->store, chunk);
    return ZOFF_OK;
}

static zoff_status borrow_there(zoff_lending *l, size_t chunk, size_t piece, size_t count, char **out)
{
    (void)piece;
    (void)count;
    return find_there(l, chunk, out);
}

static void plan_device(const zoff_lending *l, const zoff_plan *plan, uint64_t stored, uint64_t cached, size_t residents,
                        zoff_plan_info *info)
{
    (void)cached;
    (void)residents;
    info->weight_host_bytes += (uint64_t)l->slots * plan->most.chunk_weights;
    info->device_bytes += stored;
}

const zoff_weight_home zoff_lending_homes_device = {.name = "device memory",
                                                    .streams = true,
                                                    .is_there = true,
                                                    .open = open_shards,
                                                    .borrow = borrow_there,
                                                    .try_to_borrow = find_there,
                                                    .plan = plan_device};
