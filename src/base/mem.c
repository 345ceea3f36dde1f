/* mem.c: heap, mappings, and what is left of the machine's memory. */
#include "mem.h"

#include "bits.h"
#include "try.h"

#include <errno.h>
#include <numa.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20 };

zoff_status zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer)
{
    /* One byte at least: an empty list is still a list, and NULL means failure. A product that is no size never reaches calloc,
     * which some checkers stop the program for. */
    size_t total;
    bool fits = zoff_base_bits_mul(count ? count : 1, bytes ? bytes : 1, &total) && total <= PTRDIFF_MAX;
    void *pointer = fits ? calloc(1, total) : NULL;
    ZOFF_FAIL_IF(!pointer, ZOFF_ERR_NO_MEMORY, "out of memory: %zu x %zu bytes for %s", count, bytes, what);
    memcpy(out_pointer, &pointer, sizeof pointer);
    return ZOFF_OK;
}

void zoff_base_mem_free(void *pointer)
{
    free(pointer);
}

zoff_status zoff_base_mem_copy_text(const char *text, char **out)
{
    if (!text) {
        *out = NULL;
        return ZOFF_OK;
    }
    char *copy = NULL;
    ZOFF_TRY(zoff_base_mem_alloc(strlen(text) + 1, 1, "a text", &copy));
    memcpy(copy, text, strlen(text));
    *out = copy;
    return ZOFF_OK;
}

/* The team's threads sit on all nodes that the process may use, and any of them may work on any page. */
static void spread_over_nodes(void *base, size_t bytes)
{
    if (numa_available() < 0 || numa_num_task_nodes() < 2)
        return;
    struct bitmask *allowed = numa_get_mems_allowed();
    if (allowed) {
        numa_interleave_memory(base, bytes, allowed);
        numa_bitmask_free(allowed);
    }
}

zoff_status zoff_base_mem_map(size_t bytes, const char *what, zoff_map *out)
{
    /* Rounded up with its padding it must still be a number: what comes close to the end of the address space cannot be had. */
    ZOFF_FAIL_IF(bytes > SIZE_MAX - 2 * (size_t)HUGE_PAGE, ZOFF_ERR_NO_MEMORY,
                 "cannot map %zu bytes for %s: larger than the "
                 "address space",
                 bytes, what);
    size_t reserved = zoff_base_bits_align(bytes ? bytes : 1, HUGE_PAGE) + HUGE_PAGE;
    void *origin = mmap(NULL, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ZOFF_FAIL_IF(origin == MAP_FAILED, ZOFF_ERR_NO_MEMORY, "cannot map %zu bytes for %s: %s", bytes, what,
                 zoff_base_status_errno(errno));
    char *base = (char *)zoff_base_bits_align((size_t)origin, HUGE_PAGE);
    /* Both are advice: without huge pages the step is slower, not wrong. */
    (void)madvise(base, reserved - HUGE_PAGE, MADV_HUGEPAGE);
    spread_over_nodes(base, reserved - HUGE_PAGE);
    *out = (zoff_map){.base = base, .bytes = bytes, .reserved = reserved, .origin = origin};
    return ZOFF_OK;
}

void zoff_base_mem_unmap(zoff_map *map)
{
    if (map->origin)
        munmap(map->origin, map->reserved);
    *map = (zoff_map){0};
}
