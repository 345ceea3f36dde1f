/* states.c: states from outside a step: their first values, weights to masters and back, windows for the caller. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

#include <string.h>

static float *stream_of(const zoff_plan_chunk *chunk, const zoff_plan_piece *piece, char *base, zoff_plan_stream stream)
{
    return (float *)(void *)(base + chunk->starts[stream]) + piece->offsets[stream];
}

/* A cast of one piece between weights and masters; false for a piece without a master of its own. Of fp32 weights, which are
 * their own masters, files that persist have a copy. */
static bool make_cast(const zoff_engine *e, const zoff_plan_chunk *chunk, const zoff_plan_piece *piece, char *base,
                      bool to_master, zoff_cast_piece *out)
{
    const zoff_engine_param *p = &e->params[piece->param];
    if (p->dtype == ZOFF_F32 && !e->settings.values.persist)
        return false;
    void *master = stream_of(chunk, piece, base, ZOFF_STREAM_MASTER);
    void *value = zoff_engine_params_value(e, piece);
    *out = (zoff_cast_piece){.count = piece->count,
                             .dst = to_master ? master : value,
                             .src = to_master ? value : master,
                             .dst_dtype = to_master ? ZOFF_F32 : p->dtype,
                             .src_dtype = to_master ? p->dtype : ZOFF_F32};
    return true;
}

static void cast_chunk(zoff_engine *e, size_t chunk, char *base, bool to_master)
{
    const zoff_plan_chunk *c = &e->plan.chunks[chunk];
    size_t used = 0;
    for (size_t i = 0; i < c->piece_count; i++)
        used += make_cast(e, c, &e->plan.pieces[c->first_piece + i], base, to_master, &e->cast_pieces[used]);
    zoff_adam_cast_run(e->settings.threads, e->cast_pieces, used);
}

void zoff_engine_states_keep_weights(zoff_engine *e, size_t chunk, char *base, bool all)
{
    const zoff_plan_chunk *c = &e->plan.chunks[chunk];
    size_t used = 0;
    for (size_t i = 0; e->settings.values.persist && i < c->piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[c->first_piece + i];
        if (e->params[piece->param].dtype == ZOFF_F32 && (all || *zoff_engine_params_flag(e, piece)))
            used += make_cast(e, c, piece, base, true, &e->cast_pieces[used]);
    }
    zoff_adam_cast_run(e->settings.threads, e->cast_pieces, used);
}

zoff_adam_piece zoff_engine_states_piece(const zoff_engine *e, const zoff_plan_chunk *chunk, const zoff_plan_piece *piece,
                                         char *base)
{
    const zoff_engine_param *p = &e->params[piece->param];
    const zoff_adam_states states = zoff_engine_groups_states(e, p->group);
    const bool has_master = p->dtype != ZOFF_F32;
    char *value = zoff_engine_params_value(e, piece);
    return (zoff_adam_piece){.count = piece->count,
                             .master = has_master ? (void *)stream_of(chunk, piece, base, ZOFF_STREAM_MASTER) : value,
                             .m = states.m ? stream_of(chunk, piece, base, ZOFF_STREAM_M) : NULL,
                             .v = states.v ? stream_of(chunk, piece, base, ZOFF_STREAM_V) : NULL,
                             .grad_dtype = e->accumulator.base ? ZOFF_F32 : p->grad_dtype,
                             .copy_out = has_master ? value : NULL,
                             .copy_dtype = p->dtype};
}

/* What the sums of squares of Adagrad start with, where that is not zero. */
static void fill_accumulators(const zoff_engine *e, const zoff_plan_chunk *c)
{
    const float first = (float)e->settings.values.initial_accumulator;
    for (size_t i = 0; first != 0 && i < c->piece_count; i++) {
        const zoff_engine_param *p = &e->params[e->plan.pieces[c->first_piece + i].param];
        const bool is_sum = zoff_engine_groups_own(e, p->group)->optimizer == ZOFF_OPTIMIZER_ADAGRAD;
        for (size_t k = 0; is_sum && k < e->adam_pieces[i].count; k++)
            e->adam_pieces[i].v[k] = first;
    }
}

/* The pieces as an update of the whole chunk sees them, so that its shares are the same. */
void zoff_engine_states_fill(void *ctx, size_t chunk, void *base)
{
    zoff_engine *e = ctx;
    const zoff_plan_chunk *c = &e->plan.chunks[chunk];
    for (size_t i = 0; i < c->piece_count; i++)
        e->adam_pieces[i] = zoff_engine_states_piece(e, c, &e->plan.pieces[c->first_piece + i], base);
    zoff_adam_touch_run(e->settings.threads, e->adam_pieces, c->piece_count);
    fill_accumulators(e, c);
    zoff_engine_states_keep_weights(e, chunk, base, true);
}

/* Bring a chunk in and wait for it; NULL for one that has no states. */
static zoff_status borrow(zoff_engine *e, size_t chunk, char **out)
{
    void *base = NULL;
    while (e->plan.chunks[chunk].bytes) {
        zoff_status status = zoff_offload_store_fetch(e->store, chunk, &base);
        if (status == ZOFF_OK)
            status = zoff_offload_store_check(e->store, chunk);
        if (status == ZOFF_OK)
            break;
        if (status == ZOFF_PENDING)
            status = zoff_offload_store_wait(e->store);
        if (status < 0) {
            /* A step that comes later must not find a read of ours on its way. */
            zoff_kept_error kept;
            zoff_base_status_keep(&kept);
            zoff_offload_store_forget(e->store);
            zoff_base_status_restore(&kept);
            return status;
        }
    }
    *out = base;
    return ZOFF_OK;
}

static zoff_status check_idle(const zoff_engine *e, const char *call)
{
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "%s: engine must not be NULL", call);
    ZOFF_FAIL_IF(e->phase != ZOFF_PHASE_IDLE, ZOFF_ERR_STATE, "%s: %s", call, zoff_engine_params_phase(e));
    return ZOFF_OK;
}

static zoff_status give_back(zoff_engine *e, size_t chunk, bool changed)
{
    if (e->plan.chunks[chunk].bytes == 0)
        return ZOFF_OK;
    if (changed)
        return zoff_offload_store_flush(e->store, chunk);
    zoff_offload_store_release(e->store, chunk);
    return ZOFF_OK;
}

/* The slots are for the call: what was read ahead for the next step is read again after it. */
static zoff_status begin_pass(zoff_engine *e)
{
    zoff_offload_store_forget(e->store);
    return zoff_offload_store_retry(e->store);
}

static zoff_status end_pass(zoff_engine *e, bool changed)
{
    ZOFF_TRY(zoff_offload_store_drain(e->store));
    if (changed)
        ZOFF_TRY(zoff_offload_store_commit(e->store, e->t));
    zoff_engine_pipeline_ahead(e);
    return ZOFF_OK;
}

/* One pass over all chunks that have masters. */
static zoff_status cast_all(zoff_engine *e, bool to_master)
{
    ZOFF_TRY(begin_pass(e));
    for (size_t chunk = 0; chunk < e->plan.chunk_count; chunk++) {
        char *base;
        if (e->plan.chunks[chunk].lengths[ZOFF_STREAM_MASTER] == 0)
            continue;
        ZOFF_TRY(borrow(e, chunk, &base));
        cast_chunk(e, chunk, base, to_master);
        ZOFF_TRY(give_back(e, chunk, to_master));
    }
    return end_pass(e, to_master);
}

zoff_status zoff_engine_states_push(zoff_engine *e)
{
    return cast_all(e, false);
}

zoff_status zoff_params_pull(zoff_engine *e)
{
    ZOFF_TRY(check_idle(e, "zoff_params_pull"));
    ZOFF_TRY(cast_all(e, true));
    e->awaits_weights = false;
    return ZOFF_OK;
}

zoff_status zoff_params_push(zoff_engine *e)
{
    ZOFF_TRY(check_idle(e, "zoff_params_push"));
    ZOFF_TRY(cast_all(e, false));
    e->awaits_weights = false;
    return ZOFF_OK;
}

_Static_assert((int)ZOFF_STATE_MASTER == (int)ZOFF_STREAM_MASTER && (int)ZOFF_STATE_M == (int)ZOFF_STREAM_M &&
                   (int)ZOFF_STATE_V == (int)ZOFF_STREAM_V,
               "a state is the stream of its number");

/* A window [first, first + count) of a parameter, cut at slices and pieces; `write` or read. */
typedef struct window {
    zoff_param param;
    zoff_state_kind kind;
    size_t first, count;
    bool write;
} window;

static zoff_status check_window(const zoff_engine *e, const window *w, const char *call)
{
    ZOFF_TRY(check_idle(e, call));
    ZOFF_FAIL_IF(w->param >= e->param_count, ZOFF_ERR_INVALID, "%s: there is no parameter %u; the engine has %zu", call,
                 w->param, e->param_count);
    const zoff_engine_param *p = &e->params[w->param];
    ZOFF_FAIL_IF(w->kind != ZOFF_STATE_MASTER && w->kind != ZOFF_STATE_M && w->kind != ZOFF_STATE_V, ZOFF_ERR_INVALID,
                 "%s: kind %d is not a zoff_state_kind", call, (int)w->kind);
    ZOFF_FAIL_IF(p->frozen, ZOFF_ERR_INVALID, "%s: %s is frozen and has no states", call, p->name);
    size_t total = p->count * p->slices;
    ZOFF_FAIL_IF(w->first > total || w->count > total - w->first, ZOFF_ERR_INVALID,
                 "%s: %s has %zu elements; a window of %zu from %zu is outside", call, p->name, total, w->count, w->first);
    const zoff_adam_states states = zoff_engine_groups_states(e, p->group);
    const bool has = w->kind == ZOFF_STATE_MASTER || (w->kind == ZOFF_STATE_M ? states.m : states.v);
    ZOFF_FAIL_IF(!has, ZOFF_ERR_INVALID, "%s: the optimizer of %s is %s, which has no %s", call, p->name,
                 zoff_engine_groups_optimizer(e->groups[p->group].optimizer, states),
                 w->kind == ZOFF_STATE_M ? "first moment (ZOFF_STATE_M)" : "second moment (ZOFF_STATE_V)");
    return ZOFF_OK;
}

/* The elements of a state of one piece: in the chunk, or for fp32 weights in the caller's memory. */
static float *state_of(const zoff_engine *e, const zoff_plan_piece *piece, const zoff_plan_chunk *chunk, char *base,
                       zoff_state_kind kind)
{
    if (kind == ZOFF_STATE_MASTER && e->params[piece->param].dtype == ZOFF_F32)
        return (float *)(void *)zoff_engine_params_value(e, piece);
    return stream_of(chunk, piece, base, (zoff_plan_stream)kind);
}

/* Chunk that holds a piece: the last one that starts at or before it. */
static size_t chunk_of(const zoff_plan *plan, size_t piece)
{
    size_t low = 0, high = plan->chunk_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (plan->chunks[middle].first_piece <= piece)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Copy the part of the window from element `at` on that lies in one piece; tells how much that was. */
static size_t copy_piece(const zoff_engine *e, const window *w, size_t index, const zoff_plan_chunk *chunk, char *base,
                         size_t at, float *dst, const float *src)
{
    const zoff_plan_piece *piece = &e->plan.pieces[index];
    size_t skip = at % e->params[w->param].count - piece->first;
    size_t run = zoff_base_bits_min(piece->count - skip, w->first + w->count - at);
    float *state = state_of(e, piece, chunk, base, w->kind) + skip;
    if (w->write)
        memcpy(state, src + (at - w->first), run * sizeof *state);
    /* Of fp32 weights the file has a copy where it is to persist. */
    if (w->write && w->kind == ZOFF_STATE_MASTER && e->params[w->param].dtype == ZOFF_F32 && e->settings.values.persist)
        memcpy(stream_of(chunk, piece, base, ZOFF_STREAM_MASTER) + skip, state, run * sizeof *state);
    if (!w->write)
        memcpy(dst + (at - w->first), state, run * sizeof *state);
    return run;
}

/* Pieces of one parameter follow one another, so each chunk is borrowed once. */
static zoff_status move_window(zoff_engine *e, const window *w, float *dst, const float *src)
{
    const zoff_engine_param *p = &e->params[w->param];
    /* Else it is the caller's: no chunk is needed, unless that has a copy. */
    const bool is_stored = w->kind != ZOFF_STATE_MASTER || p->dtype != ZOFF_F32 || (w->write && e->settings.values.persist);
    if (is_stored)
        ZOFF_TRY(begin_pass(e));
    for (size_t at = w->first; at < w->first + w->count;) {
        size_t index = zoff_zero_plan_find(&e->plan, w->param, at / p->count, at % p->count);
        size_t number = chunk_of(&e->plan, index);
        const zoff_plan_chunk *chunk = &e->plan.chunks[number];
        char *base = NULL;
        if (is_stored)
            ZOFF_TRY(borrow(e, number, &base));
        for (; index < chunk->first_piece + chunk->piece_count && at < w->first + w->count; index++)
            at += copy_piece(e, w, index, chunk, base, at, dst, src);
        if (is_stored)
            ZOFF_TRY(give_back(e, number, w->write));
    }
    return is_stored ? end_pass(e, w->write) : ZOFF_OK;
}

zoff_status zoff_state_read(zoff_engine *e, zoff_param p, zoff_state_kind kind, size_t first, size_t count, float *dst)
{
    window w = {.param = p, .kind = kind, .first = first, .count = count};
    ZOFF_TRY(check_window(e, &w, "zoff_state_read"));
    ZOFF_FAIL_IF(!dst && count, ZOFF_ERR_INVALID, "zoff_state_read: dst must not be NULL");
    return move_window(e, &w, dst, NULL);
}

zoff_status zoff_state_write(zoff_engine *e, zoff_param p, zoff_state_kind kind, size_t first, size_t count, const float *src)
{
    window w = {.param = p, .kind = kind, .first = first, .count = count, .write = true};
    ZOFF_TRY(check_window(e, &w, "zoff_state_write"));
    ZOFF_FAIL_IF(!src && count, ZOFF_ERR_INVALID, "zoff_state_write: src must not be NULL");
    return move_window(e, &w, NULL, src);
}
