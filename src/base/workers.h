/* workers.h: threads of our own that sleep until the thread that owns them runs a team. Each calling thread owns its workers:
 * callers share nothing and never wait for one another. Private to team.c. */
#ifndef ZOFF_BASE_WORKERS_H
#define ZOFF_BASE_WORKERS_H

#include "team.h"

/* What workers are called, 9 letters. */
#define ZOFF_TEAM_NAME "zoff-team"

/* Start what a team of so many threads lacks. ERR_NO_MEMORY when the system refuses a thread; then none was added. */
zoff_status zoff_base_workers_start(unsigned threads);

/* Run fn on this thread, which is thread 0, and on workers. Where the system refuses workers there are fewer threads; fn is
 * told how many. */
void zoff_base_workers_run(unsigned threads, zoff_team_fn fn, void *ctx);

/* Until the same call with false, workers of this thread poll some microseconds for the next run before they sleep. */
void zoff_base_workers_hold(bool held);

/* Whether this thread has workers for such a team, and they are held. */
bool zoff_base_workers_held(unsigned threads);

/* Runs so far in which this thread woke workers. */
uint64_t zoff_base_workers_wakes(void);

/* Whether the system gives `count` more threads now: they are started, and end. */
bool zoff_base_workers_available(unsigned count);

#endif
