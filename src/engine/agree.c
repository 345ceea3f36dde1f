/* agree.c: what all ranks must see alike: the list of parameters and the settings, the first weights, and in each step which
 * slices take part. */
#include "engine_priv.h"

#include "bits.h"
#include "try.h"

#include <string.h>

zoff_status zoff_engine_agree_gather(zoff_engine *e, void *all, size_t bytes)
{
    const unsigned ranks = zoff_comm_size(e->comm);
    size_t *each;
    zoff_comm_work work = {.active = false};
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *each, "what ranks must agree on", &each));
    for (unsigned i = 0; i < ranks; i++)
        each[i] = bytes;
    const zoff_comm_call call = {
        .kind = ZOFF_COMM_GATHER, .in = (char *)all + zoff_comm_rank(e->comm) * bytes, .out = all, .receive_bytes = each};
    zoff_status status = zoff_comm_start(e->comm, &call, &work);
    if (status == ZOFF_OK)
        status = zoff_comm_wait(e->comm, &work);
    zoff_base_mem_free(each);
    return status;
}

/* ---- the list ---- */

/* What may not differ, with a word for messages. */
enum { PARAMS, ELEMENTS, LAYOUT, STAGE, ACCUMULATION, ADDS, WIRE, CHUNKS, PERSIST, NUMBERS, TERMS };
static const char *const WORDS[TERMS] = {
    "number of parameters",
    "number of elements",
    "list of parameters (names, sizes, order, types, groups; as a checksum)",
    "zero_optimization.stage",
    "gradient_accumulation_steps",
    "zoff.reduce_scatter",
    "communication_data_type",
    "number of buckets (of the same sub_group_size, reduce_bucket_size, zoff.host_memory)",
    "zoff.persist",
    "optimizer, scheduler, fp16, gradient_clipping, prescale or offload_optimizer.ratio settings (as a checksum)"};

/* What a step of each rank computes with: the configuration's numbers, where the program gives no others. */
static uint64_t hash_numbers(const zoff_config_values *v)
{
    const double numbers[] = {v->clip_norm,      v->grad_factor,         v->hyper.optimizer,
                              v->hyper.lr,       v->hyper.beta1,         v->hyper.beta2,
                              v->hyper.eps,      v->hyper.weight_decay,  v->hyper.momentum,
                              v->hyper.decay,    v->schedule.type,       v->initial_accumulator,
                              v->fp16.enabled,   v->fp16.dynamic,        v->fp16.scale,
                              v->fp16.min_scale, (double)v->fp16.window, (double)v->fp16.hysteresis,
                              v->ratio};
    return zoff_offload_layout(numbers, sizeof numbers);
}

static zoff_status describe(const zoff_engine *e, uint64_t *terms)
{
    enum { WORDS_OF_PARAM = 8 };
    uint64_t *words, used = 0;
    ZOFF_TRY(zoff_base_mem_alloc(WORDS_OF_PARAM * e->param_count + 1, sizeof *words, "the list of parameters", &words));
    memset(terms, 0, TERMS * sizeof *terms);
    for (size_t i = 0; i < e->param_count; i++) {
        const zoff_engine_param *p = &e->params[i];
        const uint64_t of_param[WORDS_OF_PARAM] = {zoff_offload_layout(p->name, strlen(p->name)),
                                                   p->count,
                                                   p->slices,
                                                   (uint64_t)p->dtype,
                                                   (uint64_t)p->grad_dtype,
                                                   p->group,
                                                   p->frozen,
                                                   p->engine_owned};
        memcpy(words + used, of_param, sizeof of_param);
        used += WORDS_OF_PARAM;
        terms[ELEMENTS] += p->count * p->slices;
    }
    terms[PARAMS] = e->param_count;
    terms[LAYOUT] = zoff_offload_layout(words, used * sizeof *words);
    terms[STAGE] = e->settings.values.zero_stage;
    terms[ACCUMULATION] = e->settings.values.accumulation;
    terms[ADDS] = e->settings.values.nccl_adds;
    terms[WIRE] = (uint64_t)e->settings.values.wire_dtype;
    terms[CHUNKS] = e->plan.chunk_count;
    terms[PERSIST] = e->settings.values.persist;
    terms[NUMBERS] = hash_numbers(&e->settings.values);
    zoff_base_mem_free(words);
    return ZOFF_OK;
}

static zoff_status compare(const zoff_engine *e, const uint64_t *all)
{
    const unsigned ranks = zoff_comm_size(e->comm);
    for (unsigned rank = 1; rank < ranks; rank++) {
        for (int term = 0; term < TERMS; term++) {
            const uint64_t theirs = all[rank * TERMS + (unsigned)term];
            ZOFF_FAIL_IF(
                theirs != all[term], ZOFF_ERR_INVALID,
                "zoff_engine_seal: ranks 0 and %u differ in their %s: %llu and %llu; every rank must register the same "
                "parameters in the same order, with the same configuration",
                rank, WORDS[term], (unsigned long long)all[term], (unsigned long long)theirs);
        }
    }
    return ZOFF_OK;
}

static zoff_status describe_and_compare(zoff_engine *e, uint64_t *all)
{
    ZOFF_TRY(describe(e, all + zoff_comm_rank(e->comm) * TERMS));
    ZOFF_TRY(zoff_engine_agree_gather(e, all, TERMS * sizeof *all));
    return compare(e, all);
}

zoff_status zoff_engine_agree_list(zoff_engine *e)
{
    uint64_t *all;
    if (!zoff_engine_ranks_several(e))
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc((size_t)zoff_comm_size(e->comm) * TERMS, sizeof *all, "what ranks must agree on", &all));
    zoff_status status = describe_and_compare(e, all);
    zoff_base_mem_free(all);
    return status;
}

/* ---- success ---- */

/* With its own words where it is this rank that failed. */
zoff_status zoff_engine_agree_success(zoff_engine *e, zoff_status own)
{
    const unsigned ranks = zoff_comm_size(e->comm), rank = zoff_comm_rank(e->comm);
    zoff_kept_error kept;
    int *all, failed = -1;
    if (ranks == 1)
        return own;
    zoff_base_status_keep(&kept);
    ZOFF_TRY(zoff_base_mem_alloc(ranks, sizeof *all, "what ranks must agree on", &all));
    all[rank] = own;
    zoff_status status = zoff_engine_agree_gather(e, all, sizeof *all);
    for (unsigned i = 0; status == ZOFF_OK && i < ranks; i++)
        failed = failed < 0 && all[i] < 0 ? (int)i : failed;
    zoff_base_mem_free(all);
    if (own < 0) {
        zoff_base_status_restore(&kept);
        return own;
    }
    ZOFF_TRY(status);
    ZOFF_FAIL_IF(failed >= 0, ZOFF_ERR_COMM, "rank %d has failed where this one has not: its own message says why", failed);
    return ZOFF_OK;
}

/* ---- the first weights ---- */

static zoff_status move_weights(zoff_engine *e, size_t used, bool to_program)
{
    if (zoff_engine_device_is(e))
        return zoff_engine_device_copy(e, e->ranks.moves, used, to_program);
    zoff_adam_cast_run(e->settings.threads, e->ranks.moves, used);
    return ZOFF_OK;
}

/* Of a bucket, as rank 0 has them in its program's memory. */
static zoff_status broadcast_bucket(zoff_engine *e, size_t bucket)
{
    const zoff_plan_part first = zoff_zero_plan_part(&e->plan, bucket, 0);
    const zoff_plan_part last = zoff_zero_plan_part(&e->plan, bucket, e->plan.ranks - 1);
    const bool is_source = e->plan.rank == 0;
    size_t used = 0, at = 0;
    for (size_t i = first.first_piece; i < last.first_piece + last.piece_count; i++) {
        const zoff_plan_piece *piece = &e->plan.pieces[i];
        const zoff_engine_param *p = &e->params[piece->param];
        if (p->frozen || p->engine_owned)
            continue;
        char *value = zoff_engine_params_value(e, piece, NULL), *wire = (char *)e->ranks.staging.base + at;
        e->ranks.moves[used++] = (zoff_cast_piece){.count = piece->count,
                                                   .dst = is_source ? wire : value,
                                                   .src = is_source ? value : wire,
                                                   .dst_dtype = p->dtype,
                                                   .src_dtype = p->dtype};
        at += piece->count * zoff_adam_dtype_bytes(p->dtype);
    }
    if (at == 0)
        return ZOFF_OK;
    if (is_source)
        ZOFF_TRY(move_weights(e, used, false));
    zoff_comm_work work = {.active = false};
    const zoff_comm_call call = {.kind = ZOFF_COMM_BROADCAST, .out = e->ranks.staging.base, .count = at};
    ZOFF_TRY(zoff_comm_start(e->comm, &call, &work));
    ZOFF_TRY(zoff_comm_wait(e->comm, &work));
    return is_source ? ZOFF_OK : move_weights(e, used, true);
}

zoff_status zoff_engine_agree_weights(zoff_engine *e)
{
    for (size_t b = 0; zoff_engine_ranks_several(e) && b < e->plan.chunk_count; b++)
        ZOFF_TRY(broadcast_bucket(e, b));
    return ZOFF_OK;
}

/* ---- who takes part ---- */

static zoff_status ask_presence(zoff_engine *e)
{
    const size_t bytes = e->ranks.bits_bytes[0];
    uint8_t *own = e->ranks.bits + e->plan.rank * bytes;
    memset(own, 0, bytes);
    for (size_t i = 0; i < e->slice_count; i++)
        own[i / 8] = (uint8_t)(own[i / 8] | (e->flags[i] != 0) << i % 8);
    const zoff_comm_call call = {
        .kind = ZOFF_COMM_GATHER, .in = own, .out = e->ranks.bits, .receive_bytes = e->ranks.bits_bytes};
    ZOFF_TRY(zoff_comm_start(e->comm, &call, &e->run.agreement));
    e->run.agreement_asked = true;
    return ZOFF_OK;
}

/* What any rank has takes part on all of them. */
static void take_presence(zoff_engine *e)
{
    const size_t bytes = e->ranks.bits_bytes[0];
    for (size_t i = 0; i < e->slice_count; i++) {
        for (unsigned rank = 0; rank < e->plan.ranks; rank++) {
            if (e->ranks.bits[rank * bytes + i / 8] >> i % 8 & 1)
                e->flags[i] |= ZOFF_SLICE_PRESENT;
        }
    }
}

/* Elements of this rank that take part. */
static uint64_t count_own(const zoff_engine *e)
{
    uint64_t count = 0;
    for (size_t b = 0; b < e->plan.chunk_count; b++) {
        const zoff_plan_chunk *c = &e->plan.chunks[b];
        for (size_t i = c->first_piece; i < c->first_piece + c->piece_count; i++) {
            const zoff_engine_param *p = &e->params[e->plan.pieces[i].param];
            count += !p->frozen && e->flags[p->first_flag + e->plan.pieces[i].slice] ? e->plan.pieces[i].count : 0;
        }
    }
    return count;
}

zoff_status zoff_engine_agree_presence(zoff_bucket_run *run)
{
    zoff_engine *e = run->engine;
    if (e->run.agreed)
        return ZOFF_OK;
    if (!e->run.agreement_asked)
        ZOFF_TRY(ask_presence(e));
    zoff_status status = zoff_comm_poll(e->comm, &e->run.agreement);
    if (status != ZOFF_OK)
        return status;
    take_presence(e);
    e->run.expected = count_own(e);
    e->run.agreed = true;
    zoff_engine_pipeline_drop_useless(e);
    return ZOFF_OK;
}
