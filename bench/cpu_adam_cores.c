/* cpu_adam_cores.c: the same CPUs for all contestants. The library's team and the loops beside it have the same number of
 * threads, on one hardware thread of each core. */
#include "cpu_adam_bench.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The first hardware thread of a CPU's core; the CPU itself if the system does not tell. */
static int first_sibling(int cpu)
{
    char path[96];
    int first = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    bench_scan(path, 1, "%d", &first);
    return first;
}

/* Pin the process to `wanted` of its allowed CPUs: first one thread of each core, then the others. 0: one thread of each core.
 * Returns their number; 0 if there are fewer than wanted. */
static unsigned pin(unsigned wanted, const cpu_set_t *allowed)
{
    cpu_set_t cores, chosen;
    unsigned taken = 0;
    CPU_ZERO(&cores);
    CPU_ZERO(&chosen);
    for (int pass = 0; pass < (wanted ? 2 : 1); pass++) {
        for (int cpu = 0; cpu < CPU_SETSIZE && (!wanted || taken < wanted); cpu++) {
            const size_t core = (size_t)first_sibling(cpu);
            if (!CPU_ISSET((size_t)cpu, allowed) || CPU_ISSET((size_t)cpu, &chosen) || (pass == 0 && CPU_ISSET(core, &cores)))
                continue;
            CPU_SET(core, &cores);
            CPU_SET((size_t)cpu, &chosen);
            taken++;
        }
    }
    return taken >= wanted && sched_setaffinity(0, sizeof chosen, &chosen) == 0 ? taken : 0;
}

/* The number of threads that the library chooses, from the plan of an engine; 0 with a message. */
static unsigned library_threads(void)
{
    float value = 0, grad = 0;
    const zoff_param_desc param = bench_param(&value, &grad, 1, 1, ZOFF_F32);
    zoff_plan_info plan = {.struct_size = sizeof plan};
    zoff_engine *engine = NULL;
    /* Ask before seal: a sealed engine knows that its model is small. */
    if (bench_told(zoff_engine_create(NULL, &engine)) != 0 || bench_told(zoff_engine_add_param(engine, &param, NULL)) != 0 ||
        bench_told(zoff_engine_plan(engine, &plan)) != 0)
        plan.threads = 0;
    zoff_engine_destroy(engine);
    return plan.threads;
}

/* Restart the program with an environment for measurements. Waiting threads must spin: otherwise the CPU time would not show
 * whether they had their cores. No other variable may choose threads. The OpenMP runtime reads its environment before main().
 */
static int start_again(const bench_options *options, char **argv)
{
    static const char *const OTHERS[] = {"OMP_NUM_THREADS",   "OMP_PROC_BIND",        "OMP_PLACES",   "OMP_DYNAMIC",
                                         "OMP_NESTED",        "OMP_THREAD_LIMIT",     "OMP_SCHEDULE", "GOMP_SPINCOUNT",
                                         "GOMP_CPU_AFFINITY", "OMP_MAX_ACTIVE_LEVELS"};
    const char *policy = getenv("OMP_WAIT_POLICY"), *isa = getenv("ZOFF_ISA");
    bool ready = policy && strcmp(policy, "active") == 0 && (!options->isa || (isa && strcmp(isa, options->isa) == 0));
    for (unsigned i = 0; i < sizeof OTHERS / sizeof OTHERS[0]; i++) {
        ready = ready && !getenv(OTHERS[i]);
        unsetenv(OTHERS[i]);
    }
    if (ready)
        return 0;
    setenv("OMP_WAIT_POLICY", "active", 1);
    if (options->isa)
        setenv("ZOFF_ISA", options->isa, 1);
    execv("/proc/self/exe", argv);
    return bench_fail("cannot start again: %s", strerror(errno));
}

int bench_cores_choose(bench_options *options, char **argv)
{
    cpu_set_t allowed;
    const unsigned asked = (unsigned)options->threads;
    if (start_again(options, argv) != 0)
        return -1;
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return bench_fail("affinity: %s", strerror(errno));
    unsigned pinned = pin(asked, &allowed);
    if (!pinned)
        return bench_fail("--threads %u, but this process may use %d CPUs", asked, CPU_COUNT(&allowed));
    const unsigned taken = library_threads();
    if (!asked && taken && taken < pinned) /* a CPU quota of the cgroup */
        pinned = pin(taken, &allowed);
    options->threads = pinned;
    if (taken == pinned)
        return 0;
    return taken ? bench_fail("%u CPUs are to be used, but zoff takes %u threads there; try another --threads", pinned, taken)
                 : -1;
}
