/* SPDX-License-Identifier: Apache-2.0 */
/* grid.c: opens groups of ranks. A rank of a grid talks to its node and to its rail:
 *
 *                          rail 0   rail 1   rail 2   rail 3
 *      node 0, a host         0        1        2        3
 *      node 1                 4        5        6        7 */
#include "comm.h"

#include "budget.h"
#include "log.h"
#include "mem.h"
#include "try.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- groups ---- */

static const char TAKEN[] = "the communicator has %s of %u ranks for another engine, and cannot have %s of %u as well: give "
                            "this engine a communicator of its own";

static zoff_status open_groups(zoff_comm *comm, unsigned members)
{
    ZOFF_FAIL_IF(!members || comm->size % members, ZOFF_ERR_INVALID, "groups of %u ranks do not divide %u ranks", members,
                 comm->size);
    ZOFF_FAIL_IF(comm->group && comm->group != members, ZOFF_ERR_UNSUPPORTED, TAKEN, "groups", comm->group, "groups", members);
    if (!comm->group)
        ZOFF_TRY(comm->ops->open_groups(comm, members));
    comm->group = members;
    return ZOFF_OK;
}

/* The lock is held while the ranks join: progress threads of other engines must not use the communicator meanwhile. */
zoff_status zoff_comm_open_groups(zoff_comm *comm, unsigned members)
{
    zoff_comm_lock(comm);
    const zoff_status status = open_groups(comm, members);
    zoff_comm_unlock(comm);
    return status;
}

/* ---- nodes ---- */

bool zoff_comm_has_levels(const zoff_comm *comm)
{
    return !comm->flat && comm->node > 1 && comm->node < comm->size;
}

typedef struct place {
    uint64_t host, rank;
} place;

static int by_host(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return x->host != y->host ? (x->host > y->host) - (x->host < y->host) : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Find the ranks of a node: as many as each host has, or 1, with the reason in `why`. Leaves the first rank of each run of
 * ranks on one host in `all`. */
static unsigned find_node(place *all, unsigned size, char *why, size_t why_bytes)
{
    unsigned runs = 0, node = 0;
    char lengths[96] = "";
    for (unsigned rank = 0, first = 0; rank < size; rank++) {
        if (rank + 1 < size && all[rank + 1].host == all[rank].host)
            continue;
        const unsigned length = rank + 1 - first;
        if (node && length != node && !lengths[0])
            snprintf(lengths, sizeof lengths, "the host of rank 0 has %u ranks, and that of rank %u has %u", node, first,
                     length);
        node = node ? node : length;
        all[runs++] = (place){.host = all[rank].host, .rank = first};
        first = rank + 1;
    }
    snprintf(why, why_bytes, "%s", lengths);
    qsort(all, runs, sizeof *all, by_host);
    for (unsigned i = runs; i-- > 1;) {
        if (all[i].host == all[i - 1].host)
            snprintf(why, why_bytes, "ranks %u and %u are on one host, and a rank between them is not",
                     (unsigned)all[i - 1].rank, (unsigned)all[i].rank);
    }
    return why[0] ? 1 : node;
}

/* Compare the hosts of all ranks. */
static zoff_status compare_hosts(zoff_comm *comm, unsigned *node, char *why, size_t why_bytes)
{
    zoff_budget_level levels[ZOFF_BUDGET_LEVELS];
    zoff_comm_work work = {.active = false};
    place *all;
    ZOFF_TRY(zoff_base_mem_alloc(comm->size, sizeof *all, "the hosts of the ranks", &all));
    (void)zoff_base_budget_levels("", levels);
    all[comm->rank] = (place){.host = levels[0].id, .rank = comm->rank};
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                                 .item = {.about = ZOFF_COMM_ABOUT_HOSTS},
                                 .in = &all[comm->rank],
                                 .out = all,
                                 .count = sizeof *all};
    zoff_status status = zoff_comm_start(comm, &call, &work);
    status = status < 0 ? status : zoff_comm_wait(comm, &work);
    if (status == ZOFF_OK)
        *node = find_node(all, comm->size, why, why_bytes);
    zoff_base_mem_free(all);
    return status;
}

/* Ranks that were told different numbers would wait for each other, so they are compared where settings are. */
zoff_status zoff_comm_open_grid(zoff_comm *comm, unsigned node_ranks, zoff_comm_grid *out)
{
    char why[160] = "";
    const bool is_asked = node_ranks > 1;
    unsigned node = is_asked ? node_ranks : comm->node;
    ZOFF_FAIL_IF(node_ranks && comm->size % node_ranks, ZOFF_ERR_INVALID,
                 "nodes of %u ranks do not divide %u ranks: choose a number that does, 0 for as many as are on each host, or 1 "
                 "for none",
                 node_ranks, comm->size);
    ZOFF_FAIL_IF(is_asked && comm->flat, ZOFF_ERR_UNSUPPORTED, "nodes of %u ranks: %s", node_ranks, comm->flat);
    ZOFF_FAIL_IF(is_asked && comm->node && comm->node != node_ranks, ZOFF_ERR_UNSUPPORTED, TAKEN, "nodes", comm->node, "nodes",
                 node_ranks);
    if (!node)
        ZOFF_TRY(compare_hosts(comm, &node, why, sizeof why));
    if (why[0] && node_ranks == 0 && comm->rank == 0)
        ZOFF_WARN("all ranks exchange with all others, because nodes of ranks would be unequal: %s. Start the same number of "
                  "ranks on each host, in order",
                  why);
    if (comm->flat && node_ranks == 0 && node > 1 && node < comm->size && comm->rank == 0)
        ZOFF_INFO("all ranks exchange with all others: %s", comm->flat);
    zoff_comm_lock(comm);
    comm->node = node;
    zoff_comm_unlock(comm);
    node = node_ranks == 1 || comm->flat ? 1 : node;
    *out = (zoff_comm_grid){.node_ranks = node, .nodes = comm->size / node};
    return ZOFF_OK;
}

unsigned zoff_comm_known_node(const zoff_comm *comm, unsigned node_ranks)
{
    const unsigned node = node_ranks ? node_ranks : comm->node;
    return node && (comm->flat || comm->size % node) ? 1 : node;
}
