/* nearest.c: edit distance, and what it is used for: "did you mean". */
#include "nearest_priv.h"

#include "schema.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 64 };

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Optimal string alignment: Levenshtein's table with swaps of neighbours; three rows of it are enough. */
unsigned zoff_config_nearest_distance(const char *a, const char *b)
{
    size_t a_length = strlen(a), b_length = strlen(b);
    if (a_length > LONGEST || b_length > LONGEST)
        return LONGEST + 1;
    unsigned rows[3][LONGEST + 1];
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_length; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a[i - 2]))
                row[j] = least(row[j], above2[j - 2] + 1);
        }
    }
    return rows[a_length % 3][b_length];
}

/* A third of the letters may be wrong, and at least one. */
static unsigned tolerance(const char *word)
{
    size_t length = strlen(word);
    return length < 6 ? 1 : (unsigned)(length / 3);
}

static const char *last_word(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* In the same section first; then the same word, or nearly, in another section. */
const char *zoff_config_nearest_key(const char *section, const char *key)
{
    size_t count, section_length = strlen(section);
    const zoff_config_key *table = zoff_config_schema_table(&count);
    const char *here = NULL, *there = NULL;
    unsigned here_best = tolerance(key), there_best = 1;
    for (size_t i = 0; i < count; i++) {
        const char *path = table[i].path, *word = last_word(path);
        bool sibling =
            (size_t)(word - path) == section_length + (section_length > 0) && strncmp(path, section, section_length) == 0;
        unsigned distance = zoff_config_nearest_distance(key, word);
        if (sibling && distance <= here_best && (!here || distance < here_best)) {
            here = path;
            here_best = distance;
        } else if (!sibling && distance <= there_best && (!there || distance < there_best)) {
            there = path;
            there_best = distance;
        }
    }
    /* "lr" at the top level is more likely optimizer.params.lr than a misspelt key of two letters. */
    return here && !(there && there_best < here_best) ? here : there;
}

void zoff_config_nearest_choice(const char *list, const char *word, char *dst, size_t dst_bytes)
{
    unsigned best = tolerance(word) + 1;
    dst[0] = 0;
    while (*list) {
        char choice[LONGEST];
        size_t bytes = strcspn(list, "|");
        snprintf(choice, sizeof choice, "%.*s", (int)bytes, list);
        unsigned distance = zoff_config_nearest_distance(word, choice);
        if (distance < best) {
            best = distance;
            snprintf(dst, dst_bytes, "%s", choice);
        }
        list += bytes + (list[bytes] == '|');
    }
}
