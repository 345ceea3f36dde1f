/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_lent.c: implements gpu_lent.h. A trainer of its own needs the three calls of zoff in here. */
#include "gpu_lent.h"
#include "check.h"

#include <string.h>

typedef struct lent {
    gpu_weights base; /* first member, because callers have a pointer to it */
    zoff_engine *const *engine;
    cudaStream_t stream;
} lent;

static void must(zoff_status status)
{
    if (status >= 0)
        return;
    fprintf(stderr, "cuda_trainer: %s\n", zoff_last_error());
    exit(1);
}

static const bf16 *borrow(const gpu_weights *w, int id, size_t slice)
{
    const lent *l = (const lent *)w;
    const void *values = NULL;
    must(zoff_param_fetch(*l->engine, (zoff_param)id, slice, l->stream, &values));
    return values;
}

static void give_back(const gpu_weights *w, int id, size_t slice)
{
    const lent *l = (const lent *)w;
    must(zoff_param_release(*l->engine, (zoff_param)id, slice, l->stream));
}

static bf16 *gradient(const gpu_weights *w, int id, size_t slice)
{
    const lent *l = (const lent *)w;
    void *grad = NULL;
    must(zoff_grad_acquire(*l->engine, (zoff_param)id, slice, l->stream, &grad));
    return grad;
}

static void close_lent(gpu_weights *w)
{
    free(w);
}

gpu_weights *gpu_lent_open(const gpu_first *first, zoff_engine *const *engine, cudaStream_t stream)
{
    lent *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    *l = (lent){.base = {.parameter_count = first->parameter_count,
                         .lent = true,
                         .borrow = borrow,
                         .give_back = give_back,
                         .gradient = gradient,
                         .close = close_lent},
                .engine = engine,
                .stream = stream};
    memcpy(l->base.tensor, first->tensor, sizeof first->tensor);
    return &l->base;
}
