// step_test.cc: the public step: its errors and their words, its defaults, empty tensors, and that it owns the floating-point
// control register while it computes.
#include "kernel_data.h"
#include "oracle.h"
#include "zoff_test.h"

#include <math.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

using namespace kernel_data;

namespace
{
struct fixture {
    explicit fixture(size_t n, bool nasties = false) : p(n), m(n), v(n), g(n), g16(n), copy(n)
    {
        random_source random(n + 1);
        for (size_t i = 0; i < n; i++) {
            p[i] = number(random, nasties);
            g[i] = number(random, nasties);
            g16[i] = (uint16_t)(bits_of(g[i]) >> 16);
        }
        zoff_adam_hyper_init(&hyper);
        hyper.weight_decay = 0.01;
        tensor.struct_size = sizeof tensor;
        tensor.count = n;
        tensor.master = p.data();
        tensor.m = m.data();
        tensor.v = v.data();
        tensor.grad = g.data();
    }
    std::vector<float> p, m, v, g;
    std::vector<uint16_t> g16, copy;
    zoff_adam_hyper hyper;
    zoff_adam_tensor tensor = {};
};

void expect_same(const fixture &expected, const fixture &actual)
{
    EXPECT_TRUE(same_bits(expected.p.data(), actual.p.data(), expected.p.size()));
    EXPECT_TRUE(same_bits(expected.m.data(), actual.m.data(), expected.m.size()));
    EXPECT_TRUE(same_bits(expected.v.data(), actual.v.data(), expected.v.size()));
    EXPECT_TRUE(same_bits(expected.copy.data(), actual.copy.data(), expected.copy.size()));
}

TEST(step, ten_steps_equal_the_oracle)
{
    for (size_t n : {(size_t)1, (size_t)1000, (size_t)100003}) {
        fixture expected(n), actual(n), half(n), expected_half(n);
        half.tensor.grad = half.g16.data();
        half.tensor.grad_dtype = ZOFF_BF16;
        half.tensor.copy_out = half.copy.data();
        half.tensor.copy_dtype = ZOFF_BF16;
        actual.tensor.copy_out = actual.copy.data(); // copy_dtype 0 means bf16
        for (int t = 1; t <= 10; t++) {
            ASSERT_ZOFF_OK(zoff_adam_step(&actual.hyper, t, 0.5, &actual.tensor));
            ASSERT_ZOFF_OK(zoff_adam_step(&half.hyper, t, 0.5, &half.tensor));
            oracle_adam(&expected.hyper, t, 0.5, n, expected.p.data(), expected.m.data(), expected.v.data(), expected.g.data(),
                        nullptr, expected.copy.data());
            oracle_adam(&expected.hyper, t, 0.5, n, expected_half.p.data(), expected_half.m.data(), expected_half.v.data(),
                        nullptr, expected_half.g16.data(), expected_half.copy.data());
        }
        expect_same(expected, actual);
        expect_same(expected_half, half);
    }
}

TEST(step, each_error_names_its_cause)
{
    fixture f(10);
    const std::vector<float> before = f.p;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "hyper-parameters are NULL", zoff_adam_step(nullptr, 1, 1, &f.tensor));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the tensor is NULL", zoff_adam_step(&f.hyper, 1, 1, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the first step is 1", zoff_adam_step(&f.hyper, 0, 1, &f.tensor));
    for (double scale : {(double)NAN, (double)INFINITY, 1e39})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "grad_scale is", zoff_adam_step(&f.hyper, 1, scale, &f.tensor));
    f.hyper.beta2 = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "beta2 is 1", zoff_adam_step(&f.hyper, 1, 1, &f.tensor));
    f.hyper.beta2 = 0.999;

    auto fails_with = [&](const char *words, auto change) {
        zoff_adam_tensor bad = f.tensor;
        change(bad);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, words, zoff_adam_step(&f.hyper, 1, 1, &bad));
    };
    fails_with("struct_size is 0", [](zoff_adam_tensor &t) { t.struct_size = 0; });
    fails_with("sizeof(zoff_adam_tensor)", [](zoff_adam_tensor &t) { t.struct_size = sizeof t - 1; });
    fails_with("master is NULL, but count is 10", [](zoff_adam_tensor &t) { t.master = nullptr; });
    fails_with(".m is NULL", [](zoff_adam_tensor &t) { t.m = nullptr; });
    fails_with(".v is NULL", [](zoff_adam_tensor &t) { t.v = nullptr; });
    fails_with("grad is NULL", [](zoff_adam_tensor &t) { t.grad = nullptr; });
    fails_with("more elements than memory", [](zoff_adam_tensor &t) { t.count = SIZE_MAX / 2; });
    fails_with("grad_dtype is 2 (fp16)", [](zoff_adam_tensor &t) { t.grad_dtype = ZOFF_F16; });
    fails_with("grad_dtype is 99 (unknown)", [](zoff_adam_tensor &t) { t.grad_dtype = (zoff_dtype)99; });
    fails_with("copy_dtype is 1 (fp32)", [&](zoff_adam_tensor &t) {
        t.copy_out = f.copy.data();
        t.copy_dtype = ZOFF_F32;
    });
    EXPECT_EQ(memcmp(before.data(), f.p.data(), sizeof(float) * 10), 0) << "a failed step changed the weights";
}

TEST(step, empty_tensor_is_legal)
{
    fixture f(0);
    zoff_adam_tensor nothing = {};
    nothing.struct_size = sizeof nothing;
    EXPECT_ZOFF_OK(zoff_adam_step(&f.hyper, 1, 1, &nothing));
}

TEST(step, larger_structs_of_newer_callers_are_accepted)
{
    fixture expected(100), actual(100);
    struct {
        zoff_adam_tensor tensor;
        char newer[16];
    } grown = {actual.tensor, {}};
    grown.tensor.struct_size = sizeof grown;
    ASSERT_ZOFF_OK(zoff_adam_step(&actual.hyper, 1, 1, &grown.tensor));
    ASSERT_ZOFF_OK(zoff_adam_step(&expected.hyper, 1, 1, &expected.tensor));
    expect_same(expected, actual);
}

// Denormal moments and gradients, as dead embedding rows have them.
TEST(step, flush_to_zero_of_the_process_changes_nothing_and_stays_as_it_was)
{
#if defined(__x86_64__)
    const size_t n = 50000; // enough for a team: its threads must be set right as well
    fixture expected(n), actual(n);
    for (fixture *f : {&expected, &actual}) {
        f->tensor.copy_out = f->copy.data();
        f->hyper.eps = 1e-40;
        for (size_t i = 0; i < n; i++) {
            f->g[i] = i % 3 ? f->g[i] * 1e-19f : float_of(1 + (uint32_t)i);
            f->m[i] = float_of(3 + (uint32_t)i * 7);
            f->v[i] = float_of(5 + (uint32_t)i * 11);
            f->p[i] = i % 2 ? f->p[i] : float_of((uint32_t)i * 100);
        }
    }
    oracle_adam(&expected.hyper, 2, 0.5, n, expected.p.data(), expected.m.data(), expected.v.data(), expected.g.data(), nullptr,
                expected.copy.data());

    const unsigned before = _mm_getcsr();
    const unsigned strange = 0x8040 | 0x6000 | 0x1f80; // flush to zero, denormals are zero, round towards zero
    _mm_setcsr(strange);
    const zoff_status status = zoff_adam_step(&actual.hyper, 2, 0.5, &actual.tensor);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    ASSERT_EQ(status, ZOFF_OK) << zoff_last_error();
    EXPECT_EQ(after & 0xffc0u, strange & 0xffc0u) << "the caller's control bits were not restored";
    expect_same(expected, actual);
#else
    GTEST_SKIP() << "the test sets MXCSR, which this CPU does not have";
#endif
}
} // namespace
