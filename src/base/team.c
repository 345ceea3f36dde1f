/* team.c: the update team, an OpenMP region with an explicit thread count: the caller's own pool, so that its threads and ours
 * are the same and never compete. */
#include "team.h"

#include "clock.h"
#include "cpu.h"
#include "log.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Where the threads of this process work, decided once: a thread that moved from one step to the next would find its pages on
 * another node. One of the few pieces of global state: the pool is the process's, and so are its threads' places. */
static struct {
    pthread_once_t once;
    bool seated;           /* several nodes, and nobody else has placed the threads */
    atomic_uint preferred; /* node + 1; 0 for none */
    atomic_bool forked;    /* this process is a child of one that had a team */
    zoff_policy policy;
} placement = {.once = PTHREAD_ONCE_INIT};

/* With OMP_PROC_BIND the OpenMP runtime places the threads. */
static bool runtime_places(void)
{
    return omp_get_proc_bind() != omp_proc_bind_false && omp_get_num_places() > 0;
}

/* The CPUs that this process may use. A runtime that places threads has bound the calling one to one of them before anybody
 * could look; then its places tell. */
static bool allowed_cpus(zoff_cpus *out)
{
    if (!runtime_places())
        return zoff_base_topology_affinity(out);
    *out = (zoff_cpus){0};
    for (int place = 0; place < omp_get_num_places(); place++) {
        int ids[ZOFF_CPUS_MAX];
        int count = omp_get_place_num_procs(place);
        if (count < 0 || count > ZOFF_CPUS_MAX)
            return false;
        omp_get_place_proc_ids(place, ids);
        for (int i = 0; i < count; i++)
            zoff_base_topology_add(out, (unsigned)ids[i]);
    }
    return true;
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

unsigned zoff_base_team_threads(unsigned wanted)
{
    zoff_policy policy;
    if (wanted)
        return wanted;
    if (make_policy(&policy))
        return policy.threads;
    ZOFF_WARN("the kernel does not tell which CPUs this process may use: one thread works; set zoff.threads for more");
    return 1;
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
    placement.seated = !runtime_places() && make_policy(&placement.policy) && placement.policy.places;
}

/* Keep the calling thread on the node of its seat, as far as its own mask reaches: a thread that somebody has put elsewhere
 * stays there. Whether it was moved; then `saved` is its mask before. */
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

static void run_one(zoff_team_fn fn, void *ctx, unsigned thread, unsigned threads)
{
    unsigned saved = zoff_base_cpu_float_enter();
    fn(ctx, thread, threads);
    zoff_base_cpu_float_leave(saved);
}

void zoff_base_team_run_seated(const zoff_policy *policy, unsigned threads, zoff_team_fn fn, void *ctx)
{
    /* In a region of the caller's, our team may be its thread alone, and all of its threads may be here: they would all take
     * the same seat. */
    if (omp_get_level() > 0)
        policy = NULL;
#pragma omp parallel num_threads((int)threads)
    {
        zoff_cpus saved;
        const unsigned thread = (unsigned)omp_get_thread_num();
        const bool moved = policy && take_seat(policy, thread, &saved);
        run_one(fn, ctx, thread, (unsigned)omp_get_num_threads());
        if (moved)
            (void)zoff_base_topology_bind(&saved);
    }
}

void zoff_base_team_run(unsigned threads, zoff_team_fn fn, void *ctx)
{
    if (threads > 1)
        pthread_once(&placement.once, place);
    /* A child of fork() has none of the pool's threads, but libgomp would wait for them, for ever. */
    if (threads <= 1 || atomic_load_explicit(&placement.forked, memory_order_relaxed))
        run_one(fn, ctx, 0, 1);
    else
        zoff_base_team_run_seated(placement.seated ? &placement.policy : NULL, threads, fn, ctx);
}

static void do_nothing(void *ctx, unsigned thread, unsigned threads)
{
    (void)ctx;
    (void)thread;
    (void)threads;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double zoff_base_team_region_seconds(unsigned threads)
{
    enum { TRIES = 9 };
    double seconds[TRIES];
    if (omp_get_level() > 0)
        return 0;
    zoff_base_team_run(threads, do_nothing, NULL); /* starts them */
    for (int i = 0; i < TRIES; i++) {
        const double start = zoff_base_clock_seconds();
        zoff_base_team_run(threads, do_nothing, NULL);
        seconds[i] = zoff_base_clock_seconds() - start;
    }
    qsort(seconds, TRIES, sizeof *seconds, compare);
    return seconds[TRIES / 2];
}
