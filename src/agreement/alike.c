/* alike.c: compares what the program has declared equal on several ranks. Gradients that the trainer has reduced
 * (zoff_param_desc.reduced) are compared between the ranks of an engine. Parameters that several engines have
 * (zoff_param_desc.norm_replicated) are compared between engines with one norm. A difference would let their weights drift
 * apart without a sign, because each rank goes on with its own numbers.
 *
 * A step that finds no difference needs no message of its own: votes and norms carry one number for each declaration. Checksums
 * of parameters are sums over blocks (zoff_alike), and a rank adds those of its parameters up. For copies the totals of all
 * ranks are equal. For replicas a rank multiplies each by a factor, so that the total over all engines is 0. The factors come
 * from names, because engines have different parameters. Only if totals differ do ranks send the checksums of each parameter.
 */
#include "agreement.h"

#include "bits.h"
#include "try.h"

#include <string.h>

void zoff_agreement_alike_tell(const zoff_agreement *a, zoff_vote *vote)
{
    const zoff_alike *alike = a->transfer->measure.alike;
    vote->copies = vote->replicas = 0;
    for (size_t i = 0; alike && i < a->model->param_count; i++) {
        const uint64_t words[] = {i, alike[i].copies};
        vote->copies += a->model->params[i].reduced ? zoff_offload_layout(words, sizeof words) : 0;
        vote->replicas += alike[i].factor * alike[i].replicas;
    }
}

/* ---- copies of a gradient, on the ranks of an engine ---- */

static zoff_status list_copies(const void *ctx, zoff_facts *out)
{
    const zoff_agreement *a = ctx;
    for (size_t i = 0; i < a->model->param_count; i++) {
        if (a->model->params[i].reduced)
            ZOFF_TRY(zoff_agreement_facts_add_count(out, a->transfer->measure.alike[i].copies,
                                                    "the checksum of the gradient of %.300s (zoff_param_desc.reduced)",
                                                    a->model->params[i].name));
    }
    return ZOFF_OK;
}

zoff_status zoff_agreement_alike_compare(zoff_agreement *a, const zoff_vote *votes)
{
    unsigned other = 1;
    while (other < zoff_comm_size(a->comm) && votes[other].copies == votes[0].copies)
        other++;
    if (other >= zoff_comm_size(a->comm))
        return ZOFF_OK;
    return zoff_agreement_facts_compare(
        a, list_copies, a, "zoff_step",
        "Every rank must hand over the same bits: reduce the gradient over all ranks before zoff_grad_ready(), or leave "
        "zoff_param_desc.reduced false. Nothing is updated; call zoff_grads_drop() on every rank, and repeat the step");
}

/* ---- replicas of a parameter, in engines with one norm ---- */

/* Compare numbers of the parameters in n->names, in their order. */
static zoff_status name_difference(const zoff_agreement *a, const uint64_t *values, const char *what, const char *advice)
{
    const zoff_norm_ranks *n = &a->norm;
    const char *name = "a parameter";
    for (unsigned rank = 0; rank < zoff_comm_size(n->comm); rank++) {
        for (size_t i = 0; i < n->most; i++) {
            const uint64_t key = n->names[rank * n->most + i];
            const uint64_t *found = NULL;
            unsigned lowest = 0;
            while (key != UINT64_MAX && key & 1 && lowest < rank &&
                   !((found = zoff_agreement_norm_find(n, lowest, key)) && *found & 1))
                lowest++;
            if (!found || lowest == rank || values[found - n->names] == values[rank * n->most + i])
                continue;
            for (size_t p = 0; p < a->model->param_count; p++)
                name = zoff_agreement_norm_name(a->model->params[p].name) == (key & ~UINT64_C(1)) ? a->model->params[p].name
                                                                                                  : name;
            return zoff_base_status_fail(
                ZOFF_ERR_INVALID,
                "%s of %.300s differ between ranks %u and %u of zoff_engine_opts.norm_comm, but it has "
                "zoff_param_desc.norm_replicated. %s",
                what, name, lowest, rank, advice);
        }
    }
    return ZOFF_OK;
}

/* Where a parameter of this rank is in its list of names. */
static size_t place_of(const zoff_norm_ranks *n, const char *name)
{
    const unsigned rank = zoff_comm_rank(n->comm);
    const uint64_t *found = zoff_agreement_norm_find(n, rank, zoff_agreement_norm_name(name));
    return (size_t)(found - n->names) - rank * n->most;
}

/* Add up what each rank of the engine has of `own`. `of_ranks`: memory for it */
static zoff_status add_up_ranks(zoff_agreement *a, uint64_t *of_ranks, uint64_t *own)
{
    const size_t most = a->norm.most;
    memcpy(of_ranks + zoff_comm_rank(a->comm) * most, own, most * sizeof *own);
    ZOFF_TRY(zoff_agreement_consensus_gather(a, of_ranks, most * sizeof *own));
    memset(own, 0, most * sizeof *own);
    for (size_t i = 0; i < zoff_comm_size(a->comm) * most; i++)
        own[i % most] += of_ranks[i];
    return ZOFF_OK;
}

/* Compare a number for each replicated parameter between engines. `list` writes those of this rank; `adds`: each rank of an
 * engine has a part of them. */
static zoff_status compare_engines(zoff_agreement *a, zoff_status (*list)(const zoff_agreement *a, uint64_t *own), bool adds,
                                   const char *what, const char *advice)
{
    const zoff_norm_ranks *n = &a->norm;
    const size_t ranks = zoff_comm_size(a->comm), engines = zoff_comm_size(n->comm), own = zoff_comm_rank(n->comm) * n->most;
    uint64_t *values;
    zoff_status status =
        zoff_base_mem_alloc((ranks + engines) * n->most, sizeof *values, "checksums of replicated parameters", &values);
    if (status == ZOFF_OK)
        status = list(a, values + own);
    status = zoff_agreement_norm_success(a, zoff_agreement_consensus_success(a, status));
    if (status == ZOFF_OK && adds)
        status = add_up_ranks(a, values + engines * n->most, values + own);
    if (status == ZOFF_OK)
        status = zoff_agreement_norm_gather(a, values, n->most * sizeof *values);
    if (status == ZOFF_OK)
        status = name_difference(a, values, what, advice);
    zoff_base_mem_free(values);
    return status;
}

static zoff_status list_sums(const zoff_agreement *a, uint64_t *own)
{
    for (size_t i = 0; i < a->model->param_count; i++) {
        const zoff_model_param *p = &a->model->params[i];
        if (p->norm_replicated)
            own[place_of(&a->norm, p->name)] = a->transfer->measure.alike[i].replicas;
    }
    return ZOFF_OK;
}

zoff_status zoff_agreement_alike_explain(zoff_agreement *a)
{
    return compare_engines(
        a, list_sums, true, "the gradients",
        "Reduce them over these ranks before zoff_grad_ready(), as those of LayerNorm weights under sequence parallelism. "
        "Nothing is updated; call zoff_grads_drop() on every rank, and repeat the step");
}

/* ---- first weights ---- */

enum { COPY_BYTES = 1 << 20 };

/* Copy the weights run by run to host memory, because they may be on a device.  @return their checksum */
static zoff_status add_weights(const zoff_agreement *a, const zoff_model_param *p, char *copy, uint64_t *out)
{
    const size_t element = zoff_adam_dtype_bytes(p->dtype), most = COPY_BYTES / element;
    for (size_t slice = 0; slice < p->slices; slice++) {
        for (size_t first = 0; first < p->count; first += most) {
            const zoff_cast_piece run = {.count = zoff_base_bits_min(p->count - first, most),
                                         .dst = copy,
                                         .src = p->value + slice * p->value_stride + first * element,
                                         .dst_dtype = p->dtype,
                                         .src_dtype = p->dtype};
            if (p->engine_owned)
                memcpy(copy, run.src, run.count * element);
            else
                ZOFF_TRY(a->transfer->route.link->move(a->transfer, &run, 1, false));
            const uint64_t words[] = {*out, zoff_offload_layout(copy, run.count * element)};
            *out = zoff_offload_layout(words, sizeof words);
        }
    }
    return ZOFF_OK;
}

static zoff_status list_weights(const zoff_agreement *a, uint64_t *own)
{
    char *copy;
    zoff_status status = zoff_base_mem_alloc(COPY_BYTES, 1, "weights of replicated parameters", &copy);
    for (size_t i = 0; status == ZOFF_OK && i < a->model->param_count; i++) {
        const zoff_model_param *p = &a->model->params[i];
        const uint64_t words[] = {p->count, p->slices, p->dtype};
        if (!p->norm_replicated)
            continue;
        uint64_t *sum = &own[place_of(&a->norm, p->name)];
        *sum = zoff_offload_layout(words, sizeof words);
        if (p->value)
            status = add_weights(a, p, copy, sum);
    }
    zoff_base_mem_free(copy);
    return status;
}

zoff_status zoff_agreement_alike_first_weights(zoff_agreement *a)
{
    zoff_status status = zoff_agreement_norm_success(a, zoff_agreement_listed_compare_weights(a));
    if (status == ZOFF_OK && a->norm.most)
        status = compare_engines(a, list_weights, false, "zoff_engine_seal: the first weights",
                                 "Give these ranks the same weights before seal, for example by a broadcast");
    a->norm.is_over = a->norm.is_over || status < 0;
    return status;
}
