/* mailbox.c: channels over messages, and the storage of early headers. A header is early if this rank has not started its
 * operation yet, or has not joined its channel yet. The latter happens when another rank learns first that all ranks agree on a
 * channel. */
#include "messages_priv.h"

#include "mem.h"
#include "try.h"

#include <stddef.h>
#include <string.h>

/* ---- early headers ---- */

static zoff_status copy(const zoff_comm_header *header, zoff_comm_early **out)
{
    const size_t bytes = offsetof(zoff_comm_header, data) + header->data_bytes;
    ZOFF_TRY(zoff_base_mem_alloc(1, offsetof(zoff_comm_early, header) + bytes, "a header of another rank", out));
    memcpy(&(*out)->header, header, bytes);
    return ZOFF_OK;
}

void zoff_comm_mailbox_put(zoff_comm_port *port, zoff_comm_early *one)
{
    zoff_comm_early **list = &port->early[one->header.stream][one->header.number % ZOFF_COMM_AHEAD];
    one->next = *list;
    *list = one;
}

zoff_status zoff_comm_mailbox_keep(zoff_comm_port *port, const zoff_comm_header *header)
{
    zoff_comm_early *one;
    ZOFF_TRY(copy(header, &one));
    zoff_comm_mailbox_put(port, one);
    return ZOFF_OK;
}

zoff_comm_early *zoff_comm_mailbox_take(const zoff_comm_work *work)
{
    zoff_comm_early **list = &zoff_comm_port_of(work)->early[work->call.stream][work->number % ZOFF_COMM_AHEAD];
    zoff_comm_early *taken = *list;
    *list = NULL;
    return taken;
}

void zoff_comm_mailbox_free(zoff_comm_early *list)
{
    while (list) {
        zoff_comm_early *next = list->next;
        zoff_base_mem_free(list);
        list = next;
    }
}

/* Ids only grow. So an unknown id up to `last_channel` is of a closed channel; a higher one is of a channel to join. */
zoff_status zoff_comm_mailbox_find(zoff_comm_messages *m, const zoff_comm_header *header, zoff_comm_port **out)
{
    const zoff_comm_channel *channel = zoff_comm_channel_find(&m->comm, header->channel);
    zoff_comm_early *one;
    *out = channel ? channel->port : NULL;
    if (channel || header->channel <= m->last_channel)
        return ZOFF_OK;
    ZOFF_TRY(copy(header, &one));
    *m->unknown_end = one;
    m->unknown_end = &one->next;
    return ZOFF_OK;
}

int zoff_comm_mailbox_tag(zoff_comm_messages *m)
{
    for (unsigned tries = 0; tries < ZOFF_COMM_TAGS; tries++) {
        m->last_tag = (m->last_tag + 1) % ZOFF_COMM_TAGS;
        if (m->last_tag && !m->tags[m->last_tag]) {
            m->tags[m->last_tag] = true;
            return (int)m->last_tag;
        }
    }
    return 0;
}

/* ---- channels ---- */

zoff_status zoff_comm_mailbox_open(zoff_comm *comm, zoff_comm_channel *channel)
{
    zoff_comm_port *port;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *port, "a channel", &port));
    const zoff_status status = zoff_base_mem_alloc(comm->size, sizeof *port->members, "a channel", &port->members);
    if (status < 0)
        zoff_base_mem_free(port);
    else
        channel->port = port;
    return status;
}

/* Returns the headers of this channel. Frees those of channels with lower ids, because this rank never joins them. */
zoff_comm_early *zoff_comm_mailbox_join(zoff_comm *comm, zoff_comm_channel *channel)
{
    zoff_comm_messages *m = (zoff_comm_messages *)comm;
    zoff_comm_early *kept = NULL, **end = &kept;
    ((zoff_comm_port *)channel->port)->is_joined = true;
    m->last_channel = channel->id;
    for (zoff_comm_early **at = &m->unknown; *at;) {
        zoff_comm_early *one = *at;
        if (one->header.channel > channel->id) {
            at = &one->next;
            continue;
        }
        *at = one->next;
        one->next = NULL;
        if (one->header.channel == channel->id) {
            *end = one;
            end = &one->next;
        } else {
            zoff_base_mem_free(one);
        }
    }
    m->unknown_end = &m->unknown;
    while (*m->unknown_end)
        m->unknown_end = &(*m->unknown_end)->next;
    return kept;
}

void zoff_comm_mailbox_close(zoff_comm *comm, zoff_comm_channel *channel)
{
    zoff_comm_messages *m = (zoff_comm_messages *)comm;
    zoff_comm_port *port = channel->port;
    zoff_comm_header header;
    memset(&header, 0, offsetof(zoff_comm_header, data));
    header.says = ZOFF_COMM_CLOSES;
    header.channel = channel->id;
    if (port->is_joined && channel->id && !m->is_over)
        zoff_comm_message_queue_say(m->queue, &header);
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS * ZOFF_COMM_AHEAD; i++)
        zoff_comm_mailbox_free(port->early[i / ZOFF_COMM_AHEAD][i % ZOFF_COMM_AHEAD]);
    zoff_base_mem_free(port->members);
    zoff_base_mem_free(port);
    channel->port = NULL;
}

zoff_status zoff_comm_mailbox_tell(zoff_comm *comm, const zoff_comm_call *call, const zoff_comm_visit *visits, unsigned count)
{
    zoff_comm_messages *m = (zoff_comm_messages *)comm;
    zoff_comm_header header;
    _Static_assert(ZOFF_COMM_VISITS_TOLD * sizeof *visits <= sizeof header.data, "the visits fit into a header");
    memset(&header, 0, offsetof(zoff_comm_header, data));
    header.says = ZOFF_COMM_WAITS;
    header.count = count;
    header.data_bytes = count * sizeof *visits;
    memcpy(header.data, visits, header.data_bytes);
    for (unsigned rank = 0; rank < comm->size && !m->is_over; rank++) {
        if (rank != comm->rank && zoff_comm_call_has(call, rank))
            (void)zoff_comm_message_queue_send(m->queue, rank, &header); /* later calls report a transport that fails */
    }
    return ZOFF_OK;
}
