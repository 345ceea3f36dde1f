/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_hidden.c: implements gpu_hidden.h. A trainer of its own needs the three calls of zoff in here. */
#include "gpu_hidden.h"
#include "check.h"

#include <string.h>

typedef struct hidden {
    gpu_weights base; /* first member, because callers have a pointer to it; as in `own`, except for the functions */
    gpu_weights *own;
    zoff_engine *const *engine;
    cudaStream_t stream;
} hidden;

/* The kernels of the pass wait in the stream for the upload. This call waits for the update on the host. */
static const bf16 *borrow(const gpu_weights *w, int id, size_t slice)
{
    const hidden *h = (const hidden *)w;
    if (*h->engine && zoff_param_wait(*h->engine, (zoff_param)id, slice, h->stream) < 0) {
        fprintf(stderr, "cuda_trainer: %s\n", zoff_last_error());
        exit(1);
    }
    return h->own->borrow(h->own, id, slice);
}

static void give_back(const gpu_weights *w, int id, size_t slice)
{
    const hidden *h = (const hidden *)w;
    h->own->give_back(h->own, id, slice);
}

static bf16 *gradient(const gpu_weights *w, int id, size_t slice)
{
    const hidden *h = (const hidden *)w;
    return h->own->gradient(h->own, id, slice);
}

static void close_hidden(gpu_weights *w)
{
    hidden *h = (hidden *)w;
    h->own->close(h->own);
    free(h);
}

gpu_weights *gpu_hidden_open(gpu_weights *own, zoff_engine *const *engine, cudaStream_t stream)
{
    hidden *h = own ? calloc(1, sizeof *h) : NULL;
    if (!h) {
        if (own)
            own->close(own);
        return NULL;
    }
    *h = (hidden){.base = *own, .own = own, .engine = engine, .stream = stream};
    h->base.borrow = borrow;
    h->base.give_back = give_back;
    h->base.gradient = gradient;
    h->base.close = close_hidden;
    return &h->base;
}

int gpu_hidden_begin(zoff_engine *engine)
{
    return zoff_step_begin(engine, NULL) < 0 ? -1 : 0;
}

int gpu_hidden_end(zoff_engine *engine, zoff_step_info *info)
{
    return zoff_step_wait(engine, info) < 0 ? -1 : 0;
}
