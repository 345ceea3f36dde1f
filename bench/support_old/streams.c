/* streams.c: one mapping, cut with a stagger of 4 KiB. */
#include "streams.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, STAGGER = 4096 };

static size_t round_up(size_t bytes)
{
    return (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
}

int bench_streams_open(size_t bytes, unsigned arrays, bench_streams *out)
{
    const size_t reserved = round_up(bytes) + (size_t)(2 * arrays + 2) * HUGE_PAGE;
    char *base = mmap(NULL, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return -1;
    madvise(base, reserved, MADV_HUGEPAGE); /* a wish; what came of it is reported */
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
        return NULL;
    streams->used = start + bytes;
    streams->cut++;
    return streams->base + start;
}

size_t bench_streams_process_bytes(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    const size_t length = strlen(key);
    char line[256];
    size_t kib = 0;
    while (file && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, length) == 0 && sscanf(line + length, ": %zu kB", &kib) == 1)
            break;
    }
    if (file)
        fclose(file);
    return kib * 1024;
}

size_t bench_streams_huge_bytes(void)
{
    return bench_streams_process_bytes("/proc/self/smaps_rollup", "AnonHugePages");
}
