/* SPDX-License-Identifier: Apache-2.0 */
/* resolve.c: merges the three layers into the effective one: the program's value, else the file's, else the default. Then it
 * computes and checks the values that depend on other keys or on the number of ranks. */
#include "config_priv.h"
#include "log.h"
#include "mem.h"
#include "try.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

/* ---- precision: only one of fp16 and bf16, and a valid loss scale. The other keys of fp16 count only with it. ---- */

static bool is_on(const zoff_config_cell *cell)
{
    return cell->kind == ZOFF_CELL_VALUE && cell->integer;
}

zoff_status zoff_config_resolve_check_pair(const zoff_config_cell *fp16, const zoff_config_cell *bf16)
{
    ZOFF_FAIL_IF(is_on(fp16) && is_on(bf16), ZOFF_ERR_INVALID,
                 "%s: fp16.enabled: bf16.enabled is true too, at %s; expected one of the two", fp16->source, bf16->source);
    return ZOFF_OK;
}

/* Refuse fp16 and bf16 together, and check the parameters of the loss scale if fp16 is enabled. */
static zoff_status check_precision(const zoff_config *config)
{
    static const char *const AT_LEAST_1[] = {"fp16.loss_scale_window", "fp16.hysteresis", "fp16.min_loss_scale"};
    const zoff_config_cell *fp16 = zoff_config_value_find(config, "fp16.enabled");
    const zoff_config_cell *scale = zoff_config_value_find(config, "fp16.loss_scale");
    ZOFF_TRY(zoff_config_resolve_check_pair(fp16, zoff_config_value_find(config, "bf16.enabled")));
    if (!is_on(fp16))
        return ZOFF_OK;
    /* Gradients are multiplied by the inverse of the scale, in fp32. */
    ZOFF_FAIL_IF(
        scale->number != 0 && !(scale->number >= (double)FLT_MIN && scale->number <= (double)FLT_MAX), ZOFF_ERR_INVALID,
        "%s: fp16.loss_scale: %g is beyond fp32, in which steps are computed; expected a number from 2e-38 to 3e38, or 0 "
        "for a dynamic one",
        zoff_config_value_source(scale), scale->number);
    for (size_t i = 0; scale->number == 0 && i < sizeof AT_LEAST_1 / sizeof AT_LEAST_1[0]; i++) {
        const zoff_config_cell *cell = zoff_config_value_find(config, AT_LEAST_1[i]);
        ZOFF_FAIL_IF(cell->integer < 1, ZOFF_ERR_INVALID,
                     "%s: %s: %lld is out of range; expected an integer >= 1, because fp16.loss_scale is 0: dynamic",
                     zoff_config_value_source(cell), AT_LEAST_1[i], (long long)cell->integer);
    }
    return ZOFF_OK;
}

/* ---- the batch: train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * ranks. The given keys
 * decide the others, by integer division as in DeepSpeed. Afterwards the equation must hold exactly. ---- */

static uint64_t value_of(const zoff_config_cell *cell)
{
    return cell->kind == ZOFF_CELL_VALUE ? (uint64_t)cell->integer : 0;
}

static void compute(zoff_config_cell *cell, uint64_t value)
{
    cell->kind = ZOFF_CELL_VALUE;
    cell->integer = (int64_t)value;
    cell->number = (double)value;
    cell->is_computed = true;
}

static zoff_status contradiction(const zoff_config_cell *total, const zoff_config_cell *micro, const zoff_config_cell *steps,
                                 unsigned world_size)
{
    return zoff_base_status_fail(
        ZOFF_ERR_INVALID,
        "%s: train_batch_size %llu (%s) != train_micro_batch_size_per_gpu %llu (%s) * gradient_accumulation_steps %llu (%s) * "
        "world size %u (ranks); expected equal sides, all above 0: change one of them, or leave one out and it is computed",
        total->source   ? zoff_config_value_place(total)
        : micro->source ? zoff_config_value_place(micro)
                        : "api",
        (unsigned long long)total->integer, zoff_config_value_source(total), (unsigned long long)micro->integer,
        zoff_config_value_source(micro), (unsigned long long)steps->integer, zoff_config_value_source(steps), world_size);
}

/* Compute the batch sizes that are not given, and check that all three fit together. */
static zoff_status solve_batch(zoff_config *config, unsigned world_size)
{
    zoff_config_cell *total = zoff_config_value_find(config, "train_batch_size");
    zoff_config_cell *micro = zoff_config_value_find(config, "train_micro_batch_size_per_gpu");
    zoff_config_cell *steps = zoff_config_value_find(config, "gradient_accumulation_steps");
    uint64_t all = value_of(total), each = value_of(micro), count = value_of(steps);

    if (count == 0 && all && each)
        compute(steps, all / each / world_size);
    else if (count == 0)
        compute(steps, 1);
    if (all == 0 && each == 0)
        return ZOFF_OK; /* the optimizer does not need the batch sizes */
    count = value_of(steps);
    if (each == 0)
        compute(micro, all / world_size / count);
    each = value_of(micro);

    /* The product of three factors below 2^32 may overflow 64 bits. */
    uint64_t product;
    bool too_large = __builtin_mul_overflow(each, count, &product) ||
                     __builtin_mul_overflow(product, (uint64_t)world_size, &product) || product > UINT32_MAX;
    if (all == 0) {
        ZOFF_FAIL_IF(too_large, ZOFF_ERR_INVALID,
                     "%s: train_micro_batch_size_per_gpu %llu * gradient_accumulation_steps %llu (%s) * world size %u (ranks) "
                     "is too large; expected a train_batch_size below 2^32",
                     zoff_config_value_place(micro), (unsigned long long)each, (unsigned long long)count,
                     zoff_config_value_source(steps), world_size);
        compute(total, product);
    }
    return !too_large && product > 0 && product == value_of(total) ? ZOFF_OK : contradiction(total, micro, steps, world_size);
}

#define DEVICE "zero_optimization.offload_optimizer.device"
#define NVME_PATH "zero_optimization.offload_optimizer.nvme_path"
#define WEIGHT_DEVICE "zero_optimization.offload_param.device"
#define WEIGHT_PATH "zero_optimization.offload_param.nvme_path"
#define GROUP "zero_optimization.zero_hpz_partition_size"

/* ---- layers ---- */

static void merge_layers(zoff_config *config)
{
    for (size_t i = 0; i < config->key_count; i++) {
        const zoff_config_cell *cell = config->api[i].kind != ZOFF_CELL_ABSENT ? &config->api[i] : &config->file[i];
        config->effective[i] = zoff_config_value_has(cell) ? *cell : config->defaults[i];
        config->effective[i].source = cell->source; /* the source stays, even if the cell is "auto" and the value a default */
    }
}

/* ---- old names ---- */

static bool is_from_api(const zoff_config *config, const zoff_config_cell *cell)
{
    return cell >= config->api && cell < config->api + config->key_count;
}

static void apply_cpu_offload(zoff_config *config, const char *old_path, const char *device_path)
{
    const zoff_config_cell *old = zoff_config_value_given(config, old_path),
                           *device = zoff_config_value_given(config, device_path);
    if (!zoff_config_value_has(old) || !old->integer)
        return;
    if (zoff_config_value_has(device) && (is_from_api(config, device) || !is_from_api(config, old)))
        return;
    zoff_config_cell *cell = zoff_config_value_find(config, device_path);
    *cell = config->cpu_device;
    cell->source = old->source;
}

/* Set the default without a source, so that `zoff check` does not name a file for it. */
static void use_default(zoff_config *config, const char *path)
{
    const size_t row = zoff_config_schema_index(zoff_config_schema_find(path));
    *zoff_config_value_find(config, path) = config->defaults[row];
}

/* Below stage 3 weights are not offloaded, as in DeepSpeed. */
static void settle_weights(zoff_config *config)
{
    zoff_config_cell *device = zoff_config_value_find(config, WEIGHT_DEVICE);
    const zoff_config_cell *stage = zoff_config_value_find(config, "zero_optimization.stage");
    if (stage->integer == 3 || strcmp(device->texts[0], "none") == 0)
        return;
    if (!config->has_warned)
        ZOFF_WARN("%s: " WEIGHT_DEVICE " \"%s\" has no effect at stage %lld; weights are offloaded at stage 3", device->source,
                  device->texts[0], (long long)stage->integer);
    use_default(config, WEIGHT_DEVICE);
}

/* Below stage 3 weights are not partitioned, as in DeepSpeed. A group of all ranks needs no second partition. */
static zoff_status settle_group(zoff_config *config, unsigned world_size)
{
    zoff_config_cell *group = zoff_config_value_find(config, GROUP);
    const zoff_config_cell *stage = zoff_config_value_find(config, "zero_optimization.stage");
    if (group->integer <= 1)
        return ZOFF_OK;
    if (stage->integer != 3 && !config->has_warned)
        ZOFF_WARN("%s: " GROUP " %lld has no effect at stage %lld; weights are partitioned at stage 3", group->source,
                  (long long)group->integer, (long long)stage->integer);
    ZOFF_FAIL_IF(stage->integer == 3 && group->integer < world_size && world_size % (uint64_t)group->integer, ZOFF_ERR_INVALID,
                 "%s: " GROUP " is %lld, which does not divide %u ranks; set it to the number of ranks of a node",
                 zoff_config_value_source(group), (long long)group->integer, world_size);
    if (stage->integer != 3 || group->integer >= world_size)
        use_default(config, GROUP);
    return ZOFF_OK;
}

/* ---- values to measure ---- */

/* With "aio": "auto", mark the keys that neither program nor file has given: zoff_aio_tune() chooses them. */
static void leave_to_tuning(zoff_config *config)
{
    static const char *const TUNED[] = {"aio.block_size", "aio.queue_depth"};
    const zoff_config_cell *section = zoff_config_value_given(config, "aio");
    if (!section || section->kind != ZOFF_CELL_AUTO)
        return;
    for (size_t i = 0; i < sizeof TUNED / sizeof TUNED[0]; i++) {
        if (!zoff_config_value_has(zoff_config_value_given(config, TUNED[i])))
            *zoff_config_value_find(config, TUNED[i]) = (zoff_config_cell){.kind = ZOFF_CELL_AUTO, .source = section->source};
    }
}

/* ---- paths ---- */

static zoff_status take_paths(const zoff_config_cell *cell, const char ***paths, size_t *count)
{
    zoff_base_mem_free(*paths);
    *paths = NULL;
    *count = 0;
    if (!zoff_config_value_has(cell))
        return ZOFF_OK;
    ZOFF_TRY(zoff_base_mem_alloc(cell->count, sizeof **paths, "the folders for state files", paths));
    for (size_t i = 0; i < cell->count; i++)
        (*paths)[i] = cell->texts[i];
    *count = cell->count;
    return ZOFF_OK;
}

/* Choose between the two keys that give folders. The program's value wins over the file's. If both have the same origin,
 * zoff.nvme_paths wins over DeepSpeed's key. */
static zoff_status gather_paths(zoff_config *config)
{
    const zoff_config_cell *ours = zoff_config_value_given(config, "zoff.nvme_paths"),
                           *theirs = zoff_config_value_given(config, NVME_PATH), *cell = ours;
    if (!zoff_config_value_has(ours) ||
        (zoff_config_value_has(theirs) && is_from_api(config, theirs) && !is_from_api(config, ours)))
        cell = theirs;
    if (zoff_config_value_has(ours) && zoff_config_value_has(theirs) && !config->has_warned)
        ZOFF_WARN("zoff.nvme_paths (%s) and " NVME_PATH " (%s) are both given: the folders of %s are used", ours->source,
                  theirs->source, cell == ours ? "zoff.nvme_paths" : NVME_PATH);
    const zoff_config_cell *weights = zoff_config_value_given(config, WEIGHT_PATH);
    ZOFF_TRY(take_paths(cell, &config->paths, &config->path_count));
    return take_paths(weights, &config->weight_paths, &config->weight_path_count);
}

static zoff_status check_paths(const zoff_config *config)
{
    const zoff_config_cell *device = zoff_config_value_find(config, DEVICE);
    const zoff_config_cell *weights = zoff_config_value_find(config, WEIGHT_DEVICE);
    ZOFF_FAIL_IF(strcmp(weights->texts[0], "nvme") == 0 && config->weight_path_count + config->path_count == 0,
                 ZOFF_ERR_INVALID, "%s: " WEIGHT_DEVICE ": \"nvme\" needs a folder for its files; expected " WEIGHT_PATH,
                 zoff_config_value_source(weights));
    ZOFF_FAIL_IF(strcmp(device->texts[0], "nvme") == 0 && config->path_count == 0, ZOFF_ERR_INVALID,
                 "%s: " DEVICE ": \"nvme\" needs a folder for its files; expected " NVME_PATH " (or zoff.nvme_paths)",
                 zoff_config_value_source(device));
    return ZOFF_OK;
}

zoff_status zoff_config_resolve_settle(zoff_config *config, unsigned world_size)
{
    ZOFF_FAIL_IF(world_size == 0, ZOFF_ERR_INVALID, "zoff_config_resolve: world_size must be at least 1");
    config->is_resolved = false;
    merge_layers(config);
    apply_cpu_offload(config, "zero_optimization.cpu_offload", DEVICE);
    apply_cpu_offload(config, "zero_optimization.cpu_offload_params", WEIGHT_DEVICE);
    settle_weights(config);
    ZOFF_TRY(settle_group(config, world_size));
    leave_to_tuning(config);
    ZOFF_TRY(solve_batch(config, world_size));
    ZOFF_TRY(gather_paths(config));
    ZOFF_TRY(zoff_config_schedule_settle(config));
    ZOFF_TRY(check_precision(config));
    ZOFF_TRY(zoff_config_optimizer_settle(config));
    config->has_warned = true;
    config->world_size = world_size;
    config->is_resolved = true;
    return ZOFF_OK;
}

zoff_status zoff_config_resolve(zoff_config *config, unsigned world_size)
{
    ZOFF_FAIL_IF(!config, ZOFF_ERR_INVALID, "zoff_config_resolve: config must not be NULL");
    ZOFF_TRY(zoff_config_resolve_settle(config, world_size));
    zoff_status status = check_paths(config);
    config->is_resolved = status == ZOFF_OK;
    return status;
}
