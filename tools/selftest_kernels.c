/* SPDX-License-Identifier: Apache-2.0 */
/* selftest_kernels.c: the formulas of <zoff/optimizer.h> as textbook loops, beside the kernels of libzoff. */
#include "dtype.h"
#include "selftest.h"
#include "verbs.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zoff/zoff.h>

const char *const SELFTEST_ISAS[] = {"scalar", "avx2", "avx512", "neon", "sve", NULL};

enum { MOST = 70001, STEPS = 3, EXIT_ABSENT = 3 };

typedef struct kernel_case {
    zoff_optimizer_hyper hyper;
    zoff_dtype master, grad, copy; /* copy: ZOFF_DTYPE_DEFAULT means none */
    size_t count;
} kernel_case;

/* The arrays of a case; they begin one element behind an aligned address. */
typedef struct arrays {
    float master[MOST + 1], m[MOST + 1], v[MOST + 1];
    float grad[MOST + 1], copy[MOST + 1];
} arrays;

/* ---- the reference ---- */

typedef struct constants {
    float beta1, rest1, beta2, rest2, eps, inverse_root, rate, shrink, decay, momentum, take;
} constants;

/* The weights (1 - beta) * beta^k of t gradients in a moment add up to this, with both factors as rounded to fp32. */
static double weights_of(float rest, float beta, int64_t t)
{
    return rest * (1 - pow(beta, (double)t)) / (1 - (double)beta);
}

static constants constants_of(const zoff_optimizer_hyper *h, int64_t t)
{
    constants c = {.beta1 = (float)h->beta1,
                   .rest1 = (float)(1 - h->beta1),
                   .beta2 = (float)h->beta2,
                   .rest2 = (float)(1 - h->beta2),
                   .eps = (float)h->eps,
                   .inverse_root = 1,
                   .rate = (float)-h->lr,
                   .shrink = (float)(-h->lr * h->weight_decay),
                   .decay = (float)h->weight_decay,
                   .momentum = (float)h->momentum,
                   .take = (float)(1 - h->dampening)};
    if (h->optimizer == ZOFF_OPTIMIZER_ADAM && !(h->flags & ZOFF_HYPER_NO_BIAS_CORRECTION)) {
        c.inverse_root = (float)(1 / sqrt(weights_of(c.rest2, c.beta2, t)));
        c.rate = (float)(-h->lr / weights_of(c.rest1, c.beta1, t));
    }
    if (h->optimizer == ZOFF_OPTIMIZER_ADAGRAD)
        c.rate = (float)(-h->lr / (1 + (double)(t - 1) * h->lr_decay));
    return c;
}

static float step_element(const zoff_optimizer_hyper *h, const constants *c, int64_t t, float p, float g, float *m, float *v)
{
    const bool shrinks =
        h->optimizer == ZOFF_OPTIMIZER_LION || (h->optimizer == ZOFF_OPTIMIZER_ADAM && h->decay != ZOFF_DECAY_L2);
    float u = g;
    if (h->weight_decay != 0 && !shrinks)
        g = fmaf(c->decay, p, g);
    switch (h->optimizer) {
    case ZOFF_OPTIMIZER_ADAM:
        *m = fmaf(c->rest1, g, c->beta1 * *m);
        *v = fmaf(c->rest2 * g, g, c->beta2 * *v);
        u = *m / fmaf(sqrtf(*v), c->inverse_root, c->eps);
        break;
    case ZOFF_OPTIMIZER_ADAGRAD:
        *v = fmaf(g, g, *v);
        u = g / (sqrtf(*v) + c->eps);
        break;
    case ZOFF_OPTIMIZER_LION:
        u = fmaf(c->rest1, g, c->beta1 * *m);
        u = (float)((u > 0) - (u < 0));
        *m = fmaf(c->rest2, g, c->beta2 * *m);
        break;
    case ZOFF_OPTIMIZER_SGD:
        u = g;
        if (h->momentum != 0) {
            *m = t == 1 ? g : fmaf(c->take, g, c->momentum * *m);
            u = h->nesterov ? fmaf(c->momentum, *m, g) : *m;
        }
        break;
    case ZOFF_OPTIMIZER_MUON:
    case ZOFF_OPTIMIZER_KEEP:
        break;
    }
    if (h->weight_decay != 0 && shrinks)
        return p + fmaf(c->rate, u, c->shrink * p);
    return fmaf(c->rate, u, p);
}

/* ---- cases ---- */

static void *behind(void *array, zoff_dtype dtype)
{
    return (char *)array + dtype_bytes(dtype);
}

static void step_reference(const kernel_case *k, int64_t t, double scale, arrays *a)
{
    const constants c = constants_of(&k->hyper, t);
    float p, g;
    for (size_t i = 0; i < k->count; i++) {
        char *master = (char *)behind(a->master, k->master) + i * dtype_bytes(k->master);
        dtype_widen(k->grad, (const char *)behind(a->grad, k->grad) + i * dtype_bytes(k->grad), 1, &g);
        dtype_widen(k->master, master, 1, &p);
        p = step_element(&k->hyper, &c, t, p, g * (float)scale, &a->m[i], &a->v[i]);
        dtype_round(k->master, &p, 1, master);
        if (k->copy)
            dtype_round(k->copy, &p, 1, (char *)behind(a->copy, k->copy) + i * dtype_bytes(k->copy));
    }
}

/* A number of either sign, from 0 and 1e-6 to 4. */
static float number_of(uint64_t i)
{
    uint64_t x = (i + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    const float size = ldexpf((float)(x >> 40), -24 - (int)(x % 20) + 2);
    return x & 1u << 20 ? -size : size;
}

static void fill(void *to, zoff_dtype dtype, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++) {
        const float x = number_of(seed * MOST + i);
        dtype_round(dtype, &x, 1, (char *)behind(to, dtype) + i * dtype_bytes(dtype));
    }
}

/* Take the steps of a case by kernels in `ours` and by the reference in `theirs`.  @return whether their bits are the same */
static bool agrees(const kernel_case *k, arrays *ours, arrays *theirs)
{
    memset(ours, 0, sizeof *ours);
    fill(ours->master, k->master, k->count, 1);
    memcpy(theirs, ours, sizeof *ours);
    const zoff_optimizer_tensor tensor = {.struct_size = sizeof tensor,
                                          .count = k->count,
                                          .master = behind(ours->master, k->master),
                                          .m = ours->m,
                                          .v = ours->v,
                                          .grad = behind(ours->grad, k->grad),
                                          .grad_dtype = k->grad,
                                          .copy_out = k->copy ? behind(ours->copy, k->copy) : NULL,
                                          .copy_dtype = k->copy,
                                          .master_dtype = k->master};
    for (int64_t t = 1; t <= STEPS; t++) {
        fill(ours->grad, k->grad, k->count, (uint64_t)t + 1);
        memcpy(theirs->grad, ours->grad, sizeof ours->grad);
        if (zoff_optimizer_step(&k->hyper, t, 0.75, &tensor) < 0)
            return false;
        step_reference(k, t, 0.75, theirs);
    }
    return memcmp(ours, theirs, sizeof *ours) == 0;
}

static size_t rules(zoff_optimizer_hyper out[8])
{
    static const zoff_optimizer OF[] = {ZOFF_OPTIMIZER_ADAM, ZOFF_OPTIMIZER_ADAM, ZOFF_OPTIMIZER_ADAM, ZOFF_OPTIMIZER_ADAGRAD,
                                        ZOFF_OPTIMIZER_LION, ZOFF_OPTIMIZER_SGD,  ZOFF_OPTIMIZER_SGD,  ZOFF_OPTIMIZER_SGD};
    const size_t count = sizeof OF / sizeof OF[0];
    for (size_t i = 0; i < count; i++) {
        zoff_optimizer_hyper_init(&out[i], OF[i]);
        out[i].weight_decay = 0.01;
    }
    out[1].decay = ZOFF_DECAY_L2;
    out[2].weight_decay = 0;
    out[2].flags = ZOFF_HYPER_NO_BIAS_CORRECTION;
    out[3].lr_decay = 0.1;
    out[6].momentum = out[7].momentum = 0.9;
    out[6].dampening = 0.1;
    out[7].nesterov = true;
    return count;
}

static int compare_all(int to)
{
    static const zoff_dtype TYPES[][3] = {{ZOFF_F32, ZOFF_F32, ZOFF_DTYPE_DEFAULT},
                                          {ZOFF_F32, ZOFF_BF16, ZOFF_BF16},
                                          {ZOFF_F32, ZOFF_F16, ZOFF_F16},
                                          {ZOFF_BF16, ZOFF_BF16, ZOFF_DTYPE_DEFAULT},
                                          {ZOFF_F16, ZOFF_F16, ZOFF_DTYPE_DEFAULT}};
    static const char *const NAMES[] = {"Adam", "Adagrad", "Lion", "SGD"};
    static const size_t COUNTS[] = {1, 7, 33, 1000, MOST};
    zoff_optimizer_hyper hypers[8];
    const size_t hyper_count = rules(hypers);
    unsigned cases = 0;
    arrays *ours = malloc(sizeof *ours), *theirs = malloc(sizeof *theirs);
    if (!ours || !theirs) {
        free(ours), free(theirs);
        return dprintf(to, "out of memory"), EXIT_FAILED;
    }
    int result = EXIT_DONE;
    for (size_t i = 0; i < hyper_count * 5 * 5 && result == EXIT_DONE; i++, cases++) {
        const zoff_dtype *types = TYPES[i / 5 % 5];
        const kernel_case k = {
            .hyper = hypers[i / 25], .master = types[0], .grad = types[1], .copy = types[2], .count = COUNTS[i % 5]};
        if (agrees(&k, ours, theirs))
            continue;
        dprintf(to, "%s, weights %s, gradients %s, %zu elements%s%s", NAMES[k.hyper.optimizer], dtype_name(k.master),
                dtype_name(k.grad), k.count, *zoff_last_error() ? ": " : "", zoff_last_error());
        result = EXIT_FAILED;
    }
    if (result == EXIT_DONE)
        dprintf(to, "%u cases of %d steps", cases, STEPS);
    free(ours);
    free(theirs);
    return result;
}

void selftest_kernels(const char *isa, selftest_result *out)
{
    int pipes[2], status = 0;
    *out = (selftest_result){0};
    fflush(NULL); /* the child has no output of the parent's to write again */
    const pid_t child = pipe(pipes) == 0 ? fork() : -1;
    if (child < 0) {
        snprintf(out->words, sizeof out->words, "cannot begin a process");
        return;
    }
    if (child == 0) {
        close(pipes[0]);
        setenv("ZOFF_ISA", isa, 1);
        set_log(false);
        _exit(strcmp(zoff_isa(), isa) != 0 ? EXIT_ABSENT : compare_all(pipes[1]));
    }
    close(pipes[1]);
    for (ssize_t bytes = 1, used = 0; bytes > 0 && used < SELFTEST_WORDS - 1; used += bytes)
        bytes = read(pipes[0], out->words + used, (size_t)(SELFTEST_WORDS - 1 - used));
    close(pipes[0]);
    waitpid(child, &status, 0);
    out->absent = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_ABSENT;
    out->agrees = WIFEXITED(status) && WEXITSTATUS(status) == EXIT_DONE;
    if (out->absent)
        snprintf(out->words, sizeof out->words, "not on this CPU");
    else if (!*out->words)
        snprintf(out->words, sizeof out->words, "its process ended with status %d", status);
}
