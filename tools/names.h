/* SPDX-License-Identifier: Apache-2.0 */
/* names.h: names of parameters as names of tensors, which must be UTF-8. */
#ifndef ZOFF_TOOL_NAMES_H
#define ZOFF_TOOL_NAMES_H

#include "pool.h"

#include <stdbool.h>

/* The index that means no slice. */
#define NAME_WHOLE ((size_t)-1)

/* True if JSON can hold the text as it is. */
bool name_is_utf8(const char *text);

/* True if a tensor can have the name: it is UTF-8, is not reserved, and does not look like one that name_encode() has written,
 * so two names never become one. */
bool name_is_plain(const char *text);

/* Bytes of the UTF-8 character at `text`; 0: there is none. */
size_t name_character(const char *text);

/* Write '%', and each byte that is no part of a UTF-8 character, as '%' and two digits.  @return as pool_take() */
char *name_encode(pool *p, const char *text);

/* Undo name_encode().  @return NULL: the text is not of this form, or memory is exhausted */
char *name_decode(pool *p, const char *text);

/* Name one slice: each "{}" in `pattern` becomes its index. NAME_WHOLE: `pattern` is the name of a whole parameter.
 * @return as pool_take() */
char *name_of_slice(pool *p, const char *pattern, size_t slice);

/* Name one slice as a tensor: a name that is not plain is encoded. */
char *name_of_tensor(pool *p, const char *pattern, size_t slice);

#endif
