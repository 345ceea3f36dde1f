/* SPDX-License-Identifier: Apache-2.0 */
/* openmp.h: the threads of the program's OpenMP runtime, if it has one. The library links no runtime. Private to the files of
 * the team. */
#ifndef ZOFF_BASE_OPENMP_H
#define ZOFF_BASE_OPENMP_H

#include "team.h"

/* Whether the calling thread's pool has exactly this many threads and they spin now. Such threads occupy for milliseconds the
 * cores that our own workers would need, so they become the team. */
bool zoff_base_openmp_awake(unsigned threads);

/* Run fn on the threads of that pool. */
void zoff_base_openmp_run(unsigned threads, zoff_team_fn fn, void *ctx);

/* ---- openmp_settings.c: that runtime, and its settings ---- */

/* The functions of that runtime. */
typedef struct zoff_openmp {
    void (*parallel)(void (*fn)(void *), void *ctx, unsigned threads, unsigned flags); /* GOMP_parallel() */
    int (*thread_num)(void), (*num_threads)(void), (*max_threads)(void), (*in_parallel)(void);
    int (*num_procs)(void), (*proc_bind)(void), (*num_places)(void), (*place_num_procs)(int place);
    void (*place_proc_ids)(int place, int *ids);
} zoff_openmp;

/* Find the runtime. A library that brings one may be loaded after this one, so a thread that has found none looks again
 * after 64 ms.
 * @return valid as long as the thread; NULL: there is none */
const zoff_openmp *zoff_base_openmp_settings_find(void);

/* Whether the calling thread is in a parallel region of the program, which uses the other cores. */
bool zoff_base_openmp_settings_inside(void);

/* Whether the runtime binds its threads (OMP_PROC_BIND); if so, all CPUs of its places. */
bool zoff_base_openmp_settings_places(zoff_cpus *out);

/* The most threads that the user or the program allows for parallel work, and which of them set it; 0: no limit. */
unsigned zoff_base_openmp_settings_limit(const char **out_who);

#endif
