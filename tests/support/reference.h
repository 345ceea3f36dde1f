// reference.h: the optimizer step as a textbook writes it: whole tensors, one thread, no tiers, no chunks, no vectors. What the
// engine does must equal this bit for bit.
#ifndef ZOFF_REFERENCE_H
#define ZOFF_REFERENCE_H

#include <math.h>
#include <stdint.h>
#include <string.h>
#include <zoff/zoff.h>

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

// Square sum of one block of 1024 elements: lane i mod 16, products in fp64, then a tree.
inline double block_sum(const float *g, size_t count)
{
    double lanes[16] = {};
    for (size_t i = 0; i < count; i++)
        lanes[i % 16] += (double)g[i] * (double)g[i];
    for (size_t width = 8; width; width /= 2) {
        for (size_t i = 0; i < width; i++)
            lanes[i] += lanes[i + width];
    }
    return lanes[0];
}

inline double square_sum(const std::vector<tensor> &tensors)
{
    double sum = 0;
    for (const auto &t : tensors) {
        for (size_t slice = 0; !t.frozen && slice < t.slices; slice++) {
            for (size_t first = 0; first < t.count; first += 1024) {
                size_t count = t.count - first < 1024 ? t.count - first : 1024;
                sum += t.present[slice] ? block_sum(&t.sum[slice * t.count + first], count) : 0.0;
            }
        }
    }
    return sum;
}

struct result {
    double norm, clip;
    bool skipped;
    uint64_t updated;
};

// One update with the gradients in `sum`, added up over `accumulation` micro-steps.
inline result step(std::vector<tensor> &tensors, const std::vector<zoff_adam_hyper> &groups, int64_t t, double grad_scale,
                   double accumulation, double clip_norm)
{
    double squares = square_sum(tensors);
    double scale = grad_scale / accumulation;
    result r = {sqrt(squares) * fabs(scale), 1.0, !isfinite(squares), 0};
    if (r.skipped)
        return r;
    if (clip_norm > 0 && r.norm > clip_norm)
        r.clip = clip_norm / (r.norm + 1e-6);
    for (auto &x : tensors) {
        const zoff_adam_hyper &h = groups[x.group];
        const float b1 = (float)h.beta1, one_b1 = (float)(1 - h.beta1), b2 = (float)h.beta2, one_b2 = (float)(1 - h.beta2);
        const float eps = (float)h.eps, s = (float)(scale * r.clip);
        const float step_size = (float)(-h.lr / (1 - pow(h.beta1, (double)t)));
        const float inv_bias2 = (float)(1 / sqrt(1 - pow(h.beta2, (double)t)));
        const float decoupled = (float)(-h.lr * h.weight_decay), l2 = (float)h.weight_decay;
        for (size_t slice = 0; !x.frozen && slice < x.slices; slice++) {
            for (size_t k = slice * x.count; x.present[slice] && k < (slice + 1) * x.count; k++) {
                float p = x.master[k], g = x.sum[k] * s;
                if (h.weight_decay != 0 && h.decay == ZOFF_DECAY_L2)
                    g = fmaf(l2, p, g);
                float m = fmaf(one_b1, g, b1 * x.m[k]);
                float v = fmaf(one_b2 * g, g, b2 * x.v[k]);
                float u = m / fmaf(sqrtf(v), inv_bias2, eps);
                if (h.weight_decay != 0 && h.decay == ZOFF_DECAY_DECOUPLED)
                    p = fmaf(decoupled, p, p);
                x.master[k] = fmaf(step_size, u, p);
                x.m[k] = m;
                x.v[k] = v;
                r.updated++;
            }
        }
    }
    return r;
}
} // namespace reference

#endif
