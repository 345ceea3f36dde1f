/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h: memory that a verb takes in many pieces and frees at once. */
#ifndef ZOFF_TOOL_POOL_H
#define ZOFF_TOOL_POOL_H

#include <stddef.h>

/* A list of allocations. All zero: empty. */
typedef struct pool {
    struct pool_piece *last;
} pool;

/* Take zeroed memory for `count` elements.  @return NULL when memory is exhausted, after an error on stderr */
void *pool_take(pool *p, size_t count, size_t element_bytes);

/* Copy the first `bytes` of a text, and add a final 0.  @return as pool_take() */
char *pool_text(pool *p, const char *text, size_t bytes);

/* Free all memory of the pool. */
void pool_free(pool *p);

#endif
