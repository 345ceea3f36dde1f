// states_test.cc: states from outside: windows, and masters against weights, on both tiers.
#include "small_engine.h"

using namespace zoff_test;

namespace
{
class States : public testing::TestWithParam<bool>
{
  protected:
    std::string text() const { return config_text(GetParam() ? folder.path : ""); }
    scratch_folder folder;
    log_catcher log;
};
INSTANTIATE_TEST_SUITE_P(Tiers, States, testing::Bool(), [](const auto &p) { return std::string(p.param ? "nvme" : "host"); });

TEST_P(States, BeforeTheFirstStepMastersAreTheWeightsAndMomentsAreZero)
{
    trainer t(1);
    add_awkward(t, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, text(), 3000);
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

TEST_P(States, WindowsAreReadAndWrittenAcrossSlicesAndChunks)
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

TEST_P(States, CopiedIntoAnotherEngineTrainingGoesOnBitForBit)
{
    trainer a(3);
    add_awkward(a, ZOFF_BF16, ZOFF_BF16);
    engine first = seal_engine(a, text(), 2048);
    for (int step = 1; step <= 3; step++) {
        a.next_step();
        a.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(first.get(), nullptr, nullptr));
        reference::step(a.tensors, config_groups(), step, 1, 1, 0);
    }
    trainer b(99); // other weights
    add_awkward(b, ZOFF_BF16, ZOFF_BF16);
    engine second = seal_engine(b, text(), 1024);
    for (zoff_param p = 0; p < a.tensors.size(); p++) {
        if (a.tensors[p].frozen)
            continue;
        for (zoff_state_kind kind : {ZOFF_STATE_MASTER, ZOFF_STATE_M, ZOFF_STATE_V}) {
            std::vector<float> state(a.tensors[p].total());
            ASSERT_ZOFF_OK(zoff_state_read(first.get(), p, kind, 0, state.size(), state.data()));
            ASSERT_ZOFF_OK(zoff_state_write(second.get(), p, kind, 0, state.size(), state.data()));
        }
    }
    ASSERT_ZOFF_OK(zoff_params_push(second.get()));
    ASSERT_ZOFF_OK(zoff_step_count_set(second.get(), 3));
    b.tensors = a.tensors;
    b.tensors[4].master.clear();
    b.tensors[4].count = b.tensors[4].slices = 0; // frozen: its weights are its trainer's own
    b.next_step();
    ASSERT_NO_FATAL_FAILURE(b.expect_weights());
    b.backward_all(0.1f);
    auto info = new_info();
    ASSERT_ZOFF_OK(zoff_step(second.get(), nullptr, &info));
    EXPECT_EQ(4, info.t);
    reference::step(b.tensors, config_groups(), 4, 1, 1, 0);
    ASSERT_NO_FATAL_FAILURE(b.expect_weights());
}

TEST_P(States, PullTakesTheWeightsAsMasters)
{
    trainer t(4);
    t.add(3000, 2, ZOFF_BF16, ZOFF_BF16);
    t.add(50, 1, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, text(), 1024);
    t.backward_all(0.1f);
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    reference::step(t.tensors, config_groups(), 1, 1, 1, 0);
    for (size_t i = 0; i < 2; i++) {
        for (size_t k = 0; k < t.tensors[i].total(); k++) {
            trainer::put(t.value(i), t.tensors[i].dtype, t.place(i, k), (float)(k % 77));
            t.tensors[i].master[k] = (float)(k % 77);
        }
    }
    ASSERT_ZOFF_OK(zoff_params_pull(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
    t.next_step();
    t.backward_all(0.1f);
    ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    reference::step(t.tensors, config_groups(), 2, 1, 1, 0);
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}

TEST_P(States, PushRoundsTheMasters)
{
    trainer t(5);
    t.add(3000, 1, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, text(), 1024);
    std::vector<float> masters(3000);
    for (size_t k = 0; k < masters.size(); k++)
        masters[k] = 1.0f + (float)k / 4096;
    ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, ZOFF_STATE_MASTER, 0, masters.size(), masters.data()));
    t.tensors[0].master = masters;
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    ASSERT_NO_FATAL_FAILURE(t.expect_weights());
}

TEST_P(States, WindowsOutsideAreRefused)
{
    trainer t(6);
    t.add(100, 2, ZOFF_F32, ZOFF_F32);
    t.add(100, 1, ZOFF_F32, ZOFF_F32, 0, true);
    t.add(0, 1, ZOFF_F32, ZOFF_F32);
    engine e = seal_engine(t, text());
    float x[300];
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "param0 has 200 elements; a range of 200 from 1 is outside",
                      zoff_state_read(e.get(), 0, ZOFF_STATE_M, 1, 200, x));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "outside", zoff_state_read(e.get(), 0, ZOFF_STATE_M, SIZE_MAX, 2, x));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "param1 is frozen", zoff_state_read(e.get(), 1, ZOFF_STATE_M, 0, 1, x));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "no parameter 3; the engine has 3", zoff_state_read(e.get(), 3, ZOFF_STATE_M, 0, 1, x));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "not a zoff_state_kind", zoff_state_read(e.get(), 0, (zoff_state_kind)3, 0, 1, x));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "dst must not be NULL", zoff_state_read(e.get(), 0, ZOFF_STATE_M, 0, 1, nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "src must not be NULL", zoff_state_write(e.get(), 0, ZOFF_STATE_M, 0, 1, nullptr));
    EXPECT_ZOFF_OK(zoff_state_read(e.get(), 2, ZOFF_STATE_M, 0, 0, x));
}
} // namespace
