/* SPDX-License-Identifier: Apache-2.0 */
/* secondary.c: the secondary shard of weights (hpZ). Ranks are divided into groups of consecutive ranks, usually the ranks of a
 * host. Each group has all weights once more, so that fetches stay within it:
 *
 *      bucket, 8 ranks in groups of 4   | part 0 | part 1 | part 2 | part 3 | part 4 | part 5 | part 6 | part 7 |
 *      who updates and stores a part    |   0    |   1    |   2    |   3    |   4    |   5    |   6    |   7    |
 *      who has it in a secondary shard  |      0 and 4    |     1 and 5     |     2 and 6     |     3 and 7     |
 *
 * After an update each rank sends its part to the ranks that have it in their secondary shards, one for each group. So every
 * group receives each part once. Persistent slices are whole on every rank and not in the shards.
 *
 * A bucket passes the phases of a slot. This rank's part is read from the store and packed, once for each receiver. Then ranks
 * exchange the parts, and those that have arrived are written to the secondary store. All ranks start the buckets in the same
 * order. */
#include "lending.h"

#include "bits.h"
#include "try.h"

#include <string.h>

enum { ALIGN = 64, WIRE_ALIGN = 4, PAGE = 4096 };

bool zoff_lending_secondary_is(const zoff_lending *l)
{
    return l->group.parts > 1;
}

/* ---- who has what ---- */

static size_t element_bytes(const zoff_lending *l, const zoff_plan_piece *piece)
{
    return zoff_adam_dtype_bytes(l->model->params[piece->param].dtype);
}

/* The first of the ranks whose parts a rank has; the `group.parts` - 1 ranks behind it follow. */
static unsigned first_source(const zoff_lending *l, unsigned me)
{
    return me % l->group.members * l->group.parts;
}

/* The first rank that has the part of this one. The others have the same place in their groups. */
static unsigned first_holder(const zoff_lending *l)
{
    return l->plan->rank / l->group.parts;
}

static bool is_stored(const zoff_lending *l, const zoff_plan_piece *piece)
{
    return l->model->params[piece->param].engine_owned &&
           !zoff_lending_param_cache_is_persistent(l, piece->param, piece->slice);
}

/* Whether the weights of a piece are sent. In a step only changed weights are. */
static bool is_sent(const zoff_lending *l, const zoff_secondary_slot *slot, const zoff_plan_piece *piece)
{
    const bool changes = *zoff_model_params_flag(l->model, piece) && !l->model->params[piece->param].frozen;
    return is_stored(l, piece) && (slot->takes_all || changes);
}

/* Bytes of a piece between ranks. */
static size_t wire_bytes(const zoff_lending *l, const zoff_plan_piece *piece)
{
    return zoff_base_bits_align(piece->count * element_bytes(l, piece), WIRE_ALIGN);
}

static size_t part_bytes(const zoff_lending *l, const zoff_secondary_slot *slot, unsigned rank)
{
    zoff_plan_cursor part = zoff_zero_plan_part(l->plan, slot->bucket, rank);
    zoff_plan_piece piece;
    size_t bytes = 0;
    while (zoff_zero_plan_next(&part, &piece))
        bytes += is_sent(l, slot, &piece) ? wire_bytes(l, &piece) : 0;
    return bytes;
}

/* ---- sizes ---- */

/* A loop over the chunks of the secondary shard, before the table of slices exists. */
typedef struct layout {
    const zoff_lending *lending;
    const zoff_plan *plan;
    size_t persistent_elements;
    bool persists; /* the present slice is persistent */
} layout;

typedef struct chunk_layout {
    size_t bytes;      /* bytes of the chunk */
    size_t elements;   /* elements without padding */
    size_t slot_bytes; /* bytes to exchange the chunk */
    bool trains, trains_all;
} chunk_layout;

/* Bytes that this rank sends and receives of a run. */
static size_t exchanged_bytes(const layout *w, const zoff_plan_piece *run)
{
    const zoff_lending *l = w->lending;
    const unsigned from = first_source(l, w->plan->rank);
    zoff_plan_piece piece = *run;
    piece.count = zoff_zero_plan_share(w->plan, run, w->plan->rank, &piece.first);
    size_t bytes = l->group.parts * wire_bytes(l, &piece);
    for (unsigned rank = from; rank < from + l->group.parts; rank++) {
        piece.count = zoff_zero_plan_share(w->plan, run, rank, &piece.first);
        bytes += wire_bytes(l, &piece);
    }
    return bytes;
}

/* `offsets`: set where this rank's share of each run begins, unless NULL. */
static chunk_layout lay_chunk(layout *w, size_t chunk, size_t *offsets)
{
    const zoff_plan_chunk *c = &w->plan->chunks[chunk];
    chunk_layout out = {.trains_all = true};
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++) {
        const zoff_plan_piece *run = &w->plan->runs[i];
        const zoff_model_param *p = &w->lending->model->params[run->param];
        size_t first;
        if (!p->engine_owned)
            continue;
        if (run->first == 0)
            w->persists = zoff_lending_param_cache_persists(w->lending, p->count, &w->persistent_elements);
        if (w->persists)
            continue;
        const size_t count = zoff_lending_group_share(w->lending, w->plan, run, w->plan->rank, &first);
        if (offsets)
            offsets[i] = out.bytes;
        out.slot_bytes += exchanged_bytes(w, run);
        out.bytes += zoff_base_bits_align(count * element_bytes(w->lending, run), ALIGN);
        out.elements += count;
        out.trains = out.trains || (count && !p->frozen);
        out.trains_all = out.trains_all && (!count || !p->frozen);
    }
    out.bytes = zoff_base_bits_align(out.bytes, PAGE);
    return out;
}

/* The number of chunks that have bytes; and of those that stay in DRAM, where weights are in files. */
static size_t count_chunks(const zoff_lending *l, const zoff_plan *plan, size_t *out_residents)
{
    layout w = {.lending = l, .plan = plan};
    size_t count = 0, elements = 0;
    for (size_t i = 0; i < plan->chunk_count; i++) {
        const chunk_layout chunk = lay_chunk(&w, i, NULL);
        count += chunk.bytes != 0;
        elements = zoff_base_bits_max(elements, chunk.elements);
    }
    const bool caches = l->home->streams && !l->home->is_there && elements;
    *out_residents = caches ? zoff_base_bits_min(l->values->cached_count / elements, count) : 0;
    return count;
}

size_t zoff_lending_secondary_residents(const zoff_lending *l)
{
    size_t residents;
    (void)count_chunks(l, l->plan, &residents);
    return residents;
}

void zoff_lending_secondary_plan(const zoff_lending *l, const zoff_plan *plan, zoff_plan_info *info)
{
    zoff_weight_sizes sizes = {.stored = 0};
    layout w = {.lending = l, .plan = plan};
    size_t slot_bytes = 0, number = 0;
    if (!zoff_lending_secondary_is(l))
        return;
    const size_t count = count_chunks(l, plan, &sizes.residents);
    for (size_t i = 0; i < plan->chunk_count; i++) {
        const chunk_layout chunk = lay_chunk(&w, i, NULL);
        const bool stays = chunk.bytes && zoff_offload_placement_resident(number++, sizes.residents, count);
        sizes.stored += chunk.bytes;
        sizes.cached += stays ? chunk.bytes : 0;
        sizes.most = zoff_base_bits_max(sizes.most, chunk.bytes);
        slot_bytes = zoff_base_bits_max(slot_bytes, chunk.slot_bytes);
        if (l->values->tier == ZOFF_TIER_NVME && chunk.trains && !stays) {
            info->step_write_bytes += chunk.bytes;
            info->step_read_bytes += chunk.trains_all ? 0 : chunk.bytes;
        }
    }
    l->home->plan(l, &sizes, info);
    info->weight_host_bytes += ZOFF_SECONDARY_SLOTS * (uint64_t)zoff_base_bits_align(slot_bytes, ALIGN);
}

/* ---- opening ---- */

static zoff_status allocate(zoff_lending *l)
{
    zoff_secondary *s = &l->secondary;
    const size_t ranks = l->plan->ranks;
    ZOFF_TRY(zoff_base_mem_alloc(l->plan->run_count, sizeof *s->offsets, "the secondary shard", &s->offsets));
    ZOFF_TRY(zoff_base_mem_alloc(l->plan->chunk_count, sizeof *s->bytes, "the secondary shard", &s->bytes));
    ZOFF_TRY(zoff_base_mem_alloc(2 * ZOFF_SECONDARY_SLOTS * ranks, sizeof *s->lengths, "the secondary shard", &s->lengths));
    for (unsigned i = 0; i < ZOFF_SECONDARY_SLOTS; i++) {
        s->slots[i].sends = s->lengths + 2 * i * ranks;
        s->slots[i].receives = s->slots[i].sends + ranks;
    }
    return ZOFF_OK;
}

zoff_status zoff_lending_secondary_open(zoff_lending *l)
{
    zoff_secondary *s = &l->secondary;
    layout w = {.lending = l, .plan = l->plan};
    if (!zoff_lending_secondary_is(l) || !zoff_model_params_any_owned(l->model))
        return ZOFF_OK;
    ZOFF_TRY(allocate(l));
    size_t most = 0;
    for (size_t i = 0; i < l->plan->chunk_count; i++) {
        const chunk_layout chunk = lay_chunk(&w, i, s->offsets);
        s->bytes[i] = chunk.bytes;
        most = zoff_base_bits_max(most, chunk.slot_bytes);
    }
    most = zoff_base_bits_align(most, ALIGN);
    if (most)
        ZOFF_TRY(zoff_base_map_alloc(ZOFF_SECONDARY_SLOTS * most, "weights on their way to secondary shards",
                                     ZOFF_MAP_INTERLEAVED, &s->staging));
    for (unsigned i = 0; most && i < ZOFF_SECONDARY_SLOTS; i++)
        s->slots[i].out = (char *)s->staging.base + i * most;
    return ZOFF_OK;
}

zoff_status zoff_lending_secondary_connect(zoff_lending *l)
{
    return l->secondary.offsets ? zoff_comm_open_groups(l->comm, l->group.members) : ZOFF_OK;
}

void zoff_lending_secondary_abandon(zoff_lending *l)
{
    for (unsigned i = 0; i < ZOFF_SECONDARY_SLOTS; i++)
        zoff_comm_abandon(l->comm, &l->secondary.slots[i].work);
}

void zoff_lending_secondary_close(zoff_lending *l)
{
    zoff_secondary *s = &l->secondary;
    zoff_base_map_free(&s->staging);
    zoff_base_mem_free(s->offsets);
    zoff_base_mem_free(s->bytes);
    zoff_base_mem_free(s->lengths);
    *s = (zoff_secondary){.store = NULL};
}

/* ---- a bucket ---- */

/* Whether any rank sends anything of a bucket: the same on all ranks. */
static bool is_any_sent(const zoff_lending *l, const zoff_secondary_slot *slot)
{
    const zoff_plan_chunk *c = &l->plan->chunks[slot->bucket];
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++) {
        if (is_sent(l, slot, &l->plan->runs[i]))
            return true;
    }
    return false;
}

/* Set the bytes to and from each rank that has a part of this one, or of which this one has a part. */
static void measure(const zoff_lending *l, zoff_secondary_slot *slot)
{
    const unsigned me = l->plan->rank, source = first_source(l, me);
    size_t out_bytes = 0;
    slot->own = part_bytes(l, slot, me);
    slot->sent = slot->received = 0;
    for (unsigned rank = first_holder(l); rank < l->plan->ranks; rank += l->group.members) {
        slot->sends[rank] = slot->own;
        slot->sent += rank == me ? 0 : slot->own;
        out_bytes += slot->own;
    }
    for (unsigned rank = source; rank < source + l->group.parts; rank++) {
        slot->receives[rank] = part_bytes(l, slot, rank);
        slot->received += slot->receives[rank];
    }
    slot->in = slot->out ? slot->out + out_bytes : NULL;
}

static void pack(const zoff_lending *l, const zoff_secondary_slot *slot, const char *weights)
{
    const zoff_plan_span part = zoff_zero_plan_own(l->plan, slot->bucket);
    char *to = slot->out;
    for (size_t i = part.first_piece; i < part.first_piece + part.piece_count; i++) {
        const zoff_plan_piece *piece = &l->plan->pieces[i];
        if (!is_sent(l, slot, piece))
            continue;
        memcpy(to, weights + piece->weight_offset, piece->count * element_bytes(l, piece));
        to += wire_bytes(l, piece);
    }
    for (; to < slot->in; to += slot->own)
        memcpy(to, slot->out, slot->own);
}

/* Read this rank's part.  @return PENDING */
static zoff_status read_own(zoff_lending *l, zoff_secondary_slot *slot)
{
    if (slot->own == 0 || slot->is_packed)
        return ZOFF_OK;
    ZOFF_TRY_DONE(zoff_offload_broker_ask(&slot->reads));
    pack(l, slot, slot->reads.weights.base);
    slot->is_packed = true;
    return zoff_offload_broker_give(&slot->reads, &slot->reads.weights, 0, false);
}

static zoff_comm_call call_for(const zoff_lending *l, const zoff_secondary_slot *slot)
{
    return (zoff_comm_call){.kind = ZOFF_COMM_EXCHANGE,
                            .stream = ZOFF_COMM_WEIGHTS,
                            .channel = l->channel,
                            .item = {.about = ZOFF_COMM_ABOUT_SECONDARY, .index = slot->bucket},
                            .in = slot->out,
                            .out = slot->in,
                            .send_bytes = slot->sends,
                            .receive_bytes = slot->receives};
}

zoff_status zoff_lending_secondary_traffic(const zoff_lending *l, zoff_comm_traffic *sum)
{
    zoff_secondary_slot slot = {.sends = NULL};
    if (!zoff_lending_secondary_is(l) || !zoff_model_params_any_owned(l->model))
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(2 * (size_t)l->plan->ranks, sizeof *slot.sends, "parts of the ranks", &slot.sends));
    slot.receives = slot.sends + l->plan->ranks;
    for (; slot.bucket < l->plan->chunk_count; slot.bucket++) {
        if (!is_any_sent(l, &slot))
            continue;
        measure(l, &slot);
        const zoff_comm_call call = call_for(l, &slot);
        zoff_comm_call_add_traffic(l->comm, &call, sum);
    }
    zoff_base_mem_free(slot.sends);
    return ZOFF_OK;
}

static zoff_status send(zoff_lending *l, zoff_secondary_slot *slot)
{
    zoff_secondary *s = &l->secondary;
    if (slot->number != s->started)
        return ZOFF_PENDING;
    const zoff_comm_call call = call_for(l, slot);
    ZOFF_TRY(zoff_comm_start(l->comm, &call, &slot->work));
    s->sent_bytes += slot->sent;
    s->started++;
    return ZOFF_OK;
}

/* Whether all of the chunk has arrived, so that it need not be read. */
static bool is_all(const zoff_lending *l, const zoff_secondary_slot *slot)
{
    const zoff_plan_chunk *c = &l->plan->chunks[slot->bucket];
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++) {
        if (is_stored(l, &l->plan->runs[i]) && !is_sent(l, slot, &l->plan->runs[i]))
            return false;
    }
    return true;
}

/* Where the elements of a run from `first` on lie in a chunk of the secondary shard. */
static char *place_of(const zoff_lending *l, char *chunk, size_t run, size_t first)
{
    const zoff_plan_piece *whole = &l->plan->runs[run];
    size_t begin;
    (void)zoff_lending_group_share(l, l->plan, whole, l->plan->rank, &begin);
    return chunk + l->secondary.offsets[run] + (first - begin) * element_bytes(l, whole);
}

static void unpack(const zoff_lending *l, const zoff_secondary_slot *slot, char *chunk)
{
    const char *from = slot->in;
    const unsigned source = first_source(l, l->plan->rank);
    for (unsigned rank = source; rank < source + l->group.parts; rank++) {
        zoff_plan_cursor part = zoff_zero_plan_part(l->plan, slot->bucket, rank);
        zoff_plan_piece piece;
        while (zoff_zero_plan_next(&part, &piece)) {
            if (!is_sent(l, slot, &piece))
                continue;
            const size_t run = zoff_zero_plan_find_run(l->plan, piece.param, piece.slice, piece.first);
            memcpy(place_of(l, chunk, run, piece.first), from, piece.count * element_bytes(l, &piece));
            from += wire_bytes(l, &piece);
        }
    }
}

/* @return PENDING: no slot of the store is free, or the chunk is being read */
static zoff_status keep(zoff_lending *l, zoff_secondary_slot *slot)
{
    if (slot->received == 0 || slot->writes.weights.done) /* the store reports a write that has failed */
        return ZOFF_OK;
    slot->writes.weights.overwrites = is_all(l, slot);
    ZOFF_TRY_DONE(zoff_offload_broker_ask(&slot->writes));
    unpack(l, slot, slot->writes.weights.base);
    return zoff_offload_broker_give(&slot->writes, &slot->writes.weights, ZOFF_STORE_ALL, false);
}

static zoff_status go_on(zoff_lending *l, zoff_secondary_slot *slot)
{
    zoff_status status = ZOFF_OK;
    if (slot->phase == ZOFF_SECONDARY_READS && (status = read_own(l, slot)) == ZOFF_OK && (status = send(l, slot)) == ZOFF_OK)
        slot->phase = ZOFF_SECONDARY_MOVES;
    if (slot->phase == ZOFF_SECONDARY_MOVES && (status = zoff_comm_poll(l->comm, &slot->work)) == ZOFF_OK)
        slot->phase = ZOFF_SECONDARY_WRITES;
    if (slot->phase == ZOFF_SECONDARY_WRITES && (status = keep(l, slot)) == ZOFF_OK)
        slot->phase = ZOFF_SECONDARY_FREE;
    return status;
}

/* A chunk whose write has failed is pending until it is written again, so its error comes first. */
static zoff_status poll_slots(zoff_lending *l)
{
    bool pending = false;
    ZOFF_TRY(zoff_base_progress_take(l->pollers.stored));
    ZOFF_TRY(zoff_base_progress_take(l->pollers.reads));
    for (unsigned i = 0; i < ZOFF_SECONDARY_SLOTS; i++) {
        zoff_secondary_slot *slot = &l->secondary.slots[i];
        const zoff_status status = slot->phase == ZOFF_SECONDARY_FREE ? ZOFF_OK : go_on(l, slot);
        ZOFF_TRY(status);
        pending = pending || status == ZOFF_PENDING;
    }
    return pending ? ZOFF_PENDING : ZOFF_OK;
}

/* After an error the call ends, and others may need the slots before it is repeated, so the demands ask anew. */
zoff_status zoff_lending_secondary_poll(zoff_lending *l)
{
    zoff_saved_error saved;
    const zoff_status status = poll_slots(l);
    if (status >= 0)
        return status;
    zoff_base_status_save(&saved);
    for (unsigned i = 0; i < ZOFF_SECONDARY_SLOTS; i++) {
        zoff_offload_broker_withdraw(&l->secondary.slots[i].reads);
        zoff_offload_broker_withdraw(&l->secondary.slots[i].writes);
    }
    zoff_base_status_restore(&saved);
    return status;
}

static zoff_demand demand(zoff_store *store, size_t bucket)
{
    return (zoff_demand){.kind = ZOFF_DEMAND_PASS, .chunk = bucket, .weights = {.store = store, .arrays = ZOFF_STORE_ALL}};
}

zoff_status zoff_lending_secondary_start(zoff_lending *l, size_t bucket)
{
    zoff_secondary *s = &l->secondary;
    zoff_secondary_slot *slot = s->slots, *end = s->slots + ZOFF_SECONDARY_SLOTS;
    while (slot < end && slot->phase != ZOFF_SECONDARY_FREE)
        slot++;
    if (slot == end)
        return ZOFF_PENDING;
    slot->bucket = bucket;
    slot->is_packed = false;
    slot->takes_all = s->sends_all;
    slot->reads = demand(l->store, bucket);
    slot->writes = demand(s->store, bucket);
    if (!is_any_sent(l, slot))
        return ZOFF_OK;
    measure(l, slot);
    slot->phase = ZOFF_SECONDARY_READS;
    slot->number = s->taken++;
    return ZOFF_OK;
}

bool zoff_lending_secondary_has_read(const zoff_lending *l, size_t bucket)
{
    for (unsigned i = 0; i < ZOFF_SECONDARY_SLOTS; i++) {
        const zoff_secondary_slot *slot = &l->secondary.slots[i];
        if (slot->phase == ZOFF_SECONDARY_READS && slot->bucket == bucket && slot->own && !slot->is_packed)
            return false;
    }
    return true;
}

bool zoff_lending_secondary_has_come(const zoff_lending *l, size_t bucket)
{
    for (unsigned i = 0; i < ZOFF_SECONDARY_SLOTS; i++) {
        if (l->secondary.slots[i].phase != ZOFF_SECONDARY_FREE && l->secondary.slots[i].bucket == bucket)
            return false;
    }
    return true;
}

/* ---- waiting ---- */

static zoff_status poll_all(void *ctx)
{
    return zoff_lending_secondary_poll(ctx);
}

zoff_status zoff_lending_secondary_finish(zoff_lending *l)
{
    return l->secondary.store ? zoff_base_progress_wait(l->progress, l->pollers.ranks, poll_all, l) : ZOFF_OK;
}

typedef struct start_wait {
    zoff_lending *lending;
    size_t bucket;
} start_wait;

static zoff_status try_to_start(void *ctx)
{
    const start_wait *w = ctx;
    const zoff_status status = zoff_lending_secondary_start(w->lending, w->bucket);
    if (status == ZOFF_PENDING)
        ZOFF_TRY(zoff_lending_secondary_poll(w->lending)); /* others release their slots meanwhile */
    return status;
}

/* After an error of this rank's store the call is repeated, while other ranks wait in theirs, so it goes on where it was. */
static zoff_status start_all(zoff_lending *l)
{
    for (size_t *b = &l->secondary.fill_next; *b < l->plan->chunk_count; (*b)++)
        ZOFF_TRY(zoff_base_progress_wait(l->progress, l->pollers.ranks, try_to_start, &(start_wait){l, *b}));
    ZOFF_TRY(zoff_lending_secondary_finish(l));
    ZOFF_TRY(zoff_offload_store_drain(l->secondary.store));
    l->secondary.fill_next = 0;
    return ZOFF_OK;
}

zoff_status zoff_lending_secondary_fill(zoff_lending *l)
{
    zoff_secondary *s = &l->secondary;
    if (!s->store)
        return ZOFF_OK;
    s->sends_all = true;
    const zoff_status status = start_all(l);
    s->sends_all = false;
    return status;
}

/* ---- weights that the program sets on all ranks ---- */

static zoff_status ask(void *ctx)
{
    return zoff_offload_broker_ask(ctx);
}

zoff_status zoff_lending_secondary_set(zoff_lending *l, const zoff_plan_piece *run, size_t first_byte, const char *from,
                                       size_t bytes)
{
    zoff_demand d = demand(l->secondary.store, run->bucket);
    const size_t element = element_bytes(l, run), number = (size_t)(run - l->plan->runs);
    size_t first;
    const size_t count = zoff_lending_group_share(l, l->plan, run, l->plan->rank, &first);
    const size_t begin = zoff_base_bits_max(first, run->first + first_byte / element);
    const size_t end = zoff_base_bits_min(first + count, run->first + (first_byte + bytes) / element);
    if (begin >= end)
        return ZOFF_OK;
    const zoff_status status = zoff_base_progress_wait(l->progress, l->pollers.reads, ask, &d);
    if (status < 0)
        zoff_offload_broker_withdraw(&d);
    ZOFF_TRY(status);
    memcpy(place_of(l, d.weights.base, number, begin), from + (begin - run->first) * element - first_byte,
           (end - begin) * element);
    return zoff_offload_broker_give(&d, &d.weights, ZOFF_STORE_ALL, false);
}
