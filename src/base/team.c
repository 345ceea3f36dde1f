/* team.c: the update team, an OpenMP region with an explicit thread count. */
#include "team.h"

#include "bits.h"
#include "budget.h"
#include "cpu.h"

#include <omp.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>

/* Whether `cpu` is the first hardware thread of its core among those in the mask. */
static int is_first_of_core(int cpu, const cpu_set_t *mask)
{
    char path[128];
    char list[256];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *f = fopen(path, "re");
    if (!f)
        return 1;
    int first = 1;
    if (fgets(list, sizeof list, f)) {
        /* "0,32" or "0-1": any sibling below us in the mask makes us the second. */
        int from = 0, to = 0, used = 0;
        for (const char *p = list; sscanf(p, "%d%n", &from, &used) == 1;) {
            p += used;
            to = from;
            if (*p == '-' && sscanf(p + 1, "%d%n", &to, &used) == 1)
                p += used + 1;
            for (int sibling = from; sibling <= to && sibling < cpu; sibling++)
                first = first && !CPU_ISSET((size_t)sibling, mask);
            if (*p != ',')
                break;
            p++;
        }
    }
    fclose(f);
    return first;
}

/* The CPUs that this process may use. With OMP_PROC_BIND the OpenMP runtime has bound the calling thread to one of them before
 * anybody could look; then its places tell. */
static bool allowed_cpus(cpu_set_t *out)
{
    if (omp_get_proc_bind() == omp_proc_bind_false || omp_get_num_places() <= 0)
        return sched_getaffinity(0, sizeof *out, out) == 0;
    CPU_ZERO(out);
    for (int place = 0; place < omp_get_num_places(); place++) {
        int ids[CPU_SETSIZE];
        int count = omp_get_place_num_procs(place);
        if (count < 0 || count > CPU_SETSIZE)
            return false;
        omp_get_place_proc_ids(place, ids);
        for (int i = 0; i < count; i++) {
            if (ids[i] >= 0 && ids[i] < CPU_SETSIZE)
                CPU_SET((size_t)ids[i], out);
        }
    }
    return true;
}

unsigned zoff_base_team_threads(unsigned wanted)
{
    if (wanted)
        return wanted;
    cpu_set_t mask;
    unsigned cores = 0;
    if (allowed_cpus(&mask)) {
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (CPU_ISSET((size_t)cpu, &mask))
                cores += (unsigned)is_first_of_core(cpu, &mask);
        }
    }
    cores = cores ? cores : 1;
    unsigned quota = zoff_base_budget_cpus();
    return quota ? (unsigned)zoff_base_bits_min(cores, quota) : cores;
}

void zoff_base_team_run(unsigned threads, zoff_team_fn fn, void *ctx)
{
    if (threads <= 1) {
        unsigned saved = zoff_base_cpu_float_enter();
        fn(ctx, 0, 1);
        zoff_base_cpu_float_leave(saved);
        return;
    }
#pragma omp parallel num_threads((int)threads)
    {
        unsigned saved = zoff_base_cpu_float_enter();
        fn(ctx, (unsigned)omp_get_thread_num(), (unsigned)omp_get_num_threads());
        zoff_base_cpu_float_leave(saved);
    }
}
