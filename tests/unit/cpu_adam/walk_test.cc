/* SPDX-License-Identifier: Apache-2.0 */
// walk_test.cc: a list gives the same bits with any cut into pieces and any number of threads. Every element is worked on
// exactly once. Shares are equal in bytes. between() runs about every 64 Ki elements on the calling thread.
#include "every_rule.h"
#include "kernel_data.h"
#include "oracle.h"
#include "zoff_test.h"

extern "C" {
#include "cpu_adam.h"
#include "update_priv.h"
}

#include <algorithm>
#include <map>
#include <mutex>
#include <pthread.h>
#include <string.h>

using namespace kernel_data;

namespace
{
constexpr size_t BLOCK = ZOFF_NORM_BLOCK;

// A few tensors of awkward sizes, rules and types, with awkward numbers, and everything that the lists need.
struct tensors {
    std::vector<size_t> counts = {1,          0, 130,    BLOCK,         70001,         BLOCK - 1, 0,
                                  40 * BLOCK, 3, 100003, 2 * BLOCK + 1, 5 * BLOCK + 7, 9};
    std::vector<rule_case> rules = every_rule();
    std::vector<std::vector<float>> m, v, sum;
    std::vector<std::vector<uint32_t>> p, g, copy; // large enough for any type
    std::vector<std::vector<double>> blocks;
    std::vector<zoff_adam_consts> consts;

    zoff_dtype grads(size_t k) const
    {
        const zoff_dtype types[] = {ZOFF_F32, ZOFF_BF16, ZOFF_F16};
        return types[k % 3];
    }
    const weights_kind &weights(size_t k) const { return every_weights_kind()[k % 5]; }

    tensors()
    {
        const number_pool &pool = number_pool::get();
        for (size_t k = 0; k < counts.size(); k++) {
            const size_t n = counts[k];
            for (auto *list : {&m, &v, &sum}) {
                list->emplace_back(n);
                pool.fill(list->back().data(), ZOFF_F32, n, k + list->size());
            }
            for (auto &x : v.back())
                x = x < 0 ? -x : x;
            for (auto *list : {&p, &g, &copy})
                list->emplace_back(n, 0x12345678);
            pool.fill(p.back().data(), weights(k).master, n, k + 1);
            pool.fill(g.back().data(), grads(k), n, k + 2);
            blocks.emplace_back((n + BLOCK - 1) / BLOCK, -1.0);
        }
        for (const auto &rule : rules) {
            consts.emplace_back();
            zoff_adam_hyper_consts(&rule.hyper, 3, 0.7, &consts.back());
        }
    }

    // Compute the expected result of a list call, by the oracle.
    void expect()
    {
        for (size_t k = 0; k < counts.size(); k++) {
            zoff_optimizer_tensor tensor = {};
            tensor.count = counts[k];
            tensor.master = p[k].data();
            tensor.m = m[k].data();
            tensor.v = v[k].data();
            tensor.grad = g[k].data();
            tensor.grad_dtype = grads(k);
            tensor.copy_out = weights(k).copy ? copy[k].data() : nullptr;
            tensor.copy_dtype = weights(k).copy;
            tensor.master_dtype = weights(k).master;
            oracle_step(&rules[k].hyper, 3, 0.7, &tensor);
            const oracle_gradients one = {g[k].data(), grads(k), 1, 0, nullptr, k % 4 == 0};
            oracle_accumulate(sum[k].data(), counts[k], &one);
            for (size_t b = 0; b < blocks[k].size(); b++)
                blocks[k][b] = oracle_square_sum(g[k].data(), grads(k), b * BLOCK, std::min(counts[k] - b * BLOCK, BLOCK));
        }
    }

    // Compute the step by the room itself, with every tensor cut into pieces of at most `most` elements, a multiple of the
    // block.
    void run(unsigned threads, size_t most, bool reversed)
    {
        std::vector<zoff_adam_piece> updates;
        std::vector<zoff_norm_piece> norms;
        std::vector<zoff_accumulate_piece> sums;
        auto place = [](std::vector<uint32_t> &array, zoff_dtype dtype, size_t at) {
            return (void *)((char *)array.data() + at * zoff_adam_dtype_bytes(dtype));
        };
        for (size_t k = 0; k < counts.size(); k++) {
            for (size_t at = 0; at < counts[k] || at == 0; at += most) {
                const size_t n = std::min(counts[k] - at, most);
                const void *grad = place(g[k], grads(k), at);
                const weights_kind w = weights(k);
                zoff_adam_piece update = {};
                update.count = n;
                update.master = place(p[k], w.master, at);
                update.m = rules[k].states.m ? m[k].data() + at : nullptr;
                update.v = rules[k].states.v ? v[k].data() + at : nullptr;
                update.grad = grad;
                update.copy_out = w.copy ? place(copy[k], w.copy, at) : nullptr;
                update.grad_dtype = grads(k);
                update.copy_dtype = w.copy;
                update.consts = &consts[k];
                update.master_dtype = w.master;
                update.stream = k % 2 == 1;
                updates.push_back(update);
                norms.push_back({n, grad, grads(k), blocks[k].data() + at / BLOCK});
                sums.push_back({n, sum[k].data() + at, grad, grads(k), k % 4 == 0});
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
        const auto halves = [](const std::vector<uint32_t> &array) { return (const uint16_t *)(const void *)array.data(); };
        const bool wide = expected.weights(k).master == ZOFF_F32;
        SCOPED_TRACE(::testing::Message() << "tensor " << k);
        if (wide)
            EXPECT_TRUE(same_bits((const float *)(const void *)expected.p[k].data(),
                                  (const float *)(const void *)actual.p[k].data(), n))
                << "p";
        else
            EXPECT_TRUE(same_bits(halves(expected.p[k]), halves(actual.p[k]), n)) << "p";
        EXPECT_TRUE(same_bits(expected.m[k].data(), actual.m[k].data(), n)) << "m";
        EXPECT_TRUE(same_bits(expected.v[k].data(), actual.v[k].data(), n)) << "v";
        EXPECT_TRUE(same_bits(halves(expected.copy[k]), halves(actual.copy[k]), 2 * n)) << "copy";
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

// A piece with a cost of its own, and the share of each thread in a walk.
struct priced_piece {
    size_t count, cost;
};

struct bill {
    std::mutex mutex;
    std::map<pthread_t, size_t> bytes;
    size_t elements = 0;
};

TEST(walk, shares_are_equal_in_bytes)
{
    random_source random(12);
    for (int round = 0; round < 50; round++) {
        // Mixed sizes and types: the first half cheap, the second expensive, so that a cut by elements would be unfair.
        std::vector<priced_piece> pieces(1 + random.next() % 400);
        size_t dearest = 0;
        for (size_t i = 0; i < pieces.size(); i++) {
            pieces[i] = {random.next() % ((size_t)1 << (round % 18)),
                         i < pieces.size() / 2 ? (size_t)6 : 20 + random.next() % 11};
            dearest = std::max(dearest, pieces[i].cost);
        }
        pieces.push_back({70000, 28});
        bill paid;
        zoff_adam_walk walk = {};
        walk.pieces = pieces.data();
        walk.stride = sizeof pieces[0];
        walk.count_at = offsetof(priced_piece, count);
        walk.count = pieces.size();
        walk.fn_ctx = &paid;
        walk.cost = [](const void *, const void *piece) { return static_cast<const priced_piece *>(piece)->cost; };
        walk.fn = [](const struct zoff_kernels *, const void *ctx, const void *piece, size_t, size_t count) {
            bill *b = static_cast<bill *>(const_cast<void *>(ctx));
            std::lock_guard<std::mutex> lock(b->mutex);
            b->bytes[pthread_self()] += count * static_cast<const priced_piece *>(piece)->cost;
            b->elements += count;
        };
        const size_t total = zoff_adam_walk_total(&walk);
        const unsigned threads = 2 + (unsigned)(random.next() % 4);
        zoff_adam_walk_run(threads, &walk);

        size_t elements = 0, sum = 0;
        for (const auto &piece : pieces)
            elements += piece.count;
        EXPECT_EQ(paid.elements, elements);
        EXPECT_LE(paid.bytes.size(), threads);
        for (const auto &share : paid.bytes) {
            sum += share.second;
            EXPECT_LE(share.second, total / threads + (BLOCK + 1) * dearest) << "of " << total << ", " << threads << " threads";
        }
        EXPECT_EQ(sum, total);
    }
}

// Each call of sum += 1 leaves a trace: it shows an element that is visited twice or never.
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

        std::vector<zoff_accumulate_piece> small; // between() runs as often for many small pieces
        for (size_t at = 0; at + 1000 <= n; at += 1000)
            small.push_back({1000, sum.data() + at, grad.data() + at, ZOFF_F32, false});
        zoff_adam_accumulate_run(threads, small.data(), small.size(), breathe, &many);
        EXPECT_GE(many.count, 12 / threads - 1) << threads << " threads";
        EXPECT_LE(many.count, 12 / threads + 1) << threads << " threads";
        EXPECT_FALSE(many.elsewhere);
    }
}

// A trainer may call from inside its own parallel region, in which the runtime gives one thread instead of a team.
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
