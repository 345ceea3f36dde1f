/* SPDX-License-Identifier: Apache-2.0 */
/* kernels_avx512_pairs.c: the step with split masters, bf16 gradients, and moments in bf16 or 8 bits for AVX-512, 32 elements
 * at a time. */
#include "simd/simd_avx512_pairs.h"

#include "body/body_pairs.h"

void zoff_adam_kernels_avx512_pairs(const zoff_adam_piece *piece, size_t begin, size_t count)
{
    kernel_update_pairs(piece, begin, count);
}
