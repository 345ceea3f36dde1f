/* SPDX-License-Identifier: Apache-2.0 */
// log_test.cc: which lines are formatted, what the sink receives, and the form of a line on stderr.
#include "zoff_test.h"

#include <regex.h>
#include <unistd.h>

extern "C" {
#define ZOFF_ROOM "room"
#include "log.h"
}

namespace
{
class log : public ::testing::Test
{
  protected:
    void SetUp() override { unsetenv("ZOFF_LOG_LEVEL"); }
    void TearDown() override
    {
        unsetenv("ZOFF_LOG_LEVEL");
        zoff_log_set(nullptr, nullptr);
    }
};

struct received {
    zoff_log_level level;
    std::string room, line;
};

void take(zoff_log_level level, const char *room, const char *line, void *ctx)
{
    static_cast<std::vector<received> *>(ctx)->push_back({level, room, line});
}
} // namespace

// stderr belongs to the trainer; a program that sets a sink wants the lines.
TEST_F(log, stderr_gets_warnings_and_a_sink_gets_info)
{
    EXPECT_TRUE(zoff_base_log_wants(ZOFF_LOG_ERROR));
    EXPECT_TRUE(zoff_base_log_wants(ZOFF_LOG_WARN));
    EXPECT_FALSE(zoff_base_log_wants(ZOFF_LOG_INFO));
    EXPECT_TRUE(zoff_base_log_wants_asked());
    setenv("ZOFF_LOG_LEVEL", "warn", 1);
    EXPECT_FALSE(zoff_base_log_wants_asked()) << "the environment wins";
    unsetenv("ZOFF_LOG_LEVEL");
    std::vector<received> lines;
    zoff_log_set(take, &lines);
    EXPECT_TRUE(zoff_base_log_wants(ZOFF_LOG_ERROR));
    EXPECT_TRUE(zoff_base_log_wants(ZOFF_LOG_WARN));
    EXPECT_TRUE(zoff_base_log_wants(ZOFF_LOG_INFO));
    EXPECT_FALSE(zoff_base_log_wants(ZOFF_LOG_DEBUG));
}

TEST_F(log, the_environment_sets_the_level)
{
    const char *const names[] = {"error", "warn", "info", "debug", "trace"};
    for (int limit = 0; limit < 5; limit++) {
        setenv("ZOFF_LOG_LEVEL", names[limit], 1);
        for (int level = 0; level < 5; level++)
            EXPECT_EQ(level <= limit, zoff_base_log_wants(static_cast<zoff_log_level>(level))) << names[limit] << " " << level;
    }
    setenv("ZOFF_LOG_LEVEL", "loud", 1);
    EXPECT_TRUE(zoff_base_log_wants(ZOFF_LOG_WARN)) << "a word that is no level changes nothing";
    EXPECT_FALSE(zoff_base_log_wants(ZOFF_LOG_INFO));
}

static int made;
static int make()
{
    return ++made;
}

TEST_F(log, lines_above_the_level_are_not_made)
{
    std::vector<received> lines;
    zoff_log_set(take, &lines);
    made = 0;
    ZOFF_DEBUG("debug %d", make());
    EXPECT_EQ(0, made);
    ZOFF_INFO("info %d", make());
    ZOFF_WARN("warn %d", make());
    EXPECT_EQ(2, made);
    ASSERT_EQ(2u, lines.size());
    EXPECT_EQ(ZOFF_LOG_INFO, lines[0].level);
    EXPECT_EQ("room", lines[0].room);
    EXPECT_EQ("info 1", lines[0].line);
    EXPECT_EQ(ZOFF_LOG_WARN, lines[1].level);
    EXPECT_EQ("warn 2", lines[1].line);
}

TEST_F(log, stderr_lines_have_time_process_level_and_room)
{
    testing::internal::CaptureStderr();
    zoff_base_log_line(ZOFF_LOG_WARN, "aio", "%s is slow", "/dev/nvme0");
    const std::string line = testing::internal::GetCapturedStderr();
    const std::string form = "^\\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2},[0-9]{3}\\] \\[" +
                             std::to_string(getpid()) + "\\] zoff warn aio: /dev/nvme0 is slow\n$";
    regex_t compiled;
    ASSERT_EQ(0, regcomp(&compiled, form.c_str(), REG_EXTENDED | REG_NOSUB));
    EXPECT_EQ(0, regexec(&compiled, line.c_str(), 0, nullptr, 0)) << line;
    regfree(&compiled);
}

TEST_F(log, a_null_sink_restores_stderr)
{
    std::vector<received> lines;
    zoff_log_set(take, &lines);
    zoff_log_set(nullptr, nullptr);
    testing::internal::CaptureStderr();
    ZOFF_WARN("back again");
    EXPECT_NE(std::string::npos, testing::internal::GetCapturedStderr().find("back again"));
    EXPECT_TRUE(lines.empty());
}

TEST_F(log, long_lines_are_cut)
{
    std::vector<received> lines;
    zoff_log_set(take, &lines);
    ZOFF_WARN("%s", std::string(10000, 'z').c_str());
    ASSERT_EQ(1u, lines.size());
    EXPECT_EQ(std::string(4095, 'z'), lines[0].line);
}
