/* SPDX-License-Identifier: Apache-2.0 */
/* exchange.c: who makes a matrix orthogonal, and the messages of a round. The message from one rank to another has the elements
 * of the first that are in matrices of the second, in the order of the plan; the way back has the same layout. */
#include "matrices.h"

#include "bits.h"
#include "mem.h"
#include "try.h"

#include <stdlib.h>
#include <string.h>

/* ---- workers ---- */

/* The work for a matrix, in units that all methods share. */
static uint64_t work_of(const zoff_matrix_entry *e)
{
    const uint64_t n = zoff_base_bits_min(e->rows, e->cols), m = zoff_base_bits_max(e->rows, e->cols);
    return n * n * (3 * m + n);
}

static int larger_first(const void *a, const void *b)
{
    const zoff_matrix_entry *x = *(zoff_matrix_entry *const *)a, *y = *(zoff_matrix_entry *const *)b;
    const uint64_t p = work_of(x), q = work_of(y);
    if (p != q)
        return p > q ? -1 : 1;
    return x < y ? -1 : x > y;
}

/* The rank with the least work so far gets the next matrix, the largest first. `order`: room for the entries of a round. */
static void share_round(zoff_matrices *x, size_t round, uint64_t *loads, zoff_matrix_entry **order)
{
    const unsigned ranks = x->plan->ranks;
    size_t count = 0;
    memset(loads, 0, ranks * sizeof *loads);
    for (size_t i = x->rounds[round].entries; i < x->rounds[round + 1].entries; i++)
        order[count++] = &x->entries[i];
    qsort(order, count, sizeof *order, larger_first);
    for (size_t i = 0; i < count; i++) {
        unsigned least = 0;
        for (unsigned rank = 1; rank < ranks; rank++)
            least = loads[rank] < loads[least] ? rank : least;
        order[i]->worker = least;
        loads[least] += work_of(order[i]);
    }
}

/* A worker has its matrices one after the other. `ends`: room for a number of each rank. */
static void place_entries(zoff_matrices *x, size_t round, uint64_t *ends)
{
    memset(ends, 0, x->plan->ranks * sizeof *ends);
    for (size_t i = x->rounds[round].entries; i < x->rounds[round + 1].entries; i++) {
        zoff_matrix_entry *e = &x->entries[i];
        e->at = ends[e->worker];
        ends[e->worker] += e->rows * e->cols;
    }
}

static zoff_status share(zoff_matrices *x)
{
    zoff_status status;
    uint64_t *loads = NULL;
    zoff_matrix_entry **order = NULL;
    ZOFF_TRY_OR(done, zoff_base_mem_alloc(x->plan->ranks, sizeof *loads, "the workers of matrices", &loads));
    ZOFF_TRY_OR(
        done, zoff_base_mem_alloc(x->rounds[x->plan->rounds.count].entries, sizeof *order, "the workers of matrices", &order));
    for (size_t r = 0; r < x->plan->rounds.count; r++) {
        share_round(x, r, loads, order);
        place_entries(x, r, loads);
    }
    status = ZOFF_OK;
done:
    zoff_base_mem_free(loads);
    zoff_base_mem_free(order);
    return status;
}

/* ---- what goes where ---- */

/* An iterator over the elements of a rank in a round, matrix by matrix. */
typedef struct part {
    const zoff_matrices *x;
    unsigned rank;
    size_t bucket, buckets_end;
    zoff_plan_cursor cursor;
    zoff_plan_piece piece;
    size_t first; /* the next element of the piece, counted in the slice */
} part;

static part begin_part(const zoff_matrices *x, size_t round, unsigned rank)
{
    const zoff_plan_round *r = &x->plan->rounds.all[round];
    return (part){.x = x,
                  .rank = rank,
                  .bucket = r->first_chunk,
                  .buckets_end = r->first_chunk + r->chunk_count,
                  .cursor = zoff_zero_plan_part(x->plan, r->first_chunk, rank)};
}

/* @return the matrix of the next `*count` elements from `*first` on; NULL: there are no more */
static const zoff_matrix_entry *next(part *p, size_t *first, size_t *count)
{
    while (!p->piece.count || p->first == p->piece.first + p->piece.count) {
        if (zoff_zero_plan_next(&p->cursor, &p->piece)) {
            p->first = p->piece.first;
            continue;
        }
        if (++p->bucket >= p->buckets_end)
            return NULL;
        p->piece.count = 0;
        p->cursor = zoff_zero_plan_part(p->x->plan, p->bucket, p->rank);
    }
    const zoff_matrix_entry *e = zoff_matrices_entry(p->x, &p->piece, p->first);
    *first = p->first;
    *count = zoff_base_bits_min(p->piece.first + p->piece.count, e->first + e->rows * e->cols) - p->first;
    p->first += *count;
    return e;
}

/* The segments of one round are counted first, and then listed. */
typedef struct listing {
    zoff_matrices *x;
    size_t own, whole; /* segments so far */
    bool fills;
} listing;

static void add(zoff_matrix_segment *list, size_t *used, bool fills, zoff_matrix_segment segment)
{
    if (fills)
        list[*used] = segment;
    ++*used;
}

/* Elements of this rank in matrices of `worker`, which follow each other in its message. */
static size_t list_own(listing *l, size_t round, unsigned worker, size_t wire)
{
    const zoff_matrices *x = l->x;
    part p = begin_part(x, round, x->plan->rank);
    size_t first, count, at = 0;
    for (const zoff_matrix_entry *e; (e = next(&p, &first, &count)); at += count) {
        if (e->worker != worker)
            continue;
        add(x->own_segments, &l->own, l->fills, (zoff_matrix_segment){at, wire, count});
        wire += count;
    }
    return wire;
}

/* Elements of `rank` in matrices of this rank. */
static size_t list_whole(listing *l, size_t round, unsigned rank, size_t wire)
{
    const zoff_matrices *x = l->x;
    part p = begin_part(x, round, rank);
    size_t first, count;
    for (const zoff_matrix_entry *e; (e = next(&p, &first, &count));) {
        if (e->worker != x->plan->rank)
            continue;
        add(x->whole_segments, &l->whole, l->fills, (zoff_matrix_segment){e->at + (first - e->first), wire, count});
        wire += count;
    }
    return wire;
}

static void list_all(listing *l)
{
    const zoff_plan *plan = l->x->plan;
    for (size_t r = 0; r < plan->rounds.count; r++) {
        zoff_matrix_round *round = &l->x->rounds[r];
        size_t sent = 0, received = 0;
        round->own = l->own;
        round->whole = l->whole;
        for (unsigned rank = 0; rank < plan->ranks; rank++) {
            const size_t sent_end = list_own(l, r, rank, sent), received_end = list_whole(l, r, rank, received);
            if (l->fills) {
                round->send[rank] = (sent_end - sent) * sizeof(float);
                round->receive[rank] = (received_end - received) * sizeof(float);
            }
            sent = sent_end;
            received = received_end;
        }
    }
    l->x->rounds[plan->rounds.count].own = l->own;
    l->x->rounds[plan->rounds.count].whole = l->whole;
}

zoff_status zoff_matrices_exchange_list(zoff_matrices *x)
{
    const size_t ranks = x->plan->ranks, rounds = x->plan->rounds.count;
    listing counted = {.x = x}, filled = {.x = x, .fills = true};
    ZOFF_TRY(share(x));
    list_all(&counted);
    ZOFF_TRY(zoff_base_mem_alloc(counted.own, sizeof *x->own_segments, "messages of matrices", &x->own_segments));
    ZOFF_TRY(zoff_base_mem_alloc(counted.whole, sizeof *x->whole_segments, "messages of matrices", &x->whole_segments));
    ZOFF_TRY(zoff_base_mem_alloc(2 * ranks * rounds, sizeof *x->sizes, "messages of matrices", &x->sizes));
    for (size_t r = 0; r < rounds; r++) {
        x->rounds[r].send = x->sizes + 2 * ranks * r;
        x->rounds[r].receive = x->rounds[r].send + ranks;
    }
    list_all(&filled);
    return ZOFF_OK;
}

/* ---- messages ---- */

static void pack(const zoff_matrix_segment *s, size_t count, const float *from, float *wire)
{
    for (size_t i = 0; i < count; i++)
        memcpy(wire + s[i].wire, from + s[i].at, s[i].count * sizeof(float));
}

static void unpack(const zoff_matrix_segment *s, size_t count, const float *wire, float *to)
{
    for (size_t i = 0; i < count; i++)
        memcpy(to + s[i].at, wire + s[i].wire, s[i].count * sizeof(float));
}

zoff_comm_call zoff_matrices_exchange_call(const zoff_matrices *x, size_t round, bool is_back)
{
    const zoff_matrix_round *r = &x->rounds[round];
    return (zoff_comm_call){
        .kind = ZOFF_COMM_EXCHANGE,
        .stream = ZOFF_COMM_REDUCE, /* behind the gate no gradient is on its way */
        .channel = x->channel,
        .item = {.about = ZOFF_COMM_ABOUT_MATRICES, .index = 2 * round + is_back},
        .in = is_back ? x->memory.whole_wire : x->memory.own_wire,
        .out = is_back ? x->memory.own_wire : x->memory.whole_wire,
        .send_bytes = is_back ? r->receive : r->send,
        .receive_bytes = is_back ? r->send : r->receive,
    };
}

/* Directions of whole matrices and own ones have messages of their own, so a message may be sent again after an error. */
zoff_status zoff_matrices_exchange_run(zoff_matrices *x, bool is_back)
{
    const size_t number = x->turn.round - 1;
    const zoff_matrix_round *r = &x->rounds[number];
    const zoff_matrix_segment *own = x->own_segments + r->own, *whole = x->whole_segments + r->whole;
    const size_t owns = r[1].own - r->own, wholes = r[1].whole - r->whole;
    const zoff_matrix_stage under_way = is_back ? ZOFF_MATRICES_RETURNED : ZOFF_MATRICES_SENT;
    if (x->turn.stage != under_way) {
        const zoff_comm_call call = zoff_matrices_exchange_call(x, number, is_back);
        if (is_back)
            pack(whole, wholes, x->memory.whole, x->memory.whole_wire);
        else
            pack(own, owns, x->memory.own, x->memory.own_wire);
        ZOFF_TRY(zoff_comm_start(x->comm, &call, &x->exchange));
        x->turn.stage = under_way;
    }
    const zoff_status status = zoff_comm_poll(x->comm, &x->exchange);
    if (status < 0)
        x->turn.stage = is_back ? ZOFF_MATRICES_WORKING : ZOFF_MATRICES_FILLED; /* a retry starts it again */
    ZOFF_TRY_DONE(status);
    for (unsigned rank = 0; rank < x->plan->ranks; rank++)
        x->sent_bytes += rank == x->plan->rank ? 0 : is_back ? r->receive[rank] : r->send[rank];
    if (is_back)
        unpack(own, owns, x->memory.own_wire, x->memory.own);
    else
        unpack(whole, wholes, x->memory.whole_wire, x->memory.whole);
    return ZOFF_OK;
}
