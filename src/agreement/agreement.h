/* agreement.h: the door of the room in which ranks compare what they must have alike, and decide together: at seal, before each
 * step, when stores are opened. Each function is called by all ranks, in the same order. One rank alone agrees with itself. */
#ifndef ZOFF_AGREEMENT_H
#define ZOFF_AGREEMENT_H

#include "comm.h"
#include "mem.h"
#include "offload.h"
#include "transfer.h"
#include "words.h"
#include "zero.h"
#include "zoff_model.h"

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

/* See presence.c. */
typedef struct zoff_presence {
    uint64_t *bits;     /* a bit a slice, in words of 64, of each rank */
    size_t *bits_bytes; /* the same for all */
    zoff_comm_work work;
    bool asked, agreed; /* in this step */
} zoff_presence;

/* Room for a word of each rank, reserved before any message: a rank without memory must not leave the others waiting. */
typedef struct zoff_consensus {
    int *results;
    size_t *each;
} zoff_consensus;

/* The owner sets the fields up to `transfer` before any call; they are borrowed. All else starts as zero. */
typedef struct zoff_agreement {
    zoff_model *model;
    const zoff_plan *plan;
    zoff_comm *comm;
    zoff_comm_channel *channel;
    zoff_transfer *transfer;
    zoff_consensus consensus;
    zoff_presence presence;
    uint64_t *step_terms; /* of the step, in words: this rank's, and room for those of two ranks */
    zoff_together together;
} zoff_agreement;

/* A list of what ranks must have alike, each item with its name. It is built twice: as words, of which a checksum is compared;
 * and, where checksums differ, as text, so that an error can name the item and its values. */
typedef struct zoff_facts {
    bool as_text;
    char *text; /* "name\0value\0name\0value\0" */
    size_t text_bytes, text_capacity;
    uint64_t *words;
    size_t word_count, word_capacity;
} zoff_facts;

typedef zoff_status (*zoff_facts_list)(const void *ctx, zoff_facts *out);

/* consensus.c */
/* Reserve memory for what follows, once the communicator is known; a second call does nothing.  @return ERR_NO_MEMORY */
zoff_status zoff_agreement_consensus_open(zoff_agreement *a);
void zoff_agreement_consensus_close(zoff_agreement *a);
/* `bytes` of each rank to all; this rank's are in their place.  @blocks until all have come */
zoff_status zoff_agreement_consensus_gather(zoff_agreement *a, void *all, size_t bytes);
/* Every rank calls it with the result of its own work: when one has failed, all have.  @blocks until all have come */
zoff_status zoff_agreement_consensus_success(zoff_agreement *a, zoff_status own);

/* facts.c */
/* Compare a list between all ranks.  @blocks until all have come
 * @return ERR_INVALID on every rank where two differ: it names items, values and ranks. `call` and `advice` begin and end it */
zoff_status zoff_agreement_facts_compare(zoff_agreement *a, zoff_facts_list list, const void *ctx, const char *call,
                                         const char *advice);
/* Append an item: a name by format, and a value. */
zoff_status zoff_agreement_facts_add_text(zoff_facts *f, const char *value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
zoff_status zoff_agreement_facts_add_count(zoff_facts *f, uint64_t value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The hyper-parameters of a group, by the names of zoff_optimizer_hyper. One word each. */
size_t zoff_agreement_facts_hyper_count(void);
void zoff_agreement_facts_hyper_words(const zoff_optimizer_hyper *h, uint64_t *out);
/* Write a value as text; return the name of field number `field`. */
const char *zoff_agreement_facts_hyper_print(size_t field, uint64_t word, char *dst, size_t dst_bytes);
/* Ranks that fulfil `is_one`, as "rank 1" or "ranks 1, 2 and 4". */
void zoff_agreement_facts_print_ranks(unsigned ranks, bool (*is_one)(const void *ctx, unsigned rank), const void *ctx,
                                      char *dst, size_t dst_bytes);

/* listed.c: what ranks compare at seal. Each returns ERR_INVALID on every rank where two differ.  @blocks until all have come
 */
typedef struct zoff_listed_settings {
    const char *keys; /* zoff_config_agree_list() */
    size_t key_bytes;
    bool states_in_files;
    uint64_t chunk_elements;
} zoff_listed_settings;

/* Configuration, options, parameters and groups. */
zoff_status zoff_agreement_listed_compare_settings(zoff_agreement *a, const zoff_listed_settings *settings);
/* The plan that each rank has made of them. */
zoff_status zoff_agreement_listed_compare_plan(zoff_agreement *a);
/* The first weights of parameters that are engine_owned. */
zoff_status zoff_agreement_listed_compare_weights(zoff_agreement *a);

/* terms.c: what the update of a step uses beside gradients and states */
typedef struct zoff_step_terms {
    int64_t t;
    double clip_norm, grad_scale, loss_scale;
    unsigned flags;
    double weight;                     /* of all micro-batches on all ranks; 0 where nothing is trained */
    const zoff_optimizer_hyper *hyper; /* per group, after the schedule */
} zoff_step_terms;

zoff_status zoff_agreement_terms_open(zoff_agreement *a);
void zoff_agreement_terms_close(zoff_agreement *a);
/* Keep the terms of this rank, and return their checksum: it rides in the vote. */
uint64_t zoff_agreement_terms_digest(zoff_agreement *a, const zoff_step_terms *step);
/* All votes are there, by rank: where their checksums differ, exchange the words and name the differences.
 * @blocks then  @return ERR_INVALID on every rank */
zoff_status zoff_agreement_terms_compare(zoff_agreement *a, const zoff_vote *votes);

/* presence.c: the slices that take part in a step */
zoff_status zoff_agreement_presence_open(zoff_agreement *a);
void zoff_agreement_presence_close(zoff_agreement *a);
void zoff_agreement_presence_begin(zoff_agreement *a); /* a step */
/* Find the slices that have a gradient on any rank: they are flagged PRESENT.  @return PENDING: not all ranks have answered */
zoff_status zoff_agreement_presence_poll(zoff_agreement *a);
uint64_t zoff_agreement_presence_elements(const zoff_agreement *a); /* of this rank that take part */
/* `words` of each of `ranks`, one rank after the other: those of rank 0 become the union of all. */
void zoff_agreement_presence_join(uint64_t *bits, size_t words, unsigned ranks);

/* hosts.c */
/* Whether all ranks of this one's host fit into its memory together; asked before any of them allocates. `need_bytes`: of this
 * rank; `advice`: how it can need less.  @return ERR_NO_MEMORY on every rank  @blocks until all have come */
zoff_status zoff_agreement_hosts_check(zoff_agreement *a, uint64_t need_bytes, const char *advice);

/* together.c: at seal, on every rank: open the stores */
zoff_status zoff_agreement_together_open(zoff_agreement *a);                                           /* reserve memory */
zoff_status zoff_agreement_together_run(zoff_agreement *a, zoff_status (*open)(void *ctx), void *ctx); /* @blocks yes */
void zoff_agreement_together_close(zoff_agreement *a);
/* For zoff_store_opts. */
zoff_status zoff_agreement_together_decide(zoff_agreement *a, const zoff_store_found *found, uint64_t *out_generation);
zoff_status zoff_agreement_together_written(zoff_agreement *a);
void zoff_agreement_together_pulse(zoff_agreement *a);

/* first_weights.c: at seal, the program's weights become those of rank 0.  @blocks until all have come */
zoff_status zoff_agreement_first_weights_send(zoff_agreement *a);

/* identity.c: who an engine is to other ranks, and in which of its calls the program waits */
void zoff_agreement_identity_come(zoff_agreement *a);
void zoff_agreement_identity_leave(zoff_agreement *a);
void zoff_agreement_identity_add(zoff_agreement *a, const char *name, size_t count); /* a parameter */
/* All ranks seal the same engine: from here on it has a channel.  @blocks until all have come */
zoff_status zoff_agreement_identity_open(zoff_agreement *a);
void zoff_agreement_identity_close(zoff_agreement *a); /* when nothing of it is in flight */
/* A call that waits for other ranks, from behind its checks to its end. One that fails does not count, and is tried again. */
void zoff_agreement_identity_enter(zoff_agreement *a, unsigned call, zoff_comm_item item);
zoff_status zoff_agreement_identity_exit(zoff_agreement *a, zoff_status status);

#endif
