/* SPDX-License-Identifier: Apache-2.0 */
// kernels_sve_test.cc: the kernels for SVE: vectors of the length that CPU and system provide.
#include "one_table.h"

#if defined(__aarch64__)
#include <sys/prctl.h>

namespace
{
size_t lanes_of_this_process()
{
    const int bytes = prctl(PR_SVE_GET_VL);
    return bytes > 0 ? (size_t)(bytes & PR_SVE_VL_LEN_MASK) / sizeof(float) : 4;
}
} // namespace

ONE_TABLE(sve, zoff_base_cpu_has_sve(), lanes_of_this_process(), &zoff_adam_kernels_sve)
#else
ONE_TABLE(sve, zoff_base_cpu_has_sve(), 4, nullptr)
#endif
