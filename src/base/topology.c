/* SPDX-License-Identifier: Apache-2.0 */
/* topology.c: reads affinity masks and what sysfs says of CPUs, cores and nodes. */
#include "topology.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

enum { WORD_BITS = 8 * sizeof(unsigned long), PATH_BYTES = 4096 };
_Static_assert(sizeof(zoff_cpus) % sizeof(cpu_set_t) == 0, "a mask is a whole number of the system's");

bool zoff_base_topology_has(const zoff_cpus *cpus, unsigned cpu)
{
    return cpu < ZOFF_CPUS_MAX && (cpus->words[cpu / WORD_BITS] >> cpu % WORD_BITS & 1);
}

void zoff_base_topology_add(zoff_cpus *cpus, unsigned cpu)
{
    if (cpu < ZOFF_CPUS_MAX)
        cpus->words[cpu / WORD_BITS] |= 1ul << cpu % WORD_BITS;
}

bool zoff_base_topology_affinity(zoff_cpus *out)
{
    return sched_getaffinity(0, sizeof out->words, (cpu_set_t *)(void *)out->words) == 0;
}

bool zoff_base_topology_bind(const zoff_cpus *cpus)
{
    return sched_setaffinity(0, sizeof cpus->words, (const cpu_set_t *)(const void *)cpus->words) == 0;
}

bool zoff_base_topology_stay(void)
{
    zoff_cpus here = {{0}};
    const int cpu = sched_getcpu();
    if (cpu < 0 || cpu >= ZOFF_CPUS_MAX)
        return false;
    zoff_base_topology_add(&here, (unsigned)cpu);
    return zoff_base_topology_bind(&here);
}

bool zoff_base_topology_keep_off(zoff_elsewhere *e, unsigned cpu)
{
    zoff_cpus now;
    if (cpu >= ZOFF_CPUS_MAX || !zoff_base_topology_affinity(&now))
        return false;
    if (memcmp(&now, &e->left, sizeof now) != 0)
        e->all = now;
    e->left = e->all;
    e->left.words[cpu / WORD_BITS] &= ~(1ul << cpu % WORD_BITS);
    const bool has_moved = zoff_base_topology_bind(&e->left); /* the system refuses an empty mask */
    if (!has_moved)
        e->left = now;
    e->is_off = has_moved;
    return has_moved;
}

void zoff_base_topology_come_back(zoff_elsewhere *e)
{
    zoff_cpus now;
    if (e->is_off && zoff_base_topology_affinity(&now) && memcmp(&now, &e->left, sizeof now) == 0)
        (void)zoff_base_topology_bind(&e->all);
    e->is_off = false;
}

bool zoff_base_topology_list(const char *path, zoff_cpus *out)
{
    unsigned first, last;
    bool found = false;
    zoff_cpus cpus = {0};
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    while (fscanf(f, "%u", &first) == 1) {
        last = first;
        int next = fgetc(f);
        if (next == '-') {
            if (fscanf(f, "%u", &last) != 1)
                break;
            next = fgetc(f);
        }
        for (unsigned cpu = first; cpu <= last && cpu < ZOFF_CPUS_MAX; cpu++) {
            zoff_base_topology_add(&cpus, cpu);
            found = true;
        }
        if (next != ',')
            break;
    }
    fclose(f);
    if (found)
        *out = cpus;
    return found;
}

bool zoff_base_topology_online_under(const char *root, zoff_cpus *out)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/online", root);
    return zoff_base_topology_list(path, out);
}

/* The lowest CPU of the set on the core of `cpu`. */
static unsigned core_of(const char *root, const zoff_cpus *cpus, unsigned cpu)
{
    char path[PATH_BYTES];
    zoff_cpus siblings;
    snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%u/topology/thread_siblings_list", root, cpu);
    if (!zoff_base_topology_list(path, &siblings))
        return cpu;
    for (unsigned sibling = 0; sibling < cpu; sibling++) {
        if (zoff_base_topology_has(&siblings, sibling) && zoff_base_topology_has(cpus, sibling))
            return sibling;
    }
    return cpu;
}

unsigned zoff_base_topology_cores_under(const char *root, const zoff_cpus *cpus)
{
    unsigned cores = 0;
    for (unsigned cpu = 0; cpu < ZOFF_CPUS_MAX; cpu++)
        cores += zoff_base_topology_has(cpus, cpu) && core_of(root, cpus, cpu) == cpu;
    return cores;
}

/* Nodes have numbers like CPUs, and lists of them look the same. */
static void read_nodes(const char *root, zoff_topology *topology)
{
    char path[PATH_BYTES];
    zoff_cpus nodes, members;
    snprintf(path, sizeof path, "%s/sys/devices/system/node/online", root);
    if (!zoff_base_topology_list(path, &nodes))
        return;
    for (unsigned node = 0; node < ZOFF_CPUS_MAX; node++) {
        if (!zoff_base_topology_has(&nodes, node))
            continue;
        snprintf(path, sizeof path, "%s/sys/devices/system/node/node%u/cpulist", root, node);
        if (!zoff_base_topology_list(path, &members))
            continue; /* a node of memory alone has an empty list */
        for (unsigned cpu = 0; cpu < topology->end; cpu++) {
            if (zoff_base_topology_has(&members, cpu))
                topology->node[cpu] = (uint16_t)node;
        }
    }
}

void zoff_base_topology_read_under(const char *root, const zoff_cpus *cpus, zoff_topology *out)
{
    memset(out, 0, sizeof *out);
    out->cpus = *cpus;
    for (unsigned cpu = 0; cpu < ZOFF_CPUS_MAX; cpu++) {
        if (!zoff_base_topology_has(cpus, cpu))
            continue;
        out->end = cpu + 1;
        out->core[cpu] = (uint16_t)core_of(root, cpus, cpu);
    }
    read_nodes(root, out);
}
