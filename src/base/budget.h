/* SPDX-License-Identifier: Apache-2.0 */
/* budget.h: how much memory this process can still take without being killed, and which CPUs its cgroup leaves it. */
#ifndef ZOFF_BASE_BUDGET_H
#define ZOFF_BASE_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `root` is "" but in tests, which have files of their own: "<root>/proc/meminfo", "<root>/proc/self/cgroup", ... */

/* The least of MemAvailable and the memory that each of our cgroups (version 1 or 2) has left. *out_source, static text, names
 * the limit that decided. UINT64_MAX if the system tells nothing. */
uint64_t zoff_base_budget_memory(const char *root, const char **out_source);

/* Each limit on our memory: the machine first, then our cgroups upwards. Processes under the same limit share its bytes. */
enum { ZOFF_BUDGET_LEVELS = 8 };
typedef struct zoff_budget_level {
    uint64_t id;    /* identifies the limit, by a boot of a machine and a group on it; equal in all processes under it */
    uint64_t bytes; /* bytes left; UINT64_MAX: unknown */
} zoff_budget_level;
size_t zoff_base_budget_levels(const char *root, zoff_budget_level out[ZOFF_BUDGET_LEVELS]);

/* CPUs that the cgroup quota allows, rounded up; 0 when there is no quota. */
unsigned zoff_base_budget_cpus(const char *root);

/* Path of the file that lists the CPUs of our cgroup, or of its nearest parent with such a list.  @return false: none */
enum { ZOFF_BUDGET_PATH_BYTES = 2048 };
bool zoff_base_budget_cpuset(const char *root, char out_path[ZOFF_BUDGET_PATH_BYTES]);

#endif
