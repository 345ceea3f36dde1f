/* SPDX-License-Identifier: Apache-2.0 */
// open_test.cc: zoff_engine_open() with options, ranks that the engine joins itself, and the hyper-parameters of a group.
#include "zoff_test.h"

#include <string.h>

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
// An array of descriptions of a program compiled for a longer struct.
struct longer {
    zoff_param_desc known;
    uint64_t unknown;
};

struct schedule {
    float w[3] = {1, 2, 3}, g[3] = {};
    engine e;
    schedule()
    {
        zoff_config *made = nullptr;
        const std::string text = "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.25, \"weight_decay\": 0.5}}, "
                                 "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 4, "
                                 "\"warmup_min_lr\": 0, \"warmup_max_lr\": 0.25, \"warmup_type\": \"linear\"}}}";
        EXPECT_ZOFF_OK(config_from_text(text.data(), text.size(), "test.json", &made));
        config settings(made);
        zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
        opts.config = made;
        zoff_param_desc d = {};
        d.value = w;
        d.grad = g;
        d.count = 3;
        zoff_engine *opened = nullptr;
        EXPECT_ZOFF_OK(zoff_engine_open(&opts, &d, 1, &opened));
        e.reset(opened);
    }
};

TEST(Open, TakesOptionsAndArraysOfOtherVersions)
{
    log_catcher log;
    float w[4] = {}, g[4] = {};
    longer params[2] = {};
    for (longer &p : params) {
        p.known.value = w + 2 * (&p - params);
        p.known.grad = g + 2 * (&p - params);
        p.known.count = 2;
    }
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    opts.threads = 1;
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_open_sized(&opts, &params[0].known, sizeof params[0], 2, &made));
    zoff_engine_destroy(made);
    made = nullptr;
    params[1].known.struct_size = sizeof params[1];
    params[1].unknown = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "zoff_param_desc has a field at byte ",
                      zoff_engine_open_sized(&opts, &params[0].known, sizeof params[0], 2, &made));
    EXPECT_EQ(nullptr, made);
    params[1].unknown = 0;
    ASSERT_ZOFF_OK(zoff_engine_open_sized(&opts, &params[0].known, sizeof params[0], 2, &made));
    zoff_engine_destroy(made);
}

// A program of a version without dims and slice_name passes a shorter struct. The bytes behind it are not read.
TEST(Open, TakesArraysOfAShorterStruct)
{
    log_catcher log;
    float w[4] = {}, g[4] = {};
    const size_t bytes = offsetof(zoff_param_desc, dims);
    for (const size_t struct_size : {size_t{0}, bytes}) {
        std::vector<char> array(2 * bytes);
        zoff_engine *made = nullptr;
        for (size_t i = 0; i < 2; i++) {
            zoff_param_desc d = {};
            d.struct_size = struct_size;
            d.value = w + 2 * i;
            d.grad = g + 2 * i;
            d.count = 2;
            memcpy(array.data() + i * bytes, &d, bytes);
        }
        ASSERT_ZOFF_OK(zoff_engine_open_sized(nullptr, (const zoff_param_desc *)array.data(), bytes, 2, &made));
        ASSERT_EQ(2u, made->model.param_count);
        for (size_t i = 0; i < 2; i++) {
            EXPECT_EQ(1u, made->model.params[i].shape.count);
            EXPECT_EQ(2u, made->model.params[i].shape.dims[0]);
            EXPECT_EQ(nullptr, made->model.params[i].slice_name);
        }
        zoff_engine_destroy(made);
    }
    // Single descriptions, too: the garbage behind the short struct is no shape.
    zoff_param_desc d = {};
    d.value = w;
    d.grad = g;
    d.count = 4;
    d.struct_size = bytes;
    d.dim_count = 77;
    d.slice_name = "garbage";
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(nullptr, &made));
    EXPECT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
    EXPECT_EQ(nullptr, made->model.params[0].slice_name);
    zoff_engine_destroy(made);
}

TEST(Open, PassesShapesAndPatternsOn)
{
    log_catcher log;
    const size_t dims[] = {2, 1};
    float w[4] = {}, g[4] = {};
    zoff_param_desc d = {};
    d.value = w;
    d.grad = g;
    d.count = d.slices = 2;
    d.dims = dims;
    d.dim_count = 2;
    d.slice_name = "h.{}";
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_open(nullptr, &d, 1, &made));
    EXPECT_EQ(2u, made->model.params[0].shape.count);
    EXPECT_STREQ("h.{}", made->model.params[0].slice_name);
    zoff_engine_destroy(made);
    made = nullptr;
    d.count = 1;
    d.name = "w";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "w: the product of the 2 dimensions", zoff_engine_open(nullptr, &d, 1, &made));
    EXPECT_EQ(nullptr, made);
}

TEST(Open, JoinsTheRanksThatTheOptionsName)
{
    log_catcher log;
    zoff_engine *made = nullptr;
    zoff_engine_opts opts = ZOFF_ENGINE_OPTS_INIT;
    opts.ranks = "self";
    ASSERT_ZOFF_OK(zoff_engine_create(&opts, &made));
    EXPECT_EQ(0u, zoff_comm_rank(zoff_engine_comm(made)));
    EXPECT_EQ(1u, zoff_comm_size(zoff_engine_comm(made)));
    zoff_engine_destroy(made);
    made = nullptr;
    opts.ranks = "carrier pigeon";
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "carrier pigeon", zoff_engine_create(&opts, &made));
    zoff_comm *own = nullptr;
    ASSERT_ZOFF_OK(zoff_comm_open(nullptr, &own));
    comm closer(own);
    opts.comm = own;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "both comm and ranks (\"carrier pigeon\")", zoff_engine_create(&opts, &made));
    EXPECT_EQ(nullptr, made);
    opts.ranks = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(&opts, &made));
    EXPECT_EQ(own, zoff_engine_comm(made));
    zoff_engine_destroy(made);
    EXPECT_EQ(nullptr, zoff_engine_comm(nullptr));
}

TEST(Open, GivesTheHyperParametersOfAGroupWithAndWithoutTheSchedule)
{
    log_catcher log;
    schedule s;
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_SGD);
    ASSERT_ZOFF_OK(zoff_engine_get_group(s.e.get(), 0, 0, &h));
    EXPECT_EQ(ZOFF_OPTIMIZER_ADAM, h.optimizer);
    EXPECT_EQ(0.25, h.lr);
    EXPECT_EQ(0.5, h.weight_decay);
    for (int64_t t = 1; t <= 8; t++) { // read the hyper-parameters as the steps use them
        ASSERT_ZOFF_OK(zoff_engine_get_group(s.e.get(), 0, t, &h));
        zoff_step_info info = ZOFF_STEP_INFO_INIT;
        ASSERT_ZOFF_OK(zoff_step(s.e.get(), nullptr, &info));
        EXPECT_EQ(h.lr, info.numbers.lr) << t;
    }
    EXPECT_EQ(0.25, h.lr);
    ASSERT_ZOFF_OK(zoff_engine_get_group(s.e.get(), 0, 0, &h)); // change one value of a group
    h.weight_decay = 0.125;
    ASSERT_ZOFF_OK(zoff_engine_set_group(s.e.get(), 0, &h));
    zoff_optimizer_hyper again;
    zoff_optimizer_hyper_init(&again, ZOFF_OPTIMIZER_LION);
    ASSERT_ZOFF_OK(zoff_engine_get_group(s.e.get(), 0, 0, &again));
    EXPECT_EQ(0, memcmp(&h, &again, sizeof h));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no parameter is in group 1", zoff_engine_get_group(s.e.get(), 1, 0, &h));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "t is -1", zoff_engine_get_group(s.e.get(), 0, -1, &h));
    h.struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_optimizer_hyper_init()", zoff_engine_get_group(s.e.get(), 0, 0, &h));
}

TEST(Open, HyperParametersThatNobodyFilledAreRefused)
{
    log_catcher log;
    schedule s;
    zoff_optimizer_hyper empty = {};
    empty.struct_size = sizeof empty;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "lr is 0 in a zoff_optimizer_hyper that no call has filled",
                      zoff_engine_set_group(s.e.get(), 0, &empty));
    zoff_step_args args = ZOFF_STEP_ARGS_INIT;
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
    args.hyper = &h;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step_args.hyper is set and hyper_count is 0",
                      zoff_step(s.e.get(), &args, nullptr));
    args.hyper_count = 1;
    EXPECT_ZOFF_OK(zoff_step(s.e.get(), &args, nullptr));
}
} // namespace
