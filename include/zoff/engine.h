/* engine.h: an engine owns the optimizer states of a list of parameters and takes their step.
 *
 *  The life of an engine:   create -> add_param ... -> seal -> { grad_ready ... step_begin step_wait } ... -> destroy
 *  The short form:          open   ->                          { step } ...                                -> destroy
 *
 *  Weights and gradients are the caller's memory, aligned to their element and no more; the engine never frees, moves or
 *  keeps them after destroy. Weights may also be the engine's (zoff_param_desc.engine_owned): then they live in DRAM or on
 *  NVMe, and the caller fetches a slice where it uses it and releases it after. The optimizer states (fp32 masters of 16-bit
 *  weights, and of first and second moments those that the optimizer has) are the engine's: in DRAM, or in files streamed
 *  through a DRAM budget. Where they live, how many threads work and how the list is cut never changes a bit of the result.
 *
 *  With several ranks (zoff_engine_opts.comm) all of them register the same parameters and take the same steps, and seal,
 *  steps, fetch, zoff_param_read(), zoff_state_read(), zoff_state_flush(), zoff_params_push() and zoff_grads_drop() are
 *  collective: every rank makes these calls, in the same order. What is written (zoff_param_write(), zoff_state_write()) is
 * given alike on each.
 *
 *  An engine is used by one thread at a time; different engines are independent. No call exits or aborts: it returns a
 *  status, and zoff_last_error() has the words. Nothing is printed but warnings and errors, by the log (zoff_log_set()).
 */
#ifndef ZOFF_ENGINE_H
#define ZOFF_ENGINE_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How to build an engine. A zeroed struct with struct_size set means: the default configuration, on the host, alone.
 *  New fields are only ever appended; struct_size tells the library which ones the caller knows.
 *  A value given here wins over the configuration. */
typedef struct zoff_engine_opts {
    size_t struct_size;      /**< sizeof(zoff_engine_opts) of the caller; 0 is rejected */
    const char *config_path; /**< ds_config JSON; NULL: defaults. Ignored when `config` is given */
    zoff_config *config;     /**< an opened configuration; read during create, stays the caller's */
    zoff_accel *accel;       /**< where weights and gradients live; NULL: the host. Borrowed until destroy. On a device with
                                  memory of its own both are the program's: engine_owned and zoff_grad_acquire() are for the
                                  host */
    zoff_comm *comm;         /**< the ranks; NULL: this one alone. Borrowed until destroy */
    zoff_tier state_tier;    /**< home of the states; AUTO: offload_optimizer.device */
    const char *nvme_path;   /**< folder for the state files; NULL: offload_optimizer.nvme_path */
    uint64_t host_bytes;     /**< DRAM that states may take; 0: zoff.host_memory */
    uint64_t
        chunk_elements;   /**< states are kept and moved in chunks of at most so many elements, at least 1024; 0: automatic */
    unsigned threads;     /**< of the update; 0: zoff.threads, which is one for each physical core by default */
    bool progress_thread; /**< a thread of the engine's does what zoff_engine_progress() does while the program computes: with
                               several ranks from stage 2 on, or on a device. It looks five thousand times a second while
                               something is on its way, and never else. Calls of this engine wait while it adds up what has
                               come. Several engines on one communicator may have one each */
} zoff_engine_opts;

/** One parameter: `slices` arrays of `count` elements each, `value_stride` apart (a C trainer stacks its layers so).
 *  @owns value and grad stay the caller's and must live until destroy, or until zoff_param_bind() names others */
typedef struct zoff_param_desc {
    size_t struct_size;    /**< sizeof(zoff_param_desc) of the caller; 0 is rejected by zoff_engine_add_param() */
    void *value;           /**< weights; read at seal and written by each step. May be NULL when count is 0 */
    void *grad;            /**< gradients; NULL: bound later, or this parameter gets none */
    size_t count;          /**< elements of a slice; 0 and 1 are legal, > 2^31 too */
    size_t slices;         /**< 0 means 1 */
    size_t value_stride;   /**< elements from one slice to the next; 0 means count */
    size_t grad_stride;    /**< elements from one slice to the next; 0 means count */
    zoff_dtype dtype;      /**< of value: ZOFF_F32 (default), ZOFF_BF16 or ZOFF_F16 */
    zoff_dtype grad_dtype; /**< of grad: any of the three beside any of value; 0 means the same as dtype */
    unsigned group;        /**< index of its hyper-parameters */
    bool frozen;           /**< never updated: costs no state */
    const char *name;      /**< for messages; copied; NULL: "param<index>" */
    bool engine_owned; /**< the weights are the engine's: see zoff_param_fetch(). Then value, if given, holds the first ones,
                            read at seal and never again; NULL: they start as zeros, and zoff_param_write() sets them */
} zoff_param_desc;

/** zoff_step_args.flags */
enum {
    ZOFF_STEP_ZERO_GRADS = 1u << 0 /**< set the gradients to zero once they are used (also when the step is skipped) */
};

/** Do not clip: in zoff_step_args.clip_norm, and (-1) in the configuration's gradient_clipping. */
#define ZOFF_CLIP_OFF (-1.0)

/** What one step is to do. NULL or a zeroed struct with struct_size set: everything from the configuration. */
typedef struct zoff_step_args {
    size_t struct_size;           /**< sizeof(zoff_step_args) of the caller; 0 is rejected */
    int64_t t;                    /**< number of this step, from 1, for bias correction and schedule; 0: one more than the
                                       updates made so far (zoff_step_count()) */
    const zoff_adam_hyper *hyper; /**< one for each group, or a single one for all, each of the optimizer that the group was
                                       sealed for; NULL: configuration and schedule */
    size_t hyper_stride;          /**< bytes from one to the next, aligned as they are; 0 means sizeof(zoff_adam_hyper) of the
                                       caller */
    size_t hyper_count;           /**< how many; a parameter's group must be below it, unless it is 1 */
    double clip_norm;             /**< clip the global norm to this; 0: gradient_clipping; ZOFF_CLIP_OFF or another
                                       negative number: do not clip. Gradients are
                                       multiplied by clip_norm / (norm + 1e-6), at most 1, as clip_grad_norm_ of PyTorch does */
    double grad_scale; /**< multiplies each gradient before anything else (1 / loss scale where that is the trainer's own);
                            0 means 1. The same in all micro-steps of one update. With fp16.enabled it comes on top of the
                            engine's own 1 / zoff_loss_scale() */
    unsigned flags;    /**< ZOFF_STEP_* */
} zoff_step_args;

/** How a step ended. */
typedef enum zoff_outcome {
    ZOFF_OUTCOME_BEFORE = 0, /**< weights and states are those before the step */
    ZOFF_OUTCOME_AFTER = 1,  /**< the step is done in full */
    ZOFF_OUTCOME_TORN = 2    /**< it failed half way: some chunks are updated, some not; zoff_step_retry() finishes it, and with
                                  zoff.persist zoff_grads_drop() undoes it */
} zoff_outcome;

/** What a step did. Output: set struct_size, the library fills the rest. Norms and counts are those of the whole group of ranks
 *  where that makes a difference; bytes and seconds are this rank's. */
typedef struct zoff_step_info {
    size_t struct_size;         /**< sizeof(zoff_step_info) of the caller; 0 is rejected */
    zoff_outcome outcome;       /**< how it ended; set on errors too */
    bool accumulated;           /**< gradients were added up, the update comes with a later micro-step */
    bool skipped;               /**< a gradient was not finite; or their norm is beyond fp32, or the factor that scales and
                                     clips them: nothing was changed */
    uint32_t micro_step;        /**< 1 .. micro_steps */
    uint32_t micro_steps;       /**< gradient_accumulation_steps */
    int64_t t;                  /**< number of this step */
    double lr;                  /**< learning rate of group 0 */
    double grad_norm;           /**< L2 norm of all gradients after scaling, before clipping; NAN where zoff.skip_nonfinite is
                                     false and nothing is clipped */
    double clip_factor;         /**< what clipping multiplied the gradients by; 1 when it did not */
    uint64_t elements_updated;  /**< each owned element with a gradient, exactly once */
    uint64_t elements_owned;    /**< elements of this rank that have states */
    uint64_t host_read_bytes;   /**< states, weights and gradients read from DRAM by the kernels */
    uint64_t host_write_bytes;  /**< states and weights written to DRAM by the kernels */
    uint64_t nvme_read_bytes;   /**< states read from files; and weights that the engine keeps, since the step before */
    uint64_t nvme_write_bytes;  /**< and written to files */
    double seconds;             /**< from zoff_step_begin() to the end of zoff_step_wait() */
    double measure_seconds;     /**< accumulation, norm and finite check */
    double update_seconds;      /**< the kernels of the update */
    double io_wait_seconds;     /**< this thread, on the disk: starting, moving, waiting */
    zoff_param nonfinite_param; /**< when skipped: the first parameter with a gradient that is not finite */
    size_t nonfinite_slice;     /**< and its slice */
    uint64_t nvme_ahead_bytes;  /**< of nvme_read_bytes those whose reading began before the step was asked for */
    double check_seconds;       /**< checksums of what is read from files and written to them */
    unsigned nonfinite_rank; /**< when skipped: the rank whose gradient it was, where that is known; else the one that summed */
    uint64_t sent_bytes;     /**< to other ranks, since the step before: gradients, weights, votes */
    uint64_t received_bytes; /**< from other ranks */
    double comm_wait_seconds;     /**< this thread, on other ranks */
    uint64_t sent_gradient_bytes; /**< of sent_bytes gradients: in all (N - 1) / N of them with N ranks; at stage 0 their fp32
                                       sums, too */
    uint64_t sent_weight_bytes;   /**< of sent_bytes weights: as many elements of those that all ranks have whole; and those
                                       that were fetched */
    double loss_scale;            /**< that the gradients of this step came multiplied by; 1 without fp16.enabled */
    uint64_t device_read_bytes; /**< from the device's memory, since the step before: gradients, and weights that were pulled */
    uint64_t device_write_bytes; /**< to it: weights */
    uint64_t elements_on_device; /**< of elements_updated, by the device itself: offload_optimizer.ratio */
    double device_wait_seconds;  /**< this thread, on the device: for the rest of the backward pass, and for copies */
} zoff_step_info;

/** The loss scale of fp16 training and what decides how it goes on. All there is of it: a checkpoint that keeps these numbers
 *  goes on with the same scales. They mean what they mean in DeepSpeed's checkpoints (cur_scale, cur_iter,
 *  last_overflow_iter, cur_hysteresis). */
typedef struct zoff_loss_scaler {
    size_t struct_size;    /**< sizeof(zoff_loss_scaler) of the caller; 0 is rejected */
    double scale;          /**< what the trainer multiplies its loss by */
    int64_t iterations;    /**< steps taken, those that were skipped too */
    int64_t last_overflow; /**< the latest of them that was skipped, counted from 0; -1: none */
    uint64_t hysteresis;   /**< the overflow of this number halves the scale; 1: the next one */
} zoff_loss_scaler;

/** What an engine takes, by tier: planned before seal, allocated after. The same code computes both. */
typedef struct zoff_plan_info {
    size_t struct_size;   /**< sizeof(zoff_plan_info) of the caller; 0 is rejected */
    zoff_tier tier;       /**< home of the states */
    uint64_t elements;    /**< trainable elements of this rank */
    uint64_t state_bytes; /**< masters and the moments that the optimizers have, without padding */
    uint64_t host_bytes;  /**< DRAM for states: all of them, or the slots that files are streamed through and
                               resident_bytes */
    uint64_t nvme_bytes;  /**< states in files, with padding: twice with zoff.persist; each file has a head beside them */
    uint64_t
        accumulator_bytes;     /**< DRAM for fp32 gradient accumulation, and for the sums of tied gradients; 0 without either */
    uint64_t chunk_count;      /**< units in which states are kept and moved */
    uint64_t chunk_bytes;      /**< the largest of them */
    unsigned slots;            /**< chunks in DRAM at a time on the NVMe tier; 0 on the host tier */
    unsigned threads;          /**< of the update */
    uint64_t resident_bytes;   /**< of the states on the NVMe tier those that stay in DRAM, in what the slots leave of the
                                    budget: part of host_bytes, and in no file unless states persist */
    uint64_t step_read_bytes;  /**< from files in each step in which every parameter takes part */
    uint64_t step_write_bytes; /**< to files: what wears the drive */
    uint64_t weight_bytes;     /**< weights that the engine keeps, without padding */
    uint64_t weight_host_bytes; /**< DRAM for them, beside host_bytes: all of them, or buffers and what is cached, and the
                                     slices that may be whole at a time */
    uint64_t weight_nvme_bytes; /**< of them in files */
    uint64_t exchange_bytes;    /**< DRAM for what goes to other ranks and comes from them; 0 for one rank alone */
    uint64_t device_host_bytes; /**< DRAM for gradients that came from a device, and for weights on their way to it; 0 where the
                                     CPU reaches them. With several ranks from stage 2 on gradients take beside it what is on
                                   its way at a time */
    uint64_t device_bytes; /**< memory of the device: 8 bytes for each 1024 elements that are measured there, and the share of
                                the states that stays there (offload_optimizer.ratio) with the sums of its gradients; of several
                                ranks whose communicator reaches the device, what is exchanged at a time and the sums */
    uint64_t memory_bytes; /**< DRAM in all: host_bytes, accumulator_bytes, weight_host_bytes, exchange_bytes and
                                device_host_bytes. zoff.host_memory limits the first of them only */
    uint64_t memory_free_bytes; /**< DRAM that this process can still take: what the machine and its cgroups leave */
} zoff_plan_info;

/** Which state of a parameter. */
typedef enum zoff_state_kind {
    ZOFF_STATE_MASTER = 0, /**< fp32 weights (for an fp32 parameter: the weights themselves) */
    ZOFF_STATE_M = 1,      /**< first moment: Adam, Lion, SGD with momentum */
    ZOFF_STATE_V = 2       /**< second moment: Adam; the sum of squares of Adagrad */
} zoff_state_kind;

/** Create an empty engine. NULL opts mean the defaults. Any number of engines may share a communicator: every rank creates and
 *  seals them in the same order, and calls that wait for other ranks come in one order over all of them (docs/RANKS.md).
 *  @owns caller; zoff_engine_destroy()  @return on error *out is untouched and nothing is left behind; ERR_UNSUPPORTED for a
 *  progress_thread where the communicator is for the program's threads only */
ZOFF_API zoff_status zoff_engine_create(const zoff_engine_opts *opts, zoff_engine **out);

/** Create an engine from a configuration file (NULL: defaults), add `count` parameters and seal it, in one call: all that a
 *  small trainer needs.
 *  @param params array of descriptions, `param_stride` bytes apart (sizeof params[0]); their struct_size may be 0
 *  @return as the calls it stands for; on error *out is untouched and nothing is left behind */
ZOFF_API zoff_status zoff_engine_open(const char *config_path, const zoff_param_desc *params, size_t param_stride, size_t count,
                                      zoff_engine **out);

/** Wait for what is in flight, remove the files unless they persist (zoff.persist), free everything. NULL is allowed.
 *  With zoff.persist and ranges written since the last commit it does zoff_state_flush() first, which is collective; what
 *  fails is a warning in the log, and files hold the last commit. Call zoff_state_flush() before to get the error.
 *  A disk or device that does not move is waited for 10 s, or timeout_seconds of the communicator if that is less; what it may
 *  still touch stays allocated, and the log says so. */
ZOFF_API void zoff_engine_destroy(zoff_engine *e);

/** Register a parameter; same order on every rank.  @units count in elements
 *
 *  Tied weights are registered once for each name, with the same value, count, slices, value_stride, dtype and group. They have
 *  one master and one set of states, those of the name registered first; zoff_state_read() and zoff_state_write() of the others
 *  go there. The gradients of all names are added up in fp32; a name may have none, or share the buffer of another. Weights,
 *  or gradients, of two parameters that overlap in any other way are refused by zoff_engine_seal().
 *  @return ERR_STATE once sealed. out may be NULL */
ZOFF_API zoff_status zoff_engine_add_param(zoff_engine *e, const zoff_param_desc *desc, zoff_param *out);

/** Set the hyper-parameters of a group where they differ from the configuration; a schedule acts on their lr, and
 *  OneCycle on their betas.
 *  Legal at any time between steps. Groups may have different optimizers; which one a group has, and with it which states, is
 *  decided at seal.
 *  @return ERR_STATE once sealed for another optimizer, or for a momentum where SGD was sealed without one */
ZOFF_API zoff_status zoff_engine_set_group(zoff_engine *e, unsigned group, const zoff_adam_hyper *hyper);

/** Tell what the parameters added so far take, without allocating any of it.  @units bytes on this rank */
ZOFF_API zoff_status zoff_engine_plan(const zoff_engine *e, zoff_plan_info *out);

/** Freeze the list of parameters and the optimizer of each group, take the weights as masters, reserve and allocate the tiers.
 *  Weights on a device are read in a stream of the engine's: whatever wrote them has ended by then.
 *  @blocks seconds; collective over the ranks
 *
 *  With zoff.persist and the files of an earlier engine of the same parameters in the folder, the states are those after its
 *  last whole step, which zoff_step_count() tells; the weights are left alone. Before the next step call zoff_params_push()
 *  to make the weights theirs, or zoff_params_pull() to take the weights as masters.
 *  @return ERR_NO_MEMORY or ERR_NO_SPACE with what is needed, what there is and which key to change; ERR_IO for a path that
 *  cannot be used; ERR_INVALID for buffers that overlap; ERR_INVALID or ERR_CORRUPT for persistent files of another model, or
 *  damaged ones. After an error the
 *  engine is as before and may be sealed again */
ZOFF_API zoff_status zoff_engine_seal(zoff_engine *e);

/** Name other buffers for a parameter, between steps; NULL leaves one as it is.
 *  Gradients may be allocated late this way. The values are not read: see zoff_params_pull().
 *  @return ERR_INVALID for a value where the weights are the engine's; ERR_STATE once one of its gradients was handed over
 *  (zoff_grad_ready()) or lent (zoff_grad_acquire()) for the coming step: nothing is moved */
ZOFF_API zoff_status zoff_param_bind(zoff_engine *e, zoff_param p, void *value, void *grad);

/** Say that the gradient of one slice is final for this micro-step. The caller leaves it alone until zoff_step_wait().
 *  On a device it is copied to the host, behind what is in the stream by now. New weights are copied to the device behind
 *  what each stream held at the last of these calls that named it, also for a frozen parameter. Enqueue work that reads weights
 *  before that call, or finish it before zoff_step_begin().
 *  @param native_stream the device stream that computes it; NULL on the host, and on a device for what is there already
 *  @blocks never, but for the reads of the "posix" I/O back-end, on a device from stage 2 on as zoff_grad_acquire() does, and
 *  after ranges were written as zoff_state_flush()
 *  @return ERR_STATE when it is not sealed, was said twice, or has no gradient buffer */
ZOFF_API zoff_status zoff_grad_ready(zoff_engine *e, zoff_param p, size_t slice, void *native_stream);

/** Lend memory for the gradient of one slice of a parameter that has none of the program's (zoff_param_desc.grad is NULL): all
 * of it in one piece, zeros, aligned to 64 bytes. With several ranks from stage 2 on, and with gradient accumulation, it serves
 *  another slice as soon as the gradient has been sent or added up: then no rank holds the whole gradient at a time. The same
 *  memory again for a slice that is lent already.
 *  @param native_stream the device stream that writes it; NULL on the host
 *  @owns the engine; valid until zoff_grad_ready() of the slice, or the end of the step  @blocks for gradients of other slices
 * on their way, where that makes room
 *  @return ERR_INVALID where the program has a buffer or the parameter is frozen; ERR_STATE once it was handed over */
ZOFF_API zoff_status zoff_grad_acquire(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, void **out);

/** Say what the gradients of this rank's micro-batch weigh in the mean over all micro-batches of all ranks in the step: its
 *  number of tokens, for example, when they are the gradients of a mean over its tokens. To be called before the first
 *  zoff_grad_ready() of the micro-batch, and before its step; a micro-batch for which it is not called weighs 1. A rank without
 *  work gives it 0: its gradients then count as zeros, whatever they are, inf and nan too. Without other ranks and without
 * accumulation it changes nothing.
 *  @return ERR_INVALID for what is no finite fp32 number from 0 on; ERR_STATE after the first zoff_grad_ready() */
ZOFF_API zoff_status zoff_grad_weight(zoff_engine *e, double weight);

/** Let what the engine does between steps go on: gradients on their way, and states that the next step begins with.
 *  zoff_grad_ready() does it, too; a trainer that calls nothing for long may call this now and then while it computes, or ask
 * for zoff_engine_opts.progress_thread. Costs next to nothing where nothing has come.
 *  @blocks never, but for the reads of the "posix" I/O back-end
 *  @return OK: nothing is in flight; PENDING: something is; ERR_STATE before seal. A read that fails is told by the step */
ZOFF_API zoff_status zoff_engine_progress(zoff_engine *e);

/** Start the step with the gradients said to be ready. A slice without one is left out: its weights and states stay as they
 *  are. The step counts for it all the same, also when no slice has one: bias correction and schedule go by one number of
 *  updates for the whole engine, as in DeepSpeed's ZeRO. (So Adam moves a weight whose first gradient comes late by up to
 *  (1 - beta1) / sqrt(1 - beta2) times lr, 3.2 with the default betas; torch.optim counts by parameter.) Starts reading states;
 * from here to zoff_step_wait() weights and gradients are the engine's.
 *  @blocks never, but for the reads of the "posix" I/O back-end, for reads in flight of weights that the engine keeps, and
 *  after ranges were written as zoff_state_flush()
 *  @return ERR_INVALID, ERR_STATE, or what zoff_state_flush() returns: nothing was started */
ZOFF_API zoff_status zoff_step_begin(zoff_engine *e, const zoff_step_args *args);

/** Finish the step: all weights are new and all states where they belong, or, when it is skipped, all is as before.
 *  With gradient_accumulation_steps = k only every k-th call updates, with the mean of the k gradients, added up in fp32.
 *  @param info may be NULL  @blocks until done or failed
 *  @return OK also for a skipped step (info->skipped). ERR_OVERFLOW, with fp16.enabled and a dynamic loss scale: the step is
 *  skipped and over like any other, but the scale cannot become less; nothing was changed, and the next step may be taken if
 *  the trainer decides to. Any other error leaves the step open: info->outcome says what has happened so far,
 *  zoff_step_retry() goes on, zoff_grads_drop() gives up a step of which nothing has happened */
ZOFF_API zoff_status zoff_step_wait(zoff_engine *e, zoff_step_info *info);

/** Go on with a step that failed, where it stopped: what was done is not done again. Weights and gradients must be as the
 *  failed call left them. Otherwise like zoff_step_wait(). After a flush of the drive that failed (zoff.persist) it writes all
 *  that the step had written once more, and refuses where the drive has lost some of it: then only zoff_grads_drop() is left.
 *  @return ERR_STATE when no step has failed */
ZOFF_API zoff_status zoff_step_retry(zoff_engine *e, zoff_step_info *info);

/** Forget the gradients of this step, or of all its micro-steps so far: the trainer decided to leave the update out. Also ends
 * a failed step of which nothing has happened (ZOFF_OUTCOME_BEFORE). With zoff.persist it undoes a step that is torn: states
 * and weights are those before it; and, after a flush of the drive that failed, states that were set since the last record.
 *  @return ERR_STATE for a step that is torn where states do not persist; ERR_IO: not undone, call it again */
ZOFF_API zoff_status zoff_grads_drop(zoff_engine *e);

/** Do all of a step: every slice that has a gradient buffer is ready, then begin and wait. args and info may be NULL. */
ZOFF_API zoff_status zoff_step(zoff_engine *e, const zoff_step_args *args, zoff_step_info *info);

/** Lend the weights of one slice of a parameter that is engine_owned: all of it, in one piece, aligned to 64 bytes. They are
 *  those after the last step, to be read only: zoff_param_write() changes them. A slice may be lent several times.
 *
 *  The order of calls is learned: in the next pass, from one zoff_step() to the next, slices are read before they are asked
 *  for, stage3_prefetch_bucket_size ahead. What fits into stage3_max_live_parameters stays at hand for its next use.
 *  @param native_stream the device stream that uses them; NULL on the host
 *  @owns the engine; valid until the release that undoes this call  @blocks for what was not read ahead
 *  @return ERR_NO_MEMORY when more than stage3_max_live_parameters would be lent at a time, or what is lent leaves no room in
 *  one piece; ERR_STATE while a step is open; ERR_IO or ERR_CORRUPT when they cannot be read: nothing is lent, call it again */
ZOFF_API zoff_status zoff_param_fetch(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const void **out);

/** Give back what one zoff_param_fetch() has lent. Before a step that updates all must be given back; a micro-step that only
 *  adds up may be taken while weights are lent.  @return ERR_STATE while a step is open */
ZOFF_API zoff_status zoff_param_release(zoff_engine *e, zoff_param p, size_t slice, void *native_stream);

/** Set a range of the weights of a parameter that is engine_owned, counted in elements through its slices one after the other,
 *  and its masters with them. Moments stay. Nothing of it may be lent. Durable as zoff_state_write() is.
 *  @units elements of the parameter's type  @blocks yes */
ZOFF_API zoff_status zoff_param_write(zoff_engine *e, zoff_param p, size_t first, size_t count, const void *src);

/** Copy a range of the weights of a parameter that is engine_owned; otherwise like zoff_param_write(). */
ZOFF_API zoff_status zoff_param_read(zoff_engine *e, zoff_param p, size_t first, size_t count, void *dst);

/** Take the weights as the new masters, after the caller has loaded or changed them. Moments stay.  @blocks yes
 *
 *  This call, and zoff_params_push(), zoff_param_write(), zoff_state_read(), zoff_state_write(), zoff_step_count_set() and
 *  zoff_loss_scaler_set(), are for the time between two updates: gradients that are on their way are in no state.
 *  @return ERR_STATE between the micro-steps of an update, and once a gradient of the next step was handed over: finish the
 *  update, or call zoff_grads_drop() */
ZOFF_API zoff_status zoff_params_pull(zoff_engine *e);

/** Write the masters to the weights, rounded as a step rounds them, after states were loaded.  @blocks yes */
ZOFF_API zoff_status zoff_params_push(zoff_engine *e);

/** Copy a range of one parameter's state, counted in elements through its slices one after the other.
 *
 *  Read or write all states in the order of the parameters, one kind of all parameters before the next kind, or all kinds of
 *  one range before the next range: then the states are read once, and written once. In the second order ranges are of at
 *  most half of zoff_plan_info.chunk_bytes. On the NVMe tier the states of one kind in one chunk move together, and stay in the
 *  slot of the chunk, already compared with their checksum, while no other chunk needs it. So small ranges cost a copy, and
 *  ranges in random order cost one kind of a chunk each. Reading ahead for the next step begins again with its first call.
 *  @units fp32 elements  @blocks yes, on the NVMe tier for a chunk that is in no slot
 *  @return ERR_INVALID when the range is not inside slices * count, the parameter is frozen, or its optimizer has no such
 *  state; ERR_IO also for an earlier range that could not be written: it is kept and written again by the next call */
ZOFF_API zoff_status zoff_state_read(zoff_engine *e, zoff_param p, zoff_state_kind kind, size_t first, size_t count,
                                     float *dst);

/** Set a range of one parameter's state; otherwise like zoff_state_read(). After MASTER call zoff_params_push().
 *  The states have it at once. With zoff.persist files have it, all ranges or none, after the next zoff_state_flush(),
 *  zoff_step_count_set(), step, or zoff_engine_destroy(). */
ZOFF_API zoff_status zoff_state_write(zoff_engine *e, zoff_param p, zoff_state_kind kind, size_t first, size_t count,
                                      const float *src);

/** Write what zoff_state_write() and zoff_param_write() have put off, and make it durable with zoff.persist. Nothing to do
 *  without such calls, or after zoff_step_count_set() or a step, which do the same. Collective over the ranks.
 *  @blocks for the disk  @return ERR_IO or ERR_NO_SPACE: files hold what they held before; call it again. With several ranks
 * all of them get an error when one fails */
ZOFF_API zoff_status zoff_state_flush(zoff_engine *e);

/** Tell the number of updates made so far, which is t of the last one when the engine counts. */
ZOFF_API zoff_status zoff_step_count(const zoff_engine *e, int64_t *out);

/** Set it: after states were loaded, the next step is number `t` + 1. Flushes like zoff_state_flush(). With zoff.persist the
 *  files record it: once a step or a count other than 0 was recorded, the next engine goes on with these states, whatever `t`
 *  is then.
 *  @return an error: nothing was recorded, and the count is as before; call it again */
ZOFF_API zoff_status zoff_step_count_set(zoff_engine *e, int64_t t);

/** Tell what the trainer multiplies its loss by in the coming micro-step; 1 without fp16.enabled. It is the same in all
 *  micro-steps of one update: the engine divides the gradients by it before their norm is taken. */
ZOFF_API zoff_status zoff_loss_scale(const zoff_engine *e, double *out);

/** Read the loss scale and its counters, for a checkpoint. */
ZOFF_API zoff_status zoff_loss_scaler_get(const zoff_engine *e, zoff_loss_scaler *out);

/** Set them, from a checkpoint. A new engine starts at the scale of the configuration, also one that goes on with the states
 *  of an earlier process (zoff.persist): the loss scale is in no file of the engine. What a shorter struct of the caller does
 *  not have stays as it is.
 *  @return ERR_INVALID for a scale that is none, or not the one of the configuration where that is static; ERR_STATE without
 *  fp16.enabled, and in the middle of an update (see zoff_params_pull()) */
ZOFF_API zoff_status zoff_loss_scaler_set(zoff_engine *e, const zoff_loss_scaler *scaler);

/** Write bytes, seconds and counts since seal as one JSON object.
 *  @return OK; *out_bytes (may be NULL) is the full length without the final 0, whatever fitted into dst_bytes */
ZOFF_API zoff_status zoff_stats_print(const zoff_engine *e, char *dst, size_t dst_bytes, size_t *out_bytes);

#ifdef __cplusplus
}
#endif
#endif
