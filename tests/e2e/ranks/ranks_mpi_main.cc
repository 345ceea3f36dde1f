/* SPDX-License-Identifier: Apache-2.0 */
// ranks_mpi_main.cc: runs the tests of this folder as one rank of a job under mpirun. Each process runs all tests, side by
// side.
#include "rank_job.h"

#include <zoff/mpi.h>

int main(int argc, char **argv)
{
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    testing::InitGoogleTest(&argc, argv);
    zoff_comm_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.timeout_seconds = 60;
    if (zoff_comm_from_mpi(MPI_COMM_WORLD, &opts, &zoff_test::program_comm()) < 0) {
        fprintf(stderr, "%s\n", zoff_last_error());
        return 1;
    }
    const int failed = RUN_ALL_TESTS();
    zoff_comm_close(zoff_test::program_comm());
    MPI_Finalize();
    return failed;
}
