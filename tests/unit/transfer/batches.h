// batches.h: micro-batches of several ranks, as an engine takes them, and the sums of the same gradients by a plain loop. Also
// updates whose weights go to all ranks.
#ifndef ZOFF_BATCHES_H
#define ZOFF_BATCHES_H

#include "small_transfer.h"

#include <math.h>

namespace zoff_test
{
// Whether a rank has a gradient of a slice in a round.
inline bool has_gradient(unsigned rank, size_t param, size_t slice, unsigned round)
{
    return (rank * 5 + param * 3 + slice * 7 + round) % 4 != 0;
}

class batches
{
  public:
    explicit batches(small_transfer &self_) : self(self_) {}

    // A micro-batch of this rank with this weight; gradients come from the last slice to the first.
    void run(unsigned round, double weight = 1)
    {
        begin(weight);
        each_gradient(round, [&](size_t p, size_t slice) { hand_over(p, slice, round); });
        end();
    }
    void each_gradient(unsigned round, const std::function<void(size_t p, size_t slice)> &look) const
    {
        for (size_t p = self.parts.m.param_count; p-- > 0;) {
            for (size_t slice = self.param(p).slices; slice-- > 0;) {
                if (!self.param(p).frozen && has_gradient(self.wire.rank(), p, slice, round))
                    look(p, slice);
            }
        }
    }
    void begin(double weight = 1)
    {
        zoff_transfer_reduce_scatter_begin(&self.t);
        zoff_transfer_reduce_scatter_weigh(&self.t, weight);
    }
    void hand_over(size_t p, size_t slice, unsigned round)
    {
        ASSERT_NO_FATAL_FAILURE(take(p, slice, round));
        self.t.route.link->taken(&self.t, (zoff_param)p, slice);
    }
    // The same without telling its bucket.
    void take(size_t p, size_t slice, unsigned round)
    {
        char *at = self.param(p).grad + slice * self.param(p).grad_stride;
        const zoff_dtype dtype = self.param(p).grad_dtype;
        const size_t bytes = self.param(p).count * zoff_adam_dtype_bytes(dtype);
        if (!self.param(p).grad) {
            ASSERT_ZOFF_OK(zoff_transfer_intake_lend(&self.t, self.t.route.lent, self.number_of(p, slice), bytes, &at));
        }
        for (size_t k = 0; k < self.param(p).count; k++)
            put(dtype, at, k, number(self.wire.rank(), p, slice, k, round));
        ASSERT_ZOFF_OK(zoff_transfer_intake_take(&self.t, (zoff_param)p, slice, nullptr));
    }
    // No more gradients come; wait for the sums.
    void end()
    {
        zoff_transfer_reduce_scatter_close(&self.t);
        ASSERT_ZOFF_OK(zoff_transfer_reduce_scatter_finish(&self.t));
        for (size_t i = 0; i < self.parts.m.slice_count; i++)
            self.parts.m.flags[i] = self.parts.m.flags[i] ? ZOFF_SLICE_PRESENT : 0;
        self.t.batch.micro++;
    }

    small_transfer &self;
};

// The sum of an element: micro-batch by micro-batch, rank by rank, multiplied by weights without rounding.
inline float sum_of(const small_transfer &self, size_t p, size_t slice, size_t k, unsigned rounds,
                    const std::function<double(unsigned rank, unsigned round)> &weight)
{
    const zoff_dtype wire = self.values.wire_dtype;
    float sum = 0;
    for (unsigned round = 0; round < rounds; round++) {
        for (unsigned rank = 0; rank < self.wire.size(); rank++) {
            float g = has_gradient(rank, p, slice, round) ? self.gradient(rank, p, slice, k, round) : 0.0f;
            g = wire != ZOFF_DTYPE_DEFAULT ? reference::rounded(wire, g) : g;
            const float w = (float)(weight(rank, round) * self.values.grad_factor);
            sum = round == 0 && rank == 0 ? w * g : fmaf(w, g, sum);
        }
    }
    return sum;
}

// This rank's part of all buckets.
inline void each_own_piece(const small_transfer &self, const std::function<void(const zoff_plan_piece &piece)> &look)
{
    for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
        const zoff_plan_span own = zoff_zero_plan_own(&self.parts.plan, b);
        for (size_t i = 0; i < own.piece_count; i++) {
            if (!self.param(self.parts.plan.pieces[own.first_piece + i].param).frozen)
                look(self.parts.plan.pieces[own.first_piece + i]);
        }
    }
}

// The owner's new value of an element after a step.
inline float updated(size_t p, size_t slice, size_t k, unsigned step)
{
    return number(99, p, slice, k, step);
}

inline char *value(const small_transfer &self, size_t p, size_t slice)
{
    return self.param(p).value + slice * self.param(p).value_stride;
}

// The update: each rank writes its own part.
inline void update(small_transfer &self, unsigned step)
{
    each_own_piece(self, [&](const zoff_plan_piece &piece) {
        if (!self.flag(piece.param, piece.slice))
            return;
        for (size_t k = piece.first; k < piece.first + piece.count; k++)
            put(self.param(piece.param).dtype, value(self, piece.param, piece.slice), k,
                updated(piece.param, piece.slice, k, step));
    });
}

inline void expect_updated(small_transfer &self, size_t p, size_t slice, unsigned step)
{
    const zoff_dtype dtype = self.param(p).dtype;
    for (size_t k = 0; k < self.param(p).count; k++)
        EXPECT_EQ(reference::rounded(dtype, updated(p, slice, k, step)), get(dtype, value(self, p, slice), k))
            << "parameter " << p << ", slice " << slice << ", element " << k;
}

// The rows of a step.
inline void gather(small_transfer &self, zoff_status (*row)(void *ctx, zoff_bucket_run *run))
{
    self.t.batch.spread = self.t.batch.updated = 0;
    for (size_t b = 0; b < self.parts.plan.chunk_count; b++) {
        zoff_status status;
        self.t.walk.runs[b].chunk = b;
        self.t.walk.runs[b].shared = false;
        while ((status = row(&self.t, &self.t.walk.runs[b])) == ZOFF_PENDING)
            std::this_thread::yield();
        ASSERT_ZOFF_OK(status);
    }
    ASSERT_ZOFF_OK(zoff_transfer_all_gather_finish(&self.t));
}

// Parameters of all types; the last one has no gradient buffer of the program.
inline void add_all_types(small_transfer &self)
{
    self.add(50, 3, ZOFF_BF16, ZOFF_BF16);
    self.add(200, 1, ZOFF_F32, ZOFF_F32);
    self.add(30, 2, ZOFF_F32, ZOFF_F32, true);
    self.add(1, 5, ZOFF_F32, ZOFF_F16);
    self.add(0, 2);
    self.add(77, 2, ZOFF_F16, ZOFF_F32, false, false);
}
} // namespace zoff_test

#endif
