// params_test.cc: parameters, groups and the loss scale as the program says them; weights that are lent.
#include "sgd_engine.h"

using namespace zoff_test;

namespace
{
TEST(Params, ParametersThatCannotBe)
{
    log_catcher log;
    float x[8];
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(nullptr, &made));
    engine e(made);
    zoff_param_desc d = described(x, 4);
    d.name = "wte";
    d.dtype = (zoff_dtype)9;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "wte: dtype 9", zoff_engine_add_param(made, &d, nullptr));
    d.dtype = ZOFF_F32;
    d.grad_dtype = (zoff_dtype)9;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "wte: grad_dtype 9", zoff_engine_add_param(made, &d, nullptr));
    d = described(x, 4);
    d.slices = 2;
    d.value_stride = 3;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "param0: value_stride 3 is less than count 4",
                      zoff_engine_add_param(made, &d, nullptr));
    d = described(x, SIZE_MAX / 4);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "more than fits in memory", zoff_engine_add_param(made, &d, nullptr));
    d = described(x, 4);
    d.slices = 1 << 30;
    d.count = (size_t)1 << 40;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "more than fits in memory", zoff_engine_add_param(made, &d, nullptr));
    d = described((float *)(void *)((char *)x + 2), 1);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "aligned to their element", zoff_engine_add_param(made, &d, nullptr));
    d = described(x, 4);
    d.group = 0xffffffff;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "group 4294967295 is out of range", zoff_engine_add_param(made, &d, nullptr));
    // None of these has left a parameter behind; one without weights is found at seal, and may be mended.
    zoff_param p = 77;
    d = described(x, 4);
    d.value = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_add_param(made, &d, &p));
    EXPECT_EQ(0u, p);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "param0 has 4 elements but value is NULL", zoff_engine_seal(made));
    ASSERT_ZOFF_OK(zoff_param_bind(made, 0, x, nullptr));
    EXPECT_ZOFF_OK(zoff_engine_seal(made));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no parameter 1; the engine has 1", zoff_param_bind(made, 1, x, nullptr));
}

TEST(Params, SizesThatOnlyTheCounterOverflows)
{
    log_catcher log;
    float x[8];
    zoff_engine *made = nullptr;
    ASSERT_ZOFF_OK(zoff_engine_create(nullptr, &made));
    engine e(made);
    zoff_param_desc d = described(x, 0);
    d.slices = SIZE_MAX;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "slices are more than", zoff_engine_add_param(made, &d, nullptr));
    d.frozen = true;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "slices are more than", zoff_engine_add_param(made, &d, nullptr));
}
} // namespace
