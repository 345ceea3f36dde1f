/* SPDX-License-Identifier: Apache-2.0 */
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

enum { ZOFF_VOTE_NUMBERS = 5 };

/* Ranks that decide together: those of an engine, or those of engines with one norm. */
typedef struct zoff_voters {
    zoff_comm *comm;
    zoff_comm_channel *channel;
    const char *whose; /* words behind the number of a rank in messages: "", or " of zoff_engine_opts.norm_comm" */
    uint64_t *words; /* the last vote of each rank: whether it failed, and its numbers. Allocated before any message, because a
                        rank that fails to allocate must not leave others waiting */
    zoff_comm_work work;
    bool is_over; /* a vote has failed, so all ranks know of an error */
} zoff_voters;

/* A list of named values that all ranks must have alike. The same function makes it as a checksum and, if checksums differ, as
 * text. */
typedef struct zoff_fields {
    bool as_text;
    uint64_t sum;
    char *text; /* "name\0value\0name\0value\0" */
    size_t bytes, capacity;
    zoff_status status; /* the first error while the text was made */
} zoff_fields;

typedef void (*zoff_fields_list)(const void *ctx, zoff_fields *out);

/* The inputs of a step's update other than gradients and states. */
typedef struct zoff_step_inputs {
    int64_t t;
    double clip_norm, grad_scale, loss_scale;
    unsigned flags;
    double weight;                     /* sum of weights over all micro-batches of all ranks; 0 where nothing is trained */
    const zoff_optimizer_hyper *hyper; /* hyper-parameters of each group, after the schedule */
    uint64_t norm_sum;                 /* checksum of zoff_step_args.norm_sum; 0: none */
} zoff_step_inputs;

/* The progress of a rank that opens its store, and the states that it found there. Between engines with one norm: those that
 * its engine has chosen. */
typedef struct zoff_standing {
    uint32_t phase;
    bool has_failed, was_canceled;
    zoff_store_found found;
} zoff_standing;

/* See open.c. */
typedef struct zoff_open_barrier {
    zoff_voters *of;            /* ranks that meet; NULL: this rank meets nobody */
    zoff_comm_channel *channel; /* channel of the rounds, which begin at any time; NULL: the communicator's own */
    zoff_comm_work work;        /* the current round */
    double began;
    zoff_standing own, *all; /* standing of this rank, and those of all ranks in the last round */
    bool is_open;            /* rounds are held until all stores are open */
    bool behind;             /* some rank is in an earlier phase than this one */
    unsigned failed;         /* the rank that failed */
    bool was_canceled;       /* the rank failed because its program canceled the opening */
} zoff_open_barrier;

/* See report.c. The owner sets `item` and `join`, and before each start its record, at the beginning of `all`. */
typedef struct zoff_report {
    zoff_comm_item item;
    /* Join a record of `bytes` bytes into another one; any order gives the same. */
    void (*join)(void *into, const void *other, size_t bytes);
    size_t bytes;
    char *all; /* records of the ranks that gather; in the end the joined one of all ranks. The owner frees it */
    bool has_levels, is_under_way;
    bool has_started; /* the gather on `stream` has */
    zoff_comm_stream stream;
    zoff_comm_work work;
} zoff_report;

/* The slices that take part in a step. */
typedef struct zoff_participation {
    /* One bit for each slice that has a gradient, in words of 64. Where a trainer reduces gradients, as many again for those
     * that have none. */
    zoff_report report;
    zoff_report partial;       /* names ranks of which only one has a gradient that the trainer has reduced */
    bool asked, names, agreed; /* flags for this step; names: `partial` has begun */
} zoff_participation;

/* Numbers of a step that engines with one norm must have alike. */
enum { ZOFF_NORM_T, ZOFF_NORM_CLIP, ZOFF_NORM_SCALE, ZOFF_NORM_LOOKS, ZOFF_NORM_TERMS };

/* The vote of the ranks of one engine, or of all engines that share a norm. */
typedef struct zoff_norm_part {
    zoff_exact squares;            /* sums of squares of gradients as they were summed, before any scaling */
    double terms[ZOFF_NORM_TERMS]; /* SCALE is 0 in an engine that trains nothing */
    int32_t status;                /* an error because of which this engine does not take the step */
    bool is_poisoned;              /* a gradient is not finite; `why` names it */
    bool stop_requested;
    uint32_t rank;     /* joined: first rank of norm_comm whose part is poisoned */
    uint64_t replicas; /* joined: 0 if the gradients of replicated parameters are equal in all engines */
    char why[512];
} zoff_norm_part;

/* See norm.c. */
typedef struct zoff_norm_ranks {
    zoff_voters ranks; /* ranks of zoff_engine_opts.norm_comm; without a communicator the norm is that of this engine */
    zoff_comm_channel channel;
    zoff_norm_part *parts; /* parts by rank of norm_comm */
    /* Checksums of the names of replicated parameters, by rank: `most` for each, ascending, UINT64_MAX where there are fewer.
     * The lowest bit says whether the parameter has states of its own there: a tied one does not. */
    uint64_t *names;
    size_t most;
    zoff_open_barrier barrier; /* stores of all engines are opened side by side, too */
    bool is_open;              /* the channel is open */
} zoff_norm_ranks;

/* The owner sets the fields up to and including `transfer` before any call; they are borrowed. All other fields start as
 * zero. */
typedef struct zoff_agreement {
    zoff_model *model;
    const zoff_plan *plan;
    zoff_comm *comm;
    zoff_comm_channel *channel;
    zoff_transfer *transfer;
    zoff_voters ranks;       /* voters of `comm` */
    zoff_step_inputs inputs; /* inputs of the last vote of a step */
    zoff_participation participation;
    zoff_open_barrier barrier;
    zoff_norm_ranks norm;
} zoff_agreement;

/* ---- vote.c ---- */

/* Allocate memory for votes, once the communicator is known; a second call does nothing.  @return ERR_NO_MEMORY */
zoff_status zoff_agreement_vote_open(zoff_agreement *a);
void zoff_agreement_vote_close(zoff_agreement *a);
zoff_status zoff_agreement_vote_allocate(zoff_voters *v); /* allocate memory for votes of other voters */
/* Vote: every rank calls this with the result of its own work, and at most ZOFF_VOTE_NUMBERS numbers. Those of all are in
 * v->words.
 * @blocks until all have called it  @return an error on every rank if any rank failed: its own message where it failed */
zoff_status zoff_agreement_vote(zoff_voters *v, zoff_status own, const uint64_t *numbers, size_t count);
/* Vote without numbers. A single rank, also one without a communicator, returns its own result. */
zoff_status zoff_agreement_vote_success(zoff_voters *v, zoff_status own);
/* Vote, and replace each number by the least of all ranks. */
zoff_status zoff_agreement_vote_least(zoff_voters *v, zoff_status own, uint64_t *numbers, size_t count);
/* Send `bytes` of each rank to all; this rank's are already at their place in `all`.  @blocks until all have arrived */
zoff_status zoff_agreement_vote_gather(zoff_voters *v, void *all, size_t bytes);
/* Replace `count` bytes by those of rank `root`.  @blocks until they have arrived */
zoff_status zoff_agreement_vote_share(zoff_voters *v, unsigned root, void *bytes, size_t count);
/* Report the rank that has failed.  @return ERR_COMM with a message that names it */
zoff_status zoff_agreement_vote_tell(const zoff_voters *v, unsigned failed);
/* Check that all ranks on this rank's host fit into its memory together. Call it before any of them allocates. `need_bytes`:
 * bytes that this rank needs; `advice`: how it can need less.  @return ERR_NO_MEMORY on every rank  @blocks until all have
 * called it */
zoff_status zoff_agreement_vote_memory(zoff_agreement *a, uint64_t need_bytes, const char *advice);

/* Mark the begin and the end of a call that waits for other ranks, after its arguments are checked. A call that fails is not
 * counted, because the program repeats it. */
void zoff_agreement_identity_enter(zoff_agreement *a, unsigned call, zoff_comm_item item);
zoff_status zoff_agreement_identity_exit(zoff_agreement *a, zoff_status status);

/* Slices that take part in a step. */
zoff_status zoff_agreement_participation_open(zoff_agreement *a);
void zoff_agreement_participation_close(zoff_agreement *a);
size_t zoff_agreement_participation_bytes(const zoff_agreement *a); /* bytes of a record */
void zoff_agreement_participation_begin(zoff_agreement *a);         /* begin a step */
/* Find the slices that have a gradient on any rank, and flag them PRESENT.  @return PENDING: not all ranks have answered */
zoff_status zoff_agreement_participation_poll(zoff_agreement *a);
/* Complete what has begun, because this rank drops the step.  @blocks for other ranks */
zoff_status zoff_agreement_participation_finish(zoff_agreement *a);
uint64_t zoff_agreement_participation_elements(const zoff_agreement *a); /* elements that this rank updates in the step */
/* `bits`: `words` words of each of `ranks`, one rank after the other. Those of rank 0 become the union of all. */
void zoff_agreement_participation_join(uint64_t *bits, size_t words, unsigned ranks);

/* ---- report.c ---- */

/* Allocate the records, of so many bytes, at seal.  @return ERR_NO_MEMORY */
zoff_status zoff_agreement_report_open(zoff_comm *comm, size_t bytes, zoff_report *r);
/* Send this rank's record, and join those of all.  @return of poll: OK also if none is under way; PENDING */
zoff_status zoff_agreement_report_start(zoff_comm *comm, zoff_comm_channel *channel, zoff_report *r);
zoff_status zoff_agreement_report_poll(zoff_comm *comm, zoff_comm_channel *channel, zoff_report *r);
/* Add what this rank sends for a record of so many bytes. Reads of `comm` what zoff_comm_call_traffic() reads. */
void zoff_agreement_report_count(const zoff_comm *comm, size_t bytes, zoff_comm_traffic *sum);
/* @blocks until it is joined */
zoff_status zoff_agreement_report_wait(zoff_comm *comm, zoff_comm_channel *channel, zoff_report *r);

/* ---- equal.c ---- */

/* Append a value: `text` or, if that is NULL, the number; and its name as a format. */
void zoff_agreement_equal_add(zoff_fields *f, const char *text, uint64_t number, const char *name, ...)
    __attribute__((format(printf, 4, 5)));
/* Compare a list between all ranks. `call` begins the message of an error, and `advice` ends it.  @blocks until all have called
 * it  @return ERR_INVALID on every rank if two differ; the message names values and ranks */
zoff_status zoff_agreement_equal(zoff_agreement *a, zoff_fields_list list, const void *ctx, const char *call,
                                 const char *advice);

/* ---- listed.c: each comparison returns ERR_INVALID on every rank if two differ ---- */

typedef struct zoff_listed_settings {
    const char *keys; /* zoff_config_dump_agreed() */
    size_t key_bytes;
    bool states_in_files;
    uint64_t chunk_elements;
    int64_t persist_t;
} zoff_listed_settings;

/* Compare at seal: configuration, options, parameters and groups; the plan that each rank has made from them; the initial
 * weights of engine-owned parameters.  @blocks until all have called it */
zoff_status zoff_agreement_listed_compare_settings(zoff_agreement *a, const zoff_listed_settings *settings);
zoff_status zoff_agreement_listed_compare_plan(zoff_agreement *a);
zoff_status zoff_agreement_listed_compare_weights(zoff_agreement *a);
/* Set the checksums of this rank's vote in a step; `hyper` must stay until the votes are compared. */
void zoff_agreement_listed_tell(zoff_agreement *a, const zoff_step_inputs *inputs, zoff_vote *vote);
/* Compare, by the joined vote, the inputs of the update, and the copies of gradients that the trainer has reduced.  @blocks
 * only if they differ */
zoff_status zoff_agreement_listed_compare_inputs(zoff_agreement *a, const zoff_vote *vote);
zoff_status zoff_agreement_listed_compare_copies(zoff_agreement *a, const zoff_vote *vote);

/* ---- norm.c: one norm over engines that train parts of one model ---- */

/* Take the communicator, NULL for none, and allocate all memory, so that seal does not fail for want of it.  @return
 * ERR_INVALID for one that cannot serve */
zoff_status zoff_agreement_norm_take(zoff_agreement *a, zoff_comm *comm);
void zoff_agreement_norm_free(zoff_agreement *a);
/* The part of the model that this engine trains, from 1; 0: there are no other parts. The same on all ranks of the engine. */
unsigned zoff_agreement_norm_part(const zoff_agreement *a);
/* At seal: find which replicated parameters count on this rank.  @blocks until all ranks of norm_comm have called it */
zoff_status zoff_agreement_norm_open(zoff_agreement *a);
void zoff_agreement_norm_close(zoff_agreement *a); /* call when none of its operations is in flight */
/* Tell the ranks of the other engines, unless they know, that seal has failed on all ranks of this one. The error is kept. */
void zoff_agreement_norm_fail(zoff_agreement *a, zoff_status own);
/* Compare, at seal and unless states are opened again, the first weights of engine-owned parameters between the ranks of the
 * engine, and those of replicated parameters between engines. Counts as a vote of norm_comm.  @blocks for all ranks of
 * norm_comm  @return ERR_INVALID */
zoff_status zoff_agreement_norm_first_weights(zoff_agreement *a);
/* This rank's part of zoff_norm_part.replicas. */
uint64_t zoff_agreement_norm_replicas(const zoff_agreement *a);
/* Send the vote of this engine, which is the same on all its ranks. */
zoff_status zoff_agreement_norm_ask(zoff_agreement *a, const zoff_norm_part *own);
/* Join the parts of all engines.  @return PENDING: not all have arrived; ERR_COMM where one has an error; ERR_INVALID if their
 * terms differ */
zoff_status zoff_agreement_norm_poll(zoff_agreement *a, zoff_norm_part *out);
/* Explain a joined part by which gradients of replicated parameters differ.  @return ERR_INVALID on every rank, with a
 * parameter
 * @blocks for all ranks of all engines */
zoff_status zoff_agreement_norm_explain(zoff_agreement *a);
/* end the vote of a step that is dropped  @blocks until it has ended */
zoff_status zoff_agreement_norm_finish(zoff_agreement *a);
void zoff_agreement_norm_abandon(zoff_agreement *a);

/* The content of a zoff_norm_sum. */
typedef struct zoff_norm_record {
    uint32_t mark; /* mark of this version */
    uint32_t is_poisoned;
    double scale;      /* factor of the gradients: ZOFF_NORM_SCALE */
    uint64_t holds[8]; /* a Bloom filter of the measurements that were joined */
    zoff_exact squares;
} zoff_norm_record;

/* Name a record as the measurement of this engine with this number, which is the same on all its ranks. */
void zoff_agreement_norm_sum_name(const zoff_agreement *a, uint64_t number, zoff_norm_record *record);
void zoff_agreement_norm_sum_write(const zoff_norm_record *record, zoff_norm_sum *out);
/* Read a joined sum for a step that was measured as `own`.  @return ERR_INVALID for one without `own`, such as one of an
 * earlier step. With 16 engines one of 5,000 sums without it passes, because the filter is small. */
zoff_status zoff_agreement_norm_sum_take(const zoff_norm_sum *sum, const zoff_norm_record *own, zoff_norm_record *out);

/* open.c: at seal, on every rank: open the stores side by side */
zoff_status zoff_agreement_open_allocate(zoff_agreement *a);
void zoff_agreement_open_free(zoff_agreement *a);
/* Say that all stores of this rank are open, or that one has failed with `own`.  @return on every rank an error, if any rank
 * has failed
 * @blocks until all are open, or know it */
zoff_status zoff_agreement_open_end(zoff_agreement *a, zoff_status own);
/* Open the store of the states. With persist all ranks continue with one commit. *out is set after an error, too: close it.
 * @blocks for all ranks of all engines with one norm */
zoff_status zoff_agreement_open_store(zoff_agreement *a, const zoff_store_opts *opts, zoff_store **out);
/* Complete the opening of a store that was found.  @blocks until it is filled, and with persist for all ranks */
zoff_status zoff_agreement_open_fill(zoff_agreement *a, zoff_store *store, const zoff_store_opts *opts);
/* Choose the commit to continue with.  @param wanted_t continue after this step; 0: after the last  @return ERR_INVALID if the
 * files do not have it */
zoff_status zoff_agreement_open_decide(zoff_agreement *a, const zoff_store_found *found, int64_t wanted_t,
                                       uint64_t *out_generation);
double zoff_agreement_open_pause(const zoff_comm *comm); /* seconds between two rounds of a rank that works */
/* Tell other ranks that this one is at work; does nothing after the opening.  @return the error of a rank that has failed, if
 * this one knows of it */
zoff_status zoff_agreement_open_pulse(zoff_agreement *a);

/* first_weights.c: at seal, replace the program's weights on every rank by those of rank 0.  @blocks until all have arrived */
zoff_status zoff_agreement_first_weights_send(zoff_agreement *a);

#endif
