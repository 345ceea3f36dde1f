/* kernels_sve.c: every kernel for SVE. The flags of this file are in cmake/isa.cmake. */
#include "simd/simd_sve.h"

#include "body/bodies.h"

static void kernel_update_apart(const zoff_adam_apart *piece, size_t begin, size_t count)
{
    update_apart(piece, begin, count, kernel_update);
}

const struct zoff_kernels zoff_adam_kernels_sve = {.name = "sve",
#define K(kernel, piece_type) .kernel = kernel_##kernel,
                                                   ZOFF_KERNEL_LIST(K)
#undef K
};
