/* SPDX-License-Identifier: Apache-2.0 */
/* cpu.h: what this CPU can do, and how floating point is set while our kernels run. Compiled without ISA flags. */
#ifndef ZOFF_BASE_CPU_H
#define ZOFF_BASE_CPU_H

#include <stdbool.h>

/* Whether a feature is usable: the CPU has it and the system saves its registers. Tests feature bits, never the vendor's name.
 */
bool zoff_base_cpu_has_avx2(void);   /* AVX2, FMA and F16C */
bool zoff_base_cpu_has_avx512(void); /* AVX-512 F, BW, DQ and VL */
bool zoff_base_cpu_has_neon(void);   /* every aarch64 CPU */
bool zoff_base_cpu_has_sve(void);

/* Round to nearest, keep subnormals, no traps. Any library of the process may have changed these: linking with -ffast-math
 * changes them for every thread. enter() returns the value for leave(). */
unsigned zoff_base_cpu_float_enter(void);
void zoff_base_cpu_float_leave(unsigned saved);

/* Clear the upper halves of this thread's vector registers. Call it after a function of another library that may leave them
 * set: on x86-64, code without AVX is up to six times slower until they are cleared. */
void zoff_base_cpu_clear_vectors(void);

/* Call between two reads of a variable that another thread changes. */
void zoff_base_cpu_pause(void);

#endif
