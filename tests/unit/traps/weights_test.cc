/* SPDX-License-Identifier: Apache-2.0 */
// weights_test.cc: an engine with zoff.check_use tells of weights that are used before they are new, with parameter and place.
#include "sgd_engine.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace zoff_test;

namespace
{
// Two weights of four pages each, in one buffer that begins between two pages.
class CheckUse : public testing::Test
{
  protected:
    enum { COUNT = 8192, SLICES = 2 };

    engine make(const std::string &more = "")
    {
        memory.assign(2 * SLICES * COUNT + 4096, 0);
        grads.assign(2 * SLICES * COUNT, 0.5f);
        float *at = reinterpret_cast<float *>((reinterpret_cast<uintptr_t>(memory.data()) + 4095) / 4096 * 4096) + 8;
        const std::string text = "{\"zoff\": {\"check_use\": true" + more + "}}";
        engine e = zoff_test::make_engine(text, zoff_engine_opts{});
        for (size_t i = 0; i < 2; i++) {
            weights[i] = at + i * SLICES * COUNT;
            zoff_param_desc d = described(weights[i], COUNT);
            d.slices = SLICES;
            d.grad = grads.data() + i * SLICES * COUNT;
            d.name = i ? "second" : "first";
            EXPECT_ZOFF_OK(zoff_engine_add_param(e.get(), &d, nullptr));
        }
        EXPECT_ZOFF_OK(zoff_engine_seal(e.get()));
        return e;
    }

    static void begin(zoff_engine *e)
    {
        for (zoff_param p = 0; p < 2; p++)
            for (size_t slice = 0; slice < SLICES; slice++)
                ASSERT_ZOFF_OK(zoff_grad_ready(e, p, slice, nullptr));
        ASSERT_ZOFF_OK(zoff_step_begin(e, nullptr));
    }

    std::vector<float> memory, grads;
    float *weights[2] = {};
    log_catcher log;
};

TEST_F(CheckUse, AForgottenWaitIsToldWithinOneStep)
{
    engine e = make();
    volatile float read;
    for (int step = 1; step <= 3; step++) {
        ASSERT_NO_FATAL_FAILURE(begin(e.get()));
        for (zoff_param p = 0; p < 2; p++) {
            for (size_t slice = 0; slice < SLICES; slice++) {
                if (step == 2 && p == 1 && slice == 1) { // forgotten
                    read = weights[p][slice * COUNT + 5000];
                    continue;
                }
                ASSERT_ZOFF_OK(zoff_param_wait(e.get(), p, slice, nullptr));
                for (size_t i = 0; i < COUNT; i += 100)
                    read = weights[p][slice * COUNT + i];
            }
        }
        if (step == 2)
            EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "slice 1 of second was used before zoff_param_wait()",
                              zoff_step_wait(e.get(), nullptr));
        else
            EXPECT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
        int64_t t = 0;
        EXPECT_ZOFF_OK(zoff_step_count(e.get(), &t));
        EXPECT_EQ(step, t) << "the step is complete";
    }
    (void)read;
}

TEST_F(CheckUse, ThePlaceIsTheInstructionThatUsedIt)
{
    engine e = make();
    ASSERT_NO_FATAL_FAILURE(begin(e.get()));
    volatile float *at = weights[0] + 4000;
    *at = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "traps_unit+0x", zoff_step_wait(e.get(), nullptr));
}

// Every update ends with the bits of an engine that does not watch.
TEST_F(CheckUse, ChangesNoBit)
{
    std::vector<std::vector<float>> ends;
    for (const char *more : {"", ", \"background_threads\": 1"}) {
        engine e = make(more);
        for (int step = 0; step < 5; step++) {
            ASSERT_NO_FATAL_FAILURE(begin(e.get()));
            ASSERT_ZOFF_OK(zoff_param_wait(e.get(), 1, 0, nullptr));
            ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
        }
        ends.emplace_back(weights[0], weights[0] + 2 * SLICES * COUNT);
    }
    EXPECT_EQ(ends[0], ends[1]);
    EXPECT_NE(0, ends[0][0]);
}

TEST_F(CheckUse, WeightsAreAccessibleAfterAStepThatIsGivenUp)
{
    engine e = make();
    ASSERT_NO_FATAL_FAILURE(begin(e.get()));
    log.expect("step 1 was begun, and is given up");
    e.reset(); // the step is still open
    weights[0][4000] = 1;
    EXPECT_EQ(1, weights[0][4000]);
}

// Any other fault ends the program as without the handler.
TEST_F(CheckUse, AnotherFaultIsNotTouched)
{
    engine e = make();
    ASSERT_NO_FATAL_FAILURE(begin(e.get()));
    const pid_t child = fork();
    if (child == 0) {
        void *none = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *static_cast<volatile char *>(none) = 1;
        _exit(0);
    }
    int how = 0;
    ASSERT_EQ(child, waitpid(child, &how, 0));
    EXPECT_FALSE(WIFEXITED(how) && WEXITSTATUS(how) == 0);
    ASSERT_ZOFF_OK(zoff_step_wait(e.get(), nullptr));
}

TEST_F(CheckUse, IsRefusedOverADeviceAndWithOtherRanks)
{
    test_device device(1);
    zoff_engine_opts opts = {};
    opts.accel = device.accel;
    opts.struct_size = sizeof opts;
    zoff_config *config = nullptr;
    const std::string text = "{\"zoff\": {\"check_use\": true}}";
    ASSERT_ZOFF_OK(zoff_test::config_from_text(text.data(), text.size(), "test.json", &config));
    opts.config = config;
    zoff_engine *made = nullptr;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "zoff.check_use is true, which is for one rank", zoff_engine_create(&opts, &made));
    zoff_config_close(config);
}
} // namespace
