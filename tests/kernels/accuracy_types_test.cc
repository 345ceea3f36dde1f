/* SPDX-License-Identifier: Apache-2.0 */
// accuracy_types_test.cc: compares 1,000 steps of AdamW with long double, on realistic and on hard inputs. States the error for
// each type of gradients and weights, with fp32 masters and without.
//
// An update is the change of a weight over 1,000 steps. Its relative error is stated in two ways, both over all elements that
// changed at all.
//
//   of_sum       sum of the errors / sum of the updates
//   mean         mean of error / update, without updates below one lr. Such an update is near zero because 1,000 steps cancel,
//                and fp32 cannot represent it well: 0.02 + x has the error of 0.02.
//
// With weight decay most of the error of fp32 masters comes from weights whose gradients are zero. Each step then decays the
// weight by the same number of units in the last place plus a fraction, and always rounds the fraction in the same direction.
#include "exact_step.h"
#include "kernel_data.h"
#include "oracle.h"
#include "zoff_test.h"

using namespace kernel_data;
using exact::real;

namespace
{
constexpr size_t N = 2048;
constexpr int STEPS = 1000;

// Types of a step, and the loss scale by which gradients are multiplied.
struct types {
    const char *name;
    zoff_dtype grads, master, copy;
    double loss_scale;
};

// The errors of the weights after all steps.
struct figures {
    double of_sum, mean;
    double error_over_noise; // rms of the errors over the rms of as many independent roundings of the weights
    double worst_over_bound; // largest error over the sum of half a unit in the last place of the weight per step
};

// Half a unit in the last place of a type at `x`.
real half_unit(zoff_dtype dtype, real x)
{
    const int digits = dtype == ZOFF_BF16 ? 8 : dtype == ZOFF_F16 ? 11 : 24, least = dtype == ZOFF_F16 ? -14 : -126;
    const int exponent = x != 0 ? ilogbl(x) : least;
    return ldexpl(1, (exponent < least ? least : exponent) - digits);
}

enum inputs {
    HARD,     // weights over 7 decades; gradients over 8, with zeros, subnormals, 1e-22 and single ones of 1e17
    REALISTIC // weights about 0.02; gradients whose scale spreads 80-fold, some sparse, some that die half way
};

struct source {
    random_source random{2026};
    std::vector<double> size = std::vector<double>(N);
    inputs kind;

    double bell() { return random.unit() + random.unit() + random.unit(); }

    source(inputs which, std::vector<float> *weights) : kind(which)
    {
        for (size_t i = 0; i < N; i++) {
            const double decade = __builtin_pow(10, (double)(i % 7) - 7);
            weights->push_back((float)(bell() * (kind == HARD ? decade : 0.02)));
            size[i] =
                kind == HARD ? __builtin_pow(10, (double)(i / 7 % 9) - 6) : 0.01 * __builtin_pow(80, (double)(i % 64) / 63);
        }
    }
    float gradient(size_t i, int t)
    {
        const double g = size[i] * bell();
        if ((i % 7 == 3 && t % 3) || (i % 11 == 5 && t > STEPS / 2))
            return 0;
        if (kind == HARD && i % 13 == 1)
            return (float)(g * 1e-39);
        if (kind == HARD && i % 13 == 2)
            return 1e-22f;
        return kind == HARD && i % 997 == 9 && t == 11 ? 1e17f : (float)g;
    }
};

zoff_optimizer_hyper adamw(double weight_decay)
{
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    h.weight_decay = weight_decay;
    return h;
}

// The errors that the types of a step cause over 1,000 steps.
figures run(inputs kind, double weight_decay, const types &c)
{
    std::vector<float> start, m(N), v(N);
    source inputs_of(kind, &start);
    std::vector<uint32_t> p(N), g(N), copy(N); // storage that is large enough for any type
    std::vector<real> ep(N), em(N), ev(N), noise(N), bound(N);
    for (size_t i = 0; i < N; i++) {
        oracle_store(p.data(), c.master, i, start[i]);
        start[i] = oracle_load(p.data(), c.master, i);
        ep[i] = start[i];
    }
    const zoff_optimizer_hyper h = adamw(weight_decay);
    const real beta1 = h.beta1, beta2 = h.beta2, lr = h.lr, eps = h.eps;
    zoff_optimizer_tensor tensor = {};
    tensor.struct_size = sizeof tensor;
    tensor.count = N;
    tensor.master = p.data();
    tensor.m = m.data();
    tensor.v = v.data();
    tensor.grad = g.data();
    tensor.grad_dtype = c.grads;
    tensor.copy_out = c.copy ? copy.data() : nullptr;
    tensor.copy_dtype = c.copy;
    tensor.master_dtype = c.master;
    for (int t = 1; t <= STEPS; t++) {
        const real bias1 = 1 - powl(beta1, t), bias2 = 1 - powl(beta2, t);
        for (size_t i = 0; i < N; i++) {
            oracle_store(g.data(), c.grads, i, (float)c.loss_scale * inputs_of.gradient(i, t));
            const real grad = oracle_load(g.data(), c.grads, i) / (real)c.loss_scale;
            em[i] = beta1 * em[i] + (1 - beta1) * grad;
            ev[i] = beta2 * ev[i] + (1 - beta2) * grad * grad;
            const real u = em[i] / bias1 / (sqrtl(ev[i] / bias2) + eps);
            ep[i] -= lr * (real)weight_decay * ep[i] + lr * u;
            const real half = half_unit(c.master, 2 * ep[i]); // twice the weight, because the error may be as large as the
                                                              // weight
            bound[i] += half;
            noise[i] += half * half / 4 / 3; // the variance of a uniform distribution over one unit
        }
        EXPECT_ZOFF_OK(zoff_optimizer_step(&h, t, 1 / c.loss_scale, &tensor));
    }
    real errors = 0, squares = 0, noises = 0, updates = 0, relative = 0, worst = 0;
    size_t counted = 0;
    for (size_t i = 0; i < N; i++) {
        const float weight = oracle_load(p.data(), c.master, i);
        const real moved = fabsl(ep[i] - start[i]), error = fabsl(weight - ep[i]);
        errors += error;
        updates += moved;
        squares += error * error;
        noises += noise[i];
        worst = fmaxl(worst, error / bound[i]);
        if (moved > lr) {
            relative += error / moved;
            counted++;
        }
        if (c.copy) { // the copy must be the master, rounded once
            uint32_t expected = 0;
            oracle_store(&expected, c.copy, 0, weight);
            EXPECT_EQ(oracle_load(copy.data(), c.copy, i), oracle_load(&expected, c.copy, 0)) << "copy of element " << i;
        }
    }
    EXPECT_GT(counted, N / 2);
    const figures f = {(double)(errors / updates), (double)(relative / (real)counted), (double)sqrtl(squares / noises),
                       (double)worst};
    printf(
        "%-9s decay %-5g %-35s relative error of the update: of the sum %.2e, mean %.2e; rms %.2f of the noise of rounding\n",
        kind == HARD ? "hard" : "realistic", weight_decay, c.name, f.of_sum, f.mean, f.error_over_noise);
    const std::string key = std::string(kind == HARD ? "hard" : "realistic") + (weight_decay != 0 ? "_decay" : "") + "_grads_" +
                            std::to_string(c.grads) + "_master_" + std::to_string(c.master);
    ::testing::Test::RecordProperty(key + "_of_sum", std::to_string(f.of_sum * 1e6) + "e-6");
    ::testing::Test::RecordProperty(key + "_mean", std::to_string(f.mean * 1e6) + "e-6");
    return f;
}

const types MASTERS[] = {{"fp32", ZOFF_F32, ZOFF_F32, ZOFF_DTYPE_DEFAULT, 1},
                         {"bf16 gradients, fp32 master", ZOFF_BF16, ZOFF_F32, ZOFF_BF16, 1},
                         {"fp16 gradients x 1024, fp32 master", ZOFF_F16, ZOFF_F32, ZOFF_F16, 1024}};

// With fp32 masters the types of gradients and copies add no error. The precision that gradients lack was lost before the
// step.
TEST(accuracy_types, masters_keep_the_update_to_3e_6_on_average)
{
    for (double weight_decay : {0.01, 0.0}) {
        for (const auto &c : MASTERS) {
            const figures f = run(REALISTIC, weight_decay, c);
            EXPECT_LE(f.of_sum, 1.5e-6) << c.name;
            EXPECT_LE(f.mean, 3e-6) << c.name;
        }
    }
}

TEST(accuracy_types, hard_inputs)
{
    for (const auto &c : {MASTERS[0], MASTERS[1]}) {
        const figures f = run(HARD, 0.01, c);
        EXPECT_LE(f.of_sum, 2e-6) << c.name;
        EXPECT_LE(f.mean, 4.5e-6) << c.name;
    }
}

// Each step rounds the weight once. In the worst case that loses half a unit in the last place per step. Successive roundings
// are independent, so the typical loss is that of as many independent ones. For 1,000 updates of one lr on weights of about
// 0.02, bf16 loses a twentieth and fp16 a two-hundredth.
TEST(accuracy_types, weights_without_a_master)
{
    const struct {
        types c;
        double of_sum;
    } in_place[] = {{{"bf16 in place", ZOFF_BF16, ZOFF_BF16, ZOFF_DTYPE_DEFAULT, 1}, 0.1},
                    {{"fp16 gradients x 1024, fp16 in place", ZOFF_F16, ZOFF_F16, ZOFF_DTYPE_DEFAULT, 1024}, 0.0125}};
    for (const auto &one : in_place) {
        const figures f = run(REALISTIC, 0.01, one.c);
        EXPECT_LE(f.worst_over_bound, 1.0) << one.c.name;
        EXPECT_LE(f.error_over_noise, 1.5) << one.c.name;
        EXPECT_GE(f.error_over_noise, 0.5) << one.c.name << ": less than the roundings must lose";
        EXPECT_LE(f.of_sum, one.of_sum) << one.c.name;
    }
}
} // namespace
