/* SPDX-License-Identifier: Apache-2.0 */
/* state_range.c: a part of one parameter, read or written by the caller: one of its states, or its engine-owned weights. A
 * range goes through the slices of the parameter, one after the other.
 *
 * Ranges usually come in series: a checkpoint is read or written part by part, and one chunk has the states of many parts. So a
 * range leaves its chunk in the store's slot and delays its writes: see zoff_offload_broker_give(). It reads and writes only
 * the stream of its kind. */
#include "engine_priv.h"

#include "bits.h"
#include "log.h"
#include "try.h"

#include <string.h>

_Static_assert((int)ZOFF_STATE_MASTER == (int)ZOFF_STREAM_MASTER && (int)ZOFF_STATE_M == (int)ZOFF_STREAM_M &&
                   (int)ZOFF_STATE_V == (int)ZOFF_STREAM_V,
               "states and streams have the same numbers");

/* Elements [first, first + count) of a parameter, divided at slices and pieces. */
typedef struct state_range {
    zoff_param param;
    bool is_weights; /* weights in the parameter's type; otherwise a state in fp32 */
    zoff_state_kind kind;
    size_t first, count;
    bool write;
    const char *src; /* when writing */
    char *dst;       /* when reading */
} state_range;

/* ---- checks ---- */

static zoff_status check_range(zoff_engine *e, const state_range *w, const char *call)
{
    ZOFF_FAIL_IF(w->param >= e->model.param_count, ZOFF_ERR_INVALID, "%s: there is no parameter %u; the engine has %zu", call,
                 w->param, e->model.param_count);
    const zoff_model_param *p = &e->model.params[w->param];
    size_t total = p->count * p->slices;
    ZOFF_FAIL_IF(w->first > total || w->count > total - w->first, ZOFF_ERR_INVALID,
                 "%s: %s has %zu elements; a range of %zu from %zu is outside", call, p->name, total, w->count, w->first);
    ZOFF_FAIL_IF(!(w->write ? (const void *)w->src : w->dst) && w->count, ZOFF_ERR_INVALID, "%s: %s must not be NULL", call,
                 w->write ? "src" : "dst");
    return ZOFF_OK;
}

static const zoff_master_form *form_of(const zoff_engine *e, const state_range *w)
{
    return zoff_model_masters_of(&e->model, &e->model.params[w->param]);
}

/* fp32 weights are their own masters: setting one sets the other. Frozen ones have none. */
static bool is_own_master(const zoff_engine *e, const state_range *w)
{
    const zoff_model_param *p = &e->model.params[w->param];
    const bool is_whole = form_of(e, w)->is_whole || (p->frozen && p->dtype == ZOFF_F32);
    return is_whole && (w->is_weights || w->kind == ZOFF_STATE_MASTER);
}

/* Masters with one half in the weights. */
static bool is_split_master(const zoff_engine *e, const state_range *w)
{
    return form_of(e, w)->is_split && !w->is_weights && w->kind == ZOFF_STATE_MASTER;
}

/* Whether the weights are a part of the range, or all of it. */
static bool has_weights(const zoff_engine *e, const state_range *w)
{
    return w->is_weights || is_own_master(e, w) || is_split_master(e, w);
}

static zoff_status check_state(zoff_engine *e, const state_range *w, const char *call)
{
    ZOFF_TRY(zoff_engine_step_enter(e, w->write ? ZOFF_CALL_STATE_WRITE : ZOFF_CALL_STATE_READ));
    ZOFF_TRY(check_range(e, w, call));
    const zoff_model_param *p = &e->model.params[w->param];
    ZOFF_FAIL_IF(w->kind != ZOFF_STATE_MASTER && w->kind != ZOFF_STATE_M && w->kind != ZOFF_STATE_V, ZOFF_ERR_INVALID,
                 "%s: kind %d is not a zoff_state_kind", call, (int)w->kind);
    ZOFF_FAIL_IF(p->frozen, ZOFF_ERR_INVALID, "%s: %s is frozen and has no states", call, p->name);
    const zoff_adam_states states = zoff_model_params_states(&e->model, p);
    const bool has = w->kind == ZOFF_STATE_MASTER || (w->kind == ZOFF_STATE_M ? states.m : states.v);
    ZOFF_FAIL_IF(!has, ZOFF_ERR_INVALID, "%s: the optimizer of %s is %s, which has no %s", call, p->name,
                 zoff_model_groups_optimizer(e->model.groups[p->group].optimizer, states),
                 w->kind == ZOFF_STATE_M ? "first moment (ZOFF_STATE_M)" : "second moment (ZOFF_STATE_V)");
    /* Masters in the weights are read from the weights in use, the engine's or the program's, which may not be valid yet. */
    return !w->write && has_weights(e, w) ? zoff_engine_phase_check_weights(e, call) : ZOFF_OK;
}

static zoff_status check_weights(zoff_engine *e, const state_range *w, const char *call)
{
    ZOFF_TRY(zoff_engine_step_enter(e, w->write ? ZOFF_CALL_PARAM_WRITE : ZOFF_CALL_PARAM_READ));
    ZOFF_TRY(check_range(e, w, call));
    ZOFF_FAIL_IF(!e->model.params[w->param].engine_owned, ZOFF_ERR_INVALID,
                 "%s: the weights of %s are in the caller's memory (zoff_param_desc.engine_owned is false)", call,
                 e->model.params[w->param].name);
    return w->write ? zoff_lending_param_cache_check(&e->lending, w->param, 1, call) : ZOFF_OK;
}

/* ---- the memory of a range ---- */

/* Persistent files hold a copy of fp32 weights that are their own masters. */
static zoff_pass pass_of(const zoff_engine *e, const state_range *w)
{
    const zoff_model_param *p = &e->model.params[w->param];
    const bool keeps_copy = w->write && e->settings.values.persist;
    zoff_pass pass = {.keeps = true, .weights = p->engine_owned && has_weights(e, w)};
    if (is_own_master(e, w))
        pass.states = keeps_copy && !p->frozen;
    else
        pass.states = w->is_weights ? w->write && !p->frozen : true;
    pass.streams = 1u << (w->is_weights ? ZOFF_STREAM_MASTER : (zoff_plan_stream)w->kind);
    pass.changes_states = w->write && pass.states;
    pass.changes_weights = w->write && pass.weights;
    return pass;
}

/* The address of a piece's elements: weights, or a state in its chunk. */
static char *elements_of(const zoff_engine *e, const state_range *w, const zoff_plan_piece *piece, const zoff_plan_chunk *chunk,
                         zoff_chunk_memory memory)
{
    if (w->is_weights || is_own_master(e, w))
        return zoff_model_params_value(&e->model, piece, memory.weights);
    return zoff_transfer_pieces_state(chunk, piece, memory.states, (zoff_plan_stream)w->kind);
}

/* After weights were set, set their masters. */
static void follow(zoff_engine *e, const state_range *w, const zoff_plan_piece *piece, const zoff_plan_chunk *chunk,
                   zoff_chunk_memory memory, char *weights, size_t skip, size_t count)
{
    if (!memory.states || !(w->is_weights || is_own_master(e, w)))
        return;
    char *stored = zoff_transfer_pieces_state(chunk, piece, memory.states, ZOFF_STREAM_MASTER);
    zoff_cast_piece cast;
    if (!zoff_model_masters_cast(&e->model, &e->model.params[w->param], weights, stored + skip * form_of(e, w)->bytes, true,
                                 &cast))
        return;
    cast.count = count;
    zoff_adam_cast_run(e->settings.threads, &cast, 1);
}

static size_t element_bytes_of(const zoff_engine *e, const state_range *w)
{
    return w->is_weights ? zoff_adam_dtype_bytes(e->model.params[w->param].dtype) : sizeof(float);
}

/* The part of a range that lies in one bucket: elements of one run. Each chunk is borrowed once, and each rank's part of the
 * stretch is contiguous. */
typedef struct stretch {
    const zoff_plan_piece *run;
    size_t at, count; /* elements of the range */
} stretch;

/* Index of an element of the range within its slice. */
static size_t in_slice(const zoff_engine *e, const state_range *w, size_t at)
{
    return at % e->model.params[w->param].count;
}

static stretch stretch_from(const zoff_engine *e, const state_range *w, size_t at)
{
    const size_t first = in_slice(e, w, at), slice = at / e->model.params[w->param].count;
    const zoff_plan_piece *run = &e->plan.runs[zoff_zero_plan_find_run(&e->plan, w->param, slice, first)];
    const size_t count = zoff_base_bits_min(run->count - (first - run->first), w->first + w->count - at);
    return (stretch){.run = run, .at = at, .count = count};
}

/* This rank's part of a stretch.  @return its first piece; NULL: none */
static const zoff_plan_piece *first_own(const zoff_engine *e, const state_range *w, stretch s)
{
    size_t from = in_slice(e, w, s.at), first = from;
    if (zoff_transfer_ranks_have_parts(&e->transfer)) {
        const size_t count = zoff_zero_plan_share(&e->plan, s.run, e->plan.rank, &first);
        if (!count || first + count <= from || first >= from + s.count)
            return NULL;
    }
    return &e->plan.pieces[zoff_zero_plan_find(&e->plan, w->param, s.run->slice, zoff_base_bits_max(first, from))];
}

/* Whether the range is in the program's memory, whole on every rank. For split masters that are written, this holds for the
 * upper halves. */
static bool is_program(const zoff_engine *e, const state_range *w)
{
    return !e->model.params[w->param].engine_owned && (is_own_master(e, w) || (w->write && is_split_master(e, w)));
}

/* Set this rank's copy of a persistent slice from masters, whose upper halves are the weights. */
static zoff_status follow_split(zoff_engine *e, const state_range *w, stretch s)
{
    enum { MOST = 1024 };
    uint16_t high[MOST];
    const size_t skip = in_slice(e, w, s.at) - s.run->first;
    for (size_t done = 0, count; done < s.count; done += count) {
        count = zoff_base_bits_min(s.count - done, (size_t)MOST);
        const zoff_cast_piece cast = {.count = count,
                                      .dst = high,
                                      .src = w->src + (s.at - w->first + done) * sizeof(float),
                                      .dst_dtype = ZOFF_BF16,
                                      .src_dtype = ZOFF_F32};
        zoff_adam_cast_run(1, &cast, 1);
        ZOFF_TRY(zoff_lending_param_cache_set(&e->lending, s.run, (skip + done) * sizeof *high, (const char *)high,
                                              count * sizeof *high));
    }
    return ZOFF_OK;
}

/* Every rank has a copy of persistent slices: update this rank's. */
static zoff_status follow_persistent(zoff_engine *e, const state_range *w, stretch s)
{
    const size_t skip = in_slice(e, w, s.at) - s.run->first, bytes = element_bytes_of(e, w);
    if (is_split_master(e, w))
        return e->model.params[w->param].engine_owned ? follow_split(e, w, s) : ZOFF_OK;
    return w->is_weights || is_own_master(e, w)
               ? zoff_lending_param_cache_set(&e->lending, s.run, skip * bytes, w->src + (s.at - w->first) * bytes,
                                              s.count * bytes)
               : ZOFF_OK;
}

/* Elements of a piece: how many, where in the piece, and where in the caller's array. */
typedef struct elements_at {
    size_t count, skip, given;
} elements_at;

static void copy_elements(const zoff_engine *e, char *dst, zoff_dtype dst_dtype, const char *src, zoff_dtype src_dtype,
                          size_t count)
{
    const zoff_cast_piece cast = {.count = count, .dst = dst, .src = src, .dst_dtype = dst_dtype, .src_dtype = src_dtype};
    if (dst_dtype == src_dtype)
        memcpy(dst, src, count * zoff_adam_dtype_bytes(src_dtype));
    else
        zoff_adam_cast_run(e->settings.threads, &cast, 1);
}

/* Write or read split masters as fp32 numbers. `own`: this rank has the lower halves. */
static void copy_split(zoff_engine *e, const state_range *w, const zoff_plan_piece *piece, zoff_chunk_memory memory, bool own,
                       elements_at at)
{
    const zoff_plan_chunk *chunk = &e->plan.chunks[piece->bucket];
    uint16_t *high = (uint16_t *)(void *)zoff_model_params_value(&e->model, piece, memory.weights) + at.skip;
    uint16_t *low =
        own ? (uint16_t *)zoff_transfer_pieces_state(chunk, piece, memory.states, ZOFF_STREAM_MASTER) + at.skip : NULL;
    zoff_cast_piece cast = {.count = at.count, .low = low};
    if (w->write) {
        cast.src = w->src + at.given * sizeof(float);
        cast.src_dtype = ZOFF_F32;
        cast.dst = high;
        cast.dst_dtype = ZOFF_BF16;
    } else {
        cast.src = high;
        cast.src_dtype = ZOFF_BF16;
        cast.dst = w->dst + at.given * sizeof(float);
        cast.dst_dtype = ZOFF_F32;
    }
    zoff_adam_cast_run(e->settings.threads, &cast, 1);
}

static bool is_moment(const state_range *w)
{
    return !w->is_weights && w->kind != ZOFF_STATE_MASTER;
}

/* A range of states is fp32, however these are stored. */
static void copy_moments(const zoff_engine *e, const state_range *w, const zoff_plan_piece *piece, zoff_chunk_memory memory,
                         elements_at at)
{
    const zoff_moments moments = zoff_model_moments_of(&e->model, &e->model.params[w->param]);
    const zoff_moment which = zoff_model_moments_which((unsigned)w->kind);
    void *state = zoff_transfer_pieces_state(&e->plan.chunks[piece->bucket], piece, memory.states, (zoff_plan_stream)w->kind);
    if (w->write)
        zoff_adam_moments_store(moments, which, state, piece->count, at.skip, at.count,
                                (const float *)(const void *)w->src + at.given);
    else
        zoff_adam_moments_load(moments, which, state, at.skip, at.count, (float *)(void *)w->dst + at.given);
}

/* Copy the elements that a stretch and a piece, or its whole run, have in common. */
static void copy_piece(zoff_engine *e, const state_range *w, stretch s, const zoff_plan_piece *piece, zoff_chunk_memory memory)
{
    const zoff_plan_chunk *chunk = &e->plan.chunks[piece->bucket];
    const size_t from = in_slice(e, w, s.at), first = zoff_base_bits_max(from, piece->first);
    const size_t count = zoff_base_bits_min(piece->first + piece->count, from + s.count) - first;
    const bool is_own = piece != s.run || e->plan.ranks == 1;
    const elements_at where = {.count = count, .skip = first - piece->first, .given = s.at + (first - from) - w->first};
    if (is_split_master(e, w)) {
        copy_split(e, w, piece, memory, is_own, where);
        return;
    }
    if (is_moment(w)) {
        copy_moments(e, w, piece, memory, where);
        return;
    }
    const zoff_dtype stored = w->is_weights || is_own_master(e, w) ? e->model.params[w->param].dtype : ZOFF_F32;
    const zoff_dtype given = w->is_weights ? stored : ZOFF_F32; /* a range of states is fp32, however these are stored */
    const size_t at = (s.at + (first - from) - w->first) * zoff_adam_dtype_bytes(given);
    char *elements = elements_of(e, w, piece, chunk, memory) + (first - piece->first) * zoff_adam_dtype_bytes(stored);
    if (!w->write) {
        copy_elements(e, w->dst + at, given, elements, stored, count);
        return;
    }
    copy_elements(e, elements, stored, w->src + at, given, count);
    if (is_own)
        follow(e, w, piece, chunk, memory, elements, first - piece->first, count);
}

/* ---- moving a range ---- */

/* Whether every rank has a part of the range, so that all ranks must take part in reading it. */
static bool is_gathered(const zoff_engine *e, const state_range *w)
{
    return !w->write && zoff_transfer_ranks_have_parts(&e->transfer) &&
           (e->model.params[w->param].engine_owned || !is_own_master(e, w));
}

/* Describe the elements of the range from `at` on, for other ranks to compare. */
static zoff_comm_item item_from(const state_range *w, size_t at)
{
    return (zoff_comm_item){.about = w->is_weights ? ZOFF_COMM_ABOUT_ELEMENTS : ZOFF_COMM_ABOUT_MASTER + (uint32_t)w->kind,
                            .param = w->param,
                            .index = at,
                            .extra = w->first + w->count - at};
}

/* Gather the parts of other ranks. */
static zoff_status gather(zoff_engine *e, const state_range *w, stretch s)
{
    const size_t bytes = element_bytes_of(e, w);
    _Static_assert(sizeof(size_t) <= sizeof(uint64_t), "a size of each rank fits into the memory of votes");
    /* memory of the agreement, so that nobody waits for a rank without memory */
    size_t *each = (void *)e->agreement.ranks.words, before = 0;
    const zoff_comm_item item = item_from(w, s.at);
    char *out = w->dst + (s.at - w->first) * bytes;
    memset(each, 0, e->plan.ranks * sizeof *each);
    const size_t from = in_slice(e, w, s.at), end = from + s.count;
    const unsigned last = zoff_zero_plan_rank_of(&e->plan, s.run, end - 1);
    for (unsigned rank = zoff_zero_plan_rank_of(&e->plan, s.run, from); rank <= last; rank++) {
        size_t first;
        const size_t count = zoff_zero_plan_share(&e->plan, s.run, rank, &first);
        if (!count)
            continue;
        each[rank] = (zoff_base_bits_min(first + count, end) - zoff_base_bits_max(first, from)) * bytes;
        before += rank < e->plan.rank ? each[rank] : 0;
    }
    zoff_comm_work work = {.active = false};
    const zoff_comm_call call = {
        .kind = ZOFF_COMM_GATHER, .channel = &e->channel, .item = item, .in = out + before, .out = out, .receive_bytes = each};
    ZOFF_TRY(zoff_comm_start(e->comm, &call, &work));
    return zoff_comm_wait(e->comm, &work);
}

static void copy_stretch(zoff_engine *e, const state_range *w, stretch s, const zoff_plan_piece *own, zoff_chunk_memory memory)
{
    const zoff_plan_piece *end = e->plan.pieces + e->plan.piece_count;
    const size_t stop = in_slice(e, w, s.at) + s.count;
    if (is_program(e, w) && e->plan.ranks > 1)
        copy_piece(e, w, s, s.run, memory); /* pieces of other ranks are copied, too */
    for (; own && own < end && own->param == w->param && own->slice == s.run->slice && own->first < stop; own++)
        copy_piece(e, w, s, own, memory);
}

static zoff_status move_stretch(zoff_engine *e, const state_range *w, const zoff_pass *pass, stretch s)
{
    const zoff_plan_piece *own = first_own(e, w, s);
    const bool borrows = (pass->states || pass->weights) && own;
    const size_t bucket = s.run->bucket;
    zoff_lent_chunk lent = {.demand = {.chunk = bucket}};
    if (borrows)
        ZOFF_TRY(zoff_engine_states_place_borrow(e, pass, bucket, &lent));
    const zoff_status following = w->write ? follow_persistent(e, w, s) : ZOFF_OK;
    copy_stretch(e, w, s, own, lent.memory);
    if (borrows && pass->changes_weights)
        zoff_lending_param_cache_refresh(&e->lending, bucket, lent.memory.weights, true);
    if (borrows)
        ZOFF_TRY(zoff_engine_states_place_give_back(e, pass, &lent));
    return following; /* the stored weights are set, because the call may be repeated */
}

/* Parts of other ranks come in messages. A rank that cannot read its own part still sends it, with any content, because the
 * others wait for it; at the end all have its error, so all may repeat the call. */
static zoff_status move_stretches(zoff_engine *e, const state_range *w, const zoff_pass *pass, zoff_status own)
{
    const bool gathers = is_gathered(e, w); /* w->dst may be NULL otherwise */
    zoff_saved_error words;
    if (own < 0)
        zoff_base_status_save(&words);
    for (size_t at = w->first; at < w->first + w->count && (gathers || own == ZOFF_OK);) {
        const stretch s = stretch_from(e, w, at);
        if (own == ZOFF_OK && (own = move_stretch(e, w, pass, s)) < 0)
            zoff_base_status_save(&words);
        if (gathers)
            ZOFF_TRY(gather(e, w, s));
        at = s.at + s.count;
    }
    if (own < 0)
        zoff_base_status_restore(&words);
    return gathers ? zoff_agreement_vote_success(&e->agreement.ranks, own) : own;
}

static zoff_status move(zoff_engine *e, const state_range *w)
{
    const zoff_pass pass = pass_of(e, w);
    zoff_status status = ZOFF_OK;
    if (w->write && e->io.guard)
        e->io.guard->before_all(e->io.guard->ctx);
    if (pass.states || pass.weights) {
        e->ranges.last = true;
        e->ranges.unsaved = e->ranges.unsaved || w->write;
        status = zoff_engine_states_begin_pass(e, &pass);
    }
    const bool was_left = w->write && zoff_traps_weights_compare(e->life.traps, "") == ZOFF_OK;
    status = move_stretches(e, w, &pass, status);
    if (was_left) /* the step reports other weights that were changed */
        zoff_traps_weights_note(e->life.traps);
    return status;
}

/* ---- after ranges ---- */

void zoff_engine_state_range_end(zoff_engine *e)
{
    zoff_saved_error saved;
    if (zoff_engine_progress_thread_is_child(e) || !e->ranges.unsaved || !e->settings.values.persist ||
        (e->life.phase != ZOFF_PHASE_IDLE && e->life.phase != ZOFF_PHASE_UNSENT))
        return;
    zoff_base_status_save(&saved);
    if (zoff_engine_stores_commit_ranges(e) < 0)
        ZOFF_WARN(
            "zoff_engine_destroy: data that zoff_state_write(), zoff_param_write() and zoff_param_pull() wrote since the last "
            "commit is lost (%s); the files hold the "
            "states of that commit. Call zoff_state_flush() first: it returns the error",
            zoff_last_error());
    zoff_base_status_restore(&saved);
}

/* Move a range that all ranks have a part of, or whose change all ranks commit. */
static zoff_status move_alike(zoff_engine *e, const state_range *w, unsigned call)
{
    const bool commits = w->write && zoff_engine_stores_commit_together(e);
    if (!is_gathered(e, w) && !commits)
        return move(e, w);
    zoff_agreement_identity_enter(&e->agreement, call, item_from(w, w->first));
    return zoff_agreement_identity_exit(&e->agreement, move(e, w));
}

/* ---- public calls ---- */

zoff_status zoff_state_read(zoff_engine *e, zoff_param p, zoff_state_kind kind, size_t first, size_t count, float *dst)
{
    ZOFF_ENTER(e);
    const state_range w = {.param = e ? zoff_model_params_owner(&e->model, p) : p,
                           .kind = kind,
                           .first = first,
                           .count = count,
                           .dst = (char *)dst};
    ZOFF_TRY(check_state(e, &w, "zoff_state_read"));
    return move_alike(e, &w, ZOFF_COMM_IN_STATE_READ);
}

zoff_status zoff_state_write(zoff_engine *e, zoff_param p, zoff_state_kind kind, size_t first, size_t count, const float *src)
{
    ZOFF_ENTER(e);
    const state_range w = {.param = e ? zoff_model_params_owner(&e->model, p) : p,
                           .kind = kind,
                           .first = first,
                           .count = count,
                           .write = true,
                           .src = (const char *)src};
    ZOFF_TRY(check_state(e, &w, "zoff_state_write"));
    if (is_moment(&w))
        ZOFF_TRY(zoff_model_moments_check(&e->model, &e->model.params[w.param], zoff_model_moments_which((unsigned)kind), first,
                                          count, src));
    if (has_weights(e, &w))
        ZOFF_TRY(zoff_lending_param_cache_check(&e->lending, p, 1, "zoff_state_write"));
    return move_alike(e, &w, ZOFF_COMM_IN_STATE_WRITE);
}

zoff_status zoff_param_read(zoff_engine *e, zoff_param p, size_t first, size_t count, void *dst)
{
    ZOFF_ENTER(e);
    const state_range w = {.param = p, .is_weights = true, .first = first, .count = count, .dst = dst};
    ZOFF_TRY(check_weights(e, &w, "zoff_param_read"));
    return move_alike(e, &w, ZOFF_COMM_IN_PARAM_READ);
}

zoff_status zoff_param_write(zoff_engine *e, zoff_param p, size_t first, size_t count, const void *src)
{
    ZOFF_ENTER(e);
    const state_range w = {.param = p, .is_weights = true, .first = first, .count = count, .write = true, .src = src};
    ZOFF_TRY(check_weights(e, &w, "zoff_param_write"));
    return move_alike(e, &w, ZOFF_COMM_IN_PARAM_WRITE);
}

zoff_status zoff_state_flush(zoff_engine *e)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_step_enter(e, ZOFF_CALL_STATE_FLUSH));
    const bool has_data = e->model.program.count; /* the program's bytes belong to the states of a whole update */
    ZOFF_TRY(has_data ? zoff_engine_phase_check_whole(e, "zoff_state_flush") : ZOFF_OK);
    return has_data ? zoff_engine_stores_record_ranges(e, ZOFF_COMM_IN_STATE_FLUSH) : zoff_engine_stores_commit_ranges(e);
}
