/* SPDX-License-Identifier: Apache-2.0 */
/* nccl_move.c: the pieces of an operation. NCCL reads device memory only, so pieces in host memory are staged on the device.
 * Staging goes in rounds, each with a cut of every piece, which bounds the memory. A cut has the same length on all ranks, so
 * both sides of a piece know its rounds. */
#include "nccl_priv.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 64 << 10 };

/* Check the memory of a reduction, which needs whole operands in device memory, because it has no rounds in which they could be
 * staged. */
zoff_status zoff_nccl_check_memory(zoff_nccl *n, const zoff_comm_call *call)
{
    bool in_is_device = true, out_is_device = true;
    if (!call->adds || !call->send_bytes[0])
        return ZOFF_OK;
    ZOFF_TRY(zoff_nccl_is_device(n, call->in, &in_is_device));
    ZOFF_TRY(zoff_nccl_is_device(n, call->out, &out_is_device));
    ZOFF_FAIL_IF(!in_is_device || !out_is_device, ZOFF_ERR_INVALID,
                 "NCCL can only add memory of device %d, but %s is memory of the host", n->device,
                 in_is_device ? "the result" : "the input");
    return ZOFF_OK;
}

/* Compute where the bytes for each rank and from each rank lie. The rows of a sum need memory of their own, because this rank's
 * numbers must stay until all rows have arrived. */
zoff_status zoff_nccl_lay(zoff_nccl *n, zoff_nccl_lane *lane)
{
    const zoff_comm_call *call = &zoff_nccl_work_of(lane)->call;
    const bool scatters = call->kind == ZOFF_COMM_EXCHANGE, sums = call->kind == ZOFF_COMM_SUM;
    const bool in_place = sums || call->kind == ZOFF_COMM_BROADCAST;
    const unsigned me = n->comm.rank;
    lane->round = lane->rounds = 0;
    lane->has_copies = false;
    ZOFF_TRY(zoff_nccl_is_device(n, in_place ? call->out : call->in, &lane->in_is_device));
    ZOFF_TRY(zoff_nccl_is_device(n, call->out, &lane->out_is_device));
    if (sums) {
        lane->out_is_device = false; /* rows are added on the host */
        lane->rows = calloc(n->comm.size * call->count + 1, sizeof *lane->rows);
        ZOFF_FAIL_IF(!lane->rows, ZOFF_ERR_NO_MEMORY, "no memory for a sum over the ranks");
    }
    char *in = in_place ? call->out : (char *)(uintptr_t)call->in, *out = sums ? (char *)lane->rows : call->out;
    for (unsigned other = lane->first; other < lane->first + lane->size; other++) {
        const size_t sends = n->tools->sends(call, me, other), expects = n->tools->expects(call, other, me);
        lane->to[other] = (zoff_nccl_piece){.at = in, .bytes = sends};
        lane->from[other] = (zoff_nccl_piece){.at = out, .bytes = expects};
        if (sends && scatters)
            in += sends;
        if (expects && (sums || !in_place) && !call->adds)
            out += expects;
    }
    return ZOFF_OK;
}

/* Copy the piece that this rank sends to itself. */
zoff_status zoff_nccl_take_own(zoff_nccl *n, zoff_nccl_lane *lane)
{
    const zoff_comm_work *work = zoff_nccl_work_of(lane);
    const zoff_nccl_piece *to = &lane->to[n->comm.rank], *from = &lane->from[n->comm.rank];
    if (work->call.kind == ZOFF_COMM_BROADCAST || work->call.kind == ZOFF_COMM_BARRIER)
        return ZOFF_OK;
    if (work->call.adds && n->comm.size > 1) /* NCCL's sum already includes this rank's piece */
        return ZOFF_OK;
    ZOFF_FAIL_IF(to->bytes != from->bytes, ZOFF_ERR_COMM, "%s: rank %u has %zu bytes for itself, and expects %zu",
                 n->tools->name(&n->comm, work), n->comm.rank, to->bytes, from->bytes);
    if (!lane->in_is_device && !lane->out_is_device && to->bytes <= AT_ONCE) {
        if (to->bytes && to->at != from->at)
            memcpy(from->at, to->at, to->bytes);
        return ZOFF_OK;
    }
    lane->has_copies |= to->bytes != 0;
    return zoff_nccl_copy(n, lane, from->at, to->at, to->bytes);
}

static size_t cut_of(const zoff_nccl *n, const zoff_nccl_piece *piece, size_t round)
{
    const size_t before = round * n->cut;
    return piece->bytes <= before ? 0 : piece->bytes - before < n->cut ? piece->bytes - before : n->cut;
}

/* A reduction is one round without pieces, because the notes have compared its size. */
static void count_sum(const zoff_nccl *n, zoff_nccl_lane *lane)
{
    lane->rounds = n->comm.size > 1 && zoff_nccl_work_of(lane)->call.send_bytes[0];
    for (unsigned other = 0; other < n->comm.size; other++)
        lane->to[other].bytes = lane->from[other].bytes = 0;
}

/* Count the rounds for pieces that the notes did not carry. This rank's own piece is copied, not sent. */
void zoff_nccl_count_rounds(zoff_nccl *n, zoff_nccl_lane *lane)
{
    lane->to[n->comm.rank].bytes = lane->from[n->comm.rank].bytes = 0;
    if (zoff_nccl_work_of(lane)->call.adds) {
        count_sum(n, lane);
        return;
    }
    for (unsigned i = 0; i < 2 * n->comm.size; i++) {
        const size_t bytes = (i < n->comm.size ? &lane->to[i] : &lane->from[i - n->comm.size])->bytes;
        const size_t rounds = (bytes + n->cut - 1) / n->cut;
        lane->rounds = rounds > lane->rounds ? rounds : lane->rounds;
    }
}

/* Give each piece in host memory a slot on the device for its cuts. */
static void place(const zoff_nccl *n, zoff_nccl_lane *lane)
{
    const unsigned size = n->comm.size;
    for (unsigned i = 0; i < 2 * size; i++) {
        zoff_nccl_piece *piece = i < size ? &lane->to[i] : &lane->from[i - size];
        if (piece->bytes && !(i < size ? lane->in_is_device : lane->out_is_device))
            piece->slot = lane->slots + i * n->cut;
    }
}

static char *place_of(const zoff_nccl *n, const zoff_nccl_piece *piece, size_t round)
{
    return piece->slot ? piece->slot : piece->at + round * n->cut;
}

static ncclResult_t hand_over(zoff_nccl *n, zoff_nccl_lane *lane, unsigned to, unsigned from)
{
    const zoff_nccl_piece *out = &lane->to[to], *in = &lane->from[from];
    const size_t sends = cut_of(n, out, lane->round), expects = cut_of(n, in, lane->round);
    ncclResult_t result = ncclSuccess;
    if (sends)
        result = ncclSend(place_of(n, out, lane->round), sends, ncclInt8, (int)(to - lane->first), lane->nccl, lane->stream);
    if (expects && (result == ncclSuccess || result == ncclInProgress))
        result = ncclRecv(place_of(n, in, lane->round), expects, ncclInt8, (int)(from - lane->first), lane->nccl, lane->stream);
    return result == ncclInProgress ? ncclSuccess : result;
}

zoff_status zoff_nccl_move(zoff_nccl *n, zoff_nccl_lane *lane)
{
    const unsigned size = n->comm.size, me = n->comm.rank;
    const zoff_comm_call *call = &zoff_nccl_work_of(lane)->call;
    if (call->adds) {
        ZOFF_NCCL_TRY(n, lane->nccl, ncclReduceScatter, call->in, call->out, call->send_bytes[0] / sizeof(float), ncclFloat32,
                      ncclSum, lane->nccl, lane->stream);
        return zoff_nccl_settle(n, lane->nccl);
    }
    if (lane->round == 0)
        place(n, lane);
    for (unsigned other = 0; other < size; other++) {
        const zoff_nccl_piece *piece = &lane->to[other];
        const size_t bytes = cut_of(n, piece, lane->round);
        if (bytes && piece->slot)
            ZOFF_TRY(zoff_nccl_copy(n, lane, piece->slot, piece->at + lane->round * n->cut, bytes));
    }
    ZOFF_NCCL_TRY(n, lane->nccl, ncclGroupStart);
    ncclResult_t first = ncclSuccess;
    for (unsigned i = 1; i < size && first == ncclSuccess; i++)
        first = hand_over(n, lane, (me + i) % size, (me + size - i) % size);
    const ncclResult_t last = ncclGroupEnd(); /* end the thread's group even after an error */
    ZOFF_TRY(zoff_nccl_check(n, lane->nccl, first, "ncclSend or ncclRecv"));
    ZOFF_TRY(zoff_nccl_check(n, lane->nccl, last, "ncclGroupEnd"));
    return zoff_nccl_settle(n, lane->nccl);
}

zoff_status zoff_nccl_unload(zoff_nccl *n, zoff_nccl_lane *lane)
{
    for (unsigned other = 0; other < n->comm.size; other++) {
        const zoff_nccl_piece *piece = &lane->from[other];
        const size_t bytes = cut_of(n, piece, lane->round);
        if (bytes && piece->slot)
            ZOFF_TRY(zoff_nccl_copy(n, lane, piece->at + lane->round * n->cut, piece->slot, bytes));
    }
    return ZOFF_OK;
}
