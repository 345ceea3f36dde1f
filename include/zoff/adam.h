/* adam.h: the CPU Adam step over plain memory, useful without an engine. */
#ifndef ZOFF_ADAM_H
#define ZOFF_ADAM_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One tensor of an Adam step. All arrays have `count` elements and need only their element's alignment.
 *  @owns everything stays the caller's; nothing is kept after the call */
typedef struct zoff_adam_tensor {
    size_t struct_size;    /**< sizeof(zoff_adam_tensor) of the caller; 0 is rejected */
    size_t count;          /**< elements; 0 is legal */
    float *master;         /**< fp32 weights, updated in place */
    float *m, *v;          /**< first and second moment, updated in place; zeros before step 1 */
    const void *grad;      /**< gradient, fp32 or bf16; not changed */
    zoff_dtype grad_dtype; /**< ZOFF_F32 (default) or ZOFF_BF16 */
    void *copy_out;        /**< receives the new weights rounded to bf16 (nearest even), or NULL */
    zoff_dtype copy_dtype; /**< ZOFF_BF16 when copy_out is given; 0 means ZOFF_BF16 */
} zoff_adam_tensor;

/** Do step number `t` (1, 2, ...) of Adam on one tensor. Per element, in fp32 with fused multiply-adds:
 *
 *      g  = grad * grad_scale              with ZOFF_DECAY_L2:   g = fma(weight_decay, p, g)
 *      m  = fma(1 - beta1, g, beta1 * m)
 *      v  = fma((1 - beta2) * g, g, beta2 * v)
 *      u  = m / fma(sqrt(v), 1 / sqrt(1 - beta2^t), eps)
 *      p  = fma(-lr * weight_decay, p, p)  with ZOFF_DECAY_DECOUPLED
 *      p  = fma(-lr / (1 - beta1^t), u, p)
 *
 *  (Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2.) The constants are computed in double and
 *  rounded to fp32 once. Without weight decay (0) its line is left out. Subnormals are honoured; a NaN stays a NaN.
 *  @threads any, on disjoint memory; uses the default team of threads  @blocks until done
 *  @return ERR_INVALID for a NULL array, an unknown type, or a hyper-parameter out of range. The bits of the result do
 *  not depend on the instruction set or the number of threads */
ZOFF_API zoff_status zoff_adam_step(const zoff_adam_hyper *hyper, int64_t t, double grad_scale, const zoff_adam_tensor *tensor);

/** Name the instruction set whose kernels this process uses: "scalar", "avx2", "avx512".
 *  ZOFF_ISA in the environment forces one; a warning says so when a faster one is possible.
 *  @owns static text  @threads any */
ZOFF_API const char *zoff_isa(void);

#ifdef __cplusplus
}
#endif
#endif
