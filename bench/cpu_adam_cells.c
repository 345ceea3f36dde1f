/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_adam_cells.c: a step by any rule on arrays of any types, timed. bench/cpu_adam_builds compiles this file with the headers
 * and the library of each build that it compares, and calls it from Python. So it keeps to what all of these builds have. */
#include "cpu_adam.h"

#include <string.h>
#include <time.h>

/* The arrays of a cell lie this far apart, and a little more, so that no two begin at the same place of a page. */
enum { ARRAYS = 5, STAGGER = 4096 + 256 };

typedef struct cell {
    int rule, moments, grads, master, copy, split;
    size_t count;
} cell;

size_t cells_bytes(size_t count);
void cells_fill(const cell *c, char *memory);
double cells_step(const cell *c, char *memory, size_t first, size_t now, unsigned threads, unsigned calls);

static size_t pitch(size_t count)
{
    return count * (sizeof(float) + 1) / 4096 * 4096 + STAGGER + 4096;
}

size_t cells_bytes(size_t count)
{
    return ARRAYS * pitch(count);
}

/* The elements [first, first + now) of a cell; `first` is a multiple of ZOFF_NORM_BLOCK. */
static zoff_adam_piece piece_of(const cell *c, char *memory, size_t first, size_t now, const zoff_adam_consts *consts)
{
    const zoff_adam_states states = zoff_adam_hyper_rule_states(consts->rule);
    const zoff_moments moments = (zoff_moments)c->moments;
    const size_t apart = pitch(c->count);
    char *m = memory + apart + zoff_adam_moments_offset(moments, ZOFF_MOMENT_M, first);
    char *v = memory + 2 * apart + zoff_adam_moments_offset(moments, ZOFF_MOMENT_V, first);
    return (zoff_adam_piece){.count = now,
                             .master = memory + first * zoff_adam_dtype_bytes((zoff_dtype)c->master),
                             .m = states.m ? m : NULL,
                             .v = states.v ? v : NULL,
                             .grad = memory + 3 * apart + first * zoff_adam_dtype_bytes((zoff_dtype)c->grads),
                             .copy_out = c->copy || c->split ? memory + 4 * apart + 2 * first : NULL,
                             .stream = now < c->count, /* it streams as a step on all elements would */
                             .grad_dtype = (zoff_dtype)c->grads,
                             .copy_dtype = (zoff_dtype)c->copy,
                             .consts = consts,
                             .master_dtype = (zoff_dtype)c->master,
                             .moments = (uint8_t)c->moments,
                             .split = c->split,
                             .key = 12345};
}

/* Small weights and gradients of both signs; moments and lower halves of zero. */
void cells_fill(const cell *c, char *memory)
{
    static float part[ZOFF_NORM_BLOCK];
    const size_t apart = pitch(c->count), width = zoff_adam_dtype_bytes((zoff_dtype)c->master);
    memset(memory, 0, ARRAYS * apart);
    for (size_t i = 0; i < c->count; i += ZOFF_NORM_BLOCK) {
        const size_t now = c->count - i < ZOFF_NORM_BLOCK ? c->count - i : ZOFF_NORM_BLOCK;
        for (size_t k = 0; k < now; k++)
            part[k] = 0.02f * (float)(int32_t)((uint32_t)(i + k) * 2654435761u) / 2147483648.0f;
        const zoff_cast_piece casts[] = {
            {.count = now, .dst = memory + i * width, .src = part, .dst_dtype = (zoff_dtype)c->master, .src_dtype = ZOFF_F32},
            {.count = now,
             .dst = memory + 3 * apart + i * zoff_adam_dtype_bytes((zoff_dtype)c->grads),
             .src = part,
             .dst_dtype = (zoff_dtype)c->grads,
             .src_dtype = ZOFF_F32}};
        zoff_adam_cast_run(1, casts, 2);
    }
}

/* Seconds of one step on these elements. */
double cells_step(const cell *c, char *memory, size_t first, size_t now, unsigned threads, unsigned calls)
{
    const zoff_adam_consts consts = {.rule = (zoff_adam_rule)c->rule,
                                     .grad_scale = 0.5f,
                                     .beta1 = 0.9f,
                                     .one_minus_beta1 = 0.1f,
                                     .beta2 = 0.999f,
                                     .one_minus_beta2 = 0.001f,
                                     .eps = 1e-8f,
                                     .inv_sqrt_bias2 = 1.5f,
                                     .step_size = -1e-6f,
                                     .decay = -1e-7f,
                                     .momentum = 0.9f};
    const zoff_adam_piece piece = piece_of(c, memory, first, now, &consts);
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (unsigned i = 0; i < calls; i++)
        zoff_adam_update_run(threads, &piece, 1, NULL, NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    return ((double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec)) / calls;
}
