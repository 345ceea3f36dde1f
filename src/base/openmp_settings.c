/* SPDX-License-Identifier: Apache-2.0 */
/* openmp_settings.c: the program's OpenMP runtime, if it has one, and the settings of user and program for it. */
#include "openmp.h"

#include "clock.h"
#include "env.h"

#include <dlfcn.h>
#include <string.h>

/* Set a function of the table.  @return whether it is there */
static bool find_one(void *out_function, const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);
    memcpy(out_function, &found, sizeof found); /* ISO C has no cast from an object pointer to a function pointer */
    return found;
}

static bool find_all(zoff_openmp *out)
{
    return find_one(&out->in_parallel, "omp_in_parallel") && find_one(&out->parallel, "GOMP_parallel") &&
           find_one(&out->thread_num, "omp_get_thread_num") && find_one(&out->num_threads, "omp_get_num_threads") &&
           find_one(&out->max_threads, "omp_get_max_threads") && find_one(&out->num_procs, "omp_get_num_procs") &&
           find_one(&out->proc_bind, "omp_get_proc_bind") && find_one(&out->num_places, "omp_get_num_places") &&
           find_one(&out->place_num_procs, "omp_get_place_num_procs") &&
           find_one(&out->place_proc_ids, "omp_get_place_proc_ids");
}

/* Pause between looks of a thread that find nothing. */
static const double LOOK_SECONDS = 64e-3;

/* The dynamic linker keeps a library loaded once a symbol of it was found, so what is found stays valid. A look that finds
 * nothing takes 0.5 us, or 2.5 us in a program with 150 libraries, so only those that ask seldom look each time. */
static const zoff_openmp *find(bool at_once)
{
    static _Thread_local struct {
        zoff_openmp runtime;
        bool is_there;
        double next; /* time of the next look */
    } known;
    if (known.is_there)
        return &known.runtime;
    if (!at_once) {
        const double now = zoff_base_clock_seconds();
        if (now < known.next)
            return NULL;
        known.next = now + LOOK_SECONDS;
    }
    known.is_there = find_all(&known.runtime);
    if (!known.is_there)
        (void)dlerror(); /* the program's next dlerror() must not report this look */
    return known.is_there ? &known.runtime : NULL;
}

const zoff_openmp *zoff_base_openmp_settings_find(void)
{
    return find(false);
}

bool zoff_base_openmp_settings_inside(void)
{
    const zoff_openmp *runtime = zoff_base_openmp_settings_find();
    return runtime && runtime->in_parallel();
}

bool zoff_base_openmp_settings_places(zoff_cpus *out)
{
    const zoff_openmp *runtime = find(true);
    if (!runtime || runtime->proc_bind() == 0 || runtime->num_places() <= 0)
        return false;
    *out = (zoff_cpus){0};
    for (int place = 0; place < runtime->num_places(); place++) {
        int ids[ZOFF_CPUS_MAX];
        const int count = runtime->place_num_procs(place);
        if (count < 0 || count > ZOFF_CPUS_MAX)
            return false;
        runtime->place_proc_ids(place, ids);
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
    const zoff_openmp *runtime = find(true);
    if (runtime) {
        const int now = runtime->max_threads();
        if (now > 0 && (unsigned)now != set) {
            program = now < runtime->num_procs() ? (unsigned)now : 0;
            user = 0; /* the program has set another number since */
        }
    }
    *out_who = program ? "omp_set_num_threads()" : user ? "OMP_NUM_THREADS" : NULL;
    return program ? program : user;
}
