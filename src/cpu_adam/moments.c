/* moments.c: the layout of a moment, and its elements as fp32 numbers, for calls that read or write states. Steps use the
 * kernels. */
#include "q8.h"
#include "update_priv.h"

#include "cpu.h"

enum { CODES_M = 128, CODES_V = 256 }; /* without sign */

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

/* A block whose bound is not finite moves no weight. In another format its numbers should not, either: 0 over infinity. */
static void load_lost(zoff_moment which, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++)
        out[i] = which == ZOFF_MOMENT_M ? 0 : INFINITY;
}

static void load_block(zoff_moment which, const uint8_t *block, size_t first, size_t count, float *out)
{
    const float bound = q8_load_bound(block);
    if (!(bound <= FLT_MAX)) {
        load_lost(which, count, out);
        return;
    }
    const float scale = q8_power(scale_of(which, bound));
    const uint8_t *codes = block + Q8_HEADER + first;
    for (size_t i = 0; i < count; i++) {
        const uint8_t code = which == ZOFF_MOMENT_M ? codes[i] & (CODES_M - 1) : codes[i];
        const float x = q8_value(code) * scale;
        out[i] = code != codes[i] ? -x : x;
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

/* The first number, from number `first` on and around, that is not the value of a code with this scale; `count` if there is
 * none. */
static size_t find_inexact(zoff_moment which, int scale, size_t count, const float *in, size_t first)
{
    for (size_t k = 0; k < count; k++) {
        const size_t i = first + k < count ? first + k : first + k - count;
        const float multiple = ldexpf(size_of(which, in[i]), -scale);
        if (q8_value(nearest(multiple, codes_of(which))) != multiple)
            return i;
    }
    return count;
}

/* A bound for numbers up to `most`. Numbers that were loaded from a block are stored as they were. Its scale may be larger than
 * they need, because a step computes the bound before the numbers, and values of a scale are not values of half of it. The
 * number for which a scale failed is the first that the next one is tried on, so other numbers take little time. */
static float bound_for(zoff_moment which, float most, size_t count, const float *in)
{
    const float largest = q8_value(codes_of(which) - 1), quantum = q8_value(1);
    const int least = scale_of(which, most), end = scale_of(which, FLT_MAX);
    size_t at = 0;
    for (int scale = least; scale <= end && most > 0 && ldexpf(most, -scale) >= quantum; scale++) {
        const size_t inexact = find_inexact(which, scale, count, in, at);
        if (inexact == count)
            return scale == least ? most : nextafterf(ldexpf(largest, scale - 1), INFINITY);
        at = inexact;
    }
    return most;
}

static void store_block(zoff_moment which, uint8_t *block, size_t count, const float *in)
{
    const uint32_t codes = codes_of(which);
    float bound = 0;
    for (size_t i = 0; i < count; i++)
        bound = fmaxf(bound, size_of(which, in[i]));
    if (bound <= FLT_MAX)
        bound = bound_for(which, bound, count, in);
    memset(block, 0, Q8_HEADER);
    q8_store_bound(block, bound);
    const int scale = bound <= FLT_MAX ? scale_of(which, bound) : 0;
    for (size_t i = 0; i < count; i++) {
        const uint32_t code = bound <= FLT_MAX ? nearest(ldexpf(size_of(which, in[i]), -scale), codes) : codes - 1;
        const bool is_negative = which == ZOFF_MOMENT_M && signbit(in[i]);
        block[Q8_HEADER + i] = (uint8_t)(code | (is_negative ? CODES_M : 0));
    }
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
        load_block(which, (uint8_t *)at(moments, which, state, first + done - skip), skip, now, out + done);
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
            load_block(which, block, 0, length, whole);
        memcpy(whole + skip, in + done, now * sizeof *in);
        store_block(which, block, length, whole);
    }
    zoff_base_cpu_float_leave(saved);
}
