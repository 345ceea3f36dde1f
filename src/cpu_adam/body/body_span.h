/* SPDX-License-Identifier: Apache-2.0 */
/* body_span.h: a step over a span of elements: load, apply the rule, store. Rule and types are constants of the caller. */
#ifndef ZOFF_BODY_SPAN_H
#define ZOFF_BODY_SPAN_H

/* Byte of a state where element `first` is or, with 8 bits, where its block begins. */
ZOFF_KERNEL_INLINE size_t update_state_at(state_form form, size_t first)
{
    return form == STATE_F32 ? first * sizeof(float) : form == STATE_BF16 ? first * sizeof(uint16_t) : q8_block_at(first);
}

/* Prefetch the codes of the next block, which body_q8.h reads all at once before its step. Without this the time of that pass
 * adds to the time of the steps, because the prefetcher of some CPUs loses one of these two arrays at some distances between
 * them. Narrower registers would ask for each line many times. */
ZOFF_KERNEL_INLINE void update_ask_for_codes(const rule_states *states, size_t i)
{
    enum { NEXT = ZOFF_NORM_BLOCK + Q8_HEADER };
    if (v_lanes() >= 16 && states->m_form == STATE_M8)
        __builtin_prefetch((const void *)((uintptr_t)states->m + i + NEXT), 1);
    if (v_lanes() >= 16 && states->v_form == STATE_V8)
        __builtin_prefetch((const void *)((uintptr_t)states->v + i + NEXT), 1);
}

/* Update one register. `states` is a copy, because the lanes of a block change from register to register. */
ZOFF_KERNEL_INLINE void update_register(const zoff_adam_consts *k, const update_streams *s, rule_states states, size_t i,
                                        size_t left, bool stream, zoff_adam_rule rule, update_types types)
{
    if (types.moments != ZOFF_MOMENTS_F32) {
        states.m_lanes += i % ZOFF_NORM_BLOCK;
        states.v_lanes += i % ZOFF_NORM_BLOCK;
    }
    update_ask_for_codes(&states, i);
    update_lanes(k, s, &states, i, left, stream, rule, types);
}

/* The elements of a part of a register, with zeros behind them. So a loop needs no second body for its ends, for which
 * compilers take as long as for the first. */
typedef struct update_rest {
    _Alignas(64) char p[256], g[256], m[256], v[256], copy[128], low[128];
} update_rest;

ZOFF_KERNEL_INLINE size_t update_state_width(state_form form)
{
    return form == STATE_F32 ? sizeof(float) : form == STATE_BF16 ? sizeof(uint16_t) : 1;
}

ZOFF_KERNEL_INLINE void rest_copy(void *to, size_t to_at, const void *from, size_t from_at, size_t left, size_t width)
{
    if (to && from)
        memcpy((char *)to + to_at * width, (const char *)from + from_at * width, left * width);
}

static __attribute__((noinline)) void update_take(update_rest *r, update_streams s, rule_states states, size_t i, size_t left,
                                                  update_types types)
{
    const size_t bytes = v_lanes() * sizeof(float);
    memset(r->p, 0, bytes);
    memset(r->g, 0, bytes);
    memset(r->m, 0, bytes);
    memset(r->v, 0, bytes);
    memset(r->low, 0, bytes / 2);
    rest_copy(r->p, 0, s.p, i, left, width_of(types.weights));
    rest_copy(r->g, 0, s.g, i, left, width_of(types.grads));
    rest_copy(r->m, 0, states.m, i, left, update_state_width(states.m_form));
    rest_copy(r->v, 0, states.v, i, left, update_state_width(states.v_form));
    rest_copy(r->low, 0, s.low, i, left, sizeof *s.low);
}

static __attribute__((noinline)) void update_give(const update_rest *r, update_streams s, rule_states states, size_t i,
                                                  size_t left, update_types types)
{
    rest_copy(s.p, i, r->p, 0, left, width_of(types.weights));
    rest_copy(states.m, i, r->m, 0, left, update_state_width(states.m_form));
    rest_copy(states.v, i, r->v, 0, left, update_state_width(states.v_form));
    rest_copy(s.low, i, r->low, 0, left, sizeof *s.low);
    rest_copy(s.copy, i, r->copy, 0, left, sizeof(uint16_t));
}

/* The elements [i, end). */
ZOFF_KERNEL_INLINE void update_part(const zoff_adam_consts *k, const update_streams *s, rule_states states, size_t i,
                                    size_t end, bool stream, zoff_adam_rule rule, update_types types)
{
    bool streams = types.copy != ZOFF_DTYPE_DEFAULT && stream && v_streams();
    size_t part = streams ? stream_head(s->copy + i * sizeof(uint16_t), end - i, types.copy) : 0;
    if (part && types.moments != ZOFF_MOMENTS_F32) { /* each block would have two parts, which costs more than it saves */
        streams = false;
        part = 0;
    }
    update_rest r;
    while (i < end) {
        update_streams now = *s;
        rule_states own = states;
        size_t at = i, stop = streams ? i : end - (end - i) % v_lanes();
        if (__builtin_expect(part != 0, 0)) { /* the hint keeps constants of the loop in registers */
            update_take(&r, *s, states, i, part, types);
            now = (update_streams){r.p, r.g, r.copy, (uint16_t *)(void *)r.low};
            own.m = r.m;
            own.v = r.v;
            if (types.moments != ZOFF_MOMENTS_F32) {
                own.m_lanes += i % ZOFF_NORM_BLOCK;
                own.v_lanes += i % ZOFF_NORM_BLOCK;
            }
            at = 0;
            stop = v_lanes();
        }
        for (; at < stop; at += v_lanes())
            update_register(k, &now, own, at, v_lanes(), false, rule, types);
        if (__builtin_expect(part != 0, 0))
            update_give(&r, *s, states, i, part, types);
        i = part ? i + part : at;
        for (const size_t last = streams ? end - (end - i) % v_lanes() : i; i < last; i += v_lanes())
            update_register(k, s, states, i, v_lanes(), true, rule, types);
        part = end - i < v_lanes() ? end - i : 0;
    }
}

/* The random bits change from block to block. Elements that begin inside a block are all in that block. */
ZOFF_KERNEL_INLINE void update_blocks(const zoff_adam_piece *piece, const zoff_adam_consts *k, const update_streams *s,
                                      rule_states states, size_t begin, size_t count, zoff_adam_rule rule, update_types types)
{
    const uint64_t key = piece->key + begin / ZOFF_NORM_BLOCK;
    states.m_lanes = zoff_adam_dither_lanes() + begin % ZOFF_NORM_BLOCK;
    states.v_lanes = states.m_lanes + ZOFF_NORM_BLOCK;
    for (size_t i = 0; i < count; i += ZOFF_NORM_BLOCK) {
        const zoff_dither d = dither_block(key + i / ZOFF_NORM_BLOCK, k->dither);
        const size_t end = count - i < ZOFF_NORM_BLOCK ? count : i + ZOFF_NORM_BLOCK;
        states.m_key = d.m;
        states.v_key = d.v;
        update_part(k, s, states, i, end, piece->stream, rule, types);
    }
}

/* Update blocks with moments in 8 bits. `s` and `states` are copies, which move from block to block. */
ZOFF_KERNEL_INLINE void update_blocks_q8(const zoff_adam_piece *piece, const zoff_adam_consts *k, const update_streams *whole,
                                         rule_states states, size_t begin, size_t count, zoff_adam_rule rule,
                                         update_types types)
{
    const uint64_t key = piece->key + begin / ZOFF_NORM_BLOCK;
    update_streams s = *whole;
    states.m_lanes = zoff_adam_dither_lanes();
    states.v_lanes = states.m_lanes + ZOFF_NORM_BLOCK;
    for (size_t i = 0; i < count; i += ZOFF_NORM_BLOCK) {
        const zoff_dither d = dither_block(key + i / ZOFF_NORM_BLOCK, k->dither);
        const size_t left = count - i < ZOFF_NORM_BLOCK ? count - i : ZOFF_NORM_BLOCK;
        rule_states codes = states;
        codes.m_key = d.m;
        codes.v_key = d.v;
        q8_others others;
        /* constants are copied as in update_span() */
        const zoff_adam_consts own = q8_begin(k, &s, &codes, left, rule, types, &others);
        codes.m = (char *)states.m + Q8_HEADER;
        codes.v = (char *)states.v + (states.v_form == STATE_V8 ? Q8_HEADER : 0);
        update_part(&own, &s, codes, 0, left, piece->stream, rule, types);
        q8_end(&s, &states, types, &others);
        s.p += left * width_of(types.weights);
        s.g += left * width_of(types.grads);
        if (types.copy != ZOFF_DTYPE_DEFAULT)
            s.copy += left * sizeof(uint16_t);
        if (types.split)
            s.low += left;
        states.m = (char *)states.m + update_state_at(states.m_form, ZOFF_NORM_BLOCK);
        states.v = (char *)states.v + update_state_at(states.v_form, ZOFF_NORM_BLOCK);
    }
}

ZOFF_KERNEL_INLINE void update_span(const zoff_adam_piece *piece, size_t begin, size_t count, zoff_adam_rule rule,
                                    update_types types)
{
    const zoff_adam_consts k = *piece->consts; /* a copy that no store can alias: its fields stay in registers */
    const update_streams s = {
        .p = (char *)piece->master + begin * width_of(types.weights),
        .g = (const char *)piece->grad + begin * width_of(types.grads),
        .copy = types.copy != ZOFF_DTYPE_DEFAULT ? (char *)piece->copy_out + begin * sizeof(uint16_t) : 0,
        .low = types.split ? piece->low + begin : 0,
    };
    const rule_states states = {
        .m = piece->m ? (char *)piece->m + update_state_at(state_form_m(types.moments), begin) : 0,
        .v = piece->v ? (char *)piece->v + update_state_at(state_form_v(types.moments), begin) : 0,
        .m_form = state_form_m(types.moments),
        .v_form = state_form_v(types.moments),
    };
    if (types.moments == ZOFF_MOMENTS_F32)
        update_part(&k, &s, states, 0, count, piece->stream, rule, types);
    else if (types.moments != ZOFF_MOMENTS_BF16)
        update_blocks_q8(piece, &k, &s, states, begin, count, rule, types);
    else
        update_blocks(piece, &k, &s, states, begin, count, rule, types);
    if (types.copy != ZOFF_DTYPE_DEFAULT && piece->stream && v_streams())
        v_stream_end();
}

/* A piece without its first elements, of which there are a multiple of ZOFF_NORM_BLOCK. */
ZOFF_KERNEL_INLINE zoff_adam_piece update_from(const zoff_adam_piece *piece, size_t first)
{
    zoff_adam_piece rest = *piece;
    const zoff_moments moments = (zoff_moments)piece->moments;
    rest.count -= first;
    rest.master = (char *)piece->master + first * width_of(piece->split ? ZOFF_BF16 : piece->master_dtype);
    rest.grad = (const char *)piece->grad + first * width_of(piece->grad_dtype);
    if (piece->m)
        rest.m = (char *)piece->m + update_state_at(state_form_m(moments), first);
    if (piece->v)
        rest.v = (char *)piece->v + update_state_at(state_form_v(moments), first);
    if (piece->copy_out) /* copy_out and `low` share their place */
        rest.copy_out = (char *)piece->copy_out + first * sizeof(uint16_t);
    rest.key += first / ZOFF_NORM_BLOCK;
    return rest;
}

/* clang-format off */
#define UPDATE_RULES_FUSED(R) R(ADAM) R(ADAM_DECOUPLED) /* rules with loops for the types of most models */
#define UPDATE_RULES_Q8(R) UPDATE_RULES_FUSED(R) R(ADAM_L2) /* rules with moments in 8 bits */
#define UPDATE_RULES_OTHER(R) R(ADAGRAD) R(LION) R(MOMENTUM) R(NESTEROV)
#define UPDATE_RULES_WIDE(R) R(MUON_MOMENTUM) /* rules with plain loops only */
#define UPDATE_RULES(R) UPDATE_RULES_Q8(R) UPDATE_RULES_OTHER(R) /* rules with states; see rule_of_loop() */
/* clang-format on */

#endif
