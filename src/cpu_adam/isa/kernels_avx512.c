/* kernels_avx512.c: every kernel for AVX-512 F, BW, VL and DQ. The flags of this file are in cmake/isa.cmake. */
#include "simd/simd_avx512.h"

#include "body/bodies.h"

static void update(const zoff_adam_piece *piece, size_t begin, size_t count)
{
    (update_has_pairs(piece) ? zoff_adam_kernels_avx512_pairs : kernel_update)(piece, begin, count);
}

const struct zoff_kernels zoff_adam_kernels_avx512 = {
    .name = "avx512", .update = update, .accumulate = kernel_accumulate, .cast = kernel_cast, .square_sum = kernel_square_sum};
