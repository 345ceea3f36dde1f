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

/* Nobody waits for units of a save that has failed. */
void zoff_checkpoint_saver_fail(zoff_saver *s, zoff_status status)
{
    if (s->work.status < 0)
        return;
    s->work.status = status;
    zoff_base_status_save(&s->work.words);
    pthread_cond_broadcast(&s->work.moved);
}

/* ---- the worker ---- */

/* A step updates from the first chunk on. Beside it units are written from the last one on, so that both meet once. */
static zoff_save_unit *unit_at(const zoff_saver *s, size_t index)
{
    return &s->units[s->work.beside ? s->unit_count - 1 - index : index];
}

/* The next unit to write; NULL: none is left. Copies go first: they hold buffers that a step may be waiting for. */
static zoff_save_unit *next_unit(zoff_saver *s)
{
    zoff_save_work *w = &s->work;
    if (w->first_copy)
        return w->first_copy;
    while (w->next < s->unit_count && unit_at(s, w->next)->state != ZOFF_UNIT_PENDING)
        w->next++;
    return w->next < s->unit_count ? unit_at(s, w->next) : NULL;
}

/* Units that a step is copying now come, too. */
static zoff_save_unit *next_or_wait(zoff_saver *s)
{
    zoff_save_work *w = &s->work;
    for (;;) {
        zoff_save_unit *unit = w->status < 0 || w->stops ? NULL : next_unit(s);
        if (unit || w->status < 0 || w->stops || !w->copying)
            return unit;
        pthread_cond_wait(&w->moved, &w->lock);
    }
}

static void make_unit_safe(zoff_saver *s, zoff_save_unit *unit, char *free_buffer)
{
    zoff_save_work *w = &s->work;
    pthread_mutex_lock(&w->lock);
    zoff_checkpoint_units_give_buffer(&s->buffers, free_buffer);
    unit->state = ZOFF_UNIT_SAFE;
    pthread_cond_broadcast(&w->moved);
    pthread_mutex_unlock(&w->lock);
}

static zoff_status fail_stuck(zoff_saver *s)
{
    s->work.is_stuck = true;
    return zoff_base_status_fail(ZOFF_ERR_IO,
                                 "'%s' is not written in time: the disk neither completes a transfer nor fails it "
                                 "(a quarter of timeout_seconds)",
                                 s->part.path);
}

/* Take the result of the oldest write.  Without the lock: the worker alone uses the queues.
 * @return PENDING: it has not ended */
static zoff_status land_write(zoff_saver *s, bool waits)
{
    zoff_save_flight flight = {.unit = NULL};
    const zoff_status status = zoff_checkpoint_flights_land(&s->work.writes, waits, &flight);
    if (flight.unit)
        make_unit_safe(s, flight.unit, flight.buffer);
    return status == ZOFF_PENDING && waits ? fail_stuck(s) : status;
}

/* Threads for a checksum. One is faster than most disks. The team helps where the disk has little left to do: to wake it costs
 * time, above all on a busy machine. */
static unsigned threads_now(const zoff_save_work *w)
{
    enum { LITTLE = 3 };
    return w->reads.count + w->writes.count > LITTLE ? 1 : w->threads;
}

/* Write the unit, whose bytes are at `from` now. Its checksum is computed while the disk writes. */
static zoff_status launch(zoff_saver *s, zoff_save_unit *unit, const char *from, char *buffer)
{
    zoff_save_work *w = &s->work;
    const zoff_save_source *source = zoff_checkpoint_units_source(s, unit);
    const size_t bytes = zoff_checkpoint_units_bytes(s, unit);
    zoff_save_flight flight = {.unit = unit, .queue = s->part.aio, .buffer = buffer};
    if (w->writes.count == ZOFF_SAVE_FLIGHTS)
        ZOFF_TRY(land_write(s, true));
    ZOFF_TRY(zoff_aio_write(
        s->part.aio, zoff_checkpoint_units_region(s, unit)->offset + unit->number * zoff_checkpoint_units_region(s, unit)->unit,
        bytes, from, &flight.ticket));
    zoff_checkpoint_flights_add(&w->writes, &flight);
    *zoff_checkpoint_units_checksum(s, unit) = source->place == ZOFF_SAVE_FILE && source->file.has_checksum
                                                   ? source->file.checksum
                                                   : zoff_digest_blocks_whole(from, bytes, threads_now(w));
    return ZOFF_OK;
}

/* Begin to read a unit of a state file. */
static zoff_status start_read(zoff_saver *s, zoff_save_unit *unit, char *buffer)
{
    const zoff_store_source *file = &zoff_checkpoint_units_source(s, unit)->file;
    zoff_save_flight flight = {.unit = unit, .buffer = buffer};
    pthread_mutex_lock(&s->work.lock);
    const zoff_status status = zoff_checkpoint_flights_reader(&s->work.readers, file->queue, s->work.patience, &flight.queue);
    pthread_mutex_unlock(&s->work.lock);
    ZOFF_TRY(status);
    ZOFF_TRY(zoff_aio_read(flight.queue, file->offset, file->written, buffer, &flight.ticket));
    zoff_checkpoint_flights_add(&s->work.reads, &flight);
    return ZOFF_OK;
}

/* The oldest read has ended: from now on its source may change. Write it. */
static zoff_status land_read(zoff_saver *s)
{
    zoff_save_flight flight = {.unit = NULL};
    const zoff_status status = zoff_checkpoint_flights_land(&s->work.reads, true, &flight);
    if (status == ZOFF_PENDING)
        return fail_stuck(s);
    ZOFF_TRY(status);
    ZOFF_TRY(zoff_checkpoint_source_check(zoff_checkpoint_units_source(s, flight.unit), flight.buffer, threads_now(&s->work)));
    make_unit_safe(s, flight.unit, NULL);
    return launch(s, flight.unit, flight.buffer, flight.buffer);
}

/* Beside steps few units are read: a step that needs buffers for copies brings the rest itself, without a read. */
static bool may_read(const zoff_saver *s)
{
    enum { LEAST = 2, BESIDE_BYTES = 16 << 20 };
    const size_t count = s->work.reads.count;
    return count < ZOFF_SAVE_FLIGHTS && (!s->work.beside || count < LEAST || count * s->buffers.bytes < BESIDE_BYTES);
}

/* Under the lock. Get a buffer for a unit that needs one.  @return false: none is free now */
static bool get_buffer(zoff_saver *s, const zoff_save_unit *unit, char **out)
{
    const zoff_save_place place = zoff_checkpoint_units_source(s, unit)->place;
    if (unit->state == ZOFF_UNIT_COPIED)
        *out = unit->buffer;
    else if (place == ZOFF_SAVE_FILE && !may_read(s))
        return false;
    else if (place != ZOFF_SAVE_MEMORY)
        *out = zoff_checkpoint_units_take_buffer(&s->buffers);
    return *out || place == ZOFF_SAVE_MEMORY;
}

/* The work of one turn. */
typedef struct job {
    zoff_save_unit *unit; /* NULL: none is left */
    char *buffer;         /* its copy, or a buffer for it, or NULL */
    bool is_copied;
} job;

/* Take the next unit.  @return PENDING: there is one, but no buffer is free before a transfer ends */
static zoff_status take(zoff_saver *s, job *out)
{
    zoff_save_work *w = &s->work;
    bool waits = false;
    pthread_mutex_lock(&w->lock);
    *out = (job){.unit = next_or_wait(s)};
    while (out->unit && !get_buffer(s, out->unit, &out->buffer)) {
        waits = w->reads.count || w->writes.count || !w->copying;
        if (waits)
            break;
        pthread_cond_wait(&w->moved, &w->lock); /* a step is copying into the last buffer */
        out->unit = next_or_wait(s);
    }
    if (out->unit && !waits) {
        out->is_copied = out->unit->state == ZOFF_UNIT_COPIED;
        if (out->is_copied)
            zoff_checkpoint_units_take_copy(w);
        else
            out->unit->state = ZOFF_UNIT_BUSY;
    }
    pthread_mutex_unlock(&w->lock);
    return waits ? ZOFF_PENDING : ZOFF_OK;
}

static zoff_status begin_unit(zoff_saver *s, const job *j)
{
    const zoff_save_source *source = zoff_checkpoint_units_source(s, j->unit);
    if (j->is_copied)
        return launch(s, j->unit, j->buffer, j->buffer);
    if (source->place == ZOFF_SAVE_FILE && source->file.written)
        return start_read(s, j->unit, j->buffer);
    if (!j->buffer)
        return launch(s, j->unit, source->memory + j->unit->number * zoff_checkpoint_units_region(s, j->unit)->unit, NULL);
    if (source->place == ZOFF_SAVE_FILE)
        ZOFF_TRY(zoff_checkpoint_source_check(source, j->buffer, s->work.threads));
    else
        zoff_checkpoint_source_read(s, source, j->unit->number, j->buffer);
    make_unit_safe(s, j->unit, NULL);
    return launch(s, j->unit, j->buffer, j->buffer);
}

/* Begin one unit, or go on with one.  @return PENDING: there is more to do than to wait for writes */
static zoff_status turn(zoff_saver *s)
{
    job j;
    zoff_status status;
    while ((status = land_write(s, false)) == ZOFF_OK)
        continue; /* its buffer is free */
    if (status < 0)
        return status;
    status = take(s, &j);
    if (status == ZOFF_OK && j.unit)
        ZOFF_TRY(begin_unit(s, &j));
    else if (s->work.reads.count)
        ZOFF_TRY(land_read(s));
    else if (status == ZOFF_PENDING && s->work.writes.count)
        ZOFF_TRY(land_write(s, true));
    else if (status == ZOFF_OK)
        return ZOFF_OK;
    return ZOFF_PENDING;
}

static zoff_status write_all(zoff_saver *s)
{
    zoff_status status;
    while ((status = turn(s)) == ZOFF_PENDING)
        continue;
    ZOFF_TRY(status);
    ZOFF_TRY(zoff_archive_part_flush_name(&s->part)); /* while the disk still writes */
    while (s->work.writes.count)
        ZOFF_TRY(land_write(s, true));
    pthread_mutex_lock(&s->work.lock);
    const bool stops = s->work.stops;
    pthread_mutex_unlock(&s->work.lock);
    ZOFF_FAIL_IF(stops, ZOFF_ERR_STATE, "the save was given up: its engine is destroyed");
    return s->work.status < 0 ? s->work.status : zoff_archive_part_finish(&s->part, &s->work.file);
}

/* After an error, too, no transfer stays in flight, unless the disk stands still. */
static void finish_transfers(zoff_saver *s)
{
    zoff_save_flight dropped;
    while (s->work.writes.count && !s->work.is_stuck)
        (void)land_write(s, true);
    while (s->work.reads.count && !s->work.is_stuck)
        s->work.is_stuck = zoff_checkpoint_flights_land(&s->work.reads, true, &dropped) == ZOFF_PENDING;
}

static zoff_status run(zoff_saver *s)
{
    const zoff_status status = write_all(s);
    pthread_mutex_lock(&s->work.lock);
    if (status < 0)
        zoff_checkpoint_saver_fail(s, status);
    pthread_mutex_unlock(&s->work.lock);
    if (status < 0)
        finish_transfers(s);
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

/* ---- life ---- */

static zoff_status open_buffers(zoff_saver *s, uint64_t memory)
{
    zoff_save_buffers *b = &s->buffers;
    for (size_t i = 0; i < s->unit_count; i++)
        b->bytes = zoff_base_bits_max(b->bytes, zoff_checkpoint_units_bytes(s, &s->units[i]));
    if (b->bytes == 0)
        return ZOFF_OK;
    const size_t count =
        zoff_base_bits_min(zoff_base_bits_max(memory / b->bytes, ZOFF_SAVE_COPIES_LEAST), ZOFF_SAVE_BUFFERS_MOST);
    b->count = (unsigned)zoff_base_bits_min(count, s->unit_count);
    ZOFF_TRY(zoff_base_map_alloc(b->bytes * b->count, "copies of states for a checkpoint", ZOFF_MAP_INTERLEAVED, &b->map));
    zoff_base_map_keep_from_children(&b->map);
    for (unsigned i = b->count; i-- > 0;)
        zoff_checkpoint_units_give_buffer(b, (char *)b->map.base + i * b->bytes);
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
        *zoff_checkpoint_units_checksum(s, &s->units[s->sources[i].first_unit]) = s->sources[i].file.checksum;
        mark_done(s, &s->sources[i]);
    }
}

zoff_status zoff_checkpoint_saver_open(zoff_saver *s, uint64_t memory)
{
    const double timeout = s->view.comm->timeout_seconds;
    s->work.threads = s->view.threads;
    s->work.patience = timeout > 0 ? timeout / 4 : -1;
    zoff_aio_queue_limit(s->part.aio, s->work.patience);
    return open_buffers(s, memory);
}

/* ---- regions that only a borrowed chunk shows ---- */

static zoff_status write_units(zoff_saver *s, const zoff_save_source *source, zoff_chunk_memory memory)
{
    for (size_t i = 0; i < source->unit_count; i++) {
        zoff_save_unit *unit = &s->units[source->first_unit + i];
        pthread_mutex_lock(&s->work.lock);
        char *buffer = zoff_checkpoint_units_take_buffer(&s->buffers);
        pthread_mutex_unlock(&s->work.lock);
        zoff_checkpoint_source_copy(s, source, memory, i * zoff_checkpoint_units_region(s, unit)->unit,
                                    zoff_checkpoint_units_bytes(s, unit), buffer);
        ZOFF_TRY(launch(s, unit, buffer, buffer));
        ZOFF_TRY(land_write(s, true));
    }
    return ZOFF_OK;
}

static zoff_status visit(zoff_saver *s, zoff_engine *e, const zoff_save_source *source)
{
    zoff_lent_chunk lent;
    zoff_saved_error saved;
    const zoff_pass pass = {.states = true, .weights = source->array == ZOFF_STORE_ARRAYS && s->view.lending->store};
    ZOFF_TRY(zoff_engine_states_place_borrow(e, &pass, source->chunk, &lent));
    const zoff_status status = write_units(s, source, lent.memory);
    zoff_base_status_save(&saved);
    (void)zoff_engine_states_place_give_back(e, &pass, &lent); /* unchanged: nothing can fail */
    zoff_base_status_restore(&saved);
    return status;
}

static zoff_status visit_all(zoff_saver *s, zoff_engine *e)
{
    for (size_t i = 0; i < s->source_count; i++) {
        if (s->sources[i].place == ZOFF_SAVE_VISIT)
            ZOFF_TRY(visit(s, e, &s->sources[i]));
    }
    return ZOFF_OK;
}

zoff_status zoff_checkpoint_saver_visit(zoff_saver *s, zoff_engine *e)
{
    bool any = false;
    for (size_t i = 0; i < s->source_count; i++)
        any = any || s->sources[i].place == ZOFF_SAVE_VISIT;
    if (!any)
        return ZOFF_OK;
    const zoff_pass pass = {.states = true, .weights = s->view.lending->store};
    ZOFF_TRY(zoff_engine_states_begin_pass(e, &pass));
    return zoff_engine_states_end_pass(e, &pass, visit_all(s, e));
}

/* ---- the thread ---- */

bool zoff_checkpoint_saver_is_inherited(const zoff_saver *s)
{
    return s->process != zoff_base_fork_number();
}

/* Under the lock. Whoever waits for the thread to stop waits no longer than this for a disk that stands still. */
static void hasten(zoff_saver *s)
{
    enum { SECONDS = 10 };
    if (s->work.patience >= 0 && s->work.patience < SECONDS)
        return;
    zoff_aio_queue_limit(s->part.aio, SECONDS);
    for (size_t i = 0; i < s->work.readers.count; i++)
        zoff_aio_queue_limit(s->work.readers.list[i].queue, SECONDS);
}

void zoff_checkpoint_saver_stop(zoff_saver *s)
{
    if (!s->work.has_thread || zoff_checkpoint_saver_is_inherited(s))
        return;
    pthread_mutex_lock(&s->work.lock);
    s->work.stops = true;
    hasten(s);
    pthread_cond_broadcast(&s->work.moved);
    pthread_mutex_unlock(&s->work.lock);
    pthread_join(s->work.thread, NULL);
    s->work.has_thread = false;
}

static void *work(void *ctx)
{
    (void)run(ctx);
    return NULL;
}

zoff_status zoff_checkpoint_saver_thread(void *(*begin)(void *ctx), void *ctx, pthread_t *out)
{
    sigset_t all, old;
    sigfillset(&all); /* signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    const int error = pthread_create(out, NULL, begin, ctx);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    ZOFF_FAIL_IF(error, ZOFF_ERR_NO_MEMORY, "no thread can be started for a checkpoint: %s", zoff_base_status_errno(error));
    return ZOFF_OK;
}

/* Beside steps one thread computes checksums: the program's threads are busy. */
zoff_status zoff_checkpoint_saver_start(zoff_saver *s, bool beside_steps)
{
    s->work.beside = beside_steps;
    s->work.threads = beside_steps ? 1 : s->work.threads;
    ZOFF_TRY(zoff_checkpoint_saver_thread(work, s, &s->work.thread));
    s->work.has_thread = true;
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

void zoff_checkpoint_saver_close(zoff_saver *s)
{
    const bool inherited = zoff_checkpoint_saver_is_inherited(s);
    zoff_checkpoint_saver_stop(s);
    s->part.keeps = s->part.keeps || inherited; /* the file is the parent's */
    s->work.is_stuck = !zoff_checkpoint_flights_close(&s->work.readers) || s->work.is_stuck;
    zoff_archive_part_close(&s->part);
    if (!s->work.is_stuck && !inherited) /* the disk may still use copies; a child does not have them */
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
