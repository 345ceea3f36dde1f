/* comm_bench.h: shared by the files of bench/comm. Every rank runs all of it; rank 0 decides and reports. */
#ifndef ZOFF_BENCH_COMM_BENCH_H
#define ZOFF_BENCH_COMM_BENCH_H

#include "report.h"
#include "streams.h"

/* Include this first: it decides how <mpi.h> is included. */
#include <zoff/mpi.h>

typedef struct comm_options {
    bench_run run;
    unsigned rank, size;
} comm_options;

/* Memory of a rank: bf16 elements, divided evenly over the ranks. */
typedef struct comm_data {
    bench_streams mapping;
    size_t count, share; /* elements: all, and those of one rank */
    uint16_t *whole;     /* operand of the exchange, result of the gather */
    uint16_t *pieces;    /* one piece of this rank's share from each rank; operand of the gather */
    float *sums;         /* of this rank's share, in fp32 */
    float *floats;       /* `whole` in fp32 */
    size_t *bytes;       /* bytes of the share, for each rank */
    int *counts;         /* elements of the share, for each rank */
} comm_data;

/* comm_ours.c: zoff's operations, which are not in the public headers. 0, or -1 with a message. */
int comm_ours_gather(zoff_comm *comm, const comm_data *data);
int comm_ours_scatter(zoff_comm *comm, const comm_data *data);

/* comm.c: the maximum over all ranks; and whether to run another round: fewer than `rounds`, and rank 0's deadline not passed.
 */
double comm_slowest(double own);
int comm_rounds(const comm_options *options, race *r, double deadline);

/* comm_link.c: a communicator over MPI_COMM_WORLD whose ranks each send at most this many bytes per second. It delays messages
 * as such a link would. 0, or -1 with a message. */
int comm_link_open(double bytes_per_second, zoff_comm **out);

/* comm_beside.c: the time of exchanges beyond the computation beside them: gradients that are sent at once, and at the end; or
 * weights of the engine that are fetched. 0, or -1 with a message. */
int comm_beside_run(const comm_options *options, bool fetches, double deadline, race *r);

#endif
