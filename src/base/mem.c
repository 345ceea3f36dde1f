/* SPDX-License-Identifier: Apache-2.0 */
/* mem.c: the heap, with error messages. */
#include "mem.h"

#include "bits.h"
#include "try.h"

#include <stdlib.h>
#include <string.h>

zoff_status zoff_base_mem_alloc(size_t count, size_t bytes, const char *what, void *out_pointer)
{
    /* Allocate at least one byte, because an empty list is still a list, and NULL means failure. Do not pass an overflowing
     * product to calloc, because some checkers stop the program for that. */
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
