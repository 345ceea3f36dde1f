// oracle_q8.cc: see oracle_q8.h.
#include "oracle_q8.h"

#include "oracle.h"

#include <cfloat>
#include <cmath>
#include <cstring>

#include <algorithm>

namespace
{
enum { BLOCK = 1024, HEADER = 64 };

float power(int n, int least, int most)
{
    return (float)std::ldexp(1.0, std::min(std::max(n, least), most));
}

// 2^(n / 2 - scale)
float root(int n, int scale)
{
    const int half = (int)std::floor(n / 2.0);
    return power(half - scale, -126, 90) * (n % 2 ? (float)std::sqrt(2.0) : 1.0f);
}

// One state of one block, in its memory.
struct block {
    unsigned moment;
    unsigned char *memory;
    size_t count;
    float old_bound = 0, bound = 0;

    block(unsigned which, unsigned char *base, size_t index, size_t elements)
        : moment(which), memory(base + index * (BLOCK + HEADER)), count(elements)
    {
        memcpy(&old_bound, memory, sizeof old_bound);
    }
    unsigned plain(size_t lane) const { return memory[HEADER + lane] % oracle_q8::codes(moment); }
    // keep * the multiple of a lane
    float kept(size_t lane, float keep) const
    {
        const float sign = memory[HEADER + lane] == plain(lane) ? 1.0f : -1.0f;
        return std::fmaf(keep, sign * (float)oracle_q8::number(plain(lane)), -sign * 2 * keep);
    }
    float largest() const
    {
        double most = 0;
        for (size_t lane = 0; lane < count; lane++)
            most = std::max(most, oracle_q8::value(plain(lane)));
        return std::isfinite(old_bound) ? (float)std::ldexp(most, oracle_q8::scale(moment, old_bound)) : old_bound;
    }
    int scale() const { return oracle_q8::scale(moment, bound); }
    int shift() const { return oracle_q8::scale(moment, old_bound) - scale(); }
    void store(size_t lane, float x, unsigned random)
    {
        const unsigned code = oracle_q8::round(moment, std::fabs((double)x), random);
        memory[HEADER + lane] = (unsigned char)(!moment && std::signbit(x) ? code + 128 : code);
    }
};

float gradient(const zoff_adam_consts &k, const zoff_optimizer_tensor &t, size_t i)
{
    const float g = oracle_load(t.grad, t.grad_dtype, i) * k.grad_scale;
    return k.rule == ZOFF_RULE_ADAM_L2 ? std::fmaf(k.decay, ((const float *)t.master)[i], g) : g;
}

// A bound that is no number is infinite.
float bound(float x)
{
    return std::isnan(x) ? INFINITY : x;
}

// The constants of a block.
struct constants {
    float keep1, rest1, keep2, rest2, root, eps;
};

constants constants_of(const zoff_adam_consts &k, const block &m, const block *v)
{
    constants c = {std::fabs(k.beta1) * power(m.shift(), -126, 126),
                   k.one_minus_beta1 * power(-m.scale(), -126, 127),
                   k.beta2,
                   k.one_minus_beta2,
                   k.inv_sqrt_bias2 * power(-m.scale(), -126, 127),
                   0};
    float quanta = 0.25f;
    if (v) {
        c.keep2 = std::fabs(k.beta2) * power(v->shift(), -126, 126);
        c.rest2 = k.one_minus_beta2 * power(-v->scale(), -126, 127);
        c.root = k.inv_sqrt_bias2 * root(v->scale(), m.scale());
        quanta = 0.25f + root(v->scale() - 2, m.scale());
    }
    c.eps = k.eps * power(-m.scale(), -126, 127) + k.inv_sqrt_bias2 * quanta;
    if (!std::isfinite(m.bound) || (v && !std::isfinite(v->bound)))
        c.eps = INFINITY;
    return c;
}

void store_weight(const zoff_optimizer_tensor &t, size_t i, float p)
{
    ((float *)t.master)[i] = p;
    if (t.copy_out)
        oracle_store(t.copy_out, t.copy_dtype, i, p);
}

void step_block(const zoff_adam_consts &k, int64_t t, oracle_q8::parameter *p, size_t index)
{
    const size_t begin = index * BLOCK, count = std::min(p->tensor.count - begin, (size_t)BLOCK);
    const bool has_v = p->moments == ZOFF_MOMENTS_Q8;
    block m(0, p->m, index, count), v(1, p->v, has_v ? index : 0, count);
    uint16_t *v16 = reinterpret_cast<uint16_t *>(p->v) + begin;
    float most = 0;
    for (size_t i = 0; i < count; i++)
        most = std::max(most, std::fabs(gradient(k, p->tensor, begin + i)));
    m.bound = bound(std::fmaf(k.one_minus_beta1, most, k.beta1 * m.largest()));
    if (has_v)
        v.bound = bound(std::fmaf(k.one_minus_beta2 * most, most, k.beta2 * v.largest()));
    const constants c = constants_of(k, m, has_v ? &v : nullptr);
    for (size_t i = 0; i < count; i++) {
        const float g = gradient(k, p->tensor, begin + i), weight = ((const float *)p->tensor.master)[begin + i];
        const float new_m = std::fmaf(c.rest1, g, m.kept(i, c.keep1));
        const float new_v = std::fmaf(c.rest2 * g, g, has_v ? v.kept(i, c.keep2) : c.keep2 * oracle_from_bf16(v16[i]));
        const float u = new_m / std::fmaf(std::sqrt(new_v), c.root, c.eps);
        const uint64_t of_block = p->key + index;
        m.store(i, new_m, oracle_dither(0, of_block, i, t));
        p->over_m = std::max(p->over_m, std::ldexp(std::fabs((double)new_m), m.scale()) / std::max(m.bound, FLT_MIN));
        if (has_v) {
            v.store(i, new_v, oracle_dither(1, of_block, i, t));
            p->over_v = std::max(p->over_v, std::ldexp((double)new_v, v.scale()) / std::max(v.bound, FLT_MIN));
        } else {
            v16[i] = oracle_dither_bf16(new_v, 1, of_block, i, t);
        }
        store_weight(p->tensor, begin + i,
                     k.rule == ZOFF_RULE_ADAM_DECOUPLED ? weight + std::fmaf(k.step_size, u, k.decay * weight)
                                                        : std::fmaf(k.step_size, u, weight));
    }
    memcpy(m.memory, &m.bound, sizeof m.bound);
    if (has_v)
        memcpy(v.memory, &v.bound, sizeof v.bound);
}
} // namespace

double oracle_q8::number(unsigned code)
{
    return std::ldexp(1 + code % 8 / 8.0, 1 + (int)(code / 8));
}

double oracle_q8::value(unsigned code)
{
    return number(code) - 2;
}

unsigned oracle_q8::codes(unsigned moment)
{
    return moment ? 256 : 128;
}

int oracle_q8::scale(unsigned moment, float bound)
{
    int n = moment ? -126 : -64;
    if (!std::isfinite(bound))
        bound = FLT_MAX;
    while (std::ldexp((float)value(codes(moment) - 1), n) < bound)
        n++;
    return n;
}

unsigned oracle_q8::round(unsigned moment, double multiple, unsigned random)
{
    const double x = (float)(multiple + 2);
    unsigned low = 0, high = codes(moment);
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        (number(middle) <= x ? low : high) = middle;
    }
    if (low == codes(moment) - 1)
        return low; // the largest, and nothing is above it
    return low + ((x - number(low)) / (number(low + 1) - number(low)) + random / 65536.0 >= 1);
}

void oracle_q8::step(const zoff_adam_consts &k, int64_t t, parameter *p)
{
    for (size_t index = 0; index * BLOCK < p->tensor.count; index++)
        step_block(k, t, p, index);
}
