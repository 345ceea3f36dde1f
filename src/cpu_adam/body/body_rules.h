/* SPDX-License-Identifier: Apache-2.0 */
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
    return rule == ZOFF_RULE_ADAM_DECOUPLED || rule == ZOFF_RULE_LION_DECOUPLED || rule == ZOFF_RULE_ADD_DECOUPLED;
}

/* The rule whose loop computes the steps of `rule`. Adam has loops for each decay, because models are trained with it. The
 * loops of the other rules look for decay in the constants of their step, because twice as many would take longer to
 * compile. */
ZOFF_KERNEL_INLINE zoff_adam_rule rule_of_loop(zoff_adam_rule rule)
{
    switch (rule) {
    case ZOFF_RULE_ADAGRAD_L2:
        return ZOFF_RULE_ADAGRAD;
    case ZOFF_RULE_LION_DECOUPLED:
        return ZOFF_RULE_LION;
    case ZOFF_RULE_SGD_L2:
    case ZOFF_RULE_ADD:
    case ZOFF_RULE_ADD_DECOUPLED:
        return ZOFF_RULE_SGD;
    case ZOFF_RULE_MOMENTUM_L2:
        return ZOFF_RULE_MOMENTUM;
    case ZOFF_RULE_NESTEROV_L2:
        return ZOFF_RULE_NESTEROV;
    case ZOFF_RULE_MUON_NESTEROV:
        return ZOFF_RULE_MUON_MOMENTUM;
    default:
        return rule;
    }
}

ZOFF_KERNEL_INLINE bool rule_is_adam(zoff_adam_rule rule)
{
    return rule == ZOFF_RULE_ADAM || rule == ZOFF_RULE_ADAM_DECOUPLED || rule == ZOFF_RULE_ADAM_L2;
}

/* The states of a piece from some element on, with the random bits by which they are rounded. The forms are constants of the
 * caller. */
typedef struct rule_states {
    void *m, *v; /* states; NULL: the rule has no such state */
    state_form m_form, v_form;
    const uint16_t *m_lanes, *v_lanes; /* random bits of the register's lanes */
    uint16_t m_key, v_key;             /* random bits of the block */
} rule_states;

ZOFF_KERNEL_INLINE v_f rule_load_m(const rule_states *s, size_t i, size_t left)
{
    return load_state(s->m, i, left, s->m_form);
}

ZOFF_KERNEL_INLINE v_f rule_load_v(const rule_states *s, size_t i, size_t left)
{
    return load_state(s->v, i, left, s->v_form);
}

ZOFF_KERNEL_INLINE v_f rule_keep_m(const rule_states *s, size_t i, size_t left, float keep)
{
    return load_kept(s->m, i, left, s->m_form, keep);
}

ZOFF_KERNEL_INLINE v_f rule_keep_v(const rule_states *s, size_t i, size_t left, float keep)
{
    return load_kept(s->v, i, left, s->v_form, keep);
}

ZOFF_KERNEL_INLINE bool rule_has_m(zoff_adam_rule rule)
{
    return rule != ZOFF_RULE_ADAGRAD && rule != ZOFF_RULE_SGD;
}

ZOFF_KERNEL_INLINE bool rule_has_v(zoff_adam_rule rule)
{
    return rule_is_adam(rule) || rule == ZOFF_RULE_ADAGRAD;
}

/* rest * g + keep * m */
ZOFF_KERNEL_INLINE v_f rule_blend(float keep, v_f m, float rest, v_f g)
{
    return v_fma(v_set1(rest), g, v_mul(v_set1(keep), m));
}

/* These write the new states to `m_out` and `v_out`, and return the direction of the step. (A vector of SVE cannot be in a
 * struct.) */
ZOFF_KERNEL_INLINE v_f rule_adam(const zoff_adam_consts *k, v_f g, const rule_states *s, size_t i, size_t left, v_f *m_out,
                                 v_f *v_out)
{
    const v_f m = v_fma(v_set1(k->one_minus_beta1), g, rule_keep_m(s, i, left, k->beta1));
    const v_f v = v_fma(v_mul(v_set1(k->one_minus_beta2), g), g, rule_keep_v(s, i, left, k->beta2));
    *m_out = m;
    *v_out = v;
    return v_div(m, v_fma(v_sqrt(v), v_set1(k->inv_sqrt_bias2), v_set1(k->eps)));
}

ZOFF_KERNEL_INLINE v_f rule_adagrad(const zoff_adam_consts *k, v_f g, const rule_states *s, size_t i, size_t left, v_f *v_out)
{
    const v_f v = v_fma(g, g, rule_load_v(s, i, left));
    *v_out = v;
    return v_div(g, v_add(v_sqrt(v), v_set1(k->eps)));
}

ZOFF_KERNEL_INLINE v_f rule_lion(const zoff_adam_consts *k, v_f g, const rule_states *s, size_t i, size_t left, v_f *m_out)
{
    const v_f old = rule_load_m(s, i, left);
    *m_out = rule_blend(k->beta2, old, k->one_minus_beta2, g);
    return v_sign(rule_blend(k->beta1, old, k->one_minus_beta1, g));
}

ZOFF_KERNEL_INLINE v_f rule_momentum(const zoff_adam_consts *k, v_f g, const rule_states *s, size_t i, size_t left,
                                     bool nesterov, v_f *m_out)
{
    const v_f m = rule_blend(k->beta1, rule_load_m(s, i, left), k->one_minus_beta1, g);
    *m_out = m;
    return nesterov ? v_fma(v_set1(k->momentum), m, g) : m;
}

/* The direction before orthogonalization. */
ZOFF_KERNEL_INLINE v_f rule_muon(const zoff_adam_consts *k, v_f g, const rule_states *s, size_t i, size_t left, bool nesterov,
                                 v_f *m_out)
{
    const v_f m = rule_blend(k->beta1, rule_load_m(s, i, left), k->one_minus_beta1, g);
    *m_out = m;
    return nesterov ? rule_blend(k->beta1, m, k->one_minus_beta1, g) : m;
}

/* Compute new weights and states from old weights `p` and scaled gradients `g`, the elements from `i` on. `rule`:
 * rule_of_loop() of that of `k`, a constant of the caller. A state that the rule does not have is not written. */
ZOFF_KERNEL_INLINE v_f rule_apply(const zoff_adam_consts *k, zoff_adam_rule rule, v_f p, v_f g, const rule_states *s, size_t i,
                                  size_t left, v_f *m_out, v_f *v_out)
{
    const zoff_adam_rule exact = rule_is_adam(rule) ? rule : k->rule;
    if (rule_decays_grads(exact))
        g = v_fma(v_set1(k->decay), p, g);

    v_f u = g; /* SGD without momentum: u is the gradient */
    if (rule_is_adam(rule))
        u = rule_adam(k, g, s, i, left, m_out, v_out);
    else if (rule == ZOFF_RULE_ADAGRAD)
        u = rule_adagrad(k, g, s, i, left, v_out);
    else if (rule == ZOFF_RULE_LION)
        u = rule_lion(k, g, s, i, left, m_out);
    else if (rule == ZOFF_RULE_MOMENTUM)
        u = rule_momentum(k, g, s, i, left, false, m_out);
    else if (rule == ZOFF_RULE_NESTEROV)
        u = rule_momentum(k, g, s, i, left, true, m_out);
    else if (rule == ZOFF_RULE_MUON_MOMENTUM)
        return rule_muon(k, g, s, i, left, exact == ZOFF_RULE_MUON_NESTEROV, m_out);

    /* Round the weight once, because with two roundings the first would be the same in every step. */
    if (rule_decays_weights(exact))
        return v_add(p, v_fma(v_set1(k->step_size), u, v_mul(v_set1(k->decay), p)));
    return v_fma(v_set1(k->step_size), u, p);
}

#endif
