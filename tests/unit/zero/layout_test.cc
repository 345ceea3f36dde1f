// layout_test.cc: streams of a chunk of any length never start at the same place modulo a power of two that caches use. A plain
// layout would be worst at lengths around powers of two.
#include "zoff_test.h"

extern "C" {
#include "zero.h"
}

namespace
{
const size_t PAGE = 4096, WINDOW = 32768;

// Pages between two places on the circle of the window.
size_t distance(size_t a, size_t b)
{
    const size_t d = (a > b ? a - b : b - a) % WINDOW;
    return std::min(d, WINDOW - d) / PAGE;
}

// One chunk of `count` elements with these streams.
void check(size_t count, bool master, bool m, bool v)
{
    zoff_plan_tensor tensor = {};
    tensor.count = count;
    tensor.slices = 1;
    tensor.has[ZOFF_STREAM_MASTER] = master;
    tensor.has[ZOFF_STREAM_M] = m;
    tensor.has[ZOFF_STREAM_V] = v;
    const zoff_plan_opts opts = {1024, SIZE_MAX, SIZE_MAX};
    zoff_plan plan = {};
    ASSERT_ZOFF_OK(zoff_zero_plan_make(&tensor, 1, &opts, &plan));
    ASSERT_EQ(1u, plan.chunk_count);
    const zoff_plan_chunk &chunk = plan.chunks[0];
    size_t streams = 0, end = 0;
    for (int a = 0; a < ZOFF_STREAM_COUNT; a++) {
        ASSERT_EQ(tensor.has[a] ? (count + 15) / 16 * 16 : 0, chunk.lengths[a]);
        if (!tensor.has[a])
            continue;
        streams++;
        ASSERT_GE(chunk.starts[a], end) << "streams overlap";
        ASSERT_LT(chunk.starts[a], end + WINDOW + PAGE) << "the gap is more than the rule needs";
        end = chunk.starts[a] + chunk.lengths[a] * sizeof(float);
        for (int b = 0; b < a; b++) {
            if (tensor.has[b]) {
                ASSERT_GE(distance(chunk.starts[a], chunk.starts[b]), 2u)
                    << count << " elements: streams " << b << " and " << a << " start at " << chunk.starts[b] << " and "
                    << chunk.starts[a];
            }
        }
    }
    ASSERT_GE(chunk.bytes, end);
    ASSERT_EQ(streams ? 0u : chunk.bytes, chunk.bytes % PAGE);
    zoff_zero_plan_free(&plan);
}
} // namespace

class Layout : public testing::TestWithParam<int>
{
};
// Bit 0: masters, bit 1: m, bit 2: v. Adam, Adagrad, Lion and SGD have these states, for fp32 and for 16-bit weights.
INSTANTIATE_TEST_SUITE_P(Streams, Layout, testing::Values(1, 2, 3, 4, 5, 6, 7));

TEST_P(Layout, StreamsStartAtDifferentPages)
{
    const bool master = GetParam() & 1, m = GetParam() & 2, v = GetParam() & 4;
    for (int k = 4; k <= 32; k++) {
        // In cache lines, from 2^k bytes of a stream to 8 KiB more, with a few elements beside.
        const size_t from = (size_t{1} << k) / sizeof(float);
        for (size_t more = 0; more <= 8192 / sizeof(float); more += 16)
            ASSERT_NO_FATAL_FAILURE(check(from + more, master, m, v));
        for (size_t more : {1, 2, 15, 17, 1023, 1025})
            ASSERT_NO_FATAL_FAILURE(check(from + more, master, m, v));
        ASSERT_NO_FATAL_FAILURE(check(from - 1, master, m, v));
    }
}
