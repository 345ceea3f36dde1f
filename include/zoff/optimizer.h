/* adam.h: the CPU optimizer step over plain memory, useful without an engine: Adam, and beside it Adagrad, Lion and SGD. */
#ifndef ZOFF_ADAM_H
#define ZOFF_ADAM_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One tensor of a step. All arrays have `count` elements and need only their element's alignment; they must not overlap.
 *  A state that the optimizer does not have may be NULL and is not touched.
 *  @owns everything stays the caller's; nothing is kept after the call */
typedef struct zoff_adam_tensor {
    size_t struct_size;    /**< sizeof(zoff_adam_tensor) of the caller; 0 is rejected */
    size_t count;          /**< elements; 0 is legal */
    void *master;          /**< weights, updated in place: fp32, or 16 bit where there is no master (see master_dtype) */
    float *m, *v;          /**< states, updated in place; zeros before step 1, v of Adagrad its initial accumulator */
    const void *grad;      /**< gradient; not changed */
    zoff_dtype grad_dtype; /**< ZOFF_F32 (default), ZOFF_BF16 or ZOFF_F16 */
    void *copy_out;        /**< receives the new weights rounded to 16 bit (nearest even), or NULL */
    zoff_dtype copy_dtype; /**< of copy_out: ZOFF_BF16 (default) or ZOFF_F16 */
    zoff_dtype
        master_dtype; /**< ZOFF_F32 (default), ZOFF_BF16 or ZOFF_F16: the step is computed in fp32 and rounded to it once,
                           to nearest even; small updates are lost then, as without a master they must. No copy_out */
} zoff_adam_tensor;

/** Do step number `t` (1, 2, ...) of an optimizer on one tensor. Per element, in fp32 with fused multiply-adds, first
 *
 *      g  = grad * grad_scale
 *
 *  Adam (Kingma and Ba 2015, algorithm 1) and AdamW (Loshchilov and Hutter 2019, algorithm 2), where c1 and c2 are 1 - beta^t
 *  for the betas as fp32 holds them, (1 - beta) * (1 + beta + ... + beta^(t-1)) with each factor rounded:
 *
 *      g  = fma(weight_decay, p, g)                           with ZOFF_DECAY_L2
 *      m  = fma(1 - beta1, g, beta1 * m)
 *      v  = fma((1 - beta2) * g, g, beta2 * v)
 *      u  = m / fma(sqrt(v), 1 / sqrt(c2), eps)
 *      p  = fma(-lr / c1, u, p)                               or with ZOFF_DECAY_DECOUPLED
 *      p  = p + fma(-lr / c1, u, (-lr * weight_decay) * p)
 *
 *  With ZOFF_HYPER_NO_BIAS_CORRECTION c1 and c2 are 1.
 *
 *  Adagrad (Duchi, Hazan and Singer 2011, with the diagonal; lr_decay as in PyTorch):
 *
 *      g  = fma(weight_decay, p, g)
 *      v  = fma(g, g, v)
 *      p  = fma(-lr / (1 + (t - 1) * lr_decay), g / (sqrt(v) + eps), p)
 *
 *  Lion (Chen et al. 2023, algorithm 2); the sign of 0 is 0, that of NaN is NaN:
 *
 *      u  = sign(fma(1 - beta1, g, beta1 * m))
 *      m  = fma(1 - beta2, g, beta2 * m)
 *      p  = p + fma(-lr, u, (-lr * weight_decay) * p)
 *
 *  SGD (momentum, dampening and Nesterov's form as in PyTorch: in step 1 m becomes g whatever the dampening. PyTorch counts
 *  from a parameter's first gradient, here t counts):
 *
 *      g  = fma(weight_decay, p, g)
 *      m  = fma(1 - dampening, g, momentum * m)      u = m, or with nesterov u = fma(momentum, m, g)
 *      p  = fma(-lr, u, p)                           without momentum: u = g
 *
 *  The constants are computed in double and rounded to fp32 once. Without weight decay (0) its part is left out. Subnormals are
 *  honoured whatever the process has set; a NaN stays a NaN, in 16 bits 0x7fc0 (bf16) or 0x7e00 (fp16).
 *  @threads any, on disjoint memory; uses the default team of threads  @blocks until done
 *  @return ERR_INVALID for a NULL array, an unknown type, a hyper-parameter out of range, or a grad_scale that is not finite in
 *  fp32; nothing is changed then. The bits of the result do not depend on the instruction set or the number of threads, but for
 *  sign and payload of an fp32 NaN */
ZOFF_API zoff_status zoff_adam_step(const zoff_adam_hyper *hyper, int64_t t, double grad_scale, const zoff_adam_tensor *tensor);

/** Do the same on a list of `count` tensors in one call: the team is woken once, and its shares are equal in bytes, however
 *  many or small the tensors are.
 *  `tensor_stride` is the distance in bytes from one tensor to the next, sizeof(zoff_adam_tensor) for a plain array.
 *  `hyper_stride` is that of the hyper-parameters, one for each tensor; 0: all tensors share `*hyper`.
 *  @threads as zoff_adam_step()  @blocks until done
 *  @return as zoff_adam_step(), with the index of the tensor in the message; every tensor is checked before any is changed.
 *  ERR_NO_MEMORY only with a hyper_stride */
ZOFF_API zoff_status zoff_adam_step_list(const zoff_adam_hyper *hyper, size_t hyper_stride, int64_t t, double grad_scale,
                                         const zoff_adam_tensor *tensors, size_t tensor_stride, size_t count);

/** Name the instruction set whose kernels this process uses: "scalar", "avx2", "avx512", "neon", "sve".
 *  ZOFF_ISA in the environment forces one; a warning says so when a faster one is possible.
 *  @owns static text  @threads any */
ZOFF_API const char *zoff_isa(void);

#ifdef __cplusplus
}
#endif
#endif
