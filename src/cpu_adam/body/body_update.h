/* SPDX-License-Identifier: Apache-2.0 */
/* body_update.h: the step for every combination of rule and types.
 *
 * Each rule with states (see rule_of_loop()) has, for each format of moments, a plain loop over fp32 gradients and weights.
 * Adam and AdamW also have loops for the types in which most models are trained, and each rule but Muon's one for split masters
 * and bf16 gradients. All other types pass through a block in the first cache: gradients and weights become fp32 there, the
 * plain loop updates them, and the weights go back. The bits are the same, because fp32 holds every number of the other types.
 * A loop for each combination would be some 500, which take minutes to compile. SGD without momentum has them all: they are
 * short, and a pass through a block would take longer than the step. */
#ifndef ZOFF_BODY_UPDATE_H
#define ZOFF_BODY_UPDATE_H

typedef void update_fn(const zoff_adam_piece *piece, size_t begin, size_t count);

#define UPDATE_LOOP(name, rule, suffix) ZOFF_KERNEL_LOOP(update_##name##_##rule##_##suffix)

/* Separate functions: compilers take very long for large ones. The last arguments are fields of update_types. */
#define LOOP(name, rule, suffix, ...)                                                                                          \
    static __attribute__((noinline)) void UPDATE_LOOP(name, rule, suffix)(const zoff_adam_piece *piece, size_t begin,          \
                                                                          size_t count)                                        \
    {                                                                                                                          \
        update_span(piece, begin, count, ZOFF_RULE_##rule, (update_types){__VA_ARGS__, .moments = ZOFF_MOMENTS_##suffix});     \
    }
#define PLAIN(rule, suffix) LOOP(plain, rule, suffix, ZOFF_F32, ZOFF_F32)
#define COPIES(rule, suffix)                                                                                                   \
    LOOP(copy_bf16, rule, suffix, ZOFF_BF16, ZOFF_F32, ZOFF_BF16) LOOP(copy_f16, rule, suffix, ZOFF_F16, ZOFF_F32, ZOFF_F16)
#define IN_PLACE(rule, suffix) LOOP(in_place, rule, suffix, ZOFF_BF16, ZOFF_BF16)
#define SPLIT(rule, suffix) LOOP(split, rule, suffix, ZOFF_BF16, ZOFF_BF16, .split = true)
#ifdef ZOFF_KERNEL_PAIRS /* the function with the loops for split masters and moments that are not fp32 */
#define SPLIT_SMALL(rule, suffix)
#define SPLIT_SMALL_OF(rule, suffix) ZOFF_KERNEL_PAIRS
#else
#define SPLIT_SMALL SPLIT
#define SPLIT_SMALL_OF(rule, suffix) UPDATE_LOOP(split, rule, suffix)
#endif

#define R(rule) PLAIN(rule, F32) PLAIN(rule, BF16) SPLIT(rule, F32) SPLIT_SMALL(rule, BF16)
UPDATE_RULES(R)
#undef R
#define R(rule) PLAIN(rule, F32) PLAIN(rule, BF16)
UPDATE_RULES_WIDE(R)
#undef R
#define R(rule) PLAIN(rule, M8V16) PLAIN(rule, Q8)
UPDATE_RULES_Q8(R)
#undef R
#define R(rule)                                                                                                                \
    COPIES(rule, F32)                                                                                                          \
    COPIES(rule, BF16)                                                                                                         \
    COPIES(rule, M8V16)                                                                                                        \
    COPIES(rule, Q8) IN_PLACE(rule, F32) IN_PLACE(rule, BF16) SPLIT_SMALL(rule, M8V16) SPLIT_SMALL(rule, Q8)
UPDATE_RULES_FUSED(R)
#undef R

/* The loops of a rule, by the format of moments; NULL: the rule has no such loop. */
typedef struct update_loops {
    update_fn *plain[4], *split[4], *in_place[4], *copy_bf16[4], *copy_f16[4];
} update_loops;

static const update_loops UPDATE_LOOPS[ZOFF_RULE_COUNT] = {
#define BOTH(rule, name) UPDATE_LOOP(name, rule, F32), UPDATE_LOOP(name, rule, BF16)
#define ALL(rule, name) BOTH(rule, name), UPDATE_LOOP(name, rule, M8V16), UPDATE_LOOP(name, rule, Q8)
#define SPLITS(rule) UPDATE_LOOP(split, rule, F32), SPLIT_SMALL_OF(rule, BF16)
#define FUSED(rule)                                                                                                            \
    [ZOFF_RULE_##rule] = {.plain = {ALL(rule, plain)},                                                                         \
                          .split = {SPLITS(rule), SPLIT_SMALL_OF(rule, M8V16), SPLIT_SMALL_OF(rule, Q8)},                      \
                          .in_place = {BOTH(rule, in_place)},                                                                  \
                          .copy_bf16 = {ALL(rule, copy_bf16)},                                                                 \
                          .copy_f16 = {ALL(rule, copy_f16)}},
#define OTHER(rule) [ZOFF_RULE_##rule] = {.plain = {BOTH(rule, plain)}, .split = {SPLITS(rule)}},
#define WIDE(rule) [ZOFF_RULE_##rule] = {.plain = {BOTH(rule, plain)}},
    UPDATE_RULES_FUSED(FUSED)[ZOFF_RULE_ADAM_L2] = {.plain = {ALL(ADAM_L2, plain)}, .split = {SPLITS(ADAM_L2)}},
    UPDATE_RULES_OTHER(OTHER) UPDATE_RULES_WIDE(WIDE)
#undef WIDE
#undef BOTH
#undef ALL
#undef SPLITS
#undef FUSED
#undef OTHER
};

/* The loops for the rule of a piece. */
static const update_loops *update_loops_of(const zoff_adam_piece *piece)
{
    return &UPDATE_LOOPS[rule_of_loop(piece->consts->rule)];
}

/* A step without states, on weights and gradients of any type. */
ZOFF_KERNEL_INLINE void update_stateless(const zoff_adam_piece *piece, size_t begin, size_t count, zoff_dtype grads)
{
    if (piece->split)
        update_span(piece, begin, count, ZOFF_RULE_SGD, (update_types){grads, ZOFF_BF16, .split = true});
    else if (piece->master_dtype == ZOFF_BF16)
        update_span(piece, begin, count, ZOFF_RULE_SGD, (update_types){grads, ZOFF_BF16, .split = false});
    else if (piece->master_dtype == ZOFF_F16)
        update_span(piece, begin, count, ZOFF_RULE_SGD, (update_types){grads, ZOFF_F16, .split = false});
    else if (!piece->copy_out)
        update_span(piece, begin, count, ZOFF_RULE_SGD, (update_types){grads, ZOFF_F32, .split = false});
    else if (piece->copy_dtype == ZOFF_F16)
        update_span(piece, begin, count, ZOFF_RULE_SGD, (update_types){grads, ZOFF_F32, .copy = ZOFF_F16});
    else
        update_span(piece, begin, count, ZOFF_RULE_SGD, (update_types){grads, ZOFF_F32, .copy = ZOFF_BF16});
}

static __attribute__((noinline)) void update_any_SGD(const zoff_adam_piece *piece, size_t begin, size_t count)
{
    if (piece->grad_dtype == ZOFF_BF16)
        update_stateless(piece, begin, count, ZOFF_BF16);
    else if (piece->grad_dtype == ZOFF_F16)
        update_stateless(piece, begin, count, ZOFF_F16);
    else
        update_stateless(piece, begin, count, ZOFF_F32);
}

/* Whether the weights are whole fp32 numbers. A type that is neither bf16 nor fp16 is fp32. */
static inline bool update_is_whole(const zoff_adam_piece *piece)
{
    return !piece->split && width_of(piece->master_dtype) == sizeof(float);
}

/* The loop for the types of a piece; NULL: there is none. */
static update_fn *update_loop(const zoff_adam_piece *piece)
{
    const update_loops *loops = update_loops_of(piece);
    const bool is_f16 = piece->grad_dtype == ZOFF_F16, is_bf16 = piece->grad_dtype == ZOFF_BF16;
    if (!loops->plain[0])
        return update_any_SGD;
    if (!is_f16 && !is_bf16)
        return update_is_whole(piece) && !piece->copy_out ? loops->plain[piece->moments] : NULL;
    if (update_is_whole(piece) && piece->copy_out && (piece->copy_dtype == ZOFF_F16) == is_f16)
        return (is_f16 ? loops->copy_f16 : loops->copy_bf16)[piece->moments];
    if (update_is_whole(piece) || is_f16 || (!piece->split && piece->master_dtype == ZOFF_F16))
        return NULL;
    return (piece->split ? loops->split : loops->in_place)[piece->moments];
}

/* Cast elements. `low`: lower halves, or NULL. */
ZOFF_KERNEL_INLINE void update_cast(void *dst, zoff_dtype to, const void *src, zoff_dtype from, uint16_t *low, bool stream,
                                    size_t begin, size_t count)
{
    const zoff_cast_piece cast = {.dst = dst, .src = src, .dst_dtype = to, .src_dtype = from, .low = low, .stream = stream};
    cast_any(&cast, begin, count);
}

/* Update elements of one block by a plain loop. At a distance of 4 KiB, a load would wait for a store to the other array. */
static void update_widened(const zoff_adam_piece *piece, size_t begin, size_t count)
{
    _Alignas(64) float g[ZOFF_NORM_BLOCK + 128], p[ZOFF_NORM_BLOCK];
    const zoff_dtype weights = piece->split ? ZOFF_BF16 : piece->master_dtype;
    uint16_t *low = piece->split ? piece->low : NULL;
    zoff_adam_piece step = *piece;
    if (width_of(piece->grad_dtype) != sizeof(float)) {
        update_cast(g, ZOFF_F32, piece->grad, piece->grad_dtype, NULL, false, begin, count);
        step.grad = g;
    }
    if (!update_is_whole(piece)) {
        update_cast(p, ZOFF_F32, piece->master, weights, low, false, begin, count);
        step.master = p;
    }
    update_loops_of(piece)->plain[piece->moments](&step, begin, count);
    if (!update_is_whole(piece))
        update_cast(piece->master, weights, p, ZOFF_F32, low, false, begin, count);
    else if (piece->copy_out)
        update_cast(piece->copy_out, piece->copy_dtype, piece->master, ZOFF_F32, NULL, piece->stream, begin, count);
}

static void kernel_update(const zoff_adam_piece *piece, size_t begin, size_t count)
{
    update_fn *loop = update_loop(piece);
    if (loop) {
        loop(piece, begin, count);
        return;
    }
    for (size_t done = 0, now; done < count; done += now) {
        const size_t into = (begin + done) % ZOFF_NORM_BLOCK, left = ZOFF_NORM_BLOCK - into;
        now = left < count - done ? left : count - done;
        const zoff_adam_piece block = update_from(piece, begin + done - into);
        update_widened(&block, into, now);
    }
    if (piece->stream)
        v_stream_end();
}

#undef UPDATE_LOOP
#undef LOOP
#undef PLAIN
#undef COPIES
#undef IN_PLACE
#undef SPLIT
#undef SPLIT_SMALL
#undef SPLIT_SMALL_OF

#endif
