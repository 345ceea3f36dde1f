/* ranks.c: what an engine has beside others: slots for what goes over the wire, and waiting for them. One rank alone has none
 * of it. */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"
#include "try.h"

#include <sched.h>
#include <time.h>

/* Buckets under way at a time: one that is packed or added up, and others on the wire. */
enum { REDUCE_SLOTS = 3, SPREAD_SLOTS = 3 };
_Static_assert(ZOFF_REACH_SLOTS == REDUCE_SLOTS + SPREAD_SLOTS && REDUCE_SLOTS == SPREAD_SLOTS, "the slots of reach.c");

static size_t part_bytes_of(void *ctx, size_t bucket, unsigned rank)
{
    const zoff_engine *e = ctx;
    return e->ranks.part_bytes[bucket * e->plan.ranks + rank];
}

/* The same from a plan that is only looked at. */
typedef struct planned {
    const zoff_engine *engine;
    const zoff_plan *plan;
} planned;

static size_t part_bytes_planned(void *ctx, size_t bucket, unsigned rank)
{
    const planned *p = ctx;
    return zoff_engine_exchange_part_bytes(p->engine, p->plan, bucket, rank);
}

static size_t staging_bytes(const zoff_engine *e, const zoff_plan *plan)
{
    planned p = {.engine = e, .plan = plan};
    const zoff_reduce_opts opts = {
        .plan = plan, .adds = zoff_engine_reach_adds(e), .part_bytes = part_bytes_planned, .ctx = &p};
    return zoff_base_bits_max(REDUCE_SLOTS * zoff_zero_reduce_slot_bytes(&opts),
                              SPREAD_SLOTS * zoff_engine_spread_most(e, plan));
}

uint64_t zoff_engine_ranks_device_bytes(const zoff_engine *e, const zoff_plan *plan)
{
    return zoff_engine_reach_is(e) ? zoff_engine_reach_bytes(e, plan, staging_bytes(e, plan)) : 0;
}

uint64_t zoff_engine_ranks_bytes(const zoff_engine *e, const zoff_plan *plan)
{
    return zoff_engine_ranks_several(e) ? staging_bytes(e, plan) : 0;
}

/* Slices that are trained, by the buckets that have a part of them. */
static void count_missing(zoff_engine *e)
{
    for (size_t i = 0; i < e->param_count; i++) {
        const zoff_engine_param *p = &e->params[i];
        for (size_t slice = 0; !p->frozen && p->count && slice < p->slices; slice++) {
            const size_t first = zoff_zero_plan_find(&e->plan, (uint32_t)i, slice, 0);
            const size_t last = zoff_zero_plan_find(&e->plan, (uint32_t)i, slice, p->count - 1);
            for (size_t b = zoff_zero_plan_chunk_of(&e->plan, first); b <= zoff_zero_plan_chunk_of(&e->plan, last); b++)
                e->ranks.missing[b]++;
        }
    }
}

static size_t most_pieces(const zoff_plan *plan)
{
    size_t most = 0;
    for (size_t b = 0; b < plan->chunk_count; b++) {
        const zoff_plan_part first = zoff_zero_plan_part(plan, b, 0), last = zoff_zero_plan_part(plan, b, plan->ranks - 1);
        most = zoff_base_bits_max(most, last.first_piece + last.piece_count - first.first_piece);
    }
    return most;
}

/* Parts that are added up on the way are all as long as the longest. */
static void lay_parts(zoff_engine *e, const zoff_plan *plan, size_t bucket)
{
    size_t *bytes = &e->ranks.part_bytes[bucket * plan->ranks], most = 0;
    for (unsigned rank = 0; rank < plan->ranks; rank++) {
        bytes[rank] = zoff_engine_exchange_part_bytes(e, plan, bucket, rank);
        most = zoff_base_bits_max(most, bytes[rank]);
    }
    for (unsigned rank = 0; zoff_engine_reach_adds(e) && rank < plan->ranks; rank++)
        bytes[rank] = most;
}

static zoff_status allocate(zoff_engine *e)
{
    zoff_ranks *r = &e->ranks;
    const zoff_plan *plan = &e->plan;
    const size_t bits = zoff_base_bits_ceil_div(e->slice_count, 64) * sizeof(uint64_t);
    ZOFF_TRY(zoff_base_mem_alloc(plan->chunk_count * plan->ranks, sizeof *r->part_bytes, "the ranks' parts", &r->part_bytes));
    ZOFF_TRY(zoff_base_mem_alloc(plan->chunk_count, sizeof *r->missing, "the ranks' buckets", &r->missing));
    ZOFF_TRY(zoff_base_mem_alloc(bits * plan->ranks, 1, "the ranks' slices", &r->bits));
    ZOFF_TRY(zoff_base_mem_alloc(plan->ranks, sizeof *r->bits_bytes, "the ranks' slices", &r->bits_bytes));
    ZOFF_TRY(zoff_base_mem_alloc(most_pieces(plan), sizeof *r->moves, "a bucket's pieces", &r->moves));
    ZOFF_TRY(zoff_base_mem_alloc(3 * zoff_engine_terms_count(e), sizeof *r->step_terms, "what ranks compare", &r->step_terms));
    ZOFF_TRY(zoff_engine_together_open(e));
    if (zoff_engine_reach_adds(e))
        ZOFF_TRY(zoff_base_mem_alloc(most_pieces(plan), sizeof *r->terms, "a bucket's pieces", &r->terms));
    for (unsigned rank = 0; rank < plan->ranks; rank++)
        r->bits_bytes[rank] = bits;
    for (size_t b = 0; b < plan->chunk_count; b++)
        lay_parts(e, plan, b);
    r->spread_bytes = zoff_engine_spread_most(e, plan);
    const size_t bytes = staging_bytes(e, plan);
    return bytes ? zoff_base_map_alloc(bytes, "what goes to other ranks", ZOFF_MAP_INTERLEAVED, &r->staging) : ZOFF_OK;
}

zoff_status zoff_engine_ranks_open(zoff_engine *e)
{
    zoff_ranks *r = &e->ranks;
    if (!zoff_engine_ranks_several(e))
        return ZOFF_OK;
    ZOFF_TRY(allocate(e));
    ZOFF_TRY(zoff_engine_reach_open(e));
    count_missing(e);
    const zoff_reduce_opts reduce = {.plan = &e->plan,
                                     .comm = e->comm,
                                     .channel = &e->channel,
                                     .slots = REDUCE_SLOTS,
                                     .memory = zoff_engine_reach_is(e) ? zoff_engine_reach_memory(e) : r->staging.base,
                                     .factor = e->settings.values.grad_factor,
                                     .adds = zoff_engine_reach_adds(e),
                                     .part_bytes = part_bytes_of,
                                     .pack = zoff_engine_exchange_pack,
                                     .sum = zoff_engine_exchange_sum,
                                     .ctx = e};
    ZOFF_TRY(zoff_zero_reduce_open(&reduce, &r->reduce));
    const zoff_gather_opts gather = {.comm = e->comm,
                                     .channel = &e->channel,
                                     .stream = ZOFF_COMM_STEP,
                                     .slots = SPREAD_SLOTS,
                                     .about = zoff_engine_spread_about,
                                     .part_bytes = zoff_engine_spread_part_bytes,
                                     .begin = zoff_engine_spread_begin,
                                     .end = zoff_engine_spread_end,
                                     .ctx = e};
    return zoff_zero_gather_open(&gather, &r->gather);
}

void zoff_engine_ranks_abandon(zoff_engine *e)
{
    /* Others read it while it is in flight. */
    zoff_comm_abandon(e->comm, &e->run.vote);
    zoff_comm_abandon(e->comm, &e->run.agreement);
    zoff_comm_abandon(e->comm, &e->run.commit);
    zoff_comm_abandon(e->comm, &e->ranks.together.work);
    zoff_engine_assemble_close(e);
    zoff_zero_reduce_close(e->ranks.reduce);
    zoff_zero_gather_close(e->ranks.gather);
    e->ranks.reduce = NULL;
    e->ranks.gather = NULL;
}

void zoff_engine_ranks_close(zoff_engine *e)
{
    zoff_ranks *r = &e->ranks;
    zoff_engine_together_close(e);
    zoff_base_map_free(&r->staging);
    void *blocks[] = {r->part_bytes, r->missing, r->bits, r->bits_bytes, r->moves, r->terms, r->step_terms};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        zoff_base_mem_free(blocks[i]);
    *r = (zoff_ranks){.reduce = NULL};
}

static uint64_t sent_weights(const zoff_engine *e)
{
    const uint64_t spread = e->plan.replicated ? 0 : zoff_zero_gather_sent_bytes(e->ranks.gather);
    return spread + zoff_zero_gather_sent_bytes(e->live.assembly.gather);
}

/* Of replicated states the sums of gradients travel twice. */
static uint64_t sent_gradients(const zoff_engine *e)
{
    const uint64_t sums = e->plan.replicated ? zoff_zero_gather_sent_bytes(e->ranks.gather) : 0;
    return e->ranks.reduce ? sums + zoff_zero_reduce_sent_bytes(e->ranks.reduce) : 0;
}

void zoff_engine_ranks_count(const zoff_engine *e, zoff_step_info *info)
{
    info->sent_bytes = e->channel.sent_bytes - e->ranks.before.sent;
    info->received_bytes = e->channel.received_bytes - e->ranks.before.received;
    info->sent_gradient_bytes = sent_gradients(e) - e->ranks.before.gradients;
    info->sent_weight_bytes = sent_weights(e) - e->ranks.before.weights;
}

void zoff_engine_ranks_count_anew(zoff_engine *e)
{
    e->ranks.before.sent = e->channel.sent_bytes;
    e->ranks.before.received = e->channel.received_bytes;
    e->ranks.before.gradients = sent_gradients(e);
    e->ranks.before.weights = sent_weights(e);
}

void zoff_engine_ranks_pump(zoff_engine *e)
{
    if (!zoff_engine_ranks_several(e))
        return;
    zoff_zero_reduce_pump(e->ranks.reduce);
    zoff_zero_gather_pump(e->ranks.gather);
}

/* Others may have no processor of their own, so this one is lent first, and time passes later. */
zoff_status zoff_engine_ranks_wait(zoff_engine *e)
{
    enum { YIELDS = 200, NAP_NS = 20000 };
    const double from = zoff_base_clock_seconds();
    if (e->run.idle++ < YIELDS)
        sched_yield();
    else
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    const double seconds = zoff_base_clock_seconds() - from;
    e->run.info.comm_wait_seconds += seconds;
    if (zoff_engine_device_is(e) && zoff_engine_device_busy(e))
        ZOFF_TRY(zoff_engine_device_wait_count(e, seconds));
    return zoff_engine_stores_pump(e);
}
