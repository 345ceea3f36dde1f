/* SPDX-License-Identifier: Apache-2.0 */
/* types.h: element types, tiers, opaque handles, and hyper-parameters. */
#ifndef ZOFF_TYPES_H
#define ZOFF_TYPES_H

#include <zoff/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Element type. ZOFF_DTYPE_DEFAULT is fp32 for weights, and the type of the weights for gradients. */
typedef enum zoff_dtype { ZOFF_DTYPE_DEFAULT = 0, ZOFF_F32 = 1, ZOFF_F16 = 2, ZOFF_BF16 = 3 } zoff_dtype;

/** Where optimizer states are between steps. */
typedef enum zoff_tier {
    ZOFF_TIER_AUTO = 0, /**< the tier of the configuration; DRAM without one */
    ZOFF_TIER_HOST = 1, /**< DRAM */
    ZOFF_TIER_NVME = 2  /**< files under nvme_path, streamed through a DRAM budget */
} zoff_tier;

/** An optimizer: parameters, their states, the step. */
typedef struct zoff_engine zoff_engine;
/** A parsed configuration. */
typedef struct zoff_config zoff_config;
/** The device that holds weights and gradients. */
typedef struct zoff_accel zoff_accel;
/** A communicator: the ranks that train together. */
typedef struct zoff_comm zoff_comm;
/** An asynchronous queue on one file. */
typedef struct zoff_aio zoff_aio;

/** Index of a parameter in its engine: 0, 1, 2, ... in order of zoff_engine_add_param(). */
typedef uint32_t zoff_param;

/** The update rule. See zoff_optimizer_step() for the formulas. */
typedef enum zoff_optimizer {
    ZOFF_OPTIMIZER_KEEP = -1,   /**< the rule of the group, with each field that is no number: see ZOFF_KEEP */
    ZOFF_OPTIMIZER_ADAM = 0,    /**< Adam and AdamW; states m and v */
    ZOFF_OPTIMIZER_ADAGRAD = 1, /**< state v: the sum of squares */
    ZOFF_OPTIMIZER_LION = 2,    /**< state m */
    ZOFF_OPTIMIZER_SGD = 3,     /**< state m if there is momentum, otherwise no state */
    ZOFF_OPTIMIZER_MUON = 4     /**< Muon; state m of a matrix. Tensors that are no matrices get AdamW, with states m and v */
} zoff_optimizer;

/** How weight decay enters Adam. Adagrad and SGD always add it to the gradient; Lion never does. */
typedef enum zoff_decay {
    ZOFF_DECAY_DECOUPLED = 0, /**< AdamW: p -= lr * weight_decay * p */
    ZOFF_DECAY_L2 = 1         /**< Adam:  g += weight_decay * p */
} zoff_decay;

/** How Muon orthogonalizes. Both methods compute the same function with other roundings. */
typedef enum zoff_muon_method {
    ZOFF_MUON_GRAM = 0,    /**< over the matrix's Gram matrix where one side is at least twice the other; else standard */
    ZOFF_MUON_STANDARD = 1 /**< over the matrix itself */
} zoff_muon_method;

/** The factor of Muon's learning rate, for a matrix of r rows and c columns. */
typedef enum zoff_muon_scale {
    ZOFF_MUON_SCALE_ORIGINAL = 0,        /**< sqrt(max(1, r / c)) */
    ZOFF_MUON_SCALE_MATCH_RMS_ADAMW = 1, /**< 0.2 * sqrt(max(r, c)): updates as large as those of AdamW */
    ZOFF_MUON_SCALE_SPECTRAL = 2,        /**< sqrt(max(r, c)) */
    ZOFF_MUON_SCALE_UNIT_RMS_NORM = 3    /**< sqrt(r / c) */
} zoff_muon_scale;

/** The polynomials of Muon's iterations. */
typedef enum zoff_muon_coefficients {
    ZOFF_MUON_SIMPLE = 0,        /**< one for all iterations (Jordan et al. 2024) */
    ZOFF_MUON_QUINTIC = 1,       /**< five, repeated (Cesista et al. 2025) */
    ZOFF_MUON_POLAR_EXPRESS = 2, /**< eight, of which the last is repeated (Amsel et al. 2025) */
    ZOFF_MUON_CANS = 3,          /**< five, of which the last is repeated (Grishina et al. 2025) */
    ZOFF_MUON_DEEPSEEKV4 = 4     /**< ten, of which the last is repeated (DeepSeek-V4) */
} zoff_muon_coefficients;

/** Flags of zoff_optimizer_hyper. */
enum {
    ZOFF_HYPER_NO_BIAS_CORRECTION = 1 /**< Adam, also Muon's AdamW: do not divide the moments by 1 - beta^t (bias_correction
                                         false in DeepSpeed) */
};

/** In a number of zoff_optimizer_hyper, keep what the group has. zoff_engine_set_group() keeps the number of the configuration,
 *  or of the last call that has set it. In zoff_step_args.hyper it is the number that the step would use without `hyper`, with
 *  the schedule. Ranks compare the numbers that result.
 *
 *  The call zoff_optimizer_hyper_init(h, ZOFF_OPTIMIZER_KEEP) makes all fields so. With lr set in it, each group that it serves
 *  has another rate, and all else as before. No field has ZOFF_KEEP in its range. It is no NaN, so a number that a trainer has
 *  computed wrongly is refused. */
#define ZOFF_KEEP (-1e300)

/** Hyper-parameters of one step. Fill them with zoff_optimizer_hyper_init(), or with zoff_engine_get_group() from an engine's
 *  configuration, and change what you need: then 0 means 0. An optimizer ignores the fields that it has no use for. In a struct
 *  that neither call has filled, a 0 in lr, a beta or eps is refused, because it may have been forgotten. */
typedef struct zoff_optimizer_hyper {
    size_t struct_size; /**< set by zoff_optimizer_hyper_init() */
    double lr; /**< learning rate, >= 0, and lr / (1 - beta1) finite in fp32; default 1e-3 (Adam, SGD), 1e-2 (Adagrad), 1e-4
                  (Lion), 0.02 (Muon's matrices, at most 1e28) */
    double beta1, beta2;      /**< decay rates of the moments, in [0, 1); default 0.9, 0.999 (Adam), 0.9, 0.99 (Lion), 0.9, 0.95
                                 (Muon's AdamW) */
    double eps;               /**< number added to a square root, > 0 in fp32; default 1e-8 (Adam), 1e-10 (Adagrad, Muon) */
    double weight_decay;      /**< factor, >= 0, and lr * weight_decay at most 2 where it shrinks weights (Adam decoupled, Lion,
                                 SGD, Muon); at most 1e9 where it is added to the gradient (Adam L2, Adagrad, SGD); default 0 */
    zoff_decay decay;         /**< Adam: default decoupled */
    double momentum;          /**< SGD: >= 0; default 0, which needs no state. Muon: in [0, 1); default 0.95 */
    double dampening;         /**< SGD: default 0 */
    double lr_decay;          /**< Adagrad: >= 0; default 0 */
    zoff_optimizer optimizer; /**< the update rule */
    bool nesterov;            /**< SGD: needs momentum > 0 and dampening 0; default false. Muon: default true */
    bool filled;              /**< set by zoff_optimizer_hyper_init() and zoff_engine_get_group(): each 0 is meant */
    uint64_t flags;           /**< ZOFF_HYPER_*; default 0. An unknown flag is refused */
    double adam_lr;           /**< Muon: the AdamW's learning rate, >= 0; default 3e-4 */
    unsigned ns_steps;        /**< Muon: iterations of the orthogonalization, 1 to 99; default 5 */
    zoff_muon_method ns_method;          /**< Muon: default gram */
    zoff_muon_scale scale;               /**< Muon: default original */
    zoff_muon_coefficients coefficients; /**< Muon: default simple */
} zoff_optimizer_hyper;

#define zoff_optimizer_hyper_init(h, optimizer) zoff_optimizer_hyper_init_sized((h), sizeof *(h), (optimizer))
/** Fill `h` with the defaults of an optimizer: PyTorch's, for Lion those of its paper, for Muon DeepSpeed's. A configuration
 * that leaves them open means DeepSpeed's defaults instead, which differ for Lion: lr 1e-3, betas 0.9 and 0.999.
 * ZOFF_OPTIMIZER_KEEP: fill it with ZOFF_KEEP.
 *  @threads any */
ZOFF_API void zoff_optimizer_hyper_init_sized(zoff_optimizer_hyper *h, size_t struct_size, zoff_optimizer optimizer);

#ifdef __cplusplus
}
#endif
#endif
