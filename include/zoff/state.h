/* SPDX-License-Identifier: Apache-2.0 */
/* state.h: read and write optimizer states, weights that the engine owns, and the loss scale. */
#ifndef ZOFF_STATE_H
#define ZOFF_STATE_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A state of a parameter. */
typedef enum zoff_state_kind {
    ZOFF_STATE_MASTER = 0, /**< fp32 weights; for an fp32 parameter the weights themselves */
    ZOFF_STATE_M = 1,      /**< first moment: Adam, Lion, SGD with momentum */
    ZOFF_STATE_V = 2,      /**< second moment: Adam; sum of squares: Adagrad */
    ZOFF_STATE_WEIGHTS = 3 /**< weights of a frozen parameter; in checkpoints only */
} zoff_state_kind;

/** The dynamic loss scale of fp16 training, complete: a checkpoint that keeps these numbers continues with the same scales.
 * They are cur_scale, cur_iter, last_overflow_iter and cur_hysteresis of DeepSpeed's checkpoints. */
typedef struct zoff_loss_scaler {
    size_t struct_size;    /**< set by ZOFF_LOSS_SCALER_INIT */
    double scale;          /**< the trainer multiplies its loss by this */
    int64_t iterations;    /**< steps taken, including skipped ones */
    int64_t last_overflow; /**< the latest skipped step, counted from 0; -1: none */
    uint64_t hysteresis;   /**< overflows until the scale is halved; 1: the next one */
} zoff_loss_scaler;
#define ZOFF_LOSS_SCALER_INIT ZOFF_SIZED(zoff_loss_scaler)

/** Bytes of the program that a checkpoint carries, such as the state of a random generator or a position in the data. */
typedef struct zoff_checkpoint_data {
    const char *name; /**< name, unique in its list; at most 255 bytes */
    void *bytes;      /**< memory that a save reads before it returns, and a load writes */
    size_t count;     /**< number of bytes; a load fails if the checkpoint has another one */
    bool each_rank;   /**< each rank has its own, and as many ranks load them; false: rank 0 saves, all ranks load */
} zoff_checkpoint_data;

/** Take the weights as the new masters, after the caller has loaded or changed them. Moments stay.
 *
 *  Call it after each change of weights, and before the next step, for every type and tier. If one parameter has changed,
 *  zoff_param_pull() is enough, and leaves other masters as they are. A step without either goes on from some
 *  of the changed weights and overwrites others. It goes on from fp32 weights, because they are their own masters, and from
 *  16-bit weights that are the upper halves of their masters (zoff.master), with the old lower halves. It computes all others
 *  from the old masters. zoff.check_use refuses such a step. zoff_params_push() undoes a change instead, except of
 *  weights that are masters or half of them.
 *
 *  This call, zoff_params_push(), zoff_param_write(), zoff_state_read(), zoff_state_write(), zoff_step_count_set() and
 *  zoff_loss_scaler_set() are for the time between two updates, because gradients in flight are in no state.
 *  @blocks yes
 *  @return ERR_STATE between the micro-steps of an update, and after a gradient of the next step was handed over: finish the
 *  update, or call zoff_grads_drop() */
ZOFF_API zoff_status zoff_params_pull(zoff_engine *e);

/** Take the weights of one parameter as its new masters, as zoff_params_pull() does for all. Other masters keep their bits.
 * Tied parameters share one set. With zoff.persist the files get them as those of zoff_state_write(), at the next flush.
 *
 *  With several ranks each one calls it in the same order, with the same weights, and sets the part of the masters that it has.
 *  @blocks on the NVMe tier for the chunks of the parameter; never for other ranks
 *  @return ERR_INVALID for a parameter that does not exist; ERR_STATE as zoff_params_pull(), or while a slice of it is lent.
 *  After ERR_IO or ERR_DEVICE only a part of its masters may be set: steps are ERR_STATE until it is called again */
ZOFF_API zoff_status zoff_param_pull(zoff_engine *e, zoff_param p);

/** Write the masters to the weights, rounded as a step rounds them, after states were loaded. Collective over the ranks.
 *
 *  After ERR_IO or ERR_DEVICE call it again on this rank: the other ranks wait for it, and it goes on where it was. If some
 *  weights were sent before the error, calls that use states or weights return ERR_STATE until then.
 *  @blocks yes  @return ERR_STATE as zoff_params_pull() */
ZOFF_API zoff_status zoff_params_push(zoff_engine *e);

/** Copy a range of a parameter's state. Its slices are counted as one array, one after the other. Collective over the ranks.
 *
 *  Three orders read all states once. (1) Parameter by parameter. (2) One kind of all parameters before the next kind. (3) All
 *  kinds of one range before the next range, with ranges of at most half of zoff_plan_info.chunk_bytes. The same holds for
 * writing. On the NVMe tier the states of one kind in one chunk move together and stay in a slot until another chunk needs it.
 * A small range in order therefore costs a copy, and a range in random order costs one kind of a chunk. The first call stops
 * reading ahead for the next step; the next step starts it again.
 *  @units first and count: elements  @blocks yes; on the NVMe tier for a chunk that is in no slot
 *  @return ERR_INVALID when the range is not inside slices * count, the parameter is frozen, or its optimizer has no such
 *  state. ERR_IO also for an earlier range that could not be written: it is kept, and the next call writes it again. If a rank
 *  cannot read its part, all ranks have an error, `dst` has undefined content, and all may repeat the call */
ZOFF_API zoff_status zoff_state_read(zoff_engine *e, zoff_param p, zoff_state_kind kind, size_t first, size_t count,
                                     float *dst);

/** Set a range of a parameter's state; otherwise like zoff_state_read(). Moments in 16 or 8 bits are rounded to the nearest.
 *  Those in 8 bits are written in whole blocks of 1,024 elements of a slice, of which the last may be shorter. They are finite,
 *  but for up to 10 second moments of a block.
 *  Call zoff_params_push() after masters were set: some weights follow at once, and others only then.
 *  The states have the numbers at once. With zoff.persist the files get all ranges or none, at the next zoff_state_flush(),
 *  zoff_step_count_set(), step, or zoff_engine_destroy().
 *  @return as zoff_state_read(). ERR_INVALID also for a range that cuts a block, and for numbers that it does not store */
ZOFF_API zoff_status zoff_state_write(zoff_engine *e, zoff_param p, zoff_state_kind kind, size_t first, size_t count,
                                      const float *src);

/** Write the ranges that zoff_state_write() and zoff_param_write() have put off, and make them durable with zoff.persist. Does
 *  nothing without such ranges, except where it records the bytes of zoff_persist_data(). Collective over the ranks.
 *  @blocks for the disk
 *  @return ERR_IO or ERR_NO_SPACE: the files hold what they held before; call it again. An error of one rank is an error of
 *  all. With zoff_persist_data() ERR_STATE between the micro-steps of an update */
ZOFF_API zoff_status zoff_state_flush(zoff_engine *e);

/** Borrow the weights of one slice of an engine-owned parameter: contiguous, aligned to 64 bytes, read-only, as the last step
 *  left them. Change them with zoff_param_write(). A slice may be lent several times. Collective over the ranks.
 *
 *  With a device they are lent in its memory. Work that the program enqueues in `native_stream` after this call finds them. The
 *  call does not wait for copies to the device, nor for the program's work with other slices: the streams do.
 *
 *  In an open step it lends the weights after that step, whose buckets it updates as zoff_param_wait() does. On one
 *  rank without a device the slices that it expects next are copied when they are updated. Otherwise they are copied, sent or
 *  read after that, from files one chunk at a time. With several ranks it finishes a micro-step that only adds gradients.
 *
 *  The engine learns the order of these calls. In the next pass, from one step to the next, it reads slices ahead by
 *  stage3_prefetch_bucket_size. Slices that fit into stage3_max_live_parameters stay there for their next use.
 *  @param native_stream device stream that will read them; NULL on the host. NULL with a device: they are there when the call
 *  returns
 *  @owns the engine; valid until the zoff_param_release() that undoes this call  @blocks for reads from files and for other
 *  ranks, where the slice was not read ahead
 *  @return ERR_NO_MEMORY when more than stage3_max_live_parameters would be lent at a time, or no contiguous piece is free.
 *  ERR_IO or ERR_CORRUPT when the weights cannot be read: nothing is lent, call it again. An error of the open step, as
 *  zoff_param_wait(); with several ranks the step stays open, and this rank repeats the call, in which the others wait for it.
 *  ERR_STATE after a failed step that zoff_step_wait() has told */
ZOFF_API zoff_status zoff_param_fetch(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const void **out);

/** Return what one zoff_param_fetch() has lent. Before a step that updates, everything must be returned; weights may stay lent
 *  during a micro-step that only accumulates.
 *  @param native_stream device stream whose work, as enqueued so far, reads the slice; NULL: none reads it any more
 *  @return ERR_STATE for a slice that is not lent; with several ranks also after a failed step */
ZOFF_API zoff_status zoff_param_release(zoff_engine *e, zoff_param p, size_t slice, void *native_stream);

/** Set a range of the weights of an engine-owned parameter, and its masters. Its slices are counted as one array, one after the
 *  other. Moments stay. No part of the range may be lent. Durable as zoff_state_write() is.
 *  @units first and count: elements; src: the parameter's type  @blocks yes */
ZOFF_API zoff_status zoff_param_write(zoff_engine *e, zoff_param p, size_t first, size_t count, const void *src);

/** Copy a range of the weights of an engine-owned parameter; otherwise like zoff_param_write(). Collective over the ranks.
 *  @return as zoff_state_read() */
ZOFF_API zoff_status zoff_param_read(zoff_engine *e, zoff_param p, size_t first, size_t count, void *dst);

/** Record the program's own bytes, such as the position in its data, together with the states. For zoff.persist.
 *
 *  If zoff_engine_seal() has found states of an earlier run, the call first copies the bytes of that commit to `data`, by name.
 *  Bytes whose name the files do not have stay as they are. From then on each commit records the bytes as they are during it:
 *  each step that updates, zoff_state_flush() and zoff_step_count_set(). So before a step, set the position to where the next
 *  run shall go on after it. A step that is skipped commits nothing: a run that ends then repeats the skipped steps, with the
 *  bytes, the loss scale and the states of the last update.
 *
 *  Call it once, after zoff_engine_open() and before the first step. Another call replaces the list; what was recorded is
 *  copied until the first update. Collective over the ranks: each gives the same names. Bytes without each_rank are those of
 *  rank 0.
 *
 *  zoff_checkpoint_load() commits, too. Until the program has given a list, that commit records the bytes that it loads
 *  (zoff_checkpoint_opts.data), as many entries as fit into 64 KiB, and a later call copies those.
 *  @param data copied, `count` entries; together at most 64 KiB with their names. 0 entries: record none
 *  @owns the bytes stay the caller's: keep them until the next call, or until zoff_engine_destroy() has returned
 *  @blocks for the other ranks
 *  @return ERR_INVALID without zoff.persist, for a list that is too long, and for a number of bytes that differs from the
 * files': nothing was copied. ERR_STATE before seal, and between the micro-steps of an update */
ZOFF_API zoff_status zoff_persist_data(zoff_engine *e, const zoff_checkpoint_data *data, size_t count);

/** Read the factor that the trainer multiplies its loss by in the coming micro-step; 1 without fp16.enabled. It is the same in
 *  all micro-steps of an update. The engine divides the gradients by it before it takes their norm.
 *
 *  While a step is open it is the scale after that step, which its gradients decide.
 *  @blocks where fp16.loss_scale is dynamic and a step is open: until all ranks have decided, as zoff_param_wait()
 *  @return ERR_INVALID; ERR_STATE after a failed zoff_checkpoint_load(); otherwise as zoff_param_wait() */
ZOFF_API zoff_status zoff_loss_scale(const zoff_engine *e, double *out);

/** Read the loss scale and its counters, for a checkpoint.
 *  @return ERR_INVALID; ERR_STATE after a failed zoff_checkpoint_load() */
ZOFF_API zoff_status zoff_loss_scaler_get(const zoff_engine *e, zoff_loss_scaler *out);

/** Set the loss scale and its counters from a checkpoint. Fields that a shorter struct lacks stay as they are. With
 *  zoff.persist no call is needed: each commit records them, as they are after its update, and an engine that continues with
 *  the states of an earlier run continues with them. Files get what this call sets at the next step or zoff_step_count_set().
 *  @return ERR_INVALID for a scale out of range, or one that differs from a static scale of the configuration; ERR_STATE
 *  without fp16.enabled, and in the middle of an update (see zoff_params_pull()) */
ZOFF_API zoff_status zoff_loss_scaler_set(zoff_engine *e, const zoff_loss_scaler *scaler);

#ifdef __cplusplus
}
#endif
#endif
