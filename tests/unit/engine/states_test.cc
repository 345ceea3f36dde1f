// states_test.cc: states set from outside: masters against weights, on both tiers.
#include "on_tiers.h"

using namespace zoff_test;

namespace
{
class States : public on_tiers
{
};
INSTANTIATE_TEST_SUITE_P(Tiers, States, testing::Bool(), tier_name);

TEST_P(States, BeforeTheFirstStepMastersAreTheWeightsAndMomentsAreZero)
{
    trainer t(1);
    add_awkward(t, ZOFF_BF16, ZOFF_BF16);
    engine e = seal_engine(t, text(), 3000);
    ASSERT_NO_FATAL_FAILURE(t.expect_states(e.get()));
}

TEST_P(States, CopiedIntoAnotherEngineTrainingContinuesBitForBit)
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
    b.tensors[4].count = b.tensors[4].slices = 0; // frozen: the trainer owns its weights
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

} // namespace
