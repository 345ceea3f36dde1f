// opts_test.cc: options of a communicator in a struct that is shorter or longer than the library's, or NULL.
#include "zoff_test.h"

#include <cmath>
#include <cstring>

extern "C" {
#include "comm.h"
}

TEST(CommOpts, NoneAreTheDefaults)
{
    zoff_comm_opts out;
    ASSERT_ZOFF_OK(zoff_comm_opts_take(nullptr, "call", &out));
    EXPECT_EQ(sizeof out, out.struct_size);
    EXPECT_EQ(nullptr, out.backend);
    EXPECT_LT(0, out.timeout_seconds);
}

TEST(CommOpts, AShorterStructHasDefaultsForTheRest)
{
    zoff_comm_opts known, in = {};
    ASSERT_ZOFF_OK(zoff_comm_opts_take(nullptr, "call", &known));
    in.struct_size = offsetof(zoff_comm_opts, timeout_seconds);
    in.backend = "self";
    in.timeout_seconds = 5;
    zoff_comm_opts out;
    ASSERT_ZOFF_OK(zoff_comm_opts_take(&in, "call", &out));
    EXPECT_STREQ("self", out.backend);
    EXPECT_EQ(known.timeout_seconds, out.timeout_seconds) << "behind the end of the caller's struct";
    in.struct_size = sizeof in;
    ASSERT_ZOFF_OK(zoff_comm_opts_take(&in, "call", &out));
    EXPECT_EQ(5, out.timeout_seconds);
}

TEST(CommOpts, ALongerStructIsReadAsFarAsItIsKnownAndRefusedWhereItSaysMore)
{
    struct {
        zoff_comm_opts known;
        char more[64];
    } in = {};
    in.known.struct_size = sizeof in;
    in.known.timeout_seconds = -1;
    zoff_comm_opts out;
    ASSERT_ZOFF_OK(zoff_comm_opts_take(&in.known, "call", &out));
    EXPECT_EQ(-1, out.timeout_seconds);
    in.more[63] = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "zoff_comm_opts has a field at byte 87",
                      zoff_comm_opts_take(&in.known, "call", &out));
}

TEST(CommOpts, ErrorsNameTheCall)
{
    zoff_comm_opts in = {}, out;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_comm_opts.struct_size is 0", zoff_comm_opts_take(&in, "zoff_comm_open", &out));
    in.struct_size = sizeof in;
    in.timeout_seconds = NAN;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "zoff_comm_open: timeout_seconds is not a number",
                      zoff_comm_opts_take(&in, "zoff_comm_open", &out));
}
