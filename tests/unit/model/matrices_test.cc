/* SPDX-License-Identifier: Apache-2.0 */
// matrices_test.cc: which parameters Muon takes as matrices, how their slices are cut, and the refusals of both.
#include "launcher.h"
#include "small_model.h"

#include <deque>
#include <random>

using namespace zoff_test;

namespace
{
typedef std::vector<size_t> sizes;

class Matrices : public testing::Test
{
  protected:
    Matrices() { zoff_optimizer_hyper_init(&parts.values.hyper, ZOFF_OPTIMIZER_MUON); }
    // A parameter of a shape; an empty one: without dims, of 24 elements.
    zoff_param_desc of(const char *name, const sizes &dims, const sizes &rows = {})
    {
        zoff_param_desc d = describe(name, dims.empty() ? 24 : 1);
        d.value = weights + at;
        at += 4096;
        kept.push_back(dims);
        kept.push_back(rows);
        for (const size_t dim : dims)
            d.count *= dim;
        d.dims = dims.empty() ? nullptr : kept[kept.size() - 2].data();
        d.dim_count = dims.size();
        d.matrix_rows = rows.empty() ? nullptr : kept.back().data();
        d.matrix_row_count = rows.size();
        return d;
    }
    size_t add(const char *name, const sizes &dims, const sizes &rows = {}) { return parts.add(of(name, dims, rows)); }
    zoff_status find(bool whole = true)
    {
        zoff_model_ties_dissolve(m);
        const zoff_status status = zoff_model_ties_find(m);
        return status < 0 ? status : zoff_model_matrices_find(m, whole);
    }
    size_t count(size_t p) const { return zoff_model_matrices_count(m, &m->params[p]); }
    // {first, rows, cols} of each matrix of a slice.
    std::vector<sizes> all(size_t p) const
    {
        std::vector<sizes> list;
        for (size_t i = 0; i < count(p); i++) {
            const zoff_matrix x = zoff_model_matrices_at(m, &m->params[p], i);
            list.push_back({x.first, x.rows, x.cols});
        }
        return list;
    }

    std::deque<sizes> kept;
    small_model parts;
    zoff_model *m = &parts.m;
    alignas(8) char weights[1 << 18] = {};
    size_t at = 0;
};

TEST_F(Matrices, TheShapeOfASliceSaysWhatTheyAre)
{
    const size_t plain = add("h.fc", {6, 4}), stack = add("h.experts", {3, 2, 4}), conv = add("conv", {6, 2, 3, 2}),
                 bias = add("h.bias", {6}), bare = add("h.bare", {}), none = add("h.none", {4, 0}), row = add("h.row", {1, 9});
    ASSERT_ZOFF_OK(find());
    EXPECT_EQ((std::vector<sizes>{{0, 6, 4}}), all(plain));
    EXPECT_EQ((std::vector<sizes>{{0, 2, 4}, {8, 2, 4}, {16, 2, 4}}), all(stack));
    EXPECT_EQ((std::vector<sizes>{{0, 6, 12}}), all(conv));
    EXPECT_EQ((std::vector<sizes>{{0, 1, 9}}), all(row));
    for (const size_t p : {bias, bare, none})
        EXPECT_EQ(0u, count(p)) << m->params[p].name;
}

TEST_F(Matrices, RowsCutTheFirstDimensionAgainAndAgain)
{
    const char *rows[] = {"h.?.qkv=1", "h.*.qkv=4,1,1", "*.qkv=5", "*conv=2"};
    parts.values.muon_rows = {rows, 4};
    const size_t listed = add("h.0.qkv", {6, 2}), twice = add("h.1.qkv", {12, 2}), own = add("h.2.qkv", {6, 2}, {2, 4}),
                 conv = add("conv", {4, 3, 5}), other = add("x.qkv", {10, 1}), named_so = add("h.?.qkv", {2, 2});
    ASSERT_ZOFF_OK(find());
    EXPECT_EQ((std::vector<sizes>{{0, 4, 2}, {8, 1, 2}, {10, 1, 2}}), all(listed));
    EXPECT_EQ((std::vector<sizes>{{0, 4, 2}, {8, 1, 2}, {10, 1, 2}, {12, 4, 2}, {20, 1, 2}, {22, 1, 2}}), all(twice));
    EXPECT_EQ((std::vector<sizes>{{0, 2, 2}, {4, 4, 2}}), all(own)) << "the description wins";
    EXPECT_EQ((std::vector<sizes>{{0, 2, 15}, {30, 2, 15}}), all(conv));
    EXPECT_EQ((std::vector<sizes>{{0, 5, 1}, {5, 5, 1}}), all(other));
    EXPECT_EQ((std::vector<sizes>{{0, 1, 2}, {2, 1, 2}}), all(named_so)) << "a ? stands for itself; the first entry counts";
}

// Random shapes and rows: the matrices are all elements of the slice, one after the other.
TEST_F(Matrices, TheyTileTheSlice)
{
    std::mt19937 random(1);
    const auto one_to = [&](size_t most) { return 1 + random() % most; };
    for (int i = 0; i < 500; i++) {
        sizes dims, rows;
        for (size_t k = 2 + random() % 3; k > 0; k--)
            dims.push_back(one_to(5));
        if (random() % 2) {
            for (size_t k = one_to(4), sum = 0; k > 0; k--, dims[0] = sum * (1 + i % 3))
                rows.push_back(one_to(6)), sum += rows.back();
        }
        at = 0;
        zoff_param_desc d = of(nullptr, dims, rows);
        d.value = nullptr;
        d.slices = one_to(3);
        d.count = 1;
        for (const size_t dim : dims)
            d.count *= dim;
        const zoff_param p = parts.add(d);
        ASSERT_ZOFF_OK(zoff_model_matrices_find(m, true));
        size_t next = 0;
        for (const sizes &x : all(p)) {
            EXPECT_EQ(next, x[0]);
            next += x[1] * x[2];
        }
        EXPECT_EQ(d.count, next);
        EXPECT_EQ(rows.empty() ? (dims.size() == 3 ? dims[0] : 1) : (1 + i % 3) * rows.size(), count(p));
    }
}

TEST_F(Matrices, TheNameOfATableIsNotOneUnlessItIsAskedFor)
{
    std::vector<size_t> tables, others;
    for (const char *name : {"model.Embed_tokens.weight", "wte", "transformer.WPE.weight", "LM_head.weight", "word_embeddings"})
        tables.push_back(add(name, {4, 4}));
    for (const char *name : {"head", "h.0.attn.wt", "lm.head"})
        others.push_back(add(name, {4, 4}));
    const auto expect = [&](const std::vector<size_t> &list, size_t want) {
        for (const size_t p : list)
            EXPECT_EQ(want, count(p)) << m->params[p].name;
    };
    ASSERT_ZOFF_OK(find());
    expect(tables, 0);
    expect(others, 1);
}

TEST_F(Matrices, PatternsDecideAndAdamWins)
{
    const char *muon[] = {"wte", "h.*"}, *adam[] = {"h.gate", "router*"};
    parts.values.muon_params = {muon, 2};
    parts.values.adam_params = {adam, 2};
    const size_t table = add("wte", {4, 4}), other_table = add("wpe", {4, 4}), gate = add("h.gate", {4, 4}),
                 router = add("router.weight", {4, 4}), bias = add("h.bias", {4}), fc = add("fc", {4, 4}),
                 deep = add("router.deep", {1, 2, 1, 2, 1}), bare = add("router.bare", {});
    ASSERT_ZOFF_OK(find());
    for (const size_t p : {table, fc})
        EXPECT_EQ(1u, count(p)) << m->params[p].name;
    for (const size_t p : {other_table, gate, router, bias, deep, bare})
        EXPECT_EQ(0u, count(p)) << m->params[p].name;
}

TEST_F(Matrices, OnlyGroupsOfMuonHaveThem)
{
    zoff_param_desc d = of("first", {4, 4});
    parts.add(d);
    d = of("second", {4, 4});
    d.group = 1;
    parts.add(d);
    d = of("frozen", {4, 4});
    d.frozen = true;
    parts.add(d);
    zoff_optimizer_hyper adam, muon;
    zoff_optimizer_hyper_init(&adam, ZOFF_OPTIMIZER_ADAM);
    zoff_optimizer_hyper_init(&muon, ZOFF_OPTIMIZER_MUON);
    const auto expect = [&](size_t first, size_t second) {
        ASSERT_ZOFF_OK(find());
        EXPECT_EQ(first, count(0));
        EXPECT_EQ(second, count(1));
        EXPECT_EQ(0u, count(2));
    };
    expect(1, 1);
    ASSERT_ZOFF_OK(zoff_model_groups_set(m, 0, &adam, "set"));
    expect(0, 1);
    parts.values.hyper = adam;
    expect(0, 0);
    ASSERT_ZOFF_OK(zoff_model_groups_set(m, 0, &muon, "set"));
    expect(1, 0);
    const char *nothing[] = {"no such name"};
    parts.values.muon_params = {nothing, 1};
    ASSERT_ZOFF_OK(zoff_model_groups_set(m, 0, &adam, "set"));
    expect(0, 0); // a pattern for Muon is not compared where there is none
}

// A matrix has no second moment; every other state is that of its group.
TEST_F(Matrices, HaveAMasterAndAMoment)
{
    const char *no_moments[] = {"fp32"};
    parts.values.persist = true; // a copy of fp32 weights
    const size_t matrix = add("fc", {4, 4}), bias = add("bias", {4}), precise = add("fp32", {4, 4});
    parts.values.fp32_moments = {no_moments, 1};
    ASSERT_ZOFF_OK(find());
    for (const zoff_moments moments : {ZOFF_MOMENTS_F32, ZOFF_MOMENTS_BF16}) {
        parts.values.moments = moments;
        const size_t bytes = moments == ZOFF_MOMENTS_F32 ? 4 : 2;
        for (const size_t p : {matrix, bias, precise}) {
            const zoff_plan_tensor t = zoff_model_params_tensor(m, &m->params[p]);
            EXPECT_EQ(4u, t.bytes[ZOFF_STREAM_MASTER]);
            EXPECT_EQ(bytes, t.bytes[ZOFF_STREAM_M]);
            EXPECT_EQ(p == bias ? bytes : 0, t.bytes[ZOFF_STREAM_V]) << m->params[p].name;
            EXPECT_EQ(p == bias, zoff_model_params_states(m, &m->params[p]).v);
        }
    }
    parts.values.moments = ZOFF_MOMENTS_Q8;
    EXPECT_EQ(ZOFF_MOMENTS_F32, zoff_model_moments_of(m, &m->params[matrix])) << "8 bits are for Adam";
    zoff_model_groups_fix(m);
    EXPECT_FALSE(zoff_model_params_states(m, &m->params[matrix]).v);
}

TEST_F(Matrices, ATieHasThemOnlyIfAllItsNamesDo)
{
    const char *adam[] = {"b"}, *muon[] = {"wpe"};
    parts.values.adam_params = {adam, 1};
    parts.values.muon_params = {muon, 1};
    for (const auto &[owner, other] : {std::pair{"wte", "head"}, {"a", "b"}, {"wpe", "c"}, {"d", "e"}}) {
        zoff_param_desc d = of(owner, {4, 4});
        parts.add(d);
        d.name = other;
        parts.add(d);
    }
    ASSERT_ZOFF_OK(find());
    EXPECT_EQ(0u, count(0)) << "it is a table";
    EXPECT_EQ(0u, count(2)) << "one name is for AdamW";
    EXPECT_EQ(1u, count(4));
    EXPECT_EQ(1u, count(6));
    EXPECT_EQ(0u, count(7)) << "its owner has them";
}

TEST_F(Matrices, NamesOfATieAgreeAboutTheirRows)
{
    const char *rows[] = {"b=1,3"};
    parts.values.muon_rows = {rows, 1};
    zoff_param_desc d = of("a", {4, 4});
    parts.add(d);
    d.name = "b";
    parts.add(d);
    EXPECT_ZOFF_FAILS(
        ZOFF_ERR_INVALID,
        "zoff_engine_seal: a and b share their weights, but the rows of their matrices differ: give both the same "
        "zoff_param_desc.matrix_rows, or name both in zoff.muon_rows",
        find());
}

TEST_F(Matrices, RefusalsNameTheParameterAndAWayOut)
{
    const struct {
        const char *muon, *rows;
        sizes dims;
        const char *words;
    } cases[] = {
        {nullptr,
         nullptr,
         {1, 2, 1, 2, 1},
         "zoff_engine_seal: p has 5 dimensions, and Muon takes 2 (a matrix), 3 (a stack of matrices) or 4 (a convolution): "
         "name "
         "it in zoff.adam_params, or say with zoff.muon_rows how its rows are cut"},
        {"p",
         nullptr,
         {},
         "zoff_engine_seal: zoff.muon_params names p, which is registered without zoff_param_desc.dims, so its matrices are "
         "not "
         "known: give its dims, or patterns that do not name it"},
        {nullptr, "p=1", {}, "zoff_engine_seal: zoff.muon_rows names p, which is registered without zoff_param_desc.dims"},
        {nullptr,
         "p=4,2",
         {5, 2},
         "zoff_engine_seal: the rows of zoff.muon_rows for p add up to 6, which does not divide its first dimension of 5: give "
         "rows whose sum, once or repeated, is all of them"},
        {nullptr, "p=2", {5, 2}, "for p add up to 2, which does not divide its first dimension of 5"},
        {"q",
         nullptr,
         {2, 2},
         "zoff_engine_seal: zoff.muon_params: \"q\" matches the name of no parameter; correct or remove it, because it decides "
         "which update a parameter gets"},
        {nullptr, "pp=1", {2, 2}, "zoff_engine_seal: zoff.muon_rows: \"pp=1\" matches the name of no parameter"},
    };
    for (const auto &c : cases) {
        small_model other;
        zoff_optimizer_hyper_init(&other.values.hyper, ZOFF_OPTIMIZER_MUON);
        other.values.muon_params = {&c.muon, c.muon ? 1u : 0u};
        other.values.muon_rows = {&c.rows, c.rows ? 1u : 0u};
        other.add(of("p", c.dims));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, c.words, zoff_model_matrices_find(&other.m, true));
    }
}

// With zoff_engine_opts.norm_comm other engines have the other parameters.
TEST_F(Matrices, APartOfAModelNeedNotMatchAllPatterns)
{
    const char *names[] = {"elsewhere*"}, *rows[] = {"elsewhere=4"};
    parts.values.adam_params = {names, 1};
    add("fc", {4, 4});
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff.adam_params: \"elsewhere*\" matches the name of no parameter", find());
    EXPECT_ZOFF_OK(find(false));
    EXPECT_EQ(1u, count(0));
    parts.values.muon_rows = {rows, 1};
    log_catcher log;
    log.expect("zoff.adam_params: 1 of 1 patterns match no parameter of rank 0; the first of them is \"elsewhere*\"");
    log.expect("zoff.muon_rows: 1 of 1 patterns match no parameter of rank 0; the first of them is \"elsewhere=4\"");
    zoff_model_params_warn(m);
}

TEST_F(Matrices, OneLineCountsBothKinds)
{
    log_catcher log;
    log.expect("Muon updates 6 matrices in 2 parameters (8.4e-05 M elements), AdamW 2 other parameters (2.4e-05 M elements)");
    add("qkv", {6, 4}, {4, 1, 1});
    zoff_param_desc d = of("fc", {4, 5});
    d.slices = 3;
    parts.add(d);
    add("wte", {4, 4});
    add("bias", {8});
    d = of("frozen", {4, 5});
    d.frozen = true;
    parts.add(d);
    d = of("lion", {4, 5});
    d.group = 1;
    parts.add(d);
    zoff_optimizer_hyper lion;
    zoff_optimizer_hyper_init(&lion, ZOFF_OPTIMIZER_LION);
    ASSERT_ZOFF_OK(zoff_model_groups_set(m, 1, &lion, "set"));
    ASSERT_ZOFF_OK(find());
    zoff_model_matrices_tell(m, true);
    EXPECT_EQ(0u, log.lines.size()) << "a plan only says it for debugging";
    zoff_model_matrices_tell(m, false);
    EXPECT_EQ(1u, log.lines.size());
    const with_variables debug(variables{{"ZOFF_LOG_LEVEL", "debug"}});
    log.expect("qkv: 3 matrices of 4 or 1 or 1 x 4");
    log.expect("fc: 3 matrices of 4 x 5");
    zoff_model_matrices_tell(m, true);
    EXPECT_EQ(4u, log.lines.size());
}

TEST_F(Matrices, WithoutMuonNothingIsTold)
{
    log_catcher log;
    zoff_optimizer_hyper_init(&parts.values.hyper, ZOFF_OPTIMIZER_ADAM);
    add("fc", {4, 5});
    ASSERT_ZOFF_OK(find());
    zoff_model_matrices_tell(m, false);
    zoff_model_matrices_tell(m, true);
    EXPECT_EQ(0u, log.lines.size());
}
} // namespace
