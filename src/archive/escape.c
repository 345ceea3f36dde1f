/* SPDX-License-Identifier: Apache-2.0 */
/* escape.c: names of any bytes as text for JSON. Bytes that are not valid UTF-8, control characters and "%" become "%" and two
 * hexadecimal digits. Each name has exactly one text, so texts may be compared instead of names. */
#include "archive.h"

#include "try.h"
#include "words.h"

#include <string.h>

static const char DIGITS[] = "0123456789ABCDEF";

/* Bytes at `text` that stand for themselves; 0: the first one is escaped. */
static size_t plain(const unsigned char *text)
{
    return *text < 32 || *text == 127 || *text == '%' ? 0 : zoff_base_words_character((const char *)text);
}

zoff_status zoff_archive_escape_write(const char *name, char **out)
{
    const unsigned char *in = (const unsigned char *)name;
    char *text;
    ZOFF_TRY(zoff_base_mem_alloc(strlen(name) * 3 + 1, 1, "a name in a manifest", &text));
    char *end = text;
    while (*in) {
        size_t bytes = plain(in);
        if (bytes == 0) {
            *end++ = '%';
            *end++ = DIGITS[*in >> 4];
            *end++ = DIGITS[*in & 15];
            in++;
        }
        for (; bytes; bytes--)
            *end++ = (char)*in++;
    }
    *end = 0;
    *out = text;
    return ZOFF_OK;
}

static int digit(char c)
{
    const char *at = c ? strchr(DIGITS, c) : NULL;
    return at ? (int)(at - DIGITS) : -1;
}

static char *read_text(const char *text, char *to)
{
    while (*text) {
        if (*text != '%') {
            *to++ = *text++;
            continue;
        }
        const int high = digit(text[1]), low = high < 0 ? -1 : digit(text[2]);
        if (low < 0 || high * 16 + low == 0)
            return NULL;
        *to++ = (char)(high * 16 + low);
        text += 3;
    }
    return to;
}

zoff_status zoff_archive_escape_read(const char *text, char **out)
{
    char *name, *again = NULL;
    ZOFF_TRY(zoff_base_mem_alloc(strlen(text) + 1, 1, "a name of a manifest", &name));
    bool right = read_text(text, name) != NULL;
    zoff_status status = right ? zoff_archive_escape_write(name, &again) : ZOFF_OK;
    right = right && again && strcmp(again, text) == 0;
    zoff_base_mem_free(again);
    if (status == ZOFF_OK && right) {
        *out = name;
        return ZOFF_OK;
    }
    zoff_base_mem_free(name);
    ZOFF_TRY(status);
    return zoff_base_status_fail(ZOFF_ERR_CORRUPT, "the name '%.100s' is not escaped as this format does it", text);
}
