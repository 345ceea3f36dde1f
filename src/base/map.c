/* SPDX-License-Identifier: Apache-2.0 */
/* map.c: mappings, their NUMA nodes and their huge pages. */
#include "map.h"

#include "bits.h"
#include "try.h"

#include <errno.h>
#include <numa.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, PATH_BYTES = 4096, LINE_BYTES = 512 };

static const char HUGE_PAGES_FILE[] = "/sys/kernel/mm/transparent_hugepage/enabled";

static void interleave(void *base, size_t bytes)
{
    if (numa_available() < 0 || numa_num_task_nodes() < 2)
        return;
    struct bitmask *allowed = numa_get_mems_allowed();
    if (allowed) {
        numa_interleave_memory(base, bytes, allowed);
        numa_bitmask_free(allowed);
    }
}

zoff_status zoff_base_map_alloc(size_t bytes, const char *what, zoff_map_nodes nodes, zoff_map *out)
{
    /* The size, rounded up and with padding, must not overflow: memory close to the whole address space cannot be had anyway.
     */
    ZOFF_FAIL_IF(bytes > SIZE_MAX - 2 * (size_t)HUGE_PAGE, ZOFF_ERR_NO_MEMORY,
                 "cannot map %zu bytes for %s: larger than the address space", bytes, what);
    size_t reserved = zoff_base_bits_align(bytes ? bytes : 1, HUGE_PAGE) + HUGE_PAGE;
    void *origin = mmap(NULL, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ZOFF_FAIL_IF(origin == MAP_FAILED, ZOFF_ERR_NO_MEMORY, "cannot map %zu bytes for %s: %s", bytes, what,
                 zoff_base_status_errno(errno));
    char *base = (char *)zoff_base_bits_align((size_t)origin, HUGE_PAGE);
    /* Both calls are advice: without huge pages, or on other nodes, the step is slower, not wrong. */
    (void)madvise(base, reserved - HUGE_PAGE, MADV_HUGEPAGE);
    /* Keep the last, partial huge page small: with hundreds of small mappings those would be most of the memory. */
    const size_t rest = zoff_base_bits_align(bytes, HUGE_PAGE) - bytes, whole = bytes & ~((size_t)HUGE_PAGE - 1);
    if (rest > bytes / 16)
        (void)madvise(base + whole, reserved - HUGE_PAGE - whole, MADV_NOHUGEPAGE);
    if (nodes == ZOFF_MAP_INTERLEAVED)
        interleave(base, reserved - HUGE_PAGE);
    *out = (zoff_map){.base = base, .bytes = bytes, .reserved = reserved, .origin = origin};
    return ZOFF_OK;
}

void zoff_base_map_keep_from_children(const zoff_map *map)
{
    if (map->origin)
        (void)madvise(map->origin, map->reserved, MADV_DONTFORK);
}

void zoff_base_map_free(zoff_map *map)
{
    if (map->origin)
        munmap(map->origin, map->reserved);
    *map = (zoff_map){0};
}

/* Bytes that two ranges share. */
static size_t overlap(size_t begin, size_t end, const zoff_map *map)
{
    const size_t from = zoff_base_bits_max(begin, (size_t)map->origin);
    const size_t to = zoff_base_bits_min(end, (size_t)map->origin + map->reserved);
    return from < to ? to - from : 0;
}

size_t zoff_base_map_huge_bytes(const zoff_map *map)
{
    char line[LINE_BYTES];
    size_t total = 0, ours = 0, begin, end, kib;
    FILE *f = map->origin ? fopen("/proc/self/smaps", "re") : NULL;
    if (!f)
        return 0;
    /* A line has a range, "7f00-7f80 rw-p ...". The lines behind it describe it: "AnonHugePages:  4096 kB". Ranges ascend. */
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%zx-%zx ", &begin, &end) == 2) {
            if (begin >= (size_t)map->origin + map->reserved)
                break;
            ours = overlap(begin, end, map);
        } else if (ours && sscanf(line, "AnonHugePages: %zu kB", &kib) == 1) {
            total += zoff_base_bits_min(kib * 1024, ours);
        }
    }
    fclose(f);
    return zoff_base_bits_min(total, map->bytes);
}

unsigned zoff_base_map_nodes(void)
{
    if (numa_available() < 0)
        return 1;
    struct bitmask *allowed = numa_get_mems_allowed();
    const unsigned nodes = allowed ? numa_bitmask_weight(allowed) : 1;
    if (allowed)
        numa_bitmask_free(allowed);
    return nodes;
}

const char *zoff_base_map_huge_pages_off(const char *root)
{
    char path[PATH_BYTES], line[LINE_BYTES] = "";
    snprintf(path, sizeof path, "%s%s", root, HUGE_PAGES_FILE);
    FILE *f = fopen(path, "re");
    bool off = f && fgets(line, sizeof line, f) && strstr(line, "[never]");
    if (f)
        fclose(f);
    return off ? HUGE_PAGES_FILE : NULL;
}
