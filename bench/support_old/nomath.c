/* nomath.c: which of the kernels this CPU can run, and running one on a team. */
#include "nomath.h"

#include <omp.h>

unsigned nomath_tables(const nomath_table *out[NOMATH_TABLES])
{
    unsigned count = 0;
    out[count++] = &nomath_table_portable;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        out[count++] = &nomath_table_avx2;
    if (__builtin_cpu_supports("avx512f"))
        out[count++] = &nomath_table_avx512;
#endif
    return count;
}

void nomath_share(size_t count, size_t *begin, size_t *end)
{
    enum { CUT = 1024 };
    const size_t threads = (size_t)omp_get_num_threads(), thread = (size_t)omp_get_thread_num();
    *begin = count / CUT * thread / threads * CUT;
    *end = thread + 1 == threads ? count : count / CUT * (thread + 1) / threads * CUT;
}

static volatile uint32_t kept; /* what was only read ends here, so that it is read */

void nomath_run(nomath_fn fn, const nomath_streams *s, size_t count, unsigned threads)
{
    if (threads <= 1) {
        kept = fn(s, 0, count);
        return;
    }
#pragma omp parallel num_threads((int)threads)
    {
        size_t begin, end;
        nomath_share(count, &begin, &end);
        kept = fn(s, begin, end);
    }
}
