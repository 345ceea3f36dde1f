/* SPDX-License-Identifier: Apache-2.0 */
// step_list_test.cc: a list of tensors in one call gives the bits of single calls, for any mixture. If one tensor is invalid,
// nothing changes, and the message names it.
#include "tensors.h"
#include "zoff_test.h"

#include <math.h>
#include <string.h>

using namespace kernel_data;

namespace
{
const std::vector<size_t> MIXED = {0, 1, 15, 130, 1024, 1025, 3000, 7, 0, 40000};

std::vector<zoff_optimizer_tensor> tensors_of(std::vector<owned_tensor> &owned)
{
    std::vector<zoff_optimizer_tensor> all;
    for (auto &t : owned)
        all.push_back(t.tensor());
    return all;
}

// Step each tensor by a call of its own.
void step_one_by_one(std::vector<owned_tensor> &owned, int64_t t, double grad_scale)
{
    for (auto &one : owned) {
        const zoff_optimizer_tensor tensor = one.tensor();
        ASSERT_ZOFF_OK(zoff_optimizer_step(&one.rule.hyper, t, grad_scale, &tensor)) << one.name();
    }
}

void expect_all_same(const std::vector<owned_tensor> &expected, const std::vector<owned_tensor> &actual)
{
    ASSERT_EQ(expected.size(), actual.size());
    for (size_t i = 0; i < expected.size(); i++) {
        SCOPED_TRACE(::testing::Message() << "tensor " << i);
        expect_same(expected[i], actual[i]);
    }
}

TEST(step_list, every_rule_and_type_in_one_list_equals_single_calls)
{
    std::vector<owned_tensor> expected = every_tensor(MIXED, true), actual = expected;
    std::vector<zoff_optimizer_hyper> hypers;
    for (const auto &t : actual)
        hypers.push_back(t.rule.hyper);
    const std::vector<zoff_optimizer_tensor> tensors = tensors_of(actual);
    for (int64_t t = 1; t <= 3; t++) {
        ASSERT_ZOFF_OK(zoff_optimizer_step_list(hypers.data(), sizeof hypers[0], t, 0.7, tensors.data(), sizeof tensors[0],
                                                tensors.size()));
        step_one_by_one(expected, t, 0.7);
    }
    expect_all_same(expected, actual);
}

TEST(step_list, tensors_that_share_hyper_parameters_equal_single_calls)
{
    for (const auto &rule : every_rule()) {
        std::vector<owned_tensor> expected;
        for (zoff_dtype grads : {ZOFF_F32, ZOFF_BF16, ZOFF_F16}) {
            for (const auto &weights : every_weights_kind()) {
                for (size_t n : {(size_t)1, (size_t)256, (size_t)4001})
                    expected.emplace_back(rule, grads, weights, n, true);
            }
        }
        std::vector<owned_tensor> actual = expected;
        const std::vector<zoff_optimizer_tensor> tensors = tensors_of(actual);
        ASSERT_ZOFF_OK(zoff_optimizer_step_list(&rule.hyper, 0, 5, 0.7, tensors.data(), sizeof tensors[0], tensors.size()));
        step_one_by_one(expected, 5, 0.7);
        expect_all_same(expected, actual);
    }
}

TEST(step_list, ten_thousand_small_tensors)
{
    const rule_case adamw = every_rule()[ZOFF_RULE_ADAM_DECOUPLED];
    std::vector<owned_tensor> expected;
    for (size_t i = 0; i < 10000; i++)
        expected.emplace_back(adamw, i % 2 ? ZOFF_BF16 : ZOFF_F32, every_weights_kind()[i % 5], i * 7 % 61, false);
    std::vector<owned_tensor> actual = expected;
    const std::vector<zoff_optimizer_tensor> tensors = tensors_of(actual);
    ASSERT_ZOFF_OK(zoff_optimizer_step_list(&adamw.hyper, 0, 1, 1, tensors.data(), sizeof tensors[0], tensors.size()));
    for (auto &one : expected)
        one.step_by_oracle(1, 1);
    expect_all_same(expected, actual);
}

// Tensors inside larger structs of the caller, and hyper-parameters of a newer caller.
TEST(step_list, strides_may_be_larger_than_the_structs)
{
    struct layer {
        zoff_optimizer_tensor tensor;
        char name[40];
    };
    struct group {
        zoff_optimizer_hyper hyper;
        char newer[24];
    };
    std::vector<owned_tensor> expected = every_tensor({10, 0, 77}, true), actual = expected;
    std::vector<layer> layers;
    std::vector<group> groups;
    for (auto &t : actual) {
        layers.push_back({t.tensor(), "a name"});
        groups.push_back({t.rule.hyper, {}});
        // a struct of a newer library: this one reads the fields that it knows
        groups.back().hyper.struct_size = sizeof(group);
    }
    ASSERT_ZOFF_OK(
        zoff_optimizer_step_list(&groups[0].hyper, sizeof(group), 4, 1, &layers[0].tensor, sizeof(layer), layers.size()));
    step_one_by_one(expected, 4, 1);
    expect_all_same(expected, actual);
}

// The next page may not be touched.
TEST(step_list, hyper_parameters_that_say_to_be_longer_than_their_stride_are_refused_unread)
{
    fenced<zoff_optimizer_hyper> memory(2);
    const rule_case rule = every_rule()[ZOFF_RULE_ADAM_DECOUPLED];
    zoff_optimizer_hyper *hypers = memory.place(2, 0);
    hypers[0] = hypers[1] = rule.hyper;
    hypers[0].struct_size = hypers[1].struct_size = 4 * sizeof(zoff_optimizer_hyper);
    std::vector<owned_tensor> expected = {{rule, ZOFF_F32, every_weights_kind()[0], 100, true}};
    expected.push_back(expected[0]);
    std::vector<owned_tensor> actual = expected;
    const std::vector<zoff_optimizer_tensor> tensors = tensors_of(actual);
    EXPECT_ZOFF_FAILS(
        ZOFF_ERR_INVALID, "zoff_optimizer_step_list: hyper-parameters of tensors[0]: struct_size is 480, but the stride is 120",
        zoff_optimizer_step_list(hypers, sizeof *hypers, 4, 1, tensors.data(), sizeof tensors[0], tensors.size()));
    expect_all_same(expected, actual);
}

// A program that was built when zoff_optimizer_hyper ended after `decay` passes such structs.
TEST(step_list, older_hyper_parameters_are_those_of_adam)
{
    struct old_hyper {
        size_t struct_size;
        double lr, beta1, beta2, eps, weight_decay;
        zoff_decay decay;
    };
    static_assert(sizeof(old_hyper) == 56, "the struct as it was first published");
    rule_case adamw = every_rule()[ZOFF_RULE_ADAM_DECOUPLED];
    std::vector<owned_tensor> expected = {{adamw, ZOFF_F32, every_weights_kind()[0], 100, true}}, actual;
    expected.push_back(expected[0]);
    expected[1].rule.hyper.lr = 0.5;
    actual = expected;
    std::vector<old_hyper> old(2);
    for (size_t i = 0; i < 2; i++) {
        memcpy(&old[i], &expected[i].rule.hyper, sizeof old[i]);
        old[i].struct_size = sizeof old[i];
    }
    const std::vector<zoff_optimizer_tensor> tensors = tensors_of(actual);
    ASSERT_ZOFF_OK(zoff_optimizer_step_list(reinterpret_cast<const zoff_optimizer_hyper *>(old.data()), sizeof old[0], 4, 1,
                                            tensors.data(), sizeof tensors[0], tensors.size()));
    step_one_by_one(expected, 4, 1);
    expect_all_same(expected, actual);
}

TEST(step_list, nothing_to_do_is_legal)
{
    zoff_optimizer_hyper hypers[3];
    zoff_optimizer_tensor tensors[3] = {};
    for (size_t i = 0; i < 3; i++) {
        zoff_optimizer_hyper_init(&hypers[i], ZOFF_OPTIMIZER_ADAGRAD);
        tensors[i].struct_size = sizeof tensors[i];
    }
    for (size_t hyper_stride : {(size_t)0, sizeof hypers[0]}) {
        EXPECT_ZOFF_OK(zoff_optimizer_step_list(hypers, hyper_stride, 1, 1, nullptr, 0, 0));
        EXPECT_ZOFF_OK(zoff_optimizer_step_list(hypers, hyper_stride, 1, 1, tensors, sizeof tensors[0], 0));
        EXPECT_ZOFF_OK(zoff_optimizer_step_list(hypers, hyper_stride, 1, 1, tensors, sizeof tensors[0], 3));
    }
}

TEST(step_list, errors_of_the_call_itself)
{
    owned_tensor one(every_rule()[0], ZOFF_F32, every_weights_kind()[0], 10, false), before = one;
    const zoff_optimizer_tensor tensor = one.tensor();
    const zoff_optimizer_hyper hyper = one.rule.hyper;
    const size_t stride = sizeof tensor;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "hyper is NULL", zoff_optimizer_step_list(nullptr, 0, 1, 1, &tensor, stride, 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "tensors is NULL, but count is 7",
                      zoff_optimizer_step_list(&hyper, 0, 1, 1, nullptr, stride, 7));
    for (size_t odd : {(size_t)8, stride + 1}) // the structs behind the first would not be aligned
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "tensor_stride is " + std::to_string(odd),
                          zoff_optimizer_step_list(&hyper, 0, 1, 1, &tensor, odd, 1));
    for (size_t hyper_stride :
         {(size_t)1, sizeof hyper.struct_size, (size_t)55, sizeof hyper + 4}) // the smallest struct that ever existed has 56
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "hyper_stride is " + std::to_string(hyper_stride),
                          zoff_optimizer_step_list(&hyper, hyper_stride, 1, 1, &tensor, stride, 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "grad_scale is", zoff_optimizer_step_list(&hyper, 0, 1, NAN, &tensor, stride, 1));
    for (size_t hyper_stride : {(size_t)0, sizeof hyper})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the first step is 1",
                          zoff_optimizer_step_list(&hyper, hyper_stride, 0, 1, &tensor, stride, 1));
    // Constants for more tensors than memory can hold: refused before any tensor is read.
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_MEMORY, "constants of a list",
                      zoff_optimizer_step_list(&hyper, sizeof hyper, 1, 1, &tensor, stride, SIZE_MAX / 8));
    expect_same(before, one);
}

TEST(step_list, the_last_of_a_thousand_is_wrong_and_none_is_changed)
{
    const rule_case adamw = every_rule()[ZOFF_RULE_ADAM_DECOUPLED];
    std::vector<owned_tensor> expected;
    for (size_t i = 0; i < 1000; i++)
        expected.emplace_back(adamw, ZOFF_BF16, every_weights_kind()[1], 40 + i % 9, true);
    std::vector<owned_tensor> actual = expected;
    std::vector<zoff_optimizer_hyper> hypers(1000, adamw.hyper);
    std::vector<zoff_optimizer_tensor> tensors = tensors_of(actual);
    auto list = [&](size_t hyper_stride) {
        return zoff_optimizer_step_list(hypers.data(), hyper_stride, 1, 1, tensors.data(), sizeof tensors[0], tensors.size());
    };
    for (size_t hyper_stride : {(size_t)0, sizeof(zoff_optimizer_hyper)}) {
        const zoff_optimizer_tensor good = tensors.back();
        tensors.back().grad = nullptr;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_optimizer_step_list: tensors[999].grad is NULL", list(hyper_stride));
        tensors.back() = good;
        tensors.back().struct_size = 3;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "tensors[999].struct_size is 3", list(hyper_stride));
        tensors.back() = good;
        tensors.back().copy_dtype = ZOFF_F32;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "tensors[999].copy_dtype is 1 (fp32)", list(hyper_stride));
        tensors.back() = good;
    }
    hypers.back().eps = -1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "hyper-parameters of tensors[999]: eps is -1", list(sizeof(zoff_optimizer_hyper)));
    hypers.back() = adamw.hyper;
    hypers[17].struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "hyper-parameters of tensors[17]: zoff_optimizer_hyper.struct_size is 0",
                      list(sizeof(zoff_optimizer_hyper)));
    hypers[17] = adamw.hyper;
    expect_all_same(expected, actual);

    ASSERT_ZOFF_OK(list(sizeof(zoff_optimizer_hyper))); // a valid list updates all of them
    step_one_by_one(expected, 1, 1);
    expect_all_same(expected, actual);
}

// The message for a list of a single tensor names its place, too.
TEST(step_list, a_list_of_one_names_the_tensor)
{
    owned_tensor one(every_rule()[ZOFF_RULE_LION], ZOFF_F32, every_weights_kind()[0], 10, false);
    zoff_optimizer_tensor tensor = one.tensor();
    tensor.m = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_optimizer_step_list: tensor.m is NULL, but count is 10",
                      zoff_optimizer_step_list(&one.rule.hyper, 0, 1, 1, &tensor, sizeof tensor, 1));
}
} // namespace
