/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: a list of allocations. */
#include "pool.h"

#include "verbs.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct pool_piece {
    struct pool_piece *before;
    max_align_t memory[];
};

void *pool_take(pool *p, size_t count, size_t element_bytes)
{
    size_t bytes;
    struct pool_piece *piece = NULL;
    if (!__builtin_mul_overflow(count, element_bytes, &bytes) && bytes <= SIZE_MAX - sizeof *piece)
        piece = calloc(1, sizeof *piece + bytes);
    if (!piece) {
        failed("out of memory for %zu elements of %zu bytes", count, element_bytes);
        return NULL;
    }
    piece->before = p->last;
    p->last = piece;
    return piece->memory;
}

char *pool_text(pool *p, const char *text, size_t bytes)
{
    char *copy = pool_take(p, bytes + 1, 1);
    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void pool_free(pool *p)
{
    while (p->last) {
        struct pool_piece *before = p->last->before;
        free(p->last);
        p->last = before;
    }
}
