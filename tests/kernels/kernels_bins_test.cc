/* SPDX-License-Identifier: Apache-2.0 */
// kernels_bins_test.cc: exact sums of every table against the oracle, bit for bit, and against exact arithmetic. The terms,
// their order and grouping, the widths, sizes and addresses are random.
#include "kernel_tables.h"
#include "oracle.h"

#include <algorithm>
#include <cmath>

using namespace kernel_data;

namespace
{
class kernels_bins : public kernel_tables
{
};
ZOFF_EVERY_TABLE(kernels_bins);

// Planes of sums at any address.
class planes
{
  public:
    planes(size_t count, unsigned width, size_t shift) : count(count), bytes(2 * count * width + count + shift, 0xa5)
    {
        bins.width = width;
        bins.hi = bytes.data() + shift;
        bins.top = bytes.data() + shift + count * width;
        bins.lo = bins.top + count;
    }
    planes(const planes &) = delete;
    oracle_bins at(size_t i) const { return {digit(bins.hi, i), digit(bins.lo, i), bins.top[i]}; }
    size_t count;
    zoff_bins bins = {};

  private:
    int64_t digit(const void *plane, size_t i) const
    {
        int64_t x = 0;
        memcpy(&x, (const char *)plane + i * bins.width, bins.width);
        const int unused = 64 - 8 * (int)bins.width;
        return (int64_t)((uint64_t)x << unused) >> unused;
    }
    std::vector<uint8_t> bytes;
};

// Terms whose decades are near each other in an element, in bf16 and fp32.
float draw(random_source &random, unsigned kind)
{
    const uint32_t bits = (uint32_t)(random.next() >> 32);
    if (kind == 0)
        return float_of(bits); // any bits
    const uint32_t exponent = kind * 17 % 200 + (bits >> 8) % (kind % 3 ? 20 : 54);
    return float_of((bits & 0x807fffff) | exponent << 23);
}

TEST_P(kernels_bins, sums_equal_the_oracle)
{
    random_source random(49);
    for (int round = 0; round < 400; round++) {
        const zoff_dtype dtype = (const zoff_dtype[]){ZOFF_BF16, ZOFF_F16, ZOFF_F32}[round % 3];
        const size_t n = random.next() % 70, sources = random.next() % 12, width = (const size_t[]){3, 4, 8}[round / 3 % 3];
        const size_t bytes = zoff_adam_dtype_bytes(dtype);
        const bool weighted = random.next() % 2, first = random.next() % 2;
        std::vector<float> weights(sources);
        std::vector<char> terms(sources * n * bytes + 8);
        for (size_t i = 0; i < sources; i++)
            weights[i] = random.next() % 4 == 0 ? 0 : random.next() % 4 == 0 ? 1 : draw(random, 7);
        for (size_t i = 0; i < sources * n; i++)
            oracle_store(terms.data(), dtype, i, draw(random, (unsigned)(i * 31 % 9)));
        planes to(n, (unsigned)width, random.next() % 9), part(n, (unsigned)width == 3 ? 4 : 3, random.next() % 9);
        std::vector<oracle_bins> want(n, {0, 0, 1});
        zoff_bins_piece piece = {n, to.bins, true, terms.data(), dtype, sources, n * bytes};
        piece.weights = weighted ? weights.data() : nullptr;
        auto add = [&](oracle_bins *sum, size_t i) {
            for (size_t s = 0; s < sources; s++)
                oracle_bins_add(sum, oracle_load(terms.data(), dtype, s * n + i), weighted ? weights[s] : 1);
        };
        auto check = [&](const planes &have) {
            for (size_t i = 0; i < n; i++) {
                const oracle_bins sum = have.at(i);
                ASSERT_TRUE(sum.hi == want[i].hi && sum.lo == want[i].lo && sum.top == want[i].top)
                    << "round " << round << ", element " << i << " of " << n << ": " << sum.hi << ", " << sum.lo << ", "
                    << sum.top << " instead of " << want[i].hi << ", " << want[i].lo << ", " << want[i].top;
            }
        };
        for (size_t i = 0; i < n; i++)
            add(&want[i], i);
        table->bins(&piece, 0, n / 2);
        table->bins(&piece, n / 2, n - n / 2);
        check(to);
        piece.to = part.bins;
        table->bins(&piece, 0, n);
        check(part);
        if (HasFatalFailure())
            return;
        // Another time onto what is there, with a part of another width.
        piece.to = to.bins;
        piece.parts = &part.bins;
        piece.part_count = 1;
        piece.first = first;
        for (size_t i = 0; i < n; i++) {
            const oracle_bins once = want[i];
            add(&want[i], i);
            if (!first)
                oracle_bins_join(&want[i], once);
        }
        std::vector<float> out(n);
        piece.out = out.data();
        table->bins(&piece, 0, n);
        for (size_t i = 0; i < n; i++)
            ASSERT_EQ(bits_of(oracle_bins_value(want[i])), bits_of(out[i])) << "round " << round << ", element " << i;
        piece.out = nullptr;
        table->bins(&piece, 0, n);
        check(to);
        if (HasFatalFailure())
            return;
    }
}
} // namespace
