/* SPDX-License-Identifier: Apache-2.0 */
/* book_priv.h: the records of a communicator: the engines that use it, and the calls in which the program waits for other
 * ranks. One lock guards all of it. */
#ifndef ZOFF_COMM_BOOK_PRIV_H
#define ZOFF_COMM_BOOK_PRIV_H

#include "comm.h"

#include <pthread.h>

enum { ZOFF_COMM_VISITS = 256 }; /* this rank remembers its last 256 calls */

typedef enum zoff_comm_told { ZOFF_COMM_TOLD_NOBODY, ZOFF_COMM_TOLD_GROUP, ZOFF_COMM_TOLD_ALL } zoff_comm_told;

/* The last report of a rank. */
struct told {
    unsigned count;
    unsigned waits_for; /* the rank, plus 1, for which an operation of its group has waited long; 0: none */
    zoff_comm_visit visits[ZOFF_COMM_VISITS_TOLD];
};

typedef struct zoff_comm_book {
    pthread_mutex_t lock;
    zoff_comm_channel *come; /* channels that are registered but not open, in order of registration */
    zoff_comm_channel *open;
    unsigned open_count;
    uint64_t births, slots;                   /* registrations so far; one bit for each slot in use */
    uint32_t last;                            /* last id that was given out */
    zoff_comm_visit visits[ZOFF_COMM_VISITS]; /* ring of the last calls, indexed by number */
    uint64_t done;                            /* number of the last call that counted */
    unsigned depth;                           /* nesting depth of calls; 0: the program is in none */
    double since;                             /* start time of the current call, in seconds */
    zoff_comm_told told;                      /* ranks that this rank has told of the current call */
    bool has_unseen;                          /* there may be new reports to compare */
    double failed;        /* time at which the call was first seen to have failed on one of two ranks only; 0: never */
    uint64_t chain;       /* checksum over all calls that counted */
    double worked;        /* time at which this rank has told last that it computes */
    uint64_t works_heard; /* such messages of other ranks */
    struct told *theirs;  /* last report of each rank */
} zoff_comm_book;

#endif
