/* SPDX-License-Identifier: Apache-2.0 */
/* message_queue.c: headers and lanes over a transport. One ring of receives takes the headers of all ranks, so its size does
 * not depend on the number of ranks. Headers are read in ring order, which preserves the order in which each rank sent them. */
#include "message_queue_priv.h"

#include "bits.h"
#include "clock.h"
#include "mem.h"
#include "try.h"

#include <sched.h>
#include <stddef.h>
#include <string.h>

static const uint32_t MAGIC = 0x7a6f6634; /* "zof4": the format of a header */
static const double CLOSING_SECONDS = 1;  /* longest wait at close for sends in flight */

enum { RING = 32, HEAD_BYTES = offsetof(zoff_comm_header, data) };
_Static_assert(sizeof(zoff_comm_header) == ZOFF_COMM_HEADER_BYTES, "a header has no padding");
enum { FLIGHT = sizeof((zoff_comm_lane *)0)->flight / sizeof(zoff_comm_request) };

/* A header with its request. A letter to send has memory for the first `bytes` of the header only, because most headers have no
 * data. */
typedef struct letter {
    zoff_comm_request request;
    struct letter *next;
    unsigned to;
    size_t bytes;
    zoff_comm_header header;
} letter;

/* The two sizes of letters to send, in bytes of header. */
enum { SMALL_BYTES = 256, CLASSES = 2 };
static const size_t ROOM[CLASSES] = {SMALL_BYTES, sizeof(zoff_comm_header)};

struct zoff_comm_message_queue {
    zoff_comm_transport transport;
    bool is_local;
    letter ring[RING];
    unsigned next;                /* index in the ring of the next header to read */
    bool was_taken;               /* the caller has the header of this receive; the next take posts it again */
    letter *unsent, **unsent_end; /* letters not sent yet, oldest first, because the transport had no memory for the first */
    letter *outgoing, *spare[CLASSES];
};

static zoff_status fail(const zoff_comm_message_queue *c)
{
    const zoff_comm_transport *t = &c->transport;
    const char *words = t->error(t->ctx);
    return zoff_base_status_fail(ZOFF_ERR_COMM, "rank %u: %s failed: %s", t->rank, t->name,
                                 words ? words : "it gives no reason");
}

/* ---- requests ---- */

/* Note how a request has begun. `ret` is what the transport has returned. */
static zoff_status note_begin(const zoff_comm_message_queue *c, int ret, zoff_comm_request *r)
{
    if (ret < 0)
        return c->is_local ? ZOFF_ERR_NO_MEMORY : fail(c);
    r->busy = true;
    r->is_cancelled = false;
    return ZOFF_OK;
}

static zoff_status begin_receive(zoff_comm_message_queue *c, unsigned from, int tag, void *data, size_t bytes,
                                 zoff_comm_request *r)
{
    const zoff_comm_transport *t = &c->transport;
    return note_begin(c, t->receive(t->ctx, from, tag, data, bytes, &r->handle), r);
}

static zoff_status begin_send(zoff_comm_message_queue *c, unsigned to, int tag, const void *data, size_t bytes,
                              zoff_comm_request *r)
{
    const zoff_comm_transport *t = &c->transport;
    return note_begin(c, t->send(t->ctx, to, tag, data, bytes, &r->handle), r);
}

/* A message that did not begin for lack of memory begins later. */
static zoff_status or_later(zoff_status status)
{
    return status == ZOFF_ERR_NO_MEMORY ? ZOFF_PENDING : status;
}

static zoff_status look(zoff_comm_message_queue *c, zoff_comm_request *r)
{
    const zoff_comm_transport *t = &c->transport;
    if (!r->busy)
        return ZOFF_OK;
    const int ret = t->test(t->ctx, &r->handle);
    if (ret < 0)
        return fail(c);
    r->busy = ret == 0;
    return r->busy ? ZOFF_PENDING : ZOFF_OK;
}

/* ---- headers ---- */

static zoff_status start_listening(zoff_comm_message_queue *c, letter *l)
{
    return begin_receive(c, ZOFF_COMM_ANY_RANK, ZOFF_COMM_HEADER_TAG, &l->header, sizeof l->header, &l->request);
}

zoff_status zoff_comm_message_queue_take(zoff_comm_message_queue *c, const zoff_comm_header **out)
{
    if (c->transport.size == 1)
        return ZOFF_PENDING;
    zoff_status status = ZOFF_OK;
    if (c->was_taken) {
        status = or_later(start_listening(c, &c->ring[c->next]));
        if (status != ZOFF_OK)
            return status;
        c->was_taken = false;
        c->next = (c->next + 1) % RING;
    }
    letter *l = &c->ring[c->next];
    status = look(c, &l->request);
    if (status != ZOFF_OK)
        return status;
    const zoff_comm_header *n = &l->header;
    ZOFF_FAIL_IF(n->magic != MAGIC || n->from >= c->transport.size || n->data_bytes > sizeof n->data ||
                     n->says > ZOFF_COMM_WAITS || n->kind > ZOFF_COMM_BARRIER || n->stream >= ZOFF_COMM_STREAMS ||
                     n->tag >= ZOFF_COMM_TAGS,
                 ZOFF_ERR_COMM, "rank %u: a message is not from this version of zoff. All ranks must run the same version",
                 c->transport.rank);
    c->was_taken = true;
    *out = n;
    return ZOFF_OK;
}

void zoff_comm_message_queue_untake(zoff_comm_message_queue *c)
{
    c->was_taken = false;
}

static void push(letter **list, letter *l)
{
    l->next = *list;
    *list = l;
}

static void put_by(zoff_comm_message_queue *c, letter *l)
{
    push(&c->spare[l->bytes > SMALL_BYTES], l);
}

static zoff_status make_letter(zoff_comm_message_queue *c, unsigned class)
{
    letter *l;
    ZOFF_TRY(zoff_base_mem_alloc(1, offsetof(letter, header) + ROOM[class], "a message to another rank", &l));
    l->bytes = ROOM[class];
    put_by(c, l);
    return ZOFF_OK;
}

zoff_status zoff_comm_message_queue_reserve(zoff_comm_message_queue *c, unsigned count, size_t data_bytes)
{
    const unsigned class = HEAD_BYTES + data_bytes > SMALL_BYTES;
    for (unsigned have = class; have < CLASSES; have++) {
        for (const letter *l = c->spare[have]; l && count; l = l->next)
            count--;
    }
    while (count-- > 0)
        ZOFF_TRY(make_letter(c, class));
    return ZOFF_OK;
}

/* Take a spare letter with room for `bytes` of header, a large one if there is no small one, or make one. */
static zoff_status get_letter(zoff_comm_message_queue *c, size_t bytes, letter **out)
{
    unsigned class = bytes > SMALL_BYTES;
    if (!c->spare[class] && c->spare[CLASSES - 1])
        class = CLASSES - 1;
    if (!c->spare[class])
        ZOFF_TRY(make_letter(c, class));
    *out = c->spare[class];
    c->spare[class] = (*out)->next;
    return ZOFF_OK;
}

/* Pass a letter to the transport. */
static zoff_status post(zoff_comm_message_queue *c, letter *l)
{
    return or_later(begin_send(c, l->to, ZOFF_COMM_HEADER_TAG, &l->header, HEAD_BYTES + l->header.data_bytes, &l->request));
}

/* Post the letters in `unsent`. Move letters that were sent from `outgoing` to the spare ones. */
zoff_status zoff_comm_message_queue_flush(zoff_comm_message_queue *c)
{
    while (c->unsent) {
        letter *l = c->unsent;
        const zoff_status status = post(c, l);
        if (status < 0)
            return status;
        if (status == ZOFF_PENDING)
            break;
        c->unsent = l->next;
        push(&c->outgoing, l);
    }
    if (!c->unsent)
        c->unsent_end = &c->unsent;
    for (letter **at = &c->outgoing; *at;) {
        letter *l = *at;
        const zoff_status status = look(c, &l->request);
        if (status < 0)
            return status;
        if (status == ZOFF_OK) {
            *at = l->next;
            put_by(c, l);
        } else {
            at = &l->next;
        }
    }
    return c->outgoing || c->unsent ? ZOFF_PENDING : ZOFF_OK;
}

zoff_status zoff_comm_message_queue_send(zoff_comm_message_queue *c, unsigned to, const zoff_comm_header *header)
{
    const size_t bytes = HEAD_BYTES + header->data_bytes;
    letter *l;
    ZOFF_TRY(get_letter(c, bytes, &l));
    memcpy(&l->header, header, bytes);
    l->header.magic = MAGIC;
    l->header.from = c->transport.rank;
    l->to = to;
    const zoff_status status = c->unsent ? ZOFF_PENDING : post(c, l); /* headers keep their order */
    if (status < 0) {
        put_by(c, l);
    } else if (status == ZOFF_OK) {
        push(&c->outgoing, l);
    } else {
        l->next = NULL;
        *c->unsent_end = l;
        c->unsent_end = &l->next;
    }
    return status < 0 ? status : ZOFF_OK;
}

void zoff_comm_message_queue_say(zoff_comm_message_queue *c, const zoff_comm_header *header)
{
    for (unsigned rank = 0; rank < c->transport.size; rank++) {
        if (rank != c->transport.rank)
            (void)zoff_comm_message_queue_send(c, rank, header);
    }
}

/* ---- lanes ---- */

static zoff_status begin_next(zoff_comm_message_queue *c, zoff_comm_lane *lane)
{
    zoff_comm_request *r = &lane->flight[(lane->first + lane->flying) % FLIGHT];
    const size_t bytes = zoff_base_bits_min(lane->left, c->transport.most_bytes);
    ZOFF_TRY_DONE(or_later(lane->sends ? begin_send(c, lane->peer, lane->tag, lane->at, bytes, r)
                                       : begin_receive(c, lane->peer, lane->tag, lane->at, bytes, r)));
    lane->at += bytes;
    lane->left -= bytes;
    lane->flying++;
    return ZOFF_OK;
}

static zoff_status land(zoff_comm_message_queue *c, zoff_comm_lane *lane)
{
    while (lane->flying) {
        ZOFF_TRY_DONE(look(c, &lane->flight[lane->first]));
        lane->first = (lane->first + 1) % FLIGHT;
        lane->flying--;
    }
    return ZOFF_OK;
}

zoff_status zoff_comm_message_queue_move(zoff_comm_message_queue *c, zoff_comm_lane *lane)
{
    zoff_status status = land(c, lane);
    if (status < 0)
        return status;
    for (status = ZOFF_OK; status == ZOFF_OK && lane->is_open && lane->left && lane->flying < FLIGHT;)
        status = begin_next(c, lane);
    return status < 0 ? status : lane->left || lane->flying ? ZOFF_PENDING : ZOFF_OK;
}

void zoff_comm_message_queue_cancel(zoff_comm_message_queue *c, zoff_comm_lane *lane)
{
    const zoff_comm_transport *t = &c->transport;
    for (unsigned i = 0; i < lane->flying; i++) {
        zoff_comm_request *r = &lane->flight[(lane->first + i) % FLIGHT];
        if (!r->is_cancelled)
            (void)t->cancel(t->ctx, &r->handle);
        r->is_cancelled = true;
    }
}

/* ---- life ---- */

/* Cancel the receives for headers and wait for the sends. Returns whether the transport uses none of the queue's memory any
 * more. */
static bool hush(zoff_comm_message_queue *c)
{
    const zoff_comm_transport *t = &c->transport;
    for (unsigned i = 0; i < RING; i++) {
        if (c->ring[i].request.busy)
            (void)t->cancel(t->ctx, &c->ring[i].request.handle);
    }
    const double until = zoff_base_clock_seconds() + CLOSING_SECONDS;
    for (;;) {
        zoff_status status = zoff_comm_message_queue_flush(c);
        for (unsigned i = 0; i < RING && status >= 0; i++) {
            const zoff_status one = look(c, &c->ring[i].request);
            status = one == ZOFF_OK ? status : one;
        }
        if (status <= ZOFF_OK || zoff_base_clock_seconds() > until)
            return status == ZOFF_OK;
        sched_yield();
    }
}

static void free_letters(letter *l)
{
    while (l) {
        letter *next = l->next;
        zoff_base_mem_free(l);
        l = next;
    }
}

zoff_status zoff_comm_message_queue_open(const zoff_comm_transport *transport, size_t most_bytes, bool is_local,
                                         zoff_comm_message_queue **out)
{
    zoff_status status = ZOFF_OK;
    zoff_comm_message_queue *c;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *c, "the messages of a communicator", &c));
    c->transport = *transport;
    c->is_local = is_local;
    c->transport.most_bytes = most_bytes;
    c->unsent_end = &c->unsent;
    for (unsigned i = 0; i < RING && transport->size > 1; i++)
        ZOFF_TRY_OR(hush_all, start_listening(c, &c->ring[i]));
    *out = c;
    return ZOFF_OK;
hush_all:
    if (hush(c))
        zoff_base_mem_free(c);
    return status;
}

void zoff_comm_message_queue_close(zoff_comm_message_queue *c, bool clean)
{
    const bool is_quiet = hush(c);
    c->transport.close(c->transport.ctx, clean && is_quiet);
    for (unsigned class = 0; class < CLASSES; class ++)
        free_letters(c->spare[class]);
    if (!is_quiet)
        return; /* the network may still use the rest */
    free_letters(c->outgoing);
    zoff_base_mem_free(c);
}
