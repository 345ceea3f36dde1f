/* messages_priv.h: what messages.c and mailbox.c share: the operations of a rank over messages, and what others have told. */
#ifndef ZOFF_COMM_MESSAGES_PRIV_H
#define ZOFF_COMM_MESSAGES_PRIV_H

#include "message_queue_priv.h"

/* A rank has at most DEPTH operations of a stream in flight, and so may be that many ahead of another, which may have as many
 * that are not done: numbers differ by less than AHEAD. */
enum { ZOFF_COMM_DEPTH = 64, ZOFF_COMM_AHEAD = 2 * ZOFF_COMM_DEPTH };

typedef struct zoff_comm_operation {
    zoff_comm_work *work;  /* NULL: none */
    unsigned arrived;      /* ranks that have started it, too, with this one */
    unsigned moving;       /* lanes with something left to do */
    bool has_own;          /* this rank's own piece is copied */
    int tag;               /* of all that it sends; 0: nothing goes but in headers */
    zoff_comm_lane *lanes; /* from rank 0, 1, ..., then to rank 0, 1, ... */
    uint32_t *open;        /* lanes that may move and are not done: those that send, and `size` further on those that receive */
    unsigned sending, receiving;
    struct zoff_comm_operation *next, *before; /* in flight */
} zoff_comm_operation;

/* A header of an operation that this rank has not started. */
typedef struct zoff_comm_early {
    struct zoff_comm_early *next;
    zoff_comm_header header; /* as far as it has data */
} zoff_comm_early;

/* A channel. */
typedef struct zoff_comm_port {
    zoff_comm_operation operations[ZOFF_COMM_STREAMS][ZOFF_COMM_DEPTH]; /* by number */
    zoff_comm_early *early[ZOFF_COMM_STREAMS][ZOFF_COMM_AHEAD];         /* likewise, of any rank */
    struct {
        uint64_t started[ZOFF_COMM_STREAMS];
        bool has_closed;
    } * members;     /* by rank */
    unsigned closed; /* how many ranks have */
    bool is_joined;
} zoff_comm_port;

typedef struct zoff_comm_messages {
    zoff_comm comm;
    zoff_comm_message_queue *queue;
    zoff_comm_operation *in_flight;
    zoff_comm_early *unknown, **unknown_end; /* of channels that this rank has not joined yet; the oldest first */
    uint32_t last_channel;                   /* that it has joined */
    bool tags[ZOFF_COMM_TAGS];               /* in use, of what is sent; 0 is that of headers */
    unsigned last_tag;
    double close_seconds, patience_seconds;
    bool is_over; /* nothing will go on, for the reason in `over` */
    bool is_told; /* by another rank, or to the others */
    char over[1024];
    bool *has_left; /* by rank */
    unsigned left;  /* how many have */
} zoff_comm_messages;

static inline zoff_comm_port *zoff_comm_port_of(const zoff_comm_work *work)
{
    return (zoff_comm_port *)work->call.channel->port; /* the cast is for tests in C++ */
}

/* mailbox.c: channels, and headers that come before their operation */
zoff_status zoff_comm_mailbox_open(zoff_comm *comm, zoff_comm_channel *channel);
/* @return what others have told of it before, the oldest first: the caller's to hear and to free */
zoff_comm_early *zoff_comm_mailbox_join(zoff_comm *comm, zoff_comm_channel *channel);
void zoff_comm_mailbox_close(zoff_comm *comm, zoff_comm_channel *channel);
zoff_status zoff_comm_mailbox_tell(zoff_comm *comm, const zoff_comm_visit *visits, unsigned count);
/* Keep a header of an operation of a joined channel. */
zoff_status zoff_comm_mailbox_keep(zoff_comm_port *port, const zoff_comm_header *header);
/* Take out those of an operation, a list. */
zoff_comm_early *zoff_comm_mailbox_take(const zoff_comm_work *work);
/* A header of a channel: its port; NULL where it was kept, or there is no use for it any more. */
zoff_status zoff_comm_mailbox_find(zoff_comm_messages *m, const zoff_comm_header *header, zoff_comm_port **out);
void zoff_comm_mailbox_free(zoff_comm_early *list);
/* A tag for what an operation sends: one that was not in use for long.  @return 0: there is none */
int zoff_comm_mailbox_tag(zoff_comm_messages *m);

#endif
