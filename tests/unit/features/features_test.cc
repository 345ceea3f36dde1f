/* SPDX-License-Identifier: Apache-2.0 */
// features_test.cc: zoff_feature() and zoff_features(): each name, "yes" or "no", and the reason.
#include "zoff_test.h"

#include <sstream>
#include <string.h>
#include <sys/resource.h>

using namespace zoff_test;

namespace
{
std::string all()
{
    size_t bytes = 0;
    EXPECT_ZOFF_OK(zoff_features(nullptr, 0, &bytes));
    std::string text(bytes + 1, '?');
    size_t again = 0;
    EXPECT_ZOFF_OK(zoff_features(text.data(), text.size(), &again));
    EXPECT_EQ(bytes, again);
    EXPECT_EQ('\0', text[bytes]);
    text.resize(bytes);
    return text;
}

// name -> whether it is available, and the text behind that
struct line {
    std::string name, has, words;
};

std::vector<line> lines()
{
    std::vector<line> found;
    std::istringstream text(all());
    for (std::string row; std::getline(text, row);) {
        line l;
        std::istringstream words(row);
        words >> l.name >> l.has >> std::ws;
        std::getline(words, l.words);
        found.push_back(l);
    }
    return found;
}
} // namespace

TEST(Features, EachHasAWordAndAReasonAndIsFoundByItsName)
{
    unsigned kernels = 0;
    for (const line &l : lines()) {
        EXPECT_TRUE(l.has == "yes" || l.has == "no") << l.name;
        EXPECT_LT(3u, l.words.size()) << l.name;
        EXPECT_EQ(l.has == "yes" ? ZOFF_OK : ZOFF_ERR_UNSUPPORTED, zoff_feature(l.name.c_str())) << l.name;
        if (l.has == "no") {
            EXPECT_EQ(l.words, zoff_last_error()) << l.name;
        }
        if (l.words == "the kernels in use") {
            kernels++;
            EXPECT_EQ(l.name, zoff_isa());
        }
    }
    EXPECT_EQ(strcmp(zoff_isa(), "scalar") == 0 ? 0u : 1u, kernels);
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "there is no feature \"fast\"; the features are threads, avx2, ", zoff_feature("fast"));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_feature(nullptr));
}

TEST(Features, TheListKeepsTheLastErrorAndFitsIntoAnyBuffer)
{
    EXPECT_EQ(ZOFF_ERR_INVALID, zoff_feature("fast"));
    const std::string before = zoff_last_error(), whole = all();
    EXPECT_EQ(before, zoff_last_error());
    for (size_t room : {size_t{1}, size_t{17}, whole.size()}) {
        std::string part(room + 1, '?');
        size_t bytes = 0;
        ASSERT_ZOFF_OK(zoff_features(part.data(), room, &bytes));
        EXPECT_EQ(whole.size(), bytes);
        EXPECT_EQ(whole.substr(0, room - 1), std::string(part.data()));
        EXPECT_EQ('?', part[room]);
    }
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "dst is NULL", zoff_features(nullptr, 8, nullptr));
}

TEST(Features, APlugInIsAskedForItsDevice)
{
    log_catcher log;
    log.expect("the plug-in was loaded");
    setenv("ZOFF_PLUGIN_PATH", PLUGIN_FOLDER, 1);
    EXPECT_ZOFF_OK(zoff_feature("cuda"));
    EXPECT_NE(std::string::npos, all().find("cuda           yes  a device of tests\n"));
    unsetenv("ZOFF_PLUGIN_PATH");
}

TEST(Features, WithoutLockedMemoryTheLimitIsNamed)
{
    struct rlimit was;
    ASSERT_EQ(0, getrlimit(RLIMIT_MEMLOCK, &was));
    const struct rlimit none = {0, was.rlim_max}, some = {65536, was.rlim_max};
    ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &none));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "\"ulimit -l\" is 0", zoff_feature("locked_memory"));
    ASSERT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &some));
    EXPECT_NE(std::string::npos, all().find("locked_memory  yes  up to 64 KiB"));
    EXPECT_EQ(0, setrlimit(RLIMIT_MEMLOCK, &was));
}
