/* SPDX-License-Identifier: Apache-2.0 */
/* array.h: arrays on the heap that grow, and texts. */
#ifndef ZOFF_BASE_ARRAY_H
#define ZOFF_BASE_ARRAY_H

#include <zoff/status.h>

/* A text on the heap. Zero: empty. Free `words` with zoff_base_mem_free(). */
typedef struct zoff_text {
    char *words; /* characters, with a final 0 once something was printed */
    size_t bytes, capacity;
    zoff_status status; /* ERR_NO_MEMORY after a failure; then nothing more is printed */
} zoff_text;

/* Make room for `needed` elements of `size` bytes. The capacity at least doubles, so many small steps cost no more than one
 * large one. `array` is the address of the pointer to the elements. The first `count` are preserved; those behind them are
 * zero.
 * @return ERR_NO_MEMORY, naming `what`; the array is unchanged then */
zoff_status zoff_base_array_reserve(void *array, size_t count, size_t *capacity, size_t needed, size_t size, const char *what);

/* Append to a text. The caller looks at `status` when all is printed. */
void zoff_base_array_print(zoff_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Append a JSON text of any bytes: each of its characters stands for one byte. */
void zoff_base_array_print_json(zoff_text *text, const char *bytes);

#endif
