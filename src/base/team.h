/* team.h: the threads that update. Their number is our own policy, not OMP_NUM_THREADS: one for each physical core that the
 * affinity mask and the cgroup quota allow. */
#ifndef ZOFF_BASE_TEAM_H
#define ZOFF_BASE_TEAM_H

/* What each thread runs: thread 0 .. threads-1; 0 is the caller's own. */
typedef void (*zoff_team_fn)(void *ctx, unsigned thread, unsigned threads);

/* How many threads a team of `wanted` has; 0 means the policy above. */
unsigned zoff_base_team_threads(unsigned wanted);

/* Run fn once on each of `threads` threads and wait for all. Inside a parallel region of the caller's program the runtime
 * may give fewer threads: fn is told how many there are. Floating point is set as the kernels need it. */
void zoff_base_team_run(unsigned threads, zoff_team_fn fn, void *ctx);

#endif
