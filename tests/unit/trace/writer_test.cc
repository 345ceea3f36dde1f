/* SPDX-License-Identifier: Apache-2.0 */
// writer_test.cc: the file of a trace is valid JSON after each flush, whatever names it has, and is continued by its writer
// only.
#include "memory_fault.h"
#include "trace_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern "C" {
#include "trace_priv.h"
}

using namespace zoff_test;

namespace
{
class TraceWriter : public testing::Test
{
  protected:
    ~TraceWriter() override { (void)zoff_trace_writer_close(&writer); }
    zoff_status add(const char *name, char phase = 'X')
    {
        zoff_trace_event event = {};
        event.phase = phase;
        event.name = name;
        event.category = "test";
        event.pid = 1;
        event.tid = 2;
        event.from = 1.5;
        event.to = 1.75;
        event.id = 7;
        return zoff_trace_writer_add(&writer, &event);
    }
    static std::string escaped(const std::string &text, size_t bytes = 64)
    {
        std::vector<char> dst(bytes);
        zoff_trace_writer_escape(text.c_str(), dst.data(), bytes);
        return dst.data();
    }
    scratch_folder folder;
    const std::string path = folder.file("t.json");
    zoff_trace_writer writer = {};
};
} // namespace

TEST_F(TraceWriter, EscapesWhatJsonCannotHold)
{
    EXPECT_EQ("a\\\"b\\\\c", escaped("a\"b\\c"));
    EXPECT_EQ("\\u000a\\u0001\\u007f", escaped("\n\001\177"));
    EXPECT_EQ("\u00e4\u20ac\U0001f600", escaped("\u00e4\u20ac\U0001f600"));
    EXPECT_EQ("\\u00ff\\u00e4x", escaped("\xff\xe4x")) << "no UTF-8";
    EXPECT_EQ("\\u00c0\\u0080", escaped("\xc0\x80")) << "a longer form than needed";
    EXPECT_EQ("\\u00ed\\u00a0\\u0080", escaped("\xed\xa0\x80")) << "half of a pair";
    EXPECT_EQ("abc", escaped("abcdef", 4));
    EXPECT_EQ("ab", escaped("ab\"", 4)) << "nothing is cut in the middle";
}

TEST_F(TraceWriter, IsValidAfterEachFlush)
{
    ASSERT_ZOFF_OK(zoff_trace_writer_open(&writer, path.c_str()));
    EXPECT_TRUE(read_trace(path).empty());
    for (unsigned i = 1; i <= 3; i++) {
        ASSERT_ZOFF_OK(add("a \"name\"\\"));
        ASSERT_ZOFF_OK(zoff_trace_writer_flush(&writer));
        EXPECT_EQ(i, read_trace(path).size());
    }
    const trace_event event = read_trace(path)[2];
    EXPECT_EQ("a \"name\"\\", event.name);
    EXPECT_EQ(1500000000, event.begin);
    EXPECT_EQ(1750000000, event.end);
    EXPECT_TRUE(event.pid == 1 && event.tid == 2 && event.category == "test");
}

TEST_F(TraceWriter, WritesPairsAndMoments)
{
    ASSERT_ZOFF_OK(zoff_trace_writer_open(&writer, path.c_str()));
    ASSERT_ZOFF_OK(add("a", 'b'));
    ASSERT_ZOFF_OK(add("b", 'i'));
    ASSERT_ZOFF_OK(zoff_trace_writer_close(&writer));
    const auto events = read_trace(path);
    ASSERT_EQ(3u, events.size());
    EXPECT_TRUE(events[0].phase == "b" && events[0].begin == 1500000000 && events[0].id == "0x7");
    EXPECT_TRUE(events[1].phase == "e" && events[1].begin == 1750000000 && events[1].id == "0x7");
    EXPECT_EQ("i", events[2].phase);
}

TEST_F(TraceWriter, HoldsMoreThanItsBuffer)
{
    ASSERT_ZOFF_OK(zoff_trace_writer_open(&writer, path.c_str()));
    for (unsigned i = 0; i < 2000; i++)
        ASSERT_ZOFF_OK(add(std::string(i % 700, '"').c_str()));
    ASSERT_ZOFF_OK(zoff_trace_writer_close(&writer));
    EXPECT_EQ(2000u, read_trace(path).size());
}

TEST_F(TraceWriter, ContinuesItsOwnFile)
{
    ASSERT_ZOFF_OK(zoff_trace_writer_open(&writer, path.c_str()));
    ASSERT_ZOFF_OK(add("first"));
    ASSERT_ZOFF_OK(zoff_trace_writer_close(&writer));
    ASSERT_ZOFF_OK(zoff_trace_writer_open(&writer, path.c_str()));
    ASSERT_ZOFF_OK(add("second"));
    ASSERT_ZOFF_OK(zoff_trace_writer_close(&writer));
    EXPECT_EQ(2u, read_trace(path).size());
    ASSERT_EQ(0, truncate(path.c_str(), 3)); // another process has changed the file
    ASSERT_ZOFF_OK(zoff_trace_writer_open(&writer, path.c_str()));
    ASSERT_ZOFF_OK(add("third"));
    ASSERT_ZOFF_OK(zoff_trace_writer_close(&writer));
    EXPECT_EQ(1u, read_trace(path).size());
    ASSERT_ZOFF_OK(zoff_trace_writer_open(&writer, folder.file("t").c_str()));
    ASSERT_ZOFF_OK(zoff_trace_writer_close(&writer));
    EXPECT_TRUE(read_trace(folder.file("t")).empty()) << "another file begins anew";
}

TEST_F(TraceWriter, LeavesTheFileOfAnotherOneAlone)
{
    zoff_trace_writer other = {};
    ASSERT_ZOFF_OK(zoff_trace_writer_open(&writer, path.c_str()));
    ASSERT_ZOFF_OK(add("mine"));
    ASSERT_ZOFF_OK(zoff_trace_writer_open(&other, path.c_str()));
    EXPECT_EQ(path + "." + std::to_string(getpid()), other.path);
    ASSERT_ZOFF_OK(zoff_trace_writer_close(&other));
    ASSERT_ZOFF_OK(zoff_trace_writer_close(&writer));
    EXPECT_EQ(1u, read_trace(path).size());
    EXPECT_EQ(0u, read_trace(other.path).size());
}

TEST_F(TraceWriter, TellsWhyAFileCannotBeWritten)
{
    EXPECT_EQ(ZOFF_ERR_IO, zoff_trace_writer_open(&writer, folder.file("none/t").c_str()));
    EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("none/t")) << zoff_last_error();
    EXPECT_FALSE(writer.text || writer.guard);
    if (access("/dev/full", W_OK) != 0)
        GTEST_SKIP() << "no /dev/full";
    EXPECT_EQ(ZOFF_ERR_IO, zoff_trace_writer_open(&writer, "/dev/full"));
    EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("/dev/full")) << zoff_last_error();
}
