/* SPDX-License-Identifier: Apache-2.0 */
// ahead_test.cc: buckets that are updated, or only measured, before the step is asked for: whether they count, and calls in
// between.
#include "covering.h"
#include "small_engine.h"

#include <unistd.h>

using namespace zoff_test;

namespace
{
struct kind {
    const char *name;
    bool nvme;
    const char *own; // keys of "zoff"
    bool measures_only;
};

const kind KINDS[] = {{"dram", false, "", false},
                      {"dram_measured", false, ", \"background_threads\": 1", true},
                      {"nvme", true, "", false},
                      {"nvme_background", true, ", \"background_threads\": 1", false},
                      {"persist_measured", true, ", \"background_threads\": 1, \"persist\": true", true},
                      {"residents", true, ", \"host_memory\": \"400KiB\"", false},
                      {"persist", true, ", \"persist\": true", false}};

class Ahead : public testing::TestWithParam<kind>
{
  protected:
    enum { CHUNK = 2048 };

    Ahead() : plain(5), ahead(5)
    {
        const std::string own =
            std::string("\"speculation_memory\": \"") + (GetParam().measures_only ? "0" : "64MiB") + "\"" + GetParam().own;
        for (trainer *t : {&plain, &ahead}) {
            add_awkward(*t, ZOFF_BF16, ZOFF_BF16);
            for (int i = 0; i < 4; i++)
                t->add(5000 + 900 * (size_t)i, 2, ZOFF_BF16, ZOFF_BF16);
        }
        a = seal_engine(plain, config_text(""), CHUNK);
        b = seal_engine(ahead, config_text(GetParam().nvme ? folder.path : "", 1, ", \"zoff\": {" + own + "}"), CHUNK);
    }

    void backward(float size = 0.001f)
    {
        for (trainer *t : {&plain, &ahead}) {
            t->next_step();
            t->backward_all(size);
        }
    }

    // Hand over all gradients but those of the first tensor, and give the engine time for them.
    void hand_over_most()
    {
        for (size_t i = ahead.tensors.size(); i-- > 1;) {
            for (size_t slice = 0; slice < ahead.tensors[i].slices; slice++)
                ASSERT_ZOFF_OK(zoff_grad_ready(b.get(), (zoff_param)i, slice, nullptr));
        }
        // Until the engine has found nothing to do for some time. A thread of it may be at work meanwhile.
        for (int i = 0, quiet = 0; i < 20000 && quiet < 100; i++) {
            quiet = zoff_engine_progress(b.get()) == ZOFF_PENDING ? 0 : quiet + 1;
            usleep(50);
        }
    }

    static zoff_step_args with_scale(double scale)
    {
        zoff_step_args args = ZOFF_STEP_ARGS_INIT;
        args.grad_scale = scale;
        return args;
    }

    void step(const zoff_step_args *args)
    {
        info = {};
        info.struct_size = sizeof info;
        ASSERT_ZOFF_OK(zoff_step(a.get(), args, nullptr));
        ASSERT_ZOFF_OK(zoff_step(b.get(), args, &info));
        for (size_t i = 0; i < plain.tensors.size(); i++) {
            for (size_t k = 0; k < plain.tensors[i].total(); k++) {
                const size_t at = plain.place(i, k);
                ASSERT_EQ(trainer::get(plain.value(i), ZOFF_BF16, at), trainer::get(ahead.value(i), ZOFF_BF16, at))
                    << "tensor " << i << ", element " << k;
            }
        }
    }

    scratch_folder folder;
    trainer plain, ahead;
    engine a, b;
    zoff_step_info info{};
};
INSTANTIATE_TEST_SUITE_P(Kinds, Ahead, testing::ValuesIn(KINDS), [](const auto &p) { return std::string(p.param.name); });

TEST_P(Ahead, AStepThatWasAnnouncedCounts)
{
    const zoff_step_args args = with_scale(0.5);
    for (int i = 0; i < 3; i++) {
        backward();
        ASSERT_ZOFF_OK(zoff_step_prepare(b.get(), &args));
        ASSERT_NO_FATAL_FAILURE(hand_over_most());
        ASSERT_NO_FATAL_FAILURE(step(&args));
        EXPECT_EQ(!GetParam().measures_only, info.buckets.speculated > info.buckets.all / 2);
        EXPECT_EQ(info.buckets.committed, info.buckets.speculated);
        EXPECT_EQ(info.buckets.redone, 0u);
    }
}

TEST_P(Ahead, AStepThatDiffersIsTakenFromTheOldStates)
{
    const zoff_step_args args = with_scale(0.5);
    for (int i = 0; i < 3; i++) {
        backward();
        if (i == 1) {
            const zoff_step_args other = with_scale(0.25);
            ASSERT_ZOFF_OK(zoff_step_prepare(b.get(), &other));
        }
        ASSERT_NO_FATAL_FAILURE(hand_over_most());
        ASSERT_NO_FATAL_FAILURE(step(&args));
        EXPECT_EQ(!GetParam().measures_only, info.buckets.redone > info.buckets.all / 2);
        EXPECT_EQ(info.buckets.committed, 0u);
    }
}

TEST_P(Ahead, GradientsThatAreDroppedHaveChangedNothing)
{
    for (int i = 0; i < 4; i++) {
        backward(0.01f);
        trainer::put(ahead.grad(ahead.tensors.size() - 1), ZOFF_BF16, ahead.place(ahead.tensors.size() - 1, 5), INFINITY);
        ASSERT_NO_FATAL_FAILURE(hand_over_most());
        ASSERT_ZOFF_OK(zoff_grads_drop(b.get()));
        backward();
        if (i % 2 == 0) {
            ASSERT_NO_FATAL_FAILURE(hand_over_most());
        }
        ASSERT_NO_FATAL_FAILURE(step(nullptr));
        EXPECT_EQ(info.buckets.speculated > 0, i % 2 == 0 && !GetParam().measures_only);
        EXPECT_FALSE(info.skipped);
    }
}

TEST_P(Ahead, AnEngineMayEndInTheMiddle)
{
    backward();
    ASSERT_NO_FATAL_FAILURE(hand_over_most());
    b.reset();
    if (!strstr(GetParam().own, "persist"))
        return;
    b = seal_engine(ahead, config_text(folder.path, 1, ", \"zoff\": {\"persist\": true}"), CHUNK);
    int64_t t;
    ASSERT_ZOFF_OK(zoff_step_count(b.get(), &t));
    EXPECT_EQ(0, t);
    ASSERT_ZOFF_OK(zoff_params_push(b.get()));
    backward();
    ASSERT_NO_FATAL_FAILURE(step(nullptr));
}

// The call may leave the gradient to the engine's thread, which finds the mistake: then the next call tells of it, once.
TEST_P(Ahead, AGradientThatIsHandedOverTwiceIsToldOnce)
{
    for (int i = 0; i < 5; i++) {
        backward();
        const zoff_param last = (zoff_param)(ahead.tensors.size() - 1);
        ASSERT_ZOFF_OK(zoff_grad_ready(b.get(), last, 0, nullptr));
        zoff_status status = zoff_grad_ready(b.get(), last, 0, nullptr);
        if (status == ZOFF_OK)
            status = zoff_step_begin(b.get(), nullptr);
        EXPECT_EQ(ZOFF_ERR_STATE, status);
        EXPECT_NE(nullptr, strstr(zoff_last_error(), "twice")) << zoff_last_error();
        ASSERT_NO_FATAL_FAILURE(step(nullptr));
    }
}

TEST_P(Ahead, TheArgumentsOfAStepAreChecked)
{
    zoff_step_args args = with_scale(INFINITY);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "grad_scale", zoff_step_prepare(b.get(), &args));
    zoff_norm_sum sum{};
    args = with_scale(1);
    args.norm_sum = &sum;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_step_measure", zoff_step_prepare(b.get(), &args));
    ASSERT_ZOFF_OK(zoff_step_begin(b.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "a step is open", zoff_step_prepare(b.get(), nullptr));
    ASSERT_ZOFF_OK(zoff_step_wait(b.get(), nullptr));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_step_prepare(nullptr, nullptr));
}
} // namespace
