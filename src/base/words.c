/* words.c: numbers as people read them, and patterns of names. */
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
    size_t at = 0, after_star = 0; /* after_star 0: there was none */
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
