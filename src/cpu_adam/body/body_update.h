/* body_update.h: the step for every combination of rule and types: one function for each rule, and in it one loop for each pair
 * of types. */
#ifndef ZOFF_BODY_UPDATE_H
#define ZOFF_BODY_UPDATE_H

ZOFF_KERNEL_INLINE void update_by_weights(const zoff_adam_piece *piece, size_t begin, size_t count, zoff_adam_rule rule,
                                          zoff_dtype grads, zoff_moments moments)
{
    const bool has_codes = moments == ZOFF_MOMENTS_M8V16 || moments == ZOFF_MOMENTS_Q8; /* not without a master */
    if (piece->split)
        update_span(piece, begin, count, rule, (update_types){grads, ZOFF_BF16, ZOFF_DTYPE_DEFAULT, moments, true});
    else if (!has_codes && piece->master_dtype == ZOFF_BF16)
        update_span(piece, begin, count, rule, (update_types){grads, ZOFF_BF16, ZOFF_DTYPE_DEFAULT, moments, false});
    else if (!has_codes && piece->master_dtype == ZOFF_F16)
        update_span(piece, begin, count, rule, (update_types){grads, ZOFF_F16, ZOFF_DTYPE_DEFAULT, moments, false});
    else if (!piece->copy_out)
        update_span(piece, begin, count, rule, (update_types){grads, ZOFF_F32, ZOFF_DTYPE_DEFAULT, moments, false});
    else if (piece->copy_dtype == ZOFF_F16)
        update_span(piece, begin, count, rule, (update_types){grads, ZOFF_F32, ZOFF_F16, moments, false});
    else
        update_span(piece, begin, count, rule, (update_types){grads, ZOFF_F32, ZOFF_BF16, moments, false});
}

ZOFF_KERNEL_INLINE void update_by_grads(const zoff_adam_piece *piece, size_t begin, size_t count, zoff_adam_rule rule,
                                        zoff_moments moments)
{
    if (piece->grad_dtype == ZOFF_BF16)
        update_by_weights(piece, begin, count, rule, ZOFF_BF16, moments);
    else if (piece->grad_dtype == ZOFF_F16)
        update_by_weights(piece, begin, count, rule, ZOFF_F16, moments);
    else
        update_by_weights(piece, begin, count, rule, ZOFF_F32, moments);
}

/* Separate functions: compilers take very long for large ones. */
#define U(rule, suffix)                                                                                                        \
    static __attribute__((noinline)) void update_##rule##_##suffix(const zoff_adam_piece *piece, size_t begin, size_t count)   \
    {                                                                                                                          \
        update_by_grads(piece, begin, count, ZOFF_RULE_##rule, ZOFF_MOMENTS_##suffix);                                         \
    }
#define R(rule) U(rule, F32) U(rule, BF16)
UPDATE_RULES(R)
#undef R
#define R(rule) U(rule, M8V16) U(rule, Q8)
UPDATE_RULES_Q8(R)
#undef R
#undef U

/* Whether a piece has the types for which avx2 and avx512 have loops over pairs. */
static inline bool update_has_pairs(const zoff_adam_piece *piece)
{
    return piece->split && piece->moments != ZOFF_MOMENTS_F32 && piece->grad_dtype == ZOFF_BF16;
}

static void kernel_update(const zoff_adam_piece *piece, size_t begin, size_t count)
{
    typedef void update_fn(const zoff_adam_piece *, size_t, size_t);
    static update_fn *const BY_RULE[ZOFF_RULE_COUNT][2] = {
#define R(rule) [ZOFF_RULE_##rule] = {update_##rule##_F32, update_##rule##_BF16},
        UPDATE_RULES(R)
#undef R
    };
    static update_fn *const WITH_CODES[][2] = {
#define R(rule) [ZOFF_RULE_##rule] = {update_##rule##_M8V16, update_##rule##_Q8},
        UPDATE_RULES_Q8(R)
#undef R
    };
    const zoff_adam_rule rule = piece->consts->rule;
    if (piece->moments >= ZOFF_MOMENTS_M8V16)
        WITH_CODES[rule][piece->moments - ZOFF_MOMENTS_M8V16](piece, begin, count);
    else
        BY_RULE[rule][piece->moments](piece, begin, count);
}

#endif
