/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_neon.c: every kernel for NEON. The flags of this file are in cmake/isa.cmake. */
#include "simd/simd_neon.h"

#include "body/bodies.h"

const struct zoff_kernels zoff_adam_kernels_neon = {.name = "neon",
#define K(kernel, piece_type) .kernel = kernel_##kernel,
                                                    ZOFF_KERNEL_LIST(K)
#undef K
};
