/* SPDX-License-Identifier: Apache-2.0 */
/* step.h: hand over gradients, take the step, and read what it did.
 *
 *  A step has four forms:
 *
 *      zoff_step(engine, NULL, &info);                             all gradients are ready
 *
 *      zoff_grad_ready(engine, p, slice, NULL); ...                hand over each gradient as the backward pass computes it,
 *      zoff_step(engine, NULL, &info);                             so that it is sent or downloaded meanwhile
 *
 *      zoff_grad_ready(...); ...                                   the same, and the caller's thread is free
 *      zoff_step_begin(engine, NULL); ...                          between begin and wait
 *      zoff_step_wait(engine, &info);
 *
 *      zoff_step_begin(engine, NULL); ...                          the next forward pass begins before the step is over:
 *      zoff_param_wait(engine, p, slice, NULL); ...                it waits for each weight
 *      zoff_step_wait(engine, &info);
 */
#ifndef ZOFF_STEP_H
#define ZOFF_STEP_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Flags of zoff_step_args. */
enum {
    ZOFF_STEP_ZERO_GRADS = 1u << 0 /**< set the gradients to zero once they are used, also when the step is skipped */
};

/** Sums of squares of the gradients of one or more engines: exact, so that the order of zoff_norm_sum_join() does not matter.
 *  Plain bytes of a fixed size, which carry their version, the number of the step, and which measurements they contain. Copy
 *  them, or send them to a process with the same zoff on a machine of the same byte order. */
typedef struct zoff_norm_sum {
    uint64_t words[80]; /**< written by zoff_step_measure() */
} zoff_norm_sum;

/** Arguments of a step. NULL in its place, or all zero: everything as the configuration says. */
typedef struct zoff_step_args {
    size_t struct_size; /**< set by ZOFF_STEP_ARGS_INIT */
    int64_t t; /**< number of this step, from 1, for bias correction and schedule; 0: one more than zoff_step_count() */
    const zoff_optimizer_hyper *hyper; /**< hyper_count structs, one for each group, of the optimizer that the group was sealed
                                            for; a single one serves all groups. ZOFF_KEEP in a number, or NULL for all:
                                            configuration and schedule. Read by the call; the open step keeps them */
    size_t hyper_stride;               /**< bytes from one struct to the next; 0: sizeof(zoff_optimizer_hyper) of the caller */
    size_t hyper_count;                /**< structs in `hyper`; must not be 0 beside it */
    double clip_norm;  /**< clip the global norm to this; 0: gradient_clipping; ZOFF_OFF: do not clip. Clipping multiplies the
                            gradients by clip_norm / (norm + 1e-6) if that is below 1, like PyTorch's clip_grad_norm_ */
    double grad_scale; /**< multiplies each gradient before anything else, such as 1 / loss scale; 0 means 1. The same in all
                            micro-steps of an update. Comes on top of 1 / zoff_loss_scale() with fp16.enabled */
    unsigned flags;    /**< ZOFF_STEP_* */
    const zoff_norm_sum *norm_sum; /**< after zoff_step_measure(), and only then: the sum of this engine joined with those of
                                      all engines that clip together. Norm, clip factor and skip decision are made from it */
} zoff_step_args;
#define ZOFF_STEP_ARGS_INIT ZOFF_SIZED(zoff_step_args)

/** State of the weights and optimizer states when a call on a step returns. */
typedef enum zoff_outcome {
    ZOFF_OUTCOME_BEFORE = 0, /**< the state before the step */
    ZOFF_OUTCOME_AFTER = 1,  /**< the step is complete */
    ZOFF_OUTCOME_TORN = 2    /**< the step failed half way. zoff_step_retry() finishes it; with zoff.persist zoff_grads_drop()
                                  undoes it */
} zoff_outcome;

/** Numbers of a step. With several ranks they are those of all ranks, except the elements, which are this rank's. */
typedef struct zoff_step_numbers {
    double lr;                   /**< learning rate of group 0 */
    double loss_scale;           /**< loss scale of the gradients of this step; 1 without fp16.enabled */
    double grad_norm;            /**< L2 norm of all gradients after scaling, before clipping. NAN where nothing needs it,
                                      because zoff.skip_nonfinite is false and nothing is clipped */
    double clip_factor;          /**< factor by which clipping multiplied the gradients; 1: not clipped */
    uint64_t elements_owned;     /**< elements with states on this rank */
    uint64_t elements_updated;   /**< owned elements that have a gradient */
    uint64_t elements_on_device; /**< owned elements that the device updated (offload_optimizer.ratio) */
    uint64_t reserved[4];        /**< zero */
} zoff_step_numbers;

/** Bytes that this rank moved. Transfers of NVMe-tier weights, of the device and to other ranks count since the step before. */
typedef struct zoff_step_bytes {
    uint64_t host_read;       /**< states, weights and gradients that kernels read from DRAM */
    uint64_t host_written;    /**< states and weights that kernels wrote to DRAM */
    uint64_t nvme_read;       /**< states and engine-owned weights read from files */
    uint64_t nvme_read_ahead; /**< part of nvme_read whose reading began before the step was asked for */
    uint64_t nvme_written;    /**< states and engine-owned weights written to files */
    uint64_t device_read;    /**< downloads: gradients, weights for zoff_params_pull(), weights that the device stores for other
                                ranks */
    uint64_t device_written; /**< uploads: new weights, and fetched ones of the engine */
    uint64_t sent;           /**< bytes sent to other ranks: gradients, weights, control messages */
    uint64_t sent_gradients; /**< part of sent: (N - 1) / N of the gradients over N ranks; at stage 0 also their fp32 sums */
    uint64_t sent_weights;   /**< part of sent: replicated weights, and fetched weights */
    uint64_t received;       /**< bytes received from other ranks */
    uint64_t sent_matrices;  /**< part of sent: directions of Muon's matrices, to their workers and back: 8 (N - 1) / N bytes of
                                  each of their elements, over all N ranks */
    uint64_t reserved[4];    /**< zero */
} zoff_step_bytes;

/** Seconds of a step on this rank. The waits are those of the calling thread. */
typedef struct zoff_step_seconds {
    double total;         /**< from zoff_step_begin() to the end of zoff_step_wait() */
    double measure;       /**< accumulation, norm, and the check for inf and nan */
    double update;        /**< kernels of the update */
    double checksum;      /**< checksums of data read from files and written to them */
    double io_wait;       /**< waits for the disk: submit, copy, wait */
    double device_wait;   /**< waits for the device: the rest of the backward pass, and copies */
    double comm_wait;     /**< waits for other ranks */
    double save_wait;     /**< waits for a checkpoint that is being saved, because its memory for copies is full */
    double visible;       /**< part of total inside calls of the program; the rest was hidden beside its own work */
    double orthogonalize; /**< Muon: orthogonalization of matrices */
    double reserved[2];   /**< zero */
} zoff_step_seconds;

/** Buckets of a step on this rank that were updated before its norm was known (zoff.speculation_memory). */
typedef struct zoff_step_buckets {
    uint64_t all;        /**< buckets of this rank with a gradient in the step */
    uint64_t speculated; /**< buckets updated before zoff_step_begin(), or before a device had computed the last gradient */
    uint64_t committed;  /**< speculated buckets whose results count */
    uint64_t redone;     /**< speculated buckets updated again, because the step clips or differs from what was assumed */
} zoff_step_buckets;

/** The first gradient that was not finite. Valid when the step was skipped for it. */
typedef struct zoff_step_culprit {
    zoff_param param; /**< the parameter */
    unsigned rank;    /**< the rank whose gradient it was, where that is known; otherwise the rank that added it up */
    size_t slice;     /**< the slice of the parameter */
} zoff_step_culprit;

/** The result of a step. */
typedef struct zoff_step_info {
    size_t struct_size;   /**< set by ZOFF_STEP_INFO_INIT */
    zoff_outcome outcome; /**< also set by a call that returns an error */
    bool skipped;         /**< a gradient, the norm, or the factor that scales and clips is not finite in fp32: no weight and no
                               state has changed */
    bool accumulated;     /**< gradients were added up; a later micro-step updates */
    uint32_t micro_step;  /**< number of the micro-step, 1 .. micro_steps */
    uint32_t micro_steps; /**< gradient_accumulation_steps */
    int64_t t;            /**< number of this step */
    zoff_step_numbers numbers;
    zoff_step_bytes bytes;
    zoff_step_seconds seconds;
    zoff_step_culprit culprit; /**< the gradient that made the engine skip the step */
    bool stop_requested; /**< a rank has called zoff_engine_request_stop(). All ranks see it in the same step, also a skipped
                              one, and in every step after it */
    zoff_step_buckets buckets;
} zoff_step_info;
#define ZOFF_STEP_INFO_INIT ZOFF_SIZED(zoff_step_info)

/** Declare the gradient of one slice final for this micro-step. Do not touch it until zoff_step_wait() returns.
 *
 *  On a device the gradient is downloaded behind the work that is in the stream now. New weights are uploaded behind the work
 *  that each stream held at the last call that named it, also for frozen parameters. So enqueue work that reads weights before
 *  that call, or finish it before zoff_step_begin().
 *  @param native_stream device stream that computes the gradient, ZOFF_STREAM_DEFAULT for the default stream; NULL on the host,
 *  and for a gradient that is complete
 *  @blocks never, except: for reads of the "posix" I/O back-end; as zoff_grad_acquire() on a device from stage 2 on; as
 *  zoff_state_flush() after ranges were written. Several ranks with zoff.persist commit ranges in the step instead, because
 *  they do it together
 *  @return ERR_STATE before seal, for a gradient that was declared twice, or without a gradient buffer. With
 *  zoff.background_threads the engine's thread may take the gradient later: then the next zoff_grad_ready() or the begin of the
 *  step returns its error */
ZOFF_API zoff_status zoff_grad_ready(zoff_engine *e, zoff_param p, size_t slice, void *native_stream);

/** An entry of zoff_grads_hand_over(): the gradient of one slice, and the present buffers of its parameter. */
typedef struct zoff_handover {
    size_t struct_size; /**< set by ZOFF_HANDOVER_INIT */
    zoff_param param;   /**< the parameter */
    unsigned flags;     /**< ZOFF_BIND_*, about `value` */
    size_t slice;       /**< the slice whose gradient is ready; ignored beside ZOFF_NO_GRAD */
    void *value;        /**< weights, from the first slice on; NULL: they have not moved */
    void *grad; /**< gradients, from the first slice on; NULL: they have not moved. ZOFF_NO_GRAD: no gradient is ready */
    void *native_stream; /**< as of zoff_grad_ready() */
} zoff_handover;
#define ZOFF_HANDOVER_INIT ZOFF_SIZED(zoff_handover)

/** Hand over all gradients of a backward pass that may have moved its buffers: bind each entry's buffers as
 *  zoff_param_bind_opts() does, then declare its slice ready as zoff_grad_ready() does.
 *
 *  Parameters that are neither in the list nor handed over in this step lose their gradient buffers, as by ZOFF_NO_GRAD. So a
 *  program may free the gradients of earlier steps, and has no gradient where it does not list one. An empty list unbinds all.
 *  All entries are checked before the first one is bound. Entries for other slices of a parameter repeat its buffers, or have
 *  NULL.
 *  @param list `count` entries, `stride` bytes apart: sizeof *list
 *  @blocks as zoff_grad_ready()
 *  @return as zoff_param_bind_opts() and zoff_grad_ready(), with the number of the entry: nothing has changed. After an error
 *  of a device, a disk or other ranks the entries before this one are handed over, and the buffers of all are bound */
ZOFF_API zoff_status zoff_grads_hand_over(zoff_engine *e, const zoff_handover *list, size_t stride, size_t count);

/** Borrow memory for the gradient of one slice whose parameter has no buffer (zoff_param_desc.grad is NULL): contiguous,
 *  zeroed, aligned to 64 bytes. A second call for a slice that is lent returns the same memory. With a device it is memory of
 * the device, zeroed in `native_stream`.
 *
 *  With several ranks from stage 2 on, and with gradient accumulation, no rank holds all gradients at a time. The memory serves
 *  another slice as soon as the gradient has been sent or added up. On a device it does so in every stage and with one rank, as
 *  soon as the gradient is downloaded or packed.
 *  @param native_stream device stream that will write it; NULL on the host. NULL with a device: it is zeroed when the call
 *  returns
 *  @owns the engine; valid until zoff_grad_ready() of the slice, or the end of the step. With a device, memory that is not
 *  handed over must not be written by work that is still in another stream when it is acquired again
 *  @blocks for gradients of other slices in flight, where that frees memory
 *  @return ERR_INVALID when the caller has a buffer, or for a frozen parameter; ERR_STATE once the slice was handed over. With
 *  a device also ERR_STATE where all parameters had buffers at seal, because then no memory was reserved, and ERR_NO_MEMORY
 *  where zoff.device_memory allows no more */
ZOFF_API zoff_status zoff_grad_acquire(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, void **out);

/** Set the weight of this rank's micro-batch. An update uses the weighted mean over all micro-batches of all ranks. If the
 *  gradients are those of a mean over tokens, for example, the weight is the number of tokens. Call it before the first
 * zoff_grad_ready() of the micro-batch. Without a call the weight is 1. A weight of 0 means no work: the gradients count as
 * zeros, also inf and nan. Without other ranks and without accumulation the call changes nothing.
 *  @return ERR_INVALID for a negative number or one that is not finite in fp32; ERR_STATE after the first zoff_grad_ready() */
ZOFF_API zoff_status zoff_grad_weight(zoff_engine *e, double weight);

/** Take a step: declare every slice that has a gradient buffer ready, begin, and wait. Collective over the ranks.
 *  @param args NULL: everything as the configuration says  @param info may be NULL
 *  @blocks until done or failed  @return as zoff_step_begin() and zoff_step_wait() */
ZOFF_API zoff_status zoff_step(zoff_engine *e, const zoff_step_args *args, zoff_step_info *info);

/** Measure the gradients of a step before it is taken, so that several engines of one rank can clip by one norm. Declares every
 *  slice that has a gradient buffer ready. Then join the sums of all engines, and take the step with zoff_step_args.norm_sum,
 *  by zoff_step(), or zoff_step_begin() and zoff_step_wait(). In between, weights and gradients are the engine's, and calls
 *  that need them are ERR_STATE. zoff_grads_drop() gives the step up.
 *
 *  Collective over the ranks of the engine, as a step: all get the same sum, and must pass the same joined one.
 *  @param args as of the step: NULL for all as the configuration says. norm_sum must be NULL. The step must have the same
 *  grad_scale, and the same t or 0; clip_norm, hyper and flags may change until then
 *  @param out the sum; unchanged after an error
 *  @threads as zoff_step()  @blocks until all gradients are summed and measured, or it has failed
 *  @return ERR_INVALID for bad arguments; ERR_STATE when a step is open, or before the last micro-step of an update;
 *  ERR_UNSUPPORTED with zoff_engine_opts.norm_comm: nothing has begun. An error while measuring, also ERR_INVALID where
 *  ranks differ, is that of all ranks (ERR_COMM where another one has it). It leaves the step failed, with weights and states
 *  unchanged. Then zoff_grads_drop() ends it, and zoff_step_retry() is ERR_STATE. zoff_grads_drop() is legal after every
 *  error */
ZOFF_API zoff_status zoff_step_measure(zoff_engine *e, const zoff_step_args *args, zoff_norm_sum *out);

/** Add the sum of another engine, whose step may have another number. Join each measurement once: zoff does not notice one that
 *  is added twice.
 *  @threads any, one at a time on each `into`  @blocks never
 *  @return ERR_INVALID for NULL, for bytes that are not a sum of this version, or for another factor of the gradients:
 *  `into` is unchanged */
ZOFF_API zoff_status zoff_norm_sum_join(zoff_norm_sum *into, const zoff_norm_sum *other);

/** Read the L2 norm, after the factor of the gradients and before clipping.
 *  @param out the norm; NAN if a gradient is not finite
 *  @threads any  @blocks never  @return ERR_INVALID for NULL, or for bytes that are not a sum of this version */
ZOFF_API zoff_status zoff_norm_sum_value(const zoff_norm_sum *sum, double *out);

/** Say what the next step will use, before its first zoff_grad_ready(). With zoff.speculation_memory buckets are updated before
 *  zoff_step_begin(), as soon as their gradients are complete. Without this call they are updated with `args` NULL. Where the
 *  step then has other arguments, or clips, these buckets are updated again: results never depend on this call.
 *  @param args as of zoff_step_begin(): t, hyper and grad_scale count; norm_sum must be NULL. It is not needed after the call
 *  @threads as zoff_step()  @blocks never
 *  @return ERR_INVALID for bad arguments; ERR_STATE before seal and while a step is open */
ZOFF_API zoff_status zoff_step_prepare(zoff_engine *e, const zoff_step_args *args);

/** Begin the step with the gradients that were declared ready. From here to zoff_step_wait() weights and gradients are the
 *  engine's. Collective over the ranks.
 *
 *  Calls that need whole states or weights finish the step first: saves and loads, zoff_params_pull() and zoff_params_push(),
 *  ranges of states and weights, zoff_loss_scaler_get(). They return its error if it fails. The next
 *  zoff_step_wait() returns its result in any case, and gradients of the next step are accepted after that.
 *
 *  Weights and states of a slice without a gradient stay as they are. The step still counts for it, also when no slice has a
 *  gradient: bias correction and schedule use one count of updates for the whole engine, as DeepSpeed's ZeRO does. (So Adam
 *  moves a weight whose first gradient comes late by up to (1 - beta1) / sqrt(1 - beta2) times lr: 3.2 times with the default
 *  betas. torch.optim counts for each parameter.)
 *  @blocks never, except: for reads of the "posix" I/O back-end; for reads in flight of engine-owned weights, and, with
 *  zoff.speculation_memory, of states that the step needs later; as zoff_state_flush() after ranges were written
 *  @return ERR_INVALID, ERR_STATE, or what zoff_state_flush() returns: nothing has begun */
ZOFF_API zoff_status zoff_step_begin(zoff_engine *e, const zoff_step_args *args);

/** Finish the step: all weights are new and all states are stored, or, when the step is skipped, nothing has changed. With
 *  gradient_accumulation_steps = k only every k-th call updates, with the mean of the k gradients, added up in fp32. Collective
 *  over the ranks.
 *  @param info may be NULL  @blocks until done or failed
 *  @return OK, also for a skipped step (info->skipped). ERR_OVERFLOW with fp16.enabled and a dynamic loss scale that cannot
 *  become less, and from the n-th skipped step in a row on where zoff.skip_nonfinite is n. Then the step is skipped and over,
 * nothing has changed, and the trainer decides whether to go on. ERR_STATE with zoff.check_use, for a weight that was used too
 * early: the step is complete. Any other error leaves the step open: info->outcome tells how far it came. Then
 * zoff_step_retry() continues it, and zoff_grads_drop() gives up a step that has changed nothing */
ZOFF_API zoff_status zoff_step_wait(zoff_engine *e, zoff_step_info *info);

/** Between zoff_step_begin() and zoff_step_wait(): wait until the weights of one slice are those after the step. So a trainer
 *  can begin its next forward pass before the step is over, and call this before each use of a weight. The step is the same to
 *  the bit. Weights without such a call may change at any time until zoff_step_wait(), which must come before the first
 * gradient of the next pass is written, except to buffers of zoff_grad_reusable(). Buckets are updated in the order in which
 * these calls used them in earlier steps, on rank 0 if there are several, at first in that of the parameters. They are updated
 * inside this call, inside zoff_engine_progress(), or by zoff.background_threads. Transfers go on between calls. Without an
 * open step, and in a micro-step that only adds gradients, it returns at once.
 *  @param native_stream device stream that will read the weights: it waits, and the call does not. NULL on the host; with a
 *  device the weights are there when the call returns
 *  @threads as zoff_step_wait()  @blocks until the slice is updated, or, with other ranks, until theirs are here
 *  @return OK, also when the step is skipped: the weights stay as they are. An error of the step, which every further call and
 *  zoff_step_wait() return, too: then as after zoff_step_wait(). With several ranks and weights of the engine the step stays
 *  open, and the call is repeated. ERR_INVALID for weights of the engine, or another stream;
 *  ERR_STATE after a failed step that zoff_step_wait() has told */
ZOFF_API zoff_status zoff_param_wait(zoff_engine *e, zoff_param p, size_t slice, void *native_stream);

/** Wait for one slice of each of `count` parameters from `first` on, as zoff_param_wait() does for one: for all tensors of a
 *  layer, for example, whose slices are its layers.
 *  @blocks until the last of them is updated
 *  @return as zoff_param_wait(), for the first that fails; ERR_INVALID before any wait, also where one has no such slice */
ZOFF_API zoff_status zoff_params_wait(zoff_engine *e, zoff_param first, size_t count, size_t slice, void *native_stream);

/** Between zoff_step_begin() and zoff_step_wait(): wait until the engine has read the gradient of one slice, so that the
 * program may write the next one to its buffer before zoff_step_wait(). With ZOFF_STEP_ZERO_GRADS the buffer is then cleared.
 * Parameters with tied weights may share a buffer: one call is enough. The next gradient is handed over after zoff_step_wait().
 * In a micro-step that only adds gradients, the call finishes the step, as a save does. Without an open step it returns at
 * once.
 *  @param native_stream device stream that will write the gradient: it waits for the clearing. NULL on the host; with a device
 *  the buffer is clear when the call returns
 *  @threads as zoff_step_wait()  @blocks until the slice is updated, and with several ranks until all gradients are sent
 *  @return as zoff_param_wait(); ERR_INVALID also for a parameter without a buffer of the program */
ZOFF_API zoff_status zoff_grad_reusable(zoff_engine *e, zoff_param p, size_t slice, void *native_stream);

/** Continue a step that failed, without repeating what is done. Weights and gradients must be as the failed call left them.
 *  After a flush of the drive failed (zoff.persist), everything that the step had written is written again; where the drive has
 *  lost some of it the call refuses, and only zoff_grads_drop() is left.
 *  @blocks as zoff_step_wait()  @return as zoff_step_wait(); ERR_STATE when no step has failed */
ZOFF_API zoff_status zoff_step_retry(zoff_engine *e, zoff_step_info *info);

/** Drop the gradients of this step and of all its micro-steps so far, without an update. Also ends a failed step that has
 *  changed nothing (ZOFF_OUTCOME_BEFORE). With zoff.persist it undoes a torn step: states and weights are those before it.
 * After a flush of the drive failed it also undoes states set since the last commit. Collective over the ranks.
 *  @return ERR_STATE for a torn step where states do not persist, or while weights are lent; ERR_IO: not undone, call it again
 */
ZOFF_API zoff_status zoff_grads_drop(zoff_engine *e);

/** Read the number of updates made so far.
 *  @return ERR_INVALID; ERR_STATE after a failed zoff_checkpoint_load() */
ZOFF_API zoff_status zoff_step_count(const zoff_engine *e, int64_t *out);

/** Set the number of updates after states were loaded: the next step is number `t` + 1. Flushes like zoff_state_flush(). With
 *  zoff.persist the files record it. The next engine continues with what was recorded last, also where `t` is 0. Collective
 *  over the ranks.
 *  @return an error leaves count and files as they were; call it again */
ZOFF_API zoff_status zoff_step_count_set(zoff_engine *e, int64_t t);

#ifdef __cplusplus
}
#endif
#endif
