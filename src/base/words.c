/* words.c: numbers as people read them. */
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
