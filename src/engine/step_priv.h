/* SPDX-License-Identifier: Apache-2.0 */
/* step_priv.h: handing over gradients, and the rows of a bucket in a step; part of engine_priv.h. */
#ifndef ZOFF_STEP_PRIV_H
#define ZOFF_STEP_PRIV_H

/* handover.c */
/* A gradient of zoff_grad_ready(). */
typedef struct zoff_handed_over {
    zoff_param param;
    size_t slice;
    void *native_stream;
} zoff_handed_over;
zoff_status zoff_engine_handover_take(zoff_engine *e, const zoff_handed_over *gradient); /* as zoff_grad_ready() */
zoff_status zoff_engine_handover_all(zoff_engine *e); /* take every slice that has a gradient buffer */

/* admit.c: memory for buckets, from the broker */
/* Call before a step, and before anything else that is not a range of states: commits the ranges, and reads ahead again. */
zoff_status zoff_engine_admit_close_ranges(zoff_engine *e);
void zoff_engine_admit_open(zoff_engine *e); /* at seal, once the stores are open: list the buckets that take a slot */
/* Behind the gate: ask for the next buckets of the walk.  @return the position behind the last one that has its memory, or may
 * ask for it. Errors are stored. */
size_t zoff_engine_admit_until(zoff_engine *e);
bool zoff_engine_admit_reaches(const zoff_engine *e, const zoff_bucket_run *run); /* whether a bucket may pass the gate now */
/* Whether the first bucket of the walk that needs states from a file has them. */
bool zoff_engine_admit_has_first(const zoff_engine *e);
void zoff_engine_admit_ask_anew(zoff_engine *e, size_t bucket); /* buckets behind this one wait again until it has its memory */
/* Request states and weights of a bucket from the stores, without waiting.  @return PENDING: not all have arrived */
zoff_status zoff_engine_admit_borrow(zoff_engine *e, zoff_bucket_run *run);
/* Whether the round of a bucket of matrices has memory; it gets the memory if that is free, and no earlier round needs it. */
bool zoff_engine_admit_takes_turn(zoff_engine *e, size_t bucket);
/* Whether a bucket of matrices may ask for its masters now; true for any other. */
bool zoff_engine_admit_may_fetch(const zoff_engine *e, const zoff_bucket_run *run);
/* Request a slot for the states of a bucket of the device, which fill it as a whole.  @return PENDING: none is free */
zoff_status zoff_engine_admit_claim(zoff_engine *e, zoff_bucket_run *run);
/* Call between two pieces of a kernel: pump I/O, and request the next buckets. Errors are stored. */
void zoff_engine_admit_feed(zoff_engine *e);
void zoff_engine_admit_ahead(zoff_engine *e); /* between steps: start the first reads of the next one */
/* Whether a bucket may be updated ahead of the step: its states are in a store, and its weights are the program's. */
bool zoff_engine_admit_can_precede(const zoff_engine *e, size_t bucket);
void zoff_engine_admit_feed_ahead(zoff_engine *e); /* start reads of buckets that are updated ahead of the step */

/* rows.c: the rows of a bucket */
void zoff_engine_rows_choose(zoff_engine *e);                              /* at seal */
const zoff_rows *zoff_engine_rows_of(const zoff_engine *e, size_t bucket); /* all rows that a bucket may have */
/* The row that a bucket has to pass now: the first one of its column that it has not passed. NULL: it is through. */
const zoff_row *zoff_engine_rows_next(const zoff_engine *e, const zoff_bucket_run *run);
/* The bucket is not updated ahead of the step, but like the others: drop its second content and what it has borrowed.  @blocks
 * for a write  @return the error of that: call again */
zoff_status zoff_engine_rows_leave(zoff_engine *e, zoff_bucket_run *run);

/* pipeline.c: run all buckets through their rows */
void zoff_engine_pipeline_begin(zoff_engine *e);
/* Before the step: update buckets whose gradients are complete, as far as that pays and needs no waiting.  @return PENDING:
 * more may be done without a further call of the program */
zoff_status zoff_engine_pipeline_precede(zoff_engine *e);
zoff_status zoff_engine_pipeline_run(zoff_engine *e);
zoff_status zoff_engine_pipeline_measure(zoff_engine *e); /* run all buckets up to the gate */
/* Run buckets in the order of the walk until the weights of these are new. On a device their copies are then in its streams.
 * @return OK also when the step is skipped */
zoff_status zoff_engine_pipeline_until(zoff_engine *e, zoff_slice_buckets wanted);
/* Run all buckets until the gradients in these are read on every rank. */
zoff_status zoff_engine_pipeline_until_read(zoff_engine *e, zoff_slice_buckets wanted);
zoff_status zoff_engine_pipeline_decide(zoff_engine *e); /* run buckets until the gate is open, or the step is skipped */
/* Whether it is known without the engine's lock that the weights of these buckets are new. */
bool zoff_engine_pipeline_knows_new(const zoff_engine *e, zoff_slice_buckets wanted);
/* Advance each bucket until it would have to wait.  @return PENDING: some are not done */
zoff_status zoff_engine_pipeline_turn(zoff_engine *e);
void zoff_engine_pipeline_end(zoff_engine *e); /* the step is over, or dropped: no bucket is ahead of the next one yet */
/* Give back all borrowed chunks, unchanged. The old content of those that have a second one stays.  @blocks for writes of the
 * latter  @return their error: call again */
zoff_status zoff_engine_pipeline_release(zoff_engine *e);

/* ---- overlap.c ---- */

/* Lend a slice of the engine's weights. If a step is open that updates, its buckets are updated first. */
zoff_status zoff_engine_overlap_fetch(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const void **out);
/* Whether slices can be lent and given back in the present phase: OPEN or FAILED. */
bool zoff_engine_overlap_lends(const zoff_engine *e);
/* One turn of an open step, while a call waits for weights of other ranks. */
zoff_status zoff_engine_overlap_go_on(zoff_engine *e);
/* step.c */
/* step_enter: see view.h. step_idle: enter a call that needs an engine between steps.  @blocks for an open step, which it
 * finishes
 */
zoff_status zoff_engine_step_idle(zoff_engine *e, const char *call);
/* The walk has failed: the step stays open to a retry. Returns `status`, with the words of a step. */
zoff_status zoff_engine_step_fail(zoff_engine *e, zoff_status status);

/* update.c: the row between fetch and flush.  @return PENDING: a call of the program waits for the thread that updates */
zoff_status zoff_engine_update_run(void *ctx, zoff_bucket_run *run);
/* The rows of matrices: momenta and directions; then weights, by the directions that are orthogonal. */
zoff_status zoff_engine_update_momentum(void *ctx, zoff_bucket_run *run);
zoff_status zoff_engine_update_apply(void *ctx, zoff_bucket_run *run);
/* Update to run->ahead.states and to staged weights. States and weights stay as they are. */
zoff_status zoff_engine_update_apart(zoff_engine *e, zoff_bucket_run *run);
void zoff_engine_update_count(zoff_engine *e, const zoff_bucket_run *run); /* the bucket counts as updated */
/* The borrowed chunk of a bucket is about to be written back as a whole: let a save keep what the file has. `states`: the old
 * states; NULL: nobody has them in memory. */
void zoff_engine_update_guard(const zoff_engine *e, const zoff_bucket_run *run, char *states);

/* how many threads work on a bucket */
unsigned zoff_engine_update_threads_of_update(const zoff_engine *e);
/* how many threads work on a bucket in a call of the program */
unsigned zoff_engine_update_threads_of_calls(const zoff_engine *e);
unsigned zoff_engine_update_threads_of_matrices(const zoff_engine *e); /* how many threads make matrices orthogonal */
void zoff_engine_update_threads_learn(zoff_engine *e);                 /* learn from a step that is over, for the next one */
/* Record how long measuring took, and choose the threads for the next step. */
void zoff_engine_update_threads_choose(zoff_measure_threads *m, double seconds);
/* How many of `most` threads are enough, if `used` threads worked for so many seconds and waited for the disk for so many. */
unsigned zoff_engine_update_threads_enough(double worked, double waited, unsigned used, unsigned most);

/* gate.c */
/* The step is open: whether the constants without clipping are those that buckets were updated with, or were never assumed.
 * Then more of them may be updated until all gradients are there. */
bool zoff_engine_gate_still_assumes(zoff_engine *e);
/* Compute the constants of the next step as if it did not clip, by zoff_step_prepare() or the configuration. Opens the run of
 * that step. */
zoff_status zoff_engine_gate_assume(zoff_engine *e);
zoff_status zoff_engine_gate_vote(zoff_engine *e);
/* Measuring has failed on this rank: vote it, unless all know, so that the others fail, too. The error is kept.  @blocks until
 * all have voted */
void zoff_engine_gate_fail(zoff_engine *e);
/* The reason why a step is skipped, as the beginning of a sentence. */
void zoff_engine_gate_explain(const zoff_engine *e, char *dst, size_t dst_bytes);

#endif
