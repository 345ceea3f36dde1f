/* kernels_avx512_pairs.c: the step with split masters, bf16 moments and bf16 gradients for AVX-512, 32 elements at a time. */
#include "simd/simd_avx512_pairs.h"

#include "dither.h"

#include "body/body_types.h"

#include "body/body_rules.h"

#include "body/body_lanes.h"

#include "body/body_span.h"

#define R(rule)                                                                                                                \
    static __attribute__((noinline)) void update_##rule(const zoff_adam_piece *piece, size_t begin, size_t count)              \
    {                                                                                                                          \
        update_span(piece, begin, count, ZOFF_RULE_##rule,                                                                     \
                    (update_types){ZOFF_BF16, ZOFF_BF16, ZOFF_DTYPE_DEFAULT, ZOFF_BF16, true});                                \
    }
UPDATE_RULES(R)
#undef R

void zoff_adam_kernels_avx512_pairs(const zoff_adam_piece *piece, size_t begin, size_t count)
{
    typedef void update_fn(const zoff_adam_piece *, size_t, size_t);
    static update_fn *const BY_RULE[ZOFF_RULE_COUNT] = {
#define R(rule) [ZOFF_RULE_##rule] = update_##rule,
        UPDATE_RULES(R)
#undef R
    };
    BY_RULE[piece->consts->rule](piece, begin, count);
}
