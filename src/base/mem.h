/* mem.h: memory. Small things from the heap; large ones as mappings of their own, asked to be huge pages and spread over
 * the NUMA nodes that this process may use. */
#ifndef ZOFF_BASE_MEM_H
#define ZOFF_BASE_MEM_H

#include <zoff/status.h>

/* Zeroed memory for `count` things of `bytes` each; an error names `what`. Free with zoff_base_mem_free(). */
zoff_status zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer);
void zoff_base_mem_free(void *pointer);

/* A copy of a text on the heap; NULL gives NULL. */
zoff_status zoff_base_mem_copy_text(const char *text, char **out);

/* A mapping: zeroed, 2 MiB aligned, MADV_HUGEPAGE, pages not touched yet. */
typedef struct zoff_map {
    void *base;
    size_t bytes;    /* usable; what was asked for */
    size_t reserved; /* with the padding for alignment */
    void *origin;
} zoff_map;

zoff_status zoff_base_mem_map(size_t bytes, const char *what, zoff_map *out);
void zoff_base_mem_unmap(zoff_map *map); /* a zeroed map is allowed */

#endif
