/* body_q8.h: the pass over a block with 8-bit moments before its step. It finds the largest numbers of the block, and from them
 * the bounds and constants; see q8.h. Functions that do not depend on rule and types are not inlined, because there are many
 * loops. */
#ifndef ZOFF_BODY_Q8_H
#define ZOFF_BODY_Q8_H

/* The largest magnitude of numbers, as bits: numbers are ordered like these. Compilers make vectors of such loops. */
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
    /* Rounding is monotone: the largest product is that of the largest number. */
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

/* The constants of one block, whose bounds are replaced. `v` is NULL if it is not in 8 bits; `g`: the largest of the block. */
static __attribute__((noinline)) zoff_adam_consts q8_begin_block(const zoff_adam_consts *k, uint8_t *m, uint8_t *v,
                                                                 size_t count, float g)
{
    q8_bounds old = {q8_load_bound(m), 0}, now = {0, 0};
    now.m = q8_bound_m(k, old.m, q8_largest_code(m + Q8_HEADER, count, 0x7f), g);
    q8_store_bound(m, now.m);
    if (v) {
        old.v = q8_load_bound(v);
        now.v = q8_bound_v(k, old.v, q8_largest_code(v + Q8_HEADER, count, 0xff), g);
        q8_store_bound(v, now.v);
    }
    return q8_consts(k, old, now, v);
}

/* The same for a block with which `s` and `states` begin. */
ZOFF_KERNEL_INLINE zoff_adam_consts q8_begin(const zoff_adam_consts *k, const update_streams *s, const rule_states *states,
                                             size_t count, zoff_adam_rule rule, update_types types)
{
    uint8_t *v = states->v_form == STATE_V8 ? (uint8_t *)states->v : NULL;
    return q8_begin_block(k, (uint8_t *)states->m, v, count, q8_largest(k, s, count, rule, types));
}

#endif
