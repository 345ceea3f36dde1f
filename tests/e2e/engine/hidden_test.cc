/* SPDX-License-Identifier: Apache-2.0 */
// hidden_test.cc: a trainer whose forward passes run beside the step, against one that waits for each step: after every step
// both have the same weights, norms and skips, and in the end the same states. Steps that clip and steps that are skipped
// alternate with plain ones. 1,000 steps in a full run.
#include "covering.h"
#include "small_engine.h"

#include <math.h>
#include <unistd.h>

using namespace zoff_test;

namespace
{
struct kind {
    const char *name;
    bool nvme, persist;
    unsigned accumulation;
    zoff_dtype dtype;
    const char *own; // keys of "zoff"
};

// Tiers, types, accumulation and who works are mixed. Ranks and devices are in the parity matrices.
const kind KINDS[] = {{"dram_bf16", false, false, 1, ZOFF_BF16, "\"background_threads\": 0"},
                      {"dram_fp32_background_accumulate", false, false, 3, ZOFF_F32, "\"background_threads\": 1"},
                      {"dram_fp16_watched", false, false, 1, ZOFF_F16, "\"check_use\": true"},
                      {"nvme_bf16_background", true, false, 1, ZOFF_BF16, "\"background_threads\": 2, \"moments\": \"bf16\""},
                      {"nvme_fp32_accumulate", true, false, 2, ZOFF_F32, "\"background_threads\": 0"},
                      {"persist_bf16_accumulate", true, true, 2, ZOFF_BF16, "\"background_threads\": 0, \"persist\": true"},
                      {"persist_fp16_background", true, true, 1, ZOFF_F16, "\"background_threads\": 1, \"persist\": true"}};

// Kinds whose buckets are updated ahead of the step.
const kind AHEAD[] = {
    {"dram_bf16", false, false, 1, ZOFF_BF16, "\"speculation_memory\": \"64MiB\""},
    {"dram_fp32_background_accumulate", false, false, 3, ZOFF_F32,
     "\"background_threads\": 1, \"speculation_memory\": \"64MiB\""},
    {"dram_fp16_watched_for_some", false, false, 1, ZOFF_F16, "\"check_use\": true, \"speculation_memory\": \"100KiB\""},
    {"nvme_bf16_background", true, false, 1, ZOFF_BF16,
     "\"background_threads\": 2, \"moments\": \"bf16\", \"speculation_memory\": \"64MiB\""},
    {"nvme_fp32_accumulate_residents", true, false, 2, ZOFF_F32,
     "\"host_memory\": \"400KiB\", \"speculation_memory\": \"300KiB\""},
    {"persist_bf16_accumulate", true, true, 2, ZOFF_BF16, "\"persist\": true, \"speculation_memory\": \"64MiB\""},
    {"persist_fp32_residents_background", true, true, 1, ZOFF_F32,
     "\"host_memory\": \"400KiB\", \"background_threads\": 1, \"persist\": true, \"speculation_memory\": \"64MiB\""},
    {"persist_fp16_for_some", true, true, 1, ZOFF_F16, "\"persist\": true, \"speculation_memory\": \"50KiB\""}};

class Hidden : public testing::TestWithParam<kind>
{
  protected:
    enum { CHUNK = 2048 };

    static void fill(trainer &t, const kind &k)
    {
        add_awkward(t, k.dtype, k.dtype);
        for (int i = 0; i < 5; i++)
            t.add(3000 + 700 * (size_t)i, 2, k.dtype, k.dtype);
    }

    static std::string text(const std::string &folder, unsigned accumulation, const std::string &own)
    {
        std::string text = config_text(folder, accumulation, ", \"zoff\": {" + own + "}");
        const std::string off = "\"gradient_clipping\": 0";
        return text.replace(text.find(off), off.size(), "\"gradient_clipping\": 2.0");
    }

    // Now and then a call that needs more of the open step than a weight. Some finish it.
    void ask(trainer &t, zoff_engine *e, size_t i)
    {
        const size_t count = t.tensors[i].total();
        std::vector<float> x(count);
        double scale;
        zoff_loss_scaler scaler = ZOFF_LOSS_SCALER_INIT;
        switch (below(40)) {
        case 0:
            ASSERT_ZOFF_OK(zoff_loss_scaler_get(e, &scaler));
            break;
        case 1: // between micro-steps it is refused
            (void)zoff_state_read(e, (zoff_param)i, ZOFF_STATE_MASTER, 0, count, x.data());
            break;
        case 2:
        case 3:
            ASSERT_ZOFF_OK(zoff_loss_scale(e, &scale));
            break;
        case 4:
        case 5:
        case 6:
            for (size_t slice = 0; slice < t.tensors[i].slices; slice++) {
                ASSERT_ZOFF_OK(zoff_grad_reusable(e, (zoff_param)i, slice, nullptr));
                for (size_t k = 0; k < t.tensors[i].count; k++)
                    trainer::put(t.grad(i), t.tensors[i].grad_dtype, t.place(i, slice * t.tensors[i].count + k), NAN);
            }
            break;
        }
    }

    // The forward pass of the next step, with pauses at random places.
    void pass(trainer &t, zoff_engine *e, const std::vector<size_t> &order)
    {
        for (const size_t i : order) {
            ASSERT_NO_FATAL_FAILURE(ask(t, e, i));
            for (size_t slice = 0; slice < t.tensors[i].slices; slice++)
                ASSERT_ZOFF_OK(zoff_param_wait(e, (zoff_param)i, slice, nullptr));
            if (below(8) == 0)
                usleep((useconds_t)below(300));
            if (below(8) == 0)
                (void)zoff_engine_progress(e);
        }
    }

    static void expect_same_weights(trainer &a, trainer &b)
    {
        for (size_t i = 0; i < a.tensors.size(); i++) {
            for (size_t k = 0; k < a.tensors[i].total(); k++) {
                const size_t at = a.place(i, k);
                const float x = trainer::get(a.value(i), a.tensors[i].dtype, at);
                ASSERT_EQ(x, trainer::get(b.value(i), b.tensors[i].dtype, at)) << "tensor " << i << ", element " << k;
            }
        }
    }

    static void expect_same_states(trainer &t, zoff_engine *a, zoff_engine *b)
    {
        for (size_t i = 0; i < t.tensors.size(); i++) {
            const size_t count = t.tensors[i].total();
            std::vector<float> x(count), y(count);
            for (int kind = ZOFF_STATE_MASTER; kind <= ZOFF_STATE_V && !t.tensors[i].frozen && count; kind++) {
                ASSERT_ZOFF_OK(zoff_state_read(a, (zoff_param)i, (zoff_state_kind)kind, 0, count, x.data()));
                ASSERT_ZOFF_OK(zoff_state_read(b, (zoff_param)i, (zoff_state_kind)kind, 0, count, y.data()));
                ASSERT_EQ(x, y) << "state " << kind << " of tensor " << i;
            }
        }
    }

    // The backward pass: gradients in descending order, and time for what works beside it.
    void hand_over(trainer &t, zoff_engine *e)
    {
        for (size_t i = t.tensors.size(); i-- > 0;) {
            for (size_t slice = t.tensors[i].slices; slice-- > 0;)
                ASSERT_ZOFF_OK(zoff_grad_ready(e, (zoff_param)i, slice, nullptr));
            if (below(4) == 0)
                usleep((useconds_t)below(500));
            if (below(4) == 0)
                (void)zoff_engine_progress(e);
        }
        // Every second pass leaves enough time, whatever else the machine does.
        for (int i = 0, most = below(2) ? 50 : 0; i < most && zoff_engine_progress(e) == ZOFF_PENDING; i++)
            usleep(100);
    }

    void train(const kind &k, zoff_step_buckets *out_sums);

    size_t below(size_t n) { return random() % n; }

    fast_random random{77};
    scratch_folder folder;
};
void Hidden::train(const kind &k, zoff_step_buckets *out_sums)
{
    const int64_t steps = is_full_run() ? 1000 : 40; // enough that a quarter of them shows
    log_catcher log;
    log.expect("skipped");
    trainer plain(31), hidden(31);
    fill(plain, k);
    fill(hidden, k);
    const std::string moments = strstr(k.own, "moments") ? "\"moments\": \"bf16\"" : "\"moments\": \"fp32\"";
    engine a = seal_engine(plain, text("", k.accumulation, moments), CHUNK);
    engine b = seal_engine(hidden, text(k.nvme ? folder.path : "", k.accumulation, k.own), CHUNK);
    std::vector<size_t> order(hidden.tensors.size());
    for (size_t i = 0; i < order.size(); i++)
        order[i] = order.size() - 1 - i;
    int clipped = 0, skipped = 0;
    for (int64_t step = 1; step <= steps; step++) {
        const unsigned what = (unsigned)below(4); // 0: overflows; 1: clips
        for (trainer *t : {&plain, &hidden})
            t->next_step();
        if (step % 30 == 0) // another model, as it were
            std::swap(order[below(order.size())], order[below(order.size())]);
        zoff_step_info infos[2] = {};
        for (unsigned micro = 0; micro < k.accumulation; micro++) {
            for (trainer *t : {&plain, &hidden}) {
                t->backward_all(what == 1 ? 0.1f : 0.001f);
                if (what == 0 && micro == 0)
                    trainer::put(t->grad(t->tensors.size() - 1), k.dtype, t->place(t->tensors.size() - 1, 5), INFINITY);
            }
            infos[0].struct_size = infos[1].struct_size = sizeof infos[0];
            ASSERT_ZOFF_OK(zoff_step(a.get(), nullptr, &infos[0]));
            ASSERT_NO_FATAL_FAILURE(hand_over(hidden, b.get()));
            ASSERT_ZOFF_OK(zoff_step_begin(b.get(), nullptr));
            ASSERT_NO_FATAL_FAILURE(pass(hidden, b.get(), order));
            ASSERT_ZOFF_OK(zoff_step_wait(b.get(), &infos[1]));
        }
        ASSERT_EQ(what == 0, infos[1].skipped) << "step " << step;
        ASSERT_EQ(infos[0].skipped, infos[1].skipped);
        if (!infos[0].skipped) {
            ASSERT_EQ(infos[0].numbers.grad_norm, infos[1].numbers.grad_norm);
            ASSERT_EQ(infos[0].numbers.clip_factor, infos[1].numbers.clip_factor);
        }
        out_sums->all += infos[1].buckets.all;
        out_sums->speculated += infos[1].buckets.speculated;
        out_sums->committed += infos[1].buckets.committed;
        out_sums->redone += infos[1].buckets.redone;
        skipped += infos[1].skipped;
        clipped += !infos[1].skipped && infos[1].numbers.clip_factor < 1;
        ASSERT_NO_FATAL_FAILURE(expect_same_weights(plain, hidden)) << "step " << step;
        if (step % 50 == 0) {
            ASSERT_NO_FATAL_FAILURE(expect_same_states(hidden, a.get(), b.get())) << "step " << step;
        }
    }
    EXPECT_LE(steps / 8, clipped) << "a quarter is expected";
    EXPECT_LE(steps / 8, skipped);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Hidden, testing::ValuesIn(KINDS), [](const auto &p) { return std::string(p.param.name); });
TEST_P(Hidden, EveryStepHasTheBitsOfThePlainOne)
{
    zoff_step_buckets sums{};
    ASSERT_NO_FATAL_FAILURE(train(GetParam(), &sums));
    EXPECT_EQ(sums.speculated, 0u);
}

class Ahead : public Hidden
{
};
INSTANTIATE_TEST_SUITE_P(Kinds, Ahead, testing::ValuesIn(AHEAD), [](const auto &p) { return std::string(p.param.name); });
TEST_P(Ahead, EveryStepHasTheBitsOfThePlainOne)
{
    zoff_step_buckets sums{};
    ASSERT_NO_FATAL_FAILURE(train(GetParam(), &sums));
    EXPECT_GT(sums.committed, 0u);
    EXPECT_GT(sums.redone, 0u);
    EXPECT_LE(sums.committed + sums.redone, sums.speculated) << "those of skipped steps are neither";
    EXPECT_LT(sums.committed, sums.all);
}
} // namespace
