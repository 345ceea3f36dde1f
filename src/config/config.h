/* SPDX-License-Identifier: Apache-2.0 */
/* config.h: the interface of src/config for the engine: the values of a resolved configuration as typed structs. */
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

/* OneCycle: cycle_* and decay_*. Counts of steps are doubles, because the formulas use floating point. */
typedef struct zoff_cycle_values {
    double min_lr, max_lr, lr_rate;
    double first, second;               /* cycle_*_step_size */
    double first_stairs, second_stairs; /* cycle_*_stair_count; 0: none */
    double decay_step;                  /* a step of 0 means no decay */
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
    double max_lr;    /* WarmupLR, WarmupDecayLR: warmup_max_lr; < 0: the group's own lr */
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
    bool dynamic;         /* loss_scale is 0, so the scale changes; the fields after `scale` apply only then */
    double scale;         /* the first scale if dynamic, else the fixed one */
    double min_scale;     /* min_loss_scale */
    int64_t window;       /* loss_scale_window */
    uint64_t hysteresis;  /* overflows until the scale falls; at least 1 */
    bool refills_at_once; /* consecutive_hysteresis */
} zoff_fp16_values;

/* offload_param.* and stage3_*: for the weights that the engine stores. Counts are in elements. */
typedef struct zoff_weight_values {
    zoff_tier tier;           /* offload_param.device; HOST or NVME */
    bool stays;               /* offload_param.device is none, so weights on a device stay there */
    const char *const *paths; /* offload_param.nvme_path; NULL: the folders of the states. Owned by the configuration */
    size_t path_count;
    unsigned slots;            /* buffer_count */
    uint64_t chunk_count;      /* buffer_size */
    uint64_t cached_count;     /* max_in_cpu */
    uint64_t ahead_count;      /* stage3_prefetch_bucket_size */
    uint64_t persistent_slice; /* stage3_param_persistence_threshold */
    uint64_t persistent_count; /* stage3_model_persistence_threshold */
    uint64_t live_count;       /* stage3_max_live_parameters; 0: one slice of each parameter */
    unsigned group_ranks;      /* zero_hpz_partition_size at stage 3; 0 or 1: no groups */
} zoff_weight_values;

/* Patterns of parameter names, which the configuration owns. */
typedef struct zoff_patterns {
    const char *const *texts;
    size_t count;
} zoff_patterns;

/* The rule by which gradients are added up: zoff.reduce_scatter. */
typedef enum zoff_sums { ZOFF_SUMS_AUTO, ZOFF_SUMS_ORDERED, ZOFF_SUMS_EXACT, ZOFF_SUMS_NCCL } zoff_sums;

/* When partial sums of a node are sent: zoff.between_nodes. */
typedef enum zoff_between { ZOFF_BETWEEN_AUTO, ZOFF_BETWEEN_MICRO_STEP, ZOFF_BETWEEN_STEP } zoff_between;

typedef struct zoff_config_values {
    zoff_optimizer_hyper hyper;    /* optimizer.* */
    unsigned moments;              /* zoff.moments, a zoff_moments */
    zoff_patterns fp32_moments;    /* zoff.fp32_moments */
    zoff_patterns no_decay;        /* zoff.no_decay */
    zoff_patterns muon_params;     /* zoff.muon_params */
    zoff_patterns adam_params;     /* zoff.adam_params */
    zoff_patterns muon_rows;       /* zoff.muon_rows: each is a pattern, "=" and rows; see zoff_config_optimizer_rows() */
    bool whole_masters;            /* zoff.master is "fp32" */
    bool split_asked;              /* zoff.master is "split" */
    double initial_accumulator;    /* Adagrad: initial_accumulator_value */
    zoff_schedule_values schedule; /* scheduler.* */
    double clip_norm;              /* gradient_clipping; 0: none */
    uint32_t accumulation;         /* gradient_accumulation_steps */
    uint32_t micro_batch;          /* train_micro_batch_size_per_gpu; 0: the configuration gives no batch size */
    uint32_t train_batch;          /* train_batch_size; 0: the configuration gives no batch size */
    unsigned zero_stage;           /* zero_optimization.stage, 0 to 3 */
    uint64_t bucket_elements;      /* zero_optimization.reduce_bucket_size; 0: the largest slice */
    bool bucket_is_given;          /* the program or a file gives reduce_bucket_size */
    zoff_dtype wire_dtype;         /* communication_data_type; 0: each gradient's own type */
    zoff_sums sums;                /* zoff.reduce_scatter */
    zoff_between between_nodes;    /* zoff.between_nodes */
    unsigned node_ranks;           /* zoff.node_ranks; 0: as many as each host has */
    bool sums_ranks;               /* gradient_allreduce_op: the sum over ranks is not divided by their number */
    double grad_factor;   /* factor of gradients before the sum over ranks: prescale_gradients, gradient_predivide_factor */
    zoff_tier state_tier; /* offload_optimizer.device; HOST or NVME */
    const char *const *nvme_paths; /* offload_optimizer.nvme_path and zoff.nvme_paths; owned by the configuration */
    size_t nvme_path_count;
    uint64_t host_bytes;     /* zoff.host_memory; 0: auto */
    uint64_t chunk_elements; /* zero_optimization.sub_group_size; 0: the largest slice */
    unsigned slots;          /* offload_optimizer.buffer_count */
    double ratio;            /* offload_optimizer.ratio */
    unsigned threads;        /* zoff.threads; 0: auto */
    unsigned background_threads;
    uint64_t speculation_bytes; /* zoff.speculation_memory; 0: none */
    bool skip_nonfinite;        /* zoff.skip_nonfinite is not false */
    double most_skipped;        /* zoff.skip_nonfinite as a number: so many skipped steps in a row are an error; 0: never */
    bool check_use;             /* zoff.check_use */
    bool aio_tune;              /* "aio" is "auto", so zoff_aio_tune() chooses those of the next two that are 0 */
    uint64_t aio_block_bytes;   /* aio.block_size */
    unsigned aio_depth;         /* aio.queue_depth */
    int direct;                 /* zoff.direct_io, a zoff_aio_direct */
    const char *aio_backend;    /* zoff.io_backend; NULL: auto */
    bool persist;               /* zoff.persist is true or "require" */
    bool persist_required;      /* zoff.persist is "require" */
    bool power_safe;            /* zoff.durability is "power" */
    unsigned verify;            /* zoff.verify: 0 full, 1 sample, 2 off */
    uint64_t steps_per_print;   /* 0: no prints */
    bool wants_bf16;            /* bf16.enabled */
    zoff_fp16_values fp16;
    zoff_weight_values weights;
    uint64_t device_memory; /* zoff.device_memory; 0: no limit */
} zoff_config_values;

/* Resolve the configuration for `world_size` ranks and write its values. They are valid until the configuration is changed,
 * resolved again or closed. An NVMe tier without a folder is no error here, because zoff_engine_opts may name one. */
zoff_status zoff_config_values_get(zoff_config *config, unsigned world_size, zoff_config_values *out);

/* Read the rows of an entry of zoff.muon_rows, "*qkv.weight=4096,1024,1024", which resolving has checked. `out` may be NULL.
 * @return the number of rows; 0: the entry has another form */
size_t zoff_config_optimizer_rows(const char *entry, size_t *out);

/* List every key that must be the same on all ranks, with its effective value: "key\0value\0key\0value\0". The
 * configuration must have been resolved by zoff_config_values_get().  @owns caller; zoff_base_mem_free() */
zoff_status zoff_config_dump_agreed(const zoff_config *config, char **out, size_t *out_bytes);

/* Find the "auto" values of a resolved configuration that change the training result and that the program has not set. With
 * `warns`, one warning lists them with the values used instead.  @return ERR_INVALID if such a key has no default */
zoff_status zoff_config_autos_check(const zoff_config *config, bool warns);

/* The effective values of a resolved configuration as a JSON object, for checkpoints. @owns out: zoff_base_mem_free() */
zoff_status zoff_config_dump_json(const zoff_config *config, char **out);

/* Write the optimizer, lr, schedule and clipping of a resolved configuration, each with its source, for the start of a log. */
void zoff_config_training_words(const zoff_config *config, char *dst, size_t dst_bytes);

/* The source of a key's value, for messages: "ds_config.json:3:5", "auto at ds_config.json:3:5", "api", "computed" or
 * "default". Never NULL. */
const char *zoff_config_source(const zoff_config *config, const char *key);

#endif
