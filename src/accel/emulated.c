/* SPDX-License-Identifier: Apache-2.0 */
/* emulated.c: a device made of threads. Each stream is a thread with a queue, and device memory is process memory. So an
 * engine's work with a device runs on any machine, under any schedule. A wait that is missing becomes a data race, which
 * ThreadSanitizer reports.
 *
 * To find those, the device must add no order of its own. So each queue and each event has its own lock, and there is no other.
 */
#include "accel.h"

#include "array.h"
#include "mem.h"
#include "try.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* ---- kernels: the stream's thread runs the CPU's on a copy of the list, with copies of its constants and factors ---- */

/* A copy of a list in a stream; one of the five kinds. */
typedef struct work {
    size_t count;
    zoff_adam_piece *updates;
    zoff_adam_consts *consts; /* constants by piece */
    zoff_accumulate_piece *sums;
    float *factors; /* factors of all pieces, one after the other */
    zoff_bins_piece *bins;
    zoff_bins *parts; /* parts of all pieces, one after the other */
    zoff_cast_piece *casts;
    zoff_norm_piece *norms;
} work;

static void free_work(work *w)
{
    void *blocks[] = {w->updates, w->consts, w->sums, w->factors, w->bins, w->parts, w->casts, w->norms};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        zoff_base_mem_free(blocks[i]);
    zoff_base_mem_free(w);
}

/* Run the work in the stream's thread. */
static void run_kernels(void *ctx)
{
    work *w = ctx;
    if (w->updates)
        zoff_adam_update_run(1, w->updates, w->count, NULL, NULL);
    if (w->sums)
        zoff_adam_accumulate_run(1, w->sums, w->count, NULL, NULL);
    if (w->bins)
        zoff_adam_bins_run(1, w->bins, w->count, NULL, NULL);
    if (w->casts)
        zoff_adam_cast_run(1, w->casts, w->count);
    if (w->norms)
        zoff_adam_norm_run(1, w->norms, w->count, NULL, NULL);
    free_work(w);
}

static zoff_status copy_of(const void *list, size_t count, size_t bytes, void *out_copy)
{
    void *copy;
    ZOFF_TRY(zoff_base_mem_alloc(count, bytes, "the work of a stream", &copy));
    memcpy(copy, list, count * bytes);
    memcpy(out_copy, &copy, sizeof copy);
    return ZOFF_OK;
}

/* Begin a work; an empty list gives none. */
static zoff_status begin_list(size_t count, work **out)
{
    *out = NULL;
    if (count == 0)
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof **out, "the work of a stream", out));
    (*out)->count = count;
    return ZOFF_OK;
}

/* Enqueue a work, if the list could be copied. */
static zoff_status finish(zoff_accel *accel, void *stream, work *w, zoff_status status)
{
    if (status == ZOFF_OK)
        status = accel->ops->streams.call(accel, stream, run_kernels, w);
    if (status < 0)
        free_work(w);
    return status;
}

static zoff_status copy_updates(work *w, const zoff_adam_piece *pieces)
{
    ZOFF_TRY(copy_of(pieces, w->count, sizeof *pieces, &w->updates));
    ZOFF_TRY(zoff_base_mem_alloc(w->count, sizeof *w->consts, "the work of a stream", &w->consts));
    for (size_t i = 0; i < w->count; i++) {
        w->consts[i] = *pieces[i].consts;
        w->updates[i].consts = &w->consts[i];
    }
    return ZOFF_OK;
}

static size_t sources_of(const zoff_accumulate_piece *piece)
{
    return piece->sources ? piece->sources : 1;
}

static zoff_status copy_sums(work *w, const zoff_accumulate_piece *pieces)
{
    size_t factors = 0;
    ZOFF_TRY(copy_of(pieces, w->count, sizeof *pieces, &w->sums));
    for (size_t i = 0; i < w->count; i++)
        factors += pieces[i].weights ? sources_of(&pieces[i]) : 0;
    ZOFF_TRY(zoff_base_mem_alloc(factors + 1, sizeof *w->factors, "the work of a stream", &w->factors));
    factors = 0;
    for (size_t i = 0; i < w->count; i++) {
        if (!pieces[i].weights)
            continue;
        memcpy(w->factors + factors, pieces[i].weights, sources_of(&pieces[i]) * sizeof(float));
        w->sums[i].weights = w->factors + factors;
        factors += sources_of(&pieces[i]);
    }
    return ZOFF_OK;
}

static zoff_status copy_bins(work *w, const zoff_bins_piece *pieces)
{
    size_t factors = 0, parts = 0;
    ZOFF_TRY(copy_of(pieces, w->count, sizeof *pieces, &w->bins));
    for (size_t i = 0; i < w->count; i++) {
        factors += pieces[i].weights ? pieces[i].sources : 0;
        parts += pieces[i].part_count;
    }
    ZOFF_TRY(zoff_base_mem_alloc(factors + 1, sizeof *w->factors, "the work of a stream", &w->factors));
    ZOFF_TRY(zoff_base_mem_alloc(parts + 1, sizeof *w->parts, "the work of a stream", &w->parts));
    factors = parts = 0;
    for (size_t i = 0; i < w->count; i++) {
        const zoff_bins_piece *p = &pieces[i];
        for (size_t source = 0; p->weights && source < p->sources; source++)
            w->factors[factors + source] = p->weights[source];
        for (size_t part = 0; part < p->part_count; part++)
            w->parts[parts + part] = p->parts[part];
        w->bins[i].weights = p->weights ? w->factors + factors : NULL;
        w->bins[i].parts = w->parts + parts;
        factors += p->weights ? p->sources : 0;
        parts += p->part_count;
    }
    return ZOFF_OK;
}

static zoff_status device_update(zoff_accel *accel, void *stream, const zoff_adam_piece *pieces, size_t count)
{
    work *w;
    ZOFF_TRY(begin_list(count, &w));
    return w ? finish(accel, stream, w, copy_updates(w, pieces)) : ZOFF_OK;
}

static zoff_status device_accumulate(zoff_accel *accel, void *stream, const zoff_accumulate_piece *pieces, size_t count)
{
    work *w;
    ZOFF_TRY(begin_list(count, &w));
    return w ? finish(accel, stream, w, copy_sums(w, pieces)) : ZOFF_OK;
}

static zoff_status device_bins(zoff_accel *accel, void *stream, const zoff_bins_piece *pieces, size_t count)
{
    work *w;
    ZOFF_FAIL_IF(!zoff_accel_bins_fit(pieces, count), ZOFF_ERR_INVALID, ZOFF_ACCEL_BINS_REFUSAL);
    ZOFF_TRY(begin_list(count, &w));
    return w ? finish(accel, stream, w, copy_bins(w, pieces)) : ZOFF_OK;
}

static zoff_status device_cast(zoff_accel *accel, void *stream, const zoff_cast_piece *pieces, size_t count)
{
    work *w;
    ZOFF_TRY(begin_list(count, &w));
    return w ? finish(accel, stream, w, copy_of(pieces, count, sizeof *pieces, &w->casts)) : ZOFF_OK;
}

static zoff_status device_square_sum(zoff_accel *accel, void *stream, const zoff_norm_piece *pieces, size_t count)
{
    work *w;
    ZOFF_TRY(begin_list(count, &w));
    return w ? finish(accel, stream, w, copy_of(pieces, count, sizeof *pieces, &w->norms)) : ZOFF_OK;
}

typedef enum job_kind { COPY, ZERO, CALL, RECORD, AWAIT, STOP } job_kind;

/* A moment in a stream. Its last user frees it. */
typedef struct point {
    pthread_mutex_t lock;
    pthread_cond_t passed;
    bool is_reached;
    /* The stream until it passes the point, the streams that wait for it, and the event that was recorded there. */
    unsigned users;
} point;

/* The point of the last record; NULL: never recorded. A waiting stream waits for the point that was the last when it asked. */
typedef struct event {
    pthread_mutex_t lock;
    point *latest;
} event;

typedef struct job {
    job_kind kind;
    void *dst;
    const void *src;
    size_t bytes;
    void (*run)(void *ctx);
    void *ctx;
    point *point;
} job;

typedef struct stream {
    pid_t process; /* the process that has the thread */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    job *jobs; /* `count` jobs, taken from `next` on; the array restarts at 0 when all are taken */
    size_t next, count, capacity;
} stream;

/* A device, in which several engines may allocate at the same time. */
typedef struct emulated_accel {
    zoff_accel accel;
    atomic_size_t allocated_bytes;
    pthread_mutex_t lock;   /* guards the next field */
    stream *default_stream; /* NULL until it is first used */
} emulated_accel;

static emulated_accel *of(zoff_accel *accel)
{
    return (emulated_accel *)accel;
}

/* ---- points, and events that mean them ---- */

static zoff_status make_point(bool is_reached, point **out)
{
    point *p;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *p, "a point in a stream", &p));
    pthread_mutex_init(&p->lock, NULL); /* with default attributes neither can fail */
    pthread_cond_init(&p->passed, NULL);
    p->is_reached = is_reached;
    p->users = 1;
    *out = p;
    return ZOFF_OK;
}

static void join(point *p)
{
    pthread_mutex_lock(&p->lock);
    p->users++;
    pthread_mutex_unlock(&p->lock);
}

static void leave(point *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    const bool is_last = --p->users == 0;
    pthread_mutex_unlock(&p->lock);
    if (!is_last)
        return;
    pthread_cond_destroy(&p->passed);
    pthread_mutex_destroy(&p->lock);
    zoff_base_mem_free(p);
}

static void reach(point *p)
{
    pthread_mutex_lock(&p->lock);
    p->is_reached = true;
    pthread_cond_broadcast(&p->passed);
    pthread_mutex_unlock(&p->lock);
}

static void wait_for(point *p)
{
    pthread_mutex_lock(&p->lock);
    while (!p->is_reached)
        pthread_cond_wait(&p->passed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

/* Take one more reference to the event's point.  @return NULL: there is none */
static point *latest_of(event *e)
{
    pthread_mutex_lock(&e->lock);
    point *p = e->latest;
    if (p)
        join(p);
    pthread_mutex_unlock(&e->lock);
    return p;
}

static zoff_status emulated_event_open(zoff_accel *accel, void **out)
{
    event *e;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *e, "an event", &e));
    pthread_mutex_init(&e->lock, NULL);
    *out = e;
    return ZOFF_OK;
}

static void emulated_event_close(zoff_accel *accel, void *handle)
{
    event *e = handle;
    leave(e->latest);
    pthread_mutex_destroy(&e->lock);
    zoff_base_mem_free(e);
}

static zoff_status emulated_event_poll(zoff_accel *accel, void *handle)
{
    point *p = latest_of(handle);
    if (!p)
        return ZOFF_OK;
    pthread_mutex_lock(&p->lock);
    const bool is_reached = p->is_reached;
    pthread_mutex_unlock(&p->lock);
    leave(p);
    return is_reached ? ZOFF_OK : ZOFF_PENDING;
}

/* ---- streams ---- */

static job take(stream *s)
{
    pthread_mutex_lock(&s->lock);
    while (s->next == s->count)
        pthread_cond_wait(&s->work, &s->lock);
    const job taken = s->jobs[s->next++];
    if (s->next == s->count)
        s->next = s->count = 0;
    pthread_mutex_unlock(&s->lock);
    return taken;
}

static void *run_stream(void *ctx)
{
    stream *s = ctx;
    for (;;) {
        const job j = take(s);
        switch (j.kind) {
        case COPY:
            memcpy(j.dst, j.src, j.bytes);
            break;
        case ZERO:
            memset(j.dst, 0, j.bytes);
            break;
        case CALL:
            j.run(j.ctx);
            break;
        case RECORD:
            reach(j.point);
            leave(j.point);
            break;
        case AWAIT:
            wait_for(j.point);
            leave(j.point);
            break;
        case STOP:
            return NULL;
        }
    }
}

/* Make room for one job, and for the job that stops the stream: stopping must not need memory. */
static zoff_status make_room(stream *s)
{
    if (s->next && s->count + 2 > s->capacity) {
        memmove(s->jobs, s->jobs + s->next, (s->count - s->next) * sizeof *s->jobs);
        s->count -= s->next;
        s->next = 0;
    }
    return zoff_base_array_reserve(&s->jobs, s->count, &s->capacity, s->count + 2, sizeof *s->jobs, "a stream's queue");
}

static zoff_status put(stream *s, job j)
{
    pthread_mutex_lock(&s->lock);
    zoff_status status = make_room(s);
    if (status == ZOFF_OK) {
        s->jobs[s->count++] = j;
        pthread_cond_signal(&s->work);
    }
    pthread_mutex_unlock(&s->lock);
    return status;
}

static void free_stream(stream *s)
{
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    zoff_base_mem_free(s->jobs);
    zoff_base_mem_free(s);
}

static zoff_status make_stream(stream **out)
{
    stream *s;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *s, "a stream", &s));
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->work, NULL);
    s->process = getpid();
    zoff_status status = make_room(s);
    if (status < 0)
        free_stream(s);
    ZOFF_TRY(status);
    *out = s;
    return ZOFF_OK;
}

static zoff_status emulated_stream_open(zoff_accel *accel, void **out)
{
    sigset_t all, before;
    stream *s;
    ZOFF_TRY(make_stream(&s));
    /* Block all signals, because they are for the program's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&s->thread, NULL, run_stream, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        free_stream(s);
        return zoff_base_status_fail(ZOFF_ERR_DEVICE, "cannot start the thread of a stream of accelerator \"emulated\": %s",
                                     zoff_base_status_errno(error));
    }
    (void)pthread_setname_np(s->thread, "zoff-stream");
    *out = s;
    return ZOFF_OK;
}

static void emulated_stream_close(zoff_accel *accel, void *handle)
{
    stream *s = handle;
    if (s->process != getpid())
        return; /* a child of fork() has a copy without a thread, so the lock may be held for ever */
    pthread_mutex_lock(&s->lock);
    /* make_room() has left room for one more job. */
    s->jobs[s->count++] = (job){.kind = STOP};
    pthread_cond_signal(&s->work);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    free_stream(s);
}

/* The stream of a handle. The first use opens the default stream. */
static zoff_status find_stream(zoff_accel *accel, void *handle, stream **out)
{
    emulated_accel *a = of(accel);
    void *opened;
    zoff_status status = ZOFF_OK;
    *out = handle;
    if (handle != ZOFF_STREAM_DEFAULT)
        return ZOFF_OK;
    pthread_mutex_lock(&a->lock);
    if (!a->default_stream && (status = emulated_stream_open(accel, &opened)) == ZOFF_OK)
        a->default_stream = opened;
    *out = a->default_stream;
    pthread_mutex_unlock(&a->lock);
    return status;
}

static zoff_status put_in(zoff_accel *accel, void *handle, job j)
{
    stream *s;
    ZOFF_TRY(find_stream(accel, handle, &s));
    return put(s, j);
}

static zoff_status emulated_stream_call(zoff_accel *accel, void *s, void (*run)(void *ctx), void *ctx)
{
    return put_in(accel, s, (job){.kind = CALL, .run = run, .ctx = ctx});
}

static zoff_status emulated_copy(zoff_accel *accel, void *s, void *dst, const void *src, size_t bytes)
{
    return put_in(accel, s, (job){.kind = COPY, .dst = dst, .src = src, .bytes = bytes});
}

static zoff_status emulated_zero(zoff_accel *accel, void *s, void *dst, size_t bytes)
{
    return put_in(accel, s, (job){.kind = ZERO, .dst = dst, .bytes = bytes});
}

/* ---- an event in a stream ---- */

static zoff_status put_point(zoff_accel *accel, void *s, job_kind kind, point *p)
{
    join(p);
    zoff_status status = put_in(accel, s, (job){.kind = kind, .point = p});
    if (status < 0)
        leave(p);
    return status;
}

/* Record an event. If the job cannot be enqueued, the event keeps its last record. */
static zoff_status emulated_event_record(zoff_accel *accel, void *handle, void *s)
{
    event *e = handle;
    point *p;
    ZOFF_TRY(make_point(!s, &p));
    zoff_status status = s ? put_point(accel, s, RECORD, p) : ZOFF_OK;
    if (status < 0) {
        leave(p);
        return status;
    }
    pthread_mutex_lock(&e->lock);
    point *before = e->latest;
    e->latest = p;
    pthread_mutex_unlock(&e->lock);
    leave(before);
    return ZOFF_OK;
}

static zoff_status emulated_event_await(zoff_accel *accel, void *s, void *handle)
{
    point *p = latest_of(handle);
    zoff_status status = p ? put_point(accel, s, AWAIT, p) : ZOFF_OK;
    leave(p);
    return status;
}

/* ---- the device ---- */

zoff_status zoff_accel_emulated_open(int index, zoff_accel **out)
{
    ZOFF_FAIL_IF(index < 0, ZOFF_ERR_INVALID, "accelerator \"emulated\" numbers its devices from 0; %d was asked for", index);
    emulated_accel *a;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *a, "an emulated accelerator", &a));
    a->accel = (zoff_accel){.ops = &zoff_accel_emulated_ops, .index = index};
    pthread_mutex_init(&a->lock, NULL);
    *out = &a->accel;
    return ZOFF_OK;
}

static void emulated_close(zoff_accel *accel)
{
    if (of(accel)->default_stream)
        emulated_stream_close(accel, of(accel)->default_stream);
    pthread_mutex_destroy(&of(accel)->lock);
    zoff_base_mem_free(accel);
}

static int emulated_numa_node(const zoff_accel *accel)
{
    return -1;
}

/* A copy by a thread needs no pinned pages. */
static zoff_status emulated_pin(zoff_accel *accel, void *memory, size_t bytes)
{
    return ZOFF_OK;
}

static void emulated_unpin(zoff_accel *accel, void *memory) {}

static void *emulated_mapped(zoff_accel *accel, void *memory)
{
    return memory;
}

static void emulated_get_info(const zoff_accel *accel, zoff_accel_info *out)
{
    out->name = "threads of this process";
    out->allocated_bytes = atomic_load(&((const emulated_accel *)accel)->allocated_bytes);
}

/* The head in front of a block of memory. */
typedef struct block_head {
    void *origin;
    size_t bytes;
} block_head;

static zoff_status emulated_alloc(zoff_accel *accel, size_t bytes, void **out)
{
    const size_t beside = sizeof(block_head) + ZOFF_ACCEL_ALIGN;
    char *origin;
    ZOFF_FAIL_IF(bytes > SIZE_MAX - beside, ZOFF_ERR_NO_MEMORY, "an emulated device cannot have %zu bytes", bytes);
    ZOFF_TRY(zoff_base_mem_alloc(bytes + beside, 1, "an emulated device", &origin));
    char *base = origin + sizeof(block_head);
    base += ZOFF_ACCEL_ALIGN - (uintptr_t)base % ZOFF_ACCEL_ALIGN;
    ((block_head *)(void *)base)[-1] = (block_head){.origin = origin, .bytes = bytes};
    memset(base, 0xa5, bytes); /* fill the memory, so that nobody relies on zeros */
    atomic_fetch_add(&of(accel)->allocated_bytes, bytes);
    *out = base;
    return ZOFF_OK;
}

static void emulated_free(zoff_accel *accel, void *memory)
{
    if (!memory)
        return;
    const block_head *head = (block_head *)memory - 1;
    atomic_fetch_sub(&of(accel)->allocated_bytes, head->bytes);
    zoff_base_mem_free(head->origin);
}

/* Do nothing, because no profiler knows this device. */
static void emulated_range_begin(zoff_accel *accel, const char *stage, uint64_t bucket) {}

static void emulated_range_end(zoff_accel *accel) {}

const zoff_accel_ops zoff_accel_emulated_ops = {
    .name = "emulated",
    .close = emulated_close,
    .numa_node = emulated_numa_node,
    .get_info = emulated_get_info,
    .pages = {.pin = emulated_pin, .unpin = emulated_unpin, .mapped = emulated_mapped},
    .alloc = emulated_alloc,
    .free = emulated_free,
    .streams = {.open = emulated_stream_open, .close = emulated_stream_close, .call = emulated_stream_call},
    .copy = emulated_copy,
    .zero = emulated_zero,
    .kernels = {.update = device_update,
                .accumulate = device_accumulate,
                .bins = device_bins,
                .cast = device_cast,
                .square_sum = device_square_sum},
    .ranges = {.begin = emulated_range_begin, .end = emulated_range_end},
    .event_open = emulated_event_open,
    .event_close = emulated_event_close,
    .event_record = emulated_event_record,
    .event_await = emulated_event_await,
    .event_poll = emulated_event_poll};
