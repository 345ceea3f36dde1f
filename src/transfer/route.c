/* SPDX-License-Identifier: Apache-2.0 */
/* route.c: how gradients reach the engine, how updated weights reach the program, and what carries both between ranks. In
 * place: the CPU works on the program's memory. Staged: the program's memory is on a device; gradients are downloaded to engine
 * memory, and weights are uploaded from staging slots. Resident: like staged, but ranks exchange data from device to device, so
 * gradients stay there. Valid are in place and staged with one rank or the host's wire, and resident with the device's wire.
 * This file chooses, because only here is it known that what was chosen fits together, and rejects configurations that nothing
 * serves. */
#include "transfer.h"

#include "clock.h"
#include "try.h"

#include <string.h>

/* ---- in place ---- */

/* Stage only weights of buckets that are updated ahead of the step. */
static zoff_status in_place_open(zoff_transfer *t)
{
    return t->device.staging.ahead ? zoff_transfer_staging_open(t, 0) : ZOFF_OK;
}

static zoff_status in_place_move(zoff_transfer *t, const zoff_cast_piece *moves, size_t count, bool up)
{
    zoff_adam_cast_run(t->threads.team, moves, count);
    return ZOFF_OK;
}

static zoff_status in_place_add(zoff_transfer *t, const zoff_accumulate_piece *piece)
{
    const double from = zoff_base_clock_seconds();
    zoff_adam_accumulate_run(t->threads.team, piece, 1, NULL, NULL);
    t->batch.early.read_bytes += piece->count * (zoff_adam_dtype_bytes(piece->dtype) + (piece->first ? 0 : sizeof(float)));
    t->batch.early.write_bytes += piece->count * sizeof(float);
    t->batch.early.measure_seconds += zoff_base_clock_seconds() - from;
    return ZOFF_OK;
}

static void in_place_added(zoff_transfer *t, size_t number)
{
    zoff_transfer_arena_let_go(t->route.lent, number);
}

static zoff_status in_place_sums_alloc(zoff_transfer *t, uint64_t bytes, char **out)
{
    ZOFF_TRY(zoff_base_map_alloc(bytes, "sums of gradients", ZOFF_MAP_INTERLEAVED, &t->accumulator.tied.host));
    *out = t->accumulator.tied.host.base;
    return ZOFF_OK;
}

/* Clear gradients only now, because after an error the program may hand the same gradients over again. */
static void in_place_recorded(zoff_transfer *t, bool zeroes)
{
    for (size_t i = 0; zeroes && i < t->model->param_count; i++) {
        const zoff_model_param *p = &t->model->params[i];
        for (size_t slice = 0; slice < p->slices; slice++) {
            size_t bytes;
            char *grad = zoff_model_params_grad_to_clear(t->model, (zoff_param)i, slice, &bytes);
            if (grad)
                memset(grad, 0, bytes);
        }
    }
}

static zoff_status in_place_reuse(zoff_transfer *t, char *grad, size_t bytes, void *native_stream)
{
    if (bytes)
        memset(grad, 0, bytes);
    return ZOFF_OK;
}

static char *in_place_weights(const zoff_transfer *t, const zoff_plan_piece *piece, char *weights)
{
    char *staged = zoff_transfer_staging_weights(t, piece, weights);
    return staged ? staged : zoff_model_params_value(t->model, piece, weights);
}

static size_t in_place_adopt(zoff_transfer *t, size_t bucket, unsigned threads)
{
    const zoff_plan_chunk *c = &t->plan->chunks[bucket];
    size_t used = 0, bytes = 0;
    for (size_t i = 0; i < c->piece_count; i++) {
        const zoff_plan_piece *piece = &t->plan->pieces[c->first_piece + i];
        const zoff_dtype dtype = t->model->params[piece->param].dtype;
        if (!zoff_transfer_staging_bytes_of(t, piece) || !*zoff_model_params_flag(t->model, piece))
            continue;
        bytes += zoff_transfer_staging_bytes_of(t, piece);
        t->scratch.cast_pieces[used++] = (zoff_cast_piece){.count = piece->count,
                                                           .dst = zoff_model_params_value(t->model, piece, NULL),
                                                           .src = zoff_transfer_staging_weights(t, piece, NULL),
                                                           .dst_dtype = dtype,
                                                           .src_dtype = dtype,
                                                           .stream = zoff_adam_update_streams(t->plan->state_bytes)};
    }
    zoff_adam_cast_run(threads, t->scratch.cast_pieces, used);
    zoff_transfer_staging_release(t, bucket);
    return bytes;
}

static void in_place_plan(const zoff_transfer *t, const zoff_plan *plan, zoff_plan_info *info)
{
    info->accumulator_bytes += zoff_model_ties_bytes(t->model);
}

const zoff_link zoff_transfer_route_in_place = {
    .name = "in place",
    .memory = {.open = in_place_open, .plan = in_place_plan},
    .sums = {.alloc = in_place_sums_alloc, .add = in_place_add, .added = in_place_added},
    .taken = zoff_transfer_reduce_scatter_mark,
    .gradient = zoff_transfer_arena_there,
    .weights = in_place_weights,
    .adopt = in_place_adopt,
    .move = in_place_move,
    .step = {.reuse = in_place_reuse, .recorded = in_place_recorded}};

/* ---- staged ---- */

/* The gradient is marked when its download is complete. The step reports errors. */
static void staged_taken(zoff_transfer *t, zoff_param p, size_t slice)
{
    (void)zoff_transfer_download_poll(t);
}

static zoff_status staged_add(zoff_transfer *t, const zoff_accumulate_piece *piece)
{
    return t->accel->ops->kernels.accumulate(t->accel, t->device.compute, piece, 1);
}

static zoff_status staged_sums_alloc(zoff_transfer *t, uint64_t bytes, char **out)
{
    ZOFF_TRY(t->accel->ops->alloc(t->accel, bytes, &t->accumulator.tied.device));
    *out = t->accumulator.tied.device;
    return ZOFF_OK;
}

/* Lent memory is in use until an addition is done, so it is released only when the micro-batch ends. */
#define STAGED                                                                                                                 \
    .has_streams = true, .memory = {.open = zoff_transfer_device_open, .plan = zoff_transfer_device_plan},                     \
    .sums = {.alloc = staged_sums_alloc, .add = staged_add, .follow = zoff_transfer_streams_compute_follow},                   \
    .follow = zoff_transfer_streams_follow, .weights = zoff_transfer_staging_weights, .lend = zoff_transfer_device_lend,       \
    .let_read = zoff_transfer_device_let_read, .settle = zoff_transfer_device_settle, .move = zoff_transfer_streams_copy,      \
    .step = {.reuse = zoff_transfer_device_reuse, .finish = zoff_transfer_device_finish}

const zoff_link zoff_transfer_route_staged = {.name = "staged",
                                              .downloads = true,
                                              .take = zoff_transfer_device_download,
                                              .taken = staged_taken,
                                              .gradient = zoff_transfer_arena_of,
                                              STAGED};

/* ---- resident ---- */

const zoff_link zoff_transfer_route_resident = {.name = "resident",
                                                .take = zoff_transfer_device_stay,
                                                .taken = zoff_transfer_reduce_scatter_mark,
                                                .gradient = zoff_transfer_arena_there,
                                                STAGED};

/* ---- choosing a link, and rejecting configurations ---- */

/* The first that serves the engine carries its gradients and weights between ranks. */
static const zoff_wire *const WIRES[] = {&zoff_transfer_wire_device, &zoff_transfer_wire_host};

static zoff_status choose_wire(zoff_transfer *t)
{
    zoff_route *r = &t->route;
    r->wire = NULL;
    for (size_t i = 0; zoff_transfer_ranks_several(t) && !r->wire && i < sizeof WIRES / sizeof WIRES[0]; i++)
        r->wire = !WIRES[i]->serves || WIRES[i]->serves(t) ? WIRES[i] : NULL;
    r->reaches = r->wire && r->wire->is_there;
    ZOFF_FAIL_IF(
        r->reaches && t->comm->device != t->accel->index, ZOFF_ERR_INVALID,
        "rank %u: the communicator is on device %d of \"%s\", but the accelerator is device %d: open both on the same device",
        zoff_comm_rank(t->comm), t->comm->device, t->comm->reaches, t->accel->index);
    return ZOFF_OK;
}

/* Sums of a bucket are made on the device in one pass over what has arrived. */
static zoff_status check_reduced(const zoff_transfer *t)
{
    for (size_t i = 0; t->route.reaches && i < t->model->param_count; i++)
        ZOFF_FAIL_IF(t->model->params[i].reduced, ZOFF_ERR_UNSUPPORTED,
                     "zoff_engine_seal: %s has zoff_param_desc.reduced, which a communicator that reaches the memory of "
                     "accelerator \"%s\" does not support: let zoff reduce its gradients, or open a communicator of the host",
                     t->model->params[i].name, zoff_accel_name(t->accel));
    return ZOFF_OK;
}

/* Check a single rank, too, because the number of ranks must not decide whether a configuration is valid. */
/* Directions of matrices are in host memory. */
static zoff_status check_matrices(const zoff_transfer *t)
{
    bool has_any = false;
    for (size_t i = 0; i < t->model->param_count; i++)
        has_any = has_any || zoff_model_matrices_count(t->model, &t->model->params[i]);
    ZOFF_FAIL_IF(
        has_any && zoff_transfer_ranks_have_parts(t) && strcmp(t->comm->info.backend, "nccl") == 0, ZOFF_ERR_UNSUPPORTED,
        "zoff_engine_seal: optimizer.type is \"Muon\", and ranks that join over NCCL do not exchange its matrices yet: "
        "join over MPI, or set zero_optimization.stage to 0, so that each rank has all states");
    return ZOFF_OK;
}

/* Whether sums are made in memory of the device. */
static bool sums_there(const zoff_transfer *t)
{
    return t->route.sums && (t->route.reaches || (!t->route.wire && t->values->ratio < 1));
}

static zoff_status check_exact(const zoff_transfer *t)
{
    ZOFF_FAIL_IF(sums_there(t), ZOFF_ERR_UNSUPPORTED,
                 "zoff.reduce_scatter is \"exact\"%s, but gradients are added up in memory of accelerator \"%s\", which adds "
                 "\"ordered\" only: %s, or set it to \"ordered\"",
                 t->values->sums == ZOFF_SUMS_EXACT ? "" : " in the run that goes on", zoff_accel_name(t->accel),
                 t->route.reaches ? "open a communicator of the host" : "set offload_optimizer.ratio to 1");
    return ZOFF_OK;
}

static zoff_status check_between(const zoff_transfer *t)
{
    const zoff_config_values *v = t->values;
    ZOFF_FAIL_IF(
        v->between_nodes != ZOFF_BETWEEN_AUTO && (v->sums == ZOFF_SUMS_ORDERED || v->sums == ZOFF_SUMS_NCCL), ZOFF_ERR_INVALID,
        "zoff.between_nodes is for sums of nodes, and by zoff.reduce_scatter \"%s\" each gradient goes to its owner by "
        "itself: remove one of the keys, or set zoff.reduce_scatter to \"exact\"",
        v->sums == ZOFF_SUMS_NCCL ? "nccl" : "ordered");
    for (size_t i = 0; v->between_nodes == ZOFF_BETWEEN_STEP && i < t->model->param_count; i++)
        ZOFF_FAIL_IF(t->model->params[i].reduced, ZOFF_ERR_UNSUPPORTED,
                     "zoff_engine_seal: %s has zoff_param_desc.reduced, whose gradient its owner adds in each micro-batch, and "
                     "zoff.between_nodes is \"step\": set it to \"micro_step\"",
                     t->model->params[i].name);
    return ZOFF_OK;
}

bool zoff_transfer_route_may_be_exact(const zoff_transfer *t)
{
    return !sums_there(t);
}

zoff_status zoff_transfer_route_prepare_sums(zoff_transfer *t, bool exact, zoff_sums_change *out)
{
    *out = (zoff_sums_change){.exact = exact};
    ZOFF_TRY(exact ? check_exact(t) : ZOFF_OK);
    return zoff_transfer_ranks_prepare_sums(t, exact, out);
}

zoff_status zoff_transfer_route_check(const zoff_transfer *t)
{
    const zoff_config_values *values = t->values;
    const char *reaches = t->comm->reaches;
    ZOFF_TRY(check_reduced(t));
    ZOFF_TRY(check_matrices(t));
    ZOFF_TRY(check_between(t));
    if (values->sums == ZOFF_SUMS_EXACT)
        return check_exact(t);
    if (values->sums != ZOFF_SUMS_NCCL)
        return ZOFF_OK;
    ZOFF_FAIL_IF(!t->comm->adds || !reaches || !zoff_transfer_device_is(t) || strcmp(reaches, zoff_accel_name(t->accel)) != 0,
                 ZOFF_ERR_UNSUPPORTED,
                 "zoff.reduce_scatter is \"nccl\": the communicator has to sum gradients, and \"%s\" cannot "
                 "do so in memory of accelerator \"%s\". Open \"nccl\" and \"cuda\", or set it to \"ordered\"",
                 t->comm->info.backend, zoff_accel_name(t->accel));
    ZOFF_FAIL_IF(
        values->wire_dtype && values->wire_dtype != ZOFF_F32, ZOFF_ERR_INVALID,
        "zoff.reduce_scatter is \"nccl\", which sums in fp32, and communication_data_type is \"%s\": remove that key, or "
        "set zoff.reduce_scatter to \"ordered\"",
        zoff_adam_dtype_name(values->wire_dtype));
    return ZOFF_OK;
}

zoff_status zoff_transfer_route_check_ratio(const zoff_transfer *t)
{
    const double ratio = t->values->ratio;
    if (ratio == 1)
        return ZOFF_OK;
    ZOFF_FAIL_IF(
        !zoff_transfer_device_is(t), ZOFF_ERR_UNSUPPORTED,
        "offload_optimizer.ratio is %g: the rest of the states would stay on the accelerator, and \"%s\" has no memory of "
        "its own. Open \"cuda\", or leave ratio at 1",
        ratio, zoff_accel_name(t->accel));
    return ZOFF_OK;
}

zoff_status zoff_transfer_route_choose(zoff_transfer *t)
{
    zoff_route *r = &t->route;
    t->ranks.levels.nodes = (zoff_comm_grid){.node_ranks = 1, .nodes = zoff_comm_size(t->comm)};
    t->ranks.levels.weights = t->ranks.levels.sums = t->ranks.levels.nodes;
    ZOFF_TRY(choose_wire(t));
    r->link = r->reaches                   ? &zoff_transfer_route_resident
              : zoff_transfer_device_is(t) ? &zoff_transfer_route_staged
                                           : &zoff_transfer_route_in_place;
    r->lent = zoff_transfer_device_is(t) ? &t->device.lent : &t->grads;
    r->packed = r->reaches ? r->lent : &t->grads;
    return ZOFF_OK;
}

void zoff_transfer_route_choose_rest(zoff_transfer *t)
{
    zoff_route *r = &t->route;
    r->sums = t->values->accumulation > 1 || zoff_transfer_ranks_several(t);
    r->adds = r->reaches && t->comm->adds && t->values->sums == ZOFF_SUMS_NCCL;
    zoff_transfer_sums_use(t, t->values->sums == ZOFF_SUMS_EXACT, &(zoff_map){.base = NULL});
    zoff_lending_sources_choose(t->lending, zoff_transfer_ranks_have_parts(t), zoff_transfer_device_is(t), r->reaches);
}

void zoff_transfer_route_range(zoff_transfer *t, const char *row, size_t bucket)
{
    if (row && t->route.link->has_streams)
        t->accel->ops->ranges.begin(t->accel, row, bucket);
    else if (t->route.link->has_streams)
        t->accel->ops->ranges.end(t->accel);
}
