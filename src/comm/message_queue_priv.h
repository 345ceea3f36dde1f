/* message_queue_priv.h: what messages.c carries its operations with: headers, which are small and come from memory of the
 * queue, so that nobody waits for them; and lanes, which move the bytes of an operation between this rank and another. */
#ifndef ZOFF_COMM_MESSAGE_QUEUE_PRIV_H
#define ZOFF_COMM_MESSAGE_QUEUE_PRIV_H

#include "comm.h"

typedef enum zoff_comm_says {
    ZOFF_COMM_CALLS,    /* has started an operation */
    ZOFF_COMM_LEAVES,   /* closes */
    ZOFF_COMM_GIVES_UP, /* and why, in `data` */
    ZOFF_COMM_CLOSES,   /* a channel */
    ZOFF_COMM_WAITS,    /* the program: `count` zoff_comm_visit in `data` */
} zoff_comm_says;

enum { ZOFF_COMM_HEADER_BYTES = 2048, ZOFF_COMM_TAGS = 1024 };

/* Pieces that fit into `data` come with the call itself. */
typedef struct zoff_comm_header {
    uint32_t magic, from, says;
    uint32_t kind, stream, root, channel, tag; /* tag: of the pieces that do not come with it */
    uint64_t number, count, result_bytes;
    uint64_t sends, expects; /* for the reader, of the reader */
    uint64_t data_bytes;
    zoff_comm_item item;
    char data[ZOFF_COMM_HEADER_BYTES - 104];
} zoff_comm_header;

typedef struct zoff_comm_request {
    void *handle;
    bool busy;
    bool is_cancelled;
} zoff_comm_request;

/* Bytes between this rank and `peer`, one way, as messages of at most `most_bytes`, few of them in flight. */
typedef struct zoff_comm_lane {
    char *at;     /* what was not handed over yet */
    size_t left;  /* bytes of that */
    bool is_open; /* may begin */
    bool sends;
    unsigned peer;
    int tag;
    unsigned first, flying; /* of `flight`, a ring */
    zoff_comm_request flight[2];
} zoff_comm_lane;

typedef struct zoff_comm_message_queue zoff_comm_message_queue;

/* Listen to all ranks. The transport is the queue's until it is closed; on an error it stays the caller's. */
zoff_status zoff_comm_message_queue_open(const zoff_comm_transport *transport, zoff_comm_message_queue **out);

/* Send the first bytes of a header, copied, to one rank. */
zoff_status zoff_comm_message_queue_send(zoff_comm_message_queue *c, unsigned to, const zoff_comm_header *header);

/* Likewise to all others; what fails shows later. */
void zoff_comm_message_queue_say(zoff_comm_message_queue *c, const zoff_comm_header *header);

/* The next header that has come, valid until the next call; PENDING when there is none. */
zoff_status zoff_comm_message_queue_take(zoff_comm_message_queue *c, const zoff_comm_header **out);

/* PENDING while headers are on their way out. */
zoff_status zoff_comm_message_queue_flush(zoff_comm_message_queue *c);

/* Go on with a lane; PENDING until all of it is moved. */
zoff_status zoff_comm_message_queue_move(zoff_comm_message_queue *c, zoff_comm_lane *lane);

/* Call back the receives of a lane that are in flight and that nothing has come for. Going on tells when that is over. */
void zoff_comm_message_queue_cancel(zoff_comm_message_queue *c, zoff_comm_lane *lane);

/* Stop listening and close the transport. `clean`: no lane holds anything and no rank will send anything more. */
void zoff_comm_message_queue_close(zoff_comm_message_queue *c, bool clean);

#endif
