/* SPDX-License-Identifier: Apache-2.0 */
/* vote.c: ranks exchange small values. A vote is one gather in which the status of each rank rides in front of its numbers, so
 * that the error of one rank is that of all. Otherwise a rank would go on, and wait in its next call for one that has failed.
 * The rank that failed keeps its own message, and the others name it.
 *
 * Other decisions of an engine's ranks follow: whether a host has memory for all of its ranks, and which slices take part in a
 * step. */
#include "agreement.h"

#include "bits.h"
#include "budget.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

/* ---- votes ---- */

zoff_status zoff_agreement_vote_allocate(zoff_voters *v)
{
    const size_t words = (size_t)zoff_comm_size(v->comm) * (1 + ZOFF_VOTE_NUMBERS);
    return v->words ? ZOFF_OK : zoff_base_mem_alloc(words, sizeof *v->words, "values of ranks", &v->words);
}

zoff_status zoff_agreement_vote_open(zoff_agreement *a)
{
    a->ranks.comm = a->comm;
    a->ranks.channel = a->channel;
    a->ranks.whose = "";
    return zoff_agreement_vote_allocate(&a->ranks);
}

void zoff_agreement_vote_close(zoff_agreement *a)
{
    if (!a->comm || zoff_comm_lets_go(a->comm)) /* free them only if no message may still read them */
        zoff_base_mem_free(a->ranks.words);
    a->ranks = (zoff_voters){.words = NULL};
}

zoff_status zoff_agreement_vote_gather(zoff_voters *v, void *all, size_t bytes)
{
    const zoff_comm_call call = {.kind = ZOFF_COMM_GATHER,
                                 .channel = v->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_AGREEMENT},
                                 .in = (char *)all + zoff_comm_rank(v->comm) * bytes,
                                 .out = all,
                                 .count = bytes};
    ZOFF_TRY(zoff_comm_start(v->comm, &call, &v->work));
    return zoff_comm_wait(v->comm, &v->work);
}

zoff_status zoff_agreement_vote_share(zoff_voters *v, unsigned root, void *bytes, size_t count)
{
    const zoff_comm_call call = {.kind = ZOFF_COMM_BROADCAST,
                                 .channel = v->channel,
                                 .item = {.about = ZOFF_COMM_ABOUT_AGREEMENT},
                                 .out = bytes,
                                 .count = count,
                                 .root = root};
    if (zoff_comm_size(v->comm) == 1)
        return ZOFF_OK;
    ZOFF_TRY(zoff_comm_start(v->comm, &call, &v->work));
    return zoff_comm_wait(v->comm, &v->work);
}

zoff_status zoff_agreement_vote_tell(const zoff_voters *v, unsigned failed)
{
    return zoff_base_status_fail(ZOFF_ERR_COMM,
                                 "rank %u%s has failed, and this one has not: see the message of that rank for the cause",
                                 failed, v->whose);
}

zoff_status zoff_agreement_vote(zoff_voters *v, zoff_status own, const uint64_t *numbers, size_t count)
{
    const unsigned ranks = zoff_comm_size(v->comm);
    uint64_t *mine = v->words + zoff_comm_rank(v->comm) * (1 + count);
    zoff_saved_error saved;
    unsigned failed = 0;
    zoff_base_status_save(&saved);
    mine[0] = own < 0;
    for (size_t i = 0; i < count; i++)
        mine[1 + i] = numbers[i];
    zoff_status status = zoff_agreement_vote_gather(v, v->words, (1 + count) * sizeof *v->words);
    while (status == ZOFF_OK && failed < ranks && !v->words[failed * (1 + count)])
        failed++;
    if (status == ZOFF_OK && failed < ranks)
        status = zoff_agreement_vote_tell(v, failed);
    v->is_over = v->is_over || status < 0;
    if (own < 0) {
        zoff_base_status_restore(&saved);
        return own;
    }
    return status;
}

zoff_status zoff_agreement_vote_success(zoff_voters *v, zoff_status own)
{
    return !v->comm || zoff_comm_size(v->comm) == 1 ? own : zoff_agreement_vote(v, own, NULL, 0);
}

zoff_status zoff_agreement_vote_least(zoff_voters *v, zoff_status own, uint64_t *numbers, size_t count)
{
    const unsigned ranks = zoff_comm_size(v->comm);
    if (ranks == 1)
        return own;
    ZOFF_TRY(zoff_agreement_vote(v, own, numbers, count));
    for (size_t i = 0; i < ranks * count; i++)
        numbers[i % count] = zoff_base_bits_min(numbers[i % count], v->words[i / count * (1 + count) + 1 + i % count]);
    return ZOFF_OK;
}

/* ---- in which call the program waits ---- */

void zoff_agreement_identity_enter(zoff_agreement *a, unsigned call, zoff_comm_item item)
{
    zoff_comm_enter(a->comm, a->channel, call, item);
}

zoff_status zoff_agreement_identity_exit(zoff_agreement *a, zoff_status status)
{
    zoff_comm_exit(a->comm, status >= 0);
    return status;
}

/* ---- the memory of a host: each rank has checked only its own need, but ranks share the machine and their cgroups ---- */

/* Message of a rank to the others: its need, and its memory limits. */
typedef struct share {
    uint64_t need, levels;
    zoff_budget_level level[ZOFF_BUDGET_LEVELS];
} share;

/* The need of all ranks that share a memory limit, and the available memory. */
typedef struct total {
    uint64_t need, have;
    unsigned ranks;
} total;

static const zoff_budget_level *find_level(const share *s, uint64_t id)
{
    for (size_t i = 0; i < s->levels; i++) {
        if (s->level[i].id == id)
            return &s->level[i];
    }
    return NULL;
}

static total add_up(const share *all, unsigned ranks, uint64_t id)
{
    total t = {.have = UINT64_MAX};
    for (unsigned rank = 0; rank < ranks; rank++) {
        const zoff_budget_level *level = find_level(&all[rank], id);
        if (!level)
            continue;
        t.need += all[rank].need;
        t.have = level->bytes < t.have ? level->bytes : t.have;
        t.ranks++;
    }
    return t;
}

/* "rank 0 772.0 MiB, rank 1 772.0 MiB and 6 more" */
static void list_ranks(const share *all, unsigned ranks, uint64_t id, char *dst, size_t dst_bytes)
{
    enum { NAMED = 8 };
    unsigned named = 0, more = 0;
    size_t used = 0;
    dst[0] = 0;
    for (unsigned rank = 0; rank < ranks; rank++) {
        if (!find_level(&all[rank], id))
            continue;
        if (named == NAMED) {
            more++;
            continue;
        }
        const int written = snprintf(dst + used, dst_bytes - used, "%srank %u %s", named ? ", " : "", rank,
                                     zoff_base_words_bytes(all[rank].need));
        used = zoff_base_bits_min(used + (size_t)written, dst_bytes - 1);
        named++;
    }
    if (more)
        (void)snprintf(dst + used, dst_bytes - used, " and %u more", more);
}

static zoff_status compare_memory(const zoff_agreement *a, const share *all, const char *advice)
{
    const unsigned ranks = zoff_comm_size(a->comm);
    const share *own = &all[zoff_comm_rank(a->comm)];
    char list[512];
    for (size_t i = 0; i < own->levels; i++) {
        const total t = add_up(all, ranks, own->level[i].id);
        if (t.ranks < 2 || t.need <= t.have)
            continue; /* skip a single rank, because its need was checked before */
        list_ranks(all, ranks, own->level[i].id, list, sizeof list);
        return zoff_base_status_fail(
            ZOFF_ERR_NO_MEMORY,
            "zoff_engine_seal: not enough DRAM for the %u ranks that share %s: together they need %s (%s), have %s (%s); start "
            "fewer ranks there, %s",
            t.ranks, i ? "this cgroup" : "this host", zoff_base_words_bytes(t.need), list, zoff_base_words_bytes(t.have),
            i ? "cgroup limit" : "MemAvailable", advice);
    }
    return ZOFF_OK;
}

zoff_status zoff_agreement_vote_memory(zoff_agreement *a, uint64_t need_bytes, const char *advice)
{
    share *all = NULL;
    if (zoff_comm_size(a->comm) == 1)
        return ZOFF_OK;
    zoff_status status = zoff_base_mem_alloc(zoff_comm_size(a->comm), sizeof *all, "memory needs of ranks", &all);
    status = zoff_agreement_vote(&a->ranks, status, NULL, 0);
    if (status == ZOFF_OK) {
        share *mine = &all[zoff_comm_rank(a->comm)];
        mine->need = need_bytes;
        mine->levels = zoff_base_budget_levels("", mine->level);
        status = zoff_agreement_vote_gather(&a->ranks, all, sizeof *all);
    }
    if (status == ZOFF_OK) /* vote, because ranks on other hosts must learn of it */
        status = zoff_agreement_vote(&a->ranks, compare_memory(a, all, advice), NULL, 0);
    zoff_base_mem_free(all);
    return status;
}

/* ---- participation: the slices that a step updates, those with a gradient on any rank ---- */

static size_t words_of(const zoff_agreement *a)
{
    return zoff_base_bits_ceil_div(a->model->slice_count, 64);
}

/* The loop goes rank by rank, because reading one word of all ranks in turn would touch a different memory page each time. */
void zoff_agreement_participation_join(uint64_t *bits, size_t words, unsigned ranks)
{
    for (unsigned rank = 1; rank < ranks; rank++) {
        const uint64_t *theirs = bits + rank * words;
        for (size_t i = 0; i < words; i++)
            bits[i] |= theirs[i];
    }
}

static void unite(void *into, const void *other, size_t bytes)
{
    uint64_t *any = into;
    for (size_t i = 0; i < bytes / sizeof *any; i++)
        any[i] |= ((const uint64_t *)other)[i];
}

/* The first rank that has the gradient, and the first that has it not. */
typedef struct zoff_partial {
    unsigned with, without;
} zoff_partial;

static void join_partial(void *into, const void *other, size_t bytes)
{
    zoff_partial *p = into;
    const zoff_partial *o = other;
    p->with = o->with < p->with ? o->with : p->with;
    p->without = o->without < p->without ? o->without : p->without;
}

size_t zoff_agreement_participation_bytes(const zoff_agreement *a)
{
    size_t lists = 1;
    for (size_t i = 0; i < a->model->param_count; i++)
        lists = a->model->params[i].reduced ? 2 : lists;
    return lists * words_of(a) * sizeof(uint64_t);
}

zoff_status zoff_agreement_participation_open(zoff_agreement *a)
{
    zoff_report *r = &a->participation.report;
    if (zoff_comm_size(a->comm) == 1)
        return ZOFF_OK;
    r->item.about = a->participation.partial.item.about = ZOFF_COMM_ABOUT_PARTICIPATION;
    r->join = unite;
    a->participation.partial.join = join_partial;
    ZOFF_TRY(zoff_agreement_report_open(a->comm, sizeof(zoff_partial), &a->participation.partial));
    return zoff_agreement_report_open(a->comm, zoff_agreement_participation_bytes(a), r);
}

void zoff_agreement_participation_close(zoff_agreement *a)
{
    zoff_base_mem_free(a->participation.report.all);
    zoff_base_mem_free(a->participation.partial.all);
    a->participation.report.all = a->participation.partial.all = NULL;
}

static zoff_status ask(zoff_agreement *a)
{
    const size_t words = words_of(a), all = a->participation.report.bytes / sizeof(uint64_t);
    uint64_t *own = (uint64_t *)(void *)a->participation.report.all;
    memset(own, 0, words * sizeof *own);
    for (size_t i = 0; i < a->model->slice_count; i++)
        own[i / 64] |= (uint64_t)(a->model->flags[i] != 0) << i % 64;
    for (size_t i = words; i < all; i++)
        own[i] = ~own[i - words];
    ZOFF_TRY(zoff_agreement_report_start(a->comm, a->channel, &a->participation.report));
    a->participation.asked = true;
    return ZOFF_OK;
}

/* Whether some rank has the gradient of a slice; with `list` 1: whether some rank has it not. */
static bool has(const zoff_agreement *a, unsigned list, size_t number)
{
    const uint64_t *bits = (const uint64_t *)(const void *)a->participation.report.all;
    return bits[list * words_of(a) + number / 64] >> number % 64 & 1;
}

/* Find a gradient that the trainer has reduced and that only some ranks have. All must have it, or none, because it is read
 * from one rank only. */
static const zoff_model_param *find_partial(const zoff_agreement *a, size_t *slice)
{
    for (size_t i = 0; i < a->model->param_count; i++) {
        const zoff_model_param *p = &a->model->params[i];
        for (*slice = 0; p->reduced && *slice < p->slices; (*slice)++) {
            if (has(a, 0, p->first_flag + *slice) && has(a, 1, p->first_flag + *slice))
                return p;
        }
    }
    return NULL;
}

static zoff_status start_partial(zoff_agreement *a, const zoff_model_param *p, size_t slice)
{
    zoff_partial *own = (zoff_partial *)(void *)a->participation.partial.all;
    const bool is_here = a->model->flags[p->first_flag + slice] != 0;
    if (a->participation.names)
        return ZOFF_OK;
    *own = (zoff_partial){.with = is_here ? a->plan->rank : UINT32_MAX, .without = is_here ? UINT32_MAX : a->plan->rank};
    ZOFF_TRY(zoff_agreement_report_start(a->comm, a->channel, &a->participation.partial));
    a->participation.names = true;
    return ZOFF_OK;
}

static zoff_status compare_reduced(zoff_agreement *a)
{
    size_t slice;
    const zoff_model_param *p = find_partial(a, &slice);
    if (!p)
        return ZOFF_OK;
    ZOFF_TRY(start_partial(a, p, slice));
    ZOFF_TRY_DONE(zoff_agreement_report_poll(a->comm, a->channel, &a->participation.partial));
    const zoff_partial *ranks = (const zoff_partial *)(const void *)a->participation.partial.all;
    return zoff_base_status_fail(
        ZOFF_ERR_INVALID,
        "%s has zoff_param_desc.reduced, but only rank %u of ranks %u and %u has handed over the gradient of its slice %zu: "
        "every rank must, or none. Call zoff_grads_drop() on every rank, and repeat the step",
        p->name, ranks->with, ranks->with < ranks->without ? ranks->with : ranks->without,
        ranks->with < ranks->without ? ranks->without : ranks->with, slice);
}

/* Other ranks wait for this one in what has begun. */
zoff_status zoff_agreement_participation_finish(zoff_agreement *a)
{
    const zoff_model_param *p;
    size_t slice;
    if (!a->participation.asked || a->participation.agreed)
        return ZOFF_OK;
    ZOFF_TRY(zoff_agreement_report_wait(a->comm, a->channel, &a->participation.report));
    if ((p = find_partial(a, &slice)))
        ZOFF_TRY(start_partial(a, p, slice));
    return zoff_agreement_report_wait(a->comm, a->channel, &a->participation.partial);
}

void zoff_agreement_participation_begin(zoff_agreement *a)
{
    a->participation.asked = a->participation.names = a->participation.agreed = false;
}

/* A slice takes part on every rank if any rank has its gradient. */
zoff_status zoff_agreement_participation_poll(zoff_agreement *a)
{
    if (a->participation.agreed)
        return ZOFF_OK;
    if (!a->participation.asked)
        ZOFF_TRY(ask(a));
    ZOFF_TRY_DONE(zoff_agreement_report_poll(a->comm, a->channel, &a->participation.report));
    ZOFF_TRY_DONE(compare_reduced(a));
    for (size_t i = 0; i < a->model->slice_count; i++)
        a->model->flags[i] |= has(a, 0, i) ? ZOFF_SLICE_PRESENT : 0;
    a->participation.agreed = true;
    return ZOFF_OK;
}

uint64_t zoff_agreement_participation_elements(const zoff_agreement *a)
{
    uint64_t count = 0;
    for (size_t b = 0; b < a->plan->chunk_count; b++) {
        const zoff_plan_chunk *c = &a->plan->chunks[b];
        for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
            const zoff_plan_piece *piece = &a->plan->pieces[i];
            count += !a->model->params[piece->param].frozen && *zoff_model_params_flag(a->model, piece) ? piece->count : 0;
        }
    }
    return count;
}
