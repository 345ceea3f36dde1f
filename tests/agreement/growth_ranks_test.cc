/* SPDX-License-Identifier: Apache-2.0 */
// growth_ranks_test.cc: measures how the plan of one rank grows, for up to 4,096 ranks. The tests count things instead of
// timing them, and fit the exponent of the growth.
#include "zoff_test.h"

#include <cmath>

extern "C" {
#include "../../cuda/nccl_cut.h"
#include "engine_priv.h"
}

namespace
{
using points = std::vector<std::pair<double, double>>;

// The slope of log y over log x, fitted by least squares.
double exponent(const points &all)
{
    double n = 0, sx = 0, sy = 0, sxx = 0, sxy = 0;
    for (const auto &[x, y] : all) {
        const double a = log(x), b = log(y);
        n++, sx += a, sy += b, sxx += a * a, sxy += a * b;
    }
    return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

struct made_plan {
    zoff_plan plan = {};
    made_plan(double billions, unsigned ranks, size_t params, unsigned rank = 0)
    {
        std::vector<zoff_plan_tensor> tensors(params, {(size_t)(billions * 1e9 / (double)params), 1, false, {4, 4, 4}, 0});
        zoff_plan_opts opts = {};
        opts.unit = 1024;
        opts.max_chunk_elements = opts.max_chunk_bytes = SIZE_MAX / 2;
        opts.ranks = ranks;
        opts.rank = rank;
        opts.max_bucket_units = (8 << 20) / 1024;
        EXPECT_ZOFF_OK(zoff_zero_plan_make(tensors.data(), params, &opts, &plan));
    }
    ~made_plan() { zoff_zero_plan_free(&plan); }
    size_t bytes() const
    {
        return plan.piece_count * sizeof *plan.pieces + plan.run_count * sizeof *plan.runs +
               plan.chunk_count * sizeof *plan.chunks;
    }
};

// The plan of a model of 70 B parameters. More ranks must not make the plan of one rank larger.
TEST(GrowthRanks, APlanDoesNotGrowWithTheRanks)
{
    points bytes;
    for (unsigned ranks = 16; ranks <= 4096; ranks *= 4)
        bytes.emplace_back(ranks, (double)made_plan(70, ranks, 400, ranks / 2).bytes());
    printf("growth: plan of 70 B parameters in %.1f MiB at %g ranks, exponent %.2f over ranks\n", bytes.back().second / 1048576,
           bytes.back().first, exponent(bytes));
    RecordProperty("largest_ranks", 4096);
    EXPECT_LE(exponent(bytes), 0.05);
    EXPECT_LT(bytes.back().second, 8.0 * 1048576);
}

TEST(GrowthRanks, APlanIsLinearInParametersAndBuckets)
{
    points over_elements, over_params;
    for (double billions = 4; billions <= 256; billions *= 2)
        over_elements.emplace_back(billions, (double)made_plan(billions, 1024, 100).bytes());
    for (size_t params = 50000; params <= 400000; params *= 2)
        over_params.emplace_back((double)params, (double)made_plan(16, 1024, params).bytes());
    printf("growth: plan, exponent %.2f over elements, %.2f over parameters\n", exponent(over_elements), exponent(over_params));
    EXPECT_LE(exponent(over_elements), 1.1);
    EXPECT_LE(exponent(over_params), 1.1);
}

// Each rank of 4,096 computes its part alone. Together the parts are the whole bucket.
TEST(GrowthRanks, APartIsFoundWithoutTheOthers)
{
    const made_plan made(1, 4096, 100000);
    for (size_t b = 0; b < made.plan.chunk_count; b += 37) {
        const zoff_plan_chunk &c = made.plan.chunks[b];
        size_t want = 0, got = 0;
        for (size_t i = 0; i < c.run_count; i++)
            want += made.plan.runs[c.first_run + i].count;
        for (unsigned rank = 0; rank < 4096; rank++) {
            zoff_plan_cursor part = zoff_zero_plan_part(&made.plan, b, rank);
            for (zoff_plan_piece p; zoff_zero_plan_next(&part, &p);)
                got += p.count;
        }
        ASSERT_EQ(want, got);
    }
}

// The staging memory of communicator "nccl" on a device, in three lanes: at most 24 MiB up to 8,192 ranks, as docs/MEMORY.md
// says.
TEST(GrowthRanks, StagingOfNcclIsBounded)
{
    for (unsigned ranks = 1; ranks <= 8192; ranks++) {
        const size_t cut = zoff_nccl_cut(ranks), bytes = 3 * 2 * (size_t)ranks * cut;
        ASSERT_GT(cut, 0u);
        ASSERT_EQ(0u, cut % 512);
        ASSERT_LE(bytes, 24u << 20) << ranks;
        ASSERT_GE(bytes, 11u << 20) << ranks; /* a round has at least half of that, because more rounds mean more messages */
    }
    EXPECT_EQ(65536u, zoff_nccl_cut(64));
    EXPECT_EQ(1024u, zoff_nccl_cut(4096));
}

// The union of the presence bits of 100,000 slices, in words of 64 bits, equals a union bit by bit. growth_operations counts
// the cost.
TEST(GrowthRanks, PresenceIsAUnionOfWords)
{
    enum { SLICES = 100000, WORDS = (SLICES + 63) / 64 };
    for (unsigned ranks : {1u, 2u, 64u, 4096u}) {
        std::vector<uint64_t> bits((size_t)WORDS * ranks);
        for (size_t i = 0; i < ranks * 3u; i++)
            bits[i * 2654435761u % bits.size()] |= 1ull << i % 64;
        std::vector<uint64_t> want(WORDS);
        for (size_t i = 0; i < bits.size(); i++)
            want[i % WORDS] |= bits[i];
        zoff_agreement_participation_join(bits.data(), WORDS, ranks);
        bits.resize(WORDS);
        EXPECT_TRUE(want == bits) << ranks;
    }
}
} // namespace
