/* SPDX-License-Identifier: Apache-2.0 */
/* cpu_adam_formats.c: a step with masters in two halves, or with moments in bf16 or 8 bits, which no public function makes on
 * plain arrays: this file looks into the library. */
#include "cpu_adam_bench.h"

#include "cpu_adam.h"

#include <math.h>
#include <string.h>

size_t bench_codes_bytes(size_t count)
{
    return zoff_adam_moments_size(ZOFF_MOMENTS_Q8, ZOFF_MOMENT_M, count);
}

/* A step in a format on these streams. */
static zoff_adam_piece piece_of(bench_format format, const nomath_streams *s, size_t count, const zoff_adam_consts *consts)
{
    static const struct {
        bool splits;
        zoff_moments moments;
    } FORMATS[] = {[FORMAT_COPY] = {false, ZOFF_MOMENTS_F32},         [FORMAT_MOMENTS] = {false, ZOFF_MOMENTS_BF16},
                   [FORMAT_SPLIT] = {true, ZOFF_MOMENTS_F32},         [FORMAT_SPLIT_MOMENTS] = {true, ZOFF_MOMENTS_BF16},
                   [FORMAT_SPLIT_M8V16] = {true, ZOFF_MOMENTS_M8V16}, [FORMAT_SPLIT_Q8] = {true, ZOFF_MOMENTS_Q8}};
    void *const m[] = {s->m, s->m16, s->m8, s->m8}, *const v[] = {s->v, s->v16, s->v16, s->v8};
    const bool splits = FORMATS[format].splits;
    const zoff_moments moments = FORMATS[format].moments;
    return (zoff_adam_piece){.count = count,
                             .master = splits ? (void *)s->w16 : s->p,
                             .master_dtype = splits ? ZOFF_BF16 : ZOFF_F32,
                             .split = splits,
                             .m = m[moments],
                             .v = v[moments],
                             .moments = (uint8_t)moments,
                             .key = zoff_adam_dither_key("bench", 0, 0),
                             .grad = s->g16,
                             .grad_dtype = ZOFF_BF16,
                             .copy_out = splits ? s->low : s->w16,
                             .copy_dtype = ZOFF_BF16,
                             .consts = consts};
}

enum { CACHED = 2048, AT_ONCE = 64 };

/* The streams of one thread; in codes of 8 bits, a moment needs less than its place. */
typedef struct cached_streams {
    _Alignas(64) uint16_t w[CACHED], low[CACHED], g[CACHED], m[CACHED], v[CACHED];
    bool is_set;
} cached_streams;

static void step_cached(bench_format format, const nomath_streams *s, size_t steps, const zoff_adam_consts *consts)
{
    static _Thread_local cached_streams own;
    if (!own.is_set) {
        memcpy(own.w, s->w16, sizeof own.w);
        memcpy(own.g, s->g16, sizeof own.g);
    }
    own.is_set = true;
    memset(own.m, 0, sizeof own.m); /* another format may have used this memory */
    memset(own.v, 0, sizeof own.v);
    const nomath_streams streams = {
        .g16 = own.g, .w16 = own.w, .low = own.low, .m16 = own.m, .v16 = own.v, .m8 = (uint8_t *)own.m, .v8 = (uint8_t *)own.v};
    zoff_adam_piece pieces[AT_ONCE];
    for (unsigned i = 0; i < AT_ONCE; i++)
        pieces[i] = piece_of(format, &streams, CACHED, consts);
    for (size_t left = steps; left; left -= left < AT_ONCE ? left : AT_ONCE)
        zoff_adam_update_run(1, pieces, left < AT_ONCE ? left : AT_ONCE, NULL, NULL);
}

void bench_step(bench_format format, bench_place place, const nomath_streams *s, const nomath_streams *apart, size_t count,
                unsigned threads, const zoff_optimizer_hyper *hyper)
{
    zoff_adam_consts consts;
    zoff_adam_hyper_consts(hyper, BENCH_T, 0.5, &consts);
    const zoff_adam_piece piece = piece_of(format, s, count, &consts);
    if (place == PLACE_SAME) {
        zoff_adam_update_run(threads, &piece, 1, NULL, NULL);
    } else if (place == PLACE_APART) {
        const zoff_adam_apart other = {.old = piece,
                                       .master = piece.split ? (void *)apart->w16 : apart->p,
                                       .low = piece.split ? apart->low : NULL,
                                       .m = apart->m,
                                       .v = apart->v};
        zoff_adam_update_apart_run(threads, &other, 1, NULL, NULL);
    } else {
#pragma omp parallel num_threads((int)threads)
        step_cached(format, s, count / CACHED / threads + !(count / CACHED / threads), &consts);
    }
}

double bench_cycles_a_second(void)
{
#ifdef __x86_64__
    const double begin = bench_now();
    const unsigned long long first = __builtin_ia32_rdtsc();
    while (bench_now() - begin < 0.02)
        ;
    return (double)(__builtin_ia32_rdtsc() - first) / (bench_now() - begin);
#else
    return NAN;
#endif
}
