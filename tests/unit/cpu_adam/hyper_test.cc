// hyper_test.cc: defaults, growing structs, ranges and their messages, and the constants of a step.
#include "zoff_test.h"

extern "C" {
#include "cpu_adam.h"
}

#include <fenv.h>
#include <math.h>
#include <string.h>

namespace
{
zoff_adam_hyper defaults()
{
    zoff_adam_hyper h;
    zoff_adam_hyper_init(&h);
    return h;
}

TEST(hyper, defaults_are_those_of_the_header)
{
    const zoff_adam_hyper h = defaults();
    EXPECT_EQ(h.struct_size, sizeof h);
    EXPECT_EQ(h.lr, 1e-3);
    EXPECT_EQ(h.beta1, 0.9);
    EXPECT_EQ(h.beta2, 0.999);
    EXPECT_EQ(h.eps, 1e-8);
    EXPECT_EQ(h.weight_decay, 0);
    EXPECT_EQ(h.decay, ZOFF_DECAY_DECOUPLED);
    EXPECT_ZOFF_OK(zoff_adam_hyper_check(&h, 1));
}

TEST(hyper, init_writes_no_byte_beyond_the_size_it_was_given)
{
    unsigned char bytes[sizeof(zoff_adam_hyper) + 64];
    for (size_t size = 0; size <= sizeof bytes; size++) {
        memset(bytes, 0xA5, sizeof bytes);
        zoff_adam_hyper_init_sized(reinterpret_cast<zoff_adam_hyper *>(bytes), size);
        for (size_t i = size < sizeof(size_t) ? 0 : size; i < sizeof bytes; i++)
            ASSERT_EQ(bytes[i], 0xA5) << "byte " << i << " of a struct of " << size;
        if (size >= sizeof(size_t)) {
            size_t said;
            memcpy(&said, bytes, sizeof said);
            EXPECT_EQ(said, size);
        }
    }
    for (size_t i = sizeof(zoff_adam_hyper); i < sizeof bytes; i++)
        EXPECT_EQ(bytes[i], 0) << "a newer caller's field at byte " << i << " was not zeroed";
    zoff_adam_hyper_init_sized(nullptr, sizeof(zoff_adam_hyper));
}

TEST(hyper, each_value_out_of_range_is_named)
{
    const double nan = NAN, inf = INFINITY;
    struct {
        double zoff_adam_hyper::*field;
        const char *name;
        std::vector<double> bad, good;
    } cases[] = {
        {&zoff_adam_hyper::lr, "lr", {-1e-9, nan, inf, 1e39}, {0, 1e-45, 10}},
        {&zoff_adam_hyper::beta1, "beta1", {-0.1, 1, 1.5, nan}, {0, 0.9999999999999999}},
        {&zoff_adam_hyper::beta2, "beta2", {-0.1, 1, 1.5, nan}, {0, 0.9999999999999999}},
        {&zoff_adam_hyper::eps, "eps", {-1e-8, nan, inf}, {0, 1}},
        {&zoff_adam_hyper::weight_decay, "weight_decay", {-0.01, nan, inf}, {0, 0.1}},
    };
    for (const auto &c : cases) {
        for (double value : c.bad) {
            zoff_adam_hyper h = defaults();
            h.*c.field = value;
            EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, std::string(c.name) + " is", zoff_adam_hyper_check(&h, 1));
        }
        for (double value : c.good) {
            zoff_adam_hyper h = defaults();
            h.*c.field = value;
            EXPECT_ZOFF_OK(zoff_adam_hyper_check(&h, 1));
        }
    }
    zoff_adam_hyper h = defaults();
    h.decay = (zoff_decay)7;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "decay is 7", zoff_adam_hyper_check(&h, 1));
    h = defaults();
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "the first step is 1", zoff_adam_hyper_check(&h, 0));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "step number t is -3", zoff_adam_hyper_check(&h, -3));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_adam_hyper_check(nullptr, 1));
    h.struct_size = 0;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "struct_size is 0", zoff_adam_hyper_check(&h, 1));
    h.struct_size = sizeof h - 8;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_adam_hyper_init", zoff_adam_hyper_check(&h, 1));
}

TEST(hyper, constants_are_made_in_double_and_rounded_once)
{
    zoff_adam_hyper h = defaults();
    h.lr = 3e-4;
    h.weight_decay = 0.1;
    for (int64_t t : {(int64_t)1, (int64_t)2, (int64_t)1000, (int64_t)1 << 40}) {
        zoff_adam_consts c;
        zoff_adam_hyper_consts(&h, t, 1.0 / 3, &c);
        EXPECT_EQ(c.grad_scale, (float)(1.0 / 3));
        EXPECT_EQ(c.beta1, 0.9f);
        EXPECT_EQ(c.one_minus_beta1, (float)(1 - 0.9)); // 0.1, not 1.0f - 0.9f = 0.100000024
        EXPECT_EQ(c.beta2, 0.999f);
        EXPECT_EQ(c.one_minus_beta2, (float)(1 - 0.999));
        EXPECT_EQ(c.eps, 1e-8f);
        // Against long double, in which 0.9 is another number: to half a unit of fp32 and a little.
        EXPECT_NEAR(c.inv_sqrt_bias2, (double)(1 / sqrtl(1 - powl(0.999, (long double)t))), 1e-7 * c.inv_sqrt_bias2);
        EXPECT_NEAR(c.step_size, (double)(-3e-4L / (1 - powl(0.9, (long double)t))), -1e-7 * c.step_size);
        EXPECT_EQ(c.decay, (float)(-3e-4 * 0.1));
        EXPECT_EQ(c.mode, ZOFF_DECAY_DECOUPLED);
        EXPECT_TRUE(c.decays);
    }
    h.decay = ZOFF_DECAY_L2;
    zoff_adam_consts c;
    zoff_adam_hyper_consts(&h, 1, 1, &c);
    EXPECT_EQ(c.decay, 0.1f);
    EXPECT_EQ(c.step_size, (float)(-3e-4 / (1 - 0.9)));
    h.weight_decay = 0;
    zoff_adam_hyper_consts(&h, 1, 1, &c);
    EXPECT_FALSE(c.decays);
}

TEST(hyper, constants_do_not_depend_on_the_rounding_mode_of_the_caller)
{
    zoff_adam_hyper h = defaults();
    h.weight_decay = 0.01;
    for (int64_t t = 1; t < 50; t++) {
        zoff_adam_consts nearest, upward;
        memset(&nearest, 0, sizeof nearest);
        memset(&upward, 0, sizeof upward);
        zoff_adam_hyper_consts(&h, t, 0.3, &nearest);
        ASSERT_EQ(fesetround(FE_UPWARD), 0);
        zoff_adam_hyper_consts(&h, t, 0.3, &upward);
        const int mode = fegetround();
        fesetround(FE_TONEAREST);
        EXPECT_EQ(mode, FE_UPWARD) << "the caller's mode was not restored";
        EXPECT_EQ(nearest.grad_scale, upward.grad_scale);
        EXPECT_EQ(nearest.inv_sqrt_bias2, upward.inv_sqrt_bias2);
        EXPECT_EQ(nearest.step_size, upward.step_size);
        EXPECT_EQ(nearest.one_minus_beta1, upward.one_minus_beta1);
        EXPECT_EQ(nearest.decay, upward.decay);
    }
}

TEST(dtype, bytes_and_names)
{
    EXPECT_EQ(zoff_adam_dtype_bytes(ZOFF_F32), 4u);
    EXPECT_EQ(zoff_adam_dtype_bytes(ZOFF_BF16), 2u);
    EXPECT_EQ(zoff_adam_dtype_bytes(ZOFF_F16), 2u);
    EXPECT_EQ(zoff_adam_dtype_bytes(ZOFF_DTYPE_DEFAULT), 0u);
    EXPECT_EQ(zoff_adam_dtype_bytes((zoff_dtype)99), 0u);
    EXPECT_STREQ(zoff_adam_dtype_name(ZOFF_F32), "fp32");
    EXPECT_STREQ(zoff_adam_dtype_name(ZOFF_BF16), "bf16");
    EXPECT_STREQ(zoff_adam_dtype_name(ZOFF_F16), "fp16");
    EXPECT_STREQ(zoff_adam_dtype_name((zoff_dtype)99), "unknown");
}
} // namespace
