/* SPDX-License-Identifier: Apache-2.0 */
// ties_test.cc: parameters that share their weights: exactly, which ties them, or partly, which is refused. An engine with tied
// weights has the bits of an engine that has these weights once and gets the sum of the gradients, wherever the gradients are.
#include "rank_job.h"

#include <math.h>

using namespace zoff_test;

namespace
{
enum { COUNT = 2500, SLICES = 2, GAP = 3, OTHER = 1700, STEPS = 3 };
enum whose {
    BOTH,
    OWNER,
    NAME,
    SHARED,
    LENT,
    EARLY
}; // gradients: of both, of one, of both in one buffer, in the engine's memory

struct cell {
    const char *name;
    unsigned ranks, stage, accumulation;
    whose gradients;
    zoff_dtype dtype, grad_dtype;
    enum { HOST, NVME, DEVICE, REACHED, RATIO } place;
};

// Small integers: any order of a sum has the same bits.
float gradient(unsigned step, unsigned micro, unsigned rank, unsigned which, size_t k)
{
    return (float)((int)((step * 7 + micro * 3 + rank * 5 + which * 11 + k * 13) % 9) - 4);
}

std::string text_of(unsigned stage, unsigned accumulation, const std::string &offload)
{
    return "{\"gradient_accumulation_steps\": " + std::to_string(accumulation) +
           ", \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, \"gradient_clipping\": 1.0, "
           "\"zero_optimization\": {\"stage\": " +
           std::to_string(stage) + offload + "}}";
}

// Memory of a trainer, on the host or on a device.
class buffer
{
  public:
    buffer(test_device *device_, device_memory *memory, size_t count_, zoff_dtype dtype_)
        : device(device_), count(count_), dtype(dtype_), host(count_ * trainer::size(dtype_))
    {
        there = device ? memory->alloc(host.size()) : host.data();
        put([](size_t) { return 0.0f; });
    }
    void put(const std::function<float(size_t)> &of)
    {
        for (size_t k = 0; k < count; k++)
            trainer::put(host.data(), dtype, k, of(k));
        if (device)
            device->copy(there, host.data(), host.size());
    }
    const std::vector<char> &get()
    {
        if (device)
            device->copy(host.data(), there, host.size());
        return host;
    }
    char *at() { return there; }

  private:
    test_device *device;
    const size_t count;
    const zoff_dtype dtype;
    std::vector<char> host;
    char *there;
};

engine make(const std::string &text, zoff_comm *ranks, zoff_accel *accel, uint64_t chunk_elements = 1024)
{
    zoff_engine_opts opts = {};
    opts.threads = 1;
    opts.comm = ranks;
    opts.accel = accel;
    opts.chunk_elements = chunk_elements;
    return make_engine(text, opts);
}

zoff_param_desc slices_of(const char *name, void *value, void *grad, zoff_dtype dtype, zoff_dtype grad_dtype)
{
    zoff_param_desc d = {};
    d.struct_size = sizeof d;
    d.name = name;
    d.value = value;
    d.grad = grad;
    d.count = COUNT;
    d.slices = SLICES;
    d.value_stride = COUNT + GAP;
    d.dtype = dtype;
    d.grad_dtype = grad_dtype;
    return d;
}

struct outcome {
    std::vector<char> weights, other;
    std::vector<float> master, m;
    double norm = 0;
    bool operator==(const outcome &o) const
    {
        return weights == o.weights && other == o.other && master == o.master && m == o.m && norm == o.norm;
    }
};

float first_weight(size_t k)
{
    return 0.5f + (float)(k % 7) / 8;
}

void read_states(zoff_engine *e, zoff_param p, outcome *out)
{
    out->master.resize(COUNT * SLICES);
    out->m.resize(COUNT * SLICES);
    EXPECT_ZOFF_OK(zoff_state_read(e, p, ZOFF_STATE_MASTER, 0, out->master.size(), out->master.data()));
    EXPECT_ZOFF_OK(zoff_state_read(e, p, ZOFF_STATE_M, 0, out->m.size(), out->m.data()));
}

// The weights once, with the sum of all gradients of all ranks as micro-batches of one.
outcome reference_of(const cell &c)
{
    buffer w(nullptr, nullptr, SLICES * (COUNT + GAP), c.dtype), g(nullptr, nullptr, SLICES * COUNT, ZOFF_F32);
    buffer other(nullptr, nullptr, OTHER, c.dtype), other_grad(nullptr, nullptr, OTHER, ZOFF_F32);
    outcome out;
    w.put(first_weight);
    engine e = make(text_of(0, c.accumulation * c.ranks, ""), nullptr, nullptr);
    zoff_param_desc d = slices_of("wte", w.at(), g.at(), c.dtype, ZOFF_F32);
    EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
    d.name = "other";
    d.value = other.at();
    d.grad = other_grad.at();
    d.count = OTHER;
    d.slices = 1;
    d.value_stride = 0;
    EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
    EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
    for (unsigned step = 0; step < STEPS; step++) {
        auto info = new_info();
        for (unsigned micro = 0; micro < c.accumulation; micro++) {
            for (unsigned rank = 0; rank < c.ranks; rank++) {
                g.put([&](size_t k) {
                    const float a = gradient(step, micro, rank, 0, k), b = gradient(step, micro, rank, 1, k);
                    return c.gradients == OWNER || c.gradients == SHARED ? a : c.gradients == NAME ? b : a + b;
                });
                other_grad.put([&](size_t k) { return gradient(step, micro, rank, 2, k); });
                EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
            }
        }
        out.norm = info.numbers.grad_norm;
    }
    read_states(e.get(), 0, &out);
    out.weights = w.get();
    out.other = other.get();
    return out;
}

class Ties : public testing::TestWithParam<cell>
{
};

void hand_over(zoff_engine *e, zoff_param p, const std::function<float(size_t)> &of)
{
    for (size_t slice = SLICES; slice-- > 0;) {
        void *lent = nullptr;
        ASSERT_ZOFF_OK(zoff_grad_acquire(e, p, slice, nullptr, &lent));
        for (size_t k = 0; k < COUNT; k++)
            ((float *)lent)[k] = of(slice * COUNT + k);
        ASSERT_ZOFF_OK(zoff_grad_ready(e, p, slice, nullptr));
    }
}

outcome live(const cell &c, unsigned rank, zoff_comm *ranks, const std::string &folder)
{
    std::unique_ptr<test_device> device;
    std::shared_ptr<device_memory> memory;
    if (c.place >= cell::DEVICE) {
        device = std::make_unique<test_device>(rank + 5);
        memory = device->memory();
    }
    test_device *on = device.get();
    buffer w(on, memory.get(), SLICES * (COUNT + GAP), c.dtype), other(on, memory.get(), OTHER, c.dtype);
    buffer g0(on, memory.get(), SLICES * COUNT, c.grad_dtype), g1(on, memory.get(), SLICES * COUNT, c.grad_dtype);
    buffer g2(on, memory.get(), OTHER, c.grad_dtype);
    outcome out;
    w.put(first_weight);
    const std::string offload = c.place == cell::NVME ? ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"" +
                                                            folder + "\", \"buffer_count\": 3}"
                                : c.place == cell::RATIO ? ", \"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.3}"
                                                         : "";
    engine e = make(text_of(c.stage, c.accumulation, offload), ranks, on ? on->accel : nullptr);
    const bool has_owner = c.gradients != NAME && c.gradients != LENT, has_name = c.gradients != OWNER && c.gradients != LENT;
    zoff_param_desc d = slices_of("wte", w.at(), has_owner ? g0.at() : nullptr, c.dtype, c.grad_dtype);
    EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
    zoff_param_desc o = slices_of("other", other.at(), g2.at(), c.dtype, c.grad_dtype);
    o.count = OTHER;
    o.slices = 1;
    o.value_stride = 0;
    EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &o, nullptr));
    d.name = "lm_head";
    d.grad = !has_name ? nullptr : c.gradients == SHARED ? g0.at() : g1.at();
    EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
    zoff_plan_info before = plan_of(e.get());
    EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
    const uint64_t sums = (uint64_t)COUNT * SLICES * sizeof(float);
    EXPECT_EQ(before.accumulator_bytes, plan_of(e.get()).accumulator_bytes);
    EXPECT_LE(sums, on ? before.device_bytes : before.accumulator_bytes);
    for (unsigned step = 0; step < STEPS; step++) {
        auto info = new_info();
        zoff_step_args args = {};
        args.struct_size = sizeof args;
        args.flags = step == 1 ? ZOFF_STEP_ZERO_GRADS : 0;
        for (unsigned micro = 0; micro < c.accumulation; micro++) {
            const auto a = [&](size_t k) { return gradient(step, micro, rank, 0, k); };
            const auto b = [&](size_t k) { return gradient(step, micro, rank, 1, k); };
            g0.put(a);
            g1.put(b);
            g2.put([&](size_t k) { return gradient(step, micro, rank, 2, k); });
            if (c.gradients == LENT) {
                hand_over(e.get(), step % 2 ? 0 : 2, step % 2 ? std::function<float(size_t)>(a) : b);
                hand_over(e.get(), step % 2 ? 2 : 0, step % 2 ? std::function<float(size_t)>(b) : a);
            }
            if (c.gradients == EARLY) { // slice by slice, from the last parameter to the first one
                void *stream = on ? on->stream : nullptr;
                for (zoff_param p : {2u, 0u}) {
                    for (size_t slice = SLICES; slice-- > 0;)
                        EXPECT_ZOFF_OK(zoff_grad_ready(e.get(), p, slice, stream));
                    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "twice", zoff_grad_ready(e.get(), p, 0, stream));
                }
                EXPECT_ZOFF_OK(zoff_grad_ready(e.get(), 1, 0, stream));
                EXPECT_ZOFF_OK(zoff_step_begin(e.get(), &args));
                EXPECT_ZOFF_OK(zoff_step_wait(e.get(), &info));
            } else {
                EXPECT_ZOFF_OK(zoff_step(e.get(), &args, &info));
            }
            for (buffer *g : {&g0, &g1}) {
                const bool is_used = g == &g0 ? has_owner : has_name && c.gradients != SHARED;
                const std::vector<char> zeros(g->get().size(), 0);
                EXPECT_EQ(is_used && step == 1, zeros == g->get());
            }
        }
        out.norm = info.numbers.grad_norm;
        if (ranks == nullptr) {
            EXPECT_EQ((uint64_t)COUNT * SLICES + OTHER, info.numbers.elements_updated) << "each weight once";
        }
    }
    outcome same;
    read_states(e.get(), 0, &out);
    read_states(e.get(), 2, &same);
    EXPECT_EQ(out.master, same.master) << "the states of the other name are the owner's";
    EXPECT_EQ(out.m, same.m);
    out.weights = w.get();
    out.other = other.get();
    return out;
}

TEST_P(Ties, HaveTheBitsOfOneParameterWithTheSumOfTheirGradients)
{
    const cell c = GetParam();
    scratch_folder folder;
    const outcome want = reference_of(c);
    if (c.ranks == 1) {
        EXPECT_EQ(want, live(c, 0, nullptr, folder.path));
        return;
    }
    rank_job job(c.ranks, 20);
    if (c.place >= cell::REACHED)
        job.reach_devices();
    job.on_each([&](unsigned rank) { EXPECT_TRUE(want == live(c, rank, job.comm_of(rank), folder.path)) << rank; });
}

const zoff_dtype F = ZOFF_F32, H = ZOFF_BF16;
const cell CELLS[] = {
    {"alone", 1, 0, 1, BOTH, H, H, cell::HOST},
    {"alone_f32", 1, 0, 1, EARLY, F, F, cell::HOST},
    {"owner_only", 1, 0, 1, OWNER, H, F, cell::HOST},
    {"name_only", 1, 0, 2, NAME, F, H, cell::HOST},
    {"one_buffer", 1, 0, 1, SHARED, H, H, cell::HOST},
    {"lent", 1, 0, 1, LENT, H, F, cell::HOST},
    {"micro_batches", 1, 0, 3, EARLY, H, H, cell::HOST},
    {"files", 1, 1, 2, BOTH, H, H, cell::NVME},
    {"ranks_0", 2, 0, 1, BOTH, H, H, cell::HOST},
    {"ranks_1", 3, 1, 2, EARLY, F, H, cell::HOST},
    {"ranks_2", 2, 2, 1, EARLY, H, H, cell::HOST},
    {"ranks_2_lent", 2, 2, 2, LENT, H, F, cell::HOST},
    {"ranks_2_owner", 2, 2, 1, OWNER, H, H, cell::HOST},
    {"ranks_3_files", 3, 3, 1, BOTH, H, F, cell::NVME},
    {"device", 1, 0, 1, EARLY, H, H, cell::DEVICE},
    {"device_f32_micro", 1, 0, 2, BOTH, F, F, cell::DEVICE},
    {"device_one_buffer", 1, 0, 1, SHARED, H, H, cell::DEVICE},
    {"device_ratio", 1, 0, 2, EARLY, H, H, cell::RATIO},
    {"device_ranks_2", 2, 2, 1, EARLY, H, H, cell::DEVICE},
    {"device_reached_2", 2, 2, 2, EARLY, H, H, cell::REACHED},
    {"device_reached_ratio", 2, 2, 1, BOTH, H, F, cell::RATIO},
};
INSTANTIATE_TEST_SUITE_P(Cells, Ties, testing::ValuesIn(CELLS), [](const auto &p) { return std::string(p.param.name); });

// ---- refusals, and cases that are not tied ----

class Overlap : public testing::Test
{
  protected:
    Overlap() : e(make(text_of(0, 1, ""), nullptr, nullptr)) {}
    void add(const char *name, void *value, void *grad, size_t count = 100, unsigned group = 0, bool frozen = false,
             size_t slices = 1, size_t stride = 0)
    {
        zoff_param_desc d = {};
        d.struct_size = sizeof d;
        d.name = name;
        d.value = value;
        d.grad = grad;
        d.count = count;
        d.group = group;
        d.frozen = frozen;
        d.slices = slices;
        d.value_stride = d.grad_stride = stride;
        ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
    }
    engine e;
    log_catcher log;
    float w[1000] = {}, g[1000] = {};
};

TEST_F(Overlap, WeightsThatOverlapAreRefusedByName)
{
    add("a", w, g);
    add("far", w + 500, g + 500);
    add("b", w + 99, g + 200);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the weights of a and b overlap in memory", zoff_engine_seal(e.get()));
    zoff_plan_info plan = {};
    plan.struct_size = sizeof plan;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the weights of a and b overlap in memory", zoff_engine_plan(e.get(), &plan));
    ASSERT_ZOFF_OK(zoff_param_bind(e.get(), 2, w + 100, nullptr));
    EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
}

TEST_F(Overlap, SlicesBetweenThoseOfAnotherDoNot)
{
    add("q", w, g, 10, 0, false, 5, 30);
    add("k", w + 10, g + 10, 10, 0, false, 5, 30);
    add("v", w + 20, g + 20, 10, 0, false, 5, 30);
    EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
    EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
}

TEST_F(Overlap, GradientsThatOverlapAreRefusedByName)
{
    add("a", w, g);
    add("b", w + 100, g + 50);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the gradients of a and b overlap in memory", zoff_engine_seal(e.get()));
}

TEST_F(Overlap, ABufferThatIsBoundLaterIsLookedAtWhenTheStepBegins)
{
    add("a", w, g);
    add("b", w + 100, g + 100);
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    // Between two calls they may exchange their memory: no step reads it then.
    ASSERT_ZOFF_OK(zoff_param_bind(e.get(), 0, w + 100, g + 100));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the weights of a and b overlap", zoff_step(e.get(), nullptr, nullptr));
    ASSERT_ZOFF_OK(zoff_param_bind(e.get(), 1, w, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the gradients of a and b overlap", zoff_step_begin(e.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_param_bind(e.get(), 1, nullptr, g));
    EXPECT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
}

TEST_F(Overlap, TiedWeightsMoveTogether)
{
    add("wte", w, g);
    add("lm_head", w, g + 100);
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    std::fill_n(g, 200, 1.0f);
    ASSERT_ZOFF_OK(zoff_param_bind(e.get(), 1, w + 300, g + 200)); // lm_head's: g + 200 holds zeros
    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), 1, 0, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "slice 0 of lm_head was handed over", zoff_param_bind(e.get(), 1, nullptr, g + 400));
    auto info = new_info();
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    EXPECT_EQ(10.0, info.numbers.grad_norm);
    EXPECT_EQ(0, w[0]);
    EXPECT_GT(0, w[300]);
}

// Their first weights may come from anywhere: the engine does not write there.
TEST_F(Overlap, WeightsOfTheEngineMayStartFromOneBuffer)
{
    for (const char *name : {"a", "b"}) {
        zoff_param_desc d = {};
        d.struct_size = sizeof d;
        d.name = name;
        d.value = w;
        d.count = 100;
        d.engine_owned = true;
        ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
    }
    EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
    float x = 1;
    ASSERT_ZOFF_OK(zoff_param_write(e.get(), 0, 0, 1, &x));
    ASSERT_ZOFF_OK(zoff_param_read(e.get(), 1, 0, 1, &x));
    EXPECT_EQ(0, x);
}

// Dropped gradients are given again. A NaN in one of them skips the step for both.
TEST_F(Overlap, TiedGradientsAreDroppedAndSkipped)
{
    add("wte", w, g);
    add("lm_head", w, g + 100);
    ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    std::fill_n(g, 200, 1.0f);
    ASSERT_ZOFF_OK(zoff_grad_ready(e.get(), 0, 0, nullptr));
    ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
    g[150] = NAN;
    log.expect("the gradient of wte");
    auto info = new_info();
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    EXPECT_TRUE(info.skipped);
    EXPECT_EQ(0, w[0]);
    g[150] = 1;
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
    EXPECT_EQ(20.0, info.numbers.grad_norm);
}

TEST(TiesOfRanks, AreTheSameOnAll)
{
    rank_job job(2, 10);
    job.on_each([&](unsigned rank) {
        std::vector<float> a(100), b(100), grads(300);
        engine e = make(text_of(1, 1, ""), job.comm_of(rank), nullptr);
        for (size_t i = 0; i < 3; i++) {
            zoff_param_desc d = {};
            d.struct_size = sizeof d;
            d.value = i == 0 || (i == 2 && rank == 0) ? a.data() : b.data();
            d.grad = &grads[100 * i];
            d.count = 100;
            ASSERT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        }
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the list of tied parameters", zoff_engine_seal(e.get()));
    });
}
} // namespace
