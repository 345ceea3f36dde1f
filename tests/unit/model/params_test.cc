/* SPDX-License-Identifier: Apache-2.0 */
// params_test.cc: what the list stores of a description, its refusals, and the weights and gradients of a piece.
#include "allocation_fault.h"
#include "small_model.h"

#include <functional>

using namespace zoff_test;

namespace
{
// Give a description a shape, which lives until the next call.
void shape(zoff_param_desc &d, const std::vector<size_t> &dims)
{
    static std::vector<size_t> all;
    all = dims;
    all.push_back(0); // add a number, so that there is an address also without dimensions
    d.dims = all.data();
    d.dim_count = dims.size();
}

// The same for rows of matrices.
void rows(zoff_param_desc &d, const std::vector<size_t> &numbers)
{
    static std::vector<size_t> all;
    all = numbers;
    d.matrix_rows = all.data();
    d.matrix_row_count = numbers.size();
}

class Params : public testing::Test
{
  protected:
    small_model parts;
    zoff_model *m = &parts.m;
    alignas(8) char w[4096] = {}, g[4096] = {};
};

TEST_F(Params, ADescriptionHasDefaults)
{
    zoff_param_desc d = {};
    d.struct_size = sizeof d;
    d.count = 7;
    EXPECT_EQ(0u, parts.add(d));
    d.dtype = ZOFF_BF16;
    EXPECT_EQ(1u, parts.add(d));
    const zoff_model_param &plain = m->params[0], &half = m->params[1];
    EXPECT_STREQ("param0", plain.name);
    EXPECT_STREQ("param1", half.name);
    EXPECT_EQ(1u, plain.slices);
    EXPECT_EQ(ZOFF_F32, plain.dtype);
    EXPECT_EQ(ZOFF_F32, plain.grad_dtype);
    EXPECT_EQ(7u * 4, plain.value_stride);
    EXPECT_EQ(7u * 4, plain.grad_stride);
    EXPECT_EQ(ZOFF_BF16, half.grad_dtype) << "that of the weights";
    EXPECT_EQ(7u * 2, half.value_stride);
    EXPECT_EQ(7u * 2, half.grad_stride);
}

TEST_F(Params, TheListHasACopyOfAName)
{
    char name[] = "wte";
    parts.add(describe(name, 1));
    name[0] = '?';
    EXPECT_STREQ("wte", m->params[0].name);
}

TEST_F(Params, TheListHasACopyOfAShapeAndAPattern)
{
    size_t dims[] = {2, 3, 4};
    char pattern[] = "layers.{}.weight";
    zoff_param_desc d = describe("w", 24, 2);
    d.dims = dims;
    d.dim_count = 3;
    d.slice_name = pattern;
    parts.add(d);
    dims[0] = 9;
    pattern[0] = '?';
    const zoff_model_param &p = m->params[0];
    ASSERT_EQ(3u, p.shape.count);
    EXPECT_EQ(2u, p.shape.dims[0]);
    EXPECT_EQ(4u, p.shape.dims[2]);
    EXPECT_STREQ("layers.{}.weight", p.slice_name);
}

TEST_F(Params, WithoutAShapeASliceHasOneDimension)
{
    parts.add(describe("w", 24, 2));
    ASSERT_EQ(1u, m->params[0].shape.count);
    EXPECT_EQ(24u, m->params[0].shape.dims[0]);
    EXPECT_EQ(nullptr, m->params[0].slice_name);
}

TEST_F(Params, ShapesAreComparedAndPrinted)
{
    const size_t a[] = {6, 4}, b[] = {4, 6}, c[] = {24}, longest[64] = {1, 0};
    const auto add = [&](const size_t *dims, size_t dim_count, size_t count) {
        zoff_param_desc d = describe("w", count);
        d.dims = dims;
        d.dim_count = dim_count;
        return parts.add(d);
    };
    for (const auto &one : {std::make_pair(a, 2), {b, 2}, {c, 1}, {nullptr, 0}})
        add(one.first, one.second, 24);
    add(longest, 64, 0);
    const auto same = [&](size_t i, size_t k) { return zoff_model_params_same_shape(&m->params[i], &m->params[k]); };
    EXPECT_TRUE(same(0, 0));
    EXPECT_FALSE(same(0, 1));
    EXPECT_FALSE(same(0, 2));
    EXPECT_TRUE(same(2, 3)) << "no shape is one dimension";
    const auto print = [&](size_t i, size_t bytes) {
        std::string text(bytes, '?');
        zoff_model_params_print_shape(&m->params[i], &text[0], bytes);
        return std::string(text.c_str());
    };
    EXPECT_EQ("[6, 4]", print(0, ZOFF_SHAPE_BYTES));
    EXPECT_EQ("[24]", print(3, ZOFF_SHAPE_BYTES));
    EXPECT_EQ("[6,", print(0, 4)) << "no more than there is room for";
    for (size_t i = 0; i < 64; i++)
        m->params[4].shape.dims[i] = SIZE_MAX; // nobody has more
    EXPECT_EQ(64u * 20 + 63 * 2 + 2, print(4, ZOFF_SHAPE_BYTES).size());
}

TEST_F(Params, AShapeMayBeEmptyOrHaveAnyNumberOfOnes)
{
    const size_t empty[] = {(size_t)1 << 30, (size_t)1 << 28, 0};
    size_t many[64];
    for (size_t i = 0; i < 64; i++)
        many[i] = i == 2 ? 5 : 1;
    zoff_param_desc d = describe("empty", 0);
    d.dims = empty;
    d.dim_count = 3;
    EXPECT_ZOFF_OK(zoff_model_params_add(m, &d, nullptr));
    d = describe("many", 5);
    d.dims = many;
    d.dim_count = 64;
    d.slice_name = "{}"; // one slice may have a pattern
    EXPECT_ZOFF_OK(zoff_model_params_add(m, &d, nullptr));
}

// A checkpoint multiplies the dimensions in their order, and stores numbers of 64 bits with a sign.
TEST_F(Params, DimensionsThatNoCheckpointHoldsAreRefusedAlsoBesideAZero)
{
    for (const std::vector<size_t> &dims : std::vector<std::vector<size_t>>{
             {SIZE_MAX, 0}, {0, SIZE_MAX / 2}, {(size_t)1 << 30, (size_t)1 << 30, 0}, {((size_t)1 << 58) + 1, 0}}) {
        zoff_param_desc d = describe("empty", 0);
        shape(d, dims);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "beyond 2^58", zoff_model_params_add(m, &d, nullptr));
    }
}

TEST_F(Params, NamesThatNoCheckpointHoldsAreRefused)
{
    const std::string most(4095, 'x'), more = most + "x", pattern = std::string(4093, 'x') + "{}", longer = "x" + pattern;
    zoff_param_desc d = describe(most.c_str(), 1);
    d.slice_name = pattern.c_str();
    EXPECT_ZOFF_OK(zoff_model_params_add(m, &d, nullptr));
    EXPECT_ZOFF_OK(zoff_model_params_check_names(m));
    d.slice_name = longer.c_str();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has 4096 bytes, and may have 4095", zoff_model_params_add(m, &d, nullptr));
    d = describe(more.c_str(), 1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "has 4096 bytes, and may have 4095", zoff_model_params_add(m, &d, nullptr));
    EXPECT_EQ(1u, m->param_count);
}

TEST_F(Params, TwoParametersOfOneNameAreRefusedWithBoth)
{
    EXPECT_ZOFF_OK(zoff_model_params_check_names(m)) << "an engine may have none";
    parts.add(describe("wte", 1));
    parts.add(describe("param2", 1));
    EXPECT_ZOFF_OK(zoff_model_params_check_names(m));
    const zoff_param_desc unnamed = describe(nullptr, 1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID,
                      "parameters 1 and 2 are both named 'param2', and checkpoints find parameters by their names: give each "
                      "another zoff_param_desc.name (without one, the name is \"param\" and the number)",
                      zoff_model_params_add(m, &unnamed, nullptr));
    EXPECT_EQ(2u, m->param_count);
}

TEST_F(Params, EachIsFoundByItsName)
{
    enum { COUNT = 3000 };
    EXPECT_EQ(nullptr, zoff_model_params_find(m, "")) << "an engine may have none";
    for (unsigned i = 0; i < COUNT; i++)
        parts.add(describe(i % 3 ? std::to_string(i * 7919 % COUNT).c_str() : nullptr, 1));
    for (unsigned i = 0; i < COUNT; i++) {
        const zoff_param *found = zoff_model_params_find(m, m->params[i].name);
        ASSERT_NE(nullptr, found);
        ASSERT_EQ(i, *found);
    }
    EXPECT_EQ(nullptr, zoff_model_params_find(m, "param1"));
    EXPECT_EQ(nullptr, zoff_model_params_find(m, "param"));
}

TEST_F(Params, SlicesThatAnExportNamesAsAnotherTensorAreRefused)
{
    zoff_param_desc d = describe("h.12.w", 1, 1);
    d.slice_name = "h.{}2.w";
    parts.add(d); // the only slice is "h.02.w"
    d = describe("own.1", 1, 2);
    d.slice_name = "own.{}"; // the parameter has the name of one of its slices
    parts.add(d);
    EXPECT_ZOFF_OK(zoff_model_params_check_names(m));
    d = describe("b", 1, 13);
    d.slice_name = "h.{}.w";
    parts.add(d);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "parameter 0 ('h.12.w') and parameter 2 ('b') both have 'h.12.w' in an export",
                      zoff_model_params_check_names(m));
}

TEST_F(Params, SlicesAreNumberedOverAllParameters)
{
    for (size_t slices : {3, 0, 2})
        parts.add(describe("p", 5, slices));
    EXPECT_EQ(0u, m->params[0].first_flag);
    EXPECT_EQ(3u, m->params[1].first_flag);
    EXPECT_EQ(4u, m->params[2].first_flag) << "no slices means one";
    EXPECT_EQ(6u, m->slice_count);
}

TEST_F(Params, AGroupIsUsedByWhatIsTrained)
{
    zoff_param_desc d = describe("p", 5);
    d.group = 2;
    d.frozen = true;
    parts.add(d);
    EXPECT_EQ(3u, m->group_count);
    EXPECT_FALSE(m->groups[2].used);
    d.frozen = false;
    parts.add(d);
    d.frozen = true;
    parts.add(d);
    EXPECT_TRUE(m->groups[2].used);
    EXPECT_FALSE(m->groups[0].used);
}

TEST_F(Params, OverflowsAreRefusedAndAddNothing)
{
    parts.add(describe("first", 5, 2));
    const struct {
        const char *words;
        std::function<void(zoff_param_desc &)> spoil;
    } cases[] = {
        {"bad: dtype 99 is not a zoff_dtype", [](auto &d) { d.dtype = (zoff_dtype)99; }},
        {"bad: grad_dtype 99 is not a zoff_dtype", [](auto &d) { d.grad_dtype = (zoff_dtype)99; }},
        {"bad: 1073741825 slices are more than the 1073741824", [](auto &d) { d.slices = (1u << 30) + 1; }},
        {"bad: value_stride 9 is less than count 10: the slices would overlap", [](auto &d) { d.value_stride = 9; }},
        {"bad: grad_stride 9 is less than count 10: the slices would overlap", [](auto &d) { d.grad_stride = 9; }},
        {"bad: 2 slices of 4611686018427387904 elements, 4611686018427387904 apart, are more than fits in memory",
         [](auto &d) { d.count = SIZE_MAX / 4 + 1; }},
        {"bad: 2 slices of 10 elements, 1152921504606846976 apart", [](auto &d) { d.value_stride = SIZE_MAX / 16 + 1; }},
        {"bad: 2 slices of 10 elements, 1152921504606846976 apart", [](auto &d) { d.grad_stride = SIZE_MAX / 16 + 1; }},
        {"bad: value and grad must be aligned", [](auto &d) { d.value = (char *)d.value + 2; }},
        {"bad: value and grad must be aligned", [](auto &d) { d.grad = (char *)d.grad + 2; }},
        {"bad: the product of the 2 dimensions in zoff_param_desc.dims is 12, but count is 10; dims is the shape of one slice",
         [](auto &d) {
             shape(d, {3, 4});
         }},
        {"bad: the product of the 1 dimensions in zoff_param_desc.dims is 20, but count is 10",
         [](auto &d) { shape(d, {20}); }},
        {"bad: the product of the 2 dimensions in zoff_param_desc.dims is 0, but count is 10",
         [](auto &d) {
             shape(d, {10, 0});
         }},
        {"bad: the product of the 3 dimensions in zoff_param_desc.dims is beyond 2^58, and count is 10",
         [](auto &d) {
             shape(d, {10, size_t{1} << 32, size_t{1} << 32});
         }}, // 10 in 64 bits would be 0
        {"bad: zoff_param_desc.dims is given, but dim_count is 0", [](auto &d) { shape(d, {}); }},
        {"bad: zoff_param_desc.dim_count is 65; a parameter has at most 64 dimensions",
         [](auto &d) { shape(d, std::vector<size_t>(65, 1)); }},
        {"bad: zoff_param_desc.dim_count is 2, but dims is NULL", [](auto &d) { d.dim_count = 2; }},
        {"bad: zoff_param_desc.matrix_rows is NULL, but matrix_row_count is 2; set both or none",
         [](auto &d) { d.matrix_row_count = 2; }},
        {"bad: zoff_param_desc.matrix_rows is given, but matrix_row_count is 0",
         [](auto &d) { d.matrix_rows = &d.matrix_row_count; }},
        {"bad: zoff_param_desc.matrix_rows cuts the first of several dimensions, but dims is NULL",
         [](auto &d) { rows(d, {10}); }},
        {"bad: zoff_param_desc.matrix_rows cuts the first of several dimensions, but dims has only one",
         [](auto &d) {
             shape(d, {10});
             rows(d, {10});
         }},
        {"bad: number 1 of zoff_param_desc.matrix_rows is 3, after 3 rows of the 5 in dims[0]",
         [](auto &d) {
             shape(d, {5, 2});
             rows(d, {3, 3});
         }},
        {"bad: number 1 of zoff_param_desc.matrix_rows is 0, after 2 rows of the 5 in dims[0]",
         [](auto &d) {
             shape(d, {5, 2});
             rows(d, {2, 0, 3});
         }},
        {"bad: zoff_param_desc.matrix_rows add up to 2, which does not divide the 5 rows in dims[0]",
         [](auto &d) {
             shape(d, {5, 2});
             rows(d, {1, 1});
         }},
        {"bad: zoff_param_desc.slice_name is \"layer\"; it must contain \"{}\" once", [](auto &d) { d.slice_name = "layer"; }},
        {"bad: zoff_param_desc.slice_name is \"\"; it must", [](auto &d) { d.slice_name = ""; }},
        {"bad: zoff_param_desc.slice_name is \"a{}.{}\"; it must", [](auto &d) { d.slice_name = "a{}.{}"; }},
        {"group 1048576 is out of range", [](auto &d) { d.group = 1 << 20; }},
    };
    for (const auto &c : cases) {
        zoff_param_desc d = describe("bad", 10, 2);
        d.value = w;
        d.grad = g;
        d.group = 1;
        c.spoil(d);
        zoff_param out = 77;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, c.words, zoff_model_params_add(m, &d, &out));
        EXPECT_EQ(77u, out);
        EXPECT_EQ(1u, m->param_count);
        EXPECT_EQ(1u, m->group_count);
        EXPECT_EQ(2u, m->slice_count);
    }
}

TEST_F(Params, TheLargestSizesAreAccepted)
{
    zoff_param_desc d = describe("half", 10, 2);
    d.value_stride = d.grad_stride = 10;
    d.dtype = ZOFF_BF16;
    d.value = w + 2;
    d.grad = g + 2;
    d.group = (1 << 20) - 1;
    parts.add(d);
    d.slices = 1;
    d.value_stride = d.grad_stride = 1; // with one slice the stride has no meaning
    parts.add(d);
    d.count = 0;
    d.slices = 1u << 30;
    d.name = "empty";
    EXPECT_ZOFF_OK(zoff_model_params_add(m, &d, nullptr)) << "nobody has to ask for its number";
    EXPECT_EQ(3u, m->param_count);
}

TEST_F(Params, WithoutMemoryTheModelIsAsItWas)
{
    const int failures = fail_each_allocation([&] {
        small_model own;
        zoff_param_desc d = describe("p", 5, 2);
        d.group = 3;
        d.slice_name = "p{}";
        shape(d, {5, 1});
        rows(d, {2, 3});
        zoff_param out = 77;
        const zoff_status status = zoff_model_params_add(&own.m, &d, &out);
        EXPECT_EQ(allocations_left >= 0 ? ZOFF_OK : ZOFF_ERR_NO_MEMORY, status) << zoff_last_error();
        if (status < 0) {
            EXPECT_EQ(77u, out);
            EXPECT_EQ(0u, own.m.param_count);
            EXPECT_EQ(0u, own.m.group_count);
            EXPECT_EQ(0u, own.m.slice_count);
            EXPECT_ZOFF_OK(zoff_model_params_add(&own.m, &d, &out));
        }
        EXPECT_EQ(0u, out);
        EXPECT_EQ(1u, own.m.param_count);
        EXPECT_EQ(4u, own.m.group_count);
        EXPECT_EQ(2u, own.m.slice_count);
    });
    EXPECT_EQ(7, failures) << "the list, the groups, the name and where it is found, the shape, the pattern, the rows";
}

TEST_F(Params, ThePlanSeesTheStatesThatAParameterHas)
{
    zoff_param_desc d = describe("p", 5, 3);
    parts.add(d);
    d.frozen = d.engine_owned = true;
    d.dtype = ZOFF_BF16;
    parts.add(d);
    const auto of = [&](size_t i) { return zoff_model_params_tensor(m, &m->params[i]); };
    EXPECT_EQ(5u, of(0).count);
    EXPECT_EQ(3u, of(0).slices);
    EXPECT_EQ(0u, of(0).weight_bytes) << "they are the program's";
    EXPECT_TRUE(of(0).bytes[ZOFF_STREAM_M] && of(0).bytes[ZOFF_STREAM_V]);
    parts.values.persist = true;
    EXPECT_TRUE(of(0).bytes[ZOFF_STREAM_MASTER]) << "files that persist hold a copy of the weights";
    EXPECT_TRUE(of(1).frozen);
    EXPECT_EQ(2u, of(1).weight_bytes);
    EXPECT_FALSE(of(1).bytes[ZOFF_STREAM_MASTER] || of(1).bytes[ZOFF_STREAM_M] || of(1).bytes[ZOFF_STREAM_V]);
    zoff_optimizer_hyper_init(&parts.values.hyper, ZOFF_OPTIMIZER_LION);
    EXPECT_TRUE(of(0).bytes[ZOFF_STREAM_M]);
    EXPECT_FALSE(of(0).bytes[ZOFF_STREAM_V]);
}

TEST_F(Params, TheEngineKeepsWeightsOfOneThatIsOwned)
{
    zoff_param_desc d = describe("p", 5);
    EXPECT_FALSE(zoff_model_params_any_owned(m));
    parts.add(d);
    EXPECT_FALSE(zoff_model_params_any_owned(m));
    d.engine_owned = true;
    parts.add(d);
    EXPECT_TRUE(zoff_model_params_any_owned(m));
}

TEST_F(Params, APieceLiesAtItsSliceAndFirstElement)
{
    zoff_param_desc d = describe("p", 40, 3);
    d.value = w;
    d.grad = g;
    d.value_stride = 50;
    d.grad_stride = 60;
    d.dtype = ZOFF_BF16;
    d.grad_dtype = ZOFF_F32;
    parts.add(d);
    zoff_plan_piece piece = {};
    piece.slice = 2;
    piece.first = 16;
    piece.weight_offset = 192;
    EXPECT_EQ(w + (2 * 50 + 16) * 2, zoff_model_params_value(m, &piece, nullptr));
    EXPECT_EQ(w + (2 * 50 + 16) * 2, zoff_model_params_value(m, &piece, g)) << "the chunk has none of them";
    EXPECT_EQ(g + (2 * 60 + 16) * 4, zoff_model_params_there(m, &piece));
}

TEST_F(Params, WeightsOfTheEngineLieInTheirChunk)
{
    zoff_param_desc d = describe("p", 40, 3);
    d.engine_owned = true;
    d.value = w;
    parts.add(d);
    d.value = nullptr;
    parts.add(d);
    zoff_plan_piece piece = {};
    piece.slice = 1;
    piece.first = 16;
    piece.weight_offset = 192;
    EXPECT_EQ(g + 192, zoff_model_params_value(m, &piece, g));
    EXPECT_EQ(w + (40 + 16) * 4, zoff_model_params_value(m, &piece, nullptr)) << "the first ones";
    piece.param = 1;
    EXPECT_EQ(g + 192, zoff_model_params_value(m, &piece, g));
    EXPECT_EQ(nullptr, zoff_model_params_value(m, &piece, nullptr));
}

TEST_F(Params, GradientsOfTheProgramAreFoundBySlice)
{
    zoff_param_desc d = describe("p", 10, 3);
    d.grad = g;
    d.grad_stride = 12;
    d.dtype = ZOFF_F16;
    parts.add(d);
    d.grad = nullptr;
    parts.add(d);
    zoff_dtype dtype = ZOFF_F32;
    EXPECT_EQ(g + 2 * 12 * 2, zoff_model_params_given_grad(m, 0, 2, &dtype));
    EXPECT_EQ(ZOFF_F16, dtype);
    EXPECT_EQ(g + 2 * 12 * 2, zoff_model_params_own_grad(m, 0, 2, &dtype));
    EXPECT_EQ(nullptr, zoff_model_params_given_grad(m, 1, 2, &dtype));
    EXPECT_EQ(nullptr, zoff_model_params_own_grad(m, 1, 2, &dtype));
    EXPECT_EQ(0u, zoff_model_params_owner(m, 0));
    EXPECT_EQ(99u, zoff_model_params_owner(m, 99)) << "it is in no list";
}

TEST_F(Params, ASumOfTiedGradientsIsNotTheGradientThatWasGiven)
{
    zoff_param_desc d = describe("wte", 10);
    d.dtype = ZOFF_BF16;
    d.value = w;
    d.grad = g;
    parts.add(d);
    d.grad = g + 100;
    parts.add(d);
    ASSERT_ZOFF_OK(zoff_model_ties_find(m));
    alignas(8) char sums[40];
    zoff_model_ties_place(m, sums);
    zoff_dtype dtype = ZOFF_F32;
    EXPECT_EQ(0u, zoff_model_params_owner(m, 1));
    EXPECT_EQ(sums, m->params[0].grad);
    EXPECT_EQ(g, zoff_model_params_given_grad(m, 0, 0, &dtype));
    EXPECT_EQ(g, zoff_model_params_own_grad(m, 0, 0, &dtype));
    EXPECT_EQ(ZOFF_BF16, dtype);
    EXPECT_EQ(g + 100, zoff_model_params_given_grad(m, 1, 0, &dtype));
    parts.make_plan(64);
    ASSERT_ZOFF_OK(zoff_model_slices_open(m, &parts.plan));
    m->flags[0] = ZOFF_SLICE_READY;
    EXPECT_FALSE(zoff_model_params_is_given(m, 0, 0)) << "READY is of the sum";
    m->flags[0] = ZOFF_SLICE_GIVEN;
    EXPECT_TRUE(zoff_model_params_is_given(m, 0, 0));
    EXPECT_FALSE(zoff_model_params_is_given(m, 1, 0));
}

TEST_F(Params, AGradientIsGivenOnceItsSliceIsReady)
{
    parts.add(describe("p", 10, 2));
    parts.make_plan(64);
    ASSERT_ZOFF_OK(zoff_model_slices_open(m, &parts.plan));
    m->flags[1] = ZOFF_SLICE_READY;
    m->flags[0] = ZOFF_SLICE_PRESENT | ZOFF_SLICE_GIVEN;
    EXPECT_FALSE(zoff_model_params_is_given(m, 0, 0));
    EXPECT_TRUE(zoff_model_params_is_given(m, 0, 1));
    zoff_plan_piece piece = {};
    piece.slice = 1;
    EXPECT_EQ(&m->flags[1], zoff_model_params_flag(m, &piece));
}
} // namespace
