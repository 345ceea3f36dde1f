/* agreement_priv.h: what ranks must have alike, and decide together; part of engine_priv.h. */
#ifndef ZOFF_AGREEMENT_PRIV_H
#define ZOFF_AGREEMENT_PRIV_H

#include "comm.h"
#include "offload.h"
#include "transfer.h"

#include <zoff/engine.h>

/* How far a rank is that opens its store, and what it has found there. */
typedef struct zoff_standing {
    uint32_t phase;
    bool has_failed;
    zoff_store_found found;
} zoff_standing;

/* See together.c. */
typedef struct zoff_together {
    zoff_comm_work work; /* the round */
    double began;
    zoff_standing own, *all; /* all: by rank, of the last round */
    size_t *each;
    bool is_open, behind; /* some rank is not as far as this one */
    bool over;            /* a rank has failed, and every rank knows */
    unsigned failed;      /* that one */
} zoff_together;

/* What ranks compare; all of it is empty where a rank is alone. */
typedef struct zoff_agreement {
    uint64_t *bits;       /* a bit a slice, in words of 64, of each rank */
    size_t *bits_bytes;   /* the same for all */
    uint64_t *step_terms; /* of the step, in words: this rank's, and room for those of two ranks */
    zoff_together together;
} zoff_agreement;

/* identity.c: who an engine is to other ranks, and in which of its calls the program waits */
void zoff_engine_identity_come(zoff_engine *e);
void zoff_engine_identity_leave(zoff_engine *e);
void zoff_engine_identity_add(zoff_engine *e, const char *name, size_t count); /* a parameter */
/* All ranks seal the same engine: from here on it has a channel.  @blocks until all have come */
zoff_status zoff_engine_identity_open(zoff_engine *e);
void zoff_engine_identity_close(zoff_engine *e); /* when nothing of it is in flight */
/* A call that waits for other ranks, from behind its checks to its end: what fails does not count, and is tried again. */
void zoff_engine_identity_enter(zoff_engine *e, unsigned call, zoff_comm_item item);
zoff_status zoff_engine_identity_exit(zoff_engine *e, zoff_status status);

/* consensus.c */
/* `bytes` of each rank to all; this rank's are in their place.  @blocks until all have come */
zoff_status zoff_engine_consensus_gather(zoff_engine *e, void *all, size_t bytes);
/* Every rank calls it with what has become of its work: when one has failed, all have. */
zoff_status zoff_engine_consensus_success(zoff_engine *e, zoff_status own);

/* presence.c */
zoff_status zoff_engine_presence_open(zoff_engine *e); /* reserve memory for the slices of several ranks */
void zoff_engine_presence_close(zoff_engine *e);
/* `words` of each of `ranks`, one rank after the other: those of rank 0 become the union of all. */
void zoff_engine_presence_join(uint64_t *bits, size_t words, unsigned ranks);
zoff_status zoff_engine_presence_agree(void *ctx, zoff_bucket_run *run); /* a row: slices that have a gradient on any rank */

/* together.c: at seal, on every rank: open the stores.  @blocks until all have */
zoff_status zoff_engine_together_open(zoff_engine *e); /* reserve memory */
zoff_status zoff_engine_together_run(zoff_engine *e, zoff_status (*open)(zoff_engine *e));
void zoff_engine_together_close(zoff_engine *e);
/* For zoff_store_opts. */
zoff_status zoff_engine_together_decide(void *ctx, const zoff_store_found *found, uint64_t *out_generation);
zoff_status zoff_engine_together_written(void *ctx);
void zoff_engine_together_pulse(void *ctx);

/* first_weights.c: at seal. @blocks */
zoff_status zoff_engine_first_weights_send(zoff_engine *e); /* the program's weights become those of rank 0 */
zoff_status
zoff_engine_first_weights_compare(zoff_engine *e); /* of what the engine keeps, unless states of an earlier process are there */

#endif
