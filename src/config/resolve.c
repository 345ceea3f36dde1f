/* resolve.c: merges the three layers into the effective one: the program's value, else the file's, else the default. Then it
 * computes and checks the values that depend on other keys or on the number of ranks. */
#include "config_priv.h"
#include "log.h"
#include "mem.h"
#include "try.h"

#include <stdio.h>
#include <string.h>

#define DEVICE "zero_optimization.offload_optimizer.device"
#define NVME_PATH "zero_optimization.offload_optimizer.nvme_path"
#define WEIGHT_DEVICE "zero_optimization.offload_param.device"
#define WEIGHT_PATH "zero_optimization.offload_param.nvme_path"
#define GROUP "zero_optimization.zero_hpz_partition_size"

/* ---- layers ---- */

static bool has_value(const zoff_config_cell *cell)
{
    return cell && cell->kind == ZOFF_CELL_VALUE;
}

static void merge_layers(zoff_config *config)
{
    for (size_t i = 0; i < config->key_count; i++) {
        const zoff_config_cell *cell = config->api[i].kind != ZOFF_CELL_ABSENT ? &config->api[i] : &config->file[i];
        config->effective[i] = has_value(cell) ? *cell : config->defaults[i];
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
    const zoff_config_cell *old = zoff_config_cells_given(config, old_path),
                           *device = zoff_config_cells_given(config, device_path);
    if (!has_value(old) || !old->integer)
        return;
    if (has_value(device) && (is_from_api(config, device) || !is_from_api(config, old)))
        return;
    zoff_config_cell *cell = zoff_config_cells_find(config, device_path);
    *cell = config->cpu_device;
    cell->source = old->source;
}

/* Set the default without a source, so that `zoff check` does not name a file for it. */
static void use_default(zoff_config *config, const char *path)
{
    const size_t row = zoff_config_schema_index(zoff_config_schema_find(path));
    *zoff_config_cells_find(config, path) = config->defaults[row];
}

/* Below stage 3 weights are not offloaded, as in DeepSpeed. */
static void settle_weights(zoff_config *config)
{
    zoff_config_cell *device = zoff_config_cells_find(config, WEIGHT_DEVICE);
    const zoff_config_cell *stage = zoff_config_cells_find(config, "zero_optimization.stage");
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
    zoff_config_cell *group = zoff_config_cells_find(config, GROUP);
    const zoff_config_cell *stage = zoff_config_cells_find(config, "zero_optimization.stage");
    if (group->integer <= 1)
        return ZOFF_OK;
    if (stage->integer != 3 && !config->has_warned)
        ZOFF_WARN("%s: " GROUP " %lld has no effect at stage %lld; weights are partitioned at stage 3", group->source,
                  (long long)group->integer, (long long)stage->integer);
    ZOFF_FAIL_IF(stage->integer == 3 && group->integer < world_size && world_size % (uint64_t)group->integer, ZOFF_ERR_INVALID,
                 "%s: " GROUP " is %lld, which does not divide %u ranks; set it to the number of ranks of a node",
                 zoff_config_cells_source(group), (long long)group->integer, world_size);
    if (stage->integer != 3 || group->integer >= world_size)
        use_default(config, GROUP);
    return ZOFF_OK;
}

/* ---- values to measure ---- */

/* With "aio": "auto", mark the keys that neither program nor file has given: zoff_aio_tune() chooses them. */
static void leave_to_tuning(zoff_config *config)
{
    static const char *const TUNED[] = {"aio.block_size", "aio.queue_depth"};
    const zoff_config_cell *section = zoff_config_cells_given(config, "aio");
    if (!section || section->kind != ZOFF_CELL_AUTO)
        return;
    for (size_t i = 0; i < sizeof TUNED / sizeof TUNED[0]; i++) {
        if (!has_value(zoff_config_cells_given(config, TUNED[i])))
            *zoff_config_cells_find(config, TUNED[i]) = (zoff_config_cell){.kind = ZOFF_CELL_AUTO, .source = section->source};
    }
}

/* ---- paths ---- */

static zoff_status take_paths(const zoff_config_cell *cell, const char ***paths, size_t *count)
{
    zoff_base_mem_free(*paths);
    *paths = NULL;
    *count = 0;
    if (!has_value(cell))
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
    const zoff_config_cell *ours = zoff_config_cells_given(config, "zoff.nvme_paths"),
                           *theirs = zoff_config_cells_given(config, NVME_PATH), *cell = ours;
    if (!has_value(ours) || (has_value(theirs) && is_from_api(config, theirs) && !is_from_api(config, ours)))
        cell = theirs;
    if (has_value(ours) && has_value(theirs) && !config->has_warned)
        ZOFF_WARN("zoff.nvme_paths (%s) and " NVME_PATH " (%s) are both given: the folders of %s are used", ours->source,
                  theirs->source, cell == ours ? "zoff.nvme_paths" : NVME_PATH);
    const zoff_config_cell *weights = zoff_config_cells_given(config, WEIGHT_PATH);
    ZOFF_TRY(take_paths(cell, &config->paths, &config->path_count));
    return take_paths(weights, &config->weight_paths, &config->weight_path_count);
}

static zoff_status check_paths(const zoff_config *config)
{
    const zoff_config_cell *device = zoff_config_cells_find(config, DEVICE);
    const zoff_config_cell *weights = zoff_config_cells_find(config, WEIGHT_DEVICE);
    ZOFF_FAIL_IF(strcmp(weights->texts[0], "nvme") == 0 && config->weight_path_count + config->path_count == 0,
                 ZOFF_ERR_INVALID, "%s: " WEIGHT_DEVICE ": \"nvme\" needs a folder for its files; expected " WEIGHT_PATH,
                 zoff_config_cells_source(weights));
    ZOFF_FAIL_IF(strcmp(device->texts[0], "nvme") == 0 && config->path_count == 0, ZOFF_ERR_INVALID,
                 "%s: " DEVICE ": \"nvme\" needs a folder for its files; expected " NVME_PATH " (or zoff.nvme_paths)",
                 zoff_config_cells_source(device));
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
    ZOFF_TRY(zoff_config_batch_solve(config, world_size));
    ZOFF_TRY(gather_paths(config));
    ZOFF_TRY(zoff_config_schedule_settle(config));
    ZOFF_TRY(zoff_config_precision_check(config));
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
