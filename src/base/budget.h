/* budget.h: how much memory this process can still take without being killed, and which CPUs its cgroup leaves it. */
#ifndef ZOFF_BASE_BUDGET_H
#define ZOFF_BASE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The lesser of MemAvailable and what each cgroup above us (version 1 or 2) leaves. *out_source names the one that decided;
 * static text. UINT64_MAX when the system tells nothing. */
uint64_t zoff_base_budget_memory(const char **out_source);

/* The same with the file system of another root, for tests: "<root>/proc/meminfo", "<root>/proc/self/cgroup", ... */
uint64_t zoff_base_budget_memory_under(const char *root, const char **out_source);

/* Each place that limits us: the machine first, then our cgroups upwards. Processes that share one share its bytes. */
enum { ZOFF_BUDGET_LEVELS = 8 };
typedef struct zoff_budget_level {
    uint64_t id;    /* the same for everybody who shares it, and for nobody else: of a boot of a machine, and a group on it */
    uint64_t bytes; /* that it has left; UINT64_MAX: not known */
} zoff_budget_level;
size_t zoff_base_budget_levels(zoff_budget_level out[ZOFF_BUDGET_LEVELS]);
size_t zoff_base_budget_levels_under(const char *root, zoff_budget_level out[ZOFF_BUDGET_LEVELS]);

/* CPUs that the cgroup quota allows, rounded up; 0 when there is no quota. */
unsigned zoff_base_budget_cpus(void);
unsigned zoff_base_budget_cpus_under(const char *root);

/* Path of the file that lists the CPUs of our cgroup, or of the nearest one above it that has such a list; false for none. */
enum { ZOFF_BUDGET_PATH_BYTES = 2048 };
bool zoff_base_budget_cpuset_under(const char *root, char out_path[ZOFF_BUDGET_PATH_BYTES]);

#endif
