/* SPDX-License-Identifier: Apache-2.0 */
/* reduce.c: exchanges gradients, bucket by bucket. All operations use one stream, in this order:
 *
 *      weights of the micro-batch | buckets in their order ... | only after the first micro-batch: the order for later ones
 *
 * A bucket waits until all earlier ones are in flight, and until a slot is free. The second hop of levels has a stream of its
 * own, with the same order. */
#include "reduce.h"

#include "bits.h"
#include "mem.h"
#include "try.h"

#include <string.h>

typedef struct reduce_slot {
    bool used;
    bool packs;      /* the bucket is not sent yet, because it is not packed, or an earlier one has not been sent */
    bool packed;     /* packed: must not be packed again, because the source may be gone */
    bool flies;      /* an exchange is in flight */
    uint64_t number; /* position in the order of exchanges */
    size_t bucket;
    char *send, *receive;
    size_t *send_bytes, *receive_bytes; /* bytes for and from each rank that takes part */
    zoff_comm_work work;
    struct {
        bool is_next;    /* the bucket is behind its first hop */
        bool is_summed;  /* the terms of this node were added */
        uint64_t number; /* position in the order of second hops */
        char *send, *receive, *sums;
    } rail;
} reduce_slot;

typedef struct reduce_bucket {
    uint32_t missing; /* slices whose gradients have not come */
    bool complete, done;
} reduce_bucket;

/* The weights of the ranks' micro-batches. Gradients are multiplied by `factors`: weight times zoff_reduce_opts.factor. With
 * levels a rank gets the weights of its node, and on the rail the sums of all nodes. */
typedef struct reduce_weights {
    double own;        /* weight of this rank */
    zoff_exact total;  /* sum of the factors of all ranks */
    double *all;       /* weights, by rank, or by the place in this node */
    float *factors;    /* factors in the same order */
    float own_factor;  /* factor of this rank, known before those of the others */
    bool fixed;        /* set by the first gradient, because this rank's weight can no longer change then */
    bool asked, known; /* the gather of weights has started, and is done */
    zoff_comm_work work;
    zoff_exact *nodes;             /* levels: sums of factors, by node */
    bool total_asked, total_known; /* the same of these sums, and `total` */
    zoff_comm_work total_work;
} reduce_weights;

typedef struct reduce_learning {
    bool is_asked, is_known;
    zoff_comm_work work;
} reduce_learning;

typedef struct reduce_hop {
    uint64_t taken, started; /* exchanges that got a slot, exchanges started; both in the same order */
} reduce_hop;

struct zoff_reduce {
    zoff_reduce_opts opts;
    zoff_reduce_levels levels;
    unsigned peers; /* most ranks that take part in an exchange */
    reduce_bucket *buckets;
    uint32_t *order, *arrivals, *learned; /* bucket order of exchange, of completion on this rank, and as broadcast by rank 0 */
    size_t arrived;                       /* number of entries in `arrivals` */
    size_t next;                          /* index in `order` of the bucket to exchange next */
    bool is_void;                         /* the exchange carries buckets without their content */
    bool keeps;                           /* levels: no second hop in this micro-batch */
    reduce_learning learning;             /* the order of rank 0 */
    reduce_weights weights;
    reduce_slot *slots;
    size_t *bytes;          /* memory for the sizes of all slots */
    reduce_hop first, rail; /* hops */
    uint64_t batches, sent_bytes;
};

/* ---- life ---- */

enum { ALIGN = 64 };

static size_t largest_bucket(const zoff_reduce_opts *opts)
{
    return zoff_base_bits_align(opts->bucket_most, ALIGN);
}

/* The most ranks that take part in an exchange. */
static unsigned most_peers(const zoff_reduce_opts *opts)
{
    const zoff_reduce_levels *l = opts->levels;
    return l ? (unsigned)zoff_base_bits_max(l->grid.node_ranks, l->grid.nodes) : opts->plan->ranks;
}

/* Bytes that arrive in the first hop. */
static size_t received(const zoff_reduce_opts *opts)
{
    const unsigned from = opts->adds ? 1 : opts->levels ? opts->levels->grid.node_ranks : opts->plan->ranks;
    return zoff_base_bits_align(opts->part_most, ALIGN) * from;
}

size_t zoff_zero_reduce_slot_bytes(const zoff_reduce_opts *opts)
{
    const zoff_reduce_levels *l = opts->levels;
    const size_t rail = l ? zoff_base_bits_align(l->partial_most, ALIGN) + l->sum_most * l->grid.nodes : 0;
    return largest_bucket(opts) + received(opts) + zoff_base_bits_align(rail, ALIGN);
}

/* Ranks whose weights this one needs. */
static unsigned members_of(const zoff_reduce *r)
{
    return r->opts.levels ? r->levels.grid.node_ranks : r->opts.plan->ranks;
}

static zoff_status allocate(zoff_reduce *r)
{
    const size_t ranks = members_of(r);
    ZOFF_TRY(zoff_base_mem_alloc(r->opts.plan->chunk_count, sizeof *r->buckets, "the buckets of the ranks", &r->buckets));
    ZOFF_TRY(zoff_base_mem_alloc(r->opts.plan->chunk_count, sizeof *r->order, "the buckets of the ranks", &r->order));
    ZOFF_TRY(zoff_base_mem_alloc(r->opts.plan->chunk_count, sizeof *r->arrivals, "the buckets of the ranks", &r->arrivals));
    ZOFF_TRY(zoff_base_mem_alloc(r->opts.plan->chunk_count, sizeof *r->learned, "the buckets of the ranks", &r->learned));
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *r->weights.all, "the ranks' weights", &r->weights.all));
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *r->weights.factors, "the ranks' weights", &r->weights.factors));
    if (r->opts.levels)
        ZOFF_TRY(zoff_base_mem_alloc(r->levels.grid.nodes, sizeof *r->weights.nodes, "the ranks' weights", &r->weights.nodes));
    ZOFF_TRY(zoff_base_mem_alloc(r->opts.slots, sizeof *r->slots, "the slots of the ranks", &r->slots));
    return zoff_base_mem_alloc(2 * (size_t)r->peers * r->opts.slots, sizeof *r->bytes, "the slots of the ranks", &r->bytes);
}

zoff_status zoff_zero_reduce_open(const zoff_reduce_opts *opts, zoff_reduce **out)
{
    zoff_status status;
    zoff_reduce *r;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *r, "a reduction", &r));
    *r = (zoff_reduce){.opts = *opts, .weights.own = 1};
    if (opts->levels)
        r->levels = *opts->levels;
    r->opts.levels = opts->levels ? &r->levels : NULL;
    r->peers = most_peers(opts);
    ZOFF_TRY_OR(undo, allocate(r));
    const size_t slot_bytes = zoff_zero_reduce_slot_bytes(opts), there = largest_bucket(opts);
    for (unsigned i = 0; i < opts->slots; i++) {
        reduce_slot *s = &r->slots[i];
        if (slot_bytes) { /* otherwise `memory` may be NULL */
            s->send = opts->memory + i * slot_bytes;
            s->receive = s->send + there;
            s->rail.send = s->receive + received(opts);
            s->rail.receive = s->rail.send + zoff_base_bits_align(r->levels.partial_most, ALIGN);
        }
        s->send_bytes = r->bytes + 2 * (size_t)i * r->peers;
        s->receive_bytes = s->send_bytes + r->peers;
    }
    /* The first order is from the last bucket to the first, because backward passes usually end at the first parameter. */
    for (size_t b = 0; b < r->opts.plan->chunk_count; b++)
        r->order[b] = (uint32_t)(r->opts.plan->chunk_count - 1 - b);
    *out = r;
    return ZOFF_OK;
undo:
    zoff_zero_reduce_close(r);
    return status;
}

void zoff_zero_reduce_close(zoff_reduce *r)
{
    if (!r)
        return;
    for (unsigned i = 0; r->slots && i < r->opts.slots; i++)
        zoff_comm_abandon(r->opts.comm, &r->slots[i].work);
    zoff_comm_abandon(r->opts.comm, &r->weights.work);
    zoff_comm_abandon(r->opts.comm, &r->weights.total_work);
    zoff_comm_abandon(r->opts.comm, &r->learning.work);
    if (!zoff_comm_lets_go(r->opts.comm))
        return; /* leak the memory, because the network may still read `learned` and other arrays */
    void *blocks[] = {r->buckets,         r->order,         r->arrivals, r->learned, r->weights.all,
                      r->weights.factors, r->weights.nodes, r->slots,    r->bytes};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        zoff_base_mem_free(blocks[i]);
    zoff_base_mem_free(r);
}

/* ---- arriving gradients ---- */

static void complete(zoff_reduce *r, size_t bucket)
{
    r->buckets[bucket].complete = true;
    r->arrivals[r->arrived++] = (uint32_t)bucket;
}

void zoff_zero_reduce_begin(zoff_reduce *r, const uint32_t *missing, bool keeps)
{
    for (size_t b = 0; b < r->opts.plan->chunk_count; b++)
        r->buckets[b] = (reduce_bucket){.missing = missing[b]};
    r->next = r->arrived = 0;
    r->keeps = keeps;
    r->weights.own = 1;
    r->weights.fixed = r->weights.asked = r->weights.known = r->is_void = false;
    r->weights.total_asked = r->weights.total_known = false;
    /* A bucket that waits for no slice is complete, because it has no trained parameter, or no parameter at all. */
    for (size_t b = 0; b < r->opts.plan->chunk_count; b++) {
        if (missing[b] == 0)
            complete(r, b);
    }
}

void zoff_zero_reduce_weigh(zoff_reduce *r, double weight)
{
    r->weights.own = weight;
}

void zoff_zero_reduce_mark(zoff_reduce *r, size_t first, size_t last)
{
    r->weights.fixed = true;
    for (size_t b = first; b <= last; b++) {
        if (--r->buckets[b].missing == 0)
            complete(r, b);
    }
}

void zoff_zero_reduce_close_batch(zoff_reduce *r)
{
    r->weights.fixed = true;
    for (size_t i = 0; i < r->opts.plan->chunk_count; i++) {
        if (!r->buckets[r->order[i]].complete)
            complete(r, r->order[i]);
    }
}

void zoff_zero_reduce_give_up(zoff_reduce *r)
{
    r->is_void = true;
    zoff_zero_reduce_close_batch(r);
}

bool zoff_zero_reduce_is_done(const zoff_reduce *r, size_t bucket)
{
    return r->buckets[bucket].done;
}

const float *zoff_zero_reduce_own_weight(const zoff_reduce *r)
{
    return &r->weights.own_factor;
}

const zoff_exact *zoff_zero_reduce_total_weight(const zoff_reduce *r)
{
    return &r->weights.total;
}

uint64_t zoff_zero_reduce_batches(const zoff_reduce *r)
{
    return r->batches;
}

uint64_t zoff_zero_reduce_sent_bytes(const zoff_reduce *r)
{
    return r->sent_bytes;
}

/* ---- exchange ---- */

/* `totals`: the sums of the weights of each node, on the rail. */
static zoff_comm_call call_for_weights(const zoff_reduce_opts *opts, bool totals)
{
    zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                           .stream = totals         ? ZOFF_COMM_REDUCE_RAIL
                                     : opts->levels ? ZOFF_COMM_REDUCE_NODE
                                                    : ZOFF_COMM_REDUCE,
                           .channel = opts->channel,
                           .item = {.about = ZOFF_COMM_ABOUT_BATCH},
                           .count = totals ? sizeof(zoff_exact) : sizeof(double)};
    if (opts->levels)
        zoff_comm_call_group(opts->comm, &call);
    return call;
}

static zoff_status ask_weights(zoff_reduce *r)
{
    double *own = &r->weights.all[r->opts.plan->rank % members_of(r)];
    *own = r->weights.own;
    r->weights.own_factor = (float)(r->weights.own * r->opts.factor);
    zoff_comm_call call = call_for_weights(&r->opts, false);
    call.in = own;
    call.out = r->weights.all;
    ZOFF_TRY(zoff_comm_start(r->opts.comm, &call, &r->weights.work));
    r->weights.asked = true;
    r->batches++;
    return ZOFF_OK;
}

static zoff_status ask_total(zoff_reduce *r)
{
    zoff_comm_call call = call_for_weights(&r->opts, true);
    call.in = &r->weights.nodes[r->opts.plan->rank / r->levels.grid.node_ranks];
    call.out = r->weights.nodes;
    ZOFF_TRY(zoff_comm_start(r->opts.comm, &call, &r->weights.total_work));
    r->weights.total_asked = true;
    return ZOFF_OK;
}

/* The sum of all factors: with levels those of all nodes, which follow those of this one. */
static zoff_status poll_total(zoff_reduce *r)
{
    if (!r->opts.levels || r->weights.total_known)
        return ZOFF_OK;
    if (!r->weights.total_asked)
        ZOFF_TRY(ask_total(r));
    ZOFF_TRY_DONE(zoff_comm_poll(r->opts.comm, &r->weights.total_work));
    r->weights.total = (zoff_exact){.terms = 0};
    for (unsigned node = 0; node < r->levels.grid.nodes; node++)
        zoff_base_exact_join(&r->weights.total, &r->weights.nodes[node]);
    r->weights.total_known = true;
    return ZOFF_OK;
}

static zoff_status poll_weights(zoff_reduce *r)
{
    if (r->weights.known)
        return poll_total(r);
    ZOFF_TRY_DONE(zoff_comm_poll(r->opts.comm, &r->weights.work));
    r->weights.total = (zoff_exact){.terms = 0};
    for (unsigned i = 0; i < members_of(r); i++) {
        r->weights.factors[i] = (float)(r->weights.all[i] * r->opts.factor);
        zoff_base_exact_add(&r->weights.total, r->weights.factors[i]);
    }
    if (r->opts.levels)
        r->weights.nodes[r->opts.plan->rank / r->levels.grid.node_ranks] = r->weights.total;
    r->weights.known = true;
    r->weights.total_known = !r->opts.levels;
    return poll_total(r);
}

/* Broadcast the order in which buckets became complete on rank 0. */
static zoff_status ask_order(zoff_reduce *r)
{
    const zoff_comm_call call = {.kind = ZOFF_COMM_BROADCAST,
                                 .stream = ZOFF_COMM_REDUCE,
                                 .channel = r->opts.channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_ORDER},
                                 .out = r->learned,
                                 .count = r->opts.plan->chunk_count * sizeof *r->learned};
    memcpy(r->learned, r->arrivals, call.count);
    ZOFF_TRY(zoff_comm_start(r->opts.comm, &call, &r->learning.work));
    r->learning.is_asked = true;
    return ZOFF_OK;
}

static zoff_status poll_order(zoff_reduce *r)
{
    if (!r->learning.is_asked || r->learning.is_known)
        return ZOFF_OK;
    ZOFF_TRY_DONE(zoff_comm_poll(r->opts.comm, &r->learning.work));
    memcpy(r->order, r->learned, r->opts.plan->chunk_count * sizeof *r->order);
    r->learning.is_known = true;
    return ZOFF_OK;
}

static reduce_slot *free_slot(zoff_reduce *r)
{
    for (unsigned i = 0; i < r->opts.slots; i++) {
        if (!r->slots[i].used)
            return &r->slots[i];
    }
    return NULL;
}

/* Set the sizes of an exchange among `peers` ranks, of which this one is number `own`.  @return bytes to the others */
static uint64_t size_up(const zoff_reduce_opts *opts, const reduce_slot *s,
                        size_t (*bytes)(void *ctx, size_t bucket, unsigned peer), unsigned peers, unsigned own)
{
    const size_t receives = bytes(opts->ctx, s->bucket, own);
    uint64_t sent = 0;
    for (unsigned peer = 0; peer < peers; peer++) {
        s->send_bytes[peer] = peer == own ? receives : bytes(opts->ctx, s->bucket, peer);
        s->receive_bytes[peer] = receives;
        sent += peer == own ? 0 : s->send_bytes[peer];
    }
    return sent;
}

static uint64_t size_up_first(const zoff_reduce_opts *opts, const reduce_slot *s)
{
    const unsigned rank = opts->plan->rank, node_ranks = opts->levels ? opts->levels->grid.node_ranks : opts->plan->ranks;
    return size_up(opts, s, opts->part_bytes, node_ranks, rank % node_ranks);
}

static uint64_t size_up_rail(const zoff_reduce_opts *opts, const reduce_slot *s)
{
    const zoff_comm_grid *g = &opts->levels->grid;
    return size_up(opts, s, opts->levels->sum_bytes, g->nodes, opts->plan->rank / g->node_ranks);
}

/* An exchange whose sizes are set. */
static zoff_comm_call call_for(const zoff_reduce_opts *opts, const reduce_slot *s, bool is_rail)
{
    zoff_comm_call call = {.kind = ZOFF_COMM_EXCHANGE,
                           .stream = is_rail        ? ZOFF_COMM_REDUCE_RAIL
                                     : opts->levels ? ZOFF_COMM_REDUCE_NODE
                                                    : ZOFF_COMM_REDUCE,
                           .channel = opts->channel,
                           .item = {.about = ZOFF_COMM_ABOUT_GRADIENTS, .index = s->bucket},
                           .send_bytes = s->send_bytes,
                           .receive_bytes = s->receive_bytes,
                           .adds = opts->adds};
    if (opts->levels)
        zoff_comm_call_group(opts->comm, &call);
    return call;
}

zoff_status zoff_zero_reduce_traffic(const zoff_reduce_opts *opts, bool keeps, zoff_comm_traffic *sum)
{
    size_t *bytes;
    const unsigned peers = most_peers(opts);
    ZOFF_TRY(zoff_base_mem_alloc(2 * (size_t)peers, sizeof *bytes, "the sizes of messages", &bytes));
    reduce_slot s = {.send_bytes = bytes, .receive_bytes = bytes + peers};
    zoff_comm_call call = call_for_weights(opts, false);
    if (opts->plan->chunk_count)
        zoff_comm_call_add_traffic(opts->comm, &call, sum);
    call = call_for_weights(opts, true);
    if (opts->plan->chunk_count && opts->levels)
        zoff_comm_call_add_traffic(opts->comm, &call, sum);
    for (; s.bucket < opts->plan->chunk_count; s.bucket++) {
        (void)size_up_first(opts, &s);
        call = call_for(opts, &s, false);
        zoff_comm_call_add_traffic(opts->comm, &call, sum);
        if (!opts->levels || keeps)
            continue;
        (void)size_up_rail(opts, &s);
        call = call_for(opts, &s, true);
        zoff_comm_call_add_traffic(opts->comm, &call, sum);
    }
    zoff_base_mem_free(bytes);
    return ZOFF_OK;
}

/* Start an exchange whose sizes are set. */
static zoff_status exchange(zoff_reduce *r, reduce_slot *s, bool is_rail, const char *in, char *out)
{
    zoff_comm_call call = call_for(&r->opts, s, is_rail);
    call.in = in;
    call.out = out;
    ZOFF_TRY(zoff_comm_start(r->opts.comm, &call, &s->work));
    s->flies = true;
    return ZOFF_OK;
}

/* Send a bucket, once it is packed and all earlier buckets have been sent. */
static zoff_status send(zoff_reduce *r, reduce_slot *s)
{
    const bool is_ready = s->packed || r->is_void;
    ZOFF_TRY_DONE(is_ready ? ZOFF_OK : r->opts.pack(r->opts.ctx, s->bucket, (unsigned)(s - r->slots), s->send));
    s->packed = true;
    if (s->number != r->first.started)
        return ZOFF_PENDING;
    ZOFF_TRY(exchange(r, s, false, s->send, s->receive));
    r->first.started++;
    s->packs = false;
    return ZOFF_OK;
}

static zoff_status start_bucket(zoff_reduce *r, reduce_slot *s, size_t bucket)
{
    s->used = s->packs = true;
    s->packed = s->flies = s->rail.is_next = s->rail.is_summed = false;
    s->bucket = bucket;
    s->number = r->first.taken++;
    if (r->opts.levels && !r->keeps)
        s->rail.number = r->rail.taken++;
    r->sent_bytes += size_up_first(&r->opts, s);
    r->next++;
    const zoff_status status = send(r, s);
    return status < 0 ? status : ZOFF_OK;
}

/* Start the exchange of complete buckets, as far as the order and free slots allow. */
static zoff_status start(zoff_reduce *r)
{
    reduce_slot *s;
    const bool waits_for_order = r->learning.is_asked && !r->learning.is_known;
    if (!r->weights.fixed || waits_for_order || r->next == r->opts.plan->chunk_count || !r->buckets[r->order[r->next]].complete)
        return ZOFF_OK;
    if (!r->weights.asked)
        ZOFF_TRY(ask_weights(r));
    while (r->next < r->opts.plan->chunk_count && r->buckets[r->order[r->next]].complete && (s = free_slot(r)))
        ZOFF_TRY(start_bucket(r, s, r->order[r->next]));
    return ZOFF_OK;
}

/* Add up the terms of this node, and send the sums on the rail once all earlier buckets have been sent. */
static zoff_status go_on_rail(zoff_reduce *r, reduce_slot *s)
{
    const zoff_reduce_levels *l = &r->levels;
    if (!s->rail.is_summed) {
        s->rail.sums = s->rail.send;
        if (!r->is_void)
            ZOFF_TRY_DONE(
                l->partial(r->opts.ctx, s->bucket, (unsigned)(s - r->slots), s->receive, r->weights.factors, &s->rail.sums));
        s->rail.is_summed = true;
    }
    if (r->keeps)
        return r->weights.total_known ? ZOFF_OK : ZOFF_PENDING;
    if (!r->weights.total_asked) /* it comes first on the rail */
        return ZOFF_PENDING;
    if (s->rail.number != r->rail.started)
        return ZOFF_PENDING;
    r->sent_bytes += size_up_rail(&r->opts, s);
    ZOFF_TRY(exchange(r, s, true, s->rail.sums, s->rail.receive));
    r->rail.started++;
    s->rail.is_next = true;
    return ZOFF_PENDING;
}

static zoff_status take(zoff_reduce *r, reduce_slot *s)
{
    zoff_status status = s->packs ? send(r, s) : ZOFF_OK;
    if (status == ZOFF_OK && s->flies)
        status = zoff_comm_poll(r->opts.comm, &s->work);
    if (status != ZOFF_OK || !r->weights.known)
        return status < 0 ? status : ZOFF_PENDING;
    s->flies = false;
    const bool is_first = r->opts.levels && !s->rail.is_next;
    if (is_first)
        ZOFF_TRY_DONE(go_on_rail(r, s));
    else if (!r->weights.total_known)
        status = ZOFF_PENDING;
    else if (!r->is_void)
        status = r->opts.sum(r->opts.ctx, s->bucket, (unsigned)(s - r->slots), r->opts.levels ? s->rail.receive : s->receive,
                             r->weights.factors);
    if (status != ZOFF_OK)
        return status;
    r->buckets[s->bucket].done = true;
    s->used = false;
    return ZOFF_OK;
}

zoff_status zoff_zero_reduce_poll(zoff_reduce *r)
{
    bool moved = true, pending = true;
    while (moved) {
        moved = false;
        ZOFF_TRY(start(r));
        zoff_status status = r->weights.asked ? poll_weights(r) : ZOFF_OK;
        ZOFF_TRY(status);
        pending = status == ZOFF_PENDING;
        for (unsigned i = 0; i < r->opts.slots; i++) {
            if (!r->slots[i].used)
                continue;
            status = take(r, &r->slots[i]);
            ZOFF_TRY(status);
            moved = moved || status == ZOFF_OK;
            pending = pending || status == ZOFF_PENDING;
        }
        if (r->weights.asked && r->next == r->opts.plan->chunk_count && r->first.started == r->first.taken &&
            !r->learning.is_asked)
            ZOFF_TRY(ask_order(r));
        status = poll_order(r);
        ZOFF_TRY(status);
        pending = pending || status == ZOFF_PENDING;
    }
    return pending ? ZOFF_PENDING : ZOFF_OK;
}

/* Errors are ignored, because the next zoff_zero_reduce_poll() returns them. */
void zoff_zero_reduce_pump(zoff_reduce *r)
{
    for (unsigned i = 0; i < r->opts.slots; i++) {
        if (r->slots[i].used && r->slots[i].flies)
            (void)zoff_comm_poll(r->opts.comm, &r->slots[i].work);
    }
}
