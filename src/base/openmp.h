/* openmp.h: the OpenMP runtime of the program, where it has one. The library brings none and links none. Private to the files
 * of the team. */
#ifndef ZOFF_BASE_OPENMP_H
#define ZOFF_BASE_OPENMP_H

#include "team.h"

/* Whether the calling thread is in a parallel region of the program: then the other cores are busy with that region. */
bool zoff_base_openmp_inside(void);

/* Whether the runtime binds its threads (OMP_PROC_BIND); then all CPUs of its places. */
bool zoff_base_openmp_places(zoff_cpus *out);

/* The most threads that the user or the program wants for parallel work, and who said so; 0 where nobody did. */
unsigned zoff_base_openmp_limit(const char **out_who);

/* Whether the calling thread's pool has exactly so many threads and they spin at this moment. Such threads hold the cores that
 * workers of our own would need, for milliseconds: so they are the team. */
bool zoff_base_openmp_awake(unsigned threads);

/* Run fn on them. */
void zoff_base_openmp_run(unsigned threads, zoff_team_fn fn, void *ctx);

#endif
