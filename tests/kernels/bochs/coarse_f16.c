/* coarse_f16.c: kernels_bits for bochs writes fp16 results without their last bit.
 *
 * VCVTPS2PH of bochs 2.7 rounds what lies halfway between two numbers of fp16 away from zero, not to the even one: of the two
 * candidates it takes the odd one where a CPU takes the even one, and the two differ in nothing but the last bit. Everything
 * else, all bits of fp32, bf16 and fp64 included, is compared as it is. The linker puts this function between the program and
 * bits_write() (--wrap). */
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
