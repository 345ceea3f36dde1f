/* SPDX-License-Identifier: Apache-2.0 */
// reference.cc: the rules of the optimizers, element by element, and the step over whole tensors.
#include "reference.h"
#include "exact_sum.h"

#include <float.h>

namespace reference
{
static float by_definition(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double magnitude = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    if (exponent == 31)
        magnitude = fraction ? NAN : INFINITY;
    return (float)(bits >> 15 ? -magnitude : magnitude);
}

// A table, because tests convert millions of fp16 values.
static std::vector<float> all_of_fp16()
{
    std::vector<float> all(65536);
    for (unsigned bits = 0; bits < 65536; bits++)
        all[bits] = by_definition((uint16_t)bits);
    return all;
}

float from_fp16(uint16_t bits)
{
    static const std::vector<float> all = all_of_fp16();
    return all[bits];
}

uint16_t to_fp16(float value)
{
    const unsigned sign = signbit(value) ? 0x8000 : 0;
    const double magnitude = fabs((double)value);
    if (isnan(value))
        return 0x7e00;
    if (magnitude >= 65520) // the midpoint between the largest number and the next power of two
        return (uint16_t)(sign | 0x7c00);
    // The number in units in the last place: 1024 to 2047 of them, fewer below the smallest exponent.
    const int exponent = magnitude < 0x1p-14 ? -14 : ilogb(magnitude);
    const unsigned units = (unsigned)nearbyint(ldexp(magnitude, 10 - exponent));
    return (uint16_t)(sign | (units + 1024u * (unsigned)(exponent + 14)));
}

double block_sum(const float *g, size_t count)
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

double square_sum(const std::vector<tensor> &tensors)
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

double weights_of(double beta, int64_t t)
{
    const float keep = (float)beta, take = (float)(1 - beta);
    return keep == 1 ? take * (double)t : take * (1 - pow(keep, (double)t)) / (1 - (double)keep);
}

// The rules update element x by its gradient g in step t. Constants are computed in double and rounded once.
struct rule {
    rule(const zoff_optimizer_hyper &h_, int64_t t_) : h(h_), t(t_)
    {
        const bool is_adam = h.optimizer == ZOFF_OPTIMIZER_ADAM || h.optimizer == ZOFF_OPTIMIZER_MUON;
        if (is_adam && !(h.flags & ZOFF_HYPER_NO_BIAS_CORRECTION)) {
            c1 = weights_of(h.beta1, t);
            c2 = weights_of(h.beta2, t);
        }
    }
    const zoff_optimizer_hyper &h;
    const int64_t t;
    double c1 = 1, c2 = 1; // corrections for Adam
};

static void adam(const rule &r, float g, element &x)
{
    const zoff_optimizer_hyper &h = r.h;
    const bool decays = h.weight_decay != 0;
    if (decays && h.decay == ZOFF_DECAY_L2)
        g = fmaf((float)h.weight_decay, x.p, g);
    x.m = fmaf((float)(1 - h.beta1), g, (float)h.beta1 * x.m);
    x.v = fmaf((float)(1 - h.beta2) * g, g, (float)h.beta2 * x.v);
    const float u = x.m / fmaf(sqrtf(x.v), (float)(1 / sqrt(r.c2)), (float)h.eps);
    const double lr = h.optimizer == ZOFF_OPTIMIZER_MUON ? h.adam_lr : h.lr;
    const float rate = (float)(-lr / r.c1), shrink = (float)(-lr * h.weight_decay);
    x.p = decays && h.decay == ZOFF_DECAY_DECOUPLED ? x.p + fmaf(rate, u, shrink * x.p) : fmaf(rate, u, x.p);
}

static void adagrad(const rule &r, float g, element &x)
{
    const zoff_optimizer_hyper &h = r.h;
    if (h.weight_decay != 0)
        g = fmaf((float)h.weight_decay, x.p, g);
    x.v = fmaf(g, g, x.v);
    x.p = fmaf((float)(-h.lr / (1 + (double)(r.t - 1) * h.lr_decay)), g / (sqrtf(x.v) + (float)h.eps), x.p);
}

static void lion(const rule &r, float g, element &x)
{
    const zoff_optimizer_hyper &h = r.h;
    const float blend = fmaf((float)(1 - h.beta1), g, (float)h.beta1 * x.m);
    const float u = blend > 0 ? 1.0f : blend < 0 ? -1.0f : blend; // 0 and NaN stay
    x.m = fmaf((float)(1 - h.beta2), g, (float)h.beta2 * x.m);
    const float rate = (float)-h.lr, shrink = (float)(-h.lr * h.weight_decay);
    x.p = h.weight_decay != 0 ? x.p + fmaf(rate, u, shrink * x.p) : fmaf(rate, u, x.p);
}

static void sgd(const rule &r, float g, element &x)
{
    const zoff_optimizer_hyper &h = r.h;
    float u = h.weight_decay != 0 ? fmaf((float)h.weight_decay, x.p, g) : g;
    if (h.momentum != 0) {
        const double keep = r.t == 1 ? -0.0 : h.momentum, take = r.t == 1 ? 1 : 1 - h.dampening;
        x.m = fmaf((float)take, u, (float)keep * x.m);
        u = h.nesterov ? fmaf((float)h.momentum, x.m, u) : x.m;
    }
    x.p = fmaf((float)-h.lr, u, x.p);
}

static void update(const rule &r, float g, element &x)
{
    switch (r.h.optimizer) {
    case ZOFF_OPTIMIZER_ADAM:
    case ZOFF_OPTIMIZER_MUON: /* of parameters that are no matrices */
        return adam(r, g, x);
    case ZOFF_OPTIMIZER_ADAGRAD:
        return adagrad(r, g, x);
    case ZOFF_OPTIMIZER_LION:
        return lion(r, g, x);
    case ZOFF_OPTIMIZER_SGD:
        return sgd(r, g, x);
    case ZOFF_OPTIMIZER_KEEP:
        break;
    }
}

void update(const zoff_optimizer_hyper &h, int64_t t, float g, element &x)
{
    update(rule(h, t), g, x);
}

static uint32_t hash_of(uint32_t x)
{
    x = (x ^ x >> 16) * 2246822507u;
    x = (x ^ x >> 13) * 3266489909u;
    return x ^ x >> 16;
}

uint64_t block_of(const std::string &name, size_t slice)
{
    uint64_t block = 14695981039346656037u;
    for (const char c : name)
        block = (block ^ (unsigned char)c) * 1099511628211u;
    return (block ^ slice) * 11400714819323198485u;
}

// Adding the random bits behind the last digit that stays, and cutting off, rounds up with the wanted probability.
float dithered(float x, unsigned moment, const std::string &name, size_t slice, size_t k, int64_t t)
{
    const uint64_t block = block_of(name, slice) + k / 1024;
    const uint32_t a = hash_of((uint32_t)block), b = hash_of((uint32_t)(block >> 32) ^ a);
    const uint32_t of_block = (moment ? hash_of(b) : a ^ b) + (uint32_t)t * 2654435769u;
    const uint16_t random = (uint16_t)((of_block >> 16) + (hash_of((uint32_t)(k % 1024 + 1 + 1024 * moment)) >> 16));
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return from_bf16(isnan(x) ? 0x7fc0 : (uint16_t)((bits + (isinf(x) ? 0 : random)) >> 16));
}

result step(std::vector<tensor> &tensors, const std::vector<zoff_optimizer_hyper> &groups, int64_t t, double grad_scale,
            double accumulation, double clip_norm)
{
    double squares = square_sum(tensors);
    double scale = grad_scale / accumulation;
    result r = {sqrt(squares) * fabs(scale), 1.0, !(sqrt(squares) * fabs(scale) <= FLT_MAX), 0};
    if (clip_norm > 0)
        r.clip = fmin(clip_norm / (r.norm + 1e-6), 1.0);
    const double factor = fabs(scale * r.clip);
    r.skipped = r.skipped || (factor < FLT_MIN && static_cast<float>(factor) != factor);
    if (r.skipped)
        return r;
    const float s = (float)(scale * r.clip);
    for (auto &x : tensors) {
        if (x.frozen)
            continue;
        const rule of_group(groups[x.group], t);
        for (size_t slice = 0; slice < x.slices; slice++) {
            if (x.present[slice] && has_blocks(x, groups[x.group])) {
                step_blocks(x, groups[x.group], slice, t, s);
                r.updated += x.count;
                continue;
            }
            if (x.present[slice] && !x.matrices.empty()) {
                step_matrices(x, groups[x.group], slice, t, s);
                r.updated += x.count;
                continue;
            }
            for (size_t k = slice * x.count; x.present[slice] && k < (slice + 1) * x.count; k++) {
                element one = {x.master[k], x.m[k], x.v[k]};
                update(of_group, x.sum[k] * s, one);
                x.master[k] = one.p;
                x.m[k] = x.halves ? dithered(one.m, 0, x.name, slice, k - slice * x.count, t) : one.m;
                x.v[k] = x.halves ? dithered(one.v, 1, x.name, slice, k - slice * x.count, t) : one.v;
                r.updated++;
            }
        }
    }
    return r;
}
} // namespace reference
