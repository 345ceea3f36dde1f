/* sum_rules.c: who adds up the gradients of all ranks. "ordered": the rank that owns the sum, term by term in the order of
 * ranks; the wire has what each rank has. "communicator", zoff.reduce_scatter "nccl": the communicator, on the way and in an
 * order of its own; the wire has gradients times their weight, in fp32. */
#include "engine_priv.h"

#include "bits.h"

/* ---- ordered ---- */

static zoff_dtype ordered_dtype(const zoff_engine *e, const zoff_model_param *p)
{
    return e->settings.values.wire_dtype ? e->settings.values.wire_dtype : p->grad_dtype;
}

/* What follows a part may be wider, and a device does not read that anywhere. */
static size_t ordered_align(const zoff_engine *e)
{
    return zoff_base_bits_max(e->widest_gradient, 1);
}

static void ordered_level(size_t *bytes, unsigned ranks)
{
    (void)bytes;
    (void)ranks;
}

static void ordered_most(const zoff_engine *e, const zoff_plan *plan, size_t bucket, size_t *out_part, size_t *out_all)
{
    *out_part = zoff_engine_wire_part_bytes(e, plan, bucket, plan->rank);
    *out_all = zoff_engine_wire_bucket_most(e, plan, bucket);
}

static void ordered_list(zoff_engine *e, const zoff_plan_piece *piece, char *to, size_t number)
{
    const zoff_model_param *p = &e->model.params[piece->param];
    e->ranks.moves[number] = (zoff_cast_piece){.count = piece->count,
                                               .dst = to,
                                               .src = e->sums.place->gradient(e, piece),
                                               .dst_dtype = ordered_dtype(e, p),
                                               .src_dtype = p->grad_dtype};
}

static zoff_status ordered_put(zoff_engine *e, size_t count)
{
    return e->accel->ops->cast(e->accel, e->device.compute, e->ranks.moves, count);
}

/* Nobody looks at what is behind a part. */
static zoff_status ordered_pad(zoff_engine *e, char *to, size_t bytes)
{
    (void)e;
    (void)to;
    (void)bytes;
    return ZOFF_OK;
}

static void ordered_terms(const zoff_engine *e, const float *weights, zoff_accumulate_piece *out)
{
    out->sources = e->plan.ranks;
    out->weights = weights;
}

const zoff_sum_rule zoff_engine_sum_rules_ordered = {.name = "ordered",
                                                     .dtype = ordered_dtype,
                                                     .align = ordered_align,
                                                     .level = ordered_level,
                                                     .most = ordered_most,
                                                     .list = ordered_list,
                                                     .put = ordered_put,
                                                     .pad = ordered_pad,
                                                     .terms = ordered_terms,
                                                     .blame = zoff_engine_culprit_find};

/* ---- by the communicator ---- */

static zoff_dtype added_dtype(const zoff_engine *e, const zoff_model_param *p)
{
    (void)e;
    (void)p;
    return ZOFF_F32;
}

/* It is fastest where parts start at 16 bytes. */
static size_t added_align(const zoff_engine *e)
{
    (void)e;
    return 16;
}

/* All parts are as long as the longest. */
static void added_level(size_t *bytes, unsigned ranks)
{
    size_t most = 0;
    for (unsigned rank = 0; rank < ranks; rank++)
        most = zoff_base_bits_max(most, bytes[rank]);
    for (unsigned rank = 0; rank < ranks; rank++)
        bytes[rank] = most;
}

/* All are fp32, and have the same number of blocks but for one. */
static void added_most(const zoff_engine *e, const zoff_plan *plan, size_t bucket, size_t *out_part, size_t *out_all)
{
    const zoff_plan_chunk *c = &plan->chunks[bucket];
    size_t blocks = 0;
    for (size_t i = c->first_run; i < c->first_run + c->run_count; i++)
        blocks += zoff_base_bits_ceil_div(plan->runs[i].count, plan->unit);
    *out_part = zoff_base_bits_align(zoff_base_bits_ceil_div(blocks, plan->ranks) * plan->unit * sizeof(float), added_align(e));
    *out_all = plan->ranks * *out_part;
}

static void added_list(zoff_engine *e, const zoff_plan_piece *piece, char *to, size_t number)
{
    e->ranks.terms[number] = (zoff_accumulate_piece){.count = piece->count,
                                                     .sum = (float *)(void *)to,
                                                     .grad = e->sums.place->gradient(e, piece),
                                                     .dtype = e->model.params[piece->param].grad_dtype,
                                                     .first = true,
                                                     .weights = zoff_zero_reduce_own_weight(e->ranks.reduce)};
}

static zoff_status added_put(zoff_engine *e, size_t count)
{
    return e->accel->ops->accumulate(e->accel, e->device.compute, e->ranks.terms, count);
}

/* What is behind a part is added up like the rest. */
static zoff_status added_pad(zoff_engine *e, char *to, size_t bytes)
{
    return bytes ? e->sums.place->zero(e, to, bytes) : ZOFF_OK;
}

static void added_terms(const zoff_engine *e, const float *weights, zoff_accumulate_piece *out)
{
    (void)e;
    (void)weights;
    out->sources = 1;
    out->weights = NULL;
}

/* Of a sum that came as one nobody knows. */
static void added_blame(zoff_engine *e, size_t bucket, const char *parts, const float *weights)
{
    (void)e;
    (void)bucket;
    (void)parts;
    (void)weights;
}

const zoff_sum_rule zoff_engine_sum_rules_added = {.name = "communicator",
                                                   .adds = true,
                                                   .dtype = added_dtype,
                                                   .align = added_align,
                                                   .level = added_level,
                                                   .most = added_most,
                                                   .list = added_list,
                                                   .put = added_put,
                                                   .pad = added_pad,
                                                   .terms = added_terms,
                                                   .blame = added_blame};
