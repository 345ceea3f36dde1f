/* messages_priv.h: the data that messages.c and mailbox.c share: this rank's operations, and the headers of other ranks. */
#ifndef ZOFF_COMM_MESSAGES_PRIV_H
#define ZOFF_COMM_MESSAGES_PRIV_H

#include "message_queue_priv.h"

/* A rank has at most DEPTH operations of a stream in flight. So another rank's newest operation can be up to DEPTH ahead of
 * this rank's newest, which in turn can be DEPTH ahead of this rank's oldest. Numbers in use therefore differ by less than
 * AHEAD. */
enum { ZOFF_COMM_DEPTH = 64, ZOFF_COMM_AHEAD = 2 * ZOFF_COMM_DEPTH };

/* The memory of an operation that depends on the number of ranks. */
typedef struct zoff_comm_lanes {
    struct zoff_comm_lanes *next; /* next in the list of spare structs */
    zoff_comm_lane all[];         /* followed by zoff_comm_operation.open */
} zoff_comm_lanes;

typedef struct zoff_comm_operation {
    zoff_comm_work *work; /* NULL: the entry is free */
    unsigned arrived;     /* ranks that have started the operation, including this one */
    unsigned moving;      /* lanes that are not finished */
    bool has_own;         /* this rank's own piece has been copied */
    int tag;              /* tag of all its messages; 0: all pieces to send fit into headers */
    zoff_comm_lanes *memory;
    zoff_comm_lane *lanes;                     /* receives from rank 0, 1, ..., then sends to rank 0, 1, ... */
    uint32_t *open;                            /* indices of open, unfinished lanes: sends from [0], receives from [size] */
    unsigned sending, receiving;               /* number of each in `open` */
    struct zoff_comm_operation *next, *before; /* list of operations in flight */
} zoff_comm_operation;

/* A stored header of an operation that this rank has not started yet. */
typedef struct zoff_comm_early {
    struct zoff_comm_early *next;
    zoff_comm_header header; /* header, allocated only up to the end of its data */
} zoff_comm_early;

/* The data of a channel. */
typedef struct zoff_comm_port {
    zoff_comm_operation operations[ZOFF_COMM_STREAMS][ZOFF_COMM_DEPTH]; /* operations by number, modulo DEPTH */
    zoff_comm_early *early[ZOFF_COMM_STREAMS][ZOFF_COMM_AHEAD];         /* headers by number, modulo AHEAD; lists over ranks */
    struct {
        uint64_t started[ZOFF_COMM_STREAMS]; /* number of the last operation that the rank has started */
        bool has_closed;
    } * members;     /* state of each rank in the channel */
    unsigned closed; /* number of ranks that have closed the channel */
    bool is_joined;
} zoff_comm_port;

typedef struct zoff_comm_messages {
    zoff_comm comm;
    zoff_comm_message_queue *queue;
    zoff_comm_operation *in_flight;
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
} zoff_comm_messages;

static inline zoff_comm_port *zoff_comm_port_of(const zoff_comm_work *work)
{
    return (zoff_comm_port *)work->call.channel->port; /* the cast is for tests in C++ */
}

/* mailbox.c: channels, headers that arrive before this rank starts the operation, and tags */
zoff_status zoff_comm_mailbox_open(zoff_comm *comm, zoff_comm_channel *channel);
/* Join a channel.  @return the headers that arrived for it earlier, oldest first. The caller handles and frees them */
zoff_comm_early *zoff_comm_mailbox_join(zoff_comm *comm, zoff_comm_channel *channel);
void zoff_comm_mailbox_close(zoff_comm *comm, zoff_comm_channel *channel);
zoff_status zoff_comm_mailbox_tell(zoff_comm *comm, const zoff_comm_call *call, const zoff_comm_visit *visits, unsigned count);
/* Store a header of an operation that this rank has not started, on a joined channel. */
zoff_status zoff_comm_mailbox_keep(zoff_comm_port *port, const zoff_comm_header *header);
void zoff_comm_mailbox_put(zoff_comm_port *port, zoff_comm_early *one); /* store a header, which the port then owns */
/* Remove and return the stored headers of an operation, as a list. */
zoff_comm_early *zoff_comm_mailbox_take(const zoff_comm_work *work);
/* Find the port that a header is for. NULL if the header was stored for a channel not joined yet, or is for a closed one. */
zoff_status zoff_comm_mailbox_find(zoff_comm_messages *m, const zoff_comm_header *header, zoff_comm_port **out);
void zoff_comm_mailbox_free(zoff_comm_early *list);
/* Reserve a free tag for the messages that an operation sends. Tags are given out in turns, so that none is reused soon.
 * @return 0: all are in use */
int zoff_comm_mailbox_tag(zoff_comm_messages *m);

#endif
