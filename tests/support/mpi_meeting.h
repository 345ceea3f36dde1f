/* SPDX-License-Identifier: Apache-2.0 */
// mpi_meeting.h: ranks of an MPI job meet without MPI: rank 0 finds a free port, and all put it where a launcher would.
#ifndef ZOFF_MPI_MEETING_H
#define ZOFF_MPI_MEETING_H

#include <zoff/mpi.h>

#include <netinet/in.h>
#include <stdlib.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

namespace zoff_test
{
// A port of this host that nobody listens at.
inline int free_port()
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    socklen_t bytes = sizeof at;
    const bool works = bind(fd, (const sockaddr *)&at, sizeof at) == 0 && getsockname(fd, (sockaddr *)&at, &bytes) == 0;
    close(fd);
    return works ? ntohs(at.sin_port) : 0;
}

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
