/* SPDX-License-Identifier: Apache-2.0 */
// covering_test.cc: covering arrays. Every pair of a matrix must be in a cell that runs, and few cells must suffice.
#include "covering.h"

#include <array>

using namespace zoff_test;

namespace
{
struct cell {
    int a, b, c, d;
};
std::string name(const cell &c)
{
    return std::to_string(c.a) + std::to_string(c.b) + std::to_string(c.c) + std::to_string(c.d);
}
covering<cell>::values factors(const cell &c)
{
    return {{"a", std::to_string(c.a)}, {"b", std::to_string(c.b)}, {"c", std::to_string(c.c)}, {"d", std::to_string(c.d)}};
}

// Sets Google Test's filter and the environment for a test, and restores them.
class Covering : public testing::Test
{
  protected:
    Covering() : filter(testing::GTEST_FLAG(filter)) { testing::GTEST_FLAG(filter) = "*"; }
    ~Covering() override
    {
        testing::GTEST_FLAG(filter) = filter;
        restore("ZOFF_TEST_FULL", full);
        restore("ZOFF_TEST_CELLS", cells);
    }
    void set(const char *full_run, const char *most)
    {
        restore("ZOFF_TEST_FULL", full_run);
        restore("ZOFF_TEST_CELLS", most);
    }

    // Four factors with three values each; c is never 2 if a is 0. One corner beside the matrix.
    static covering<cell> array()
    {
        return covering<cell>("Matrix/Of.It/", name, factors, [](covering<cell> &all) {
            for (int i = 0; i < 81; i++) {
                if (i % 3 || i / 9 % 3 != 2)
                    all.add({i % 3, i / 3 % 3, i / 9 % 3, i / 27});
            }
            all.corner({7, 7, 7, 7});
        });
    }

  private:
    static void restore(const char *variable, const char *value)
    {
        if (value)
            setenv(variable, value, 1);
        else
            unsetenv(variable);
    }
    const std::string filter;
    const char *const full = getenv("ZOFF_TEST_FULL"), *const cells = getenv("ZOFF_TEST_CELLS");
};

TEST_F(Covering, FewCellsHaveAllPairsOrValues)
{
    set(nullptr, nullptr);
    const auto some = array().cells();
    EXPECT_GE(STRENGTH == 1 ? 5u : 16u, some.size()) << "at least three or nine cells, and the corner";
    EXPECT_EQ("7777", name(STRENGTH == 1 ? some.back() : some[0])) << "a corner is the first, unless only its values count";
    for (int x = 0; x < 3; x++) {
        for (int f = 0; f < 4; f++) {
            const auto has = [&](const cell &one) { return std::array<int, 4>{one.a, one.b, one.c, one.d}[(size_t)f] == x; };
            EXPECT_TRUE(std::any_of(some.begin(), some.end(), has)) << f << " " << x;
        }
    }
    for (int f = 0; f < 4; f++) {
        for (int g = f + 1; g < 4; g++) {
            for (int x = 0; x < 9; x++) {
                const bool is_possible = !(f == 0 && g == 2 && x % 3 == 0 && x / 3 == 2);
                int found = 0;
                for (const cell &one : some) {
                    const int of[] = {one.a, one.b, one.c, one.d};
                    found += of[f] == x % 3 && of[g] == x / 3;
                }
                EXPECT_TRUE(STRENGTH == 1 || is_possible == (found > 0)) << f << " " << g << " " << x;
            }
        }
    }
    array().expect_all_pairs();
}

TEST_F(Covering, TheWholeMatrixRunsInFull)
{
    set("1", "5");
    EXPECT_EQ(73u, array().cells().size());
    EXPECT_EQ(100u, share_of(100));
    set("0", nullptr);
    EXPECT_GT(20u, array().cells().size());
    EXPECT_EQ(100u / SHARE, share_of(100));
    EXPECT_EQ(1u, share_of(3));
}

TEST_F(Covering, AReducedRunTakesTheMostPairs)
{
    set(nullptr, "5");
    EXPECT_EQ(STRENGTH == 1 ? 4u : 5u, array().cells().size()) << "four cells have all values";
}

TEST_F(Covering, AnyCellRunsByItsName)
{
    set(nullptr, nullptr);
    testing::GTEST_FLAG(filter) = "*Of.It/2121";
    ASSERT_EQ(1u, array().cells().size());
    EXPECT_EQ("2121", name(array().cells()[0]));
    testing::GTEST_FLAG(filter) = "Matrix/*/0*:*/1*-*1";
    for (const cell &one : array().cells())
        EXPECT_TRUE(one.a < 2 && one.d != 1) << name(one);
}

TEST_F(Covering, FiltersAreGoogleTests)
{
    EXPECT_TRUE(matches_filter("*", "Suite.Test/x"));
    EXPECT_TRUE(matches_filter("A.*:S*.T?st/*", "Suite.Test/x"));
    EXPECT_FALSE(matches_filter("S*.T?t/*", "Suite.Test/x"));
    EXPECT_FALSE(matches_filter("*-*/x:*y", "Suite.Test/x"));
    EXPECT_TRUE(matches_filter("-*/y", "Suite.Test/x"));
}
} // namespace
