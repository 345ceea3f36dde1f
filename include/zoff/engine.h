/* SPDX-License-Identifier: Apache-2.0 */
/* engine.h: create an engine, register parameters, and see what they take.
 *
 *  An engine owns the optimizer states of a list of parameters and takes their step. Its life:
 *
 *      create -> add_param ... -> seal -> { gradients, step } ... -> destroy
 *      open                            -> { gradients, step } ... -> destroy       (the same in one call)
 *
 *  step.h has gradients and the step. state.h has states, checkpoints, and weights that the engine owns.
 *
 *  Weights and gradients are the caller's memory, aligned to their element. The engine never frees or moves them, and does not
 *  touch them after destroy. The engine may also own weights (zoff_param_desc.engine_owned): then they are in DRAM, on
 *  NVMe or on a device, and the caller borrows a slice while it uses it. Optimizer states (fp32 masters of 16-bit weights,
 * first and second moments) always belong to the engine: in DRAM, or in files that are streamed through a DRAM budget. The
 * tier, the number of threads and the chunk size never change a bit of the result.
 *
 *  With several ranks (zoff_engine_opts.comm or .ranks) every rank registers the same parameters and takes the same steps.
 *  Seal, steps, zoff_param_fetch(), zoff_param_read(), zoff_state_read(), zoff_state_flush(), zoff_persist_data(),
 * zoff_params_push() and zoff_grads_drop() are collective: every rank makes these calls, in the same order. Every rank also
 * calls zoff_params_pull(), zoff_param_pull(), zoff_param_write() and zoff_state_write() in that order, with the same data.
 */
#ifndef ZOFF_ENGINE_H
#define ZOFF_ENGINE_H

#include <zoff/state.h>
#include <zoff/step.h>
#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Options of an engine. A value given here wins over the configuration. All zero: the default configuration, on the host, one
 *  rank. */
typedef struct zoff_engine_opts {
    size_t struct_size;      /**< set by ZOFF_ENGINE_OPTS_INIT */
    const char *config_path; /**< a ds_config file; NULL: defaults. Ignored when `config` is given */
    zoff_config *config;     /**< an open configuration; read during create, stays the caller's */
    zoff_accel *accel;       /**< device that holds weights and gradients; NULL: the host. Borrowed until destroy */
    zoff_comm *comm;         /**< the ranks; NULL: see `ranks`. Borrowed until destroy */
    const char *ranks;       /**< join these ranks, and leave them at destroy: "auto", "mpi", "nccl", as
                                  zoff_comm_opts.backend; NULL: this rank alone. Not together with `comm` */
    zoff_tier state_tier;    /**< tier of the states; AUTO: NVME with nvme_path, otherwise offload_optimizer.device */
    const char *nvme_path;   /**< folder for state files, and for files of weights without a folder of their own; NULL:
                                  offload_optimizer.nvme_path */
    uint64_t host_bytes;     /**< DRAM budget for states; 0: zoff.host_memory */
    uint64_t chunk_elements; /**< largest chunk in which states are stored and moved, at least 1024; 0: automatic */
    unsigned threads;        /**< threads of the update; 0: zoff.threads, by default one for each physical core */
    bool progress_thread;    /**< run zoff_engine_progress() on a thread of the engine while the program computes, without
                                  updates of an open step (zoff.background_threads adds those). Useful with several ranks from
                                  stage 2 on, or on a device. The thread polls 5,000 times a second while something is in
                                  flight and sleeps otherwise. Calls of the engine wait while it adds up
                                  gradients. Several engines on one communicator may have one each */
    int64_t persist_t; /**< with zoff.persist: open the states after this update. The files have the last commit and, until
                            the next step begins to write, the one before it. Opening that one compares all of it with
                            its checksums and then removes the newer one. 0: the last. Another number is ERR_INVALID,
                            which lists those that there are */
    zoff_progress_fn progress; /**< called by seal at least every 64 MiB that it writes to files or reads from them, or every
                                  aio.block_size * aio.queue_depth bytes if that is more; if it returns false, seal ends with
                                  ERR_CANCELED on all ranks. NULL: a line of level info every 5 seconds */
    void *progress_ctx;        /**< passed to progress */
    zoff_comm *norm_comm; /**< ranks whose engines train other parts of one model, as tensor and pipeline parallel ranks do:
                               gradient norm, clipping, skipped steps and zoff_engine_request_stop() are those of all of them.
                               Every rank of `comm` gives one, and has the same rank in it. Seal, steps and zoff_grads_drop()
                               are then collective over it, too. NULL: the norm is that of this engine. Borrowed until
                               destroy */
} zoff_engine_opts;
#define ZOFF_ENGINE_OPTS_INIT ZOFF_SIZED(zoff_engine_opts)

/** A parameter: `slices` arrays of `count` elements each, `value_stride` apart, as C trainers stack their layers.
 *  @owns value and grad are the caller's; they must live until destroy, or until zoff_param_bind() replaces them.
 *  Trained bf16 weights may be half of the state (zoff.master): docs/how-to/choose-tiers.md says what follows */
typedef struct zoff_param_desc {
    size_t struct_size;    /**< set by ZOFF_PARAM_DESC_INIT; zoff_engine_open() accepts 0 */
    void *value;           /**< weights; read at seal, written by each step. May be NULL when count is 0 */
    void *grad;            /**< gradients; NULL: bound later, lent by zoff_grad_acquire(), or none. With a device, a parameter
                                without it at seal reserves memory to lend, and the host measures the gradients */
    size_t count;          /**< elements of a slice; 0, 1 and more than 2^31 are legal */
    size_t slices;         /**< number of slices; 0 means 1 */
    size_t value_stride;   /**< elements from one slice to the next; 0 means count */
    size_t grad_stride;    /**< elements from one slice to the next; 0 means count */
    zoff_dtype dtype;      /**< type of value: ZOFF_F32 (default), ZOFF_BF16 or ZOFF_F16 */
    zoff_dtype grad_dtype; /**< type of grad: any type beside any dtype; 0 means the same as dtype */
    unsigned group;        /**< index of the parameter's group of hyper-parameters */
    bool frozen;           /**< never updated; has no states */
    const char *name;   /**< name in messages, checkpoints and exports; at most 4,095 bytes, and no other parameter may have it;
                           copied; NULL: "param<index>" */
    bool engine_owned;  /**< the engine owns the weights: see zoff_param_fetch(). `value` may point to the first weights,
                             which seal reads once, in host memory also where the engine has a device; NULL: zeros, until
                             zoff_param_write() */
    const size_t *dims; /**< shape of a slice, for checkpoints and exports; copied. NULL: one dimension of `count` */
    size_t dim_count;   /**< dimensions in `dims`, 1 to 64; their product must be `count`. 0 where dims is NULL */
    const char *slice_name; /**< name of one slice in exports: "{}", once in it, becomes the index of the slice, as in
                                 "layers.{}.weight"; at most 4,095 bytes; copied. No other parameter or slice may have the
                                 resulting names. NULL: slices are exported as one tensor */
    bool norm_replicated;   /**< other ranks of norm_comm have this parameter by the same name, with the same first weights and
                                 gradients: its norm counts once, on the lowest of them. Seal compares the weights, and each step
                                 that measures the gradients compares the sums of squares of their blocks: a difference is
                                 ERR_INVALID on all ranks, names the parameter, and changes nothing */
    bool reduced; /**< every rank of the engine hands over the same gradient, which the trainer has reduced itself: the engine
                     neither exchanges nor averages it. The owner of an element reads its own copy, for the norm, the check for
                     inf and nan, and the update. Steps compare the bits of all copies: 16 blocks of 1,024 elements of each
                     slice, and other blocks in the next step. A difference is ERR_INVALID on all ranks, names the parameter,
                     and changes nothing. Not for several ranks whose communicator reaches the memory of the device */
    const size_t *matrix_rows; /**< for Muon: a slice is read as dims[0] rows, which are cut into matrices of so many rows, in
                                  this order, again and again: {4096, 1024, 1024} for a fused QKV. Their sum divides dims[0].
                                  Copied. NULL: zoff.muon_rows or dims decide */
    size_t matrix_row_count;   /**< numbers in `matrix_rows`; 0 where it is NULL */
} zoff_param_desc;
#define ZOFF_PARAM_DESC_INIT ZOFF_SIZED(zoff_param_desc)

/** Traffic of this rank with others, as zoff_comm_info counts it. */
typedef struct zoff_plan_traffic {
    uint64_t sent_bytes; /**< to other ranks */
    uint64_t node_bytes; /**< part of sent_bytes to ranks of the same node; all of it where nodes are not known */
    uint64_t notes;      /**< headers */
    uint64_t messages;   /**< other messages */
} zoff_plan_traffic;

/** Memory, files and traffic of an engine on this rank. The engine allocates by the same numbers. */
typedef struct zoff_plan_info {
    size_t struct_size;         /**< set by ZOFF_PLAN_INFO_INIT */
    zoff_tier tier;             /**< tier of the states */
    uint64_t elements;          /**< trainable elements of this rank */
    uint64_t state_bytes;       /**< masters and moments, without padding */
    uint64_t host_bytes;        /**< DRAM for states: all of them; on the NVMe tier the slots and resident_bytes */
    uint64_t nvme_bytes;        /**< files of states, padded; doubled by zoff.persist and by zoff.speculation_memory. Each
                                     file also has a header */
    uint64_t accumulator_bytes; /**< DRAM for gradient accumulation in fp32, and for sums of tied gradients */
    uint64_t chunk_count;       /**< chunks in which states are stored and moved */
    uint64_t chunk_bytes;       /**< size of the largest chunk */
    unsigned slots;             /**< chunks in DRAM at a time on the NVMe tier; 0 on the host tier */
    unsigned threads;           /**< threads of the update */
    uint64_t resident_bytes;    /**< NVMe tier: states that stay in DRAM because the budget has room beside the slots. Part of
                                     host_bytes; in files only with zoff.persist */
    uint64_t step_read_bytes;   /**< bytes read from files in a step that updates every parameter */
    uint64_t step_write_bytes;  /**< bytes written to files in such a step */
    uint64_t weight_bytes;      /**< weights that the engine owns, without padding */
    uint64_t weight_host_bytes; /**< DRAM for engine-owned weights: all, or buffers, cached ones, and slices that are lent. With
                                   a device: stored ones, buffers, and small slices that stay whole */
    uint64_t weight_nvme_bytes; /**< files of weights */
    uint64_t exchange_bytes;    /**< DRAM for data to and from other ranks; 0 for one rank */
    uint64_t device_host_bytes; /**< DRAM for gradients downloaded from a device, weights to upload, and 8 bytes for each 1024
                                     elements whose norm is measured there; 0 where the CPU reaches the device's memory. From
                                     stage 2 on gradients also take the bytes in flight */
    uint64_t device_bytes;      /**< device memory: the states that offload_optimizer.ratio leaves there, with sums of their
                                     gradients; where the communicator reaches the device, staging and sums of the exchange;
                                     weights of the engine that are stored or whole there; and gradients that it lends, twice
                                     reduce_bucket_size at most. zoff.device_memory limits it */
    uint64_t memory_bytes;      /**< DRAM in all: host_bytes, accumulator_bytes, weight_host_bytes, exchange_bytes,
                                     device_host_bytes, speculation_bytes, nvme_memory_bytes and matrix_bytes. zoff.host_memory
                                   limits only the first */
    uint64_t memory_free_bytes; /**< DRAM that this process can still allocate, by the machine and its cgroups */
    uint64_t save_bytes;        /**< DRAM beside memory_bytes while a checkpoint is saved, at most: copies of states, by the
                                     default of zoff_checkpoint_opts.memory */
    uint64_t speculation_bytes; /**< DRAM for buckets that are updated ahead of a step: zoff.speculation_memory, or less where
                                     all buckets need less. For states in DRAM at most 1/15 of them more, so that chunks of
                                     about the same size can change places */
    uint64_t nvme_memory_bytes; /**< DRAM for files of states and weights whose folder is in memory (tmpfs, or an overlay on
                                     it), beside what such files of an earlier run have already. Part of memory_bytes */
    uint64_t matrix_elements;   /**< Muon: elements of matrices, of this rank */
    uint64_t matrix_flop;  /**< Muon: floating-point operations of a step that orthogonalizes all matrices, on this rank: from
                              stage 1 on, its share of them */
    uint64_t matrix_bytes; /**< Muon: DRAM for directions of matrices and for their products. Part of memory_bytes */
    zoff_plan_traffic reduce; /**< of a step of all micro-batches: gradients */
    zoff_plan_traffic report; /**< of a step: decisions, such as which slices take part, and the norm */
    zoff_plan_traffic gather; /**< of a step that updates every parameter: weights, or sums at stage 0, and matrices */
    zoff_plan_traffic fetch;  /**< of one fetch of each slice of engine-owned weights, as far as ranks have parts of them */
    int exact_sums;           /**< not 0: sums of gradients are exact */
    unsigned sum_ranks;       /**< gradients take two hops, within nodes of so many ranks and between them; 0 or 1: one hop */
    int sums_once;            /**< not 0: the second hop is once a step, and not in each micro-batch */
} zoff_plan_info;
#define ZOFF_PLAN_INFO_INIT ZOFF_SIZED(zoff_plan_info)

/** Create an empty engine. Engines may share a communicator: then each rank creates and seals them in the same order, and makes
 *  the collective calls of all engines in one order (docs/RANKS.md).
 *  @param opts NULL: defaults
 *  @owns caller; zoff_engine_destroy()
 *  @blocks with opts.ranks until all ranks have joined
 *  @return an error leaves nothing behind; ERR_UNSUPPORTED for a progress_thread where the communicator allows calls from the
 *  program's threads only */
ZOFF_API zoff_status zoff_engine_create(const zoff_engine_opts *opts, zoff_engine **out);

#define zoff_engine_open(opts, params, count, out) zoff_engine_open_sized((opts), (params), sizeof *(params), (count), (out))
/** Create an engine, add `count` parameters and seal it, in one call. Programs call it by the macro zoff_engine_open(opts,
 *  params, count, &engine). Collective over the ranks.
 *  @param opts NULL: defaults  @param params array of descriptions, `param_stride` bytes apart; their struct_size may be 0
 *  @owns caller; zoff_engine_destroy()  @blocks as zoff_engine_seal()
 *  @return as zoff_engine_create(), zoff_engine_add_param() and zoff_engine_seal(); an error leaves nothing behind */
ZOFF_API zoff_status zoff_engine_open_sized(const zoff_engine_opts *opts, const zoff_param_desc *params, size_t param_stride,
                                            size_t count, zoff_engine **out);

/** Wait for what is in flight, remove the files unless zoff.persist keeps them, leave the ranks of opts.ranks, and free the
 *  engine. NULL is allowed. A step that zoff_step_wait() has not ended is given up with a warning, and its weights may be old.
 *
 *  With zoff.persist, ranges written since the last commit are flushed first, which is collective. An error of that flush is
 *  only logged and the files hold the last commit: call zoff_state_flush() before to get the error.
 *  @blocks for a disk or device that does not move at most 10 s, or the communicator's timeout_seconds if that is less. Memory
 *  that the disk or device may still use stays allocated, and a warning says so */
ZOFF_API void zoff_engine_destroy(zoff_engine *e);

/** Add a parameter. Every rank adds the same parameters in the same order.
 *
 *  Register tied weights once for each name, with the same value, count, slices, value_stride, dtype, dims and group. They
 *  share one master and one set of states, which zoff_state_read() and zoff_state_write() reach by any of the names. The
 *  engine adds up the gradients of all names in fp32; a name may have no gradient, or share the buffer of another. Any other
 *  overlap of weights or gradients is refused by zoff_engine_seal().
 *  @param out index of the parameter; may be NULL
 *  @return ERR_STATE once sealed; ERR_INVALID for a description that contradicts itself, or a name that another parameter has:
 *  nothing was added */
ZOFF_API zoff_status zoff_engine_add_param(zoff_engine *e, const zoff_param_desc *desc, zoff_param *out);

/** Find a parameter by its name, which is "param<index>" for one that was added without.
 *  @return ERR_INVALID where no parameter has the name */
ZOFF_API zoff_status zoff_engine_find_param(const zoff_engine *e, const char *name, zoff_param *out);

/** Return the message of the call with this engine that has just failed, on whichever thread. Goroutines and tasks move between
 *  threads, and zoff_last_error() has the message of one thread.
 *  @param e NULL, as after a failed zoff_engine_open(): zoff_last_error()
 *  @owns the engine; valid until the next call with it, also from another thread. "" before any failure */
ZOFF_API const char *zoff_engine_error(const zoff_engine *e);

/** Set the learning rate of a group, as a trainer with a schedule of its own does before each step. A scheduler of the
 *  configuration that scales the group's rate goes on from this one. With Muon it is that of matrices; zoff_engine_set_group()
 *  sets adam_lr. Legal as zoff_engine_set_group(), of which it is a short form. With zoff.speculation_memory call it before the
 * first zoff_grad_ready() of a step, or buckets are updated again.
 *  @return ERR_INVALID for a number out of range, or for a scheduler that computes the rate without that of the group;
 * ERR_STATE while a step is open */
ZOFF_API zoff_status zoff_engine_set_lr(zoff_engine *e, unsigned group, double lr);

/** Set the hyper-parameters of a group that differ from the configuration; ZOFF_KEEP leaves a number as it is. A learning-rate
 *  schedule still acts on lr and adam_lr, and OneCycle on the betas. Legal between steps, on every rank before the same step;
 * groups may have different optimizers.
 *  @return ERR_INVALID for a number out of range; ERR_STATE when seal has laid out the states of another optimizer, or of SGD
 *  without the momentum that is asked for now */
ZOFF_API zoff_status zoff_engine_set_group(zoff_engine *e, unsigned group, const zoff_optimizer_hyper *hyper);

/** Fill `out` with the hyper-parameters of a group: the configuration's, or those of zoff_engine_set_group(). Change one field
 *  and pass the struct to zoff_engine_set_group() or zoff_step_args.hyper.
 *  @param t 0: as zoff_engine_set_group() takes them, without the schedule; otherwise as step `t` uses them, with it
 *  @param out struct_size set; zoff_optimizer_hyper_init() does that
 *  @return ERR_INVALID for a group that no parameter is in, or a negative t */
ZOFF_API zoff_status zoff_engine_get_group(const zoff_engine *e, unsigned group, int64_t t, zoff_optimizer_hyper *out);

/** Compute what the parameters added so far take on this rank, without allocating it.
 *  @return ERR_INVALID or ERR_NO_MEMORY where zoff_engine_seal() would return it */
ZOFF_API zoff_status zoff_engine_plan(const zoff_engine *e, zoff_plan_info *out);

/** Fix the list of parameters and the optimizer of each group, allocate memory and files, and take the weights as masters. The
 *  moments begin at zero. Weights on a device are read in a stream of the engine, so finish writing them before this call.
 *  Collective over the ranks.
 *
 *  With zoff.persist, and files of an earlier engine of the same parameters in the folder, the states are those that it has
 *  recorded last. A whole step, zoff_state_flush(), zoff_step_count_set() and zoff_checkpoint_load() record them.
 *  zoff_step_count() returns the number of the step. The weights are not changed: before the next step call zoff_params_push()
 *  to set them from the states, or zoff_params_pull() to take them as masters. If nothing was recorded, the files begin anew.
 *  @blocks seconds; for the disk and the other ranks
 *  @return ERR_NO_MEMORY or ERR_NO_SPACE with the bytes needed, the bytes available and the key to change. ERR_IO for a path
 *  that cannot be used. ERR_INVALID for buffers that overlap. ERR_INVALID or ERR_CORRUPT for persistent files that belong to
 *  another model or are damaged, or do not have persist_t. ERR_INVALID or ERR_COMM for ranks that differ, with the values.
 * ERR_CANCELED where zoff_engine_opts.progress returned false. After an error the engine is as before and may be sealed again
 */
ZOFF_API zoff_status zoff_engine_seal(zoff_engine *e);

/** As `grad` of zoff_param_bind(): the parameter has no gradient buffer from now on, as if it had been registered without. */
#define ZOFF_NO_GRAD ((void *)1)

/** Bind other buffers to a parameter, between steps; NULL leaves one as it is. Gradients may be allocated late this way, and
 *  ZOFF_NO_GRAD takes one away: then steps leave the parameter out until another buffer is bound. The weights of the new
 *  buffer are not read: see zoff_param_pull(). Those that are half of their masters (zoff.master) are copied to it from the old
 *  buffer, which must still be there.
 *  @return ERR_INVALID for a `value` of weights that the engine owns; ERR_STATE after a gradient of the parameter was handed
 *  over (zoff_grad_ready()) or lent (zoff_grad_acquire()) for the coming step: nothing has moved */
ZOFF_API zoff_status zoff_param_bind(zoff_engine *e, zoff_param p, void *value, void *grad);

/** Flags of zoff_handover. */
enum {
    ZOFF_BIND_MOVED = 1u << 0 /**< the program has moved the weights: `value` has those of the old buffer, bit by bit. Nothing
                                 is copied, and the old buffer may be gone, unless zoff_checkpoint_begin() still saves it */
};

/** Bind other buffers as zoff_param_bind() does, with flags.
 *  @param flags ZOFF_BIND_*; 0: as zoff_param_bind()
 *  @return as zoff_param_bind(); ERR_INVALID for unknown flags, and for ZOFF_BIND_MOVED where `value` is NULL */
ZOFF_API zoff_status zoff_param_bind_opts(zoff_engine *e, zoff_param p, void *value, void *grad, unsigned flags);

/** Return the communicator of an engine, which has the rank and the number of ranks.
 *  @owns the engine, or the caller who passed it; never NULL for an engine  @threads any */
ZOFF_API zoff_comm *zoff_engine_comm(const zoff_engine *e);

/** Let transfers between steps continue: gradients in flight, and states that the next step begins with. zoff_grad_ready()
 *  does the same. In an open step, after its first zoff_param_wait(), it also updates the buckets that are ready. Call it now
 * and then in a long computation, or set zoff_engine_opts.progress_thread or zoff.background_threads. Nearly free when nothing
 * has arrived.
 *  @blocks while it updates; never for a transfer, except for reads of the "posix" I/O back-end
 *  @return OK: nothing is in flight; PENDING: something is; ERR_STATE before seal. The step reports an error of its work */
ZOFF_API zoff_status zoff_engine_progress(zoff_engine *e);

/** Request a clean stop of all ranks. The next update says so on every rank, by zoff_step_info.stop_requested, and so do all
 *  steps after it. Then each rank can save a checkpoint and end.
 *
 *  A request that comes too late for the update that is under way takes effect in the one after it. A skipped step counts as an
 *  update. With gradient accumulation the last micro-step is the one that updates. There is no way to withdraw a request. The
 *  engine itself neither stops nor installs a signal handler: call this from the program's own handler, for example of SIGTERM.
 *  @param e NULL: nothing happens
 *  @threads any, also a signal handler, from the return of zoff_engine_create() to the call of zoff_engine_destroy(). One rank
 *  is enough
 *  @blocks never; errno and zoff_last_error() stay as they are */
ZOFF_API void zoff_engine_request_stop(zoff_engine *e);

/** Write bytes, seconds and counts since seal as one JSON object.
 *  @return OK; *out_bytes (may be NULL) is the length of the whole text without the final 0, also where `dst` is shorter */
ZOFF_API zoff_status zoff_stats_print(const zoff_engine *e, char *dst, size_t dst_bytes, size_t *out_bytes);

#ifdef __cplusplus
}
#endif
#endif
