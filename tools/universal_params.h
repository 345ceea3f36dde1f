/* SPDX-License-Identifier: Apache-2.0 */
/* universal_params.h: which parameters of a checkpoint the parameters of a universal folder make. */
#ifndef ZOFF_TOOL_UNIVERSAL_PARAMS_H
#define ZOFF_TOOL_UNIVERSAL_PARAMS_H

#include "universal.h"

#include <zoff/checkpoint.h>

/* A parameter of a checkpoint. */
typedef struct universal_target {
    zoff_checkpoint_param facts;
    const universal_param **sources; /* sources: one, or one for each slice */
} universal_target;

typedef struct universal_targets {
    universal_target *targets;
    size_t count;
    pool memory;
} universal_targets;

/* Make the parameters, in the order of the model as far as it is known, then of names.
 * @param dtype type of all weights; ZOFF_DTYPE_DEFAULT: as in the model, or fp32
 * @param stacks  texts NAME=PATTERN: the parameters PATTERN, with "{}" for 0, 1, ..., are the slices of parameter NAME
 * The folder must outlive *out, which the caller frees by universal_targets_free(), also after an error. */
bool universal_targets_make(const universal_folder *u, zoff_dtype dtype, char *const *stacks, size_t stack_count,
                            universal_targets *out, fault *f);
void universal_targets_free(universal_targets *t);

#endif
