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
 * T terms err by at most T 2^-20 X (in bin 1 by T 2^-128), and the value, which is rounded once, by 2^-24 of the sum. */
#ifndef ZOFF_BODY_BINS_H
#define ZOFF_BODY_BINS_H

enum { BIN_LAST = 12, BIN_NOT_FINITE = 15 };

typedef struct bin_sum {
    int64_t hi, lo;
    unsigned top;
} bin_sum;

static int64_t bins_load_digit(const void *plane, size_t i, unsigned width)
{
    int64_t digit = 0;
    __builtin_memcpy((char *)&digit + (sizeof digit - width), (const char *)plane + i * width, width);
    return digit >> (8 * (sizeof digit - width));
}

static void bins_lift(bin_sum *sum, unsigned top)
{
    if (top <= sum->top)
        return;
    sum->lo = top == sum->top + 1 ? sum->hi : 0;
    sum->hi = 0;
    sum->top = top;
}

static void bins_join(bin_sum *sum, const zoff_bins *from, size_t i)
{
    bin_sum part = {bins_load_digit(from->hi, i, from->width), bins_load_digit(from->lo, i, from->width), from->top[i]};
    bins_lift(sum, part.top);
    bins_lift(&part, sum->top);
    sum->hi += part.hi;
    sum->lo += part.lo;
}

static void bins_add(bin_sum *sum, float x)
{
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    const unsigned exponent = bits >> 23 & 0xff, bin = (exponent + 1) / 20;
    bins_lift(sum, exponent == 255 ? BIN_NOT_FINITE : bin ? bin : 1);
    if (sum->top > BIN_LAST)
        return;
    const double unit = __builtin_ldexp(1, 20 * (int)sum->top - 127), hi = __builtin_rint(x / unit);
    sum->hi += (int64_t)hi;
    sum->lo += (int64_t)__builtin_rint((x - hi * unit) * 0x1p20 / unit);
}

static float bins_value(const bin_sum *sum)
{
    if (sum->top > BIN_LAST)
        return __builtin_nanf("");
    return (float)__builtin_ldexp((float)(sum->hi * (1 << 20) + sum->lo), 20 * (int)sum->top - 147);
}

static bin_sum bins_sum(const zoff_bins_piece *piece, size_t i)
{
    bin_sum sum = {0, 0, 1};
    if (!piece->first && piece->to.hi)
        bins_join(&sum, &piece->to, i);
    for (size_t part = 0; part < piece->part_count; part++)
        bins_join(&sum, &piece->parts[part], i);
    for (size_t source = 0; source < piece->sources; source++) {
        const float weight = piece->weights ? piece->weights[source] : 1;
        const char *terms = (const char *)piece->terms + source * piece->stride + i * width_of(piece->dtype);
        float x;
        if (weight == 0)
            continue;
        cast_any(&(zoff_cast_piece){.dst = &x, .src = terms, .dst_dtype = ZOFF_F32, .src_dtype = piece->dtype}, 0, 1);
        bins_add(&sum, weight * x);
    }
    if (sum.top > BIN_LAST)
        sum.hi = sum.lo = 0;
    return sum;
}

static void kernel_bins(const zoff_bins_piece *piece, size_t begin, size_t count)
{
    const zoff_bins *to = &piece->to;
    for (size_t i = begin; i < begin + count; i++) {
        const bin_sum sum = bins_sum(piece, i);
        if (piece->out) {
            piece->out[i] = bins_value(&sum);
        } else {
            __builtin_memcpy((char *)to->hi + i * to->width, &sum.hi, to->width);
            __builtin_memcpy((char *)to->lo + i * to->width, &sum.lo, to->width);
            to->top[i] = (uint8_t)sum.top;
        }
    }
}

#endif
