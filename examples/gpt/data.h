/* SPDX-License-Identifier: Apache-2.0 */
/* data.h: text files as one sequence of bytes, and batches of it. */
#ifndef GPT_DATA_H
#define GPT_DATA_H

#include <stddef.h>
#include <stdint.h>

typedef struct gpt_text {
    uint8_t *bytes;
    size_t count;
} gpt_text;

/* Read files one after the other into *out. Returns 0, or -1 after an error message on stderr. */
int gpt_text_load(const char *const *paths, size_t path_count, gpt_text *out);
void gpt_text_free(gpt_text *text);

/* Fill `batch` rows of `context` bytes and, as targets, the byte after each. The seed and the number of the step choose the
 * rows. The text must have more than `context` bytes. */
void gpt_text_batch(const gpt_text *text, uint64_t seed, uint64_t step, size_t batch, size_t context, uint8_t *inputs,
                    uint8_t *targets);

/* Entropy of the distribution of single bytes, in nats: the loss of a model that knows their frequencies and nothing else. */
double gpt_text_entropy(const gpt_text *text);

#endif
