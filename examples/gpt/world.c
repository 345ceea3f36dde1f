/* SPDX-License-Identifier: Apache-2.0 */
/* world.c: the ranks of a job that have the whole model each. Ranks that share one are in world_mpi.c. */
#include "world.h"

#include <zoff/zoff.h>

#include <stdio.h>

static void close_whole(gpt_world *world)
{
    zoff_comm_close(world->comm);
}

static int open_whole(const gpt_options *options, gpt_world *out)
{
    const zoff_comm_opts opts = {.struct_size = sizeof opts, .backend = options->ranks, .timeout_seconds = GPT_TIMEOUT_SECONDS};
    if (zoff_comm_open(&opts, &out->comm) < 0) {
        fprintf(stderr, "gpt: %s\n", zoff_last_error());
        return -1;
    }
    out->close = close_whole;
    out->parallel = gpt_alone;
    out->rank = out->copy = zoff_comm_rank(out->comm);
    out->ranks = out->copies = zoff_comm_size(out->comm);
    return 0;
}

int gpt_world_open(const gpt_options *options, gpt_world *out)
{
    *out = (gpt_world){.ranks = 1};
    return options->tensor_parallel > 1 ? gpt_world_open_mpi(options, out) : open_whole(options, out);
}

void gpt_world_close(gpt_world *world)
{
    if (world->close)
        world->close(world);
    *world = (gpt_world){0};
}
