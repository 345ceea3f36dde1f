// spec_test.cc: the value of ZOFF_TRACE, and the names of the files of ranks.
#include "zoff_test.h"

extern "C" {
#include "trace_priv.h"
}

using namespace zoff_test;

namespace
{
std::string name_of(const std::string &path, unsigned rank)
{
    char name[4096];
    return zoff_trace_spec_name(path.c_str(), rank, name, sizeof name) ? name : "too long";
}
} // namespace

TEST(TraceSpec, AFileWithoutARangeSelectsAllSteps)
{
    for (const char *value : {"t.json", "folder:1/t.json", "/a/b", "12-13"}) {
        zoff_trace_spec spec;
        ASSERT_ZOFF_OK(zoff_trace_spec_read(value, &spec));
        EXPECT_STREQ(value, spec.path);
        EXPECT_FALSE(spec.has_range);
        EXPECT_TRUE(spec.first < 1 && spec.last == INT64_MAX);
    }
}

TEST(TraceSpec, ARangeFollowsTheLastColon)
{
    zoff_trace_spec spec;
    ASSERT_ZOFF_OK(zoff_trace_spec_read("a/t:x.json:10-12", &spec));
    EXPECT_STREQ("a/t:x.json", spec.path);
    EXPECT_TRUE(spec.has_range && spec.first == 10 && spec.last == 12);
    ASSERT_ZOFF_OK(zoff_trace_spec_read("t:7-7", &spec));
    EXPECT_TRUE(spec.first == 7 && spec.last == 7);
}

TEST(TraceSpec, AnythingElseIsRefusedWithTheForm)
{
    for (const char *value : {"t:", "t:1", "t:1-", "t:-2", "t:12-10", "t:0-3", "t:1-2x", "t: 1-2", "t:1-99999999999999999999",
                              "t:a", ":1-2", "folder/", "folder/:1-2"}) {
        zoff_trace_spec spec;
        EXPECT_EQ(ZOFF_ERR_INVALID, zoff_trace_spec_read(value, &spec)) << value;
        EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find("FILE:FIRST-LAST")) << zoff_last_error();
        EXPECT_NE(std::string::npos, std::string(zoff_last_error()).find(std::string("\"") + value + "\""))
            << zoff_last_error();
    }
    zoff_trace_spec spec;
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_trace_spec_read(std::string(5000, 'x').c_str(), &spec));
}

TEST(TraceSpec, ARankIsPutBeforeTheEnding)
{
    EXPECT_EQ("a.b/t.rank3.json", name_of("a.b/t.json", 3));
    EXPECT_EQ("a.b/t.rank0", name_of("a.b/t", 0));
    EXPECT_EQ(".t.rank12", name_of(".t", 12));
    EXPECT_EQ("too long", name_of(std::string(4090, 'x'), 3));
}
