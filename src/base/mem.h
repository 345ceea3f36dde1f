/* SPDX-License-Identifier: Apache-2.0 */
/* mem.h: small things on the heap. Large memory is mapped: map.h. */
#ifndef ZOFF_BASE_MEM_H
#define ZOFF_BASE_MEM_H

#include <zoff/status.h>

/* Zeroed memory for `count` things of `bytes` each; an error names `what`. Free with zoff_base_mem_free(). */
zoff_status zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer);
void zoff_base_mem_free(void *pointer);

/* A copy of a text on the heap; NULL gives NULL. */
zoff_status zoff_base_mem_copy_text(const char *text, char **out);

#endif
