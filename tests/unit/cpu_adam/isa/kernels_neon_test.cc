/* SPDX-License-Identifier: Apache-2.0 */
// kernels_neon_test.cc: the kernels for NEON: vectors of 4.
#include "one_table.h"

#if defined(__aarch64__)
ONE_TABLE(neon, zoff_base_cpu_has_neon(), 4, &zoff_adam_kernels_neon)
#else
ONE_TABLE(neon, zoff_base_cpu_has_neon(), 4, nullptr)
#endif
