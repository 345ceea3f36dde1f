/* presence.c: finds the slices that take part in a step: those with a gradient on any rank. */
#include "agreement.h"

#include "bits.h"
#include "try.h"

#include <string.h>

zoff_status zoff_agreement_presence_open(zoff_agreement *a)
{
    zoff_presence *p = &a->presence;
    const unsigned ranks = zoff_comm_size(a->comm);
    const size_t bytes = zoff_base_bits_ceil_div(a->model->slice_count, 64) * sizeof(uint64_t);
    if (ranks == 1)
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(bytes * ranks, 1, "slices of ranks", &p->bits));
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *p->bits_bytes, "slices of ranks", &p->bits_bytes));
    for (unsigned rank = 0; rank < ranks; rank++)
        p->bits_bytes[rank] = bytes;
    return ZOFF_OK;
}

void zoff_agreement_presence_close(zoff_agreement *a)
{
    zoff_base_mem_free(a->presence.bits);
    zoff_base_mem_free(a->presence.bits_bytes);
    a->presence.bits = NULL;
    a->presence.bits_bytes = NULL;
}

static zoff_status ask_presence(zoff_agreement *a)
{
    const size_t bytes = a->presence.bits_bytes[0];
    uint64_t *own = a->presence.bits + a->plan->rank * (bytes / sizeof *own);
    memset(own, 0, bytes);
    for (size_t i = 0; i < a->model->slice_count; i++)
        own[i / 64] |= (uint64_t)(a->model->flags[i] != 0) << i % 64;
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                                 .channel = a->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_PRESENCE},
                                 .in = own,
                                 .out = a->presence.bits,
                                 .receive_bytes = a->presence.bits_bytes};
    ZOFF_TRY(zoff_comm_start(a->comm, &call, &a->presence.work));
    a->presence.asked = true;
    return ZOFF_OK;
}

/* The loop goes rank by rank, because reading one word of all ranks in turn would touch a different memory page each time. */
void zoff_agreement_presence_join(uint64_t *bits, size_t words, unsigned ranks)
{
    for (unsigned rank = 1; rank < ranks; rank++) {
        const uint64_t *theirs = bits + rank * words;
        for (size_t i = 0; i < words; i++)
            bits[i] |= theirs[i];
    }
}

static bool has(const zoff_agreement *a, unsigned rank, size_t number)
{
    const size_t words = a->presence.bits_bytes[0] / sizeof(uint64_t);
    return a->presence.bits[rank * words + number / 64] >> number % 64 & 1;
}

/* A gradient that the trainer has reduced is read from one rank only, so all ranks must have it, or none. */
static zoff_status compare_reduced(const zoff_agreement *a)
{
    for (size_t i = 0; i < a->model->param_count; i++) {
        const zoff_model_param *p = &a->model->params[i];
        for (size_t slice = 0; p->reduced && slice < p->slices; slice++) {
            for (unsigned rank = 1; rank < a->plan->ranks; rank++) {
                const bool first = has(a, 0, p->first_flag + slice);
                ZOFF_FAIL_IF(
                    has(a, rank, p->first_flag + slice) != first, ZOFF_ERR_INVALID,
                    "%s has zoff_param_desc.reduced, but only rank %u of ranks 0 and %u has handed over the gradient of "
                    "its slice %zu: every rank must, or none. Call zoff_grads_drop() on every rank, and repeat the step",
                    p->name, first ? 0 : rank, rank, slice);
            }
        }
    }
    return ZOFF_OK;
}

/* A slice takes part on every rank if any rank has its gradient. */
static void take_presence(zoff_agreement *a)
{
    const size_t words = a->presence.bits_bytes[0] / sizeof(uint64_t);
    uint64_t *any = a->presence.bits;
    zoff_agreement_presence_join(any, words, a->plan->ranks);
    for (size_t i = 0; i < a->model->slice_count; i++) {
        if (any[i / 64] >> i % 64 & 1)
            a->model->flags[i] |= ZOFF_SLICE_PRESENT;
    }
}

void zoff_agreement_presence_begin(zoff_agreement *a)
{
    a->presence.work = (zoff_comm_work){.active = false};
    a->presence.asked = a->presence.agreed = false;
}

zoff_status zoff_agreement_presence_poll(zoff_agreement *a)
{
    if (a->presence.agreed)
        return ZOFF_OK;
    if (!a->presence.asked)
        ZOFF_TRY(ask_presence(a));
    zoff_status status = zoff_comm_poll(a->comm, &a->presence.work);
    if (status != ZOFF_OK)
        return status;
    ZOFF_TRY(compare_reduced(a));
    take_presence(a);
    a->presence.agreed = true;
    return ZOFF_OK;
}

uint64_t zoff_agreement_presence_elements(const zoff_agreement *a)
{
    uint64_t count = 0;
    for (size_t b = 0; b < a->plan->chunk_count; b++) {
        const zoff_plan_chunk *c = &a->plan->chunks[b];
        for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
            const zoff_plan_piece *piece = &a->plan->pieces[i];
            count += !a->model->params[piece->param].frozen && *zoff_model_params_flag(a->model, piece) ? piece->count : 0;
        }
    }
    return count;
}
