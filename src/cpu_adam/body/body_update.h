/* body_update.h: the step for every combination of rule and types: one function for each rule, and in it one loop for each pair
 * of types. */
#ifndef ZOFF_BODY_UPDATE_H
#define ZOFF_BODY_UPDATE_H

ZOFF_KERNEL_INLINE void update_by_weights(const zoff_adam_piece *piece, size_t begin, size_t count, zoff_adam_rule rule,
                                          zoff_dtype grads, zoff_dtype states)
{
    if (piece->split)
        update_span(piece, begin, count, rule, (update_types){grads, ZOFF_BF16, ZOFF_DTYPE_DEFAULT, states, true});
    else if (piece->master_dtype == ZOFF_BF16)
        update_span(piece, begin, count, rule, (update_types){grads, ZOFF_BF16, ZOFF_DTYPE_DEFAULT, states, false});
    else if (piece->master_dtype == ZOFF_F16)
        update_span(piece, begin, count, rule, (update_types){grads, ZOFF_F16, ZOFF_DTYPE_DEFAULT, states, false});
    else if (!piece->copy_out)
        update_span(piece, begin, count, rule, (update_types){grads, ZOFF_F32, ZOFF_DTYPE_DEFAULT, states, false});
    else if (piece->copy_dtype == ZOFF_F16)
        update_span(piece, begin, count, rule, (update_types){grads, ZOFF_F32, ZOFF_F16, states, false});
    else
        update_span(piece, begin, count, rule, (update_types){grads, ZOFF_F32, ZOFF_BF16, states, false});
}

ZOFF_KERNEL_INLINE void update_by_grads(const zoff_adam_piece *piece, size_t begin, size_t count, zoff_adam_rule rule,
                                        zoff_dtype states)
{
    if (piece->grad_dtype == ZOFF_BF16)
        update_by_weights(piece, begin, count, rule, ZOFF_BF16, states);
    else if (piece->grad_dtype == ZOFF_F16)
        update_by_weights(piece, begin, count, rule, ZOFF_F16, states);
    else
        update_by_weights(piece, begin, count, rule, ZOFF_F32, states);
}

/* Separate functions: compilers take very long for large ones. */
#define R(rule)                                                                                                                \
    static __attribute__((noinline)) void update_##rule(const zoff_adam_piece *piece, size_t begin, size_t count)              \
    {                                                                                                                          \
        update_by_grads(piece, begin, count, ZOFF_RULE_##rule, ZOFF_F32);                                                      \
    }                                                                                                                          \
    static __attribute__((noinline)) void update_bf16_##rule(const zoff_adam_piece *piece, size_t begin, size_t count)         \
    {                                                                                                                          \
        update_by_grads(piece, begin, count, ZOFF_RULE_##rule, ZOFF_BF16);                                                     \
    }
UPDATE_RULES(R)
#undef R

static void kernel_update(const zoff_adam_piece *piece, size_t begin, size_t count)
{
    typedef void update_fn(const zoff_adam_piece *, size_t, size_t);
    static update_fn *const BY_RULE[ZOFF_RULE_COUNT][2] = {
#define R(rule) [ZOFF_RULE_##rule] = {update_##rule, update_bf16_##rule},
        UPDATE_RULES(R)
#undef R
    };
    BY_RULE[piece->consts->rule][piece->moments](piece, begin, count);
}

#endif
