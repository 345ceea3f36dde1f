/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c: the life of an engine: create, add parameters, seal, destroy. If seal fails, the engine is as before. */
#include "engine_priv.h"

#include "bits.h"
#include "clock.h"
#include "fork.h"
#include "log.h"
#include "structs.h"
#include "try.h"

#include <string.h>

/* ---- what other rooms borrow: they do not know the engine ---- */

/* The poller of the open step, and of gradients. Another rank may send its weights only after it has memory for gradients, and
 * it gets that memory only after this rank has received some. Or it waits in the step for this one. */
static zoff_status pump_step(void *ctx)
{
    zoff_engine *e = ctx;
    (void)zoff_transfer_reduce_scatter_go_on(&e->transfer);
    return zoff_engine_overlap_go_on(e);
}

static void connect_parts(zoff_engine *e)
{
    e->model.values = &e->settings.values;
    e->io.step = (zoff_poller){.pump = pump_step, .ctx = e};
    e->lending = (zoff_lending){.model = &e->model,
                                .plan = &e->plan,
                                .values = &e->settings.values.weights,
                                .channel = &e->channel,
                                .progress = &e->progress,
                                .pollers = {.stored = &e->io.weights,
                                            .reads = &e->io.weights,
                                            .ranks = &e->transfer.pollers.ranks,
                                            .device = &e->transfer.pollers.device,
                                            .step = &e->io.step}};
    e->transfer = (zoff_transfer){.model = &e->model,
                                  .plan = &e->plan,
                                  .lending = &e->lending,
                                  .values = &e->settings.values,
                                  .channel = &e->channel,
                                  .progress = &e->progress,
                                  .info = &e->run.info};
    e->agreement = (zoff_agreement){.model = &e->model, .plan = &e->plan, .channel = &e->channel, .transfer = &e->transfer};
}

zoff_engine_view zoff_engine_engine_view(zoff_engine *e)
{
    return (zoff_engine_view){.model = &e->model,
                              .plan = &e->plan,
                              .values = &e->settings.values,
                              .agreement = &e->agreement,
                              .transfer = &e->transfer,
                              .lending = &e->lending,
                              .store = e->store,
                              .comm = e->comm,
                              .progress = &e->progress,
                              .guard = &e->io.guard,
                              .save_wait_seconds = &e->run.save_wait_seconds,
                              .configuration = e->settings.words.configuration,
                              .t = e->t,
                              .threads = e->settings.threads,
                              .tier = e->settings.tier};
}

/* ---- create ---- */

static const char *param_name(const void *ctx, uint32_t param)
{
    const zoff_engine *e = ctx;
    return param < e->model.param_count ? e->model.params[param].name : NULL;
}

zoff_status zoff_engine_create(const zoff_engine_opts *opts, zoff_engine **out)
{
    zoff_status status;
    zoff_engine *e;
    ZOFF_FAIL_IF(!out, ZOFF_ERR_INVALID, "zoff_engine_create: out must not be NULL");
    ZOFF_TRY(zoff_base_mem_alloc(1, sizeof *e, "an engine", &e));
    e->life.process = zoff_base_fork_number();
    connect_parts(e);
    ZOFF_TRY_OR(destroy, zoff_engine_options_merge(e, opts));
    ZOFF_TRY_OR(destroy, zoff_agreement_vote_open(&e->agreement));
    e->channel.param_name = param_name;
    e->channel.ctx = e;
    zoff_comm_channel_come(e->comm, &e->channel);
    *out = e;
    return ZOFF_OK;
destroy:
    zoff_engine_destroy(e);
    return status;
}

zoff_status zoff_engine_open_sized(const zoff_engine_opts *opts, const zoff_param_desc *params, size_t param_stride,
                                   size_t count, zoff_engine **out)
{
    zoff_status status;
    zoff_engine *e;
    ZOFF_FAIL_IF(!out || (count && !params), ZOFF_ERR_INVALID, "zoff_engine_open: params and out must not be NULL");
    ZOFF_FAIL_IF(count && param_stride == 0, ZOFF_ERR_INVALID, "zoff_engine_open: param_stride is 0; pass sizeof params[0]");
    ZOFF_TRY(zoff_engine_create(opts, &e));
    for (size_t i = 0; i < count; i++) {
        /* The caller's struct may be shorter or longer than this version's, so copy the common part. */
        zoff_param_desc desc = {0};
        const void *given = (const char *)params + i * param_stride;
        memcpy(&desc, given, zoff_base_bits_min(param_stride, sizeof desc));
        if (desc.struct_size == 0)
            desc.struct_size = zoff_base_bits_min(param_stride, sizeof desc);
        else
            ZOFF_TRY_OR(destroy, zoff_base_structs_check("zoff_param_desc", "ZOFF_PARAM_DESC_INIT", given, sizeof desc));
        desc.struct_size = zoff_base_bits_min(desc.struct_size, sizeof desc);
        ZOFF_TRY_OR(destroy, zoff_engine_add_param(e, &desc, NULL));
    }
    ZOFF_TRY_OR(destroy, zoff_engine_seal(e));
    *out = e;
    return ZOFF_OK;
destroy:
    zoff_engine_destroy(e);
    return status;
}

/* Choose the routes between the nodes. From two nodes on sums are exact by default, because nodes come and go. `has_room`:
 * for sums that stay on their rank until the last micro-batch. */
static void choose_sums(zoff_engine *e, bool has_room)
{
    zoff_transfer *t = &e->transfer;
    const zoff_config_values *v = &e->settings.values;
    const bool several = e->comm->node ? e->comm->node < zoff_comm_size(e->comm) : t->ranks.levels.nodes.nodes > 1;
    if (v->sums == ZOFF_SUMS_AUTO)
        zoff_transfer_sums_use(t, several && zoff_transfer_route_may_be_exact(t), &(zoff_map){.base = NULL});
    const bool is_wanted = v->between_nodes == ZOFF_BETWEEN_STEP || (v->between_nodes == ZOFF_BETWEEN_AUTO && has_room);
    t->ranks.levels.may_keep = is_wanted && zoff_transfer_levels_can_keep(t);
}

/* Before seal: choose the routes, if the nodes are known without other ranks. */
static void assume_nodes(zoff_engine *e)
{
    const unsigned size = zoff_comm_size(e->comm), node_ranks = zoff_comm_known_node(e->comm, e->settings.values.node_ranks);
    if (size == 1 || !node_ranks)
        return;
    e->transfer.ranks.levels.nodes = (zoff_comm_grid){.node_ranks = node_ranks, .nodes = size / node_ranks};
    choose_sums(e, zoff_transfer_levels_has_room(&e->transfer));
    zoff_transfer_levels_choose(&e->transfer);
}

static zoff_status find_ties(zoff_engine *e)
{
    ZOFF_TRY(zoff_model_ties_find(&e->model));
    const zoff_status status = zoff_model_matrices_find(&e->model, !e->agreement.norm.ranks.comm);
    if (status < 0)
        zoff_model_ties_dissolve(&e->model);
    ZOFF_TRY(status);
    zoff_transfer_wire_measure(&e->transfer);
    return ZOFF_OK;
}

zoff_status zoff_engine_plan(const zoff_engine *e, zoff_plan_info *out)
{
    ZOFF_ENTER(e);
    zoff_plan plan;
    zoff_plan_info info;
    ZOFF_FAIL_IF(!e || !out, ZOFF_ERR_INVALID, "zoff_engine_plan: engine and out must not be NULL");
    ZOFF_TRY(zoff_base_structs_check_out("zoff_plan_info", "ZOFF_PLAN_INFO_INIT", out));
    zoff_engine *own = (zoff_engine *)(uintptr_t)e; /* before seal: ties are found as seal does, then dissolved */
    const bool is_building = e->life.phase == ZOFF_PHASE_BUILDING;
    ZOFF_TRY(is_building ? find_ties(own) : ZOFF_OK);
    if (is_building)
        assume_nodes(own);
    const zoff_planning planning = zoff_engine_planning(e);
    zoff_status status = zoff_planning_budget_plan(&planning, &plan, &info);
    if (status == ZOFF_OK) {
        status = zoff_engine_traffic(e, &plan, &info);
        zoff_zero_plan_free(&plan);
    }
    zoff_model_matrices_tell(&own->model, true);
    if (is_building)
        zoff_model_ties_dissolve(&own->model);
    ZOFF_TRY(status);
    zoff_base_structs_write(&info, sizeof info, out);
    return ZOFF_OK;
}

static zoff_status allocate_matrices(zoff_engine *e)
{
    const size_t pieces = e->plan.rounds.count ? e->plan.most.pieces : 0,
                 groups = e->plan.rounds.count ? e->model.group_count : 0;
    zoff_engine_matrices *x = &e->walk.matrices;
    ZOFF_TRY(zoff_base_mem_alloc(groups, sizeof *x->before, "constants of matrices", &x->before));
    ZOFF_TRY(zoff_base_mem_alloc(pieces, sizeof *x->applied, "constants of matrices", &x->applied));
    const zoff_matrices_opts opts = {.plan = &e->plan,
                                     .model = &e->model,
                                     .exchanges = zoff_transfer_ranks_have_parts(&e->transfer),
                                     .comm = e->comm,
                                     .channel = &e->channel,
                                     .threads = e->settings.threads};
    return zoff_matrices_open(&x->all, &opts);
}

/* Allocate all memory of seal except for the stores. */
static zoff_status allocate(zoff_engine *e)
{
    e->walk.hints.most = zoff_base_bits_min(e->settings.values.slots, e->plan.chunk_count);
    ZOFF_TRY(zoff_base_mem_alloc(e->plan.chunk_count, sizeof *e->walk.streamed, "buckets", &e->walk.streamed));
    ZOFF_TRY(zoff_base_mem_alloc(e->walk.hints.most, sizeof *e->walk.hints.chunks, "buckets", &e->walk.hints.chunks));
    ZOFF_TRY(zoff_base_mem_alloc(e->walk.hints.most, sizeof *e->walk.hints.arrays, "buckets", &e->walk.hints.arrays));
    ZOFF_TRY(allocate_matrices(e));
    ZOFF_TRY(zoff_base_mem_alloc(e->model.group_count, sizeof *e->gate.hyper, "hyper-parameters of groups", &e->gate.hyper));
    e->gate.votes.item.about = ZOFF_COMM_ABOUT_VOTE;
    e->gate.votes.join = zoff_transfer_measure_join;
    ZOFF_TRY(zoff_agreement_report_open(e->comm, sizeof e->gate.vote, &e->gate.votes));
    ZOFF_TRY(zoff_model_slices_open(&e->model, &e->plan));
    if (e->settings.values.check_use)
        ZOFF_TRY(zoff_traps_weights_open(&e->model, &e->plan, &e->life.traps));
    ZOFF_TRY(zoff_base_mem_alloc(e->plan.chunk_count, sizeof *e->walk.is_new, "buckets", &e->walk.is_new));
    e->lending.is_new = e->walk.is_new;
    ZOFF_TRY(zoff_agreement_participation_open(&e->agreement));
    ZOFF_TRY(zoff_transfer_measure_open(&e->transfer));
    ZOFF_TRY(zoff_speculation_open(&e->walk.speculation, e->transfer.device.staging.ahead, e->model.group_count,
                                   e->plan.chunk_count));
    return zoff_transfer_pieces_open(&e->transfer);
}

/* After the communicator broke, a message may still be in flight that cannot be cancelled. Memory that it reads is not
 * freed. */
static void leave_to_messages(zoff_engine *e)
{
    /* Other ranks may read these messages while they are in flight. */
    zoff_comm_abandon(e->comm, &e->gate.votes.work);
    zoff_comm_abandon(e->comm, &e->agreement.participation.report.work);
    zoff_comm_abandon(e->comm, &e->agreement.participation.partial.work);
    zoff_comm_abandon(e->comm, &e->run.talks.commit);
    zoff_agreement_norm_abandon(&e->agreement);
    zoff_comm_abandon(e->comm, &e->agreement.barrier.work);
    zoff_transfer_ranks_abandon(&e->transfer);
    zoff_comm_abandon(e->comm, &e->walk.matrices.all.exchange);
    zoff_lending_param_gather_close(&e->lending);
    zoff_lending_secondary_abandon(&e->lending);
    if (!e->comm || zoff_comm_lets_go(e->comm))
        return;
    ZOFF_WARN("rank %u: a message to a rank that has stopped is still in flight: %s of memory cannot be freed",
              zoff_comm_rank(e->comm),
              zoff_base_words_bytes(e->transfer.ranks.staging.bytes + e->transfer.accumulator.map.bytes +
                                    e->lending.cache.arena.bytes + e->walk.matrices.all.memory.map.bytes));
    e->transfer.accumulator.map = e->transfer.ranks.staging = e->walk.matrices.all.memory.map = (zoff_map){.base = NULL};
    zoff_lending_param_cache_leave(&e->lending);
    e->agreement.participation.report.all = e->agreement.participation.partial.all = NULL;
    e->agreement.barrier.all = NULL;
    e->gate.votes.all = NULL;
}

/* Advance operations that other ranks also wait for, and will also complete: prefetched weights of a pass that will not take
 * place, and the order of buckets.  @return PENDING: some are in flight */
static zoff_status finish_one_turn(zoff_engine *e)
{
    zoff_status reducing = ZOFF_OK, assembling = zoff_lending_param_gather_go_on(&e->lending);
    /* Once a step is measured on this rank, all ranks have voted, so they complete its exchanges, too. */
    if (e->transfer.ranks.reduce && (!e->transfer.batch.handed_over || e->life.phase == ZOFF_PHASE_MEASURED))
        reducing = zoff_zero_reduce_poll(e->transfer.ranks.reduce);
    return assembling < 0 || reducing < 0                           ? ZOFF_ERR_COMM
           : assembling == ZOFF_PENDING || reducing == ZOFF_PENDING ? ZOFF_PENDING
                                                                    : ZOFF_OK;
}

typedef struct last_wait {
    zoff_engine *engine;
    double until;
} last_wait;

static zoff_status finish_in_time(void *ctx)
{
    const last_wait *w = ctx;
    return zoff_base_clock_seconds() < w->until ? finish_one_turn(w->engine) : ZOFF_OK;
}

/* Abandoning these operations would break the communicator, which other engines may use. A rank that has stopped is waited for
 * only briefly. */
static void finish_messages(zoff_engine *e)
{
    enum { PATIENCE_SECONDS = 2 };
    zoff_saved_error saved;
    const bool ends = e->life.phase == ZOFF_PHASE_IDLE || e->life.phase == ZOFF_PHASE_MEASURED;
    if (!e->transfer.ranks.reduce || zoff_comm_is_broken(e->comm) || !ends)
        return;
    zoff_base_status_save(&saved);
    (void)zoff_transfer_wire_wait_until(&e->transfer, finish_in_time,
                                        &(last_wait){e, zoff_base_clock_seconds() + PATIENCE_SECONDS});
    zoff_base_status_restore(&saved);
}

/* Leave memory to a device that makes no progress and reports no error: it is not freed. */
static void leave_to_device(zoff_engine *e)
{
    if (zoff_transfer_streams_end(&e->transfer))
        return;
    ZOFF_WARN("accelerator \"%s\" does not finish its work: %s of memory and its streams cannot be freed, and "
              "it may still read and write gradients and weights of the program. Check the work in the program's stream",
              zoff_accel_name(e->accel),
              zoff_base_words_bytes(e->transfer.grads.bytes + e->transfer.device.staging.memory.bytes +
                                    e->transfer.accumulator.map.bytes + e->transfer.ranks.staging.bytes +
                                    e->lending.cache.arena.bytes));
    e->transfer.accumulator.map = e->transfer.ranks.staging = (zoff_map){.base = NULL};
    zoff_lending_param_cache_leave(&e->lending);
    if (e->transfer.device.tier.slots)
        zoff_engine_stores_leave_states(e);
    e->transfer.device = (zoff_device){.down = NULL};
    e->transfer.grads.count = 0;
    e->settings.owns_accel = false;
    if (!e->lending.there.link.stream)
        return;
    e->lending.there = (zoff_lending_device){.link.stream = NULL};
    zoff_engine_stores_leave_weights(e);
}

static void deallocate(zoff_engine *e)
{
    zoff_traps_weights_close(e->life.traps);
    e->life.traps = NULL;
    finish_messages(e);
    leave_to_messages(e); /* first, because freeing device memory may wait for all work of the device */
    leave_to_device(e);
    zoff_agreement_norm_close(&e->agreement);
    if (e->comm)
        zoff_comm_channel_close(e->comm, &e->channel);
    zoff_transfer_device_close(&e->transfer);
    zoff_transfer_intake_close(&e->transfer);
    zoff_model_slices_close(&e->model);
    zoff_transfer_ranks_close_wire(&e->transfer);
    zoff_lending_copies_close(&e->lending); /* before the stores, because its copies read them */
    zoff_engine_stores_close(e);
    zoff_model_program_bytes_close(&e->model.program);
    zoff_lending_secondary_close(&e->lending);
    zoff_lending_param_cache_close(&e->lending);
    zoff_transfer_arena_close(&e->transfer, &e->transfer.grads);
    zoff_agreement_open_free(&e->agreement);
    zoff_transfer_ranks_close(&e->transfer);
    zoff_transfer_streams_unwatch(&e->transfer);
    zoff_transfer_pieces_close(&e->transfer);
    zoff_transfer_measure_close(&e->transfer);
    zoff_agreement_participation_close(&e->agreement);
    zoff_speculation_close(&e->walk.speculation);
    zoff_matrices_close(&e->walk.matrices.all);
    void *blocks[] = {e->gate.hyper,        e->gate.votes.all, e->walk.streamed,        e->walk.hints.chunks,
                      e->walk.hints.arrays, e->walk.is_new,    e->walk.matrices.before, e->walk.matrices.applied};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        zoff_base_mem_free(blocks[i]);
    zoff_zero_plan_free(&e->plan);
    e->settings.limits = (zoff_planning_limits){.bucket_elements = 0};
    e->gate.hyper = NULL;
    e->gate.votes.all = NULL;
    e->walk.streamed = NULL;
    e->walk.hints = (zoff_engine_hints){.chunks = NULL};
    e->walk.matrices.before = e->walk.matrices.applied = NULL;
    e->lending.is_new = e->walk.is_new = NULL;
}

/* Every parameter that has states needs weights to initialize them. */
static zoff_status check_values(const zoff_engine *e)
{
    for (size_t i = 0; i < e->model.param_count; i++) {
        const zoff_model_param *p = &e->model.params[i];
        ZOFF_FAIL_IF(!p->value && p->count && !p->frozen && !p->engine_owned, ZOFF_ERR_INVALID,
                     "zoff_engine_seal: %s has %zu elements but value is NULL", p->name, p->count);
    }
    return ZOFF_OK;
}

/* The weights are in the store now, and the caller may free the initial ones. */
static void forget_first_weights(zoff_engine *e)
{
    for (size_t i = 0; i < e->model.param_count; i++) {
        if (e->model.params[i].engine_owned)
            e->model.params[i].value = NULL;
    }
}

/* A small engine uses only the thread that calls the step: waking others takes longer, and disturbs the trainer's threads. */
static void choose_team(zoff_engine *e)
{
    zoff_settings *s = &e->settings;
    if (s->threads > 1 && !s->threads_asked && e->plan.elements < ZOFF_ADAM_SMALL) {
        s->threads = 1;
        s->threads_why = "a model this small is not faster with more";
    }
    e->transfer.threads = (zoff_transfer_threads){.team = s->threads, .now = s->threads};
    e->threads.holds_team = s->threads > 1 && e->plan.elements >= (s->threads_asked ? ZOFF_ADAM_SMALL : ZOFF_ADAM_LARGE);
}

static zoff_status prepare_plan(zoff_engine *e)
{
    ZOFF_TRY(check_values(e));
    ZOFF_TRY(zoff_model_params_check_names(&e->model));
    ZOFF_TRY(find_ties(e));
    ZOFF_TRY(zoff_transfer_route_check(&e->transfer));
    zoff_transfer_levels_choose(&e->transfer);
    return ZOFF_OK;
}

/* Find the largest chunks and buckets that every rank has room for, because memory budgets may differ between ranks, but the
 * plan may not. Chunks of states that are opened again cannot change, so the sizes of a rank that has some hold for all. */
static zoff_status agree_on_limits(zoff_engine *e, zoff_status own)
{
    const zoff_planning planning = zoff_engine_planning(e);
    zoff_planning_limits limits = {.of_files = false};
    if (own == ZOFF_OK)
        limits = zoff_planning_budget_limits(&planning);
    uint64_t least[] = {limits.of_files ? limits.chunk_bytes : UINT64_MAX, limits.of_files ? limits.chunk_elements : UINT64_MAX,
                        limits.chunk_bytes, limits.chunk_elements, limits.bucket_elements};
    ZOFF_TRY(zoff_agreement_vote_least(&e->agreement.ranks, own, least, sizeof least / sizeof least[0]));
    const uint64_t *of_chunks = least[0] == UINT64_MAX ? &least[2] : &least[0];
    e->settings.limits =
        (zoff_planning_limits){.chunk_bytes = of_chunks[0], .chunk_elements = of_chunks[1], .bucket_elements = least[4]};
    return ZOFF_OK;
}

/* `out_need`: bytes of DRAM. */
static zoff_status make_plan(zoff_engine *e, uint64_t *out_need)
{
    zoff_plan_info info;
    const zoff_planning planning = zoff_engine_planning(e);
    ZOFF_TRY(zoff_planning_budget_plan(&planning, &e->plan, &info));
    e->transfer.device.tier.count = zoff_transfer_device_tier_buckets(&e->transfer, &e->plan);
    e->transfer.device.tier.place = zoff_transfer_device_tier_place(&e->transfer);
    e->transfer.accumulator.device_sums =
        zoff_transfer_device_tier_sums_of(&e->plan, zoff_transfer_device_tier_kept(&e->transfer, &e->plan));
    e->transfer.device.staging.ahead = zoff_planning_budget_places(&planning, &e->plan).buckets;
    choose_team(e);
    /* Each bucket passes its rows, and again those that it takes a second time after it was updated ahead of the step. */
    e->progress.most = 2 * ((uint64_t)e->plan.chunk_count + 1) * ZOFF_ROWS_MAX;
    *out_need = zoff_planning_budget_need(&info);
    return zoff_planning_budget_check(&planning, &info);
}

/* If nobody asked for several threads, and the system starts no more, one is enough. */
static zoff_status start_team(zoff_engine *e)
{
    if (e->plan.elements < ZOFF_ADAM_SMALL)
        return ZOFF_OK;
    const zoff_status status = zoff_base_team_start(e->settings.threads);
    if (status == ZOFF_OK || e->settings.threads_asked)
        return status;
    ZOFF_WARN("%s. This engine updates with one thread", zoff_last_error());
    e->settings.threads = 1;
    e->transfer.threads = (zoff_transfer_threads){.team = 1, .now = 1};
    e->settings.threads_why = "the system starts no more";
    e->threads.holds_team = false;
    return ZOFF_OK;
}

static zoff_status make_room(zoff_engine *e)
{
    ZOFF_TRY(allocate(e));
    ZOFF_TRY(start_team(e));
    ZOFF_TRY(zoff_transfer_arena_open(&e->transfer, &e->transfer.grads, false, 0));
    ZOFF_TRY(zoff_transfer_ranks_open(&e->transfer));
    ZOFF_TRY(zoff_agreement_open_allocate(&e->agreement));
    if (e->settings.values.persist)
        ZOFF_TRY(zoff_base_mem_alloc(ZOFF_PROGRAM_BYTES_MOST, 1, "the program's bytes", &e->model.program.block));
    zoff_transfer_streams_watch(&e->transfer);
    ZOFF_TRY(e->transfer.route.link->memory.open(&e->transfer));
    zoff_engine_rows_choose(e);
    e->walk.stays_open = zoff_model_params_any_owned(&e->model) && !e->walk.lends_always;
    ZOFF_TRY(zoff_transfer_intake_open(&e->transfer));
    ZOFF_TRY(zoff_lending_copies_open(&e->lending));
    ZOFF_TRY(zoff_lending_param_cache_open(&e->lending));
    return zoff_lending_secondary_open(&e->lending);
}

/* The stores are filled from the weights, which may have to be downloaded from a device first. */
static zoff_status open_stores(zoff_engine *e)
{
    ZOFF_TRY(zoff_engine_stores_open(e, zoff_engine_states_fill, zoff_engine_states_fill_weights));
    ZOFF_TRY(zoff_engine_stores_take_program(e));
    ZOFF_TRY(e->transfer.device.fault);
    return zoff_engine_states_place_bring_all(e);
}

/* How a rank can use less memory of its host, for an error message. */
static const char *less_memory(const zoff_engine *e)
{
    return e->settings.tier == ZOFF_TIER_NVME ? "or lower zoff.host_memory, which each rank uses"
                                              : "set offload_optimizer.device to \"nvme\", or raise the limit";
}

static zoff_status find_nodes(zoff_engine *e)
{
    if (zoff_comm_size(e->comm) == 1)
        return ZOFF_OK;
    ZOFF_TRY(zoff_comm_open_grid(e->comm, e->settings.values.node_ranks, &e->transfer.ranks.levels.nodes));
    uint64_t has_room = zoff_transfer_levels_has_room(&e->transfer);
    ZOFF_TRY(zoff_agreement_vote_least(&e->agreement.ranks, ZOFF_OK, &has_room, 1));
    choose_sums(e, has_room);
    return ZOFF_OK;
}

/* A run without the key goes on with the rule that its state files record. */
static zoff_status keep_sums(zoff_engine *e)
{
    int64_t t;
    zoff_sums_change change;
    const bool was = e->model.exact_sums;
    if (!e->settings.values.persist || e->settings.values.sums != ZOFF_SUMS_AUTO)
        return ZOFF_OK;
    const bool is = zoff_offload_store_reopened(e->store, &t) ? zoff_model_program_bytes_exact_sums(&e->model.program) : was;
    uint64_t rules[] = {is, !is};
    zoff_status status = is == was ? ZOFF_OK : zoff_transfer_route_prepare_sums(&e->transfer, is, &change);
    status = zoff_agreement_vote_least(&e->agreement.ranks, status, rules, sizeof rules / sizeof rules[0]);
    if (is != was && status == ZOFF_OK)
        zoff_transfer_ranks_use_sums(&e->transfer, &change);
    else if (is != was)
        zoff_transfer_ranks_discard_sums(&e->transfer, &change);
    ZOFF_TRY(status);
    ZOFF_FAIL_IF(!rules[0] && !rules[1], ZOFF_ERR_INVALID,
                 "zoff_engine_seal: the state files of some ranks record zoff.reduce_scatter \"exact\", and those of others "
                 "\"ordered\": set the key to the rule of the run");
    return ZOFF_OK;
}

static zoff_status seal(zoff_engine *e)
{
    zoff_status status;
    uint64_t need = 0;
    zoff_loss_scaler scaler;
    const zoff_listed_settings settings = {.keys = e->settings.agreed_keys,
                                           .key_bytes = e->settings.agreed_bytes,
                                           .states_in_files = e->settings.tier == ZOFF_TIER_NVME,
                                           .chunk_elements = e->settings.chunk_elements,
                                           .persist_t = e->io.opening.persist_t};
    ZOFF_TRY_OR(undo, zoff_comm_channel_open(e->comm, &e->channel));
    /* After each part of its own work, a rank learns whether all others succeeded, too. */
    ZOFF_TRY_OR(undo, zoff_agreement_listed_compare_settings(&e->agreement, &settings));
    ZOFF_TRY_OR(undo, find_nodes(e));
    ZOFF_TRY_OR(undo, agree_on_limits(e, prepare_plan(e)));
    ZOFF_TRY_OR(undo, zoff_agreement_vote_success(&e->agreement.ranks, make_plan(e, &need)));
    ZOFF_TRY_OR(undo, zoff_agreement_listed_compare_plan(&e->agreement));
    ZOFF_TRY_OR(undo, zoff_agreement_vote_memory(&e->agreement, need, less_memory(e)));
    ZOFF_TRY_OR(undo, zoff_agreement_vote_success(&e->agreement.ranks, make_room(e)));
    ZOFF_TRY_OR(undo, zoff_agreement_vote_success(&e->agreement.ranks, zoff_agreement_norm_open(&e->agreement)));
    ZOFF_TRY_OR(undo, zoff_transfer_ranks_connect(&e->transfer));
    ZOFF_TRY_OR(undo, zoff_lending_secondary_connect(&e->lending));
    ZOFF_TRY_OR(undo, zoff_agreement_first_weights_send(&e->agreement));
    /* With persist weights are compared later, and only if no states are opened again. */
    ZOFF_TRY_OR(undo, e->settings.values.persist ? zoff_agreement_vote_success(&e->agreement.norm.ranks, ZOFF_OK)
                                                 : zoff_agreement_norm_first_weights(&e->agreement));
    ZOFF_TRY_OR(undo, zoff_agreement_open_end(&e->agreement, open_stores(e)));
    ZOFF_TRY_OR(undo, keep_sums(e));
    zoff_engine_admit_open(e);
    ZOFF_TRY_OR(undo, zoff_lending_sources_open(&e->lending));
    if (e->lending.store)
        ZOFF_TRY_OR(undo, zoff_engine_stores_spread_weights(e));
    ZOFF_TRY_OR(undo, zoff_agreement_vote_success(&e->agreement.norm.ranks, ZOFF_OK));
    forget_first_weights(e);
    zoff_model_groups_fix(&e->model);
    e->life.phase = ZOFF_PHASE_IDLE;
    zoff_transfer_reduce_scatter_begin(&e->transfer);
    if (zoff_offload_store_reopened(e->store, &e->t))
        e->life.awaits_weights = true;
    if (zoff_model_program_bytes_scaler(&e->model.program, &scaler))
        zoff_model_loss_scale_continue(&e->model, &scaler);
    e->totals.huge_page_bytes = zoff_engine_stores_huge_bytes(e);
    zoff_traps_weights_note(e->life.traps);
    zoff_engine_stats_log_start(e);
    const zoff_trace_rank who = {zoff_comm_rank(e->comm), zoff_comm_size(e->comm), !strcmp(e->comm->info.backend, "threads")};
    e->life.trace = zoff_trace_open(&who, e->plan.chunk_count);
    e->life.metrics = zoff_trace_metrics_open(&who);
    zoff_engine_admit_ahead(e);
    zoff_transfer_ranks_count_anew(&e->transfer);
    zoff_engine_stats_count_device_anew(e);
    zoff_engine_progress_thread_start(
        e, &(zoff_engine_background){.progress = zoff_engine_progress, .receive = zoff_engine_handover_take});
    return ZOFF_OK;
undo:
    zoff_agreement_norm_fail(&e->agreement, status);
    deallocate(e);
    return status;
}

zoff_status zoff_engine_seal(zoff_engine *e)
{
    ZOFF_ENTER(e);
    ZOFF_TRY(zoff_engine_phase_check(e, ZOFF_CALL_SEAL));
    zoff_agreement_identity_enter(&e->agreement, ZOFF_COMM_IN_SEAL, (zoff_comm_item){.about = ZOFF_COMM_ABOUT_NOTHING});
    return zoff_agreement_identity_exit(&e->agreement, seal(e));
}

void zoff_engine_destroy(zoff_engine *e)
{
    if (!e)
        return;
    zoff_engine_progress_thread_stop(e);
    if (e->life.phase == ZOFF_PHASE_OPEN && e->run.last && e->life.process == zoff_base_fork_number())
        ZOFF_WARN("zoff_engine_destroy: step %lld was begun, and is given up, so some weights are those before it. Call "
                  "zoff_step_wait() first: after the last step, too",
                  (long long)e->run.t);
    if (e->io.guard)
        e->io.guard->gone(e->io.guard->ctx);
    zoff_engine_state_range_end(e);
    deallocate(e);
    if (e->comm)
        zoff_comm_channel_leave(e->comm, &e->channel);
    zoff_agreement_vote_close(&e->agreement);
    zoff_agreement_norm_free(&e->agreement);
    zoff_model_params_free(&e->model);
    zoff_engine_options_free(e);
    zoff_trace_close(e->life.trace);
    zoff_trace_metrics_close(e->life.metrics);
    zoff_base_mem_free(e);
}
