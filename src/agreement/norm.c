/* norm.c: one norm over engines that train parts of one model. The ranks of zoff_engine_opts.norm_comm add their sums of
 * squares once the ranks of each engine have voted. So all of them clip by the same factor, and skip the same steps.
 *
 * Ranks of an engine may be in different groups. They have voted on the same step before, and each group has a rank of every
 * engine: so all groups decide alike. */
#include "agreement.h"

#include "bits.h"
#include "try.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static zoff_status allocate(zoff_norm_ranks *n)
{
    const unsigned ranks = zoff_comm_size(n->comm);
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *n->parts, "norms of ranks", &n->parts));
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *n->counts, "norms of ranks", &n->counts));
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *n->results, "norms of ranks", &n->results));
    return zoff_base_mem_alloc(ranks, sizeof *n->bytes, "norms of ranks", &n->bytes);
}

zoff_status zoff_agreement_norm_take(zoff_agreement *a, zoff_comm *comm)
{
    ZOFF_FAIL_IF(comm && comm == a->comm, ZOFF_ERR_INVALID,
                 "zoff_engine_opts.norm_comm is zoff_engine_opts.comm, whose ranks are counted already: pass a communicator of "
                 "the ranks that train other parts of the model, or NULL");
    a->norm.comm = comm;
    return comm ? allocate(&a->norm) : ZOFF_OK;
}

void zoff_agreement_norm_free(zoff_agreement *a)
{
    zoff_norm_ranks *n = &a->norm;
    if (!n->comm || zoff_comm_lets_go(n->comm)) {
        zoff_base_mem_free(n->parts);
        zoff_base_mem_free(n->counts);
        zoff_base_mem_free(n->results);
        zoff_base_mem_free(n->bytes);
    }
    *n = (zoff_norm_ranks){.comm = NULL};
}

unsigned zoff_agreement_norm_part(const zoff_agreement *a)
{
    const zoff_comm *comm = a->norm.comm;
    return comm && zoff_comm_size(comm) > 1 ? 1 + zoff_comm_rank(comm) : 0;
}

/* ---- all engines go on, or none does ---- */

zoff_status zoff_agreement_norm_gather(zoff_agreement *a, void *all, size_t bytes)
{
    zoff_norm_ranks *n = &a->norm;
    const unsigned ranks = zoff_comm_size(n->comm);
    for (unsigned i = 0; i < ranks; i++)
        n->bytes[i] = bytes;
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                                 .channel = &n->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_AGREEMENT},
                                 .in = (char *)all + zoff_comm_rank(n->comm) * bytes,
                                 .out = all,
                                 .receive_bytes = n->bytes};
    ZOFF_TRY(zoff_comm_start(n->comm, &call, &n->work));
    return zoff_comm_wait(n->comm, &n->work);
}

zoff_status zoff_agreement_norm_success(zoff_agreement *a, zoff_status own)
{
    zoff_norm_ranks *n = &a->norm;
    zoff_saved_error saved;
    int failed = -1;
    if (!n->comm)
        return own;
    zoff_base_status_save(&saved);
    n->results[zoff_comm_rank(n->comm)] = own;
    const zoff_status status = zoff_agreement_norm_gather(a, n->results, sizeof *n->results);
    for (unsigned i = 0; status == ZOFF_OK && i < zoff_comm_size(n->comm); i++)
        failed = failed < 0 && n->results[i] < 0 ? (int)i : failed;
    n->is_over = status < 0 || failed >= 0;
    if (own < 0) {
        zoff_base_status_restore(&saved);
        return own;
    }
    ZOFF_TRY(status);
    ZOFF_FAIL_IF(failed >= 0, ZOFF_ERR_COMM,
                 "rank %d of zoff_engine_opts.norm_comm has failed, and this one has not: see the message of that rank for the "
                 "cause",
                 failed);
    return ZOFF_OK;
}

static zoff_status open_channel(zoff_norm_ranks *n)
{
    snprintf(n->channel.name, sizeof n->channel.name, "norm_comm");
    zoff_comm_channel_come(n->comm, &n->channel);
    n->is_open = true;
    return zoff_comm_channel_open(n->comm, &n->channel);
}

/* The other engines wait for this one in their next call of zoff_agreement_norm_success(). */
void zoff_agreement_norm_fail(zoff_agreement *a, zoff_status own)
{
    zoff_norm_ranks *n = &a->norm;
    zoff_saved_error saved;
    if (!n->comm || n->is_over || zoff_comm_is_broken(n->comm))
        return;
    zoff_base_status_save(&saved);
    if (n->is_open || open_channel(n) == ZOFF_OK)
        (void)zoff_agreement_norm_success(a, own);
    zoff_base_status_restore(&saved);
}

/* ---- parameters that several ranks have ---- */

static int by_name(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a >> 1, y = *(const uint64_t *)b >> 1;
    return (x > y) - (x < y);
}

uint64_t zoff_agreement_norm_name(const char *name)
{
    const uint64_t sum = zoff_offload_layout(name, strlen(name)) & ~UINT64_C(1);
    return sum >> 1 == UINT64_MAX >> 1 ? 0 : sum;
}

const uint64_t *zoff_agreement_norm_find(const zoff_norm_ranks *n, unsigned rank, uint64_t name)
{
    return bsearch(&name, n->names + rank * n->most, n->most, sizeof name, by_name);
}

static void fill_own(const zoff_agreement *a, uint64_t *own, size_t most)
{
    size_t used = 0;
    for (size_t i = 0; i < a->model->param_count; i++) {
        if (a->model->params[i].norm_replicated)
            own[used++] =
                zoff_agreement_norm_name(a->model->params[i].name) + (zoff_model_params_owner(a->model, (zoff_param)i) == i);
    }
    while (used < most)
        own[used++] = UINT64_MAX;
    qsort(own, most, sizeof *own, by_name);
}

/* A parameter counts on the lowest rank that has it. Its checksums are compared by a sum over all ranks, in which the lowest
 * rank that has its states counts as often as all others together, with the other sign. */
static void find_counting(zoff_agreement *a)
{
    const zoff_norm_ranks *n = &a->norm;
    const unsigned own = zoff_comm_rank(n->comm);
    for (size_t i = 0; i < a->model->param_count; i++) {
        zoff_model_param *p = &a->model->params[i];
        const uint64_t name = zoff_agreement_norm_name(p->name);
        unsigned lowest = own;
        uint64_t others = 0;
        p->counts_elsewhere = false;
        for (unsigned rank = 0; p->norm_replicated && rank < zoff_comm_size(n->comm); rank++) {
            const uint64_t *found = rank == own ? NULL : zoff_agreement_norm_find(n, rank, name);
            p->counts_elsewhere = p->counts_elsewhere || (found && rank < own);
            lowest = found && *found & 1 && rank < lowest ? rank : lowest;
            others += found && *found & 1;
        }
        if (p->norm_replicated && zoff_model_params_owner(a->model, (zoff_param)i) == i)
            a->transfer->measure.alike[i].factor = (name | 1) * (lowest == own ? others : UINT64_MAX);
    }
}

static zoff_status compare_names(zoff_agreement *a)
{
    zoff_norm_ranks *n = &a->norm;
    const unsigned ranks = zoff_comm_size(n->comm), rank = zoff_comm_rank(n->comm);
    n->most = 0;
    n->counts[rank] = a->model->values->persist;
    for (size_t i = 0; i < a->model->param_count; i++)
        n->counts[rank] += a->model->params[i].norm_replicated ? 2 : 0;
    ZOFF_TRY(zoff_agreement_norm_gather(a, n->counts, sizeof *n->counts));
    for (unsigned i = 0; i < ranks; i++) {
        /* Engines that persist choose a common step, while the others would wait for something else. */
        ZOFF_FAIL_IF((n->counts[i] ^ n->counts[0]) & 1, ZOFF_ERR_INVALID,
                     "zoff.persist is %s on rank 0 of zoff_engine_opts.norm_comm and %s on rank %u: engines that share a norm "
                     "need it alike, so set it in the configurations of all of them, or of none",
                     n->counts[0] & 1 ? "true" : "false", n->counts[i] & 1 ? "true" : "false", i);
        n->most = zoff_base_bits_max(n->most, (size_t)(n->counts[i] >> 1));
    }
    const zoff_status status =
        n->most ? zoff_base_mem_alloc(n->most * ranks, sizeof *n->names, "names of replicated parameters", &n->names) : ZOFF_OK;
    ZOFF_TRY(zoff_agreement_norm_success(a, status));
    if (!n->most)
        return ZOFF_OK;
    fill_own(a, n->names + rank * n->most, n->most);
    ZOFF_TRY(zoff_agreement_norm_gather(a, n->names, n->most * sizeof *n->names));
    find_counting(a);
    return ZOFF_OK;
}

zoff_status zoff_agreement_norm_open(zoff_agreement *a)
{
    if (!a->norm.comm)
        return ZOFF_OK;
    ZOFF_TRY(open_channel(&a->norm));
    ZOFF_TRY(zoff_agreement_norm_success(a, ZOFF_OK)); /* an engine that has failed before says so here */
    return compare_names(a);
}

void zoff_agreement_norm_close(zoff_agreement *a)
{
    zoff_norm_ranks *n = &a->norm;
    zoff_base_mem_free(n->names);
    n->names = NULL;
    n->most = 0;
    if (n->is_open) {
        zoff_comm_channel_close(n->comm, &n->channel);
        zoff_comm_channel_leave(n->comm, &n->channel);
    }
    n->is_open = n->is_over = false;
}

/* ---- in a step ---- */

zoff_status zoff_agreement_norm_ask(zoff_agreement *a, const zoff_norm_part *own)
{
    zoff_norm_ranks *n = &a->norm;
    const unsigned rank = zoff_comm_rank(n->comm);
    n->parts[rank] = *own;
    for (unsigned i = 0; i < zoff_comm_size(n->comm); i++)
        n->bytes[i] = sizeof *n->parts;
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                                 .channel = &n->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_VOTE},
                                 .in = &n->parts[rank],
                                 .out = n->parts,
                                 .receive_bytes = n->bytes};
    return zoff_comm_start(n->comm, &call, &n->work);
}

/* The first rank that has a term. An engine that trains nothing has no factor. */
static unsigned first_with(const zoff_norm_ranks *n, unsigned term)
{
    unsigned rank = 0;
    while (term == ZOFF_NORM_SCALE && rank + 1 < zoff_comm_size(n->comm) && n->parts[rank].terms[term] == 0)
        rank++;
    return rank;
}

static zoff_status compare(const zoff_norm_ranks *n)
{
    static const char *const NAMES[ZOFF_NORM_TERMS] = {
        [ZOFF_NORM_T] = "the number of the update (zoff_step_args.t)",
        [ZOFF_NORM_CLIP] = "zoff_step_args.clip_norm (or gradient_clipping)",
        [ZOFF_NORM_SCALE] = "the factor of the gradients: grad_scale / (loss scale * sum of the weights of micro-batches)",
        [ZOFF_NORM_LOOKS] = "whether gradients are measured (zoff.skip_nonfinite)"};
    for (unsigned rank = 0; rank < zoff_comm_size(n->comm); rank++)
        ZOFF_FAIL_IF(n->parts[rank].status < 0, ZOFF_ERR_COMM,
                     "rank %u of zoff_engine_opts.norm_comm cannot take the step: see the message of that rank for the cause; "
                     "nothing is updated",
                     rank);
    for (unsigned i = 0; i < ZOFF_NORM_TERMS; i++) {
        const unsigned first = first_with(n, i);
        const double wanted = n->parts[first].terms[i];
        for (unsigned rank = first + 1; rank < zoff_comm_size(n->comm); rank++) {
            const double other = n->parts[rank].terms[i];
            ZOFF_FAIL_IF(other != wanted && !(i == ZOFF_NORM_SCALE && other == 0), ZOFF_ERR_INVALID,
                         "engines that share a norm (zoff_engine_opts.norm_comm) differ in a step: %s is %.17g on rank %u and "
                         "%.17g on rank %u; nothing is updated",
                         NAMES[i], wanted, first, other, rank);
        }
    }
    return ZOFF_OK;
}

zoff_status zoff_agreement_norm_poll(zoff_agreement *a, zoff_norm_part *out)
{
    zoff_norm_ranks *n = &a->norm;
    const zoff_status status = zoff_comm_poll(n->comm, &n->work);
    if (status != ZOFF_OK)
        return status;
    ZOFF_TRY(compare(n));
    *out = (zoff_norm_part){.rank = UINT32_MAX};
    for (unsigned i = 0; i < ZOFF_NORM_TERMS; i++)
        out->terms[i] = n->parts[first_with(n, i)].terms[i];
    for (unsigned rank = 0; rank < zoff_comm_size(n->comm); rank++) {
        const zoff_norm_part *part = &n->parts[rank];
        zoff_base_exact_join(&out->squares, &part->squares);
        out->stop_requested |= part->stop_requested;
        out->replicas += part->replicas;
        if (part->is_poisoned && !out->is_poisoned) {
            memcpy(out->why, part->why, sizeof out->why);
            out->is_poisoned = true;
            out->rank = rank;
        }
    }
    return ZOFF_OK;
}

zoff_status zoff_agreement_norm_finish(zoff_agreement *a)
{
    return a->norm.comm ? zoff_comm_wait(a->norm.comm, &a->norm.work) : ZOFF_OK;
}

/* Memory of a message that cannot be cancelled is not freed. */
void zoff_agreement_norm_abandon(zoff_agreement *a)
{
    zoff_norm_ranks *n = &a->norm;
    if (!n->comm)
        return;
    zoff_comm_abandon(n->comm, &n->work);
    zoff_comm_abandon(n->comm, &n->barrier.work);
    if (zoff_comm_lets_go(n->comm))
        return;
    n->names = NULL;
    n->barrier.all = NULL;
}
