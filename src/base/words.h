/* SPDX-License-Identifier: Apache-2.0 */
/* words.h: numbers as people read them, patterns of names, and characters of UTF-8. */
#ifndef ZOFF_BASE_WORDS_H
#define ZOFF_BASE_WORDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "12.3 MiB". The text is in one of eight buffers of this thread: the ninth call overwrites it. */
const char *zoff_base_words_bytes(uint64_t bytes);

/* Whether a name matches a pattern of `bytes` characters. Only "*" is special in it: names may have any bytes. */
bool zoff_base_words_match(const char *pattern, size_t bytes, const char *name);

/* Bytes of the valid UTF-8 character at `text`; 0: there is none. */
size_t zoff_base_words_character(const char *text);

#endif
