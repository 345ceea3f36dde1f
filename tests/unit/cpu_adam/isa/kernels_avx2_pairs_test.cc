/* SPDX-License-Identifier: Apache-2.0 */
// kernels_avx2_pairs_test.cc: steps of 16 elements at a time, see pairs.h.
#include "pairs.h"

#if defined(__x86_64__)
TEST(kernels_avx2_pairs, have_the_bits_of_the_scalar_kernels)
{
    if (!zoff_base_cpu_has_avx2())
        GTEST_SKIP() << "this CPU has no AVX2; kernels_bits runs the kernels of other machines";
    pairs::expect_bits_of_scalar(zoff_adam_kernels_avx2_pairs);
}
#endif
