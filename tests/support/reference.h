// reference.h: the optimizer step as a textbook writes it: whole tensors, one thread, no tiers, no chunks, no vectors. What the
// engine does must equal this bit for bit.
#ifndef ZOFF_REFERENCE_H
#define ZOFF_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <zoff/zoff.h>

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
    bits += 0x7fff + ((bits >> 16) & 1);
    return (uint16_t)(bits >> 16);
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

// What weights of a type make of a master.
inline float rounded(zoff_dtype dtype, float value)
{
    return dtype == ZOFF_F32 ? value : from_16(dtype, to_16(dtype, value));
}

// One tensor: weights of one type, gradients of another, fp32 states.
struct tensor {
    size_t count = 0, slices = 1;
    zoff_dtype dtype = ZOFF_F32, grad_dtype = ZOFF_F32;
    unsigned group = 0;
    bool frozen = false;
    std::vector<float> master, m, v; // count * slices, slice by slice
    std::vector<float> sum;          // gradient of this step
    std::vector<bool> present;       // by slice

    size_t total() const { return count * slices; }
};

// Square sum of all gradients: blocks of 1024 elements, lane i mod 16 of each, products in fp64, then a tree; the blocks' sums
// are added up and rounded once.
double square_sum(const std::vector<tensor> &tensors);

// One weight with its states.
struct element {
    float p, m, v;
};

// The weights (1 - beta) * beta^k of t gradients in a moment, added up; both factors rounded to fp32.
double weights_of(double beta, int64_t t);

// Take element x from its gradient g, in step t.
void update(const zoff_optimizer_hyper &h, int64_t t, float g, element &x);

// The states that a rule keeps from step to step.
inline bool keeps_m(const zoff_optimizer_hyper &h)
{
    return h.optimizer == ZOFF_OPTIMIZER_ADAM || h.optimizer == ZOFF_OPTIMIZER_LION ||
           (h.optimizer == ZOFF_OPTIMIZER_SGD && h.momentum != 0);
}

inline bool keeps_v(const zoff_optimizer_hyper &h)
{
    return h.optimizer == ZOFF_OPTIMIZER_ADAM || h.optimizer == ZOFF_OPTIMIZER_ADAGRAD;
}

struct result {
    double norm, clip;
    bool skipped;
    uint64_t updated;
};

// One update with the gradients in `sum`, added up over `accumulation` micro-steps.
result step(std::vector<tensor> &tensors, const std::vector<zoff_optimizer_hyper> &groups, int64_t t, double grad_scale,
            double accumulation, double clip_norm);
} // namespace reference

#endif
