/* comm_link.h: a link of a given rate: messages of MPI that leave no sooner than it would let them. */
#ifndef ZOFF_BENCH_COMM_LINK_H
#define ZOFF_BENCH_COMM_LINK_H

#include <zoff/mpi.h>

/* A communicator over MPI_COMM_WORLD whose rank sends at most so many bytes a second. 0, or -1 with a message. */
int comm_link_open(double bytes_per_second, zoff_comm **out);

#endif
