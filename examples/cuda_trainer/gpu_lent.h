/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_lent.h: weights and gradients that zoff lends, slice by slice (ZeRO-3). The program has no memory for them. */
#ifndef CUDA_TRAINER_GPU_LENT_H
#define CUDA_TRAINER_GPU_LENT_H

#include "gpu_weights.h"

#include <zoff/zoff.h>

/* `engine` is set by the time of the first pass, by zoff_engine_open() with the tensors of the result. A failure to lend ends
 * the program, because a pass cannot continue. Returns NULL without memory. */
gpu_weights *gpu_lent_open(const gpu_first *first, zoff_engine *const *engine, cudaStream_t stream);

#endif
