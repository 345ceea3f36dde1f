/* cores.c: affinity. */
#include "cores.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>

/* The first hardware thread of a CPU's core; the CPU itself where the system does not tell. */
static int first_sibling(int cpu)
{
    char path[96];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    FILE *file = fopen(path, "re");
    if (file && fscanf(file, "%d", &first) != 1)
        first = cpu;
    if (file)
        fclose(file);
    return first;
}

unsigned bench_cores_allowed(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? (unsigned)CPU_COUNT(&allowed) : 0;
}

unsigned bench_cores_pin(unsigned wanted)
{
    cpu_set_t allowed, cores, chosen;
    unsigned taken = 0;
    CPU_ZERO(&cores);
    CPU_ZERO(&chosen);
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return 0;
    for (int pass = 0; pass < 2; pass++) { /* one thread of each core; then the others, when so many are asked for */
        for (int cpu = 0; cpu < CPU_SETSIZE && (!wanted || taken < wanted); cpu++) {
            const size_t core = (size_t)first_sibling(cpu);
            if (!CPU_ISSET((size_t)cpu, &allowed) || CPU_ISSET((size_t)cpu, &chosen) || (pass == 0 && CPU_ISSET(core, &cores)))
                continue;
            if (pass == 1 && !wanted)
                break;
            CPU_SET(core, &cores);
            CPU_SET((size_t)cpu, &chosen);
            taken++;
        }
    }
    errno = 0;
    if (taken < wanted)
        return 0;
    return sched_setaffinity(0, sizeof chosen, &chosen) == 0 ? taken : 0;
}
