/* SPDX-License-Identifier: Apache-2.0 */
/* report.c: records of ranks that join in any order, so that every rank has the joined one. On a grid of ranks a record goes to
 * the ranks of the node, and what they have joined to those of the rail: two gathers of few ranks, not one of all. */
#include "agreement.h"

#include "bits.h"
#include "try.h"

#include <string.h>

zoff_status zoff_agreement_report_open(zoff_comm *comm, size_t bytes, zoff_report *r)
{
    r->bytes = bytes;
    r->has_levels = zoff_comm_has_levels(comm);
    const size_t node = comm->node, most = r->has_levels ? zoff_base_bits_max(node, comm->size / node) : comm->size;
    return zoff_base_mem_alloc(most, bytes, "records of ranks", &r->all);
}

static zoff_comm_call call_of(const zoff_comm *comm, zoff_comm_stream stream, size_t bytes)
{
    zoff_comm_call call = {.kind = ZOFF_COMM_GATHER, .stream = stream, .count = bytes};
    zoff_comm_call_group(comm, &call);
    return call;
}

static zoff_comm_stream first_stream(bool has_levels)
{
    return has_levels ? ZOFF_COMM_STEP_NODE : ZOFF_COMM_STEP;
}

void zoff_agreement_report_count(const zoff_comm *comm, size_t bytes, zoff_comm_traffic *sum)
{
    zoff_comm_call call = call_of(comm, first_stream(zoff_comm_has_levels(comm)), bytes);
    zoff_comm_call_add_traffic(comm, &call, sum);
    if (call.stream == ZOFF_COMM_STEP)
        return;
    call = call_of(comm, ZOFF_COMM_STEP_RAIL, bytes);
    zoff_comm_call_add_traffic(comm, &call, sum);
}

/* Start a gather, again if there was no memory for it: other ranks wait for it. */
static zoff_status start(zoff_comm *comm, zoff_comm_channel *channel, zoff_report *r)
{
    zoff_comm_call call = call_of(comm, r->stream, r->bytes);
    call.channel = channel;
    call.item = r->item;
    call.out = r->all;
    call.in = memmove(r->all + zoff_comm_call_index(&call, zoff_comm_rank(comm)) * r->bytes, r->all, r->bytes);
    ZOFF_TRY(zoff_comm_start(comm, &call, &r->work));
    r->has_started = true;
    return ZOFF_OK;
}

zoff_status zoff_agreement_report_start(zoff_comm *comm, zoff_comm_channel *channel, zoff_report *r)
{
    r->stream = first_stream(r->has_levels);
    r->has_started = false;
    ZOFF_TRY(start(comm, channel, r));
    r->is_under_way = true;
    return ZOFF_OK;
}

zoff_status zoff_agreement_report_poll(zoff_comm *comm, zoff_comm_channel *channel, zoff_report *r)
{
    while (r->is_under_way) {
        if (!r->has_started) {
            const zoff_status status = start(comm, channel, r);
            ZOFF_TRY_DONE(status == ZOFF_ERR_NO_MEMORY ? ZOFF_PENDING : status);
        }
        ZOFF_TRY_DONE(zoff_comm_poll(comm, &r->work));
        for (unsigned i = 1; i < zoff_comm_call_members(comm, &r->work.call); i++)
            r->join(r->all, r->all + i * r->bytes, r->bytes);
        r->is_under_way = r->stream == ZOFF_COMM_STEP_NODE;
        r->has_started = false;
        r->stream = ZOFF_COMM_STEP_RAIL;
    }
    return ZOFF_OK;
}

zoff_status zoff_agreement_report_wait(zoff_comm *comm, zoff_comm_channel *channel, zoff_report *r)
{
    zoff_status status;
    while ((status = zoff_agreement_report_poll(comm, channel, r)) == ZOFF_PENDING && r->has_started)
        ZOFF_TRY(zoff_comm_wait(comm, &r->work));
    return status == ZOFF_PENDING ? ZOFF_ERR_NO_MEMORY : status;
}
