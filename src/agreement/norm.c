/* SPDX-License-Identifier: Apache-2.0 */
/* norm.c: one norm over engines that train parts of one model. The ranks of zoff_engine_opts.norm_comm add their sums of
 * squares once the ranks of each engine have voted. So all of them clip by the same factor, and skip the same steps.
 *
 * Ranks of an engine may be in different groups. They have voted on the same step before, and each group has a rank of every
 * engine: so all groups decide alike. */
#include "agreement.h"

#include "bits.h"
#include "try.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

zoff_status zoff_agreement_norm_take(zoff_agreement *a, zoff_comm *comm)
{
    ZOFF_FAIL_IF(comm && comm == a->comm, ZOFF_ERR_INVALID,
                 "zoff_engine_opts.norm_comm is zoff_engine_opts.comm, whose ranks are counted already: pass a communicator of "
                 "the ranks that train other parts of the model, or NULL");
    a->norm.ranks = (zoff_voters){.comm = comm, .channel = &a->norm.channel, .whose = " of zoff_engine_opts.norm_comm"};
    if (!comm)
        return ZOFF_OK;
    ZOFF_TRY(zoff_agreement_vote_allocate(&a->norm.ranks));
    return zoff_base_mem_alloc(zoff_comm_size(comm), sizeof *a->norm.parts, "norms of ranks", &a->norm.parts);
}

void zoff_agreement_norm_free(zoff_agreement *a)
{
    zoff_norm_ranks *n = &a->norm;
    if (!n->ranks.comm || zoff_comm_lets_go(n->ranks.comm)) {
        zoff_base_mem_free(n->parts);
        zoff_base_mem_free(n->ranks.words);
    }
    *n = (zoff_norm_ranks){.parts = NULL};
}

unsigned zoff_agreement_norm_part(const zoff_agreement *a)
{
    const zoff_comm *comm = a->norm.ranks.comm;
    return comm && zoff_comm_size(comm) > 1 ? 1 + zoff_comm_rank(comm) : 0;
}

/* ---- all engines go on, or none does ---- */

static zoff_status open_channel(zoff_norm_ranks *n)
{
    snprintf(n->channel.name, sizeof n->channel.name, "norm_comm");
    zoff_comm_channel_come(n->ranks.comm, &n->channel);
    n->is_open = true;
    return zoff_comm_channel_open(n->ranks.comm, &n->channel);
}

/* Tell the others, because they wait for this engine in their next vote. */
void zoff_agreement_norm_fail(zoff_agreement *a, zoff_status own)
{
    zoff_norm_ranks *n = &a->norm;
    zoff_saved_error saved;
    if (!n->ranks.comm || n->ranks.is_over || zoff_comm_is_broken(n->ranks.comm))
        return;
    zoff_base_status_save(&saved);
    if (n->is_open || open_channel(n) == ZOFF_OK)
        (void)zoff_agreement_vote_success(&a->norm.ranks, own);
    zoff_base_status_restore(&saved);
}

/* ---- parameters that several ranks have ---- */

static int by_name(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a >> 1, y = *(const uint64_t *)b >> 1;
    return (x > y) - (x < y);
}

/* The checksum of a name, without its lowest bit. */
static uint64_t name_of(const char *name)
{
    const uint64_t sum = zoff_offload_layout(name, strlen(name)) & ~UINT64_C(1);
    return sum >> 1 == UINT64_MAX >> 1 ? 0 : sum;
}

/* The entry of a name in the list of a rank; NULL: the rank does not have the parameter. */
static const uint64_t *find(const zoff_norm_ranks *n, unsigned rank, uint64_t name)
{
    return bsearch(&name, n->names + rank * n->most, n->most, sizeof name, by_name);
}

static void fill_own(const zoff_agreement *a, uint64_t *own, size_t most)
{
    size_t used = 0;
    for (size_t i = 0; i < a->model->param_count; i++) {
        if (a->model->params[i].norm_replicated)
            own[used++] = name_of(a->model->params[i].name) + (zoff_model_params_owner(a->model, (zoff_param)i) == i);
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
    const unsigned own = zoff_comm_rank(n->ranks.comm);
    for (size_t i = 0; i < a->model->param_count; i++) {
        zoff_model_param *p = &a->model->params[i];
        const uint64_t name = name_of(p->name);
        unsigned lowest = own;
        uint64_t others = 0;
        p->counts_elsewhere = false;
        for (unsigned rank = 0; p->norm_replicated && rank < zoff_comm_size(n->ranks.comm); rank++) {
            const uint64_t *found = rank == own ? NULL : find(n, rank, name);
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
    const uint64_t *words = n->ranks.words; /* words of each rank: a status, and the number below */
    const unsigned ranks = zoff_comm_size(n->ranks.comm), rank = zoff_comm_rank(n->ranks.comm);
    uint64_t number = a->model->values->persist; /* persistence, plus twice the number of replicated parameters */
    n->most = 0;
    for (size_t i = 0; i < a->model->param_count; i++)
        number += a->model->params[i].norm_replicated ? 2 : 0;
    ZOFF_TRY(zoff_agreement_vote(&n->ranks, ZOFF_OK, &number, 1));
    for (unsigned i = 0; i < ranks; i++) {
        /* Engines that persist choose a common step, while the others would wait for something else. */
        ZOFF_FAIL_IF((words[2 * i + 1] ^ words[1]) & 1, ZOFF_ERR_INVALID,
                     "zoff.persist is %s on rank 0 of zoff_engine_opts.norm_comm and %s on rank %u: engines that share a norm "
                     "need it alike, so set it in the configurations of all of them, or of none",
                     words[1] & 1 ? "true" : "false", words[2 * i + 1] & 1 ? "true" : "false", i);
        n->most = zoff_base_bits_max(n->most, (size_t)(words[2 * i + 1] >> 1));
    }
    const zoff_status status =
        n->most ? zoff_base_mem_alloc(n->most * ranks, sizeof *n->names, "names of replicated parameters", &n->names) : ZOFF_OK;
    ZOFF_TRY(zoff_agreement_vote_success(&a->norm.ranks, status));
    if (!n->most)
        return ZOFF_OK;
    fill_own(a, n->names + rank * n->most, n->most);
    ZOFF_TRY(zoff_agreement_vote_gather(&n->ranks, n->names, n->most * sizeof *n->names));
    find_counting(a);
    return ZOFF_OK;
}

zoff_status zoff_agreement_norm_open(zoff_agreement *a)
{
    if (!a->norm.ranks.comm)
        return ZOFF_OK;
    ZOFF_TRY(open_channel(&a->norm));
    /* An engine that has failed before says so here, in a vote without numbers: so all must vote without them. */
    ZOFF_TRY(zoff_agreement_vote_success(&a->norm.ranks, ZOFF_OK));
    return compare_names(a);
}

void zoff_agreement_norm_close(zoff_agreement *a)
{
    zoff_norm_ranks *n = &a->norm;
    zoff_base_mem_free(n->names);
    n->names = NULL;
    n->most = 0;
    if (n->is_open) {
        zoff_comm_channel_close(n->ranks.comm, &n->channel);
        zoff_comm_channel_leave(n->ranks.comm, &n->channel);
    }
    n->is_open = n->ranks.is_over = false;
}

/* ---- in a step ---- */

zoff_status zoff_agreement_norm_ask(zoff_agreement *a, const zoff_norm_part *own)
{
    zoff_norm_ranks *n = &a->norm;
    const unsigned rank = zoff_comm_rank(n->ranks.comm);
    n->parts[rank] = *own;
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                                 .channel = &n->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_VOTE},
                                 .in = &n->parts[rank],
                                 .out = n->parts,
                                 .count = sizeof *n->parts};
    return zoff_comm_start(n->ranks.comm, &call, &n->ranks.work);
}

/* The first rank that has a term. An engine that trains nothing has no factor. */
static unsigned first_with(const zoff_norm_ranks *n, unsigned term)
{
    unsigned rank = 0;
    while (term == ZOFF_NORM_SCALE && rank + 1 < zoff_comm_size(n->ranks.comm) && n->parts[rank].terms[term] == 0)
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
    for (unsigned rank = 0; rank < zoff_comm_size(n->ranks.comm); rank++)
        ZOFF_FAIL_IF(n->parts[rank].status < 0, ZOFF_ERR_COMM,
                     "rank %u of zoff_engine_opts.norm_comm cannot take the step: see the message of that rank for the cause; "
                     "nothing is updated",
                     rank);
    for (unsigned i = 0; i < ZOFF_NORM_TERMS; i++) {
        const unsigned first = first_with(n, i);
        const double wanted = n->parts[first].terms[i];
        for (unsigned rank = first + 1; rank < zoff_comm_size(n->ranks.comm); rank++) {
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
    ZOFF_TRY_DONE(zoff_comm_poll(n->ranks.comm, &n->ranks.work));
    ZOFF_TRY(compare(n));
    *out = (zoff_norm_part){.rank = UINT32_MAX};
    for (unsigned i = 0; i < ZOFF_NORM_TERMS; i++)
        out->terms[i] = n->parts[first_with(n, i)].terms[i];
    for (unsigned rank = 0; rank < zoff_comm_size(n->ranks.comm); rank++) {
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
    return a->norm.ranks.comm ? zoff_comm_wait(a->norm.ranks.comm, &a->norm.ranks.work) : ZOFF_OK;
}

/* Do not free memory of a message that cannot be cancelled. */
void zoff_agreement_norm_abandon(zoff_agreement *a)
{
    zoff_norm_ranks *n = &a->norm;
    if (!n->ranks.comm)
        return;
    zoff_comm_abandon(n->ranks.comm, &n->ranks.work);
    zoff_comm_abandon(n->ranks.comm, &n->barrier.work);
    if (zoff_comm_lets_go(n->ranks.comm))
        return;
    n->names = NULL;
    n->barrier.all = NULL;
}

/* ---- replicas ----
 *
 * Several engines have a parameter with norm_replicated. A difference between them would let their weights drift apart without
 * a sign, because each goes on with its own numbers. A step that finds none needs no message of its own, because the norm
 * carries one number. A rank multiplies the checksum of each replica (zoff_alike) by a factor and adds them up, so that the
 * total over all engines is 0. The factors come from names, because engines have different parameters. Only if the total is not
 * 0 do ranks send the checksums of each parameter. */

uint64_t zoff_agreement_norm_replicas(const zoff_agreement *a)
{
    const zoff_alike *alike = a->transfer->measure.alike;
    uint64_t sum = 0;
    for (size_t i = 0; alike && i < a->model->param_count; i++)
        sum += alike[i].factor * alike[i].replicas;
    return sum;
}

/* Compare numbers of the parameters in n->names, in their order. */
static zoff_status name_difference(const zoff_agreement *a, const uint64_t *values, const char *what, const char *advice)
{
    const zoff_norm_ranks *n = &a->norm;
    const char *name = "a parameter";
    for (unsigned rank = 0; rank < zoff_comm_size(n->ranks.comm); rank++) {
        for (size_t i = 0; i < n->most; i++) {
            const uint64_t key = n->names[rank * n->most + i];
            const uint64_t *found = NULL;
            unsigned lowest = 0;
            while (key != UINT64_MAX && key & 1 && lowest < rank && !((found = find(n, lowest, key)) && *found & 1))
                lowest++;
            if (!found || lowest == rank || values[found - n->names] == values[rank * n->most + i])
                continue;
            for (size_t p = 0; p < a->model->param_count; p++)
                name = name_of(a->model->params[p].name) == (key & ~UINT64_C(1)) ? a->model->params[p].name : name;
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
    const unsigned rank = zoff_comm_rank(n->ranks.comm);
    const uint64_t *found = find(n, rank, name_of(name));
    return (size_t)(found - n->names) - rank * n->most;
}

/* Add up what each rank of the engine has of `own`. `of_ranks`: memory for it. */
static zoff_status add_up_ranks(zoff_agreement *a, uint64_t *of_ranks, uint64_t *own)
{
    const size_t most = a->norm.most;
    memcpy(of_ranks + zoff_comm_rank(a->comm) * most, own, most * sizeof *own);
    ZOFF_TRY(zoff_agreement_vote_gather(&a->ranks, of_ranks, most * sizeof *own));
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
    const size_t ranks = zoff_comm_size(a->comm), engines = zoff_comm_size(n->ranks.comm),
                 own = zoff_comm_rank(n->ranks.comm) * n->most;
    uint64_t *values = NULL;
    zoff_status status =
        zoff_base_mem_alloc((ranks + engines) * n->most, sizeof *values, "checksums of replicated parameters", &values);
    if (status == ZOFF_OK)
        status = list(a, values + own);
    status = zoff_agreement_vote_success(&a->norm.ranks, zoff_agreement_vote_success(&a->ranks, status));
    if (status == ZOFF_OK && adds)
        status = add_up_ranks(a, values + engines * n->most, values + own);
    if (status == ZOFF_OK)
        status = zoff_agreement_vote_gather(&a->norm.ranks, values, n->most * sizeof *values);
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

zoff_status zoff_agreement_norm_explain(zoff_agreement *a)
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
    char *copy = NULL;
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

zoff_status zoff_agreement_norm_first_weights(zoff_agreement *a)
{
    zoff_status status = zoff_agreement_vote_success(&a->norm.ranks, zoff_agreement_listed_compare_weights(a));
    if (status == ZOFF_OK && a->norm.most)
        status = compare_engines(a, list_weights, false, "zoff_engine_seal: the first weights",
                                 "Give these ranks the same weights before seal, for example by a broadcast");
    a->norm.ranks.is_over = a->norm.ranks.is_over || status < 0;
    return status;
}

/* ---- the norm as bytes that the program joins with those of other engines (zoff_norm_sum) ---- */

enum { NORM_SUM_MARK = 0x326d736e /* "nsm2": change this mark with the record */ };

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
