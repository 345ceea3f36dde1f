/* types.h: element types, tiers, and the opaque handles. */
#ifndef ZOFF_TYPES_H
#define ZOFF_TYPES_H

#include <zoff/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Type of an element. 0 stands for "the natural one": fp32 for weights, the type of the weights for gradients. */
typedef enum zoff_dtype { ZOFF_DTYPE_DEFAULT = 0, ZOFF_F32 = 1, ZOFF_F16 = 2, ZOFF_BF16 = 3 } zoff_dtype;

/** Where optimizer states live between steps. */
typedef enum zoff_tier {
    ZOFF_TIER_AUTO = 0, /**< what the configuration says; DRAM without one */
    ZOFF_TIER_HOST = 1, /**< DRAM */
    ZOFF_TIER_NVME = 2  /**< files under nvme_path, streamed through a DRAM budget */
} zoff_tier;

typedef struct zoff_engine zoff_engine; /**< an optimizer: parameters, their states, the step */
typedef struct zoff_config zoff_config; /**< a parsed and resolved configuration */
typedef struct zoff_accel zoff_accel;   /**< the device on which weights and gradients live */
typedef struct zoff_comm zoff_comm;     /**< the group of ranks that train together */
typedef struct zoff_aio zoff_aio;       /**< an asynchronous queue on one file */

/** A parameter of an engine: dense from 0, in order of zoff_engine_add_param(). */
typedef uint32_t zoff_param;

/** Which rule takes the step. The formulas stand at zoff_adam_step(). */
typedef enum zoff_optimizer {
    ZOFF_OPTIMIZER_ADAM = 0,    /**< Adam and AdamW; states m and v */
    ZOFF_OPTIMIZER_ADAGRAD = 1, /**< state v: the sum of squares */
    ZOFF_OPTIMIZER_LION = 2,    /**< state m */
    ZOFF_OPTIMIZER_SGD = 3      /**< state m, with momentum; without it none */
} zoff_optimizer;

/** How weight decay enters Adam. Adagrad and SGD always add it to the gradient, Lion never does. */
typedef enum zoff_decay {
    ZOFF_DECAY_DECOUPLED = 0, /**< AdamW: p -= lr * weight_decay * p */
    ZOFF_DECAY_L2 = 1         /**< Adam:  g += weight_decay * p */
} zoff_decay;

/** Flags of zoff_adam_hyper. */
enum {
    ZOFF_HYPER_NO_BIAS_CORRECTION = 1 /**< Adam: the moments are not divided by 1 - beta^t, as with the bias_correction false of
                                           DeepSpeed */
};

/** Hyper-parameters of one step of an optimizer; fill with zoff_adam_hyper_init() or zoff_adam_hyper_init_for(), change what
 *  you mean to change. What an optimizer has no use for is not read.
 *  @units lr and weight_decay per step; all dimensionless */
typedef struct zoff_adam_hyper {
    size_t struct_size;       /**< sizeof(zoff_adam_hyper) of the caller; 0 is rejected */
    double lr;                /**< learning rate; default 1e-3 (Adam, SGD), 1e-2 (Adagrad), 1e-4 (Lion); >= 0 */
    double beta1, beta2;      /**< Adam: default 0.9, 0.999; Lion: 0.9, 0.99; each in [0, 1) */
    double eps;               /**< added to a root; default 1e-8 (Adam), 1e-10 (Adagrad); >= 0 */
    double weight_decay;      /**< default 0; >= 0, and lr * weight_decay finite in fp32 */
    zoff_decay decay;         /**< Adam: default decoupled */
    double momentum;          /**< SGD: default 0, which needs no state; >= 0 */
    double dampening;         /**< SGD: default 0 */
    double lr_decay;          /**< Adagrad: default 0; >= 0 */
    zoff_optimizer optimizer; /**< default ZOFF_OPTIMIZER_ADAM */
    bool nesterov;            /**< SGD: default false; needs momentum > 0 and dampening 0 */
    uint64_t flags;           /**< ZOFF_HYPER_*; default 0. A flag that is not known is refused */
} zoff_adam_hyper;

#define zoff_adam_hyper_init(h) zoff_adam_hyper_init_sized((h), sizeof *(h))
/** Fill `h` with the defaults of Adam.  @threads any */
ZOFF_API void zoff_adam_hyper_init_sized(zoff_adam_hyper *h, size_t struct_size);

#define zoff_adam_hyper_init_for(h, optimizer) zoff_adam_hyper_init_for_sized((h), sizeof *(h), (optimizer))
/** Fill `h` with the defaults of one of the optimizers: those of PyTorch, for Lion of its paper. (A configuration that leaves
 *  them open means DeepSpeed's, which for Lion are lr 1e-3 and betas 0.9, 0.999.)  @threads any */
ZOFF_API void zoff_adam_hyper_init_for_sized(zoff_adam_hyper *h, size_t struct_size, zoff_optimizer optimizer);

#ifdef __cplusplus
}
#endif
#endif
