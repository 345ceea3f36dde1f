/* SPDX-License-Identifier: Apache-2.0 */
/* workers.h: threads that sleep until their owner runs a team. Each calling thread owns its workers. Callers share nothing and
 * never wait for one another. Private to team.c. */
#ifndef ZOFF_BASE_WORKERS_H
#define ZOFF_BASE_WORKERS_H

#include "team.h"

/* Name of the worker threads, 9 letters. */
#define ZOFF_TEAM_NAME "zoff-team"

/* Start the workers that a team of this size lacks.  @return ERR_NO_MEMORY: the system refuses a thread; then none was added */
zoff_status zoff_base_workers_start(unsigned threads);

/* Run fn on this thread, as thread 0, and on workers. If the system refuses workers, there are fewer threads; fn gets their
 * number. A run inside a run of this thread stays on this thread. `seated`: fn places each thread. Otherwise a worker keeps off
 * the CPU of this thread. */
void zoff_base_workers_run(unsigned threads, bool seated, zoff_team_fn fn, void *ctx);

/* true: workers of this thread poll 50 us for the next run before they sleep. false ends that. */
void zoff_base_workers_hold(bool held);

/* Whether this thread has held workers for a team of this size. */
bool zoff_base_workers_held(unsigned threads);

/* Runs so far in which this thread woke workers. */
uint64_t zoff_base_workers_wakes(void);

/* Whether the system would give `count` more threads now. They are started, and end. */
bool zoff_base_workers_available(unsigned count);

#endif
