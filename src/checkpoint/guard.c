/* guard.c: what a step waits for while a save is under way, and what else the engine tells a save. Before a step changes
 * states, it copies their units, or waits until they are written. An error of the save stops no step. */
#include "checkpoint_priv.h"

#include "bits.h"
#include "clock.h"
#include "log.h"

#include <time.h>

/* Copy a unit that is PENDING, if a buffer is free. FILE: the borrowed chunk has what the file has, if `memory` has states. The
 * lock is not held meanwhile. */
static bool copy_unit(zoff_saver *s, zoff_save_unit *unit, zoff_chunk_memory memory)
{
    const zoff_save_source *source = zoff_checkpoint_units_source(s, unit);
    if (source->place == ZOFF_SAVE_FILE && !memory.states)
        return false;
    unit->buffer = zoff_checkpoint_units_take_buffer(&s->buffers);
    if (!unit->buffer)
        return false;
    unit->state = ZOFF_UNIT_BUSY;
    s->work.copying++;
    pthread_mutex_unlock(&s->work.lock);
    if (source->place == ZOFF_SAVE_PIECES)
        memory.weights = memory.weights ? memory.weights : (char *)(uintptr_t)source->memory;
    zoff_checkpoint_source_copy(s, source, memory, unit->number * zoff_checkpoint_units_region(s, unit)->unit,
                                zoff_checkpoint_units_bytes(s, unit), unit->buffer);
    pthread_mutex_lock(&s->work.lock);
    s->work.copying--;
    zoff_checkpoint_units_add_copy(&s->work, unit);
    pthread_cond_broadcast(&s->work.moved);
    return true;
}

/* Under the lock. Whether the content of a unit may change now. Called once for each update of a unit that is in a file. */
static bool make_safe(zoff_saver *s, zoff_save_unit *unit, zoff_chunk_memory memory)
{
    if (zoff_checkpoint_units_idle(s) || unit->state == ZOFF_UNIT_SAFE || unit->state == ZOFF_UNIT_COPIED)
        return true;
    if (unit->state == ZOFF_UNIT_PENDING && !unit->passed && copy_unit(s, unit, memory))
        return true;
    /* The next flush leaves the old content in its place: only the update after it has to wait. */
    const zoff_save_source *source = zoff_checkpoint_units_source(s, unit);
    if (source->place == ZOFF_SAVE_FILE && source->file.stays && !unit->passed) {
        unit->passed = true;
        return true;
    }
    return false;
}

/* Wait under the lock for a moment. The caller's files and other ranks move meanwhile; the engine keeps their errors. */
static void wait_awhile(zoff_saver *s)
{
    enum { NAP_NS = 1000000, SECOND_NS = 1000000000 };
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += NAP_NS;
    until.tv_sec += until.tv_nsec / SECOND_NS;
    until.tv_nsec %= SECOND_NS;
    pthread_cond_timedwait(&s->work.moved, &s->work.lock, &until);
    pthread_mutex_unlock(&s->work.lock);
    zoff_base_progress_pump(s->view.progress);
    pthread_mutex_lock(&s->work.lock);
}

static void keep_units(zoff_saver *s, const zoff_save_source *source, zoff_chunk_memory memory, uint64_t from, uint64_t to)
{
    const uint64_t unit = s->part.table.regions[source->region].unit;
    double began = 0;
    pthread_mutex_lock(&s->work.lock);
    for (uint64_t i = from / unit; i < zoff_base_bits_ceil_div(to, unit); i++) {
        while (!make_safe(s, &s->units[source->first_unit + i], memory)) {
            began = began > 0 ? began : zoff_base_clock_seconds();
            wait_awhile(s);
        }
    }
    pthread_mutex_unlock(&s->work.lock);
    if (began > 0)
        *s->view.save_wait_seconds += zoff_base_clock_seconds() - began;
}

/* A chunk in a file is written back as a whole, also arrays that the update leaves as they are. */
static void before_chunk(void *ctx, zoff_chunk_memory memory, size_t chunk)
{
    zoff_saver *s = ctx;
    const uint32_t *sources = &s->by_chunk[chunk * (ZOFF_STORE_ARRAYS + 1)];
    for (unsigned array = 0; !zoff_checkpoint_saver_is_inherited(s) && array < ZOFF_STORE_ARRAYS; array++) {
        const zoff_save_source *source = sources[array] ? &s->sources[sources[array] - 1] : NULL;
        if (source && source->place == ZOFF_SAVE_FILE)
            keep_units(s, source, memory, 0, s->part.table.regions[source->region].bytes);
    }
}

/* Bytes [from, to) of the chunk are about to change in one array. */
static void keep_array(zoff_saver *s, const zoff_save_source *source, zoff_chunk_memory memory, uint64_t from, uint64_t to)
{
    const uint64_t begin = source->begin, end = begin + s->part.table.regions[source->region].bytes;
    from = zoff_base_bits_max(from, begin);
    to = zoff_base_bits_min(to, end);
    if (from < to)
        keep_units(s, source, memory, from - begin, to - begin);
}

static void before(void *ctx, zoff_chunk_memory memory, const zoff_plan_piece *piece, size_t first, size_t count)
{
    zoff_saver *s = ctx;
    const size_t chunk = piece->bucket;
    const zoff_plan_chunk *c = &s->view.plan->chunks[chunk];
    const uint32_t *sources = &s->by_chunk[chunk * (ZOFF_STORE_ARRAYS + 1)];
    const size_t number = (size_t)(piece - s->view.plan->pieces);
    if (zoff_checkpoint_saver_is_inherited(s))
        return;
    const zoff_model_param *p = &s->view.model->params[piece->param];
    const zoff_plan_tensor tensor = zoff_model_params_tensor(s->view.model, p);
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
        const uint64_t begin = c->starts[array] + piece->offsets[array];
        if (sources[array] && s->sources[sources[array] - 1].place != ZOFF_SAVE_FILE)
            keep_array(s, &s->sources[sources[array] - 1], memory, begin + zoff_zero_plan_bytes(&tensor, array, first),
                       begin + zoff_zero_plan_bytes(&tensor, array, first + count));
    }
    if (sources[ZOFF_STORE_ARRAYS] && s->weights_bytes[number]) {
        const size_t bytes = zoff_adam_dtype_bytes(p->dtype);
        const uint64_t from = s->weights_at[number] + first * bytes;
        keep_units(s, &s->sources[sources[ZOFF_STORE_ARRAYS] - 1], memory, from, from + count * bytes);
    }
}

/* Nothing is copied: the caller waits until the disk has all. */
static void before_all(void *ctx)
{
    zoff_saver *s = ctx;
    if (zoff_checkpoint_saver_is_inherited(s))
        return;
    pthread_mutex_lock(&s->work.lock);
    for (size_t i = 0; i < s->unit_count; i++) {
        while (!zoff_checkpoint_units_idle(s) && s->units[i].state != ZOFF_UNIT_SAFE && s->units[i].state != ZOFF_UNIT_COPIED)
            wait_awhile(s);
    }
    pthread_mutex_unlock(&s->work.lock);
}

static void changed(void *ctx)
{
    zoff_saver *s = ctx;
    if (zoff_checkpoint_saver_is_inherited(s))
        return;
    pthread_mutex_lock(&s->work.lock);
    zoff_checkpoint_saver_fail(
        s, zoff_base_status_fail(ZOFF_ERR_STATE,
                                 "the program has changed weights while '%s' was being saved, so it may have the states of no "
                                 "step; end the save with zoff_checkpoint_wait() first, then change weights",
                                 s->part.path));
    pthread_mutex_unlock(&s->work.lock);
}

static void gone(void *ctx)
{
    zoff_saver *s = ctx;
    if (!zoff_checkpoint_saver_is_inherited(s) && !zoff_checkpoint_saver_is_over(s))
        ZOFF_WARN("the engine is destroyed before its checkpoint '%s' is complete: the checkpoint is given up", s->part.path);
    zoff_checkpoint_saver_stop(s);
    s->is_gone = true;
    s->is_attached = false;
}

void zoff_checkpoint_guard_attach(zoff_saver *s)
{
    s->guard = (zoff_guard){
        .before_chunk = before_chunk, .before = before, .before_all = before_all, .changed = changed, .gone = gone, .ctx = s};
    s->is_attached = true;
    *s->view.guard = &s->guard;
}

void zoff_checkpoint_guard_detach(zoff_saver *s)
{
    if (s->is_attached)
        *s->view.guard = NULL;
    s->is_attached = false;
}
