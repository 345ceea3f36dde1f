/* step_priv.h: gradients from the program, and the rows that a bucket walks in a step; part of engine_priv.h. */
#ifndef ZOFF_STEP_PRIV_H
#define ZOFF_STEP_PRIV_H

/* intake.c */
/* Take the complete gradient of a slice: mark it, and start its download or its way to other ranks. */
zoff_status zoff_engine_intake_take(zoff_engine *e, zoff_param p, size_t slice, void *native_stream);

/* handover.c */
zoff_status zoff_engine_handover_all(zoff_engine *e); /* every slice that has a gradient buffer */
void zoff_engine_handover_zero(zoff_engine *e);       /* fill the program's gradients that were handed over with zeros */

/* walk.c: the order of buckets in a step */
size_t zoff_engine_walk_host_count(const zoff_engine *e);              /* buckets whose states are in a store of the host */
size_t zoff_engine_walk_bucket(const zoff_engine *e, size_t position); /* the bucket at a position */
size_t zoff_engine_walk_position(const zoff_engine *e, size_t bucket); /* its inverse */

/* admit.c: which buckets may borrow */
void zoff_engine_admit_open(zoff_engine *e); /* at seal, once the stores are open: the buckets that take a slot */
/* The first position of the walk that may not borrow yet, if the buckets before `first` are done. */
size_t zoff_engine_admit_until(const zoff_engine *e, size_t first);
bool zoff_engine_admit_reaches(const zoff_bucket_run *run); /* whether a bucket may borrow now */
/* Whether a slice of the bucket has a gradient in this step. */
bool zoff_engine_admit_takes_part(const zoff_bucket_run *run);
/* The same, and the bucket has states in a store of the host. */
bool zoff_engine_admit_needs_states(const zoff_bucket_run *run);
/* Ask the stores for states and weights of a bucket, without waiting.  @return PENDING: not all is there yet */
zoff_status zoff_engine_admit_borrow(zoff_bucket_run *run);
/* Between two pieces of a kernel: pump, and ask for the next buckets. Errors are kept. */
void zoff_engine_admit_feed(zoff_engine *e);
void zoff_engine_admit_drop_useless(zoff_engine *e); /* drop what was read ahead for buckets without a gradient */
void zoff_engine_admit_ahead(zoff_engine *e);        /* between steps: start the first reads of the next one */

/* rows.c: the rows of a bucket */
void zoff_engine_rows_choose(zoff_engine *e);                     /* at seal */
const zoff_rows *zoff_engine_rows_of(const zoff_bucket_run *run); /* in this micro-step */

/* pipeline.c: walk all buckets through their rows */
void zoff_engine_pipeline_begin(zoff_engine *e);
zoff_status zoff_engine_pipeline_run(zoff_engine *e);
void zoff_engine_pipeline_release(zoff_engine *e); /* give back what is borrowed, unchanged */

/* stages.c: one function a row; OK goes to the next row, PENDING asks again, an error stops the step */
zoff_status zoff_engine_stages_accumulate(zoff_bucket_run *run);
zoff_status zoff_engine_stages_measure(zoff_bucket_run *run);
zoff_status zoff_engine_stages_gate(zoff_bucket_run *run);
zoff_status zoff_engine_stages_fetch(zoff_bucket_run *run);
zoff_status zoff_engine_stages_flush(zoff_bucket_run *run);

/* measure.c */
/* Sums of squares of the pieces of a bucket that this rank measures; adds to `seconds` and `read_bytes`. */
void zoff_engine_measure_bucket(zoff_engine *e, size_t bucket, double *seconds, uint64_t *read_bytes);
/* Seconds since `from`, without those that went to I/O and to checksums in between. */
double zoff_engine_measure_worked(const zoff_engine *e, double from, const zoff_store_stats *before);

/* pieces.c: the memory of a piece */
/* A piece for the kernels: weights and all its states; gradient and constants are the caller's to add. */
zoff_adam_piece zoff_engine_pieces_of_update(const zoff_engine *e, const zoff_plan_chunk *chunk, const zoff_plan_piece *piece,
                                             zoff_chunk_memory memory);
/* A state of a piece, in the memory of its chunk. */
float *zoff_engine_pieces_state(const zoff_plan_chunk *chunk, const zoff_plan_piece *piece, char *base,
                                zoff_plan_stream stream);
/* The gradient that norm and update read, on the host. */
const void *zoff_engine_pieces_gradient(const zoff_engine *e, const zoff_plan_piece *piece, zoff_dtype *out_dtype);
/* The same for a bucket whose states stay on the device, in memory of the device; and the sum that micro-batches add to. */
const void *zoff_engine_pieces_kept_gradient(const zoff_engine *e, const zoff_plan_piece *piece, zoff_dtype *out_dtype);
float *zoff_engine_pieces_kept_sum(const zoff_engine *e, const zoff_plan_piece *piece);

/* update.c: the row between fetch and flush */
zoff_status zoff_engine_update_run(zoff_bucket_run *run);

/* threads.c: how many threads work on a bucket */
unsigned zoff_engine_threads_of_update(const zoff_engine *e);
unsigned zoff_engine_threads_of_measure(const zoff_engine *e);
void zoff_engine_threads_learn(zoff_engine *e); /* from a step that is over, for the next one */
/* Take note of how long measuring took, and choose for the next step. */
void zoff_engine_threads_choose(zoff_measure_threads *m, double seconds);
/* How many of `most` are enough where `used` have worked and waited for the disk so many seconds. */
unsigned zoff_engine_threads_enough(double worked, double waited, unsigned used, unsigned most);

/* gate.c */
void zoff_engine_gate_begin(zoff_engine *e); /* nothing is measured */
void zoff_engine_gate_add(zoff_engine *e, const zoff_plan_piece *piece, const double *block_sums);
zoff_status zoff_engine_gate_vote(zoff_engine *e);
/* Why a step is skipped, as the beginning of a sentence. */
void zoff_engine_gate_explain(const zoff_engine *e, char *dst, size_t dst_bytes);

#endif
