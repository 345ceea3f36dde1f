/* SPDX-License-Identifier: Apache-2.0 */
// host_kernels.cc: kernels.cu compiled for the CPU, unchanged, with device.h in place of nvcc's headers.
#include "host_kernels.h"

#include <cstring>

// The launch functions of kernels.cu are never called in this build.
#define ZOFF_LAUNCH(kernel, grid, block, stream, argument)                                                                     \
    ((void)(argument), (void)(block), (void)(grid), cudaErrorNotSupported)
#include "kernels.cu"

namespace zoff_test
{
// A kernel has one argument, a batch.
template <class arguments> static launched *make(void (*kernel)(const arguments), void **given, bool shuffles)
{
    return new launched{dim3(), dim3(), shuffles, [kernel, copy = *(const arguments *)given[0]] { kernel(copy); }};
}

launched *find_kernel(const char *name, void **given)
{
    if (strcmp(name, "zoff_update") == 0)
        return make(zoff_update, given, false);
    if (strcmp(name, "zoff_update_q8") == 0)
        return make(zoff_update_q8, given, true);
    if (strcmp(name, "zoff_accumulate") == 0)
        return make(zoff_accumulate, given, false);
    if (strcmp(name, "zoff_add_bins") == 0)
        return make(zoff_add_bins, given, false);
    if (strcmp(name, "zoff_cast") == 0)
        return make(zoff_cast, given, false);
    if (strcmp(name, "zoff_square_sum") == 0)
        return make(zoff_square_sum, given, true);
    return nullptr;
}
} // namespace zoff_test
