/* SPDX-License-Identifier: Apache-2.0 */
// engine_test.cc: an export of an engine's checkpoint has the bits of zoff_state_read(), and an engine loads an import.
#include "tool_checkpoints.h"

using namespace tool_files;

namespace
{
enum : size_t { ROWS = 6, COLUMNS = 5, LAYERS = 3, SQUARE = 49, HALF = 33, BASE = 7 };

// An engine with parameters of every kind, and its weights.
struct model {
    float table[ROWS * COLUMNS];
    uint16_t layers[LAYERS * SQUARE], half[HALF], base[BASE];
    float table_grad[ROWS * COLUMNS];
    uint16_t layers_grad[LAYERS * SQUARE], half_grad[HALF];
    zoff_test::engine engine;

    explicit model(unsigned seed, zoff_tier tier, const std::string &states)
    {
        const std::vector<float> random = numbers(ROWS * COLUMNS + LAYERS * SQUARE + HALF + BASE, seed);
        fill(random);
        const size_t wte[] = {ROWS, COLUMNS}, square[] = {7, 7};
        zoff_param_desc params[5] = {};
        params[0] = describe("wte", table, table_grad, ROWS * COLUMNS, ZOFF_F32);
        params[0].dims = wte;
        params[0].dim_count = 2;
        params[1] = describe("layers", layers, layers_grad, SQUARE, ZOFF_BF16);
        params[1].slices = LAYERS;
        params[1].slice_name = "h.{}.w";
        params[1].dims = square;
        params[1].dim_count = 2;
        params[2] = describe("half", half, half_grad, HALF, ZOFF_F16);
        params[3] = describe("base\xff", base, nullptr, BASE, ZOFF_BF16);
        params[3].frozen = true;
        params[4] = params[0];
        params[4].name = "head";
        params[4].grad = nullptr;
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.state_tier = tier;
        opts.nvme_path = states.c_str();
        zoff_engine *e = nullptr;
        EXPECT_ZOFF_OK(zoff_engine_open(&opts, params, 5, &e));
        engine.reset(e);
    }
    static zoff_param_desc describe(const char *name, void *value, void *grad, size_t count, zoff_dtype dtype)
    {
        zoff_param_desc d = ZOFF_PARAM_DESC_INIT;
        d.name = name;
        d.value = value;
        d.grad = grad;
        d.count = count;
        d.dtype = dtype;
        return d;
    }
    // Finite numbers: a step with others would be skipped.
    void fill(const std::vector<float> &random)
    {
        std::vector<float> finite;
        for (float x : random)
            finite.push_back(std::isfinite(x) && fabsf(x) < 1e4f ? x : 0.5f);
        const float *from = finite.data();
        const auto take = [&](void *dst, size_t count, zoff_dtype dtype) {
            const std::string bytes = rounded(std::vector<float>(from, from + count), dtype);
            memcpy(dst, bytes.data(), bytes.size());
            from += count;
        };
        take(table, ROWS * COLUMNS, ZOFF_F32);
        take(layers, LAYERS * SQUARE, ZOFF_BF16);
        take(half, HALF, ZOFF_F16);
        take(base, BASE, ZOFF_BF16);
        memcpy(table_grad, table, sizeof table);
        memcpy(layers_grad, layers, sizeof layers);
        memcpy(half_grad, half, sizeof half);
    }
    std::vector<float> state(zoff_param p, zoff_state_kind kind, size_t count) const
    {
        std::vector<float> values(count);
        EXPECT_ZOFF_OK(zoff_state_read(engine.get(), p, kind, 0, count, values.data()));
        return values;
    }
};

std::string bytes_at(const void *from, size_t count)
{
    return std::string(static_cast<const char *>(from), count);
}

class tools_engine : public testing::TestWithParam<zoff_tier>
{
  protected:
    void SetUp() override { ASSERT_EQ(0, mkdir(folder.file("states").c_str(), 0700)); }
    zoff_test::scratch_folder folder;
    const std::string checkpoints = folder.file("checkpoints");
};

TEST_P(tools_engine, exports_have_the_bits_of_the_states)
{
    model m(1, GetParam(), folder.file("states"));
    for (int i = 0; i < 3; i++)
        ASSERT_ZOFF_OK(zoff_step(m.engine.get(), nullptr, nullptr));
    ASSERT_ZOFF_OK(zoff_checkpoint_save(m.engine.get(), checkpoints.c_str(), nullptr));
    ASSERT_EQ(EXIT_DONE, run_export({checkpoints, "-o", folder.file("fp32"), "--dtype", "fp32"}).exit);
    const file exact = read_file(folder.file("fp32/model.safetensors"));
    ASSERT_EQ(6u, exact.tensors.size());
    const std::vector<float> table = m.state(0, ZOFF_STATE_MASTER, ROWS * COLUMNS), half = m.state(2, ZOFF_STATE_MASTER, HALF);
    const std::vector<float> layers = m.state(1, ZOFF_STATE_MASTER, LAYERS * SQUARE);
    EXPECT_TRUE(rounded(table, ZOFF_F32) == exact.tensors.at("wte").bytes);
    EXPECT_TRUE(rounded(half, ZOFF_F32) == exact.tensors.at("half").bytes);
    for (size_t i = 0; i < LAYERS; i++)
        EXPECT_TRUE(bytes_at(&layers[i * SQUARE], SQUARE * sizeof(float)) ==
                    exact.tensors.at("h." + std::to_string(i) + ".w").bytes);

    ASSERT_EQ(EXIT_DONE, run_export({checkpoints, "-o", folder.file("keep")}).exit);
    const file kept = read_file(folder.file("keep/model.safetensors"));
    EXPECT_TRUE(bytes_at(m.table, sizeof m.table) == kept.tensors.at("wte").bytes) << "the weights of the step";
    EXPECT_TRUE(bytes_at(m.half, sizeof m.half) == kept.tensors.at("half").bytes);
    EXPECT_TRUE(bytes_at(m.base, sizeof m.base) == kept.tensors.at("base%FF").bytes);
    EXPECT_TRUE(bytes_at(m.layers + SQUARE, SQUARE * 2) == kept.tensors.at("h.1.w").bytes);
    EXPECT_EQ((std::vector<size_t>{7, 7}), kept.tensors.at("h.1.w").dims);
    EXPECT_EQ("wte", kept.metadata.at("head"));
}

TEST_P(tools_engine, an_engine_loads_an_import)
{
    model m(1, GetParam(), folder.file("states"));
    ASSERT_ZOFF_OK(zoff_step(m.engine.get(), nullptr, nullptr));
    ASSERT_ZOFF_OK(zoff_checkpoint_save(m.engine.get(), checkpoints.c_str(), nullptr));
    ASSERT_EQ(EXIT_DONE, run_export({checkpoints, "-o", folder.file("x"), "--max-shard-size", "100B"}).exit);
    ASSERT_EQ(EXIT_DONE, run_import({folder.file("x"), "-o", folder.file("imported"), "--step", "41"}).exit);
    model other(2, GetParam(), folder.file("states"));
    ASSERT_ZOFF_OK(zoff_checkpoint_load(other.engine.get(), folder.file("imported").c_str(), nullptr));
    int64_t t = 0;
    ASSERT_ZOFF_OK(zoff_step_count(other.engine.get(), &t));
    EXPECT_EQ(41, t);
    EXPECT_EQ(0, memcmp(m.table, other.table, sizeof m.table));
    EXPECT_EQ(0, memcmp(m.layers, other.layers, sizeof m.layers));
    EXPECT_EQ(0, memcmp(m.half, other.half, sizeof m.half));
    EXPECT_EQ(0, memcmp(m.base, other.base, sizeof m.base));
    EXPECT_TRUE(m.state(0, ZOFF_STATE_MASTER, ROWS * COLUMNS) == other.state(0, ZOFF_STATE_MASTER, ROWS * COLUMNS));
    EXPECT_EQ(std::vector<float>(LAYERS * SQUARE), other.state(1, ZOFF_STATE_M, LAYERS * SQUARE));
    EXPECT_EQ(std::vector<float>(HALF), other.state(2, ZOFF_STATE_V, HALF));
    EXPECT_ZOFF_OK(zoff_step(other.engine.get(), nullptr, nullptr));

    ASSERT_EQ(EXIT_DONE, run_import({folder.file("x"), "-o", folder.file("lion"), "--optimizer", "lion"}).exit);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "lacks states that its optimizer has here",
                      zoff_checkpoint_load(other.engine.get(), folder.file("lion").c_str(), nullptr));
}

INSTANTIATE_TEST_SUITE_P(Tiers, tools_engine, testing::Values(ZOFF_TIER_HOST, ZOFF_TIER_NVME),
                         [](const testing::TestParamInfo<zoff_tier> &i) {
                             return i.param == ZOFF_TIER_HOST ? "host" : "nvme";
                         });
} // namespace
