/* norm.c: one norm over engines that train parts of one model. The ranks of zoff_engine_opts.norm_comm add their sums of
 * squares once the ranks of each engine have voted. So all of them clip by the same factor, and skip the same steps.
 *
 * Ranks of an engine may be in different groups. They have voted on the same step before, and each group has a rank of every
 * engine: so all groups decide alike. */
#include "agreement.h"

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
    zoff_base_mem_free(n->parts);
    zoff_base_mem_free(n->counts);
    zoff_base_mem_free(n->results);
    zoff_base_mem_free(n->bytes);
    *n = (zoff_norm_ranks){.comm = NULL};
}

/* ---- parameters that several ranks have ---- */

/* Checksums of the names of replicated parameters, by rank. */
typedef struct name_lists {
    uint64_t *all; /* `most` for each rank, ascending; UINT64_MAX where there are fewer */
    size_t most;
} name_lists;

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t name_of(const zoff_model_param *p)
{
    const uint64_t sum = zoff_offload_layout(p->name, strlen(p->name));
    return sum - (sum == UINT64_MAX);
}

/* Like zoff_agreement_consensus_gather(), on the other communicator. */
static zoff_status gather(zoff_norm_ranks *n, void *all, size_t bytes)
{
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

/* A rank that fails here still answers, so that the others do not wait for it. */
static zoff_status open_lists(zoff_agreement *a, name_lists *out)
{
    zoff_norm_ranks *n = &a->norm;
    const unsigned ranks = zoff_comm_size(n->comm), rank = zoff_comm_rank(n->comm);
    uint64_t *counts = n->counts;
    memset(counts, 0, ranks * sizeof *counts);
    for (size_t i = 0; i < a->model->param_count; i++)
        counts[rank] += a->model->params[i].norm_replicated;
    ZOFF_TRY(gather(n, counts, sizeof *counts));
    for (unsigned i = 0; i < ranks; i++)
        out->most = counts[i] > out->most ? (size_t)counts[i] : out->most;
    zoff_status status =
        zoff_base_mem_alloc(out->most * ranks + 1, sizeof *out->all, "names of replicated parameters", &out->all);
    int32_t *results = n->results;
    results[rank] = status;
    zoff_saved_error saved;
    zoff_base_status_save(&saved);
    ZOFF_TRY(gather(n, results, sizeof *results));
    zoff_base_status_restore(&saved);
    for (unsigned i = 0; status == ZOFF_OK && i < ranks; i++)
        ZOFF_FAIL_IF(results[i] < 0, ZOFF_ERR_COMM,
                     "rank %u of zoff_engine_opts.norm_comm has failed, and this one has not: see the message of that rank", i);
    return status;
}

static void fill_own(const zoff_agreement *a, uint64_t *own, size_t most)
{
    size_t used = 0;
    for (size_t i = 0; i < a->model->param_count; i++) {
        if (a->model->params[i].norm_replicated)
            own[used++] = name_of(&a->model->params[i]);
    }
    while (used < most)
        own[used++] = UINT64_MAX;
    qsort(own, most, sizeof *own, by_number);
}

/* A parameter counts on the lowest rank that has it. */
static void find_counting(zoff_agreement *a, const name_lists *l)
{
    const unsigned rank = zoff_comm_rank(a->norm.comm);
    for (size_t i = 0; i < a->model->param_count; i++) {
        zoff_model_param *p = &a->model->params[i];
        const uint64_t name = p->norm_replicated ? name_of(p) : 0;
        p->counts_elsewhere = false;
        for (unsigned k = 0; p->norm_replicated && k < rank; k++)
            p->counts_elsewhere =
                p->counts_elsewhere || bsearch(&name, l->all + k * l->most, l->most, sizeof name, by_number) != NULL;
    }
}

static zoff_status compare_names(zoff_agreement *a)
{
    name_lists l = {.most = 0};
    zoff_status status = open_lists(a, &l);
    if (status == ZOFF_OK && l.most) {
        fill_own(a, l.all + zoff_comm_rank(a->norm.comm) * l.most, l.most);
        status = gather(&a->norm, l.all, l.most * sizeof *l.all);
        if (status == ZOFF_OK)
            find_counting(a, &l);
    }
    zoff_base_mem_free(l.all);
    return status;
}

zoff_status zoff_agreement_norm_open(zoff_agreement *a)
{
    zoff_norm_ranks *n = &a->norm;
    if (!n->comm)
        return ZOFF_OK;
    snprintf(n->channel.name, sizeof n->channel.name, "norm_comm");
    zoff_comm_channel_come(n->comm, &n->channel);
    ZOFF_TRY(zoff_comm_channel_open(n->comm, &n->channel));
    return compare_names(a);
}

void zoff_agreement_norm_close(zoff_agreement *a)
{
    zoff_norm_ranks *n = &a->norm;
    if (!n->comm)
        return;
    zoff_comm_channel_close(n->comm, &n->channel);
    zoff_comm_channel_leave(n->comm, &n->channel);
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

void zoff_agreement_norm_abandon(zoff_agreement *a)
{
    if (a->norm.comm)
        zoff_comm_abandon(a->norm.comm, &a->norm.work);
}
