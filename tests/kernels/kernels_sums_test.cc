/* SPDX-License-Identifier: Apache-2.0 */
// kernels_sums_test.cc: gradient accumulation and square sums of every table against the oracle, bit for bit. Covers all
// element types, sizes with every tail, misaligned arrays and special values. No byte outside of the arrays may change.
#include "kernel_tables.h"
#include "oracle.h"

#include <algorithm>
#include <cmath>

using namespace kernel_data;

namespace
{
// A gradient of any type.
class gradient
{
  public:
    void *place(zoff_dtype type, size_t n, size_t shift)
    {
        return type == ZOFF_F32 ? (void *)f32.place(n, shift) : (void *)f16.place(n, shift);
    }
    void expect_guards(zoff_dtype type) const
    {
        if (type == ZOFF_F32)
            f32.expect_guards();
        else
            f16.expect_guards();
    }

  private:
    fenced<float> f32{LARGE + 1};
    fenced<uint16_t> f16{LARGE + 1};
};

class kernels_sums : public kernel_tables
{
};
ZOFF_EVERY_TABLE(kernels_sums);

// One gradient, or five with some elements between them, with weights or without.
TEST_P(kernels_sums, accumulate_equals_the_oracle)
{
    static const float WEIGHTS[] = {3.0f, 1.0f, 0.3f, 0.0f, 1e-3f};
    gradient gradients;
    fenced<float> sum_array(LARGE + 1);
    for (zoff_dtype type : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
        for (int variant = 0; variant < 16; variant++) {
            const bool first = variant & 1;
            const size_t shift = variant & 2 ? 1 : 0, sources = variant & 4 ? 5 : 1;
            for (size_t n : sizes()) {
                SCOPED_TRACE(::testing::Message()
                             << zoff_adam_dtype_name(type) << ", variant " << variant << ", " << n << " elements");
                const size_t apart = n / sources, each = n - (sources - 1) * apart;
                float *sum = sum_array.place(each, shift);
                void *grad = gradients.place(type, n, shift);
                number_pool::get().fill(sum, ZOFF_F32, each, n + 1);
                number_pool::get().fill(grad, type, n, n + 2);
                std::vector<float> expected(sum, sum + each);
                zoff_accumulate_piece piece = {each, sum, grad, type, first};
                piece.sources = sources;
                piece.stride = apart * zoff_adam_dtype_bytes(type);
                piece.weights = variant & 8 ? WEIGHTS : nullptr;
                const oracle_gradients all = {grad, type, sources, piece.stride, piece.weights, first};
                oracle_accumulate(expected.data(), each, &all);
                const size_t cut = each / 3;
                table->accumulate(&piece, cut, each - cut);
                table->accumulate(&piece, 0, cut);
                ASSERT_TRUE(same_bits(expected.data(), sum, each));
                sum_array.expect_guards();
                gradients.expect_guards(type);
                if (HasFatalFailure())
                    return;
            }
        }
    }
}

TEST_P(kernels_sums, square_sum_equals_the_oracle)
{
    gradient gradients;
    fenced<double> sums_array(LARGE / ZOFF_NORM_BLOCK + 2);
    for (zoff_dtype type : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
        for (int variant = 0; variant < 4; variant++) {
            const bool nasties = variant & 1;
            const size_t shift = variant & 2 ? 1 : 0;
            for (size_t n : sizes()) {
                SCOPED_TRACE(::testing::Message()
                             << zoff_adam_dtype_name(type) << ", variant " << variant << ", " << n << " elements");
                const size_t blocks = (n + ZOFF_NORM_BLOCK - 1) / ZOFF_NORM_BLOCK;
                void *grad = gradients.place(type, n, shift);
                double *sums = sums_array.place(blocks, 0);
                number_pool::get().fill(grad, type, n, n + 3);
                random_source random(n + 13);
                for (size_t i = 0; !nasties && i < n; i++)
                    oracle_store(grad, type, i, number(random, false));
                const zoff_norm_piece piece = {n, grad, type, sums};
                const size_t cut = blocks / 2 * ZOFF_NORM_BLOCK;
                table->square_sum(&piece, cut, n - cut); // the order of the two calls does not matter
                table->square_sum(&piece, 0, cut);
                for (size_t b = 0; b < blocks; b++) {
                    const size_t at = b * ZOFF_NORM_BLOCK, count = std::min(n - at, (size_t)ZOFF_NORM_BLOCK);
                    const double expected = oracle_square_sum(grad, type, at, count);
                    ASSERT_TRUE(same_bits(&expected, sums + b, 1)) << "block " << b;
                    ASSERT_TRUE(nasties || std::isfinite(sums[b])) << "block " << b;
                }
                sums_array.expect_guards();
                gradients.expect_guards(type);
                if (HasFatalFailure())
                    return;
            }
        }
    }
}

// A block of the largest numbers has a finite sum. If any single element is not finite, the sum is not finite.
TEST_P(kernels_sums, square_sum_is_finite_exactly_if_all_elements_are)
{
    const struct {
        zoff_dtype type;
        uint32_t largest;
        std::vector<uint32_t> not_finite;
    } types[] = {{ZOFF_F32, 0xff7fffff, {0x7f800000, 0xff800000, 0x7fc00000, 0xff800001}},
                 {ZOFF_BF16, 0xff7f, {0x7f80, 0xff80, 0x7fc0, 0xff81}},
                 {ZOFF_F16, 0xfbff, {0x7c00, 0xfc00, 0x7e00, 0xfc01}}};
    for (const auto &c : types) {
        std::vector<uint32_t> grad(ZOFF_NORM_BLOCK); // storage for any type
        const size_t bytes = zoff_adam_dtype_bytes(c.type);
        auto set = [&](size_t i, uint32_t bits) { memcpy((char *)grad.data() + i * bytes, &bits, bytes); };
        for (size_t i = 0; i < grad.size(); i++)
            set(i, c.largest);
        double sum = 0;
        const zoff_norm_piece piece = {grad.size(), grad.data(), c.type, &sum};
        table->square_sum(&piece, 0, grad.size());
        ASSERT_TRUE(std::isfinite(sum)) << zoff_adam_dtype_name(c.type);
        std::fill(grad.begin(), grad.end(), 0);
        for (uint32_t bits : c.not_finite) {
            for (size_t n : {(size_t)1, (size_t)15, (size_t)17, (size_t)130, grad.size()}) {
                for (size_t i = 0; i < n; i++) {
                    set(i, bits);
                    table->square_sum(&piece, 0, n);
                    ASSERT_FALSE(std::isfinite(sum)) << zoff_adam_dtype_name(c.type) << ", element " << i << " of " << n;
                    set(i, 0);
                }
                table->square_sum(&piece, 0, n);
                ASSERT_EQ(sum, 0.0);
            }
        }
    }
}
} // namespace
