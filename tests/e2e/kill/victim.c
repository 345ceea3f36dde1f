/* SPDX-License-Identifier: Apache-2.0 */
/* victim.c: a trainer to be killed. It opens its engine and continues after the last committed step, with the position in its
 * data. On standard output it prints "open T" when its weights are those of step T, and "done T" when step T has returned.
 * Gradients depend only on the batch and the element, so that every run computes the same ones. Every seventh batch overflows,
 * so its step is skipped.
 *
 * With several ranks, which are threads, rank 0 prints. All ranks have the same gradients.
 *
 * usage: victim CONFIG LAST DIGEST RANKS   takes steps up to number LAST, then writes weights, states, loss scaler and position
 *                                          to file DIGEST */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zoff/zoff.h>

enum { TENSORS = 3 };

static const struct {
    size_t count;
    zoff_dtype dtype;
    size_t dims[2]; /* {0}: no matrix, where the optimizer is Muon */
} SHAPES[TENSORS] = {{60000, ZOFF_BF16, {200, 300}}, {30001, ZOFF_F32, {0}}, {777, ZOFF_F16, {37, 21}}};

static void fail(const char *what)
{
    fprintf(stderr, "victim: %s: %s\n", what, zoff_last_error());
    exit(1);
}

static void say(const char *what, int64_t t)
{
    char line[64];
    int length = snprintf(line, sizeof line, "%s %lld\n", what, (long long)t);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        exit(1);
}

/* The bytes that the program records beside the states. `noise` is the state of a random generator, of each rank. */
typedef struct data {
    int64_t batch; /* batches used */
    int64_t updates;
    uint64_t noise;
} data;

static uint64_t next_noise(uint64_t x)
{
    return x * 6364136223846793005u + 1442695040888963407u;
}

static bool overflows(int64_t batch)
{
    return batch % 7 == 3;
}

/* The data that belongs to the states after update number `t`. */
static data data_after(int64_t t, unsigned rank)
{
    data d = {.noise = rank};
    while (d.updates < t) {
        d.updates += !overflows(d.batch++);
        d.noise = next_noise(d.noise);
    }
    return d;
}

/* A pseudo-random fp32 number between -1/8 and 1/8. */
static float gradient(int64_t batch, size_t tensor, size_t i)
{
    uint64_t x = (uint64_t)batch * 0x9E3779B97F4A7C15u + tensor * 0xC2B2AE3D27D4EB4Fu + i * 0x165667B19E3779F9u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 32;
    return ((float)(x & 0xffff) - 32768.0f) / 262144.0f;
}

/* One rank. */
typedef struct life {
    const char *config, *digest;
    int64_t last;
    unsigned rank;
    zoff_comm *comm;
    zoff_engine *e;
    char *weights[TENSORS];
    float *grads[TENSORS];
    data d;
} life;

static void put(FILE *file, const void *bytes, size_t count)
{
    if (file && fwrite(bytes, 1, count, file) != count)
        fail("digest");
}

/* Reading states is collective; rank 0 writes. */
static void write_states(life *l)
{
    FILE *file = l->rank == 0 ? fopen(l->digest, "wb") : NULL;
    float *state = malloc(SHAPES[0].count * sizeof *state);
    zoff_loss_scaler scaler = {.struct_size = sizeof scaler};
    if ((l->rank == 0 && !file) || !state || zoff_loss_scaler_get(l->e, &scaler) != ZOFF_OK)
        fail("digest");
    for (unsigned i = 0; i < TENSORS; i++) {
        put(file, l->weights[i], SHAPES[i].count * (SHAPES[i].dtype == ZOFF_F32 ? 4 : 2));
        for (int kind = ZOFF_STATE_MASTER; kind <= ZOFF_STATE_V; kind++) {
            const zoff_status status = zoff_state_read(l->e, i, (zoff_state_kind)kind, 0, SHAPES[i].count, state);
            if (kind == ZOFF_STATE_V && status == ZOFF_ERR_INVALID)
                continue; /* a matrix of Muon; the test knows how many bytes it leaves out */
            if (status != ZOFF_OK)
                fail("zoff_state_read");
            put(file, state, SHAPES[i].count * sizeof *state);
        }
    }
    put(file, &scaler, sizeof scaler);
    put(file, &l->d, sizeof l->d);
    free(state);
    if (file && fclose(file) != 0)
        fail("digest");
}

/* Take the step of the next batch, which may be skipped. */
static void step(life *l)
{
    zoff_step_info info = ZOFF_STEP_INFO_INIT;
    double scale;
    if (zoff_loss_scale(l->e, &scale) != ZOFF_OK)
        fail("zoff_loss_scale");
    const bool is_bad = overflows(l->d.batch);
    /* Buckets are updated meanwhile if zoff.speculation_memory is set. */
    for (unsigned i = TENSORS; i-- > 0;) {
        for (size_t k = 0; k < SHAPES[i].count; k++)
            l->grads[i][k] = gradient(l->d.batch, i, k) * (float)scale;
        l->grads[i][0] = is_bad ? INFINITY : l->grads[i][0];
        if (zoff_grad_ready(l->e, i, 0, NULL) != ZOFF_OK || zoff_engine_progress(l->e) < 0)
            fail("zoff_grad_ready");
    }
    l->d.batch++;
    l->d.noise = next_noise(l->d.noise);
    l->d.updates += !is_bad;
    if (zoff_step(l->e, NULL, &info) != ZOFF_OK)
        fail("zoff_step");
    if (info.skipped != is_bad) {
        fprintf(stderr, "victim: batch %lld at scale %g: skipped is %d\n", (long long)l->d.batch - 1, scale, info.skipped);
        exit(1);
    }
    if (!is_bad && l->rank == 0)
        say("done", l->d.updates);
}

static void *live(void *ctx)
{
    life *l = ctx;
    zoff_param_desc params[TENSORS] = {{0}};
    int64_t t;
    for (unsigned i = 0; i < TENSORS; i++) {
        l->weights[i] = calloc(SHAPES[i].count, sizeof(float));
        l->grads[i] = calloc(SHAPES[i].count, sizeof(float));
        params[i] = (zoff_param_desc){.value = l->weights[i],
                                      .grad = l->grads[i],
                                      .count = SHAPES[i].count,
                                      .dims = SHAPES[i].dims[0] ? SHAPES[i].dims : NULL,
                                      .dim_count = SHAPES[i].dims[0] ? 2 : 0,
                                      .dtype = SHAPES[i].dtype,
                                      .grad_dtype = ZOFF_F32};
    }
    const zoff_engine_opts opts = {.struct_size = sizeof opts, .config_path = l->config, .comm = l->comm};
    const zoff_checkpoint_data list[] = {{"batch", &l->d.batch, sizeof l->d.batch, false},
                                         {"updates", &l->d.updates, sizeof l->d.updates, false},
                                         {"noise", &l->d.noise, sizeof l->d.noise, true}};
    l->d.noise = l->rank;
    if (zoff_engine_open(&opts, params, TENSORS, &l->e) != ZOFF_OK || zoff_persist_data(l->e, list, 3) != ZOFF_OK)
        fail("zoff_engine_open");
    if (zoff_step_count(l->e, &t) != ZOFF_OK || (t > 0 && zoff_params_push(l->e) != ZOFF_OK))
        fail("zoff_params_push");
    const data want = data_after(t, l->rank);
    if (memcmp(&want, &l->d, sizeof want) != 0) {
        fprintf(stderr, "victim: rank %u: after step %lld the data is batch %lld, update %lld\n", l->rank, (long long)t,
                (long long)l->d.batch, (long long)l->d.updates);
        exit(1);
    }
    if (l->rank == 0)
        say("open", t);
    while (l->d.updates < l->last)
        step(l);
    write_states(l);
    zoff_engine_destroy(l->e);
    for (unsigned i = 0; i < TENSORS; i++) {
        free(l->weights[i]);
        free(l->grads[i]);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    enum { RANKS_MOST = 4 };
    life lives[RANKS_MOST] = {{0}};
    zoff_comm *comms[RANKS_MOST];
    pthread_t threads[RANKS_MOST];
    const zoff_comm_opts opts = {.struct_size = sizeof opts, .timeout_seconds = 60};
    const unsigned ranks = argc == 5 ? (unsigned)atoi(argv[4]) : 0;
    if (ranks < 1 || ranks > RANKS_MOST)
        return 2;
    if (zoff_comm_open_threads(&opts, ranks, comms) != ZOFF_OK)
        fail("zoff_comm_open_threads");
    for (unsigned rank = 0; rank < ranks; rank++) {
        lives[rank] = (life){.config = argv[1], .digest = argv[3], .last = atoll(argv[2]), .rank = rank, .comm = comms[rank]};
        if (pthread_create(&threads[rank], NULL, live, &lives[rank]) != 0)
            return 1;
    }
    for (unsigned rank = 0; rank < ranks; rank++)
        pthread_join(threads[rank], NULL);
    for (unsigned rank = 0; rank < ranks; rank++)
        zoff_comm_close(comms[rank]);
    return 0;
}
