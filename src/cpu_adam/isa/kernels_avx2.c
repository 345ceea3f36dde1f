/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_avx2.c: every kernel for AVX2 with FMA. The flags of this file are in cmake/isa.cmake. */
#include "simd/simd_avx2.h"

#define ZOFF_KERNEL_PAIRS zoff_adam_kernels_avx2_pairs
#include "body/bodies.h"

const struct zoff_kernels zoff_adam_kernels_avx2 = {.name = "avx2",
#define K(kernel, piece_type) .kernel = kernel_##kernel,
                                                    ZOFF_KERNEL_LIST(K)
#undef K
};
