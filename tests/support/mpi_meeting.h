/* SPDX-License-Identifier: Apache-2.0 */
// mpi_meeting.h: ranks of an MPI job meet without MPI: rank 0 finds a free port, and all put it where a launcher would.
#ifndef ZOFF_MPI_MEETING_H
#define ZOFF_MPI_MEETING_H

#include "free_port.h"

#include <zoff/mpi.h>

#include <stdlib.h>
#include <string>

namespace zoff_test
{
inline void meet_at_free_port()
{
    int rank = 0, port = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        port = free_port();
    MPI_Bcast(&port, 1, MPI_INT, 0, MPI_COMM_WORLD);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(port).c_str(), 1);
}
} // namespace zoff_test

#endif
