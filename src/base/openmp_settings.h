/* openmp_settings.h: the settings of the program's OpenMP runtime, if it has one. Private to the files of the team. */
#ifndef ZOFF_BASE_OPENMP_SETTINGS_H
#define ZOFF_BASE_OPENMP_SETTINGS_H

#include "topology.h"

/* Whether the calling thread is in a parallel region of the program, which uses the other cores. */
bool zoff_base_openmp_settings_inside(void);

/* Whether the runtime binds its threads (OMP_PROC_BIND); if so, all CPUs of its places. */
bool zoff_base_openmp_settings_places(zoff_cpus *out);

/* The most threads that the user or the program allows for parallel work, and which of them set it; 0: no limit. */
unsigned zoff_base_openmp_settings_limit(const char **out_who);

#endif
