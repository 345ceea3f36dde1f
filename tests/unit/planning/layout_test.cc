/* SPDX-License-Identifier: Apache-2.0 */
// layout_test.cc: which models have the same layout, and which plans the same cut.
#include "sgd_engine.h"

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
TEST(Layout, IsThatOfNamesSizesOrderAndOptimizers)
{
    log_catcher log;
    float x[64];
    const auto layout = [&](const char *first, const char *second, size_t count, size_t slices, unsigned threads) {
        zoff_engine_opts opts = {};
        opts.struct_size = sizeof opts;
        opts.threads = threads;
        zoff_engine *made = nullptr;
        EXPECT_ZOFF_OK(zoff_engine_create(&opts, &made));
        engine e(made);
        for (const char *name : {first, second}) {
            zoff_param_desc d = described(x + (name == first ? 0 : 32), count);
            d.slices = slices;
            d.name = name;
            EXPECT_ZOFF_OK(zoff_engine_add_param(made, &d, nullptr));
        }
        EXPECT_ZOFF_OK(zoff_engine_seal(made));
        uint64_t number = 0, cut = 0, other_cut = 0, unchanged = 0;
        const zoff_planning planning = zoff_engine_planning(made);
        EXPECT_ZOFF_OK(zoff_planning_layout_checksums(&planning, &made->plan, &number, &cut));
        made->plan.chunks[0].elements++; // another cut of the same model
        EXPECT_ZOFF_OK(zoff_planning_layout_checksums(&planning, &made->plan, &unchanged, &other_cut));
        made->plan.chunks[0].elements--;
        EXPECT_EQ(number, unchanged);
        EXPECT_NE(cut, other_cut);
        return number;
    };
    const uint64_t same = layout("a", "b", 4, 2, 1);
    EXPECT_EQ(same, layout("a", "b", 4, 2, 2)) << "threads may change";
    EXPECT_NE(same, layout("a", "c", 4, 2, 1));
    EXPECT_NE(same, layout("b", "a", 4, 2, 1));
    EXPECT_NE(same, layout("a", "b", 2, 4, 1));
    EXPECT_NE(same, layout("a", "b", 5, 2, 1));
}
} // namespace
