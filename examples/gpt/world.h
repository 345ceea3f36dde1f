/* SPDX-License-Identifier: Apache-2.0 */
/* world.h: the ranks of a job, and which of them have what. With --tensor-parallel P each P ranks in a row share one copy of
 * the model; every copy takes a share of the sequences of a batch. */
#ifndef GPT_WORLD_H
#define GPT_WORLD_H

#include "options.h"
#include "parallel.h"

#include <zoff/comm.h>

typedef struct gpt_world {
    unsigned rank, ranks;  /* rank in the job, and number of ranks */
    unsigned copy, copies; /* number of copies of the model; `copy` is the number of this rank in `comm` */
    gpt_parallel parallel; /* this rank's part of its copy */
    zoff_comm *comm;       /* ranks that have the same part */
    zoff_comm *norm_comm;  /* ranks that have the other parts of this copy; NULL: none */
    void *own;             /* data of the file that opened the world */
    void (*close)(struct gpt_world *world);
} gpt_world;

/* Join the ranks that --ranks names. A model that refers to `parallel` needs *out to stay where it is. Returns 0, or -1 after a
 * line on stderr. */
int gpt_world_open(const gpt_options *options, gpt_world *out);

/* Leave the ranks, also after an error and if opening has failed. */
void gpt_world_close(gpt_world *world);

/* Join the ranks for --tensor-parallel above 1, which needs MPI. */
int gpt_world_open_mpi(const gpt_options *options, gpt_world *out);

enum { GPT_TIMEOUT_SECONDS = 120 }; /* seconds that a rank waits for another */

#endif
