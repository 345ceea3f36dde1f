// parity_test.cc: the parity matrix. Whatever the tier, the type, the accumulation, the cut into chunks, the number of threads
// or the I/O back-end: weights, masters, moments, norm and clip factor equal the reference bit for bit, step after step.
#include "trainer.h"

using namespace zoff_test;

namespace
{
struct cell {
    zoff_tier tier;
    zoff_dtype dtype, grad_dtype;
    unsigned accumulation;
    unsigned chunks; // 0: as odd as possible, one block a chunk at most
    unsigned threads = 2;
    const char *backend = "auto";
    unsigned paths = 1;
    bool l2 = false;
};

std::string name(const testing::TestParamInfo<cell> &info)
{
    const cell &c = info.param;
    auto type = [](zoff_dtype d) { return d == ZOFF_F32 ? std::string("fp32") : std::string("bf16"); };
    return std::string(c.tier == ZOFF_TIER_HOST ? "host" : "nvme") + "_" + type(c.dtype) + "_grad_" + type(c.grad_dtype) +
           "_accumulate" + std::to_string(c.accumulation) + "_chunks" + (c.chunks ? std::to_string(c.chunks) : "Odd") +
           "_threads" + std::to_string(c.threads) + "_" + (std::string(c.backend) == "io_uring" ? "uring" : c.backend) +
           "_paths" + std::to_string(c.paths) + (c.l2 ? "_l2" : "");
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
               std::to_string(c.accumulation) + ", \"optimizer\": {\"type\": \"" + (c.l2 ? "Adam" : "AdamW") +
               "\", \"params\": {\"lr\": 0.01, \"betas\": [0.9, 0.95], \"weight_decay\": 0.1" +
               (c.l2 ? ", \"adam_w_mode\": false" : "") +
               "}}, \"gradient_clipping\": 2.0, \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"" +
               (c.tier == ZOFF_TIER_NVME ? "nvme" : "cpu") + "\", \"nvme_path\": [" + paths +
               "], \"buffer_count\": 3}}, \"zoff\": {\"io_backend\": \"" + c.backend + "\"}}";
    }

    // An engine over the trainer's tensors with as many chunks as the cell wants.
    void make(trainer &t)
    {
        zoff_config *parsed = nullptr;
        std::string text = config_text();
        ASSERT_ZOFF_OK(zoff_config_parse(text.data(), text.size(), "parity.json", &parsed));
        config.reset(parsed);
        const cell &c = GetParam();
        for (uint64_t limit = c.chunks == 1 ? 1u << 30 : 1024;; limit += 512) {
            ASSERT_LT(limit, 2u << 30) << "no limit gives " << c.chunks << " chunks";
            zoff_engine_opts opts = {};
            opts.struct_size = sizeof opts;
            opts.config = config.get();
            opts.chunk_elements = limit;
            opts.threads = c.threads;
            zoff_engine *made = nullptr;
            ASSERT_ZOFF_OK(zoff_engine_create(&opts, &made));
            e.reset(made);
            for (size_t i = 0; i < t.tensors.size(); i++) {
                zoff_param_desc d = t.desc(i);
                ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
            }
            zoff_plan_info plan = {};
            plan.struct_size = sizeof plan;
            ASSERT_ZOFF_OK(zoff_engine_plan(made, &plan));
            if (c.chunks == 0 || plan.chunk_count == c.chunks)
                break;
        }
        zoff_adam_hyper second = groups[1];
        ASSERT_ZOFF_OK(zoff_engine_set_group(e.get(), 1, &second));
        ASSERT_ZOFF_OK(zoff_engine_seal(e.get()));
    }

    void SetUp() override
    {
        groups.resize(2);
        for (auto &h : groups)
            zoff_adam_hyper_init(&h);
        groups[0].lr = 0.01;
        groups[0].beta2 = 0.95;
        groups[0].weight_decay = 0.1;
        groups[0].decay = GetParam().l2 ? ZOFF_DECAY_L2 : ZOFF_DECAY_DECOUPLED;
        groups[1].lr = 0.003;
        groups[1].eps = 1e-6;
    }

    scratch_folder folders[2];
    zoff_test::config config;
    engine e;
    std::vector<zoff_adam_hyper> groups;
};

TEST_P(Parity, WeightsAndStatesEqualTheReference)
{
    log_catcher log;
    const cell &c = GetParam();
    trainer t(17);
    add_awkward(t, c.dtype, c.grad_dtype);
    ASSERT_NO_FATAL_FAILURE(make(t));
    for (int64_t step = 1; step <= 5; step++) {
        t.next_step();
        zoff_step_info info = {};
        info.struct_size = sizeof info;
        // Steps with a small and with a large norm: one side of the clip and the other.
        float scale = step % 2 ? 0.1f : 0.001f;
        for (unsigned micro = 1; micro <= c.accumulation; micro++) {
            t.backward_all(scale);
            ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, &info));
            ASSERT_EQ(micro, info.micro_step);
            ASSERT_EQ(micro < c.accumulation, info.accumulated);
        }
        auto want = reference::step(t.tensors, groups, step, 1.0, c.accumulation, 2.0);
        EXPECT_EQ(want.norm, info.grad_norm);
        EXPECT_EQ(want.clip, info.clip_factor);
        EXPECT_EQ(want.clip < 1, step % 2 == 1);
        EXPECT_EQ(want.updated, info.elements_updated);
        EXPECT_EQ(ZOFF_OUTCOME_AFTER, info.outcome);
        EXPECT_EQ(step, info.t);
        if (c.tier == ZOFF_TIER_NVME) {
            zoff_plan_info plan = {};
            plan.struct_size = sizeof plan;
            ASSERT_ZOFF_OK(zoff_engine_plan(e.get(), &plan));
            EXPECT_EQ(plan.nvme_bytes, info.nvme_write_bytes);
            // In the first step states are fresh and only masters are read.
            EXPECT_EQ(step > 1, plan.nvme_bytes == info.nvme_read_bytes)
                << "step " << step << ": " << info.nvme_read_bytes << " of " << plan.nvme_bytes;
        } else {
            EXPECT_EQ(0u, info.nvme_read_bytes + info.nvme_write_bytes);
        }
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        if (step == 1 || step == 5) {
            ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
        }
    }
}

std::vector<cell> matrix()
{
    std::vector<cell> cells;
    for (zoff_tier tier : {ZOFF_TIER_HOST, ZOFF_TIER_NVME}) {
        for (zoff_dtype dtype : {ZOFF_F32, ZOFF_BF16}) {
            for (unsigned accumulation : {1u, 4u}) {
                for (unsigned chunks : {1u, 7u, 0u})
                    cells.push_back({tier, dtype, dtype, accumulation, chunks});
            }
        }
    }
    // Beside the matrix: mixed types, other thread counts, back-ends, several paths, L2 decay.
    cells.push_back({ZOFF_TIER_HOST, ZOFF_BF16, ZOFF_F32, 1, 7});
    cells.push_back({ZOFF_TIER_NVME, ZOFF_F32, ZOFF_BF16, 4, 7});
    for (unsigned threads : {1u, 3u, 7u})
        cells.push_back({ZOFF_TIER_NVME, ZOFF_BF16, ZOFF_BF16, 1, 7, threads});
    cells.push_back({ZOFF_TIER_NVME, ZOFF_BF16, ZOFF_BF16, 1, 7, 2, "posix"});
    cells.push_back({ZOFF_TIER_NVME, ZOFF_BF16, ZOFF_BF16, 1, 7, 2, "io_uring"});
    cells.push_back({ZOFF_TIER_NVME, ZOFF_BF16, ZOFF_BF16, 1, 7, 2, "auto", 2});
    cells.push_back({ZOFF_TIER_NVME, ZOFF_BF16, ZOFF_BF16, 4, 0, 2, "auto", 2, true});
    return cells;
}

INSTANTIATE_TEST_SUITE_P(Matrix, Parity, testing::ValuesIn(matrix()), name);
} // namespace
