/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_hidden.h: with --just-in-time a forward pass is enqueued while the step before it is still open. */
#ifndef CUDA_TRAINER_GPU_HIDDEN_H
#define CUDA_TRAINER_GPU_HIDDEN_H

#include "gpu_weights.h"

#include <zoff/zoff.h>

/* Weights of the program whose borrowers wait until they are new. Takes `own`, and closes it. `*engine` is set later. */
gpu_weights *gpu_hidden_open(gpu_weights *own, zoff_engine *const *engine, cudaStream_t stream);

/* Begin a step, once a backward pass is enqueued; and end it, once the next forward pass is. Return 0, or -1. */
int gpu_hidden_begin(zoff_engine *engine);
int gpu_hidden_end(zoff_engine *engine, zoff_step_info *info);

#endif
