/* SPDX-License-Identifier: Apache-2.0 */
// parity_test.cc: the parity matrix. Weights, masters, states, norm and clip factor must equal the reference bit for bit after
// each step. The matrix varies optimizer, tier, types, accumulation, the cut into chunks, threads and I/O back-end.
#include "covering.h"
#include "trainer.h"

using namespace zoff_test;

namespace
{
// An optimizer set by configuration and program: one from the file for group 0, another for group 1.
struct recipe {
    const char *name;
    std::string optimizer; // name in the configuration
    std::vector<zoff_optimizer_hyper> groups;
    float initial_v = 0;
};

zoff_optimizer_hyper hyper_of(zoff_optimizer optimizer, double lr)
{
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, optimizer);
    h.lr = lr;
    return h;
}

recipe adamw()
{
    recipe r = {"adamw",
                "\"type\": \"AdamW\", \"params\": {\"lr\": 0.01, \"betas\": [0.9, 0.95], \"weight_decay\": 0.1}",
                {hyper_of(ZOFF_OPTIMIZER_ADAM, 0.01), hyper_of(ZOFF_OPTIMIZER_ADAM, 0.003)}};
    r.groups[0].beta2 = 0.95;
    r.groups[0].weight_decay = 0.1;
    r.groups[1].eps = 1e-6;
    return r;
}

recipe adam_l2()
{
    recipe r = adamw();
    r.name = "l2";
    r.optimizer = "\"type\": \"Adam\", \"params\": {\"lr\": 0.01, \"betas\": [0.9, 0.95], \"weight_decay\": 0.1, "
                  "\"adam_w_mode\": false, \"bias_correction\": false}";
    r.groups[0].decay = ZOFF_DECAY_L2;
    r.groups[0].flags = ZOFF_HYPER_NO_BIAS_CORRECTION;
    return r;
}

recipe adagrad()
{
    recipe r = {"adagrad",
                "\"type\": \"Adagrad\", \"params\": {\"lr_decay\": 0.1, \"initial_accumulator_value\": 0.125}",
                {hyper_of(ZOFF_OPTIMIZER_ADAGRAD, 0.01), hyper_of(ZOFF_OPTIMIZER_ADAGRAD, 0.02)},
                0.125f};
    r.groups[0].lr_decay = 0.1;
    r.groups[1].weight_decay = 0.1;
    r.groups[1].eps = 1e-6;
    return r;
}

recipe lion()
{
    recipe r = {"lion",
                "\"type\": \"Lion\", \"params\": {\"lr\": 1e-4, \"betas\": [0.85, 0.99], \"weight_decay\": 0.1}",
                {hyper_of(ZOFF_OPTIMIZER_LION, 1e-4), hyper_of(ZOFF_OPTIMIZER_LION, 3e-4)}};
    r.groups[0].beta1 = 0.85;
    r.groups[0].weight_decay = 0.1;
    return r;
}

recipe sgd()
{
    recipe r = {"sgd",
                "\"type\": \"SGD\", \"params\": {\"weight_decay\": 0.1}",
                {hyper_of(ZOFF_OPTIMIZER_SGD, 1e-3), hyper_of(ZOFF_OPTIMIZER_SGD, 3e-3)}};
    r.groups[0].weight_decay = 0.1;
    return r;
}

// Momentum with dampening in one group, Nesterov's in the other.
recipe momentum()
{
    recipe r = {"momentum",
                "\"type\": \"SGD\", \"params\": {\"momentum\": 0.9, \"dampening\": 0.25, \"weight_decay\": 0.1}",
                {hyper_of(ZOFF_OPTIMIZER_SGD, 1e-3), hyper_of(ZOFF_OPTIMIZER_SGD, 3e-3)}};
    r.groups[0].momentum = r.groups[1].momentum = 0.9;
    r.groups[0].dampening = 0.25;
    r.groups[0].weight_decay = 0.1;
    r.groups[1].nesterov = true;
    return r;
}

// Groups with different states share one chunk: one has v and one m, or one has m and v and another none.
recipe adagrad_and_lion()
{
    return {"adagradAndLion",
            "\"type\": \"Adagrad\"",
            {hyper_of(ZOFF_OPTIMIZER_ADAGRAD, 0.01), hyper_of(ZOFF_OPTIMIZER_LION, 3e-4)}};
}

recipe adam_and_sgd()
{
    return {"adamAndSgd", "\"type\": \"Adam\"", {hyper_of(ZOFF_OPTIMIZER_ADAM, 1e-3), hyper_of(ZOFF_OPTIMIZER_SGD, 3e-3)}};
}

struct cell {
    zoff_tier tier;
    zoff_dtype dtype, grad_dtype;
    unsigned accumulation;
    unsigned chunks; // 0: as many and as uneven as possible, at most one block each
    unsigned threads = 2;
    const char *backend = "auto";
    unsigned paths = 1;
    recipe (*optimizers)() = adamw;
    bool residents = false; // NVMe: a DRAM budget for the slots and half of the chunks.
    bool persist = false;   // NVMe: between two steps the engine is destroyed, and another one continues with its files.
    const char *moments = "fp32";
    bool whole = false; // Masters are fp32 also where they could be split.
};

std::string type(zoff_dtype d)
{
    return d == ZOFF_F32 ? "fp32" : d == ZOFF_F16 ? "fp16" : "bf16";
}

std::string name(const cell &c)
{
    return std::string(c.tier == ZOFF_TIER_HOST ? "host" : "nvme") + "_" + type(c.dtype) + "_grad_" + type(c.grad_dtype) +
           "_accumulate" + std::to_string(c.accumulation) + "_chunks" + (c.chunks ? std::to_string(c.chunks) : "Odd") +
           "_threads" + std::to_string(c.threads) + "_" + (std::string(c.backend) == "io_uring" ? "uring" : c.backend) +
           "_paths" + std::to_string(c.paths) + "_" + c.optimizers().name + (c.residents ? "_residents" : "") +
           (c.persist ? "_persist" : "") + (std::string(c.moments) == "fp32" ? "" : std::string("_") + c.moments) +
           (c.whole ? "_wholeMasters" : "");
}

class Parity : public testing::TestWithParam<cell>
{
  protected:
    std::string config_text() const
    {
        const cell &c = GetParam();
        std::string paths;
        for (unsigned i = 0; i < c.paths; i++)
            paths += (i ? ", \"" : "\"") + folders[i].path + "\"";
        return std::string("{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": ") +
               std::to_string(c.accumulation) + ", \"optimizer\": {" + used.optimizer +
               "}, \"gradient_clipping\": 2.0, \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"" +
               (c.tier == ZOFF_TIER_NVME ? "nvme" : "cpu") + "\", \"nvme_path\": [" + paths +
               "], \"buffer_count\": 3}}, \"zoff\": {\"io_backend\": \"" + c.backend +
               "\", \"persist\": " + (c.persist ? "true" : "false") + ", \"moments\": \"" + c.moments + "\", \"master\": \"" +
               (c.whole ? "fp32" : "auto") + "\"}}";
    }

    // Make an engine over the trainer's tensors with as many chunks as the cell says.
    void make(trainer &t)
    {
        zoff_config *parsed = nullptr;
        std::string text = config_text();
        ASSERT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "parity.json", &parsed));
        config.reset(parsed);
        const cell &c = GetParam();
        uint64_t budget = 0;
        for (uint64_t limit = c.chunks == 1 ? 1u << 30 : 1024;; limit += budget ? 0 : 512) {
            ASSERT_LT(limit, 2u << 30) << "no limit gives " << c.chunks << " chunks";
            zoff_engine_opts opts = {};
            opts.struct_size = sizeof opts;
            opts.config = config.get();
            opts.chunk_elements = limit;
            opts.host_bytes = budget;
            opts.threads = c.threads;
            zoff_engine *made = nullptr;
            ASSERT_ZOFF_OK(zoff_engine_create(&opts, &made));
            e.reset(made);
            for (size_t i = 0; i < t.tensors.size(); i++) {
                zoff_param_desc d = t.desc(i);
                ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
            }
            ASSERT_ZOFF_OK(zoff_engine_set_group(made, 1, &used.groups[1]));
            zoff_plan_info plan = {};
            plan.struct_size = sizeof plan;
            ASSERT_ZOFF_OK(zoff_engine_plan(made, &plan));
            if (c.chunks && plan.chunk_count != c.chunks)
                continue;
            EXPECT_EQ(budget != 0, plan.resident_bytes != 0);
            EXPECT_LE(budget ? plan.host_bytes : 0, budget);
            if (!c.residents || budget)
                break;
            budget = (3 + plan.chunk_count / 2) * plan.chunk_bytes;
        }
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    }

    // Continue as another process would, with other weights in memory.
    void start_anew(trainer &t, int64_t after)
    {
        int64_t count = -1;
        e.reset();
        t.scramble();
        ASSERT_NO_FATAL_FAILURE(make(t));
        ASSERT_ZOFF_OK(zoff_step_count(e.get(), &count));
        EXPECT_EQ(after, count);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "call zoff_params_push()", zoff_step(e.get(), nullptr, nullptr));
        ASSERT_ZOFF_OK(zoff_params_push(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    }

    // The bytes that the kernels read and write in a step, summed independently of the library.
    void expect_bytes(const trainer &t, const zoff_step_info &info) const
    {
        uint64_t read = 0, written = 0;
        const bool accumulates = GetParam().accumulation > 1;
        for (const auto &x : t.tensors) {
            const zoff_optimizer_hyper &h = used.groups[x.group];
            const uint64_t elements = x.frozen ? 0 : x.total(), grad = trainer::size(x.grad_dtype);
            const uint64_t moment = x.halves ? 2 : 4;
            uint64_t moments = moment * elements * (reference::keeps_m(h) + reference::keeps_v(h));
            if (elements && reference::has_blocks(x, h)) // states with a header for each 1,024 elements of a slice
                moments = x.slices * (x.count + (x.count + 1023) / 1024 * 64) * (x.blocks == "q8" ? 2 : 1) +
                          (x.blocks == "q8" ? 0 : 2 * elements);
            read += moments;
            written += moments;
            // A gradient is read twice: for the norm and for the update. With an accumulator both read that fp32 array instead.
            // The addition before reads gradient and accumulator, and writes the accumulator.
            read += elements * (4 + (accumulates ? grad + 4 + 4 + 4 : grad + grad));
            const bool splits = x.dtype == ZOFF_BF16 && !GetParam().persist && !GetParam().whole; // no copy is written
            written += elements * (4 + (x.dtype == ZOFF_F32 || splits ? 0 : 2) + (accumulates ? 4 : 0));
        }
        EXPECT_EQ(read, info.bytes.host_read);
        EXPECT_EQ(written, info.bytes.host_written);
    }

    scratch_folder folders[2];
    zoff_test::config config;
    engine e;
    recipe used = GetParam().optimizers();
};

TEST_P(Parity, WeightsAndStatesEqualTheReference)
{
    log_catcher log;
    const cell &c = GetParam();
    trainer t(17);
    add_awkward(t, c.dtype, c.grad_dtype);
    t.add(4100, 2, c.dtype, c.grad_dtype, 0, false, 3); // two slices that are long enough for blocks
    for (auto &x : t.tensors) {
        x.v.assign(x.total(), used.initial_v);
        x.halves = std::string(c.moments) == "bf16";
        x.blocks = c.moments[0] == 'm' || c.moments[0] == 'q' ? c.moments : "";
    }
    ASSERT_NO_FATAL_FAILURE(make(t));
    for (int64_t step = 1; step <= 5; step++) {
        t.next_step();
        zoff_step_info info = {};
        info.struct_size = sizeof info;
        // Alternate large and small norms, so that steps with and without clipping occur.
        float scale = step % 2 ? 0.1f : 0.001f;
        for (unsigned micro = 1; micro <= c.accumulation; micro++) {
            t.backward_all(scale);
            if (step % 2) { // just in time
                t.hand_over_all(e.get());
                ASSERT_ZOFF_OK(zoff_step_begin(e.get(), nullptr));
                t.wait_for_weights(e.get());
                ASSERT_ZOFF_OK(zoff_step_wait(e.get(), &info));
            } else {
                ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
            }
            ASSERT_EQ(micro, info.micro_step);
            ASSERT_EQ(micro < c.accumulation, info.accumulated);
        }
        auto want = reference::step(t.tensors, used.groups, step, 1.0, c.accumulation, 2.0);
        EXPECT_EQ(want.norm, info.numbers.grad_norm);
        EXPECT_EQ(want.clip, info.numbers.clip_factor);
        EXPECT_EQ(want.clip < 1, step % 2 == 1);
        EXPECT_EQ(want.updated, info.numbers.elements_updated);
        EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
        EXPECT_EQ(step, info.t);
        expect_bytes(t, info);
        if (c.tier == ZOFF_TIER_NVME) {
            zoff_plan_info plan = {};
            plan.struct_size = sizeof plan;
            ASSERT_ZOFF_OK(zoff_engine_plan(e.get(), &plan));
            EXPECT_EQ(plan.step_write_bytes, info.bytes.nvme_written);
            EXPECT_EQ(plan.nvme_bytes, (c.persist ? 2 : 1) * info.bytes.nvme_written);
            // The first step finds fresh states and reads only masters, and Adagrad's initial value if there is one.
            const bool all =
                step > 1 || used.initial_v != 0 || (!reference::keeps_m(used.groups[0]) && !reference::keeps_v(used.groups[0]));
            // expect_states(), and the push after a reopening, leave chunks in their slots, so the next step may not read them.
            if (step == 2 || (step == 4 && c.persist)) {
                EXPECT_LE(info.bytes.nvme_read, plan.step_read_bytes);
            } else if (step > 1 || !c.persist) {
                EXPECT_EQ(all, plan.step_read_bytes == info.bytes.nvme_read)
                    << "step " << step << ": " << info.bytes.nvme_read << " of " << plan.step_read_bytes;
            }
        } else {
            EXPECT_EQ(0u, info.bytes.nvme_read + info.bytes.nvme_written);
        }
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        if (step == 1 || step == 5) {
            ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get(), used.groups));
        }
        if (step == 3 && c.persist) {
            ASSERT_NO_FATAL_FAILURE(start_anew(t, step));
        }
    }
}

void fill(covering<cell> &cells)
{
    for (zoff_tier tier : {ZOFF_TIER_HOST, ZOFF_TIER_NVME}) {
        for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
            for (unsigned accumulation : {1u, 4u}) {
                for (unsigned chunks : {1u, 7u, 0u})
                    cells.add({tier, dtype, dtype, accumulation, chunks});
            }
            for (auto optimizers : {adam_l2, adagrad, lion, sgd, momentum, adagrad_and_lion, adam_and_sgd})
                cells.add({tier, dtype, dtype, 1, 7, 2, "auto", 1, optimizers});
            for (auto optimizers : {adamw, adam_l2, adagrad, lion, sgd, momentum, adagrad_and_lion, adam_and_sgd})
                cells.add({tier, dtype, dtype, 4, 0, 3, "auto", 1, optimizers, false, false, "bf16"});
        }
        for (auto optimizers : {adamw, adam_l2, adagrad, lion, sgd, momentum, adagrad_and_lion, adam_and_sgd}) {
            for (const char *moments : {"fp32", "bf16"})
                cells.add({tier, ZOFF_BF16, ZOFF_BF16, 1, 7, 2, "auto", 1, optimizers, false, false, moments, true});
        }
        for (auto optimizers : {adamw, adam_l2, adam_and_sgd}) { // blocks are for Adam
            for (const char *moments : {"m8v16", "q8"}) {
                cells.add({tier, ZOFF_BF16, ZOFF_BF16, 1, 7, 2, "auto", 1, optimizers, false, false, moments, true});
                cells.add({tier, ZOFF_BF16, ZOFF_F32, 4, 0, 3, "auto", 2, optimizers, false, false, moments});
                cells.add({tier, ZOFF_F32, ZOFF_F32, 1, 0, 7, "auto", 1, optimizers, false, false, moments});
                cells.add({tier, ZOFF_F16, ZOFF_BF16, 1, 7, 2, "auto", 1, optimizers, false, false, moments});
                if (tier == ZOFF_TIER_NVME) {
                    cells.add({tier, ZOFF_BF16, ZOFF_BF16, 1, 7, 2, "auto", 2, optimizers, true, true, moments});
                    cells.add({tier, ZOFF_F32, ZOFF_F32, 4, 0, 2, "posix", 1, optimizers, true, true, moments});
                    cells.add({tier, ZOFF_BF16, ZOFF_BF16, 1, 7, 2, "io_uring", 1, optimizers, true, false, moments});
                }
            }
        }
        for (auto optimizers : {adamw, adagrad, momentum, adam_and_sgd}) {
            if (tier == ZOFF_TIER_HOST)
                break;
            cells.add({tier, ZOFF_F32, ZOFF_F32, 1, 7, 2, "auto", 1, optimizers, true});
            cells.add({tier, ZOFF_BF16, ZOFF_BF16, 4, 0, 3, "posix", 2, optimizers, true});
            cells.add({tier, ZOFF_F32, ZOFF_BF16, 1, 7, 2, "auto", 2, optimizers, false, true});
            cells.add({tier, ZOFF_BF16, ZOFF_BF16, 4, 0, 3, "posix", 1, optimizers, true, true});
            cells.add({tier, ZOFF_BF16, ZOFF_BF16, 1, 7, 2, "auto", 2, optimizers, true, true, "bf16"});
            cells.add({tier, ZOFF_BF16, ZOFF_BF16, 4, 0, 3, "posix", 2, optimizers, true, false, "bf16", true});
        }
        for (auto optimizers : {adagrad, lion, sgd, momentum, adagrad_and_lion, adam_and_sgd}) {
            cells.add({tier, ZOFF_F32, ZOFF_F32, 1, 1, 2, "auto", 1, optimizers});
            cells.add({tier, ZOFF_F32, ZOFF_F16, 4, 0, 3, "posix", 2, optimizers});
        }
    }
    // Extra cells: mixed types, other thread counts, back-ends, several paths, L2 decay.
    cells.corner({ZOFF_TIER_HOST, ZOFF_BF16, ZOFF_F32, 1, 7});
    cells.corner({ZOFF_TIER_NVME, ZOFF_F32, ZOFF_BF16, 4, 7});
    cells.corner({ZOFF_TIER_NVME, ZOFF_F16, ZOFF_F32, 1, 7});
    cells.corner({ZOFF_TIER_HOST, ZOFF_F16, ZOFF_BF16, 1, 7});
    cells.corner({ZOFF_TIER_HOST, ZOFF_BF16, ZOFF_F16, 4, 7});
    for (unsigned threads : {1u, 3u, 7u})
        cells.corner({ZOFF_TIER_NVME, ZOFF_BF16, ZOFF_BF16, 1, 7, threads});
    cells.corner({ZOFF_TIER_NVME, ZOFF_BF16, ZOFF_BF16, 1, 7, 2, "posix"});
    cells.corner({ZOFF_TIER_NVME, ZOFF_BF16, ZOFF_BF16, 1, 7, 2, "io_uring"});
    cells.corner({ZOFF_TIER_NVME, ZOFF_BF16, ZOFF_BF16, 1, 7, 2, "auto", 2});
    cells.corner({ZOFF_TIER_NVME, ZOFF_BF16, ZOFF_BF16, 4, 0, 2, "auto", 2, adam_l2});
}

const covering<cell> &matrix()
{
    static const covering<cell> all(
        "Matrix/Parity.WeightsAndStatesEqualTheReference/", name,
        [](const cell &c) {
            return covering<cell>::values{{"tier", c.tier == ZOFF_TIER_HOST ? "host" : "nvme"},
                                          {"weights", type(c.dtype)},
                                          {"gradients", type(c.grad_dtype)},
                                          {"accumulation", std::to_string(c.accumulation)},
                                          {"chunks", std::to_string(c.chunks)},
                                          {"threads", std::to_string(c.threads)},
                                          {"back-end", c.backend},
                                          {"paths", std::to_string(c.paths)},
                                          {"optimizers", c.optimizers().name},
                                          {"residents", c.residents ? "yes" : "no"},
                                          {"persist", c.persist ? "yes" : "no"},
                                          {"moments", c.moments},
                                          {"master", c.whole ? "fp32" : "auto"}};
        },
        fill);
    return all;
}
INSTANTIATE_TEST_SUITE_P(Matrix, Parity, testing::ValuesIn(matrix().cells()), [](const auto &one) { return name(one.param); });

TEST(ParityCells, CoverAllPairs)
{
    matrix().expect_all_pairs();
}
} // namespace
