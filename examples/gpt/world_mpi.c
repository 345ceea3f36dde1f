/* SPDX-License-Identifier: Apache-2.0 */
/* world_mpi.c: tensor parallelism over MPI. With two parts and two copies of the model the ranks are
 *
 *              part 0   part 1
 *     copy 0   rank 0   rank 1    a row shares a model: activations are added up here, and it has one norm (norm_comm)
 *     copy 1   rank 2   rank 3    a column has the same parameters: zoff adds up their gradients here (comm)
 */
#include "world.h"

#include <zoff/mpi.h>
#include <zoff/zoff.h>

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 16 }; /* elements that a part adds up at a time */

typedef struct parts {
    MPI_Comm row; /* the parts of one copy */
    unsigned rank, count;
    float *send, *receive; /* scratch, PIECE elements for each part */
    char label[16];
} parts;

/* Wait for a collective operation. An error ends the program, so that mpirun notices it and ends the job. */
static void must(const parts *p, const char *call, int result, MPI_Request *request)
{
    char words[MPI_MAX_ERROR_STRING] = "another part did not call in time";
    int length = 0, done = 0;
    const double start = MPI_Wtime();
    while (result == MPI_SUCCESS && !done && MPI_Wtime() - start < GPT_TIMEOUT_SECONDS) {
        result = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (!done)
            sched_yield();
    }
    if (result == MPI_SUCCESS && done)
        return;
    if (result != MPI_SUCCESS)
        MPI_Error_string(result, words, &length);
    fprintf(stderr, "gpt: rank %u: the sum over the parts of a layer: %s: %s\n", p->rank, call, words);
    exit(1);
}

/* Each part adds up one piece, in the order of parts, and sends it to the others, so that all have the same bits. */
static void sum(void *ctx, float *data, size_t count)
{
    const parts *p = ctx;
    for (size_t at = 0; at < count;) {
        const size_t rest = count - at, most = (size_t)p->count * PIECE, taken = rest < most ? rest : most;
        const size_t piece = (taken + p->count - 1) / p->count;
        memcpy(p->send, data + at, taken * sizeof *data);
        memset(p->send + taken, 0, (piece * p->count - taken) * sizeof *data);
        MPI_Request request;
        int result = MPI_Ialltoall(p->send, (int)piece, MPI_FLOAT, p->receive, (int)piece, MPI_FLOAT, p->row, &request);
        must(p, "MPI_Ialltoall", result, &request);
        memcpy(p->send, p->receive, piece * sizeof *data);
        for (size_t part = 1; part < p->count; part++)
            for (size_t i = 0; i < piece; i++)
                p->send[i] += p->receive[part * piece + i];
        result = MPI_Iallgather(p->send, (int)piece, MPI_FLOAT, p->receive, (int)piece, MPI_FLOAT, p->row, &request);
        must(p, "MPI_Iallgather", result, &request);
        memcpy(data + at, p->receive, taken * sizeof *data);
        at += taken;
    }
}

static void close_mpi(gpt_world *world)
{
    parts *p = world->own;
    zoff_comm_close(world->norm_comm);
    zoff_comm_close(world->comm);
    if (p) {
        if (p->row != MPI_COMM_NULL)
            MPI_Comm_free(&p->row);
        free(p->send);
        free(p->receive);
        free(p);
    }
    MPI_Finalize();
}

/* Report an error that all ranks see, from one of them. */
static int complain(const gpt_world *world, const char *words)
{
    if (world->rank == 0)
        fprintf(stderr, "gpt: %s\n", words);
    return -1;
}

/* A communicator of zoff over the ranks with the same `color`. zoff works on a duplicate of it. */
static int split(const gpt_world *world, unsigned color, MPI_Comm *out_mpi, zoff_comm **out)
{
    const zoff_comm_opts opts = {.struct_size = sizeof opts, .timeout_seconds = GPT_TIMEOUT_SECONDS};
    MPI_Comm_split(MPI_COMM_WORLD, (int)color, (int)world->rank, out_mpi); /* unchecked, because an error ends the program */
    if (zoff_comm_from_mpi(*out_mpi, &opts, out) < 0) {
        fprintf(stderr, "gpt: rank %u: %s\n", world->rank, zoff_last_error());
        return -1;
    }
    return 0;
}

/* Lay the ranks out as in the picture above. */
static int arrange(gpt_world *world, unsigned count, parts *p)
{
    MPI_Comm column = MPI_COMM_NULL;
    world->copy = world->rank / count;
    world->copies = world->ranks / count;
    p->rank = world->rank;
    p->count = count;
    snprintf(p->label, sizeof p->label, "tp%u", world->rank % count);
    p->send = malloc(count * PIECE * sizeof *p->send);
    p->receive = malloc(count * PIECE * sizeof *p->receive);
    if (!p->send || !p->receive) {
        fprintf(stderr, "gpt: rank %u: no memory for the sums of activations\n", world->rank);
        return -1;
    }
    if (split(world, world->copy, &p->row, &world->norm_comm) || split(world, world->rank % count, &column, &world->comm))
        return -1;
    MPI_Comm_free(&column);
    MPI_Comm_set_errhandler(p->row, MPI_ERRORS_RETURN);
    world->parallel = (gpt_parallel){.part = world->rank % count, .parts = count, .label = p->label, .ctx = p, .sum = sum};
    return 0;
}

/* Whether the states persist. Their files are named after the rank in `comm`, which the parts of a copy share. */
static bool persists(const gpt_options *options, unsigned copies)
{
    zoff_config *config = NULL;
    double persist = 0.0;
    if (!options->config || zoff_config_open(options->config, &config) < 0)
        return false; /* the engine reports a file that cannot be read */
    if (zoff_config_resolve(config, copies) >= 0)
        (void)zoff_config_number(config, "zoff.persist", &persist);
    zoff_config_close(config);
    return persist != 0.0;
}

/* Refuse options that these ranks cannot have. Every rank finds the same. */
static int check(const gpt_world *world, const gpt_options *options)
{
    const size_t count = options->tensor_parallel;
    char words[200];
    if (world->ranks % count) {
        snprintf(words, sizeof words,
                 "--tensor-parallel %zu: %u ranks cannot be split into groups of %zu; start a multiple of %zu with mpirun -n",
                 count, world->ranks, count, count);
        return complain(world, words);
    }
    const char *wrong = gpt_shape_check(options->shape, (unsigned)count);
    if (wrong)
        return complain(world, wrong);
    if (persists(options, world->ranks / (unsigned)count))
        return complain(world, "zoff.persist is not for --tensor-parallel, whose parts would write the same files; use --save "
                               "and --resume");
    return 0;
}

int gpt_world_open_mpi(const gpt_options *options, gpt_world *out)
{
    int level, rank, ranks;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) {
        fputs("gpt: MPI does not start\n", stderr);
        return -1;
    }
    out->close = close_mpi;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    out->rank = (unsigned)rank;
    out->ranks = (unsigned)ranks;
    if (check(out, options))
        return -1;
    parts *p = calloc(1, sizeof *p);
    if (!p) {
        fprintf(stderr, "gpt: rank %u: no memory for a communicator\n", out->rank);
        return -1;
    }
    p->row = MPI_COMM_NULL;
    out->own = p;
    return arrange(out, (unsigned)options->tensor_parallel, p);
}
