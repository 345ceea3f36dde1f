/* SPDX-License-Identifier: Apache-2.0 */
/* plugin_rank.c: one rank of a job whose program does not know MPI. zoff finds the launcher's variables and loads the plug-in,
 * which initialises and finalises MPI. Arguments: the name for zoff_comm_open(), and the expected number of ranks. */
#include "comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int complain(const char *what)
{
    fprintf(stderr, "plugin_rank: %s: %s\n", what, zoff_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    zoff_comm_opts opts = {.struct_size = sizeof opts, .backend = argc > 1 ? argv[1] : NULL, .timeout_seconds = 10};
    zoff_comm *comm, *second;
    zoff_comm_work work = {0};
    double sum = 1;
    if (zoff_comm_open(&opts, &comm) < 0 || zoff_comm_open(&opts, &second) < 0)
        return complain("open");
    zoff_comm_close(second); /* the first communicator keeps MPI initialised */
    if (zoff_comm_sum_scalars(comm, &sum, 1, &work) < 0 || zoff_comm_wait(comm, &work) < 0)
        return complain("sum");
    printf("rank %u of %u: %g\n", zoff_comm_rank(comm), zoff_comm_size(comm), sum);
    zoff_comm_close(comm);
    if (zoff_comm_open(&opts, &comm) != ZOFF_ERR_UNSUPPORTED || !strstr(zoff_last_error(), "cannot be initialised again"))
        return complain("opened after MPI was finalised");
    return argc > 2 && sum == atof(argv[2]) ? 0 : 1;
}
