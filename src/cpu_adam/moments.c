/* SPDX-License-Identifier: Apache-2.0 */
/* moments.c: the layout of a moment, and its elements as fp32 numbers, for calls that read or write states. Steps use the
 * kernels. */
#include "q8.h"
#include "update_priv.h"

#include "cpu.h"

enum { CODES_M = 128, CODES_V = 256 }; /* number of codes without sign */

bool zoff_adam_moments_in_blocks(zoff_moments moments, zoff_moment which)
{
    return moments == ZOFF_MOMENTS_Q8 || (moments == ZOFF_MOMENTS_M8V16 && which == ZOFF_MOMENT_M);
}

const char *zoff_adam_moments_name(zoff_moments moments)
{
    static const char *const NAMES[] = {"fp32", "bf16", "m8v16", "q8"};
    return NAMES[moments];
}

size_t zoff_adam_moments_size(zoff_moments moments, zoff_moment which, size_t count)
{
    const size_t width = zoff_adam_update_moment_width(moments, which);
    const size_t blocks = count / ZOFF_NORM_BLOCK + (count % ZOFF_NORM_BLOCK != 0);
    return width == 1 ? count + blocks * Q8_HEADER : count * width;
}

size_t zoff_adam_moments_offset(zoff_moments moments, zoff_moment which, size_t first)
{
    const size_t width = zoff_adam_update_moment_width(moments, which);
    return width == 1 ? q8_block_at(first) : first * width;
}

static zoff_dtype dtype_of(zoff_moments moments)
{
    return moments == ZOFF_MOMENTS_F32 ? ZOFF_F32 : ZOFF_BF16;
}

static int scale_of(zoff_moment which, float bound)
{
    return which == ZOFF_MOMENT_M ? q8_scale_m(bound) : q8_scale_v(bound);
}

/* ---- one block ---- */

/* Load a block whose bound is not finite, and so moves no weight. Other formats must not move it either, so store 0 over
 * infinity. */
static void load_lost(zoff_moment which, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = which == ZOFF_MOMENT_M ? 0 : INFINITY;
}

/* Elements [first, first + count) of a block of `length`. */
static void load_block(zoff_moment which, const uint8_t *block, size_t length, size_t first, size_t count, float *out)
{
    const q8_header header = q8_load_header(block, length);
    if (!(header.bound <= FLT_MAX)) {
        load_lost(which, count, out);
        return;
    }
    const float scale = q8_power(scale_of(which, header.bound));
    const uint8_t *codes = block + Q8_HEADER + first;
    for (size_t i = 0; i < count; i++) {
        const uint8_t code = which == ZOFF_MOMENT_M ? codes[i] & (CODES_M - 1) : codes[i];
        const float x = q8_value(code) * scale;
        out[i] = code != codes[i] ? -x : x;
    }
    for (unsigned e = 0; e < Q8_OUTLIERS; e++) {
        if (header.places[e] > first && header.places[e] <= first + count)
            out[header.places[e] - 1 - first] = header.values[e];
    }
}

/* The nearest code; ties go away from zero. `multiple` is not negative. */
static uint32_t nearest(float multiple, uint32_t codes)
{
    const uint32_t code = (q8_bits(multiple + 2) - Q8_TWO + (1u << (Q8_SHIFT - 1))) >> Q8_SHIFT;
    return code < codes ? code : codes - 1;
}

/* A second moment is not negative. NaN counts as infinite. */
static float size_of(zoff_moment which, float x)
{
    if (x != x)
        return INFINITY;
    return which == ZOFF_MOMENT_V && x < 0 ? 0 : fabsf(x);
}

static uint32_t codes_of(zoff_moment which)
{
    return which == ZOFF_MOMENT_M ? CODES_M : CODES_V;
}

/* How the numbers of a block are stored. */
typedef struct choice {
    float sizes[ZOFF_NORM_BLOCK]; /* sizes without their signs; 0 for outliers */
    uint8_t is_out[ZOFF_NORM_BLOCK];
    float bound;
} choice;

static float largest_of(const float *sizes, size_t count)
{
    float most = 0;
    for (size_t i = 0; i < count; i++)
        most = sizes[i] > most ? sizes[i] : most;
    return most;
}

/* The largest number after the Q8_OUTLIERS largest ones, which can be outliers. */
static float largest_behind(const float *sizes, size_t count)
{
    float most[Q8_OUTLIERS + 1] = {0}; /* descending */
    for (size_t i = 0; i < count; i++) {
        unsigned at = Q8_OUTLIERS;
        if (!(sizes[i] > most[at]))
            continue;
        for (; at > 0 && sizes[i] > most[at - 1]; at--)
            most[at] = most[at - 1];
        most[at] = sizes[i];
    }
    return most[Q8_OUTLIERS];
}

/* Whether codes with this scale store all numbers but a few exactly. These few become the outliers, if a block has room for
 * them. */
static bool is_exact(zoff_moment which, int scale, size_t count, choice *c)
{
    unsigned others = 0;
    for (size_t i = 0; i < count; i++) {
        const float multiple = c->sizes[i] * q8_power(-scale);
        c->is_out[i] = q8_value(nearest(multiple, codes_of(which))) != multiple;
        others += c->is_out[i];
        if (others > Q8_OUTLIERS)
            return false;
    }
    for (size_t i = 0; i < count; i++)
        c->sizes[i] = c->is_out[i] ? 0 : c->sizes[i];
    return true;
}

/* Store numbers that were loaded from a block as they were. Their scale may be larger than they need, because a step computes
 * the bound before the numbers, and values of a scale are not values of half of it. */
static bool choose_exact(zoff_moment which, size_t count, choice *c)
{
    const float largest = q8_value(codes_of(which) - 1), quantum = q8_value(1), most = largest_behind(c->sizes, count);
    for (int scale = scale_of(which, most); scale <= scale_of(which, FLT_MAX); scale++) {
        if (is_exact(which, scale, count, c)) {
            const float rest = largest_of(c->sizes, count);
            c->bound = scale_of(which, rest) == scale ? rest : nextafterf(ldexpf(largest, scale - 1), INFINITY);
            return true;
        }
        if (most * q8_power(-scale) < quantum)
            return false;
    }
    return false;
}

/* Round other numbers, with the outliers that they would have in a step without gradients. */
static void choose(zoff_moment which, size_t count, const float *in, choice *c)
{
    for (size_t i = 0; i < count; i++)
        c->sizes[i] = size_of(which, in[i]);
    if (choose_exact(which, count, c))
        return;
    memset(c->is_out, 0, sizeof c->is_out);
    q8_take_outliers(c->sizes, count, which == ZOFF_MOMENT_M ? Q8_FAR_M : Q8_FAR_V, 1, c->is_out);
    c->bound = largest_of(c->sizes, count);
}

static void store_block(zoff_moment which, uint8_t *block, size_t count, const float *in)
{
    const uint32_t codes = codes_of(which);
    choice c;
    choose(which, count, in, &c);
    q8_header header = {.bound = c.bound};
    const bool is_lost = !(c.bound <= FLT_MAX);
    const float inverse = q8_power(is_lost ? 0 : -scale_of(which, c.bound));
    unsigned outliers = 0;
    for (size_t i = 0; i < count; i++) {
        const bool is_negative = which == ZOFF_MOMENT_M && signbit(in[i]) && !c.is_out[i];
        const uint32_t code = is_lost ? codes - 1 : nearest(c.sizes[i] * inverse, codes);
        block[Q8_HEADER + i] = (uint8_t)(code | (is_negative ? CODES_M : 0));
        if (c.is_out[i]) {
            header.places[outliers] = (uint16_t)(i + 1);
            header.values[outliers++] = which == ZOFF_MOMENT_M ? in[i] : size_of(which, in[i]);
        }
    }
    memcpy(block, &header, sizeof header);
}

size_t zoff_adam_moments_unfit(zoff_moments moments, zoff_moment which, size_t count, const float *in)
{
    size_t first = count; /* infinite */
    choice c;
    if (!zoff_adam_moments_in_blocks(moments, which))
        return count;
    for (size_t i = 0; i < count; i++) {
        if (which == ZOFF_MOMENT_M ? !isfinite(in[i]) : !(in[i] >= 0))
            return i;
        first = isinf(in[i]) && first == count ? i : first;
    }
    if (first == count)
        return count;
    choose(which, count, in, &c);
    return c.bound <= FLT_MAX ? count : first;
}

/* ---- ranges ---- */

static char *at(zoff_moments moments, zoff_moment which, const void *state, size_t first)
{
    return (char *)(uintptr_t)state + zoff_adam_moments_offset(moments, which, first);
}

void zoff_adam_moments_load(zoff_moments moments, zoff_moment which, const void *state, size_t first, size_t count, float *out)
{
    const zoff_cast_piece cast = {.count = count,
                                  .dst = out,
                                  .src = zoff_adam_moments_in_blocks(moments, which) ? NULL : at(moments, which, state, first),
                                  .dst_dtype = ZOFF_F32,
                                  .src_dtype = dtype_of(moments)};
    if (cast.src) {
        zoff_adam_cast_run(1, &cast, 1);
        return;
    }
    const unsigned saved = zoff_base_cpu_float_enter();
    for (size_t done = 0, now; done < count; done += now) {
        const size_t skip = (first + done) % ZOFF_NORM_BLOCK, rest = ZOFF_NORM_BLOCK - skip;
        now = rest < count - done ? rest : count - done;
        load_block(which, (uint8_t *)at(moments, which, state, first + done - skip), skip + now, skip, now, out + done);
    }
    zoff_base_cpu_float_leave(saved);
}

void zoff_adam_moments_store(zoff_moments moments, zoff_moment which, void *state, size_t size, size_t first, size_t count,
                             const float *in)
{
    const zoff_cast_piece cast = {.count = count,
                                  .dst = zoff_adam_moments_in_blocks(moments, which) ? NULL : at(moments, which, state, first),
                                  .src = in,
                                  .dst_dtype = dtype_of(moments),
                                  .src_dtype = ZOFF_F32};
    float whole[ZOFF_NORM_BLOCK];
    if (cast.dst) {
        zoff_adam_cast_run(1, &cast, 1);
        return;
    }
    const unsigned saved = zoff_base_cpu_float_enter();
    for (size_t done = 0, now; done < count; done += now) {
        const size_t begin = (first + done) / ZOFF_NORM_BLOCK * ZOFF_NORM_BLOCK, skip = first + done - begin;
        const size_t length = size - begin < ZOFF_NORM_BLOCK ? size - begin : ZOFF_NORM_BLOCK;
        uint8_t *block = (uint8_t *)at(moments, which, state, begin);
        now = length - skip < count - done ? length - skip : count - done;
        if (now < length)
            load_block(which, block, length, 0, length, whole);
        memcpy(whole + skip, in + done, now * sizeof *in);
        store_block(which, block, length, whole);
    }
    zoff_base_cpu_float_leave(saved);
}
