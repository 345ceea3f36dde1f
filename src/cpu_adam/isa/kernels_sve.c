/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_sve.c: every kernel for SVE. The flags of this file are in cmake/isa.cmake. */
#include "simd/simd_sve.h"

#include "body/bodies.h"

const struct zoff_kernels zoff_adam_kernels_sve = {.name = "sve",
#define K(kernel, piece_type) .kernel = kernel_##kernel,
                                                   ZOFF_KERNEL_LIST(K)
#undef K
};
