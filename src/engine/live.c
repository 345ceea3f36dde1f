/* live.c: weights that the engine keeps, made whole for the caller slice by slice.
 *
 * Where a slice lies in one piece in the DRAM of its store it is lent there. Any other is copied together into an arena,
 *
 *      | pinned slices | the others, first fit ............ |
 *                      ^ no more than stage3_max_live_parameters elements
 *
 * and stays there after it is given back, until its room is needed: the one that was asked for longest ago goes first. Pinned
 * slices, the small ones, are there from seal on and are brought up to date by each step; all others are gone when a step
 * changes the weights. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

#include <string.h>

enum { ALIGN = 64, NONE = UINT32_MAX };

static zoff_live_slice *slice_of(zoff_engine *e, zoff_param p, size_t slice)
{
    return &e->live.slices[e->params[p].first_flag + slice];
}

/* ---- what there is ---- */

static bool is_streamed(const zoff_engine *e)
{
    return e->settings.values.weights.tier == ZOFF_TIER_NVME;
}

static bool is_pinned(const zoff_engine *e, const zoff_live_slice *s, size_t pinned_elements)
{
    const zoff_weight_values *values = &e->settings.values.weights;
    return s->direct || (s->count <= values->pinned_slice && pinned_elements + s->count <= values->pinned_count);
}

/* One slice as the plan cuts it. */
static zoff_live_slice describe(const zoff_engine *e, const zoff_plan *plan, size_t param, size_t slice)
{
    const zoff_engine_param *p = &e->params[param];
    zoff_live_slice s = {.first_run = SIZE_MAX, .first_piece = SIZE_MAX, .below = NONE, .above = NONE};
    if (!p->engine_owned || !p->count)
        return s;
    s.first_run = zoff_zero_plan_find_run(plan, (uint32_t)param, slice, 0);
    if (plan->ranks == 1 || plan->replicated)
        s.first_piece = zoff_zero_plan_find(plan, (uint32_t)param, slice, 0);
    s.count = p->count;
    s.bytes = zoff_base_bits_align(p->count * zoff_adam_dtype_bytes(p->dtype), ALIGN);
    s.direct = !is_streamed(e) && (plan->ranks == 1 || plan->replicated) && plan->pieces[s.first_piece].count == p->count;
    return s;
}

/* Elements that may be whole at a time: stage3_max_live_parameters; of 0 one slice of each parameter, which is what a pass
 * holds that goes layer by layer. */
static uint64_t live_most(const zoff_engine *e)
{
    uint64_t most = e->settings.values.weights.live_count;
    if (most)
        return most;
    for (size_t i = 0; i < e->param_count; i++)
        most += e->params[i].engine_owned ? e->params[i].count : 0;
    return most;
}

/* Sums over all slices; those of `out` where it is given. */
typedef struct room {
    size_t pinned_elements, pinned_bytes;
    uint64_t other_bytes, other_count; /* slices */
    size_t element_bytes;              /* the largest */
} room;

static room measure(const zoff_engine *e, const zoff_plan *plan, zoff_live_slice *out)
{
    room r = {.element_bytes = 0};
    for (size_t i = 0; i < e->param_count; i++) {
        for (size_t slice = 0; e->params[i].engine_owned && slice < e->params[i].slices; slice++) {
            zoff_live_slice s = describe(e, plan, i, slice);
            s.pinned = s.count && is_pinned(e, &s, r.pinned_elements);
            r.pinned_elements += s.pinned && !s.direct ? s.count : 0;
            r.pinned_bytes += s.pinned && !s.direct ? s.bytes : 0;
            r.other_bytes += s.pinned ? 0 : s.bytes;
            r.other_count += !s.pinned;
            r.element_bytes = zoff_base_bits_max(r.element_bytes, zoff_adam_dtype_bytes(e->params[i].dtype));
            if (out)
                out[e->params[i].first_flag + slice] = s;
        }
    }
    return r;
}

/* Of the others no more than what may be live at a time, each with its padding. */
static uint64_t arena_bytes(const zoff_engine *e, const room *r)
{
    const uint64_t live = live_most(e);
    const uint64_t padding = ALIGN * zoff_base_bits_min(r->other_count, live);
    uint64_t most;
    if (__builtin_mul_overflow(live, (uint64_t)r->element_bytes, &most) || __builtin_add_overflow(most, padding, &most))
        most = UINT64_MAX;
    return r->pinned_bytes + zoff_base_bits_min(r->other_bytes, most);
}

uint64_t zoff_engine_live_room(const zoff_engine *e, const zoff_plan *plan)
{
    const room r = measure(e, plan, NULL);
    return arena_bytes(e, &r);
}

/* A slice that can never be lent is found before the work of hours begins. */
static zoff_status check_largest(const zoff_engine *e)
{
    const uint64_t most = live_most(e);
    for (size_t i = 0; i < e->param_count; i++) {
        const zoff_engine_param *p = &e->params[i];
        for (size_t slice = 0; p->engine_owned && slice < p->slices; slice++) {
            const zoff_live_slice *s = &e->live.slices[p->first_flag + slice];
            ZOFF_FAIL_IF(!s->pinned && s->count > most, ZOFF_ERR_INVALID,
                         "a slice of %s has %zu elements, and stage3_max_live_parameters is %llu: it could never be fetched; "
                         "raise that key",
                         p->name, s->count, (unsigned long long)most);
        }
    }
    return ZOFF_OK;
}

zoff_status zoff_engine_live_open(zoff_engine *e)
{
    zoff_live *live = &e->live;
    *live = (zoff_live){.lowest = NONE, .latest = NONE};
    if (!zoff_engine_params_any_owned(e))
        return ZOFF_OK;
    ZOFF_FAIL_IF(e->slice_count >= NONE, ZOFF_ERR_INVALID,
                 "%zu slices are more than the %u that an engine may have when it keeps weights", e->slice_count, NONE - 1);
    ZOFF_TRY(zoff_base_mem_alloc(e->slice_count, sizeof *live->slices, "the table of slices", &live->slices));
    const room r = measure(e, &e->plan, live->slices);
    ZOFF_TRY(check_largest(e));
    const uint64_t bytes = arena_bytes(e, &r);
    if (bytes)
        ZOFF_TRY(zoff_base_map_alloc(bytes, "weights that are whole", ZOFF_MAP_INTERLEAVED, &live->arena));
    for (size_t i = 0; i < e->slice_count; i++) {
        zoff_live_slice *s = &live->slices[i];
        if (!s->pinned || s->direct)
            continue;
        s->at = (char *)live->arena.base + live->pinned_bytes;
        live->pinned_bytes += s->bytes;
    }
    return ZOFF_OK;
}

void zoff_engine_live_attach(zoff_engine *e)
{
    for (size_t i = 0; e->weights && i < e->slice_count; i++) {
        zoff_live_slice *s = &e->live.slices[i];
        void *base;
        if (!s->direct)
            continue;
        const size_t chunk = e->plan.pieces[s->first_piece].bucket;
        if (zoff_offload_store_fetch(e->weights, chunk, &base) == ZOFF_OK) /* which in DRAM it always is */
            s->at = (char *)base + e->plan.pieces[s->first_piece].weight_offset;
        zoff_offload_store_release(e->weights, chunk);
    }
}

void zoff_engine_live_close(zoff_engine *e)
{
    zoff_live *live = &e->live;
    zoff_base_map_free(&live->arena);
    zoff_base_mem_free(live->slices);
    zoff_base_mem_free(live->before.slices);
    zoff_base_mem_free(live->now.slices);
    *live = (zoff_live){.lowest = NONE, .latest = NONE};
}

/* ---- the arena ---- */

/* Between two neighbours, or before the first, or behind the last; from above `below` on. */
static bool place_above(zoff_live *live, uint32_t number, uint32_t below)
{
    zoff_live_slice *s = &live->slices[number];
    const zoff_live_slice *from = below == NONE ? NULL : &live->slices[below];
    char *at = from ? from->at + from->bytes : (char *)live->arena.base + live->pinned_bytes;
    const char *end = (char *)live->arena.base + live->arena.bytes;
    uint32_t above = from ? from->above : live->lowest;
    while (above != NONE && (size_t)(live->slices[above].at - at) < s->bytes) {
        at = live->slices[above].at + live->slices[above].bytes;
        below = above;
        above = live->slices[above].above;
    }
    if (above == NONE && (size_t)(end - at) < s->bytes)
        return false;
    s->at = at;
    s->below = below;
    s->above = above;
    *(below == NONE ? &live->lowest : &live->slices[below].above) = number;
    if (above != NONE)
        live->slices[above].below = number;
    live->elements += s->count;
    live->latest = number;
    return true;
}

/* A pass fills the arena from one end to the other: room is most often behind what was placed last. */
static bool place(zoff_live *live, uint32_t number)
{
    return (live->latest != NONE && place_above(live, number, live->latest)) || place_above(live, number, NONE);
}

static void remove_slice(zoff_live *live, zoff_live_slice *s)
{
    *(s->below == NONE ? &live->lowest : &live->slices[s->below].above) = s->above;
    if (s->above != NONE)
        live->slices[s->above].below = s->below;
    if (live->latest == (uint32_t)(s - live->slices))
        live->latest = s->below;
    s->at = NULL;
    live->elements -= s->count;
    s->ahead = false;
}

/* The one that nobody has and that was asked for longest ago; or also one that was brought in advance. */
static zoff_live_slice *oldest_idle(zoff_live *live, bool also_ahead)
{
    zoff_live_slice *oldest = NULL;
    for (uint32_t i = live->lowest; i != NONE; i = live->slices[i].above) {
        zoff_live_slice *s = &live->slices[i];
        if (!s->lent && (also_ahead || !s->ahead) && (!oldest || s->used < oldest->used))
            oldest = s;
    }
    return oldest;
}

/* Of several ranks all give up the same slices: what is still on its way is waited for. */
static zoff_status give_up(zoff_engine *e, zoff_live_slice *idle)
{
    if (idle->missing)
        ZOFF_TRY(zoff_engine_assemble_wait(e, (uint32_t)(idle - e->live.slices)));
    remove_slice(&e->live, idle);
    return ZOFF_OK;
}

zoff_status zoff_engine_live_place_ahead(zoff_engine *e, uint32_t number)
{
    zoff_live *live = &e->live;
    zoff_live_slice *s = &live->slices[number];
    const uint64_t most = live_most(e);
    while (live->elements + s->count > most || !place(live, number)) {
        zoff_live_slice *idle = oldest_idle(live, false);
        if (!idle)
            return ZOFF_PENDING;
        ZOFF_TRY(give_up(e, idle));
    }
    s->ahead = true;
    s->used = ++live->clock;
    return ZOFF_OK;
}

static zoff_status find_room(zoff_engine *e, uint32_t number, const char *name)
{
    zoff_live *live = &e->live;
    const uint64_t most = live_most(e);
    const size_t count = live->slices[number].count;
    while (live->elements + count > most || !place(live, number)) {
        zoff_live_slice *idle = oldest_idle(live, true);
        ZOFF_FAIL_IF(!idle, ZOFF_ERR_NO_MEMORY,
                     "%zu elements of %s do not fit%s beside the %zu that are lent: release what is not in use, or raise "
                     "stage3_max_live_parameters, which is %llu",
                     count, name, live->elements + count > most ? "" : " in one piece", live->elements,
                     (unsigned long long)most);
        ZOFF_TRY(give_up(e, idle));
    }
    return ZOFF_OK;
}

/* ---- chunks ---- */

/* Chunks that stay borrowed, so that many small slices of one are one read; the other half of the slots reads ahead. */
static unsigned held_most(const zoff_engine *e)
{
    return (unsigned)zoff_base_bits_min(zoff_base_bits_max(e->settings.values.weights.slots / 2, 1), ZOFF_HELD_MAX);
}

typedef struct chunk_wait {
    zoff_engine *engine;
    size_t chunk, piece, count;
    void *base;
} chunk_wait;

static zoff_status fetch_chunk(void *ctx)
{
    chunk_wait *w = ctx;
    zoff_engine *e = w->engine;
    const zoff_status status = zoff_offload_store_fetch(e->weights, w->chunk, &w->base);
    if (status != ZOFF_PENDING)
        return status;
    zoff_engine_order_read(e, w->piece, w->count); /* what comes after it, while it is on its way */
    if (zoff_offload_store_busy(e->weights, false))
        return ZOFF_PENDING;
    /* Slots are full of what was read ahead and is not what is asked for, or of what could not be written. */
    zoff_offload_store_forget(e->weights);
    ZOFF_TRY(zoff_offload_store_retry(e->weights));
    zoff_base_progress_moved(&e->progress);
    return ZOFF_PENDING;
}

static zoff_status borrow_chunk(zoff_engine *e, size_t chunk, size_t piece, size_t count, char **out)
{
    chunk_wait w = {.engine = e, .chunk = chunk, .piece = piece, .count = count};
    zoff_base_progress_forget(&e->pollers.weights); /* an error of a prefetch: the fetch reads again */
    ZOFF_TRY(zoff_base_progress_wait(&e->progress, &e->pollers.weights, fetch_chunk, &w));
    ZOFF_TRY(zoff_offload_store_check(e->weights, chunk));
    *out = w.base;
    return ZOFF_OK;
}

static void release_last(zoff_engine *e)
{
    zoff_live *live = &e->live;
    zoff_offload_store_release(e->weights, live->held[--live->held_count].chunk);
}

zoff_status zoff_engine_live_hold(zoff_engine *e, size_t chunk, char **out)
{
    zoff_live *live = &e->live;
    void *base;
    for (unsigned i = 0; i < live->held_count; i++) {
        if (live->held[i].chunk == chunk) {
            *out = live->held[i].base;
            return ZOFF_OK;
        }
    }
    if (live->held_count == held_most(e))
        release_last(e);
    zoff_status status = zoff_offload_store_fetch(e->weights, chunk, &base);
    if (status == ZOFF_PENDING && !zoff_offload_store_busy(e->weights, false)) {
        /* Slots are full of what is not asked for, or could not be written. */
        zoff_offload_store_forget(e->weights);
        ZOFF_TRY(zoff_offload_store_retry(e->weights));
    }
    if (status != ZOFF_OK)
        return status;
    ZOFF_TRY(zoff_offload_store_check(e->weights, chunk));
    memmove(&live->held[1], &live->held[0], live->held_count++ * sizeof live->held[0]);
    live->held[0].chunk = chunk;
    live->held[0].base = base;
    *out = base;
    return ZOFF_OK;
}

/* Bring a chunk to the front of those that are held: the one of a piece, from which on `count` elements are wanted. */
static zoff_status hold(zoff_engine *e, size_t chunk, size_t piece, size_t count, char **out)
{
    zoff_live *live = &e->live;
    unsigned i = 0;
    char *base;
    while (i < live->held_count && live->held[i].chunk != chunk)
        i++;
    if (i == live->held_count) {
        if (live->held_count == held_most(e))
            release_last(e);
        ZOFF_TRY(borrow_chunk(e, chunk, piece, count, &base));
        i = live->held_count++;
    } else {
        base = live->held[i].base;
    }
    memmove(&live->held[1], &live->held[0], i * sizeof live->held[0]);
    live->held[0].chunk = chunk;
    live->held[0].base = base;
    *out = base;
    return ZOFF_OK;
}

static zoff_status copy_together(zoff_engine *e, const zoff_live_slice *s, size_t element_bytes)
{
    size_t piece = s->first_piece, chunk = e->plan.pieces[piece].bucket;
    for (size_t done = 0; done < s->count; piece++) {
        const zoff_plan_piece *p = &e->plan.pieces[piece];
        char *base;
        while (piece >= e->plan.chunks[chunk].first_piece + e->plan.chunks[chunk].piece_count)
            chunk++;
        ZOFF_TRY(hold(e, chunk, piece, s->count - done, &base));
        memcpy(s->at + done * element_bytes, base + p->weight_offset, p->count * element_bytes);
        done += p->count;
    }
    return ZOFF_OK;
}

/* ---- for the rest of the room ---- */

zoff_status zoff_engine_live_check(const zoff_engine *e, zoff_param first, size_t count, const char *call)
{
    for (size_t i = first; e->live.lent && i < first + count; i++) {
        const zoff_engine_param *p = &e->params[i];
        for (size_t slice = 0; p->engine_owned && slice < p->slices; slice++) {
            ZOFF_FAIL_IF(e->live.slices[p->first_flag + slice].lent, ZOFF_ERR_STATE,
                         "%s: slice %zu of %s is still lent (zoff_param_fetch()); call zoff_param_release() first", call, slice,
                         p->name);
        }
    }
    return ZOFF_OK;
}

void zoff_engine_live_let_go(zoff_engine *e)
{
    while (e->live.held_count)
        release_last(e);
    if (e->weights)
        zoff_offload_store_forget(e->weights);
}

void zoff_engine_live_clear(zoff_engine *e)
{
    zoff_live *live = &e->live;
    zoff_engine_live_let_go(e);
    for (uint32_t i = live->lowest, above; i != NONE; i = above) {
        above = live->slices[i].above;
        if (!live->slices[i].lent)
            remove_slice(live, &live->slices[i]);
    }
}

void zoff_engine_live_refresh(zoff_engine *e, size_t chunk, const char *weights, bool all)
{
    const zoff_plan_chunk *c = &e->plan.chunks[chunk];
    for (size_t i = 0; weights && i < c->piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[c->first_piece + i];
        const zoff_engine_param *p = &e->params[piece->param];
        const zoff_live_slice *s = &e->live.slices[p->first_flag + piece->slice];
        const size_t element_bytes = zoff_adam_dtype_bytes(p->dtype);
        if (p->engine_owned && s->pinned && !s->direct && (all || *zoff_engine_params_flag(e, piece)))
            memcpy(s->at + piece->first * element_bytes, weights + piece->weight_offset, piece->count * element_bytes);
    }
}

bool zoff_engine_live_is_pinned(const zoff_engine *e, zoff_param p, size_t slice)
{
    return e->live.slices && e->live.slices[e->params[p].first_flag + slice].pinned;
}

char *zoff_engine_live_pinned(const zoff_engine *e, const zoff_plan_piece *piece)
{
    const zoff_engine_param *p = &e->params[piece->param];
    return e->live.slices[p->first_flag + piece->slice].at + piece->first * zoff_adam_dtype_bytes(p->dtype);
}

/* ---- the caller's calls ---- */

static zoff_status check_call(const zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const char *call)
{
    ZOFF_FAIL_IF(!e, ZOFF_ERR_INVALID, "%s: engine must not be NULL", call);
    ZOFF_FAIL_IF(e->phase != ZOFF_PHASE_IDLE, ZOFF_ERR_STATE, "%s: %s", call, zoff_engine_phase_words(e));
    ZOFF_FAIL_IF(p >= e->param_count || slice >= e->params[p].slices, ZOFF_ERR_INVALID,
                 "%s: there is no slice %zu of parameter %u", call, slice, p);
    ZOFF_FAIL_IF(!e->params[p].engine_owned, ZOFF_ERR_INVALID,
                 "%s: the weights of %s are in the caller's memory (zoff_param_desc.engine_owned is false)", call,
                 e->params[p].name);
    ZOFF_FAIL_IF(native_stream, ZOFF_ERR_INVALID, "%s: accelerator \"%s\" has no streams; pass NULL", call,
                 zoff_accel_name(e->accel));
    return ZOFF_OK;
}

/* Make it whole in the arena; or leave it as it was. */
static zoff_status load(zoff_engine *e, zoff_param p, uint32_t number)
{
    zoff_live_slice *s = &e->live.slices[number];
    const bool is_sharded = zoff_engine_live_is_sharded(e);
    ZOFF_TRY(is_sharded ? zoff_engine_assemble_make_room(e, number) : ZOFF_OK);
    ZOFF_TRY(find_room(e, number, e->params[p].name));
    if (is_sharded) {
        zoff_engine_assemble_plan(e, number); /* cannot fail: what has a place is either planned or whole */
        return ZOFF_OK;
    }
    zoff_status status = copy_together(e, s, zoff_adam_dtype_bytes(e->params[p].dtype));
    if (status < 0) {
        remove_slice(&e->live, s);
        return zoff_base_status_prefix(status, "zoff_param_fetch: %s: ", e->params[p].name);
    }
    return ZOFF_OK;
}

static zoff_status load_and_wait(zoff_engine *e, zoff_param p, size_t slice)
{
    const zoff_live_slice *s = slice_of(e, p, slice);
    const uint32_t number = (uint32_t)(s - e->live.slices);
    ZOFF_TRY(zoff_engine_order_reserve(e)); /* before anything has changed */
    if (!s->at && s->count)
        ZOFF_TRY(load(e, p, number));
    if (s->missing) {
        zoff_status status = zoff_engine_assemble_wait(e, number);
        if (status < 0)
            return zoff_base_status_prefix(status, "zoff_param_fetch: %s: ", e->params[p].name);
    }
    return ZOFF_OK;
}

/* Whether that takes other ranks is the same on all of them; whether it waits for them is not. */
static zoff_status make_whole(zoff_engine *e, zoff_param p, size_t slice)
{
    const zoff_live_slice *s = slice_of(e, p, slice);
    if (!zoff_engine_live_is_sharded(e) || !s->count || s->pinned)
        return load_and_wait(e, p, slice);
    const zoff_comm_item item = {.about = ZOFF_COMM_ABOUT_SLICE, .param = p, .index = slice, .extra = ZOFF_COMM_ALL};
    zoff_engine_identity_enter(e, ZOFF_COMM_IN_FETCH, item);
    return zoff_engine_identity_exit(e, load_and_wait(e, p, slice));
}

zoff_status zoff_param_fetch(zoff_engine *e, zoff_param p, size_t slice, void *native_stream, const void **out)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(check_call(e, p, slice, native_stream, "zoff_param_fetch"));
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_param_fetch: out must not be NULL");
    ZOFF_TRY(zoff_engine_phase_check_weights(e, "zoff_param_fetch"));
    zoff_live_slice *s = slice_of(e, p, slice);
    const uint32_t number = (uint32_t)(s - e->live.slices);
    ZOFF_TRY(make_whole(e, p, slice));
    s->ahead = false;
    s->used = ++e->live.clock;
    s->lent++;
    e->live.lent++;
    *out = s->at;
    if (s->count && !s->pinned)
        zoff_engine_order_note(e, number);
    zoff_engine_order_ahead(e);
    return ZOFF_OK;
}

zoff_status zoff_param_release(zoff_engine *e, zoff_param p, size_t slice, void *native_stream)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(check_call(e, p, slice, native_stream, "zoff_param_release"));
    zoff_live_slice *s = slice_of(e, p, slice);
    ZOFF_FAIL_IF(!s->lent, ZOFF_ERR_STATE, "zoff_param_release: slice %zu of %s is not lent", slice, e->params[p].name);
    s->lent--;
    e->live.lent--;
    zoff_engine_order_ahead(e);
    return ZOFF_OK;
}
