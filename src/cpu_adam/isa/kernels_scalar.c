/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_scalar.c: every kernel for any CPU. The flags of this file are in cmake/isa.cmake. */
#include "simd/simd_scalar.h"

#include "body/bodies.h"

const struct zoff_kernels zoff_adam_kernels_scalar = {.name = "scalar",
#define K(kernel, piece_type) .kernel = kernel_##kernel,
                                                      ZOFF_KERNEL_LIST(K)
#undef K
};
