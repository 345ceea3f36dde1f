/* SPDX-License-Identifier: Apache-2.0 */
/* engine_priv.h: the struct of an engine, and the declarations that the files of this room share; step_priv.h is part of it.
 *
 *      life    engine.c create, seal, destroy; traffic.c; options.c; stats.c; progress_thread.c; phase.c
 *      calls   params.c parameters, groups, loss scale, lent weights; state_range.c parts of a parameter; overlap.c
 *      step    step.c begin, wait, retry; handover.c gradients; rows.c the rows of a bucket; pipeline.c runs them
 *      rows    admit.c which buckets may borrow; update.c of the host; gate.c norm, clip, skip
 *      states  stores.c; states.c initial values, pull, push
 */
#ifndef ZOFF_ENGINE_PRIV_H
#define ZOFF_ENGINE_PRIV_H

#include "accel.h"
#include "agreement.h"
#include "comm.h"
#include "config.h"
#include "cpu_adam.h"
#include "lending.h"
#include "matrices.h"
#include "mem.h"
#include "offload.h"
#include "planning.h"
#include "progress.h"
#include "speculation.h"
#include "team.h"
#include "trace.h"
#include "transfer.h"
#include "traps.h"
#include "view.h"
#include "words.h"
#include "zero.h"
#include "zoff_model.h"

#include <zoff/engine.h>

/* Phases of an engine, in the order of the columns of ZOFF_CALLS. */
typedef enum zoff_phase {
    ZOFF_PHASE_BUILDING, /* parameters may be added */
    ZOFF_PHASE_IDLE,     /* sealed, between steps */
    ZOFF_PHASE_OPEN,     /* zoff_step_begin() was called */
    ZOFF_PHASE_FAILED,   /* zoff_step_wait() failed: retry, drop, or destroy */
    ZOFF_PHASE_MEASURED, /* zoff_step_measure() has succeeded: the step waits for the joined norm */
    ZOFF_PHASE_UNLOADED, /* a load has failed half way: load or destroy */
    ZOFF_PHASE_LOST,     /* a load has failed, and ranks have sent each other some of its weights: destroy */
    ZOFF_PHASE_UNSENT    /* a push has failed, and other ranks wait for the rest of the weights: push or destroy */
} zoff_phase;

/* The way of a bucket: see rows.c. */
typedef enum zoff_column { ZOFF_COLUMN_ADD, ZOFF_COLUMN_STEP, ZOFF_COLUMN_AHEAD, ZOFF_COLUMNS } zoff_column;

/* One stage of a bucket. `run` returns OK when the bucket can go on to the next row, PENDING to be called again, or an error,
 * which stops the step. */
typedef struct zoff_row {
    const char *name;
    zoff_status (*run)(void *ctx, zoff_bucket_run *run);
    void *ctx;       /* argument of `run`, set at seal: the engine, or its transfer */
    unsigned number; /* index of the row */
} zoff_row;

enum { ZOFF_ROWS_MAX = 64 }; /* bits of zoff_bucket_run.passed */

/* The rows of all columns, in their one order. */
typedef struct zoff_rows {
    zoff_row row[ZOFF_ROWS_MAX];
    uint64_t in[ZOFF_COLUMNS]; /* rows of each column, one bit for each row */
    unsigned count;
    unsigned joint, gate; /* index of the first row that needs an open step, or other ranks; and of the gate */
} zoff_rows;

/* JOINING: the ranks of this engine have voted, and those of zoff_engine_opts.norm_comm join their norms. MEASURED: they have
 * voted for zoff_step_measure(), and vote again in the step. */
typedef enum zoff_gate {
    ZOFF_GATE_CLOSED,
    ZOFF_GATE_VOTING,
    ZOFF_GATE_JOINING,
    ZOFF_GATE_MEASURED,
    ZOFF_GATE_OPEN,
    ZOFF_GATE_SKIP
} zoff_gate;

/* How far the commit of a step has come that several ranks make. */
typedef enum zoff_commit_stage {
    ZOFF_COMMIT_NEW,
    ZOFF_COMMIT_WRITTEN,  /* this rank has written its states, and waits for those of others */
    ZOFF_COMMIT_RECORDED, /* this rank has recorded the step */
    ZOFF_COMMIT_TOLD      /* this rank waits until all ranks have recorded the step */
} zoff_commit_stage;

/* Operations with which ranks agree in a step. */
typedef struct zoff_step_talks {
    zoff_comm_work commit; /* with zoff.persist: barriers before and after the commit */
    zoff_commit_stage stage;
    bool has_voted; /* the votes of all ranks have arrived, so an error is that of all */
} zoff_step_talks;

/* An error that a call before zoff_step_wait() has met. Each of these calls returns it, and zoff_step_wait() once. Also the
 * result of a step that another call has finished. */
typedef struct zoff_step_fault {
    zoff_status status; /* OK: there is none, or zoff_step_wait() has returned it */
    zoff_saved_error words;
    bool rests; /* the step is open, and goes on in the next call of the program */
} zoff_step_fault;

/* When a step was in the hands of the engine. Seconds of the clock. */
typedef struct zoff_step_clock {
    double began;
    double left;   /* time at which a call returned; 0: the program is in a call */
    double queued; /* seconds since then that a call has waited for the progress thread */
    double hidden; /* sum of the times between calls */
} zoff_step_clock;

/* One step, from begin to the end of wait. */
typedef struct zoff_step_run {
    int64_t t;
    double clip_norm, grad_scale; /* grad_scale: the caller's; info.numbers.loss_scale is separate */
    double factor;                /* absolute factor that the gate applies to gradients: scales and clipping */
    unsigned flags;
    bool looks; /* gradients are measured before they are used, to clip or to skip */
    zoff_step_clock clock;
    bool last;         /* the last micro-step: this one updates */
    uint64_t expected; /* elements that must be updated, counted from the list of parameters */
    size_t first;      /* all buckets before this position of the walk are finished */
    bool undone;       /* the step is being undone and can no longer be retried */
    double save_wait_seconds;
    bool measures;        /* zoff_step_measure(): the walk ends at the gate */
    bool has_sum;         /* zoff_step_args.norm_sum was given, and is `sum` */
    zoff_norm_record sum; /* the joined sum; before that, this engine's own measurement */
    zoff_gate gate;
    zoff_step_talks talks;
    zoff_step_fault fault;
    zoff_store_stats before;
    zoff_step_info info;
} zoff_step_run;

/* Whether all threads measure gradients, or only as many as update: the faster choice is used. */
typedef struct zoff_measure_threads {
    bool few;          /* use few in the next step */
    double seconds[2]; /* seconds of the last try with all threads, and with few; 0: not tried yet */
    unsigned steps;    /* steps since the slower way was tried */
} zoff_measure_threads;

/* Sums since seal. */
typedef struct zoff_engine_totals {
    uint64_t steps, skipped, micro_steps;
    uint64_t host_read_bytes, host_write_bytes, nvme_read_bytes, nvme_write_bytes, nvme_ahead_bytes;
    uint64_t device_read_bytes, device_write_bytes;
    zoff_step_buckets buckets;
    zoff_step_seconds seconds;
    uint64_t huge_page_bytes; /* huge pages of the store's DRAM, at seal */
    bool warned_of_nothing;   /* a step without any gradient was warned of */
} zoff_engine_totals;

/* Descriptions of the configuration. */
typedef struct zoff_settings_words {
    char *training;      /* optimizer, lr, schedule, clipping and tier, each with its source */
    char *configuration; /* the effective values as a JSON object, for checkpoints */
} zoff_settings_words;

typedef struct zoff_text_list {
    char **texts;
    size_t count;
} zoff_text_list;

/* Options and configuration, merged. The configuration itself is not needed after create. */
typedef struct zoff_settings {
    zoff_config_values values; /* values without texts and paths, because the configuration owns those */
    zoff_tier tier;
    zoff_text_list paths, weight_paths;
    zoff_text_list named[ZOFF_NAMED_KEYS]; /* patterns of names, which the values refer to */
    char *aio_backend;
    char *agreed_keys; /* with several ranks, the keys that they compare: zoff_config_dump_agreed() */
    size_t agreed_bytes;
    zoff_settings_words words;
    char *half_source; /* where bf16.enabled or fp16.enabled was set, whichever is true */
    uint64_t host_bytes;
    const char *host_bytes_key; /* key that set the DRAM budget, for messages */
    uint64_t chunk_elements;
    unsigned threads;
    const char *threads_why;    /* static text */
    bool threads_asked;         /* set by the program or the configuration */
    bool owns_accel, owns_comm; /* opened by this engine, and closed with it */
    bool progress_thread;
    zoff_planning_limits limits; /* limits that all ranks can keep, set at seal */
} zoff_settings;

typedef struct zoff_progress_thread zoff_progress_thread;

/* Which call makes states and weights agree again. */
typedef enum zoff_engine_awaits {
    ZOFF_AWAITS_NOTHING = 0,
    ZOFF_AWAITS_ALL = 1,    /* a push or pull: the states were reopened or rolled back */
    ZOFF_AWAITS_PULL_OF = 2 /* zoff_param_pull() of one parameter has failed; a pull of all does, too */
} zoff_engine_awaits;

/* State that decides which call is allowed next. */
typedef struct zoff_life {
    zoff_phase phase;
    bool is_untold;          /* another call has finished the step, and zoff_step_wait() has not returned its result yet */
    uint64_t awaits_weights; /* a zoff_engine_awaits, or ZOFF_AWAITS_PULL_OF plus a parameter */
    unsigned process;        /* the process that made the engine: zoff_base_fork_number() */
    zoff_traps *traps;       /* weights that the program may not use yet; NULL: zoff.check_use is false */
    zoff_trace *trace;       /* NULL: nothing is traced */
    zoff_metrics *metrics;   /* NULL: no file of ZOFF_METRICS */
    zoff_saved_error error;  /* text of the last call that has failed; without the lock only the program's threads use it */
} zoff_life;

/* How many threads work, and which. */
typedef struct zoff_engine_threads {
    zoff_progress_thread *progress; /* NULL: none */
    bool in_progress;               /* the progress thread is working now */
    bool holds_team;                /* the team's threads spin for 50 us between buckets */
    unsigned update;                /* see update.c; 0: all threads */
    zoff_measure_threads measure;
} zoff_engine_threads;

/* Inputs of the gate's decision. */
typedef struct zoff_engine_gate {
    zoff_report votes;           /* the votes of all ranks, on their way */
    zoff_vote vote;              /* the joined vote of the last step */
    zoff_optimizer_hyper *hyper; /* per group, for the current step */
    bool stop_asked;             /* on this rank; atomic, because a signal handler or another thread sets it */
    bool stop_agreed;            /* the votes of a step have asked for a stop, so all ranks know */
    zoff_norm_part norm;         /* norm of this engine, and once it is joined, of all that share it */
    zoff_saved_error words;      /* error text, if norm.status is an error */
    uint64_t measurements;       /* calls of zoff_step_measure() that began a step; the same on all ranks */
} zoff_engine_gate;

/* Buckets of matrices, whose states are in a host store. */
typedef struct zoff_engine_matrices {
    zoff_matrices all;
    zoff_rows rows;
    bool stops;                         /* a call waits for the thread that computes products */
    zoff_adam_consts *before, *applied; /* scratch: constants of momenta by group; of weights, one for each piece of a tile */
} zoff_engine_matrices;

/* Scratch: buckets to be read ahead, and their arrays. As many as the store of states has slots. */
typedef struct zoff_engine_hints {
    size_t *chunks, most;
    unsigned *arrays;
} zoff_engine_hints;

/* Tables for the order and the rows of buckets. */
typedef struct zoff_engine_walk {
    zoff_rows rows[ZOFF_USED_PLACES]; /* rows by the place of a bucket's states: zoff_transfer_place_of() */
    zoff_engine_matrices matrices;
    bool in_order; /* buckets of a device stage weights in the order of the walk, so that none keeps slots from one before it */
    bool measures_early;     /* a background thread measures gradients as soon as they are complete */
    bool speculates_in_step; /* a device computes gradients, which may come after zoff_step_begin() */
    bool any_order; /* states in DRAM: a bucket need not wait for those before it. With several ranks all gather in one order */
    bool feeds_ahead; /* reads are started for buckets that are updated ahead of the step; else for the next ones of the step */
    zoff_speculation speculation;
    bool stays_open;   /* after an error in a call before zoff_step_wait(), because other ranks wait for this one's weights */
    bool lends_always; /* weights of the engine: not only between steps, and while one updates others */
    bool tells_new;    /* the weights of a bucket that is through need nothing else to reach the program */
    bool tells_now;    /* atomic: the same, and the latest step that updates has not failed */
    /* By bucket: its weights are new in this step. With tells_now calls read it without the lock, so that a program need not
     * wait for a background thread that updates other buckets. */
    bool *is_new;     /* atomic */
    size_t *streamed; /* walk positions, ascending, whose bucket takes a slot of a store; see admit.c */
    size_t streamed_count;
    /* index in `streamed`: those before it have memory for their update in the open step, or need none */
    size_t asked;
    zoff_engine_hints hints;
} zoff_engine_walk;

/* Options of the program for seal. */
typedef struct zoff_engine_opening {
    int64_t persist_t;
    zoff_progress_fn progress; /* NULL: none */
    void *progress_ctx;
} zoff_engine_opening;

/* I/O of the stores, for state files and weight files. The transfer handles devices and other ranks. */
typedef struct zoff_engine_io {
    zoff_poller states, weights, secondary;
    zoff_poller step;         /* the open step: only calls that wait for weights drive it, because its rows wait, too */
    zoff_store_stats counted; /* counters of the weights in the steps so far */
    bool has_spread;          /* a call that failed has sent weights to all ranks, but not yet to all secondary shards */
    bool commits_together;    /* states persist, and several ranks record the same step */
    zoff_guard *guard;        /* a save that is told before states change; NULL: none */
    zoff_engine_opening opening;
} zoff_engine_io;

/* Calls that read or write ranges of states. */
typedef struct zoff_engine_ranges {
    bool last;    /* the latest access was a range: nothing is prefetched */
    bool unsaved; /* a range was written, and no commit has followed; the same on all ranks */
} zoff_engine_ranges;

/* Other rooms borrow fields of an engine, so an engine never moves in memory. */
struct zoff_engine {
    zoff_accel *accel;
    zoff_comm *comm;
    zoff_comm_channel channel; /* for this engine's operations between ranks */
    zoff_settings settings;
    zoff_life life;
    zoff_engine_threads threads;
    zoff_model model;
    zoff_plan plan; /* made at seal */
    zoff_store *store;
    zoff_lending lending;
    zoff_transfer transfer;
    zoff_agreement agreement;
    zoff_progress progress;
    zoff_engine_io io;
    zoff_engine_gate gate;
    zoff_engine_walk walk;
    zoff_engine_ranges ranges;
    int64_t t; /* number of updates made */
    zoff_step_run run;
    zoff_engine_totals totals;
};

static inline zoff_planning zoff_engine_planning(const zoff_engine *e)
{
    const zoff_settings *s = &e->settings;
    return (zoff_planning){.model = &e->model,
                           .transfer = &e->transfer,
                           .lending = &e->lending,
                           .comm = e->comm,
                           .part = zoff_agreement_norm_part(&e->agreement),
                           .values = &s->values,
                           .tier = s->tier,
                           .host_bytes = s->host_bytes,
                           .host_bytes_key = s->host_bytes_key,
                           .chunk_elements = s->chunk_elements,
                           .threads = s->threads,
                           .folders = (const char *const *)s->paths.texts,
                           .folder_count = s->paths.count,
                           .weight_folders = (const char *const *)s->weight_paths.texts,
                           .weight_folder_count = s->weight_paths.count,
                           .limits = s->limits.bucket_elements ? &s->limits : NULL};
}

/* Before ZOFF_ENTER() of a call that a trace shows. `e` may be NULL. */
#define ZOFF_TRACED(e, is_poll) ZOFF_TRACE_CALL((e) ? (e)->life.trace : NULL, is_poll)

#include "step_priv.h"

/* progress_thread.c: a thread that advances the engine between calls */
zoff_status zoff_engine_progress_thread_check(const zoff_engine *e); /* ERR_UNSUPPORTED if the communicator does not allow it */
/* Functions that the thread calls: `progress` repeatedly, `receive` for a gradient that was left to it. */
typedef struct zoff_engine_background {
    zoff_status (*progress)(zoff_engine *e);
    zoff_status (*receive)(zoff_engine *e, const zoff_handed_over *gradient);
} zoff_engine_background;
/* Start the thread if the program asked for it. From then on calls take the lock. */
void zoff_engine_progress_thread_start(zoff_engine *e, const zoff_engine_background *calls);
/* Leave a gradient to the thread, without waiting.  @return false: the thread is not at work between two steps */
bool zoff_engine_progress_thread_leaves(zoff_engine *e, const zoff_handed_over *gradient);
/* Without the engine's lock: note that the program uses these buckets, whose weights are new.  @return false: no thread or no
 * room is there, so the call takes the lock */
bool zoff_engine_progress_thread_notes(const zoff_engine *e, zoff_slice_buckets used);
/* The error of a gradient that was left to the thread and could not be taken. Each call tries again, until they are dropped.
 * After a wrong call, which changes nothing, it is told once. */
zoff_status zoff_engine_progress_thread_fault(const zoff_engine *e);
void zoff_engine_progress_thread_forget(const zoff_engine *e);
void zoff_engine_progress_thread_stop(zoff_engine *e);
/* Whether the progress thread is working now and a call of the program waits for it: it has more threads, or needs one bucket.
 */
bool zoff_engine_progress_thread_yields(const zoff_engine *e);
/* enter, leave, is_child, and ZOFF_ENTER: see view.h */

/* options.c */
zoff_status zoff_engine_options_merge(zoff_engine *e, const zoff_engine_opts *opts);
void zoff_engine_options_free(zoff_engine *e);

/* phase.c: see view.h for the table of calls */
/* Whether a rank was lost, of this engine or of norm_comm: no call that needs the others can succeed any more. */
bool zoff_engine_phase_is_over(const zoff_engine *e);
/* How a step has failed, and what to do; `torn`: some buckets are updated. */
const char *zoff_engine_phase_failure(const zoff_engine *e, bool torn);
/* Whether the table lets the call in.  @return ERR_STATE with the reason; a NULL engine is ERR_INVALID */
zoff_status zoff_engine_phase_check(const zoff_engine *e, zoff_call call);
/* ERR_STATE unless the engine is between steps. */
zoff_status zoff_engine_phase_idle(const zoff_engine *e, const char *call);
/* The name of a call that has to finish the open step first. NULL: no step is open, or it need not be finished. */
const char *zoff_engine_phase_finishes(const zoff_engine *e, zoff_call call);
/* ERR_STATE in the middle of an update: ZOFF_NEEDS_WHOLE. */
zoff_status zoff_engine_phase_check_whole(const zoff_engine *e, const char *call);
/* ERR_STATE while the weights differ from the states: ZOFF_NEEDS_WEIGHTS. */
zoff_status zoff_engine_phase_check_weights(const zoff_engine *e, const char *call);

/* stores.c: the stores of states and weights, used together */
/* Write the initial content of a chunk to `base`; `ctx` is the engine. */
typedef void zoff_fill(void *ctx, size_t chunk, void *base);
zoff_status zoff_engine_stores_open(zoff_engine *e, zoff_fill *states, zoff_fill *weights);
void zoff_engine_stores_close(zoff_engine *e);
/* A device does not finish its copies from and to the stores of states, or weights: leave them open for ever. */
void zoff_engine_stores_leave_states(zoff_engine *e);
void zoff_engine_stores_leave_weights(zoff_engine *e);
/* Return a stored error of background I/O on states or weights, once. */
zoff_status zoff_engine_stores_take_fault(zoff_engine *e);
zoff_status zoff_engine_stores_retry(zoff_engine *e);
/* After opening: take the program's bytes of the commit that was found. */
zoff_status zoff_engine_stores_take_program(zoff_engine *e);
bool zoff_engine_stores_busy(const zoff_engine *e, bool writes_only);
void zoff_engine_stores_set_threads(const zoff_engine *e, unsigned threads);
uint64_t zoff_engine_stores_huge_bytes(const zoff_engine *e);
void zoff_engine_stores_stats(const zoff_engine *e, zoff_store_stats *out);
/* Seconds since `from`, without the time that I/O and checksums took since `before`. */
double zoff_engine_stores_worked(const zoff_engine *e, double from, const zoff_store_stats *before);
/* Begin and end the count of a step. */
void zoff_engine_stores_begin_count(const zoff_engine *e, zoff_store_stats *out);
void zoff_engine_stores_end_count(zoff_engine *e);
/* Commit a step, or a pass. Every rank calls these once its writes are complete; no rank commits before all have called.
 * @blocks yes */
zoff_status zoff_engine_stores_commit_step(zoff_engine *e);
zoff_comm_call zoff_engine_stores_commit_call(const zoff_engine *e, zoff_commit_stage stage); /* a barrier of theirs */
bool zoff_engine_stores_commit_together(const zoff_engine *e); /* several ranks make the same commit */
/* `own`: the result of this rank's writes. An error on one rank is an error on all. */
zoff_status zoff_engine_stores_commit_pass(zoff_engine *e, zoff_status own);
/* Each rank stores its part of the weights: send it to all ranks that have a copy.  @blocks for other ranks */
zoff_status zoff_engine_stores_spread_weights(zoff_engine *e);
/* Write and commit ranges, as part of a call of the program (a zoff_comm_visit_call). If states persist, every rank calls it,
 * and an error on one is an error on all.  @blocks yes */
zoff_status zoff_engine_stores_record_ranges(zoff_engine *e, unsigned call);
bool zoff_engine_stores_is_spreading(const zoff_engine *e); /* a spread has failed, and only some weights were sent */

/* states.c */
/* Where the device and a store have the same states: copy those of the store to the device.  @blocks */
zoff_status zoff_engine_states_place_bring_all(zoff_engine *e);
/* zoff.check_use: ERR_STATE if the program has changed weights since the last call. Then a save that is under way fails. */
zoff_status zoff_engine_states_check_left(zoff_engine *e, const char *call);
/* Set the masters from the weights, or compute the weights from the states. */
zoff_status zoff_engine_states_pull(zoff_engine *e);
zoff_status zoff_engine_states_pull_param(zoff_engine *e, zoff_param param); /* `param` owns its states */
zoff_status zoff_engine_states_push(zoff_engine *e);
/* Go back to the last commit, also on the device. Repeat it after an error.  @blocks */
zoff_status zoff_engine_states_rollback(zoff_engine *e);
/* Copy the fp32 weights of a bucket. `first`: set all masters from the weights. Otherwise, for pieces with a gradient: set the
 * weights from separate masters; set the copy in persistent files from weights that are their own masters. */
void zoff_engine_states_keep_weights(zoff_engine *e, size_t chunk, zoff_chunk_memory memory, bool first);
/* The initial content of a chunk: masters from the weights, zeros, and the initial accumulators of Adagrad. */
void zoff_engine_states_fill(void *ctx, size_t chunk, void *base);
/* The initial weights of a chunk. */
void zoff_engine_states_fill_weights(void *ctx, size_t chunk, void *base);

/* state_range.c: ranges keep chunks in their slots, and delay writes */
/* At the end of the engine: commit ranges if the files persist; errors are logged. */
void zoff_engine_state_range_end(zoff_engine *e);

/* traffic.c */
/* Add to a plan what this rank sends in a step, and by which route.  @return ERR_NO_MEMORY */
zoff_status zoff_engine_traffic(const zoff_engine *e, const zoff_plan *plan, zoff_plan_info *info);

/* stats.c */
/* Note that a call on an open step begins, and that it returns to the program. The work in between is visible to the
 * program. */
void zoff_engine_stats_come(zoff_engine *e);
void zoff_engine_stats_leave(zoff_engine *e);
/* Begin to count the bytes from and to a device anew. */
void zoff_engine_stats_count_device_anew(zoff_engine *e);
void zoff_engine_stats_add(zoff_engine *e, const zoff_step_info *info);
void zoff_engine_stats_log_start(const zoff_engine *e);
void zoff_engine_stats_log_step(const zoff_engine *e, const zoff_step_info *info);

#endif
