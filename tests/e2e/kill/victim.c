/* victim.c: a trainer to be killed. It opens its engine and continues after the last committed step. On standard output it
 * prints "open T" when its weights are those of step T, and "done T" when step T has returned. Gradients depend only on the
 * step and the position, so that every run computes the same ones.
 *
 * usage: victim CONFIG LAST DIGEST   takes steps up to number LAST, then writes the weights and states to file DIGEST */
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
} SHAPES[TENSORS] = {{60000, ZOFF_BF16}, {30001, ZOFF_F32}, {777, ZOFF_F16}};

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

/* A pseudo-random fp32 number between -1/8 and 1/8. */
static float gradient(int64_t t, size_t tensor, size_t i)
{
    uint64_t x = (uint64_t)t * 0x9E3779B97F4A7C15u + tensor * 0xC2B2AE3D27D4EB4Fu + i * 0x165667B19E3779F9u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 32;
    return ((float)(x & 0xffff) - 32768.0f) / 262144.0f;
}

static void write_states(zoff_engine *e, char *const *weights, const char *path)
{
    FILE *file = fopen(path, "wb");
    float *state = malloc(SHAPES[0].count * sizeof *state);
    if (!file || !state)
        fail("digest");
    for (unsigned i = 0; i < TENSORS; i++) {
        const size_t bytes = SHAPES[i].dtype == ZOFF_F32 ? 4 : 2;
        if (fwrite(weights[i], bytes, SHAPES[i].count, file) != SHAPES[i].count)
            fail("digest");
        for (int kind = ZOFF_STATE_MASTER; kind <= ZOFF_STATE_V; kind++) {
            if (zoff_state_read(e, i, (zoff_state_kind)kind, 0, SHAPES[i].count, state) != ZOFF_OK)
                fail("zoff_state_read");
            if (fwrite(state, sizeof *state, SHAPES[i].count, file) != SHAPES[i].count)
                fail("digest");
        }
    }
    free(state);
    if (fclose(file) != 0)
        fail("digest");
}

int main(int argc, char **argv)
{
    zoff_param_desc params[TENSORS] = {{0}};
    char *weights[TENSORS];
    float *grads[TENSORS];
    zoff_engine *e;
    int64_t t;
    if (argc != 4)
        return 2;
    for (unsigned i = 0; i < TENSORS; i++) {
        weights[i] = calloc(SHAPES[i].count, sizeof(float));
        grads[i] = calloc(SHAPES[i].count, sizeof(float));
        params[i] = (zoff_param_desc){
            .value = weights[i], .grad = grads[i], .count = SHAPES[i].count, .dtype = SHAPES[i].dtype, .grad_dtype = ZOFF_F32};
    }
    const zoff_engine_opts opts = {.struct_size = sizeof opts, .config_path = argv[1]};
    if (zoff_engine_open(&opts, params, TENSORS, &e) != ZOFF_OK)
        fail("zoff_engine_open");
    if (zoff_step_count(e, &t) != ZOFF_OK || (t > 0 && zoff_params_push(e) != ZOFF_OK))
        fail("zoff_params_push");
    say("open", t);
    for (t++; t <= atoll(argv[2]); t++) {
        for (unsigned i = 0; i < TENSORS; i++) {
            for (size_t k = 0; k < SHAPES[i].count; k++)
                grads[i][k] = gradient(t, i, k);
        }
        if (zoff_step(e, NULL, NULL) != ZOFF_OK)
            fail("zoff_step");
        say("done", t);
    }
    write_states(e, weights, argv[3]);
    zoff_engine_destroy(e);
    for (unsigned i = 0; i < TENSORS; i++) {
        free(weights[i]);
        free(grads[i]);
    }
    return 0;
}
