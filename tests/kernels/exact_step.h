/* SPDX-License-Identifier: Apache-2.0 */
// exact_step.h: the rules in long double. Each exact value comes with a bound on the error of correctly rounded fp32 arithmetic
// up to that point. The bound is a running error analysis: every rounding adds half a unit in the last place, and every
// operation propagates the errors of its operands. A kernel exceeds the bound if it uses another formula, drops a term, or
// rounds more often than the header says.
#ifndef ZOFF_TESTS_EXACT_STEP_H
#define ZOFF_TESTS_EXACT_STEP_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <zoff/optimizer.h>

namespace exact
{
typedef long double real;
const real HALF_ULP = 0x1p-24L, TINY = 0x1p-149L; // HALF_ULP is relative; TINY is absolute, for subnormals, which have fewer
                                                  // digits

// An exact value, and how far the fp32 value may be from it.
struct bounded {
    real x = 0, error = 0;
};

inline bounded rounded(bounded a)
{
    if (a.x == 0 && a.error == 0)
        return a; // sums and products of zeros are exact zeros
    return {a.x, a.error + HALF_ULP * (fabsl(a.x) + a.error) + TINY};
}
inline bounded constant(real x)
{
    return rounded({x, 0});
}
inline bounded product(bounded a, bounded b) // the product before rounding
{
    return {a.x * b.x, fabsl(a.x) * b.error + fabsl(b.x) * a.error + a.error * b.error};
}
inline bounded sum(bounded a, bounded b)
{
    return {a.x + b.x, a.error + b.error};
}
inline bounded root(bounded a)
{
    const real x = sqrtl(a.x), low = sqrtl(fmaxl(a.x - a.error, 0));
    return {x, fmaxl(x - low, sqrtl(a.x + a.error) - x)};
}
inline bounded quotient(bounded a, bounded b)
{
    if (a.x == 0 && a.error == 0)
        return a;
    const real least = b.x - b.error;
    return {a.x / b.x, a.error / least + fabsl(a.x) * b.error / (b.x * least)};
}
// A value near 0 may be on either side of it in fp32, so its sign may be any. The error is then the largest distance, and the
// sign counts as undecided.
inline bounded sign(bounded a, size_t *undecided)
{
    const real x = (real)((a.x > 0) - (a.x < 0));
    if (fabsl(a.x) > a.error || a.error == 0)
        return {x, 0};
    ++*undecided;
    return {x, 1 + fabsl(x)};
}

struct element {
    bounded p, m, v;
};

// The moment m = rest * g + keep * m, as fp32 computes it.
inline bounded blend(real keep, bounded m, real rest, bounded g)
{
    return rounded(sum(product(constant(rest), g), rounded(product(constant(keep), m))));
}

// All elements of a step have the same powers of the two betas, and powl() takes as long as the rest of an element.
inline real power(real base, int64_t t)
{
    struct known {
        real base, result;
        int64_t t;
    };
    static thread_local known last[2] = {};
    for (const known &k : last) {
        if (k.base == base && k.t == t)
            return k.result;
    }
    last[1] = last[0];
    last[0] = {base, powl(base, (real)t), t};
    return last[0].result;
}

inline bounded adam_update(const zoff_optimizer_hyper &h, int64_t t, bounded g, element *e)
{
    const bounded inv_root =
        h.flags & ZOFF_HYPER_NO_BIAS_CORRECTION ? bounded{1, 0} : constant(1 / sqrtl(1 - power(h.beta2, t)));
    e->m = blend(h.beta1, e->m, 1 - (real)h.beta1, g);
    e->v =
        rounded(sum(product(rounded(product(constant(1 - (real)h.beta2), g)), g), rounded(product(constant(h.beta2), e->v))));
    return rounded(quotient(e->m, rounded(sum(product(rounded(root(e->v)), inv_root), constant(h.eps)))));
}

inline bounded sgd_update(const zoff_optimizer_hyper &h, int64_t t, bounded g, element *e)
{
    if (h.momentum == 0)
        return g;
    e->m = t == 1 ? g : blend(h.momentum, e->m, 1 - (real)h.dampening, g);
    return h.nesterov ? rounded(sum(product(constant(h.momentum), e->m), g)) : e->m;
}

// Step `t` on one element. `undecided` counts signs that fp32 arithmetic cannot determine.
inline void step(const zoff_optimizer_hyper &h, int64_t t, double scale, real grad, element *e, size_t *undecided)
{
    const bool is_muon = h.optimizer == ZOFF_OPTIMIZER_MUON;
    const bool shrinks =
        h.optimizer == ZOFF_OPTIMIZER_LION || (h.optimizer == ZOFF_OPTIMIZER_ADAM && h.decay != ZOFF_DECAY_L2) || is_muon;
    const real lr = is_muon ? (real)h.adam_lr : (real)h.lr;
    bounded g = rounded(product({grad, 0}, constant(scale)));
    if (h.weight_decay != 0 && !shrinks)
        g = rounded(sum(product(constant(h.weight_decay), e->p), g));
    real rate = -lr;
    bounded u = {};
    switch (h.optimizer) {
    case ZOFF_OPTIMIZER_ADAM:
    case ZOFF_OPTIMIZER_MUON:
        rate /= h.flags & ZOFF_HYPER_NO_BIAS_CORRECTION ? 1 : 1 - power(h.beta1, t);
        u = adam_update(h, t, g, e);
        break;
    case ZOFF_OPTIMIZER_ADAGRAD:
        rate /= 1 + (real)(t - 1) * (real)h.lr_decay;
        e->v = rounded(sum(product(g, g), e->v));
        u = rounded(quotient(g, rounded(sum(rounded(root(e->v)), constant(h.eps)))));
        break;
    case ZOFF_OPTIMIZER_LION:
        u = sign(blend(h.beta1, e->m, 1 - (real)h.beta1, g), undecided);
        e->m = blend(h.beta2, e->m, 1 - (real)h.beta2, g);
        break;
    case ZOFF_OPTIMIZER_SGD:
        u = sgd_update(h, t, g, e);
        break;
    case ZOFF_OPTIMIZER_KEEP:
        break;
    }
    bounded change = product(constant(rate), u);
    if (h.weight_decay != 0 && shrinks)
        change = rounded(sum(change, rounded(product(constant(-lr * (real)h.weight_decay), e->p))));
    e->p = rounded(sum(change, e->p));
}
} // namespace exact

#endif
