/* SPDX-License-Identifier: Apache-2.0 */
/* fill.c: copies a slice from the chunks of this rank to its place in the arena, piece by piece. A prefetch may stop half way:
 * a fetch goes on behind the elements that are `filled`. */
#include "lending.h"

#include "try.h"

/* The piece of the next element that is missing, with its chunk. */
static const zoff_plan_piece *next_piece(const zoff_lending *l, const zoff_cached_slice *s)
{
    const zoff_plan_piece *first = &l->plan->pieces[s->first_piece];
    return &l->plan->pieces[zoff_zero_plan_find(l->plan, first->param, first->slice, s->filled)];
}

/* Copy a piece from the memory of its chunk. It counts when the events are recorded that tell when its copy is done, so after
 * an error it is copied again. */
static zoff_status put_piece(zoff_lending *l, zoff_cached_slice *s, const zoff_plan_piece *piece, const char *base)
{
    ZOFF_TRY(
        l->place->put(l, s->at + s->filled * s->element_bytes, base + piece->weight_offset, piece->count * s->element_bytes));
    ZOFF_TRY(zoff_lending_held_mark(l, piece->bucket));
    if (s->filled + piece->count == s->count)
        ZOFF_TRY(l->place->placed(l, s));
    s->filled += piece->count;
    return ZOFF_OK;
}

zoff_status zoff_lending_fill_slice(zoff_lending *l, zoff_cached_slice *s)
{
    while (s->filled < s->count) {
        const zoff_plan_piece *piece = next_piece(l, s);
        const zoff_weight_home *home = l->home;
        char *base;
        ZOFF_TRY(home->borrow ? home->borrow(l, piece->bucket, (size_t)(piece - l->plan->pieces), s->count - s->filled, &base)
                              : home->try_to_borrow(l, piece->bucket, &base));
        ZOFF_TRY(put_piece(l, s, piece, base));
    }
    return ZOFF_OK;
}

zoff_status zoff_lending_fill_ahead(zoff_lending *l, zoff_cached_slice *s)
{
    while (s->filled < s->count) {
        const zoff_plan_piece *piece = next_piece(l, s);
        char *base;
        const zoff_status status = l->home->try_to_borrow(l, piece->bucket, &base);
        if (status == ZOFF_PENDING) /* chunks that were copied already are not read again */
            zoff_lending_held_read_ahead(l, (size_t)(piece - l->plan->pieces), s->count - s->filled);
        if (status != ZOFF_OK)
            return status;
        ZOFF_TRY(put_piece(l, s, piece, base));
    }
    return ZOFF_OK;
}
