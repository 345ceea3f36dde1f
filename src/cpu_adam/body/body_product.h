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

/* Copy `count` rows of memory, of which each belongs to one k, to a strip of `most` elements for each k. The rest is zero. */
ZOFF_KERNEL_INLINE void product_copy(float *to, size_t most, const float *from, size_t stride, size_t count, size_t depth)
{
    if (count < most)
        memset(to, 0, most * depth * sizeof *to);
    for (size_t k = 0; k < depth; k++, to += most, from += stride) {
        if (count == most)
            __builtin_memcpy(to, from, most * sizeof *to);
        else
            memcpy(to, from, count * sizeof *to);
    }
}

/* The same, where `count` rows of memory have all k each. Four rows at a time, because more lines at a power of two as their
 * distance would have no place in the first cache. */
ZOFF_KERNEL_INLINE void product_turn(float *to, size_t most, const float *from, size_t stride, size_t count, size_t depth)
{
    size_t row = 0;
    if (count < most)
        memset(to, 0, most * depth * sizeof *to);
    for (; row + 4 <= count; row += 4) {
        const float *a = from + row * stride, *b = a + stride, *c = b + stride, *d = c + stride;
        for (size_t k = 0; k < depth; k++) {
            float *at = to + k * most + row;
            at[0] = a[k];
            at[1] = b[k];
            at[2] = c[k];
            at[3] = d[k];
        }
    }
    for (; row < count; row++) {
        for (size_t k = 0; k < depth; k++)
            to[k * most + row] = from[row * stride + k];
    }
}

ZOFF_KERNEL_INLINE size_t product_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The block of k from `k` on, of rows [i, i + height) of A. */
ZOFF_KERNEL_INLINE void product_pack_a(const zoff_product *p, float *to, size_t i, size_t k, size_t depth)
{
    const size_t count = product_least(p->rows - i, product_height());
    if (p->a_turned)
        product_copy(to, product_height(), p->a + k * p->a_stride + i, p->a_stride, count, depth);
    else
        product_turn(to, product_height(), p->a + i * p->a_stride + k, p->a_stride, count, depth);
}

/* The same of columns [j, j + width) of B. */
ZOFF_KERNEL_INLINE void product_pack_b(const zoff_product *p, float *to, size_t j, size_t k, size_t depth)
{
    const size_t count = product_least(p->cols - j, product_width());
    if (p->b_turned)
        product_turn(to, product_width(), p->b + j * p->b_stride + k, p->b_stride, count, depth);
    else
        product_copy(to, product_width(), p->b + k * p->b_stride + j, p->b_stride, count, depth);
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
    for (size_t col = j; p->lower && col < product_least(p->cols, j + product_width()); col++) {
        for (size_t row = i > col ? i : col + 1; row < bottom; row++)
            p->out[col * p->out_stride + row] = p->out[row * p->out_stride + col];
    }
}

/* The first tile of a column of tiles that has elements of the output. `i`: the first row of that column. */
ZOFF_KERNEL_INLINE size_t product_first(const zoff_product *p, size_t i, size_t j)
{
    return p->lower && j > i ? (j - i) / product_height() : 0;
}

/* Compute rows [top, bottom) and columns [left, right) of the output. */
static void product_part(const zoff_product *p, size_t top, size_t bottom, size_t left, size_t right)
{
    const size_t height = product_height(), width = product_width(), tile = height * width, group = PRODUCT_GROUP / height;
    const size_t down = (bottom - top + height - 1) / height, across = (right - left + width - 1) / width;
    float *totals = p->scratch, *b = totals + down * across * tile, *a = b + across * width * PRODUCT_BLOCK;
    for (size_t k = 0, depth; k < p->depth; k += depth) {
        depth = product_least(p->depth - k, PRODUCT_BLOCK);
        for (size_t s = 0; s < across; s++)
            product_pack_b(p, b + s * width * depth, left + s * width, k, depth);
        for (size_t t = product_first(p, top, left), end; t < down; t = end) {
            end = product_least(down, t + group);
            for (size_t u = t; u < end; u++)
                product_pack_a(p, a + (u - t) * height * depth, top + u * height, k, depth);
            for (size_t s = 0; s < across; s++) {
                const size_t first = product_first(p, top, left + s * width);
                for (size_t u = first > t ? first : t; u < end; u++)
                    product_tile(a + (u - t) * height * depth, b + s * width * depth, depth, totals + (s * down + u) * tile,
                                 k == 0);
            }
        }
    }
    for (size_t s = 0; s < across; s++) {
        for (size_t u = product_first(p, top, left + s * width); u < down; u++)
            product_give(p, totals + (s * down + u) * tile, top + u * height, left + s * width);
    }
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
