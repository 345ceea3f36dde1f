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
 * of a term are in the bits of floats, and are summed as integers. Sums that need more than 32 bits are in a loop of their
 * own. */
#ifndef ZOFF_BODY_BINS_H
#define ZOFF_BODY_BINS_H

enum {
    BINS_LAST = 12,
    BINS_NOT_FINITE = 15,
    BINS_SHIFT = 0x4b400000, /* bits of 1.5 2^23 */
    BINS_FEW = 31,           /* terms whose digits are floats */
    BINS_NARROW_MOST = 4095, /* terms whose digits fit 32 bits */
    BINS_BLOCK = 256,        /* elements of a block in 64 bits */
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
        const v_i bits = v_int_mul(top, 20 << 23); /* of U(top); for bin 15 they are beyond those of NaN */
        const v_f unit = v_from_bits(is_finite ? bits : v_int_least(bits, v_int(0x7fc00000)));
        v_store(piece->out + i,
                few ? v_mul(v_fma(v_from_int(lo), v_set1(0x1p-20f), v_from_int(hi)), unit) : v_digits(hi, lo, unit), left);
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

ZOFF_KERNEL_RARE void bins_some(const zoff_bins_piece *piece, size_t i, size_t left)
{
    bins_lanes(piece, i, left, piece->dtype);
}

#ifdef ZOFF_SIMD_HALVES
/* The same for two registers of bf16 terms without weights. The upper halves of floats are enough for the bins. */
ZOFF_KERNEL_INLINE void bins_halves(const zoff_bins_piece *piece, size_t i, bool alone)
{
    const char *terms = (const char *)piece->terms + i * sizeof(uint16_t);
    const size_t next = i + v_lanes();
    v_h largest = v_halves(0);
    for (size_t source = 0; source < piece->sources; source++)
        largest = v_halves_max(largest, v_halves_size(v_load_h(terms + source * piece->stride)));
    if (v_halves_any_above(largest, 0x7f7f)) {
        bins_some(piece, i, v_lanes());
        bins_some(piece, next, v_lanes());
        return;
    }
    v_h top = v_halves_add(v_halves_down(largest, 7), v_halves(1));
    top = v_halves_max(v_halves_down(v_halves_mul(top, 205), 12), v_halves(1));
    for (size_t sum = bins_first_sum(piece); !alone && sum <= piece->part_count; sum++)
        top = v_halves_max(top, v_halves_load_bytes(bins_sum(piece, sum)->top + i));

    const v_h unit = v_halves_mul(top, 20 << 7), by_unit = v_halves_sub(v_halves(254 << 7), unit);
    v_i unit_a, unit_b, lower_a, lower_b, a, b, hi_a = v_int(0), hi_b = hi_a, lo_a = hi_a, lo_b = hi_a;
    v_halves_widen(by_unit, &unit_a, &unit_b);
    v_halves_widen(v_halves_add(by_unit, v_halves(20 << 7)), &lower_a, &lower_b);
    for (size_t source = 0; source < piece->sources; source++) {
        v_halves_widen(v_load_h(terms + source * piece->stride), &a, &b);
        bins_digits(v_from_bits(a), v_from_bits(unit_a), v_from_bits(lower_a), &hi_a, &lo_a);
        bins_digits(v_from_bits(b), v_from_bits(unit_b), v_from_bits(lower_b), &hi_b, &lo_b);
    }
    v_halves_in_order(&hi_a, &hi_b);
    v_halves_in_order(&lo_a, &lo_b);
    v_halves_widen(top, &a, &b);
    v_halves_in_order(&a, &b);
    a = v_int_down(a, 16);
    b = v_int_down(b, 16);
    const v_i shifts = v_int((int32_t)((uint32_t)piece->sources * (uint32_t)BINS_SHIFT));
    hi_a = v_int_sub(hi_a, shifts);
    hi_b = v_int_sub(hi_b, shifts);
    lo_a = v_int_sub(lo_a, shifts);
    lo_b = v_int_sub(lo_b, shifts);
    if (!alone) {
        bins_join_all(piece, i, v_lanes(), a, &hi_a, &lo_a);
        bins_join_all(piece, next, v_lanes(), b, &hi_b, &lo_b);
    }
    const bool few = alone && piece->sources <= BINS_FEW;
    bins_write(piece, i, v_lanes(), a, hi_a, lo_a, few, alone);
    bins_write(piece, next, v_lanes(), b, hi_b, lo_b, few, alone);
}

ZOFF_KERNEL_INLINE size_t bins_halves_span(const zoff_bins_piece *piece, size_t i, size_t end, bool alone)
{
    for (; i + 2 * v_lanes() <= end; i += 2 * v_lanes())
        bins_halves(piece, i, alone);
    return i;
}
#endif

ZOFF_KERNEL_INLINE size_t bins_span(const zoff_bins_piece *piece, size_t i, size_t end, zoff_dtype terms)
{
    for (; i + v_lanes() <= end; i += v_lanes())
        bins_lanes(piece, i, v_lanes(), terms);
    return i;
}

static void bins_narrow(const zoff_bins_piece *given, size_t begin, size_t count)
{
    const zoff_bins_piece copy = *given, *piece = &copy; /* a copy, which no store to the planes changes */
    const size_t end = begin + count;
    size_t i = begin;
#ifdef ZOFF_SIMD_HALVES
    if (piece->dtype == ZOFF_BF16 && !piece->weights && piece->sources)
        i = bins_are_terms(piece) ? bins_halves_span(piece, i, end, true) : bins_halves_span(piece, i, end, false);
#endif
    if (piece->dtype == ZOFF_BF16)
        i = bins_span(piece, i, end, ZOFF_BF16);
    else if (piece->dtype == ZOFF_F16)
        i = bins_span(piece, i, end, ZOFF_F16);
    else
        i = bins_span(piece, i, end, ZOFF_F32);
    if (i < end)
        bins_some(given, i, end - i);
}

/* ---- sums of 64 bits ---- */

typedef struct bins_block {
    int64_t hi[BINS_BLOCK], lo[BINS_BLOCK];
    uint8_t top[BINS_BLOCK];
} bins_block;

ZOFF_KERNEL_INLINE int64_t bins_digit(const char *p, unsigned width)
{
    uint64_t digit = 0;
    __builtin_memcpy(&digit, p, width);
    return (int64_t)(digit << (64 - 8 * width)) >> (64 - 8 * width);
}

/* Lift both sums, without a branch. */
ZOFF_KERNEL_INLINE void bins_join_width(bins_block *restrict to, const zoff_bins *from, size_t at, size_t count, unsigned width)
{
    const char *restrict hi = (const char *)from->hi + at * width, *restrict lo = (const char *)from->lo + at * width;
    const uint8_t *restrict from_top = from->top + at;
    for (size_t i = 0; i < count; i++) {
        const int64_t mine = to->top[i], other = from_top[i], top = mine > other ? mine : other;
        const int64_t part = bins_digit(hi + i * width, width);
        to->lo[i] = (to->lo[i] & -(int64_t)(mine == top)) + (to->hi[i] & -(int64_t)(mine == top - 1)) +
                    (bins_digit(lo + i * width, width) & -(int64_t)(other == top)) + (part & -(int64_t)(other == top - 1));
        to->hi[i] = (to->hi[i] & -(int64_t)(mine == top)) + (part & -(int64_t)(other == top));
        to->top[i] = (uint8_t)top;
    }
}

/* Digits of 3 bytes become digits of 4 first. */
static void bins_join_block(bins_block *to, const zoff_bins *from, size_t at, size_t count)
{
    if (from->width == 8) {
        bins_join_width(to, from, at, count, 8);
    } else if (from->width == 4) {
        bins_join_width(to, from, at, count, 4);
    } else {
        int32_t hi[BINS_BLOCK], lo[BINS_BLOCK];
        const zoff_bins wider = {hi, lo, from->top + at, sizeof *hi};
        for (size_t i = 0; i < count; i++) {
            hi[i] = (int32_t)bins_digit((const char *)from->hi + (at + i) * 3, 3);
            lo[i] = (int32_t)bins_digit((const char *)from->lo + (at + i) * 3, 3);
        }
        bins_join_width(to, &wider, 0, count, 4);
    }
}

static void bins_add_block(bins_block *sum, const zoff_bins_piece *piece, size_t at, size_t count)
{
    int32_t hi[BINS_BLOCK], lo[BINS_BLOCK];
    uint8_t top[BINS_BLOCK];
    zoff_bins_piece some = {.count = count, .to = {hi, lo, top, sizeof *hi}, .first = true, .dtype = piece->dtype};
    some.stride = piece->stride;
    for (size_t source = 0; source < piece->sources; source += some.sources) {
        some.terms = (const char *)piece->terms + source * piece->stride + at * width_of(piece->dtype);
        some.sources = piece->sources - source < BINS_NARROW_MOST ? piece->sources - source : BINS_NARROW_MOST;
        some.weights = piece->weights ? piece->weights + source : NULL;
        bins_narrow(&some, 0, count);
        bins_join_block(sum, &some.to, 0, count);
    }
}

/* Write the sums, or their values, with a unit of bin 15 that is NaN. */
static void bins_write_block(const bins_block *sum, const zoff_bins_piece *piece, size_t at, size_t count)
{
    const zoff_bins *to = &piece->to;
    for (size_t i = 0; i < count; i++) {
        const bool is_finite = sum->top[i] <= BINS_LAST;
        const uint32_t bits = is_finite ? (20u * sum->top[i]) << 23 : 0x7fc00000u;
        const int64_t hi = is_finite ? sum->hi[i] : 0, lo = is_finite ? sum->lo[i] : 0;
        float unit;
        __builtin_memcpy(&unit, &bits, sizeof unit);
        if (piece->out) {
            piece->out[at + i] = (float)((float)(hi * (1 << 20) + lo) * (0x1p-20 * (double)unit));
        } else {
            __builtin_memcpy((char *)to->hi + (at + i) * sizeof hi, &hi, sizeof hi);
            __builtin_memcpy((char *)to->lo + (at + i) * sizeof lo, &lo, sizeof lo);
            to->top[at + i] = sum->top[i];
        }
    }
}

/* Join as many sums of 3 bytes as 4 bytes hold, in the registers of narrow sums: those of thousands of nodes.  @return number
 * of sums; 0: they are others */
static size_t bins_join_few(bins_block *sum, const zoff_bins_piece *piece, size_t from, size_t at, size_t count)
{
    enum { TERMS = 15, MOST = BINS_NARROW_MOST / TERMS };
    int32_t hi[BINS_BLOCK], lo[BINS_BLOCK];
    uint8_t top[BINS_BLOCK];
    zoff_bins parts[MOST];
    zoff_bins_piece some = {.count = count, .to = {hi, lo, top, sizeof *hi}, .first = true, .dtype = ZOFF_F32, .parts = parts};
    for (; from <= piece->part_count && some.part_count < MOST && bins_sum(piece, from)->width == 3; from++) {
        const zoff_bins *part = bins_sum(piece, from);
        parts[some.part_count++] = (zoff_bins){(char *)part->hi + at * 3, (char *)part->lo + at * 3, part->top + at, 3};
    }
    if (!some.part_count)
        return 0;
    bins_narrow(&some, 0, count);
    bins_join_block(sum, &some.to, 0, count);
    return some.part_count;
}

static void bins_wide(const zoff_bins_piece *piece, size_t begin, size_t count)
{
    const size_t end = begin + count;
    for (size_t at = begin, now; at < end; at += now) {
        bins_block sum = {.top = {0}};
        now = end - at < BINS_BLOCK ? end - at : BINS_BLOCK;
        __builtin_memset(sum.top, 1, sizeof sum.top);
        for (size_t part = bins_first_sum(piece), joined; part <= piece->part_count; part += joined) {
            joined = bins_join_few(&sum, piece, part, at, now);
            if (joined)
                continue;
            bins_join_block(&sum, bins_sum(piece, part), at, now);
            joined = 1;
        }
        bins_add_block(&sum, piece, at, now);
        bins_write_block(&sum, piece, at, now);
    }
}

static void kernel_bins(const zoff_bins_piece *piece, size_t begin, size_t count)
{
    if (piece->to.width == sizeof(int64_t))
        bins_wide(piece, begin, count);
    else
        bins_narrow(piece, begin, count);
}

#endif
