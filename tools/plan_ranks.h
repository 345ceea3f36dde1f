/* SPDX-License-Identifier: Apache-2.0 */
/* plan_ranks.h: the part of `zoff plan` about traffic between ranks. */
#ifndef ZOFF_TOOL_PLAN_RANKS_H
#define ZOFF_TOOL_PLAN_RANKS_H

#include <stdbool.h>
#include <zoff/zoff.h>

/* The links of a rank, and what the program does meanwhile. */
typedef struct plan_links {
    unsigned node_ranks;    /* 0: not given, so there is no traffic to print */
    double intra, inter;    /* GB/s of a rank within its node, and to other nodes */
    double message_us;      /* microseconds of a note or a message */
    double compute_seconds; /* of a step of the program; 0: not given */
    bool sweeps;            /* print CSV for 1, 2, 4, ... ranks */
} plan_links;

/* Plan the model on rank 0 of `ranks`, in nodes of `node_ranks`.  @return the exit status */
typedef int (*plan_of_ranks)(const void *model, unsigned ranks, unsigned node_ranks, zoff_plan_info *info);

/* Print the traffic of the plan, and of the other routes. Changes keys of `config`, which the plan reads.  @return the exit
 * status */
int print_traffic(const plan_links *links, unsigned ranks, const zoff_plan_info *info, zoff_config *config, plan_of_ranks plan,
                  const void *model);
/* Print a line of CSV for each route and number of ranks, up to `ranks`.  @return the exit status */
int print_sweep(const plan_links *links, unsigned ranks, zoff_config *config, plan_of_ranks plan, const void *model);

#endif
