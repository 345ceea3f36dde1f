/* presence.c: the slices that take part in a step, on all ranks: those that have a gradient on any of them. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

#include <string.h>

zoff_status zoff_engine_presence_open(zoff_engine *e)
{
    zoff_agreement *a = &e->agreement;
    const unsigned ranks = zoff_comm_size(e->comm);
    const size_t bytes = zoff_base_bits_ceil_div(e->model.slice_count, 64) * sizeof(uint64_t);
    if (ranks == 1)
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(bytes * ranks, 1, "the ranks' slices", &a->bits));
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *a->bits_bytes, "the ranks' slices", &a->bits_bytes));
    for (unsigned rank = 0; rank < ranks; rank++)
        a->bits_bytes[rank] = bytes;
    return ZOFF_OK;
}

void zoff_engine_presence_close(zoff_engine *e)
{
    zoff_base_mem_free(e->agreement.bits);
    zoff_base_mem_free(e->agreement.bits_bytes);
    e->agreement.bits = NULL;
    e->agreement.bits_bytes = NULL;
}

static zoff_status ask_presence(zoff_engine *e)
{
    const size_t bytes = e->agreement.bits_bytes[0];
    uint64_t *own = e->agreement.bits + e->plan.rank * (bytes / sizeof *own);
    memset(own, 0, bytes);
    for (size_t i = 0; i < e->model.slice_count; i++)
        own[i / 64] |= (uint64_t)(e->model.flags[i] != 0) << i % 64;
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                                 .channel = &e->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_PRESENCE},
                                 .in = own,
                                 .out = e->agreement.bits,
                                 .receive_bytes = e->agreement.bits_bytes};
    ZOFF_TRY(zoff_comm_start(e->comm, &call, &e->run.talks.agreement));
    e->run.talks.agreement_asked = true;
    return ZOFF_OK;
}

/* Rank by rank, so that a word of all ranks is not met at a distance of a cache page each. */
void zoff_engine_presence_join(uint64_t *bits, size_t words, unsigned ranks)
{
    for (unsigned rank = 1; rank < ranks; rank++) {
        const uint64_t *theirs = bits + rank * words;
        for (size_t i = 0; i < words; i++)
            bits[i] |= theirs[i];
    }
}

/* A slice takes part on every rank if any rank has its gradient. */
static void take_presence(zoff_engine *e)
{
    const size_t words = e->agreement.bits_bytes[0] / sizeof(uint64_t);
    uint64_t *any = e->agreement.bits;
    zoff_engine_presence_join(any, words, e->plan.ranks);
    for (size_t i = 0; i < e->model.slice_count; i++) {
        if (any[i / 64] >> i % 64 & 1)
            e->model.flags[i] |= ZOFF_SLICE_PRESENT;
    }
}

/* Elements of this rank that take part. */
static uint64_t count_own(const zoff_engine *e)
{
    uint64_t count = 0;
    for (size_t b = 0; b < e->plan.chunk_count; b++) {
        const zoff_plan_chunk *c = &e->plan.chunks[b];
        for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
            const zoff_model_param *p = &e->model.params[e->plan.pieces[i].param];
            count += !p->frozen && e->model.flags[p->first_flag + e->plan.pieces[i].slice] ? e->plan.pieces[i].count : 0;
        }
    }
    return count;
}

zoff_status zoff_engine_presence_agree(void *ctx, zoff_bucket_run *run)
{
    zoff_engine *e = ctx;
    (void)run;
    if (e->run.talks.agreed)
        return ZOFF_OK;
    if (!e->run.talks.agreement_asked)
        ZOFF_TRY(ask_presence(e));
    zoff_status status = zoff_comm_poll(e->comm, &e->run.talks.agreement);
    if (status != ZOFF_OK)
        return status;
    take_presence(e);
    e->run.expected = count_own(e);
    e->run.talks.agreed = true;
    zoff_engine_admit_drop_useless(e);
    return ZOFF_OK;
}
