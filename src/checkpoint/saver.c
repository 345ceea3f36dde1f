/* SPDX-License-Identifier: Apache-2.0 */
/* saver.c: writes the units of a checkpoint, in the calling thread or in one of its own.
 *
 *      PENDING -- worker --> BUSY -- written, or copied into a buffer --> SAFE
 *         `------ a step copies it --> COPIED -- worker --> SAFE
 *
 * Before a step changes states it makes their units safe: it copies those that are PENDING into a buffer, or waits if no buffer
 * is free. So a checkpoint has the states of one step, whatever further steps do. An error ends the save, and steps go on.
 *
 * The engine's own queue of a state file belongs to its steps, so a save opens another one to read it. */
#include "checkpoint_priv.h"

#include "aio.h"
#include "array.h"
#include "bits.h"
#include "clock.h"
#include "digest.h"
#include "fork.h"
#include "log.h"
#include "try.h"

#include <signal.h>
#include <time.h>

/* ---- units ---- */

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

/* NULL: none is free */
static char *take_buffer(zoff_save_buffers *b)
{
    return b->free_count ? b->free[--b->free_count] : NULL;
}

/* NULL is allowed */
static void give_buffer(zoff_save_buffers *b, char *buffer)
{
    if (buffer)
        b->free[b->free_count++] = buffer;
}

/* Nobody waits for units any more: the save is over, or has failed. */
static bool is_idle(const zoff_saver *s)
{
    return s->work.status < 0 || s->work.is_over;
}

/* ---- copies that a step has made, oldest first ---- */

/* Copies wait in the order in which they were made. */
static void add_copy(zoff_save_work *w, zoff_save_unit *unit)
{
    unit->state = ZOFF_UNIT_COPIED;
    unit->next_copy = NULL;
    *(w->last_copy ? &w->last_copy->next_copy : &w->first_copy) = unit;
    w->last_copy = unit;
}

static void take_copy(zoff_save_work *w)
{
    w->first_copy->state = ZOFF_UNIT_SAFE;
    w->first_copy = w->first_copy->next_copy;
    w->last_copy = w->first_copy ? w->last_copy : NULL;
}

/* ---- reads and writes in flight ---- */

static void add_flight(zoff_save_flights *f, const zoff_save_flight *flight)
{
    f->list[(f->first + f->count++) % ZOFF_SAVE_FLIGHTS] = *flight;
}

/* Take the oldest one once it has ended. `waits`: wait for it.
 * @return OK; PENDING: there is none, or it has not ended, after a wait: not in time; or its error */
static zoff_status land(zoff_save_flights *f, bool waits, zoff_save_flight *out)
{
    if (!f->count)
        return ZOFF_PENDING;
    const zoff_save_flight *oldest = &f->list[f->first];
    const zoff_status status =
        waits ? zoff_aio_wait(oldest->queue, oldest->ticket) : zoff_aio_poll(oldest->queue, oldest->ticket);
    if (status == ZOFF_PENDING)
        return ZOFF_PENDING;
    *out = *oldest;
    f->first = (f->first + 1) % ZOFF_SAVE_FLIGHTS;
    f->count--;
    return status;
}

/* The queue that reads a state file; opened when it is first asked for. */
static zoff_status open_reader(zoff_save_readers *r, const zoff_aio *of, double limit_seconds, zoff_aio **out)
{
    size_t i = 0;
    while (i < r->count && r->list[i].of != of)
        i++;
    if (i == r->count) {
        ZOFF_TRY(zoff_base_array_reserve(&r->list, r->count, &r->room, r->count + 1, sizeof *r->list, "state files"));
        ZOFF_TRY(zoff_aio_queue_share(of, &r->list[i].queue));
        r->list[i].of = of;
        r->count++;
        if (limit_seconds > 0)
            zoff_aio_queue_limit(r->list[i].queue, limit_seconds);
    }
    *out = r->list[i].queue;
    return ZOFF_OK;
}

/* Close all. @return false: the disk may still write into buffers */
static bool close_readers(zoff_save_readers *r)
{
    bool ended = true;
    for (size_t i = 0; i < r->count; i++)
        ended = zoff_aio_queue_close(r->list[i].queue) && ended;
    zoff_base_mem_free(r->list);
    *r = (zoff_save_readers){.list = NULL};
    return ended;
}

/* Under the lock. Nobody waits for units of a save that has failed. The first error counts. */
static void fail(zoff_saver *s, zoff_status status)
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

/* Wait for units that a step is copying now, because they come, too. */
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
    give_buffer(&s->buffers, free_buffer);
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

/* Take the result of the oldest write.  Call it without the lock, because the worker alone uses the queues.
 * @return PENDING: it has not ended */
static zoff_status land_write(zoff_saver *s, bool waits)
{
    zoff_save_flight flight = {.unit = NULL};
    const zoff_status status = land(&s->work.writes, waits, &flight);
    if (flight.unit)
        make_unit_safe(s, flight.unit, flight.buffer);
    return status == ZOFF_PENDING && waits ? fail_stuck(s) : status;
}

/* Threads for a checksum. One is faster than most disks, so the team helps only where the disk has little left to do. To wake
 * the team costs time, above all on a busy machine. */
static unsigned threads_now(const zoff_save_work *w)
{
    enum { LITTLE = 3 };
    return w->reads.count + w->writes.count > LITTLE ? 1 : w->threads;
}

/* Write the unit, whose bytes are at `from` now. Its checksum is computed while the disk writes. */
static zoff_status launch(zoff_saver *s, zoff_save_unit *unit, const char *from, char *buffer)
{
    zoff_save_work *w = &s->work;
    const zoff_save_source *source = source_of(s, unit);
    const size_t bytes = bytes_of(s, unit);
    zoff_save_flight flight = {.unit = unit, .queue = s->part.aio, .buffer = buffer};
    if (w->writes.count == ZOFF_SAVE_FLIGHTS)
        ZOFF_TRY(land_write(s, true));
    ZOFF_TRY(zoff_aio_write(s->part.aio, region_of(s, unit)->offset + unit->number * region_of(s, unit)->unit, bytes, from,
                            &flight.ticket));
    add_flight(&w->writes, &flight);
    *checksum_of(s, unit) = source->place == ZOFF_SAVE_FILE && source->file.has_checksum
                                ? source->file.checksum
                                : zoff_digest_blocks_whole(from, bytes, threads_now(w));
    return ZOFF_OK;
}

/* Begin to read a unit of a state file. */
static zoff_status start_read(zoff_saver *s, zoff_save_unit *unit, char *buffer)
{
    const zoff_store_source *file = &source_of(s, unit)->file;
    zoff_save_flight flight = {.unit = unit, .buffer = buffer};
    pthread_mutex_lock(&s->work.lock);
    const zoff_status status = open_reader(&s->work.readers, file->queue, s->work.patience, &flight.queue);
    pthread_mutex_unlock(&s->work.lock);
    ZOFF_TRY(status);
    ZOFF_TRY(zoff_aio_read(flight.queue, file->offset, file->written, buffer, &flight.ticket));
    add_flight(&s->work.reads, &flight);
    return ZOFF_OK;
}

/* End the oldest read, whose source may change from now on, and write the unit. */
static zoff_status land_read(zoff_saver *s)
{
    zoff_save_flight flight = {.unit = NULL};
    const zoff_status status = land(&s->work.reads, true, &flight);
    if (status == ZOFF_PENDING)
        return fail_stuck(s);
    ZOFF_TRY(status);
    ZOFF_TRY(zoff_checkpoint_source_check(source_of(s, flight.unit), flight.buffer, threads_now(&s->work)));
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
    const zoff_save_place place = source_of(s, unit)->place;
    if (unit->state == ZOFF_UNIT_COPIED)
        *out = unit->buffer;
    else if (place == ZOFF_SAVE_FILE && !may_read(s))
        return false;
    else if (place != ZOFF_SAVE_MEMORY)
        *out = take_buffer(&s->buffers);
    return *out || place == ZOFF_SAVE_MEMORY;
}

/* The work of one turn. */
typedef struct job {
    zoff_save_unit *unit; /* unit of the job; NULL: none is left */
    char *buffer;         /* copy of the unit, or a buffer for it, or NULL */
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
            take_copy(w);
        else
            out->unit->state = ZOFF_UNIT_BUSY;
    }
    pthread_mutex_unlock(&w->lock);
    return waits ? ZOFF_PENDING : ZOFF_OK;
}

static zoff_status begin_unit(zoff_saver *s, const job *j)
{
    const zoff_save_source *source = source_of(s, j->unit);
    if (j->is_copied)
        return launch(s, j->unit, j->buffer, j->buffer);
    if (source->place == ZOFF_SAVE_FILE && source->file.written)
        return start_read(s, j->unit, j->buffer);
    if (!j->buffer)
        return launch(s, j->unit, source->memory + j->unit->number * region_of(s, j->unit)->unit, NULL);
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
        continue; /* a transfer has ended, so its buffer is free */
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
        s->work.is_stuck = land(&s->work.reads, true, &dropped) == ZOFF_PENDING;
}

zoff_status zoff_checkpoint_saver_run(zoff_saver *s)
{
    const zoff_status status = write_all(s);
    pthread_mutex_lock(&s->work.lock);
    if (status < 0)
        fail(s, status);
    pthread_mutex_unlock(&s->work.lock);
    if (status < 0)
        finish_transfers(s);
    pthread_mutex_lock(&s->work.lock);
    s->work.is_over = true;
    pthread_cond_broadcast(&s->work.moved);
    pthread_mutex_unlock(&s->work.lock);
    return status;
}

/* ---- life ---- */

static zoff_status open_buffers(zoff_saver *s, uint64_t memory)
{
    zoff_save_buffers *b = &s->buffers;
    for (size_t i = 0; i < s->unit_count; i++)
        b->bytes = zoff_base_bits_max(b->bytes, bytes_of(s, &s->units[i]));
    if (b->bytes == 0)
        return ZOFF_OK;
    const size_t count =
        zoff_base_bits_min(zoff_base_bits_max(memory / b->bytes, ZOFF_SAVE_COPIES_LEAST), ZOFF_SAVE_BUFFERS_MOST);
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
            return; /* usually the file system shares no blocks, so the worker copies */
        *checksum_of(s, &s->units[s->sources[i].first_unit]) = s->sources[i].file.checksum;
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
        char *buffer = take_buffer(&s->buffers);
        pthread_mutex_unlock(&s->work.lock);
        zoff_checkpoint_source_copy(s, source, memory, i * region_of(s, unit)->unit, bytes_of(s, unit), buffer);
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
    (void)zoff_engine_states_place_give_back(e, &pass, &lent); /* the states are unchanged, so nothing can fail */
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

static void *work_thread(void *ctx)
{
    (void)zoff_checkpoint_saver_run(ctx);
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
    ZOFF_TRY(zoff_checkpoint_saver_thread(work_thread, s, &s->work.thread));
    s->work.has_thread = true;
    return ZOFF_OK;
}

/* Whether all is over.  @blocks never */
static bool is_save_over(zoff_saver *s)
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
    s->part.keeps = s->part.keeps || inherited; /* keep the file, because it is the parent's */
    s->work.is_stuck = !close_readers(&s->work.readers) || s->work.is_stuck;
    zoff_archive_part_close(&s->part);
    if (!s->work.is_stuck && !inherited) /* the disk may still use the buffers; a child does not have them */
        zoff_base_map_free(&s->buffers.map);
    zoff_base_mem_free(s->sources);
    zoff_base_mem_free(s->units);
    zoff_base_mem_free(s->by_chunk);
    zoff_base_mem_free(s->weights_at);
    zoff_base_mem_free(s->weights_bytes);
    if (inherited) /* the lock may be held in the child */
        return;
    pthread_cond_destroy(&s->work.moved);
    pthread_mutex_destroy(&s->work.lock);
}

/* ---- what a step waits for ---- */

/* Copy a unit that is PENDING, if a buffer is free. FILE: the borrowed chunk has what the file has, if `memory` has states. The
 * lock is not held meanwhile. */
static bool copy_unit(zoff_saver *s, zoff_save_unit *unit, zoff_chunk_memory memory)
{
    const zoff_save_source *source = source_of(s, unit);
    if (source->place == ZOFF_SAVE_FILE && !memory.states)
        return false;
    unit->buffer = take_buffer(&s->buffers);
    if (!unit->buffer)
        return false;
    unit->state = ZOFF_UNIT_BUSY;
    s->work.copying++;
    pthread_mutex_unlock(&s->work.lock);
    if (source->place == ZOFF_SAVE_PIECES)
        memory.weights = memory.weights ? memory.weights : (char *)(uintptr_t)source->memory;
    zoff_checkpoint_source_copy(s, source, memory, unit->number * region_of(s, unit)->unit, bytes_of(s, unit), unit->buffer);
    pthread_mutex_lock(&s->work.lock);
    s->work.copying--;
    add_copy(&s->work, unit);
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

/* Whether the worker may still read the memory of a unit. After an error, too, it ends what it has begun. */
static bool is_read(const zoff_saver *s, const zoff_save_unit *unit)
{
    if (unit->state == ZOFF_UNIT_SAFE || unit->state == ZOFF_UNIT_COPIED)
        return false;
    return unit->state == ZOFF_UNIT_BUSY ? !s->work.is_over : !is_idle(s);
}

/* Nothing is copied: the caller waits until the disk has all. */
static void before_all(void *ctx)
{
    zoff_saver *s = ctx;
    if (zoff_checkpoint_saver_is_inherited(s))
        return;
    pthread_mutex_lock(&s->work.lock);
    for (size_t i = 0; i < s->unit_count; i++) {
        while (is_read(s, &s->units[i]))
            wait_awhile(s);
    }
    pthread_mutex_unlock(&s->work.lock);
}

/* The save ends, because it may read other bytes than its checksums say. */
static void changed(void *ctx)
{
    zoff_saver *s = ctx;
    if (zoff_checkpoint_saver_is_inherited(s))
        return;
    pthread_mutex_lock(&s->work.lock);
    fail(s, zoff_base_status_fail(ZOFF_ERR_STATE,
                                  "the program has changed weights while '%s' was being saved, so it may have the states of no "
                                  "step; end the save with zoff_checkpoint_wait() first, then change weights",
                                  s->part.path));
    pthread_mutex_unlock(&s->work.lock);
}

static void gone(void *ctx)
{
    zoff_saver *s = ctx;
    if (!zoff_checkpoint_saver_is_inherited(s) && !is_save_over(s))
        ZOFF_WARN("the engine is destroyed before its checkpoint '%s' is complete: the checkpoint is given up", s->part.path);
    zoff_checkpoint_saver_stop(s);
    s->is_gone = true;
    s->is_attached = false;
}

void zoff_checkpoint_saver_attach(zoff_saver *s)
{
    s->guard = (zoff_guard){
        .before_chunk = before_chunk, .before = before, .before_all = before_all, .changed = changed, .gone = gone, .ctx = s};
    s->is_attached = true;
    *s->view.guard = &s->guard;
}

void zoff_checkpoint_saver_detach(zoff_saver *s)
{
    if (s->is_attached)
        *s->view.guard = NULL;
    s->is_attached = false;
}
