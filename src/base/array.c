/* array.c: grow by copying, not by realloc(): new elements must be zero, and a failed allocation must leave the old array. */
#include "array.h"

#include "bits.h"
#include "mem.h"
#include "try.h"

#include <string.h>

enum { LEAST = 16 }; /* elements */

zoff_status zoff_base_array_reserve(void *array, size_t count, size_t *capacity, size_t needed, size_t size, const char *what)
{
    if (needed <= *capacity)
        return ZOFF_OK;
    const size_t room = zoff_base_bits_max(zoff_base_bits_max(needed, LEAST), 2 * *capacity);
    void *old, *grown;
    ZOFF_TRY(zoff_base_mem_alloc(room, size, what, &grown));
    memcpy(&old, array, sizeof old);
    if (count)
        memcpy(grown, old, count * size);
    zoff_base_mem_free(old);
    memcpy(array, &grown, sizeof grown);
    *capacity = room;
    return ZOFF_OK;
}
