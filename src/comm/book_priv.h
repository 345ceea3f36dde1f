/* book_priv.h: what a communicator remembers of its users and of the calls in which the program waits for other ranks; one lock
 * for all of it. */
#ifndef ZOFF_COMM_BOOK_PRIV_H
#define ZOFF_COMM_BOOK_PRIV_H

#include "comm.h"

#include <pthread.h>

enum { ZOFF_COMM_VISITS = 256 }; /* of this rank, that are remembered */

typedef struct zoff_comm_book {
    pthread_mutex_t lock;
    zoff_comm_channel *come; /* without a channel yet */
    zoff_comm_channel *open;
    unsigned open_count;
    uint64_t births, slots;                   /* a bit for each slot in use */
    uint32_t last;                            /* id */
    zoff_comm_visit visits[ZOFF_COMM_VISITS]; /* by number */
    uint64_t done;                            /* number of the last call that counted */
    unsigned depth;                           /* 0: the program is in no call that waits */
    double since;
    bool is_told;    /* that call, to the others */
    bool has_unseen; /* there may be something to compare */
    double failed;   /* when this call was first seen to have failed on one of two ranks only; 0: it was not */
    uint64_t chain;  /* checksum of all calls that counted */
    struct told {
        unsigned count;
        zoff_comm_visit visits[ZOFF_COMM_VISITS_TOLD];
    } * theirs; /* by rank: what it has told last */
} zoff_comm_book;

#endif
