/* SPDX-License-Identifier: Apache-2.0 */
/* gather.c: runs a few all-gathers at a time. Items start in order; they may complete in any order. */
#include "gather.h"

#include "mem.h"
#include "try.h"

struct zoff_gather {
    zoff_gather_opts opts;
    zoff_comm_call call;     /* every item's, without what differs */
    unsigned members, place; /* ranks that gather, and which one this is, as parts are packed */
    bool is_grid;
    zoff_gather_slot *slots;
    size_t *bytes;                /* memory for `bytes` and `rails` of all slots */
    uint64_t taken, sent, spread; /* items so far, in the same order */
    uint64_t sent_bytes;
};

static void choose_members(zoff_gather *g, const zoff_gather_opts *opts)
{
    *g = (zoff_gather){.opts = *opts,
                       .call = {.kind = ZOFF_COMM_GATHER,
                                .stream = opts->stream,
                                .channel = opts->channel,
                                .first = opts->first,
                                .stride = opts->stride,
                                .members = opts->members}};
    g->members = zoff_comm_call_members(opts->comm, &g->call);
    g->place = zoff_comm_call_index(&g->call, zoff_comm_rank(opts->comm));
    g->is_grid = opts->grid.node_ranks > 1;
    if (g->is_grid) {
        g->place = zoff_comm_grid_position(&opts->grid, zoff_comm_rank(opts->comm));
        zoff_comm_call_group(opts->comm, &g->call);
    }
}

zoff_status zoff_zero_gather_open(const zoff_gather_opts *opts, zoff_gather **out)
{
    zoff_status status;
    zoff_gather *g;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *g, "an all-gather", &g));
    choose_members(g, opts);
    const size_t numbers = g->members + (g->is_grid ? opts->grid.node_ranks : 0);
    ZOFF_TRY_OR(undo, zoff_base_mem_alloc(opts->slots, sizeof *g->slots, "the slots of the ranks", &g->slots));
    ZOFF_TRY_OR(undo,
                zoff_base_mem_alloc((size_t)opts->slots * numbers, sizeof *g->bytes, "the slots of the ranks", &g->bytes));
    for (unsigned i = 0; i < opts->slots; i++) {
        g->slots[i] = (zoff_gather_slot){.number = i, .bytes = g->bytes + (size_t)i * numbers};
        g->slots[i].rails = g->slots[i].bytes + g->members;
    }
    *out = g;
    return ZOFF_OK;
undo:
    zoff_zero_gather_close(g);
    return status;
}

void zoff_zero_gather_close(zoff_gather *g)
{
    if (!g)
        return;
    for (unsigned slot = 0; g->slots && slot < g->opts.slots; slot++)
        zoff_comm_abandon(g->opts.comm, &g->slots[slot].work);
    zoff_base_mem_free(g->slots);
    zoff_base_mem_free(g->bytes);
    zoff_base_mem_free(g);
}

/* The first slot from `at` on that is used, or is free. */
static zoff_gather_slot *find(const zoff_gather *g, unsigned at, bool is_used)
{
    while (at < g->opts.slots && g->slots[at].is_used != is_used)
        at++;
    return at < g->opts.slots ? &g->slots[at] : NULL;
}

zoff_gather_slot *zoff_zero_gather_free(zoff_gather *g)
{
    return find(g, 0, false);
}

zoff_gather_slot *zoff_zero_gather_next(const zoff_gather *g, const zoff_gather_slot *s)
{
    return find(g, s ? s->number + 1 : 0, true);
}

/* Whether any rank has a part. */
static bool has_bytes(const zoff_gather *g, const zoff_gather_slot *s)
{
    for (unsigned i = 0; i < g->members; i++) {
        if (s->bytes[i])
            return true;
    }
    return false;
}

bool zoff_zero_gather_take(zoff_gather *g, zoff_gather_slot *s)
{
    s->is_sent = s->is_spread = false;
    s->is_used = has_bytes(g, s);
    s->order = g->taken;
    g->taken += s->is_used;
    return s->is_used;
}

static size_t bytes_before(const zoff_gather_slot *s, unsigned member)
{
    size_t before = 0;
    for (unsigned i = 0; i < member; i++)
        before += s->bytes[i];
    return before;
}

/* The first hop, to the rail, or to all. */
static zoff_comm_call call_to_rail(const zoff_gather *g, const zoff_gather_slot *s)
{
    const unsigned first = g->is_grid ? g->place / g->opts.grid.nodes * g->opts.grid.nodes : 0; /* of the rail, or of all */
    zoff_comm_call call = g->call;
    call.item = s->about;
    call.receive_bytes = s->bytes + first;
    if (s->parts) {
        call.in = s->parts + bytes_before(s, g->place);
        call.out = s->parts + bytes_before(s, first);
    }
    return call;
}

/* The second hop: to the node, what the rail has. */
static zoff_comm_call call_to_node(const zoff_gather *g, const zoff_gather_slot *s)
{
    const zoff_comm_grid *grid = &g->opts.grid;
    for (unsigned i = 0; i < grid->node_ranks; i++)
        s->rails[i] = bytes_before(s, (i + 1) * grid->nodes) - bytes_before(s, i * grid->nodes);
    zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                           .stream = g->opts.node,
                           .channel = g->opts.channel,
                           .item = s->about,
                           .in = s->parts ? s->parts + bytes_before(s, g->place / grid->nodes * grid->nodes) : NULL,
                           .out = s->parts,
                           .receive_bytes = s->rails};
    zoff_comm_call_group(g->opts.comm, &call);
    return call;
}

void zoff_zero_gather_traffic(const zoff_gather_opts *opts, size_t *bytes, size_t *rails, zoff_comm_traffic *sum)
{
    zoff_gather g;
    const zoff_gather_slot s = {.bytes = bytes, .rails = rails};
    choose_members(&g, opts);
    if (!has_bytes(&g, &s))
        return;
    zoff_comm_call call = call_to_rail(&g, &s);
    zoff_comm_call_add_traffic(opts->comm, &call, sum);
    if (!g.is_grid)
        return;
    call = call_to_node(&g, &s);
    zoff_comm_call_add_traffic(opts->comm, &call, sum);
}

zoff_status zoff_zero_gather_send(zoff_gather *g, zoff_gather_slot *s)
{
    if (s->order != g->sent)
        return ZOFF_PENDING;
    const zoff_comm_call call = call_to_rail(g, s);
    ZOFF_TRY(zoff_comm_start(g->opts.comm, &call, &s->work));
    g->sent_bytes += (zoff_comm_call_members(g->opts.comm, &call) - 1) * s->bytes[g->place];
    g->sent++;
    s->is_sent = true;
    return ZOFF_OK;
}

/* Send what the rail has to the node. */
static zoff_status spread(zoff_gather *g, zoff_gather_slot *s)
{
    const zoff_comm_grid *grid = &g->opts.grid;
    if (s->order != g->spread)
        return ZOFF_PENDING;
    const zoff_comm_call call = call_to_node(g, s);
    ZOFF_TRY(zoff_comm_start(g->opts.comm, &call, &s->work));
    g->sent_bytes += (grid->node_ranks - 1) * s->rails[g->place / grid->nodes];
    g->spread++;
    s->is_spread = true;
    return ZOFF_PENDING;
}

zoff_status zoff_zero_gather_poll(zoff_gather *g, zoff_gather_slot *s)
{
    ZOFF_TRY_DONE(zoff_comm_poll(g->opts.comm, &s->work));
    return g->is_grid && !s->is_spread ? spread(g, s) : ZOFF_OK;
}

void zoff_zero_gather_end(zoff_gather_slot *s)
{
    s->is_used = false;
}

/* Errors are ignored, because the next zoff_zero_gather_poll() returns them. */
void zoff_zero_gather_pump(zoff_gather *g)
{
    for (zoff_gather_slot *s = NULL; (s = zoff_zero_gather_next(g, s));) {
        if (s->is_sent)
            (void)zoff_zero_gather_poll(g, s);
    }
}

uint64_t zoff_zero_gather_sent_bytes(const zoff_gather *g)
{
    return g ? g->sent_bytes : 0;
}
