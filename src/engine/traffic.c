/* SPDX-License-Identifier: Apache-2.0 */
/* traffic.c: what a rank sends in a step, by the functions that size the messages. It needs a plan and the number of ranks, and
 * neither memory of the exchange nor other ranks, so it also counts for a rank of thousands that do not exist. */
#include "engine_priv.h"

#include "try.h"

#include <string.h>

/* The parts of an engine that size messages, as they are with this plan once it is sealed, for a step in which every slice
 * takes part. */
typedef struct sized {
    zoff_comm comm; /* rank, size, node, group, flat and message_bytes */
    zoff_model model;
    zoff_lending lending;
    zoff_transfer transfer;
    zoff_agreement agreement;
} sized;

static zoff_status open_sized(const zoff_engine *e, const zoff_plan *plan, sized *s)
{
    const zoff_comm_grid *nodes = &e->transfer.ranks.levels.nodes;
    *s = (sized){.comm = {.rank = e->comm->rank,
                          .size = e->comm->size,
                          .node = e->comm->node           ? e->comm->node
                                  : nodes->node_ranks > 1 ? nodes->node_ranks
                                                          : 0,
                          .group = e->lending.group.members,
                          .flat = e->comm->flat,
                          .message_bytes = e->comm->message_bytes},
                 .model = e->model,
                 .lending = e->lending,
                 .transfer = e->transfer,
                 .agreement = e->agreement};
    s->model.flags = NULL;
    s->lending.cache.slices = NULL;
    s->lending.model = s->transfer.model = s->agreement.model = &s->model;
    s->lending.plan = s->transfer.plan = s->agreement.plan = plan;
    s->lending.comm = s->transfer.comm = s->agreement.comm = &s->comm;
    s->transfer.lending = &s->lending;
    ZOFF_TRY(zoff_base_mem_alloc(e->model.slice_count, sizeof *s->model.flags, "the flags of slices", &s->model.flags));
    memset(s->model.flags, 1, e->model.slice_count);
    if (!zoff_model_params_any_owned(&e->model))
        return ZOFF_OK;
    zoff_cached_slice **slices = &s->lending.cache.slices;
    ZOFF_TRY(zoff_base_mem_alloc(e->model.slice_count, sizeof **slices, "the table of slices", slices));
    zoff_lending_param_cache_list(&s->lending, plan, *slices);
    return ZOFF_OK;
}

/* Decisions of a step: which slices take part, the votes, and, with states that persist, the commit. */
static void count_report(const zoff_engine *e, const sized *s, zoff_comm_traffic *sum)
{
    const zoff_comm_call commits[] = {zoff_engine_stores_commit_call(e, ZOFF_COMMIT_WRITTEN),
                                      zoff_engine_stores_commit_call(e, ZOFF_COMMIT_TOLD)};
    if (s->agreement.plan->chunk_count)
        zoff_agreement_report_count(&s->comm, zoff_agreement_participation_bytes(&s->agreement), sum);
    zoff_agreement_report_count(&s->comm, sizeof e->gate.vote, sum);
    for (size_t i = 0; i < 2 && zoff_engine_stores_commit_together(e); i++)
        zoff_comm_call_add_traffic(&s->comm, &commits[i], sum);
}

static zoff_plan_traffic shown(const zoff_comm_traffic *t)
{
    return (zoff_plan_traffic){
        .sent_bytes = t->sent_bytes, .node_bytes = t->node_bytes, .notes = t->notes, .messages = t->messages};
}

static zoff_status add_up(const zoff_engine *e, sized *s, zoff_plan_info *info)
{
    zoff_comm_traffic reduce = {.notes = 0}, report = reduce, gather = reduce, fetch = reduce;
    const zoff_matrices_opts matrices = {.plan = s->transfer.plan,
                                         .model = &s->model,
                                         .exchanges = zoff_transfer_ranks_have_parts(&s->transfer),
                                         .comm = &s->comm,
                                         .threads = info->threads};
    ZOFF_TRY(zoff_transfer_ranks_traffic(&s->transfer, &reduce, &gather));
    ZOFF_TRY(zoff_matrices_traffic(&matrices, &gather));
    ZOFF_TRY(zoff_lending_secondary_traffic(&s->lending, &gather));
    ZOFF_TRY(zoff_lending_param_gather_traffic(&s->lending, &fetch));
    count_report(e, s, &report);
    info->reduce = shown(&reduce);
    info->report = shown(&report);
    info->gather = shown(&gather);
    info->fetch = shown(&fetch);
    return ZOFF_OK;
}

zoff_status zoff_engine_traffic(const zoff_engine *e, const zoff_plan *plan, zoff_plan_info *info)
{
    sized s;
    const zoff_levels *l = &e->transfer.ranks.levels;
    if (zoff_comm_size(e->comm) == 1)
        return ZOFF_OK;
    info->exact_sums = e->model.exact_sums;
    info->sum_ranks = l->sums.node_ranks;
    info->sums_once = l->keeps;
    zoff_status status = open_sized(e, plan, &s);
    if (status == ZOFF_OK)
        status = add_up(e, &s, info);
    zoff_base_mem_free(s.model.flags);
    zoff_base_mem_free(s.lending.cache.slices);
    return status;
}
