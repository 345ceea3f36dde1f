/* SPDX-License-Identifier: Apache-2.0 */
/* array.c: grow by copying instead of realloc(), because new elements must be zero, and a failed allocation must leave the old
 * array. */
#include "array.h"

#include "bits.h"
#include "mem.h"
#include "try.h"

#include <stdarg.h>
#include <stdio.h>
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

void zoff_base_array_print(zoff_text *text, const char *format, ...)
{
    va_list args;
    for (int pass = 0; text->status == ZOFF_OK && pass < 2; pass++) { /* a second pass if the text had no room */
        const size_t room = text->capacity - text->bytes;
        va_start(args, format);
        const int length = vsnprintf(text->words ? text->words + text->bytes : NULL, room, format, args);
        va_end(args);
        if (length < 0 || (size_t)length < room) {
            text->bytes += length > 0 ? (size_t)length : 0;
            return;
        }
        text->status =
            zoff_base_array_reserve(&text->words, text->bytes, &text->capacity, text->bytes + (size_t)length + 1, 1, "a text");
    }
}

void zoff_base_array_print_json(zoff_text *text, const char *bytes)
{
    zoff_base_array_print(text, "\"");
    for (const unsigned char *c = (const unsigned char *)bytes; *c; c++)
        zoff_base_array_print(text, *c < 0x20 || *c >= 0x7f || *c == '"' || *c == '\\' ? "\\u%04x" : "%c", *c);
    zoff_base_array_print(text, "\"");
}
