/* budget.h: how much memory this process can still take without being killed. */
#ifndef ZOFF_BASE_BUDGET_H
#define ZOFF_BASE_BUDGET_H

#include <stdint.h>

/* The lesser of MemAvailable and what each cgroup above us (version 1 or 2) leaves. *out_source names the one that decided;
 * static text. UINT64_MAX when the system tells nothing. */
uint64_t zoff_base_budget_memory(const char **out_source);

/* The same with the file system of another root, for tests: "<root>/proc/meminfo", "<root>/proc/self/cgroup", ... */
uint64_t zoff_base_budget_memory_under(const char *root, const char **out_source);

/* CPUs that the cgroup quota allows, rounded up; 0 when there is no quota. */
unsigned zoff_base_budget_cpus(void);
unsigned zoff_base_budget_cpus_under(const char *root);

#endif
