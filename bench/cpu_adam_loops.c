/* cpu_adam_loops.c: yardsticks and rivals of the CPU Adam benchmark, in plain C for the compiler to vectorise. */
#include "cpu_adam_loops.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { CUT = 1024 };

/* The calling thread's share [*begin, *end). */
static void find_share(size_t count, size_t *begin, size_t *end)
{
    const size_t threads = (size_t)omp_get_num_threads(), thread = (size_t)omp_get_thread_num();
    *begin = count * thread / threads / CUT * CUT;
    *end = thread + 1 == threads ? count : count * (thread + 1) / threads / CUT * CUT;
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float from_bf16(uint16_t half)
{
    return float_of((uint32_t)half << 16);
}

/* To nearest even; the weights of a benchmark are finite. */
static uint16_t to_bf16(float x)
{
    const uint32_t bits = bits_of(x);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void loops_fill(const loops_arrays *a, float *g, uint16_t *g16)
{
#pragma omp parallel num_threads((int)a->threads)
    {
        size_t begin, end;
        find_share(a->count, &begin, &end);
        for (size_t i = begin; i < end; i++) {
            const uint32_t mixed = (uint32_t)i * 2654435761u;
            const float x = (float)(int32_t)mixed / 2147483648.0f; /* in [-1, 1) */
            a->p[i] = 0.02f * x;
            a->m[i] = 0;
            a->v[i] = 0;
            g[i] = 0.01f * (float)(int32_t)(mixed ^ 0x5bd1e995u) / 2147483648.0f;
            g16[i] = to_bf16(g[i]);
            a->copy16[i] = to_bf16(a->p[i]);
            a->wide[i] = g[i];
        }
    }
}

static void nomath_fp32(size_t n, float *restrict p, float *restrict m, float *restrict v, const float *restrict g)
{
    for (size_t i = 0; i < n; i++) {
        m[i] = 0.9f * m[i] + g[i];
        v[i] = 0.9f * v[i] + g[i] * g[i]; /* stays a variance: the steps work on the same arrays */
        p[i] = 0.9f * p[i] + g[i];
    }
}

void loops_nomath_fp32(const loops_arrays *a)
{
#pragma omp parallel num_threads((int)a->threads)
    {
        size_t begin, end;
        find_share(a->count, &begin, &end);
        nomath_fp32(end - begin, a->p + begin, a->m + begin, a->v + begin, a->g + begin);
    }
}

static void nomath_bf16(size_t n, float *restrict p, float *restrict m, float *restrict v, const uint16_t *restrict g16,
                        uint16_t *restrict copy16)
{
    for (size_t i = 0; i < n; i++) {
        const float g = from_bf16(g16[i]);
        m[i] = 0.9f * m[i] + g;
        v[i] = 0.9f * v[i] + g * g;
        p[i] = 0.9f * p[i] + g;
        copy16[i] = (uint16_t)(bits_of(p[i]) >> 16);
    }
}

void loops_nomath_bf16(const loops_arrays *a)
{
#pragma omp parallel num_threads((int)a->threads)
    {
        size_t begin, end;
        find_share(a->count, &begin, &end);
        nomath_bf16(end - begin, a->p + begin, a->m + begin, a->v + begin, a->g16 + begin, a->copy16 + begin);
    }
}

static void triad(size_t n, float *restrict to, const float *restrict b, const float *restrict c)
{
    for (size_t i = 0; i < n; i++)
        to[i] = b[i] + 0.5f * c[i];
}

void loops_triad(const loops_arrays *a)
{
#pragma omp parallel num_threads((int)a->threads)
    {
        size_t begin, end;
        find_share(a->count, &begin, &end);
        triad(end - begin, a->wide + begin, a->g + begin, a->p + begin);
    }
}

void loops_memcpy(const loops_arrays *a)
{
#pragma omp parallel num_threads((int)a->threads)
    {
        size_t begin, end;
        find_share(a->count, &begin, &end);
        memcpy(a->wide + begin, a->g + begin, (end - begin) * sizeof *a->wide);
    }
}

static void plain_adam(size_t n, const loops_adam h, float *restrict p, float *restrict m, float *restrict v,
                       const float *restrict g)
{
    for (size_t i = 0; i < n; i++) {
        m[i] = h.beta1 * m[i] + (1 - h.beta1) * g[i];
        v[i] = h.beta2 * v[i] + (1 - h.beta2) * g[i] * g[i];
        const float update = m[i] / (sqrtf(v[i]) * h.inv_sqrt_bias2 + h.eps);
        p[i] += h.decay * p[i] + h.step_size * update;
    }
}

void loops_plain_adam(const loops_arrays *a, const loops_adam *h, const float *g)
{
#pragma omp parallel num_threads((int)a->threads)
    {
        size_t begin, end;
        find_share(a->count, &begin, &end);
        plain_adam(end - begin, *h, a->p + begin, a->m + begin, a->v + begin, g + begin);
    }
}

static void upcast(size_t n, float *restrict to, const uint16_t *restrict from)
{
    for (size_t i = 0; i < n; i++)
        to[i] = from_bf16(from[i]);
}

void loops_upcast(const loops_arrays *a)
{
#pragma omp parallel num_threads((int)a->threads)
    {
        size_t begin, end;
        find_share(a->count, &begin, &end);
        upcast(end - begin, a->wide + begin, a->g16 + begin);
    }
}

/* Four independent sums of vectors, as a tuned library has them: one alone waits for the adder. */
static double norm(size_t n, const float *restrict g)
{
    double total = 0;
    for (size_t at = 0; at < n; at += 4 * CUT) {
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        if (n - at >= 4 * CUT) {
            const float *restrict x = g + at;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
            for (size_t i = 0; i < CUT; i++) {
                s0 += x[i] * x[i];
                s1 += x[i + CUT] * x[i + CUT];
                s2 += x[i + 2 * CUT] * x[i + 2 * CUT];
                s3 += x[i + 3 * CUT] * x[i + 3 * CUT];
            }
        } else {
            for (size_t i = at; i < n; i++)
                s0 += g[i] * g[i];
        }
        total += (double)s0 + (double)s1 + (double)s2 + (double)s3;
    }
    return total;
}

double loops_norm(const loops_arrays *a)
{
    double total = 0;
#pragma omp parallel num_threads((int)a->threads) reduction(+ : total)
    {
        size_t begin, end;
        find_share(a->count, &begin, &end);
        total += norm(end - begin, a->wide + begin);
    }
    return total;
}

static double norm_bf16(size_t n, const uint16_t *restrict g16)
{
    double total = 0;
    for (size_t at = 0; at < n; at += 4 * CUT) {
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        if (n - at >= 4 * CUT) {
            const uint16_t *restrict x = g16 + at;
#pragma omp simd reduction(+ : s0, s1, s2, s3)
            for (size_t i = 0; i < CUT; i++) {
                const float x0 = from_bf16(x[i]), x1 = from_bf16(x[i + CUT]);
                const float x2 = from_bf16(x[i + 2 * CUT]), x3 = from_bf16(x[i + 3 * CUT]);
                s0 += x0 * x0;
                s1 += x1 * x1;
                s2 += x2 * x2;
                s3 += x3 * x3;
            }
        } else {
            for (size_t i = at; i < n; i++)
                s0 += from_bf16(g16[i]) * from_bf16(g16[i]);
        }
        total += (double)s0 + (double)s1 + (double)s2 + (double)s3;
    }
    return total;
}

double loops_norm_bf16(const loops_arrays *a)
{
    double total = 0;
#pragma omp parallel num_threads((int)a->threads) reduction(+ : total)
    {
        size_t begin, end;
        find_share(a->count, &begin, &end);
        total += norm_bf16(end - begin, a->g16 + begin);
    }
    return total;
}

static void scale(size_t n, float *restrict x, float factor)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= factor;
}

void loops_scale(const loops_arrays *a, float factor)
{
#pragma omp parallel num_threads((int)a->threads)
    {
        size_t begin, end;
        find_share(a->count, &begin, &end);
        scale(end - begin, a->wide + begin, factor);
    }
}

static void downcast(size_t n, uint16_t *restrict to, const float *restrict from)
{
    for (size_t i = 0; i < n; i++)
        to[i] = to_bf16(from[i]);
}

void loops_downcast(const loops_arrays *a)
{
#pragma omp parallel num_threads((int)a->threads)
    {
        size_t begin, end;
        find_share(a->count, &begin, &end);
        downcast(end - begin, a->copy16 + begin, a->p + begin);
    }
}
