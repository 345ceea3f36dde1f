/* SPDX-License-Identifier: Apache-2.0 */
/* nearest_moments.c: rounds the moments of an engine to the nearest bf16 after each step. bench/losses loads it into a trainer
 * (LD_PRELOAD), to show what training would be with moments in bf16 that are rounded so. The states of the engine are fp32. */
#include <zoff/engine.h>
#include <zoff/state.h>
#include <zoff/step.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Ties to even, as PyTorch rounds. */
static float nearest(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Elements of a parameter: the largest range that can be read. */
static size_t count_of(zoff_engine *e, zoff_param p)
{
    size_t low = 0, high = (size_t)1 << 40;
    float none;
    while (low < high) { /* a range of no elements from `middle` on is legal exactly up to the end */
        const size_t middle = low + (high - low + 1) / 2;
        if (zoff_state_read(e, p, ZOFF_STATE_M, middle, 0, &none) == ZOFF_OK)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static zoff_status round_kind(zoff_engine *e, zoff_param p, zoff_state_kind kind, size_t count)
{
    float *x = malloc(count * sizeof *x);
    zoff_status status = x ? zoff_state_read(e, p, kind, 0, count, x) : ZOFF_ERR_NO_MEMORY;
    for (size_t i = 0; status == ZOFF_OK && i < count; i++)
        x[i] = nearest(x[i]);
    if (status == ZOFF_OK)
        status = zoff_state_write(e, p, kind, 0, count, x);
    free(x);
    return status;
}

/* In place of the library's call of this name, which it makes first. */
zoff_status zoff_step(zoff_engine *e, const zoff_step_args *args, zoff_step_info *info)
{
    zoff_status (*real)(zoff_engine *, const zoff_step_args *, zoff_step_info *);
    void *symbol = dlsym(RTLD_NEXT, "zoff_step");
    memcpy(&real, &symbol, sizeof real);
    zoff_status status = real(e, args, info);
    float none;
    for (zoff_param p = 0; status == ZOFF_OK && zoff_state_read(e, p, ZOFF_STATE_MASTER, 0, 0, &none) == ZOFF_OK; p++) {
        const size_t count = count_of(e, p);
        for (int kind = ZOFF_STATE_M; status == ZOFF_OK && kind <= ZOFF_STATE_V; kind++)
            status = round_kind(e, p, (zoff_state_kind)kind, count);
    }
    return status;
}
