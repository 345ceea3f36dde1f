/* body_update.h: a step over a span of elements: load, apply the rule, store, for every combination of rule and types.
 *
 * Rule and types are constants in each loop: one function for each rule, and in it one loop for each pair of types. */
#ifndef ZOFF_BODY_UPDATE_H
#define ZOFF_BODY_UPDATE_H

/* Elements before the first address that is aligned for a streaming store. */
ZOFF_KERNEL_INLINE size_t update_head(const char *copy, size_t count)
{
    const size_t past = (size_t)copy % (v_stream_bytes() ? v_stream_bytes() : 1);
    const size_t head = past ? (v_stream_bytes() - past) / sizeof(uint16_t) : 0;
    return head < count ? head : count;
}

ZOFF_KERNEL_INLINE void update_span(const zoff_adam_piece *piece, size_t begin, size_t count, zoff_adam_rule rule,
                                    zoff_dtype grads, zoff_dtype weights, zoff_dtype copy)
{
    const zoff_adam_consts k = *piece->consts; /* a copy that no store can alias: its fields stay in registers */
    const update_streams s = {
        .p = (char *)piece->master + begin * (weights == ZOFF_F32 ? sizeof(float) : sizeof(uint16_t)),
        .m = piece->m ? piece->m + begin : 0,
        .v = piece->v ? piece->v + begin : 0,
        .g = (const char *)piece->grad + begin * (grads == ZOFF_F32 ? sizeof(float) : sizeof(uint16_t)),
        .copy = copy != ZOFF_DTYPE_DEFAULT ? (char *)piece->copy_out + begin * sizeof(uint16_t) : 0,
    };
    size_t i = 0;
    if (copy != ZOFF_DTYPE_DEFAULT && piece->stream && v_stream_bytes()) {
        i = update_head(s.copy, count);
        if (i)
            update_lanes(&k, &s, 0, i, false, rule, grads, weights, copy);
        for (; i + v_lanes() <= count; i += v_lanes())
            update_lanes(&k, &s, i, v_lanes(), true, rule, grads, weights, copy);
        v_stream_end();
    } else {
        for (; i + v_lanes() <= count; i += v_lanes())
            update_lanes(&k, &s, i, v_lanes(), false, rule, grads, weights, copy);
    }
    if (i < count)
        update_lanes(&k, &s, i, count - i, false, rule, grads, weights, copy);
}

ZOFF_KERNEL_INLINE void update_by_weights(const zoff_adam_piece *piece, size_t begin, size_t count, zoff_adam_rule rule,
                                          zoff_dtype grads)
{
    if (piece->master_dtype == ZOFF_BF16)
        update_span(piece, begin, count, rule, grads, ZOFF_BF16, ZOFF_DTYPE_DEFAULT);
    else if (piece->master_dtype == ZOFF_F16)
        update_span(piece, begin, count, rule, grads, ZOFF_F16, ZOFF_DTYPE_DEFAULT);
    else if (!piece->copy_out)
        update_span(piece, begin, count, rule, grads, ZOFF_F32, ZOFF_DTYPE_DEFAULT);
    else if (piece->copy_dtype == ZOFF_F16)
        update_span(piece, begin, count, rule, grads, ZOFF_F32, ZOFF_F16);
    else
        update_span(piece, begin, count, rule, grads, ZOFF_F32, ZOFF_BF16);
}

ZOFF_KERNEL_INLINE void update_by_grads(const zoff_adam_piece *piece, size_t begin, size_t count, zoff_adam_rule rule)
{
    if (piece->grad_dtype == ZOFF_BF16)
        update_by_weights(piece, begin, count, rule, ZOFF_BF16);
    else if (piece->grad_dtype == ZOFF_F16)
        update_by_weights(piece, begin, count, rule, ZOFF_F16);
    else
        update_by_weights(piece, begin, count, rule, ZOFF_F32);
}

/* clang-format off */
#define UPDATE_RULES(R) R(ADAM) R(ADAM_DECOUPLED) R(ADAM_L2) R(ADAGRAD) R(ADAGRAD_L2) R(LION) R(LION_DECOUPLED) R(SGD) R(SGD_L2) \
    R(MOMENTUM) R(MOMENTUM_L2) R(NESTEROV) R(NESTEROV_L2)
/* clang-format on */

/* Separate functions: compilers take very long for large ones. */
#define R(rule)                                                                                                                \
    static __attribute__((noinline)) void update_##rule(const zoff_adam_piece *piece, size_t begin, size_t count)              \
    {                                                                                                                          \
        update_by_grads(piece, begin, count, ZOFF_RULE_##rule);                                                                \
    }
UPDATE_RULES(R)
#undef R

static void kernel_update(const zoff_adam_piece *piece, size_t begin, size_t count)
{
    static void (*const BY_RULE[ZOFF_RULE_COUNT])(const zoff_adam_piece *, size_t, size_t) = {
#define R(rule) [ZOFF_RULE_##rule] = update_##rule,
        UPDATE_RULES(R)
#undef R
    };
    BY_RULE[piece->consts->rule](piece, begin, count);
}

#endif
