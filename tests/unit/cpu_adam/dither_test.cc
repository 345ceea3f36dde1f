/* SPDX-License-Identifier: Apache-2.0 */
// dither_test.cc: states that are rounded to bf16 with random bits. Their mean is kept, where rounding to the nearest would
// stop a second moment from decaying. The bits depend on parameter, element and step alone.
#include "oracle.h"
#include "zoff_test.h"

#include <string.h>

#include <cmath>
#include <random>
#include <set>

extern "C" {
#include "cpu_adam.h"
#include "dither.h"
}

namespace
{
enum { N = 1500 };

// One parameter that Adam trains on gradients, whose moments are in bf16.
struct moments {
    explicit moments(size_t n = N) : p(n), m(n), v(n) {}
    zoff_adam_piece piece(const std::vector<float> &g, const zoff_adam_consts *k, uint64_t key, size_t first, size_t count)
    {
        zoff_adam_piece made = {};
        made.count = count;
        made.master = &p[first];
        made.m = &m[first];
        made.v = &v[first];
        made.grad = &g[first];
        made.grad_dtype = ZOFF_F32;
        made.consts = k;
        made.moments = ZOFF_MOMENTS_BF16;
        made.key = key + first / ZOFF_NORM_BLOCK;
        return made;
    }
    bool operator==(const moments &other) const { return p == other.p && m == other.m && v == other.v; }

    std::vector<float> p;
    std::vector<uint16_t> m, v;
};

zoff_adam_consts consts_of(int64_t t)
{
    zoff_optimizer_hyper h;
    zoff_adam_consts k;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    h.beta2 = 0.999;
    zoff_adam_hyper_consts(&h, t, 1.0, &k);
    return k;
}

std::vector<float> gradients(std::mt19937 &random)
{
    std::normal_distribution<float> normal;
    std::vector<float> g(N);
    for (float &x : g)
        x = normal(random);
    return g;
}

float of_bf16(uint16_t bits)
{
    return oracle_from_bf16(bits);
}

// Gradients of variance 1 for long, and the relative error of the root of v against states in fp32. To the nearest, v sticks
// where (1 - beta2) * v is less than half of its last digit.
TEST(dither, second_moments_keep_their_mean)
{
    std::mt19937 random(5);
    moments rounded;
    std::vector<float> exact(N), nearest(N);
    const uint64_t key = zoff_adam_dither_key("layer", 0, 0);
    for (int64_t t = 1; t <= 4000; t++) {
        const std::vector<float> g = gradients(random);
        const zoff_adam_consts k = consts_of(t);
        const zoff_adam_piece piece = rounded.piece(g, &k, key, 0, N);
        zoff_adam_update_run(1, &piece, 1, nullptr, nullptr);
        for (size_t i = 0; i < N; i++) {
            exact[i] = std::fmaf(k.one_minus_beta2 * g[i], g[i], k.beta2 * exact[i]);
            nearest[i] = of_bf16(oracle_to_bf16(std::fmaf(k.one_minus_beta2 * g[i], g[i], k.beta2 * nearest[i])));
        }
    }
    double bias = 0, squares = 0, of_nearest = 0;
    for (size_t i = 0; i < N; i++) {
        const double root = std::sqrt((double)exact[i]), error = std::sqrt((double)of_bf16(rounded.v[i])) / root - 1;
        bias += error / N;
        squares += error * error / N;
        of_nearest += (std::sqrt((double)nearest[i]) / root - 1) / N;
    }
    printf("root of v after 4000 steps: mean error %.4f, root mean square %.4f; to the nearest %.4f\n", bias,
           std::sqrt(squares), of_nearest);
    EXPECT_LT(std::abs(bias), 0.003);
    EXPECT_LT(std::sqrt(squares), 0.03);
    EXPECT_GT(of_nearest, 0.15) << "the reason for random bits";
}

// A number between two neighbours goes up in as many of 1024 steps as its distance says, within 1.5 %, for each element.
TEST(dither, each_element_keeps_its_mean)
{
    const uint64_t key = zoff_adam_dither_key("layer", 3, 2048);
    for (unsigned moment : {0u, 1u}) {
        for (float fraction : {0.1f, 0.5f, 0.77f}) {
            for (size_t lane : {0u, 1u, 17u, 511u, 1023u}) {
                const float x = 1 + fraction / 128;
                unsigned up = 0;
                for (int64_t t = 1; t <= 1024; t++) {
                    const zoff_dither d = dither_block(key, consts_of(t).dither);
                    const auto bits = (uint16_t)(moment ? dither_lane_v(lane) + d.v : dither_lane_m(lane) + d.m);
                    uint32_t number;
                    memcpy(&number, &x, sizeof number);
                    up += (number + bits) >> 16 == 0x3f81;
                }
                EXPECT_NEAR(fraction, up / 1024.0, 0.015) << "moment " << moment << ", lane " << lane;
            }
        }
    }
}

// The random bits of elements, blocks, slices, parameters and moments are unrelated: their products have a mean of zero.
TEST(dither, elements_are_independent)
{
    const auto value = [](uint64_t key, size_t lane, bool of_v) {
        const zoff_dither d = dither_block(key, 0);
        const auto bits = (uint16_t)(of_v ? dither_lane_v(lane) + d.v : dither_lane_m(lane) + d.m);
        return (double)bits / 65536.0 - 0.5;
    };
    double neighbours = 0, blocks = 0, slices = 0, names = 0, both = 0, mean = 0;
    enum { BLOCKS = 64, COUNT = BLOCKS * 1024 };
    for (uint64_t block = 0; block < BLOCKS; block++) {
        const uint64_t a = zoff_adam_dither_key("a", 0, block * 1024), b = zoff_adam_dither_key("b", 0, block * 1024),
                       next = zoff_adam_dither_key("a", 1, block * 1024);
        for (size_t lane = 0; lane < 1024; lane++) {
            const double x = value(a, lane, false);
            mean += x / COUNT;
            neighbours += x * value(a, (lane + 1) % 1024, false) * 12 / COUNT;
            blocks += x * value(a + 1, lane, false) * 12 / COUNT;
            slices += x * value(next, lane, false) * 12 / COUNT;
            names += x * value(b, lane, false) * 12 / COUNT;
            both += x * value(a, lane, true) * 12 / COUNT;
        }
    }
    for (double correlation : {neighbours, both})
        EXPECT_LT(std::abs(correlation), 0.02);
    // Lanes are the same in all blocks, so two blocks differ by a constant. The mean is over 64 constants.
    for (double correlation : {blocks, slices, names})
        EXPECT_LT(std::abs(correlation), 0.2);
    EXPECT_LT(std::abs(mean), 0.01);
}

TEST(dither, keys_of_slices_and_parameters_differ)
{
    std::set<uint64_t> keys;
    for (const char *name : {"", "a", "b", "ab", "layer.0.weight", "layer.1.weight"})
        for (size_t slice = 0; slice < 100; slice++)
            keys.insert(zoff_adam_dither_key(name, slice, 0));
    EXPECT_EQ(600u, keys.size());
    EXPECT_EQ(zoff_adam_dither_key("a", 5, 0) + 3, zoff_adam_dither_key("a", 5, 3 * 1024 + 7));
}

// Pieces and threads cut the elements anywhere at blocks.
TEST(dither, bits_do_not_depend_on_cuts_and_threads)
{
    std::mt19937 random(7);
    const uint64_t key = zoff_adam_dither_key("layer", 1, 0);
    moments whole, cut, shared;
    for (int64_t t = 1; t <= 5; t++) {
        const std::vector<float> g = gradients(random);
        const zoff_adam_consts k = consts_of(t);
        const zoff_adam_piece one = whole.piece(g, &k, key, 0, N), same = shared.piece(g, &k, key, 0, N);
        const zoff_adam_piece two[] = {cut.piece(g, &k, key, 0, 1024), cut.piece(g, &k, key, 1024, N - 1024)};
        zoff_adam_update_run(1, &one, 1, nullptr, nullptr);
        zoff_adam_update_run(1, two, 2, nullptr, nullptr);
        zoff_adam_update_run(3, &same, 1, nullptr, nullptr);
    }
    EXPECT_TRUE(whole == cut);
    EXPECT_TRUE(whole == shared);
}

// The table has what the functions compute, which GPU kernels call.
TEST(dither, the_table_has_both_moments)
{
    const uint16_t *lanes = zoff_adam_dither_lanes();
    for (size_t i = 0; i < ZOFF_NORM_BLOCK; i++) {
        ASSERT_EQ(dither_lane_m(i), lanes[i]);
        ASSERT_EQ(dither_lane_v(i), lanes[ZOFF_NORM_BLOCK + i]);
    }
}
} // namespace
