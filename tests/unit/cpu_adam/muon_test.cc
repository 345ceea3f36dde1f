/* SPDX-License-Identifier: Apache-2.0 */
// muon_test.cc: Muon's step over plain memory: against the recursion in fp64 over 200 steps, and bit for bit against plain
// loops, for stacks, lists and all types. Also what is refused, and what happens without memory.
#include "tensors.h"
#include "zoff_test.h"

#include <cmath>

namespace
{
zoff_optimizer_hyper muon()
{
    zoff_optimizer_hyper h;
    zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_MUON);
    return h;
}

double scale_of(zoff_muon_scale scale, double rows, double cols)
{
    const double SCALES[] = {std::sqrt(std::max(1.0, rows / cols)), 0.2 * std::sqrt(std::max(rows, cols)),
                             std::sqrt(std::max(rows, cols)), std::sqrt(rows / cols)};
    return SCALES[scale];
}

// A stack of matrices whose gradients are given, once in fp32 and once in fp64. A matrix with more rows than columns is turned
// in fp64, because the recursion is the same for its transpose.
struct twins {
    size_t rows, cols, count;
    std::vector<float> p, m, g;
    std::vector<double> exact_p, exact_m, first;

    twins(size_t r, size_t c, size_t matrices, uint64_t seed)
        : rows(r), cols(c), count(r * c * matrices), p(count), m(count), g(count)
    {
        kernel_data::random_source random(seed);
        for (auto &x : p)
            x = (float)(0.05 * random.unit());
        exact_p.assign(p.begin(), p.end());
        first = exact_p;
        exact_m.resize(count);
    }
    void step(const zoff_optimizer_hyper &h, int64_t t)
    {
        zoff_optimizer_tensor tensor = ZOFF_OPTIMIZER_TENSOR_INIT;
        kernel_data::random_source random((uint64_t)t), base(99);
        for (auto &x : g)
            x = (float)(random.unit() + 0.3 * base.unit());
        tensor.count = count;
        tensor.master = p.data();
        tensor.m = m.data();
        tensor.grad = g.data();
        tensor.rows = rows;
        tensor.cols = cols;
        ASSERT_ZOFF_OK(zoff_optimizer_step(&h, t, 0.5, &tensor));
        const bool turned = rows > cols;
        std::vector<double> u(rows * cols);
        for (size_t from = 0; from < count; from += rows * cols) {
            const auto place = [&](size_t i) { return turned ? i % cols * rows + i / cols : i; };
            for (size_t i = 0; i < rows * cols; i++) {
                const double grad = 0.5 * (double)g[from + i];
                double &moment = exact_m[from + i];
                moment = h.momentum * moment + (1 - h.momentum) * grad;
                u[place(i)] = h.nesterov ? h.momentum * moment + (1 - h.momentum) * grad : moment;
            }
            oracle_orthogonal_exact(std::min(rows, cols), std::max(rows, cols), u.data(), h.coefficients, h.ns_steps);
            for (size_t i = 0; i < rows * cols; i++) {
                double &weight = exact_p[from + i];
                weight *= 1 - h.lr * h.weight_decay;
                weight -= h.lr * scale_of(h.scale, (double)rows, (double)cols) * u[place(i)];
            }
        }
    }
    // The distance of both, as a part of the change of the weights.
    double distance() const
    {
        double apart = 0, change = 0;
        for (size_t i = 0; i < count; i++) {
            apart += std::pow((double)p[i] - exact_p[i], 2);
            change += std::pow(exact_p[i] - first[i], 2);
        }
        return std::sqrt(apart / change);
    }
};

TEST(muon, follows_the_recursion_in_fp64)
{
    const struct {
        size_t rows, cols, matrices;
    } SHAPES[] = {{16, 36, 1}, {36, 16, 1}, {24, 24, 1}, {10, 22, 2}, {25, 12, 2}};
    double worst[3] = {};
    for (int set = 0; set < 5; set++) {
        for (size_t shape = 0; shape < 5; shape++) {
            for (int method = 0; method < 2; method++) {
                zoff_optimizer_hyper h = muon();
                h.coefficients = (zoff_muon_coefficients)set;
                h.scale = (zoff_muon_scale)((set + (int)shape + method) % 4); // each with each set and each shape
                h.ns_method = (zoff_muon_method)method;
                h.nesterov = (set + (int)shape) % 3 != 0;
                h.weight_decay = shape % 2 ? 0.1 : 0;
                const bool is_long = set == ZOFF_MUON_DEEPSEEKV4 && shape < 2;
                h.ns_steps = is_long ? 10 : 5;
                SCOPED_TRACE(::testing::Message() << "set " << set << ", shape " << shape << ", method " << method);
                twins both(SHAPES[shape].rows, SHAPES[shape].cols, SHAPES[shape].matrices, shape + 1);
                for (int64_t t = 1; t <= 200 && !HasFailure(); t++)
                    both.step(h, t);
                const bool gram = method == ZOFF_MUON_GRAM && shape != 2;
                EXPECT_LE(both.distance(), is_long ? 1e-4 : gram ? 5e-5 : 1e-5);
                double &most = worst[is_long ? 2 : gram];
                most = std::max(most, both.distance());
            }
        }
    }
    printf("worst distance: standard %.2g, gram %.2g, ten iterations %.2g\n", worst[0], worst[1], worst[2]);
}

// A tensor of 2 matrices of 9 x 5 in any types, after a step by plain loops.
void step_by_loops(owned_tensor *f, size_t rows, size_t cols, double grad_scale)
{
    const zoff_optimizer_hyper &h = f->rule.hyper;
    zoff_optimizer_tensor whole = f->tensor();
    for (size_t first = 0; first < f->count; first += rows * cols) {
        std::vector<float> x(rows * cols);
        zoff_optimizer_tensor part = whole;
        part.count = rows * cols;
        part.master = x.data();
        part.master_dtype = ZOFF_F32;
        part.copy_out = nullptr;
        part.m = whole.m + first;
        part.grad = (const char *)whole.grad + first * zoff_adam_dtype_bytes(f->grads);
        oracle_muon_pass(&h, 0, 0, grad_scale, &part);
        const bool gram = h.ns_method == ZOFF_MUON_GRAM && std::max(rows, cols) >= 2 * std::min(rows, cols);
        oracle_orthogonal(rows, cols, x.data(), h.coefficients, h.ns_steps, gram);
        part.master = (char *)whole.master + first * zoff_adam_dtype_bytes(f->weights.master);
        part.master_dtype = whole.master_dtype;
        part.copy_out = whole.copy_out ? (uint16_t *)whole.copy_out + first : nullptr;
        part.grad = x.data();
        part.grad_dtype = ZOFF_F32;
        oracle_muon_pass(&h, 1, scale_of(h.scale, (double)rows, (double)cols), grad_scale, &part);
    }
}

rule_case matrix_case(double weight_decay)
{
    rule_case c = make_rule(ZOFF_RULE_MUON_NESTEROV, "Muon", ZOFF_OPTIMIZER_MUON, weight_decay, true, false);
    c.hyper.coefficients = ZOFF_MUON_POLAR_EXPRESS;
    return c;
}

// Matrices of all types, stacks, and other tensors, in one list and one by one.
TEST(muon, a_list_of_matrices_and_other_tensors_equals_plain_loops)
{
    const size_t SHAPES[][2] = {{9, 5}, {5, 30}, {40, 8}, {0, 0}, {1, 17}};
    std::vector<owned_tensor> expected;
    std::vector<std::array<size_t, 2>> shapes;
    for (zoff_dtype grads : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
        for (const auto &weights : every_weights_kind()) {
            if (weights.split)
                continue;
            const size_t *shape = SHAPES[expected.size() % 5], elements = shape[0] * shape[1];
            rule_case rule = matrix_case(expected.size() % 2 ? 0.1 : 0);
            rule.states.v = !elements; // AdamW
            expected.emplace_back(rule, grads, weights, elements ? elements * (1 + expected.size() % 3) : 1000, true);
            shapes.push_back({shape[0], shape[1]});
        }
    }
    std::vector<owned_tensor> listed = expected, single = expected;
    std::vector<zoff_optimizer_tensor> tensors;
    std::vector<zoff_optimizer_hyper> hypers;
    for (size_t i = 0; i < expected.size(); i++) {
        tensors.push_back(listed[i].tensor());
        tensors.back().rows = shapes[i][0];
        tensors.back().cols = shapes[i][1];
        hypers.push_back(listed[i].rule.hyper);
        if (shapes[i][0])
            step_by_loops(&expected[i], shapes[i][0], shapes[i][1], 0.25);
        else
            expected[i].step_by_oracle(7, 0.25);
        zoff_optimizer_tensor alone = single[i].tensor();
        alone.rows = shapes[i][0];
        alone.cols = shapes[i][1];
        ASSERT_ZOFF_OK(zoff_optimizer_step(&hypers[i], 7, 0.25, &alone));
        expect_same(expected[i], single[i]);
    }
    ASSERT_ZOFF_OK(
        zoff_optimizer_step_list(hypers.data(), sizeof hypers[0], 7, 0.25, tensors.data(), sizeof tensors[0], tensors.size()));
    for (size_t i = 0; i < expected.size(); i++)
        expect_same(expected[i], listed[i]);
    // Without a stride all share the first struct.
    owned_tensor shared(matrix_case(0.1), ZOFF_F32, every_weights_kind()[0], 45, true), other = shared;
    step_by_loops(&other, 9, 5, 1);
    zoff_optimizer_tensor one = shared.tensor();
    one.rows = 9;
    one.cols = 5;
    ASSERT_ZOFF_OK(zoff_optimizer_step_list(&shared.rule.hyper, 0, 1, 1, &one, sizeof one, 1));
    expect_same(other, shared);
}

TEST(muon, a_shape_without_a_matrix_is_refused_by_name)
{
    owned_tensor f(matrix_case(0), ZOFF_F32, every_weights_kind()[0], 12, false), before = f;
    const auto fails = [&](const char *words, auto change) {
        zoff_optimizer_tensor tensor = f.tensor();
        tensor.rows = 3;
        tensor.cols = 4;
        change(tensor);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, zoff_optimizer_step(&f.rule.hyper, 1, 1, &tensor));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, zoff_optimizer_step_list(&f.rule.hyper, 0, 1, 1, &tensor, sizeof tensor, 1));
        expect_same(before, f);
    };
    fails("tensor.rows is 3 and cols 0; set both, or none for AdamW", [](auto &t) { t.cols = 0; });
    fails("tensor.rows is 0 and cols 4; set both, or none for AdamW", [](auto &t) { t.rows = 0; });
    fails("tensor.count is 12, which is no multiple of a matrix of 5 x 4", [](auto &t) { t.rows = 5; });
    fails("is a matrix of 288230376151711744 x 1: more elements than memory can hold", [](auto &t) {
        t.rows = t.count = (size_t)1 << 58;
        t.cols = 1;
    });
    fails("no multiple of a matrix", [](auto &t) { t.rows = t.cols = SIZE_MAX / 2; });
    fails("tensor.m is NULL", [](auto &t) { t.m = nullptr; });
    fails("tensor.v is NULL", [](auto &t) { t.rows = t.cols = 0; });
    // A struct from before the fields is no matrix, whatever lies behind it.
    std::vector<float> v(12);
    zoff_optimizer_tensor older = f.tensor();
    older.v = v.data();
    older.rows = 7;
    older.struct_size = offsetof(zoff_optimizer_tensor, rows);
    EXPECT_ZOFF_OK(zoff_optimizer_step(&f.rule.hyper, 1, 1, &older));
    EXPECT_NE(0, v[3]);
    // No other optimizer reads them, and an empty tensor has nothing to be done.
    zoff_optimizer_hyper adam;
    zoff_optimizer_hyper_init(&adam, ZOFF_OPTIMIZER_ADAM);
    older.struct_size = sizeof older;
    EXPECT_ZOFF_OK(zoff_optimizer_step(&adam, 1, 1, &older));
    zoff_optimizer_tensor empty = ZOFF_OPTIMIZER_TENSOR_INIT;
    empty.rows = empty.cols = 3;
    EXPECT_ZOFF_OK(zoff_optimizer_step(&f.rule.hyper, 1, 1, &empty));
}

#if !defined(ZOFF_TEST_SANITIZED) // a sanitizer ends the program
// The workspace comes first: these arrays are much smaller than the matrix that they are said to be.
TEST(muon, without_memory_nothing_changes)
{
    owned_tensor f(matrix_case(0.1), ZOFF_F32, every_weights_kind()[1], 100, false), before = f;
    owned_tensor plain(every_rule()[ZOFF_RULE_ADAM_DECOUPLED], ZOFF_F32, every_weights_kind()[0], 100, false),
        plain_before = plain;
    zoff_optimizer_tensor tensors[] = {plain.tensor(), f.tensor()};
    tensors[1].rows = tensors[1].cols = (size_t)1 << 24;
    tensors[1].count = (size_t)1 << 48;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "a matrix and its orthogonalization",
                      zoff_optimizer_step_list(&f.rule.hyper, 0, 1, 1, tensors, sizeof tensors[0], 2));
    expect_same(before, f);
    expect_same(plain_before, plain);
}
#endif

// A NaN makes its own matrix NaN, and no other of the stack.
TEST(muon, a_nan_stays_in_its_matrix)
{
    owned_tensor f(matrix_case(0), ZOFF_F32, every_weights_kind()[0], 24, false);
    for (const float bad : {NAN, INFINITY}) {
        memcpy(f.grad.data() + 4 * sizeof(float), &bad, sizeof bad);
        zoff_optimizer_tensor tensor = f.tensor();
        tensor.rows = 3;
        tensor.cols = 4;
        ASSERT_ZOFF_OK(zoff_optimizer_step(&f.rule.hyper, 1, 1, &tensor));
        for (size_t i = 0; i < 24; i++)
            EXPECT_EQ(i < 12, std::isnan(oracle_load(f.master.data(), ZOFF_F32, i))) << i;
    }
}
} // namespace
