/* body_adam.h: the Adam step of <zoff/adam.h>, over whatever vocabulary was included before this file. */
#ifndef ZOFF_BODY_ADAM_H
#define ZOFF_BODY_ADAM_H

/* What becomes of weight decay; ADAM_KEEPS where it is 0. */
typedef enum adam_decay { ADAM_KEEPS, ADAM_DECAYS_WEIGHTS, ADAM_DECAYS_GRADS } adam_decay;

/* The arrays of a piece from some element on. */
typedef struct adam_streams {
    float *p, *m, *v;
    const float *g;
    const uint16_t *g16;
    uint16_t *copy16;
} adam_streams;

/* zoff_adam_consts in registers. */
typedef struct adam_vectors {
    v_f grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, inv_sqrt_bias2, step_size, decay;
} adam_vectors;

/* One register of elements. `grad16`, `decay` and `copies` are constants of the caller, and `left` is one in the loop. */
ZOFF_KERNEL_INLINE void adam_lanes(const adam_vectors *k, const adam_streams *s, size_t i, size_t left, bool grad16,
                                   adam_decay decay, bool copies)
{
    v_f p = v_load(s->p + i, left);
    v_f g = grad16 ? v_load_bf16(s->g16 + i, left) : v_load(s->g + i, left);

    g = v_mul(g, k->grad_scale);
    if (decay == ADAM_DECAYS_GRADS)
        g = v_fma(k->decay, p, g);

    v_f m = v_fma(k->one_minus_beta1, g, v_mul(k->beta1, v_load(s->m + i, left)));
    v_f v = v_fma(v_mul(k->one_minus_beta2, g), g, v_mul(k->beta2, v_load(s->v + i, left)));
    v_store(s->m + i, m, left);
    v_store(s->v + i, v, left);

    v_f u = v_div(m, v_fma(v_sqrt(v), k->inv_sqrt_bias2, k->eps));
    if (decay == ADAM_DECAYS_WEIGHTS)
        p = v_fma(k->decay, p, p);
    p = v_fma(k->step_size, u, p);
    v_store(s->p + i, p, left);
    if (copies)
        v_store_bf16(s->copy16 + i, p, left);
}

ZOFF_KERNEL_INLINE void adam_span(const zoff_adam_piece *piece, size_t begin, size_t count, bool grad16, adam_decay decay,
                                  bool copies)
{
    const zoff_adam_consts *c = piece->consts;
    const adam_vectors k = {
        .grad_scale = v_set1(c->grad_scale),
        .beta1 = v_set1(c->beta1),
        .one_minus_beta1 = v_set1(c->one_minus_beta1),
        .beta2 = v_set1(c->beta2),
        .one_minus_beta2 = v_set1(c->one_minus_beta2),
        .eps = v_set1(c->eps),
        .inv_sqrt_bias2 = v_set1(c->inv_sqrt_bias2),
        .step_size = v_set1(c->step_size),
        .decay = v_set1(c->decay),
    };
    const adam_streams s = {
        .p = piece->master + begin,
        .m = piece->m + begin,
        .v = piece->v + begin,
        .g = grad16 ? 0 : (const float *)piece->grad + begin,
        .g16 = grad16 ? (const uint16_t *)piece->grad + begin : 0,
        .copy16 = copies ? (uint16_t *)piece->copy_out + begin : 0,
    };
    size_t i = 0;
    for (; i + v_lanes() <= count; i += v_lanes())
        adam_lanes(&k, &s, i, v_lanes(), grad16, decay, copies);
    if (i < count)
        adam_lanes(&k, &s, i, count - i, grad16, decay, copies);
}

ZOFF_KERNEL_INLINE void adam_by_copy(const zoff_adam_piece *piece, size_t begin, size_t count, bool grad16, adam_decay decay)
{
    if (piece->copy_out)
        adam_span(piece, begin, count, grad16, decay, true);
    else
        adam_span(piece, begin, count, grad16, decay, false);
}

ZOFF_KERNEL_INLINE void adam_by_decay(const zoff_adam_piece *piece, size_t begin, size_t count, bool grad16)
{
    if (!piece->consts->decays)
        adam_by_copy(piece, begin, count, grad16, ADAM_KEEPS);
    else if (piece->consts->mode == ZOFF_DECAY_L2)
        adam_by_copy(piece, begin, count, grad16, ADAM_DECAYS_GRADS);
    else
        adam_by_copy(piece, begin, count, grad16, ADAM_DECAYS_WEIGHTS);
}

static void kernel_adam(const zoff_adam_piece *piece, size_t begin, size_t count)
{
    if (piece->grad_dtype == ZOFF_BF16)
        adam_by_decay(piece, begin, count, true);
    else
        adam_by_decay(piece, begin, count, false);
}

#endif
