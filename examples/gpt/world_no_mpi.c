/* SPDX-License-Identifier: Apache-2.0 */
/* world_no_mpi.c: takes the place of world_mpi.c in a build without MPI. */
#include "world.h"

#include <stdio.h>

int gpt_world_open_mpi(const gpt_options *options, gpt_world *out)
{
    (void)out;
    fprintf(stderr, "gpt: --tensor-parallel %zu needs MPI, and this program was built without: install one and build again\n",
            options->tensor_parallel);
    return -1;
}
