// walk_test.cc: a list gives the same bits however it is cut into pieces and shared among threads, every element is worked on
// exactly once, and between() comes about every 64 Ki elements on the calling thread.
#include "kernel_data.h"
#include "oracle.h"
#include "zoff_test.h"

extern "C" {
#include "cpu_adam.h"
#include "kernels.h"
}

#include <algorithm>
#include <pthread.h>
#include <string.h>

using namespace kernel_data;

namespace
{
constexpr size_t BLOCK = ZOFF_NORM_BLOCK;

// A few tensors of awkward sizes, with everything that the four lists need.
struct tensors {
    std::vector<size_t> counts = {1, 0, 130, BLOCK, 70001, BLOCK - 1, 0, 40 * BLOCK, 3, 100003, 2 * BLOCK + 1};
    std::vector<std::vector<float>> p, m, v, g, sum;
    std::vector<std::vector<uint16_t>> g16, copy;
    std::vector<std::vector<double>> blocks;
    zoff_adam_hyper decoupled, l2;
    zoff_adam_consts consts[2];

    tensors()
    {
        random_source random(42);
        auto floats = [&](size_t n, bool positive) {
            std::vector<float> out(n);
            for (auto &x : out) {
                x = number(random, true);
                if (positive && x < 0)
                    x = -x;
            }
            return out;
        };
        for (size_t n : counts) {
            p.push_back(floats(n, false));
            m.push_back(floats(n, false));
            v.push_back(floats(n, true));
            g.push_back(floats(n, false));
            sum.push_back(floats(n, false));
            g16.emplace_back(n);
            for (auto &x : g16.back())
                x = (uint16_t)(random.next() >> 48);
            copy.emplace_back(n, 0x1234);
            blocks.emplace_back((n + BLOCK - 1) / BLOCK, -1.0);
        }
        zoff_adam_hyper_init(&decoupled);
        decoupled.weight_decay = 0.1;
        l2 = decoupled;
        l2.decay = ZOFF_DECAY_L2;
        zoff_adam_hyper_consts(&decoupled, 3, 0.7, &consts[0]);
        zoff_adam_hyper_consts(&l2, 3, 0.7, &consts[1]);
    }

    // What a list call should make of all this, by the oracle.
    void expect()
    {
        for (size_t k = 0; k < counts.size(); k++) {
            const bool grad16 = k % 2;
            oracle_adam(k % 3 ? &l2 : &decoupled, 3, 0.7, counts[k], p[k].data(), m[k].data(), v[k].data(), g[k].data(),
                        grad16 ? g16[k].data() : nullptr, k % 4 < 2 ? copy[k].data() : nullptr);
            oracle_accumulate(counts[k], sum[k].data(), g[k].data(), grad16 ? g16[k].data() : nullptr, k % 4 == 0);
            for (size_t b = 0; b < blocks[k].size(); b++) {
                const size_t at = b * BLOCK, n = std::min(counts[k] - at, BLOCK);
                blocks[k][b] = oracle_square_sum(n, g[k].data() + at, grad16 ? g16[k].data() + at : nullptr);
            }
        }
    }

    // The same by the room, with every tensor cut into pieces of at most `most` elements (a multiple of the block).
    void run(unsigned threads, size_t most, bool reversed)
    {
        std::vector<zoff_adam_piece> updates;
        std::vector<zoff_norm_piece> norms;
        std::vector<zoff_accumulate_piece> sums;
        for (size_t k = 0; k < counts.size(); k++) {
            const bool grad16 = k % 2;
            const zoff_dtype dtype = grad16 ? ZOFF_BF16 : ZOFF_F32;
            for (size_t at = 0; at < counts[k] || at == 0; at += most) {
                const size_t n = std::min(counts[k] - at, most);
                const void *grad = grad16 ? (const void *)(g16[k].data() + at) : (const void *)(g[k].data() + at);
                updates.push_back({n, p[k].data() + at, m[k].data() + at, v[k].data() + at, grad,
                                   k % 4 < 2 ? copy[k].data() + at : nullptr, dtype, ZOFF_BF16, &consts[k % 3 ? 1 : 0]});
                norms.push_back({n, grad, dtype, blocks[k].data() + at / BLOCK});
                sums.push_back({n, sum[k].data() + at, grad, dtype, k % 4 == 0});
            }
        }
        if (reversed) {
            std::reverse(updates.begin(), updates.end());
            std::reverse(norms.begin(), norms.end());
            std::reverse(sums.begin(), sums.end());
        }
        zoff_adam_norm_run(threads, norms.data(), norms.size(), nullptr, nullptr);
        zoff_adam_accumulate_run(threads, sums.data(), sums.size(), nullptr, nullptr);
        zoff_adam_update_run(threads, updates.data(), updates.size(), nullptr, nullptr);
    }
};

void expect_same(const tensors &expected, const tensors &actual)
{
    for (size_t k = 0; k < expected.counts.size(); k++) {
        const size_t n = expected.counts[k];
        SCOPED_TRACE(::testing::Message() << "tensor " << k);
        EXPECT_TRUE(same_bits(expected.p[k].data(), actual.p[k].data(), n)) << "p";
        EXPECT_TRUE(same_bits(expected.m[k].data(), actual.m[k].data(), n)) << "m";
        EXPECT_TRUE(same_bits(expected.v[k].data(), actual.v[k].data(), n)) << "v";
        EXPECT_TRUE(same_bits(expected.copy[k].data(), actual.copy[k].data(), n)) << "copy";
        EXPECT_TRUE(same_bits(expected.sum[k].data(), actual.sum[k].data(), n)) << "sum";
        EXPECT_TRUE(same_bits(expected.blocks[k].data(), actual.blocks[k].data(), expected.blocks[k].size())) << "blocks";
    }
}

TEST(walk, bits_do_not_depend_on_threads_pieces_or_their_order)
{
    tensors expected;
    expected.expect();
    for (unsigned threads : {1u, 2u, 3u, 7u}) {
        for (size_t most : {(size_t)1 << 40, BLOCK, 5 * BLOCK, 64 * BLOCK}) {
            for (bool reversed : {false, true}) {
                SCOPED_TRACE(::testing::Message() << threads << " threads, pieces of " << most << ", reversed " << reversed);
                tensors actual;
                actual.run(threads, most, reversed);
                expect_same(expected, actual);
                if (HasFailure())
                    return;
            }
        }
    }
}

TEST(walk, cast_with_any_team)
{
    random_source random(5);
    std::vector<float> wide(100003);
    for (auto &x : wide)
        x = number(random, true);
    std::vector<uint16_t> expected(wide.size());
    for (size_t i = 0; i < wide.size(); i++)
        expected[i] = oracle_to_bf16(wide[i]);
    for (unsigned threads : {1u, 2u, 3u, 7u}) {
        std::vector<uint16_t> half(wide.size());
        const zoff_cast_piece pieces[] = {
            {50 * BLOCK, half.data(), wide.data(), ZOFF_BF16, ZOFF_F32},
            {wide.size() - 50 * BLOCK, half.data() + 50 * BLOCK, wide.data() + 50 * BLOCK, ZOFF_BF16, ZOFF_F32}};
        zoff_adam_cast_run(threads, pieces, 2);
        EXPECT_TRUE(same_bits(expected.data(), half.data(), half.size())) << threads << " threads";
    }
}

// Each call of sum += 1 leaves a trace: an element visited twice or never shows.
TEST(walk, every_element_exactly_once)
{
    random_source random(9);
    for (int round = 0; round < 200; round++) {
        std::vector<size_t> counts(1 + random.next() % 12);
        std::vector<std::vector<float>> sums;
        std::vector<zoff_accumulate_piece> pieces;
        const size_t largest = (size_t)1 << (random.next() % 17);
        static const std::vector<float> ones((size_t)1 << 17, 1.0f);
        for (auto &n : counts) {
            n = random.next() % (largest + 1);
            sums.emplace_back(n, 0.0f);
        }
        for (size_t k = 0; k < counts.size(); k++)
            pieces.push_back({counts[k], sums[k].data(), ones.data(), ZOFF_F32, false});
        const unsigned threads = 1 + (unsigned)(random.next() % 9);
        zoff_adam_accumulate_run(threads, pieces.data(), pieces.size(), nullptr, nullptr);
        for (const auto &sum : sums) {
            for (float x : sum)
                ASSERT_EQ(x, 1.0f) << "round " << round << ", " << threads << " threads";
        }
    }
    zoff_adam_accumulate_run(4, nullptr, 0, nullptr, nullptr);
}

struct breaths {
    pthread_t caller = pthread_self();
    size_t count = 0;
    bool elsewhere = false;
};

void breathe(void *ctx)
{
    auto b = static_cast<breaths *>(ctx);
    b->count++;
    b->elsewhere = b->elsewhere || !pthread_equal(pthread_self(), b->caller);
}

TEST(walk, between_comes_every_64_ki_elements_on_the_calling_thread)
{
    const size_t n = 64 * 1024 * 12 + 5;
    std::vector<float> sum(n), grad(n, 1.0f);
    for (unsigned threads : {1u, 3u}) {
        breaths one, many;
        const zoff_accumulate_piece whole = {n, sum.data(), grad.data(), ZOFF_F32, false};
        zoff_adam_accumulate_run(threads, &whole, 1, breathe, &one);
        EXPECT_GE(one.count, 12 / threads - 1) << threads << " threads";
        EXPECT_LE(one.count, 12 / threads + 1) << threads << " threads";
        EXPECT_FALSE(one.elsewhere);

        std::vector<zoff_accumulate_piece> small; // many small pieces breathe as often
        for (size_t at = 0; at + 1000 <= n; at += 1000)
            small.push_back({1000, sum.data() + at, grad.data() + at, ZOFF_F32, false});
        zoff_adam_accumulate_run(threads, small.data(), small.size(), breathe, &many);
        EXPECT_GE(many.count, 12 / threads - 1) << threads << " threads";
        EXPECT_LE(many.count, 12 / threads + 1) << threads << " threads";
        EXPECT_FALSE(many.elsewhere);
    }
}

// A trainer may call from inside a parallel region of its own, where the runtime gives one thread instead of a team.
TEST(walk, inside_a_parallel_region_of_the_caller)
{
    tensors expected;
    expected.expect();
    tensors actual[2];
#pragma omp parallel for num_threads(2)
    for (int k = 0; k < 2; k++)
        actual[k].run(4, (size_t)1 << 40, false);
    expect_same(expected, actual[0]);
    expect_same(expected, actual[1]);
}
} // namespace
