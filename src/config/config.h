/* config.h: the door of the config room for the engine: the values of a resolved configuration, typed. */
#ifndef ZOFF_CONFIG_DOOR_H
#define ZOFF_CONFIG_DOOR_H

#include <zoff/config.h>
#include <zoff/types.h>

typedef enum zoff_schedule_type {
    ZOFF_SCHEDULE_NONE,
    ZOFF_SCHEDULE_WARMUP,
    ZOFF_SCHEDULE_WARMUP_DECAY,
    ZOFF_SCHEDULE_WARMUP_COSINE,
    ZOFF_SCHEDULE_ONE_CYCLE,
    ZOFF_SCHEDULE_RANGE_TEST
} zoff_schedule_type;

/* OneCycle: cycle_* and decay_*; counts of steps as in its formulas, which are in floating point. */
typedef struct zoff_cycle_values {
    double min_lr, max_lr, lr_rate;
    double first, second;               /* cycle_*_step_size */
    double first_stairs, second_stairs; /* cycle_*_stair_count; 0: none */
    double decay_step;                  /* 0: no decay */
    bool moves_momentum;
    double min_momentum, max_momentum, momentum_rate;
} zoff_cycle_values;

/* LRRangeTest: lr_range_test_* */
typedef struct zoff_range_test_values {
    double min_lr, step, rate;
    bool stairs;
} zoff_range_test_values;

/* scheduler.*; the formulas are in model/lr_schedule.c */
typedef struct zoff_schedule_values {
    zoff_schedule_type type;
    double min_lr;    /* WarmupLR, WarmupDecayLR: warmup_min_lr */
    double max_lr;    /* likewise warmup_max_lr; < 0: the group's own lr */
    double min_ratio; /* WarmupCosineLR: warmup_min_ratio */
    double cos_ratio; /* WarmupCosineLR: cos_min_ratio */
    uint64_t warmup;  /* warmup_num_steps, at least 2 */
    uint64_t total;   /* WarmupDecayLR, WarmupCosineLR: total_num_steps */
    bool linear;      /* warmup_type "linear" instead of "log" */
    zoff_cycle_values cycle;
    zoff_range_test_values range_test;
} zoff_schedule_values;

/* fp16.* */
typedef struct zoff_fp16_values {
    bool enabled;
    bool dynamic;         /* loss_scale is 0; the rest but `scale` is for that */
    double scale;         /* the first one, or the only one */
    double min_scale;     /* min_loss_scale */
    int64_t window;       /* loss_scale_window */
    uint64_t hysteresis;  /* at least 1 */
    bool refills_at_once; /* consecutive_hysteresis */
} zoff_fp16_values;

/* offload_param.* and stage3_*: of the weights that the engine keeps. Counts are elements. */
typedef struct zoff_weight_values {
    zoff_tier tier;           /* offload_param.device; HOST or NVME */
    const char *const *paths; /* its nvme_path; none: those of the states. Owned by the configuration */
    size_t path_count;
    unsigned slots;            /* buffer_count */
    uint64_t chunk_count;      /* buffer_size */
    uint64_t cached_count;     /* max_in_cpu */
    uint64_t ahead_count;      /* stage3_prefetch_bucket_size */
    uint64_t persistent_slice; /* stage3_param_persistence_threshold */
    uint64_t persistent_count; /* stage3_model_persistence_threshold */
    uint64_t live_count;       /* stage3_max_live_parameters; 0: one slice of each parameter */
} zoff_weight_values;

typedef struct zoff_config_values {
    zoff_optimizer_hyper hyper;    /* optimizer.* */
    double initial_accumulator;    /* Adagrad: initial_accumulator_value */
    zoff_schedule_values schedule; /* scheduler.* */
    double clip_norm;              /* gradient_clipping; 0: none */
    uint32_t accumulation;         /* gradient_accumulation_steps */
    uint32_t micro_batch;          /* train_micro_batch_size_per_gpu; 0 when the configuration gives no batch key at all */
    uint32_t train_batch;          /* train_batch_size; likewise */
    unsigned zero_stage;           /* 0 to 3 */
    uint64_t bucket_elements;      /* zero_optimization.reduce_bucket_size; 0: the largest slice */
    zoff_dtype wire_dtype;         /* communication_data_type; 0: that of each gradient */
    bool nccl_adds;                /* zoff.reduce_scatter is "nccl" */
    double grad_factor;   /* of each gradient before the sum over ranks: prescale_gradients, gradient_predivide_factor */
    zoff_tier state_tier; /* offload_optimizer.device; HOST or NVME */
    const char *const *nvme_paths; /* offload_optimizer.nvme_path and zoff.nvme_paths; owned by the configuration */
    size_t nvme_path_count;
    uint64_t host_bytes;      /* zoff.host_memory; 0: auto */
    uint64_t chunk_elements;  /* zero_optimization.sub_group_size; 0: the largest slice */
    unsigned slots;           /* offload_optimizer.buffer_count */
    double ratio;             /* offload_optimizer.ratio */
    unsigned threads;         /* zoff.threads; 0: auto */
    bool skip_nonfinite;      /* zoff.skip_nonfinite */
    bool aio_tune;            /* "aio": "auto": those of the next two that are 0 are what zoff_aio_tune() finds */
    uint64_t aio_block_bytes; /* aio.block_size */
    unsigned aio_depth;       /* aio.queue_depth */
    int direct;               /* zoff.direct_io, a zoff_aio_direct */
    const char *aio_backend;  /* zoff.io_backend; NULL: auto */
    bool persist;             /* zoff.persist */
    bool power_safe;          /* zoff.durability is "power" */
    unsigned verify;          /* zoff.verify: 0 full, 1 sample, 2 off */
    uint64_t steps_per_print; /* 0: never */
    bool wants_bf16;          /* bf16.enabled */
    zoff_fp16_values fp16;
    zoff_weight_values weights;
} zoff_config_values;

/* Resolve for `world_size` ranks and hand out the values; they live until the configuration is set, resolved again or closed.
 * An NVMe tier without a folder passes here: zoff_engine_opts may name one. */
zoff_status zoff_config_values_get(zoff_config *config, unsigned world_size, zoff_config_values *out);

/* agree.c: every key that must be the same on all ranks, with its effective value: "key\0value\0key\0value\0". The
 * configuration is one that zoff_config_values_get() has resolved.  @owns caller; zoff_base_mem_free() */
zoff_status zoff_config_agree_list(const zoff_config *config, char **out, size_t *out_bytes);

/* Of a resolved configuration: warn once of every "auto" that decides what is trained and that nobody has filled in, with the
 * value that is taken. ERR_INVALID where there is none to take. Only `warns` says whether the warning is made. */
zoff_status zoff_config_autos_check(const zoff_config *config, bool warns);

/* Of a resolved configuration: optimizer, lr, schedule and clipping, each with where it came from, for the start of a log. */
void zoff_config_training_words(const zoff_config *config, char *dst, size_t dst_bytes);

/* Where the value of a key came from, for messages: "ds_config.json:3:5", "auto at ds_config.json:3:5", "api", "computed",
 * "default". Never NULL. */
const char *zoff_config_source(const zoff_config *config, const char *key);

#endif
