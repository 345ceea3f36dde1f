/* SPDX-License-Identifier: Apache-2.0 */
/* map.h: large memory: mappings aligned to huge pages, with a request for them, and how many they got. */
#ifndef ZOFF_BASE_MAP_H
#define ZOFF_BASE_MAP_H

#include <zoff/status.h>

/* A mapping: zeroed, 2 MiB aligned, MADV_HUGEPAGE, pages not touched yet. */
typedef struct zoff_map {
    void *base;
    size_t bytes;    /* usable bytes: those that were asked for */
    size_t reserved; /* bytes with the padding for alignment */
    void *origin;
} zoff_map;

/* The NUMA node of a page. */
typedef enum zoff_map_nodes {
    ZOFF_MAP_FIRST_TOUCH, /* the node of the thread that touches it first: for pages that one thread of the team works on */
    ZOFF_MAP_INTERLEAVED  /* each of the allowed nodes in turn: for pages that any thread may work on */
} zoff_map_nodes;

zoff_status zoff_base_map_alloc(size_t bytes, const char *what, zoff_map_nodes nodes, zoff_map *out);
/* Exclude the mapping from children made by fork(), because the kernel would have to copy pages at once that it has pinned for
 * I/O. */
void zoff_base_map_keep_from_children(const zoff_map *map);
void zoff_base_map_free(zoff_map *map); /* a zeroed map is accepted */

/* Bytes of the mapping in huge pages now; 0 if the kernel does not tell. The kernel counts by ranges, so it may include
 * neighbours, but the result never exceeds the mapping. Walks the page tables: do not call it in every step. */
size_t zoff_base_map_huge_bytes(const zoff_map *map);

/* Nodes whose memory this process may use; 1 if the kernel does not tell. */
unsigned zoff_base_map_nodes(void);

/* The file that disables huge pages for everybody; NULL if they are available. `root` is "" but in tests. */
const char *zoff_base_map_huge_pages_off(const char *root);

#endif
