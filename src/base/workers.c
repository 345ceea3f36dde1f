/* SPDX-License-Identifier: Apache-2.0 */
/* workers.c: a team of threads that sleep in a futex. The owner publishes a run with one store and one system call, and works
 * on its own share. It sleeps if the others finish much later.
 *
 * Linux does not always wake a worker on a CPU that is free. On virtual machines it takes halted CPUs for busy ones, and then
 * runs the worker on the CPU of its owner, after the owner's share. A worker that finds itself there moves to another CPU. */
#include "workers.h"

#include "clock.h"
#include "cpu.h"
#include "log.h"
#include "mem.h"
#include "openmp.h"
#include "topology.h"
#include "try.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    THREAD_BITS = 11,        /* bits of a word for the number of threads of its run; the other bits count runs */
    POLLS = 16,              /* polls between two looks at the clock */
    STACK_BYTES = 512 << 10, /* small, because 1,000 threads must not need gigabytes of address space */
    STACK_BYTES_MOST = 1 << 30,
};
#define OWNER_SLEEPS (1u << 31) /* bit in `left` */

/* How long to poll before sleep: about as long as a sleeping thread needs to wake up. A fixed number of polls would be 5 us on
 * one CPU and 50 us on another, because CPUs pause for different times. */
static const double POLL_SECONDS = 50e-6;

typedef struct worker {
    struct zoff_workers *team;
    unsigned thread; /* number of the worker, from 1 */
    uint64_t seen;   /* the word at the time when the worker was started */
    atomic_bool leaves;
    pthread_t id;
    zoff_elsewhere elsewhere;
} worker;

/* Padding separates data that different threads write. */
typedef struct zoff_workers {
    atomic_uint_fast64_t word; /* changes with each run */
    zoff_team_fn fn;
    void *ctx;
    atomic_bool held;
    int owner_cpu; /* CPU of the owner in this run; below 0: workers may run there */
    char after_word[64];
    atomic_uint asleep; /* workers that sleep in their futex, or are about to */
    char after_asleep[64];
    atomic_uint left; /* workers that have not finished this run */
    char after_left[64];
    pid_t process; /* the process that has the workers */
    unsigned count;
    bool runs;    /* the owner is in a run */
    bool refused; /* the system has refused a worker: do not ask again in each run */
    uint64_t wakes;
    worker *workers[ZOFF_TEAM_MOST];
} zoff_workers;
_Static_assert(sizeof(atomic_uint_fast64_t) == 8, "a futex is the lower half of a word");
_Static_assert(ZOFF_TEAM_MOST < 1 << THREAD_BITS, "the number of threads fits into its part of a word");

/* The team of a thread ends with the thread. */
static struct {
    pthread_once_t once;
    pthread_key_t key;
    bool made;
} owners = {.once = PTHREAD_ONCE_INIT};
static _Thread_local zoff_workers *mine;

static long futex(const void *word, int operation, uint32_t value, uint32_t set)
{
    return syscall(SYS_futex, word, operation | FUTEX_PRIVATE_FLAG, value, NULL, NULL, set);
}

/* The half of a word that changes with each run. */
static const void *low_half(const zoff_workers *team)
{
    const char *word = (const char *)&team->word;
    return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? word + 4 : word;
}

/* Workers wait with one of 32 bits, so that a small run of a large team wakes few. */
static uint32_t bit_of(unsigned thread)
{
    return 1u << (thread - 1) % 32;
}

static uint32_t bits_below(unsigned threads)
{
    return threads - 1 >= 32 ? FUTEX_BITSET_MATCH_ANY : (1u << (threads - 1)) - 1;
}

/* Wait for the next word after `seen`. A worker counts itself asleep before its last check. So if an owner counts no sleeper,
 * its word was published before that check. */
static uint64_t await(zoff_workers *team, unsigned thread, uint64_t seen)
{
    uint64_t word = atomic_load_explicit(&team->word, memory_order_acquire);
    const double until = zoff_base_clock_seconds() + POLL_SECONDS;
    while (word == seen && atomic_load_explicit(&team->held, memory_order_relaxed) && zoff_base_clock_seconds() < until) {
        for (unsigned i = 0; word == seen && i < POLLS; i++) {
            zoff_base_cpu_pause();
            word = atomic_load_explicit(&team->word, memory_order_acquire);
        }
    }
    if (word != seen)
        return word;
    atomic_fetch_add(&team->asleep, 1);
    while ((word = atomic_load(&team->word)) == seen)
        (void)futex(low_half(team), FUTEX_WAIT_BITSET, (uint32_t)seen, bit_of(thread));
    atomic_fetch_sub(&team->asleep, 1);
    return word;
}

/* If this worker runs on the CPU of its owner, the owner has done its share, or another thread has taken the CPU from it. */
static void leave_owner(worker *self)
{
    const int owner = self->team->owner_cpu;
    if (owner < 0)
        zoff_base_topology_come_back(&self->elsewhere);
    else if (sched_getcpu() == owner)
        (void)zoff_base_topology_keep_off(&self->elsewhere, (unsigned)owner);
}

static void *work(void *ctx)
{
    worker *self = ctx;
    zoff_workers *team = self->team;
    uint64_t seen = self->seen;
    for (;;) {
        seen = await(team, self->thread, seen);
        if (atomic_load(&self->leaves))
            return NULL;
        const unsigned threads = seen & ((1u << THREAD_BITS) - 1);
        if (self->thread >= threads)
            continue;
        leave_owner(self);
        team->fn(team->ctx, self->thread, threads);
        if (atomic_fetch_sub_explicit(&team->left, 1, memory_order_acq_rel) == (OWNER_SLEEPS | 1))
            (void)futex(&team->left, FUTEX_WAKE, 1, 0);
    }
}

static void publish(zoff_workers *team, unsigned threads)
{
    const uint64_t before = atomic_load_explicit(&team->word, memory_order_relaxed);
    atomic_store(&team->word, ((before >> THREAD_BITS) + 1) << THREAD_BITS | threads);
    if (atomic_load(&team->asleep))
        (void)futex(low_half(team), FUTEX_WAKE_BITSET, INT32_MAX, bits_below(threads));
}

static void wait_for_all(zoff_workers *team)
{
    unsigned left = atomic_load_explicit(&team->left, memory_order_acquire);
    const double until = zoff_base_clock_seconds() + POLL_SECONDS;
    while (left && zoff_base_clock_seconds() < until) {
        for (unsigned i = 0; left && i < POLLS; i++) {
            zoff_base_cpu_pause();
            left = atomic_load_explicit(&team->left, memory_order_acquire);
        }
    }
    if (!left)
        return;
    /* Without this mask Linux would wake the worker on the CPU of the worker that wakes it. */
    zoff_cpus all;
    const bool stays = zoff_base_topology_affinity(&all) && zoff_base_topology_stay();
    left = atomic_fetch_or(&team->left, OWNER_SLEEPS) | OWNER_SLEEPS;
    while (left != OWNER_SLEEPS) {
        (void)futex(&team->left, FUTEX_WAIT, left, 0);
        left = atomic_load_explicit(&team->left, memory_order_acquire);
    }
    if (stays)
        (void)zoff_base_topology_bind(&all);
}

/* End the workers behind the first `kept`; no run is active. */
static void stop(zoff_workers *team, unsigned kept)
{
    for (unsigned i = kept; i < team->count; i++)
        atomic_store(&team->workers[i]->leaves, true);
    if (team->count > kept) {
        publish(team, 1); /* a run without workers, so that each checks once */
        (void)futex(low_half(team), FUTEX_WAKE_BITSET, INT32_MAX, FUTEX_BITSET_MATCH_ANY);
    }
    while (team->count > kept) {
        worker *last = team->workers[--team->count];
        pthread_join(last->id, NULL);
        zoff_base_mem_free(last);
    }
}

static int start_thread(worker *w)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int error = pthread_attr_init(&attributes);
    if (error)
        return error;
    /* A runtime that binds threads has bound the calling one to a CPU; its workers may use all places of the runtime. */
    zoff_cpus places;
    if (zoff_base_openmp_settings_places(&places))
        (void)pthread_attr_setaffinity_np(&attributes, sizeof places.words, (const cpu_set_t *)(const void *)places.words);
    /* Block all signals, because they are for the program's threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    /* Each thread's stack also holds the thread-local data of the program and its libraries. Where it is too small for them,
     * the answer is EINVAL, and nothing tells the size that would do. */
    const long least = sysconf(_SC_THREAD_STACK_MIN);
    size_t bytes = STACK_BYTES + (least > 0 ? (size_t)least : 0);
    do {
        (void)pthread_attr_setstacksize(&attributes, bytes);
        error = pthread_create(&w->id, &attributes, work, w);
        bytes *= 2;
    } while (error == EINVAL && bytes <= STACK_BYTES_MOST);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static zoff_status add_worker(zoff_workers *team, unsigned wanted)
{
    worker *w;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *w, "a thread of the team", &w));
    w->team = team;
    w->thread = team->count + 1;
    w->seen = atomic_load_explicit(&team->word, memory_order_relaxed);
    const int error = start_thread(w);
    if (error) {
        zoff_base_mem_free(w);
        return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY,
                                     "thread %u of a team of %u could not be started: %s; set zoff.threads to at most %u, or "
                                     "raise the limit of threads (ulimit -u, ulimit -v, pids.max of the cgroup)",
                                     team->count + 2, wanted, zoff_base_status_errno(error), team->count + 1);
    }
    (void)pthread_setname_np(w->id, ZOFF_TEAM_NAME);
    team->workers[team->count++] = w;
    return ZOFF_OK;
}

static zoff_status grow(zoff_workers *team, unsigned threads)
{
    const unsigned before = team->count;
    zoff_status status = ZOFF_OK;
    while (status == ZOFF_OK && team->count + 1 < threads)
        status = add_worker(team, threads);
    if (status == ZOFF_OK)
        return ZOFF_OK;
    ZOFF_KEEP_ERROR(stop(team, before));
    return status;
}

/* The owner ends. A child of fork() has no workers to wait for. */
static void leave(void *ctx)
{
    zoff_workers *team = ctx;
    if (team->process == getpid())
        stop(team, 0);
    zoff_base_mem_free(team);
    mine = NULL;
}

static void make_key(void)
{
    owners.made = pthread_key_create(&owners.key, leave) == 0;
}

static zoff_status own_team(zoff_workers **out)
{
    zoff_workers *team = mine;
    if (!team) {
        pthread_once(&owners.once, make_key);
        ZOFF_FAIL_IF(!owners.made, ZOFF_ERR_NO_MEMORY, "no key for a thread's team: the process has PTHREAD_KEYS_MAX of them");
        ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *team, "a team of threads", &team));
        team->process = getpid();
        if (pthread_setspecific(owners.key, team) != 0) {
            zoff_base_mem_free(team);
            return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY, "no memory for a team of threads");
        }
        mine = team;
    }
    *out = team;
    return ZOFF_OK;
}

zoff_status zoff_base_workers_start(unsigned threads)
{
    zoff_workers *team = NULL;
    if (threads < 2)
        return ZOFF_OK;
    ZOFF_TRY(own_team(&team));
    team->refused = false;
    return grow(team, threads);
}

bool zoff_base_workers_available(unsigned count)
{
    zoff_workers *team = NULL;
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    bool available = zoff_base_mem_alloc(1, sizeof *team, "a team of threads", &team) == ZOFF_OK;
    if (available) {
        available = grow(team, count + 1) == ZOFF_OK;
        stop(team, 0);
        zoff_base_mem_free(team);
    }
    zoff_base_status_restore(&saved);
    return available;
}

/* The team for a run; NULL if this thread works alone. The caller's last error is preserved. */
static zoff_workers *team_for(unsigned threads)
{
    zoff_workers *team = mine;
    if (team && (team->count + 1 >= threads || team->refused))
        return team;
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    if (own_team(&team) == ZOFF_OK && grow(team, threads) < 0) {
        ZOFF_WARN("%s; %u work instead", zoff_last_error(), team->count + 1);
        team->refused = true;
    }
    zoff_base_status_restore(&saved);
    return team;
}

void zoff_base_workers_run(unsigned threads, bool seated, zoff_team_fn fn, void *ctx)
{
    /* The owner's share may itself run something: a store that is polled between two pieces computes a checksum. A second run
     * would overwrite the count of workers that the first one waits for, so it stays on this thread. */
    zoff_workers *team = threads > 1 && !(mine && mine->runs) ? team_for(threads) : NULL;
    const unsigned most = team ? team->count + 1 : 1;
    threads = threads < most ? threads : most;
    if (threads < 2) {
        fn(ctx, 0, 1);
        return;
    }
    team->fn = fn;
    team->ctx = ctx;
    team->wakes++;
    team->runs = true;
    team->owner_cpu = seated ? -1 : sched_getcpu();
    atomic_store_explicit(&team->left, threads - 1, memory_order_relaxed);
    publish(team, threads);
    fn(ctx, 0, threads);
    wait_for_all(team);
    team->runs = false;
}

void zoff_base_workers_hold(bool held)
{
    if (mine)
        atomic_store_explicit(&mine->held, held, memory_order_relaxed);
}

bool zoff_base_workers_held(unsigned threads)
{
    return mine && mine->count + 1 >= threads && atomic_load_explicit(&mine->held, memory_order_relaxed);
}

uint64_t zoff_base_workers_wakes(void)
{
    return mine ? mine->wakes : 0;
}
