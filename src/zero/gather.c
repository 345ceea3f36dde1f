/* gather.c: runs a few all-gathers at a time. Items start in order; they may complete in any order. */
#include "gather.h"

#include "mem.h"
#include "try.h"

typedef struct gather_slot {
    bool used;
    bool begins;     /* the item has not started, because this rank's part is missing, or an earlier item has not started */
    uint64_t number; /* position in the order of starts */
    size_t item;
    char *parts;
    size_t *bytes; /* size of each rank's part */
    zoff_comm_work work;
} gather_slot;

/* The ranks that gather, and their stream: see zoff_comm_call. */
typedef struct zoff_gather_group {
    zoff_comm_stream stream;
    unsigned first, members;
} zoff_gather_group;

struct zoff_gather {
    zoff_gather_opts opts;
    unsigned ranks, rank;
    unsigned members; /* ranks that gather */
    zoff_gather_group group;
    gather_slot *slots;
    size_t *bytes;           /* memory for `bytes` of all slots */
    uint64_t taken, started; /* items that got a slot, items started; both in the same order */
    uint64_t sent_bytes;
};

zoff_status zoff_zero_gather_open(const zoff_gather_opts *opts, zoff_gather **out)
{
    zoff_status status;
    zoff_gather *g;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *g, "an all-gather", &g));
    *g = (zoff_gather){.opts = *opts, .ranks = zoff_comm_size(opts->comm), .rank = zoff_comm_rank(opts->comm)};
    g->members = opts->members ? opts->members : g->ranks;
    g->group = (zoff_gather_group){.stream = opts->stream};
    if (g->members < g->ranks)
        g->group = (zoff_gather_group){.stream = ZOFF_COMM_GROUP, .first = opts->first, .members = opts->members};
    ZOFF_TRY_OR(undo, zoff_base_mem_alloc(opts->slots, sizeof *g->slots, "the slots of the ranks", &g->slots));
    ZOFF_TRY_OR(undo,
                zoff_base_mem_alloc((size_t)opts->slots * g->ranks, sizeof *g->bytes, "the slots of the ranks", &g->bytes));
    for (unsigned i = 0; i < opts->slots; i++)
        g->slots[i].bytes = g->bytes + (size_t)i * g->ranks;
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

/* Start the item of a slot, once this rank's part is in place and all earlier items have started. */
static zoff_status go_on(zoff_gather *g, unsigned slot)
{
    gather_slot *s = &g->slots[slot];
    size_t before = 0;
    zoff_status status = g->opts.begin(g->opts.ctx, s->item, slot, &s->parts);
    if (status != ZOFF_OK)
        return status;
    if (s->number != g->started)
        return ZOFF_PENDING;
    for (unsigned rank = 0; rank < g->rank; rank++)
        before += s->bytes[rank];
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                                 .stream = g->group.stream,
                                 .channel = g->opts.channel,
                                 .item = g->opts.about(g->opts.ctx, s->item),
                                 .in = s->parts + before,
                                 .out = s->parts,
                                 .receive_bytes = s->bytes,
                                 .first = g->group.first,
                                 .members = g->group.members};
    ZOFF_TRY(zoff_comm_start(g->opts.comm, &call, &s->work));
    g->sent_bytes += (g->members - 1) * s->bytes[g->rank];
    g->started++;
    s->begins = false;
    return ZOFF_OK;
}

static zoff_status start_in(zoff_gather *g, unsigned slot, size_t item)
{
    gather_slot *s = &g->slots[slot];
    size_t all = 0;
    for (unsigned rank = 0; rank < g->ranks; rank++) {
        s->bytes[rank] = g->opts.part_bytes(g->opts.ctx, item, rank);
        all += s->bytes[rank];
    }
    if (all == 0)
        return g->opts.end(g->opts.ctx, item, slot, NULL);
    s->used = s->begins = true;
    s->item = item;
    s->number = g->taken++;
    (void)go_on(g, slot); /* the next poll repeats this and returns the error */
    return ZOFF_OK;
}

bool zoff_zero_gather_has_room(const zoff_gather *g)
{
    for (unsigned slot = 0; slot < g->opts.slots; slot++) {
        if (!g->slots[slot].used)
            return true;
    }
    return false;
}

zoff_status zoff_zero_gather_start(zoff_gather *g, size_t item)
{
    for (unsigned slot = 0; slot < g->opts.slots; slot++) {
        if (!g->slots[slot].used)
            return start_in(g, slot, item);
    }
    return ZOFF_PENDING;
}

zoff_status zoff_zero_gather_poll(zoff_gather *g)
{
    bool pending = false;
    for (unsigned slot = 0; slot < g->opts.slots; slot++) {
        gather_slot *s = &g->slots[slot];
        if (!s->used)
            continue;
        zoff_status status = s->begins ? go_on(g, slot) : ZOFF_OK;
        if (status == ZOFF_OK && (status = zoff_comm_poll(g->opts.comm, &s->work)) == ZOFF_OK)
            status = g->opts.end(g->opts.ctx, s->item, slot, s->parts);
        ZOFF_TRY(status);
        s->used = status == ZOFF_PENDING;
        pending = pending || s->used;
    }
    return pending ? ZOFF_PENDING : ZOFF_OK;
}

/* Errors are ignored, because the next zoff_zero_gather_poll() returns them. */
void zoff_zero_gather_pump(zoff_gather *g)
{
    for (unsigned slot = 0; slot < g->opts.slots; slot++) {
        if (g->slots[slot].used && !g->slots[slot].begins)
            (void)zoff_comm_poll(g->opts.comm, &g->slots[slot].work);
    }
}

uint64_t zoff_zero_gather_sent_bytes(const zoff_gather *g)
{
    return g ? g->sent_bytes : 0;
}
