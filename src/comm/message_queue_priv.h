/* SPDX-License-Identifier: Apache-2.0 */
/* message_queue_priv.h: headers and lanes, with which messages.c implements operations. A header is a small control message.
 * The queue copies it into its own memory, so sending one never waits. A lane moves the bytes of one operation between this
 * rank and one peer, in one direction. */
#ifndef ZOFF_COMM_MESSAGE_QUEUE_PRIV_H
#define ZOFF_COMM_MESSAGE_QUEUE_PRIV_H

#include "comm.h"

typedef enum zoff_comm_says {
    ZOFF_COMM_CALLS,    /* the sender has started an operation */
    ZOFF_COMM_LEAVES,   /* the sender closes its communicator */
    ZOFF_COMM_GIVES_UP, /* the sender's communicator is broken; `data` has the reason */
    ZOFF_COMM_CLOSES,   /* the sender closes a channel */
    /* The sender waits: `count` zoff_comm_visit in `data`; `root`, unless 0: for the rank `root` - 1. */
    ZOFF_COMM_WAITS,
} zoff_comm_says;

enum { ZOFF_COMM_HEADER_BYTES = 2048, ZOFF_COMM_HEADER_TAG = 0, ZOFF_COMM_TAGS = 1024 };

/* The control message. A piece that fits into `data` is sent inside of the header of its operation. */
typedef struct zoff_comm_header {
    uint32_t magic, from, says;
    uint16_t kind, stream;
    uint32_t root, channel, tag;     /* tag: that of a piece which is sent as a message of its own */
    uint32_t first, stride, members; /* ranks of the group */
    uint64_t number, count, result_bytes;
    uint64_t sends, expects; /* bytes that the sender sends to the receiver, and expects from it */
    uint64_t data_bytes;
    zoff_comm_item item;
    char data[ZOFF_COMM_HEADER_DATA];
} zoff_comm_header;

typedef struct zoff_comm_request {
    void *handle;
    bool busy;
    bool is_cancelled;
} zoff_comm_request;

/* A transfer between this rank and `peer`, in one direction. The lane cuts it into messages of at most
 * zoff_comm.message_bytes, with at most two in flight. */
typedef struct zoff_comm_lane {
    char *at;     /* the bytes not passed to the transport yet */
    size_t left;  /* number of those bytes */
    bool is_open; /* the transfer may begin */
    bool sends;   /* false: receives */
    unsigned peer;
    int tag;
    unsigned first, flying;      /* oldest message in flight, and number of them */
    zoff_comm_request flight[2]; /* ring of the messages in flight */
} zoff_comm_lane;

typedef struct zoff_comm_message_queue zoff_comm_message_queue;

/* Post receives for the headers of all ranks. `most_bytes`: of a message. On success the queue owns the transport; on an error
 * the caller keeps it. `is_local`: the transport is that of threads.c, which can cancel sends, and fails only for lack of
 * memory. Then the queue tries again when it is polled. */
zoff_status zoff_comm_message_queue_open(const zoff_comm_transport *transport, size_t most_bytes, bool is_local,
                                         zoff_comm_message_queue **out);

/* Make sure that the next `count` headers with up to `data_bytes` of data can be sent without an allocation. */
zoff_status zoff_comm_message_queue_reserve(zoff_comm_message_queue *c, unsigned count, size_t data_bytes);

/* Send a copy of a header, with `data_bytes` of its data, to one rank. */
zoff_status zoff_comm_message_queue_send(zoff_comm_message_queue *c, unsigned to, const zoff_comm_header *header);

/* Send a header to all other ranks. A failed send is ignored here, because the transport reports it in later calls. */
void zoff_comm_message_queue_say(zoff_comm_message_queue *c, const zoff_comm_header *header);

/* Take the next header that has arrived. It is valid until the next call.  @return PENDING if there is none */
zoff_status zoff_comm_message_queue_take(zoff_comm_message_queue *c, const zoff_comm_header **out);
/* Give back the header that was taken last. The next call takes it again. */
void zoff_comm_message_queue_untake(zoff_comm_message_queue *c);

/* Recycle the memory of headers that were sent.  @return PENDING while sends of headers are in flight */
zoff_status zoff_comm_message_queue_flush(zoff_comm_message_queue *c);

/* Advance a lane without waiting.  @return PENDING until all of its bytes have moved */
zoff_status zoff_comm_message_queue_move(zoff_comm_message_queue *c, zoff_comm_lane *lane);

/* Cancel the messages of a lane that are in flight: receives, or sends if the transport can. Poll
 * zoff_comm_message_queue_move() to learn when they have ended. */
void zoff_comm_message_queue_cancel(zoff_comm_message_queue *c, zoff_comm_lane *lane);

/* Cancel the receives and close the transport. `clean`: no lane has messages in flight, and no rank will send any more. */
void zoff_comm_message_queue_close(zoff_comm_message_queue *c, bool clean);

#endif
