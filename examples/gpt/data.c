/* SPDX-License-Identifier: Apache-2.0 */
/* data.c: text files as one sequence of bytes, and batches of it. */
#include "data.h"
#include "model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int append(const char *path, FILE *file, gpt_text *text)
{
    for (;;) {
        enum { PIECE = 1 << 16 };
        uint8_t *bytes = realloc(text->bytes, text->count + PIECE);
        if (!bytes) {
            fprintf(stderr, "gpt: no memory for the text of %s\n", path);
            return -1;
        }
        text->bytes = bytes;
        const size_t got = fread(bytes + text->count, 1, PIECE, file);
        text->count += got;
        if (got < PIECE) {
            if (ferror(file))
                fprintf(stderr, "gpt: cannot read %s: %s\n", path, strerror(errno));
            return ferror(file) ? -1 : 0;
        }
    }
}

int gpt_text_load(const char *const *paths, size_t path_count, gpt_text *out)
{
    gpt_text text = {0};
    for (size_t i = 0; i < path_count; i++) {
        FILE *file = fopen(paths[i], "rb");
        if (!file)
            fprintf(stderr, "gpt: cannot open %s: %s\n", paths[i], strerror(errno));
        const int failed = !file || append(paths[i], file, &text);
        if (file)
            fclose(file);
        if (failed) {
            gpt_text_free(&text);
            return -1;
        }
    }
    *out = text;
    return 0;
}

void gpt_text_free(gpt_text *text)
{
    free(text->bytes);
    *text = (gpt_text){0};
}

void gpt_text_batch(const gpt_text *text, uint64_t seed, uint64_t step, size_t batch, size_t context, uint8_t *inputs,
                    uint8_t *targets)
{
    for (size_t row = 0; row < batch; row++) {
        const size_t start = gpt_random(~seed, step * batch + row) % (text->count - context);
        memcpy(inputs + row * context, text->bytes + start, context);
        memcpy(targets + row * context, text->bytes + start + 1, context);
    }
}

double gpt_text_entropy(const gpt_text *text)
{
    size_t seen[256] = {0};
    for (size_t i = 0; i < text->count; i++)
        seen[text->bytes[i]]++;
    double entropy = 0.0;
    for (size_t byte = 0; byte < 256; byte++)
        if (seen[byte])
            entropy -= (double)seen[byte] / (double)text->count * log((double)seen[byte] / (double)text->count);
    return entropy;
}
