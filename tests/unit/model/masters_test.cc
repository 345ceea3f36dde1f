/* SPDX-License-Identifier: Apache-2.0 */
// masters_test.cc: where the master of a parameter is, and how masters and weights follow each other.
#include "small_model.h"

using namespace zoff_test;
#include <cstring>

namespace
{
class Masters : public testing::Test
{
  protected:
    const zoff_model_param *add(zoff_dtype dtype, bool frozen = false)
    {
        zoff_param_desc d = describe("p", 5);
        d.dtype = dtype;
        d.frozen = frozen;
        const zoff_param number = parts.add(d);
        return &parts.m.params[number];
    }
    const zoff_master_form *of(const zoff_model_param *p) { return zoff_model_masters_of(&parts.m, p); }
    small_model parts;
};

TEST_F(Masters, AreWhereTheirWeightsAllowIt)
{
    const struct {
        bool in_place, persist, whole_asked;
        zoff_dtype dtype;
        bool frozen;
        size_t bytes;
        bool in_weights, is_whole, is_split;
    } cases[] = {
        {true, false, false, ZOFF_F32, false, 0, true, true, false},
        {true, true, false, ZOFF_F32, false, 4, true, true, false},
        {false, false, false, ZOFF_F32, false, 4, false, false, false},
        {true, false, false, ZOFF_BF16, false, 2, true, false, true},
        {true, false, true, ZOFF_BF16, false, 4, false, false, false},
        {true, true, false, ZOFF_BF16, false, 4, false, false, false},
        {false, false, false, ZOFF_BF16, false, 4, false, false, false},
        {true, false, false, ZOFF_F16, false, 4, false, false, false},
        {true, true, false, ZOFF_F32, true, 0, false, false, false},
        {false, false, false, ZOFF_BF16, true, 0, false, false, false},
    };
    for (const auto &c : cases) {
        const zoff_model_param *p = add(c.dtype, c.frozen);
        parts.m.in_place = c.in_place;
        parts.values.persist = c.persist;
        parts.values.whole_masters = c.whole_asked;
        SCOPED_TRACE(&c - cases);
        EXPECT_EQ(c.bytes, of(p)->bytes);
        EXPECT_EQ(c.in_weights, of(p)->in_weights);
        EXPECT_EQ(c.is_whole, of(p)->is_whole);
        EXPECT_EQ(c.is_split, of(p)->is_split);
        EXPECT_EQ(c.bytes, zoff_model_params_tensor(&parts.m, p).bytes[ZOFF_STREAM_MASTER]);
    }
}

TEST_F(Masters, FollowWeightsAndWeightsFollowThem)
{
    zoff_cast_piece cast;
    char weights[8], stored[8];
    const auto describe_cast = [&](const zoff_model_param *p, bool to_master) {
        return zoff_model_masters_cast(&parts.m, p, weights, stored, to_master, &cast);
    };
    parts.m.in_place = true;
    EXPECT_FALSE(describe_cast(add(ZOFF_F32), true)) << "they are one";
    EXPECT_FALSE(describe_cast(add(ZOFF_BF16, true), true)) << "frozen";
    EXPECT_FALSE(describe_cast(add(ZOFF_BF16), false)) << "the weights are the upper halves";
    EXPECT_TRUE(describe_cast(add(ZOFF_BF16), true));
    EXPECT_TRUE(cast.dst == weights && cast.src == weights && (void *)cast.low == stored) << "the lower halves become zero";
    EXPECT_TRUE(describe_cast(add(ZOFF_F16), false));
    EXPECT_TRUE(cast.dst == weights && cast.dst_dtype == ZOFF_F16 && cast.src == stored && cast.src_dtype == ZOFF_F32);
    EXPECT_TRUE(describe_cast(add(ZOFF_F16), true));
    EXPECT_TRUE(cast.dst == stored && cast.dst_dtype == ZOFF_F32 && cast.src == weights && cast.src_dtype == ZOFF_F16);
}

TEST_F(Masters, AreNotSplitForFp16)
{
    zoff_param_desc d = describe("half", 5);
    d.dtype = ZOFF_F16;
    parts.values.split_asked = true;
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_model_params_add(&parts.m, &d, nullptr));
    for (const char *word : {"half", "zoff.master", "fp16", "\"auto\""})
        EXPECT_NE(nullptr, strstr(zoff_last_error(), word)) << zoff_last_error();
    d.frozen = true;
    EXPECT_ZOFF_OK(zoff_model_params_add(&parts.m, &d, nullptr));
    d.frozen = false;
    d.dtype = ZOFF_F32; // fp32 weights stay their own masters
    d.name = "whole";
    EXPECT_ZOFF_OK(zoff_model_params_add(&parts.m, &d, nullptr));
}
} // namespace
