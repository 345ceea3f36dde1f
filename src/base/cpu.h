/* cpu.h: what this CPU can do, and how floating point is set while our kernels run. Compiled without ISA flags. */
#ifndef ZOFF_BASE_CPU_H
#define ZOFF_BASE_CPU_H

#include <stdbool.h>

/* Feature bits, never the vendor's name: usable means that the CPU has it and the system saves its registers. */
bool zoff_base_cpu_has_avx2(void);   /* AVX2, FMA and F16C */
bool zoff_base_cpu_has_avx512(void); /* AVX-512 F, BW, DQ and VL */
bool zoff_base_cpu_has_neon(void);   /* every aarch64 CPU */
bool zoff_base_cpu_has_sve(void);

/* Round to nearest, subnormals honoured, no traps: any library of the process may have set it otherwise (one that was linked
 * with -ffast-math does, for every thread). enter() returns what leave() restores. */
unsigned zoff_base_cpu_float_enter(void);
void zoff_base_cpu_float_leave(unsigned saved);

/* Between two looks at a variable that another thread changes. */
void zoff_base_cpu_pause(void);

#endif
