// kernels_test.cc: every kernel of every table that this CPU can run, against the oracle, bit for bit: all element types, decay
// modes and copies, sizes with every tail, misaligned arrays, awkward values, nothing touched outside the arrays.
#include "kernel_data.h"
#include "oracle.h"
#include "zoff_test.h"

extern "C" {
#include "cpu.h"
#include "kernels.h"
}

#include <algorithm>
#include <cmath>

using namespace kernel_data;

namespace
{
constexpr size_t LARGE = 100003;

std::vector<size_t> sizes()
{
    std::vector<size_t> all;
    for (size_t n = 0; n <= 130; n++)
        all.push_back(n);
    all.push_back(1023);
    all.push_back(1025);
    all.push_back(LARGE);
    return all;
}

class kernels : public ::testing::TestWithParam<const char *>
{
  protected:
    void SetUp() override
    {
        table = zoff_adam_dispatch_table(GetParam());
        if (!table)
            GTEST_SKIP() << "this CPU or build has no " << GetParam() << " kernels";
        ASSERT_STREQ(table->name, GetParam());
        saved = zoff_base_cpu_float_enter();
    }
    void TearDown() override
    {
        if (table)
            zoff_base_cpu_float_leave(saved);
    }
    const struct zoff_kernels *table = nullptr;
    unsigned saved = 0;
};

std::string isa_name(const ::testing::TestParamInfo<const char *> &info)
{
    return info.param;
}
INSTANTIATE_TEST_SUITE_P(every, kernels, ::testing::Values("scalar", "avx2", "avx512"), isa_name);

// One configuration of the Adam kernel.
struct adam_case {
    bool grad16;
    double weight_decay;
    zoff_decay decay;
    bool copies;
};

struct adam_arrays {
    fenced<float> p{LARGE + 1}, m{LARGE + 1}, v{LARGE + 1}, g{LARGE + 1};
    fenced<uint16_t> g16{LARGE + 1}, copy16{LARGE + 1};
};

void check_adam(const struct zoff_kernels *table, adam_arrays &arrays, const adam_case &c, size_t n, size_t shift)
{
    random_source random(n * 4 + shift);
    float *p = arrays.p.place(n, shift), *m = arrays.m.place(n, shift), *v = arrays.v.place(n, shift);
    float *g = arrays.g.place(n, shift);
    uint16_t *g16 = arrays.g16.place(n, shift), *copy16 = arrays.copy16.place(n, shift);
    for (size_t i = 0; i < n; i++) {
        p[i] = number(random, true);
        m[i] = number(random, true);
        v[i] = number(random, true); // negative ones too: the root of those is NaN everywhere
        if ((random.next() >> 40) % 8)
            v[i] = std::abs(v[i]);
        g[i] = number(random, true);
        g16[i] = (uint16_t)(bits_of(number(random, true)) >> 16);
        copy16[i] = 0x5a5a;
    }
    std::vector<float> p2(p, p + n), m2(m, m + n), v2(v, v + n), g2(g, g + n);
    std::vector<uint16_t> g162(g16, g16 + n), copy2(copy16, copy16 + n);

    zoff_adam_hyper hyper;
    zoff_adam_hyper_init(&hyper);
    hyper.lr = 0.0123;
    hyper.weight_decay = c.weight_decay;
    hyper.decay = c.decay;
    const int64_t t = 1 + (int64_t)(random.next() >> 54);
    const double scale = n % 3 ? 0.37 : 1.0;
    zoff_adam_consts consts;
    zoff_adam_hyper_consts(&hyper, t, scale, &consts);
    zoff_adam_piece piece = {};
    piece.count = n;
    piece.master = p;
    piece.m = m;
    piece.v = v;
    piece.grad = c.grad16 ? (const void *)g16 : (const void *)g;
    piece.grad_dtype = c.grad16 ? ZOFF_BF16 : ZOFF_F32;
    piece.copy_out = c.copies ? copy16 : nullptr;
    piece.copy_dtype = ZOFF_BF16;
    piece.consts = &consts;
    const size_t cut = n / ZOFF_NORM_BLOCK / 2 * ZOFF_NORM_BLOCK;
    table->update(&piece, 0, cut);
    table->update(&piece, cut, n - cut);

    oracle_adam(&hyper, t, scale, n, p2.data(), m2.data(), v2.data(), g2.data(), c.grad16 ? g162.data() : nullptr,
                c.copies ? copy2.data() : nullptr);
    ASSERT_TRUE(same_bits(m2.data(), m, n)) << "m";
    ASSERT_TRUE(same_bits(v2.data(), v, n)) << "v";
    ASSERT_TRUE(same_bits(p2.data(), p, n)) << "p";
    ASSERT_TRUE(same_bits(copy2.data(), copy16, n)) << "copy";
    ASSERT_TRUE(n == 0 || memcmp(g, g2.data(), n * sizeof *g) == 0) << "the gradient was changed";
    ASSERT_TRUE(n == 0 || memcmp(g16, g162.data(), n * sizeof *g16) == 0) << "the gradient was changed";
    for (auto *array : {&arrays.p, &arrays.m, &arrays.v, &arrays.g})
        array->expect_guards();
    arrays.g16.expect_guards();
    arrays.copy16.expect_guards();
}

TEST_P(kernels, adam_equals_the_oracle)
{
    adam_arrays arrays;
    for (bool grad16 : {false, true}) {
        for (bool copies : {false, true}) {
            for (int mode = 0; mode < 3; mode++) {
                const adam_case c = {grad16, mode ? 0.1 : 0.0, mode == 2 ? ZOFF_DECAY_L2 : ZOFF_DECAY_DECOUPLED, copies};
                for (size_t n : sizes()) {
                    for (size_t shift : {0, 1}) {
                        SCOPED_TRACE(::testing::Message()
                                     << "bf16 gradient " << grad16 << ", copy " << copies << ", decay mode " << mode << ", "
                                     << n << " elements, shift " << shift);
                        check_adam(table, arrays, c, n, shift);
                        if (HasFatalFailure())
                            return;
                    }
                }
            }
        }
    }
}

TEST_P(kernels, accumulate_equals_the_oracle)
{
    fenced<float> sum_array(LARGE + 1), g_array(LARGE + 1);
    fenced<uint16_t> g16_array(LARGE + 1);
    for (int variant = 0; variant < 8; variant++) {
        const bool grad16 = variant & 1, first = variant & 2;
        const size_t shift = variant & 4 ? 1 : 0;
        for (size_t n : sizes()) {
            SCOPED_TRACE(::testing::Message() << "variant " << variant << ", " << n << " elements");
            random_source random(n + 7);
            float *sum = sum_array.place(n, shift), *g = g_array.place(n, shift);
            uint16_t *g16 = g16_array.place(n, shift);
            for (size_t i = 0; i < n; i++) {
                sum[i] = number(random, true);
                g[i] = number(random, true);
                g16[i] = (uint16_t)(bits_of(number(random, true)) >> 16);
            }
            std::vector<float> expected(sum, sum + n);
            oracle_accumulate(n, expected.data(), g, grad16 ? g16 : nullptr, first);
            zoff_accumulate_piece piece = {};
            piece.count = n;
            piece.sum = sum;
            piece.grad = grad16 ? (const void *)g16 : (const void *)g;
            piece.dtype = grad16 ? ZOFF_BF16 : ZOFF_F32;
            piece.first = first;
            table->accumulate(&piece, 0, n);
            ASSERT_TRUE(same_bits(expected.data(), sum, n));
            sum_array.expect_guards();
            g_array.expect_guards();
            g16_array.expect_guards();
            if (HasFatalFailure())
                return;
        }
    }
}

TEST_P(kernels, cast_equals_the_oracle)
{
    fenced<float> wide_array(LARGE + 1);
    fenced<uint16_t> half_array(LARGE + 1);
    for (size_t n : sizes()) {
        for (size_t shift : {0, 1}) {
            SCOPED_TRACE(::testing::Message() << n << " elements, shift " << shift);
            random_source random(n + 11);
            float *wide = wide_array.place(n, shift);
            uint16_t *half = half_array.place(n, shift);
            std::vector<uint16_t> expected(n);
            for (size_t i = 0; i < n; i++) {
                wide[i] = i % 2 ? number(random, true) : float_of((uint32_t)(random.next() >> 32));
                expected[i] = oracle_to_bf16(wide[i]);
            }
            zoff_cast_piece down = {n, half, wide, ZOFF_BF16, ZOFF_F32};
            table->cast(&down, 0, n);
            ASSERT_TRUE(same_bits(expected.data(), half, n));
            half_array.expect_guards();

            std::vector<float> widened(n);
            for (size_t i = 0; i < n; i++) {
                half[i] = (uint16_t)(random.next() >> 48);
                widened[i] = oracle_from_bf16(half[i]);
            }
            zoff_cast_piece up = {n, wide, half, ZOFF_F32, ZOFF_BF16};
            table->cast(&up, 0, n);
            ASSERT_TRUE(n == 0 || memcmp(widened.data(), wide, n * sizeof *wide) == 0);
            wide_array.expect_guards();

            std::vector<uint16_t> copied(n);
            zoff_cast_piece same = {n, copied.data(), half, ZOFF_BF16, ZOFF_BF16};
            table->cast(&same, 0, n);
            ASSERT_TRUE(n == 0 || memcmp(copied.data(), half, n * sizeof *half) == 0);
            std::vector<float> copied_wide(n);
            zoff_cast_piece same_wide = {n, copied_wide.data(), wide, ZOFF_F32, ZOFF_F32};
            table->cast(&same_wide, 0, n);
            ASSERT_TRUE(n == 0 || memcmp(copied_wide.data(), wide, n * sizeof *wide) == 0);
            if (HasFatalFailure())
                return;
        }
    }
}

// Each of the 65536 bf16 values survives the way up and down; NaN becomes the canonical one.
TEST_P(kernels, cast_round_trip_of_every_bf16)
{
    std::vector<uint16_t> all(65536), back(65536);
    std::vector<float> wide(65536);
    for (size_t i = 0; i < all.size(); i++)
        all[i] = (uint16_t)i;
    zoff_cast_piece up = {all.size(), wide.data(), all.data(), ZOFF_F32, ZOFF_BF16};
    zoff_cast_piece down = {all.size(), back.data(), wide.data(), ZOFF_BF16, ZOFF_F32};
    table->cast(&up, 0, all.size());
    table->cast(&down, 0, all.size());
    for (size_t i = 0; i < all.size(); i++) {
        const bool nan = (i & 0x7f80) == 0x7f80 && (i & 0x7f);
        ASSERT_EQ(back[i], nan ? 0x7fc0 : i);
    }
}

TEST_P(kernels, square_sum_equals_the_oracle)
{
    fenced<float> g_array(LARGE + 1);
    fenced<uint16_t> g16_array(LARGE + 1);
    fenced<double> sums_array(LARGE / ZOFF_NORM_BLOCK + 2);
    for (int variant = 0; variant < 8; variant++) {
        const bool grad16 = variant & 1, nasties = variant & 2;
        const size_t shift = variant & 4 ? 1 : 0;
        for (size_t n : sizes()) {
            SCOPED_TRACE(::testing::Message() << "variant " << variant << ", " << n << " elements");
            const size_t blocks = (n + ZOFF_NORM_BLOCK - 1) / ZOFF_NORM_BLOCK;
            random_source random(n + 13);
            float *g = g_array.place(n, shift);
            uint16_t *g16 = g16_array.place(n, shift);
            double *sums = sums_array.place(blocks, 0);
            for (size_t i = 0; i < n; i++) {
                g[i] = number(random, nasties);
                g16[i] = (uint16_t)(bits_of(number(random, nasties)) >> 16);
            }
            zoff_norm_piece piece = {n, grad16 ? (const void *)g16 : (const void *)g, grad16 ? ZOFF_BF16 : ZOFF_F32, sums};
            const size_t cut = blocks / 2 * ZOFF_NORM_BLOCK;
            table->square_sum(&piece, cut, n - cut); // the order does not matter
            table->square_sum(&piece, 0, cut);
            for (size_t b = 0; b < blocks; b++) {
                const size_t at = b * ZOFF_NORM_BLOCK, count = std::min(n - at, (size_t)ZOFF_NORM_BLOCK);
                const double expected = oracle_square_sum(count, g + at, grad16 ? g16 + at : nullptr);
                ASSERT_TRUE(same_bits(&expected, sums + b, 1)) << "block " << b;
            }
            sums_array.expect_guards();
            g_array.expect_guards();
            g16_array.expect_guards();
            if (HasFatalFailure())
                return;
        }
    }
}

// A block of the largest numbers has a finite sum; one element that is not finite anywhere makes its sum not finite.
TEST_P(kernels, square_sum_is_finite_exactly_if_all_elements_are)
{
    std::vector<float> g(ZOFF_NORM_BLOCK, float_of(0xff7fffff));
    double sum = 0;
    zoff_norm_piece piece = {g.size(), g.data(), ZOFF_F32, &sum};
    table->square_sum(&piece, 0, g.size());
    ASSERT_TRUE(std::isfinite(sum));
    std::fill(g.begin(), g.end(), 0.0f);
    for (uint32_t bits : {0x7f800000u, 0xff800000u, 0x7fc00000u, 0xff800001u}) {
        for (size_t n : {(size_t)1, (size_t)15, (size_t)17, (size_t)130, g.size()}) {
            for (size_t i = 0; i < n; i++) {
                g[i] = float_of(bits);
                table->square_sum(&piece, 0, n);
                ASSERT_FALSE(std::isfinite(sum)) << "element " << i << " of " << n;
                g[i] = 0;
            }
            table->square_sum(&piece, 0, n);
            ASSERT_EQ(sum, 0.0);
        }
    }
}
} // namespace
