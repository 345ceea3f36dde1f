/* SPDX-License-Identifier: Apache-2.0 */
// stop_test.cc: a request to stop, with one rank: which steps say it, and that nothing loses it.
#include "sgd_engine.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

using namespace zoff_test;

namespace
{
class Stop : public sgd_engine
{
  protected:
    void open(const std::string &more)
    {
        make(more);
        add(&w, &g, 1, "w");
        ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    }
    bool step_says_stop()
    {
        auto info = new_info();
        EXPECT_ZOFF_OK(step(&info));
        return info.stop_requested;
    }
    float w = 0, g = 1;
};

TEST_F(Stop, NobodyHasRequestedIt)
{
    open("");
    for (int i = 0; i < 3; i++)
        EXPECT_FALSE(step_says_stop());
}

TEST_F(Stop, ARequestIsSaidByEveryStepFromThenOn)
{
    for (const char *more : {"", ", \"zoff\": {\"skip_nonfinite\": false}"}) {
        open(more);
        EXPECT_FALSE(step_says_stop());
        zoff_engine_request_stop(made.get());
        for (int i = 0; i < 3; i++)
            EXPECT_TRUE(step_says_stop());
    }
}

TEST_F(Stop, ARequestBeforeSealIsNotLost)
{
    make();
    zoff_engine_request_stop(made.get());
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "not sealed", step(nullptr));
    add(&w, &g, 1, "w");
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    EXPECT_TRUE(step_says_stop());
}

TEST_F(Stop, ASkippedStepSaysIt)
{
    open("");
    zoff_engine_request_stop(made.get());
    g = NAN;
    log.expect("step 1 skipped");
    auto info = new_info();
    ASSERT_ZOFF_OK(step(&info));
    EXPECT_TRUE(info.skipped);
    EXPECT_TRUE(info.stop_requested);
}

TEST_F(Stop, UnderAccumulationTheUpdateSaysItFirst)
{
    open(", \"gradient_accumulation_steps\": 3");
    EXPECT_FALSE(step_says_stop());
    zoff_engine_request_stop(made.get());
    for (bool said : {false, true, true, true})
        EXPECT_EQ(said, step_says_stop());
}

TEST_F(Stop, DroppedGradientsDoNotDropTheRequest)
{
    open(", \"gradient_accumulation_steps\": 2");
    zoff_engine_request_stop(made.get());
    EXPECT_FALSE(step_says_stop());
    ASSERT_ZOFF_OK(zoff_grads_drop(made.get()));
    EXPECT_FALSE(step_says_stop());
    EXPECT_TRUE(step_says_stop());
    ASSERT_ZOFF_OK(zoff_grads_drop(made.get()));
    EXPECT_TRUE(step_says_stop());
}

TEST_F(Stop, AnEngineWithoutAnyBucketSaysItToo)
{
    make();
    ASSERT_ZOFF_OK(zoff_engine_seal(made.get()));
    zoff_engine_request_stop(made.get());
    EXPECT_TRUE(step_says_stop());
}

// The struct of a program of an earlier version ends before the field.
TEST_F(Stop, AShorterInfoIsNotWrittenBeyondItsEnd)
{
    open("");
    zoff_engine_request_stop(made.get());
    auto info = new_info();
    info.struct_size = offsetof(zoff_step_info, stop_requested);
    ASSERT_ZOFF_OK(step(&info));
    EXPECT_FALSE(info.stop_requested);
    EXPECT_EQ(1, info.t);
}

TEST_F(Stop, ARequestToNobodyDoesNothing)
{
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_engine_seal(nullptr));
    errno = EDOM;
    zoff_engine_request_stop(nullptr);
    EXPECT_EQ(EDOM, errno);
    EXPECT_NE(nullptr, strstr(zoff_last_error(), "NULL")) << "the last error is as it was";
}
} // namespace
