/* streams.c: one mapping, cut with a stagger of 4 KiB. */
#include "streams.h"

#include "program.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, STAGGER = 4096 };

static size_t round_up(size_t bytes)
{
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

int bench_streams_open(size_t bytes, unsigned arrays, bool huge, bench_streams *out)
{
    const size_t reserved = round_up(bytes) + (size_t)(2 * arrays + 2) * HUGE_PAGE;
    char *base = mmap(NULL, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *out = (bench_streams){.base = NULL};
    if (base == MAP_FAILED)
        return bench_fail("no memory for %zu MiB: %s; ask for fewer elements or bytes", bytes >> 20, strerror(errno));
    madvise(base, reserved, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); /* advice; the report says what came of it */
    *out = (bench_streams){.base = base, .bytes = reserved};
    return 0;
}

void bench_streams_close(bench_streams *streams)
{
    if (streams->base)
        munmap(streams->base, streams->bytes);
    *streams = (bench_streams){0};
}

void *bench_streams_take(bench_streams *streams, size_t bytes)
{
    const uintptr_t base = (uintptr_t)streams->base;
    const size_t start = round_up(base + streams->used) - base + streams->cut * STAGGER;
    if (start + bytes > streams->bytes)
        abort(); /* an error in the benchmark */
    streams->used = start + bytes;
    streams->cut++;
    return streams->base + start;
}

size_t bench_streams_huge_bytes(void)
{
    size_t kib = 0;
    bench_scan("/proc/self/smaps_rollup", 1, "AnonHugePages: %zu kB", &kib);
    return kib << 10;
}

float bench_value(size_t i, float size)
{
    return size * (float)(int32_t)((uint32_t)i * 2654435761u) / 2147483648.0f;
}

void bench_fill_bf16(uint16_t *out, size_t count, size_t first, float size)
{
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++)
        out[i] = bench_bf16(bench_value(first + i, size));
}

void bench_fill_float(float *out, size_t count, size_t first, float size)
{
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < count; i++)
        out[i] = bench_value(first + i, size);
}
