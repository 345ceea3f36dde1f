/* SPDX-License-Identifier: Apache-2.0 */
// reference.h: the optimizer step as in a textbook: whole tensors, one thread, no tiers, no chunks, no vectors. The engine must
// give the same bits.
#ifndef ZOFF_REFERENCE_H
#define ZOFF_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <zoff/zoff.h>

#include <string>
#include <utility>
#include <vector>

namespace reference
{
inline float from_bf16(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

inline uint16_t to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value))
        return 0x7fc0;
    return (uint16_t)((bits + 0x8000) >> 16); // ties away from zero
}

float from_fp16(uint16_t bits);
uint16_t to_fp16(float value);

inline float from_16(zoff_dtype dtype, uint16_t bits)
{
    return dtype == ZOFF_F16 ? from_fp16(bits) : from_bf16(bits);
}
inline uint16_t to_16(zoff_dtype dtype, float value)
{
    return dtype == ZOFF_F16 ? to_fp16(value) : to_bf16(value);
}

// A master rounded to the type of the weights.
inline float rounded(zoff_dtype dtype, float value)
{
    return dtype == ZOFF_F32 ? value : from_16(dtype, to_16(dtype, value));
}

// A moment rounded to bf16 with the random bits of ADR 0051. `moment`: 0 for m, 1 for v; `k`: the element in its slice.
float dithered(float x, unsigned moment, const std::string &name, size_t slice, size_t k, int64_t t);

// A matrix of each slice of a tensor: its first element, and its shape.
struct matrix {
    size_t first, rows, cols;
};

// One tensor: weights of one type, gradients of another, fp32 states.
struct tensor {
    size_t count = 0, slices = 1;
    zoff_dtype dtype = ZOFF_F32, grad_dtype = ZOFF_F32;
    unsigned group = 0;
    bool frozen = false;
    std::string name;    // name, on which the random bits of `halves` depend
    bool halves = false; // the moments are stored in bf16
    std::string blocks;  // "m8v16", "q8": they are stored so where that is possible; m and v are what they say
    std::vector<unsigned char> m_blocks, v_blocks;
    std::vector<float> master, m, v; // count * slices elements, slice by slice
    std::vector<float> sum;          // gradient of this step
    std::vector<bool> present;       // one flag per slice: it has a gradient
    std::vector<matrix> matrices;    // of each slice, where its optimizer is one of matrices

    size_t total() const { return count * slices; }
};

// Whether the moments of a tensor are in blocks.
bool has_blocks(const tensor &x, const zoff_optimizer_hyper &h);
// Compute a step of a slice whose moments are in blocks. `scale`: factor of the gradient.
void step_blocks(tensor &x, const zoff_optimizer_hyper &h, size_t slice, int64_t t, float scale);
// Set elements of a state, which are in blocks if a step finds them so.
void write(tensor &x, const zoff_optimizer_hyper &h, zoff_state_kind kind, size_t first, size_t count, const float *numbers);
// m and v of a tensor of Adam as they are after they were stored in a format, rounded to the nearest. Those that are in blocks
// of that format already stay as they are.
void store_moments(tensor &x, const std::string &moments);
// The number of the blocks of a slice for random bits: that of the first one.
uint64_t block_of(const std::string &name, size_t slice);

// Make a matrix orthogonal, by the method, steps and coefficients of `h`.
void orthogonalize(const zoff_optimizer_hyper &h, size_t rows, size_t cols, float *u);
// Compute a step of the matrices of a slice. `scale`: factor of the gradient.
void step_matrices(tensor &x, const zoff_optimizer_hyper &h, size_t slice, int64_t t, float scale);

// Square sum of one block of 1024 elements: lane i mod 16, products in fp64, then a tree.
double block_sum(const float *g, size_t count);
// Square sum of all gradients. Each block of 1024 elements: lane i mod 16, products in fp64, then a tree. The sums of the
// blocks are added exactly and rounded once.
double square_sum(const std::vector<tensor> &tensors);

// One weight with its states.
struct element {
    float p, m, v;
};

// The sum of the weights (1 - beta) * beta^k of t gradients in a moment, with both factors rounded to fp32.
double weights_of(double beta, int64_t t);

// Update element x by its gradient g, in step t.
void update(const zoff_optimizer_hyper &h, int64_t t, float g, element &x);

// Whether a rule has the states m and v.
inline bool keeps_m(const zoff_optimizer_hyper &h)
{
    return h.optimizer == ZOFF_OPTIMIZER_ADAM || h.optimizer == ZOFF_OPTIMIZER_LION || h.optimizer == ZOFF_OPTIMIZER_MUON ||
           (h.optimizer == ZOFF_OPTIMIZER_SGD && h.momentum != 0);
}

inline bool keeps_v(const zoff_optimizer_hyper &h)
{
    return h.optimizer == ZOFF_OPTIMIZER_ADAM || h.optimizer == ZOFF_OPTIMIZER_ADAGRAD || h.optimizer == ZOFF_OPTIMIZER_MUON;
}

struct result {
    double norm, clip;
    bool skipped;
    uint64_t updated;
};

// One update with the gradients in `sum`, which were added over `accumulation` micro-steps.
result step(std::vector<tensor> &tensors, const std::vector<zoff_optimizer_hyper> &groups, int64_t t, double grad_scale,
            double accumulation, double clip_norm);
} // namespace reference

#endif
