/* SPDX-License-Identifier: Apache-2.0 */
// kernels_bins_test.cc: exact sums of every table against the oracle, bit for bit, and the error of every sum against exact
// arithmetic. Terms, weights, order, grouping, widths, sizes and addresses are random.
#include "kernel_tables.h"
#include "oracle.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <memory>
#include <random>

using namespace kernel_data;

namespace
{
class kernels_bins : public kernel_tables
{
};
ZOFF_EVERY_TABLE(kernels_bins);

const zoff_dtype TYPES[] = {ZOFF_BF16, ZOFF_F16, ZOFF_F32};
const unsigned WIDTHS[] = {3, 4, 8};

// Planes of sums. Each ends a few bytes before a page that must not be touched.
class planes
{
  public:
    planes(size_t count, unsigned width, size_t shift) : hi(count * width + 9), lo(count * width + 9), top(count + 9)
    {
        bins = {hi.place(count * width, shift), lo.place(count * width, (shift + 1) % 9), top.place(count, shift / 2), width};
    }
    oracle_bins at(size_t i) const { return {digit(bins.hi, i), digit(bins.lo, i), bins.top[i]}; }
    void expect_guards() const
    {
        hi.expect_guards();
        lo.expect_guards();
        top.expect_guards();
    }
    zoff_bins bins;

  private:
    int64_t digit(const void *plane, size_t i) const
    {
        uint64_t x = 0;
        memcpy(&x, (const char *)plane + i * bins.width, bins.width);
        return (int64_t)(x << (64 - 8 * bins.width)) >> (64 - 8 * bins.width);
    }
    fenced<uint8_t> hi, lo, top;
};

::testing::AssertionResult is(const oracle_bins &want, const oracle_bins &have)
{
    if (want.hi == have.hi && want.lo == have.lo && want.top == have.top)
        return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << have.hi << ", " << have.lo << ", bin " << have.top << " instead of " << want.hi
                                         << ", " << want.lo << ", bin " << want.top;
}

// Any sum of floats without rounding: an integer of 384 bits in units of 2^-149.
class exact_sum
{
  public:
    void add(float x, int sign)
    {
        const uint32_t bits = bits_of(x), exponent = bits >> 23 & 0xff, shift = exponent ? exponent - 1 : 0;
        unsigned __int128 size = (bits & 0x7fffff) | (exponent ? 0x800000 : 0);
        size <<= shift % 64;
        const bool minus = (bits >> 31) ^ (sign < 0);
        __int128 carry = 0;
        for (size_t i = 0; i < 6; i++) {
            const size_t at = i - shift / 64;
            const __int128 now = at == 0 ? (uint64_t)size : at == 1 ? (uint64_t)(size >> 64) : 0;
            carry += words[i];
            carry += minus ? -now : now;
            words[i] = (uint64_t)carry;
            carry >>= 64;
        }
    }
    long double size() const
    {
        long double x = (long double)(int64_t)words[5];
        for (size_t i = 5; i-- > 0;)
            x = x * 0x1p64L + words[i];
        return fabsl(ldexpl(x, -149));
    }

  private:
    uint64_t words[6] = {};
};

// The sum of finite terms is at most this far from its value: T 2^-20 of the largest, or T 2^-128, and half of the last digit.
void expect_near(const std::vector<float> &terms, float value)
{
    exact_sum sum;
    float largest = 0;
    bool is_finite = true;
    for (float x : terms) {
        sum.add(x, 1);
        largest = std::max(largest, fabsf(x));
        is_finite &= (bool)std::isfinite(x);
    }
    if (!is_finite) {
        ASSERT_EQ(0x7fc00000u, bits_of(value));
        return;
    }
    const long double whole = sum.size(), bound = terms.size() * std::max(0x1p-20L * largest, 0x1p-128L);
    if (std::isinf(value)) {
        ASSERT_GE(whole + bound, 0x1.ffffffp127L);
        return;
    }
    sum.add(value, -1);
    ASSERT_LE(sum.size(), bound + 0x1p-24L * (whole + bound)) << terms.size() << " terms, value " << value;
}

// A number of an element's kind. 0: of any bits, or a special one. Else its exponents are near a border of bins, or its digits
// are the most or the fewest.
float draw(random_source &random, unsigned kind)
{
    const uint32_t bits = (uint32_t)(random.next() >> 32), base = 20 * (kind / 2 % 12) + 19;
    if (kind == 0)
        return bits % 2 ? float_of(bits) : nasty(random);
    if (kind % 2)
        return float_of((bits & 0x807fffff) | (base - bits % 3 + bits % 2 * (bits >> 8) % 40) % 255 << 23);
    const uint32_t digits = bits >> 4 & 1 ? 0x7fffff >> (bits & 15) << (bits & 15) : 0x400000 >> (bits & 15);
    return float_of((bits & 0x80000000) | (base - (bits >> 5) % 21) % 255 << 23 | digits);
}

std::vector<float> draw_terms(random_source &random, size_t count, zoff_dtype dtype)
{
    std::vector<float> terms(count);
    uint32_t storage = 0;
    const unsigned kind = (unsigned)(random.next() >> 40) % 50;
    for (float &x : terms) {
        oracle_store(&storage, dtype, 0, draw(random, random.next() >> 61 ? kind : kind + 1));
        x = oracle_load(&storage, dtype, 0);
    }
    return terms;
}

// A group of terms of all elements becomes a sum, or is added to one that is there, with other sums. All sums are joined.
TEST_P(kernels_bins, any_deal_has_the_bits_of_the_oracle)
{
    random_source random(49);
    auto below = [&](size_t n) { return (size_t)(random.next() >> 16) % n; };
    for (int round = 0; round < 300; round++) {
        SCOPED_TRACE(::testing::Message() << "round " << round);
        const zoff_dtype dtype = TYPES[round % 3];
        const bool weighted = below(2), few = below(2); // sums of at most 15 terms fit 24 bits
        const size_t bytes = zoff_adam_dtype_bytes(dtype), n = below(70), count = 1 + below(few ? 15 : 90);
        std::vector<std::vector<float>> terms(n), weighed(n);
        std::vector<oracle_bins> want(n, {0, 0, 1});
        std::vector<float> weights(count, 1);
        for (float &w : weights)
            w = !weighted || below(3) == 0 ? 1 : below(4) == 0 ? 0 : draw(random, 1 + (unsigned)below(20));
        for (size_t i = 0; i < n; i++) {
            terms[i] = draw_terms(random, count, dtype);
            for (size_t t = 0; t < count; t++) {
                oracle_bins_add(&want[i], terms[i][t], weights[t]);
                if (weights[t] != 0)
                    weighed[i].push_back(weights[t] * terms[i][t]);
            }
        }
        std::vector<size_t> order(count);
        for (size_t t = 0; t < count; t++)
            std::swap(order[t] = t, order[below(t + 1)]);
        std::vector<std::unique_ptr<planes>> sums;
        fenced<char> memory(count * (n + 1) * 4 + 64);
        for (size_t t = 0, now; t < count; t += now) {
            now = std::min(count - t, 1 + below(20));
            const size_t stride = (n + below(3)) * bytes;
            char *array = memory.place(n ? (now - 1) * stride + n * bytes : 0, below(5) * bytes);
            std::vector<float> factors(now);
            for (size_t s = 0; s < now; s++) {
                factors[s] = weights[order[t + s]];
                for (size_t i = 0; i < n; i++)
                    oracle_store(array + s * stride, dtype, i, terms[i][order[t + s]]);
            }
            zoff_bins_piece piece = {};
            piece.count = n;
            piece.terms = array;
            piece.dtype = dtype;
            piece.sources = now;
            piece.stride = stride;
            piece.weights = weighted ? factors.data() : nullptr;
            // Onto a sum, with others, which are used up; or to a new one.
            std::vector<std::unique_ptr<planes>> used;
            std::vector<zoff_bins> parts;
            piece.first = sums.empty() || below(2);
            if (piece.first)
                sums.push_back(std::make_unique<planes>(n, WIDTHS[few ? below(3) : 1 + below(2)], below(9)));
            std::swap(sums.back(), sums[piece.first ? sums.size() - 1 : below(sums.size())]);
            piece.to = sums.back()->bins;
            for (size_t left = below(std::min<size_t>(sums.size(), 4)); left-- > 0; sums.erase(sums.begin())) {
                if (sums.front()->bins.width > piece.to.width)
                    break;
                used.push_back(std::move(sums.front()));
                parts.push_back(used.back()->bins);
            }
            piece.parts = parts.data();
            piece.part_count = parts.size();
            const size_t cut = below(n + 1);
            table->bins(&piece, cut, n - cut);
            table->bins(&piece, 0, cut);
            for (const auto &sum : sums)
                sum->expect_guards();
            memory.expect_guards();
            for (size_t i = 0; i < n; i++)
                ASSERT_TRUE(sums.back()->at(i).top < 15 || is({0, 0, 15}, sums.back()->at(i)));
        }
        // Join all of them onto the first, then all but the first without planes, and turn each into values.
        std::vector<zoff_bins> all;
        unsigned widest = 3;
        for (const auto &sum : sums) {
            all.push_back(sum->bins);
            widest = std::max(widest, sum->bins.width);
        }
        zoff_bins_piece piece = {};
        std::vector<float> out(n), again(n);
        piece.count = n;
        piece.parts = all.data();
        piece.part_count = all.size();
        piece.to.width = widest;
        piece.out = out.data();
        table->bins(&piece, 0, n);
        planes result(n, std::max(widest, WIDTHS[below(3)]), below(9));
        piece.to = result.bins;
        piece.first = true;
        piece.out = nullptr;
        table->bins(&piece, 0, n);
        piece.first = false;
        piece.part_count = 0;
        piece.out = again.data();
        table->bins(&piece, 0, n);
        result.expect_guards();
        for (size_t i = 0; i < n; i++) {
            SCOPED_TRACE(::testing::Message() << "element " << i << " of " << n);
            ASSERT_TRUE(is(want[i], result.at(i)));
            ASSERT_EQ(bits_of(oracle_bins_value(want[i])), bits_of(out[i]));
            ASSERT_EQ(bits_of(out[i]), bits_of(again[i]));
            expect_near(weighed[i], out[i]);
        }
        if (HasFatalFailure())
            return;
    }
}

// As many of the largest digits as the widths hold, of both signs, and digits that are lifted.
TEST_P(kernels_bins, widths_hold_the_terms_that_they_promise)
{
    enum { N = 37 };
    float terms[N];
    uint16_t halves[N];
    for (int sign = 0; sign < 2; sign++) {
        for (size_t i = 0; i < N; i++) {
            const uint32_t exponent = (uint32_t)(20 * (i % 12) + 37 + (i % 5 == 4)), all = i % 5 ? 0x7fffff : 0x7f0008;
            terms[i] = float_of((uint32_t)sign << 31 | std::min(exponent, 254u) << 23 | all);
            halves[i] = (uint16_t)(bits_of(terms[i]) >> 16);
        }
        for (unsigned width : WIDTHS) {
            const size_t most = width == 3 ? 15 : width == 4 ? 4095 : 9000;
            for (size_t count = 1; count <= most; count += count < 70 ? 1 : count < most - 2 ? (most - 2 - count + 1) / 2 : 1) {
                for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16}) {
                    SCOPED_TRACE(::testing::Message() << count << " terms in " << width << " bytes");
                    planes sum(N, width, count % 9);
                    std::vector<float> out(N);
                    zoff_bins_piece piece = {};
                    piece.count = N;
                    piece.to = sum.bins;
                    piece.first = true;
                    piece.terms = dtype == ZOFF_F32 ? (void *)terms : (void *)halves;
                    piece.dtype = dtype;
                    piece.sources = count;
                    table->bins(&piece, 0, N);
                    piece.out = out.data();
                    table->bins(&piece, 0, N);
                    for (size_t i = 0; i < N; i++) {
                        const float x = dtype == ZOFF_F32 ? terms[i] : oracle_from_bf16(halves[i]);
                        oracle_bins want = {0, 0, 1};
                        oracle_bins_add(&want, x, 1);
                        want.hi *= (int64_t)count;
                        want.lo *= (int64_t)count;
                        ASSERT_TRUE(is(want, sum.at(i)));
                        ASSERT_EQ(bits_of(oracle_bins_value(want)), bits_of(out[i]));
                        expect_near(std::vector<float>(count, x), out[i]);
                    }
                }
            }
        }
    }
}

// Sums of 600 nodes, full ones of 3 bytes between wider ones.
TEST_P(kernels_bins, sums_of_many_nodes_are_joined)
{
    enum { N = 300, NODES = 600, TERMS = 15 };
    std::mt19937 random(11);
    std::vector<std::unique_ptr<planes>> nodes;
    std::vector<zoff_bins> parts;
    std::vector<oracle_bins> want(N, {0, 0, 1});
    std::vector<float> terms(N), out(N);
    for (size_t node = 0; node < NODES; node++) {
        nodes.push_back(std::make_unique<planes>(N, node % 290 == 289 ? 8 : node % 100 == 99 ? 4 : 3, node % 9));
        for (size_t i = 0; i < N; i++) {
            terms[i] = float_of((uint32_t)random() & 0x87ffffff) + (node % 2 ? 3.0e37f : -1.7e5f) * (float)(i % 3);
            for (unsigned k = 0; k < TERMS; k++)
                oracle_bins_add(&want[i], terms[i], 1);
        }
        zoff_bins_piece piece = {};
        piece.count = N;
        piece.to = nodes.back()->bins;
        piece.first = true;
        piece.terms = terms.data();
        piece.dtype = ZOFF_F32;
        piece.sources = TERMS;
        table->bins(&piece, 0, N);
        parts.push_back(piece.to);
    }
    planes sum(N, 8, 3);
    zoff_bins_piece piece = {};
    piece.count = N;
    piece.to = sum.bins;
    piece.first = true;
    piece.parts = parts.data();
    piece.part_count = NODES;
    table->bins(&piece, 0, N);
    piece.out = out.data();
    table->bins(&piece, 0, N);
    for (size_t i = 0; i < N; i++) {
        ASSERT_TRUE(is(want[i], sum.at(i)));
        ASSERT_EQ(bits_of(oracle_bins_value(want[i])), bits_of(out[i]));
    }
}

// All numbers of bf16, each alone, and with as many neighbours as make a difference. Neighbours have the same exponent, or the
// next one.
TEST_P(kernels_bins, every_number_has_its_bin)
{
    constexpr size_t N = 65536;
    std::vector<uint16_t> halves(N + 33);
    std::vector<float> terms(N + 33), out(N);
    for (size_t i = 0; i < halves.size(); i++) {
        halves[i] = (uint16_t)i;
        terms[i] = oracle_from_bf16(halves[i]);
    }
    for (size_t sources : {1, 2, 31, 32}) {
        for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16}) {
            planes sum(N, 4, 3);
            zoff_bins_piece piece = {};
            piece.count = N;
            piece.to = sum.bins;
            piece.first = true;
            piece.terms = dtype == ZOFF_F32 ? (void *)terms.data() : (void *)halves.data();
            piece.dtype = dtype;
            piece.sources = sources;
            piece.stride = zoff_adam_dtype_bytes(dtype);
            table->bins(&piece, 0, N);
            piece.out = out.data();
            table->bins(&piece, 0, N);
            for (size_t i = 0; i < N; i++) {
                oracle_bins want = {0, 0, 1};
                for (size_t s = 0; s < sources; s++)
                    oracle_bins_add(&want, terms[i + s], 1);
                ASSERT_TRUE(is(want, sum.at(i))) << sources << " terms from " << i << " on";
                ASSERT_EQ(bits_of(oracle_bins_value(want)), bits_of(out[i])) << sources << " terms from " << i << " on";
            }
        }
    }
}

// Lower digits that are no float, because 24 bits do not hold their sum, are not rounded before the upper ones are added.
TEST_P(kernels_bins, a_value_is_rounded_once)
{
    enum { N = 40, HALVES = 33, SOURCES = HALVES + 2 };
    std::vector<float> terms(SOURCES, 0x1p32f), out(N); // U(8) / 2
    terms[HALVES] = 0x1p39f;
    terms[HALVES + 1] = 11 * 0x1p13f;
    for (zoff_dtype dtype : TYPES) {
        if (dtype == ZOFF_F16)
            continue;
        std::vector<char> memory(SOURCES * N * 4);
        for (size_t i = 0; i < (size_t)SOURCES * N; i++)
            oracle_store(memory.data(), dtype, i, terms[i / N]);
        zoff_bins_piece piece = {};
        piece.count = N;
        piece.terms = memory.data();
        piece.dtype = dtype;
        piece.sources = SOURCES;
        piece.stride = N * zoff_adam_dtype_bytes(dtype);
        piece.out = out.data();
        table->bins(&piece, 0, N);
        for (float value : out)
            ASSERT_EQ((float)(64 * 0x1p20 + 33 * 0x1p19 + 8) * 0x1p13f, value);
    }
}

// The values may take the place of the upper digits, and memory of zeros is sums of nothing.
TEST_P(kernels_bins, values_overwrite_digits_of_their_width)
{
    enum { N = 45 };
    random_source random(7);
    std::vector<float> terms = draw_terms(random, N, ZOFF_F32), lo(N), out(N);
    std::vector<uint8_t> top(N);
    zoff_bins_piece piece = {};
    piece.count = N;
    piece.to = {out.data(), lo.data(), top.data(), 4};
    piece.terms = terms.data();
    piece.dtype = ZOFF_F32;
    piece.sources = 1;
    table->bins(&piece, 0, N);
    piece.out = out.data();
    table->bins(&piece, 0, N);
    for (size_t i = 0; i < N; i++) {
        oracle_bins want = {0, 0, 1};
        oracle_bins_add(&want, terms[i], 1);
        oracle_bins_add(&want, terms[i], 1);
        ASSERT_EQ(bits_of(oracle_bins_value(want)), bits_of(out[i])) << "element " << i;
    }
}

// A list of several pieces, on teams of any size, by a caller who rounds in another way and flushes subnormal numbers.
TEST(bins, a_list_has_the_same_sums_whatever_the_callers_floating_point)
{
    const size_t counts[] = {0, 1, 70001, 0, 1023, 3};
    random_source random(3);
    const size_t total = 71028;
    std::vector<float> terms = draw_terms(random, 2 * total, ZOFF_F32), want(total), out(total);
    for (float &x : terms)
        x = draw(random, 1);
    for (size_t i = 0; i < total; i++) {
        oracle_bins sum = {0, 0, 1};
        oracle_bins_add(&sum, terms[i], 0.3f);
        oracle_bins_add(&sum, terms[total + i], 1.1f);
        want[i] = oracle_bins_value(sum);
    }
    const float weights[] = {0.3f, 1.1f};
    for (int mode : {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
        for (unsigned threads : {1u, 3u}) {
            std::vector<zoff_bins_piece> pieces;
            size_t at = 0;
            for (size_t n : counts) {
                zoff_bins_piece piece = {};
                piece.count = n;
                piece.terms = terms.data() + at;
                piece.dtype = ZOFF_F32;
                piece.sources = 2;
                piece.stride = total * sizeof(float);
                piece.weights = weights;
                piece.out = out.data() + at;
                pieces.push_back(piece);
                at += n;
            }
            size_t calls = 0;
            std::fill(out.begin(), out.end(), 0.0f);
            const unsigned before = zoff_base_cpu_float_enter();
            zoff_base_cpu_float_leave(before);
#if defined(__x86_64__)
            zoff_base_cpu_float_leave(before | 0x8040);
#endif
            fesetround(mode);
            zoff_adam_bins_run(
                threads, pieces.data(), pieces.size(), [](void *ctx) { ++*(size_t *)ctx; }, &calls);
            EXPECT_EQ(mode, fegetround());
            zoff_base_cpu_float_leave(before);
            ASSERT_TRUE(same_bits(want.data(), out.data(), total)) << "mode " << mode << ", threads " << threads;
            EXPECT_TRUE(calls || threads > 1); // other threads may do all of it
        }
    }
}
} // namespace
