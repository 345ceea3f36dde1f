/* openmp_settings.h: what the OpenMP runtime of the program was told, where it has one. Private to the files of the team. */
#ifndef ZOFF_BASE_OPENMP_SETTINGS_H
#define ZOFF_BASE_OPENMP_SETTINGS_H

#include "topology.h"

/* Whether the calling thread is in a parallel region of the program: then the other cores are busy with that region. */
bool zoff_base_openmp_settings_inside(void);

/* Whether the runtime binds its threads (OMP_PROC_BIND); then all CPUs of its places. */
bool zoff_base_openmp_settings_places(zoff_cpus *out);

/* The most threads that the user or the program wants for parallel work, and who said so; 0 where nobody did. */
unsigned zoff_base_openmp_settings_limit(const char **out_who);

#endif
