/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.c: feature bits by the compiler's own builtins or the system's word, and the floating-point control register. */
#include "cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <xmmintrin.h> /* MXCSR only; vector intrinsics live in cpu_adam/simd/ */

/* clang 14 has no name for F16C. */
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

void zoff_base_cpu_clear_vectors(void)
{
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vzeroupper");
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

void zoff_base_cpu_clear_vectors(void) {}
#endif

#if defined(__aarch64__)
#include <sys/auxv.h> /* brings HWCAP_SVE */

bool zoff_base_cpu_has_neon(void)
{
    return true;
}

/* The kernel sets the bit where it saves these registers; a program cannot ask the CPU itself. */
bool zoff_base_cpu_has_sve(void)
{
    return getauxval(AT_HWCAP) & HWCAP_SVE;
}

unsigned zoff_base_cpu_float_enter(void)
{
    unsigned long saved;
    __asm__ volatile("mrs %0, fpcr" : "=r"(saved));
    __asm__ volatile("msr fpcr, %0" ::"r"(0ul));
    return (unsigned)saved;
}

void zoff_base_cpu_float_leave(unsigned saved)
{
    __asm__ volatile("msr fpcr, %0" ::"r"((unsigned long)saved));
}
#else
bool zoff_base_cpu_has_neon(void)
{
    return false;
}

bool zoff_base_cpu_has_sve(void)
{
    return false;
}
#endif

#if !defined(__x86_64__) && !defined(__aarch64__)
unsigned zoff_base_cpu_float_enter(void)
{
    return 0;
}

void zoff_base_cpu_float_leave(unsigned saved) {}
#endif

void zoff_base_cpu_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#endif
}
