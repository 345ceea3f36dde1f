/* comm_bench.h: shared by the files of bench/comm. Every rank runs all of it; rank 0 decides and reports. */
#ifndef ZOFF_BENCH_COMM_BENCH_H
#define ZOFF_BENCH_COMM_BENCH_H

#include "report.h"
#include "streams.h"

/* Include this first: it decides how <mpi.h> is included. */
#include <zoff/mpi.h>

enum { PART_GATHER = 1, PART_SCATTER = 2, PART_HIDDEN = 4, PART_FETCHES = 8, PART_ANY = 15 };

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

/* comm_trainers.c: two engines over links that send at most 200 MB/s; the second one has a thread that advances it. */
typedef struct comm_trainers {
    zoff_comm *comms[2];
    zoff_engine *engines[2];
    double seconds; /* of the computation */
} comm_trainers;

/* 0, or -1 with a message. Close in both cases. */
int comm_trainers_open(const char *config, const zoff_param_desc *param, comm_trainers *out);
void comm_trainers_close(comm_trainers *t);
/* Stand in for a trainer while its device computes, and advance an engine every millisecond; NULL: none. */
void comm_trainers_compute(zoff_engine *e, double seconds);

/* comm_hidden.c: time to the end of an exchange of gradients that are sent at once, and at the end. 0, or -1 with a message. */
int comm_hidden_run(const comm_options *options, double deadline, race *r);

/* comm_fetches.c: time of passes that fetch the engine's weights, beyond the computation. 0, or -1 with a message. */
int comm_fetches_run(const comm_options *options, double deadline, race *r);

#endif
