// swap_stripe_test.cc: which folder gets the next chunk, and how each folder is used without a measurement.
#include "ring_store.h"

#include <cmath>

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

// A launcher's variables for the number of ranks on this host, restored at the end.
class SwapStripe : public Ring
{
  protected:
    SwapStripe()
    {
        if (getenv("LOCAL_WORLD_SIZE"))
            before = getenv("LOCAL_WORLD_SIZE");
        if (getenv("LOCAL_RANK"))
            before_rank = getenv("LOCAL_RANK");
        set_ranks(0);
    }
    ~SwapStripe() override
    {
        set("LOCAL_WORLD_SIZE", before);
        set("LOCAL_RANK", before_rank);
    }
    void set_ranks(unsigned count)
    {
        set("LOCAL_WORLD_SIZE", count ? std::to_string(count) : "");
        set("LOCAL_RANK", count ? "0" : "");
    }
    static void set(const char *name, const std::string &value)
    {
        if (value.empty())
            unsetenv(name);
        else
            setenv(name, value.c_str(), 1);
    }
    unsigned depth()
    {
        open();
        return s()->stripes[0].depth;
    }
    std::string before, before_rank;
};
} // namespace

TEST(SwapStripeNext, ChunksGoToFoldersByTheirShares)
{
    EXPECT_EQ("0000", folders_of({1}).next(4, 4096));
    EXPECT_EQ("010101", folders_of({1, 1}).next(6, 4096));
    EXPECT_EQ("012012", folders_of({1, 1, 1}).next(6, 4096));
    EXPECT_EQ("00100010", folders_of({0.75, 0.25}).next(8, 4096));
    std::string all = folders_of({0.75, 0.25}).next(400, 4096);
    EXPECT_EQ(100, std::count(all.begin(), all.end(), '1'));
    EXPECT_EQ("1111", folders_of({0, 1}).next(4, 4096)) << "one that takes nothing";
}

// By bytes, not by chunks: no folder ever has more than a chunk less than its share.
TEST(SwapStripeNext, SharesAreOfBytes)
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

TEST_F(SwapStripe, WithoutAMeasurementThereAreDefaults)
{
    opts.path_count = 2;
    open();
    for (size_t i = 0; i < 2; i++) {
        EXPECT_EQ(0u, s()->stripes[i].block_bytes) << "left to the queue";
        EXPECT_EQ(32u, s()->stripes[i].depth);
        EXPECT_EQ(1, s()->stripes[i].share);
    }
    EXPECT_FALSE(log.contains("measured")) << "so few bytes are not worth the time";
    opts.aio_block_bytes = 8192;
    opts.aio_depth = 3;
    open();
    EXPECT_EQ(8192u, s()->stripes[1].block_bytes);
    EXPECT_EQ(3u, s()->stripes[1].depth) << "what was given is taken as it is";
}

TEST_F(SwapStripe, RanksOfAHostShareTheDepth)
{
    const std::pair<unsigned, unsigned> cells[] = {{1, 32}, {2, 16}, {8, 4}, {9, 4}, {1000, 4}};
    for (const auto &cell : cells) {
        set_ranks(cell.first);
        EXPECT_EQ(cell.second, depth()) << cell.first << " ranks";
    }
    opts.aio_depth = 20;
    EXPECT_EQ(20u, depth()) << "one that was given is not shared";
}

// A measurement that fails is no error.
TEST_F(SwapStripe, UnmeasuredFoldersHaveDefaults)
{
    opts.aio_tune = true;
    aio_fault fault;
    fault.result = [](int nth, int res, bool, uint64_t, size_t) { return nth == 1 ? -EIO : res; };
    log.expect("could not be measured");
    log.expect("continuing with the defaults");
    open();
    EXPECT_EQ(32u, s()->stripes[0].depth);
    EXPECT_EQ(0u, s()->stripes[0].block_bytes);
    EXPECT_EQ(1, s()->stripes[0].share);
}

TEST_F(SwapStripe, WithoutMemoryThereIsNoStripe)
{
    open();
    EXPECT_EQ(1, fail_each_allocation([&] { return zoff_offload_swap_stripe_measure(s(), &opts); }));
}
