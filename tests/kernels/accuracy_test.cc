/* SPDX-License-Identifier: Apache-2.0 */
// accuracy_test.cc: compares every rule with long double, element by element. The error must be within a bound that is computed
// along with the result (see exact_step.h). Adam takes 100 steps at all sizes with every tail, all rules take 1,000 steps.
#include "every_rule.h"
#include "exact_step.h"
#include "kernel_data.h"
#include "zoff_test.h"

using namespace kernel_data;
using exact::real;

namespace
{
struct tally {
    real worst = 0;       // error / bound; above 1 is wrong
    real loosest = 0;     // bound / total update: the error that the bound allows
    real relative = 0;    // sum of |error| / |total update|
    size_t elements = 0;  // elements in that sum
    size_t undecided = 0; // Lion signs too close to 0 to decide, out of `signs`
    size_t signs = 0;
};

// Compare one tensor of `n` elements over some steps.
void compare(zoff_optimizer_hyper h, int steps, size_t n, double scale, bool extreme, tally *out)
{
    random_source random(n + 1);
    std::vector<float> p(n), m(n), v(n), g(n), first;
    std::vector<exact::element> exacts(n);
    std::vector<double> size(n);
    std::vector<size_t> undecided(n);
    for (size_t i = 0; i < n; i++) {
        p[i] = extreme ? number(random, false) : (float)(0.02 * random.unit());
        exacts[i].p = {p[i], 0};
        size[i] = extreme ? __builtin_pow(10.0, (double)(i % 25) - 20) : 0.01 * (double)(1 + i % 80);
    }
    first = p;
    zoff_optimizer_tensor tensor = {};
    tensor.struct_size = sizeof tensor;
    tensor.count = n;
    tensor.master = p.data();
    tensor.m = m.data();
    tensor.v = v.data();
    tensor.grad = g.data();
    for (int t = 1; t <= steps; t++) {
        for (size_t i = 0; i < n; i++) {
            g[i] = i % 7 == 3 && t % 3 ? 0.0f : (float)(size[i] * random.unit()); // some gradients are sparse
            exact::step(h, t, scale, g[i], &exacts[i], &undecided[i]);
        }
        ASSERT_ZOFF_OK(zoff_optimizer_step(&h, t, scale, &tensor));
    }
    for (size_t i = 0; i < n; i++) {
        const real slack = 1.0001L; // the margin is for second-order terms, which the bound leaves out
        const exact::element &e = exacts[i];
        ASSERT_LE(fabsl(p[i] - e.p.x), slack * e.p.error) << "p[" << i << "] of " << n << " is " << p[i] << ", not " << e.p.x;
        ASSERT_LE(fabsl(m[i] - e.m.x), slack * e.m.error) << "m[" << i << "] of " << n;
        ASSERT_LE(fabsl(v[i] - e.v.x), slack * e.v.error) << "v[" << i << "] of " << n;
        out->undecided += undecided[i];
        out->signs += (size_t)steps;
        if (undecided[i])
            continue;
        out->worst = fmaxl(out->worst, fabsl(p[i] - e.p.x) / e.p.error);
        const real moved = fabsl(e.p.x - first[i]);
        if (!extreme && moved > (real)h.lr) { // if updates cancel to almost zero, the relative error means nothing
            out->loosest = fmaxl(out->loosest, e.p.error / moved);
            out->relative += fabsl(p[i] - e.p.x) / moved;
            out->elements++;
        }
    }
}

tally compare_sizes(const std::vector<size_t> &sizes, zoff_optimizer_hyper h, int steps, double scale, bool extreme)
{
    tally all;
    for (size_t i = 0; i < sizes.size() && !::testing::Test::HasFatalFailure(); i++)
        compare(h, steps, sizes[i], scale, extreme, &all);
    printf("worst error / bound %.3f", (double)all.worst);
    if (all.elements)
        printf(", loosest bound / update %.2e, mean relative error of the update %.2e over %zu elements", (double)all.loosest,
               (double)(all.relative / (real)all.elements), all.elements);
    printf("\n");
    return all;
}

tally compare_all_sizes(zoff_optimizer_hyper h, double scale, bool extreme)
{
    std::vector<size_t> sizes;
    for (size_t n = 0; n <= 130; n++)
        sizes.push_back(n);
    const tally all = compare_sizes(sizes, h, 100, scale, extreme);
    ::testing::Test::RecordProperty("worst_error_over_bound", std::to_string((double)all.worst));
    if (all.elements) {
        EXPECT_LE((double)(all.relative / (real)all.elements), 3e-6);
    }
    return all;
}

zoff_optimizer_hyper hyper(double weight_decay, zoff_decay decay)
{
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    h.weight_decay = weight_decay;
    h.decay = decay;
    return h;
}

TEST(accuracy, adamw_within_the_running_error_bound)
{
    const tally all = compare_all_sizes(hyper(0.01, ZOFF_DECAY_DECOUPLED), 1.0, false);
    EXPECT_GT(all.worst, 0.001L) << "a bound far above all errors proves nothing";
    EXPECT_LT(all.loosest, 1e-3L) << "a bound that allows large errors proves nothing";
}

TEST(accuracy, plain_adam_with_unscaled_gradients)
{
    compare_all_sizes(hyper(0, ZOFF_DECAY_DECOUPLED), 1.0 / 3, false);
}

TEST(accuracy, l2_within_the_running_error_bound)
{
    zoff_optimizer_hyper h = hyper(0.01, ZOFF_DECAY_L2);
    h.eps = 1e-4; // large enough that its place in the formula matters
    const tally all = compare_all_sizes(h, 1.0, false);
    EXPECT_LT(all.loosest, 1e-3L);
}

TEST(accuracy, other_betas)
{
    zoff_optimizer_hyper h = hyper(0.1, ZOFF_DECAY_DECOUPLED);
    h.beta1 = 0.8;
    h.beta2 = 0.95;
    h.lr = 0.01;
    h.eps = 1e-3;
    compare_all_sizes(h, 0.5, false);
}

// Gradients from 1e-20 to 1e4 and weights of nine decades: moments become subnormal.
TEST(accuracy, extreme_scales)
{
    const tally all = compare_all_sizes(hyper(0.01, ZOFF_DECAY_DECOUPLED), 1.0, true);
    EXPECT_LE(all.worst, 1.0001L);
}

// 1,000 steps of every rule. The error that the bound allows must stay far below the total update.
TEST(accuracy, every_rule_over_a_thousand_steps)
{
    for (const auto &rule : every_rule()) {
        SCOPED_TRACE(rule.name);
        printf("%-18s", rule.name);
        zoff_optimizer_hyper h = rule.hyper;
        const zoff_optimizer optimizer = h.optimizer;
        h.lr = optimizer == ZOFF_OPTIMIZER_LION ? 1e-4 : optimizer == ZOFF_OPTIMIZER_ADAGRAD ? 1e-2 : 1e-3;
        h.weight_decay /= optimizer == ZOFF_OPTIMIZER_ADAM ? 10 : 1;
        h.eps = rule.rule == ZOFF_RULE_ADAM_L2 ? 1e-4 : h.eps;
        const tally all = compare_sizes({1, 2, 7, 64, 131, 515}, h, 1000, 0.5, false);
        ASSERT_FALSE(HasFatalFailure());
        RecordProperty("worst_error_over_bound_of_rule_" + std::to_string(rule.rule), std::to_string((double)all.worst));
        EXPECT_GT(all.elements, 20u);
        EXPECT_GT(all.worst, 0.001L) << "a bound far above all errors proves nothing";
        EXPECT_LT(all.loosest, 0.05L) << "a bound that allows large errors proves nothing";
        EXPECT_LE(all.undecided * 10000, all.signs) << "undecided signs must be rare";
    }
}
} // namespace
