/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c: pread and pwrite by a few threads of the queue, for kernels and containers that forbid io_uring. Transfers overlap
 * with the caller's work; each costs a switch between threads.
 *
 *      caller:  start -> taken        submit -> todo                         reap <- done
 *      threads:                                 todo -> pread, pwrite -> done
 *
 * One lock guards both lists. It is never held over a system call that moves data. A helper waits only while `todo` is empty,
 * the caller only while `done` is empty. Both check under the lock, so no wake-up is lost. */
#include "backend_priv.h"

#include "bits.h"
#include "log.h"
#include "mem.h"
#include "try.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MOST = 8 };

/* One entry of each list. */
typedef struct place {
    zoff_aio_io *taken, *todo;
    zoff_aio_done done;
} place;

typedef struct threads {
    int fd;
    unsigned depth;
    /* Only the caller uses these fields: */
    unsigned out; /* taken and not returned */
    unsigned taken_count;
    /* The lock guards these fields: */
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    bool stopping, caller_waits;
    unsigned idle;                   /* threads that wait for work */
    unsigned todo_first, todo_count; /* ring of entries, first in, first out */
    atomic_uint done_count;          /* entries of the stack `done`; also read without the lock */
    unsigned thread_count;
    pthread_t threads[THREADS_MOST];
    place places[]; /* array of `depth` places */
} threads;

static int move(int fd, const zoff_aio_io *io)
{
    ssize_t ret = io->writes ? pwrite(fd, io->address, io->bytes, (off_t)io->offset)
                             : pread(fd, io->address, io->bytes, (off_t)io->offset);
    return ret < 0 ? -errno : (int)ret;
}

static void *help(void *ctx)
{
    threads *self = ctx;
    pthread_mutex_lock(&self->lock);
    for (;;) {
        while (!self->todo_count && !self->stopping) {
            self->idle++;
            pthread_cond_wait(&self->work, &self->lock);
            self->idle--;
        }
        if (!self->todo_count)
            break;
        zoff_aio_io *io = self->places[self->todo_first].todo;
        self->todo_first = (self->todo_first + 1) % self->depth;
        self->todo_count--;
        pthread_mutex_unlock(&self->lock);
        int res = move(self->fd, io);
        pthread_mutex_lock(&self->lock);
        self->places[atomic_fetch_add(&self->done_count, 1)].done = (zoff_aio_done){.io = io, .res = res};
        if (self->caller_waits)
            pthread_cond_signal(&self->finished);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

/* Start as many as the system allows. Block all signals, because they are for the program's threads. */
static int start_threads(threads *self, unsigned wanted)
{
    sigset_t all, before;
    int error = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (self->thread_count < wanted && !error) {
        error = pthread_create(&self->threads[self->thread_count], NULL, help, self);
        if (!error)
            (void)pthread_setname_np(self->threads[self->thread_count++], "zoff-aio");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static zoff_status threads_open(int fd, unsigned depth, void **out_self)
{
    threads *self;
    unsigned wanted = depth < THREADS_MOST ? depth : THREADS_MOST;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *self + depth * sizeof self->places[0], "the threads of an I/O queue", &self));
    self->fd = fd;
    self->depth = depth;
    /* With these attributes none of them can fail. */
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->work, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&self->finished, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int error = start_threads(self, wanted);
    if (!self->thread_count) {
        zoff_base_mem_free(self);
        return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED,
                                     "threads for I/O cannot be started: %s; the limit may be RLIMIT_NPROC (ulimit -u) or "
                                     "pids.max of the cgroup (--pids-limit of docker)",
                                     zoff_base_status_errno(error));
    }
    if (error)
        ZOFF_WARN("%u of %u threads for I/O could be started: %s; fewer reads and writes are in flight at a time",
                  self->thread_count, wanted, zoff_base_status_errno(error));
    *out_self = self;
    return ZOFF_OK;
}

static void threads_close(void *ctx, bool inherited)
{
    threads *self = ctx;
    /* A child of fork() has a copy of the lists and no threads. If a thread held the lock, it stays held in the copy. */
    if (!inherited) {
        pthread_mutex_lock(&self->lock);
        self->stopping = true;
        pthread_cond_broadcast(&self->work);
        pthread_mutex_unlock(&self->lock);
        for (unsigned i = 0; i < self->thread_count; i++)
            pthread_join(self->threads[i], NULL);
        pthread_cond_destroy(&self->finished);
        pthread_cond_destroy(&self->work);
        pthread_mutex_destroy(&self->lock);
    }
    zoff_base_mem_free(self);
}

/* pread and pwrite pin no memory, so registering saves nothing. */
static zoff_status threads_register_memory(void *self, void *base, size_t bytes, bool *out_registered)
{
    *out_registered = false;
    return ZOFF_OK;
}

static void threads_start(void *ctx, zoff_aio_io *io)
{
    threads *self = ctx;
    self->places[self->taken_count++].taken = io;
    self->out++;
}

static zoff_status threads_submit(void *ctx)
{
    threads *self = ctx;
    if (!self->taken_count)
        return ZOFF_OK;
    pthread_mutex_lock(&self->lock);
    for (unsigned i = 0; i < self->taken_count; i++)
        self->places[(self->todo_first + self->todo_count++) % self->depth].todo = self->places[i].taken;
    /* A busy thread checks for more work before it waits. */
    for (size_t i = zoff_base_bits_min(self->taken_count, self->idle); i > 0; i--)
        pthread_cond_signal(&self->work);
    pthread_mutex_unlock(&self->lock);
    self->taken_count = 0;
    return ZOFF_OK;
}

static size_t threads_reap(void *ctx, zoff_aio_done *out, size_t capacity)
{
    threads *self = ctx;
    size_t count = 0;
    if (!atomic_load_explicit(&self->done_count, memory_order_relaxed))
        return 0;
    pthread_mutex_lock(&self->lock);
    while (count < capacity && atomic_load(&self->done_count))
        out[count++] = self->places[atomic_fetch_sub(&self->done_count, 1) - 1].done;
    pthread_mutex_unlock(&self->lock);
    self->out -= (unsigned)count;
    return count;
}

static zoff_status threads_wait(void *ctx, double seconds)
{
    threads *self = ctx;
    struct timespec until;
    int late = 0;
    (void)threads_submit(self);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(1e9 * (seconds - (double)(time_t)seconds));
    until.tv_sec += (time_t)seconds + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&self->lock);
    self->caller_waits = true;
    while (self->out && !atomic_load(&self->done_count) && !late)
        late = seconds < 0 ? pthread_cond_wait(&self->finished, &self->lock)
                           : pthread_cond_timedwait(&self->finished, &self->lock, &until);
    self->caller_waits = false;
    pthread_mutex_unlock(&self->lock);
    return ZOFF_OK;
}

const zoff_aio_backend zoff_aio_threads_backend = {
    .name = "threads",
    .open = threads_open,
    .close = threads_close,
    .register_memory = threads_register_memory,
    .start = threads_start,
    .submit = threads_submit,
    .reap = threads_reap,
    .wait = threads_wait,
};
