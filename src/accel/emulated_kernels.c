/* emulated_kernels.c: the kernels of a device made of threads. The stream's thread runs the CPU's kernels on a copy of the
 * list, with copies of its constants and factors. */
#include "emulated_priv.h"

#include "mem.h"
#include "try.h"

#include <string.h>

/* A copy of a list in a stream; one of the four kinds. */
typedef struct work {
    size_t count;
    zoff_adam_piece *updates;
    zoff_adam_consts *consts; /* constants by piece */
    zoff_accumulate_piece *sums;
    float *factors; /* factors of all pieces, one after the other */
    zoff_cast_piece *casts;
    zoff_norm_piece *norms;
} work;

static void free_work(work *w)
{
    void *blocks[] = {w->updates, w->consts, w->sums, w->factors, w->casts, w->norms};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        zoff_base_mem_free(blocks[i]);
    zoff_base_mem_free(w);
}

/* Run the work in the stream's thread. */
static void run(void *ctx)
{
    work *w = ctx;
    if (w->updates)
        zoff_adam_update_run(1, w->updates, w->count, NULL, NULL);
    if (w->sums)
        zoff_adam_accumulate_run(1, w->sums, w->count, NULL, NULL);
    if (w->casts)
        zoff_adam_cast_run(1, w->casts, w->count);
    if (w->norms)
        zoff_adam_norm_run(1, w->norms, w->count, NULL, NULL);
    free_work(w);
}

static zoff_status copy_of(const void *list, size_t count, size_t bytes, void *out_copy)
{
    void *copy;
    ZOFF_TRY(zoff_base_mem_alloc(count, bytes, "the work of a stream", &copy));
    memcpy(copy, list, count * bytes);
    memcpy(out_copy, &copy, sizeof copy);
    return ZOFF_OK;
}

/* Begin a work; an empty list gives none. */
static zoff_status begin(size_t count, work **out)
{
    *out = NULL;
    if (count == 0)
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof **out, "the work of a stream", out));
    (*out)->count = count;
    return ZOFF_OK;
}

/* Enqueue a work, if the list could be copied. */
static zoff_status finish(zoff_accel *accel, void *stream, work *w, zoff_status status)
{
    if (status == ZOFF_OK)
        status = accel->ops->streams.call(accel, stream, run, w);
    if (status < 0)
        free_work(w);
    return status;
}

static zoff_status copy_updates(work *w, const zoff_adam_piece *pieces)
{
    ZOFF_TRY(copy_of(pieces, w->count, sizeof *pieces, &w->updates));
    ZOFF_TRY(zoff_base_mem_alloc(w->count, sizeof *w->consts, "the work of a stream", &w->consts));
    for (size_t i = 0; i < w->count; i++) {
        w->consts[i] = *pieces[i].consts;
        w->updates[i].consts = &w->consts[i];
    }
    return ZOFF_OK;
}

static size_t sources_of(const zoff_accumulate_piece *piece)
{
    return piece->sources ? piece->sources : 1;
}

static zoff_status copy_sums(work *w, const zoff_accumulate_piece *pieces)
{
    size_t factors = 0;
    ZOFF_TRY(copy_of(pieces, w->count, sizeof *pieces, &w->sums));
    for (size_t i = 0; i < w->count; i++)
        factors += pieces[i].weights ? sources_of(&pieces[i]) : 0;
    ZOFF_TRY(zoff_base_mem_alloc(factors + 1, sizeof *w->factors, "the work of a stream", &w->factors));
    factors = 0;
    for (size_t i = 0; i < w->count; i++) {
        if (!pieces[i].weights)
            continue;
        memcpy(w->factors + factors, pieces[i].weights, sources_of(&pieces[i]) * sizeof(float));
        w->sums[i].weights = w->factors + factors;
        factors += sources_of(&pieces[i]);
    }
    return ZOFF_OK;
}

zoff_status zoff_accel_emulated_kernels_update(zoff_accel *accel, void *stream, const zoff_adam_piece *pieces, size_t count)
{
    work *w;
    ZOFF_TRY(begin(count, &w));
    return w ? finish(accel, stream, w, copy_updates(w, pieces)) : ZOFF_OK;
}

zoff_status zoff_accel_emulated_kernels_accumulate(zoff_accel *accel, void *stream, const zoff_accumulate_piece *pieces,
                                                   size_t count)
{
    work *w;
    ZOFF_TRY(begin(count, &w));
    return w ? finish(accel, stream, w, copy_sums(w, pieces)) : ZOFF_OK;
}

zoff_status zoff_accel_emulated_kernels_cast(zoff_accel *accel, void *stream, const zoff_cast_piece *pieces, size_t count)
{
    work *w;
    ZOFF_TRY(begin(count, &w));
    return w ? finish(accel, stream, w, copy_of(pieces, count, sizeof *pieces, &w->casts)) : ZOFF_OK;
}

zoff_status zoff_accel_emulated_kernels_square_sum(zoff_accel *accel, void *stream, const zoff_norm_piece *pieces, size_t count)
{
    work *w;
    ZOFF_TRY(begin(count, &w));
    return w ? finish(accel, stream, w, copy_of(pieces, count, sizeof *pieces, &w->norms)) : ZOFF_OK;
}
