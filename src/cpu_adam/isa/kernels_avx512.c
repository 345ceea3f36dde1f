/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_avx512.c: every kernel for AVX-512 F, BW, VL and DQ. The flags of this file are in cmake/isa.cmake. */
#include "simd/simd_avx512.h"

#define ZOFF_KERNEL_PAIRS zoff_adam_kernels_avx512_pairs
#include "body/bodies.h"

const struct zoff_kernels zoff_adam_kernels_avx512 = {.name = "avx512",
#define K(kernel, piece_type) .kernel = kernel_##kernel,
                                                      ZOFF_KERNEL_LIST(K)
#undef K
};
