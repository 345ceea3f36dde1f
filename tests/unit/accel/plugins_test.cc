/* SPDX-License-Identifier: Apache-2.0 */
// plugins_test.cc: the accelerator in a plug-in: the functions that it must have, and the errors if it is missing or
// incomplete. The plug-ins are real ones with the name of CUDA's (tests/support/plugin_under_test.c).
#include "zoff_test.h"

using namespace zoff_test;

namespace
{
class AccelPlugins : public testing::Test
{
  protected:
    void TearDown() override { unsetenv("ZOFF_PLUGIN_PATH"); }
    static void look_in(const char *folder) { setenv("ZOFF_PLUGIN_PATH", folder, 1); }
    zoff_accel *opened = nullptr;
};
} // namespace

TEST_F(AccelPlugins, OneThatIsNowhereIsRefusedWithAdvice)
{
    look_in("/nowhere");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED,
                      "the accelerator \"cuda\" is a plug-in, and cannot be loaded: ", zoff_accel_open("cuda", 0, &opened));
    EXPECT_NE(std::string::npos, std::string(zoff_last_error())
                                     .find("no /nowhere/libzoff_cuda.so. Build zoff where the CUDA toolkit is found, and have "
                                           "its runtime where the loader looks, or set ZOFF_PLUGIN_PATH"))
        << zoff_last_error();
    EXPECT_EQ(nullptr, opened);
}

TEST_F(AccelPlugins, OneWithoutAnAcceleratorIsRefused)
{
    log_catcher log;
    log.expect("the plug-in was loaded");
    look_in(PLUGIN_FOLDER "_without");
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "libzoff_cuda.so has no accelerator: install it together with libzoff",
                      zoff_accel_open("cuda", 0, &opened));
    EXPECT_EQ(nullptr, opened);
}

TEST_F(AccelPlugins, TheIndexAndTheAnswerAreHandedOn)
{
    log_catcher log;
    log.expect("the plug-in was loaded");
    look_in(PLUGIN_FOLDER);
    for (int index : {0, 1, 9})
        EXPECT_ZOFF_FAILS(ZOFF_ERR_DEVICE, "device " + std::to_string(index) + " says",
                          zoff_accel_open("cuda", index, &opened));
}
