/* SPDX-License-Identifier: Apache-2.0 */
/* first_weights.c: makes all ranks start from the same weights. Weights in the program's memory, frozen ones too, are
 * overwritten by those of rank 0 where they differ. Initial values of engine-owned weights are only compared: their memory may
 * be read-only.
 *
 * Ranks compare one checksum of all weights, and most programs have nothing to send. Otherwise they compare the checksums of
 * batches. A batch that differs anywhere goes from rank 0 in parts, one to each rank, and then each rank sends its part to all.
 * So every rank sends about as many bytes as it receives, whatever the number of ranks. */
#include "agreement.h"

#include "bits.h"
#include "log.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

/* A part is long enough that its bytes take longer than its message. */
enum { BATCH_LEAST = 4 << 20, BATCH_MOST = 64 << 20, PART_BYTES = 128 << 10, RUNS_MOST = 64 << 10 };

/* A run of elements of one slice, packed into a batch. */
typedef struct run {
    char *program;
    size_t at, count; /* `at`: byte in the batch */
    zoff_dtype dtype;
    uint32_t param;
    uint64_t sum; /* checksum */
} run;

/* Names of the parameters that have changed on the first rank where some have. */
typedef struct changes {
    bool tells; /* this rank names the parameters */
    char text[512];
    size_t named, used; /* number of parameters, and of characters of `text` */
    uint32_t last;      /* parameter that was noted last */
} changes;

typedef struct batches {
    zoff_agreement *agreement;
    zoff_status (*visit)(struct batches *b); /* called for each batch, when its runs are listed */
    zoff_status status;                      /* status of the latest copy to the program */
    size_t most;                             /* bytes of a batch */
    run *runs;                               /* runs of the present batch; NULL: they are only counted */
    zoff_cast_piece *moves;
    char *wire;
    size_t number, run_count, bytes; /* numbers of the present batch */
    size_t count, run_most, longest; /* numbers of all batches; `longest`: bytes */
    size_t words;                    /* a bit for each batch, in words of 64 */
    uint64_t *sums;                  /* checksums by batch: those of this rank, and behind them those of rank 0 */
    uint64_t *differs; /* bits of each rank; those of rank 0 become the union. Behind all: a copy of this rank's own bits */
    size_t *parts;     /* bytes by rank: of a batch, then sent by this rank, then received */
    changes changes;
} batches;

static bool is_in(const uint64_t *bits, size_t number)
{
    return bits[number / 64] >> number % 64 & 1;
}

/* ---- the batches: the same on all ranks ---- */

static zoff_status end_batch(batches *b)
{
    if (b->bytes == 0)
        return ZOFF_OK;
    ZOFF_TRY(b->visit(b));
    b->number++;
    b->run_count = b->bytes = 0;
    return ZOFF_OK;
}

static zoff_status add_slice(batches *b, size_t param, size_t slice)
{
    const zoff_model_param *p = &b->agreement->model->params[param];
    const size_t element = zoff_adam_dtype_bytes(p->dtype);
    for (size_t first = 0; first < p->count;) {
        b->bytes = zoff_base_bits_align(b->bytes, element);
        const size_t count = zoff_base_bits_min(p->count - first, (b->most - b->bytes) / element);
        if (b->runs)
            b->runs[b->run_count] = (run){.program = p->value + slice * p->value_stride + first * element,
                                          .at = b->bytes,
                                          .count = count,
                                          .dtype = p->dtype,
                                          .param = (uint32_t)param};
        b->run_count++;
        b->bytes += count * element;
        first += count;
        if (b->run_count == RUNS_MOST || b->most - b->bytes < sizeof(float))
            ZOFF_TRY(end_batch(b));
    }
    return ZOFF_OK;
}

static zoff_status each_batch(batches *b, zoff_status (*visit)(batches *b))
{
    const zoff_model *m = b->agreement->model;
    b->visit = visit;
    b->number = b->run_count = b->bytes = 0;
    for (size_t i = 0; i < m->param_count; i++) {
        const zoff_model_param *p = &m->params[i];
        const bool is_sent = zoff_model_params_owner(m, (zoff_param)i) != i; /* a tied parameter is sent by its owner */
        for (size_t slice = 0; p->value && !p->engine_owned && !is_sent && slice < p->slices; slice++)
            ZOFF_TRY(add_slice(b, i, slice));
    }
    return end_batch(b);
}

static zoff_status count_batch(batches *b)
{
    b->count++;
    b->run_most = zoff_base_bits_max(b->run_most, b->run_count);
    b->longest = zoff_base_bits_max(b->longest, b->bytes);
    return ZOFF_OK;
}

static zoff_status move_batch(batches *b, bool to_program)
{
    const zoff_transfer *t = b->agreement->transfer;
    for (size_t i = 0; i < b->run_count; i++) {
        const run *r = &b->runs[i];
        char *wire = b->wire + r->at;
        b->moves[i] = (zoff_cast_piece){.count = r->count,
                                        .dst = to_program ? r->program : wire,
                                        .src = to_program ? wire : r->program,
                                        .dst_dtype = r->dtype,
                                        .src_dtype = r->dtype};
    }
    return t->route.link->move(b->agreement->transfer, b->moves, b->run_count, to_program);
}

static uint64_t sum_of(const batches *b, const run *r)
{
    return zoff_offload_layout(b->wire + r->at, r->count * zoff_adam_dtype_bytes(r->dtype));
}

static zoff_status sum_batch(batches *b)
{
    uint64_t both[2] = {0};
    ZOFF_TRY(move_batch(b, false));
    for (size_t i = 0; i < b->run_count; i++) {
        both[1] = b->runs[i].sum = sum_of(b, &b->runs[i]);
        both[0] = zoff_offload_layout(both, sizeof both);
    }
    b->sums[b->number] = both[0];
    return ZOFF_OK;
}

/* ---- what differs ---- */

static zoff_status compare(batches *b, bool *out_differs)
{
    zoff_agreement *a = b->agreement;
    const unsigned ranks = zoff_comm_size(a->comm), rank = zoff_comm_rank(a->comm);
    ZOFF_TRY(zoff_agreement_vote_success(&a->ranks, each_batch(b, sum_batch)));
    b->differs[rank] = zoff_offload_layout(b->sums, b->count * sizeof *b->sums); /* room for one word of each rank at least */
    ZOFF_TRY(zoff_agreement_vote_gather(&a->ranks, b->differs, sizeof *b->differs));
    *out_differs = false;
    for (unsigned i = 0; i < ranks; i++)
        *out_differs = *out_differs || b->differs[i] != b->differs[0];
    return ZOFF_OK;
}

static zoff_status find_batches(batches *b)
{
    zoff_agreement *a = b->agreement;
    const unsigned ranks = zoff_comm_size(a->comm), rank = zoff_comm_rank(a->comm);
    uint64_t *own = &b->differs[rank * b->words];
    unsigned first = 0, others = 0;
    uint64_t *theirs = b->sums + b->count;
    memcpy(theirs, b->sums, b->count * sizeof *b->sums);
    ZOFF_TRY(zoff_agreement_vote_share(&a->ranks, 0, theirs, b->count * sizeof *b->sums));
    memset(own, 0, b->words * sizeof *own);
    for (size_t i = 0; i < b->count; i++)
        own[i / 64] |= (uint64_t)(b->sums[i] != theirs[i]) << i % 64;
    memcpy(&b->differs[ranks * b->words], own, b->words * sizeof *own);
    ZOFF_TRY(zoff_agreement_vote_gather(&a->ranks, b->differs, b->words * sizeof *own));
    for (unsigned i = 1; i < ranks; i++) {
        uint64_t any = 0;
        for (size_t k = 0; k < b->words; k++)
            any |= b->differs[i * b->words + k];
        first = !first && any ? i : first;
        others += any != 0;
    }
    b->changes.tells = rank == first;
    if (b->changes.tells)
        b->changes.used = (size_t)snprintf(b->changes.text, sizeof b->changes.text,
                                           "the first weights of %u of %u ranks differed from rank 0's, ", others, ranks);
    zoff_agreement_participation_join(b->differs, b->words, ranks);
    return ZOFF_OK;
}

/* ---- rank 0's weights go to all ---- */

static zoff_status run_call(batches *b, const zoff_comm_call *call)
{
    zoff_comm_work work = {.active = false};
    ZOFF_TRY(zoff_comm_start(b->agreement->comm, call, &work));
    return zoff_comm_wait(b->agreement->comm, &work);
}

static zoff_status send(batches *b)
{
    zoff_agreement *a = b->agreement;
    const unsigned ranks = zoff_comm_size(a->comm), rank = zoff_comm_rank(a->comm);
    const size_t each = zoff_base_bits_align(zoff_base_bits_ceil_div(b->bytes, ranks), 64);
    char *own = b->wire + zoff_base_bits_min(rank * each, b->bytes);
    size_t *sends = b->parts + ranks, *receives = sends + ranks;
    for (unsigned i = 0; i < ranks; i++) {
        b->parts[i] = zoff_base_bits_min(each, b->bytes - zoff_base_bits_min(i * each, b->bytes));
        sends[i] = rank == 0 && i ? b->parts[i] : 0;
        receives[i] = 0;
    }
    receives[0] = rank ? b->parts[rank] : 0;
    zoff_comm_call call = {.kind = ZOFF_COMM_EXCHANGE,
                           .channel = a->channel,
                           .item = {.about = ZOFF_COMM_ABOUT_FIRST_WEIGHTS, .index = b->number},
                           .in = b->wire + b->parts[0],
                           .out = own,
                           .send_bytes = sends,
                           .receive_bytes = receives};
    ZOFF_TRY(run_call(b, &call));
    call.kind = ZOFF_COMM_GATHER;
    call.in = own;
    call.out = b->wire;
    call.receive_bytes = b->parts;
    return run_call(b, &call);
}

/* Name the parameters whose weights have changed. */
static void note_changes(batches *b)
{
    for (size_t i = 0; i < b->run_count; i++) {
        const uint32_t param = b->runs[i].param;
        if ((b->changes.named && param == b->changes.last) || sum_of(b, &b->runs[i]) == b->runs[i].sum)
            continue;
        if (b->changes.used < sizeof b->changes.text / 2)
            b->changes.used +=
                (size_t)snprintf(b->changes.text + b->changes.used, sizeof b->changes.text - b->changes.used, "%s%.200s",
                                 b->changes.named ? ", " : "here in ", b->agreement->model->params[param].name);
        b->changes.last = param;
        b->changes.named++;
    }
}

/* Spread a batch. A rank whose batch is right keeps its memory as it is. */
static zoff_status spread_batch(batches *b)
{
    zoff_agreement *a = b->agreement;
    const bool is_other = is_in(b->differs + zoff_comm_size(a->comm) * b->words, b->number);
    if (!is_in(b->differs, b->number))
        return ZOFF_OK;
    if (b->status == ZOFF_OK && (is_other || zoff_comm_rank(a->comm) == 0))
        b->status = sum_batch(b);
    ZOFF_TRY(zoff_agreement_vote_success(&a->ranks, b->status));
    ZOFF_TRY(send(b));
    if (!is_other)
        return ZOFF_OK;
    if (b->changes.tells)
        note_changes(b);
    b->status = move_batch(b, true);
    return ZOFF_OK;
}

static zoff_status make_equal(batches *b)
{
    bool differs;
    ZOFF_TRY(compare(b, &differs));
    if (!differs)
        return ZOFF_OK;
    ZOFF_TRY(find_batches(b));
    ZOFF_TRY(each_batch(b, spread_batch));
    ZOFF_TRY(zoff_agreement_vote_success(&b->agreement->ranks, b->status));
    if (b->changes.tells)
        ZOFF_INFO("rank %u: %s (%zu parameter%s here); all ranks have those of rank 0 now", zoff_comm_rank(b->agreement->comm),
                  b->changes.text, b->changes.named, b->changes.named == 1 ? "" : "s");
    return ZOFF_OK;
}

static zoff_status allocate(batches *b)
{
    static const char WHAT[] = "weights for other ranks";
    const size_t ranks = zoff_comm_size(b->agreement->comm);
    b->words = zoff_base_bits_ceil_div(b->count, 64);
    ZOFF_TRY(zoff_base_mem_alloc(b->run_most, sizeof *b->runs, WHAT, &b->runs));
    ZOFF_TRY(zoff_base_mem_alloc(b->run_most, sizeof *b->moves, WHAT, &b->moves));
    ZOFF_TRY(zoff_base_mem_alloc(b->longest, 1, WHAT, &b->wire));
    ZOFF_TRY(zoff_base_mem_alloc(2 * b->count, sizeof *b->sums, WHAT, &b->sums));
    ZOFF_TRY(zoff_base_mem_alloc((ranks + 1) * b->words, sizeof *b->differs, WHAT, &b->differs));
    return zoff_base_mem_alloc(3 * ranks, sizeof *b->parts, WHAT, &b->parts);
}

zoff_status zoff_agreement_first_weights_send(zoff_agreement *a)
{
    const size_t ranks = zoff_comm_size(a->comm);
    batches b = {.agreement = a, .most = zoff_base_bits_min(zoff_base_bits_max(ranks * PART_BYTES, BATCH_LEAST), BATCH_MOST)};
    if (ranks == 1)
        return ZOFF_OK;
    ZOFF_TRY(each_batch(&b, count_batch));
    if (!b.count)
        return ZOFF_OK;
    zoff_status status = zoff_agreement_vote_success(&a->ranks, allocate(&b));
    if (status == ZOFF_OK)
        status = make_equal(&b);
    void *blocks[] = {b.runs, b.moves, b.wire, b.sums, b.differs, b.parts};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        zoff_base_mem_free(blocks[i]);
    return status;
}
