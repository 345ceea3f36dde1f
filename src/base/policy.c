/* SPDX-License-Identifier: Apache-2.0 */
/* policy.c: choose the number of threads and the order of cores. */
#include "policy.h"

#include "bits.h"
#include "budget.h"

#include <string.h>

unsigned zoff_base_policy_threads(unsigned cores, unsigned quota, unsigned host_cores, unsigned ranks)
{
    size_t threads = cores;
    if (quota)
        threads = zoff_base_bits_min(threads, quota / ranks);
    if (host_cores)
        threads = zoff_base_bits_min(threads, host_cores / ranks);
    return (unsigned)zoff_base_bits_max(threads, 1);
}

/* All cores of the ranks on this host together. */
static unsigned host_cores(const char *root)
{
    char path[ZOFF_BUDGET_PATH_BYTES];
    zoff_cpus cpus;
    bool found = zoff_base_budget_cpuset(root, path) && zoff_base_topology_list(path, &cpus);
    if (!found && !zoff_base_topology_online_under(root, &cpus))
        return 0;
    return zoff_base_topology_cores_under(root, &cpus);
}

/* Fill the order with the cores of one node. */
static void take_node(zoff_policy *policy, unsigned node)
{
    const zoff_topology *t = &policy->topology;
    for (unsigned cpu = 0; cpu < t->end; cpu++) {
        if (zoff_base_topology_has(&t->cpus, cpu) && t->core[cpu] == cpu && t->node[cpu] == node)
            policy->order[policy->cores++] = (uint16_t)cpu;
    }
}

/* List the preferred node first, then those with higher numbers, then those from 0, because the next number is often near. */
static void put_in_order(zoff_policy *policy, unsigned first_node)
{
    const zoff_topology *t = &policy->topology;
    unsigned nodes = 0, used = 0;
    for (unsigned cpu = 0; cpu < t->end; cpu++)
        nodes = (unsigned)zoff_base_bits_max(nodes, t->node[cpu] + 1u);
    for (unsigned i = 0; i < nodes; i++) {
        unsigned before = policy->cores;
        take_node(policy, (first_node + i) % nodes);
        used += policy->cores > before;
    }
    policy->places = used > 1;
}

static unsigned cores_of_node(const zoff_policy *policy, unsigned node)
{
    unsigned cores = 0;
    for (unsigned i = 0; i < policy->cores; i++)
        cores += policy->topology.node[policy->order[i]] == node;
    return cores;
}

void zoff_base_policy_make(const char *root, const zoff_cpus *cpus, const zoff_env_ranks *ranks, int preferred_node,
                           zoff_policy *out)
{
    memset(out, 0, sizeof *out);
    zoff_base_topology_read_under(root, cpus, &out->topology);
    put_in_order(out, preferred_node > 0 ? (unsigned)preferred_node : 0);
    /* A single rank may use its whole mask, so the host does not matter. */
    const unsigned quota = zoff_base_budget_cpus(root), all = ranks->count > 1 ? host_cores(root) : 0;
    out->threads = zoff_base_policy_threads(out->cores, quota, all, ranks->count);
    const bool limited = out->threads < out->cores;
    out->why = !limited                                                                                ? ZOFF_POLICY_CORES
               : quota && out->threads == zoff_base_policy_threads(out->cores, quota, 0, ranks->count) ? ZOFF_POLICY_QUOTA
                                                                                                       : ZOFF_POLICY_RANKS;
    if (out->cores == 0)
        return;
    /* Ranks with an accelerator share the cores near it; without one, all cores of their mask. A rank with a mask of its own
     * has as many threads as cores, so it starts at the first. */
    unsigned near = preferred_node >= 0 ? cores_of_node(out, (unsigned)preferred_node) : 0;
    out->first = (unsigned)((uint64_t)ranks->index * out->threads % (near ? near : out->cores));
}

void zoff_base_policy_seat(const zoff_policy *policy, unsigned thread, zoff_cpus *out)
{
    const zoff_topology *t = &policy->topology;
    const unsigned core = policy->order[(policy->first + thread) % policy->cores];
    memset(out, 0, sizeof *out);
    for (unsigned cpu = 0; cpu < t->end; cpu++) {
        if (zoff_base_topology_has(&t->cpus, cpu) && t->node[cpu] == t->node[core])
            zoff_base_topology_add(out, cpu);
    }
}
