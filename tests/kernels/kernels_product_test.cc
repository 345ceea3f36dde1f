/* SPDX-License-Identifier: Apache-2.0 */
// kernels_product_test.cc: products of matrices of every table against plain loops, bit for bit. Covers sizes with every part
// of a tile, transposed factors, symmetric outputs, outputs over a factor, distances between rows, and parts in any order. No
// byte outside of the arrays may change.
#include "kernel_tables.h"
#include "oracle.h"

#include <algorithm>
#include <numeric>

using namespace kernel_data;

namespace
{
enum { PRODUCT_ELEMENTS = 2 * 1024 * 1024 };

// A case is drawn from its number.
struct product_case {
    size_t rows, cols, depth, gap;
    bool a_turned, b_turned, lower, over_a, over_b;
    int adds; // 0: nothing; 1: fma(add_by, add, product); 2: fma(product_by, product, add_by * add)
    bool nasties;

    product_case(size_t r, size_t c, size_t d, size_t number)
        : rows(r), cols(c), depth(d), gap(number % 3), a_turned(number & 1), b_turned(number & 2), lower(number % 5 == 4),
          over_a(number % 7 == 5), over_b(number % 7 == 6), adds((int)(number % 4 % 3)), nasties(number % 4 == 3)
    {
        if (lower)
            cols = rows;
        else if (over_a)
            depth = cols, a_turned = false;
        else if (over_b)
            depth = rows, b_turned = false;
        over_a = over_a && !lower;
        over_b = over_b && !lower;
    }
    std::string words() const
    {
        return std::to_string(rows) + " x " + std::to_string(depth) + " x " + std::to_string(cols) + ", gap " +
               std::to_string(gap) + (a_turned ? ", A turned" : "") + (b_turned ? ", B turned" : "") +
               (lower ? ", lower" : "") + (over_a ? ", over A" : "") + (over_b ? ", over B" : "") + ", adds " +
               std::to_string(adds) + (nasties ? ", special numbers" : "");
    }
};

class kernels_product : public kernel_tables
{
  protected:
    // Fill a matrix and return the distance of its rows. Its last element is before a page that must not be touched.
    float *draw(fenced<float> &memory, size_t rows, size_t cols, size_t stride, bool nasties)
    {
        const size_t count = (rows - 1) * stride + cols;
        float *at = memory.place(count, 0);
        for (size_t i = 0; i < count; i++)
            at[i] = number(random, nasties);
        return at;
    }
    // A symmetric output has the products of a symmetric matrix, or of a matrix and its transpose.
    void check(const product_case &c)
    {
        SCOPED_TRACE(c.words());
        zoff_product p = {};
        p.rows = c.rows;
        p.cols = c.cols;
        p.depth = c.depth;
        p.a_turned = c.a_turned;
        p.b_turned = c.b_turned;
        p.lower = c.lower;
        p.a_stride = (c.a_turned ? c.rows : c.depth) + c.gap;
        p.b_stride = (c.b_turned ? c.depth : c.cols) + c.gap;
        p.out_stride = c.cols + c.gap;
        p.add_by = 0.37f;
        p.product_by = c.adds == 2 ? -4.775f : 1;
        float *a_at = draw(a, c.a_turned ? c.depth : c.rows, c.a_turned ? c.rows : c.depth, p.a_stride, c.nasties);
        float *b_at = draw(b, c.b_turned ? c.cols : c.depth, c.b_turned ? c.depth : c.cols, p.b_stride, c.nasties);
        float *out_at = draw(out, c.rows, c.cols, p.out_stride, false);
        float *add_at = draw(add, c.rows, c.cols, p.out_stride, c.nasties);
        p.a = a_at;
        p.b = b_at;
        p.out = c.over_a ? a_at : c.over_b ? b_at : out_at;
        p.add = !c.adds ? nullptr : c.over_a || c.over_b ? p.out : add_at;
        p.part_rows = c.over_b ? c.rows : 12 * (1 + random.next() % 30);
        p.part_cols = c.over_a ? c.cols : 128 * (1 + random.next() % 3);
        const size_t count = (c.rows - 1) * p.out_stride + c.cols;
        std::vector<float> expected(p.out, p.out + count);
        const oracle_matrix of_a = {a_at, c.a_turned ? 1 : p.a_stride, c.a_turned ? p.a_stride : 1},
                            of_b = {b_at, c.b_turned ? 1 : p.b_stride, c.b_turned ? p.b_stride : 1};
        for (size_t i = 0; i < c.rows; i++) {
            for (size_t j = 0; j < (c.lower ? i + 1 : c.cols); j++) {
                const float x = oracle_product(of_a, of_b, i, j, c.depth), y = p.add ? p.add[i * p.out_stride + j] : 0;
                float &to = expected[i * p.out_stride + j];
                to = c.adds == 0 ? x : c.adds == 1 ? fmaf(p.add_by, y, x) : fmaf(p.product_by, x, p.add_by * y);
                if (c.lower)
                    expected[j * p.out_stride + i] = to;
            }
        }
        p.scratch = scratch.data() + (16 - (uintptr_t)scratch.data() / sizeof(float) % 16) % 16;
        const size_t need = zoff_adam_product_scratch(std::min(p.part_rows, (c.rows + 11) / 12 * 12),
                                                      std::min(p.part_cols, (c.cols + 127) / 128 * 128));
        ASSERT_LT(need + 32, scratch.size());
        std::fill(p.scratch + need, p.scratch + need + 16, 12.5f);
        const size_t parts = ((c.rows + p.part_rows - 1) / p.part_rows) * ((c.cols + p.part_cols - 1) / p.part_cols);
        for (size_t done = 0; done < parts; done++) // the last part first
            table->product(&p, parts - 1 - done, 1);
        EXPECT_TRUE(same_bits(expected.data(), p.out, count));
        for (const auto *memory : {&a, &b, &out, &add})
            memory->expect_guards();
        EXPECT_EQ(16, std::count(p.scratch + need, p.scratch + need + 16, 12.5f)) << "the scratch is larger than it says";
    }
    random_source random{5};
    fenced<float> a{PRODUCT_ELEMENTS}, b{PRODUCT_ELEMENTS}, out{PRODUCT_ELEMENTS}, add{PRODUCT_ELEMENTS};
    std::vector<float> scratch = std::vector<float>(PRODUCT_ELEMENTS, 1e30f);
};
ZOFF_EVERY_TABLE(kernels_product);

TEST_P(kernels_product, equals_plain_loops)
{
    for (size_t n = 1; n <= 70; n++) {
        for (size_t k = 0; k < 6 && !HasFailure(); k++)
            check({n, k % 2 ? n : n * 17 % 70 + 1, k % 3 ? n * 29 % 70 + 1 : n, n * 6 + k});
    }
    const size_t ROWS[] = {11, 12, 13, 143, 144, 145, 157, 300}, COLS[] = {15, 17, 31, 33, 127, 128, 129, 257, 400},
                 DEPTHS[] = {1, 255, 256, 257, 512, 513, 700};
    for (size_t k = 0; k < 36 && !HasFailure(); k++)
        check({ROWS[k % 8], COLS[k % 9], DEPTHS[k % 7], k * 11 + k / 7});
}
} // namespace
