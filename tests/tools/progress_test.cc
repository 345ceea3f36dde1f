/* SPDX-License-Identifier: Apache-2.0 */
// progress_test.cc: the line of progress, and the signals that end a verb.
#include "tool_files.h"

#include <signal.h>

extern "C" {
#include "../../tools/progress.h" // the room base has a header of this name, too
}

namespace
{
std::string shown(const std::function<void()> &call)
{
    return tool_files::run([&] { return call(), 0; }).err;
}

// A verb that began some seconds ago.
progress begun(double seconds, bool is_terminal)
{
    progress p;
    progress_begin(&p, "export");
    p.began -= seconds;
    p.is_terminal = is_terminal;
    return p;
}

TEST(Progress, ShowsBytesRateAndRemainingTimeOnATerminal)
{
    progress p = begun(10, true);
    const std::string line = shown([&] { EXPECT_TRUE(progress_tell("export", 2000000000, 6000000000, &p)); });
    EXPECT_HAS(line, "export: 2.00 GB of 6.00 GB, ");
    EXPECT_HAS(line, " MB/s, ");
    EXPECT_HAS(line, " s left");
    EXPECT_EQ("", shown([&] { progress_tell("export", 2000000001, 6000000000, &p); })) << "at most five lines a second";
    const std::string last = shown([&] { progress_end(&p, true); });
    EXPECT_HAS(last, "\r\033[K");
    EXPECT_HAS(last, "export: 2.00 GB in ");
    EXPECT_HAS(last, "/s\n");
}

TEST(Progress, TellsLongTimesInHours)
{
    progress p = begun(5000, true);
    EXPECT_HAS(shown([&] { progress_tell("export", 1, 2, &p); }), "1 h 23 min left");
    progress none = begun(5000, true);
    EXPECT_EQ(std::string::npos, shown([&] { progress_tell("export", 0, 2, &none); }).find("left")) << "nothing is known yet";
}

TEST(Progress, PrintsOneLineElsewhere)
{
    progress p = begun(90, false);
    EXPECT_EQ("", shown([&] { EXPECT_TRUE(progress_tell("export", 5, 10, &p)); }));
    const std::string last = shown([&] { progress_end(&p, true); });
    EXPECT_EQ(0u, last.find("export: 5 B in 1 min 30 s, ")) << last;
    EXPECT_EQ("", shown([&] { progress_end(&p, false); })) << "the error is enough";
}

TEST(Progress, IsSilentInTheFirstSecond)
{
    progress p = begun(-1000, true);
    EXPECT_EQ("", shown([&] { EXPECT_TRUE(progress_tell("export", 5, 10, &p)); }));
    EXPECT_EQ("", shown([&] { progress_end(&p, true); }));
}

TEST(Progress, ASignalEndsTheVerb)
{
    for (int number : {SIGINT, SIGTERM}) {
        progress p = begun(0, false);
        EXPECT_FALSE(progress_canceled());
        EXPECT_TRUE(progress_tell("export", 1, 10, &p));
        raise(number);
        EXPECT_TRUE(progress_canceled());
        EXPECT_FALSE(progress_tell("export", 2, 10, &p));
        struct sigaction action;
        ASSERT_EQ(0, sigaction(number, nullptr, &action));
        EXPECT_EQ(SIG_DFL, action.sa_handler) << "a second signal ends the process";
    }
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}
} // namespace
