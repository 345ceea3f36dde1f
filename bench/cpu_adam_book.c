/* cpu_adam_book.c: the arrays that contestants walk over, and the book in which races are kept. */
#include "cpu_adam_bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

race *bench_book_open(bench_book *book, const char *part, const char *label)
{
    for (unsigned i = 0; i < book->count; i++) {
        if (strcmp(book->races[i]->part, part) == 0 && strcmp(book->races[i]->label, label) == 0)
            return book->races[i];
    }
    race *r = book->count < MOST_RACES ? calloc(1, sizeof *r) : NULL;
    if (!r) {
        fprintf(stderr, "cpu_adam: no room for the results of %s; ask for fewer sizes\n", part);
        return NULL;
    }
    r->part = part;
    snprintf(r->label, sizeof r->label, "%s", label);
    return book->races[book->count++] = r;
}

const race *bench_book_find(const bench_book *book, const char *part, const char *label)
{
    for (unsigned i = 0; i < book->count; i++) {
        if (strcmp(book->races[i]->part, part) == 0 && strcmp(book->races[i]->label, label) == 0)
            return book->races[i];
    }
    return NULL;
}

void bench_book_free(bench_book *book)
{
    for (unsigned i = 0; i < book->count; i++)
        free(book->races[i]);
    book->count = 0;
}

static uint32_t mixed(size_t i)
{
    return (uint32_t)i * 2654435761u;
}

float bench_arrays_value(size_t i, float size)
{
    return size * (float)(int32_t)mixed(i) / 2147483648.0f;
}

uint16_t bench_arrays_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* An fp16 of either sign between 2^-7 and 2^-6. */
static uint16_t any_f16(size_t i)
{
    return (uint16_t)(0x2000u | ((mixed(i) >> 16) & 0x83ffu));
}

int bench_arrays_open(bench_arrays *a, size_t count, unsigned threads)
{
    enum { ARRAYS = 9 };
    *a = (bench_arrays){.count = count};
    if (bench_streams_open(count * (5 * sizeof(float) + 4 * sizeof(uint16_t)), ARRAYS, &a->mapping) != 0) {
        fprintf(stderr, "cpu_adam: no memory for %zu elements: %s; ask for fewer with --sizes\n", count, strerror(errno));
        return -1;
    }
    float **const floats[] = {&a->p, &a->m, &a->v, &a->g, &a->wide};
    uint16_t **const halves[] = {&a->g16, &a->w16, &a->g_f16, &a->w_f16};
    int taken = 1;
    for (unsigned i = 0; i < 5; i++)
        taken = taken && (*floats[i] = bench_streams_take(&a->mapping, count * sizeof(float))) != NULL;
    for (unsigned i = 0; i < 4; i++)
        taken = taken && (*halves[i] = bench_streams_take(&a->mapping, count * sizeof(uint16_t))) != NULL;
    if (!taken) {
        fprintf(stderr, "cpu_adam: %zu elements do not fit into what was mapped for them\n", count);
        bench_arrays_close(a);
        return -1;
    }
#pragma omp parallel num_threads((int)threads)
    {
        size_t begin, end;
        nomath_share(count, &begin, &end);
        for (size_t i = begin; i < end; i++) {
            a->p[i] = bench_arrays_value(i, 0.02f);
            a->m[i] = 0;
            a->v[i] = 0;
            a->g[i] = a->wide[i] = bench_arrays_value(i + 1, 0.01f);
            a->g16[i] = bench_arrays_bf16(a->g[i]);
            a->w16[i] = bench_arrays_bf16(a->p[i]);
            a->g_f16[i] = any_f16(i + 1);
            a->w_f16[i] = any_f16(i);
        }
    }
    return 0;
}

void bench_arrays_close(bench_arrays *a)
{
    bench_streams_close(&a->mapping);
    *a = (bench_arrays){0};
}

void bench_hyper_adam(zoff_adam_hyper *out)
{
    zoff_adam_hyper_init(out);
    out->weight_decay = 0.01;
}
