/* team.h: the threads that update. Their number and place are our own policy, not OMP_NUM_THREADS: policy.h. */
#ifndef ZOFF_BASE_TEAM_H
#define ZOFF_BASE_TEAM_H

#include "policy.h"

/* What each thread runs: thread 0 .. threads-1; 0 is the caller's own. */
typedef void (*zoff_team_fn)(void *ctx, unsigned thread, unsigned threads);

/* How many threads a team of `wanted` has; 0 means the policy. */
unsigned zoff_base_team_threads(unsigned wanted);

/* The NUMA node that threads are to be near; -1 has no say. Heard until a team first runs: from then on each thread of the
 * process keeps its place. */
void zoff_base_team_prefer(int node);

/* Run fn once on each of `threads` threads and wait for all. Inside a parallel region of the caller's program the runtime
 * may give fewer threads: fn is told how many there are. Floating point is set as the kernels need it. On a machine with
 * several NUMA nodes a thread is kept on the node of its seat for that time. In a child that a process with a team forked, the
 * calling thread works alone. */
void zoff_base_team_run(unsigned threads, zoff_team_fn fn, void *ctx);

/* The same with the seats of another policy, for tests; NULL leaves the threads where they are. */
void zoff_base_team_run_seated(const zoff_policy *policy, unsigned threads, zoff_team_fn fn, void *ctx);

/* Seconds that such a run of threads which are awake takes when there is nothing to do; 0 inside a parallel region of the
 * caller's program, where that cannot be known. */
double zoff_base_team_region_seconds(unsigned threads);

#endif
