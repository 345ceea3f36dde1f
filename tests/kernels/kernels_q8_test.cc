/* SPDX-License-Identifier: Apache-2.0 */
// kernels_q8_test.cc: the step with moments in 8 bits of every table against the oracle, bit for bit. Covers the three rules of
// Adam, types of gradients and kinds of masters, sizes with every tail, misaligned arrays, and several steps from zero on. No
// byte outside of the arrays may change.
#include "covering.h"
#include "every_rule.h"
#include "kernel_tables.h"
#include "oracle.h"
#include "oracle_q8.h"

#include <algorithm>
#include <cmath>

using namespace kernel_data;

namespace
{
struct q8_case {
    const rule_case *rule;
    zoff_dtype grads;
    weights_kind weights;
    bool stream;
    zoff_moments moments;
};

enum { MOST = 5000, STEPS = 6 };

// All arrays of a parameter, and the oracle's.
struct q8_arrays {
    fenced<float> p32{MOST + 1}, g32{MOST + 1};
    fenced<uint16_t> p16{MOST + 1}, g16{MOST + 1}, copy{MOST + 16}, low{MOST + 1}, v16{MOST + 1};
    fenced<uint8_t> m8{2 * MOST}, v8{2 * MOST};
    std::vector<float> master;
    std::vector<uint16_t> copied;
    std::vector<unsigned char> m, v;
};

// A gradient far above the others of its block, or 0. Blocks have up to 13 in a step, of which at most 10 can be outliers. The
// next step takes some of them back, so that m returns to the codes.
double spike(zoff_dtype dtype, size_t n, size_t i, int64_t t)
{
    const size_t block = i / 1024, lane = i % 1024, number = lane / 73;
    if (lane % 73 != 5 || number >= (n * 7 + block * 3 + (size_t)(t + 1) / 2 * 5) % 14)
        return 0;
    const double size = dtype == ZOFF_F16 ? 6e4 : std::pow(10.0, (double)((n + block * 5 + number * number) % 42) - 4);
    return t % 2 ? size : number % 3 ? -0.9 * size : 0;
}

// Finite gradients, a few zeros, with sizes that differ from block to block and step to step.
void fill_gradients(random_source &random, void *g, zoff_dtype dtype, size_t n, int64_t t)
{
    for (size_t i = 0; i < n; i++) {
        const double size = std::pow(10.0, (double)(i / 1024 % 3) * 2 - 4 - (double)(i % 7) * (double)(t % 3));
        const double large = t > 1 ? spike(dtype, n, i, t - 1) : 0, small = i % 9 == 4 ? 0 : random.unit() * size;
        oracle_store(g, dtype, i, (float)(large != 0 ? large : small));
    }
}

size_t size_of(zoff_moments moments, zoff_moment which, size_t n)
{
    const bool is_8 = which == ZOFF_MOMENT_M || moments == ZOFF_MOMENTS_Q8;
    return is_8 ? n + (n + 1023) / 1024 * 64 : 2 * n;
}

void check_weights(const q8_arrays &a, const q8_case &c, const void *p, const uint16_t *copy, const uint16_t *low, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = bits_of(a.master[i]);
        if (c.weights.split) {
            ASSERT_EQ(((const uint16_t *)p)[i], (uint16_t)((bits + 0x8000) >> 16)) << "upper half " << i;
            ASSERT_EQ(low[i], (uint16_t)bits) << "lower half " << i;
        } else {
            ASSERT_EQ(bits_of(((const float *)p)[i]), bits) << "weight " << i;
        }
        if (c.weights.copy) {
            ASSERT_EQ(copy[i], a.copied[i]) << "copy " << i;
        }
    }
}

// A few steps on `n` elements from a state of zeros on. `shift` guard elements follow each array.
void check_steps(const struct zoff_kernels *table, q8_arrays &a, const q8_case &c, size_t n, size_t shift)
{
    random_source random(n + 17 * (size_t)c.rule->rule);
    const bool half_g = c.grads != ZOFF_F32, has_v = c.moments == ZOFF_MOMENTS_Q8;
    float *p32 = a.p32.place(n, shift), *g32 = a.g32.place(n, shift);
    uint16_t *p16 = a.p16.place(n, shift), *g16 = a.g16.place(n, shift), *copy = a.copy.place(n, shift);
    uint16_t *low = a.low.place(n, shift), *v16 = a.v16.place(n, shift);
    const size_t m_size = size_of(c.moments, ZOFF_MOMENT_M, n), v_size = size_of(c.moments, ZOFF_MOMENT_V, n);
    uint8_t *m8 = a.m8.place(m_size, shift), *v8 = a.v8.place(has_v ? v_size : 0, shift);
    void *v = has_v ? (void *)v8 : v16, *p = c.weights.split ? (void *)p16 : p32, *g = half_g ? (void *)g16 : g32;
    ASSERT_EQ(zoff_adam_moments_size(c.moments, ZOFF_MOMENT_M, n), m_size);
    ASSERT_EQ(zoff_adam_moments_size(c.moments, ZOFF_MOMENT_V, n), v_size);
    memset(m8, 0, m_size);
    memset(v, 0, v_size);
    a.m.assign(m_size + 1, 0);
    a.v.assign(v_size + 1, 0);
    a.master.resize(n + 1);
    a.copied.resize(n + 1);
    for (size_t i = 0; i < n; i++) {
        a.master[i] = (float)random.unit();
        p32[i] = a.master[i];
        p16[i] = (uint16_t)((bits_of(a.master[i]) + 0x8000) >> 16);
        low[i] = (uint16_t)bits_of(a.master[i]);
    }
    oracle_q8::parameter expected = {};
    expected.tensor.count = n;
    expected.tensor.master = a.master.data();
    expected.tensor.grad = g;
    expected.tensor.grad_dtype = c.grads;
    expected.tensor.copy_out = c.weights.copy ? a.copied.data() : nullptr;
    expected.tensor.copy_dtype = c.weights.copy;
    expected.moments = c.moments;
    expected.m = a.m.data();
    expected.v = a.v.data();
    expected.key = UINT64_MAX - n % 3;
    for (int64_t t = 1; t <= STEPS; t++) {
        fill_gradients(random, g, c.grads, n, t);
        zoff_adam_consts consts;
        zoff_adam_hyper_consts(&c.rule->hyper, t, n % 3 ? 0.37 : 1.0, &consts);
        zoff_adam_piece piece = {};
        piece.count = n;
        piece.master = p;
        piece.m = m8;
        piece.v = v;
        piece.moments = (uint8_t)c.moments;
        piece.key = expected.key;
        piece.grad = g;
        piece.copy_out = c.weights.copy ? copy : nullptr;
        piece.split = c.weights.split;
        if (piece.split)
            piece.low = low;
        piece.grad_dtype = c.grads;
        piece.copy_dtype = c.weights.copy;
        piece.consts = &consts;
        piece.master_dtype = c.weights.split ? ZOFF_BF16 : c.weights.master;
        piece.stream = c.stream;
        const size_t cut = n * 3 / 5 / 1024 * 1024;
        table->update(&piece, cut, n - cut);
        table->update(&piece, 0, cut);
        oracle_q8::step(consts, t, &expected);
        ASSERT_TRUE(m_size == 0 || memcmp(m8, a.m.data(), m_size) == 0) << "m in step " << t;
        ASSERT_TRUE(v_size == 0 || memcmp(v, a.v.data(), v_size) == 0) << "v in step " << t;
        check_weights(a, c, p, copy, low, n);
        if (testing::Test::HasFatalFailure())
            return;
    }
    EXPECT_LE(expected.over_m, 1);
    EXPECT_LE(expected.over_v, 1);
    a.p32.expect_guards();
    a.g32.expect_guards();
    for (auto *array : {&a.p16, &a.g16, &a.copy, &a.low, &a.v16})
        array->expect_guards();
    a.m8.expect_guards();
    a.v8.expect_guards();
}

std::vector<q8_case> every_case(const std::vector<rule_case> &rules)
{
    std::vector<q8_case> all;
    for (const auto &rule : rules) {
        if (rule.rule > ZOFF_RULE_ADAM_L2 || rule.hyper.optimizer == ZOFF_OPTIMIZER_MUON) // whose moments have 2 or 4 bytes
            continue;
        for (const auto &weights : every_weights_kind()) {
            for (zoff_dtype grads : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
                for (zoff_moments moments : {ZOFF_MOMENTS_M8V16, ZOFF_MOMENTS_Q8}) {
                    for (bool stream : {false, true}) {
                        if (weights.master == ZOFF_F32 && (!stream || weights.copy))
                            all.push_back({&rule, grads, weights, stream, moments});
                    }
                }
            }
        }
    }
    return all;
}

class kernels_q8 : public kernel_tables
{
};
ZOFF_EVERY_TABLE(kernels_q8);

TEST_P(kernels_q8, equals_the_oracle)
{
    q8_arrays a;
    const std::vector<rule_case> rules = every_rule();
    const std::vector<q8_case> cases = every_case(rules);
    EXPECT_EQ(cases.size(), 4u * 3 * 2 * (2 + 2 * 2));
    size_t turn = 0;
    for (const auto &c : cases) {
        for (size_t n : {0, 1, 2, 3, 5, 8, 15, 17, 31, 33, 64, 100, 1023, 1024, 1025, 1055, 2048 + 77, 4096 + 1}) {
            const bool is_slow = n > 1025;
            turn++;
            if (is_slow && !zoff_test::is_full_run() && turn / 18 % 3)
                continue; // a short run takes sizes of several blocks in every third case
            check_steps(table, a, c, n, turn % 2);
            ASSERT_FALSE(HasFailure()) << c.rule->name << ", gradients " << zoff_adam_dtype_name(c.grads) << ", weights "
                                       << c.weights.name << (c.moments == ZOFF_MOMENTS_Q8 ? ", q8" : ", m8v16")
                                       << (c.stream ? ", streaming, " : ", ") << n << " elements";
        }
    }
}

// A step that keeps the moments keeps every code, for any random bits. (That of minus zero becomes zero.)
TEST_P(kernels_q8, every_code_is_kept)
{
    zoff_adam_consts k = {};
    k.rule = ZOFF_RULE_ADAM;
    k.beta1 = k.beta2 = k.grad_scale = k.inv_sqrt_bias2 = 1;
    enum { N = 1024, SIZE = N + 64 };
    for (bool split : {false, true}) {
        for (float bound : {1.875f, 1e-8f, 3e9f}) {
            std::vector<uint8_t> m(SIZE), v(SIZE);
            std::vector<uint16_t> high(N), low(N), g16(N, 0x8000); // -0
            std::vector<float> p(N), g(N, -0.0f);
            const float bounds[] = {(float)std::ldexp(oracle_q8::value(127), oracle_q8::scale(0, bound)),
                                    (float)std::ldexp(oracle_q8::value(255), oracle_q8::scale(1, bound))};
            memcpy(m.data(), &bounds[0], 4);
            memcpy(v.data(), &bounds[1], 4);
            for (size_t i = 0; i < N; i++)
                m[64 + i] = (v[64 + i] = (uint8_t)(i * 37)) == 0x80 ? 0 : v[64 + i];
            zoff_adam_piece piece = {};
            piece.count = N;
            piece.master = split ? (void *)high.data() : p.data();
            piece.master_dtype = split ? ZOFF_BF16 : ZOFF_F32;
            piece.split = split;
            if (split)
                piece.low = low.data();
            piece.m = m.data();
            piece.v = v.data();
            piece.grad = split ? (void *)g16.data() : g.data();
            piece.grad_dtype = split ? ZOFF_BF16 : ZOFF_F32;
            piece.moments = ZOFF_MOMENTS_Q8;
            piece.consts = &k;
            const std::vector<uint8_t> m_before = m, v_before = v;
            for (uint32_t t = 0; t < 100; t++) {
                k.dither = t * 0x9e3779b9u;
                piece.key = t;
                table->update(&piece, 0, N);
                ASSERT_EQ(m_before, m) << "bound " << bound << ", " << t;
                ASSERT_EQ(v_before, v) << "bound " << bound << ", " << t;
            }
        }
    }
}

// Gradients that try to lift a moment above its bound: steady ones, spikes, growth, decay, turns of the sign, and numbers near
// the ends of the range. Small betas and large ones.
float adversary(unsigned kind, int64_t t, size_t i, random_source &random)
{
    const double x = (double)t, lane = 1 + (double)(i % 5) / 7;
    switch (kind) {
    case 0:
        return (float)lane;
    case 1:
        return t % 2 ? 1.0f : -1.0f;
    case 2:
        return t % 97 == 1 ? 1e6f : 0.0f;
    case 3:
        return (float)(1e-18 * std::pow(1.08, x) * lane);
    case 4:
        return (float)(1e12 * std::pow(0.9, x));
    case 5:
        return (float)(random.unit() * 1e-24);
    case 6:
        return (float)(random.unit() * 3e17);
    case 7:
        return random.next() % 16 ? 0.0f : (float)random.unit();
    case 8: // large gradients one after the other, ever larger, until v overflows
        return (float)(i == (size_t)t / 16 % 100 ? std::pow(10.0, x / 30) : random.unit());
    case 9: // up to 12 at once, of sizes that take several rounds to tell apart
        return (float)(t % 50 == 3 && i % 8 == 1 && i / 8 < (size_t)t / 50 % 13 ? std::pow(10.0, 2 + (double)(i / 8) * 1.4)
                                                                                : random.unit() * 1e-3);
    default: // gradients of zero but for a few
        return i % 11 || (size_t)t % 30 > i / 11 ? 0.0f : (float)(random.unit() * std::pow(10.0, (double)(i / 11)));
    }
}

// The first byte that differs.
int first_other(const std::vector<uint8_t> &a, const std::vector<uint8_t> &b)
{
    return (int)(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
}

TEST_P(kernels_q8, moments_stay_below_their_bounds)
{
    enum { N = 100, SIZE = N + 64, LONG = 1000, KINDS = 11 };
    const double betas[][2] = {{0.9, 0.999}, {0, 0}, {0.5, 0.9}, {0.9999, 0.99999}};
    size_t all_outliers = 0, all_returned = 0;
    for (unsigned kind = 0; kind < KINDS; kind++) {
        for (const auto &beta : betas) {
            random_source random(kind);
            zoff_optimizer_hyper hyper;
            zoff_optimizer_hyper_init(&hyper, ZOFF_OPTIMIZER_ADAM);
            hyper.beta1 = beta[0];
            hyper.beta2 = beta[1];
            std::vector<float> g(N), p(N), p_2(N);
            std::vector<uint8_t> m(SIZE), v(SIZE), m_2(SIZE), v_2(SIZE);
            zoff_adam_piece piece = {};
            piece.count = N;
            piece.master = p.data();
            piece.m = m.data();
            piece.v = v.data();
            piece.grad = g.data();
            piece.grad_dtype = ZOFF_F32;
            piece.moments = ZOFF_MOMENTS_Q8;
            piece.key = kind;
            oracle_q8::parameter expected = {};
            expected.tensor.count = N;
            expected.tensor.master = p_2.data();
            expected.tensor.grad = g.data();
            expected.moments = ZOFF_MOMENTS_Q8;
            expected.m = m_2.data();
            expected.v = v_2.data();
            expected.key = kind;
            size_t returned = 0, outliers = 0;
            for (int64_t t = 1; t <= LONG; t++) {
                zoff_adam_consts k;
                zoff_adam_hyper_consts(&hyper, t, 1, &k);
                piece.consts = &k;
                for (size_t i = 0; i < N; i++)
                    g[i] = adversary(kind, t, i, random);
                table->update(&piece, 0, N);
                const size_t before = expected.outliers;
                oracle_q8::step(k, t, &expected);
                returned += expected.outliers - before < outliers;
                outliers = expected.outliers - before;
                ASSERT_LE(expected.over_m, 1) << "kind " << kind << ", step " << t;
                ASSERT_LE(expected.over_v, 1) << "kind " << kind << ", step " << t;
                ASSERT_EQ(SIZE, first_other(m_2, m)) << "kind " << kind << ", step " << t;
                ASSERT_EQ(SIZE, first_other(v_2, v)) << "kind " << kind << ", step " << t;
                ASSERT_TRUE(same_bits(p_2.data(), p.data(), N)) << "kind " << kind << ", step " << t;
            }
            all_outliers += expected.outliers;
            all_returned += returned;
        }
    }
    EXPECT_GT(all_outliers, 10000u);
    EXPECT_GT(all_returned, 100u) << "outliers that became codes";
}
} // namespace
