/* body_rules.h: the formulas of <zoff/optimizer.h> on one register of elements, in the vocabulary included before. */
#ifndef ZOFF_BODY_RULES_H
#define ZOFF_BODY_RULES_H

ZOFF_KERNEL_INLINE bool rule_decays_grads(zoff_adam_rule rule)
{
    return rule == ZOFF_RULE_ADAM_L2 || rule == ZOFF_RULE_ADAGRAD_L2 || rule == ZOFF_RULE_SGD_L2 ||
           rule == ZOFF_RULE_MOMENTUM_L2 || rule == ZOFF_RULE_NESTEROV_L2;
}

ZOFF_KERNEL_INLINE bool rule_decays_weights(zoff_adam_rule rule)
{
    return rule == ZOFF_RULE_ADAM_DECOUPLED || rule == ZOFF_RULE_LION_DECOUPLED;
}

/* The states of a piece from some element on, with the random bits by which 16-bit ones are rounded. `dtype` is a constant of
 * the caller. */
typedef struct rule_states {
    void *m, *v; /* NULL where the rule has no such state */
    zoff_dtype dtype;
    const uint32_t *m_lanes, *v_lanes; /* of the register's elements */
    uint32_t m_key, v_key;             /* of the block */
} rule_states;

ZOFF_KERNEL_INLINE v_f rule_load(const void *state, const rule_states *s, size_t i, size_t left)
{
    return load_any(state, i, left, s->dtype);
}

ZOFF_KERNEL_INLINE void rule_store_m(const rule_states *s, size_t i, v_f x, size_t left)
{
    store_state(s->m, i, x, s->m_lanes, s->m_key, left, s->dtype);
}

ZOFF_KERNEL_INLINE void rule_store_v(const rule_states *s, size_t i, v_f x, size_t left)
{
    store_state(s->v, i, x, s->v_lanes, s->v_key, left, s->dtype);
}

/* rest * g + keep * m */
ZOFF_KERNEL_INLINE v_f rule_blend(float keep, v_f m, float rest, v_f g)
{
    return v_fma(v_set1(rest), g, v_mul(v_set1(keep), m));
}

ZOFF_KERNEL_INLINE v_f rule_adam(const zoff_adam_consts *k, v_f g, const rule_states *s, size_t i, size_t left)
{
    const v_f first = rule_blend(k->beta1, rule_load(s->m, s, i, left), k->one_minus_beta1, g);
    const v_f second = v_fma(v_mul(v_set1(k->one_minus_beta2), g), g, v_mul(v_set1(k->beta2), rule_load(s->v, s, i, left)));
    rule_store_m(s, i, first, left);
    rule_store_v(s, i, second, left);
    return v_div(first, v_fma(v_sqrt(second), v_set1(k->inv_sqrt_bias2), v_set1(k->eps)));
}

ZOFF_KERNEL_INLINE v_f rule_adagrad(const zoff_adam_consts *k, v_f g, const rule_states *s, size_t i, size_t left)
{
    const v_f sum = v_fma(g, g, rule_load(s->v, s, i, left));
    rule_store_v(s, i, sum, left);
    return v_div(g, v_add(v_sqrt(sum), v_set1(k->eps)));
}

ZOFF_KERNEL_INLINE v_f rule_lion(const zoff_adam_consts *k, v_f g, const rule_states *s, size_t i, size_t left)
{
    const v_f old = rule_load(s->m, s, i, left);
    rule_store_m(s, i, rule_blend(k->beta2, old, k->one_minus_beta2, g), left);
    return v_sign(rule_blend(k->beta1, old, k->one_minus_beta1, g));
}

ZOFF_KERNEL_INLINE v_f rule_momentum(const zoff_adam_consts *k, v_f g, const rule_states *s, size_t i, size_t left,
                                     bool nesterov)
{
    const v_f sum = rule_blend(k->beta1, rule_load(s->m, s, i, left), k->one_minus_beta1, g);
    rule_store_m(s, i, sum, left);
    return nesterov ? v_fma(v_set1(k->momentum), sum, g) : sum;
}

/* Compute new weights from old ones `p` and scaled gradients `g`, the elements from `i` on. `rule` is a constant of the caller.
 */
ZOFF_KERNEL_INLINE v_f rule_apply(const zoff_adam_consts *k, zoff_adam_rule rule, v_f p, v_f g, const rule_states *s, size_t i,
                                  size_t left)
{
    if (rule_decays_grads(rule))
        g = v_fma(v_set1(k->decay), p, g);

    v_f u = g; /* SGD without momentum */
    if (rule == ZOFF_RULE_ADAM || rule == ZOFF_RULE_ADAM_DECOUPLED || rule == ZOFF_RULE_ADAM_L2)
        u = rule_adam(k, g, s, i, left);
    else if (rule == ZOFF_RULE_ADAGRAD || rule == ZOFF_RULE_ADAGRAD_L2)
        u = rule_adagrad(k, g, s, i, left);
    else if (rule == ZOFF_RULE_LION || rule == ZOFF_RULE_LION_DECOUPLED)
        u = rule_lion(k, g, s, i, left);
    else if (rule == ZOFF_RULE_MOMENTUM || rule == ZOFF_RULE_MOMENTUM_L2)
        u = rule_momentum(k, g, s, i, left, false);
    else if (rule == ZOFF_RULE_NESTEROV || rule == ZOFF_RULE_NESTEROV_L2)
        u = rule_momentum(k, g, s, i, left, true);

    if (rule_decays_weights(rule)) /* round the weight once: with two roundings the first would be the same in every step */
        return v_add(p, v_fma(v_set1(k->step_size), u, v_mul(v_set1(k->decay), p)));
    return v_fma(v_set1(k->step_size), u, p);
}

#endif
