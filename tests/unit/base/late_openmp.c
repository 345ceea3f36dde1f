/* SPDX-License-Identifier: Apache-2.0 */
/* late_openmp.c: a library that brings OpenMP into a program that has none, and counts its parallel regions. */
#include <dlfcn.h>
#include <omp.h>
#include <stdatomic.h>
#include <string.h>

#pragma GCC visibility push(default)

static atomic_uint regions;

/* This definition is before libgomp's in the order of libraries. */
void GOMP_parallel(void (*fn)(void *), void *ctx, unsigned threads, unsigned flags);
void GOMP_parallel(void (*fn)(void *), void *ctx, unsigned threads, unsigned flags)
{
    void (*next)(void (*)(void *), void *, unsigned, unsigned) = NULL;
    void *found = dlsym(RTLD_NEXT, "GOMP_parallel");
    memcpy(&next, &found, sizeof next);
    atomic_fetch_add(&regions, 1);
    next(fn, ctx, threads, flags);
}

void late_region(int threads);
void late_region(int threads)
{
    atomic_int sum = 0; /* a call of the runtime, which makes the linker keep it */
#pragma omp parallel num_threads(threads)
    atomic_fetch_add(&sum, omp_get_thread_num());
}

unsigned late_regions(void);
unsigned late_regions(void)
{
    return atomic_load(&regions);
}
