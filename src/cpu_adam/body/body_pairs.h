/* SPDX-License-Identifier: Apache-2.0 */
/* body_pairs.h: the steps of Adam and AdamW with split masters, bf16 gradients, and moments in bf16 or 8 bits, over a
 * vocabulary of pairs that was included before. */
#ifndef ZOFF_BODY_PAIRS_H
#define ZOFF_BODY_PAIRS_H

#include "dither.h"
#include "q8.h"

#include "body_types.h"

#include "body_rules.h"

#include "body_lanes.h"

#include "body_q8.h"

#include "body_span.h"

#define U(rule, suffix)                                                                                                        \
    static __attribute__((noinline)) void ZOFF_KERNEL_LOOP(update_##rule##_##suffix)(const zoff_adam_piece *piece,             \
                                                                                     size_t begin, size_t count)               \
    {                                                                                                                          \
        update_span(piece, begin, count, ZOFF_RULE_##rule,                                                                     \
                    (update_types){ZOFF_BF16, ZOFF_BF16, .moments = ZOFF_MOMENTS_##suffix, .split = true});                    \
    }
#define R(rule) U(rule, BF16)
UPDATE_RULES(R)
#undef R
#define R(rule) U(rule, M8V16) U(rule, Q8)
UPDATE_RULES_FUSED(R)
#undef R
#undef U

static void kernel_update_pairs(const zoff_adam_piece *piece, size_t begin, size_t count)
{
    typedef void update_fn(const zoff_adam_piece *, size_t, size_t);
    static update_fn *const LOOPS[ZOFF_RULE_COUNT][ZOFF_MOMENTS_Q8] = {
#define L(rule, suffix) ZOFF_KERNEL_LOOP(update_##rule##_##suffix)
#define R(rule) [ZOFF_RULE_##rule] = {L(rule, BF16), L(rule, M8V16), L(rule, Q8)},
        UPDATE_RULES_FUSED(R)
#undef R
#define R(rule) [ZOFF_RULE_##rule] = {L(rule, BF16)},
            R(ADAM_L2) UPDATE_RULES_OTHER(R)
#undef R
#undef L
    };
    LOOPS[rule_of_loop(piece->consts->rule)][piece->moments - ZOFF_MOMENTS_BF16](piece, begin, count);
}

#endif
