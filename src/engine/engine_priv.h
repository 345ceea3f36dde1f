/* engine_priv.h: what an engine is made of; the table that the files of this room share, with *_priv.h beside it.
 *
 *  life        engine.c create, seal, destroy; rooms.c what other rooms borrow; options.c; stats.c; progress_thread.c; phase.c
 *  calls       params.c parameters, groups, the loss scale, weights that are lent; handover.c gradients: each calls its room
 *  plan        budget.c
 *  step        step.c begin, wait, retry; rows.c which rows a bucket has; pipeline.c walks them
 *  rows        admit.c who borrows; stages.c, update.c of the host; gate.c norm, clip, skip; threads.c
 *  states      stores.c; states.c first values, pull, push; state_range.c parts of a parameter
 */
#ifndef ZOFF_ENGINE_PRIV_H
#define ZOFF_ENGINE_PRIV_H

#include "accel.h"
#include "agreement.h"
#include "comm.h"
#include "config.h"
#include "cpu_adam.h"
#include "lending.h"
#include "mem.h"
#include "offload.h"
#include "progress.h"
#include "team.h"
#include "transfer.h"
#include "words.h"
#include "zero.h"
#include "zoff_model.h"

#include <zoff/engine.h>

typedef enum zoff_phase {
    ZOFF_PHASE_BUILDING, /* parameters may be added */
    ZOFF_PHASE_IDLE,     /* sealed, between steps */
    ZOFF_PHASE_OPEN,     /* zoff_step_begin() was called */
    ZOFF_PHASE_FAILED    /* zoff_step_wait() failed: retry, drop, or destroy */
} zoff_phase;

/* One stage of a bucket. `run` returns OK when the bucket can go on to the next row, PENDING to be called again, or an error,
 * which stops the step. See rows.c. */
typedef struct zoff_row {
    const char *name;
    zoff_status (*run)(void *ctx, zoff_bucket_run *run);
    void *ctx; /* from seal on: the engine, or its transfer */
} zoff_row;

enum { ZOFF_ROWS_MAX = 20 };

typedef struct zoff_rows {
    zoff_row row[ZOFF_ROWS_MAX];
    unsigned count;
} zoff_rows;

/* `step`: the rows of the last micro-step of a step. `add`: those of every micro-step before it. */
typedef struct zoff_bucket_rows {
    zoff_rows add, step;
} zoff_bucket_rows;

typedef enum zoff_gate { ZOFF_GATE_CLOSED, ZOFF_GATE_VOTING, ZOFF_GATE_OPEN, ZOFF_GATE_SKIP } zoff_gate;

/* Operations by which ranks agree in a step. */
typedef struct zoff_step_talks {
    zoff_comm_work vote;
    zoff_comm_work commit; /* with zoff.persist: whether all have come so far */
    bool commit_asked;
} zoff_step_talks;

/* One step, from begin to the end of wait. */
typedef struct zoff_step_run {
    int64_t t;
    double clip_norm, grad_scale; /* grad_scale: the caller's; beside it info.numbers.loss_scale */
    double factor;                /* that the gate multiplies gradients by, without its sign: scales and clipping */
    unsigned flags;
    bool looks; /* at gradients before they are used: to clip, or to skip */
    double began;
    bool last;         /* of the micro-steps: this one updates */
    uint64_t expected; /* elements that must be updated, counted from the list of parameters */
    size_t first;      /* buckets before this position of the walk are through */
    bool undone;       /* it is being taken back: it cannot go on any more */
    zoff_gate gate;
    zoff_step_talks talks;
    zoff_store_stats before;
    zoff_step_info info;
} zoff_step_run;

/* Whether gradients are measured by all threads, or by as many as an update takes: whichever was quicker. */
typedef struct zoff_measure_threads {
    bool few;          /* in the next step */
    double seconds[2]; /* of the last time: all, few; 0: not tried yet */
    unsigned steps;    /* since the slower one was tried */
} zoff_measure_threads;

/* Sums since seal. */
typedef struct zoff_engine_totals {
    uint64_t steps, skipped, micro_steps;
    uint64_t host_read_bytes, host_write_bytes, nvme_read_bytes, nvme_write_bytes, nvme_ahead_bytes;
    uint64_t device_read_bytes, device_write_bytes;
    double seconds, measure_seconds, update_seconds, io_wait_seconds, check_seconds;
    uint64_t huge_page_bytes; /* of the store's DRAM, when it was sealed */
    bool warned_of_nothing;   /* that a step had no gradient at all */
} zoff_engine_totals;

/* Options and configuration, merged; the configuration itself is not needed after create. */
typedef struct zoff_settings {
    zoff_config_values values; /* without its texts and paths, which belong to the configuration */
    zoff_tier tier;
    char **paths;
    size_t path_count;
    char **weight_paths;
    size_t weight_path_count;
    char *aio_backend;
    char *agreed_keys; /* of several ranks, what they compare: zoff_config_agree_list() */
    size_t agreed_bytes;
    char *training_words; /* optimizer, lr, schedule and clipping, each with where it came from */
    char *half_source;    /* where bf16.enabled or fp16.enabled was set, whichever is true */
    uint64_t host_bytes;
    const char *host_bytes_key; /* who said so, for messages */
    uint64_t chunk_elements;
    unsigned threads;
    const char *threads_why;    /* static text */
    bool threads_asked;         /* for by the program or the configuration */
    bool owns_accel, owns_comm; /* opened for this engine, and closed with it */
    bool progress_thread;
} zoff_settings;

typedef struct zoff_progress_thread zoff_progress_thread;

/* Which call may come next. */
typedef struct zoff_life {
    zoff_phase phase;
    bool awaits_weights; /* opened again, or rolled back: weights are not those of the states until they are pushed or pulled */
    unsigned process;    /* that made the engine: zoff_base_fork_number() */
} zoff_life;

/* Which threads work, and when. */
typedef struct zoff_engine_threads {
    zoff_progress_thread *progress; /* NULL: none */
    bool in_progress;               /* it is the progress thread that is at work */
    bool holds_team;                /* in a step its threads poll for some microseconds between two buckets */
    unsigned update;                /* see update.c; 0: all that there are */
    zoff_measure_threads measure;
} zoff_engine_threads;

/* What the gate decides by. */
typedef struct zoff_engine_gate {
    zoff_vote *votes; /* by rank */
    size_t *vote_bytes;
    zoff_optimizer_hyper *hyper; /* per group, of the current step */
} zoff_engine_gate;

/* What buckets walk by. */
typedef struct zoff_engine_walk {
    zoff_bucket_rows rows[ZOFF_USED_PLACES]; /* by where the states of a bucket are: zoff_transfer_use_of() */
    void (*begun)(zoff_engine *e);           /* a step is: drop what was read ahead for nothing, if that is known already */
    size_t *streamed; /* positions of the walk, ascending, whose bucket takes a slot of a store; see admit.c */
    size_t streamed_count;
} zoff_engine_walk;

/* Work of the stores: of state files and of weight files. Devices and other ranks are the transfer's. */
typedef struct zoff_engine_io {
    zoff_poller states, weights;
    zoff_store_stats counted; /* of the weights, by the steps so far */
    bool commits_together;    /* states persist, and several ranks record the same step */
} zoff_engine_io;

/* Calls that read or write ranges of states. */
typedef struct zoff_engine_ranges {
    bool last;    /* they were the last that read or wrote: nothing is read ahead */
    bool unsaved; /* a range was written, and no commit has followed; the same on all ranks */
} zoff_engine_ranges;

/* The rooms below borrow fields of an engine: it never moves in memory. See rooms.c. */
struct zoff_engine {
    zoff_accel *accel;
    zoff_comm *comm;
    zoff_comm_channel channel; /* of this engine's operations over ranks */
    zoff_settings settings;
    zoff_life life;
    zoff_engine_threads threads;
    zoff_model model;
    zoff_plan plan; /* from seal on */
    zoff_store *store;
    zoff_lending lending;
    zoff_transfer transfer;
    zoff_agreement agreement;
    zoff_progress progress;
    zoff_engine_io io;
    zoff_engine_gate gate;
    zoff_engine_walk walk;
    zoff_engine_ranges ranges;
    int64_t t; /* updates made */
    zoff_step_run run;
    zoff_engine_totals totals;
};

#include "step_priv.h"

/* progress_thread.c: a thread that lets the engine go on between calls */
zoff_status zoff_engine_progress_thread_check(const zoff_engine *e); /* whether it may: the communicator decides */
/* Start the thread if the program asked for it; it calls `progress` again and again. From here on calls hold the lock. */
void zoff_engine_progress_thread_start(zoff_engine *e, zoff_status (*progress)(zoff_engine *e));
void zoff_engine_progress_thread_stop(zoff_engine *e);
/* How many threads work: one where the program's are busy. */
unsigned zoff_engine_progress_thread_threads(const zoff_engine *e);
zoff_engine *zoff_engine_progress_thread_enter(const zoff_engine *e);
void zoff_engine_progress_thread_leave(zoff_engine **entered);
/* Whether this process is a child of the one that made the engine, whose chunks in files it cannot have. */
bool zoff_engine_progress_thread_is_child(const zoff_engine *e);
/* The first statement of a public call: the engine is this thread's until it returns. */
#define ZOFF_ENTER(e)                                                                                                          \
    zoff_engine *entered_ __attribute__((cleanup(zoff_engine_progress_thread_leave), unused)) =                                \
        zoff_engine_progress_thread_enter(e);                                                                                  \
    ZOFF_FAIL_IF(zoff_engine_progress_thread_is_child(e), ZOFF_ERR_STATE,                                                      \
                 "%s: a child made by fork() has no part in the files of its parent's engine; it may only destroy its copy",   \
                 __func__)

/* rooms.c: what the rooms below borrow of the engine */
void zoff_engine_rooms_connect(zoff_engine *e); /* when an engine is created */
void zoff_engine_rooms_attach(zoff_engine *e);  /* once its accelerator and its communicator are known */

/* options.c */
zoff_status zoff_engine_options_merge(zoff_engine *e, const zoff_engine_opts *opts);
void zoff_engine_options_free(zoff_engine *e);

/* phase.c */
const char *zoff_engine_phase_words(const zoff_engine *e); /* the phase of the engine, for messages */
/* ERR_STATE unless the engine is in this phase. `call` names the public function; `e` may be NULL, which is an error. */
zoff_status zoff_engine_phase_check(const zoff_engine *e, zoff_phase wanted, const char *call);
zoff_status zoff_engine_phase_check_idle(const zoff_engine *e, const char *call);
/* The same, and no update is half done: see phase.c for the calls that need this. */
zoff_status zoff_engine_phase_check_whole(const zoff_engine *e, const char *call);
/* ERR_STATE while the weights that the engine keeps are not those of the states. */
zoff_status zoff_engine_phase_check_weights(const zoff_engine *e, const char *call);

/* budget.c: the plan, and whether it fits; chunks that stay in DRAM on the NVMe tier */
size_t zoff_engine_budget_states(const zoff_engine *e, const zoff_plan *plan);
size_t zoff_engine_budget_weights(const zoff_engine *e, const zoff_plan *plan);
/* All chunks that have states in a store; that have weights. */
size_t zoff_engine_budget_stored(const zoff_engine *e, const zoff_plan *plan);
size_t zoff_engine_budget_weights_stored(const zoff_plan *plan);
zoff_status zoff_engine_budget_plan(const zoff_engine *e, zoff_plan *out_plan, zoff_plan_info *out_info);
zoff_status zoff_engine_budget_check(const zoff_engine *e, const zoff_plan_info *info);
uint64_t zoff_engine_budget_need(const zoff_plan_info *info); /* DRAM, of all kinds */

/* A checksum of where each state lies, and of what it means: states of an earlier process fit if it is the same. */
zoff_status zoff_engine_budget_layout(const zoff_engine *e, const zoff_plan *plan, uint64_t *out);
/* How the states were cut that are to be opened again; left as they are when there are none. */
void zoff_engine_budget_limits(const zoff_engine *e, size_t *chunk_bytes, size_t *chunk_elements);

/* stores.c: the store of the states and that of the weights, as one */
/* Write the first content of a chunk to `base`; `ctx` is the engine. */
typedef void zoff_fill(void *ctx, size_t chunk, void *base);
zoff_status zoff_engine_stores_open(zoff_engine *e, zoff_fill *states, zoff_fill *weights);
void zoff_engine_stores_close(zoff_engine *e);
/* Return a kept error of background I/O on the states or the weights, once. */
zoff_status zoff_engine_stores_take_fault(zoff_engine *e);
zoff_status zoff_engine_stores_drain(zoff_engine *e);
zoff_status zoff_engine_stores_retry(zoff_engine *e);
zoff_status zoff_engine_stores_commit(zoff_engine *e, int64_t t);
void zoff_engine_stores_forget(zoff_engine *e);
bool zoff_engine_stores_busy(const zoff_engine *e, bool writes_only);
void zoff_engine_stores_stats(const zoff_engine *e, zoff_store_stats *out);
/* From where a step counts, and up to where. */
void zoff_engine_stores_begin_count(const zoff_engine *e, zoff_store_stats *out);
void zoff_engine_stores_end_count(zoff_engine *e);
/* Record a step, or a pass. Every rank calls these once its writes are complete; no rank records before all have come so far.
 * @blocks yes */
zoff_status zoff_engine_stores_commit_step(zoff_engine *e);
bool zoff_engine_stores_commit_together(const zoff_engine *e); /* several ranks record the same commit */
/* `own`: the result of this rank's writes; an error of one rank is an error of all. */
zoff_status zoff_engine_stores_commit_pass(zoff_engine *e, zoff_status own);

/* states.c */
/* Weights of the states as they are. */
zoff_status zoff_engine_states_push(zoff_engine *e);
/* Make copies of the fp32 weights of a bucket, of the pieces that have a gradient, or, at first, of all: into its chunk, where
 * that is to persist; and where they have masters of their own from those to the range. */
void zoff_engine_states_keep_weights(zoff_engine *e, size_t chunk, zoff_chunk_memory memory, bool first);
/* The initial content of a chunk: masters from the weights, zeros, the accumulators that Adagrad starts with. */
void zoff_engine_states_fill(void *ctx, size_t chunk, void *base);
/* The first weights of a chunk. */
void zoff_engine_states_fill_weights(void *ctx, size_t chunk, void *base);

/* Outside of a step: a pass over chunks, each borrowed, changed or not, and given back. */
typedef struct zoff_pass {
    bool states, weights;                 /* what it borrows, where a chunk has that */
    bool changes_states, changes_weights; /* and gives back changed */
    unsigned streams;                     /* of the states: only these, bit k for stream k; 0: all */
    bool keeps;                           /* and leaves at hand for the next pass, written later */
    bool makes_weights;                   /* of the masters: where each has one, the old weights are not read */
} zoff_pass;

zoff_status zoff_engine_states_begin_pass(zoff_engine *e, const zoff_pass *pass);
zoff_status zoff_engine_states_borrow(zoff_engine *e, const zoff_pass *pass, size_t chunk, zoff_chunk_memory *out); /* waits */
zoff_status zoff_engine_states_give_back(zoff_engine *e, const zoff_pass *pass, size_t chunk, zoff_chunk_memory memory);
/* `status`: of the pass so far. */
zoff_status zoff_engine_states_end_pass(zoff_engine *e, const zoff_pass *pass, zoff_status status);

/* state_range.c: ranges leave chunks at hand, and put off what they write */
/* Write it and commit, as part of a call of the program (a zoff_comm_visit_call). Every rank, where states persist: then an
 * error of one is an error of all.  @blocks yes */
zoff_status zoff_engine_state_range_record(zoff_engine *e, unsigned call);
/* The same, if ranges were written. */
zoff_status zoff_engine_state_range_commit(zoff_engine *e);
/* Called before a step, or before anything else that is no range: commit what ranges have written, and read ahead for the
 * next step again. */
zoff_status zoff_engine_state_range_close(zoff_engine *e);
/* The end of the engine: commit if the files outlive it; what fails is in the log. */
void zoff_engine_state_range_end(zoff_engine *e);

/* stats.c */
void zoff_engine_stats_add(zoff_engine *e, const zoff_step_info *info);
void zoff_engine_stats_log_start(const zoff_engine *e);
void zoff_engine_stats_log_step(const zoff_engine *e, const zoff_step_info *info);

#endif
