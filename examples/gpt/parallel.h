/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.h: the ranks that share the layers of one model copy (tensor parallelism).
 *
 * Each part has some of the attention heads and as many columns of the MLP:
 *
 *     norm1 -- qkv [in][own columns] -- attention, own heads -- proj [own rows][out] --(sum of all parts)-- + bias, + stream
 *     norm2 -- fc  [in][own columns] -- GELU ----------------- out  [own rows][out] --(sum of all parts)-- + bias, + stream
 *
 * The gradients of norm1 and norm2 are sums over all parts, too. Norms, embeddings, the head, and biases that follow a sum
 * are replicated: every part has them, computes the same with them, and gets the same gradients, bit for bit. */
#ifndef GPT_PARALLEL_H
#define GPT_PARALLEL_H

#include <stddef.h>

typedef struct gpt_parallel {
    unsigned part, parts;
    const char *label; /* label of this part in checkpoints; NULL: it is the whole model */
    void *ctx;
    /* Replace `data` by its sum over the parts, with the same bits on all of them. Every part calls it with the same count. A
     * failure ends the program, because the passes cannot continue. */
    void (*sum)(void *ctx, float *data, size_t count);
} gpt_parallel;

/* One rank that has the whole model. */
extern const gpt_parallel gpt_alone;

/* Where element `index` of a part's slice lies in the slice of the whole model. The parts take turns in it, with `run`
 * elements each; 0: the tensor is replicated. */
static inline size_t gpt_place_in_whole(const gpt_parallel *parallel, size_t run, size_t index)
{
    return run ? (index / run * parallel->parts + parallel->part) * run + index % run : index;
}

#endif
