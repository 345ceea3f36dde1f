/* SPDX-License-Identifier: Apache-2.0 */
/* words.c: numbers as people read them, patterns of names, and characters of UTF-8. */
#include "words.h"

#include <stdio.h>

const char *zoff_base_words_bytes(uint64_t bytes)
{
    static _Thread_local char texts[8][32];
    static _Thread_local unsigned next;
    static const char *const UNITS[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    char *text = texts[next++ % 8];
    double value = (double)bytes;
    unsigned unit = 0;
    while (value >= 1024 && unit < 4) {
        value /= 1024;
        unit++;
    }
    snprintf(text, sizeof texts[0], unit ? "%.1f %s" : "%.0f %s", value, UNITS[unit]);
    return text;
}

bool zoff_base_words_match(const char *pattern, size_t bytes, const char *name)
{
    size_t at = 0, after_star = 0; /* after_star: position behind the last "*"; 0: there was none */
    const char *left = NULL;       /* the last "*" stands for everything before it */
    while (*name) {
        if (at < bytes && pattern[at] == '*') {
            after_star = ++at;
            left = name;
        } else if (at < bytes && pattern[at] == *name) {
            at++;
            name++;
        } else if (after_star) {
            at = after_star;
            name = ++left;
        } else {
            return false;
        }
    }
    while (at < bytes && pattern[at] == '*')
        at++;
    return at == bytes;
}

size_t zoff_base_words_character(const char *at)
{
    const unsigned char *text = (const unsigned char *)at;
    const unsigned char c = text[0];
    const size_t bytes = c < 0x80                 ? 1
                         : c >= 0xC2 && c <= 0xDF ? 2
                         : c >= 0xE0 && c <= 0xEF ? 3
                         : c >= 0xF0 && c <= 0xF4 ? 4
                                                  : 0;
    for (size_t i = 1; i < bytes; i++) {
        if ((text[i] & 0xC0) != 0x80)
            return 0;
    }
    /* Refuse longer forms of short characters, surrogates, and numbers that no character has. */
    if ((c == 0xE0 && text[1] < 0xA0) || (c == 0xED && text[1] > 0x9F) || (c == 0xF0 && text[1] < 0x90) ||
        (c == 0xF4 && text[1] > 0x8F))
        return 0;
    return bytes;
}
