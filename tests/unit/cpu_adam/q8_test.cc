/* SPDX-License-Identifier: Apache-2.0 */
// q8_test.cc: moments in 8 bits: their codes and scales, the mean of rounding, the layout in blocks, and that no result depends
// on cuts and threads. tests/kernels/ compares whole steps with an oracle.
#include "zoff_test.h"

#include <cmath>
#include <random>

extern "C" {
#include "cpu_adam.h"
#include "q8.h"
#include "simd/simd_scalar.h"
}

namespace
{
uint8_t encode(float multiple, uint16_t random, bool has_sign)
{
    uint8_t code = 0;
    v_store_code_dithered(&code, multiple, &random, 0, 1, has_sign);
    return code;
}

float decode(unsigned code, bool has_sign)
{
    const auto byte = (uint8_t)code;
    return v_load_code(&byte, 1, has_sign, 1);
}

TEST(q8, every_code_is_a_number_and_itself)
{
    for (bool has_sign : {false, true}) {
        const unsigned plain = has_sign ? 128 : 256;
        for (unsigned code = 0; code < 256; code++) {
            const float x = decode(code, has_sign), size = std::fabs(x);
            EXPECT_EQ(size, q8_value(code % plain));
            if (code == plain) { // minus zero
                EXPECT_FALSE(std::signbit(x));
                continue;
            }
            EXPECT_EQ(std::signbit(x), code > plain);
            for (unsigned random : {0u, 1u, 32768u, 65535u})
                ASSERT_EQ(encode(x, (uint16_t)random, has_sign), code) << random;
            if (code % plain) {
                EXPECT_GT(size, q8_value(code % plain - 1));
            }
        }
        EXPECT_EQ(decode(plain - 1, has_sign), has_sign ? 0x1.ep16f - 2 : 0x1.ep32f) << "the largest";
        EXPECT_EQ(decode(1, has_sign), 0.25f) << "the quantum";
    }
}

// Over all random numbers, a number between two codes becomes the upper one as often as its distance says.
TEST(q8, rounding_keeps_the_mean)
{
    std::mt19937 random(3);
    std::uniform_real_distribution<float> uniform;
    for (bool has_sign : {false, true}) {
        for (int i = 0; i < 60; i++) {
            const unsigned below = (unsigned)random() % (has_sign ? 127 : 255);
            const float from = q8_value(below), step = q8_value(below + 1) - from;
            float x = from + step * uniform(random);
            if (i % 7 == 0)
                x = std::nextafter(i % 2 ? from : from + step, from + step / 2);
            double sum = 0;
            for (unsigned r = 0; r < 65536; r++) {
                const float got = decode(encode(has_sign && i % 2 ? -x : x, (uint16_t)r, has_sign), has_sign);
                ASSERT_TRUE(std::fabs(got) == from || std::fabs(got) == from + step);
                sum += std::fabs(got);
            }
            EXPECT_NEAR(sum / 65536, x, step / 65536) << "from code " << below;
        }
    }
}

// A multiple of a code is rounded once: it is not a multiple of the rounded value.
TEST(q8, a_product_is_rounded_once)
{
    for (bool has_sign : {false, true}) {
        for (unsigned code = 0; code < 256; code++) {
            const bool is_negative = has_sign && code > 127;
            const double x = std::ldexp(1 + code % 8 / 8.0, 1 + (int)(has_sign ? code % 128 : code) / 8);
            const auto byte = (uint8_t)code;
            for (float keep : {0.9f, 0.95f, 0.999f, 0x1.cccp-30f})
                ASSERT_EQ(v_load_code(&byte, 1, has_sign, keep), (float)(keep * (is_negative ? 2 - x : x - 2))) << code;
        }
    }
}

// The largest code is not below the bound, and with half the scale it would be.
TEST(q8, scales_are_the_least_that_hold_the_bound)
{
    std::mt19937 random(4);
    for (int i = 0; i < 20000; i++) {
        float bound = q8_number((uint32_t)random() % 0x7f800000u);
        if (i % 3 == 0)
            bound = std::ldexp(1.875f, i % 250 - 125);
        else if (i % 3 == 1)
            bound = std::nextafter(std::ldexp(1.875f, i % 250 - 125), INFINITY);
        else if (i % 3 == 2 && i % 2)
            bound = std::nextafter(std::ldexp(0x1.dffep0f, i % 250 - 125), i % 4 == 1 ? 0.0f : INFINITY);
        const int m = q8_scale_m(bound), v = q8_scale_v(bound);
        const double most_m = 0x1.ep16 - 2, most_v = 0x1.ep32;
        EXPECT_GE(std::ldexp(most_m, m), (double)bound);
        EXPECT_GE(std::ldexp(most_v, v), (double)bound);
        ASSERT_TRUE(m == -64 || std::ldexp(most_m, m - 1) < (double)bound);
        ASSERT_TRUE(v == -126 || std::ldexp(most_v, v - 1) < (double)bound);
    }
    EXPECT_EQ(-64, q8_scale_m(0));
    EXPECT_EQ(-126, q8_scale_v(0));
    for (float any : {INFINITY, -INFINITY, NAN, -NAN, q8_number(0x7fffffffu), q8_number(0xffffffffu)})
        EXPECT_LE(q8_scale_m(any), 113);
}

TEST(q8, moments_lie_in_blocks)
{
    for (zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V}) {
        for (size_t n : {0, 1, 1023, 1024, 1025, 4096}) {
            const size_t blocks = (n + 1023) / 1024;
            EXPECT_EQ(4 * n, zoff_adam_moments_size(ZOFF_MOMENTS_F32, which, n));
            EXPECT_EQ(2 * n, zoff_adam_moments_size(ZOFF_MOMENTS_BF16, which, n));
            EXPECT_EQ(n + 64 * blocks, zoff_adam_moments_size(ZOFF_MOMENTS_Q8, which, n));
            EXPECT_EQ(which == ZOFF_MOMENT_M ? n + 64 * blocks : 2 * n, zoff_adam_moments_size(ZOFF_MOMENTS_M8V16, which, n));
        }
        EXPECT_EQ(20u, zoff_adam_moments_offset(ZOFF_MOMENTS_F32, which, 5));
        EXPECT_EQ(10u, zoff_adam_moments_offset(ZOFF_MOMENTS_BF16, which, 5));
        EXPECT_EQ(3u * (1024 + 64), zoff_adam_moments_offset(ZOFF_MOMENTS_Q8, which, 3072));
    }
    EXPECT_EQ(1024u + 64, zoff_adam_moments_offset(ZOFF_MOMENTS_M8V16, ZOFF_MOMENT_M, 1024));
    EXPECT_EQ(2048u, zoff_adam_moments_offset(ZOFF_MOMENTS_M8V16, ZOFF_MOMENT_V, 1024));
}

// One parameter that Adam trains, whose moments are in 8 bits.
struct trained {
    enum { N = 5000 };
    std::vector<float> p = std::vector<float>(N);
    std::vector<uint8_t> m = std::vector<uint8_t>(N + 64 * 5), v = m;

    zoff_adam_piece piece(const std::vector<float> &g, const zoff_adam_consts *k, size_t first, size_t count)
    {
        zoff_adam_piece made = {};
        made.count = count;
        made.master = &p[first];
        made.m = &m[zoff_adam_moments_offset(ZOFF_MOMENTS_Q8, ZOFF_MOMENT_M, first)];
        made.v = &v[zoff_adam_moments_offset(ZOFF_MOMENTS_Q8, ZOFF_MOMENT_V, first)];
        made.grad = &g[first];
        made.grad_dtype = ZOFF_F32;
        made.consts = k;
        made.moments = ZOFF_MOMENTS_Q8;
        made.key = zoff_adam_dither_key("layer", 0, first);
        return made;
    }
    bool operator==(const trained &other) const { return p == other.p && m == other.m && v == other.v; }
};

zoff_adam_consts consts_of(int64_t t)
{
    zoff_optimizer_hyper h;
    zoff_adam_consts k;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    zoff_adam_hyper_consts(&h, t, 1.0, &k);
    return k;
}

TEST(q8, bits_do_not_depend_on_cuts_and_threads)
{
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    trained whole, cut, shared;
    for (int64_t t = 1; t <= 5; t++) {
        std::vector<float> g(trained::N);
        for (float &x : g)
            x = normal(random);
        const zoff_adam_consts k = consts_of(t);
        const zoff_adam_piece one = whole.piece(g, &k, 0, trained::N), same = shared.piece(g, &k, 0, trained::N);
        const zoff_adam_piece three[] = {cut.piece(g, &k, 0, 2048), cut.piece(g, &k, 2048, 1024),
                                         cut.piece(g, &k, 3072, trained::N - 3072)};
        zoff_adam_update_run(1, &one, 1, nullptr, nullptr);
        zoff_adam_update_run(1, three, 3, nullptr, nullptr);
        zoff_adam_update_run(3, &same, 1, nullptr, nullptr);
    }
    EXPECT_TRUE(whole == cut);
    EXPECT_TRUE(whole == shared);
}

TEST(q8, zeros_are_moments_of_zero)
{
    trained one, fresh;
    const std::vector<float> g(trained::N);
    for (int64_t t = 1; t <= 3; t++) {
        const zoff_adam_consts k = consts_of(t);
        const zoff_adam_piece piece = one.piece(g, &k, 0, trained::N);
        zoff_adam_update_run(1, &piece, 1, nullptr, nullptr);
    }
    EXPECT_TRUE(one == fresh);
}

// Gradients of one block that are a million times apart. An m of one quantum meets a v of zero, and no step is large.
TEST(q8, no_step_is_huge)
{
    std::mt19937 random(8);
    std::normal_distribution<float> normal;
    trained one;
    const float lr = 1e-3f;
    double most = 0;
    for (int64_t t = 1; t <= 300; t++) {
        std::vector<float> g(trained::N), before = one.p;
        for (size_t i = 0; i < trained::N; i++)
            g[i] = normal(random) * std::pow(10.0f, -(float)(i % 13) / 2);
        const zoff_adam_consts k = consts_of(t);
        const zoff_adam_piece piece = one.piece(g, &k, 0, trained::N);
        zoff_adam_update_run(1, &piece, 1, nullptr, nullptr);
        for (size_t i = 0; i < trained::N; i++)
            most = std::max(most, (double)std::fabs(one.p[i] - before[i]));
    }
    printf("the largest step is %.2f times the learning rate\n", most / lr);
    EXPECT_LT(most, 10 * lr);
}

// Moments that cancel leave codes of zero under a large scale. The next scale is the least one, and zero must stay zero.
TEST(q8, zeros_under_a_large_scale_stay_zeros)
{
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    h.beta1 = 1 - 1e-9; // 1 in fp32
    std::vector<float> p(64), g(64);
    std::vector<uint8_t> m(64 + 64);
    std::vector<uint16_t> v(64);
    for (int64_t t = 1; t <= 3; t++) {
        g[0] = t == 1 ? 0x1.dcd298p110f : t == 2 ? -0x1.dcd298p110f : 0;
        zoff_adam_consts k;
        zoff_adam_hyper_consts(&h, t, 1, &k);
        zoff_adam_piece piece = {};
        piece.count = p.size();
        piece.master = p.data();
        piece.m = m.data();
        piece.v = v.data();
        piece.grad = g.data();
        piece.consts = &k;
        piece.moments = ZOFF_MOMENTS_M8V16;
        zoff_adam_update_run(1, &piece, 1, nullptr, nullptr);
    }
    EXPECT_EQ(std::vector<float>(64), p);
}

// A square that overflows makes one v infinite, for good, and its weight stands still, as with fp32 moments. No other does.
TEST(q8, an_infinite_moment_stops_its_own_weight)
{
    trained one;
    std::vector<float> g(trained::N, 1.0f), before(trained::N);
    g[10] = 1e37f;
    for (int64_t t = 1; t <= 3; t++) {
        const zoff_adam_consts k = consts_of(t);
        const zoff_adam_piece piece = one.piece(g, &k, 0, trained::N);
        before = one.p;
        zoff_adam_update_run(1, &piece, 1, nullptr, nullptr);
        for (size_t i = 0; i < trained::N; i++) {
            ASSERT_NEAR(i == 10 ? 0 : -1e-3f, one.p[i] - before[i], 1e-4f) << i << " in step " << t;
        }
        g[10] = 0;
    }
}

// A block has space for ten of them. With more it has no bound, and moves no weight.
TEST(q8, a_block_without_a_bound_stands_still)
{
    for (const size_t infinite : {10, 11}) {
        trained one;
        std::vector<float> g(trained::N, 1.0f);
        std::fill_n(g.begin() + 10, infinite, 1e37f);
        for (int64_t t = 1; t <= 3; t++) {
            const zoff_adam_consts k = consts_of(t);
            const zoff_adam_piece piece = one.piece(g, &k, 0, trained::N);
            zoff_adam_update_run(1, &piece, 1, nullptr, nullptr);
            std::fill_n(g.begin() + 10, infinite, 0.0f);
        }
        for (size_t i = 0; i < trained::N; i++)
            ASSERT_EQ(i >= 10 && i < 10 + infinite ? true : infinite == 11 && i < 1024, one.p[i] == 0) << i;
    }
}
} // namespace
