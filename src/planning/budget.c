/* SPDX-License-Identifier: Apache-2.0 */
/* budget.c: computes the memory that an engine needs before anything is allocated, and checks that it fits. Seal allocates from
 * the same plan that zoff_engine_plan() shows. */
#include "planning.h"

#include "bits.h"
#include "budget.h"
#include "matrices.h"
#include "offload.h"
#include "try.h"

#include <string.h>

/* ---- chunks that stay in DRAM on the NVMe tier ---- */

/* How many chunks have states in a host store. */
static size_t stored_count(const zoff_planning *in, const zoff_plan *plan)
{
    size_t count = 0;
    for (size_t i = zoff_transfer_device_tier_buckets(in->transfer, plan); i < plan->chunk_count; i++)
        count += plan->chunks[i].bytes != 0;
    return count;
}

/* How many chunks have engine-owned weights. */
static size_t weights_stored_count(const zoff_plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->chunk_count; i++)
        count += plan->chunks[i].weight_bytes != 0;
    return count;
}

size_t zoff_planning_budget_states(const zoff_planning *in, const zoff_plan *plan)
{
    return in->tier == ZOFF_TIER_NVME ? zoff_offload_placement_residents(in->host_bytes, in->values->slots,
                                                                         plan->most.chunk_bytes, stored_count(in, plan))
                                      : 0;
}

/* offload_param.max_in_cpu, rounded down to whole chunks. It is for weights that are fetched, so the secondary shard has it
 * where there is one. */
size_t zoff_planning_budget_weights(const zoff_planning *in, const zoff_plan *plan)
{
    const zoff_weight_values *values = &in->values->weights;
    size_t most = 0;
    if (values->tier != ZOFF_TIER_NVME || zoff_lending_secondary_is(in->lending))
        return 0;
    for (size_t i = 0; i < plan->chunk_count; i++)
        most = zoff_base_bits_max(most, plan->chunks[i].elements);
    return most ? zoff_base_bits_min(values->cached_count / most, weights_stored_count(plan)) : 0;
}

/* ---- the plan ---- */

/* Elements of the plan's unit; see cpu_adam.h. */
static const size_t UNIT = ZOFF_NORM_BLOCK;

/* In the keys that limit chunks and buckets, 0 means the largest slice. */
static size_t or_largest_slice(const zoff_planning *in, size_t elements)
{
    size_t most = UNIT;
    for (size_t i = 0; i < in->model->param_count; i++)
        most = zoff_base_bits_max(most, in->model->params[i].count);
    return elements ? elements : most;
}

/* Bytes of an element between ranks: the smallest, of gradients and weights, or the largest. */
static size_t wire_bytes(const zoff_planning *in, bool largest)
{
    size_t least = sizeof(float), most = 1;
    for (size_t i = 0; i < in->model->param_count; i++) {
        const zoff_model_param *p = &in->model->params[i];
        const size_t gradient = zoff_adam_dtype_bytes(zoff_transfer_wire_dtype(in->transfer, p));
        least = zoff_base_bits_min(least, zoff_base_bits_min(gradient, zoff_adam_dtype_bytes(p->dtype)));
        most = zoff_base_bits_max(most, gradient);
    }
    return largest ? most : least;
}

/* The most elements in an exchange between ranks, or in a bucket of a device. A rank has at least PEER_BYTES for each other
 * one, because shorter messages take longer than their bytes. More would make no link faster, and fewer let a bucket leave
 * sooner. A larger reduce_bucket_size is taken at its word. The buffers of three buckets, to send and to receive, take at most
 * 1 / SHARE of the memory. */
static size_t bucket_most(const zoff_planning *in)
{
    enum { LEAST = 8 << 20, MOST = 64 << 20, PEER_BYTES = 128 << 10, SHARE = 8, BUFFERS = 2 * 3 };
    const char *source;
    const size_t ranks = zoff_comm_size(in->comm), bytes = wire_bytes(in, false);
    const uint64_t memory = (in->host_bytes ? in->host_bytes : zoff_base_budget_memory("", &source)) / SHARE;
    size_t most = LEAST;
    while (most < MOST && (most / ranks * bytes < PEER_BYTES || (ranks > 1 && in->values->bucket_is_given &&
                                                                 most < or_largest_slice(in, in->values->bucket_elements))))
        most *= 2;
    while (most > LEAST && (uint64_t)most * wire_bytes(in, true) * BUFFERS > memory)
        most /= 2;
    return most;
}

/* A plan needs memory and time for each chunk. Fail early if a budget of a few MiB meets a model of petabytes. */
static zoff_status check_count(const zoff_planning *in, const zoff_plan_tensor *tensors, const zoff_plan_opts *opts)
{
    const uint64_t most = 4 << 20;
    double chunks = 0;
    for (size_t i = 0; i < in->model->param_count; i++) {
        const size_t bytes = zoff_base_bits_max(zoff_zero_plan_state_bytes(&tensors[i], UNIT), UNIT);
        const size_t largest = zoff_base_bits_min(opts->max_chunk_elements, opts->max_chunk_bytes / bytes * UNIT);
        chunks += (double)tensors[i].count * (double)tensors[i].slices /
                  (double)(zoff_base_bits_max(largest, UNIT) * (opts->replicated ? 1 : opts->ranks));
    }
    ZOFF_FAIL_IF(chunks > (double)most, ZOFF_ERR_INVALID,
                 "the states would be cut into %.3g chunks, and a plan has at most %llu: raise %s or "
                 "zero_optimization.sub_group_size, or use more ranks",
                 chunks, (unsigned long long)most, in->host_bytes_key);
    return ZOFF_OK;
}

/* List where the matrices of each parameter end. @owns out: zoff_base_mem_free() */
static zoff_status list_ends(const zoff_model *m, zoff_plan_tensor *tensors, size_t **out)
{
    size_t count = 0, used = 0, *ends;
    for (size_t i = 0; i < m->param_count; i++)
        count += zoff_model_matrices_count(m, &m->params[i]);
    ZOFF_TRY(zoff_base_mem_alloc(count, sizeof *ends, "the plan", &ends));
    for (size_t i = 0; i < m->param_count; i++) {
        const size_t own = zoff_model_matrices_count(m, &m->params[i]);
        tensors[i].matrix_ends = own ? ends + used : NULL;
        tensors[i].matrices = own;
        for (size_t k = 0; k < own; k++) {
            const zoff_matrix matrix = zoff_model_matrices_at(m, &m->params[i], k);
            ends[used++] = matrix.first + matrix.rows * matrix.cols;
        }
    }
    *out = ends;
    return ZOFF_OK;
}

static zoff_status make_plan(const zoff_planning *in, const zoff_planning_limits *limits, zoff_plan *out)
{
    enum { ROUND_ELEMENTS = 8 << 20 }; /* enough for a bucket that a drive writes at its full rate, and little memory */
    zoff_plan_tensor *tensors;
    size_t *ends = NULL;
    ZOFF_TRY(zoff_base_mem_alloc(in->model->param_count, sizeof *tensors, "the plan", &tensors));
    for (size_t i = 0; i < in->model->param_count; i++)
        tensors[i] = zoff_model_params_tensor(in->model, &in->model->params[i]);
    zoff_status status = list_ends(in->model, tensors, &ends);
    zoff_plan_opts opts = {.unit = UNIT,
                           .max_chunk_elements = limits->chunk_elements,
                           .max_chunk_bytes = limits->chunk_bytes,
                           .rank = zoff_comm_rank(in->comm),
                           .ranks = zoff_comm_size(in->comm),
                           .replicated = in->transfer->route.wire && !zoff_transfer_ranks_have_parts(in->transfer),
                           .max_bucket_units = zoff_base_bits_max(limits->bucket_elements / UNIT, 1),
                           .round_elements = zoff_base_bits_min(limits->chunk_elements, ROUND_ELEMENTS)};
    if (status == ZOFF_OK)
        status = check_count(in, tensors, &opts);
    if (status == ZOFF_OK)
        status = zoff_zero_plan_make(tensors, in->model->param_count, &opts, out);
    zoff_base_mem_free(ends);
    zoff_base_mem_free(tensors);
    return status;
}

/* The most elements in a chunk. Chunks of weights are small, so that several are in flight and few unneeded weights are read.
 * Chunks of a device are small, so that several are in flight without much memory. Those that may be updated ahead of a step
 * are small, so that little is left to do after the last gradient. */
static size_t chunk_elements_of(const zoff_planning *in)
{
    enum { WEIGHTS_MOST = 2 * 1024 * 1024, AHEAD_MOST = 4 * 1024 * 1024 };
    const zoff_weight_values *values = &in->values->weights;
    const size_t given = or_largest_slice(in, in->chunk_elements);
    const size_t most = in->values->speculation_bytes ? AHEAD_MOST : SIZE_MAX;
    const size_t elements =
        zoff_base_bits_min(zoff_base_bits_min(given, most), in->transfer->route.link->has_streams ? bucket_most(in) : SIZE_MAX);
    if (values->tier != ZOFF_TIER_NVME || !zoff_model_params_any_owned(in->model))
        return elements;
    return zoff_base_bits_min(zoff_base_bits_min(elements, values->chunk_count), WEIGHTS_MOST);
}

/* Whether a step overwrites the weights of a chunk without reading them. */
static bool writes_all_weights(const zoff_planning *in, const zoff_plan *plan, const zoff_plan_chunk *chunk)
{
    for (size_t i = 0; i < chunk->piece_count; i++) {
        const zoff_model_param *p = &in->model->params[plan->pieces[chunk->first_piece + i].param];
        if (p->engine_owned && (p->frozen || zoff_model_masters_of(in->model, p)->in_weights))
            return false;
    }
    return true;
}

static bool trains(const zoff_planning *in, const zoff_plan *plan, const zoff_plan_chunk *chunk)
{
    bool trained = false;
    for (size_t i = 0; i < chunk->piece_count; i++)
        trained = trained || !in->model->params[plan->pieces[chunk->first_piece + i].param].frozen;
    return trained;
}

static void plan_weights(const zoff_planning *in, const zoff_plan *plan, zoff_plan_info *info)
{
    const zoff_weight_values *values = &in->values->weights;
    const size_t residents = zoff_planning_budget_weights(in, plan);
    const size_t count = weights_stored_count(plan);
    uint64_t stored = 0, cached = 0;
    size_t number = 0;
    if (!zoff_model_params_any_owned(in->model))
        return;
    info->weight_bytes = plan->weight_bytes;
    for (size_t i = 0; i < plan->chunk_count; i++) {
        const zoff_plan_chunk *chunk = &plan->chunks[i];
        const bool resident = chunk->weight_bytes && zoff_offload_placement_resident(number++, residents, count);
        stored += chunk->weight_bytes;
        cached += resident ? chunk->weight_bytes : 0;
        if (values->tier != ZOFF_TIER_NVME || resident || !trains(in, plan, chunk))
            continue;
        info->step_write_bytes += chunk->weight_bytes;
        info->step_read_bytes += writes_all_weights(in, plan, chunk) ? 0 : chunk->weight_bytes;
    }
    const zoff_weight_sizes sizes = {
        .stored = stored, .cached = cached, .residents = residents, .most = plan->most.chunk_weights};
    in->lending->home->plan(in->lending, &sizes, info);
    zoff_lending_param_cache_plan(in->lending, plan, info);
    zoff_lending_secondary_plan(in->lending, plan, info);
}

/* Parts of states that a save copies one by one: the largest, and how many there are. */
typedef struct save_units {
    uint64_t largest, count;
} save_units;

/* An array is copied in parts of at most `most` bytes; 0: as a whole. */
static void add_array(save_units *u, uint64_t bytes, uint64_t most)
{
    const uint64_t part = most ? zoff_base_bits_min(bytes, most) : bytes;
    u->largest = zoff_base_bits_max(u->largest, part);
    u->count += part ? zoff_base_bits_ceil_div(bytes, part) : 0;
}

/* Copies of states while a checkpoint is saved, at most: see checkpoint/saver.c. */
static uint64_t save_bytes_of(const zoff_plan *plan, const zoff_plan_info *info)
{
    save_units u = {.count = 0};
    for (size_t i = 0; i < plan->chunk_count; i++) {
        const zoff_plan_chunk *c = &plan->chunks[i];
        uint64_t elements = 0; /* elements of weights, whose masters may be the weights themselves */
        for (unsigned stream = 0; stream < ZOFF_STREAM_COUNT; stream++) {
            if (c->lengths[stream])
                add_array(&u, zoff_zero_plan_end(c, stream) - c->starts[stream],
                          info->tier == ZOFF_TIER_NVME ? 0 : ZOFF_SAVE_UNIT);
        }
        for (size_t k = 0; k < c->piece_count; k++)
            elements += plan->pieces[c->first_piece + k].count;
        add_array(&u, elements * sizeof(float), ZOFF_SAVE_UNIT);
    }
    const uint64_t copies = u.largest ? zoff_base_bits_max(ZOFF_SAVE_COPIES / u.largest, ZOFF_SAVE_COPIES_LEAST) : 0;
    return zoff_base_bits_min(copies, u.count) * u.largest;
}

/* Each bucket takes a staging slot for its weights. One whose chunk is in DRAM takes memory for its states, too. */
zoff_planning_places zoff_planning_budget_places(const zoff_planning *in, const zoff_plan *plan)
{
    const uint64_t bytes = in->values->speculation_bytes, states = plan->most.chunk_bytes;
    const uint64_t slot = zoff_transfer_staging_slot_bytes(in->transfer, plan);
    const size_t count = stored_count(in, plan);
    /* Gradients of buckets must be complete, summed and on the host while the program still computes others. */
    if (!bytes || !slot || !count || (in->transfer->route.wire && !zoff_transfer_ranks_leave_early(in->transfer)))
        return (zoff_planning_places){.buckets = 0};
    if (in->tier != ZOFF_TIER_NVME) {
        const size_t both = zoff_base_bits_min(bytes / (slot + states), count);
        return (zoff_planning_places){.buckets = both, .spares = both};
    }
    const size_t buckets = zoff_base_bits_min(bytes / slot, count);
    const size_t spares = zoff_base_bits_min((bytes - buckets * slot) / states, zoff_planning_budget_states(in, plan));
    return (zoff_planning_places){.buckets = buckets, .spares = spares};
}

static void plan_places(const zoff_planning *in, const zoff_plan *plan, zoff_plan_info *info)
{
    const zoff_planning_places places = zoff_planning_budget_places(in, plan);
    info->speculation_bytes = places.buckets * zoff_transfer_staging_slot_bytes(in->transfer, plan) +
                              (uint64_t)places.spares * plan->most.chunk_bytes;
    for (size_t i = 0; places.spares && in->tier != ZOFF_TIER_NVME && i < plan->chunk_count; i++) {
        const size_t bytes = plan->chunks[i].bytes;
        info->speculation_bytes += zoff_offload_placement_room(bytes, plan->most.chunk_bytes) - bytes;
    }
    if (places.buckets && !in->values->persist) /* files get a second place for each chunk, as with zoff.persist */
        info->nvme_bytes *= 2;
}

/* States that stay on the device are in no memory of the host. With zoff.persist they are in files, which a step only writes.
 */
static void plan_states(const zoff_planning *in, const zoff_plan *plan, zoff_plan_info *info)
{
    const size_t kept = zoff_transfer_device_tier_buckets(in->transfer, plan);
    uint64_t stored = 0, all = 0;
    for (size_t i = 0; i < plan->chunk_count; i++) {
        all += plan->chunks[i].bytes;
        stored += i < kept ? 0 : plan->chunks[i].bytes;
    }
    info->host_bytes = stored;
    if (in->tier != ZOFF_TIER_NVME)
        return;
    const size_t residents = zoff_planning_budget_states(in, plan), count = stored_count(in, plan);
    info->host_bytes = (info->slots + (uint64_t)residents) * plan->most.chunk_bytes;
    for (size_t i = kept, number = 0; i < plan->chunk_count; i++) {
        if (plan->chunks[i].bytes && zoff_offload_placement_resident(number++, residents, count))
            info->resident_bytes += plan->chunks[i].bytes;
    }
    const bool persists = in->values->persist;
    info->step_read_bytes = stored - info->resident_bytes;
    info->step_write_bytes = persists ? all : info->step_read_bytes;
    info->nvme_bytes = persists ? 2 * all : info->step_read_bytes;
}

/* Existing states keep their chunk sizes. The budget then decides only how many chunks stay in DRAM. */
static void keep_limits(const zoff_planning *in, zoff_planning_limits *limits)
{
    size_t bytes, elements;
    if (!in->values->persist || !in->folder_count ||
        !zoff_offload_persisted_limits(in->folders[0], (zoff_store_owner){zoff_comm_rank(in->comm), in->part}, &bytes,
                                       &elements))
        return;
    limits->chunk_bytes = bytes;
    limits->chunk_elements = elements;
    limits->of_files = true;
}

zoff_planning_limits zoff_planning_budget_limits(const zoff_planning *in)
{
    zoff_planning_limits limits = {.chunk_bytes = SIZE_MAX,
                                   .chunk_elements = chunk_elements_of(in),
                                   .bucket_elements =
                                       zoff_base_bits_min(or_largest_slice(in, in->values->bucket_elements), bucket_most(in))};
    if (in->tier == ZOFF_TIER_NVME) {
        zoff_placement placement;
        uint64_t state_bytes = 0;
        for (size_t i = 0; i < in->model->param_count; i++) {
            const zoff_plan_tensor tensor = zoff_model_params_tensor(in->model, &in->model->params[i]);
            if (!tensor.frozen)
                state_bytes += (uint64_t)tensor.slices * zoff_zero_plan_state_bytes(&tensor, tensor.count);
        }
        if (in->values->zero_stage > 0) /* a rank stores only its share */
            state_bytes = zoff_base_bits_ceil_div(state_bytes, zoff_comm_size(in->comm));
        zoff_offload_placement_nvme(in->host_bytes, in->values->slots, state_bytes, &placement);
        limits.chunk_bytes = placement.chunk_bytes;
    }
    keep_limits(in, &limits);
    return limits;
}

/* Matrices are work for one rank each, if the ranks have parts; then a rank has its share of them. */
static void plan_matrices(const zoff_planning *in, const zoff_plan *plan, zoff_plan_info *info)
{
    double flop = 0;
    for (size_t i = 0; i < in->model->param_count; i++) {
        const zoff_model_param *p = &in->model->params[i];
        const zoff_matrix_rule *rule = zoff_model_matrices_rule(in->model, p);
        for (size_t k = 0; k < zoff_model_matrices_count(in->model, p); k++) {
            const zoff_matrix matrix = zoff_model_matrices_at(in->model, p, k);
            zoff_orthogonal o = {.rows = matrix.rows, .cols = matrix.cols};
            rule->begin(zoff_model_groups_own(in->model, p->group), &o);
            flop += (double)p->slices * rule->flop(&o);
        }
    }
    for (size_t i = 0; i < plan->piece_count; i++) {
        const zoff_plan_piece *piece = &plan->pieces[i];
        if (zoff_model_matrices_count(in->model, &in->model->params[piece->param]))
            info->matrix_elements += piece->count;
    }
    flop /= zoff_transfer_ranks_have_parts(in->transfer) ? plan->ranks : 1;
    info->matrix_flop = flop < 0x1p64 ? (uint64_t)flop : UINT64_MAX;
}

zoff_status zoff_planning_budget_plan(const zoff_planning *in, zoff_plan *out_plan, zoff_plan_info *out_info)
{
    zoff_plan plan;
    const zoff_planning_limits limits = in->limits ? *in->limits : zoff_planning_budget_limits(in);
    ZOFF_TRY(make_plan(in, &limits, &plan));
    zoff_plan_info info = {.struct_size = sizeof info,
                           .tier = in->tier,
                           .elements = plan.elements,
                           .state_bytes = plan.state_bytes,
                           .chunk_count = plan.chunk_count,
                           .chunk_bytes = plan.most.chunk_bytes,
                           .slots = in->tier == ZOFF_TIER_NVME ? in->values->slots : 0,
                           .threads = in->threads};
    plan_states(in, &plan, &info);
    plan_weights(in, &plan, &info);
    plan_places(in, &plan, &info);
    plan_matrices(in, &plan, &info);
    info.save_bytes = save_bytes_of(&plan, &info);
    const zoff_route *route = &in->transfer->route;
    const size_t sums_there = zoff_transfer_device_tier_sums_of(&plan, zoff_transfer_device_tier_kept(in->transfer, &plan));
    const size_t sums = route->sums ? plan.owned_elements - sums_there : 0;
    info.accumulator_bytes = sums * sizeof(float) + route->rule->bytes(in->transfer, sums);
    info.exchange_bytes = zoff_transfer_ranks_bytes(in->transfer, &plan);
    info.device_bytes += zoff_transfer_ranks_device_bytes(in->transfer, &plan);
    route->link->memory.plan(in->transfer, &plan, &info);
    const zoff_store_owner owner = {zoff_comm_rank(in->comm), in->part};
    info.nvme_memory_bytes =
        zoff_offload_swap_file_memory(in->folders, in->folder_count, info.nvme_bytes, in->values->persist ? &owner : NULL) +
        zoff_offload_swap_file_memory(in->weight_folders, in->weight_folder_count, info.weight_nvme_bytes, NULL);
    const zoff_matrices_opts matrices = {
        .plan = &plan, .model = in->model, .exchanges = zoff_transfer_ranks_have_parts(in->transfer), .threads = in->threads};
    const zoff_status status = zoff_matrices_bytes(&matrices, &info.matrix_bytes);
    if (status < 0)
        zoff_zero_plan_free(&plan);
    ZOFF_TRY(status);
    const char *source;
    info.memory_bytes = zoff_planning_budget_need(&info);
    info.memory_free_bytes = zoff_base_budget_memory("", &source);
    *out_plan = plan;
    *out_info = info;
    return ZOFF_OK;
}

uint64_t zoff_planning_budget_need(const zoff_plan_info *info)
{
    return info->host_bytes + info->accumulator_bytes + info->weight_host_bytes + info->exchange_bytes +
           info->device_host_bytes + info->speculation_bytes + info->nvme_memory_bytes + info->matrix_bytes;
}

/* Refuse matrices that are most of what does not fit. */
static zoff_status check_matrices(const zoff_planning *in, const zoff_plan_info *info, uint64_t have)
{
    const zoff_model_param *whose = NULL;
    zoff_matrix most = {.rows = 0};
    for (size_t i = 0; i < in->model->param_count; i++) {
        for (size_t k = 0; k < zoff_model_matrices_count(in->model, &in->model->params[i]); k++) {
            const zoff_matrix one = zoff_model_matrices_at(in->model, &in->model->params[i], k);
            if (one.rows * one.cols > most.rows * most.cols) {
                most = one;
                whose = &in->model->params[i];
            }
        }
    }
    ZOFF_FAIL_IF(
        whose && info->matrix_bytes > zoff_planning_budget_need(info) / 2, ZOFF_ERR_NO_MEMORY,
        "not enough DRAM: the directions of matrices and their products need %s, because %s has a matrix of %zu x %zu; "
        "have %s. Name it in zoff.adam_params, or use more memory",
        zoff_base_words_bytes(info->matrix_bytes), whose->name, most.rows, most.cols, zoff_base_words_bytes(have));
    return ZOFF_OK;
}

zoff_status zoff_planning_budget_check(const zoff_planning *in, const zoff_plan_info *info)
{
    const char *source;
    if (in->host_bytes && info->host_bytes > in->host_bytes) {
        ZOFF_FAIL_IF(info->tier == ZOFF_TIER_NVME, ZOFF_ERR_NO_MEMORY,
                     "streaming states from NVMe needs at least %s of DRAM (%u slots of %s), but %s is %s: raise it to %llu "
                     "bytes, or lower "
                     "offload_optimizer.buffer_count",
                     zoff_base_words_bytes(info->host_bytes), info->slots, zoff_base_words_bytes(info->chunk_bytes),
                     in->host_bytes_key, zoff_base_words_bytes(in->host_bytes), (unsigned long long)info->host_bytes);
        return zoff_base_status_fail(ZOFF_ERR_NO_MEMORY,
                                     "the optimizer states need %s of DRAM, but %s is %s: raise it to %llu bytes, or set "
                                     "offload_optimizer.device to \"nvme\"",
                                     zoff_base_words_bytes(info->host_bytes), in->host_bytes_key,
                                     zoff_base_words_bytes(in->host_bytes), (unsigned long long)info->host_bytes);
    }
    const uint64_t most = in->values->device_memory;
    ZOFF_FAIL_IF(most && info->device_bytes > most, ZOFF_ERR_NO_MEMORY,
                 "the engine needs %s of device memory, but zoff.device_memory is %s. Lower stage3_max_live_parameters or "
                 "stage3_param_persistence_threshold (fetched weights), or reduce_bucket_size (gradients and exchange); set "
                 "offload_param.device to \"cpu\" or \"nvme\" (stored weights), or offload_optimizer.ratio to 1 (states)",
                 zoff_base_words_bytes(info->device_bytes), zoff_base_words_bytes(most));
    const uint64_t need = zoff_planning_budget_need(info);
    uint64_t have = zoff_base_budget_memory("", &source);
    if (need > have)
        ZOFF_TRY(check_matrices(in, info, have));
    ZOFF_FAIL_IF(
        need > have, ZOFF_ERR_NO_MEMORY,
        "not enough DRAM: need %s (states %s, gradient sums %s, engine-owned weights %s, buffers for other ranks or "
        "a device %s, files in folders that are in memory %s), have %s (%s); %s",
        zoff_base_words_bytes(need), zoff_base_words_bytes(info->host_bytes), zoff_base_words_bytes(info->accumulator_bytes),
        zoff_base_words_bytes(info->weight_host_bytes), zoff_base_words_bytes(info->exchange_bytes + info->device_host_bytes),
        zoff_base_words_bytes(info->nvme_memory_bytes), zoff_base_words_bytes(have), source,
        info->nvme_memory_bytes > need / 2   ? "set nvme_path to a folder on a drive (this one is on a tmpfs), or free memory"
        : info->weight_host_bytes > need / 2 ? "set offload_param.device to \"nvme\" and lower its max_in_cpu and "
                                               "stage3_max_live_parameters, or free memory"
        : info->tier == ZOFF_TIER_NVME       ? "lower zoff.host_memory or gradient_accumulation_steps"
                                             : "set offload_optimizer.device to \"nvme\", or free memory");
    return ZOFF_OK;
}

/* ---- whether files of an earlier process fit the model and its plan ---- */

/* Words per parameter and per chunk. */
enum { PARAM_WORDS = 5, CHUNK_WORDS = 3 };

/* The streams that a parameter has, and the bytes of their elements where these are not fp32. */
static uint64_t streams_word(const zoff_plan_tensor *tensor)
{
    uint64_t word = zoff_zero_plan_streams(tensor);
    for (unsigned stream = 0; stream < ZOFF_STREAM_COUNT; stream++)
        word |= (uint64_t)(tensor->bytes[stream] == sizeof(float) ? 0 : tensor->bytes[stream]) << (8 + 8 * stream);
    return word;
}

/* Two models have the same layout if names, sizes, order and rules of their parameters are equal. With the same cut, too,
 * each state of one has the same place and meaning in the other. Hyper-parameters, weight types, threads and budgets may
 * differ.
 */
zoff_status zoff_planning_layout_checksums(const zoff_planning *in, const zoff_plan *plan, uint64_t *out_layout,
                                           uint64_t *out_cut)
{
    uint64_t *words, used = 0;
    ZOFF_TRY(zoff_base_mem_alloc(PARAM_WORDS * in->model->param_count + CHUNK_WORDS * plan->chunk_count + 2, sizeof *words,
                                 "the layout", &words));
    for (size_t i = 0; i < in->model->param_count; i++) {
        const zoff_model_param *p = &in->model->params[i];
        const zoff_plan_tensor tensor = zoff_model_params_tensor(in->model, p);
        words[used++] = zoff_offload_layout(p->name, strlen(p->name));
        words[used++] = p->count;
        words[used++] = p->slices;
        words[used++] = p->frozen ? 0 : 1u + (unsigned)zoff_model_matrices_optimizer(in->model, p);
        words[used++] = streams_word(&tensor);
    }
    if (in->part) /* the part counts, because parts may have parameters of the same names and sizes */
        words[used++] = in->part;
    *out_layout = zoff_offload_layout(words, used * sizeof *words);
    used = 0;
    for (size_t i = 0; i < plan->chunk_count; i++) {
        words[used++] = plan->chunks[i].bytes;
        words[used++] = plan->chunks[i].elements;
        words[used++] = plan->chunks[i].piece_count;
    }
    *out_cut = zoff_offload_layout(words, used * sizeof *words);
    zoff_base_mem_free(words);
    return ZOFF_OK;
}
