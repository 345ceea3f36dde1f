/* words.h: numbers as people read them. */
#ifndef ZOFF_BASE_WORDS_H
#define ZOFF_BASE_WORDS_H

#include <stdint.h>

/* "12.3 MiB". The text is in one of eight buffers of this thread: the ninth call overwrites it. */
const char *zoff_base_words_bytes(uint64_t bytes);

#endif
