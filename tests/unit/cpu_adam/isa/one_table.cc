/* SPDX-License-Identifier: Apache-2.0 */
// one_table.cc: see one_table.h.
#include "one_table.h"

#include "../tensors.h"
#include "exact_step.h"

#include <algorithm>
#include <cmath>

namespace
{
// Error that rounding to a type adds: relative, and absolute where subnormals begin.
exact::bounded stored(exact::bounded x, zoff_dtype dtype)
{
    if (dtype == ZOFF_BF16)
        x.error += 0x1p-8L * (fabsl(x.x) + x.error) + 0x1p-134L;
    else if (dtype == ZOFF_F16)
        x.error += 0x1p-11L * (fabsl(x.x) + x.error) + 0x1p-25L;
    return x;
}

void expect_within(float got, exact::bounded want, const char *what, size_t i)
{
    const long double slack = 1.0001L; // second-order terms that the bound omits
    EXPECT_LE(fabsl(got - want.x), slack * want.error) << what << "[" << i << "] is " << got << ", not " << (double)want.x;
}

void expect_near_exact(const owned_tensor &before, const owned_tensor &after)
{
    for (size_t i = 1; i < before.count; i++) {
        size_t undecided = 0;
        exact::element e;
        e.p.x = oracle_load(before.master.data(), before.weights.master, i);
        e.m.x = before.m.empty() ? 0 : before.m[i];
        e.v.x = before.v.empty() ? 0 : before.v[i];
        exact::step(before.rule.hyper, 3, 0.37, oracle_load(before.grad.data(), before.grads, i), &e, &undecided);
        if (undecided)
            continue;
        expect_within(oracle_load(after.master.data(), after.weights.master, i), stored(e.p, after.weights.master), "p", i);
        if (!after.m.empty())
            expect_within(after.m[i], e.m, "m", i);
        if (!after.v.empty())
            expect_within(after.v[i], e.v, "v", i);
        if (after.weights.copy)
            expect_within(oracle_load(after.copy.data(), after.weights.copy, i), stored(e.p, after.weights.copy), "copy", i);
    }
    if (before.count && !before.m.empty()) {
        EXPECT_EQ(before.m[0], after.m[0]) << "the element before the first was changed";
    }
}

// No other value of the type is nearer.
void expect_nearest(float x, const void *dst, zoff_dtype to, size_t i)
{
    const float y = oracle_load(dst, to, i);
    if (to == ZOFF_F32) {
        EXPECT_EQ(x, y);
        return;
    }
    uint16_t here[3];
    memcpy(here, (const char *)dst + 2 * i, 2);
    here[1] = (uint16_t)(here[0] + 1);
    here[2] = (uint16_t)(here[0] & 0x7fff ? here[0] - 1 : here[0]);
    for (size_t k = 1; k < 3; k++)
        EXPECT_LE(fabsl((long double)x - y), fabsl((long double)x - oracle_load(here, to, k))) << x << " became " << y;
    EXPECT_EQ(std::signbit(x), std::signbit(y));
}

// All but the first element of a tensor, as if another thread had that one; nothing of a tensor with one element. Lists omit
// empty tensors.
void step(const struct zoff_kernels *of, owned_tensor &t, bool stream)
{
    if (t.count == 0)
        return;
    zoff_adam_consts consts;
    zoff_adam_hyper_consts(&t.rule.hyper, 3, 0.37, &consts);
    zoff_adam_piece piece = t.piece(&consts);
    piece.stream = stream;
    of->update(&piece, 1, t.count - 1);
}

// Ordinary numbers, different ones in each call.
void fill(kernel_data::random_source &random, void *array, zoff_dtype dtype, size_t n)
{
    for (size_t i = 0; i < n; i++)
        oracle_store(array, dtype, i, kernel_data::number(random, false));
}
} // namespace

void one_table::use(const char *isa, bool is_usable, size_t lanes_of_vector)
{
    if (!is_usable)
        GTEST_SKIP() << "this CPU has no " << isa << "; kernels_bits runs the kernels of other machines";
    table = zoff_adam_dispatch_table(isa);
    ASSERT_NE(nullptr, table) << "this build has none for a CPU that can run them";
    width = lanes_of_vector;
    saved = zoff_base_cpu_float_enter();
}

void one_table::TearDown()
{
    if (table)
        zoff_base_cpu_float_leave(saved);
}

// No element, a part of a vector, whole vectors, and one element more.
std::vector<size_t> one_table::lengths() const
{
    std::vector<size_t> all = {0, 1, width - 1, width, width + 1, 2 * width - 1, 2 * width, 2 * width + 1, 5 * width + 1};
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
}

void one_table::expect_complete(const char *isa, const struct zoff_kernels *of_this_build) const
{
    EXPECT_EQ(of_this_build, table) << "another table goes by its name";
    EXPECT_STREQ(isa, table->name);
#define K(kernel, piece_type) EXPECT_NE(nullptr, table->kernel) << isa << " lacks " #kernel;
    ZOFF_KERNEL_LIST(K)
#undef K
}

void one_table::expect_steps_are_right()
{
    for (const auto &before : every_tensor(lengths(), true)) {
        owned_tensor after = before, by_scalar = before;
        step(table, after, false);
        expect_near_exact(before, after);
        step(&zoff_adam_kernels_scalar, by_scalar, false);
        expect_same(by_scalar, after);
        if (before.weights.copy) {
            owned_tensor streamed = before;
            step(table, streamed, true);
            expect_same(by_scalar, streamed);
        }
        ASSERT_FALSE(HasFailure()) << before.name();
    }
}

void one_table::expect_sums_are_right()
{
    kernel_data::random_source random(11);
    const size_t sources = 3;
    const float weights[sources] = {3.0f, 0.0f, 0.3f};
    for (size_t n : lengths()) {
        for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
            for (int form = 0; form < 4; form++) {
                std::vector<uint32_t> grads(sources * n); // large enough for any type
                std::vector<float> sum(n), by_scalar;
                fill(random, grads.data(), dtype, sources * n);
                fill(random, sum.data(), ZOFF_F32, n);
                by_scalar = sum;
                zoff_accumulate_piece piece = {n, sum.data(), grads.data(), dtype, (form & 1) != 0};
                piece.sources = sources;
                piece.stride = n * zoff_adam_dtype_bytes(dtype);
                piece.weights = form & 2 ? weights : nullptr;
                std::vector<exact::bounded> want(n);
                for (size_t i = 0; i < sources * n; i++) {
                    const float weight = piece.weights ? weights[i / n] : 1, g = oracle_load(grads.data(), dtype, i);
                    exact::bounded &e = want[i % n];
                    if (i < n)
                        e.x = piece.first ? 0 : sum[i];
                    e = exact::rounded(exact::sum(exact::product({weight, 0}, {g, 0}), e));
                }
                table->accumulate(&piece, 0, n);
                for (size_t i = 0; i < n; i++)
                    ASSERT_LE(fabsl(sum[i] - want[i].x), want[i].error) << "element " << i << " of " << n;
                piece.sum = by_scalar.data();
                zoff_adam_kernels_scalar.accumulate(&piece, 0, n);
                ASSERT_TRUE(kernel_data::same_bits(by_scalar.data(), sum.data(), n)) << n << " elements";
            }
        }
    }
}

void one_table::expect_casts_are_right()
{
    kernel_data::random_source random(11);
    for (size_t n : lengths()) {
        for (zoff_dtype from : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
            for (zoff_dtype to : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
                std::vector<uint32_t> src(n), dst(n), by_scalar(n);
                fill(random, src.data(), from, n);
                const zoff_cast_piece piece = {n, dst.data(), src.data(), to, from};
                table->cast(&piece, 0, n);
                for (size_t i = 0; i < n; i++)
                    expect_nearest(oracle_load(src.data(), from, i), dst.data(), to, i);
                const zoff_cast_piece other = {n, by_scalar.data(), src.data(), to, from};
                zoff_adam_kernels_scalar.cast(&other, 0, n);
                ASSERT_EQ(by_scalar, dst) << n << " elements";
                std::vector<uint32_t> streamed(n);
                const zoff_cast_piece past_caches = {n, streamed.data(), src.data(), to, from, nullptr, true};
                table->cast(&past_caches, 0, n);
                ASSERT_EQ(dst, streamed) << n << " elements past the caches";
            }
        }
    }
}

void one_table::expect_square_sums_are_right()
{
    kernel_data::random_source random(11);
    std::vector<size_t> all = lengths();
    for (size_t n : {ZOFF_NORM_BLOCK - 1, ZOFF_NORM_BLOCK + 0, ZOFF_NORM_BLOCK + 1, 2 * ZOFF_NORM_BLOCK + 15})
        all.push_back(n);
    for (size_t n : all) {
        for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
            const size_t blocks = (n + ZOFF_NORM_BLOCK - 1) / ZOFF_NORM_BLOCK;
            std::vector<uint32_t> grads(n);
            std::vector<double> sums(blocks, -1), by_scalar(blocks);
            fill(random, grads.data(), dtype, n);
            const zoff_norm_piece piece = {n, grads.data(), dtype, sums.data()};
            table->square_sum(&piece, 0, n);
            for (size_t block = 0; block < blocks; block++) {
                long double exact = 0;
                for (size_t i = block * ZOFF_NORM_BLOCK; i < std::min(n, (block + 1) * ZOFF_NORM_BLOCK); i++)
                    exact += powl(oracle_load(grads.data(), dtype, i), 2);
                ASSERT_LE(fabsl(sums[block] - exact), 0x1p-44L * exact) << "block " << block << " of " << n << " elements";
            }
            const zoff_norm_piece other = {n, grads.data(), dtype, by_scalar.data()};
            zoff_adam_kernels_scalar.square_sum(&other, 0, n);
            ASSERT_TRUE(kernel_data::same_bits(by_scalar.data(), sums.data(), blocks)) << n << " elements";
        }
    }
}
