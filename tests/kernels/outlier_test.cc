/* SPDX-License-Identifier: Apache-2.0 */
// outlier_test.cc: no element of a block decides for others. One or several elements get gradients of 10^-30 to 10^38 once or
// now and then, in every format of moments, and the other weights go as far as with moments in fp32.
#include "covering.h"
#include "zoff_test.h"

#include <cmath>
#include <random>

extern "C" {
#include "cpu_adam.h"
}

namespace
{
enum { BLOCK = 1024, STEPS = 90, AT = 10, MOST = 10 };

// Gradients of one place differ in size from another's, and keep about their size and sign.
float usual(size_t i, std::mt19937 &random)
{
    std::normal_distribution<float> normal(1, 0.3f);
    return 1e-3f * (1 + (float)(i % 7)) * (i % 3 ? 1.0f : -1.0f) * normal(random);
}

struct disturbance {
    size_t count;              // elements
    std::vector<size_t> where; // elements that get large gradients
    double size;
    bool is_repeated; // in every third step; otherwise once
};

// How far each weight went after the disturbance began.
std::vector<double> run(zoff_moments moments, const disturbance &d, std::vector<float> *weights = nullptr)
{
    std::vector<float> p(d.count), before, g(d.count);
    std::vector<char> m(zoff_adam_moments_size(moments, ZOFF_MOMENT_M, d.count)), v(m.size() * 4);
    std::vector<double> path(d.count);
    std::mt19937 random(5);
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    h.lr = 1e-3;
    for (int64_t t = 1; t <= STEPS; t++) {
        zoff_adam_consts k;
        zoff_adam_hyper_consts(&h, t, 1, &k);
        for (size_t i = 0; i < d.count; i++)
            g[i] = usual(i, random);
        for (size_t n = 0; n < d.where.size() && (t == AT || (d.is_repeated && t > AT && t % 3 == 1)); n++)
            g[d.where[n]] = (float)(n % 2 ? -d.size : d.size);
        zoff_adam_piece piece = {};
        piece.count = d.count;
        piece.master = p.data();
        piece.m = m.data();
        piece.v = v.data();
        piece.grad = g.data();
        piece.grad_dtype = ZOFF_F32;
        piece.consts = &k;
        piece.moments = (uint8_t)moments;
        piece.key = zoff_adam_dither_key("layer", 0, 0);
        before = p;
        zoff_adam_update_run(1, &piece, 1, nullptr, nullptr);
        for (size_t i = 0; i < d.count && t > AT; i++)
            path[i] += std::fabs((double)p[i] - before[i]);
    }
    if (weights)
        *weights = p;
    return path;
}

// The least and the mean path of weights that have no large gradient, over that with moments in fp32.
void expect_others_go_on(const disturbance &d, const std::string &what)
{
    const std::vector<double> wanted = run(ZOFF_MOMENTS_F32, d);
    for (const zoff_moments moments : {ZOFF_MOMENTS_BF16, ZOFF_MOMENTS_M8V16, ZOFF_MOMENTS_Q8}) {
        std::vector<float> weights;
        const std::vector<double> have = run(moments, d, &weights);
        double least = 1e9, most = 0, sum = 0, squares = 0;
        size_t others = 0;
        for (size_t i = 0; i < d.count; i++) {
            ASSERT_TRUE(std::isfinite(weights[i])) << what;
            if (std::find(d.where.begin(), d.where.end(), i) != d.where.end())
                continue;
            least = std::min(least, have[i] / wanted[i]);
            most = std::max(most, have[i] / wanted[i]);
            sum += have[i] / wanted[i];
            squares += std::pow(have[i] / wanted[i] - 1, 2);
            others++;
        }
        if (!others)
            continue;
        const std::string name = what + ", moments in " + zoff_adam_moments_name(moments);
        ASSERT_NEAR(sum / (double)others, 1, 0.02) << name;
        ASSERT_LT(std::sqrt(squares / (double)others), 0.1) << name;
        /* Rounding with random bits alone is as far off in one of a thousand codes. */
        const double limit = moments == ZOFF_MOMENTS_BF16 ? 0.1 : 0.25;
        ASSERT_GT(least, 1 - limit) << name;
        ASSERT_LT(most, 1 + limit) << name;
    }
}

TEST(outlier, one_element_leaves_the_others_alone)
{
    const unsigned cells = BLOCK * 69, share = std::max(150u, zoff_test::share_of(cells) / 50);
    size_t tried = 0;
    for (size_t n = 0; n < share; n++) {
        const size_t cell = share == cells ? n : (size_t)((double)n * (double)cells / (double)share + (double)(n * 37 % 331));
        const int exponent = (int)(cell % 69) - 30;
        const size_t at = cell / 69 % BLOCK, tail = 77 + n % 900;
        const bool in_tail = n % 5 == 4, is_repeated = n % 3 == 2;
        disturbance d = {
            in_tail ? BLOCK + tail : (size_t)BLOCK, {in_tail ? BLOCK + at % tail : at}, std::pow(10.0, exponent), is_repeated};
        expect_others_go_on(d, "element " + std::to_string(at) + ", 10^" + std::to_string(exponent));
        if (HasFatalFailure())
            return;
        tried++;
    }
    printf("%zu of %u elements and sizes\n", tried, cells);
}

// The block has as many outliers as it has space for, of sizes far apart.
TEST(outlier, ten_elements_leave_the_others_alone)
{
    std::mt19937 random(6);
    for (size_t n = 1; n <= MOST; n++) {
        for (const double size : {1e2, 1e5, 1e12, 1e30}) {
            disturbance d = {BLOCK, {}, size, n % 2 == 0};
            while (d.where.size() < n) {
                const size_t at = random() % BLOCK;
                if (std::find(d.where.begin(), d.where.end(), at) == d.where.end())
                    d.where.push_back(at);
            }
            expect_others_go_on(d, std::to_string(n) + " elements of " + std::to_string(size));
            if (HasFatalFailure())
                return;
        }
    }
}

// With one outlier more the block has one scale for all elements. Weights stay finite, and those of other blocks go on.
TEST(outlier, eleven_elements_stop_no_other_block)
{
    for (const double size : {1e5, 1e12, 1e30}) {
        disturbance d = {2 * BLOCK, {}, size, false};
        for (size_t n = 0; n <= MOST; n++)
            d.where.push_back(n * 90);
        const std::vector<double> wanted = run(ZOFF_MOMENTS_F32, d);
        std::vector<float> weights;
        const std::vector<double> have = run(ZOFF_MOMENTS_Q8, d, &weights);
        double first = 0;
        for (size_t i = 0; i < d.count; i++) {
            ASSERT_TRUE(std::isfinite(weights[i]));
            if (i >= BLOCK) {
                ASSERT_NEAR(have[i] / wanted[i], 1, 0.2) << i;
            }
            first += i < BLOCK && wanted[i] > 0 ? have[i] / wanted[i] / BLOCK : 0;
        }
        printf("11 of %.0e: the others of the block go %.2f as far as with moments in fp32\n", size, first);
    }
}
} // namespace
