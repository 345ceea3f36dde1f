/* policy.h: how many threads the team has and on which cores they work. Integers over what topology.h, budget.h and env.h have
 * read; docs/adr/0014-team.md says why. */
#ifndef ZOFF_BASE_POLICY_H
#define ZOFF_BASE_POLICY_H

#include "env.h"
#include "topology.h"

/* The limit that decided the number of threads. */
typedef enum zoff_policy_why { ZOFF_POLICY_CORES, ZOFF_POLICY_QUOTA, ZOFF_POLICY_RANKS } zoff_policy_why;

typedef struct zoff_policy {
    zoff_topology topology;
    zoff_policy_why why;           /* there are not more threads */
    unsigned threads;              /* one a core, with what the host's other ranks need left to them */
    unsigned cores;                /* length of order */
    unsigned first;                /* place of thread 0 in it: ranks that share cores start at different ones */
    uint16_t order[ZOFF_CPUS_MAX]; /* a CPU of each core: the preferred node's first, then node by node */
    bool places;                   /* the cores are on more than one node, so it matters where a thread works */
} zoff_policy;

/* The policy for a process that may use `cpus`, on the host under `root` ("" but in tests), as one of the ranks that `ranks`
 * tells. `preferred_node`: that of the accelerator; -1 for none. */
void zoff_base_policy_make(const char *root, const zoff_cpus *cpus, const zoff_env_ranks *ranks, int preferred_node,
                           zoff_policy *out);

/* Number of threads alone, from the cores of the mask, the CPUs of the cgroup's quota (0: none), all cores of the host or
 * container (0: not known) and the ranks on it. */
unsigned zoff_base_policy_threads(unsigned cores, unsigned quota, unsigned host_cores, unsigned ranks);

/* The CPUs of the node on which thread `thread` works. */
void zoff_base_policy_seat(const zoff_policy *policy, unsigned thread, zoff_cpus *out);

#endif
