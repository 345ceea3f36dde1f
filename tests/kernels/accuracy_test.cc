// accuracy_test.cc: 100 steps against Adam in long double, element by element, within a bound that is computed along with it:
// beside each exact value runs a bound of the error that correctly rounded fp32 arithmetic can have made so far (running error
// analysis: every rounding adds half a unit in the last place, every operation carries the errors of its operands on). A kernel
// that computes another formula, drops a term, or rounds once more than the header says has no such excuse.
#include "kernel_data.h"
#include "zoff_test.h"

#include <math.h>

using namespace kernel_data;

namespace
{
typedef long double real;
constexpr int STEPS = 100;
const real HALF_ULP = 0x1p-24L, TINY = 0x1p-149L; // relative, and where subnormals begin to lose digits absolute

// An exact value and how far the fp32 one may be from it.
struct bounded {
    real x = 0, error = 0;
};

real rounding(real x)
{
    return HALF_ULP * fabsl(x) + TINY;
}
bounded constant(real x)
{
    return {x, rounding(x)};
}
bounded product(bounded a, bounded b) // before it is rounded
{
    return {a.x * b.x, fabsl(a.x) * b.error + fabsl(b.x) * a.error + a.error * b.error};
}
bounded rounded(bounded a)
{
    return {a.x, a.error + rounding(fabsl(a.x) + a.error)};
}
bounded sum(bounded a, bounded b)
{
    return {a.x + b.x, a.error + b.error};
}
bounded root(bounded a)
{
    const real x = sqrtl(a.x), low = sqrtl(fmaxl(a.x - a.error, 0));
    return {x, fmaxl(x - low, sqrtl(a.x + a.error) - x)};
}
bounded quotient(bounded a, bounded b)
{
    const real least = b.x - b.error;
    return {a.x / b.x, a.error / least + fabsl(a.x) * b.error / (b.x * least)};
}

struct element {
    bounded p, m, v;
};

void exact_step(const zoff_adam_hyper &h, int t, double scale, float grad, element *e)
{
    const bounded beta1 = constant(h.beta1), rest1 = constant(1 - (real)h.beta1);
    const bounded beta2 = constant(h.beta2), rest2 = constant(1 - (real)h.beta2);
    const bounded inv_root = constant(1 / sqrtl(1 - powl(h.beta2, t)));
    const bounded rate = constant(-(real)h.lr / (1 - powl(h.beta1, t)));
    bounded g = rounded(product({grad, 0}, constant(scale)));
    if (h.decay == ZOFF_DECAY_L2)
        g = rounded(sum(product(constant(h.weight_decay), e->p), g));
    e->m = rounded(sum(product(rest1, g), rounded(product(beta1, e->m))));
    e->v = rounded(sum(product(rounded(product(rest2, g)), g), rounded(product(beta2, e->v))));
    const bounded u = rounded(quotient(e->m, rounded(sum(product(rounded(root(e->v)), inv_root), constant(h.eps)))));
    if (h.decay == ZOFF_DECAY_DECOUPLED)
        e->p = rounded(sum(product(constant(-(real)h.lr * h.weight_decay), e->p), e->p));
    e->p = rounded(sum(product(rate, u), e->p));
}

struct tally {
    real worst = 0;      // error / bound; above 1 is wrong
    real loosest = 0;    // bound / sum of the sizes of all updates: how much the bound forgives
    real relative = 0;   // sum of |error| / |total update|
    size_t elements = 0; // in that sum
};

// One tensor of `n` elements over 100 steps.
void compare(zoff_adam_hyper h, size_t n, double scale, bool extreme, tally *out)
{
    random_source random(n + 1);
    std::vector<float> p(n), m(n), v(n), g(n), first;
    std::vector<element> exact(n);
    std::vector<double> size(n);
    for (size_t i = 0; i < n; i++) {
        p[i] = extreme ? number(random, false) : (float)(0.02 * random.unit());
        exact[i].p = {p[i], 0};
        size[i] = extreme ? __builtin_pow(10.0, (double)(i % 25) - 20) : 0.01 * (double)(1 + i % 80);
    }
    first = p;
    zoff_adam_tensor tensor = {};
    tensor.struct_size = sizeof tensor;
    tensor.count = n;
    tensor.master = p.data();
    tensor.m = m.data();
    tensor.v = v.data();
    tensor.grad = g.data();
    for (int t = 1; t <= STEPS; t++) {
        for (size_t i = 0; i < n; i++) {
            g[i] = i % 7 == 3 && t % 3 ? 0.0f : (float)(size[i] * random.unit()); // sparse ones too
            exact_step(h, t, scale, g[i], &exact[i]);
        }
        ASSERT_ZOFF_OK(zoff_adam_step(&h, t, scale, &tensor));
    }
    for (size_t i = 0; i < n; i++) {
        const real slack = 1.0001L; // terms of second order that the bound leaves out
        const element &e = exact[i];
        ASSERT_LE(fabsl(p[i] - e.p.x), slack * e.p.error) << "p[" << i << "] of " << n << " is " << p[i] << ", not " << e.p.x;
        ASSERT_LE(fabsl(m[i] - e.m.x), slack * e.m.error) << "m[" << i << "] of " << n;
        ASSERT_LE(fabsl(v[i] - e.v.x), slack * e.v.error) << "v[" << i << "] of " << n;
        out->worst = fmaxl(out->worst, fabsl(p[i] - e.p.x) / e.p.error);
        const real moved = fabsl(e.p.x - first[i]);
        if (!extreme && moved > (real)h.lr) { // where the total is a near zero by cancellation, relative says nothing
            out->loosest = fmaxl(out->loosest, e.p.error / moved);
            out->relative += fabsl(p[i] - e.p.x) / moved;
            out->elements++;
        }
    }
}

tally compare_all_sizes(zoff_adam_hyper h, double scale, bool extreme)
{
    tally all;
    for (size_t n = 0; n <= 130 && !::testing::Test::HasFatalFailure(); n++)
        compare(h, n, scale, extreme, &all);
    ::testing::Test::RecordProperty("worst_error_over_bound", std::to_string((double)all.worst));
    if (all.elements) {
        const double mean = (double)(all.relative / (real)all.elements);
        printf(
            "worst error / bound %.3f, loosest bound / update %.2e, mean relative error of the update %.2e over %zu elements\n",
            (double)all.worst, (double)all.loosest, mean, all.elements);
        EXPECT_LE(mean, 3e-6);
    }
    return all;
}

zoff_adam_hyper hyper(double weight_decay, zoff_decay decay)
{
    zoff_adam_hyper h;
    zoff_adam_hyper_init(&h);
    h.weight_decay = weight_decay;
    h.decay = decay;
    return h;
}

TEST(accuracy, adamw_within_the_running_error_bound)
{
    const tally all = compare_all_sizes(hyper(0.01, ZOFF_DECAY_DECOUPLED), 1.0, false);
    EXPECT_GT(all.worst, 0.001L) << "a bound this far from any error proves nothing";
    EXPECT_LT(all.loosest, 1e-3L) << "a bound this loose proves nothing";
}

TEST(accuracy, plain_adam_with_unscaled_gradients)
{
    compare_all_sizes(hyper(0, ZOFF_DECAY_DECOUPLED), 1.0 / 3, false);
}

TEST(accuracy, l2_within_the_running_error_bound)
{
    zoff_adam_hyper h = hyper(0.01, ZOFF_DECAY_L2);
    h.eps = 1e-4; // large enough that its place in the formula is visible
    const tally all = compare_all_sizes(h, 1.0, false);
    EXPECT_LT(all.loosest, 1e-3L);
}

TEST(accuracy, other_betas)
{
    zoff_adam_hyper h = hyper(0.1, ZOFF_DECAY_DECOUPLED);
    h.beta1 = 0.8;
    h.beta2 = 0.95;
    h.lr = 0.01;
    h.eps = 1e-3;
    compare_all_sizes(h, 0.5, false);
}

// Gradients from 1e-20 to 1e4 over weights of nine decades: moments become subnormal.
TEST(accuracy, extreme_scales)
{
    const tally all = compare_all_sizes(hyper(0.01, ZOFF_DECAY_DECOUPLED), 1.0, true);
    EXPECT_LE(all.worst, 1.0001L);
}
} // namespace
