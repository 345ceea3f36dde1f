/* SPDX-License-Identifier: Apache-2.0 */
// moments_test.cc: in which format the moments of a parameter are stored.
#include "small_model.h"

#include <cstring>

using namespace zoff_test;

namespace
{
class Moments : public testing::Test
{
  protected:
    zoff_moments of(size_t count, zoff_moments asked, zoff_optimizer optimizer = ZOFF_OPTIMIZER_ADAM)
    {
        zoff_optimizer_hyper_init(&parts.values.hyper, optimizer);
        parts.values.moments = asked;
        const zoff_param number = parts.add(describe("p", count));
        return zoff_model_moments_of(&parts.m, &parts.m.params[number]);
    }
    small_model parts;
};

TEST_F(Moments, AreInBlocksWhereTheSliceIsLongAndTheOptimizerIsAdam)
{
    for (const zoff_moments asked : {ZOFF_MOMENTS_F32, ZOFF_MOMENTS_BF16}) {
        for (const size_t count : {1, 4095, 4096})
            EXPECT_EQ(asked, of(count, asked));
        EXPECT_EQ(asked, of(5000, asked, ZOFF_OPTIMIZER_LION));
    }
    for (const zoff_moments asked : {ZOFF_MOMENTS_M8V16, ZOFF_MOMENTS_Q8}) {
        EXPECT_EQ(ZOFF_MOMENTS_F32, of(4095, asked));
        EXPECT_EQ(asked, of(4096, asked));
        EXPECT_EQ(ZOFF_MOMENTS_F32, of(5000, asked, ZOFF_OPTIMIZER_LION));
    }
}

TEST_F(Moments, StayFp32ByName)
{
    const char *patterns[] = {"*.bias", "wte"};
    parts.values.fp32_moments = {patterns, 2};
    std::vector<zoff_param> all;
    for (const char *name : {"h.0.bias", "wte", "h.0.weight", "wte2"})
        all.push_back(parts.add(describe(name, 5000)));
    for (const zoff_moments asked : {ZOFF_MOMENTS_BF16, ZOFF_MOMENTS_Q8}) {
        parts.values.moments = asked;
        for (const zoff_param p : all) {
            const char *name = parts.m.params[p].name;
            const bool stays = strstr(name, ".bias") || strcmp(name, "wte") == 0;
            EXPECT_EQ(stays ? ZOFF_MOMENTS_F32 : asked, zoff_model_moments_of(&parts.m, &parts.m.params[p])) << name;
        }
    }
}

TEST_F(Moments, APatternThatMatchesNoNameIsToldOf)
{
    const char *patterns[] = {"*.bais", "*.bias", "wte"};
    parts.values.fp32_moments = {patterns, 3};
    parts.values.no_decay = {patterns + 1, 2};
    parts.add(describe("h.0.bias", 5000));
    log_catcher log;
    log.expect("zoff.fp32_moments: 2 of 3 patterns match no parameter of rank 0; the first of them is \"*.bais\"");
    log.expect("zoff.no_decay: 1 of 2 patterns match no parameter of rank 0; the first of them is \"wte\"");
    zoff_model_params_warn(&parts.m);
    EXPECT_EQ(2u, log.lines.size());
}

// Tied parameters share their moments, so each of their names counts.
TEST_F(Moments, ANameOfATieKeepsAllOfItFp32)
{
    const char *patterns[] = {"head"};
    parts.values.fp32_moments = {patterns, 1};
    parts.values.moments = ZOFF_MOMENTS_Q8;
    std::vector<float> weights(5000), first(5000), second(5000);
    for (const char *name : {"wte", "head"}) {
        zoff_param_desc d = describe(name, 5000);
        d.value = weights.data();
        d.grad = name[0] == 'w' ? first.data() : second.data();
        parts.add(d);
    }
    ASSERT_ZOFF_OK(zoff_model_ties_find(&parts.m));
    EXPECT_EQ(ZOFF_MOMENTS_F32, zoff_model_moments_of(&parts.m, &parts.m.params[0]));
    zoff_model_ties_dissolve(&parts.m);
    EXPECT_EQ(ZOFF_MOMENTS_Q8, zoff_model_moments_of(&parts.m, &parts.m.params[0]));
}

TEST_F(Moments, ThePlanSeesTheirBlocks)
{
    const struct {
        zoff_moments moments;
        size_t m, m_header, v, v_header;
    } cases[] = {{ZOFF_MOMENTS_F32, 4, 0, 4, 0},
                 {ZOFF_MOMENTS_BF16, 2, 0, 2, 0},
                 {ZOFF_MOMENTS_M8V16, 1, 64, 2, 0},
                 {ZOFF_MOMENTS_Q8, 1, 64, 1, 64}};
    for (const auto &c : cases) {
        ASSERT_EQ(c.moments, of(5000, c.moments));
        const zoff_plan_tensor t = zoff_model_params_tensor(&parts.m, &parts.m.params[parts.m.param_count - 1]);
        EXPECT_EQ(c.m, t.bytes[ZOFF_STREAM_M]);
        EXPECT_EQ(c.m_header, t.headers[ZOFF_STREAM_M]);
        EXPECT_EQ(c.v, t.bytes[ZOFF_STREAM_V]);
        EXPECT_EQ(c.v_header, t.headers[ZOFF_STREAM_V]);
        EXPECT_EQ(1024u, t.block);
    }
}
} // namespace
