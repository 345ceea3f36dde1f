/* map.h: large memory: mappings of their own, aligned to huge pages and asked to be made of them, and how many they got. */
#ifndef ZOFF_BASE_MAP_H
#define ZOFF_BASE_MAP_H

#include <zoff/status.h>

/* A mapping: zeroed, 2 MiB aligned, MADV_HUGEPAGE, pages not touched yet. */
typedef struct zoff_map {
    void *base;
    size_t bytes;    /* usable; what was asked for */
    size_t reserved; /* with the padding for alignment */
    void *origin;
} zoff_map;

/* On which NUMA node a page comes to lie. */
typedef enum zoff_map_nodes {
    ZOFF_MAP_FIRST_TOUCH, /* that of the thread that touches it first: for pages that belong to one thread of the team */
    ZOFF_MAP_INTERLEAVED  /* each of the allowed ones in turn: for pages that any thread may work on */
} zoff_map_nodes;

zoff_status zoff_base_map_alloc(size_t bytes, const char *what, zoff_map_nodes nodes, zoff_map *out);
/* A child made by fork() gets none of it: what the kernel has pinned for I/O it would have to copy at once. */
void zoff_base_map_keep_from_children(const zoff_map *map);
void zoff_base_map_free(zoff_map *map); /* a zeroed map is allowed */

/* How much of it is in huge pages now. The kernel counts by ranges of one kind, so neighbours of ours may be counted in, but
 * never more than the map has. 0 where the kernel does not tell. It walks the page tables: not for every step. */
size_t zoff_base_map_huge_bytes(const zoff_map *map);

/* Nodes whose memory this process may use; 1 where the kernel does not tell. */
unsigned zoff_base_map_nodes(void);

/* The file that switches huge pages off for everybody, or NULL where they can be had; under another root for tests. */
const char *zoff_base_map_huge_pages_off(void);
const char *zoff_base_map_huge_pages_off_under(const char *root);

#endif
