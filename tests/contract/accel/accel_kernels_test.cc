/* SPDX-License-Identifier: Apache-2.0 */
// accel_kernels_test.cc: the kernels of every accelerator must give the same bits as the CPU's, in device memory. Covers every
// rule, type and kind of weights, lists longer than one launch accepts, sizes around a block, and special values.
#include "../../kernels/every_rule.h"
#include "../../kernels/kernel_data.h"

#include "accel_under_test.h"
#include "covering.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>

using namespace zoff_test;

namespace
{
const size_t SIZES[] = {1, 31, 257, 1023, 1024, 1025, 3333, 20000};

bool is_nan(zoff_dtype dtype, const char *at)
{
    uint32_t bits = 0;
    memcpy(&bits, at, zoff_adam_dtype_bytes(dtype));
    if (dtype == ZOFF_F32)
        return (bits & 0x7fffffffu) > 0x7f800000u;
    return dtype == ZOFF_BF16 ? (bits & 0x7fffu) > 0x7f80u : (bits & 0x7fffu) > 0x7c00u;
}

class AccelKernels : public testing::Test
{
  protected:
    void SetUp() override
    {
        ASSERT_ZOFF_OK(zoff_accel_open(accel_under_test(), 0, &device));
        ops = device->ops;
        ASSERT_ZOFF_OK(zoff_accel_stream_open(device, &stream));
    }
    void TearDown() override
    {
        zoff_accel_stream_close(device, stream);
        for (void *memory : taken)
            ops->free(device, memory);
        zoff_accel_close(device);
    }
    // A host array and its copy on the device.
    struct array {
        std::vector<char> host;
        void *there = nullptr;
        zoff_dtype dtype = ZOFF_F32;
        void *here() { return host.data(); }
    };
    array make(size_t count, zoff_dtype dtype, bool nasties = true)
    {
        array a;
        a.dtype = dtype;
        std::vector<float> values(count);
        for (auto &x : values)
            x = nasties && random.next() % 16 == 0 ? kernel_data::nasty(random) : (float)random.unit();
        a.host.resize(count * zoff_adam_dtype_bytes(dtype));
        const zoff_cast_piece cast = {count, a.host.data(), values.data(), dtype, ZOFF_F32};
        zoff_adam_cast_run(1, &cast, 1);
        return a;
    }
    void send(array &a)
    {
        ASSERT_ZOFF_OK(ops->alloc(device, a.host.size() + 1, &a.there));
        taken.push_back(a.there);
        ASSERT_ZOFF_OK(ops->copy(device, stream, a.there, a.host.data(), a.host.size()));
        ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, stream)); /* the test changes the host array from here on */
    }
    // Download the device's array and compare it with the host array, which the CPU has updated in the meantime.
    void expect_same(array &a, const std::string &what)
    {
        std::vector<char> back(a.host.size());
        ASSERT_ZOFF_OK(ops->copy(device, stream, back.data(), a.there, back.size()));
        ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, stream));
        const size_t bytes = zoff_adam_dtype_bytes(a.dtype);
        for (size_t at = 0; at < back.size(); at += bytes) {
            if (memcmp(&back[at], &a.host[at], bytes) == 0)
                continue;
            /* The sign and payload of an fp32 NaN depend on the instruction set. A 16-bit NaN is fixed. */
            ASSERT_TRUE(a.dtype == ZOFF_F32 && is_nan(a.dtype, &back[at]) && is_nan(a.dtype, &a.host[at]))
                << what << ": element " << at / bytes;
        }
    }

    // Fill in gradients of which up to 13 in a block are far above the others. Each step has other ones, and some of them turn
    // back.
    void fill_with_spikes(array &a, size_t turn)
    {
        const zoff_dtype dtype = a.dtype;
        const size_t width = zoff_adam_dtype_bytes(dtype);
        for (size_t i = 0; i < a.host.size() / width; i++) {
            const size_t spike = i % 1024 % 79 == 3 ? i % 1024 / 79 : 1024;
            const bool is_large = spike < (i / 1024 * 5 + turn / 2 * 7) % 14;
            const uint32_t size = is_large && dtype == ZOFF_F16 ? 0x7a000000
                                  : is_large                    ? 0x5e000000 + ((uint32_t)spike << 23)
                                  : dtype == ZOFF_F16           ? 0x10000000
                                                                : 0x3a000000;
            const uint32_t bits = size | (random.next() & 0x807fffff) | (is_large && turn % 2 ? 0x80000000 : 0);
            memcpy(a.host.data() + i * width, (const char *)&bits + (4 - width), width);
        }
    }

    zoff_accel *device = nullptr;
    const zoff_accel_ops *ops = nullptr;
    void *stream = nullptr;
    std::vector<void *> taken;
    kernel_data::random_source random{7};
};

TEST_F(AccelKernels, AStepIsTheCpus)
{
    unsigned turn = 0;
    for (const auto &rule : every_rule_and_pass()) {
        for (const auto &kind : every_weights_kind()) {
            for (zoff_dtype grads : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
                // Every second case has moments in bf16; there are 18 for each rule, so all cases have them for some rule.
                const zoff_dtype states = turn++ % 2 ? ZOFF_BF16 : ZOFF_F32;
                if (STRENGTH == 1 && turn % 7) // a sanitizer takes every seventh case
                    continue;
                const std::string what = std::string(rule.name) + ", weights " + kind.name + ", gradients " +
                                         zoff_adam_dtype_name(grads) + ", moments " + zoff_adam_dtype_name(states);
                zoff_adam_consts consts = consts_of(rule, 3, 0.25);
                ASSERT_EQ(rule.rule, consts.rule);
                std::vector<std::array<array, 5>> all;
                std::vector<zoff_adam_piece> here, there;
                for (size_t count : SIZES) {
                    all.push_back({make(count, kind.split ? ZOFF_BF16 : kind.master), make(count, states), make(count, states),
                                   make(count, grads), make(count, kind.copy ? kind.copy : ZOFF_BF16)});
                    for (auto &a : all.back())
                        send(a);
                }
                for (size_t i = 0; i < all.size(); i++) {
                    array &p = all[i][0], &m = all[i][1], &v = all[i][2], &g = all[i][3], &copy = all[i][4];
                    zoff_adam_piece piece = {};
                    piece.count = SIZES[i];
                    piece.grad_dtype = grads;
                    piece.copy_dtype = kind.copy;
                    piece.consts = &consts;
                    piece.master_dtype = kind.split ? ZOFF_BF16 : kind.master;
                    piece.split = kind.split;
                    piece.moments = states == ZOFF_BF16 ? ZOFF_MOMENTS_BF16 : ZOFF_MOMENTS_F32;
                    piece.key = zoff_adam_dither_key("p", i, 0);
                    const auto with = [&](auto pick) {
                        zoff_adam_piece q = piece;
                        q.master = pick(p);
                        q.m = rule.states.m ? pick(m) : nullptr;
                        q.v = rule.states.v ? pick(v) : nullptr;
                        q.grad = pick(g);
                        q.copy_out = kind.copy || kind.split ? pick(copy) : nullptr; // any bits are lower halves
                        return q;
                    };
                    here.push_back(with([](array &a) { return a.here(); }));
                    there.push_back(with([](array &a) { return a.there; }));
                }
                ASSERT_ZOFF_OK(ops->kernels.update(device, stream, there.data(), there.size()));
                zoff_adam_update_run(1, here.data(), here.size(), nullptr, nullptr);
                const zoff_adam_consts kept = consts;
                consts.step_size = 99; /* the caller may change its arguments as soon as the call returns */
                for (auto &arrays : all) {
                    for (auto &a : arrays)
                        expect_same(a, what);
                }
                consts = kept;
                if (HasFatalFailure())
                    return;
            }
        }
    }
}

// Several steps, so that codes are read that the device has written, and outliers come and go. A reduced run takes every fifth
// case: over the CUDA runtime made of threads each exchange between the threads of a warp switches between 32 fibers.
TEST_F(AccelKernels, AStepWithMomentsIn8BitsIsTheCpus)
{
    unsigned turn = 0;
    for (const auto &rule : every_rule()) {
        for (const auto &kind : every_weights_kind()) {
            if (rule.rule > ZOFF_RULE_ADAM_L2 || kind.master != ZOFF_F32)
                continue;
            const zoff_moments moments = turn++ % 2 ? ZOFF_MOMENTS_M8V16 : ZOFF_MOMENTS_Q8;
            const zoff_dtype grads = turn % 3 == 0 ? ZOFF_F32 : turn % 3 == 1 ? ZOFF_BF16 : ZOFF_F16;
            if ((most_cells() || STRENGTH == 1) && turn % 5 != 1)
                continue;
            std::vector<std::array<array, 5>> all;
            for (size_t count : SIZES) {
                all.push_back({make(count, kind.split ? ZOFF_BF16 : kind.master, false), array(), array(),
                               make(count, grads, false), make(count, kind.copy ? kind.copy : ZOFF_BF16)});
                for (size_t i = 0; kind.split && i < count; i++) // a negative half below an upper half of zero would be NaN
                    all.back()[4].host[2 * i + 1] &= 0x7f;
                for (zoff_moment which : {ZOFF_MOMENT_M, ZOFF_MOMENT_V})
                    all.back()[which == ZOFF_MOMENT_M ? 1 : 2].host.resize(zoff_adam_moments_size(moments, which, count));
                for (auto &a : all.back())
                    send(a);
            }
            for (int64_t t = 1; t <= 6; t++) {
                zoff_adam_consts consts;
                zoff_adam_hyper_consts(&rule.hyper, t, 0.25, &consts);
                std::vector<zoff_adam_piece> here, there;
                for (size_t i = 0; i < all.size(); i++) {
                    if (t > 1) {
                        fill_with_spikes(all[i][3], (size_t)t + i);
                        ASSERT_ZOFF_OK(
                            ops->copy(device, stream, all[i][3].there, all[i][3].host.data(), all[i][3].host.size()));
                    }
                    for (bool on_device : {false, true}) {
                        const auto at = [&](size_t k) { return on_device ? all[i][k].there : all[i][k].here(); };
                        zoff_adam_piece piece = {};
                        piece.count = SIZES[i];
                        piece.grad_dtype = grads;
                        piece.copy_dtype = kind.copy;
                        piece.consts = &consts;
                        piece.master_dtype = kind.split ? ZOFF_BF16 : kind.master;
                        piece.split = kind.split;
                        piece.moments = (uint8_t)moments;
                        piece.key = zoff_adam_dither_key("p", i, 0);
                        piece.master = at(0);
                        piece.m = at(1);
                        piece.v = at(2);
                        piece.grad = at(3);
                        piece.copy_out = kind.copy || kind.split ? at(4) : nullptr;
                        (on_device ? there : here).push_back(piece);
                    }
                }
                ASSERT_ZOFF_OK(ops->kernels.update(device, stream, there.data(), there.size()));
                zoff_adam_update_run(1, here.data(), here.size(), nullptr, nullptr);
                for (auto &arrays : all) {
                    for (auto &a : arrays) {
                        std::vector<char> back(a.host.size());
                        ASSERT_ZOFF_OK(ops->copy(device, stream, back.data(), a.there, back.size()));
                        ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, stream));
                        ASSERT_EQ(a.host, back)
                            << rule.name << ", weights " << kind.name << ", array " << &a - arrays.data() << ", step " << t;
                    }
                }
            }
        }
    }
}

TEST_F(AccelKernels, ASumOverSourcesIsTheCpus)
{
    for (size_t sources : {0, 1, 2, 5, 32, 33, 70}) {
        for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
            for (int form = 0; form < 4; form++) {
                const size_t rows = sources ? sources : 1, pieces = 19;
                std::vector<float> weights(rows);
                for (auto &w : weights)
                    w = (float)random.unit();
                std::vector<array> sums, grads;
                std::vector<zoff_accumulate_piece> here, there;
                for (size_t i = 0; i < pieces; i++) {
                    const size_t count = SIZES[i % 7];
                    sums.push_back(make(count, ZOFF_F32));
                    grads.push_back(make(count * rows, dtype));
                    send(sums.back());
                    send(grads.back());
                    zoff_accumulate_piece piece = {};
                    piece.count = count;
                    piece.dtype = dtype;
                    piece.first = form & 1;
                    piece.sources = sources;
                    piece.stride = count * zoff_adam_dtype_bytes(dtype);
                    piece.weights = form & 2 ? weights.data() : nullptr;
                    piece.sum = (float *)sums.back().here();
                    piece.grad = grads.back().here();
                    here.push_back(piece);
                    piece.sum = (float *)sums.back().there;
                    piece.grad = grads.back().there;
                    there.push_back(piece);
                }
                ASSERT_ZOFF_OK(ops->kernels.accumulate(device, stream, there.data(), there.size()));
                zoff_adam_accumulate_run(1, here.data(), here.size(), nullptr, nullptr);
                weights.assign(rows, 1e9f);
                for (auto &a : sums)
                    expect_same(a, std::to_string(sources) + " sources, form " + std::to_string(form));
                if (HasFatalFailure())
                    return;
            }
        }
    }
}

// Planes of any width, with more parts and factors than a launch has space for, and the values of as many as it has.
TEST_F(AccelKernels, ExactSumsAreTheCpus)
{
    for (unsigned width : {3u, 4u, 8u}) {
        for (size_t sources : {0, 3, 170, 330}) {
            for (int form = 0; form < 4; form++) {
                const bool weighted = form & 1, values = form & 2;
                const size_t many = values && weighted && sources > 160 ? 160 : sources, parts = values ? 8 : 19;
                const zoff_dtype dtype = std::array<zoff_dtype, 3>{ZOFF_F32, ZOFF_BF16, ZOFF_F16}[(sources + width) % 3];
                std::vector<float> weights(many + 1);
                for (auto &w : weights)
                    w = random.next() % 5 == 0 ? 0 : (float)random.unit();
                std::vector<std::unique_ptr<array>> all; // arrays that keep their place
                std::vector<zoff_bins_piece> here, there;
                std::vector<std::vector<zoff_bins>> lists;
                auto add = [&](size_t count, zoff_dtype type) -> array & {
                    all.push_back(std::make_unique<array>(make(count, type)));
                    return *all.back();
                };
                // Sums of three terms each, in one array: hi, lo, top.
                auto sums = [&](size_t count, zoff_bins out[2]) {
                    array &terms = add(3 * count, ZOFF_F32), &planes = add((count * (2 * width + 1) + 3) / 4, ZOFF_F32);
                    auto at = [&](void *base) {
                        char *p = (char *)base;
                        return zoff_bins{p, p + count * width, (uint8_t *)p + 2 * count * width, width};
                    };
                    zoff_bins_piece piece = {};
                    piece.count = count;
                    piece.to = out[0] = at(planes.here());
                    piece.first = true;
                    piece.terms = terms.here();
                    piece.dtype = ZOFF_F32;
                    piece.sources = 3;
                    piece.stride = count * sizeof(float);
                    zoff_adam_bins_run(1, &piece, 1, nullptr, nullptr);
                    send(planes);
                    out[1] = at(planes.there);
                };
                for (size_t i = 0; i < 9; i++) {
                    const size_t count = SIZES[i % 4];
                    zoff_bins both[2];
                    array &grads = add(count * (many + 1), dtype), &out = add(count, ZOFF_F32);
                    send(grads);
                    send(out);
                    zoff_bins_piece piece = {};
                    piece.count = count;
                    piece.first = i % 3 == 0;
                    piece.dtype = dtype;
                    piece.sources = many;
                    piece.stride = count * zoff_adam_dtype_bytes(dtype);
                    piece.weights = weighted ? weights.data() : nullptr;
                    piece.part_count = i % 2 ? parts : 0;
                    lists.resize(lists.size() + 2);
                    for (size_t part = 0; part < piece.part_count; part++) {
                        sums(count, both);
                        lists[2 * i].push_back(both[0]);
                        lists[2 * i + 1].push_back(both[1]);
                    }
                    sums(count, both);
                    piece.to = both[0];
                    piece.parts = lists[2 * i].data();
                    piece.terms = grads.here();
                    piece.out = values ? (float *)out.here() : nullptr;
                    here.push_back(piece);
                    piece.to = both[1];
                    piece.terms = grads.there;
                    piece.out = values ? (float *)out.there : nullptr;
                    there.push_back(piece);
                }
                for (size_t i = 0; i < there.size(); i++) // the outer list has moved its lists
                    there[i].parts = lists[2 * i + 1].data(), here[i].parts = lists[2 * i].data();
                ASSERT_ZOFF_OK(ops->kernels.bins(device, stream, there.data(), there.size()));
                zoff_adam_bins_run(1, here.data(), here.size(), nullptr, nullptr);
                weights.assign(weights.size(), 1e9f);
                lists.clear();
                for (auto &a : all) {
                    std::vector<char> back(a->host.size());
                    if (!a->there)
                        continue;
                    ASSERT_ZOFF_OK(ops->copy(device, stream, back.data(), a->there, back.size()));
                    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, stream));
                    ASSERT_EQ(a->host, back) << width << " bytes, " << sources << " sources, form " << form;
                }
                for (auto &a : all) {
                    if (a->there)
                        taken.erase(std::remove(taken.begin(), taken.end(), a->there), taken.end());
                    if (a->there)
                        ops->free(device, a->there);
                }
            }
        }
    }
}

TEST_F(AccelKernels, AValueOfTooManySumsIsRefused)
{
    float out = 0;
    std::vector<zoff_bins> parts(9);
    std::vector<float> weights(161);
    zoff_bins_piece piece = {};
    piece.count = 1;
    piece.out = &out;
    piece.parts = parts.data();
    piece.part_count = parts.size();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "a value on a device is of at most 8 exact sums, and 160 terms with weights",
                      ops->kernels.bins(device, stream, &piece, 1));
    piece.part_count = 0;
    piece.weights = weights.data();
    piece.sources = weights.size();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "160 terms with weights", ops->kernels.bins(device, stream, &piece, 1));
}

TEST_F(AccelKernels, AConversionIsTheCpus)
{
    for (zoff_dtype from : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
        for (zoff_dtype to : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
            std::vector<array> in, out;
            std::vector<zoff_cast_piece> here, there;
            for (size_t count : SIZES) {
                in.push_back(make(count, from));
                out.push_back(make(count, to));
                send(in.back());
                send(out.back());
                here.push_back({count, out.back().here(), in.back().here(), to, from});
                there.push_back({count, out.back().there, in.back().there, to, from});
            }
            ASSERT_ZOFF_OK(ops->kernels.cast(device, stream, there.data(), there.size()));
            zoff_adam_cast_run(1, here.data(), here.size());
            for (auto &a : out)
                expect_same(a, std::string(zoff_adam_dtype_name(from)) + " to " + zoff_adam_dtype_name(to));
        }
    }
}

TEST_F(AccelKernels, SumsOfSquaresAreTheCpus)
{
    for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
        for (bool nasties : {false, true}) {
            std::vector<array> grads;
            std::vector<std::vector<double>> sums, back;
            std::vector<zoff_norm_piece> here, there;
            for (size_t count : {(size_t)1, (size_t)15, (size_t)1024, (size_t)1025, (size_t)50001, (size_t)1 << 19}) {
                grads.push_back(make(count, dtype, nasties && count != 15));
                send(grads.back());
                sums.emplace_back((count + ZOFF_NORM_BLOCK - 1) / ZOFF_NORM_BLOCK);
                back.push_back(sums.back());
                void *room;
                ASSERT_ZOFF_OK(ops->alloc(device, sums.back().size() * sizeof(double), &room));
                taken.push_back(room);
                here.push_back({count, grads.back().here(), dtype, sums.back().data()});
                there.push_back({count, grads.back().there, dtype, (double *)room});
            }
            ASSERT_ZOFF_OK(ops->kernels.square_sum(device, stream, there.data(), there.size()));
            zoff_adam_norm_run(1, here.data(), here.size(), nullptr, nullptr);
            for (size_t i = 0; i < here.size(); i++) {
                ASSERT_ZOFF_OK(ops->copy(device, stream, back[i].data(), there[i].block_sums, back[i].size() * sizeof(double)));
                ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, stream));
                for (size_t k = 0; k < back[i].size(); k++) {
                    const bool both_finite = std::isfinite(sums[i][k]) && std::isfinite(back[i][k]);
                    if (both_finite)
                        ASSERT_EQ(0, memcmp(&sums[i][k], &back[i][k], sizeof(double))) << "piece " << i << ", block " << k;
                    else
                        ASSERT_EQ(std::isfinite(sums[i][k]), std::isfinite(back[i][k])) << "piece " << i << ", block " << k;
                }
            }
        }
    }
}

// The engine has sums of squares written there, because a copy would wait behind larger ones.
TEST_F(AccelKernels, SumsOfSquaresArriveInPinnedMemoryOfTheHost)
{
    enum { COUNT = 100 * ZOFF_NORM_BLOCK + 5, BLOCKS = 101 };
    array grads = make(COUNT, ZOFF_BF16, false);
    std::vector<double> here(BLOCKS), landing(BLOCKS + 2, -1.0);
    send(grads);
    ASSERT_ZOFF_OK(ops->pages.pin(device, landing.data(), landing.size() * sizeof(double)));
    auto *there = (double *)ops->pages.mapped(device, landing.data());
    ASSERT_NE(nullptr, there);
    const zoff_norm_piece own = {COUNT, grads.here(), ZOFF_BF16, here.data()},
                          theirs = {COUNT, grads.there, ZOFF_BF16, there + 1};
    zoff_adam_norm_run(1, &own, 1, nullptr, nullptr);
    ASSERT_ZOFF_OK(ops->kernels.square_sum(device, stream, &theirs, 1));
    ASSERT_ZOFF_OK(zoff_accel_stream_wait(device, stream));
    EXPECT_EQ(0, memcmp(here.data(), landing.data() + 1, BLOCKS * sizeof(double)));
    EXPECT_EQ(-1, landing.front());
    EXPECT_EQ(-1, landing.back());
    ops->pages.unpin(device, landing.data());
}

TEST_F(AccelKernels, AnEmptyListIsNoWork)
{
    EXPECT_ZOFF_OK(ops->kernels.update(device, stream, nullptr, 0));
    EXPECT_ZOFF_OK(ops->kernels.accumulate(device, stream, nullptr, 0));
    EXPECT_ZOFF_OK(ops->kernels.bins(device, stream, nullptr, 0));
    EXPECT_ZOFF_OK(ops->kernels.cast(device, stream, nullptr, 0));
    EXPECT_ZOFF_OK(ops->kernels.square_sum(device, stream, nullptr, 0));
    const zoff_cast_piece empty = {0, nullptr, nullptr, ZOFF_F32, ZOFF_BF16};
    EXPECT_ZOFF_OK(ops->kernels.cast(device, stream, &empty, 1));
    EXPECT_ZOFF_OK(zoff_accel_stream_wait(device, stream));
}
} // namespace
