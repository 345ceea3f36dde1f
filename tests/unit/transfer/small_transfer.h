// small_transfer.h: a rank with parameters, gradients and a plan, and the context that moves them, filled in as in an engine.
// The bits of weights and gradients depend on rank, parameter, slice, element and round.
#ifndef ZOFF_SMALL_TRANSFER_H
#define ZOFF_SMALL_TRANSFER_H

#include "rank_channel.h"
#include "reference.h"
#include "small_model.h"

extern "C" {
#include "transfer.h"
}

#include <string.h>

namespace zoff_test
{
// Elements of a type, as floats and as bits.
inline void put(zoff_dtype dtype, char *at, size_t k, float value)
{
    const uint16_t half = dtype == ZOFF_F32 ? 0 : reference::to_16(dtype, value);
    if (dtype == ZOFF_F32)
        memcpy(at + 4 * k, &value, 4);
    else
        memcpy(at + 2 * k, &half, 2);
}
inline float get(zoff_dtype dtype, const char *at, size_t k)
{
    float value;
    uint16_t half;
    if (dtype == ZOFF_F32) {
        memcpy(&value, at + 4 * k, 4);
        return value;
    }
    memcpy(&half, at + 2 * k, 2);
    return reference::from_16(dtype, half);
}
// Element k of a slice in a round, on a rank.
inline float number(unsigned rank, size_t param, size_t slice, size_t k, unsigned round)
{
    const uint32_t bits = (uint32_t)(k + 1 + 1009 * slice + 70001 * param + 9000011 * rank + 60000011 * round) * 2654435761u;
    return (float)((int)(bits >> 12) % 20011 - 10005) / 7.0f;
}

class small_transfer
{
  public:
    // `ranks`: NULL: a single rank. `device`: NULL: weights and gradients are on the host.
    explicit small_transfer(zoff_comm *ranks = nullptr, zoff_accel *device = nullptr)
        : alone(ranks ? nullptr : open_alone()), host(device ? nullptr : open_host()), wire(ranks ? ranks : alone.get()),
          values(parts.values)
    {
        values.accumulation = 1;
        values.grad_factor = values.ratio = 1;
        l.model = t.model = &parts.m;
        l.plan = t.plan = &parts.plan;
        l.values = &values.weights;
        l.comm = t.comm = wire.ranks;
        l.channel = t.channel = &wire.channel;
        l.progress = t.progress = &progress;
        l.pollers.ranks = &t.pollers.ranks;
        t.lending = &l;
        t.values = &values;
        t.accel = device ? device : host.get();
        t.info = &info;
        EXPECT_ZOFF_OK(zoff_transfer_route_choose(&t));
        t.threads = {1, 1, 0};
        parts.m.in_place = !device;
        choose();
    }
    ~small_transfer() { close(); }
    small_transfer(const small_transfer &) = delete;

    // A parameter with weights and, unless the engine lends memory for them, gradients.
    zoff_param add(size_t count, size_t slices = 1, zoff_dtype dtype = ZOFF_F32, zoff_dtype grad_dtype = ZOFF_F32,
                   bool frozen = false, bool has_grad = true)
    {
        const size_t gap = 3, i = parts.m.param_count;
        zoff_param_desc d = describe("p", count, slices);
        d.value = make_memory((count + gap) * slices * 4 + 4);
        d.grad = has_grad && !frozen ? make_memory((count + gap) * slices * 4 + 4) : nullptr;
        d.value_stride = d.grad_stride = count + gap;
        d.dtype = dtype;
        d.grad_dtype = grad_dtype;
        d.frozen = frozen;
        for (size_t slice = 0; slice < slices; slice++) {
            for (size_t k = 0; k < count; k++)
                put(dtype, (char *)d.value, slice * (count + gap) + k, number(wire.rank(), i, slice, k, 1000));
        }
        return parts.add(d);
    }

    // Choose by the current values.
    void choose(bool replicated = false)
    {
        values.zero_stage = replicated ? 0 : std::max(1u, (unsigned)values.zero_stage);
        zoff_transfer_route_choose_rest(&t);
    }

    // Make the plan, and the memory that every rank has.
    void open_pieces(size_t chunk_elements, bool replicated = false)
    {
        parts.make_plan(chunk_elements, wire.rank(), wire.size(), replicated);
        choose(replicated);
        ASSERT_ZOFF_OK(zoff_model_slices_open(&parts.m, &parts.plan));
        ASSERT_ZOFF_OK(zoff_transfer_pieces_open(&t));
        ASSERT_ZOFF_OK(zoff_transfer_arena_open(&t, &t.grads, false, 0));
    }
    // Open everything, in the order of an engine.
    void open(size_t chunk_elements, bool replicated = false)
    {
        ASSERT_NO_FATAL_FAILURE(open_pieces(chunk_elements, replicated));
        ASSERT_NO_FATAL_FAILURE(wire.open());
        zoff_transfer_wire_measure(&t);
        ASSERT_ZOFF_OK(zoff_transfer_ranks_open(&t));
        zoff_transfer_streams_watch(&t);
        ASSERT_ZOFF_OK(t.route.link->memory.open(&t));
        ASSERT_ZOFF_OK(zoff_transfer_intake_open(&t));
    }
    void close()
    {
        zoff_transfer_ranks_abandon(&t);
        if (t.device.synced) {
            EXPECT_TRUE(zoff_transfer_streams_end(&t));
        }
        zoff_transfer_device_close(&t);
        zoff_transfer_intake_close(&t);
        zoff_model_slices_close(&parts.m);
        zoff_transfer_ranks_close_wire(&t);
        zoff_transfer_arena_close(&t, &t.grads);
        zoff_transfer_ranks_close(&t);
        zoff_transfer_streams_unwatch(&t);
        zoff_transfer_pieces_close(&t);
    }

    const zoff_model_param &param(size_t p) const { return parts.m.params[p]; }
    size_t number_of(size_t p, size_t slice) const { return param(p).first_flag + slice; }
    uint8_t &flag(size_t p, size_t slice = 0) { return parts.m.flags[number_of(p, slice)]; }

    // The gradients of a slice for a round.
    void make_gradient(size_t p, size_t slice, unsigned round)
    {
        for (size_t k = 0; k < param(p).count; k++)
            put(param(p).grad_dtype, param(p).grad + slice * param(p).grad_stride, k, number(wire.rank(), p, slice, k, round));
    }
    // A rank's gradient, rounded to its type.
    float gradient(unsigned rank, size_t p, size_t slice, size_t k, unsigned round) const
    {
        return reference::rounded(param(p).grad_dtype, number(rank, p, slice, k, round));
    }
    std::vector<zoff_plan_piece> pieces() const { return {parts.plan.pieces, parts.plan.pieces + parts.plan.piece_count}; }

    handle<zoff_comm, zoff_comm_close> alone;
    handle<zoff_accel, zoff_accel_close> host;
    rank_channel wire;
    small_model parts;
    zoff_config_values &values;
    std::function<char *(size_t bytes)> make_memory = [this](size_t bytes) {
        memory.emplace_back(bytes);
        return memory.back().data();
    };
    zoff_progress progress = {};
    zoff_step_info info = {};
    zoff_lending l = {};
    zoff_transfer t = {};

  private:
    std::vector<std::vector<char>> memory;
    static zoff_comm *open_alone()
    {
        zoff_comm *made = nullptr;
        zoff_comm_opts opts = {};
        opts.struct_size = sizeof opts;
        EXPECT_ZOFF_OK(zoff_comm_open_threads(&opts, 1, &made));
        return made;
    }
    static zoff_accel *open_host()
    {
        zoff_accel *made = nullptr;
        EXPECT_ZOFF_OK(zoff_accel_open("host", 0, &made));
        return made;
    }
};

// Whole numbers: the sum of their squares needs no rounding, and so a plain loop has the same bits.
inline double fill_with_integers(small_transfer &self, size_t p, size_t slice)
{
    double squares = 0;
    for (size_t k = 0; k < self.param(p).count; k++) {
        const float g = (float)((int)(k * 41 + slice * 13 + p * 7) % 29 - 14);
        put(self.param(p).grad_dtype, self.param(p).grad + slice * self.param(p).grad_stride, k, g);
        squares += (double)g * g;
    }
    return squares;
}
} // namespace zoff_test

#endif
