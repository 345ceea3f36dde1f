/* SPDX-License-Identifier: Apache-2.0 */
/* plain_adamw.h: the optimizer of a trainer without any library: fp32, everything in DRAM. */
#ifndef GPT_PLAIN_ADAMW_H
#define GPT_PLAIN_ADAMW_H

#include <stddef.h>

typedef struct gpt_hyper {
    double lr, beta1, beta2, eps, weight_decay, clip; /* clip 0: none */
} gpt_hyper;

/* Step number t = 1, 2, ... on `count` weights; m and v are zeros before the first. Returns the norm of the gradients. */
double gpt_plain_adamw(const gpt_hyper *hyper, int t, size_t count, float *weights, const float *grads, float *m, float *v);

#endif
