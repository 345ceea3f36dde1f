/* SPDX-License-Identifier: Apache-2.0 */
/* body_product.h: parts of a product of two matrices in fp32.
 *
 * The order of each sum is fixed: for each block of PRODUCT_BLOCK consecutive k, s = 0, then s = fma(A[i][k], B[k][j], s) with
 * k ascending; then the sums of the blocks are added in order. So the sum of an element has no partner in a register, and
 * tiles, panels and the width of registers do not change its bits.
 *
 * Both factors are copied to the scratch, block by block, in the order in which the loop over k reads them. Each step of that
 * loop reads the same number of elements of each: PRODUCT_FEW rows of A, or all, and two registers of B. The sums of a tile
 * stay in registers for one block, and their totals in the scratch until the last block is done. The output is written then, so
 * it may lie over a factor of which other parts need no element. */
#ifndef ZOFF_BODY_PRODUCT_H
#define ZOFF_BODY_PRODUCT_H

/* clang-format off */
#define PRODUCT_FEW(R) R(0) R(1) R(2) R(3) R(4) R(5) /* rows of a tile with 16 registers */
#define PRODUCT_MORE(R) R(6) R(7) R(8) R(9) R(10) R(11) /* further ones with 32 */
/* clang-format on */

/* Rows and columns of a tile. */
ZOFF_KERNEL_INLINE size_t product_height(void)
{
    return v_registers() >= 32 ? 12 : 6;
}

ZOFF_KERNEL_INLINE size_t product_width(void)
{
    return 2 * v_lanes();
}

/* Multiply a strip of A by a strip of B over one block of k. The products are added to the totals of the tile, or are its first
 * ones. */
static __attribute__((noinline)) void product_tile(const float *a, const float *b, size_t depth, float *totals, bool first)
{
    const size_t lanes = v_lanes(), height = product_height();
    const bool has_more = height > 6;
    size_t at = 0;
#define R(i) v_f left##i = v_set1(0), right##i = left##i;
    PRODUCT_FEW(R)
    PRODUCT_MORE(R)
#undef R
#define R(i)                                                                                                                   \
    x = v_set1(a[i]);                                                                                                          \
    left##i = v_fma(x, b_left, left##i);                                                                                       \
    right##i = v_fma(x, b_right, right##i);
    for (size_t k = 0; k < depth; k++) {
        const v_f b_left = v_load(b, lanes), b_right = v_load(b + lanes, lanes);
        v_f x;
        PRODUCT_FEW(R)
        if (has_more) {
            PRODUCT_MORE(R)
        }
        a += height;
        b += 2 * lanes;
    }
#undef R
#define R(i)                                                                                                                   \
    v_store(totals + at, first ? left##i : v_add(v_load(totals + at, lanes), left##i), lanes);                                 \
    v_store(totals + at + lanes, first ? right##i : v_add(v_load(totals + at + lanes, lanes), right##i), lanes);               \
    at += 2 * lanes;
    PRODUCT_FEW(R)
    if (has_more) {
        PRODUCT_MORE(R)
    }
#undef R
}

/* The block of a factor is a list of strips, each with the elements of a tile for every k. Between strips is one cache line,
 * because strips at a power of two as their distance would have no place in the first cache. */
ZOFF_KERNEL_INLINE size_t product_strip(size_t thick, size_t depth)
{
    return thick * depth + PRODUCT_LINE;
}

/* Fetch a row that the loop reads later: rows are short, and the prefetchers of CPUs do not know the next one. Bytes behind the
 * array may be fetched, too, because a prefetch is no access. */
ZOFF_KERNEL_INLINE void product_ask(const float *row, size_t count)
{
    for (size_t i = 0; i < count; i += PRODUCT_LINE)
        __builtin_prefetch((const void *)((uintptr_t)row + i * sizeof *row));
}

/* Copy a block whose rows of memory belong to one k each, and have `count` elements, to strips of `thick`. Behind the last one
 * are zeros. */
ZOFF_KERNEL_INLINE void product_copy(float *to, size_t thick, const float *from, size_t stride, size_t count, size_t depth)
{
    const size_t strip = product_strip(thick, depth), rest = count % thick;
    for (size_t k = 0; k < depth; k++, to += thick, from += stride) {
        float *at = to;
        product_ask(from + 4 * stride, count);
        for (size_t i = 0; i + thick <= count; i += thick, at += strip)
            __builtin_memcpy(at, from + i, thick * sizeof *at);
        for (size_t i = 0; rest && i < thick; i++)
            at[i] = i < rest ? from[count - rest + i] : 0;
    }
}

/* Copy a block whose rows of memory have all k each. Four rows at a time, because more lines at a power of two as their
 * distance would have no place in the first cache. */
ZOFF_KERNEL_INLINE void product_turn(float *to, size_t thick, const float *from, size_t stride, size_t count, size_t depth)
{
    const size_t strip = product_strip(thick, depth);
    for (size_t first = 0; first < count; first += thick, to += strip) {
        const size_t rows = count - first < thick ? count - first : thick;
        size_t row = 0;
        if (rows < thick)
            memset(to, 0, thick * depth * sizeof *to);
        for (; row + 4 <= rows; row += 4) {
            const float *a = from + (first + row) * stride, *b = a + stride, *c = b + stride, *d = c + stride;
            for (size_t next = 4; next < 8; next++)
                product_ask(a + next * stride, depth);
            for (size_t k = 0; k < depth; k++) {
                float *at = to + k * thick + row;
                at[0] = a[k];
                at[1] = b[k];
                at[2] = c[k];
                at[3] = d[k];
            }
        }
        for (; row < rows; row++) {
            for (size_t k = 0; k < depth; k++)
                to[k * thick + row] = from[(first + row) * stride + k];
        }
    }
}

ZOFF_KERNEL_INLINE size_t product_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The block of k from `k` on, of rows [i, end) of A. */
static __attribute__((noinline)) void product_pack_a(const zoff_product *p, float *to, size_t i, size_t end, size_t k,
                                                     size_t depth)
{
    if (p->a_turned)
        product_copy(to, product_height(), p->a + k * p->a_stride + i, p->a_stride, end - i, depth);
    else
        product_turn(to, product_height(), p->a + i * p->a_stride + k, p->a_stride, end - i, depth);
}

/* The same of columns [j, end) of B. */
static __attribute__((noinline)) void product_pack_b(const zoff_product *p, float *to, size_t j, size_t end, size_t k,
                                                     size_t depth)
{
    if (p->b_turned)
        product_turn(to, product_width(), p->b + j * p->b_stride + k, p->b_stride, end - j, depth);
    else
        product_copy(to, product_width(), p->b + k * p->b_stride + j, p->b_stride, end - j, depth);
}

/* Write a tile of the output, whose first element is (i, j). */
static void product_give(const zoff_product *p, const float *totals, size_t i, size_t j)
{
    const size_t lanes = v_lanes(), bottom = product_least(p->rows, i + product_height());
    const v_f add_by = v_set1(p->add_by), product_by = v_set1(p->product_by);
    const bool scales = p->product_by != 1;
    for (size_t row = i; row < bottom; row++, totals += product_width()) {
        const size_t end = product_least(p->lower ? row + 1 : p->cols, j + product_width());
        for (size_t at = j; at < end; at += lanes) {
            const size_t left = end - at, place = row * p->out_stride + at;
            v_f x = v_load(totals + (at - j), lanes);
            if (p->add && scales)
                x = v_fma(product_by, x, v_mul(add_by, v_load(p->add + place, left)));
            else if (p->add)
                x = v_fma(add_by, v_load(p->add + place, left), x);
            v_store(p->out + place, x, left);
        }
    }
}

/* The first tile of a column of tiles that has elements of the output. `i`: the first row of that column. */
ZOFF_KERNEL_INLINE size_t product_first(const zoff_product *p, size_t i, size_t j)
{
    return p->lower && j > i ? (j - i) / product_height() : 0;
}

/* Mirror the part of the lower triangle with these rows and columns, in squares of a cache line. */
static void product_mirror(const zoff_product *p, size_t top, size_t bottom, size_t left, size_t right)
{
    for (size_t i = left > top ? left : top, stop; i < bottom; i = stop) {
        stop = product_least(bottom, (i / PRODUCT_LINE + 1) * PRODUCT_LINE);
        for (size_t j = left, end; j < product_least(right, stop); j = end) {
            end = product_least(right, (j / PRODUCT_LINE + 1) * PRODUCT_LINE);
            for (size_t col = j; col < end; col++) {
                for (size_t row = i > col ? i : col + 1; row < stop; row++)
                    p->out[col * p->out_stride + row] = p->out[row * p->out_stride + col];
            }
        }
    }
}

/* Compute rows [top, bottom) and columns [left, right) of the output. */
static void product_part(const zoff_product *p, size_t top, size_t bottom, size_t left, size_t right)
{
    const size_t height = product_height(), width = product_width(), tile = height * width, group = PRODUCT_GROUP / height;
    const size_t down = (bottom - top + height - 1) / height, across = (right - left + width - 1) / width;
    float *totals = p->scratch, *b = totals + down * across * tile, *a = b + across * product_strip(width, PRODUCT_BLOCK);
    for (size_t k = 0, depth; k < p->depth; k += depth) {
        depth = product_least(p->depth - k, PRODUCT_BLOCK);
        const size_t a_strip = product_strip(height, depth), b_strip = product_strip(width, depth);
        product_pack_b(p, b, left, right, k, depth);
        for (size_t t = product_first(p, top, left), end; t < down; t = end) {
            end = product_least(down, t + group);
            product_pack_a(p, a, top + t * height, product_least(bottom, top + end * height), k, depth);
            for (size_t s = 0; s < across; s++) {
                const size_t first = product_first(p, top, left + s * width);
                for (size_t u = first > t ? first : t; u < end; u++)
                    product_tile(a + (u - t) * a_strip, b + s * b_strip, depth, totals + (s * down + u) * tile, k == 0);
            }
        }
    }
    for (size_t s = 0; s < across; s++) {
        for (size_t u = product_first(p, top, left + s * width); u < down; u++)
            product_give(p, totals + (s * down + u) * tile, top + u * height, left + s * width);
    }
    if (p->lower)
        product_mirror(p, top, bottom, left, right);
}

static void kernel_product(const zoff_product *p, size_t begin, size_t count)
{
    const size_t high = (p->rows + p->part_rows - 1) / p->part_rows;
    for (size_t part = begin; part < begin + count; part++) {
        const size_t top = part % high * p->part_rows, left = part / high * p->part_cols;
        const size_t bottom = product_least(p->rows, top + p->part_rows);
        const size_t right = product_least(p->lower ? bottom : p->cols, left + p->part_cols);
        if (left < right)
            product_part(p, top, bottom, left, right);
    }
}

#endif
