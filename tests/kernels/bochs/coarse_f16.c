/* SPDX-License-Identifier: Apache-2.0 */
/* coarse_f16.c: makes kernels_bits for bochs write fp16 results without their last bit.
 *
 * In bochs 2.7 VCVTPS2PH rounds a tie between two fp16 numbers away from zero instead of to even. So it may give the odd
 * candidate where a CPU gives the even one; the two differ only in the last bit. All other results, of fp32, bf16 and fp64,
 * are compared in full. The linker puts this function between the program and bits_write() (--wrap). */
#include "bits_data.h"

#include <string.h>

void __real_bits_write(bits_data *data, const char *label, const char *array, zoff_dtype dtype, const void *values, size_t n);
void __wrap_bits_write(bits_data *data, const char *label, const char *array, zoff_dtype dtype, const void *values, size_t n);

void __wrap_bits_write(bits_data *data, const char *label, const char *array, zoff_dtype dtype, const void *values, size_t n)
{
    static uint16_t coarse[1 << 18];
    if (dtype != ZOFF_F16) {
        __real_bits_write(data, label, array, dtype, values, n);
        return;
    }
    if (n > sizeof coarse / sizeof coarse[0])
        bits_fail("%s: an array of %zu elements is too large for this emulator", label, n);
    memcpy(coarse, values, n * sizeof coarse[0]);
    for (size_t i = 0; i < n; i++)
        coarse[i] &= 0xfffe;
    __real_bits_write(data, label, array, dtype, coarse, n);
}
