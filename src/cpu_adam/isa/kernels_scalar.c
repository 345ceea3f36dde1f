/* kernels_scalar.c: every kernel for any CPU. The flags of this file are in cmake/isa.cmake. */
#include "simd/simd_scalar.h"

#include "body/bodies.h"

static void kernel_update_apart(const zoff_adam_apart *piece, size_t begin, size_t count)
{
    update_apart(piece, begin, count, kernel_update);
}

const struct zoff_kernels zoff_adam_kernels_scalar = {.name = "scalar",
#define K(kernel, piece_type) .kernel = kernel_##kernel,
                                                      ZOFF_KERNEL_LIST(K)
#undef K
};
