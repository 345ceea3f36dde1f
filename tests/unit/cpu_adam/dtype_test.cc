/* SPDX-License-Identifier: Apache-2.0 */
// dtype_test.cc: the size and the name of each element type.
#include "zoff_test.h"

extern "C" {
#include "cpu_adam.h"
}

TEST(dtype, bytes_of_an_element)
{
    EXPECT_EQ(4u, zoff_adam_dtype_bytes(ZOFF_F32));
    EXPECT_EQ(2u, zoff_adam_dtype_bytes(ZOFF_BF16));
    EXPECT_EQ(2u, zoff_adam_dtype_bytes(ZOFF_F16));
    EXPECT_EQ(0u, zoff_adam_dtype_bytes(ZOFF_DTYPE_DEFAULT)) << "what it stands for is the caller's to know";
    for (int none : {-1, 99, INT32_MAX, INT32_MIN})
        EXPECT_EQ(0u, zoff_adam_dtype_bytes(static_cast<zoff_dtype>(none))) << none;
}

TEST(dtype, names)
{
    EXPECT_STREQ("fp32", zoff_adam_dtype_name(ZOFF_F32));
    EXPECT_STREQ("bf16", zoff_adam_dtype_name(ZOFF_BF16));
    EXPECT_STREQ("fp16", zoff_adam_dtype_name(ZOFF_F16));
    EXPECT_STREQ("default", zoff_adam_dtype_name(ZOFF_DTYPE_DEFAULT));
    for (int none : {-1, 99, INT32_MAX, INT32_MIN})
        EXPECT_STREQ("unknown", zoff_adam_dtype_name(static_cast<zoff_dtype>(none))) << none;
}
