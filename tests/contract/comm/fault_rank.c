/* SPDX-License-Identifier: Apache-2.0 */
/* fault_rank.c: one rank of a job in which the last rank misbehaves; faults.py checks what the others report.
 * Arguments: a case, a folder for the files of each rank, the deadline in seconds. Cases:
 *
 * - mixed: each kind of operation twice, each time in a new group. First the last rank stops itself, then it calls another
 *   operation.
 * - leave: the last rank closes its communicator.
 * - exit, die: the last rank ends without MPI_Finalize, or is killed, while the others wait. */
#include <zoff/mpi.h>

#include "comm.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 100000, RANKS = 64 };

static int world_rank, world_size;
static FILE *file;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static zoff_status run(zoff_comm *comm, zoff_comm_kind kind, char *in, char *out)
{
    size_t bytes[RANKS];
    zoff_comm_work work = {0};
    for (int i = 0; i < world_size; i++)
        bytes[i] = PIECE;
    zoff_comm_call call = {
        .kind = kind, .stream = ZOFF_COMM_REDUCE, .in = in, .out = out, .send_bytes = bytes, .receive_bytes = bytes};
    if (kind == ZOFF_COMM_SUM)
        call.count = PIECE / sizeof(double);
    if (kind == ZOFF_COMM_BROADCAST)
        call.count = PIECE;
    const zoff_status status = zoff_comm_start(comm, &call, &work);
    return status < 0 ? status : zoff_comm_wait(comm, &work);
}

static void tell(const char *title, zoff_status status, double seconds, zoff_comm *comm)
{
    fprintf(file, "%s|%d|%.2f|%d|%s\n", title, (int)status, seconds, (int)zoff_comm_lets_go(comm),
            status < 0 ? zoff_last_error() : "");
    fflush(file);
}

static zoff_comm *open_group(double deadline)
{
    const zoff_comm_opts opts = {.struct_size = sizeof opts, .timeout_seconds = deadline};
    zoff_comm *comm;
    if (zoff_comm_from_mpi(MPI_COMM_WORLD, &opts, &comm) < 0) {
        fprintf(stderr, "fault_rank: %s\n", zoff_last_error());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return comm;
}

/* A barrier that waits without spinning, so that a rank that is late to a round does not slow down other tests. */
static void meet(void)
{
    MPI_Request request;
    int done = 0;
    MPI_Ibarrier(MPI_COMM_WORLD, &request);
    while (!done) {
        MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        usleep(1000);
    }
}

static void run_mixed(double deadline, char *in, char *out, int is_last)
{
    static const char *const NAMES[] = {"all_to_all", "all_gather", "sum", "broadcast", "barrier"};
    for (int round = 0; round < 20; round++) {
        const zoff_comm_kind kind = (zoff_comm_kind)(round % 5);
        const int stops = round / 5 % 2 == 0;
        char title[64];
        snprintf(title, sizeof title, "%s %s", NAMES[kind], stops ? "stopped" : "other");
        zoff_comm *comm = open_group(deadline);
        if (run(comm, kind, in, out) < 0) /* the first operation must succeed */
            tell("warm-up", ZOFF_ERR_COMM, 0, comm);
        meet();
        const double from = now();
        if (is_last && stops)
            raise(SIGSTOP); /* faults.py continues this rank when all others have reported */
        const zoff_status status = run(comm, is_last && !stops ? (kind + 1) % 5 : kind, in, out);
        tell(title, status, now() - from, comm);
        meet();
        zoff_comm_close(comm);
        meet();
    }
}

int main(int argc, char **argv)
{
    static char in[RANKS * PIECE], out[RANKS * PIECE];
    char path[1024];
    int level;
    const char *what = argc > 3 ? argv[1] : "";
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (argc < 4 || world_size > RANKS)
        MPI_Abort(MPI_COMM_WORLD, 2);
    snprintf(path, sizeof path, "%s/%d", argv[2], world_rank);
    file = fopen(path, "w");
    if (!file)
        MPI_Abort(MPI_COMM_WORLD, 2);
    fprintf(file, "pid|%d\n", (int)getpid());
    fflush(file);
    const double deadline = atof(argv[3]);
    const int is_last = world_rank == world_size - 1;
    if (strcmp(what, "mixed") == 0) {
        run_mixed(deadline, in, out, is_last);
        MPI_Finalize();
        return 0;
    }
    zoff_comm *comm = open_group(deadline);
    run(comm, ZOFF_COMM_BARRIER, in, out);
    if (is_last && strcmp(what, "exit") == 0)
        _exit(0);
    if (is_last && strcmp(what, "die") == 0)
        raise(SIGKILL);
    if (is_last && strcmp(what, "leave") == 0) {
        zoff_comm_close(comm);
    } else {
        const double from = now();
        const zoff_status status = run(comm, ZOFF_COMM_GATHER, in, out);
        tell(what, status, now() - from, comm);
        zoff_comm_close(comm);
    }
    MPI_Finalize();
    return 0;
}
