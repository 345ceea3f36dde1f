// trainer.h: a trainer without a network: tensors with random gradients, in the caller's memory as an engine wants them and,
// beside it, as the reference wants them. Strides have gaps, bases are aligned to their element and no more.
#ifndef ZOFF_TRAINER_H
#define ZOFF_TRAINER_H

#include "accel_fault.h"
#include "reference.h"

#include <algorithm>
#include <random>
#include <utility>

namespace zoff_test
{
class trainer
{
  public:
    explicit trainer(unsigned seed) : random(seed) {}

    // Add a tensor; gaps of `gap` elements between its slices.
    void add(size_t count, size_t slices, zoff_dtype dtype, zoff_dtype grad_dtype, unsigned group = 0, bool frozen = false,
             size_t gap = 0)
    {
        reference::tensor t;
        t.count = count;
        t.slices = slices;
        t.dtype = dtype;
        t.grad_dtype = grad_dtype;
        t.group = group;
        t.frozen = frozen;
        t.master.resize(t.total());
        t.m.assign(t.total(), 0.0f);
        t.v.assign(t.total(), 0.0f);
        t.sum.assign(t.total(), 0.0f);
        t.present.assign(slices, false);
        storage s;
        s.stride = count + gap;
        // One element of slack in front: only element alignment is promised.
        s.value.resize((s.stride * slices + 1) * size(dtype));
        s.grad.resize((s.stride * slices + 1) * size(grad_dtype));
        tensors.push_back(t);
        stores.push_back(s);
        size_t index = tensors.size() - 1;
        for (size_t k = 0; k < t.total(); k++) {
            float x = normal(random) * 0.02f;
            put(value(index), dtype, place(index, k), x);
            tensors[index].master[k] = get(value(index), dtype, place(index, k));
        }
    }

    char *value(size_t i) { return stores[i].value.data() + size(tensors[i].dtype); }
    char *grad(size_t i) { return stores[i].grad.data() + size(tensors[i].grad_dtype); }

    zoff_param_desc desc(size_t i)
    {
        zoff_param_desc d = {};
        d.struct_size = sizeof d;
        d.value = value(i);
        d.grad = grad(i);
        d.count = tensors[i].count;
        d.slices = tensors[i].slices;
        d.value_stride = d.grad_stride = stores[i].stride;
        d.dtype = tensors[i].dtype;
        d.grad_dtype = tensors[i].grad_dtype;
        d.group = tensors[i].group;
        d.frozen = tensors[i].frozen;
        d.engine_owned = stores[i].owned;
        if (stores[i].borrows_grad)
            d.grad = nullptr;
        if (device) {
            d.value = stores[i].device_value + size(tensors[i].dtype);
            d.grad = device_grad(i);
        }
        return d;
    }

    // Leave the weights of a tensor to the engine: the caller's memory has the first ones, and what fetch_all() brings.
    void give_away(size_t i) { stores[i].owned = true; }
    bool is_given_away(size_t i) const { return stores[i].owned; }

    // Leave its gradients to the engine too: hand_over() copies them to where it lends memory for them.
    void give_away_grad(size_t i) { stores[i].borrows_grad = true; }

    // Weights and gradients are memory of a device; value() and grad() are what was copied from there, and what goes there.
    // Gradients are garbage there but for the time between their backward pass and the end of the step.
    void put_on(test_device *device_)
    {
        device = device_;
        on_device = device->memory();
        for (auto &s : stores) {
            const std::vector<char> garbage(s.grad.size(), (char)0x7f);
            s.device_grad = on_device->alloc(s.grad.size());
            s.device_value = on_device->alloc(s.value.size());
            device->copy(s.device_grad, garbage.data(), garbage.size());
            device->copy(s.device_value, s.value.data(), s.value.size());
        }
    }
    // All of what is there where the gradients of a tensor come to be.
    std::vector<char> gradients_there(size_t i)
    {
        std::vector<char> all(stores[i].grad.size());
        device->copy(all.data(), stores[i].device_grad, all.size());
        return {all.begin() + (long)size(tensors[i].grad_dtype), all.end()};
    }

    // After a step with ZOFF_STEP_ZERO_GRADS.
    void expect_zero_gradients_there()
    {
        for (size_t i = 0; i < tensors.size(); i++) {
            const std::vector<char> there = gradients_there(i);
            for (size_t k = 0; !tensors[i].frozen && k < tensors[i].total(); k++)
                ASSERT_EQ(0.0f, get(there.data(), tensors[i].grad_dtype, place(i, k))) << i << ", " << k;
        }
    }

    // Slices that have a gradient, first to last.
    std::vector<std::pair<size_t, size_t>> present() const
    {
        std::vector<std::pair<size_t, size_t>> all;
        for (size_t i = 0; i < tensors.size(); i++) {
            for (size_t slice = 0; slice < tensors[i].slices; slice++) {
                if (tensors[i].present[slice])
                    all.emplace_back(i, slice);
            }
        }
        return all;
    }
    // The backward pass of a slice, in the trainer's stream. Of a frozen one nobody would wait for it.
    void launch(size_t i, size_t slice)
    {
        const size_t bytes = size(tensors[i].grad_dtype), from = slice * stores[i].stride * bytes;
        const size_t all = tensors[i].count * bytes;
        if (all && !tensors[i].frozen)
            device->launch_copy(device_grad(i) + from, grad(i) + from, all);
    }
    void launch_all()
    {
        for (size_t i = 0; i < tensors.size(); i++) {
            for (size_t slice = 0; slice < tensors[i].slices; slice++)
                launch(i, slice);
        }
    }

    // The gradient of a slice is there.
    void hand_over(zoff_engine *e, size_t i, size_t slice)
    {
        const size_t bytes = size(tensors[i].grad_dtype);
        if (device) {
            launch(i, slice);
            ASSERT_ZOFF_OK(zoff_grad_ready(e, (zoff_param)i, slice, device->stream));
            return;
        }
        if (stores[i].borrows_grad && !tensors[i].frozen) {
            void *lent = nullptr, *again = nullptr;
            ASSERT_ZOFF_OK(zoff_grad_acquire(e, (zoff_param)i, slice, nullptr, &lent));
            ASSERT_ZOFF_OK(zoff_grad_acquire(e, (zoff_param)i, slice, nullptr, &again));
            ASSERT_EQ(lent, again);
            ASSERT_EQ(0u, (size_t)lent % 64);
            for (size_t k = 0; k < tensors[i].count * bytes; k++)
                ASSERT_EQ(0, ((const char *)lent)[k]);
            if (tensors[i].count)
                memcpy(lent, grad(i) + slice * stores[i].stride * bytes, tensors[i].count * bytes);
        }
        ASSERT_ZOFF_OK(zoff_grad_ready(e, (zoff_param)i, slice, nullptr));
    }

    // All of them, as a backward pass does: last to first.
    void hand_over_all(zoff_engine *e)
    {
        for (size_t i = tensors.size(); i-- > 0;) {
            for (size_t slice = tensors[i].slices; slice-- > 0;)
                hand_over(e, i, slice);
        }
    }

    // What a forward pass sees: each slice of the engine's weights, lent one at a time, first to last or last to first.
    void fetch_all(zoff_engine *e, bool backwards = false)
    {
        std::vector<std::pair<size_t, size_t>> order;
        for (size_t i = 0; i < tensors.size(); i++) {
            for (size_t slice = 0; stores[i].owned && slice < tensors[i].slices; slice++)
                order.emplace_back(i, slice);
        }
        if (backwards)
            std::reverse(order.begin(), order.end());
        for (auto [i, slice] : order) {
            const void *lent = nullptr;
            ASSERT_ZOFF_OK(zoff_param_fetch(e, (zoff_param)i, slice, nullptr, &lent));
            ASSERT_EQ(0u, (size_t)lent % 64);
            const size_t bytes = size(tensors[i].dtype);
            if (tensors[i].count)
                memcpy(value(i) + slice * stores[i].stride * bytes, lent, tensors[i].count * bytes);
            ASSERT_ZOFF_OK(zoff_param_release(e, (zoff_param)i, slice, nullptr));
        }
    }

    std::vector<zoff_param_desc> descs()
    {
        std::vector<zoff_param_desc> all;
        for (size_t i = 0; i < tensors.size(); i++)
            all.push_back(desc(i));
        return all;
    }

    // New gradients for one slice, in the caller's buffer and added to the reference's sum (fp32, in the order of micro-steps).
    void backward(size_t i, size_t slice, float scale)
    {
        auto &t = tensors[i];
        for (size_t k = slice * t.count; k < (slice + 1) * t.count; k++) {
            const float x = normal(random) * scale;
            put(grad(i), t.grad_dtype, place(i, k), whole_gradients ? nearbyintf(x) : x);
            float g = get(grad(i), t.grad_dtype, place(i, k));
            t.sum[k] = t.present[slice] ? t.sum[k] + g : g;
        }
        t.present[slice] = true;
    }

    void backward_all(float scale)
    {
        for (size_t i = 0; i < tensors.size(); i++) {
            for (size_t slice = 0; slice < tensors[i].slices; slice++)
                backward(i, slice, scale);
        }
    }

    void next_step()
    {
        for (auto &t : tensors)
            t.present.assign(t.slices, false);
    }

    // Other weights, as a process has that starts anew. Frozen ones stay: they are in no engine.
    void scramble()
    {
        for (size_t i = 0; i < tensors.size(); i++) {
            for (size_t k = 0; !tensors[i].frozen && k < tensors[i].total(); k++)
                put(value(i), tensors[i].dtype, place(i, k), 0.125f + (float)(k % 13));
            if (device)
                device->copy(stores[i].device_value, stores[i].value.data(), stores[i].value.size());
        }
    }

    // The caller's weights are the reference's masters, rounded.
    void expect_weights()
    {
        for (size_t i = 0; i < tensors.size(); i++) {
            if (device)
                device->copy(stores[i].value.data(), stores[i].device_value, stores[i].value.size());
            for (size_t k = 0; k < tensors[i].total(); k++) {
                float want = reference::rounded(tensors[i].dtype, tensors[i].master[k]);
                float have = get(value(i), tensors[i].dtype, place(i, k));
                ASSERT_EQ(0, memcmp(&want, &have, sizeof want))
                    << "weight " << k << " of tensor " << i << ": " << have << " != " << want;
            }
        }
    }

    // The engine's states are the reference's; what the optimizers of the groups do not keep (none given: Adam) it does not
    // have.
    void expect_states(zoff_engine *e, const std::vector<zoff_adam_hyper> &groups = {})
    {
        for (size_t i = 0; i < tensors.size(); i++) {
            auto &t = tensors[i];
            if (t.frozen)
                continue;
            expect_state(e, i, ZOFF_STATE_MASTER, t.master);
            expect_moment(e, i, ZOFF_STATE_M, t.m, groups.empty() || reference::keeps_m(groups[t.group]));
            expect_moment(e, i, ZOFF_STATE_V, t.v, groups.empty() || reference::keeps_v(groups[t.group]));
        }
    }

    size_t place(size_t i, size_t k) const { return k / tensors[i].count * stores[i].stride + k % tensors[i].count; }
    static size_t size(zoff_dtype dtype) { return dtype == ZOFF_F32 ? 4 : 2; }

    static float get(const char *base, zoff_dtype dtype, size_t index)
    {
        float f;
        uint16_t h;
        if (dtype == ZOFF_F32) {
            memcpy(&f, base + 4 * index, 4);
            return f;
        }
        memcpy(&h, base + 2 * index, 2);
        return reference::from_16(dtype, h);
    }

    static void put(char *base, zoff_dtype dtype, size_t index, float f)
    {
        uint16_t h = reference::to_16(dtype, f);
        if (dtype == ZOFF_F32)
            memcpy(base + 4 * index, &f, 4);
        else
            memcpy(base + 2 * index, &h, 2);
    }

    std::vector<reference::tensor> tensors;
    std::mt19937 random;
    bool whole_gradients = false; // small integers: any order of a sum has the same bits

  private:
    struct storage {
        std::vector<char> value, grad;
        char *device_grad = nullptr, *device_value = nullptr; // where they are on a device
        size_t stride;
        bool owned = false;        // by the engine
        bool borrows_grad = false; // from the engine
    };

    void expect_state(zoff_engine *e, size_t i, zoff_state_kind kind, const std::vector<float> &want)
    {
        std::vector<float> have(want.size());
        ASSERT_ZOFF_OK(zoff_state_read(e, (zoff_param)i, kind, 0, have.size(), have.data()));
        for (size_t k = 0; k < want.size(); k++)
            ASSERT_EQ(0, memcmp(&want[k], &have[k], 4))
                << "state " << kind << " of tensor " << i << ", element " << k << ": " << have[k] << " != " << want[k];
    }

    void expect_moment(zoff_engine *e, size_t i, zoff_state_kind kind, const std::vector<float> &want, bool kept)
    {
        if (kept) {
            expect_state(e, i, kind, want);
        } else {
            float one;
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "which has no ", zoff_state_read(e, (zoff_param)i, kind, 0, 0, &one));
        }
    }

    char *device_grad(size_t i) { return stores[i].device_grad + size(tensors[i].grad_dtype); }

    test_device *device = nullptr;
    std::vector<storage> stores;
    std::shared_ptr<device_memory> on_device; // behind what it is about
    std::normal_distribution<float> normal;
};

// The tensors of most tests: sizes 0 and 1, odd ones, one block and its neighbours, slices with gaps, two groups, a frozen one.
inline void add_awkward(trainer &t, zoff_dtype dtype, zoff_dtype grad_dtype)
{
    t.add(1, 1, dtype, grad_dtype);
    t.add(7, 3, dtype, grad_dtype, 1, false, 5);
    t.add(0, 1, dtype, grad_dtype);
    t.add(1023, 1, dtype, grad_dtype, 1);
    t.add(500, 2, dtype, grad_dtype, 0, true);
    t.add(1024, 2, dtype, grad_dtype);
    t.add(1025, 1, dtype, grad_dtype, 1);
    t.add(0, 3, dtype, grad_dtype, 1);
    t.add(33333, 1, dtype, grad_dtype);
    t.add(2111, 4, dtype, grad_dtype, 0, false, 1);
    t.add(1, 5, dtype, grad_dtype, 1, false, 2);
}
} // namespace zoff_test

#endif
