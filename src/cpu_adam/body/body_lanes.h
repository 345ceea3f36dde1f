/* SPDX-License-Identifier: Apache-2.0 */
/* body_lanes.h: the formulas on one register of elements. Their callers are the loops of body_update.h and body_accumulate.h,
 * and the threads of a GPU (cuda/kernels.cu). So this file is valid C and C++. */
#ifndef ZOFF_BODY_LANES_H
#define ZOFF_BODY_LANES_H

/* ---- a step ---- */

/* The arrays of a piece from some element on. */
typedef struct update_streams {
    char *p;
    const char *g;
    char *copy;    /* copy of the weights; NULL: there is none */
    uint16_t *low; /* lower halves of split weights, whose upper ones are at p */
} update_streams;

/* The types of these arrays; constants of the caller. */
typedef struct update_types {
    zoff_dtype grads, weights, copy;
    zoff_moments moments;
    bool split;
} update_types;

ZOFF_KERNEL_INLINE v_f load_weights(const update_streams *s, size_t i, size_t left, update_types types)
{
    return types.split ? v_load_split((const uint16_t *)(const void *)s->p + i, s->low + i, left)
                       : load_any(s->p, i, left, types.weights);
}

/* Store weights. `ordered`: no number is NaN. */
ZOFF_KERNEL_INLINE void store_weights(const update_streams *s, size_t i, v_f p, size_t left, update_types types, bool ordered)
{
    if (types.split)
        v_store_split((uint16_t *)(void *)s->p + i, s->low + i, p, left, ordered);
    else
        store_any(s->p, i, p, left, types.weights);
}

ZOFF_KERNEL_INLINE void store_result(const update_streams *s, const rule_states *states, size_t i, v_f p, v_f m, v_f v,
                                     size_t left, zoff_adam_rule rule, update_types types, bool ordered)
{
    if (rule_has_m(rule))
        store_state(states->m, i, m, states->m_lanes, states->m_key, left, states->m_form, ordered);
    if (rule_has_v(rule))
        store_state(states->v, i, v, states->v_lanes, states->v_key, left, states->v_form, ordered);
    store_weights(s, i, p, left, types, ordered);
}

/* Update one register of elements. `rule`: see rule_apply(). All arguments but the arrays and `i` are constants of the caller;
 * `left` is constant in the loop. */
ZOFF_KERNEL_INLINE void update_lanes(const zoff_adam_consts *k, const update_streams *s, const rule_states *states, size_t i,
                                     size_t left, bool stream, zoff_adam_rule rule, update_types types)
{
    const v_f g = v_mul(load_any(s->g, i, left, types.grads), v_set1(k->grad_scale));
    v_f m = g, v = g;
    const v_f p = rule_apply(k, rule, load_weights(s, i, left, types), g, states, i, left, &m, &v);
    /* Rounding to 16 bits replaces NaN. One test for all is cheaper, because v is NaN only where the weight is. */
    const bool has_16_bits = types.moments == ZOFF_MOMENTS_BF16 || types.moments == ZOFF_MOMENTS_M8V16;
    if ((types.split || has_16_bits) && !v_any_nan(p, rule_has_m(rule) ? m : p))
        store_result(s, states, i, p, m, v, left, rule, types, true);
    else
        store_result(s, states, i, p, m, v, left, rule, types, false);
    if (types.copy != ZOFF_DTYPE_DEFAULT && stream)
        stream_any(s->copy, i, p, types.copy);
    else if (types.copy != ZOFF_DTYPE_DEFAULT)
        store_any(s->copy, i, p, left, types.copy);
}

/* ---- moments in 8 bits: see body_q8.h ---- */

/* The larger of each lane and |g| of one register. |g| has the decay of ADAM_L2; without decay it is not yet multiplied by
 * grad_scale. */
ZOFF_KERNEL_INLINE v_f q8_largest_lanes(const zoff_adam_consts *k, const update_streams *s, v_f largest, size_t i, size_t left,
                                        zoff_adam_rule rule, update_types types)
{
    v_f g = load_any(s->g, i, left, types.grads);
    if (rule_decays_grads(rule))
        g = v_fma(v_set1(k->decay), load_weights(s, i, left, types), v_mul(g, v_set1(k->grad_scale)));
    return v_max_abs(largest, g);
}

/* ---- gradients of several micro-batches summed in fp32, each multiplied by its weight in the same operation ---- */

ZOFF_KERNEL_INLINE v_f accumulate_one(v_f sum, v_f g, const float *weight, bool first)
{
    if (!weight)
        return first ? g : v_add(sum, g);
    if (*weight == 0) /* a gradient of weight 0 is not read at all, because 0 * NaN is NaN */
        return first ? v_set1(0) : sum;
    return first ? v_mul(v_set1(*weight), g) : v_fma(v_set1(*weight), g, sum);
}

ZOFF_KERNEL_INLINE void accumulate_lanes(const zoff_accumulate_piece *piece, size_t i, size_t left, zoff_dtype grads,
                                         bool first, bool weighted)
{
    const char *grad = (const char *)piece->grad; /* a cast, because this must compile as C++, too */
    v_f sum = first ? v_set1(0) : v_load(piece->sum + i, left);
    sum = accumulate_one(sum, load_any(grad, i, left, grads), weighted ? piece->weights : NULL, first);
    for (size_t source = 1; source < piece->sources; source++) {
        const v_f g = load_any(grad + source * piece->stride, i, left, grads);
        sum = accumulate_one(sum, g, weighted ? piece->weights + source : NULL, false);
    }
    v_store(piece->sum + i, sum, left);
}

#endif
