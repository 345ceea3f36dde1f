/* SPDX-License-Identifier: Apache-2.0 */
// changed_weights_test.cc: weights that the program changes between two calls. With zoff.check_use every type on every tier is
// refused alike until the program pulls or pushes, and a save that is under way fails.
#include "small_engine.h"

#include <string.h>

#include <functional>

using namespace zoff_test;

namespace
{
struct kind {
    const char *name;
    zoff_dtype dtype;
    const char *master; // zoff.master
    bool has_masters;   // beside the weights: a push restores them
};
const kind KINDS[] = {{"fp32", ZOFF_F32, "auto", false},
                      {"split", ZOFF_BF16, "auto", false},
                      {"bf16", ZOFF_BF16, "fp32", true},
                      {"fp16", ZOFF_F16, "fp32", true}};

class ChangedWeights : public testing::TestWithParam<std::tuple<kind, const char *>>
{
  protected:
    enum { COUNT = 2000, SLICES = 2 };
    ChangedWeights() : t(7)
    {
        const auto [what, tier] = GetParam();
        const bool persists = !strcmp(tier, "persist");
        t.add(COUNT, SLICES, what.dtype, ZOFF_F32);
        std::string text = config_text(!strcmp(tier, "dram") ? "" : folder.path, 1,
                                       std::string(", \"zoff\": {\"check_use\": true, \"master\": \"") + what.master +
                                           "\", \"persist\": " + (persists ? "true" : "false") + "}");
        e = seal_engine(t, text, 1024);
    }
    void step()
    {
        t.next_step();
        t.backward_all(0.1f);
        ASSERT_ZOFF_OK(zoff_step(e.get(), nullptr, nullptr));
    }
    void change(size_t at, float to = 5) { trainer::put(t.value(0), t.tensors[0].dtype, at, to); }
    void expect_refused()
    {
        const char words[] = "the weights of param0, slice 1, are not those that the last call has left";
        zoff_norm_sum sum;
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, words, zoff_step(e.get(), nullptr, nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, words, zoff_step_begin(e.get(), nullptr));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, words, zoff_step_measure(e.get(), nullptr, &sum));
    }
    scratch_folder folder;
    log_catcher log;
    trainer t;
    engine e;
};
INSTANTIATE_TEST_SUITE_P(Types, ChangedWeights,
                         testing::Combine(testing::ValuesIn(KINDS), testing::Values("dram", "files", "persist")),
                         [](const auto &p) { return std::string(std::get<0>(p.param).name) + "_" + std::get<1>(p.param); });

TEST_P(ChangedWeights, AreRefusedUntilAPull)
{
    ASSERT_NO_FATAL_FAILURE(step());
    ASSERT_NO_FATAL_FAILURE(step());
    change(COUNT + 3);
    expect_refused();
    ASSERT_ZOFF_OK(zoff_params_pull(e.get()));
    float x = 0;
    ASSERT_ZOFF_OK(zoff_state_read(e.get(), 0, ZOFF_STATE_MASTER, COUNT + 3, 1, &x));
    EXPECT_EQ(5, x);
    ASSERT_NO_FATAL_FAILURE(step());
}

TEST_P(ChangedWeights, AreRefusedUntilAPush)
{
    const kind what = std::get<0>(GetParam());
    ASSERT_NO_FATAL_FAILURE(step());
    const float before = trainer::get(t.value(0), what.dtype, COUNT + 3);
    change(COUNT + 3);
    expect_refused();
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    if (what.has_masters) {
        EXPECT_EQ(before, trainer::get(t.value(0), what.dtype, COUNT + 3));
    }
    ASSERT_NO_FATAL_FAILURE(step());
}

// Calls that change weights leave them, and so does a program that only looks.
TEST_P(ChangedWeights, CallsOfTheEngineAreNoChange)
{
    const kind what = std::get<0>(GetParam());
    const std::vector<float> mine(COUNT, 0.5f);
    ASSERT_NO_FATAL_FAILURE(step());
    ASSERT_ZOFF_OK(zoff_checkpoint_save(e.get(), folder.file("ck").c_str(), nullptr));
    ASSERT_ZOFF_OK(zoff_state_write(e.get(), 0, ZOFF_STATE_MASTER, 0, COUNT, mine.data()));
    ASSERT_NO_FATAL_FAILURE(step());
    ASSERT_ZOFF_OK(zoff_checkpoint_load(e.get(), folder.file("ck").c_str(), nullptr));
    ASSERT_NO_FATAL_FAILURE(step());
    t.hand_over_all(e.get());
    ASSERT_ZOFF_OK(zoff_grads_drop(e.get()));
    std::vector<char> other((size_t)COUNT * SLICES * 4 + 8);
    char *moved = other.data() + 4;
    memcpy(moved, t.value(0), (size_t)COUNT * SLICES * trainer::size(what.dtype));
    ASSERT_ZOFF_OK(zoff_param_bind(e.get(), 0, moved, nullptr));
    ASSERT_NO_FATAL_FAILURE(step());
    ASSERT_ZOFF_OK(zoff_param_bind(e.get(), 0, t.value(0), nullptr));
    ASSERT_ZOFF_OK(zoff_params_push(e.get()));
    ASSERT_NO_FATAL_FAILURE(step());
}

// The save may have read changed weights, which are those of no step.
TEST_P(ChangedWeights, FailASaveThatIsUnderWay)
{
    for (const bool pulls : {true, false}) {
        ASSERT_NO_FATAL_FAILURE(step());
        zoff_checkpoint *save = nullptr;
        ASSERT_ZOFF_OK(zoff_checkpoint_begin(e.get(), folder.file("ck").c_str(), nullptr, &save));
        change(COUNT + 3, pulls ? 5 : 7);
        if (!pulls) {
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "are not those", zoff_step(e.get(), nullptr, nullptr));
        }
        EXPECT_ZOFF_OK(zoff_params_pull(e.get()));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "the program has changed weights while", zoff_checkpoint_wait(save));
        ASSERT_ZOFF_OK(zoff_checkpoint_save(e.get(), folder.file("ck").c_str(), nullptr)) << "the next one is whole";
    }
}
} // namespace
