/* SPDX-License-Identifier: Apache-2.0 */
/* body_q8.h: the pass over a block with 8-bit moments before its step. It finds the largest numbers of the block, from them the
 * bounds and constants, and the outliers; see q8.h. Functions that no loop needs are not inlined, because there are many loops.
 */
#ifndef ZOFF_BODY_Q8_H
#define ZOFF_BODY_Q8_H

/* The largest magnitude of numbers, as bits, because magnitudes are ordered like their bits. Compilers make vectors of such
 * loops. */
static __attribute__((noinline)) uint16_t q8_largest_half(const uint16_t *halves, size_t count)
{
    uint16_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        const uint16_t size = halves[i] & 0x7fffu;
        largest = size > largest ? size : largest;
    }
    return largest;
}

ZOFF_KERNEL_INLINE float q8_largest_of(const zoff_adam_consts *k, const update_streams *s, size_t count, zoff_adam_rule rule,
                                       update_types types)
{
    v_f largest = v_set1(0);
    size_t i = 0;
    for (; i + v_lanes() <= count; i += v_lanes())
        largest = q8_largest_lanes(k, s, largest, i, v_lanes(), rule, types);
    if (i < count)
        largest = q8_largest_lanes(k, s, largest, i, count - i, rule, types);
    return v_largest(largest);
}

/* The largest |g| of a block. */
ZOFF_KERNEL_INLINE float q8_largest(const zoff_adam_consts *k, const update_streams *s, size_t count, zoff_adam_rule rule,
                                    update_types types)
{
    if (rule_decays_grads(rule))
        return q8_largest_of(k, s, count, rule, types);
    /* Rounding is monotone, so the largest product is that of the largest number. */
    const float largest = types.grads == ZOFF_BF16
                              ? q8_number((uint32_t)q8_largest_half((const uint16_t *)(const void *)s->g, count) << 16)
                              : q8_largest_of(k, s, count, rule, types);
    return largest * fabsf(k->grad_scale);
}

/* The largest code of a block; `mask` leaves out the sign. Compilers make vectors of this loop. */
static __attribute__((noinline)) uint32_t q8_largest_code(const uint8_t *codes, size_t count, uint8_t mask)
{
    uint8_t largest = 0;
    for (size_t i = 0; i < count; i++) {
        const uint8_t code = codes[i] & mask;
        largest = code > largest ? code : largest;
    }
    return largest;
}

/* Whether more codes than a block can have outliers are `least` or larger. Compilers make vectors of the inner loop. */
static __attribute__((noinline)) bool q8_has_many(const uint8_t *codes, size_t count, uint8_t mask, uint8_t least)
{
    enum { TURN = 64 };
    size_t found = 0, i = 0;
    for (; i + TURN <= count && found <= Q8_OUTLIERS; i += TURN) {
        uint8_t now = 0;
        for (size_t l = 0; l < TURN; l++)
            now = (uint8_t)(now + ((codes[i + l] & mask) >= least));
        found += now;
    }
    for (; i < count && found <= Q8_OUTLIERS; i++)
        found += (codes[i] & mask) >= least;
    return found > Q8_OUTLIERS;
}

/* Whether codes alone show that a moment has no outlier. `kept`: the largest old number times beta. If the bound is at most 4
 * times that, old numbers of 2^(2 - digits) times the largest are as large as an outlier. A code that is 8 lower has about half
 * the number, so this takes one half less. */
ZOFF_KERNEL_INLINE bool q8_shows_none(const uint8_t *codes, size_t count, uint8_t mask, uint32_t most, float kept, float bound,
                                      int digits)
{
    const uint32_t below = 8u * (uint32_t)(digits - 3);
    return bound == 0 || (bound <= 4 * kept && q8_has_many(codes, count, mask, (uint8_t)(most > below + 8 ? most - below : 8)));
}

/* ---- outliers ---- */

/* The new numbers of an element that was or is an outlier. The loop over its block treats it as an element without moments, and
 * q8_end() replaces the result. */
typedef struct q8_other {
    float p;
    uint16_t at; /* index of the element in the block */
    uint8_t m, v;
} q8_other;

/* The outliers of a block: each moment may have had some, and may have others now. */
typedef struct q8_others {
    unsigned count;
    q8_other list[4 * Q8_OUTLIERS];
} q8_others;

enum { Q8_LISTED = 1, Q8_OUT_M = 2, Q8_OUT_V = 4 };

/* The old numbers of a block in fp32, the bounds of its elements, and marks of its outliers. */
typedef struct q8_block {
    q8_header m_header, v_header;
    float g[ZOFF_NORM_BLOCK], m[ZOFF_NORM_BLOCK], v[ZOFF_NORM_BLOCK], m_bounds[ZOFF_NORM_BLOCK], v_bounds[ZOFF_NORM_BLOCK];
    uint8_t marks[ZOFF_NORM_BLOCK];
} q8_block;

ZOFF_KERNEL_INLINE float q8_weight(const update_streams *s, size_t i, update_types types)
{
    if (!types.split)
        return ((const float *)(const void *)s->p)[i];
    const uint32_t high = ((const uint16_t *)(const void *)s->p)[i], low = s->low[i];
    return q8_number((high << 16) + low - ((low & 0x8000u) << 1));
}

/* The gradients [first, end) of a block, with the decay of ADAM_L2. */
ZOFF_KERNEL_INLINE void q8_read_gradients(const zoff_adam_consts *k, const update_streams *s, size_t first, size_t end,
                                          update_types types, float *out)
{
    if (types.grads == ZOFF_F16) {
        for (size_t i = first; i < end; i += v_lanes())
            v_store(out + i, v_load_f16((const uint16_t *)(const void *)s->g + i, end - i), end - i);
    } else if (types.grads == ZOFF_BF16) {
        for (size_t i = first; i < end; i++)
            out[i] = q8_number((uint32_t)((const uint16_t *)(const void *)s->g)[i] << 16);
    } else {
        memcpy(out + first, (const float *)(const void *)s->g + first, (end - first) * sizeof *out);
    }
    for (size_t i = first; i < end; i++)
        out[i] *= k->grad_scale;
    for (size_t i = first; i < end && rule_decays_grads(k->rule); i++)
        out[i] = fmaf(k->decay, q8_weight(s, i, types), out[i]);
}

/* The old numbers [first, end) of a moment. */
ZOFF_KERNEL_INLINE void q8_read_moment(const q8_header *h, const uint8_t *codes, size_t first, size_t end, bool has_sign,
                                       float *out)
{
    const uint32_t mask = has_sign ? 0x7f : 0xff;
    const float scale = q8_power(has_sign ? q8_scale_m(h->bound) : q8_scale_v(h->bound));
    const bool is_lost = !(h->bound <= FLT_MAX);
    for (size_t i = first; i < end; i++)
        out[i] = is_lost ? h->bound : q8_value(codes[i] & mask) * (codes[i] & ~mask ? -scale : scale);
    for (unsigned e = 0; e < Q8_OUTLIERS; e++) {
        if (h->places[e] > first && h->places[e] <= end)
            out[h->places[e] - 1] = h->values[e];
    }
}

ZOFF_KERNEL_INLINE unsigned q8_count_far(const float *bounds, size_t first, size_t end, float far)
{
    unsigned found = 0;
    for (size_t i = first; i < end; i++)
        found += bounds[i] >= far && bounds[i] > 0;
    return found;
}

/* Read a block, but stop when both moments have more elements that are as large as an outlier than a block has outliers. `now`:
 * bounds that no element exceeds, except old outliers.  @return whether the whole block was read */
static __attribute__((noinline)) bool q8_read_block(const zoff_adam_consts *k, const update_streams *s,
                                                    const rule_states *states, size_t count, update_types types, q8_bounds now,
                                                    q8_block *b)
{
    enum { TURN = 64 };
    const bool has_v = states->v_form == STATE_V8;
    const float far_m = q8_far(now.m, Q8_FAR_M), far_v = q8_far(now.v, Q8_FAR_V);
    unsigned many_m = 0, many_v = has_v ? 0 : Q8_OUTLIERS + 1;
    b->m_header = q8_load_header((const uint8_t *)states->m, count);
    b->v_header = has_v ? q8_load_header((const uint8_t *)states->v, count) : (q8_header){.bound = 0};
    const bool had = b->m_header.places[0] || b->v_header.places[0];
    for (size_t i = 0, end; i < count; i = end) {
        end = count - i < TURN ? count : i + TURN;
        q8_read_gradients(k, s, i, end, types, b->g);
        q8_read_moment(&b->m_header, (const uint8_t *)states->m + Q8_HEADER, i, end, true, b->m);
        for (size_t e = i; e < end; e++)
            b->m_bounds[e] = q8_bound_m(k, b->m[e], b->g[e]);
        many_m += q8_count_far(b->m_bounds, i, end, far_m);
        if (has_v) {
            q8_read_moment(&b->v_header, (const uint8_t *)states->v + Q8_HEADER, i, end, false, b->v);
            for (size_t e = i; e < end; e++)
                b->v_bounds[e] = q8_bound_v(k, b->v[e], b->g[e]);
            many_v += q8_count_far(b->v_bounds, i, end, far_v);
        } else {
            for (size_t e = i; e < end; e++)
                b->v[e] = q8_number((uint32_t)((const uint16_t *)states->v)[e] << 16);
        }
        if (!had && many_m > Q8_OUTLIERS && many_v > Q8_OUTLIERS)
            return false;
    }
    memset(b->marks, 0, count);
    return true;
}

static __attribute__((noinline)) float q8_largest_number(const float *numbers, size_t count)
{
    float largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = fabsf(numbers[i]) > largest ? fabsf(numbers[i]) : largest;
    return largest;
}

/* Find the outliers of a moment, mark them, and return the bound of the other elements. `bounds` has the bound of each element.
 * @return negative: there is no outlier */
static __attribute__((noinline)) float q8_choose(float *bounds, size_t count, int digits, uint8_t mark, uint8_t *marks)
{
    return q8_take_outliers(bounds, count, digits, mark, marks) ? q8_largest_number(bounds, count) : -1;
}

/* Find the outliers of a block whose largest |g| is `g`. `now` has the bounds of all elements, and is set to those of the
 * codes. */
static __attribute__((noinline)) void q8_find_others(const zoff_adam_consts *k, const update_streams *s,
                                                     const rule_states *states, size_t count, float g, update_types types,
                                                     q8_bounds *now, q8_others *others)
{
    const bool has_v = states->v_form == STATE_V8;
    q8_block b;
    if (!q8_read_block(k, s, states, count, types, *now, &b))
        return;
    for (unsigned e = 0; e < Q8_OUTLIERS; e++) {
        if (b.m_header.places[e])
            b.marks[b.m_header.places[e] - 1] = Q8_LISTED;
        if (b.v_header.places[e])
            b.marks[b.v_header.places[e] - 1] = Q8_LISTED;
    }
    now->m = q8_choose(b.m_bounds, count, Q8_FAR_M, Q8_OUT_M, b.marks);
    if (now->m < 0)
        now->m = q8_bound_m(k, q8_largest_number(b.m, count), g);
    now->v = has_v ? q8_choose(b.v_bounds, count, Q8_FAR_V, Q8_OUT_V, b.marks) : now->v;
    if (now->v < 0)
        now->v = q8_bound_v(k, q8_largest_number(b.v, count), g);
    q8_header m = {.bound = now->m}, v = {.bound = now->v};
    unsigned m_count = 0, v_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (!b.marks[i])
            continue;
        const bool m_code = !(b.marks[i] & Q8_OUT_M), v_code = has_v && !(b.marks[i] & Q8_OUT_V);
        const q8_element old = {q8_weight(s, i, types), b.g[i], b.m[i], b.v[i]};
        const q8_element e = q8_step(k, old, *now, m_code, v_code, has_v);
        q8_other *other = &others->list[others->count++];
        *other = (q8_other){.p = e.p, .at = (uint16_t)i};
        if (m_code) {
            store_state(&other->m, 0, v_set1(e.m), states->m_lanes + i, states->m_key, 1, STATE_M8, false);
        } else {
            m.places[m_count] = (uint16_t)(i + 1);
            m.values[m_count++] = e.m;
        }
        if (v_code) {
            store_state(&other->v, 0, v_set1(e.v), states->v_lanes + i, states->v_key, 1, STATE_V8, false);
        } else if (has_v) {
            v.places[v_count] = (uint16_t)(i + 1);
            v.values[v_count++] = e.v;
        }
    }
    memcpy(states->m, &m, sizeof m);
    if (has_v)
        memcpy(states->v, &v, sizeof v);
}

/* ---- the two ends of a block ---- */

/* Replace the bounds of a block, find its outliers, and return the constants of its step. `g`: the largest |g|. The states
 * begin with the block, and their random bits are those of its first lanes. */
static __attribute__((noinline)) zoff_adam_consts q8_begin_block(const zoff_adam_consts *k, const update_streams *s,
                                                                 const rule_states *states, size_t count, float g,
                                                                 update_types types, q8_others *others)
{
    uint8_t *m = (uint8_t *)states->m, *v = states->v_form == STATE_V8 ? (uint8_t *)states->v : NULL;
    const uint32_t m_most = q8_largest_code(m + Q8_HEADER, count, 0x7f);
    const uint32_t v_most = v ? q8_largest_code(v + Q8_HEADER, count, 0xff) : 0;
    const q8_bounds old = {q8_load_bound(m), v ? q8_load_bound(v) : 0};
    const float m_old = q8_stored(old.m, q8_scale_m(old.m), m_most), v_old = q8_stored(old.v, q8_scale_v(old.v), v_most);
    q8_bounds now = {q8_bound_m(k, m_old, g), v ? q8_bound_v(k, v_old, g) : 0};
    const bool none = !q8_has_outliers(m) && !(v && q8_has_outliers(v)) &&
                      q8_shows_none(m + Q8_HEADER, count, 0x7f, m_most, k->beta1 * m_old, now.m, Q8_FAR_M) &&
                      (!v || q8_shows_none(v + Q8_HEADER, count, 0xff, v_most, k->beta2 * v_old, now.v, Q8_FAR_V));
    others->count = 0;
    if (!none)
        q8_find_others(k, s, states, count, g, types, &now, others);
    q8_store_bound(m, now.m);
    if (v)
        q8_store_bound(v, now.v);
    return q8_consts(k, old, now, v);
}

ZOFF_KERNEL_INLINE zoff_adam_consts q8_begin(const zoff_adam_consts *k, const update_streams *s, const rule_states *states,
                                             size_t count, zoff_adam_rule rule, update_types types, q8_others *others)
{
    /* Copies, because the loop keeps in registers only values whose address no function has got. */
    const update_streams own_streams = *s;
    const rule_states own_states = *states;
    return q8_begin_block(k, &own_streams, &own_states, count, q8_largest(k, s, count, rule, types), types, others);
}

/* Write the new numbers of outliers, after the step of their block. */
static __attribute__((noinline)) void q8_write_others(const update_streams *s, const rule_states *states, update_types types,
                                                      const q8_others *others)
{
    for (const q8_other *other = others->list; other < others->list + others->count; other++) {
        ((uint8_t *)states->m)[Q8_HEADER + other->at] = other->m;
        if (states->v_form == STATE_V8)
            ((uint8_t *)states->v)[Q8_HEADER + other->at] = other->v;
        store_weights(s, other->at, v_set1(other->p), 1, types, false);
        if (types.copy != ZOFF_DTYPE_DEFAULT)
            store_any(s->copy, other->at, v_set1(other->p), 1, types.copy);
    }
}

/* End a block, with copies as in q8_begin(). */
ZOFF_KERNEL_INLINE void q8_end(const update_streams *s, const rule_states *states, update_types types, const q8_others *others)
{
    const update_streams own_streams = *s;
    const rule_states own_states = *states;
    if (others->count)
        q8_write_others(&own_streams, &own_states, types, others);
}

#endif
