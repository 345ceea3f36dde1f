/* SPDX-License-Identifier: Apache-2.0 */
/* body_bins_span.h: exact sums over a span of elements: by registers, or by blocks where digits have 64 bits. */
#ifndef ZOFF_BODY_BINS_SPAN_H
#define ZOFF_BODY_BINS_SPAN_H

enum { BINS_BLOCK = 256 };

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

ZOFF_KERNEL_INLINE void bins_join_width(bins_block *restrict to, const zoff_bins *from, size_t at, size_t count, unsigned width)
{
    const char *restrict hi = (const char *)from->hi + at * width, *restrict lo = (const char *)from->lo + at * width;
    const uint8_t *restrict top = from->top + at;
    for (size_t i = 0; i < count; i++) {
        int64_t now = to->top[i];
        bins_join_one(&to->hi[i], &to->lo[i], &now, bins_digit(hi + i * width, width), bins_digit(lo + i * width, width),
                      top[i]);
        to->top[i] = (uint8_t)now;
    }
}

static void bins_join_block(bins_block *to, const zoff_bins *from, size_t at, size_t count)
{
    if (from->width == 8)
        bins_join_width(to, from, at, count, 8);
    else
        bins_join_width(to, from, at, count, 4);
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
        for (size_t i = 0; i < now; i++)
            bins_write_one(piece, at + i, sum.hi[i], sum.lo[i], sum.top[i]);
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
