/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.h: training over several ranks, with weights and gradients in the program's memory or in the library's. */
#ifndef GPT_RANKS_H
#define GPT_RANKS_H

#include "data.h"
#include "options.h"

/* Train as one rank of a job. Returns 0, or -1 after a line on stderr. */
int gpt_ranks_train(const gpt_options *options, const gpt_text *text);

#endif
