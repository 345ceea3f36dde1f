/* SPDX-License-Identifier: Apache-2.0 */
// ranks_mpi_main.cc: runs the tests of this folder as one rank of a job under mpirun. Each process runs all tests, side by
// side. With ZOFF_TEST_COMM=ucx the ranks are joined by UCX.
#include "mpi_meeting.h"
#include "rank_job.h"

int main(int argc, char **argv)
{
    int provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    testing::InitGoogleTest(&argc, argv);
    zoff_comm_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.timeout_seconds = 60;
    opts.backend = getenv("ZOFF_TEST_COMM");
    if (opts.backend)
        zoff_test::meet_at_free_port();
    zoff_comm **const out = &zoff_test::program_comm();
    if ((opts.backend ? zoff_comm_open(&opts, out) : zoff_comm_from_mpi(MPI_COMM_WORLD, &opts, out)) < 0) {
        fprintf(stderr, "%s\n", zoff_last_error());
        return 1;
    }
    const int failed = RUN_ALL_TESTS();
    zoff_comm_close(zoff_test::program_comm());
    MPI_Finalize();
    return failed;
}
