/* SPDX-License-Identifier: Apache-2.0 */
/* body_apart.h: a step whose results go to another place, so that the old states stay as they are.
 *
 * A step in place reads each line of memory once and writes it once. Plain stores to another place would read that place, too:
 * 40 bytes a parameter in place of 28. So elements are copied to a scratch in the first cache, updated there by the kernel of
 * the step in place, and written with streaming stores.
 *
 * The three parts alternate after every few elements, so that the CPU overlaps them. With 1,024 elements at once, the step
 * takes twice the time of one in place. */
#ifndef ZOFF_BODY_APART_H
#define ZOFF_BODY_APART_H

enum {
    APART_LINE = 64,               /* bytes */
    APART_ARRAYS = 4,              /* master, m, v, and lower halves or a copy */
    APART_TURN = 64,               /* elements of a turn, 64 because moments in 8 bits need a whole block */
    APART_AHEAD = ZOFF_NORM_BLOCK, /* elements between a line that is read and the one that is prefetched */
};
_Static_assert(ZOFF_NORM_BLOCK % APART_TURN == 0, "a block is whole turns");

/* One array of a block. */
typedef struct apart_array {
    const char *old; /* old place; NULL: a step only writes the array */
    char *now, *scratch;
    size_t width, header; /* bytes of an element, and of the header in front of a block */
    size_t head, written; /* bytes before the first whole line of the new place, and those before the next line to write */
} apart_array;

typedef struct apart_block {
    apart_array arrays[APART_ARRAYS];
    unsigned used;
    bool stream;
} apart_block;

/* Bytes of the first elements of a block. */
ZOFF_KERNEL_INLINE size_t apart_bytes(const apart_array *a, size_t elements)
{
    return elements ? a->header + elements * a->width : 0;
}

/* Fetch bytes for a later turn. Bytes behind an array may be fetched, too, because a prefetch is no access. */
ZOFF_KERNEL_INLINE void apart_prefetch(const void *from, size_t ahead, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += APART_LINE)
        __builtin_prefetch((const void *)((uintptr_t)from + ahead + i));
}

/* Copy to the scratch. Most turns are whole and of fp32 numbers, so they are copied without a loop, which is faster. */
ZOFF_KERNEL_INLINE void apart_copy(char *to, const char *from, size_t bytes)
{
    size_t i = 0;
    if (bytes == APART_TURN * sizeof(float)) {
        for (; i < APART_TURN * sizeof(float); i += APART_LINE)
            __builtin_memcpy(to + i, from + i, APART_LINE);
        return;
    }
    for (; i + APART_LINE <= bytes; i += APART_LINE)
        __builtin_memcpy(to + i, from + i, APART_LINE);
    if (i < bytes)
        __builtin_memcpy(to + i, from + i, bytes - i);
}

/* Copy the elements [first, end) of a block to the scratch. Then prefetch the same elements of the next block. */
ZOFF_KERNEL_INLINE void apart_read(const apart_block *b, size_t first, size_t end)
{
    for (const apart_array *a = b->arrays; a < b->arrays + b->used; a++) {
        const size_t from = apart_bytes(a, first);
        if (a->old)
            apart_copy(a->scratch + from, a->old + from, apart_bytes(a, end) - from);
    }
    for (const apart_array *a = b->arrays; b->stream && a < b->arrays + b->used; a++) {
        const size_t from = apart_bytes(a, first);
        if (a->old)
            apart_prefetch(a->old + from, apart_bytes(a, APART_AHEAD), apart_bytes(a, end) - from);
    }
}

/* Write the whole lines among the first `ready` bytes of a block. Both ends of a block may be parts of lines, which are written
 * with its last turn. */
ZOFF_KERNEL_INLINE void apart_stream(apart_array *a, size_t ready, bool ends)
{
    size_t i = a->written;
    for (; i + APART_LINE <= ready; i += APART_LINE)
        v_stream_line(a->now + i, a->scratch + i);
    a->written = i;
    if (ends) {
        __builtin_memcpy(a->now, a->scratch, a->head < ready ? a->head : ready);
        if (i < ready)
            __builtin_memcpy(a->now + i, a->scratch + i, ready - i);
    }
}

/* Where the new place does not begin with a line, each of its lines lies across two stores to the scratch. A load of both waits
 * until they are in the cache, so write these lines a turn later. */
ZOFF_KERNEL_INLINE void apart_write(apart_block *b, size_t first, size_t end, bool ends)
{
    for (apart_array *a = b->arrays; a < b->arrays + b->used; a++) {
        const size_t from = apart_bytes(a, first), ready = apart_bytes(a, end);
        if (b->stream)
            apart_stream(a, ends || !a->head ? ready : from, ends);
        else
            __builtin_memcpy(a->now + from, a->scratch + from, ready - from);
    }
}

/* Let a step work in the scratch on an array, whose new place is `now`. @return the address for the step */
ZOFF_KERNEL_INLINE void *apart_add(apart_block *b, char *scratch, const void *old, void *now, size_t width, size_t header,
                                   size_t begin)
{
    const size_t at = begin * width + begin / ZOFF_NORM_BLOCK * header;
    if (old == now) /* the step works in place, or the array does not exist */
        return now ? (char *)now + at : NULL;
    const size_t head = (0 - ((uintptr_t)now + at)) % APART_LINE;
    b->arrays[b->used++] = (apart_array){.old = old ? (const char *)old + at : NULL,
                                         .now = (char *)now + at,
                                         .scratch = scratch,
                                         .width = width,
                                         .header = header,
                                         .head = head,
                                         .written = head};
    return scratch;
}

ZOFF_KERNEL_INLINE size_t apart_state_width(state_form form)
{
    return form == STATE_F32 ? sizeof(float) : form == STATE_BF16 ? sizeof(uint16_t) : 1;
}

ZOFF_KERNEL_INLINE void *apart_add_state(apart_block *b, char *scratch, const void *old, void *now, state_form form,
                                         size_t begin)
{
    const bool has_header = form == STATE_M8 || form == STATE_V8;
    return apart_add(b, scratch, old, now, apart_state_width(form), has_header ? Q8_HEADER : 0, begin);
}

/* Bytes of an array's block, which is also the distance between arrays. It is not 4 KiB, because a load would then wait for a
 * store to another array. */
enum { APART_SCRATCH = ZOFF_NORM_BLOCK * sizeof(float) + 8 * APART_LINE };

/* The block that begins with element `begin`: its arrays, and the step on it. */
ZOFF_KERNEL_INLINE zoff_adam_piece apart_open(const zoff_adam_apart *piece, size_t begin, size_t count,
                                              char scratch[APART_ARRAYS][APART_SCRATCH], apart_block *b)
{
    const zoff_adam_piece *old = &piece->old;
    const zoff_moments moments = (zoff_moments)old->moments;
    zoff_adam_piece step = update_from(old, begin);
    *b = (apart_block){.stream = old->stream};
    step.count = count;
    step.stream = false;
    const size_t width = width_of(old->split ? ZOFF_BF16 : old->master_dtype);
    step.master = apart_add(b, scratch[0], old->master, piece->master, width, 0, begin);
    step.m = apart_add_state(b, scratch[1], old->m, piece->m, state_form_m(moments), begin);
    step.v = apart_add_state(b, scratch[2], old->v, piece->v, state_form_v(moments), begin);
    if (old->split)
        step.low = (uint16_t *)apart_add(b, scratch[3], old->low, piece->low, sizeof(uint16_t), 0, begin);
    else
        step.copy_out = apart_add(b, scratch[3], NULL, old->copy_out, sizeof(uint16_t), 0, begin);
    return step;
}

/* Update [begin, begin + count); `begin` is a multiple of ZOFF_NORM_BLOCK. */
static void kernel_update_apart(const zoff_adam_apart *piece, size_t begin, size_t count)
{
    _Alignas(APART_LINE) char scratch[APART_ARRAYS][APART_SCRATCH];
    const size_t turn = piece->old.moments >= ZOFF_MOMENTS_M8V16 ? ZOFF_NORM_BLOCK : APART_TURN;
    const size_t grad_width = width_of(piece->old.grad_dtype);
    for (size_t done = 0, block; done < count; done += block) {
        apart_block b;
        block = count - done < ZOFF_NORM_BLOCK ? count - done : ZOFF_NORM_BLOCK;
        const zoff_adam_piece step = apart_open(piece, begin + done, block, scratch, &b);
        for (size_t i = 0, end; i < block; i = end) {
            end = block - i < turn ? block : i + turn;
            apart_read(&b, i, end);
            if (b.stream)
                apart_prefetch((const char *)step.grad + i * grad_width, APART_AHEAD * grad_width, (end - i) * grad_width);
            kernel_update(&step, i, end - i);
            apart_write(&b, i, end, end == block);
        }
    }
    if (piece->old.stream)
        v_stream_end();
}

#endif
