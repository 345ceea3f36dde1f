/* SPDX-License-Identifier: Apache-2.0 */
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

// One chunk of `count` elements with these streams, given by the bytes of an element; 0: absent.
void check(size_t count, size_t master, size_t m, size_t v)
{
    zoff_plan_tensor tensor = {};
    tensor.count = count;
    tensor.slices = 1;
    tensor.bytes[ZOFF_STREAM_MASTER] = master;
    tensor.bytes[ZOFF_STREAM_M] = m;
    tensor.bytes[ZOFF_STREAM_V] = v;
    const zoff_plan_opts opts = {1024, SIZE_MAX, SIZE_MAX};
    zoff_plan plan = {};
    ASSERT_ZOFF_OK(zoff_zero_plan_make(&tensor, 1, &opts, &plan));
    ASSERT_EQ(1u, plan.chunk_count);
    const zoff_plan_chunk &chunk = plan.chunks[0];
    size_t streams = 0, end = 0;
    for (int a = 0; a < ZOFF_STREAM_COUNT; a++) {
        ASSERT_EQ((count * tensor.bytes[a] + 63) / 64 * 64, chunk.lengths[a]);
        if (!tensor.bytes[a])
            continue;
        streams++;
        ASSERT_GE(chunk.starts[a], end) << "streams overlap";
        ASSERT_LT(chunk.starts[a], end + WINDOW + PAGE) << "the gap is more than the rule needs";
        end = chunk.starts[a] + chunk.lengths[a];
        for (int b = 0; b < a; b++) {
            if (tensor.bytes[b]) {
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

class Layout : public testing::TestWithParam<std::tuple<int, int>>
{
};
// Bit 0: masters, bit 1: m, bit 2: v. Adam, Adagrad, Lion and SGD have these states, for fp32 and for 16-bit weights. Then the
// bytes of a moment.
INSTANTIATE_TEST_SUITE_P(Streams, Layout, testing::Combine(testing::Values(1, 2, 3, 4, 5, 6, 7), testing::Values(4, 2, 1)));

TEST_P(Layout, StreamsStartAtDifferentPages)
{
    const int streams = std::get<0>(GetParam());
    const size_t moment = (size_t)std::get<1>(GetParam());
    const size_t master = streams & 1 ? 4 : 0, m = streams & 2 ? moment : 0, v = streams & 4 ? moment : 0;
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
