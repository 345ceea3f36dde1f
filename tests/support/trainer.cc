/* SPDX-License-Identifier: Apache-2.0 */
// trainer.cc: implements trainer.h.
#include "trainer.h"

#include <algorithm>

namespace zoff_test
{
void trainer::add(size_t count, size_t slices, zoff_dtype dtype, zoff_dtype grad_dtype, unsigned group, bool frozen, size_t gap)
{
    reference::tensor t;
    t.count = count;
    t.slices = slices;
    t.dtype = dtype;
    t.grad_dtype = grad_dtype;
    t.group = group;
    t.frozen = frozen;
    t.name = "param" + std::to_string(tensors.size());
    t.master.resize(t.total());
    t.m.assign(t.total(), 0.0f);
    t.v.assign(t.total(), 0.0f);
    t.sum.assign(t.total(), 0.0f);
    t.present.assign(slices, false);
    storage s;
    s.stride = count + gap;
    // One spare element, so that the base can be aligned to an element and no more: that is all that the API requires.
    s.value.resize((s.stride * slices + 1) * size(dtype));
    s.grad.resize((s.stride * slices + 1) * size(grad_dtype));
    tensors.push_back(t);
    stores.push_back(s);
    size_t index = tensors.size() - 1;
    for (size_t k = 0; k < t.total(); k++) {
        float x = random.normal() * 0.02f;
        put(value(index), dtype, place(index, k), x);
        tensors[index].master[k] = get(value(index), dtype, place(index, k));
    }
}

void trainer::shape(size_t i, std::vector<size_t> dims, std::vector<reference::matrix> matrices)
{
    stores[i].dims = dims;
    tensors[i].matrices = matrices;
}

zoff_param_desc trainer::desc(size_t i)
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
    d.dims = stores[i].dims.data();
    d.dim_count = stores[i].dims.size();
    if (device && !stores[i].owned) /* the first weights of the engine are in host memory */
        d.value = stores[i].device_value + size(tensors[i].dtype);
    if (device)
        d.grad = device_grad(i);
    if (stores[i].borrows_grad)
        d.grad = nullptr;
    return d;
}

void trainer::give_all_away()
{
    for (size_t i = 0; i < tensors.size(); i++) {
        give_away(i);
        if (!tensors[i].frozen)
            give_away_grad(i);
    }
}

void trainer::put_on(test_device *device_)
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

std::vector<char> trainer::gradients_there(size_t i)
{
    std::vector<char> all(stores[i].grad.size());
    device->copy(all.data(), stores[i].device_grad, all.size());
    return {all.begin() + (long)size(tensors[i].grad_dtype), all.end()};
}

void trainer::expect_zero_gradients_there()
{
    for (size_t i = 0; i < tensors.size(); i++) {
        const std::vector<char> there = gradients_there(i);
        for (size_t k = 0; !tensors[i].frozen && k < tensors[i].total(); k++) {
            if (get(there.data(), tensors[i].grad_dtype, place(i, k)) != 0)
                FAIL() << "gradient " << k << " of tensor " << i << " is not zero";
        }
    }
}

std::vector<std::pair<size_t, size_t>> trainer::present() const
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

void trainer::launch(size_t i, size_t slice)
{
    const size_t bytes = size(tensors[i].grad_dtype), from = slice * stores[i].stride * bytes;
    const size_t all = tensors[i].count * bytes;
    if (all && !tensors[i].frozen)
        device->launch_copy(device_grad(i) + from, grad(i) + from, all);
}

void trainer::launch_into_lent(zoff_engine *e, size_t i, size_t slice)
{
    const size_t bytes = size(tensors[i].grad_dtype), all = tensors[i].count * bytes;
    void *lent = nullptr, *again = nullptr;
    ASSERT_ZOFF_OK(zoff_grad_acquire(e, (zoff_param)i, slice, device->stream, &lent));
    ASSERT_ZOFF_OK(zoff_grad_acquire(e, (zoff_param)i, slice, device->stream, &again));
    ASSERT_EQ(lent, again);
    ASSERT_EQ(0u, (size_t)lent % 64);
    if (all && tensors[i].count < 2000) {
        std::vector<char> cleared(all, 1);
        device->copy(cleared.data(), lent, all);
        ASSERT_EQ(std::vector<char>(all), cleared) << "lent memory is not cleared";
    }
    if (all)
        device->launch_copy(lent, grad(i) + slice * stores[i].stride * bytes, all);
}

void trainer::launch_all()
{
    for (size_t i = 0; i < tensors.size(); i++) {
        for (size_t slice = 0; slice < tensors[i].slices; slice++)
            launch(i, slice);
    }
}

void trainer::hand_over(zoff_engine *e, size_t i, size_t slice)
{
    const size_t bytes = size(tensors[i].grad_dtype);
    if (device) {
        if (stores[i].borrows_grad && !tensors[i].frozen)
            ASSERT_NO_FATAL_FAILURE(launch_into_lent(e, i, slice));
        else
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
        for (size_t k = 0; k < tensors[i].count * bytes; k++) {
            if (((const char *)lent)[k] != 0)
                FAIL() << "lent memory contains " << (int)((const char *)lent)[k] << " at byte " << k;
        }
        if (tensors[i].count)
            memcpy(lent, grad(i) + slice * stores[i].stride * bytes, tensors[i].count * bytes);
    }
    ASSERT_ZOFF_OK(zoff_grad_ready(e, (zoff_param)i, slice, nullptr));
}

void trainer::wait_for_weights(zoff_engine *e, size_t first, size_t by)
{
    for (size_t i = first; i < tensors.size(); i += by) {
        for (size_t slice = 0; !stores[i].owned && slice < tensors[i].slices; slice++)
            ASSERT_ZOFF_OK(zoff_param_wait(e, (zoff_param)i, slice, device ? device->stream : nullptr));
    }
}

void trainer::hand_over_all(zoff_engine *e)
{
    for (size_t i = tensors.size(); i-- > 0;) {
        for (size_t slice = tensors[i].slices; slice-- > 0;)
            hand_over(e, i, slice);
    }
}

void trainer::fetch_all(zoff_engine *e, bool backwards)
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
        void *stream = device ? device->stream : nullptr;
        ASSERT_ZOFF_OK(zoff_param_fetch(e, (zoff_param)i, slice, stream, &lent));
        ASSERT_EQ(0u, (size_t)lent % 64);
        const size_t bytes = size(tensors[i].dtype), from = slice * stores[i].stride * bytes, all = tensors[i].count * bytes;
        if (device && all)
            device->launch_copy(stores[i].device_value + bytes + from, lent, all);
        else if (all)
            memcpy(value(i) + from, lent, all);
        ASSERT_ZOFF_OK(zoff_param_release(e, (zoff_param)i, slice, stream));
    }
}

std::vector<zoff_param_desc> trainer::descs()
{
    std::vector<zoff_param_desc> all;
    for (size_t i = 0; i < tensors.size(); i++)
        all.push_back(desc(i));
    return all;
}

void trainer::backward(size_t i, size_t slice, float scale)
{
    auto &t = tensors[i];
    const bool adds = t.present[slice];
    for (size_t k = slice * t.count; k < (slice + 1) * t.count; k++) {
        const float x = random.normal() * scale;
        put(grad(i), t.grad_dtype, place(i, k), whole_gradients ? nearbyintf(x) : x);
        float g = get(grad(i), t.grad_dtype, place(i, k));
        t.sum[k] = adds ? t.sum[k] + g : g;
    }
    t.present[slice] = true;
}

void trainer::backward_all(float scale)
{
    for (size_t i = 0; i < tensors.size(); i++) {
        for (size_t slice = 0; slice < tensors[i].slices; slice++)
            backward(i, slice, scale);
    }
}

void trainer::next_step()
{
    for (auto &t : tensors)
        t.present.assign(t.slices, false);
}

void trainer::scramble()
{
    for (size_t i = 0; i < tensors.size(); i++) {
        for (size_t k = 0; !tensors[i].frozen && k < tensors[i].total(); k++)
            put(value(i), tensors[i].dtype, place(i, k), 0.125f + (float)(k % 13));
        if (device)
            device->copy(stores[i].device_value, stores[i].value.data(), stores[i].value.size());
    }
}

void trainer::expect_weights()
{
    for (size_t i = 0; i < tensors.size(); i++) {
        if (device)
            device->copy(stores[i].value.data(), stores[i].device_value, stores[i].value.size());
        const zoff_dtype dtype = tensors[i].dtype;
        for (size_t k = 0; k < tensors[i].total(); k++) {
            const float want = reference::rounded(dtype, tensors[i].master[k]), have = get(value(i), dtype, place(i, k));
            if (memcmp(&want, &have, sizeof want) != 0)
                FAIL() << "weight " << k << " of tensor " << i << ": " << have << " != " << want;
        }
    }
}

void trainer::expect_states(zoff_engine *e, const std::vector<zoff_optimizer_hyper> &groups)
{
    for (size_t i = 0; i < tensors.size(); i++) {
        auto &t = tensors[i];
        if (t.frozen)
            continue;
        expect_state(e, i, ZOFF_STATE_MASTER, t.master);
        expect_moment(e, i, ZOFF_STATE_M, t.m, groups.empty() || reference::keeps_m(groups[t.group]));
        expect_moment(e, i, ZOFF_STATE_V, t.v, t.matrices.empty() && (groups.empty() || reference::keeps_v(groups[t.group])));
    }
}

float trainer::get(const char *base, zoff_dtype dtype, size_t index)
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

void trainer::put(char *base, zoff_dtype dtype, size_t index, float f)
{
    if (dtype == ZOFF_F32) {
        memcpy(base + 4 * index, &f, 4);
    } else {
        const uint16_t h = reference::to_16(dtype, f);
        memcpy(base + 2 * index, &h, 2);
    }
}

void trainer::expect_state(zoff_engine *e, size_t i, zoff_state_kind kind, const std::vector<float> &want)
{
    std::vector<float> have(want.size());
    ASSERT_ZOFF_OK(zoff_state_read(e, (zoff_param)i, kind, 0, have.size(), have.data()));
    for (size_t k = 0; k < want.size(); k++) {
        if (memcmp(&want[k], &have[k], 4) != 0)
            FAIL() << "state " << kind << " of tensor " << i << ", element " << k << ": " << have[k] << " != " << want[k];
    }
}

void trainer::expect_moment(zoff_engine *e, size_t i, zoff_state_kind kind, const std::vector<float> &want, bool kept)
{
    if (kept) {
        expect_state(e, i, kind, want);
    } else {
        float one;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "which has no ", zoff_state_read(e, (zoff_param)i, kind, 0, 0, &one));
    }
}

void add_awkward(trainer &t, zoff_dtype dtype, zoff_dtype grad_dtype)
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

void add_matrices(trainer &t, zoff_dtype dtype, zoff_dtype grad_dtype)
{
    const struct {
        std::vector<size_t> dims;
        size_t slices;
        std::vector<reference::matrix> matrices;
        unsigned group;
        size_t gap;
    } all[] = {
        {{700}, 1, {}, 0, 0},
        {{96, 64}, 2, {{0, 96, 64}}, 0, 3},
        {{4, 40, 24}, 1, {{0, 40, 24}, {960, 40, 24}, {1920, 40, 24}, {2880, 40, 24}}, 0, 0},
        {{33, 31}, 3, {{0, 33, 31}}, 0, 0},
        {{1025}, 2, {}, 1, 0},
        {{20, 3, 5, 5}, 1, {{0, 20, 75}}, 0, 0},
        {{64, 300}, 1, {{0, 64, 300}}, 0, 0},
        {{1, 50}, 1, {{0, 1, 50}}, 0, 0},
        {{96, 96}, 1, {{0, 96, 96}}, 1, 0},
        {{32, 64}, 4, {{0, 32, 64}}, 0, 0},
    };
    for (const auto &x : all) {
        size_t count = 1;
        for (const size_t d : x.dims)
            count *= d;
        t.add(count, x.slices, dtype, grad_dtype, x.group, false, x.gap);
        t.shape(t.tensors.size() - 1, x.dims, x.matrices);
    }
    t.add(64 * 32, 1, dtype, grad_dtype, 0, true);
    t.shape(t.tensors.size() - 1, {64, 32});
}
} // namespace zoff_test
