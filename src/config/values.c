/* SPDX-License-Identifier: Apache-2.0 */
/* values.c: converts the effective cells into the typed struct that the engine uses. */
#include "config.h"

#include "config_priv.h"
#include "try.h"

#include <math.h>
#include <string.h>
#include <zoff/aio.h>

static double number(const zoff_config *config, const char *path)
{
    return zoff_config_value_find(config, path)->number;
}

/* An integer value; 0 if it is "auto" or not set. Counts above 2^53 mean "no limit". They are cut to 2^53, because the engine
 * multiplies counts by element sizes. */
static uint64_t integer(const zoff_config *config, const char *path)
{
    const int64_t most = (int64_t)1 << 53;
    const zoff_config_cell *cell = zoff_config_value_find(config, path);
    return cell->kind == ZOFF_CELL_VALUE ? (uint64_t)(cell->integer < most ? cell->integer : most) : 0;
}

/* A buffer_count, limited to 2 to 1024, as the help of both keys says. */
static unsigned buffer_count(const zoff_config *config, const char *path)
{
    const uint64_t count = integer(config, path);
    return (unsigned)(count < 2 ? 2 : count > 1024 ? 1024 : count);
}

/* The first text of a value, or NULL if it is not set. */
static const char *text(const zoff_config *config, const char *path)
{
    const zoff_config_cell *cell = zoff_config_value_find(config, path);
    return cell->kind == ZOFF_CELL_VALUE ? cell->texts[0] : NULL;
}

static bool is_auto(const zoff_config *config, const char *path)
{
    return zoff_config_value_find(config, path)->kind == ZOFF_CELL_AUTO;
}

static bool is_given(const zoff_config *config, const char *path)
{
    const zoff_config_cell *cell = zoff_config_value_given(config, path);
    return cell && cell->kind == ZOFF_CELL_VALUE;
}

static bool is_text(const zoff_config *config, const char *path, const char *wanted)
{
    const char *found = text(config, path);
    return found && strcmp(found, wanted) == 0;
}

#define BIAS_CORRECTION "optimizer.params.bias_correction"

/* The place of a key's value in the list of words of its row. */
static unsigned place_of(const zoff_config *config, const char *path)
{
    const char *word = text(config, path), *list = zoff_config_schema_find(path)->choices, *at;
    size_t bytes;
    unsigned place = 0;
    (void)zoff_config_schema_in_list(list, word, &at, &bytes);
    for (; list < at; list++)
        place += *list == '|';
    return place;
}

/* The words stand in the order of the enumerations. */
static void fill_muon(const zoff_config *config, zoff_optimizer_hyper *out)
{
    const char *scale = text(config, "zoff.muon_scale") ? "zoff.muon_scale" : "optimizer.params.adjust_lr_fn";
    out->lr = number(config, "optimizer.params.muon_lr");
    out->adam_lr = number(config, "optimizer.params.adam_lr");
    out->ns_steps = (unsigned)integer(config, "optimizer.params.ns_steps");
    out->ns_method = (zoff_muon_method)place_of(config, "optimizer.params.ns_method");
    out->scale = (zoff_muon_scale)place_of(config, scale);
    out->coefficients = (zoff_muon_coefficients)place_of(config, "zoff.muon_coefficients");
}

static void fill_hyper(const zoff_config *config, zoff_optimizer_hyper *out)
{
    const zoff_config_cell *betas = zoff_config_value_find(config, "optimizer.params.betas");
    bool l2 = is_text(config, "optimizer.type", "Adam") && !integer(config, "optimizer.params.adam_w_mode");
    zoff_optimizer_hyper_init(out, zoff_config_optimizer_type(config));
    out->lr = number(config, "optimizer.params.lr");
    out->beta1 = betas->numbers[0];
    out->beta2 = betas->numbers[1];
    out->eps = number(config, "optimizer.params.eps");
    out->weight_decay = number(config, "optimizer.params.weight_decay");
    out->decay = l2 ? ZOFF_DECAY_L2 : ZOFF_DECAY_DECOUPLED;
    out->momentum = number(config, "optimizer.params.momentum");
    out->dampening = number(config, "optimizer.params.dampening");
    out->nesterov = integer(config, "optimizer.params.nesterov") != 0;
    out->lr_decay = number(config, "optimizer.params.lr_decay");
    if (zoff_config_optimizer_has(config, "optimizer.params.muon_lr"))
        fill_muon(config, out);
    if (zoff_config_optimizer_has(config, BIAS_CORRECTION) && !integer(config, BIAS_CORRECTION))
        out->flags |= ZOFF_HYPER_NO_BIAS_CORRECTION;
}

static zoff_schedule_type schedule_type(const zoff_config *config)
{
    static const struct {
        const char *name;
        zoff_schedule_type type;
    } NAMES[] = {{"WarmupLR", ZOFF_SCHEDULE_WARMUP},
                 {"WarmupDecayLR", ZOFF_SCHEDULE_WARMUP_DECAY},
                 {"WarmupCosineLR", ZOFF_SCHEDULE_WARMUP_COSINE},
                 {"OneCycle", ZOFF_SCHEDULE_ONE_CYCLE},
                 {"LRRangeTest", ZOFF_SCHEDULE_RANGE_TEST}};
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        if (is_text(config, "scheduler.type", NAMES[i].name))
            return NAMES[i].type;
    }
    return ZOFF_SCHEDULE_NONE;
}

/* The number of `path`, or that of `other` if `path` is not set. */
static double number_or(const zoff_config *config, const char *path, const char *other)
{
    const zoff_config_cell *cell = zoff_config_value_find(config, path);
    return cell->kind == ZOFF_CELL_VALUE ? cell->number : number(config, other);
}

static zoff_cycle_values cycle_of(const zoff_config *config)
{
    return (zoff_cycle_values){
        .min_lr = number(config, "scheduler.params.cycle_min_lr"),
        .max_lr = number(config, "scheduler.params.cycle_max_lr"),
        .lr_rate = number(config, "scheduler.params.decay_lr_rate"),
        .first = number(config, "scheduler.params.cycle_first_step_size"),
        .second = number_or(config, "scheduler.params.cycle_second_step_size", "scheduler.params.cycle_first_step_size"),
        .first_stairs = number(config, "scheduler.params.cycle_first_stair_count"),
        .second_stairs =
            number_or(config, "scheduler.params.cycle_second_stair_count", "scheduler.params.cycle_first_stair_count"),
        .decay_step = number(config, "scheduler.params.decay_step_size"),
        .moves_momentum = integer(config, "scheduler.params.cycle_momentum") != 0,
        .min_momentum = number(config, "scheduler.params.cycle_min_mom"),
        .max_momentum = number(config, "scheduler.params.cycle_max_mom"),
        .momentum_rate = number(config, "scheduler.params.decay_mom_rate"),
    };
}

static void fill_schedule(const zoff_config *config, zoff_schedule_values *out)
{
    const zoff_config_cell *max_lr = zoff_config_value_find(config, "scheduler.params.warmup_max_lr");
    uint64_t warmup = integer(config, "scheduler.params.warmup_num_steps");
    *out = (zoff_schedule_values){
        .type = schedule_type(config),
        .min_lr = number(config, "scheduler.params.warmup_min_lr"),
        .max_lr = max_lr->kind == ZOFF_CELL_VALUE ? max_lr->number : -1.0,
        .min_ratio = number(config, "scheduler.params.warmup_min_ratio"),
        .cos_ratio = number(config, "scheduler.params.cos_min_ratio"),
        .warmup = warmup < 2 ? 2 : warmup,
        .total = integer(config, "scheduler.params.total_num_steps"),
        .linear = is_text(config, "scheduler.params.warmup_type", "linear"),
        .cycle = cycle_of(config),
        .range_test = {.min_lr = number(config, "scheduler.params.lr_range_test_min_lr"),
                       .step = number(config, "scheduler.params.lr_range_test_step_size"),
                       .rate = number(config, "scheduler.params.lr_range_test_step_rate"),
                       .stairs = integer(config, "scheduler.params.lr_range_test_staircase") != 0},
    };
}

static zoff_fp16_values fp16_of(const zoff_config *config)
{
    const double scale = number(config, "fp16.loss_scale");
    return (zoff_fp16_values){
        .enabled = integer(config, "fp16.enabled") != 0,
        .dynamic = scale == 0,
        .scale = scale == 0 ? ldexp(1.0, (int)integer(config, "fp16.initial_scale_power")) : scale,
        .min_scale = number(config, "fp16.min_loss_scale"),
        .window = (int64_t)integer(config, "fp16.loss_scale_window"),
        .hysteresis = integer(config, "fp16.hysteresis"),
        .refills_at_once = integer(config, "fp16.consecutive_hysteresis") != 0,
    };
}

static void fill_weights(const zoff_config *config, zoff_weight_values *out)
{
    const bool nvme = is_text(config, "zero_optimization.offload_param.device", "nvme");
    const uint64_t live = integer(config, "zero_optimization.stage3_max_live_parameters");
    const uint64_t chunk = integer(config, "zero_optimization.offload_param.buffer_size");
    *out = (zoff_weight_values){
        .tier = nvme ? ZOFF_TIER_NVME : ZOFF_TIER_HOST,
        .stays = is_text(config, "zero_optimization.offload_param.device", "none"),
        .paths = config->weight_paths,
        .path_count = config->weight_path_count,
        .slots = buffer_count(config, "zero_optimization.offload_param.buffer_count"),
        .chunk_count = chunk < 1024 ? 1024 : chunk,
        .cached_count = integer(config, "zero_optimization.offload_param.max_in_cpu"),
        .ahead_count = live ? integer(config, "zero_optimization.stage3_prefetch_bucket_size") : 0,
        .persistent_slice = integer(config, "zero_optimization.stage3_param_persistence_threshold"),
        .persistent_count = integer(config, "zero_optimization.stage3_model_persistence_threshold"),
        .live_count = live,
        .group_ranks = (unsigned)integer(config, "zero_optimization.zero_hpz_partition_size"),
    };
}

static zoff_dtype fill_wire(const zoff_config *config)
{
    const char *key = "communication_data_type";
    return is_text(config, key, "fp32")                                    ? ZOFF_F32
           : is_text(config, key, "bf16") || is_text(config, key, "bfp16") ? ZOFF_BF16
           : is_text(config, key, "fp16")                                  ? ZOFF_F16
                                                                           : (zoff_dtype)0;
}

static void fill_sums(const zoff_config *config, zoff_config_values *out)
{
    out->sums = (zoff_sums)place_of(config, "zoff.reduce_scatter");
    out->between_nodes = (zoff_between)place_of(config, "zoff.between_nodes");
    out->node_ranks = (unsigned)integer(config, "zoff.node_ranks");
}

static zoff_patterns patterns(const zoff_config *config, const char *path)
{
    const zoff_config_cell *cell = zoff_config_value_find(config, path);
    return (zoff_patterns){(const char *const *)cell->texts, cell->count};
}

static void fill_patterns(const zoff_config *config, zoff_config_values *out)
{
    out->fp32_moments = patterns(config, "zoff.fp32_moments");
    out->no_decay = patterns(config, "zoff.no_decay");
    out->muon_params = patterns(config, "zoff.muon_params");
    out->adam_params = patterns(config, "zoff.adam_params");
    out->muon_rows = patterns(config, "zoff.muon_rows");
}

zoff_status zoff_config_values_get(zoff_config *config, unsigned world_size, zoff_config_values *out)
{
    ZOFF_FAIL_IF(!config || !out, ZOFF_ERR_INVALID, "zoff_config_values_get: config and out must not be NULL");
    if (!config->is_resolved || config->world_size != world_size)
        ZOFF_TRY(zoff_config_resolve_settle(config, world_size));
    bool nvme = is_text(config, "zero_optimization.offload_optimizer.device", "nvme");
    const char *backend = text(config, "zoff.io_backend");
    zoff_config_values values = {
        .clip_norm = fmax(number(config, "gradient_clipping"), 0),
        .accumulation = (uint32_t)integer(config, "gradient_accumulation_steps"),
        .micro_batch = (uint32_t)integer(config, "train_micro_batch_size_per_gpu"),
        .train_batch = (uint32_t)integer(config, "train_batch_size"),
        .zero_stage = (unsigned)integer(config, "zero_optimization.stage"),
        .bucket_elements = integer(config, "zero_optimization.reduce_bucket_size"),
        .bucket_is_given = is_given(config, "zero_optimization.reduce_bucket_size"),
        .wire_dtype = fill_wire(config),
        .sums_ranks = is_text(config, "gradient_allreduce_op", "sum"),
        .grad_factor =
            integer(config, "prescale_gradients") ? 1.0 / world_size : 1.0 / number(config, "gradient_predivide_factor"),
        .state_tier = nvme ? ZOFF_TIER_NVME : ZOFF_TIER_HOST,
        .nvme_paths = config->paths,
        .nvme_path_count = config->path_count,
        .device_memory = integer(config, "zoff.device_memory"),
        .host_bytes = integer(config, "zoff.host_memory"),
        .chunk_elements = integer(config, "zero_optimization.sub_group_size"),
        .slots = buffer_count(config, "zero_optimization.offload_optimizer.buffer_count"),
        .ratio = number(config, "zero_optimization.offload_optimizer.ratio"),
        .threads = (unsigned)integer(config, "zoff.threads"),
        .background_threads = (unsigned)integer(config, "zoff.background_threads"),
        .speculation_bytes = integer(config, "zoff.speculation_memory"),
        .skip_nonfinite = integer(config, "zoff.skip_nonfinite"),
        .most_skipped = integer(config, "zoff.skip_nonfinite") == ZOFF_FLAG_COUNT ? number(config, "zoff.skip_nonfinite") : 0,
        .check_use = integer(config, "zoff.check_use"),
        .aio_tune = is_auto(config, "aio.block_size") || is_auto(config, "aio.queue_depth"),
        .aio_block_bytes = integer(config, "aio.block_size"),
        .aio_depth = (unsigned)integer(config, "aio.queue_depth"),
        .direct = is_text(config, "zoff.direct_io", "require") ? ZOFF_DIRECT_REQUIRE
                  : is_text(config, "zoff.direct_io", "off")   ? ZOFF_DIRECT_OFF
                                                               : ZOFF_DIRECT_AUTO,
        .aio_backend = backend && strcmp(backend, "auto") != 0 ? backend : NULL,
        .persist = integer(config, "zoff.persist") != 0,
        .persist_required = integer(config, "zoff.persist") == ZOFF_FLAG_WORD,
        .power_safe = is_text(config, "zoff.durability", "power"),
        .verify = is_text(config, "zoff.verify", "sample") + 2u * is_text(config, "zoff.verify", "off"),
        .steps_per_print = integer(config, "steps_per_print"),
        .moments = place_of(config, "zoff.moments"),
        .whole_masters = is_text(config, "zoff.master", "fp32"),
        .split_asked = is_text(config, "zoff.master", "split"),
        .initial_accumulator = number(config, "optimizer.params.initial_accumulator_value"),
        .wants_bf16 = integer(config, "bf16.enabled") != 0,
        .fp16 = fp16_of(config),
    };
    fill_sums(config, &values);
    fill_patterns(config, &values);
    fill_hyper(config, &values.hyper);
    fill_schedule(config, &values.schedule);
    fill_weights(config, &values.weights);
    *out = values;
    return ZOFF_OK;
}
