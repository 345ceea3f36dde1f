/* SPDX-License-Identifier: Apache-2.0 */
// float_control.h: the floating-point control register as a library of the program may leave it, and a number that reveals it.
#ifndef ZOFF_TESTS_FLOAT_CONTROL_H
#define ZOFF_TESTS_FLOAT_CONTROL_H

#if defined(__x86_64__)
const unsigned FLUSH_TO_ZERO_AND_ROUND_UP = 0x1f80 | 0x8000 | 0x0040 | 0x4000;
const unsigned FLOAT_MODES = 0xffc0; // the control bits, without the status bits

inline float halved(float value)
{
    volatile float x = value, half = 0.5f, product = x * half; // computed at run time, not by the compiler
    return product;
}

inline unsigned get_control()
{
    return __builtin_ia32_stmxcsr();
}

inline void set_control(unsigned value)
{
    __builtin_ia32_ldmxcsr(value);
}
#endif

#endif
