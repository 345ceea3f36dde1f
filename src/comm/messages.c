/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c: implements operations over a transport for messages. A rank that starts an operation sends a header to every
 * other rank. The header says which call it is, how many bytes the rank sends to the receiver, and how many it expects. A small
 * piece is sent inside of the header.
 *
 *      start: send headers --- header of rank r arrives and agrees: transfers to and from r begin --- all headers have arrived,
 *                                                                                      all transfers have ended: done
 *
 * A header is also the permission to send. A rank sends a large piece only after the receiver's header has said that it expects
 * this size. So no message is truncated, no transfer to an absent rank is in flight, and no third message is needed. Between
 * threads a send can be cancelled, so there the piece goes with the header, and the receiver takes it when both agree. Nothing
 * here sleeps or makes a thread: the thread that polls does the work. */
#include "book_priv.h"
#include "message_queue_priv.h"

#include "bits.h"
#include "clock.h"
#include "mem.h"
#include "try.h"

#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

static const zoff_comm_ops OPS;
static const double PATIENCE_SECONDS = 1; /* longest wait for transfers in flight when the communicator gives up */

/* A rank has at most DEPTH operations of a stream in flight. So another rank's newest operation can be up to DEPTH ahead of
 * this rank's newest, which in turn can be DEPTH ahead of this rank's oldest. Numbers in use therefore differ by less than
 * AHEAD. */
enum { DEPTH = 64, AHEAD = 2 * DEPTH };

enum { MESSAGE_BYTES = 64 << 20 };

/* The memory of an operation that depends on the number of its members. */
typedef struct zoff_comm_lanes {
    struct zoff_comm_lanes *next; /* next in the list of spare structs */
    unsigned members;
    zoff_comm_lane all[]; /* followed by operation.open */
} zoff_comm_lanes;

typedef struct operation {
    zoff_comm_work *work; /* NULL: the entry is free */
    unsigned arrived;     /* ranks that have started the operation, including this one */
    unsigned moving;      /* lanes that are not finished */
    bool has_own;         /* this rank's own piece has been copied */
    int tag;              /* tag of all its messages; 0: all pieces to send fit into headers */
    zoff_comm_lanes *memory;
    zoff_comm_lane *lanes;           /* receives from member 0, 1, ..., then sends to member 0, 1, ... */
    uint32_t *open;                  /* indices of open, unfinished lanes: sends from [0], receives from [members] */
    unsigned sending, receiving;     /* number of each in `open` */
    struct operation *next, *before; /* list of operations in flight */
} operation;

/* A stored header of an operation that this rank has not started yet. */
typedef struct zoff_comm_early {
    struct zoff_comm_early *next;
    zoff_comm_header header; /* header, allocated only up to the end of its data */
} zoff_comm_early;

/* The data of a channel. */
typedef struct zoff_comm_port {
    operation operations[ZOFF_COMM_STREAMS][DEPTH];   /* operations by number, modulo DEPTH */
    zoff_comm_early *early[ZOFF_COMM_STREAMS][AHEAD]; /* headers by number, modulo AHEAD; lists over ranks */
    struct {
        uint64_t started[ZOFF_COMM_STREAMS]; /* number of the last operation that the rank has started */
        bool has_closed;
    } * members;     /* state of each rank in the channel */
    unsigned closed; /* number of ranks that have closed the channel */
    bool is_joined;
} zoff_comm_port;

typedef struct messages_comm {
    zoff_comm comm;
    zoff_comm_message_queue *queue;
    operation *in_flight;
    zoff_comm_lanes *spare;                  /* spare memory of operations that are over */
    zoff_comm_early *unknown, **unknown_end; /* headers of channels not joined here yet; oldest first */
    uint32_t last_channel;                   /* id of the last channel joined */
    bool tags[ZOFF_COMM_TAGS];               /* tags in use for sending; tag 0 is for headers */
    unsigned last_tag;
    bool is_local;                          /* see zoff_comm_messages_open() */
    double close_seconds, patience_seconds; /* longest waits: at close for other ranks; when giving up, for transfers */
    bool is_over;                           /* no operation will make progress any more; `over` has the reason */
    bool is_told;                           /* the reason came from another rank, or was sent to the others */
    char over[1024];
    bool *has_left; /* one flag per rank: it has left */
    unsigned left;  /* number of ranks that have left */
} messages_comm;

static zoff_comm_port *port_of(const zoff_comm_work *work)
{
    return work->call.channel->port;
}

/* ---- early headers: this rank has not started their operation yet, or has not joined their channel yet, because another rank
 * can learn first that all ranks agree on a channel ---- */

static zoff_status copy(const zoff_comm_header *header, zoff_comm_early **out)
{
    const size_t bytes = offsetof(zoff_comm_header, data) + header->data_bytes;
    ZOFF_TRY(zoff_base_mem_alloc(1, offsetof(zoff_comm_early, header) + bytes, "a header of another rank", out));
    memcpy(&(*out)->header, header, bytes);
    return ZOFF_OK;
}

/* Store a header, which the port then owns. */
static void put_header(zoff_comm_port *port, zoff_comm_early *one)
{
    zoff_comm_early **list = &port->early[one->header.stream][one->header.number % AHEAD];
    one->next = *list;
    *list = one;
}

/* Store a header of an operation that this rank has not started, on a joined channel. */
static zoff_status keep_header(zoff_comm_port *port, const zoff_comm_header *header)
{
    zoff_comm_early *one;
    ZOFF_TRY(copy(header, &one));
    put_header(port, one);
    return ZOFF_OK;
}

/* Remove and return the stored headers of an operation, as a list. */
static zoff_comm_early *take_headers(const zoff_comm_work *work)
{
    zoff_comm_early **list = &port_of(work)->early[work->call.stream][work->number % AHEAD];
    zoff_comm_early *taken = *list;
    *list = NULL;
    return taken;
}

static void free_headers(zoff_comm_early *list)
{
    while (list) {
        zoff_comm_early *next = list->next;
        zoff_base_mem_free(list);
        list = next;
    }
}

/* Find the port that a header is for; NULL if the header was stored for a channel not joined yet, or is for a closed one. Ids
 * only grow. So an unknown id up to `last_channel` is of a closed channel; a higher one is of a channel to join. */
static zoff_status find_port(messages_comm *m, const zoff_comm_header *header, zoff_comm_port **out)
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

/* Reserve a free tag for the messages that an operation sends. Tags are given out in turns, so that none is reused soon.
 * @return 0: all are in use */
static int take_tag(messages_comm *m)
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

static zoff_status open_next_channel(zoff_comm *comm, zoff_comm_channel *channel)
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

/* Join a channel and return the headers that arrived for it earlier, oldest first, which the caller frees. Frees those of
 * channels with lower ids, because this rank never joins them. */
static zoff_comm_early *join_port(zoff_comm *comm, zoff_comm_channel *channel)
{
    messages_comm *m = (messages_comm *)comm;
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

static void close_channel(zoff_comm *comm, zoff_comm_channel *channel)
{
    messages_comm *m = (messages_comm *)comm;
    zoff_comm_port *port = channel->port;
    zoff_comm_header header;
    memset(&header, 0, offsetof(zoff_comm_header, data));
    header.says = ZOFF_COMM_CLOSES;
    header.channel = channel->id;
    if (port->is_joined && channel->id && !m->is_over)
        zoff_comm_message_queue_say(m->queue, &header);
    for (unsigned i = 0; i < ZOFF_COMM_STREAMS * AHEAD; i++)
        free_headers(port->early[i / AHEAD][i % AHEAD]);
    zoff_base_mem_free(port->members);
    zoff_base_mem_free(port);
    channel->port = NULL;
}

static zoff_status tell_visits(zoff_comm *comm, const zoff_comm_call *call, const zoff_comm_visit *visits, unsigned count)
{
    messages_comm *m = (messages_comm *)comm;
    zoff_comm_header header;
    _Static_assert(ZOFF_COMM_VISITS_TOLD * sizeof *visits <= sizeof header.data, "the visits fit into a header");
    memset(&header, 0, offsetof(zoff_comm_header, data));
    header.says = ZOFF_COMM_WAITS;
    header.root = call->members ? call->root : 0;
    header.count = count;
    header.data_bytes = count * sizeof *visits;
    memcpy(header.data, visits, header.data_bytes);
    for (unsigned i = 0; i < zoff_comm_call_members(comm, call) && !m->is_over; i++) {
        const unsigned rank = zoff_comm_call_member(call, i);
        if (rank != comm->rank)
            (void)zoff_comm_message_queue_send(m->queue, rank, &header); /* later calls report a transport that fails */
    }
    return ZOFF_OK;
}

/* ---- one operation ---- */

static operation *operation_of(const zoff_comm_work *work)
{
    return &port_of(work)->operations[work->call.stream][work->number % DEPTH];
}

static uint64_t started_by(const zoff_comm_work *work, unsigned rank)
{
    return port_of(work)->members[rank].started[work->call.stream];
}

static bool is_done(const operation *o)
{
    return o->arrived == o->memory->members && o->moving == 0 && o->has_own;
}

/* End all operations; each one returns the error when it is polled. The first reason stays, with one exception: a reason sent
 * by another rank replaces a local one, because the other rank's failure came first and caused it. */
static void end_all(messages_comm *m, const char *words, bool is_told)
{
    if (!m->is_over || (is_told && !m->is_told))
        snprintf(m->over, sizeof m->over, "%s", words);
    m->is_over = true;
    m->is_told |= is_told;
}

/* End all operations if `status` is an error. */
static void take_note(messages_comm *m, zoff_status status)
{
    if (status < 0)
        end_all(m, zoff_last_error(), false);
}

/* Advance the lanes in `list`, and remove the finished ones from it. */
static zoff_status move_lanes(messages_comm *m, operation *o, uint32_t *list, unsigned *count)
{
    for (unsigned i = 0; i < *count;) {
        const zoff_status status = zoff_comm_message_queue_move(m->queue, &o->lanes[list[i]]);
        if (status < 0)
            return status;
        if (status == ZOFF_PENDING) {
            i++;
            continue;
        }
        o->moving--;
        list[i] = list[--*count];
    }
    return ZOFF_OK;
}

static void open_lane(operation *o, unsigned lane, uint32_t *list, unsigned *count)
{
    if (o->lanes[lane].is_open)
        return;
    o->lanes[lane].is_open = true;
    if (o->lanes[lane].left)
        list[(*count)++] = lane;
}

/* Handle the header of another rank that has started the same operation: compare it, and open the lanes to and from that rank.
 * No transfer starts here: all headers must be read first, because the rank may have given up since. */
static zoff_status meet(messages_comm *m, operation *o, const zoff_comm_header *header)
{
    const zoff_comm *comm = &m->comm;
    const unsigned other = header->from, members = o->memory->members;
    const zoff_comm_theirs theirs = {.kind = (zoff_comm_kind)header->kind,
                                     .item = header->item,
                                     .root = header->root,
                                     .first = header->first,
                                     .stride = header->stride,
                                     .members = header->members,
                                     .count = header->count,
                                     .result_bytes = header->result_bytes,
                                     .sends = header->sends,
                                     .expects = header->expects};
    ZOFF_TRY(zoff_comm_call_compare(comm, o->work, other, &theirs));
    const unsigned at = zoff_comm_call_index(&o->work->call, other);
    if (header->data_bytes)
        memcpy(o->lanes[at].at, header->data, header->data_bytes);
    o->arrived++;
    o->work->arrived = o->arrived == members;
    o->lanes[at].tag = (int)header->tag;
    open_lane(o, members + at, o->open, &o->sending);
    open_lane(o, at, o->open + members, &o->receiving);
    return ZOFF_OK;
}

/* Set up the lanes: where the bytes from and to each member are. Small pieces travel in headers, so their lanes have nothing to
 * transfer. Reserve the headers: when the first one is sent the operation has begun, and an error would end the group. */
static zoff_status lay_lanes(messages_comm *m, operation *o)
{
    const zoff_comm_work *work = o->work;
    const zoff_comm_call *call = &work->call;
    const unsigned members = o->memory->members, me = m->comm.rank;
    bool sends_large = false;
    size_t most = 0; /* data of a header */
    const bool scatters = call->kind == ZOFF_COMM_EXCHANGE;
    const bool in_place = call->kind == ZOFF_COMM_SUM || call->kind == ZOFF_COMM_BROADCAST;
    char *to = call->kind == ZOFF_COMM_SUM ? work->scratch : call->out;
    char *from = in_place ? call->out : (char *)(uintptr_t)call->in;
    for (unsigned i = 0; i < 2 * members; i++) {
        const unsigned peer = zoff_comm_call_member(call, i % members);
        const bool sends = i >= members;
        const size_t bytes = sends ? zoff_comm_call_sends(call, me, peer) : zoff_comm_call_expects(call, peer, me);
        char **at = sends ? &from : &to;
        zoff_comm_lane *lane = &o->lanes[i];
        const bool is_large = peer != me && zoff_comm_call_messages(bytes, m->comm.message_bytes) != 0;
        *lane = (zoff_comm_lane){.at = *at, .left = is_large ? bytes : 0, .sends = sends, .peer = peer};
        if (sends && peer != me && !is_large)
            most = zoff_base_bits_max(most, bytes);
        o->moving += is_large;
        sends_large |= is_large && sends;
        if (bytes && (sends ? scatters : !in_place || call->kind == ZOFF_COMM_SUM))
            *at += bytes;
    }
    ZOFF_TRY(zoff_comm_message_queue_reserve(m->queue, members - 1, most));
    if (!sends_large)
        return ZOFF_OK;
    o->tag = take_tag(m);
    ZOFF_FAIL_IF(!o->tag, ZOFF_ERR_STATE, "rank %u: at most %d operations can send at a time, and all are in use", me,
                 ZOFF_COMM_TAGS - 1);
    for (unsigned i = members; i < 2 * members; i++)
        o->lanes[i].tag = o->tag;
    return ZOFF_OK;
}

/* `i`: the index of the member. */
static zoff_status tell_member(messages_comm *m, operation *o, unsigned i)
{
    const zoff_comm_work *work = o->work;
    const zoff_comm_call *call = &work->call;
    const unsigned at = o->memory->members + i, other = zoff_comm_call_member(call, i);
    const zoff_comm_lane *lane = &o->lanes[at];
    zoff_comm_header header; /* `data` is large, so it is not zeroed */
    memset(&header, 0, offsetof(zoff_comm_header, data));
    header.says = ZOFF_COMM_CALLS;
    header.kind = (uint16_t)call->kind;
    header.stream = (uint16_t)call->stream;
    header.root = call->root;
    header.first = call->first;
    header.stride = call->stride;
    header.members = call->members;
    header.channel = call->channel->id;
    header.tag = (uint32_t)o->tag;
    header.item = call->item;
    header.number = work->number;
    header.count = call->count;
    header.result_bytes = work->result_bytes;
    header.sends = zoff_comm_call_sends(call, m->comm.rank, other);
    header.expects = zoff_comm_call_expects(call, other, m->comm.rank);
    header.data_bytes = lane->left ? 0 : header.sends;
    if (header.data_bytes)
        memcpy(header.data, lane->at, header.data_bytes);
    ZOFF_TRY(zoff_comm_message_queue_send(m->queue, other, &header));
    if (m->is_local) /* the send can be cancelled, so it need not wait for permission */
        open_lane(o, at, o->open, &o->sending);
    return ZOFF_OK;
}

/* Copy the piece that this rank sends to itself. */
static zoff_status take_own(const messages_comm *m, const operation *o)
{
    const zoff_comm_work *work = o->work;
    const zoff_comm_call *call = &work->call;
    const unsigned me = m->comm.rank;
    const size_t bytes = zoff_comm_call_sends(call, me, me), expected = zoff_comm_call_expects(call, me, me);
    if (call->kind != ZOFF_COMM_EXCHANGE && call->kind != ZOFF_COMM_GATHER)
        return ZOFF_OK;
    ZOFF_FAIL_IF(bytes != expected, ZOFF_ERR_COMM, "%s: rank %u sends %zu bytes to itself, but expects %zu",
                 zoff_comm_call_name(&m->comm, work), me, bytes, expected);
    const unsigned at = zoff_comm_call_index(call, me);
    const char *from = o->lanes[o->memory->members + at].at;
    char *to = o->lanes[at].at;
    if (bytes && from != to)
        memcpy(to, from, bytes);
    return ZOFF_OK;
}

/* Send headers to all other members, beginning with the next one, so that not all ranks send to the first one first. */
static zoff_status tell_all(messages_comm *m, operation *o)
{
    const unsigned members = o->memory->members, me = zoff_comm_call_index(&o->work->call, m->comm.rank);
    for (unsigned i = 1; i < members; i++)
        ZOFF_TRY(tell_member(m, o, (me + i) % members));
    return ZOFF_OK;
}

/* ---- headers of other ranks ---- */

static void leave(messages_comm *m, unsigned rank)
{
    m->left += !m->has_left[rank];
    m->has_left[rank] = true;
}

/* Handle a header that belongs to a channel. */
static zoff_status hear_of_channel(messages_comm *m, const zoff_comm_header *header)
{
    zoff_comm_port *port;
    ZOFF_TRY(find_port(m, header, &port));
    if (!port)
        return ZOFF_OK;
    if (header->says == ZOFF_COMM_CLOSES) {
        port->closed += !port->members[header->from].has_closed;
        port->members[header->from].has_closed = true;
        return ZOFF_OK;
    }
    port->members[header->from].started[header->stream] = header->number;
    m->comm.book->theirs[header->from].waits_for = 0;
    if (m->comm.is_broken)
        return ZOFF_OK;
    operation *o = &port->operations[header->stream][header->number % DEPTH];
    return o->work && o->work->number == header->number ? meet(m, o, header) : keep_header(port, header);
}

static void hear_visits(messages_comm *m, const zoff_comm_header *header)
{
    zoff_comm_visit visits[ZOFF_COMM_VISITS_TOLD];
    if (header->count > ZOFF_COMM_VISITS_TOLD || header->data_bytes != header->count * sizeof *visits)
        return; /* malformed: ignore them, because no operation depends on visits */
    m->comm.book->theirs[header->from].waits_for = header->root <= m->comm.size ? header->root : 0;
    if (header->root && !header->count)
        return; /* without visits, because it waits in no call, and not because it computes */
    memcpy(visits, header->data, header->data_bytes);
    zoff_comm_heard(&m->comm, header->from, visits, (unsigned)header->count);
}

static zoff_status hear(messages_comm *m, const zoff_comm_header *header)
{
    char words[1024];
    switch ((zoff_comm_says)header->says) {
    case ZOFF_COMM_LEAVES:
        leave(m, header->from);
        return ZOFF_OK;
    case ZOFF_COMM_GIVES_UP:
        leave(m, header->from);
        snprintf(words, sizeof words, "%.*s", (int)header->data_bytes, header->data);
        end_all(m, words, true);
        return ZOFF_OK;
    case ZOFF_COMM_WAITS:
        hear_visits(m, header);
        return ZOFF_OK;
    case ZOFF_COMM_CALLS:
    case ZOFF_COMM_CLOSES:
        break;
    }
    return hear_of_channel(m, header);
}

/* Handle the headers that other ranks sent about a channel before this rank joined it. A header of an operation that this rank
 * has not started keeps its memory, because a rank without memory must not end the group here. */
static void messages_join(zoff_comm *comm, zoff_comm_channel *channel)
{
    messages_comm *m = (messages_comm *)comm;
    for (zoff_comm_early *one = join_port(comm, channel), *next; one; one = next) {
        next = one->next;
        const zoff_status status = hear(m, &one->header);
        if (status == ZOFF_ERR_NO_MEMORY) {
            put_header(channel->port, one);
            continue;
        }
        take_note(m, status);
        zoff_base_mem_free(one);
    }
}

/* A header that cannot be stored for lack of memory is taken again by the next poll. Another rank has begun the operation, so
 * an error here would end the group. */
static void hear_all(messages_comm *m)
{
    const zoff_comm_header *header;
    zoff_status status;
    while ((status = zoff_comm_message_queue_take(m->queue, &header)) == ZOFF_OK) {
        status = hear(m, header);
        if (status == ZOFF_ERR_NO_MEMORY)
            return zoff_comm_message_queue_untake(m->queue);
        take_note(m, status);
    }
    take_note(m, status);
}

/* Advance an operation. Sends start before receives: the network may move a whole piece inside of the call that matches a send
 * with its receive. If every rank sends first, their transfers run at the same time. For the same reason this rank copies its
 * own piece last. */
static zoff_status go_on(messages_comm *m, operation *o)
{
    ZOFF_TRY(move_lanes(m, o, o->open, &o->sending));
    ZOFF_TRY(move_lanes(m, o, o->open + o->memory->members, &o->receiving));
    if (o->has_own || !o->work->arrived)
        return ZOFF_OK;
    o->has_own = true;
    return take_own(m, o);
}

/* Advance all operations in flight. */
static void progress(messages_comm *m)
{
    hear_all(m);
    for (operation *o = m->in_flight; o && !m->is_over; o = o->next)
        take_note(m, go_on(m, o));
    take_note(m, zoff_comm_message_queue_flush(m->queue));
}

/* ---- the table ---- */

/* Keep the memory of an operation that is over for another, so that most operations start without an allocation. */
static void free_operation(messages_comm *m, operation *o)
{
    if (o->memory) {
        o->memory->next = m->spare;
        m->spare = o->memory;
    }
    *o = (operation){.work = NULL};
}

static zoff_status reserve(messages_comm *m, zoff_comm_work *work, operation *o)
{
    const unsigned members = zoff_comm_call_members(&m->comm, &work->call);
    const size_t of_member = 2 * (sizeof *o->lanes + sizeof *o->open);
    zoff_comm_lanes **spare = &m->spare;
    while (*spare && (*spare)->members != members)
        spare = &(*spare)->next;
    o->memory = *spare;
    if (o->memory)
        *spare = o->memory->next;
    else
        ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *o->memory + members * of_member, "an operation over ranks", &o->memory));
    o->memory->members = members;
    o->lanes = o->memory->all;
    o->open = (uint32_t *)(void *)(o->lanes + 2 * (size_t)members);
    if (work->call.kind == ZOFF_COMM_SUM)
        ZOFF_TRY(zoff_base_mem_alloc(members * work->call.count, sizeof(double), "a sum over the ranks", &work->scratch));
    o->work = work;
    return lay_lanes(m, o);
}

static zoff_status messages_start(zoff_comm *comm, zoff_comm_work *work)
{
    messages_comm *m = (messages_comm *)comm;
    operation *o = operation_of(work);
    ZOFF_FAIL_IF(o->work, ZOFF_ERR_STATE, "rank %u: operation %llu is not done yet, and at most %d newer ones may be in flight",
                 comm->rank, (unsigned long long)o->work->number, DEPTH - 1);
    *o = (operation){.arrived = 1};
    zoff_status status = reserve(m, work, o);
    if (status < 0) {
        zoff_base_mem_free(work->scratch);
        work->scratch = NULL;
        free_operation(m, o);
        return status;
    }
    work->arrived = o->memory->members == 1;
    o->next = m->in_flight;
    if (o->next)
        o->next->before = o;
    m->in_flight = o;
    /* The operation has begun. From here on its poll returns errors. */
    status = tell_all(m, o);
    zoff_comm_early *early = take_headers(work);
    for (const zoff_comm_early *one = early; one && status >= 0; one = one->next)
        status = meet(m, o, &one->header);
    free_headers(early);
    take_note(m, status);
    progress(m);
    return ZOFF_OK;
}

/* Add up a sum. Row r of the scratch has the numbers of rank r; this rank's own numbers are in `out`, where the sum goes. */
static void add_up(const zoff_comm *comm, const zoff_comm_work *work)
{
    const size_t count = work->call.count;
    const double *rows = work->scratch;
    double *out = work->call.out;
    for (size_t i = 0; i < count; i++) {
        double sum = 0;
        for (unsigned rank = 0; rank < comm->size; rank++) {
            const double x = rank == comm->rank ? out[i] : rows[rank * count + i];
            sum = rank ? sum + x : x;
        }
        out[i] = sum;
    }
}

/* Remove an operation from the list. `holds`: the network still uses its memory, so leak it. */
static void forget(messages_comm *m, operation *o, bool holds)
{
    *(o->before ? &o->before->next : &m->in_flight) = o->next;
    if (o->next)
        o->next->before = o->before;
    if (o->tag)
        m->tags[o->tag] = holds;
    if (holds) {
        o->work->scratch = NULL;
        o->memory = NULL;
    }
    free_operation(m, o);
}

/* Return an error if `rank` has not started the operation and never will. */
static zoff_status look_for(const messages_comm *m, const zoff_comm_work *work, unsigned rank)
{
    char whose[160];
    const unsigned me = m->comm.rank;
    if (rank == me || started_by(work, rank) >= work->number)
        return ZOFF_OK;
    ZOFF_FAIL_IF(m->has_left[rank], ZOFF_ERR_COMM, "rank %u: %s cannot be done: rank %u has left the group", me,
                 zoff_comm_call_name(&m->comm, work), rank);
    if (!port_of(work)->members[rank].has_closed)
        return ZOFF_OK;
    zoff_comm_names_channel(&m->comm, work->call.channel->id, whose, sizeof whose);
    return zoff_base_status_fail(ZOFF_ERR_COMM, "rank %u: %s cannot be done: rank %u has destroyed %s, or failed to seal it",
                                 me, zoff_comm_call_name(&m->comm, work), rank, whose);
}

static zoff_status messages_poll(zoff_comm *comm, zoff_comm_work *work)
{
    messages_comm *m = (messages_comm *)comm;
    operation *o = operation_of(work);
    progress(m);
    /* A complete operation succeeds, even if the communicator has failed since. */
    if (is_done(o)) {
        if (work->call.kind == ZOFF_COMM_SUM)
            add_up(comm, work);
        forget(m, o, false);
        return ZOFF_OK;
    }
    ZOFF_FAIL_IF(m->is_over, ZOFF_ERR_COMM, "%s", m->over);
    const bool may_miss = (m->left || port_of(work)->closed) && !work->arrived;
    for (unsigned i = 0; may_miss && i < o->memory->members; i++)
        ZOFF_TRY(look_for(m, work, zoff_comm_call_member(&work->call, i)));
    return ZOFF_PENDING;
}

static zoff_status messages_open_groups(zoff_comm *comm, unsigned members)
{
    return ZOFF_OK;
}

static bool messages_has_arrived(zoff_comm *comm, const zoff_comm_work *work, unsigned rank)
{
    if (!work->arrived)
        return started_by(work, rank) >= work->number;
    const operation *o = operation_of(work);
    if (o->work != work)
        return true; /* the operation is over */
    const zoff_comm_lane *from = &o->lanes[zoff_comm_call_index(&work->call, rank)], *to = from + o->memory->members;
    return !from->left && !from->flying && !to->left && !to->flying;
}

/* ---- the end ---- */

static void tell_the_end(messages_comm *m, zoff_comm_says says, const char *words)
{
    zoff_comm_header header;
    memset(&header, 0, offsetof(zoff_comm_header, data));
    header.says = says;
    header.data_bytes = zoff_base_bits_min(strlen(words), sizeof header.data);
    memcpy(header.data, words, header.data_bytes);
    zoff_comm_message_queue_say(m->queue, &header);
}

/* End the transfers of an operation that is given up. Another rank that has started it may be sending until its header says
 * that it has given up. Until then this rank keeps receiving, so that the sender's memory becomes free as well. Afterwards it
 * cancels the receives whose messages have not arrived. If sends can be cancelled, every rank frees its own memory so, and none
 * has to receive for another. Returns whether a transfer is still in flight. */
static bool recall(messages_comm *m, operation *o, bool is_late)
{
    const zoff_comm_work *work = o->work;
    bool holds = false;
    for (unsigned i = 0; i < 2 * o->memory->members; i++) {
        zoff_comm_lane *lane = &o->lanes[i];
        const bool may_come = !lane->sends && !is_late && !m->is_local && started_by(work, lane->peer) >= work->number;
        lane->is_open = may_come;
        if (!may_come)
            lane->left = 0;
        if (lane->sends ? m->is_local : !may_come || m->has_left[lane->peer])
            zoff_comm_message_queue_cancel(m->queue, lane);
        holds |= zoff_comm_message_queue_move(m->queue, lane) != ZOFF_OK;
    }
    return holds;
}

static void messages_give_up(zoff_comm *comm, const char *words)
{
    messages_comm *m = (messages_comm *)comm;
    zoff_saved_error saved;
    zoff_base_status_save(&saved); /* errors from cleanup must not replace the caller's error */
    comm->is_broken = true;
    end_all(m, words, true);
    tell_the_end(m, ZOFF_COMM_GIVES_UP, words);
    const double until = zoff_base_clock_seconds() + m->patience_seconds;
    while (m->in_flight) {
        operation *o = m->in_flight;
        const bool is_late = !m->is_local && zoff_base_clock_seconds() > until;
        hear_all(m);
        const bool holds = recall(m, o, is_late);
        if (holds && !is_late) {
            sched_yield();
            continue;
        }
        comm->holds_memory |= holds;
        if (!holds) {
            zoff_base_mem_free(o->work->scratch);
            o->work->scratch = NULL;
        }
        o->work->active = false;
        o->work->outcome = ZOFF_ERR_COMM;
        forget(m, o, holds);
    }
    zoff_base_status_restore(&saved);
}

/* PENDING until all other ranks have left. They may close later than this rank, and until then their headers need a receiver.
 */
static zoff_status hear_the_end(messages_comm *m)
{
    progress(m);
    if (m->is_over)
        return zoff_base_status_fail(ZOFF_ERR_COMM, "%s", m->over);
    for (unsigned rank = 0; rank < m->comm.size; rank++) {
        if (rank != m->comm.rank && !m->has_left[rank])
            return ZOFF_PENDING;
    }
    return ZOFF_OK;
}

static void free_all(messages_comm *m)
{
    if (m->comm.common.port)
        close_channel(&m->comm, &m->comm.common);
    free_headers(m->unknown);
    for (zoff_comm_lanes *spare; (spare = m->spare);) {
        m->spare = spare->next;
        zoff_base_mem_free(spare);
    }
    zoff_base_mem_free(m->has_left);
    zoff_base_mem_free(m);
}

static void messages_close(zoff_comm *comm)
{
    messages_comm *m = (messages_comm *)comm;
    zoff_status status = ZOFF_ERR_COMM;
    if (m->in_flight) {
        char words[768];
        snprintf(words, sizeof words, "rank %u has left the group with an operation in flight: %s", comm->rank,
                 zoff_comm_call_name(comm, m->in_flight->work));
        messages_give_up(comm, words);
    } else if (!m->is_over) {
        tell_the_end(m, ZOFF_COMM_LEAVES, "");
        const double until = zoff_base_clock_seconds() + m->close_seconds;
        while ((status = hear_the_end(m)) == ZOFF_PENDING && zoff_base_clock_seconds() < until)
            sched_yield();
    }
    zoff_comm_message_queue_close(m->queue, status == ZOFF_OK);
    free_all(m);
}

zoff_status zoff_comm_messages_open(const zoff_comm_opts *opts, const zoff_comm_transport *transport, bool is_local,
                                    zoff_comm **out)
{
    zoff_status status;
    messages_comm *m;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *m, "a communicator", &m));
    m->comm = (zoff_comm){.ops = &OPS,
                          .rank = transport->rank,
                          .size = transport->size,
                          .timeout_seconds = opts->timeout_seconds,
                          .one_thread = !transport->any_thread,
                          .node = transport->node_ranks,
                          .message_bytes = transport->most_bytes ? transport->most_bytes : MESSAGE_BYTES};
    m->comm.info.backend = transport->name;
    m->is_local = is_local;
    m->close_seconds = transport->close_seconds;
    const bool is_hasty = opts->timeout_seconds >= 0 && opts->timeout_seconds < PATIENCE_SECONDS;
    m->patience_seconds = is_hasty ? opts->timeout_seconds : PATIENCE_SECONDS;
    m->unknown_end = &m->unknown;
    ZOFF_TRY_OR(free_comm, zoff_base_mem_alloc(transport->size, sizeof *m->has_left, "a communicator", &m->has_left));
    ZOFF_TRY_OR(free_comm, open_next_channel(&m->comm, &m->comm.common));
    ZOFF_TRY_OR(free_comm, zoff_comm_prepare(&m->comm));
    messages_join(&m->comm, &m->comm.common);
    ZOFF_TRY_OR(free_comm, zoff_comm_message_queue_open(transport, m->comm.message_bytes, is_local, &m->queue));
    *out = &m->comm;
    return ZOFF_OK;
free_comm:
    zoff_comm_forget(m->comm.book);
    free_all(m);
    return status;
}

static const zoff_comm_ops OPS = {.close = messages_close,
                                  .start = messages_start,
                                  .poll = messages_poll,
                                  .has_arrived = messages_has_arrived,
                                  .open_channel = open_next_channel,
                                  .join_channel = messages_join,
                                  .close_channel = close_channel,
                                  .tell = tell_visits,
                                  .open_groups = messages_open_groups,
                                  .give_up = messages_give_up};
