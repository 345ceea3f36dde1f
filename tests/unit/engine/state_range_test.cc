/* SPDX-License-Identifier: Apache-2.0 */
// state_range_test.cc: ranges of a state, or of weights, over the borders of slices and chunks.
#include "on_tiers.h"

extern "C" {
#include "engine_priv.h"
}

using namespace zoff_test;

namespace
{
class StateRange : public on_tiers
{
};
INSTANTIATE_TEST_SUITE_P(Tiers, StateRange, testing::Bool(), tier_name);

TEST_P(StateRange, WindowsAreReadAndWrittenAcrossSlicesAndChunks)
{
    trainer t(2);
    t.add(2500, 3, ZOFF_BF16, ZOFF_BF16, 0, false, 9);
    t.add(1777, 2, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, text(), 1024);
    for (zoff_param p = 0; p < 2; p++) {
        size_t total = t.tensors[p].total();
        for (zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
            std::vector<float> want(total);
            for (auto &x : want)
                x = (float)(t.random() % 1000);
            ASSERT_ZOFF_OK(zoff_state_write(e.get(), p, kind, 0, total, want.data()));
            for (size_t first : {size_t(0), size_t(1), size_t(1023), size_t(1700), total - 1, total}) {
                std::vector<float> have(total - first, -1);
                size_t count = have.size() > 2000 ? 2000 : have.size();
                ASSERT_ZOFF_OK(zoff_state_read(e.get(), p, kind, first, count, have.data()));
                for (size_t k = 0; k < count; k++)
                    ASSERT_EQ(want[first + k], have[k]) << p << " " << kind << " " << first << " " << k;
            }
            float x = -5;
            ASSERT_ZOFF_OK(zoff_state_write(e.get(), p, kind, 1600, 1, &x));
            std::vector<float> have(total);
            want[1600] = x;
            ASSERT_ZOFF_OK(zoff_state_read(e.get(), p, kind, 0, total, have.data()));
            EXPECT_EQ(want, have);
        }
    }
}

// A range is fp32, whatever the engine stores. Its writes are rounded to the nearest number of that. A range that cuts a block
// would round the rest of it again, with the scale of old numbers.
TEST_P(StateRange, MomentsInBlocksAreFp32ForTheProgram)
{
    for (const char *moments : {"m8v16", "q8"}) {
        trainer t(2);
        t.add(5000, 2, ZOFF_BF16, ZOFF_BF16);
        engine e = seal_engine(t, text(1, std::string(", \"zoff\": {\"moments\": \"") + moments + "\"}"), 2048);
        std::vector<float> mine(10000), have(10000);
        for (auto &x : mine)
            x = (float)(t.random() % 100000 + 50000) / 7;
        for (zoff_state_kind kind : {ZOFF_STATE_M, ZOFF_STATE_V}) {
            ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, kind, 0, 10000, mine.data()));
            // The rest of a slice, and a block of the next one.
            ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, kind, 3072, 1928 + 1024, mine.data()));
            const bool in_blocks = kind == ZOFF_STATE_M || moments[0] == 'q';
            for (const auto &range : std::vector<std::pair<size_t, size_t>>{{0, 1000}, {24, 1000}, {5000, 500}, {4999, 1}}) {
                if (in_blocks) {
                    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "cut one. Write whole blocks",
                                      zoff_state_write(e.get(), 0, kind, range.first, range.second, mine.data()));
                }
            }
            std::vector<float> odd(1024);
            for (float x : {INFINITY, NAN, -1.0f}) {
                odd[77] = x;
                const bool is_outlier = kind == ZOFF_STATE_V && x > 0; /* one is, as after a step */
                for (size_t i = 0; i < 11 && is_outlier; i++)
                    odd[77 + i] = x;
                if (in_blocks && (kind == ZOFF_STATE_V || x != -1)) {
                    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "element 1101 of a moment of",
                                      zoff_state_write(e.get(), 0, kind, 1024, 1024, odd.data()));
                }
                if (in_blocks && is_outlier) {
                    odd[77] = 1;
                    ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, kind, 1024, 1024, odd.data()));
                    ASSERT_ZOFF_OK(zoff_state_read(e.get(), 0, kind, 1024, 1024, have.data()));
                    EXPECT_TRUE(std::equal(odd.begin(), odd.end(), have.begin()));
                    ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, kind, 1024, 1024, mine.data() + 1024));
                    std::fill(odd.begin(), odd.end(), 0.0f);
                }
            }
            ASSERT_ZOFF_OK(zoff_state_read(e.get(), 0, kind, 0, 10000, have.data()));
            for (size_t k = 0; k < 10000; k++) {
                const float want = k >= 3072 && k < 6024 ? mine[k - 3072] : mine[k];
                ASSERT_NEAR(want, have[k], want / 16) << k;
            }
        }
        const double bytes = (double)plan_of(e.get()).state_bytes / 10000;
        EXPECT_LE(bytes, moments[0] == 'q' ? 4.2 : 5.2);
    }
}

// Moments in bf16 are fp32 for the program, and each has a rounding of its own.
TEST_P(StateRange, MomentsInHalvesAreFp32ForTheProgram)
{
    trainer t(2);
    t.add(2500, 2, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, text(1, ", \"zoff\": {\"moments\": \"bf16\"}"), 1024);
    std::vector<float> mine(5000), have(5000);
    for (auto &x : mine)
        x = (float)(t.random() % 100000) / 7;
    for (zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
        ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, kind, 300, 4000, mine.data()));
        ASSERT_ZOFF_OK(zoff_state_read(e.get(), 0, kind, 301, 3998, have.data()));
        for (size_t k = 0; k < 3998; k++)
            ASSERT_EQ(kind == ZOFF_STATE_MASTER ? mine[1 + k] : reference::rounded(ZOFF_BF16, mine[1 + k]), have[k]) << k;
        ASSERT_ZOFF_OK(zoff_state_read(e.get(), 0, kind, 4300, 700, have.data()));
        EXPECT_TRUE(kind == ZOFF_STATE_MASTER || std::all_of(have.begin(), have.begin() + 700, [](float x) { return x == 0; }));
    }
    const zoff_plan_info plan = plan_of(e.get());
    EXPECT_LE(6u * 5000, plan.state_bytes) << "masters in two halves, and moments";
    EXPECT_GE(6u * 5000 + 5 * 3 * 4096, plan.state_bytes);
}

// Weights that the engine keeps, in their own type: a write also sets the masters, and no other element.
TEST_P(StateRange, WeightsThatAreSetBecomeMasters)
{
    trainer t(3);
    t.add(1500, 3, ZOFF_BF16, ZOFF_BF16);
    t.give_away(0);
    engine e = seal_engine(t, text(), 1024);
    std::vector<uint16_t> weights(2000), have(2000);
    for (size_t k = 0; k < weights.size(); k++)
        weights[k] = reference::to_16(ZOFF_BF16, (float)(k % 200));
    ASSERT_ZOFF_OK(zoff_param_write(e.get(), 0, 1200, weights.size(), weights.data()));
    ASSERT_ZOFF_OK(zoff_param_read(e.get(), 0, 1200, have.size(), have.data()));
    EXPECT_EQ(weights, have);
    for (size_t k = 0; k < weights.size(); k++)
        t.tensors[0].master[1200 + k] = (float)(k % 200);
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.fetch_all(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "outside", zoff_param_read(e.get(), 0, 4400, 101, have.data()));
}

// Masters in two halves are fp32 numbers for the program. The weights are their upper halves at once.
TEST_P(StateRange, SplitMastersAreFp32ForTheProgram)
{
    for (const bool owned : {false, true}) {
        trainer t(3);
        t.add(1500, 3, ZOFF_BF16, ZOFF_BF16);
        if (owned)
            t.give_away(0);
        engine e = seal_engine(t, text(), 1024);
        std::vector<float> &all = t.tensors[0].master, have(3000);
        for (size_t k = 700; k < 4000; k++)
            all[k] = (float)(t.random() % 100000) / 7;
        ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, ZOFF_STATE_MASTER, 700, 3300, &all[700]));
        ASSERT_ZOFF_OK(zoff_state_read(e.get(), 0, ZOFF_STATE_MASTER, 501, 3000, have.data()));
        EXPECT_EQ(std::vector<float>(&all[501], &all[3501]), have);
        t.fetch_all(e.get());
        ASSERT_NO_FATAL_FAILURE(t.expect_weights());
        ASSERT_ZOFF_OK(zoff_params_push(e.get()));
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
        ASSERT_ZOFF_OK(zoff_params_pull(e.get())); // the weights are the masters now
        for (float &x : all)
            x = reference::rounded(ZOFF_BF16, x);
        ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    }
}
} // namespace
