/* SPDX-License-Identifier: Apache-2.0 */
// mpi_main.cc: runs the communicator contract as one rank of an MPI job. Rank 0 prints all results, the other ranks only
// failures.
#include <gtest/gtest.h>
#include <zoff/mpi.h>

int main(int argc, char **argv)
{
    int level = 0, rank = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank != 0)
        testing::GTEST_FLAG(brief) = true;
    testing::InitGoogleTest(&argc, argv);
    int failed = RUN_ALL_TESTS(), any = 0;
    MPI_Allreduce(&failed, &any, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    MPI_Finalize();
    return any;
}
