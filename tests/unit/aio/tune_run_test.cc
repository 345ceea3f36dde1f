// tune_run_test.cc: one sample: the blocks that are read and written, their number, and the report. No test measures time.
#include "aio_fault.h"
#include "aio_place.h"

#include <cmath>

extern "C" {
#include "tune_priv.h"
}

using namespace zoff_test;

namespace
{
struct transfer {
    bool writes;
    uint64_t offset;
    bool operator==(const transfer &o) const { return writes == o.writes && offset == o.offset; }
};
std::ostream &operator<<(std::ostream &out, const transfer &t)
{
    return out << (t.writes ? "write at " : "read at ") << t.offset;
}

constexpr size_t BLOCK = 64 << 10, EXTENT_BLOCKS = 8;

class AioTuneRun : public testing::Test
{
  protected:
    void SetUp() override
    {
        fault.result = nullptr;
        zoff_aio_opts opts = aio_opts("posix"); // posix ends requests in the order of their start
        opts.block_bytes = BLOCK;
        opts.depth = ZOFF_AIO_TUNE_DEPTH_MOST;
        zoff_aio *raw = nullptr;
        ASSERT_ZOFF_OK(zoff_aio_open(folder.file("scratch").c_str(), &opts, &raw));
        q.reset(raw);
        ASSERT_ZOFF_OK(aio_write(q.get(), 0, memory.data, memory.bytes / 4)); // the whole extent
        tuner.q = raw;
        tuner.memory = reinterpret_cast<char *>(memory.data);
        tuner.memory_bytes = memory.bytes;
        tuner.extent = EXTENT_BLOCKS * BLOCK;
        tuner.write_at = tuner.extent / 2;
        fault.result = [this](int nth, int res, bool writes, uint64_t offset, size_t bytes) {
            EXPECT_EQ(BLOCK, bytes);
            seen.push_back({writes, offset});
            return nth == fails ? -EIO : res;
        };
        fault.results = 0;
    }
    zoff_status run(const zoff_aio_tune_way &way, double seconds, uint64_t bytes)
    {
        seen.clear();
        rate = -1;
        moved = 0;
        return zoff_aio_tune_run(&tuner, &way, seconds, bytes, &rate, &moved);
    }
    static transfer read_of(size_t block) { return {false, block * BLOCK}; }
    static transfer write_of(size_t block) { return {true, block * BLOCK}; }

    scratch_folder folder;
    aio_buffer memory{32 * BLOCK};
    aio q;
    zoff_aio_tuner tuner = {};
    std::vector<transfer> seen;
    double rate = 0;
    uint64_t moved = 0;
    int fails = 0;
    aio_fault fault;
};
} // namespace

TEST_F(AioTuneRun, MovesOneBlockForEachPlaceInNoTime)
{
    for (unsigned depth : {1u, 3u, 8u, 32u}) {
        ASSERT_ZOFF_OK(run({BLOCK, depth, true, false}, 0, 0));
        EXPECT_EQ(depth * BLOCK, moved);
        EXPECT_EQ(depth, seen.size());
        EXPECT_TRUE(std::isfinite(rate) && rate > 0) << rate;
        EXPECT_EQ(rate, tuner.rate) << "the next sample begins with what is known";
    }
    const zoff_aio_tune_way way = {BLOCK, 2, true, false};
    ASSERT_ZOFF_OK(zoff_aio_tune_run(&tuner, &way, 0, 0, &rate, nullptr)) << "nobody wants to know how many";
}

TEST_F(AioTuneRun, MovesNoMoreThanRequested)
{
    for (uint64_t blocks : {1, 2, 5, 9}) {
        for (unsigned depth : {1u, 4u}) {
            for (uint64_t more : {uint64_t(0), uint64_t(1), uint64_t(BLOCK - 1)}) {
                ASSERT_ZOFF_OK(run({BLOCK, depth, false, true}, 100, blocks * BLOCK + more));
                EXPECT_EQ(blocks * BLOCK, moved) << depth << " places";
                EXPECT_EQ(blocks, seen.size());
            }
        }
    }
    ASSERT_ZOFF_OK(run({BLOCK, 4, true, false}, 100, BLOCK - 1)) << "less than a block is none";
    EXPECT_EQ(0u, moved);
    EXPECT_EQ(0u, seen.size());
}

TEST_F(AioTuneRun, EachDirectionGoesThroughTheFileAndBeginsAgain)
{
    std::vector<transfer> want;
    for (size_t i = 0; i < EXTENT_BLOCKS + 2; i++)
        want.push_back(read_of(i % EXTENT_BLOCKS));
    ASSERT_ZOFF_OK(run({BLOCK, 1, true, false}, 100, (EXTENT_BLOCKS + 2) * BLOCK));
    EXPECT_EQ(want, seen);
    want.clear();
    for (size_t i = 0; i < EXTENT_BLOCKS; i++)
        want.push_back(write_of((EXTENT_BLOCKS / 2 + i) % EXTENT_BLOCKS));
    ASSERT_ZOFF_OK(run({BLOCK, 1, false, true}, 100, EXTENT_BLOCKS * BLOCK));
    EXPECT_EQ(want, seen);
    ASSERT_ZOFF_OK(run({BLOCK, 1, true, false}, 100, BLOCK));
    EXPECT_EQ(std::vector<transfer>{read_of(2)}, seen) << "the next sample goes on where this one was";
}

// A rest at the end of the extent is too small for a transfer.
TEST_F(AioTuneRun, NoBlockGoesOverTheEnd)
{
    tuner.extent = 3 * BLOCK - 1;
    ASSERT_ZOFF_OK(run({BLOCK, 1, true, false}, 100, 4 * BLOCK));
    EXPECT_EQ((std::vector<transfer>{read_of(0), read_of(1), read_of(0), read_of(1)}), seen);
}

TEST_F(AioTuneRun, ReadsAndWritesAtATimeTakeEveryOtherPlace)
{
    ASSERT_ZOFF_OK(run({BLOCK, 4, true, true}, 0, 0));
    std::vector<transfer> reads, writes;
    for (const transfer &t : seen)
        (t.writes ? writes : reads).push_back(t);
    EXPECT_EQ((std::vector<transfer>{read_of(0), read_of(1)}), reads);
    EXPECT_EQ((std::vector<transfer>{write_of(4), write_of(5)}), writes) << "half of the file apart";
}

TEST_F(AioTuneRun, AnErrorOfTheDiskEndsIt)
{
    for (int nth : {1, 2, 7}) {
        fault.results = 0;
        fails = nth;
        const double before = tuner.rate;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "Input/output error", run({BLOCK, 2, true, false}, 100, 0));
        EXPECT_EQ(-1, rate) << "outputs are written on success only";
        EXPECT_EQ(0u, moved);
        EXPECT_EQ(before, tuner.rate);
        SetUp();
    }
}
