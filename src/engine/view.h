/* SPDX-License-Identifier: Apache-2.0 */
/* view.h: the door of the engine for the room `checkpoint`, which reads and replaces states as a whole. Programs use
 * include/zoff/engine.h. */
#ifndef ZOFF_ENGINE_VIEW_H
#define ZOFF_ENGINE_VIEW_H

#include "agreement.h"
#include "planning.h"
#include "progress.h"
#include "transfer.h"

#include <zoff/engine.h>

/* A save that reads states beside steps. The engine calls it before states change. An error of the save stays in the save: it
 * does not stop the engine. Every function gets `ctx`. */
typedef struct zoff_guard {
    /* Called once before each update of a chunk. The update writes back all of its arrays, also those without a gradient.
     * `memory`: as below.  @blocks until a file that is written next is saved */
    void (*before_chunk)(void *ctx, zoff_chunk_memory memory, size_t chunk);
    /* Called before an update changes `count` elements of a piece from `first` on, and their weights. `memory`: the borrowed
     * chunk.
     * @blocks until their old values are saved or copied */
    void (*before)(void *ctx, zoff_chunk_memory memory, const zoff_plan_piece *piece, size_t first, size_t count);
    /* Called before a call outside of a step changes states or weights.  @blocks until all are saved or copied */
    void (*before_all)(void *ctx);
    void (*changed)(void *ctx); /* zoff.check_use: the program has changed weights, which the save may have read, so it fails */
    void (*gone)(void *ctx);    /* the engine is being destroyed */
    void *ctx;
} zoff_guard;

/* The parts of an engine that a checkpoint reads. The pointers are the engine's. */
typedef struct zoff_engine_view {
    zoff_model *model;
    const zoff_plan *plan;
    const zoff_config_values *values;
    zoff_agreement *agreement;
    zoff_transfer *transfer;
    zoff_lending *lending;
    zoff_store *store; /* of the states */
    zoff_comm *comm;
    zoff_progress *progress;
    zoff_guard **guard;        /* the save that is under way; NULL: none */
    double *save_wait_seconds; /* seconds that updates of this step have waited for the save */
    const char *configuration; /* a JSON object with the effective values */
    int64_t t;
    unsigned threads;
    zoff_tier tier;
} zoff_engine_view;

/* engine.c */
zoff_engine_view zoff_engine_engine_view(zoff_engine *e);

/* progress_thread.c */
/* A call of the program that is under way. */
typedef struct zoff_entered {
    zoff_engine *engine; /* NULL: the program has passed none */
    bool is_locked;
    unsigned errors; /* zoff_base_status_count() at its begin */
} zoff_entered;
/* Lock an engine for a call, as ZOFF_ENTER does. The end keeps the text of the call's error for zoff_engine_error(). */
zoff_entered zoff_engine_progress_thread_enter(const zoff_engine *e);
void zoff_engine_progress_thread_leave(const zoff_entered *entered);
/* Whether this process is a fork of the one that made the engine. It must not use the engine's files. */
bool zoff_engine_progress_thread_is_child(const zoff_engine *e);
/* The first statement of a public call: locks the engine until the call returns. */
#define ZOFF_ENTER(e)                                                                                                          \
    const zoff_entered entered_ __attribute__((cleanup(zoff_engine_progress_thread_leave), unused)) =                          \
        zoff_engine_progress_thread_enter(e);                                                                                  \
    ZOFF_FAIL_IF(zoff_engine_progress_thread_is_child(e), ZOFF_ERR_STATE,                                                      \
                 "%s: a child of fork() cannot use the files of its parent's engine; it may only destroy its copy", __func__)

/* phase.c: the one table of public calls with an engine, and of what each does in every phase:
 *
 *      B building   I between steps   O a step is open   F a step has failed   M a step is measured
 *      X a load has failed   L and had sent weights   S a push has sent some weights   U a result is not told yet
 *
 *      + legal   - ERR_STATE   f finishes the step first   e returns the error of the step, or ERR_STATE once it is told
 *
 * NEEDS: what else must hold, or the call is ERR_STATE. */
enum {
    ZOFF_NEEDS_WHOLE = 1,   /* no micro-step is done, and no gradient handed over, of an update that is not taken yet */
    ZOFF_NEEDS_WEIGHTS = 2, /* the weights are those of the states: not reopened or rolled back since the last push or pull */
    ZOFF_NEEDS_RETURNED = 4 /* no weights of the engine are lent */
};
/*       call, its name, BIOFMXLSU, needs */
#define ZOFF_CALLS(CALL)                                                                                                       \
    CALL(ADD_PARAM, "zoff_engine_add_param", "+--------", 0)                                                                   \
    CALL(SEAL, "zoff_engine_seal", "+--------", 0)                                                                             \
    CALL(SET_GROUP, "zoff_engine_set_group", "++------+", 0)                                                                   \
    CALL(SET_LR, "zoff_engine_set_lr", "++------+", 0)                                                                         \
    CALL(GET_GROUP, "zoff_engine_get_group", "+++++++++", 0)                                                                   \
    CALL(FIND_PARAM, "zoff_engine_find_param", "+++++++++", 0)                                                                 \
    CALL(ERROR, "zoff_engine_error", "+++++++++", 0)                                                                           \
    CALL(PLAN, "zoff_engine_plan", "+++++++++", 0)                                                                             \
    CALL(COMM, "zoff_engine_comm", "+++++++++", 0)                                                                             \
    CALL(PROGRESS, "zoff_engine_progress", "-++++--++", 0)                                                                     \
    CALL(REQUEST_STOP, "zoff_engine_request_stop", "+++++++++", 0)                                                             \
    CALL(STATS_PRINT, "zoff_stats_print", "+++++++++", 0)                                                                      \
    CALL(DESTROY, "zoff_engine_destroy", "+++++++++", 0)                                                                       \
    CALL(PARAM_BIND, "zoff_param_bind", "++------+", 0)                                                                        \
    CALL(PARAM_BIND_OPTS, "zoff_param_bind_opts", "++------+", 0)                                                              \
    CALL(PARAM_PULL, "zoff_param_pull", "-+f-----+", ZOFF_NEEDS_WHOLE)                                                         \
    CALL(PARAMS_PULL, "zoff_params_pull", "-+f-----+", ZOFF_NEEDS_WHOLE | ZOFF_NEEDS_RETURNED)                                 \
    CALL(PARAMS_PUSH, "zoff_params_push", "-+f----++", ZOFF_NEEDS_WHOLE | ZOFF_NEEDS_RETURNED)                                 \
    CALL(STATE_READ, "zoff_state_read", "-+f-----+", ZOFF_NEEDS_WHOLE)                                                         \
    CALL(STATE_WRITE, "zoff_state_write", "-+f-----+", ZOFF_NEEDS_WHOLE)                                                       \
    CALL(STATE_FLUSH, "zoff_state_flush", "-+f-----+", 0)                                                                      \
    CALL(PARAM_FETCH, "zoff_param_fetch", "-++e----+", ZOFF_NEEDS_WEIGHTS)                                                     \
    CALL(PARAM_RELEASE, "zoff_param_release", "-+++----+", 0)                                                                  \
    CALL(PARAM_WRITE, "zoff_param_write", "-+f-----+", ZOFF_NEEDS_WHOLE | ZOFF_NEEDS_WEIGHTS)                                  \
    CALL(PARAM_READ, "zoff_param_read", "-+f-----+", ZOFF_NEEDS_WEIGHTS)                                                       \
    CALL(PERSIST_DATA, "zoff_persist_data", "-+f-----+", ZOFF_NEEDS_WHOLE)                                                     \
    CALL(LOSS_SCALE, "zoff_loss_scale", "+++++--++", 0)                                                                        \
    CALL(LOSS_SCALER_GET, "zoff_loss_scaler_get", "++f++--++", 0)                                                              \
    CALL(LOSS_SCALER_SET, "zoff_loss_scaler_set", "++f-----+", ZOFF_NEEDS_WHOLE)                                               \
    CALL(GRAD_READY, "zoff_grad_ready", "-+-------", 0)                                                                        \
    CALL(GRADS_HAND_OVER, "zoff_grads_hand_over", "-+-------", 0)                                                              \
    CALL(GRAD_ACQUIRE, "zoff_grad_acquire", "-+-------", 0)                                                                    \
    CALL(GRAD_WEIGHT, "zoff_grad_weight", "-+-------", 0)                                                                      \
    CALL(GRAD_REUSABLE, "zoff_grad_reusable", "-++e----+", 0)                                                                  \
    CALL(GRADS_DROP, "zoff_grads_drop", "-++++----", 0)                                                                        \
    CALL(STEP, "zoff_step", "-+--+----", ZOFF_NEEDS_WEIGHTS)                                                                   \
    CALL(STEP_MEASURE, "zoff_step_measure", "-+-------", ZOFF_NEEDS_WEIGHTS)                                                   \
    CALL(STEP_PREPARE, "zoff_step_prepare", "-+-------", 0)                                                                    \
    CALL(STEP_BEGIN, "zoff_step_begin", "-+--+----", ZOFF_NEEDS_WEIGHTS)                                                       \
    CALL(STEP_WAIT, "zoff_step_wait", "--+e----+", 0)                                                                          \
    CALL(STEP_RETRY, "zoff_step_retry", "---+-----", 0)                                                                        \
    CALL(STEP_COUNT, "zoff_step_count", "+++++--++", 0)                                                                        \
    CALL(STEP_COUNT_SET, "zoff_step_count_set", "++f-----+", ZOFF_NEEDS_WHOLE)                                                 \
    CALL(PARAM_WAIT, "zoff_param_wait", "-++e----+", 0)                                                                        \
    CALL(PARAMS_WAIT, "zoff_params_wait", "-++e----+", 0)                                                                      \
    CALL(CHECKPOINT_SAVE, "zoff_checkpoint_save", "-+f-----+", ZOFF_NEEDS_WHOLE | ZOFF_NEEDS_WEIGHTS)                          \
    CALL(CHECKPOINT_BEGIN, "zoff_checkpoint_begin", "-+f-----+", ZOFF_NEEDS_WHOLE | ZOFF_NEEDS_WEIGHTS)                        \
    CALL(CHECKPOINT_LOAD, "zoff_checkpoint_load", "-+f--+--+", ZOFF_NEEDS_WHOLE | ZOFF_NEEDS_RETURNED)
#define ZOFF_CALL_NUMBER(call, name, phases, needs) ZOFF_CALL_##call,
typedef enum zoff_call { ZOFF_CALLS(ZOFF_CALL_NUMBER) ZOFF_CALL_COUNT } zoff_call;
/* The check of a call, before it changes anything.  @return what the table says; a NULL engine is ERR_INVALID  @blocks for an
 * open step, where the call finishes it: zoff_step_wait() still returns its result */
zoff_status zoff_engine_step_enter(const zoff_engine *e, zoff_call call);

/* stores.c: write and commit ranges that the program has set. If states persist, every rank calls it.  @blocks yes */
zoff_status zoff_engine_stores_commit_ranges(zoff_engine *e);
/* Wait for all writes of the stores. */
zoff_status zoff_engine_stores_drain(zoff_engine *e);

/* states.c */
/* A pass over chunks outside of a step. Each chunk is borrowed, perhaps changed, and given back. */
typedef struct zoff_pass {
    bool states, weights;                 /* what the pass borrows of a chunk */
    bool changes_states, changes_weights; /* what the pass gives back changed */
    unsigned streams;                     /* streams of the states that the pass uses, bit k for stream k; 0: all */
    bool keeps;                           /* chunks stay in their slots for the next pass; writes are delayed */
    bool makes_weights;                   /* weights are computed from masters, so old weights are not read if all have one */
    bool claims;                          /* all states of the chunk are overwritten, so the old ones are not read */
} zoff_pass;

/* A chunk that a pass has borrowed. It must not move in memory. */
typedef struct zoff_lent_chunk {
    zoff_demand demand;
    zoff_chunk_memory memory;
} zoff_lent_chunk;

/* Begin and end a pass. Chunks that were read ahead for the next step are dropped, and read again after it. The end returns
 * `status`, the result of the pass so far, or an error of its own.  @blocks yes */
zoff_status zoff_engine_states_begin_pass(zoff_engine *e, const zoff_pass *pass);
zoff_status zoff_engine_states_end_pass(zoff_engine *e, const zoff_pass *pass, zoff_status status);
/* Borrow the chunk of a pass, and give it back. After an error nothing is borrowed.  @blocks yes */
zoff_status zoff_engine_states_place_borrow(zoff_engine *e, const zoff_pass *pass, size_t chunk, zoff_lent_chunk *out);
zoff_status zoff_engine_states_place_give_back(zoff_engine *e, const zoff_pass *pass, zoff_lent_chunk *lent);

enum { ZOFF_STATES_LOADING = 3 }; /* chunks that are filled at the same time, at most */

/* A load replaces all states. The caller fills chunk after chunk, and several at the same time, as far as memory is there. */
typedef struct zoff_states_load {
    zoff_engine *engine;
    zoff_pass pass;
    bool was_whole; /* the states were whole before the load */
    struct zoff_loading_chunk {
        zoff_lent_chunk lent;
        bool is_lent;
    } chunks[ZOFF_STATES_LOADING]; /* chunks by number, modulo the length of the list */
} zoff_states_load;
typedef struct zoff_loading_chunk zoff_loading_chunk;

/* Collective. After an error, too, call the end.  @blocks yes */
zoff_status zoff_engine_states_load_begin(zoff_engine *e, zoff_states_load *out);
/* How many chunks may be lent while this one is. */
size_t zoff_engine_states_load_most(const zoff_states_load *load, size_t chunk);
/* Lend the memory of a chunk: its states, and weights that are their own masters or frozen. It stays in place until it is taken
 * back. `fills_all`: every state gets new content, so the old one is not read.  @blocks yes */
zoff_status zoff_engine_states_load_lend(zoff_states_load *load, size_t chunk, bool fills_all, zoff_chunk_memory *out);
/* Moments of a chunk that is lent are not loaded: begin them as in a new engine. */
void zoff_engine_states_load_renew(zoff_states_load *load, size_t chunk);
/* A chunk has its masters, and weights that are their own masters: compute the other weights, while its moments are being
 * read. */
zoff_status zoff_engine_states_load_weights(zoff_states_load *load, size_t chunk);
/* Take back a chunk that has everything, and write it. */
zoff_status zoff_engine_states_load_take(zoff_states_load *load, size_t chunk);
/* All chunks were taken, or `status` is an error, after which nobody uses their memory any more: commit step `t`.
 * @return an error: with zoff.persist, states and weights are those of the last commit; otherwise, where that fails, and where
 * the engine owns frozen weights, it is unloaded  @blocks yes */
zoff_status zoff_engine_states_load_end(zoff_states_load *load, int64_t t, zoff_status status);
/* Allow only load and destroy from now on, because weights that are in no chunk are lost. */
void zoff_engine_states_unload(zoff_engine *e);

#endif
