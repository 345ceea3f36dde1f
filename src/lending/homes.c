/* SPDX-License-Identifier: Apache-2.0 */
/* homes.c: where the weights of this rank are stored: chunks in DRAM, in files behind a ring of slots, or in the memory of a
 * device. */
#include "lending.h"

#include "try.h"

zoff_status zoff_lending_homes_open(zoff_lending *l, zoff_store_opts *opts, zoff_lending_pinned which, zoff_store **out)
{
    const void *base;
    size_t bytes;
    zoff_store_found none;
    opts->slots = l->slots;
    opts->link = l->home->is_there ? &l->there.link : NULL;
    ZOFF_TRY(zoff_offload_store_find(opts, out, &none));
    zoff_offload_store_memory(*out, &base, &bytes);
    return l->there.link.stream ? zoff_lending_copies_pin(l, base, bytes, which) : ZOFF_OK;
}

static void plan_dram(const zoff_lending *l, const zoff_weight_sizes *sizes, zoff_plan_info *info)
{
    info->weight_host_bytes += sizes->stored;
}

static void plan_files(const zoff_lending *l, const zoff_weight_sizes *sizes, zoff_plan_info *info)
{
    info->weight_host_bytes += (uint64_t)(l->slots + sizes->residents) * sizes->most;
    info->weight_nvme_bytes += sizes->stored - sizes->cached;
}

/* Chunks in DRAM stay where they are, so nothing is held, and nothing waits for copies that read them. */
static zoff_status find_in_dram(zoff_lending *l, size_t chunk, char **out)
{
    zoff_demand demand = {
        .kind = ZOFF_DEMAND_LEND, .chunk = chunk, .weights = {.store = l->group.store, .arrays = ZOFF_STORE_ALL}};
    ZOFF_TRY(zoff_offload_broker_ask(&demand));
    *out = demand.weights.base;
    return zoff_offload_broker_give(&demand, &demand.weights, 0, false);
}

const zoff_weight_home zoff_lending_homes_dram = {
    .name = "DRAM", .is_dram = true, .try_to_borrow = find_in_dram, .plan = plan_dram};

const zoff_weight_home zoff_lending_homes_files = {.name = "files",
                                                   .streams = true,
                                                   .borrow = zoff_lending_held_hold,
                                                   .try_to_borrow = zoff_lending_held_borrow,
                                                   .plan = plan_files};

/* ---- a device ---- */

static zoff_status find_there(zoff_lending *l, size_t chunk, char **out)
{
    *out = zoff_offload_device_there(l->group.store, chunk);
    return ZOFF_OK;
}

static void plan_device(const zoff_lending *l, const zoff_weight_sizes *sizes, zoff_plan_info *info)
{
    info->weight_host_bytes += (uint64_t)l->slots * sizes->most;
    info->device_bytes += sizes->stored;
}

const zoff_weight_home zoff_lending_homes_device = {
    .name = "device memory", .streams = true, .is_there = true, .try_to_borrow = find_there, .plan = plan_device};
