/* cpu.c: feature bits by the compiler's own builtins, and the floating-point control register. */
#include "cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h> /* MXCSR only; vector intrinsics live in cpu_adam/simd/ */

/* clang 14 has no name for this one. */
static bool has_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & (1u << 29));
}

bool zoff_base_cpu_has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

bool zoff_base_cpu_has_avx512(void)
{
    return zoff_base_cpu_has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

unsigned zoff_base_cpu_float_enter(void)
{
    unsigned saved = _mm_getcsr();
    _mm_setcsr(0x1f80); /* the power-on default */
    return saved;
}

void zoff_base_cpu_float_leave(unsigned saved)
{
    _mm_setcsr(saved);
}
#else
bool zoff_base_cpu_has_avx2(void)
{
    return false;
}

bool zoff_base_cpu_has_avx512(void)
{
    return false;
}

unsigned zoff_base_cpu_float_enter(void)
{
    unsigned saved = 0;
#if defined(__aarch64__)
    unsigned long fpcr;
    __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
    saved = (unsigned)fpcr;
    __asm__ volatile("msr fpcr, %0" ::"r"(0ul));
#endif
    return saved;
}

void zoff_base_cpu_float_leave(unsigned saved)
{
#if defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" ::"r"((unsigned long)saved));
#else
    (void)saved;
#endif
}
#endif
