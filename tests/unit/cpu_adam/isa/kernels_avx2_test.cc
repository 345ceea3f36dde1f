/* SPDX-License-Identifier: Apache-2.0 */
// kernels_avx2_test.cc: the kernels for AVX2: vectors of 8.
#include "one_table.h"

#if defined(__x86_64__)
ONE_TABLE(avx2, zoff_base_cpu_has_avx2(), 8, &zoff_adam_kernels_avx2)
#else
ONE_TABLE(avx2, zoff_base_cpu_has_avx2(), 8, nullptr)
#endif
