/* SPDX-License-Identifier: Apache-2.0 */
/* streams.c: mappings with a stagger of 4 KiB. */
#include "streams.h"

#include "program.h"

#include <errno.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, STAGGER = 4096 };

static size_t round_up(size_t bytes)
{
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

static size_t open_arrays;

static void unmap(void *base, size_t bytes)
{
    munmap(base, bytes);
    open_arrays--;
}

void *bench_array(size_t bytes, bool huge)
{
    const size_t shift = open_arrays++ % (HUGE_PAGE / STAGGER) * STAGGER, reserved = round_up(shift + bytes) + HUGE_PAGE;
    char *base = mmap(NULL, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        bench_die("no memory for %zu MiB: %s; ask for fewer elements or bytes", bytes >> 20, strerror(errno));
    madvise(base, reserved, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE); /* advice; the report says what came of it */
    bench_later(unmap, base, reserved);
    return base + (round_up((uintptr_t)base) - (uintptr_t)base) + shift;
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
