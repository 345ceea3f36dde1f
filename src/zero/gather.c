/* gather.c: items on their way to all ranks, a few at a time. They may arrive in any order, and end in any. */
#include "gather.h"

#include "mem.h"
#include "try.h"

typedef struct gather_slot {
    bool used;
    size_t item;
    char *parts;
    size_t *bytes; /* by rank */
    zoff_comm_work work;
} gather_slot;

struct zoff_gather {
    zoff_gather_opts opts;
    unsigned ranks, rank;
    gather_slot *slots;
    size_t *bytes; /* of all slots */
    uint64_t sent_bytes;
};

zoff_status zoff_zero_gather_open(const zoff_gather_opts *opts, zoff_gather **out)
{
    zoff_status status;
    zoff_gather *g;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *g, "a gathering", &g));
    *g = (zoff_gather){.opts = *opts, .ranks = zoff_comm_size(opts->comm), .rank = zoff_comm_rank(opts->comm)};
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

static zoff_status start_in(zoff_gather *g, unsigned slot, size_t item)
{
    gather_slot *s = &g->slots[slot];
    size_t before = 0, all = 0;
    for (unsigned rank = 0; rank < g->ranks; rank++) {
        s->bytes[rank] = g->opts.part_bytes(g->opts.ctx, item, rank);
        before += rank < g->rank ? s->bytes[rank] : 0;
        all += s->bytes[rank];
    }
    if (all == 0) {
        g->opts.end(g->opts.ctx, item, NULL);
        return ZOFF_OK;
    }
    s->parts = g->opts.begin(g->opts.ctx, item, slot);
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                                 .stream = g->opts.stream,
                                 .in = s->parts + before,
                                 .out = s->parts,
                                 .receive_bytes = s->bytes};
    ZOFF_TRY(zoff_comm_start(g->opts.comm, &call, &s->work));
    g->sent_bytes += (g->ranks - 1) * s->bytes[g->rank];
    s->used = true;
    s->item = item;
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
        zoff_status status = zoff_comm_poll(g->opts.comm, &s->work);
        ZOFF_TRY(status);
        pending = pending || status == ZOFF_PENDING;
        if (status == ZOFF_OK) {
            s->used = false;
            g->opts.end(g->opts.ctx, s->item, s->parts);
        }
    }
    return pending ? ZOFF_PENDING : ZOFF_OK;
}

/* An error comes again when somebody asks. */
void zoff_zero_gather_pump(zoff_gather *g)
{
    for (unsigned slot = 0; slot < g->opts.slots; slot++) {
        if (g->slots[slot].used)
            (void)zoff_comm_poll(g->opts.comm, &g->slots[slot].work);
    }
}

uint64_t zoff_zero_gather_sent_bytes(const zoff_gather *g)
{
    return g ? g->sent_bytes : 0;
}
