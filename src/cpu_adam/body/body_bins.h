/* SPDX-License-Identifier: Apache-2.0 */
/* body_bins.h: sums by the rule "exact": the same bits for any order, grouping and deal of the terms.
 *
 * Bins are 20 bits wide. The unit of bin t is U(t) = 2^(20 t - 127). A finite term x has the bin top(x) = max(1, floor((e + 1)
 * / 20)), where e is its biased exponent, so |x| < 2^19 U(top). A term that is not finite has the bin 15. The bin T of a sum is
 * the largest of its terms. In a sum of bin T every term is two integers: h is x / U(T) rounded to nearest even, and l is (x -
 * h U(T)) / U(T-1) rounded in the same way. The digits of the sum are the sums of both, and stay apart; those of bin 15 are
 * zero.
 *
 * A sum of bin T-1 becomes one of bin T by a lift: its digits (hi, lo) become (0, hi). This holds for each term, because |x| <
 * 2^19 U(T-1) makes h zero in bin T, and l equal to h in bin T-1. A sum further below loses both digits. The digit that is lost
 * has never carried into another. So digits are sums of the same integers after any additions and lifts, and their bits depend
 * on the terms alone.
 *
 * A term is rounded to a multiple of U(T-1), hence by at most 2^-20 of the largest term X, because T is the smallest bin for X.
 * T terms err by at most T 2^-20 X (in bin 1 by T 2^-128), and the value, which is rounded once, by 2^-24 of the sum.
 *
 * The loop reads the terms of a register twice: for the largest of them, and then for the digits of its bin. Added to 1.5 2^23,
 * a number below 2^22 is rounded to an integer, which the lower bits of the sum show. So with three fused operations the digits
 * of a term are in the bits of floats, and are summed as integers. The loops are in body_bins_span.h. */
#ifndef ZOFF_BODY_BINS_H
#define ZOFF_BODY_BINS_H

enum {
    BINS_LAST = 12,
    BINS_NOT_FINITE = 15,
    BINS_SHIFT = 0x4b400000, /* bits of 1.5 2^23 */
    BINS_FEW = 31,           /* terms whose digits are floats */
    BINS_NARROW_MOST = 4095, /* terms whose digits fit 32 bits */
    BINS_MOST_LANES = 64
};

ZOFF_KERNEL_RARE v_i bins_load_part(const char *p, size_t left, unsigned width)
{
    char whole[BINS_MOST_LANES * sizeof(int32_t)] = {0};
    __builtin_memcpy(whole, p, left % v_lanes() * width);
    return v_load_int(whole, width);
}

ZOFF_KERNEL_RARE void bins_store_part(char *p, v_i x, size_t left, unsigned width)
{
    char whole[BINS_MOST_LANES * sizeof(int32_t)];
    v_store_int(whole, x, width);
    __builtin_memcpy(p, whole, left % v_lanes() * width);
}

ZOFF_KERNEL_INLINE v_i bins_load(const void *plane, size_t i, size_t left, unsigned width)
{
    const char *p = (const char *)plane + i * width;
    if (left < v_lanes())
        return bins_load_part(p, left, width);
    return width == 3 ? v_load_int(p, 3) : width == 4 ? v_load_int(p, 4) : v_load_int(p, 1);
}

ZOFF_KERNEL_INLINE void bins_store(void *plane, size_t i, v_i x, size_t left, unsigned width)
{
    char *p = (char *)plane + i * width;
    if (left < v_lanes())
        bins_store_part(p, x, left, width);
    else if (width == 3)
        v_store_int(p, x, 3);
    else if (width == 4)
        v_store_int(p, x, 4);
    else
        v_store_int(p, x, 1);
}

/* The bin of the largest of some terms, of which these are the bits without the sign. A division by 20 is a product. */
ZOFF_KERNEL_INLINE v_i bins_top(v_i size)
{
    const v_i past =
        v_int_sub(v_int(BINS_NOT_FINITE - BINS_LAST), v_int_unless_above(size, 0x7f7fffff, v_int(BINS_NOT_FINITE - BINS_LAST)));
    const v_i bin = v_int_down(v_int_mul(v_int_add(v_int_down(size, 23), v_int(1)), 3277), 16);
    return v_int_max(v_int_add(bin, past), v_int(1));
}

/* Lift a sum, and add it. */
ZOFF_KERNEL_INLINE void bins_join(const zoff_bins *from, size_t i, size_t left, v_i top, v_i *hi, v_i *lo)
{
    const v_i lift = v_int_sub(top, bins_load(from->top, i, left, 1)), other = bins_load(from->hi, i, left, from->width);
    const v_i kept = v_int_unless_above(lift, 0, other), fallen = v_int_sub(v_int_unless_above(lift, 1, other), kept);
    *hi = v_int_add(*hi, kept);
    *lo = v_int_add(*lo, v_int_add(v_int_unless_above(lift, 0, bins_load(from->lo, i, left, from->width)), fallen));
}

/* A source without a weight has the weight 1, and one of weight 0 is not read. */
ZOFF_KERNEL_INLINE float bins_weight(const zoff_bins_piece *piece, size_t source)
{
    return piece->weights ? piece->weights[source] : 1;
}

ZOFF_KERNEL_INLINE v_f bins_term(const zoff_bins_piece *piece, size_t source, size_t i, size_t left, zoff_dtype terms)
{
    const v_f x = load_any((const char *)piece->terms + source * piece->stride, i, left, terms);
    return v_mul(v_set1(bins_weight(piece, source)), x);
}

/* The sums that are added: the old one, whose number is 0, and the parts. */
ZOFF_KERNEL_INLINE size_t bins_first_sum(const zoff_bins_piece *piece)
{
    return piece->first || !piece->to.hi;
}

ZOFF_KERNEL_INLINE const zoff_bins *bins_sum(const zoff_bins_piece *piece, size_t sum)
{
    return sum ? &piece->parts[sum - 1] : &piece->to;
}

/* Whether there are none, so that all digits are those of the terms. */
ZOFF_KERNEL_INLINE bool bins_are_terms(const zoff_bins_piece *piece)
{
    return bins_first_sum(piece) && !piece->part_count;
}

ZOFF_KERNEL_INLINE void bins_join_all(const zoff_bins_piece *piece, size_t i, size_t left, v_i top, v_i *hi, v_i *lo)
{
    for (size_t sum = bins_first_sum(piece); sum <= piece->part_count; sum++)
        bins_join(bins_sum(piece, sum), i, left, top, hi, lo);
}

/* 1 / U(top), and the digits of a term that it gives, each with the bits of 1.5 2^23. */
ZOFF_KERNEL_INLINE v_f bins_by_unit(v_i top)
{
    return v_from_bits(v_int_sub(v_int(254 << 23), v_int_mul(top, 20 << 23)));
}

ZOFF_KERNEL_INLINE void bins_digits(v_f x, v_f by_unit, v_f by_lower, v_i *hi, v_i *lo)
{
    const v_f upper = v_fma(x, by_unit, v_set1(0x1.8p23f));
    const v_f rest = v_fma(upper, v_set1(-0x1p20f), v_set1(0x1.8p23f + 0x1.8p43f)); /* 1.5 2^23 - 2^20 h, without rounding */
    *hi = v_int_add(*hi, v_int_bits(upper));
    *lo = v_int_add(*lo, v_int_bits(v_fma(x, by_lower, rest)));
}

/* Write the sums, or their values. `few`: the digits are at most 2^24, and so are floats. `is_finite`: every bin is. */
ZOFF_KERNEL_INLINE void bins_write(const zoff_bins_piece *piece, size_t i, size_t left, v_i top, v_i hi, v_i lo, bool few,
                                   bool is_finite)
{
    const zoff_bins *to = &piece->to;
    if (piece->out) {
        const v_f unit = v_from_bits(v_int_mul(top, 20 << 23));
        const v_f value = few ? v_mul(v_fma(v_from_int(lo), v_set1(0x1p-20f), v_from_int(hi)), unit) : v_digits(hi, lo, unit);
        const v_i nan = v_int(0x7fc00000), other = v_int_sub(nan, v_int_unless_above(top, BINS_LAST, nan));
        const v_i bits = v_int_add(v_int_unless_above(top, BINS_LAST, v_int_bits(value)), other);
        v_store(piece->out + i, is_finite ? value : v_from_bits(bits), left);
    } else {
        bins_store(to->hi, i, is_finite ? hi : v_int_unless_above(top, BINS_LAST, hi), left, to->width);
        bins_store(to->lo, i, is_finite ? lo : v_int_unless_above(top, BINS_LAST, lo), left, to->width);
        bins_store(to->top, i, top, left, 1);
    }
}

ZOFF_KERNEL_INLINE void bins_lanes(const zoff_bins_piece *piece, size_t i, size_t left, zoff_dtype terms)
{
    v_i size = v_int(0), hi = size, lo = size;
    uint32_t used = 0;
    for (size_t source = 0; source < piece->sources; source++) {
        if (bins_weight(piece, source) == 0)
            continue;
        size = v_int_max(size, v_int_size(bins_term(piece, source, i, left, terms)));
        used++;
    }
    v_i top = bins_top(size);
    for (size_t sum = bins_first_sum(piece); sum <= piece->part_count; sum++)
        top = v_int_max(top, bins_load(bins_sum(piece, sum)->top, i, left, 1));
    const v_f by_unit = bins_by_unit(top), by_lower = v_mul(by_unit, v_set1(0x1p20f));
    for (size_t source = 0; source < piece->sources; source++) {
        if (bins_weight(piece, source) != 0)
            bins_digits(bins_term(piece, source, i, left, terms), by_unit, by_lower, &hi, &lo);
    }
    const v_i shifts = v_int((int32_t)(used * (uint32_t)BINS_SHIFT));
    hi = v_int_sub(hi, shifts);
    lo = v_int_sub(lo, shifts);
    bins_join_all(piece, i, left, top, &hi, &lo);
    bins_write(piece, i, left, top, hi, lo, bins_are_terms(piece) && used <= BINS_FEW, false);
}

/* ---- one sum of 64 bits ---- */

ZOFF_KERNEL_INLINE int64_t bins_digit(const char *p, unsigned width)
{
    uint64_t digit = 0;
    __builtin_memcpy(&digit, p, width);
    return (int64_t)(digit << (64 - 8 * width)) >> (64 - 8 * width);
}

/* Lift both sums, without a branch, and add one to the other. */
ZOFF_KERNEL_INLINE void bins_join_one(int64_t *hi, int64_t *lo, int64_t *top, int64_t from_hi, int64_t from_lo, int64_t other)
{
    const int64_t mine = *top, now = mine > other ? mine : other;
    *lo = (*lo & -(int64_t)(mine == now)) + (*hi & -(int64_t)(mine == now - 1)) + (from_lo & -(int64_t)(other == now)) +
          (from_hi & -(int64_t)(other == now - 1));
    *hi = (*hi & -(int64_t)(mine == now)) + (from_hi & -(int64_t)(other == now));
    *top = now;
}

/* Write a sum, or its value. */
ZOFF_KERNEL_INLINE void bins_write_one(const zoff_bins_piece *piece, size_t i, int64_t hi, int64_t lo, unsigned top)
{
    const bool is_finite = top <= BINS_LAST;
    const uint32_t bits = (20u * top) << 23, nan = 0x7fc00000u;
    const int64_t kept[] = {is_finite ? hi : 0, is_finite ? lo : 0};
    if (piece->out) {
        float unit, value;
        __builtin_memcpy(&unit, &bits, sizeof unit);
        value = (float)((float)(kept[0] * (1 << 20) + kept[1]) * (0x1p-20 * (double)unit));
        if (!is_finite)
            __builtin_memcpy(&value, &nan, sizeof value);
        piece->out[i] = value;
    } else {
        __builtin_memcpy((char *)piece->to.hi + i * sizeof kept[0], &kept[0], sizeof kept[0]);
        __builtin_memcpy((char *)piece->to.lo + i * sizeof kept[1], &kept[1], sizeof kept[1]);
        piece->to.top[i] = (uint8_t)top;
    }
}

#endif
