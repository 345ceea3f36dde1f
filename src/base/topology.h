/* SPDX-License-Identifier: Apache-2.0 */
/* topology.h: the CPUs that this process may use, and the core and NUMA node of each, as the kernel reports them. */
#ifndef ZOFF_BASE_TOPOLOGY_H
#define ZOFF_BASE_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

/* More CPUs than Linux supports. A mask that does not fit counts as unreadable. The size is fixed, so nothing here allocates.
 */
enum { ZOFF_CPUS_MAX = 4096 };

/* A set of CPUs, in the layout of the kernel's masks. */
typedef struct zoff_cpus {
    unsigned long words[ZOFF_CPUS_MAX / (8 * sizeof(unsigned long))];
} zoff_cpus;

bool zoff_base_topology_has(const zoff_cpus *cpus, unsigned cpu);
void zoff_base_topology_add(zoff_cpus *cpus, unsigned cpu); /* ignores a CPU beyond the limit */

/* The affinity mask of the calling thread; false if the kernel does not report or accept it. */
bool zoff_base_topology_affinity(zoff_cpus *out);
bool zoff_base_topology_bind(const zoff_cpus *cpus);

/* Bind the calling thread to the CPU that it is on. */
bool zoff_base_topology_stay(void);

/* The masks of a thread that keeps off one CPU. All zero at first. */
typedef struct zoff_elsewhere {
    zoff_cpus all;  /* mask of the thread before the first call */
    zoff_cpus left; /* mask of the thread after the last call */
    bool is_off;    /* `left` is without a CPU of `all` */
} zoff_elsewhere;

/* Move the calling thread from a CPU to others of its mask, where it stays until the next call for another CPU. If somebody
 * else has changed the mask since then, the new one counts.  @return false: it may run nowhere else */
bool zoff_base_topology_keep_off(zoff_elsewhere *e, unsigned cpu);
/* Let the thread run on that CPU again. */
void zoff_base_topology_come_back(zoff_elsewhere *e);

/* Read a file with a list like "0-3,8"; false if it has none. */
bool zoff_base_topology_list(const char *path, zoff_cpus *out);

/* All CPUs of the machine that are online, under another root for tests: "<root>/sys/devices/system/cpu/online", ... */
bool zoff_base_topology_online_under(const char *root, zoff_cpus *out);

/* Number of physical cores of these CPUs. */
unsigned zoff_base_topology_cores_under(const char *root, const zoff_cpus *cpus);

typedef struct zoff_topology {
    zoff_cpus cpus;
    unsigned end;                 /* all CPUs of the set are below this number */
    uint16_t core[ZOFF_CPUS_MAX]; /* the lowest CPU of the set on this CPU's core; the CPU itself if nothing is known */
    uint16_t node[ZOFF_CPUS_MAX]; /* node of each CPU; 0 if unknown */
} zoff_topology;

/* Read core and node of each CPU of the set. */
void zoff_base_topology_read_under(const char *root, const zoff_cpus *cpus, zoff_topology *out);

#endif
