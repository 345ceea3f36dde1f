/* SPDX-License-Identifier: Apache-2.0 */
// swap_stripe_test.cc: which folder gets the next chunk, and how deep its queue is without a measurement.
#include "zoff_test.h"

#include <cmath>
#include <stdlib.h>

extern "C" {
#include "swap_priv.h"
}

using namespace zoff_test;

namespace
{
// Two or three folders with these shares.
struct folders_of {
    explicit folders_of(std::vector<double> shares)
    {
        for (size_t i = 0; i < shares.size(); i++)
            stripes[i].share = shares[i];
        s.stripes = stripes;
        s.file_count = shares.size();
    }
    // The folders of this many chunks, as digits.
    std::string next(size_t count, size_t bytes)
    {
        std::string all;
        while (count-- > 0)
            all += (char)('0' + zoff_offload_swap_stripe_next(&s, bytes));
        return all;
    }
    zoff_swap_stripe stripes[3] = {};
    zoff_swap_store s = {};
};
} // namespace

TEST(SwapStripe, ChunksGoToFoldersByTheirShares)
{
    EXPECT_EQ("0000", folders_of({1}).next(4, 4096));
    EXPECT_EQ("010101", folders_of({1, 1}).next(6, 4096));
    EXPECT_EQ("012012", folders_of({1, 1, 1}).next(6, 4096));
    EXPECT_EQ("00100010", folders_of({0.75, 0.25}).next(8, 4096));
    std::string all = folders_of({0.75, 0.25}).next(400, 4096);
    EXPECT_EQ(100, std::count(all.begin(), all.end(), '1'));
    EXPECT_EQ("1111", folders_of({0, 1}).next(4, 4096)) << "one that takes nothing";
}

// Shares go by bytes, not by chunks, so no folder ever has more than a chunk less than its share.
TEST(SwapStripe, SharesAreOfBytes)
{
    folders_of f({0.6, 0.4});
    double has[2] = {}, all = 0;
    for (size_t i = 0; i < 300; i++) {
        const size_t bytes = 4096 * (1 + i * 7 % 13);
        has[zoff_offload_swap_stripe_next(&f.s, bytes)] += (double)bytes;
        all += (double)bytes;
        ASSERT_GE(13 * 4096, std::fabs(has[0] - 0.6 * all)) << i;
    }
}

// The drive is that of all ranks of a host. A depth that was given is not shared.
TEST(SwapStripe, RanksOfAHostShareTheDepth)
{
    const char *const names[] = {"LOCAL_WORLD_SIZE", "LOCAL_RANK"};
    std::string before[2];
    for (int i = 0; i < 2; i++)
        before[i] = getenv(names[i]) ? getenv(names[i]) : "";
    const auto depth = [&](unsigned ranks, unsigned given) {
        folders_of f({1});
        zoff_store_opts opts = {};
        opts.path_count = 1;
        opts.aio_depth = given;
        setenv(names[0], std::to_string(ranks).c_str(), 1);
        setenv(names[1], "0", 1);
        EXPECT_ZOFF_OK(zoff_offload_swap_stripe_measure(&f.s, &opts));
        return f.stripes[0].depth;
    };
    for (const auto &[ranks, want] : {std::pair<unsigned, unsigned>{1, 32}, {2, 16}, {8, 4}, {9, 4}, {1000, 4}})
        EXPECT_EQ(want, depth(ranks, 0)) << ranks << " ranks";
    EXPECT_EQ(20u, depth(8, 20));
    for (int i = 0; i < 2; i++) {
        if (before[i].empty())
            unsetenv(names[i]);
        else
            setenv(names[i], before[i].c_str(), 1);
    }
}
