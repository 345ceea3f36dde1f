/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_note.c: what ranks tell each other about a call before anything large is sent. Each rank sends a note to each other,
 * with small pieces inside. Ranks that call different operations learn it from the notes, instead of waiting for messages that
 * never fit. */
#include "nccl_priv.h"

#include <string.h>

static zoff_nccl_note *note_to(const zoff_nccl_lane *lane, unsigned rank)
{
    return &lane->notes[rank];
}

static const zoff_nccl_note *note_of(const zoff_nccl *n, const zoff_nccl_lane *lane, unsigned rank)
{
    return &lane->notes[n->comm.size + rank];
}

static void write_note(zoff_nccl_lane *lane, unsigned other)
{
    const zoff_comm_work *work = zoff_nccl_work_of(lane);
    const zoff_comm_call *call = &work->call;
    zoff_nccl_piece *piece = &lane->to[other];
    zoff_nccl_note *note = note_to(lane, other);
    note->kind = call->kind;
    note->root = call->root;
    note->number = work->number;
    note->count = call->count;
    note->adds = call->adds;
    note->mask = lane->mask;
    note->channel = call->channel->id;
    note->item = call->item;
    note->result_bytes = work->result_bytes;
    note->sends = piece->bytes;
    note->expects = lane->from[other].bytes;
    if (piece->bytes && piece->bytes <= sizeof note->small && !lane->in_is_device) {
        memcpy(note->small, piece->at, piece->bytes);
        note->small_bytes = (uint32_t)piece->bytes;
        piece->bytes = 0;
    }
}

zoff_status zoff_nccl_tell(zoff_nccl *n, zoff_nccl_lane *lane, zoff_nccl_says says)
{
    const unsigned me = n->comm.rank;
    const size_t all = n->comm.size * sizeof *lane->notes;
    zoff_comm_visit visits[ZOFF_NCCL_VISITS] = {{.number = 0}};
    if (lane->size == 1)
        return ZOFF_OK;
    const unsigned visit_count = n->tools->visits(&n->comm, visits, ZOFF_NCCL_VISITS);
    for (unsigned other = lane->first; other < lane->first + lane->size; other++) {
        memset(note_to(lane, other), 0, sizeof *lane->notes - sizeof lane->notes->small);
        note_to(lane, other)->says = says;
        note_to(lane, other)->visit_count = visit_count;
        memcpy(note_to(lane, other)->visits, visits, sizeof visits);
        if (other != me && says == ZOFF_NCCL_CALLS)
            write_note(lane, other);
    }
    ZOFF_NCCL_CUDA(n, cudaMemcpyAsync, lane->wire, lane->notes, all, cudaMemcpyHostToDevice, lane->stream);
    ZOFF_NCCL_TRY(n, lane->nccl, ncclGroupStart);
    ncclResult_t first = ncclSuccess;
    for (unsigned i = 1; i < lane->size && first == ncclSuccess; i++) {
        const unsigned mine = me - lane->first, to = (mine + i) % lane->size, from = (mine + lane->size - i) % lane->size;
        first = ncclSend(lane->wire + (lane->first + to) * sizeof *lane->notes, sizeof *lane->notes, ncclInt8, (int)to,
                         lane->nccl, lane->stream);
        if (first == ncclSuccess || first == ncclInProgress)
            first = ncclRecv(lane->wire + all + (lane->first + from) * sizeof *lane->notes, sizeof *lane->notes, ncclInt8,
                             (int)from, lane->nccl, lane->stream);
        if (first == ncclInProgress)
            first = ncclSuccess;
    }
    const ncclResult_t last = ncclGroupEnd(); /* end the thread's group even after an error */
    ZOFF_TRY(zoff_nccl_check(n, lane->nccl, first, "ncclSend or ncclRecv"));
    ZOFF_TRY(zoff_nccl_check(n, lane->nccl, last, "ncclGroupEnd"));
    return zoff_nccl_settle(n, lane->nccl);
}

zoff_status zoff_nccl_fetch_notes(zoff_nccl *n, zoff_nccl_lane *lane)
{
    const size_t all = n->comm.size * sizeof *lane->notes;
    ZOFF_NCCL_CUDA(n, cudaMemcpyAsync, lane->notes + n->comm.size, lane->wire + all, all, cudaMemcpyDeviceToHost, lane->stream);
    return ZOFF_OK;
}

/* Whether another rank's note names this rank's operation. Record also in which call that rank's program waits. */
static bool is_same(zoff_nccl *n, const zoff_comm_work *work, unsigned other, const zoff_nccl_note *note)
{
    if (note->visit_count && note->visit_count <= ZOFF_NCCL_VISITS)
        n->tools->heard(&n->comm, other, note->visits, note->visit_count);
    return note->channel == work->call.channel->id;
}

static zoff_status compare(zoff_nccl *n, const zoff_comm_work *work, unsigned other, const zoff_nccl_note *note)
{
    const zoff_comm *comm = &n->comm;
    ZOFF_FAIL_IF(note->says == ZOFF_NCCL_LEAVES, ZOFF_ERR_COMM, "rank %u: %s cannot be done: rank %u has left the group",
                 comm->rank, n->tools->name(comm, work), other);
    ZOFF_FAIL_IF(
        note->says != ZOFF_NCCL_CALLS || note->number != work->number || note->kind > ZOFF_COMM_BARRIER || note->adds > 1 ||
            (note->small_bytes && (note->small_bytes != note->sends || note->small_bytes > sizeof note->small)),
        ZOFF_ERR_COMM,
        "rank %u: %s: the message of rank %u is not valid for operation %llu: all ranks must run the same version of zoff",
        comm->rank, n->tools->name(comm, work), other, (unsigned long long)work->number);
    const zoff_comm_theirs theirs = {.kind = (zoff_comm_kind)note->kind,
                                     .adds = note->adds != 0,
                                     .item = note->item,
                                     .root = note->root,
                                     .first = work->call.first, /* the lane has no other rank */
                                     .members = work->call.members,
                                     .count = note->count,
                                     .result_bytes = note->result_bytes,
                                     .sends = note->sends,
                                     .expects = note->expects};
    return n->tools->compare(comm, work, other, &theirs);
}

/* Compare all notes before writing anything: if one differs, the result stays as it was. */
zoff_status zoff_nccl_hear(zoff_nccl *n, zoff_nccl_lane *lane)
{
    zoff_comm_work *work = zoff_nccl_work_of(lane);
    const unsigned me = n->comm.rank;
    uint64_t common = lane->mask;
    bool is_agreed = true;
    for (unsigned other = 0; other < n->comm.size; other++) {
        const zoff_nccl_note *note = note_of(n, lane, other);
        if (other == me || !zoff_nccl_has(lane, other))
            continue;
        if (note->says != ZOFF_NCCL_CALLS)
            return compare(n, work, other, note); /* returns the error */
        is_agreed &= is_same(n, work, other, note);
        common &= note->mask;
    }
    lane->common = is_agreed ? 0 : common;
    if (!is_agreed)
        return ZOFF_PENDING;
    for (unsigned other = 0; other < n->comm.size; other++) {
        if (other != me && zoff_nccl_has(lane, other))
            ZOFF_TRY(compare(n, work, other, note_of(n, lane, other)));
    }
    work->arrived = true;
    for (unsigned other = 0; other < n->comm.size; other++) {
        const zoff_nccl_note *note = note_of(n, lane, other);
        zoff_nccl_piece *piece = &lane->from[other];
        if (other == me || !zoff_nccl_has(lane, other) || !note->small_bytes)
            continue;
        if (lane->out_is_device) {
            ZOFF_TRY(zoff_nccl_copy(n, lane, piece->at, note->small, piece->bytes));
            lane->has_copies = true;
        } else {
            memcpy(piece->at, note->small, piece->bytes);
        }
        piece->bytes = 0;
    }
    return ZOFF_OK;
}
