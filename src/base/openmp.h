/* openmp.h: the threads of the program's OpenMP runtime, where it has one. The library brings none and links none. Private to
 * the files of the team. */
#ifndef ZOFF_BASE_OPENMP_H
#define ZOFF_BASE_OPENMP_H

#include "team.h"

/* Whether the calling thread's pool has exactly so many threads and they spin at this moment. Such threads hold the cores that
 * workers of our own would need, for milliseconds: so they are the team. */
bool zoff_base_openmp_awake(unsigned threads);

/* Run fn on them. */
void zoff_base_openmp_run(unsigned threads, zoff_team_fn fn, void *ctx);

#endif
