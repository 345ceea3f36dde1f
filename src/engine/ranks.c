/* ranks.c: what an engine has beside others: slots for what goes over the wire, and waiting for them. One rank alone has none
 * of it. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

/* Buckets under way at a time: one that is packed or added up, and others on the wire. */
enum { REDUCE_SLOTS = 3, SPREAD_SLOTS = 3 };
_Static_assert(ZOFF_DIRECT_SLOTS == REDUCE_SLOTS + SPREAD_SLOTS && REDUCE_SLOTS == SPREAD_SLOTS,
               "the slots of device_direct.c");

static size_t part_bytes_of(void *ctx, size_t bucket, unsigned rank)
{
    return zoff_engine_wire_parts(ctx, bucket)[rank];
}

/* Of a slot: the largest bucket, and the largest of this rank's parts, without a look at every part of every rank. */
static zoff_reduce_opts reduce_opts(const zoff_engine *e, const zoff_plan *plan)
{
    zoff_reduce_opts opts = {.plan = plan, .adds = e->sums.rule->adds};
    for (size_t b = 0; b < plan->chunk_count; b++) {
        size_t part, all;
        e->sums.rule->most(e, plan, b, &part, &all);
        opts.bucket_most = zoff_base_bits_max(opts.bucket_most, all);
        opts.part_most = zoff_base_bits_max(opts.part_most, part);
    }
    return opts;
}

static size_t staging_bytes(const zoff_engine *e, const zoff_plan *plan)
{
    const zoff_reduce_opts opts = reduce_opts(e, plan);
    return zoff_base_bits_max(REDUCE_SLOTS * zoff_zero_reduce_slot_bytes(&opts),
                              SPREAD_SLOTS * zoff_engine_all_gather_most(e, plan));
}

uint64_t zoff_engine_ranks_device_bytes(const zoff_engine *e, const zoff_plan *plan)
{
    return zoff_engine_device_direct_is(e) ? zoff_engine_device_direct_bytes(e, plan, staging_bytes(e, plan)) : 0;
}

uint64_t zoff_engine_ranks_bytes(const zoff_engine *e, const zoff_plan *plan)
{
    return zoff_engine_ranks_several(e) ? staging_bytes(e, plan) : 0;
}

/* Slices that are trained, by the buckets that have a part of them. */
static void count_missing(zoff_engine *e)
{
    for (size_t i = 0; i < e->model.param_count; i++) {
        const zoff_model_param *p = &e->model.params[i];
        for (size_t slice = 0; !p->frozen && p->count && slice < p->slices; slice++) {
            const size_t first = zoff_zero_plan_find_run(&e->plan, (uint32_t)i, slice, 0);
            const size_t last = zoff_zero_plan_find_run(&e->plan, (uint32_t)i, slice, p->count - 1);
            for (size_t run = first; run <= last; run++)
                e->ranks.missing[e->plan.runs[run].bucket]++;
        }
    }
}

/* Of all ranks, in one bucket: parts cut its runs. */
static size_t most_pieces(const zoff_plan *plan)
{
    return plan->runs_max + plan->ranks;
}

static zoff_status allocate(zoff_engine *e)
{
    zoff_ranks *r = &e->ranks;
    const zoff_plan *plan = &e->plan;
    const size_t bits = zoff_base_bits_ceil_div(e->model.slice_count, 64) * sizeof(uint64_t);
    ZOFF_TRY(zoff_base_mem_alloc(ZOFF_PART_ROWS * plan->ranks, sizeof *r->part_bytes, "the ranks' parts", &r->part_bytes));
    ZOFF_TRY(zoff_base_mem_alloc(ZOFF_PART_ROWS, sizeof *r->part_rows, "the ranks' parts", &r->part_rows));
    ZOFF_TRY(zoff_base_mem_alloc(plan->chunk_count, sizeof *r->missing, "the ranks' buckets", &r->missing));
    ZOFF_TRY(zoff_base_mem_alloc(bits * plan->ranks, 1, "the ranks' slices", &r->bits));
    ZOFF_TRY(zoff_base_mem_alloc(plan->ranks, sizeof *r->bits_bytes, "the ranks' slices", &r->bits_bytes));
    ZOFF_TRY(zoff_base_mem_alloc(most_pieces(plan), sizeof *r->moves, "a bucket's pieces", &r->moves));
    ZOFF_TRY(zoff_base_mem_alloc(3 * zoff_engine_terms_count(e), sizeof *r->step_terms, "what ranks compare", &r->step_terms));
    if (e->sums.rule->adds)
        ZOFF_TRY(zoff_base_mem_alloc(most_pieces(plan), sizeof *r->terms, "a bucket's pieces", &r->terms));
    for (unsigned rank = 0; rank < plan->ranks; rank++)
        r->bits_bytes[rank] = bits;
    for (size_t row = 0; row < ZOFF_PART_ROWS; row++)
        r->part_rows[row] = SIZE_MAX;
    r->spread_bytes = zoff_engine_all_gather_most(e, plan);
    const size_t bytes = staging_bytes(e, plan);
    return bytes ? zoff_base_map_alloc(bytes, "what goes to other ranks", ZOFF_MAP_INTERLEAVED, &r->staging) : ZOFF_OK;
}

static zoff_status open_exchanges(zoff_engine *e)
{
    zoff_ranks *r = &e->ranks;
    const zoff_sum_place *place = e->sums.place;
    zoff_reduce_opts reduce = reduce_opts(e, &e->plan);
    reduce.comm = e->comm;
    reduce.channel = &e->channel;
    reduce.slots = REDUCE_SLOTS;
    reduce.memory = place->slots(e);
    reduce.factor = e->settings.values.grad_factor;
    reduce.part_bytes = part_bytes_of;
    reduce.pack = place->pack_bucket;
    reduce.sum = place->sum_bucket;
    reduce.ctx = e;
    ZOFF_TRY(zoff_zero_reduce_open(&reduce, &r->reduce));
    const zoff_gather_opts gather = {.comm = e->comm,
                                     .channel = &e->channel,
                                     .stream = ZOFF_COMM_STEP,
                                     .slots = SPREAD_SLOTS,
                                     .about = zoff_engine_all_gather_about,
                                     .part_bytes = zoff_engine_all_gather_part_bytes,
                                     .begin = place->spread_begin,
                                     .end = place->spread_end,
                                     .ctx = e};
    return zoff_zero_gather_open(&gather, &r->gather);
}

zoff_status zoff_engine_ranks_open(zoff_engine *e)
{
    zoff_engine_ranks_wait_open(e);
    if (!zoff_engine_ranks_several(e))
        return ZOFF_OK;
    ZOFF_TRY(allocate(e));
    ZOFF_TRY(zoff_engine_device_direct_open(e));
    count_missing(e);
    return open_exchanges(e);
}

void zoff_engine_ranks_abandon(zoff_engine *e)
{
    zoff_engine_ranks_wait_close(e);
    /* Others read it while it is in flight. */
    zoff_comm_abandon(e->comm, &e->run.talks.vote);
    zoff_comm_abandon(e->comm, &e->run.talks.agreement);
    zoff_comm_abandon(e->comm, &e->run.talks.commit);
    zoff_comm_abandon(e->comm, &e->ranks.together.work);
    zoff_zero_reduce_close(e->ranks.reduce);
    zoff_zero_gather_close(e->ranks.gather);
    e->ranks.reduce = NULL;
    e->ranks.gather = NULL;
}

void zoff_engine_ranks_close(zoff_engine *e)
{
    zoff_ranks *r = &e->ranks;
    zoff_base_map_free(&r->staging);
    void *blocks[] = {r->part_bytes, r->missing, r->bits, r->bits_bytes, r->moves, r->terms, r->step_terms, r->part_rows};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        zoff_base_mem_free(blocks[i]);
    *r = (zoff_ranks){.reduce = NULL};
}

static uint64_t sent_weights(const zoff_engine *e)
{
    const uint64_t spread = e->plan.replicated ? 0 : zoff_zero_gather_sent_bytes(e->ranks.gather);
    return spread + zoff_zero_gather_sent_bytes(e->lending.cache.assembly.gather);
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
