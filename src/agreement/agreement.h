/* agreement.h: checks that ranks agree, and makes their common decisions: at seal, before each step, when stores are opened.
 * All ranks call each function, in the same order. A single rank always agrees with itself. */
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

/* The progress of a rank that opens its store, and the states that it found there. Between engines with one norm: those that
 * its engine has chosen. */
typedef struct zoff_standing {
    uint32_t phase;
    bool has_failed, was_canceled;
    zoff_store_found found;
} zoff_standing;

/* See open.c. */
typedef struct zoff_open_barrier {
    zoff_comm *comm;            /* the ranks that meet; NULL: this rank meets nobody */
    zoff_comm_channel *channel; /* of the rounds; NULL: the communicator's own */
    const char *whose;          /* " of zoff_engine_opts.norm_comm", or "" */
    zoff_comm_work work;        /* the current round */
    double began;
    zoff_standing own, *all; /* this rank's; and by rank, those of the last round */
    size_t *each;
    bool is_open, behind; /* behind: some rank is in an earlier phase than this one */
    bool over;            /* a rank has failed, and every rank knows */
    unsigned failed;      /* the rank that failed */
    bool was_canceled;    /* by its program */
} zoff_open_barrier;

/* See presence.c. */
typedef struct zoff_presence {
    uint64_t *bits;     /* one bit per slice, in words of 64, for each rank in turn */
    size_t *bits_bytes; /* by rank; the same value for all */
    zoff_comm_work work;
    bool asked, agreed; /* in this step */
} zoff_presence;

enum { ZOFF_CONSENSUS_NUMBERS = 5 };

/* Memory for one value of each rank, allocated before any message: a rank that fails to allocate must not leave others
 * waiting. */
typedef struct zoff_consensus {
    int *results;
    size_t *each;
    uint64_t *numbers; /* ZOFF_CONSENSUS_NUMBERS of each rank */
} zoff_consensus;

/* Numbers of a step that engines with one norm must have alike. */
enum { ZOFF_NORM_T, ZOFF_NORM_CLIP, ZOFF_NORM_SCALE, ZOFF_NORM_LOOKS, ZOFF_NORM_TERMS };

/* The vote of the ranks of one engine, or of all engines that share a norm. */
typedef struct zoff_norm_part {
    zoff_exact squares;            /* of gradients as they were summed, before any scaling */
    double terms[ZOFF_NORM_TERMS]; /* SCALE is 0 in an engine that trains nothing */
    int32_t status;                /* an error: this engine does not take the step */
    bool is_poisoned;              /* a gradient is not finite; `why` names it */
    bool stop_requested;
    uint32_t rank;     /* joined: the first rank of norm_comm whose part is poisoned */
    uint64_t replicas; /* joined: 0 where the gradients of replicated parameters are equal in all engines */
    char why[512];
} zoff_norm_part;

/* See norm.c. */
typedef struct zoff_norm_ranks {
    zoff_comm *comm; /* zoff_engine_opts.norm_comm; NULL: the norm is that of this engine */
    zoff_comm_channel channel;
    zoff_norm_part *parts; /* by rank of `comm`, as the following */
    uint64_t *counts;      /* of replicated parameters, times 2; plus 1 with zoff.persist */
    int32_t *results;
    size_t *bytes;
    /* Checksums of the names of replicated parameters, by rank: `most` for each, ascending, UINT64_MAX where there are fewer.
     * The lowest bit says whether the parameter has states of its own there: a tied one does not. */
    uint64_t *names;
    size_t most;
    zoff_comm_work work;
    zoff_open_barrier barrier; /* stores of all engines are opened side by side, too */
    bool is_open;              /* the channel */
    bool is_over;              /* some rank has failed in seal, and all know */
} zoff_norm_ranks;

/* The owner sets the fields up to and including `transfer` before any call; they are borrowed. All other fields start as
 * zero. */
typedef struct zoff_agreement {
    zoff_model *model;
    const zoff_plan *plan;
    zoff_comm *comm;
    zoff_comm_channel *channel;
    zoff_transfer *transfer;
    zoff_consensus consensus;
    zoff_presence presence;
    uint64_t *step_terms; /* words that describe the step: this rank's, followed by room for those of two ranks */
    zoff_open_barrier barrier;
    zoff_norm_ranks norm;
} zoff_agreement;

/* A list of named items that all ranks must have the same. It is built as words, whose checksums are compared. If checksums
 * differ it is built again as text, so that an error can name the item and its values. */
typedef struct zoff_facts {
    bool as_text;
    char *text; /* "name\0value\0name\0value\0" */
    size_t text_bytes, text_capacity;
    uint64_t *words;
    size_t word_count, word_capacity;
} zoff_facts;

typedef zoff_status (*zoff_facts_list)(const void *ctx, zoff_facts *out);

/* consensus.c */
/* Allocate memory for the functions below, once the communicator is known; a second call does nothing.  @return
 * ERR_NO_MEMORY */
zoff_status zoff_agreement_consensus_open(zoff_agreement *a);
void zoff_agreement_consensus_close(zoff_agreement *a);
/* Send `bytes` of each rank to all; this rank's are already at their place in `all`.  @blocks until all have arrived */
zoff_status zoff_agreement_consensus_gather(zoff_agreement *a, void *all, size_t bytes);
/* Replace `count` bytes by those of rank 0.  @blocks until they have arrived */
zoff_status zoff_agreement_consensus_share(zoff_agreement *a, void *bytes, size_t count);
/* Replace each number by the least of all ranks; at most ZOFF_CONSENSUS_NUMBERS.  @blocks until all have arrived */
zoff_status zoff_agreement_consensus_least(zoff_agreement *a, uint64_t *numbers, size_t count);
/* Call on every rank with the result of its own work. Returns an error on every rank if any rank failed.  @blocks until all
 * have called it */
zoff_status zoff_agreement_consensus_success(zoff_agreement *a, zoff_status own);

/* facts.c */
/* Compare a list between all ranks. `call` begins the message of an error, and `advice` ends it.  @blocks until all have called
 * it  @return ERR_INVALID on every rank if two differ; the message names items, values and ranks */
zoff_status zoff_agreement_facts_compare(zoff_agreement *a, zoff_facts_list list, const void *ctx, const char *call,
                                         const char *advice);
/* Append an item: its value, and its name as a format. */
zoff_status zoff_agreement_facts_add_text(zoff_facts *f, const char *value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
zoff_status zoff_agreement_facts_add_count(zoff_facts *f, uint64_t value, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The hyper-parameters of a group as words, one for each field of zoff_optimizer_hyper. */
size_t zoff_agreement_facts_hyper_count(void);
void zoff_agreement_facts_hyper_words(const zoff_optimizer_hyper *h, uint64_t *out);
/* Write a value as text.  @return the name of field number `field` */
const char *zoff_agreement_facts_hyper_print(size_t field, uint64_t word, char *dst, size_t dst_bytes);
/* Print the ranks for which `is_one` is true, as "rank 1" or "ranks 1, 2 and 4". */
void zoff_agreement_facts_print_ranks(unsigned ranks, bool (*is_one)(const void *ctx, unsigned rank), const void *ctx,
                                      char *dst, size_t dst_bytes);

/* listed.c: lists that ranks compare at seal. Each function returns ERR_INVALID on every rank if two differ.  @blocks until all
 * have called it */
typedef struct zoff_listed_settings {
    const char *keys; /* zoff_config_agree_list() */
    size_t key_bytes;
    bool states_in_files;
    uint64_t chunk_elements;
    int64_t persist_t;
} zoff_listed_settings;

/* Configuration, options, parameters and groups. */
zoff_status zoff_agreement_listed_compare_settings(zoff_agreement *a, const zoff_listed_settings *settings);
/* The plan that each rank has made from them. */
zoff_status zoff_agreement_listed_compare_plan(zoff_agreement *a);
/* The initial weights of engine-owned parameters. */
zoff_status zoff_agreement_listed_compare_weights(zoff_agreement *a);

/* terms.c: the inputs of a step's update other than gradients and states */
typedef struct zoff_step_terms {
    int64_t t;
    double clip_norm, grad_scale, loss_scale;
    unsigned flags;
    double weight;                     /* sum over all micro-batches of all ranks; 0 where nothing is trained */
    const zoff_optimizer_hyper *hyper; /* per group, after the schedule */
    uint64_t norm_sum;                 /* checksum of zoff_step_args.norm_sum; 0: none */
} zoff_step_terms;

zoff_status zoff_agreement_terms_open(zoff_agreement *a);
void zoff_agreement_terms_close(zoff_agreement *a);
/* Store the terms of this rank.  @return their checksum, which is sent with the vote */
uint64_t zoff_agreement_terms_digest(zoff_agreement *a, const zoff_step_terms *step);
/* Call when all votes have arrived, by rank. If their checksums differ, exchange the words and name the differences.  @blocks
 * only then  @return ERR_INVALID on every rank */
zoff_status zoff_agreement_terms_compare(zoff_agreement *a, const zoff_vote *votes);

/* norm.c: one norm over engines that train parts of one model */
/* Take the communicator, NULL for none, and allocate all memory, so that seal does not fail for want of it.  @return
 * ERR_INVALID for one that cannot serve */
zoff_status zoff_agreement_norm_take(zoff_agreement *a, zoff_comm *comm);
void zoff_agreement_norm_free(zoff_agreement *a);
/* The part of the model that this engine trains, from 1; 0: there are no other parts. The same on all ranks of the engine. */
unsigned zoff_agreement_norm_part(const zoff_agreement *a);
/* At seal: find which replicated parameters count on this rank.  @blocks until all ranks of norm_comm have called it */
zoff_status zoff_agreement_norm_open(zoff_agreement *a);
void zoff_agreement_norm_close(zoff_agreement *a); /* call when none of its operations is in flight */
/* At seal: all engines go on, or none does: like zoff_agreement_consensus_success(), over norm_comm. Nothing where there is
 * none.  @blocks until all of its ranks have called it */
zoff_status zoff_agreement_norm_success(zoff_agreement *a, zoff_status own);
/* Seal has failed on all ranks of this engine: tell those of the other engines, unless they know. The error is kept. */
void zoff_agreement_norm_fail(zoff_agreement *a, zoff_status own);
/* Like zoff_agreement_consensus_gather(), over norm_comm. */
zoff_status zoff_agreement_norm_gather(zoff_agreement *a, void *all, size_t bytes);
/* The checksum of a name, without its lowest bit. */
uint64_t zoff_agreement_norm_name(const char *name);
/* The entry of a name in the list of a rank; NULL: the rank does not have the parameter. */
const uint64_t *zoff_agreement_norm_find(const zoff_norm_ranks *n, unsigned rank, uint64_t name);
/* Send what this engine has voted. The same on all ranks of the engine. */
zoff_status zoff_agreement_norm_ask(zoff_agreement *a, const zoff_norm_part *own);
/* Join the parts of all.  @return PENDING: not all have arrived; ERR_COMM where one has an error; ERR_INVALID if their terms
 * differ */
zoff_status zoff_agreement_norm_poll(zoff_agreement *a, zoff_norm_part *out);
zoff_status zoff_agreement_norm_finish(zoff_agreement *a); /* for a step that is dropped  @blocks until it has ended */
void zoff_agreement_norm_abandon(zoff_agreement *a);

/* alike.c: what the program has declared equal on several ranks */
/* Set the sums of the vote. */
void zoff_agreement_alike_tell(const zoff_agreement *a, zoff_vote *vote);
/* All votes of the engine have arrived: compare the copies of gradients that the trainer has reduced.  @blocks only if they
 * differ  @return ERR_INVALID on every rank, with the parameter */
zoff_status zoff_agreement_alike_compare(zoff_agreement *a, const zoff_vote *votes);
/* The joined part says that gradients of replicated parameters differ.  @return ERR_INVALID on every rank, with a parameter
 * @blocks for all ranks of all engines */
zoff_status zoff_agreement_alike_explain(zoff_agreement *a);
/* At seal, unless states are opened again: compare the first weights of engine-owned parameters between the ranks of the
 * engine, and those of replicated parameters between engines. Counts as zoff_agreement_norm_success().  @blocks for all ranks
 * of norm_comm  @return ERR_INVALID */
zoff_status zoff_agreement_alike_first_weights(zoff_agreement *a);

/* norm_sum.c: the norm of engines whose sums the program joins */
/* The content of a zoff_norm_sum. */
typedef struct zoff_norm_record {
    uint32_t mark; /* of this version */
    uint32_t is_poisoned;
    int64_t t;
    double scale;      /* ZOFF_NORM_SCALE */
    uint64_t holds[8]; /* a Bloom filter of the measurements that were joined */
    zoff_exact squares;
} zoff_norm_record;

/* Note in a record that it is the measurement of this engine with this number: the same on all its ranks. */
void zoff_agreement_norm_sum_name(const zoff_agreement *a, uint64_t number, zoff_norm_record *record);
void zoff_agreement_norm_sum_write(const zoff_norm_record *record, zoff_norm_sum *out);
/* @return ERR_INVALID for bytes that are no sum; `call` begins the message */
zoff_status zoff_agreement_norm_sum_read(const char *call, const zoff_norm_sum *sum, zoff_norm_record *out);
/* Read a joined sum for a step that was measured as `own`.  @return ERR_INVALID for one of another step, or without `own`. With
 * 16 engines one of 5,000 sums without it passes, because the filter is small. */
zoff_status zoff_agreement_norm_sum_take(const zoff_norm_sum *sum, const zoff_norm_record *own, zoff_norm_record *out);

/* presence.c: the slices that take part in a step */
zoff_status zoff_agreement_presence_open(zoff_agreement *a);
void zoff_agreement_presence_close(zoff_agreement *a);
void zoff_agreement_presence_begin(zoff_agreement *a); /* begin a step */
/* Find the slices that have a gradient on any rank, and flag them PRESENT.  @return PENDING: not all ranks have answered */
zoff_status zoff_agreement_presence_poll(zoff_agreement *a);
uint64_t zoff_agreement_presence_elements(const zoff_agreement *a); /* elements that this rank updates in the step */
/* `bits`: `words` words of each of `ranks`, one rank after the other. Those of rank 0 become the union of all. */
void zoff_agreement_presence_join(uint64_t *bits, size_t words, unsigned ranks);

/* hosts.c */
/* Check that all ranks on this rank's host fit into its memory together. Call it before any of them allocates. `need_bytes`:
 * bytes that this rank needs; `advice`: how it can need less.  @return ERR_NO_MEMORY on every rank  @blocks until all have
 * called it */
zoff_status zoff_agreement_hosts_check(zoff_agreement *a, uint64_t need_bytes, const char *advice);

/* open.c: at seal, on every rank: open the stores side by side */
zoff_status zoff_agreement_open_allocate(zoff_agreement *a);
void zoff_agreement_open_free(zoff_agreement *a);
void zoff_agreement_open_begin(zoff_agreement *a);
/* All stores of this rank are open, or one has failed with `own`.  @return on every rank an error, if any rank has failed
 * @blocks until all are open, or know it */
zoff_status zoff_agreement_open_end(zoff_agreement *a, zoff_status own);
/* Open the store of the states. With persist all ranks continue with one commit. *out is set after an error, too: close it.
 * @blocks for all ranks of all engines with one norm */
zoff_status zoff_agreement_open_store(zoff_agreement *a, const zoff_store_opts *opts, zoff_store **out);
/* The rest of it, for a store that was found.  @blocks until it is filled, and with persist for all ranks */
zoff_status zoff_agreement_open_fill(zoff_agreement *a, zoff_store *store, const zoff_store_opts *opts);
/* Choose the commit to continue with.  @param wanted_t continue after this step; 0: after the last  @return ERR_INVALID if the
 * files do not have it */
zoff_status zoff_agreement_open_decide(zoff_agreement *a, const zoff_store_found *found, int64_t wanted_t,
                                       uint64_t *out_generation);
double zoff_agreement_open_pause(const zoff_comm *comm); /* seconds between two rounds of a rank that works */
/* Tell other ranks that this one is at work. Nothing after the opening.  @return the error of a rank that has failed, if this
 * one knows of it */
zoff_status zoff_agreement_open_pulse(zoff_agreement *a);

/* first_weights.c: at seal, replace the program's weights on every rank by those of rank 0.  @blocks until all have arrived */
zoff_status zoff_agreement_first_weights_send(zoff_agreement *a);

/* identity.c: tells other ranks which engine this is, and in which of its calls the program waits */
void zoff_agreement_identity_come(zoff_agreement *a);
void zoff_agreement_identity_leave(zoff_agreement *a);
void zoff_agreement_identity_add(zoff_agreement *a, const char *name, size_t count); /* add a parameter to the identity */
/* All ranks seal the same engine: open its channel.  @blocks until all have called it */
zoff_status zoff_agreement_identity_open(zoff_agreement *a);
void zoff_agreement_identity_close(zoff_agreement *a); /* call when none of its operations is in flight */
/* Mark the begin and the end of a call that waits for other ranks, after its arguments are checked. A call that fails is not
 * counted, because the program repeats it. */
void zoff_agreement_identity_enter(zoff_agreement *a, unsigned call, zoff_comm_item item);
zoff_status zoff_agreement_identity_exit(zoff_agreement *a, zoff_status status);

#endif
