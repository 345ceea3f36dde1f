/* topology.h: the CPUs that this process may use, the core and the NUMA node of each, as the kernel tells them. */
#ifndef ZOFF_BASE_TOPOLOGY_H
#define ZOFF_BASE_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

/* More than Linux runs on; a mask that does not fit is as if it could not be read. Fixed, so that nothing here can run out of
 * memory. */
enum { ZOFF_CPUS_MAX = 4096 };

/* A set of CPUs, laid out as the kernel's masks are. */
typedef struct zoff_cpus {
    unsigned long words[ZOFF_CPUS_MAX / (8 * sizeof(unsigned long))];
} zoff_cpus;

bool zoff_base_topology_has(const zoff_cpus *cpus, unsigned cpu);
void zoff_base_topology_add(zoff_cpus *cpus, unsigned cpu); /* one beyond the limit is left out */

/* The affinity mask of the calling thread; false where the kernel does not give or take it. */
bool zoff_base_topology_affinity(zoff_cpus *out);
bool zoff_base_topology_bind(const zoff_cpus *cpus);

/* A file that holds a list like "0-3,8"; false when there is none in it. */
bool zoff_base_topology_list(const char *path, zoff_cpus *out);

/* All CPUs of the machine that are online, under another root for tests: "<root>/sys/devices/system/cpu/online", ... */
bool zoff_base_topology_online_under(const char *root, zoff_cpus *out);

/* Number of physical cores that the CPUs belong to. */
unsigned zoff_base_topology_cores_under(const char *root, const zoff_cpus *cpus);

typedef struct zoff_topology {
    zoff_cpus cpus;
    unsigned end;                 /* no CPU of the set has this number or a higher one */
    uint16_t core[ZOFF_CPUS_MAX]; /* the lowest CPU of the set that shares this one's core; itself where nothing is known */
    uint16_t node[ZOFF_CPUS_MAX]; /* 0 where nothing is known */
} zoff_topology;

/* Core and node of each CPU of the set. */
void zoff_base_topology_read_under(const char *root, const zoff_cpus *cpus, zoff_topology *out);

#endif
