/* SPDX-License-Identifier: Apache-2.0 */
// emulated_kernels_test.cc: the caller may change a list, its constants and its factors when the call returns. The stream
// computes the same bits as the CPU. Without memory nothing begins.
#include "held_stream.h"
#include "memory_fault.h"

#include <string.h>

#include <functional>

using namespace zoff_test;

namespace
{
enum { COUNT = 1500, PIECES = 3 };

// Operands for all four kernels. Each test has two sets: one for the stream, one for the CPU.
struct numbers {
    std::vector<float> p, m, v, sum, grads, wide;
    std::vector<uint16_t> half;
    std::vector<double> blocks;
    numbers() : p(COUNT), m(COUNT), v(COUNT), sum(COUNT), grads(2 * COUNT), wide(COUNT), half(COUNT), blocks(PIECES)
    {
        for (size_t i = 0; i < grads.size(); i++)
            grads[i] = static_cast<float>(i % 37) * 0.25f - 4;
        for (size_t i = 0; i < COUNT; i++) {
            p[i] = 1 + static_cast<float>(i) / COUNT;
            sum[i] = static_cast<float>(i % 5);
            half[i] = static_cast<uint16_t>(0x3f80 + i % 64);
        }
    }
    bool operator==(const numbers &o) const
    {
        return p == o.p && m == o.m && v == o.v && sum == o.sum && wide == o.wide && blocks == o.blocks;
    }
};

// Lists of all kernels over the operands of `numbers`.
struct lists {
    zoff_adam_consts consts[PIECES];
    float factors[PIECES][2];
    zoff_adam_piece updates[PIECES];
    zoff_accumulate_piece sums[PIECES];
    zoff_cast_piece casts[PIECES];
    zoff_norm_piece norms[PIECES];

    explicit lists(numbers &n)
    {
        memset(static_cast<void *>(this), 0, sizeof *this);
        zoff_optimizer_hyper hyper;
        zoff_optimizer_hyper_init(&hyper, ZOFF_OPTIMIZER_ADAM);
        for (size_t i = 0; i < PIECES; i++) {
            const size_t at = i * (COUNT / PIECES), count = COUNT / PIECES;
            hyper.lr = 0.1 / static_cast<double>(i + 1);
            zoff_adam_hyper_consts(&hyper, 1, 1, &consts[i]);
            updates[i].count = sums[i].count = casts[i].count = norms[i].count = count;
            updates[i].master = n.p.data() + at;
            updates[i].m = n.m.data() + at;
            updates[i].v = n.v.data() + at;
            updates[i].grad = n.grads.data() + at;
            updates[i].grad_dtype = updates[i].master_dtype = ZOFF_F32;
            updates[i].consts = &consts[i];
            factors[i][0] = 0.5f + static_cast<float>(i);
            factors[i][1] = -2;
            sums[i].sum = n.sum.data() + at;
            sums[i].grad = n.grads.data() + at;
            sums[i].dtype = ZOFF_F32;
            sums[i].sources = i; // one by default, then two
            sums[i].stride = COUNT * sizeof(float);
            sums[i].weights = i == 1 ? nullptr : factors[i];
            casts[i] = {count, n.wide.data() + at, n.half.data() + at, ZOFF_F32, ZOFF_BF16};
            norms[i] = {count, n.grads.data() + at, ZOFF_F32, n.blocks.data() + i};
        }
    }
};

class AccelEmulatedKernels : public held_stream
{
  protected:
    std::vector<std::function<zoff_status()>> calls(const lists &l)
    {
        return {[&] { return ops.kernels.update(device.get(), stream, l.updates, PIECES); },
                [&] { return ops.kernels.accumulate(device.get(), stream, l.sums, PIECES); },
                [&] { return ops.kernels.cast(device.get(), stream, l.casts, PIECES); },
                [&] { return ops.kernels.square_sum(device.get(), stream, l.norms, PIECES); }};
    }
};
} // namespace

TEST_F(AccelEmulatedKernels, ListsAreTheCallersAgain)
{
    numbers there, here;
    lists given(there), same(here);
    hold();
    for (const auto &call : calls(given))
        ASSERT_ZOFF_OK(call());
    memset(static_cast<void *>(&given), 0x7f, sizeof given); // before the stream reads any of it
    EXPECT_TRUE(there == here) << "the stream has not begun";
    let_go = true;
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device.get(), stream));
    zoff_adam_update_run(1, same.updates, PIECES, nullptr, nullptr);
    zoff_adam_accumulate_run(1, same.sums, PIECES, nullptr, nullptr);
    zoff_adam_cast_run(1, same.casts, PIECES);
    zoff_adam_norm_run(1, same.norms, PIECES, nullptr, nullptr);
    EXPECT_EQ(here.p, there.p);
    EXPECT_EQ(here.sum, there.sum);
    EXPECT_EQ(here.wide, there.wide);
    EXPECT_EQ(here.blocks, there.blocks);
    EXPECT_TRUE(here == there);
    EXPECT_FALSE(there == numbers()) << "nothing was computed";
}

TEST_F(AccelEmulatedKernels, AnEmptyListTakesNoMemory)
{
    memory_fault fault;
    fault.fail_allocation = 1;
    EXPECT_ZOFF_OK(ops.kernels.update(device.get(), stream, nullptr, 0));
    EXPECT_ZOFF_OK(ops.kernels.accumulate(device.get(), stream, nullptr, 0));
    EXPECT_ZOFF_OK(ops.kernels.cast(device.get(), stream, nullptr, 0));
    EXPECT_ZOFF_OK(ops.kernels.square_sum(device.get(), stream, nullptr, 0));
    EXPECT_EQ(0, fault.allocations);
}

// The nth allocation of each call fails, for n = 1, 2, ... until none does. The stream's queue is full, so it allocates, too.
TEST_F(AccelEmulatedKernels, WhereMemoryIsShortNothingIsBegun)
{
    const int wanted[] = {4, 4, 3, 3}; // the work, the list, constants or factors, the queue
    for (size_t which = 0; which < 4; which++) {
        numbers there;
        const lists given(there);
        const auto call = calls(given)[which];
        for (int nth = 1; nth <= wanted[which]; nth++) {
            hold();
            for (bool is_full = false; !is_full;) {
                memory_fault fault;
                fault.fail_allocation = 1;
                is_full = ops.streams.call(
                              device.get(), stream, [](void *) {}, nullptr) < 0;
            }
            {
                memory_fault fault;
                fault.fail_allocation = nth;
                EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, nth == wanted[which] ? "a stream's queue" : "the work of a stream",
                                  call());
                EXPECT_EQ(nth, fault.allocations) << "and goes on";
            }
            let_go = true;
            ASSERT_ZOFF_OK(zoff_accel_stream_wait(device.get(), stream));
            EXPECT_TRUE(there == numbers()) << "kernel " << which << ", allocation " << nth;
        }
        ASSERT_ZOFF_OK(call());
        ASSERT_ZOFF_OK(zoff_accel_stream_wait(device.get(), stream));
        EXPECT_FALSE(there == numbers()) << "the device goes on working";
    }
}
