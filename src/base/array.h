/* array.h: arrays on the heap that grow. */
#ifndef ZOFF_BASE_ARRAY_H
#define ZOFF_BASE_ARRAY_H

#include <zoff/status.h>

/* Make room for `needed` elements of `size` bytes. The capacity at least doubles, so many small steps cost no more than one
 * large one. `array` is the address of the pointer to the elements. The first `count` are preserved; those behind them are
 * zero.
 * @return ERR_NO_MEMORY, naming `what`; the array is unchanged then */
zoff_status zoff_base_array_reserve(void *array, size_t count, size_t *capacity, size_t needed, size_t size, const char *what);

#endif
