/* SPDX-License-Identifier: Apache-2.0 */
/* policy.h: how many threads the team has and on which cores they work, in integers. The inputs come from topology.h, budget.h
 * and env.h; docs/adr/0014-threads.md gives the reasons. */
#ifndef ZOFF_BASE_POLICY_H
#define ZOFF_BASE_POLICY_H

#include "env.h"
#include "topology.h"

/* The limit that decided the number of threads. */
typedef enum zoff_policy_why { ZOFF_POLICY_CORES, ZOFF_POLICY_QUOTA, ZOFF_POLICY_RANKS } zoff_policy_why;

typedef struct zoff_policy {
    zoff_topology topology;
    zoff_policy_why why;           /* why there are not more threads */
    unsigned threads;              /* number of threads: one for each core, without the share of the host's other ranks */
    unsigned cores;                /* length of order */
    unsigned first;                /* position of thread 0 in `order`: ranks that share cores start at different ones */
    uint16_t order[ZOFF_CPUS_MAX]; /* a CPU of each core: the preferred node's first, then node by node */
    bool places;                   /* the cores are on several nodes, so the place of a thread matters */
} zoff_policy;

/* The policy for a process that may use `cpus`, as one of `ranks`. `root` is "" except in tests. `preferred_node` is the
 * accelerator's; -1: none. */
void zoff_base_policy_make(const char *root, const zoff_cpus *cpus, const zoff_env_ranks *ranks, int preferred_node,
                           zoff_policy *out);

/* The number of threads, from the cores of the mask, the CPUs of the cgroup's quota (0: none), all cores of the host or
 * container (0: unknown) and the number of ranks. */
unsigned zoff_base_policy_threads(unsigned cores, unsigned quota, unsigned host_cores, unsigned ranks);

/* The CPUs of the node on which a thread works. */
void zoff_base_policy_seat(const zoff_policy *policy, unsigned thread, zoff_cpus *out);

#endif
