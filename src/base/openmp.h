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

/* ---- openmp_settings.c: the settings of that runtime ---- */

/* Whether the calling thread is in a parallel region of the program, which uses the other cores. */
bool zoff_base_openmp_settings_inside(void);

/* Whether the runtime binds its threads (OMP_PROC_BIND); if so, all CPUs of its places. */
bool zoff_base_openmp_settings_places(zoff_cpus *out);

/* The most threads that the user or the program allows for parallel work, and which of them set it; 0: no limit. */
unsigned zoff_base_openmp_settings_limit(const char **out_who);

#endif
