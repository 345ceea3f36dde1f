/* SPDX-License-Identifier: Apache-2.0 */
// kernels_avx512_test.cc: the kernels for AVX-512: vectors of 16.
#include "one_table.h"

#if defined(__x86_64__)
ONE_TABLE(avx512, zoff_base_cpu_has_avx512(), 16, &zoff_adam_kernels_avx512)
#else
ONE_TABLE(avx512, zoff_base_cpu_has_avx512(), 16, nullptr)
#endif
