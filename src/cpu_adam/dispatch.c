/* SPDX-License-Identifier: Apache-2.0 */
/* dispatch.c: choose one table of kernels for the process, once, by feature bits. It also stores the number of elements from
 * which a team is faster than one thread. This is one of the three pieces of global mutable state in the library. The table is
 * written once, before the first kernel runs; any caller may renew the estimates. */
#include "kernels.h"

#include "cpu.h"
#include "env.h"
#include "log.h"
#include "team.h"
#include "try.h"
#include "worth.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static bool any_cpu(void)
{
    return true;
}

/* Instruction sets, from slowest to fastest. */
static const struct {
    const struct zoff_kernels *kernels;
    bool (*usable)(void);
    const char *needs;
} TABLES[] = {
    {&zoff_adam_kernels_scalar, any_cpu, "nothing"},
#if defined(__x86_64__)
    {&zoff_adam_kernels_avx2, zoff_base_cpu_has_avx2, "AVX2, FMA and F16C"},
    {&zoff_adam_kernels_avx512, zoff_base_cpu_has_avx512, "AVX-512 F, BW, DQ and VL"},
#elif defined(__aarch64__)
    {&zoff_adam_kernels_neon, zoff_base_cpu_has_neon, "NEON"},
#ifndef ZOFF_WITHOUT_SVE /* zoff.c, by a clang that has the intrinsics only with an option for all of it */
    {&zoff_adam_kernels_sve, zoff_base_cpu_has_sve, "SVE"},
#endif
#endif
};
enum { TABLE_COUNT = sizeof TABLES / sizeof TABLES[0] };

static struct {
    pthread_once_t once;
    const struct zoff_kernels *kernels;
    unsigned threads;
    /* The last measured team, with sleeping threads and with spinning ones. It has a cache line of its own, because it is
     * written now and then, and all threads read the table above. */
    _Alignas(64) atomic_size_t shared_from[2]; /* elements; see worth.h */
    atomic_size_t measured_until[2];           /* elements until the next measurement */
} chosen = {.once = PTHREAD_ONCE_INIT};

static size_t find_best(void)
{
    size_t best = 0;
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if (TABLES[i].usable())
            best = i;
    }
    return best;
}

/* The values of ZOFF_ISA: "auto, scalar, ...". */
static void list_names(char *out, size_t bytes)
{
    size_t length = (size_t)snprintf(out, bytes, "auto");
    for (size_t i = 0; i < TABLE_COUNT && length < bytes; i++)
        length += (size_t)snprintf(out + length, bytes - length, ", %s", TABLES[i].kernels->name);
}

static const struct zoff_kernels *choose_kernels(void)
{
    const size_t best = find_best();
    const char *fastest = TABLES[best].kernels->name;
    const char *variable = zoff_base_env_name(ZOFF_ENV_ISA);
    const char *wanted = zoff_base_env_get(ZOFF_ENV_ISA);
    if (!wanted || strcmp(wanted, "auto") == 0)
        return TABLES[best].kernels;
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if (strcmp(wanted, TABLES[i].kernels->name) != 0)
            continue;
        if (!TABLES[i].usable()) {
            ZOFF_WARN("%s=%s, but this CPU lacks %s; using %s", variable, wanted, TABLES[i].needs, fastest);
            return TABLES[best].kernels;
        }
        if (i < best)
            ZOFF_WARN("%s=%s forces slower kernels than this CPU's %s; unset it for full speed", variable, wanted, fastest);
        return TABLES[i].kernels;
    }
    char names[64];
    list_names(names, sizeof names);
    ZOFF_WARN("%s=%s names no kernels of this build (%s); using %s", variable, wanted, names, fastest);
    return TABLES[best].kernels;
}

static void choose(void)
{
    chosen.kernels = choose_kernels();
    chosen.threads = zoff_base_team_threads(0);
}

const struct zoff_kernels *zoff_adam_dispatch_kernels(void)
{
    pthread_once(&chosen.once, choose);
    return chosen.kernels;
}

unsigned zoff_adam_dispatch_threads(void)
{
    pthread_once(&chosen.once, choose);
    return chosen.threads;
}

bool zoff_adam_dispatch_shares(unsigned threads, size_t elements)
{
    if (threads < 2 || elements < ZOFF_WORTH_LEAST)
        return false;
    if (elements >= ZOFF_WORTH_ASLEEP_MOST)
        return true;
    const bool spins = zoff_base_team_spins(threads);
    if (elements < (spins ? ZOFF_WORTH_LEAST : ZOFF_WORTH_ASLEEP_LEAST) || (spins && elements >= ZOFF_WORTH_MOST))
        return spins;
    /* Callers on several threads may overwrite each other's count and measurement, because both are estimates. */
    const size_t left = atomic_load_explicit(&chosen.measured_until[spins], memory_order_relaxed);
    if (left > elements) {
        atomic_store_explicit(&chosen.measured_until[spins], left - elements, memory_order_relaxed);
    } else {
        const zoff_worth worth = zoff_adam_worth_measure(zoff_adam_dispatch_kernels(), threads);
        atomic_store_explicit(&chosen.shared_from[spins], worth.from, memory_order_relaxed);
        atomic_store_explicit(&chosen.measured_until[spins], worth.good, memory_order_relaxed);
    }
    return elements >= atomic_load_explicit(&chosen.shared_from[spins], memory_order_relaxed);
}

const struct zoff_kernels *zoff_adam_dispatch_table(const char *isa)
{
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if (strcmp(isa, TABLES[i].kernels->name) == 0 && TABLES[i].usable())
            return TABLES[i].kernels;
    }
    return NULL;
}

zoff_status zoff_adam_dispatch_probe(const char *isa)
{
    for (size_t i = 0; i < TABLE_COUNT; i++) {
        if (strcmp(isa, TABLES[i].kernels->name) != 0)
            continue;
        ZOFF_FAIL_IF(!TABLES[i].usable(), ZOFF_ERR_UNSUPPORTED, "this CPU lacks %s", TABLES[i].needs);
        return ZOFF_OK;
    }
    return zoff_base_status_fail(ZOFF_ERR_UNSUPPORTED, "this build is for another architecture");
}

const char *zoff_isa(void)
{
    return zoff_adam_dispatch_kernels()->name;
}
