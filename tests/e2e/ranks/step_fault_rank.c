/* SPDX-License-Identifier: Apache-2.0 */
/* step_fault_rank.c: one rank of a training job. In each round the last rank stops itself in some phase of the second step.
 * tests/contract/comm/faults.py continues that rank and checks what the others report. Arguments: "step", or "levels" for nodes
 * of two ranks; a folder for the files of each rank; the deadline in seconds.
 *
 * All ranks have the same gradients, so that the mean is exact and the weights are those of a single rank. */
#include <zoff/mpi.h>

#include <zoff/zoff.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SLICES = 6, COUNT = 5000, ALL = SLICES * COUNT, ROUNDS = 20, PHASES = 5 };
static const char *const NAMES[PHASES] = {"grad_ready", "before_begin", "before_wait", "early_message", "late_message"};

static int world_rank, world_size;
static FILE *file;

/* ---- a transport that stops its process after a number of messages ---- */

static zoff_comm_transport real;
static int sends_left; /* 0: no limit */

static int count_and_send(void *ctx, unsigned to, int tag, const void *data, size_t bytes, void **out_request)
{
    if (sends_left && --sends_left == 0)
        raise(SIGSTOP);
    return real.send(ctx, to, tag, data, bytes, out_request);
}

static zoff_comm *open_group(double deadline)
{
    const zoff_comm_opts opts = {.struct_size = sizeof opts, .timeout_seconds = deadline};
    zoff_comm *comm = NULL;
    zoff_mpi_connect(MPI_COMM_WORLD, &real);
    zoff_comm_transport counted = real;
    counted.send = count_and_send;
    if (zoff_comm_open_transport(&opts, &counted, &comm) < 0) {
        fprintf(stderr, "step_fault_rank: %s\n", zoff_last_error());
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return comm;
}

/* ---- an engine, and its weights ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(zoff_status status)
{
    if (status >= 0)
        return;
    fprintf(stderr, "step_fault_rank: rank %d: %s\n", world_rank, zoff_last_error());
    MPI_Abort(MPI_COMM_WORLD, 2);
}

static const char *nodes = "";

static zoff_engine *open_engine(zoff_comm *comm, float *weights, float *grads)
{
    char text[256];
    const int bytes = snprintf(text, sizeof text,
                               "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
                               "\"zero_optimization\": {\"stage\": 2, \"reduce_bucket_size\": 4096}%s}",
                               comm ? nodes : "");
    zoff_config *config;
    zoff_engine *e;
    check(zoff_config_open(NULL, &config));
    check(zoff_config_read_text(config, text, (size_t)bytes, "step_fault_rank"));
    const zoff_engine_opts opts = {.struct_size = sizeof opts, .config = config, .comm = comm, .threads = 1};
    check(zoff_engine_create(&opts, &e));
    zoff_config_close(config);
    for (int i = 0; i < ALL; i++) {
        weights[i] = (float)(i % 101) / 64 - 0.75f;
        grads[i] = (float)(i % 37) / 256 - 0.0625f;
    }
    const zoff_param_desc d = {.struct_size = sizeof d, .value = weights, .grad = grads, .count = COUNT, .slices = SLICES};
    check(zoff_engine_add_param(e, &d, NULL));
    check(zoff_engine_seal(e));
    return e;
}

/* The weights before and after the second step. */
static void train_alone(float *before, float *after)
{
    static float grads[ALL];
    zoff_engine *e = open_engine(NULL, after, grads);
    check(zoff_step(e, NULL, NULL));
    memcpy(before, after, ALL * sizeof *before);
    check(zoff_step(e, NULL, NULL));
    zoff_engine_destroy(e);
}

/* The step in which the last rank stops, in the given phase. */
static zoff_status step(zoff_engine *e, int phase, int nth, int stops, zoff_step_info *info)
{
    for (int slice = SLICES; slice-- > 0;) {
        const zoff_status status = zoff_grad_ready(e, 0, (size_t)slice, NULL);
        if (status < 0)
            return status;
        if (stops && phase == 0 && slice == nth % SLICES)
            raise(SIGSTOP);
    }
    if (stops && phase == 1)
        raise(SIGSTOP);
    const zoff_status status = zoff_step_begin(e, NULL);
    if (status < 0)
        return status;
    if (stops && phase == 2)
        raise(SIGSTOP);
    /* The next messages are gradients of the last buckets, flags and votes, or new weights. */
    sends_left = stops && phase >= 3 ? 1 + nth * (phase == 3 ? 3 : 11) : 0;
    const zoff_status ended = zoff_step_wait(e, info);
    sends_left = 0;
    return ended;
}

/* True if the weights match the outcome. */
static int are_as_told(const float *weights, zoff_outcome outcome, const float *before, const float *after)
{
    if (outcome == ZOFF_OUTCOME_BEFORE)
        return memcmp(weights, before, ALL * sizeof *weights) == 0;
    if (outcome == ZOFF_OUTCOME_AFTER)
        return memcmp(weights, after, ALL * sizeof *weights) == 0;
    for (int i = 0; i < ALL; i++) {
        if (weights[i] != before[i] && weights[i] != after[i])
            return 0;
    }
    return 1;
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

static void play(int round, int nth, double deadline, const float *before, const float *after)
{
    static const char *const OUTCOMES[] = {"BEFORE", "AFTER", "TORN"};
    static float weights[ALL], grads[ALL];
    const int phase = round % PHASES, stops = world_rank == world_size - 1;
    zoff_comm *comm = open_group(deadline);
    zoff_engine *e = open_engine(comm, weights, grads);
    check(zoff_step(e, NULL, NULL));
    meet();
    zoff_step_info info = {.struct_size = sizeof info};
    const double from = now();
    const zoff_status status = step(e, phase, nth, stops, &info);
    const double seconds = now() - from;
    fprintf(file, "%s %s %s|%d|%.2f|1|%s\n", NAMES[phase], OUTCOMES[info.outcome],
            are_as_told(weights, info.outcome, before, after) ? "right" : "wrong", (int)status, seconds,
            status < 0 ? zoff_last_error() : "");
    fflush(file);
    meet();
    zoff_engine_destroy(e);
    zoff_comm_close(comm);
    meet();
}

int main(int argc, char **argv)
{
    static float before[ALL], after[ALL];
    char path[1024];
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world_size);
    if (argc < 4)
        MPI_Abort(MPI_COMM_WORLD, 2);
    snprintf(path, sizeof path, "%s/%d", argv[2], world_rank);
    file = fopen(path, "w");
    if (!file)
        MPI_Abort(MPI_COMM_WORLD, 2);
    fprintf(file, "pid|%d\n", (int)getpid());
    fflush(file);
    if (strcmp(argv[1], "levels") == 0)
        nodes = ", \"zoff\": {\"reduce_scatter\": \"exact\", \"node_ranks\": 2}";
    train_alone(before, after);
    /* Each round waits for the deadline, so a short run takes only the first and the last place of each phase. */
    const int apart = getenv("ZOFF_TEST_FULL") ? 1 : ROUNDS / PHASES - 1;
    for (int nth = 1, round = 0; nth <= ROUNDS / PHASES; nth += apart) {
        for (int phase = 0; phase < PHASES; phase++)
            play(round++, nth, atof(argv[3]), before, after);
    }
    MPI_Finalize();
    return 0;
}
