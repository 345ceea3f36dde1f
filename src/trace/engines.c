/* SPDX-License-Identifier: Apache-2.0 */
/* engines.c: the trace of a process: its file, the engines that share it, and the tracks of their threads. One lock guards all
 * of it. It is held for a memcpy, and at times for a write, but never while the log is called. */
#include "trace_priv.h"

#include "env.h"
#include "log.h"
#include "mem.h"
#include "try.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the value of ZOFF_TRACE: FILE, or FILE:FIRST-LAST ---- */

typedef struct spec {
    char path[ZOFF_TRACE_PATH_BYTES];
    int64_t first, last; /* steps */
    bool has_range;
} spec;

static bool read_step(const char **at, int64_t *out)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    errno = 0;
    *out = strtoll(*at, &end, 10);
    *at = end;
    return !errno && *out > 0;
}

static bool read_range(const char *text, spec *out)
{
    if (!read_step(&text, &out->first) || *text++ != '-' || !read_step(&text, &out->last))
        return false;
    return *text == 0 && out->first <= out->last;
}

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static zoff_status read_spec(const char *value, spec *out)
{
    const char *colon = strrchr(last_name(value), ':');
    const size_t bytes = colon ? (size_t)(colon - value) : strlen(value);
    *out = (spec){.first = INT64_MIN, .last = INT64_MAX, .has_range = colon};
    ZOFF_FAIL_IF(!bytes || value[bytes - 1] == '/' || bytes >= sizeof out->path || (colon && !read_range(colon + 1, out)),
                 ZOFF_ERR_INVALID,
                 "ZOFF_TRACE is \"%.300s\"; it may be FILE, or FILE:FIRST-LAST with two numbers of steps from 1, for example "
                 "trace.json:10-12. No trace is written",
                 value);
    memcpy(out->path, value, bytes);
    return ZOFF_OK;
}

bool zoff_trace_engines_name(const char *path, const char *word, unsigned number, char *dst, size_t dst_bytes)
{
    const char *name = last_name(path), *dot = strrchr(name, '.');
    const size_t before = dot && dot != name ? (size_t)(dot - path) : strlen(path);
    const int length = snprintf(dst, dst_bytes, "%.*s.%s%u%s", (int)before, path, word, number, path + before);
    return length > 0 && (size_t)length < dst_bytes;
}

bool zoff_trace_flag;
__thread zoff_trace_thread zoff_trace_self;

enum { PIDS_OF_A_RANK = 1000 };

/* Global state, because a process has one ZOFF_TRACE and one file. `text` and `spec` are those of the first engine, until the
 * last engine is closed. */
static struct {
    pthread_mutex_t lock;
    char text[ZOFF_TRACE_PATH_BYTES + 64]; /* value of the variable */
    unsigned owner;                        /* zoff_base_fork_number() + 1 of the process that traces; 0: none. Atomic */
    /* the value is of no use any more, because it was bad, or the file failed or is full */
    bool ended;
    spec spec;
    zoff_trace_writer writer;
    unsigned engines, windows, opened;
    uint64_t serial, tracks, ids;
} file = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- what the process does; the lock is held ---- */

static void set_flag(void)
{
    __atomic_store_n(&zoff_trace_flag, file.windows && !file.ended, __ATOMIC_RELAXED);
}

/* Write no more. Returns the status, whose words the caller logs. */
static zoff_status end_file(zoff_status status)
{
    file.ended = true;
    set_flag();
    return status;
}

static zoff_status start_file(const char *value, const zoff_trace_rank *who)
{
    char path[ZOFF_TRACE_PATH_BYTES];
    zoff_env_ranks ranks;
    snprintf(file.text, sizeof file.text, "%s", value);
    file.ended = false;
    file.opened = 0;
    ZOFF_TRY(read_spec(value, &file.spec));
    zoff_base_env_ranks(&ranks); /* ask the environment, because a program may train with ranks that the engine does not know */
    const bool several = who->ranks > 1 && !who->are_threads;
    snprintf(path, sizeof path, "%s", file.spec.path);
    if (several || ranks.count > 1)
        ZOFF_FAIL_IF(!zoff_trace_engines_name(file.spec.path, "rank", several ? who->rank : ranks.index, path, sizeof path),
                     ZOFF_ERR_INVALID, "ZOFF_TRACE: the name of the file is too long");
    snprintf(file.spec.path, sizeof file.spec.path, "%s", path);
    return zoff_trace_writer_open(&file.writer, path);
}

static zoff_status begin_engine(const char *value, const zoff_trace_rank *who)
{
    zoff_status status = ZOFF_OK;
    if (file.engines)
        return ZOFF_OK;
    if (strncmp(value, file.text, sizeof file.text - 1) != 0)
        status = start_file(value, who);
    else if (!file.ended)
        status = zoff_trace_writer_open(&file.writer, file.spec.path);
    return status < 0 ? end_file(status) : ZOFF_OK;
}

static zoff_status add(const zoff_trace_event *event)
{
    if (file.ended)
        return ZOFF_OK;
    if (!file.spec.has_range && file.writer.events >= ZOFF_TRACE_EVENTS_MOST) {
        (void)zoff_trace_writer_flush(&file.writer);
        return end_file(zoff_base_status_fail(
            ZOFF_ERR_NO_SPACE, "ZOFF_TRACE: '%.2000s' has %d events, and gets no more; select steps, for example %.1000s:10-12",
            file.writer.path, ZOFF_TRACE_EVENTS_MOST, file.spec.path));
    }
    const zoff_status status = zoff_trace_writer_add(&file.writer, event);
    return status < 0 ? end_file(status) : ZOFF_OK;
}

/* Write the name of a process or a track, and its place among the others. */
static zoff_status name_it(const char *what, unsigned pid, unsigned tid, const char *name, unsigned place)
{
    zoff_trace_event event = {.phase = 'M', .pid = pid, .tid = tid};
    char escaped[128], full[48];
    event.name = full;
    zoff_trace_writer_escape(name, escaped, sizeof escaped);
    snprintf(full, sizeof full, "%s_name", what);
    snprintf(event.args, sizeof event.args, "\"name\": \"%s\"", escaped);
    ZOFF_TRY(add(&event));
    snprintf(full, sizeof full, "%s_sort_index", what);
    snprintf(event.args, sizeof event.args, "\"sort_index\": %u", place);
    return add(&event);
}

/* Begin a track for the calling thread. It has a number of its own, because viewers mix up threads of one number in several
 * processes. */
static zoff_status begin_track(zoff_trace *t, unsigned worker, unsigned number)
{
    const char *own = zoff_trace_self.name;
    char name[64];
    if (own)
        return name_it("thread", t->pid, number, own, 1);
    if (worker) {
        snprintf(name, sizeof name, "kernel thread %u", worker);
        return name_it("thread", t->pid, number, name, 1 + worker);
    }
    if (t->programs++ == 0)
        return name_it("thread", t->pid, number, "program", 0);
    snprintf(name, sizeof name, "program, thread %u", t->programs);
    return name_it("thread", t->pid, number, name, 0);
}

/* The track of the calling thread in an engine; 0: there are too many. */
static zoff_status find_track(zoff_trace *t, unsigned worker, unsigned *out)
{
    zoff_trace_thread *self = &zoff_trace_self;
    const long thread = syscall(SYS_gettid);
    unsigned i = 0;
    *out = self->track;
    if (self->serial == t->serial)
        return ZOFF_OK;
    while (i < t->track_count && t->tracks[i].thread != thread)
        i++;
    const bool is_new = i == t->track_count;
    *out = 0;
    if (i == ZOFF_TRACE_THREADS_MOST)
        return ZOFF_OK;
    if (is_new)
        t->tracks[t->track_count++] = (zoff_trace_track){.thread = thread, .number = (unsigned)++file.tracks};
    self->serial = t->serial;
    self->track = *out = t->tracks[i].number;
    return is_new ? begin_track(t, worker, *out) : ZOFF_OK;
}

static void say(zoff_status status)
{
    if (status < 0)
        ZOFF_WARN("%s", zoff_last_error());
}

/* ---- for marks.c ---- */

bool zoff_trace_engines_is_open(const zoff_trace *t)
{
    return t && __atomic_load_n(&t->is_open, __ATOMIC_RELAXED) && zoff_trace_on() && t->process == zoff_base_fork_number();
}

void zoff_trace_engines_emit(zoff_trace *t, zoff_trace_event *event, unsigned worker)
{
    zoff_saved_error saved;
    zoff_status status = ZOFF_OK;
    if (!zoff_trace_engines_is_open(t))
        return;
    zoff_base_status_save(&saved);
    pthread_mutex_lock(&file.lock);
    if (zoff_trace_engines_is_open(t) && event->from >= t->since) {
        event->pid = t->pid;
        status = find_track(t, worker, &event->tid);
        if (status == ZOFF_OK && event->tid)
            status = add(event);
    }
    pthread_mutex_unlock(&file.lock);
    say(status);
    zoff_base_status_restore(&saved);
}

bool zoff_trace_engines_selects(int64_t step, bool *out_last)
{
    pthread_mutex_lock(&file.lock);
    const bool selects = !file.ended && step >= file.spec.first && step <= file.spec.last;
    *out_last = step >= file.spec.last;
    pthread_mutex_unlock(&file.lock);
    return selects;
}

void zoff_trace_engines_open_window(zoff_trace *t, double since)
{
    pthread_mutex_lock(&file.lock);
    t->since = since;
    file.windows += !t->is_open;
    __atomic_store_n(&t->is_open, true, __ATOMIC_RELAXED);
    set_flag();
    pthread_mutex_unlock(&file.lock);
}

void zoff_trace_engines_close_window(zoff_trace *t)
{
    pthread_mutex_lock(&file.lock);
    file.windows -= t->is_open;
    __atomic_store_n(&t->is_open, false, __ATOMIC_RELAXED);
    set_flag();
    pthread_mutex_unlock(&file.lock);
}

void zoff_trace_engines_flush(void)
{
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    pthread_mutex_lock(&file.lock);
    zoff_status status = file.ended ? ZOFF_OK : zoff_trace_writer_flush(&file.writer);
    if (status < 0)
        (void)end_file(status);
    pthread_mutex_unlock(&file.lock);
    say(status);
    zoff_base_status_restore(&saved);
}

uint64_t zoff_trace_engines_next_id(void)
{
    return __atomic_add_fetch(&file.ids, 1, __ATOMIC_RELAXED);
}

/* ---- the life of an engine ---- */

/* Whether the lock and the buffer are copies of a parent that traces; then this child must use neither. */
static bool is_of_parent(void)
{
    const unsigned owner = __atomic_load_n(&file.owner, __ATOMIC_RELAXED);
    return owner && owner != zoff_base_fork_number() + 1;
}

static zoff_trace *make(size_t buckets)
{
    zoff_trace *t;
    if (zoff_base_mem_alloc(1, sizeof *t, "a trace", &t) < 0)
        return NULL;
    if (zoff_base_mem_alloc(buckets ? buckets : 1, sizeof *t->waits, "a trace", &t->waits) < 0) {
        zoff_base_mem_free(t);
        return NULL;
    }
    t->buckets = buckets;
    t->process = zoff_base_fork_number();
    return t;
}

/* Engines of a rank are numbered in the order in which they were sealed. So the files of several ranks can be joined. */
static zoff_status introduce(zoff_trace *t, const zoff_trace_rank *who)
{
    char name[64];
    const unsigned number = ++file.opened;
    t->pid = who->rank * PIDS_OF_A_RANK + number;
    t->serial = ++file.serial;
    if (who->ranks > 1)
        snprintf(name, sizeof name, "zoff engine %u, rank %u of %u", number, who->rank, who->ranks);
    else
        snprintf(name, sizeof name, "zoff engine %u", number);
    return name_it("process", t->pid, 0, name, t->pid);
}

static void discard(zoff_trace *t)
{
    if (t)
        zoff_base_mem_free(t->waits);
    zoff_base_mem_free(t);
}

zoff_trace *zoff_trace_open(const zoff_trace_rank *who, size_t buckets)
{
    const char *value = zoff_base_env_get(ZOFF_ENV_TRACE);
    zoff_saved_error saved;
    if (!value || is_of_parent())
        return NULL;
    zoff_base_status_save(&saved);
    zoff_trace *t = make(buckets);
    zoff_status status = t ? ZOFF_OK : ZOFF_ERR_NO_MEMORY;
    pthread_mutex_lock(&file.lock);
    __atomic_store_n(&file.owner, zoff_base_fork_number() + 1, __ATOMIC_RELAXED);
    if (t)
        status = begin_engine(value, who);
    const bool is_of_use = t && !file.ended;
    file.engines += is_of_use;
    if (is_of_use)
        status = introduce(t, who);
    pthread_mutex_unlock(&file.lock);
    /* One rank reports a bad value, because all ranks have the same variable. */
    if (status != ZOFF_ERR_INVALID || who->rank == 0 || who->are_threads)
        say(status);
    zoff_base_status_restore(&saved);
    if (!is_of_use) {
        discard(t);
        return NULL;
    }
    return t;
}

void zoff_trace_close(zoff_trace *t)
{
    if (!t)
        return;
    if (t->process == zoff_base_fork_number()) {
        zoff_saved_error saved;
        zoff_base_status_save(&saved);
        zoff_trace_engines_close_window(t);
        zoff_trace_engines_flush();
        pthread_mutex_lock(&file.lock);
        zoff_status status = --file.engines ? ZOFF_OK : zoff_trace_writer_close(&file.writer);
        pthread_mutex_unlock(&file.lock);
        say(status);
        zoff_base_status_restore(&saved);
    }
    discard(t);
}
