/* SPDX-License-Identifier: Apache-2.0 */
// gradient_test.cc: compares the backward pass of the example trainer with finite differences of its loss, tensor by tensor.
// Compares its plain optimizer and its matrix product with simple loops.
#include "zoff_test.h"

extern "C" {
#include "bf16.h"
#include "data.h"
#include "matmul.h"
#include "model.h"
#include "plain_adamw.h"
}
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace
{
const gpt_shape tiny = {2, 3, 18, 7, 3}; // layers, heads, width, context, batch; none is a multiple of a tile

struct trained_model {
    explicit trained_model(gpt_shape shape, bool bf16 = false, float gain = 1.0f)
    {
        EXPECT_EQ(nullptr, gpt_model_create(shape, &gpt_alone, bf16, 7, &model));
        if (!bf16) // larger than initial weights, so that gradients exceed the rounding error
            for (int i = 0; i < GPT_TENSORS; i++)
                for (size_t k = 0; k < model.tensor[i].count * model.tensor[i].slices; k++) {
                    float &value = static_cast<float *>(model.tensor[i].value)[k];
                    const float wobble = static_cast<float>(gpt_random(9, k * GPT_TENSORS + i) % 1000) / 1000.0f - 0.5f;
                    value = gain == 1.0f ? value : gain * value + 0.3f * wobble;
                }
        for (size_t i = 0; i < shape.batch * shape.context; i++) {
            inputs.push_back(static_cast<uint8_t>("the licence"[gpt_random(1, i) % 11]));
            targets.push_back(static_cast<uint8_t>("of a program"[gpt_random(2, i) % 12]));
        }
    }
    ~trained_model() { gpt_model_destroy(&model); }
    trained_model(const trained_model &) = delete;
    double loss() { return gpt_model_forward(&model, inputs.data(), targets.data()); }
    void backward() { gpt_model_backward(&model, inputs.data()); }
    gpt_model model = {};
    std::vector<uint8_t> inputs, targets;
};

// The slope of the loss when one tensor moves along `direction`: central differences at two widths, extrapolated to zero.
double slope(trained_model &t, const gpt_tensor &tensor, const std::vector<double> &direction)
{
    auto values = static_cast<float *>(tensor.value);
    const std::vector<float> saved(values, values + direction.size());
    const auto loss_at = [&](double h) {
        for (size_t i = 0; i < direction.size(); i++)
            values[i] = static_cast<float>(saved[i] + h * direction[i]);
        return t.loss();
    };
    const double h = 4e-3, narrow = (loss_at(h) - loss_at(-h)) / (2 * h), wide = (loss_at(2 * h) - loss_at(-2 * h)) / (4 * h);
    std::copy(saved.begin(), saved.end(), values);
    return (4 * narrow - wide) / 3;
}

// One thread: in thousands of tiny passes threads would only wait for each other. Another test covers threads.
class gradient : public testing::TestWithParam<int>
{
  protected:
    gradient() : threads(omp_get_max_threads()) { omp_set_num_threads(1); }
    ~gradient() override { omp_set_num_threads(threads); }
    const int threads;
};

TEST_P(gradient, is_the_slope_of_the_loss)
{
    trained_model t(tiny, false, 4.0f);
    t.loss();
    t.backward();
    const gpt_tensor &tensor = t.model.tensor[GetParam()];
    const size_t count = tensor.count * tensor.slices;
    const auto grads = static_cast<const float *>(tensor.grad);
    const std::vector<double> grad(grads, grads + count);
    const double norm = std::sqrt(std::inner_product(grad.begin(), grad.end(), grad.begin(), 0.0));
    ASSERT_GT(norm, 1e-4) << tensor.name;

    // Along the gradient, the slope is the norm of the gradient.
    std::vector<double> along(grad);
    for (double &x : along)
        x /= norm;
    EXPECT_NEAR(slope(t, tensor, along), norm, 5e-3 * norm) << tensor.name;

    // Single elements: the largest ones, and some random ones.
    std::vector<size_t> picks(count);
    std::iota(picks.begin(), picks.end(), 0);
    std::sort(picks.begin(), picks.end(), [&](size_t a, size_t b) { return std::fabs(grad[a]) > std::fabs(grad[b]); });
    picks.resize(std::min<size_t>(count, 12));
    for (int i = 0; i < 12; i++)
        picks.push_back(gpt_random(3, static_cast<uint64_t>(i)) % count);
    for (const size_t pick : picks) {
        std::vector<double> one(count, 0.0);
        one[pick] = 1.0;
        EXPECT_NEAR(slope(t, tensor, one), grad[pick], 3e-4 + 2e-3 * std::fabs(grad[pick])) << tensor.name << " " << pick;
    }
}

std::string tensor_name(const testing::TestParamInfo<int> &info)
{
    gpt_model model;
    EXPECT_EQ(nullptr, gpt_model_create(tiny, &gpt_alone, false, 1, &model));
    std::string name = model.tensor[info.param].name;
    gpt_model_destroy(&model);
    std::replace(name.begin(), name.end(), '.', '_');
    return name;
}

INSTANTIATE_TEST_SUITE_P(each_tensor, gradient, testing::Range(0, static_cast<int>(GPT_TENSORS)), tensor_name);

TEST(model, bits_do_not_depend_on_the_number_of_threads)
{
    std::vector<double> losses;
    std::vector<std::vector<float>> grads;
    const int before = omp_get_max_threads();
    for (const int threads : {1, 2, 3, 5}) {
        omp_set_num_threads(threads);
        trained_model t({2, 3, 48, 13, 5});
        losses.push_back(t.loss());
        t.backward();
        const auto g = static_cast<const float *>(t.model.grads);
        grads.emplace_back(g, g + t.model.parameter_count);
    }
    omp_set_num_threads(before);
    for (size_t i = 1; i < losses.size(); i++) {
        EXPECT_EQ(losses[0], losses[i]);
        EXPECT_EQ(grads[0], grads[i]);
    }
}

TEST(model, first_loss_is_that_of_a_guess)
{
    trained_model t({2, 2, 32, 16, 8});
    EXPECT_NEAR(t.loss(), std::log(256.0), 0.1);
}

TEST(model, tokens_do_not_see_the_future)
{
    trained_model t(tiny);
    t.loss();
    const double first = t.model.row_losses[2];
    t.inputs[3] ^= 1; // a later token of the same sequence
    t.loss();
    EXPECT_EQ(first, t.model.row_losses[2]);
    t.inputs[1] ^= 1; // an earlier token
    t.loss();
    EXPECT_NE(first, t.model.row_losses[2]);
}

TEST(model, bf16_gradients_are_those_of_fp32_rounded)
{
    trained_model half(tiny, true), full(tiny);
    for (int i = 0; i < GPT_TENSORS; i++)
        for (size_t k = 0; k < half.model.tensor[i].count * half.model.tensor[i].slices; k++)
            static_cast<float *>(full.model.tensor[i].value)[k] =
                gpt_bf16_load(static_cast<const uint16_t *>(half.model.tensor[i].value)[k]);
    EXPECT_EQ(half.loss(), full.loss());
    half.backward();
    full.backward();
    for (int i = 0; i < GPT_TENSORS; i++)
        for (size_t k = 0; k < half.model.tensor[i].count * half.model.tensor[i].slices; k++)
            ASSERT_EQ(static_cast<const uint16_t *>(half.model.tensor[i].grad)[k],
                      gpt_bf16_round(static_cast<const float *>(full.model.tensor[i].grad)[k]))
                << half.model.tensor[i].name << " " << k;
}

TEST(model, wrong_shapes_are_refused)
{
    gpt_model model = {};
    EXPECT_STREQ("width must be a multiple of heads", gpt_model_create({1, 3, 16, 4, 1}, &gpt_alone, false, 1, &model));
    EXPECT_STREQ("width must be a multiple of heads", gpt_model_create({1, 0, 16, 4, 1}, &gpt_alone, false, 1, &model));
    EXPECT_NE(nullptr, gpt_model_create({0, 1, 16, 4, 1}, &gpt_alone, false, 1, &model));
    EXPECT_NE(nullptr, gpt_model_create({1, 1, 16, 4, 65537}, &gpt_alone, false, 1, &model));
    EXPECT_EQ(nullptr, model.values);
}

// A rank's share of the batch may be empty. It still takes part in the passes and contributes zeros.
TEST(model, a_batch_of_none_has_zeros_for_gradients)
{
    gpt_model model = {};
    const uint8_t nothing[1] = {0};
    ASSERT_EQ(nullptr, gpt_model_create({2, 2, 16, 4, 0}, &gpt_alone, false, 1, &model));
    memset(model.grads, 1, model.parameter_count * sizeof(float));
    EXPECT_EQ(0.0, gpt_model_forward(&model, nothing, nothing));
    gpt_model_backward(&model, nothing);
    for (size_t i = 0; i < model.parameter_count; i++)
        ASSERT_EQ(0.0f, static_cast<const float *>(model.grads)[i]) << i;
    gpt_model_destroy(&model);
}

TEST(bf16, rounds_to_nearest_even)
{
    EXPECT_EQ(0x3f80, gpt_bf16_round(1.0f));
    EXPECT_EQ(0x3f80, gpt_bf16_round(1.0f + 1.0f / 256));         // a tie, rounded to even
    EXPECT_EQ(0x3f82, gpt_bf16_round(1.0f + 3.0f / 256));         // a tie, rounded to even
    EXPECT_EQ(0x3f81, gpt_bf16_round(1.0f + 1.0f / 256 + 1e-6f)); // above the tie
    EXPECT_EQ(0x7f80, gpt_bf16_round(INFINITY));
    EXPECT_EQ(0x7f80, gpt_bf16_round(3.4e38f));
    EXPECT_EQ(0x7fc0, gpt_bf16_round(NAN));
}

TEST(matmul, equals_three_loops)
{
    const size_t rows = 11, columns = 21, inner = 13;
    std::vector<float> a(rows * inner), b(inner * columns), panels(2 * gpt_matmul_panel_floats(inner));
    std::vector<uint16_t> b16(b.size());
    for (size_t i = 0; i < a.size(); i++)
        a[i] = static_cast<float>(gpt_random(1, i) % 17) - 8.0f; // small integers, so every sum is exact
    for (size_t i = 0; i < b.size(); i++)
        b16[i] = gpt_bf16_round(b[i] = static_cast<float>(gpt_random(2, i) % 17) - 8.0f);
    for (int form = 0; form < 8; form++) {
        const bool a_across = form & 1, b_across = form & 2, bf16 = form & 4; // stored transposed; of bf16
        std::vector<float> out(rows * columns, -1.0f), bias(columns, 2.0f);
        gpt_matrix left = {a.data(), a_across ? 1 : inner, a_across ? rows : 1, false};
        gpt_matrix right = {bf16 ? static_cast<void *>(b16.data()) : b.data(), b_across ? 1 : columns, b_across ? inner : 1,
                            bf16};
        gpt_matmul(rows, columns, inner, left, right, {out.data(), false, bias.data()}, panels.data(), 2);
        for (size_t r = 0; r < rows; r++)
            for (size_t c = 0; c < columns; c++) {
                float sum = 2.0f;
                for (size_t k = 0; k < inner; k++)
                    sum += a[r * left.row_stride + k * left.column_stride] * b[k * right.row_stride + c * right.column_stride];
                ASSERT_EQ(sum, out[r * columns + c]) << form << " " << r << " " << c;
            }
    }
}

TEST(plain_adamw, takes_the_step_of_zoff_adam_step)
{
    const size_t count = 1000;
    const gpt_hyper hyper = {1e-2, 0.9, 0.95, 1e-8, 0.1, 2.0};
    std::vector<float> weights(count), grads(count), m(count), v(count);
    for (size_t i = 0; i < count; i++)
        weights[i] = static_cast<float>(gpt_random(4, i) % 1000) / 500.0f - 1.0f;
    std::vector<float> expected(weights), expected_m(count), expected_v(count);
    for (int t = 1; t <= 20; t++) {
        double squares = 0;
        for (size_t i = 0; i < count; i++) {
            grads[i] = static_cast<float>(gpt_random(static_cast<uint64_t>(t), i) % 1000) / 5000.0f - 0.1f;
            squares += static_cast<double>(grads[i]) * grads[i];
        }
        const double norm = std::sqrt(squares);
        zoff_optimizer_hyper h;
        zoff_optimizer_hyper_init(&h, ZOFF_OPTIMIZER_ADAM);
        h.lr = hyper.lr, h.beta2 = hyper.beta2, h.weight_decay = hyper.weight_decay;
        zoff_optimizer_tensor tensor = {};
        tensor.struct_size = sizeof tensor;
        tensor.count = count;
        tensor.master = expected.data(), tensor.m = expected_m.data(), tensor.v = expected_v.data();
        tensor.grad = grads.data();
        ASSERT_ZOFF_OK(zoff_optimizer_step(&h, t, norm > 2.0 ? 2.0 / (norm + 1e-6) : 1.0, &tensor));
        EXPECT_NEAR(norm, gpt_plain_adamw(&hyper, t, count, weights.data(), grads.data(), m.data(), v.data()), 1e-12);
        for (size_t i = 0; i < count; i++)
            ASSERT_NEAR(expected[i], weights[i], 2e-6) << t << " " << i;
    }
}

TEST(text, batches_depend_on_seed_and_step_alone_and_targets_follow_inputs)
{
    std::vector<uint8_t> bytes(1000);
    for (size_t i = 0; i < bytes.size(); i++)
        bytes[i] = static_cast<uint8_t>(i * 7);
    const gpt_text text = {bytes.data(), bytes.size()};
    std::vector<uint8_t> inputs(4 * 9), targets(4 * 9), again(4 * 9), other(4 * 9);
    gpt_text_batch(&text, 1, 5, 4, 9, inputs.data(), targets.data());
    gpt_text_batch(&text, 1, 6, 4, 9, other.data(), targets.data());
    EXPECT_NE(inputs, other);
    gpt_text_batch(&text, 1, 5, 4, 9, again.data(), targets.data());
    EXPECT_EQ(inputs, again);
    for (size_t i = 0; i < inputs.size(); i++)
        EXPECT_EQ(static_cast<uint8_t>(inputs[i] + 7), targets[i]);
    EXPECT_NEAR(std::log(256.0), gpt_text_entropy(&text), 0.01);
}
} // namespace
