/* kernels_avx512.c: every kernel for AVX-512 F, BW, VL and DQ. The flags of this file are in cmake/isa.cmake. */
#include "simd/simd_avx512.h"

#include "body/bodies.h"

static void update(const zoff_adam_piece *piece, size_t begin, size_t count)
{
    (update_has_pairs(piece) ? zoff_adam_kernels_avx512_pairs : kernel_update)(piece, begin, count);
}

static void kernel_update_apart(const zoff_adam_apart *piece, size_t begin, size_t count)
{
    update_apart(piece, begin, count, update);
}

const struct zoff_kernels zoff_adam_kernels_avx512 = {.name = "avx512",
                                                      .update = update,
                                                      .update_apart = kernel_update_apart,
                                                      .accumulate = kernel_accumulate,
                                                      .cast = kernel_cast,
                                                      .square_sum = kernel_square_sum};
