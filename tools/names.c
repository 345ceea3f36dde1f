/* SPDX-License-Identifier: Apache-2.0 */
/* names.c: UTF-8, bytes written as '%' and two digits, and names of slices. */
#include "names.h"

#include <stdio.h>
#include <string.h>

/* Refuse surrogates, and forms longer than needed, because they are no characters. */
size_t name_character(const char *at)
{
    const unsigned char *text = (const unsigned char *)at;
    static const unsigned LEAST[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t bytes = *text < 0x80             ? 1
                         : (*text & 0xe0) == 0xc0 ? 2
                         : (*text & 0xf0) == 0xe0 ? 3
                         : (*text & 0xf8) == 0xf0 ? 4
                                                  : 0;
    if (bytes < 2)
        return bytes;
    unsigned code = *text & (0xffu >> (bytes + 1));
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3fu);
    }
    return code < LEAST[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : bytes;
}

bool name_is_utf8(const char *text)
{
    while (*text) {
        const size_t bytes = name_character(text);
        if (bytes == 0)
            return false;
        text += bytes;
    }
    return true;
}

/* The key of safetensors for metadata, which no tensor may have. */
static const char RESERVED[] = "__metadata__";

/* The value of a digit of name_encode(); -1: it is none. */
static int digit_of(char c)
{
    static const char DIGITS[] = "0123456789ABCDEF";
    const char *digit = c ? strchr(DIGITS, c) : NULL;
    return digit ? (int)(digit - DIGITS) : -1;
}

/* Whether the text at `c` is a byte as name_encode() writes it. */
static bool is_encoded(const char *c)
{
    const int high = *c == '%' ? digit_of(c[1]) : -1, low = high < 0 ? -1 : digit_of(c[2]);
    return low >= 0 && (high >= 8 || (high << 4 | low) == '%' || (high << 4 | low) == RESERVED[0]);
}

bool name_is_plain(const char *text)
{
    for (const char *c = text; *c; c++) {
        if (is_encoded(c))
            return false;
    }
    return name_is_utf8(text) && strcmp(text, RESERVED) != 0;
}

char *name_encode(pool *p, const char *text)
{
    char *encoded = pool_take(p, strlen(text) + 1, 3);
    char *to = encoded;
    if (encoded && strcmp(text, RESERVED) == 0)
        to += snprintf(to, 4, "%%%02X", (unsigned char)*text++);
    while (encoded && *text) {
        const size_t bytes = *text == '%' ? 0 : name_character(text);
        if (bytes == 0) {
            to += snprintf(to, 4, "%%%02X", (unsigned char)*text++);
        } else {
            memcpy(to, text, bytes);
            to += bytes;
            text += bytes;
        }
    }
    return encoded;
}

char *name_decode(pool *p, const char *text)
{
    char *name = pool_take(p, strlen(text) + 1, 1);
    for (char *to = name; name && *text; text++) {
        if (*text != '%') {
            *to++ = *text;
            continue;
        }
        const int high = digit_of(text[1]), low = high < 0 ? -1 : digit_of(text[2]);
        if (low < 0 || high + low == 0)
            return NULL;
        *to++ = (char)(high << 4 | low);
        text += 2;
    }
    return name;
}

/* Write the index of a slice in place of each "{}". */
static char *fill_in(pool *p, const char *pattern, size_t slice)
{
    char index[24];
    const size_t digits = (size_t)snprintf(index, sizeof index, "%zu", slice);
    /* each "{}" has two bytes, so this is enough for any number of them */
    char *name = pool_take(p, strlen(pattern) + 1, digits);
    char *to = name;
    while (name && *pattern) {
        const bool is_place = pattern[0] == '{' && pattern[1] == '}';
        memcpy(to, is_place ? index : pattern, is_place ? digits : 1);
        to += is_place ? digits : 1;
        pattern += is_place ? 2 : 1;
    }
    return name;
}

char *name_of_slice(pool *p, const char *pattern, size_t slice)
{
    return slice == NAME_WHOLE ? pool_text(p, pattern, strlen(pattern)) : fill_in(p, pattern, slice);
}

char *name_of_tensor(pool *p, const char *pattern, size_t slice)
{
    char *name = name_of_slice(p, pattern, slice);
    return name && !name_is_plain(name) ? name_encode(p, name) : name;
}
