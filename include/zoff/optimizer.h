/* SPDX-License-Identifier: Apache-2.0 */
/* optimizer.h: the CPU optimizer step over plain memory, without an engine: Adam, Adagrad, Lion, SGD and Muon. */
#ifndef ZOFF_OPTIMIZER_H
#define ZOFF_OPTIMIZER_H

#include <zoff/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One tensor of a step. All arrays have `count` elements, need only their element's alignment, and must not overlap.
 *  A state that the optimizer does not have is not touched and may be NULL.
 *  @owns the caller owns all arrays; the call keeps nothing */
typedef struct zoff_optimizer_tensor {
    size_t struct_size;    /**< set by ZOFF_OPTIMIZER_TENSOR_INIT */
    size_t count;          /**< elements; may be 0 */
    void *master;          /**< weights, updated in place, of type master_dtype */
    float *m, *v;          /**< states, updated in place. Zeros before step 1; v of Adagrad: its initial accumulator */
    const void *grad;      /**< gradient, not changed */
    zoff_dtype grad_dtype; /**< ZOFF_F32 (default), ZOFF_BF16 or ZOFF_F16 */
    void *copy_out; /**< receives the weights rounded to 16 bits, with ties away from zero (bf16) or to even (fp16); or NULL */
    zoff_dtype copy_dtype;   /**< type of copy_out: ZOFF_BF16 (default) or ZOFF_F16 */
    zoff_dtype master_dtype; /**< ZOFF_F32 (default); or ZOFF_BF16 or ZOFF_F16 without copy_out. In 16 bits the step is computed
                                  in fp32 and rounded once, as for copy_out, so that small updates are lost */
    size_t rows, cols; /**< Muon: the shape of a matrix, whose rows lie one after the other. If `count` is a multiple of it, the
                            tensor is a stack of such matrices. 0 and 0 (default): no matrix. Other optimizers ignore both */
} zoff_optimizer_tensor;
#define ZOFF_OPTIMIZER_TENSOR_INIT ZOFF_SIZED(zoff_optimizer_tensor)

/** Take step number `t` (1, 2, ...) on one tensor. For each element, in fp32 with fused multiply-adds, first
 *
 *      g  = grad * grad_scale
 *
 *  Adam (Kingma and Ba 2015, algorithm 1) and AdamW (Loshchilov and Hutter 2019, algorithm 2). Here c1 and c2 are
 *  1 - beta^t, computed as (1 - beta) * (1 + beta + ... + beta^(t-1)) with 1 - beta and beta each rounded to fp32:
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
 *  Adagrad (Duchi, Hazan and Singer 2011, diagonal form; lr_decay as in PyTorch):
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
 *  SGD (momentum, dampening and Nesterov's form as in PyTorch). In step 1 m becomes g, without dampening. PyTorch counts steps
 *  from a parameter's first gradient; here t counts:
 *
 *      g  = fma(weight_decay, p, g)
 *      m  = fma(1 - dampening, g, momentum * m)      u = m, or with nesterov u = fma(momentum, m, g)
 *      p  = fma(-lr, u, p)                           without momentum: u = g
 *
 *  Muon (Jordan et al. 2024), for each matrix X of a tensor with rows r and columns c. Other tensors take AdamW's step, with
 *  lr = adam_lr. The factor scale(r, c) is that of zoff_muon_scale:
 *
 *      m  = fma(1 - momentum, g, momentum * m)       u = m, or with nesterov u = fma(1 - momentum, g, momentum * m)
 *      X  = U / (|U| + 1e-7)                         in double, rounded once
 *      X  = (a + b S + c S^2) X, S = X X^T           ns_steps times, each with its own a, b and c; see below
 *      p  = fma(-lr * scale(r, c), x, p)             or with weight_decay
 *      p  = p + fma(-lr * scale(r, c), x, (-lr * weight_decay) * p)
 *
 *  |U| is the root of the sum of squares: of the sums of blocks of 1,024 elements, added in order in double. An element of a
 *  product A B is a sum over k, in blocks of 256. In each block s = 0, then s = fma(A[i][k], B[k][j], s) with ascending k, and
 *  the sums of blocks are added in order. Symmetric matrices are computed in their lower triangle and mirrored. With
 *  ZOFF_MUON_STANDARD each iteration is, with X^T X and X B in place of X X^T and B X where r > c:
 *
 *      A  = X X^T                                    B = fma(c, A A, b * A)
 *      X  = fma(a, X, B X)
 *
 *  With ZOFF_MUON_GRAM, where one side is at least twice the other, iterations work on R, the A of the first one, and Q:
 *
 *      Z  = fma(c, R R, b * R)
 *      Q  = Z + a I in the first iteration, else fma(a, Q, Z Q)
 *      T  = fma(a, R, Z R)                           R = fma(a, T, Z T)
 *
 *  In the end X = Q X. The same is done before the third iteration and each third one after it: then R is the A of the new X,
 *  and this iteration is a first one.
 *
 *  Constants are computed in double and rounded to fp32 once. With a weight_decay of 0 its terms are left out. Subnormals are
 *  honoured, also in a process that flushes them. A NaN stays a NaN; in 16 bits it is 0x7fc0 (bf16) or 0x7e00 (fp16).
 *
 *  The bits of the result do not depend on the instruction set or on the number of threads, except for the sign and payload of
 *  an fp32 NaN. A matrix that has a NaN or an infinite number becomes NaN as a whole.
 *  @param grad_scale multiplies the gradient first; finite in fp32
 *  @threads any, on disjoint memory; uses the library's threads  @blocks until done
 *  @return ERR_INVALID for a NULL array, an unknown type, or a number out of range. ERR_NO_MEMORY for a matrix: it needs
 *  4 r c bytes, 8 or 16 times the square of its smaller side (16 if the other is twice as long), and some 3 MiB for each
 *  thread. Nothing has changed then */
ZOFF_API zoff_status zoff_optimizer_step(const zoff_optimizer_hyper *hyper, int64_t t, double grad_scale,
                                         const zoff_optimizer_tensor *tensor);

/** Take one step on `count` tensors in one call. The threads are woken once and get equal shares in bytes, however many or
 *  small the tensors are.
 *  @param hyper_stride bytes from one struct of hyper-parameters to the next, one for each tensor; 0: all share `*hyper`
 *  @param tensor_stride bytes from one tensor to the next: sizeof(zoff_optimizer_tensor) for a plain array
 *  @threads as zoff_optimizer_step()  @blocks until done
 *  @return as zoff_optimizer_step(), with the index of the tensor in the message; all tensors are checked before any is
 *  changed. ERR_NO_MEMORY only with a hyper_stride, or for the largest matrix */
ZOFF_API zoff_status zoff_optimizer_step_list(const zoff_optimizer_hyper *hyper, size_t hyper_stride, int64_t t,
                                              double grad_scale, const zoff_optimizer_tensor *tensors, size_t tensor_stride,
                                              size_t count);

/** Return the instruction set of the kernels in use: "scalar", "avx2", "avx512", "neon" or "sve". The environment variable
 *  ZOFF_ISA selects one; a warning follows when a faster one would work.
 *  @owns static text  @threads any */
ZOFF_API const char *zoff_isa(void);

#ifdef __cplusplus
}
#endif
#endif
