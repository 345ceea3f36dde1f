/* SPDX-License-Identifier: Apache-2.0 */
/* sources.c: where the weights of a slice come from that is not whole in DRAM. A single rank, and ranks that each have all
 * weights, copy it from their own chunks. Ranks that each have a part gather the parts, all of them in the same order: the
 * parts of all ranks, or of those of a group that has all weights once more. */
#include "lending.h"

#include "try.h"

static uint32_t number_of(const zoff_lending *l, zoff_param p, size_t slice)
{
    return (uint32_t)(l->model->params[p].first_flag + slice);
}

static zoff_status name_param(const zoff_lending *l, zoff_param p, zoff_status status)
{
    return zoff_base_status_prefix(status, "zoff_param_fetch: %s: ", l->model->params[p].name);
}

/* ---- own chunks ---- */

/* A slice of one piece can be lent directly from its chunk, if that is always in the memory where slices are lent. */
static void own_locate(const zoff_lending *l, const zoff_plan *plan, size_t param, size_t slice, zoff_cached_slice *out)
{
    out->first_piece = zoff_zero_plan_find(plan, (uint32_t)param, slice, 0);
    out->direct = l->place->is_direct(l->home) && plan->pieces[out->first_piece].count == l->model->params[param].count;
}

static zoff_status own_open(zoff_lending *l)
{
    return ZOFF_OK;
}

static zoff_status own_fetch(zoff_lending *l, zoff_param p, size_t slice)
{
    const uint32_t number = number_of(l, p, slice);
    zoff_cached_slice *s = &l->cache.slices[number];
    ZOFF_TRY(zoff_lending_prefetch_reserve(l)); /* this comes first, because its failure leaves everything unchanged */
    if (s->persistent || !s->count)
        return ZOFF_OK;
    if (!s->at)
        ZOFF_TRY(zoff_lending_room_find(l, number, l->model->params[p].name));
    const zoff_status status = zoff_lending_fill_slice(l, s);
    if (status == ZOFF_OK)
        return ZOFF_OK;
    zoff_lending_param_cache_remove(l, s);
    return name_param(l, p, status);
}

/* Set nothing, because the caller sets the chunks of the plan, where the next fetch finds the new weights. */
static zoff_status set_nothing(zoff_lending *l, const zoff_plan_piece *run, size_t first_byte, const char *from, size_t bytes)
{
    return ZOFF_OK;
}

static void own_ahead(zoff_lending *l)
{
    l->place->ahead(l);
}

static const zoff_weight_source OWN = {
    .name = "own chunks", .locate = own_locate, .open = own_open, .fetch = own_fetch, .set = set_nothing, .ahead = own_ahead};

/* ---- parts of several ranks ---- */

/* A slice is always gathered, even if the partition gives all of it to one rank, because all ranks must do the same with a
 * slice. */
static void gathered_locate(const zoff_lending *l, const zoff_plan *plan, size_t param, size_t slice, zoff_cached_slice *out) {}

static zoff_status gathered_fetch(zoff_lending *l, zoff_param p, size_t slice)
{
    const uint32_t number = number_of(l, p, slice);
    const zoff_cached_slice *s = &l->cache.slices[number];
    ZOFF_TRY(zoff_lending_prefetch_reserve(l)); /* this comes first, because its failure leaves everything unchanged */
    if (!s->at && s->count) {
        ZOFF_TRY(zoff_lending_param_gather_make_room(l, number));
        ZOFF_TRY(zoff_lending_room_find(l, number, l->model->params[p].name));
        zoff_lending_param_gather_plan(l, number); /* cannot fail: a slice with a place in the arena must be planned or whole */
    }
    const zoff_status status = s->missing ? zoff_lending_param_gather_wait(l, number) : ZOFF_OK;
    return status < 0 ? name_param(l, p, status) : ZOFF_OK;
}

static size_t plan_offset(const zoff_lending *l, size_t run, size_t first)
{
    const zoff_plan_piece *r = &l->plan->runs[run];
    return l->plan->pieces[zoff_zero_plan_find(l->plan, r->param, r->slice, first)].weight_offset;
}

static const zoff_weight_source GATHERED = {.name = "parts of all ranks",
                                            .locate = gathered_locate,
                                            .open = zoff_lending_param_gather_open,
                                            .fetch = gathered_fetch,
                                            .offset = plan_offset,
                                            .set = set_nothing,
                                            .takes_all = true,
                                            .ahead = zoff_lending_prefetch_gathered,
                                            .needs_order = true};

static size_t secondary_offset(const zoff_lending *l, size_t run, size_t first)
{
    return l->secondary.offsets[run];
}

static const zoff_weight_source GROUPED = {.name = "parts of a group of ranks",
                                           .locate = gathered_locate,
                                           .open = zoff_lending_param_gather_open,
                                           .fetch = gathered_fetch,
                                           .offset = secondary_offset,
                                           .set = zoff_lending_secondary_set,
                                           .takes_all = true,
                                           .ahead = zoff_lending_prefetch_gathered,
                                           .needs_order = true};

/* ---- choosing ---- */

enum { DEVICE_SLOTS = 6 }; /* chunks on their way to a device or from it */

/* All ranks, or with zero_hpz_partition_size the block of that many ranks in which this rank is. */
static zoff_weight_group choose_group(const zoff_lending *l)
{
    const unsigned ranks = zoff_comm_size(l->comm), rank = zoff_comm_rank(l->comm), members = l->values->group_ranks;
    if (members <= 1 || members >= ranks)
        return (zoff_weight_group){.members = ranks, .parts = 1};
    return (zoff_weight_group){.first = rank / members * members, .members = members, .parts = ranks / members};
}

void zoff_lending_sources_choose(zoff_lending *l, bool has_parts, bool on_device, bool reaches)
{
    const bool stays = on_device && l->values->stays;
    l->group = has_parts ? choose_group(l) : (zoff_weight_group){.members = 1, .parts = 1};
    l->source = !has_parts ? &OWN : l->group.parts > 1 ? &GROUPED : &GATHERED;
    l->home = stays                               ? &zoff_lending_homes_device
              : l->values->tier == ZOFF_TIER_NVME ? &zoff_lending_homes_files
                                                  : &zoff_lending_homes_dram;
    l->place = !on_device             ? &zoff_lending_places_host
               : has_parts && reaches ? &zoff_lending_places_reached
                                      : &zoff_lending_places_device;
    l->slots = stays ? DEVICE_SLOTS : l->values->slots;
}

zoff_status zoff_lending_sources_open(zoff_lending *l)
{
    if (!l->store)
        return ZOFF_OK;
    zoff_lending_param_cache_attach(l);
    return l->source->open(l);
}
