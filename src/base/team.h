/* SPDX-License-Identifier: Apache-2.0 */
/* team.h: the threads that update. policy.h counts and places them. Each calling thread has a team of its own. */
#ifndef ZOFF_BASE_TEAM_H
#define ZOFF_BASE_TEAM_H

#include "policy.h"

#include <zoff/status.h>

/* The most threads of a team. */
enum { ZOFF_TEAM_MOST = 1024 };

/* Runs on each thread, 0 .. threads-1; thread 0 is the caller. */
typedef void (*zoff_team_fn)(void *ctx, unsigned thread, unsigned threads);

/* The number of threads that a team of `wanted` has. 0: as the policy says, limited by OMP_NUM_THREADS and
 * omp_set_num_threads(). */
unsigned zoff_base_team_threads(unsigned wanted);
/* The number of threads as zoff_base_team_threads(), with its reason, for "%u threads (%s)". */
unsigned zoff_base_team_count(unsigned wanted, const char **out_why);

/* Start the missing threads of the calling thread's team.  @return ERR_NO_MEMORY: the system refuses one; then none was added
 */
zoff_status zoff_base_team_start(unsigned threads);

/* Place threads near a NUMA node; -1 has no say. This has an effect only until a team first runs, because from then on each
 * thread of the process keeps its place. */
void zoff_base_team_prefer(int node);

/* Run fn once on each of `threads` threads and wait for all. Missing threads are started; if the system refuses them, there are
 * fewer. fn is told how many there are. The calling thread works alone inside a parallel region of the caller's program, and in
 * a child that a process with a team forked. It also does so inside a run on threads of the library. Floating point is set as
 * the kernels need it. On a machine with several NUMA nodes a thread is kept on the node of its seat for that time. */
void zoff_base_team_run(unsigned threads, zoff_team_fn fn, void *ctx);

/* Announce more runs: until the call with false, threads poll for 50 us before they sleep. */
void zoff_base_team_hold(bool held);

/* Whether a team of so many threads is awake at this moment: threads of the caller's OpenMP pool that spin and so are the team,
 * or threads of ours that are held. */
bool zoff_base_team_spins(unsigned threads);

/* The table of a watcher that wants to know of each thread's share of a run. It is static. */
typedef struct zoff_team_watch {
    /* On the calling thread, before a run.  @return NULL: this run is not watched; `out_work`: static, what it works on */
    const void *(*who_calls)(const char **out_work);
    /* On each thread, after its share, which began at `from` seconds of the clock. */
    void (*share_is_done)(const void *who, const char *work, unsigned thread, double from);
} zoff_team_watch;
void zoff_base_team_watch(const zoff_team_watch *watch);

/* As zoff_base_team_run(), with the seats of another policy, for tests; NULL leaves the threads where they are. */
void zoff_base_team_run_seated(const zoff_policy *policy, unsigned threads, zoff_team_fn fn, void *ctx);

/* Seconds that a run takes when there is nothing to do; 0 where the calling thread works alone. */
double zoff_base_team_region_seconds(unsigned threads);

#endif
