/* saver.c: writes the units of a checkpoint, in the calling thread or in one of its own.
 *
 *      PENDING -- worker --> BUSY -- written, or copied into a buffer --> SAFE
 *         `------ a step copies it --> COPIED -- worker --> SAFE
 *
 * Before a step changes states it makes their units safe: it copies those that are PENDING into a buffer, or waits if no buffer
 * is free. So a checkpoint has the states of one step, whatever further steps do. An error ends the save, and steps go on. */
#include "checkpoint_priv.h"

#include "aio.h"
#include "bits.h"
#include "clock.h"
#include "digest.h"
#include "fork.h"
#include "log.h"
#include "try.h"

#include <signal.h>
#include <time.h>

/* ---- under the lock ---- */

static const zoff_save_source *source_of(const zoff_saver *s, const zoff_save_unit *unit)
{
    return &s->sources[unit->source];
}

static const zoff_archive_region *region_of(const zoff_saver *s, const zoff_save_unit *unit)
{
    return &s->part.table.regions[source_of(s, unit)->region];
}

static size_t bytes_of(const zoff_saver *s, const zoff_save_unit *unit)
{
    return zoff_archive_table_unit_bytes(region_of(s, unit), unit->number);
}

static uint64_t *checksum_of(const zoff_saver *s, const zoff_save_unit *unit)
{
    return &s->part.table.checksums[region_of(s, unit)->first_checksum + unit->number];
}

static char *take_buffer(zoff_save_buffers *b)
{
    return b->free_count ? b->free[--b->free_count] : NULL;
}

static void give_buffer(zoff_save_buffers *b, char *buffer)
{
    if (buffer)
        b->free[b->free_count++] = buffer;
}

/* Keep the first error. Nobody waits for units of a save that has failed. */
static void fail(zoff_saver *s, zoff_status status)
{
    if (s->work.status < 0)
        return;
    s->work.status = status;
    zoff_base_status_save(&s->work.words);
    pthread_cond_broadcast(&s->work.moved);
}

static bool is_idle(const zoff_saver *s)
{
    return s->work.status < 0 || s->work.is_over;
}

/* ---- the worker ---- */

/* The next unit to write; NULL: none is left. Copies go first: they hold buffers that a step may be waiting for. */
static zoff_save_unit *next_unit(zoff_saver *s)
{
    zoff_save_work *w = &s->work;
    for (size_t i = 0; w->copied && i < s->unit_count; i++) {
        if (s->units[i].state == ZOFF_UNIT_COPIED)
            return &s->units[i];
    }
    while (w->next < s->unit_count && s->units[w->next].state != ZOFF_UNIT_PENDING)
        w->next++;
    return w->next < s->unit_count ? &s->units[w->next] : NULL;
}

/* Wait for the oldest write.  Without the lock: the worker alone uses the queue. */
static zoff_status land(zoff_saver *s)
{
    zoff_save_work *w = &s->work;
    const zoff_save_flight flight = w->flights[w->first_flight];
    const zoff_status status = zoff_aio_wait(s->part.aio, flight.ticket);
    w->is_stuck = status == ZOFF_PENDING;
    ZOFF_FAIL_IF(w->is_stuck, ZOFF_ERR_IO,
                 "'%s' is not written in time: the disk neither writes it nor fails (timeout_seconds)", s->part.path);
    w->first_flight = (w->first_flight + 1) % ZOFF_SAVE_FLIGHTS;
    w->flight_count--;
    pthread_mutex_lock(&w->lock);
    give_buffer(&s->buffers, flight.buffer);
    flight.unit->state = ZOFF_UNIT_SAFE;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
    return status;
}

/* Write `bytes` at `from` of the unit, which is in memory now. */
static zoff_status launch(zoff_saver *s, zoff_save_unit *unit, const char *from, char *buffer)
{
    zoff_save_work *w = &s->work;
    const zoff_save_source *source = source_of(s, unit);
    const size_t bytes = bytes_of(s, unit);
    uint64_t ticket;
    *checksum_of(s, unit) = source->place == ZOFF_SAVE_FILE && source->file.has_checksum
                                ? source->file.checksum
                                : zoff_digest_blocks_whole(from, bytes, w->threads);
    ZOFF_TRY(zoff_aio_write(s->part.aio, region_of(s, unit)->offset + unit->number * region_of(s, unit)->unit, bytes, from,
                            &ticket));
    w->flights[(w->first_flight + w->flight_count++) % ZOFF_SAVE_FLIGHTS] =
        (zoff_save_flight){.unit = unit, .ticket = ticket, .buffer = buffer};
    return ZOFF_OK;
}

/* Read a unit into a buffer: from then on its source may change. */
static zoff_status fetch(zoff_saver *s, zoff_save_unit *unit, char *buffer)
{
    const zoff_status status = zoff_checkpoint_source_read(s, source_of(s, unit), unit->number, buffer);
    pthread_mutex_lock(&s->work.lock);
    unit->state = ZOFF_UNIT_SAFE;
    pthread_cond_broadcast(&s->work.moved);
    pthread_mutex_unlock(&s->work.lock);
    return status;
}

/* Take the next unit.  @return in *out NULL: none is left. *out_buffer: its copy, or a buffer for it, or NULL */
static zoff_status take(zoff_saver *s, zoff_save_unit **out, char **out_buffer, bool *out_copied)
{
    zoff_save_work *w = &s->work;
    pthread_mutex_lock(&w->lock);
    zoff_save_unit *unit = w->status < 0 || w->stops ? NULL : next_unit(s);
    *out_copied = unit && unit->state == ZOFF_UNIT_COPIED;
    *out_buffer = *out_copied ? unit->buffer : NULL;
    bool waits = false;
    if (unit && !*out_copied && source_of(s, unit)->place != ZOFF_SAVE_MEMORY) {
        *out_buffer = take_buffer(&s->buffers);
        waits = !*out_buffer;
    }
    if (unit && !waits) {
        w->copied -= *out_copied;
        unit->state = *out_copied ? ZOFF_UNIT_SAFE : ZOFF_UNIT_BUSY;
    }
    *out = unit;
    pthread_mutex_unlock(&w->lock);
    return waits ? ZOFF_PENDING : ZOFF_OK;
}

/* Write one unit.  @return PENDING: there are more */
static zoff_status turn(zoff_saver *s)
{
    zoff_save_unit *unit;
    char *buffer;
    bool copied;
    if (s->work.flight_count == ZOFF_SAVE_FLIGHTS)
        ZOFF_TRY(land(s));
    const zoff_status status = take(s, &unit, &buffer, &copied);
    if (status == ZOFF_PENDING) { /* every buffer is in flight, or a copy that comes first */
        if (s->work.flight_count)
            ZOFF_TRY(land(s));
        return ZOFF_PENDING;
    }
    if (!unit)
        return ZOFF_OK;
    if (buffer && !copied)
        ZOFF_TRY(fetch(s, unit, buffer));
    const zoff_save_source *source = source_of(s, unit);
    const char *from = buffer ? buffer : source->memory + unit->number * region_of(s, unit)->unit;
    ZOFF_TRY(launch(s, unit, from, buffer));
    return ZOFF_PENDING;
}

static zoff_status write_all(zoff_saver *s)
{
    zoff_status status;
    while ((status = turn(s)) == ZOFF_PENDING)
        continue;
    ZOFF_TRY(status);
    while (s->work.flight_count)
        ZOFF_TRY(land(s));
    pthread_mutex_lock(&s->work.lock);
    const bool stops = s->work.stops;
    pthread_mutex_unlock(&s->work.lock);
    ZOFF_FAIL_IF(stops, ZOFF_ERR_STATE, "the save was given up: its engine is destroyed");
    return s->work.status < 0 ? s->work.status : zoff_archive_part_finish(&s->part, &s->work.file);
}

/* After an error, too, no write stays in flight, unless the disk stands still. */
static void finish_writes(zoff_saver *s)
{
    while (s->work.flight_count && !s->work.is_stuck)
        (void)land(s);
}

static zoff_status run(zoff_saver *s)
{
    const zoff_status status = write_all(s);
    pthread_mutex_lock(&s->work.lock);
    if (status < 0)
        fail(s, status);
    pthread_mutex_unlock(&s->work.lock);
    if (status < 0)
        finish_writes(s);
    pthread_mutex_lock(&s->work.lock);
    s->work.is_over = true;
    pthread_cond_broadcast(&s->work.moved);
    pthread_mutex_unlock(&s->work.lock);
    return status;
}

zoff_status zoff_checkpoint_saver_run(zoff_saver *s)
{
    return run(s);
}

/* ---- the guard ---- */

/* Copy a unit that is PENDING, if a buffer is free. FILE: the borrowed chunk has what the file has. */
static bool copy_unit(zoff_saver *s, zoff_save_unit *unit, zoff_chunk_memory memory)
{
    const zoff_save_source *source = source_of(s, unit);
    char *buffer = take_buffer(&s->buffers);
    if (!buffer)
        return false;
    if (source->place == ZOFF_SAVE_PIECES)
        memory.weights = memory.weights ? memory.weights : (char *)(uintptr_t)source->memory;
    zoff_checkpoint_source_copy(s, source, memory, unit->number * region_of(s, unit)->unit, bytes_of(s, unit), buffer);
    unit->buffer = buffer;
    unit->state = ZOFF_UNIT_COPIED;
    s->work.copied++;
    pthread_cond_broadcast(&s->work.moved);
    return true;
}

/* Under the lock. Whether the content of a unit may change now. Called once for each update of a unit that is in a file. */
static bool make_safe(zoff_saver *s, zoff_save_unit *unit, zoff_chunk_memory memory)
{
    if (is_idle(s) || unit->state == ZOFF_UNIT_SAFE || unit->state == ZOFF_UNIT_COPIED)
        return true;
    if (unit->state == ZOFF_UNIT_PENDING && !unit->passed && copy_unit(s, unit, memory))
        return true;
    /* The next flush leaves the old content in its place: only the update after it has to wait. */
    const zoff_save_source *source = source_of(s, unit);
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

/* A child of fork() has neither the thread nor the locks of a save, only a copy of the memory. */
static bool is_inherited(const zoff_saver *s)
{
    return s->process != zoff_base_fork_number();
}

/* A chunk in a file is written back as a whole, also arrays that the update leaves as they are. */
static void before_chunk(void *ctx, zoff_chunk_memory memory, size_t chunk)
{
    zoff_saver *s = ctx;
    const uint32_t *sources = &s->by_chunk[chunk * (ZOFF_STORE_ARRAYS + 1)];
    for (unsigned array = 0; !is_inherited(s) && array < ZOFF_STORE_ARRAYS; array++) {
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
    if (is_inherited(s))
        return;
    for (unsigned array = 0; array < ZOFF_STORE_ARRAYS; array++) {
        const uint64_t from = c->starts[array] + (piece->offsets[array] + first) * sizeof(float);
        if (sources[array] && s->sources[sources[array] - 1].place != ZOFF_SAVE_FILE)
            keep_array(s, &s->sources[sources[array] - 1], memory, from, from + count * sizeof(float));
    }
    if (sources[ZOFF_STORE_ARRAYS] && s->weights_bytes[number]) {
        const uint64_t from = s->weights_at[number] + first * sizeof(float); /* frozen ones are never updated */
        keep_units(s, &s->sources[sources[ZOFF_STORE_ARRAYS] - 1], memory, from, from + count * sizeof(float));
    }
}

/* Nothing is copied: the caller waits until the disk has all. */
static void before_all(void *ctx)
{
    zoff_saver *s = ctx;
    if (is_inherited(s))
        return;
    pthread_mutex_lock(&s->work.lock);
    for (size_t i = 0; i < s->unit_count; i++) {
        while (!is_idle(s) && s->units[i].state != ZOFF_UNIT_SAFE && s->units[i].state != ZOFF_UNIT_COPIED)
            pthread_cond_wait(&s->work.moved, &s->work.lock);
    }
    pthread_mutex_unlock(&s->work.lock);
}

static void stop(zoff_saver *s)
{
    if (!s->work.has_thread || is_inherited(s))
        return;
    pthread_mutex_lock(&s->work.lock);
    s->work.stops = true;
    pthread_mutex_unlock(&s->work.lock);
    pthread_join(s->work.thread, NULL);
    s->work.has_thread = false;
}

/* The newest save comes first. Earlier ones are over, and only want to hear of the engine's end. */
static void attach(zoff_saver *s)
{
    zoff_guard **guard = s->view.guard;
    s->earlier = *guard ? (*guard)->ctx : NULL;
    s->is_attached = true;
    *guard = &s->guard;
}

void zoff_checkpoint_saver_detach(zoff_saver *s)
{
    zoff_guard **guard = s->view.guard;
    if (!s->is_attached)
        return;
    s->is_attached = false;
    if (*guard == &s->guard) {
        *guard = s->earlier ? &s->earlier->guard : NULL;
        return;
    }
    for (zoff_saver *later = *guard ? (*guard)->ctx : NULL; later; later = later->earlier) {
        if (later->earlier == s)
            later->earlier = s->earlier;
    }
}

static void gone(void *ctx)
{
    zoff_saver *s = ctx;
    if (!is_inherited(s) && !zoff_checkpoint_saver_is_over(s))
        ZOFF_WARN("the engine is destroyed before its checkpoint '%s' is complete: the checkpoint is given up", s->part.path);
    stop(s);
    s->is_gone = true;
    s->is_attached = false;
    if (s->earlier)
        gone(s->earlier);
}

/* ---- life ---- */

static zoff_status open_buffers(zoff_saver *s, uint64_t memory)
{
    zoff_save_buffers *b = &s->buffers;
    for (size_t i = 0; i < s->unit_count; i++)
        b->bytes = zoff_base_bits_max(b->bytes, bytes_of(s, &s->units[i]));
    if (b->bytes == 0)
        return ZOFF_OK;
    const size_t count = zoff_base_bits_min(zoff_base_bits_max(memory / b->bytes, 3), ZOFF_SAVE_BUFFERS_MOST);
    b->count = (unsigned)zoff_base_bits_min(count, s->unit_count);
    ZOFF_TRY(zoff_base_map_alloc(b->bytes * b->count, "copies of states for a checkpoint", ZOFF_MAP_INTERLEAVED, &b->map));
    zoff_base_map_keep_from_children(&b->map);
    for (unsigned i = b->count; i-- > 0;)
        give_buffer(b, (char *)b->map.base + i * b->bytes);
    return ZOFF_OK;
}

/* Units that need no writing by the worker: their region was cloned or visited. */
static void mark_done(zoff_saver *s, const zoff_save_source *source)
{
    for (size_t i = 0; i < source->unit_count; i++)
        s->units[source->first_unit + i].state = ZOFF_UNIT_SAFE;
}

void zoff_checkpoint_saver_clone(zoff_saver *s)
{
    for (size_t i = 0; i < s->source_count; i++) {
        if (s->sources[i].place != ZOFF_SAVE_FILE)
            continue;
        if (!zoff_checkpoint_source_clone(s, &s->sources[i]))
            return; /* usually the file system shares no blocks; the worker copies */
        *checksum_of(s, &s->units[s->sources[i].first_unit]) = s->sources[i].file.checksum;
        mark_done(s, &s->sources[i]);
    }
}

zoff_status zoff_checkpoint_saver_open(zoff_saver *s, uint64_t memory)
{
    s->guard = (zoff_guard){.before_chunk = before_chunk, .before = before, .before_all = before_all, .gone = gone, .ctx = s};
    s->work.threads = s->view.threads;
    if (s->view.comm->timeout_seconds > 0)
        zoff_aio_queue_limit(s->part.aio, s->view.comm->timeout_seconds);
    return open_buffers(s, memory);
}

/* ---- regions that only a borrowed chunk shows ---- */

typedef struct visiting {
    zoff_saver *saver;
    const zoff_save_source *source;
} visiting;

static zoff_status visit(void *ctx, size_t chunk, zoff_chunk_memory memory)
{
    const visiting *v = ctx;
    zoff_saver *s = v->saver;
    (void)chunk;
    for (size_t i = 0; i < v->source->unit_count; i++) {
        zoff_save_unit *unit = &s->units[v->source->first_unit + i];
        pthread_mutex_lock(&s->work.lock);
        char *buffer = take_buffer(&s->buffers);
        pthread_mutex_unlock(&s->work.lock);
        zoff_checkpoint_source_copy(s, v->source, memory, i * region_of(s, unit)->unit, bytes_of(s, unit), buffer);
        ZOFF_TRY(launch(s, unit, buffer, buffer));
        ZOFF_TRY(land(s));
    }
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_saver_visit(zoff_saver *s, zoff_engine *e)
{
    for (size_t i = 0; i < s->source_count; i++) {
        const zoff_save_source *source = &s->sources[i];
        visiting v = {.saver = s, .source = source};
        if (source->place == ZOFF_SAVE_VISIT)
            ZOFF_TRY(zoff_engine_states_visit(e, source->chunk, source->array == ZOFF_STORE_ARRAYS, visit, &v));
    }
    return ZOFF_OK;
}

/* ---- the thread ---- */

static void *work(void *ctx)
{
    (void)run(ctx);
    return NULL;
}

/* Beside steps one thread computes checksums: the program's threads are busy. */
zoff_status zoff_checkpoint_saver_start(zoff_saver *s, bool beside_steps)
{
    sigset_t all, old;
    s->work.threads = beside_steps ? 1 : s->work.threads;
    sigfillset(&all); /* signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int error = pthread_create(&s->work.thread, NULL, work, s);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    ZOFF_FAIL_IF(error, ZOFF_ERR_NO_MEMORY, "no thread can be started for a checkpoint: %s", zoff_base_status_errno(error));
    s->work.has_thread = true;
    if (beside_steps)
        attach(s);
    return ZOFF_OK;
}

bool zoff_checkpoint_saver_is_over(zoff_saver *s)
{
    pthread_mutex_lock(&s->work.lock);
    const bool over = s->work.is_over;
    pthread_mutex_unlock(&s->work.lock);
    return over;
}

zoff_status zoff_checkpoint_saver_wait(zoff_saver *s)
{
    pthread_mutex_lock(&s->work.lock);
    while (!s->work.is_over && s->work.has_thread)
        pthread_cond_wait(&s->work.moved, &s->work.lock);
    const zoff_status status = s->work.status;
    pthread_mutex_unlock(&s->work.lock);
    if (status < 0)
        zoff_base_status_restore(&s->work.words);
    return status;
}

bool zoff_checkpoint_saver_is_inherited(const zoff_saver *s)
{
    return is_inherited(s);
}

void zoff_checkpoint_saver_close(zoff_saver *s)
{
    const bool inherited = is_inherited(s);
    stop(s);
    zoff_checkpoint_saver_detach(s);
    s->part.keeps = s->part.keeps || inherited; /* the file is the parent's */
    zoff_archive_part_close(&s->part);
    if (!s->work.is_stuck && !inherited) /* the disk may still read copies; a child does not have them */
        zoff_base_map_free(&s->buffers.map);
    zoff_base_mem_free(s->sources);
    zoff_base_mem_free(s->units);
    zoff_base_mem_free(s->by_chunk);
    zoff_base_mem_free(s->weights_at);
    zoff_base_mem_free(s->weights_bytes);
    if (inherited) /* perhaps locked */
        return;
    pthread_cond_destroy(&s->work.moved);
    pthread_mutex_destroy(&s->work.lock);
}
