/* SPDX-License-Identifier: Apache-2.0 */
// accuracy_q8_test.cc: moments in 8 bits after thousands of steps, against moments in fp32. The gradients of a block are up to
// 80 times apart, some are sparse, and some die half way. The mean of v must be kept. Rounding to the nearest would not do
// that: a v that changes by less than half of its last digit would never change.
#include "zoff_test.h"

#include <algorithm>
#include <cmath>
#include <random>

extern "C" {
#include "cpu_adam.h"
#include "q8.h"
#include "simd/simd_scalar.h"
}

namespace
{
enum { N = 2048, STEPS = 4000, CLASSES = 4 };

// Gradients of normal distribution; the class of an element is its quarter of the sizes.
struct source {
    std::mt19937 random{5};
    std::normal_distribution<float> normal;

    static unsigned class_of(size_t i) { return (unsigned)(i % 64 / 16); }
    static bool is_sparse(size_t i) { return i % 7 == 3; }
    static bool dies(size_t i) { return i % 11 == 5; }
    std::vector<float> next(int64_t t)
    {
        std::vector<float> g(N);
        for (size_t i = 0; i < N; i++) {
            g[i] = normal(random) * 1e-3f * std::pow(80.0f, (float)(i % 64) / 63);
            if ((is_sparse(i) && t % 3) || (dies(i) && t > STEPS / 2))
                g[i] = 0;
        }
        return g;
    }
};

// A v that is rounded to the nearest code of the scale that its block needs.
void round_to_nearest(std::vector<float> *v)
{
    for (size_t first = 0; first < N; first += 1024) {
        const float most = *std::max_element(v->begin() + (ptrdiff_t)first, v->begin() + (ptrdiff_t)first + 1024);
        const int scale = q8_scale_v(most);
        for (size_t i = first; i < first + 1024; i++) {
            const uint16_t half = 32768;
            uint8_t code = 0;
            v_store_code_dithered(&code, std::ldexp((*v)[i], -scale), &half, 0, 1, false);
            (*v)[i] = std::ldexp(v_load_code(&code, 1, false, 1), scale);
        }
    }
}

// The moments in every way.
struct moments {
    std::vector<float> p = std::vector<float>(N), m = p, v = p, nearest = p;
    std::vector<uint8_t> m8, v8;

    moments()
    {
        m8.resize(zoff_adam_moments_size(ZOFF_MOMENTS_Q8, ZOFF_MOMENT_M, N));
        v8.resize(zoff_adam_moments_size(ZOFF_MOMENTS_Q8, ZOFF_MOMENT_V, N));
    }
    void step(const std::vector<float> &g, const zoff_adam_consts &k)
    {
        zoff_adam_piece piece = {};
        piece.count = N;
        piece.master = p.data();
        piece.m = m8.data();
        piece.v = v8.data();
        piece.grad = g.data();
        piece.grad_dtype = ZOFF_F32;
        piece.consts = &k;
        piece.moments = ZOFF_MOMENTS_Q8;
        piece.key = zoff_adam_dither_key("layer", 0, 0);
        zoff_adam_update_run(1, &piece, 1, nullptr, nullptr);
        for (size_t i = 0; i < N; i++) {
            m[i] = std::fmaf(k.one_minus_beta1, g[i], k.beta1 * m[i]);
            v[i] = std::fmaf(k.one_minus_beta2 * g[i], g[i], k.beta2 * v[i]);
            nearest[i] = std::fmaf(k.one_minus_beta2 * g[i], g[i], k.beta2 * nearest[i]);
        }
        round_to_nearest(&nearest);
    }
    float stored(size_t i, bool is_v) const
    {
        const uint8_t *block = (is_v ? v8 : m8).data() + q8_block_at(i / 1024 * 1024);
        const float bound = q8_load_bound(block);
        return std::ldexp(v_load_code(block + 64 + i % 1024, 1, !is_v, 1), is_v ? q8_scale_v(bound) : q8_scale_m(bound));
    }
};

TEST(accuracy_q8, moments_keep_their_mean)
{
    source gradients;
    moments all;
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    h.beta2 = 0.999;
    double bias[CLASSES] = {}, nearest[CLASSES] = {}, squares = 0, m_error = 0, m_bias = 0, dead = 0, total = 0;
    size_t counts[CLASSES] = {}, samples = 0;
    for (int64_t t = 1; t <= STEPS; t++) {
        zoff_adam_consts k;
        zoff_adam_hyper_consts(&h, t, 1.0, &k);
        all.step(gradients.next(t), k);
        if (t < 1000 || t % 100)
            continue;
        for (size_t i = 0; i < N; i++) { // sum up after the first thousand steps, because v must have become steady
            const unsigned c = source::class_of(i);
            const double root = std::sqrt((double)all.v[i]), error = std::sqrt((double)all.stored(i, true)) / root - 1;
            const double m_relative = (all.stored(i, false) - all.m[i]) / root;
            bias[c] += error;
            nearest[c] += std::sqrt((double)all.nearest[i]) / root - 1;
            counts[c]++;
            squares += error * error;
            m_bias += m_relative;
            m_error += m_relative * m_relative;
            samples++;
        }
    }
    for (size_t i = 0; i < N; i++) {
        dead += source::dies(i) ? std::sqrt((double)all.stored(i, true)) : 0;
        total += source::dies(i) ? std::sqrt((double)all.v[i]) : 0;
    }
    double worst_nearest = 0;
    for (unsigned c = 0; c < CLASSES; c++) {
        printf("root of v, sizes of quarter %u: bias %+.4f; to the nearest %+.4f\n", c, bias[c] / (double)counts[c],
               nearest[c] / (double)counts[c]);
        EXPECT_LT(std::abs(bias[c] / (double)counts[c]), 0.02) << "quarter " << c;
        worst_nearest = std::max(worst_nearest, std::abs(nearest[c] / (double)counts[c]));
    }
    printf(
        "root of v: root mean square of the error %.4f; of dead elements %+.4f; m over the root of v: mean %+.5f, rms %.4f\n",
        std::sqrt(squares / (double)samples), dead / total - 1, m_bias / (double)samples, std::sqrt(m_error / (double)samples));
    /* Without gradients v falls by a code each time that a random number is among the lowest hundredth. The numbers of a walk
     * meet such an interval, whose end moves, a tenth too often. */
    EXPECT_LT(std::abs(dead / total - 1), 0.15) << "a v without gradients decays";
    EXPECT_LT(std::sqrt(squares / (double)samples), 0.1);
    EXPECT_LT(std::abs(m_bias / (double)samples), 0.001);
    EXPECT_LT(std::sqrt(m_error / (double)samples), 0.05);
    EXPECT_GT(worst_nearest, 0.1) << "the reason for random bits";
}
} // namespace
