/* comm_bench.h: what the files of bench/comm share. Every rank runs all of it; rank 0 decides and reports. */
#ifndef ZOFF_BENCH_COMM_BENCH_H
#define ZOFF_BENCH_COMM_BENCH_H

#include "report.h"
#include "streams.h"

/* First, for it settles how <mpi.h> is included. */
#include <zoff/mpi.h>

enum { PART_GATHER = 1, PART_SCATTER = 2, PART_HIDDEN = 4, PART_ANY = 7 };

typedef struct comm_options {
    bench_run run;
    unsigned rank, size;
} comm_options;

/* Memory of a rank: bf16 elements, cut evenly over the ranks. */
typedef struct comm_data {
    bench_streams mapping;
    size_t count, share; /* elements: all, and of each rank */
    uint16_t *whole;     /* what is exchanged, or gathered into */
    uint16_t *pieces;    /* of this rank's share, one from each rank; what this rank has to gather */
    float *sums;         /* of this rank's share */
    float *floats;       /* `whole` in fp32 */
    size_t *bytes;       /* of the share, for each rank */
    int *counts;         /* and its elements */
} comm_data;

/* comm_ours.c: zoff's operations, which the public headers do not have. 0, or -1 with a message. */
int comm_ours_gather(zoff_comm *comm, const comm_data *data);
int comm_ours_scatter(zoff_comm *comm, const comm_data *data);

/* comm.c: the largest of all ranks' values; and rounds until `rounds` are over or, as rank 0 says, the deadline has passed. */
double comm_slowest(double own);
int comm_rounds(const comm_options *options, race *r, double deadline);

/* comm_link.c: a communicator over MPI_COMM_WORLD whose rank sends at most so many bytes a second: messages of MPI leave no
 * sooner than such a link would let them. 0, or -1 with a message. */
int comm_link_open(double bytes_per_second, zoff_comm **out);

/* comm_hidden.c: the time to the end of an exchange of gradients that leave at once, and at the end. 0, or -1 with a message.
 */
int comm_hidden_run(const comm_options *options, double deadline, race *r);

#endif
