/* SPDX-License-Identifier: Apache-2.0 */
// oracle_q8.cc: see oracle_q8.h.
#include "oracle_q8.h"

#include "oracle.h"

#include <cfloat>
#include <cmath>
#include <cstring>

#include <algorithm>
#include <map>
#include <vector>

namespace
{
enum { BLOCK = 1024, HEADER = 64, MOST = 10 };

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
    int old_scale = 0, new_scale = 0;
    std::map<size_t, float> before, now; // outliers of each lane

    block(unsigned which, unsigned char *base, size_t index, size_t elements)
        : moment(which), memory(base + index * (BLOCK + HEADER)), count(elements)
    {
        memcpy(&old_bound, memory, sizeof old_bound);
        old_scale = oracle_q8::scale(moment, old_bound);
        for (size_t e = 0; e < MOST; e++) {
            float number;
            uint16_t place;
            memcpy(&number, memory + 4 + 4 * e, sizeof number);
            memcpy(&place, memory + 44 + 2 * e, sizeof place);
            if (place)
                before[place - 1u] = number;
        }
    }
    unsigned plain(size_t lane) const { return memory[HEADER + lane] % oracle_q8::codes(moment); }
    float sign(size_t lane) const { return memory[HEADER + lane] == plain(lane) ? 1.0f : -1.0f; }
    // keep * the multiple of a lane
    float kept(size_t lane, float keep) const
    {
        return std::fmaf(keep, sign(lane) * (float)oracle_q8::number(plain(lane)), -sign(lane) * 2 * keep);
    }
    // The old number of a lane.
    float number(size_t lane) const
    {
        if (before.count(lane))
            return before.at(lane);
        return std::isfinite(old_bound) ? (float)std::ldexp(sign(lane) * oracle_q8::value(plain(lane)), old_scale) : old_bound;
    }
    float largest() const
    {
        float most = 0;
        for (size_t lane = 0; lane < count; lane++)
            most = std::max(most, std::fabs(number(lane)));
        return most;
    }
    void choose(const std::vector<float> &numbers, float all)
    {
        choose_among(numbers, all);
        new_scale = oracle_q8::scale(moment, bound);
    }
    // Choose outliers among numbers, the bounds of the lanes: the largest ones, and again the largest of the rest, as long as
    // they are few. The bound of the others is `all` or, if there are outliers, their largest number.
    void choose_among(std::vector<float> numbers, float all)
    {
        const int digits = moment ? 16 : 8;
        bound = all;
        for (;;) {
            const float most = *std::max_element(numbers.begin(), numbers.end());
            const float far = std::ldexp(std::min(most, FLT_MAX), -digits);
            const auto is_far = [far](float x) { return x > 0 && x >= far; };
            const auto far_ones = (size_t)std::count_if(numbers.begin(), numbers.end(), is_far);
            if (!now.empty())
                bound = most;
            if (far_ones == 0 || now.size() + far_ones > MOST)
                return;
            for (size_t lane = 0; lane < count; lane++) {
                if (is_far(numbers[lane]))
                    now[lane] = numbers[lane] = 0;
            }
        }
    }
    int scale() const { return new_scale; }
    int shift() const { return old_scale - new_scale; }
    // Exponent and quantum of the new number of a lane: an outlier has neither.
    int scale(size_t lane) const { return now.count(lane) ? 0 : scale(); }
    bool is_listed(size_t lane) const { return before.count(lane) || now.count(lane); }
    bool is_lost(size_t lane) const { return !now.count(lane) && !std::isfinite(bound); }
    // `x`: a multiple of the scale
    void store(size_t lane, float x, unsigned random)
    {
        const auto out = now.find(lane);
        if (out != now.end())
            out->second = x;
        unsigned code = out != now.end() ? 0 : oracle_q8::round(moment, std::fabs((double)x), random);
        if (is_lost(lane)) { // no code means anything, but it has the same digits everywhere
            const float above = std::fabs(x) + 2;
            uint32_t bits;
            memcpy(&bits, &above, sizeof bits);
            code = (bits + (random << 4)) >> 20 & (oracle_q8::codes(moment) - 1);
        }
        memory[HEADER + lane] = (unsigned char)(!moment && out == now.end() && std::signbit(x) ? code + 128 : code);
    }
    void store_header() const
    {
        memset(memory, 0, HEADER);
        memcpy(memory, &bound, sizeof bound);
        size_t e = 0;
        for (const auto &out : now) {
            const auto place = (uint16_t)(out.first + 1);
            memcpy(memory + 4 + 4 * e, &out.second, sizeof out.second);
            memcpy(memory + 44 + 2 * e++, &place, sizeof place);
        }
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

// The constants of a step of one lane. Where both moments are codes they are those of the block.
struct constants {
    float rest1, rest2, root, eps;
};

constants constants_of(const zoff_adam_consts &k, const block &m, const block *v, size_t lane)
{
    const int of_m = m.scale(lane), of_v = v ? v->scale(lane) : 0;
    constants c = {k.one_minus_beta1 * power(-of_m, -126, 127), k.one_minus_beta2, k.inv_sqrt_bias2 * power(-of_m, -126, 127),
                   0};
    float quanta = m.now.count(lane) ? 0 : 0.25f;
    if (v) {
        c.rest2 = k.one_minus_beta2 * power(-of_v, -126, 127);
        c.root = k.inv_sqrt_bias2 * root(of_v, of_m);
        quanta += v->now.count(lane) ? 0 : root(of_v - 2, of_m);
    }
    c.eps = k.eps * power(-of_m, -126, 127) + k.inv_sqrt_bias2 * quanta;
    if (m.is_lost(lane) || (v && v->is_lost(lane)))
        c.eps = INFINITY;
    return c;
}

// beta * the old number, as a multiple of the new scale.
float kept(const block &x, size_t lane, float beta, bool is_listed)
{
    if (is_listed)
        return std::fabs(beta) * x.number(lane) * power(-x.scale(lane), -126, 127);
    return x.kept(lane, std::fabs(beta) * power(x.shift(), -126, 126));
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
    block m(0, p->m, index, count), v(1, has_v ? p->v : p->m, index, has_v ? count : 0);
    uint16_t *v16 = reinterpret_cast<uint16_t *>(p->v) + begin;
    float most = 0;
    std::vector<float> g(count), m_bounds(count), v_bounds(count);
    for (size_t i = 0; i < count; i++) {
        g[i] = gradient(k, p->tensor, begin + i);
        most = std::max(most, std::fabs(g[i]));
        m_bounds[i] = bound(std::fmaf(k.one_minus_beta1, std::fabs(g[i]), k.beta1 * std::fabs(m.number(i))));
        if (has_v)
            v_bounds[i] = bound(std::fmaf(k.one_minus_beta2 * g[i], g[i], k.beta2 * v.number(i)));
    }
    m.choose(m_bounds, bound(std::fmaf(k.one_minus_beta1, most, k.beta1 * m.largest())));
    if (has_v)
        v.choose(v_bounds, bound(std::fmaf(k.one_minus_beta2 * most, most, k.beta2 * v.largest())));
    for (size_t i = 0; i < count; i++) {
        const float weight = ((const float *)p->tensor.master)[begin + i];
        const bool is_listed = m.is_listed(i) || (has_v && v.is_listed(i));
        const constants c = constants_of(k, m, has_v ? &v : nullptr, i);
        const float new_m = std::fmaf(c.rest1, g[i], kept(m, i, k.beta1, is_listed));
        const float kept_v = has_v ? kept(v, i, k.beta2, is_listed) : k.beta2 * oracle_from_bf16(v16[i]);
        const float wide_v = std::fmaf(c.rest2 * g[i], g[i], kept_v), new_v = has_v ? bound(wide_v) : wide_v;
        const float u = new_m / std::fmaf(std::sqrt(new_v), c.root, c.eps);
        const uint64_t of_block = p->key + index;
        if (!m.now.count(i))
            p->over_m = std::max(p->over_m, std::ldexp(std::fabs((double)new_m), m.scale()) / std::max(m.bound, FLT_MIN));
        if (has_v && !v.now.count(i))
            p->over_v = std::max(p->over_v, std::ldexp((double)new_v, v.scale()) / std::max(v.bound, FLT_MIN));
        m.store(i, new_m, oracle_dither(0, of_block, i, t));
        if (has_v)
            v.store(i, new_v, oracle_dither(1, of_block, i, t));
        else
            v16[i] = oracle_dither_bf16(new_v, 1, of_block, i, t);
        store_weight(p->tensor, begin + i,
                     k.rule == ZOFF_RULE_ADAM_DECOUPLED ? weight + std::fmaf(k.step_size, u, k.decay * weight)
                                                        : std::fmaf(k.step_size, u, weight));
    }
    m.store_header();
    if (has_v)
        v.store_header();
    p->outliers += m.now.size() + v.now.size();
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
