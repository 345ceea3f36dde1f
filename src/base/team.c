/* SPDX-License-Identifier: Apache-2.0 */
/* team.c: which threads update, how many, and where. docs/adr/0014-threads.md#0040 gives the reasons. */
#include "team.h"

#include "clock.h"
#include "cpu.h"
#include "log.h"
#include "openmp.h"
#include "workers.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Where the threads of this process work, decided once, because a thread that moved between steps would find its pages on
 * another node. This is one of the few pieces of global state, because places belong to the process. */
static struct {
    pthread_once_t once;
    /* seats are used, because there are several nodes, and nobody else has placed the threads */
    bool seated;
    atomic_uint preferred;                /* preferred node + 1; 0: none */
    atomic_bool forked;                   /* this process is a child of one that had a team */
    const zoff_team_watch *_Atomic watch; /* the watch of a trace; NULL: there is none */
    zoff_policy policy;
} placement = {.once = PTHREAD_ONCE_INIT};

/* The CPUs that this process may use. A runtime that places threads has bound the calling thread to one CPU already; then the
 * runtime's places are used. */
static bool allowed_cpus(zoff_cpus *out)
{
    return zoff_base_openmp_settings_places(out) || zoff_base_topology_affinity(out);
}

static bool make_policy(zoff_policy *out)
{
    zoff_cpus cpus;
    zoff_env_ranks ranks;
    if (!allowed_cpus(&cpus))
        return false;
    zoff_base_env_ranks(&ranks);
    zoff_base_policy_make("", &cpus, &ranks, (int)atomic_load(&placement.preferred) - 1, out);
    return true;
}

unsigned zoff_base_team_count(unsigned wanted, const char **out_why)
{
    static const char *const WHY[] = {[ZOFF_POLICY_CORES] = "the cores that this process may use",
                                      [ZOFF_POLICY_QUOTA] = "the cgroup's quota of CPUs",
                                      [ZOFF_POLICY_RANKS] = "this rank's share of the host's cores"};
    zoff_policy policy = {.threads = 1};
    const char *who;
    *out_why = "as it was asked for";
    if (wanted)
        return wanted;
    *out_why = "the kernel does not tell which CPUs this process may use";
    if (make_policy(&policy))
        *out_why = WHY[policy.why];
    else
        ZOFF_WARN("%s: one thread works; set zoff.threads for more", *out_why);
    const unsigned limit = zoff_base_openmp_settings_limit(&who);
    if (!limit || limit >= policy.threads)
        return policy.threads;
    *out_why = who;
    return limit;
}

unsigned zoff_base_team_threads(unsigned wanted)
{
    const char *why;
    return zoff_base_team_count(wanted, &why);
}

void zoff_base_team_prefer(int node)
{
    if (node >= 0 && node < ZOFF_CPUS_MAX)
        atomic_store(&placement.preferred, (unsigned)node + 1);
}

static void remember_fork(void)
{
    atomic_store(&placement.forked, true);
}

static void place(void)
{
    (void)pthread_atfork(NULL, NULL, remember_fork);
    zoff_cpus bound;
    placement.seated = !zoff_base_openmp_settings_places(&bound) && make_policy(&placement.policy) && placement.policy.places;
}

/* Move the calling thread to the node of its seat, within its own mask, so that a thread which somebody has placed elsewhere
 * stays there.
 * @return whether it was moved; then `saved` is its mask before */
static bool take_seat(const zoff_policy *policy, unsigned thread, zoff_cpus *saved)
{
    zoff_cpus seat;
    bool left = false, narrower = false;
    if (!zoff_base_topology_affinity(saved))
        return false;
    zoff_base_policy_seat(policy, thread, &seat);
    for (unsigned i = 0; i < sizeof seat.words / sizeof seat.words[0]; i++) {
        seat.words[i] &= saved->words[i];
        left = left || seat.words[i];
        narrower = narrower || seat.words[i] != saved->words[i];
    }
    return left && narrower && zoff_base_topology_bind(&seat);
}

/* The work of one thread. */
typedef struct part {
    const zoff_policy *policy; /* NULL: threads stay where they are */
    zoff_team_fn fn;
    void *ctx;
    const zoff_team_watch *watch; /* NULL: no run is watched */
    const void *who;              /* argument for watch */
    const char *work;
} part;

void zoff_base_team_watch(const zoff_team_watch *watch)
{
    atomic_store_explicit(&placement.watch, watch, memory_order_release);
}

static void run_part(void *ctx, unsigned thread, unsigned threads)
{
    const part *p = ctx;
    const double from = p->watch ? zoff_base_clock_seconds() : 0;
    zoff_cpus before;
    const bool moved = p->policy && take_seat(p->policy, thread, &before);
    const unsigned saved = zoff_base_cpu_float_enter();
    p->fn(p->ctx, thread, threads);
    zoff_base_cpu_float_leave(saved);
    if (moved)
        (void)zoff_base_topology_bind(&before);
    if (p->watch)
        p->watch->share_is_done(p->who, p->work, thread, from);
}

static void find_watch(part *p)
{
    const zoff_team_watch *watch = atomic_load_explicit(&placement.watch, memory_order_acquire);
    if (!watch)
        return;
    p->who = watch->who_calls(&p->work);
    p->watch = p->who ? watch : NULL;
}

/* Whether the calling thread works alone: it has no team, or must not wait for one. A child of fork() has none of its parent's
 * threads. */
static bool works_alone(unsigned threads)
{
    return threads <= 1 || atomic_load_explicit(&placement.forked, memory_order_relaxed) || zoff_base_openmp_settings_inside();
}

void zoff_base_team_run_seated(const zoff_policy *policy, unsigned threads, zoff_team_fn fn, void *ctx)
{
    part p = {.policy = policy, .fn = fn, .ctx = ctx};
    threads = threads < ZOFF_TEAM_MOST ? threads : ZOFF_TEAM_MOST;
    if (works_alone(threads)) {
        p.policy = NULL;    /* the other threads of the caller's region would all take the same seat */
        run_part(&p, 0, 1); /* no watch, because the run is all the caller's */
        return;
    }
    find_watch(&p);
    if (zoff_base_openmp_awake(threads)) {
        zoff_base_openmp_run(threads, run_part, &p);
    } else {
        zoff_base_workers_run(threads, policy, run_part, &p);
    }
}

void zoff_base_team_run(unsigned threads, zoff_team_fn fn, void *ctx)
{
    if (threads > 1)
        pthread_once(&placement.once, place);
    zoff_base_team_run_seated(placement.seated && threads > 1 ? &placement.policy : NULL, threads, fn, ctx);
}

zoff_status zoff_base_team_start(unsigned threads)
{
    if (works_alone(threads))
        return ZOFF_OK;
    pthread_once(&placement.once, place);
    return zoff_base_workers_start(threads < ZOFF_TEAM_MOST ? threads : ZOFF_TEAM_MOST);
}

void zoff_base_team_hold(bool held)
{
    zoff_base_workers_hold(held);
}

bool zoff_base_team_spins(unsigned threads)
{
    return !works_alone(threads) && (zoff_base_workers_held(threads) || zoff_base_openmp_awake(threads));
}

static void do_nothing(void *ctx, unsigned thread, unsigned threads) {}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double zoff_base_team_region_seconds(unsigned threads)
{
    enum { TRIES = 9 };
    double seconds[TRIES];
    if (works_alone(threads))
        return 0;
    zoff_base_team_run(threads, do_nothing, NULL); /* starts the threads */
    for (int i = 0; i < TRIES; i++) {
        const double start = zoff_base_clock_seconds();
        zoff_base_team_run(threads, do_nothing, NULL);
        seconds[i] = zoff_base_clock_seconds() - start;
    }
    qsort(seconds, TRIES, sizeof *seconds, compare);
    return seconds[TRIES / 2];
}
