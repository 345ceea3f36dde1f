/* SPDX-License-Identifier: Apache-2.0 */
/* progress_thread.c: a thread that advances an engine while its program computes. Gradients are downloaded, sent to other
 * ranks, summed and measured; states and weights are read. With zoff.background_threads it also updates, while a step is open,
 * and buckets ahead of the next one.
 *
 * An engine has one owner at a time. Every public call holds the engine's lock from its first statement to its return, and the
 * thread holds it during each poll. So no other code has to consider the thread, and it cannot affect results. The lock is
 * recursive, for calls that use other calls. Without a progress thread there is no lock. The end of a call also keeps the text
 * of its error, because the program may ask for it on another thread. */
#include "engine_priv.h"

#include "clock.h"
#include "fork.h"
#include "log.h"
#include "try.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    NAP_NS = 200000,      /* pause between two polls, while something is in flight */
    SLICE_NS = 100000000, /* longest slice that Linux accepts */
    QUEUE_MOST = 64       /* most gradients in the queue; if more come, zoff_grad_ready() waits for the thread */
};

/* A queue of gradients that were handed over while the thread was at work, because zoff_grad_ready() must not wait for it. The
 * next owner of the engine takes them: the thread, or a call of the program. */
typedef struct grad_queue {
    pthread_mutex_t lock;
    zoff_handed_over list[QUEUE_MOST];
    atomic_uint count;   /* changes only with `lock` held */
    atomic_bool is_open; /* changes only with `lock` held, so the thread that has closed the queue sees all that is in it */
    /* The engine's lock guards these fields: gradients that could not be taken and are tried again, and the last error. */
    zoff_handed_over failed[QUEUE_MOST];
    unsigned failed_count;
    zoff_status fault;
    zoff_saved_error words;
} grad_queue;

/* Buckets whose weights the program uses, and which are noted when a call next has the engine. Uses the lock of the queue. */
typedef struct use_queue {
    zoff_slice_buckets list[QUEUE_MOST];
    atomic_uint count;
} use_queue;

struct zoff_progress_thread {
    pid_t process; /* the process in which the thread runs */
    zoff_engine *engine;
    zoff_engine_background calls;
    pthread_t thread;
    pthread_mutex_t lock; /* recursive; robust */
    pthread_cond_t work;
    bool stopping, sleeps;
    atomic_uint callers; /* calls of the program that wait for the lock */
    grad_queue queue;
    use_queue uses;
};

/* A thread of the program may end inside a call, for example in tests where ranks are threads that die. The lock is then
 * recovered, and the engine can still be destroyed. */
static void heal(zoff_progress_thread *c, int error)
{
    if (error != EOWNERDEAD)
        return;
    pthread_mutex_consistent(&c->lock);
    c->stopping = true; /* a call was interrupted, so nothing may be continued */
}

/* A child of fork() has a copy of the lock, which may be held forever, and no thread. It can only destroy the engine. */
static bool is_inherited(const zoff_progress_thread *c)
{
    return c->process != getpid();
}

static void lock(zoff_progress_thread *c)
{
    heal(c, pthread_mutex_lock(&c->lock));
}

/* Whether another try may succeed. After a wrong call it never does, and the gradient is not kept. */
static bool may_pass(zoff_status status)
{
    return status != ZOFF_ERR_STATE && status != ZOFF_ERR_INVALID;
}

static void take_part(zoff_progress_thread *c)
{
    grad_queue *q = &c->queue;
    zoff_handed_over list[QUEUE_MOST];
    pthread_mutex_lock(&q->lock);
    /* Gradients that failed before come first. New ones follow, as many as still fit into `list`. */
    const unsigned again = q->failed_count, count = atomic_load(&q->count), fits = QUEUE_MOST - again;
    const unsigned new = count < fits ? count : fits;
    memcpy(list, q->failed, again * sizeof *list);
    memcpy(list + again, q->list, new * sizeof *list);
    memmove(q->list, q->list + new, (count - new) * sizeof *list);
    atomic_store(&q->count, count - new);
    pthread_mutex_unlock(&q->lock);
    q->failed_count = 0;
    q->fault = again ? ZOFF_OK : q->fault;
    for (unsigned i = 0; i < again + new; i++) {
        const zoff_status status = c->calls.receive(c->engine, &list[i]);
        if (status >= 0)
            continue;
        if (may_pass(status))
            q->failed[q->failed_count++] = list[i];
        q->fault = zoff_base_status_prefix(status, "a gradient that was handed over before: ");
        zoff_base_status_save(&q->words);
    }
}

/* Note the uses of buckets in a step. Those before it are dropped, because its order is that of the waits in it. */
static void note_uses(zoff_progress_thread *c)
{
    const zoff_engine *e = c->engine;
    const bool counts = e->life.phase == ZOFF_PHASE_OPEN && e->run.last;
    pthread_mutex_lock(&c->queue.lock);
    for (unsigned i = 0; counts && i < atomic_load(&c->uses.count); i++)
        zoff_transfer_walk_use(&c->engine->transfer, c->uses.list[i]);
    atomic_store(&c->uses.count, 0);
    pthread_mutex_unlock(&c->queue.lock);
}

/* Take all gradients of the queue, until one fails. Call with the engine's lock held. */
static void take_queued(zoff_progress_thread *c)
{
    if (atomic_load(&c->uses.count))
        note_uses(c);
    if (c->queue.failed_count)
        take_part(c);
    while (atomic_load(&c->queue.count) && !c->queue.failed_count)
        take_part(c);
}

static void open_queue(zoff_progress_thread *c, bool is_open)
{
    pthread_mutex_lock(&c->queue.lock);
    atomic_store(&c->queue.is_open, is_open);
    pthread_mutex_unlock(&c->queue.lock);
}

static void forget_queued(zoff_progress_thread *c)
{
    pthread_mutex_lock(&c->queue.lock);
    atomic_store(&c->queue.count, 0);
    pthread_mutex_unlock(&c->queue.lock);
    c->queue.failed_count = 0;
    c->queue.fault = ZOFF_OK;
}

bool zoff_engine_progress_thread_leaves(zoff_engine *e, const zoff_handed_over *gradient)
{
    zoff_progress_thread *c = e ? e->threads.progress : NULL;
    if (!c || is_inherited(c) || !atomic_load(&c->queue.is_open))
        return false;
    const int error = pthread_mutex_trylock(&c->lock);
    if (error != EBUSY) {
        heal(c, error);
        pthread_mutex_unlock(&c->lock);
        return false;
    }
    pthread_mutex_lock(&c->queue.lock);
    const unsigned count = atomic_load(&c->queue.count);
    const bool fits = atomic_load(&c->queue.is_open) && count < QUEUE_MOST;
    if (fits) {
        c->queue.list[count] = *gradient;
        atomic_store(&c->queue.count, count + 1);
    }
    pthread_mutex_unlock(&c->queue.lock);
    return fits;
}

bool zoff_engine_progress_thread_notes(const zoff_engine *e, zoff_slice_buckets used)
{
    zoff_progress_thread *c = e->threads.progress;
    if (!c || is_inherited(c))
        return false;
    pthread_mutex_lock(&c->queue.lock);
    const unsigned count = atomic_load(&c->uses.count);
    const bool fits = count < QUEUE_MOST;
    if (fits) {
        c->uses.list[count] = used;
        atomic_store(&c->uses.count, count + 1);
    }
    pthread_mutex_unlock(&c->queue.lock);
    return fits;
}

zoff_status zoff_engine_progress_thread_fault(const zoff_engine *e)
{
    zoff_progress_thread *c = e->threads.progress;
    const zoff_status status = c ? c->queue.fault : ZOFF_OK;
    if (status == ZOFF_OK)
        return ZOFF_OK;
    zoff_base_status_restore(&c->queue.words);
    c->queue.fault = c->queue.failed_count ? status : ZOFF_OK;
    return status;
}

void zoff_engine_progress_thread_forget(const zoff_engine *e)
{
    if (e->threads.progress)
        forget_queued(e->threads.progress);
}

zoff_entered zoff_engine_progress_thread_enter(const zoff_engine *e)
{
    zoff_engine *own = (zoff_engine *)(uintptr_t)e;
    zoff_entered entered = {.engine = own, .errors = zoff_base_status_count()};
    if (!e || !e->threads.progress || is_inherited(e->threads.progress))
        return entered;
    entered.is_locked = true;
    zoff_progress_thread *c = e->threads.progress;
    const int error = pthread_mutex_trylock(&c->lock);
    if (error != EBUSY) {
        heal(c, error);
        take_queued(c);
        return entered;
    }
    const double from = zoff_base_clock_seconds();
    atomic_fetch_add(&c->callers, 1);
    lock(c);
    atomic_fetch_sub(&c->callers, 1);
    take_queued(c);
    own->run.clock.queued += zoff_base_clock_seconds() - from;
    return entered;
}

/* The call may have started operations: wake the thread. Where the thread itself makes a call, the program does not see it
 * fail, and may be reading the text. */
void zoff_engine_progress_thread_leave(const zoff_entered *entered)
{
    zoff_engine *e = entered->engine;
    if (!e)
        return;
    if (entered->errors != zoff_base_status_count() && !(entered->is_locked && e->threads.in_progress))
        zoff_base_status_save(&e->life.error);
    if (!entered->is_locked)
        return;
    zoff_progress_thread *c = e->threads.progress;
    if (c->sleeps)
        pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
}

const char *zoff_engine_error(const zoff_engine *e)
{
    return e ? e->life.error.text : zoff_last_error();
}

bool zoff_engine_progress_thread_yields(const zoff_engine *e)
{
    const zoff_progress_thread *c = e->threads.progress;
    return e->threads.in_progress && (atomic_load(&c->callers) > 0 || atomic_load(&c->queue.count) > 0);
}

/* Call with the lock held. A failed step is left alone until the program decides.  @return whether something is in flight */
static bool look(zoff_engine *e)
{
    if (e->life.phase == ZOFF_PHASE_FAILED)
        return false;
    zoff_progress_thread *c = e->threads.progress;
    const unsigned background = e->settings.values.background_threads;
    e->threads.in_progress = true;
    e->transfer.threads.now = background ? background : 1; /* because the program's threads are busy */
    const bool accepts = e->life.phase == ZOFF_PHASE_IDLE && !e->life.is_untold;
    open_queue(c, accepts && e->settings.values.background_threads && (e->walk.speculation.places || e->walk.measures_early));
    const zoff_status status = c->calls.progress(e);
    open_queue(c, false);
    e->transfer.threads.now = e->transfer.threads.team;
    e->threads.in_progress = false;
    return status == ZOFF_PENDING;
}

/* Let threads of the program that wake up run at once, also where this thread and its team keep all cores busy: Linux from 6.12
 * on prefers a thread with a shorter slice. Its share of the cores stays the same. A lower priority would be worse: a call of
 * the program that waits for the engine would wait for a thread that others keep from running. */
static void ask_for_long_slices(void)
{
    struct sched_attributes {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period; /* nanoseconds; for a thread of the default policy, `runtime` is the slice */
    } attributes = {.size = sizeof attributes};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0 || attributes.policy != SCHED_OTHER)
        return;
    attributes.size = sizeof attributes;
    attributes.runtime = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

static void sleep_until_call(zoff_progress_thread *c)
{
    c->sleeps = true;
    heal(c, pthread_cond_wait(&c->work, &c->lock));
    c->sleeps = false;
}

/* A call that waits for the engine gets it before the next turn, and wakes this thread when it returns. */
static void *conduct(void *ctx)
{
    zoff_progress_thread *c = ctx;
    zoff_trace_name_thread("background thread");
    ask_for_long_slices(); /* the thread starts a team, which needs them as well */
    lock(c);
    while (!c->stopping) {
        const bool waits = look(c->engine);
        const bool is_waiting = atomic_load(&c->queue.count);
        if (atomic_load(&c->callers)) {
            sleep_until_call(c);
        } else if (is_waiting && !c->queue.failed_count) {
            take_queued(c);
        } else if (waits || is_waiting) {
            pthread_mutex_unlock(&c->lock);
            nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
            lock(c);
        } else {
            sleep_until_call(c);
        }
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

bool zoff_engine_progress_thread_is_child(const zoff_engine *e)
{
    if (!e || !e->store || e->life.process == zoff_base_fork_number())
        return false;
    const bool streams_weights = e->lending.store && e->settings.values.weights.tier == ZOFF_TIER_NVME;
    return e->settings.tier == ZOFF_TIER_NVME || streams_weights;
}

static void free_thread(zoff_progress_thread *c)
{
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->queue.lock);
    pthread_mutex_destroy(&c->lock);
    zoff_base_mem_free(c);
}

/* Only the progress thread waits on the condition, and it never holds the lock twice. So a recursive lock is safe here. */
static zoff_status make(zoff_engine *e, const zoff_engine_background *calls, zoff_progress_thread **out)
{
    zoff_progress_thread *c;
    pthread_mutexattr_t kind;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *c, "the progress thread", &c));
    c->process = getpid();
    c->engine = e;
    c->calls = *calls;
    pthread_mutexattr_init(&kind);
    pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&c->lock, &kind);
    pthread_mutexattr_destroy(&kind);
    pthread_mutex_init(&c->queue.lock, NULL);
    pthread_cond_init(&c->work, NULL);
    *out = c;
    return ZOFF_OK;
}

zoff_status zoff_engine_progress_thread_check(const zoff_engine *e)
{
    const zoff_comm *norm = e->agreement.norm.ranks.comm; /* background threads vote on the norm */
    const bool one_thread = e->comm->one_thread || (norm && norm->one_thread && e->settings.values.background_threads);
    ZOFF_FAIL_IF(e->settings.progress_thread && one_thread, ZOFF_ERR_UNSUPPORTED,
                 "zoff_engine_opts.progress_thread or zoff.background_threads: the communicator may be used by the program's "
                 "threads only; start MPI with "
                 "MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...), or call zoff_engine_progress() from time to time");
    return ZOFF_OK;
}

static void say_that_there_is_none(const char *why)
{
    ZOFF_WARN("the progress thread could not be started: %s; the engine advances only inside calls", why);
}

/* Start the thread. If that fails, the engine goes on without it, because it is sealed already, also on other ranks. */
void zoff_engine_progress_thread_start(zoff_engine *e, const zoff_engine_background *calls)
{
    sigset_t all, before;
    zoff_progress_thread *c;
    if (!e->settings.progress_thread)
        return;
    if (make(e, calls, &c) < 0) {
        say_that_there_is_none(zoff_last_error());
        return;
    }
    e->threads.progress = c; /* the pointer is set before the start, because the thread reads it at once */
    /* Signals are for the program's threads, so the progress thread blocks all. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&c->thread, NULL, conduct, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error) {
        e->threads.progress = NULL;
        free_thread(c);
        say_that_there_is_none(zoff_base_status_errno(error));
        return;
    }
    (void)pthread_setname_np(c->thread, "zoff-progress");
}

void zoff_engine_progress_thread_stop(zoff_engine *e)
{
    zoff_progress_thread *c = e->threads.progress;
    if (!c || is_inherited(c))
        return;
    lock(c);
    c->stopping = true;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    e->threads.progress = NULL;
    free_thread(c);
}
