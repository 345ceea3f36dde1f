/* engine_priv.h: what an engine is made of; the table that the files of this room share.
 *
 *  engine.c    create, seal, destroy               options.c   options and configuration to settings
 *  params.c    the list of parameters, gradients    groups.c    hyper-parameters, and the states that they need
 *  step.c      begin, wait, retry: what the caller sees
 *  pipeline.c  the stages that a bucket walks       stages.c, update.c  the stages
 *  gate.c      norm, clip, skip                     states.c    pull, push, read, write
 *  lr_schedule.c                                    stats.c     what was done, and what it took
 *  budget.c    the plan, and whether it fits        persist.c   states of an earlier process
 */
#ifndef ZOFF_ENGINE_PRIV_H
#define ZOFF_ENGINE_PRIV_H

#include "accel.h"
#include "comm.h"
#include "config.h"
#include "cpu_adam.h"
#include "map.h"
#include "mem.h"
#include "offload.h"
#include "team.h"
#include "zero.h"

#include <zoff/engine.h>

typedef enum zoff_phase {
    ZOFF_PHASE_BUILDING, /* parameters may be added */
    ZOFF_PHASE_IDLE,     /* sealed, between steps */
    ZOFF_PHASE_OPEN,     /* zoff_step_begin() was called */
    ZOFF_PHASE_FAILED    /* zoff_step_wait() failed: retry, drop, or destroy */
} zoff_phase;

/* Flags of one slice of a parameter. */
enum {
    ZOFF_SLICE_READY = 1,  /* its gradient was handed over for this micro-step */
    ZOFF_SLICE_PRESENT = 2 /* it has had a gradient in this step; with accumulation: the accumulator holds something */
};

typedef struct zoff_engine_param {
    char *name;
    char *value;
    char *grad;
    size_t count, slices;
    size_t value_stride, grad_stride; /* bytes */
    zoff_dtype dtype, grad_dtype;
    unsigned group;
    bool frozen;
    size_t first_flag; /* of its slices, in the engine's flags */
} zoff_engine_param;

/* Hyper-parameters of a group where the program has set them, and what was laid out for it. */
typedef struct zoff_engine_group {
    bool used; /* by a parameter that is trained */
    bool set;
    zoff_adam_hyper hyper;
    zoff_optimizer optimizer; /* from seal on */
    zoff_adam_states states;  /* likewise */
} zoff_engine_group;

/* One bucket on its way through the stages: a chunk, and the row where it is. */
typedef struct zoff_bucket_run {
    zoff_engine *engine;
    size_t chunk;
    unsigned row;
    char *base;   /* of its states, while borrowed */
    bool checked; /* and compared with their checksum */
    bool flushed; /* given back changed */
} zoff_bucket_run;

typedef enum zoff_gate { ZOFF_GATE_CLOSED, ZOFF_GATE_VOTING, ZOFF_GATE_OPEN, ZOFF_GATE_SKIP } zoff_gate;

/* One step, from begin to the end of wait. */
typedef struct zoff_step_run {
    int64_t t;
    double clip_norm, grad_scale;
    unsigned flags;
    double began;
    bool last;         /* of the micro-steps: this one updates */
    uint64_t expected; /* elements that must be updated, counted from the list of parameters */
    size_t first;      /* buckets before it are through */
    size_t measured;   /* buckets */
    size_t updated;    /* buckets whose weights are new */
    bool undone;       /* it is being taken back: it cannot go on any more */
    zoff_gate gate;
    zoff_comm_work vote;
    double sums[1]; /* square sum: of the buckets measured so far, then over the ranks */
    bool poisoned;  /* a gradient of ours is not finite: info names it, from this element of its slice on */
    size_t poison_first;
    zoff_status fault; /* of I/O beside the walk; taken by the next fetch or flush */
    char fault_text[2048];
    zoff_store_stats before;
    zoff_step_info info;
} zoff_step_run;

/* Sums since seal. */
typedef struct zoff_engine_totals {
    uint64_t steps, skipped, micro_steps;
    uint64_t host_read_bytes, host_write_bytes, nvme_read_bytes, nvme_write_bytes, nvme_ahead_bytes;
    double seconds, measure_seconds, update_seconds, io_wait_seconds, check_seconds;
    uint64_t huge_page_bytes; /* of the store's DRAM, when it was sealed */
} zoff_engine_totals;

/* Options and configuration, merged; the configuration itself is not needed after create. */
typedef struct zoff_settings {
    zoff_config_values values; /* without its texts and paths, which belong to the configuration */
    zoff_tier tier;
    char **paths;
    size_t path_count;
    char *aio_backend;
    char *bf16_source; /* where bf16.enabled was set */
    uint64_t host_bytes;
    const char *host_bytes_key; /* who said so, for messages */
    uint64_t chunk_elements;
    unsigned threads;
} zoff_settings;

struct zoff_engine {
    zoff_accel *accel;
    zoff_comm *comm;
    bool owns_accel, owns_comm;
    zoff_settings settings;
    zoff_phase phase;
    bool awaits_weights; /* opened again, or rolled back: weights are not those of the states until they are pushed or pulled */

    zoff_engine_param *params;
    size_t param_count, param_capacity;
    zoff_engine_group *groups;
    size_t group_count; /* as many as the parameters or the program name */
    size_t group_capacity;
    size_t slice_count; /* of all parameters */

    /* from seal on */
    zoff_plan plan;
    zoff_store *store;
    zoff_map accumulator; /* fp32, plan.owned_elements; empty without accumulation */
    uint8_t *flags;       /* per slice */
    double *block_sums;   /* plan.blocks_max, of the bucket that is measured */
    zoff_bucket_run *runs;
    zoff_adam_piece *adam_pieces; /* plan.pieces_max of each: what a bucket hands to the kernels */
    zoff_norm_piece *norm_pieces;
    zoff_accumulate_piece *accumulate_pieces;
    zoff_cast_piece *cast_pieces;
    zoff_adam_hyper *hyper;   /* per group, of the current step */
    zoff_adam_consts *consts; /* per group, of the current step */

    int64_t t;          /* updates made */
    uint32_t micro;     /* micro-steps done of the current step */
    double micro_scale; /* their grad_scale */
    zoff_step_run run;
    zoff_engine_totals totals;
};

/* options.c */
zoff_status zoff_engine_options_merge(zoff_engine *e, const zoff_engine_opts *opts);
void zoff_engine_options_free(zoff_engine *e);

/* params.c */
zoff_status zoff_engine_params_add(zoff_engine *e, const zoff_param_desc *desc, zoff_param *out);
void zoff_engine_params_free(zoff_engine *e);
void zoff_engine_params_ready_all(zoff_engine *e);          /* every slice that has a gradient buffer */
void zoff_engine_params_zero_grads(zoff_engine *e);         /* of the slices that are READY */
const char *zoff_engine_params_phase(const zoff_engine *e); /* in which phase it is, in words */
/* Where the elements of a piece are in the caller's memory. */
char *zoff_engine_params_value(const zoff_engine *e, const zoff_plan_piece *piece);
char *zoff_engine_params_grad(const zoff_engine *e, const zoff_plan_piece *piece);
static inline uint8_t *zoff_engine_params_flag(zoff_engine *e, const zoff_plan_piece *piece)
{
    return &e->flags[e->params[piece->param].first_flag + piece->slice];
}

/* groups.c */
zoff_status zoff_engine_groups_reserve(zoff_engine *e, unsigned group);
/* The hyper-parameters of a group outside of a call: the program's, else those of the configuration. */
const zoff_adam_hyper *zoff_engine_groups_own(const zoff_engine *e, size_t group);
/* The states that a group's parameters have: once sealed those that were laid out, before that those of its hyper-parameters.
 */
zoff_adam_states zoff_engine_groups_states(const zoff_engine *e, size_t group);
void zoff_engine_groups_fix(zoff_engine *e); /* at seal: no other states from here on */
/* "SGD without momentum", for messages */
const char *zoff_engine_groups_optimizer(zoff_optimizer optimizer, zoff_adam_states states);
/* What step number t uses for a group: from the call; or its own, with the schedule on their lr. */
zoff_status zoff_engine_groups_of_step(const zoff_engine *e, const zoff_step_args *args, size_t group, int64_t t,
                                       zoff_adam_hyper *out);

/* budget.c: the plan, and whether it fits */
/* A parameter as the plan sees it. */
zoff_plan_tensor zoff_engine_budget_tensor(const zoff_engine *e, const zoff_engine_param *p);
/* Chunks that stay in DRAM on the NVMe tier. */
size_t zoff_engine_budget_residents(const zoff_engine *e, const zoff_plan *plan);
zoff_status zoff_engine_budget_plan(const zoff_engine *e, zoff_plan *out_plan, zoff_plan_info *out_info);
zoff_status zoff_engine_budget_check(const zoff_engine *e, const zoff_plan_info *info);

/* persist.c */
zoff_status zoff_engine_persist_layout(const zoff_engine *e, const zoff_plan *plan, uint64_t *out);
/* How the states were cut that are to be opened again; left as they are when there are none. */
void zoff_engine_persist_limits(const zoff_engine *e, size_t *chunk_bytes, size_t *chunk_elements);

/* pipeline.c: walk all buckets through their rows */
void zoff_engine_pipeline_begin(zoff_engine *e);
zoff_status zoff_engine_pipeline_run(zoff_engine *e);
void zoff_engine_pipeline_feed(zoff_engine *e); /* read ahead; errors come again when the bucket asks */
size_t zoff_engine_pipeline_window(const zoff_engine *e);
void zoff_engine_pipeline_release(zoff_engine *e); /* give back what is borrowed, unchanged */
void zoff_engine_pipeline_ahead(zoff_engine *e);   /* between steps: start to read what the next one begins with */

/* stages.c: one function a row; OK goes to the next row, PENDING asks again, an error stops the step */
zoff_status zoff_engine_stages_accumulate(zoff_bucket_run *run);
zoff_status zoff_engine_stages_measure(zoff_bucket_run *run);
zoff_status zoff_engine_stages_gate(zoff_bucket_run *run);
zoff_status zoff_engine_stages_fetch(zoff_bucket_run *run);
zoff_status zoff_engine_stages_flush(zoff_bucket_run *run);
/* Whether a slice of the bucket has a gradient in this step. */
bool zoff_engine_stages_takes_part(const zoff_bucket_run *run);
/* The gradient that the norm and the update see. */
const void *zoff_engine_stages_gradient(const zoff_engine *e, const zoff_plan_piece *piece, zoff_dtype *out_dtype);
/* Seconds since `from`, without those that went to I/O and to checksums in between. */
double zoff_engine_stages_worked(const zoff_engine *e, double from, const zoff_store_stats *before);
/* Whether the bucket needs its states in this step: a slice of it takes part, and there are states. */
bool zoff_engine_stages_borrows(const zoff_bucket_run *run);

/* update.c: the row between fetch and flush */
zoff_status zoff_engine_update_run(zoff_bucket_run *run);

/* gate.c */
void zoff_engine_gate_add(zoff_engine *e, const zoff_plan_piece *pieces, size_t count); /* a bucket's block sums */
zoff_status zoff_engine_gate_vote(zoff_engine *e);

/* lr_schedule.c: learning rate of update number t (from 1) for a group whose own is group_lr */
double zoff_engine_lr_schedule_at(const zoff_schedule_values *schedule, double group_lr, int64_t t);

/* states.c */
/* Weights of the states as they are. */
zoff_status zoff_engine_states_push(zoff_engine *e);
/* Copies of the fp32 weights of a bucket into its chunk, of the pieces that have a gradient, or of all. */
void zoff_engine_states_keep_weights(zoff_engine *e, size_t chunk, char *base, bool all);
/* The initial content of a chunk: masters from the weights, zeros, the accumulators that Adagrad starts with. */
void zoff_engine_states_fill(void *ctx, size_t chunk, void *base);
/* A piece for the kernels, its chunk at `base`: weights and all its states; gradient and constants are the caller's to add. */
zoff_adam_piece zoff_engine_states_piece(const zoff_engine *e, const zoff_plan_chunk *chunk, const zoff_plan_piece *piece,
                                         char *base);

/* stats.c */
void zoff_engine_stats_add(zoff_engine *e, const zoff_step_info *info);
void zoff_engine_stats_log_start(const zoff_engine *e);
void zoff_engine_stats_log_step(const zoff_engine *e, const zoff_step_info *info);
/* "12.3 MiB" in one of a few buffers of this thread */
const char *zoff_engine_stats_bytes(uint64_t bytes);

#endif
