/* openmp_settings.c: the settings of user and program for the program's OpenMP runtime, if it has one. */
#include "openmp.h"

#include "env.h"

#include <string.h>

/* Weak: NULL if the program has no OpenMP. */
#define WEAK __attribute__((weak))
WEAK extern int omp_get_max_threads(void);
WEAK extern int omp_get_num_procs(void);
WEAK extern int omp_in_parallel(void);
WEAK extern int omp_get_proc_bind(void);
WEAK extern int omp_get_num_places(void);
WEAK extern int omp_get_place_num_procs(int place);
WEAK extern void omp_get_place_proc_ids(int place, int *ids);

bool zoff_base_openmp_settings_inside(void)
{
    return omp_in_parallel && omp_in_parallel();
}

bool zoff_base_openmp_settings_places(zoff_cpus *out)
{
    if (!omp_get_proc_bind || !omp_get_num_places || !omp_get_place_num_procs || !omp_get_place_proc_ids ||
        omp_get_proc_bind() == 0 || omp_get_num_places() <= 0)
        return false;
    *out = (zoff_cpus){0};
    for (int place = 0; place < omp_get_num_places(); place++) {
        int ids[ZOFF_CPUS_MAX];
        const int count = omp_get_place_num_procs(place);
        if (count < 0 || count > ZOFF_CPUS_MAX)
            return false;
        omp_get_place_proc_ids(place, ids);
        for (int i = 0; i < count; i++)
            zoff_base_topology_add(out, (unsigned)ids[i]);
    }
    return true;
}

unsigned zoff_base_openmp_settings_limit(const char **out_who)
{
    unsigned user = zoff_base_env_omp_threads(), program = 0;
    const unsigned set = user;
    zoff_env_ranks ranks;
    zoff_base_env_ranks(&ranks);
    /* torchrun sets 1 for ranks whose user has set nothing. */
    if (user == 1 && ranks.count > 1 && ranks.launcher && strcmp(ranks.launcher, "torchrun") == 0)
        user = 0;
    if (omp_get_max_threads && omp_get_num_procs) {
        const int now = omp_get_max_threads();
        if (now > 0 && (unsigned)now != set) {
            program = now < omp_get_num_procs() ? (unsigned)now : 0;
            user = 0; /* the program has set another number since */
        }
    }
    *out_who = program ? "omp_set_num_threads()" : user ? "OMP_NUM_THREADS" : NULL;
    return program ? program : user;
}
