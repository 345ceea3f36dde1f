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

inline float from_fp16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    if (exponent == 31)
        magnitude = fraction ? NAN : INFINITY;
    return (float)(bits >> 15 ? -magnitude : magnitude);
}

inline uint16_t to_fp16(float value)
{
    const unsigned sign = signbit(value) ? 0x8000 : 0;
    const double magnitude = fabs((double)value);
    if (isnan(value))
        return 0x7e00;
    if (magnitude >= 65520) // half way from the largest number to the next power of two
        return (uint16_t)(sign | 0x7c00);
    // Count in units of the last place: 1024 to 2047 of them, fewer below the smallest exponent.
    const int exponent = magnitude < 0x1p-14 ? -14 : ilogb(magnitude);
    const unsigned units = (unsigned)nearbyint(ldexp(magnitude, 10 - exponent));
    return (uint16_t)(sign | (units + 1024u * (unsigned)(exponent + 14)));
}

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

// A sum of doubles that is rounded once, at its end: partial sums that do not overlap are kept, as Shewchuk describes.
class exact_sum
{
  public:
    void add(double x)
    {
        if (!isfinite(x))
            finite = false;
        size_t kept = 0;
        for (double y : partials) {
            if (fabs(x) < fabs(y))
                std::swap(x, y);
            const double high = x + y, low = y - (high - x);
            if (low != 0)
                partials[kept++] = low;
            x = high;
        }
        partials.resize(kept);
        partials.push_back(x);
    }

    double value() const
    {
        if (!finite)
            return NAN;
        double high = 0, low = 0;
        size_t n = partials.size();
        while (n > 0 && low == 0) {
            const double x = high, y = partials[--n];
            high = x + y;
            low = y - (high - x);
        }
        // Half way between two doubles what is below decides, where it points the same way.
        if (n > 0 && ((low < 0 && partials[n - 1] < 0) || (low > 0 && partials[n - 1] > 0))) {
            const double twice = 2 * low, x = high + twice;
            if (twice == x - high)
                return x;
        }
        return high;
    }

  private:
    std::vector<double> partials; // from the smallest to the largest
    bool finite = true;
};

inline double square_sum(const std::vector<tensor> &tensors)
{
    exact_sum sum;
    for (const auto &t : tensors) {
        for (size_t slice = 0; !t.frozen && slice < t.slices; slice++) {
            for (size_t first = 0; first < t.count; first += 1024) {
                size_t count = t.count - first < 1024 ? t.count - first : 1024;
                if (t.present[slice])
                    sum.add(block_sum(&t.sum[slice * t.count + first], count));
            }
        }
    }
    return sum.value();
}

// One weight with its states.
struct element {
    float p, m, v;
};

// The rules take element x from its gradient g, in step t. Constants are made in double and rounded once.

// The weights (1 - beta) * beta^k of t gradients in a moment, added up; both factors rounded to fp32.
inline double weights_of(double beta, int64_t t)
{
    const float keep = (float)beta, take = (float)(1 - beta);
    return keep == 1 ? take * (double)t : take * (1 - pow(keep, (double)t)) / (1 - (double)keep);
}

inline void adam(const zoff_adam_hyper &h, int64_t t, float g, element &x)
{
    const bool decays = h.weight_decay != 0, corrects = !(h.flags & ZOFF_HYPER_NO_BIAS_CORRECTION);
    const double c1 = corrects ? weights_of(h.beta1, t) : 1, c2 = corrects ? weights_of(h.beta2, t) : 1;
    if (decays && h.decay == ZOFF_DECAY_L2)
        g = fmaf((float)h.weight_decay, x.p, g);
    x.m = fmaf((float)(1 - h.beta1), g, (float)h.beta1 * x.m);
    x.v = fmaf((float)(1 - h.beta2) * g, g, (float)h.beta2 * x.v);
    const float u = x.m / fmaf(sqrtf(x.v), (float)(1 / sqrt(c2)), (float)h.eps);
    const float rate = (float)(-h.lr / c1), shrink = (float)(-h.lr * h.weight_decay);
    x.p = decays && h.decay == ZOFF_DECAY_DECOUPLED ? x.p + fmaf(rate, u, shrink * x.p) : fmaf(rate, u, x.p);
}

inline void adagrad(const zoff_adam_hyper &h, int64_t t, float g, element &x)
{
    if (h.weight_decay != 0)
        g = fmaf((float)h.weight_decay, x.p, g);
    x.v = fmaf(g, g, x.v);
    x.p = fmaf((float)(-h.lr / (1 + (double)(t - 1) * h.lr_decay)), g / (sqrtf(x.v) + (float)h.eps), x.p);
}

inline void lion(const zoff_adam_hyper &h, float g, element &x)
{
    const float blend = fmaf((float)(1 - h.beta1), g, (float)h.beta1 * x.m);
    const float u = blend > 0 ? 1.0f : blend < 0 ? -1.0f : blend; // 0 and NaN stay
    x.m = fmaf((float)(1 - h.beta2), g, (float)h.beta2 * x.m);
    const float rate = (float)-h.lr, shrink = (float)(-h.lr * h.weight_decay);
    x.p = h.weight_decay != 0 ? x.p + fmaf(rate, u, shrink * x.p) : fmaf(rate, u, x.p);
}

inline void sgd(const zoff_adam_hyper &h, int64_t t, float g, element &x)
{
    float u = h.weight_decay != 0 ? fmaf((float)h.weight_decay, x.p, g) : g;
    if (h.momentum != 0) {
        const double keep = t == 1 ? 0 : h.momentum, take = t == 1 ? 1 : 1 - h.dampening;
        x.m = fmaf((float)take, u, (float)keep * x.m);
        u = h.nesterov ? fmaf((float)h.momentum, x.m, u) : x.m;
    }
    x.p = fmaf((float)-h.lr, u, x.p);
}

inline void update(const zoff_adam_hyper &h, int64_t t, float g, element &x)
{
    switch (h.optimizer) {
    case ZOFF_OPTIMIZER_ADAM:
        return adam(h, t, g, x);
    case ZOFF_OPTIMIZER_ADAGRAD:
        return adagrad(h, t, g, x);
    case ZOFF_OPTIMIZER_LION:
        return lion(h, g, x);
    case ZOFF_OPTIMIZER_SGD:
        return sgd(h, t, g, x);
    }
}

// The states that a rule keeps from step to step.
inline bool keeps_m(const zoff_adam_hyper &h)
{
    return h.optimizer == ZOFF_OPTIMIZER_ADAM || h.optimizer == ZOFF_OPTIMIZER_LION ||
           (h.optimizer == ZOFF_OPTIMIZER_SGD && h.momentum != 0);
}

inline bool keeps_v(const zoff_adam_hyper &h)
{
    return h.optimizer == ZOFF_OPTIMIZER_ADAM || h.optimizer == ZOFF_OPTIMIZER_ADAGRAD;
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
    if (clip_norm > 0)
        r.clip = fmin(clip_norm / (r.norm + 1e-6), 1.0);
    const float s = (float)(scale * r.clip);
    for (auto &x : tensors) {
        for (size_t slice = 0; !x.frozen && slice < x.slices; slice++) {
            for (size_t k = slice * x.count; x.present[slice] && k < (slice + 1) * x.count; k++) {
                element one = {x.master[k], x.m[k], x.v[k]};
                update(groups[x.group], t, x.sum[k] * s, one);
                x.master[k] = one.p;
                x.m[k] = one.m;
                x.v[k] = one.v;
                r.updated++;
            }
        }
    }
    return r;
}
} // namespace reference

#endif
