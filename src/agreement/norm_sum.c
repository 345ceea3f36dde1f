/* norm_sum.c: the norm of an engine as bytes that the program joins with those of other engines (zoff_norm_sum). */
#include "agreement.h"

#include "try.h"

#include <math.h>
#include <string.h>

enum { NORM_SUM_MARK = 0x316d736e /* "nsm1": change this mark with the record */ };

void zoff_agreement_norm_sum_write(const zoff_norm_record *record, zoff_norm_sum *out)
{
    _Static_assert(sizeof *record <= sizeof *out, "zoff_norm_sum is too small");
    zoff_norm_record clean = *record;
    clean.mark = NORM_SUM_MARK;
    clean.squares = (zoff_exact){.terms = 0};
    zoff_base_exact_join(&clean.squares, &record->squares); /* so that no carry is pending, and equal sums have equal bytes */
    memset(out, 0, sizeof *out);
    memcpy(out, &clean, sizeof clean);
}

/* Four bits of the filter, taken from a hash. */
void zoff_agreement_norm_sum_name(const zoff_agreement *a, uint64_t number, zoff_norm_record *record)
{
    const uint64_t words[] = {a->channel->hash, number};
    const uint64_t hash = zoff_offload_layout(words, sizeof words);
    for (unsigned shift = 0; shift < 64; shift += 16) {
        const unsigned bit = (unsigned)(hash >> shift) % (8 * sizeof record->holds);
        record->holds[bit / 64] |= UINT64_C(1) << bit % 64;
    }
}

/* `call` begins the message about bytes that are no sum. */
static zoff_status read_sum(const char *call, const zoff_norm_sum *sum, zoff_norm_record *out)
{
    ZOFF_FAIL_IF(!sum, ZOFF_ERR_INVALID, "%s: sum must not be NULL", call);
    memcpy(out, sum, sizeof *out);
    ZOFF_FAIL_IF(out->mark != NORM_SUM_MARK, ZOFF_ERR_INVALID,
                 "%s: these bytes are not a zoff_norm_sum of this version; take it from zoff_step_measure()", call);
    return ZOFF_OK;
}

zoff_status zoff_agreement_norm_sum_take(const zoff_norm_sum *sum, const zoff_norm_record *own, zoff_norm_record *out)
{
    bool has_own = true;
    ZOFF_TRY(read_sum("zoff_step: zoff_step_args.norm_sum", sum, out));
    for (size_t i = 0; i < sizeof own->holds / sizeof *own->holds; i++)
        has_own = has_own && (own->holds[i] & ~out->holds[i]) == 0;
    ZOFF_FAIL_IF(out->t != own->t, ZOFF_ERR_INVALID,
                 "zoff_step: step %lld was measured, but zoff_step_args.norm_sum is of step %lld", (long long)own->t,
                 (long long)out->t);
    ZOFF_FAIL_IF(own->scale != 0 && out->scale != own->scale, ZOFF_ERR_INVALID,
                 "zoff_step: the factor of the gradients was %.17g when they were measured, but is %.17g in "
                 "zoff_step_args.norm_sum",
                 own->scale, out->scale);
    ZOFF_FAIL_IF(
        !has_own, ZOFF_ERR_INVALID,
        "zoff_step: zoff_step_args.norm_sum does not contain the last measurement of this engine. Join the sums of the "
        "last zoff_step_measure() of all engines; zoff_grads_drop() makes earlier ones void");
    return ZOFF_OK;
}

/* An engine that trains nothing has no factor. */
zoff_status zoff_norm_sum_join(zoff_norm_sum *into, const zoff_norm_sum *other)
{
    zoff_norm_record a, b;
    ZOFF_TRY(read_sum("zoff_norm_sum_join", into, &a));
    ZOFF_TRY(read_sum("zoff_norm_sum_join", other, &b));
    ZOFF_FAIL_IF(a.t != b.t, ZOFF_ERR_INVALID, "zoff_norm_sum_join: one sum is of step %lld and the other of step %lld",
                 (long long)a.t, (long long)b.t);
    ZOFF_FAIL_IF(a.scale != 0 && b.scale != 0 && a.scale != b.scale, ZOFF_ERR_INVALID,
                 "zoff_norm_sum_join: the factor of the gradients, grad_scale / (loss scale * sum of the weights of "
                 "micro-batches), is %.17g in one engine and %.17g in the other",
                 a.scale, b.scale);
    zoff_base_exact_join(&a.squares, &b.squares);
    a.scale = a.scale != 0 ? a.scale : b.scale;
    a.is_poisoned |= b.is_poisoned;
    for (size_t i = 0; i < sizeof a.holds / sizeof *a.holds; i++)
        a.holds[i] |= b.holds[i];
    zoff_agreement_norm_sum_write(&a, into);
    return ZOFF_OK;
}

zoff_status zoff_norm_sum_value(const zoff_norm_sum *sum, double *out)
{
    zoff_norm_record r;
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_norm_sum_value: out must not be NULL");
    ZOFF_TRY(read_sum("zoff_norm_sum_value", sum, &r));
    *out = r.is_poisoned ? NAN : sqrt(zoff_base_exact_value(&r.squares)) * fabs(r.scale);
    return ZOFF_OK;
}
