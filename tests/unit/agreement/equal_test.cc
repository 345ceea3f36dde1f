/* SPDX-License-Identifier: Apache-2.0 */
// equal_test.cc: lists are compared between ranks. If they differ, every rank names the items, their values and the ranks.
#include "small_agreement.h"

using namespace zoff_test;

namespace
{
struct item {
    std::string name, text; // name and text of an item; without a text it is its count
    uint64_t count = 0;
};

// A list of a test; it counts how often it was made.
struct items {
    std::vector<item> all;
    mutable std::vector<bool> made_as_text;

    static void list(const void *ctx, zoff_fields *out)
    {
        const auto self = (const items *)ctx;
        self->made_as_text.push_back(out->as_text);
        for (const item &i : self->all)
            zoff_agreement_equal_add(out, i.text.empty() ? nullptr : i.text.c_str(), i.count, "%s", i.name.c_str());
    }
};

zoff_status compare(small_agreement &self, const items &mine)
{
    return zoff_agreement_equal(&self.a, items::list, &mine, "the call", "Do better");
}

// Each rank's message; `make` gives the list of a rank.
std::string said(unsigned size, const std::function<std::vector<item>(unsigned rank)> &make)
{
    std::vector<std::string> words(size);
    on_ranks(size, [&](small_agreement &self, unsigned rank) {
        items mine;
        mine.all = make(rank);
        EXPECT_EQ(ZOFF_ERR_INVALID, compare(self, mine));
        words[rank] = zoff_last_error();
        EXPECT_EQ((std::vector<bool>{false, true}), mine.made_as_text);
        items same;
        EXPECT_ZOFF_OK(compare(self, same)) << "the next comparison is a new one";
    });
    for (unsigned rank = 1; rank < size; rank++) {
        EXPECT_EQ(words[0], words[rank]) << "rank " << rank;
    }
    return words[0];
}

TEST(Equal, AgreeingRanksFormatNoText)
{
    on_ranks(3, [](small_agreement &self, unsigned) {
        items mine;
        mine.all = {{"a", "x"}, {"b", "", 7}};
        EXPECT_ZOFF_OK(compare(self, mine));
        EXPECT_EQ((std::vector<bool>{false}), mine.made_as_text);
    });
}

TEST(Equal, ASingleRankMakesNoList)
{
    on_ranks(1, [](small_agreement &self, unsigned) {
        items mine;
        EXPECT_ZOFF_OK(compare(self, mine));
        EXPECT_TRUE(mine.made_as_text.empty());
    });
}

TEST(EqualDiffers, AreNamedWithTheirValuesAndRanks)
{
    EXPECT_EQ("the call: size is 7 on rank 0 and 8 on rank 1; colour is red on rank 0 and blue on rank 1. Do better",
              said(2, [](unsigned rank) {
                  return std::vector<item>{
                      {"same", "x"}, {"size", "", 7u + rank}, {"also", "", 1}, {"colour", rank ? "blue" : "red"}};
              }));
}

// Ranks 1 and 4 have another value than rank 0; rank 3 has a third one.
TEST(EqualDiffers, AreThoseOfRank0AndOfTheFirstOtherRank)
{
    EXPECT_EQ("the call: size is 0 on ranks 0 and 2 and 1 on ranks 1 and 4. Do better", said(5, [](unsigned rank) {
                  return std::vector<item>{{"size", "", rank == 3 ? 9u : rank == 1 || rank == 4}};
              }));
}

TEST(EqualDiffers, AreEightAtMost)
{
    for (const unsigned count : {8u, 9u, 12u}) {
        const std::string words = said(2, [count](unsigned rank) {
            std::vector<item> list;
            for (unsigned i = 0; i < count; i++)
                list.push_back({"item" + std::to_string(i), "", rank});
            return list;
        });
        EXPECT_NE(std::string::npos, words.find("item7 is")) << words;
        EXPECT_EQ(std::string::npos, words.find("item8 is")) << words;
        const std::string more = count == 8 ? "on rank 1. Do" : "; and " + std::to_string(count - 8) + " more. Do";
        EXPECT_NE(std::string::npos, words.find(more)) << words;
    }
}

TEST(EqualDiffers, AreCutWhereValuesAreLong)
{
    const std::string most(120, 'v');
    EXPECT_EQ("the call: n is " + most + " on rank 0 and w" + most.substr(1) + " on rank 1. Do better",
              said(2, [&](unsigned rank) {
                  return std::vector<item>{{"n", (rank ? "w" + most.substr(1) : most) + "beyond"}};
              }));
}

// The last item that is shown is cut; the number of those left out is reported anyway.
TEST(EqualDiffers, MayHaveLongNames)
{
    const std::string words = said(2, [](unsigned rank) {
        std::vector<item> list;
        for (int i = 0; i < 4; i++)
            list.push_back({"short" + std::to_string(i), std::string(120, (char)('a' + rank))});
        for (int i = 0; i < 5; i++)
            list.push_back({std::string(600, (char)('A' + i)), std::string(200, (char)('a' + rank))});
        return list;
    });
    EXPECT_EQ(0u, words.find("the call: short0 is aaa")) << words;
    EXPECT_NE(std::string::npos, words.find("; short3 is aaa")) << words;
    EXPECT_NE(std::string::npos, words.find("; " + std::string(400, 'A'))) << words;
    EXPECT_NE(std::string::npos, words.find("; and 4 more. Do better")) << words;
}

TEST(EqualOtherNames, AreNamed)
{
    EXPECT_EQ("the call: the list of rank 0 has \"a\" where that of ranks 1 and 2 has \"b\": all ranks need the same version "
              "of zoff. Do better",
              said(3, [](unsigned rank) {
                  return std::vector<item>{{"same", "x"}, {rank ? "b" : "a", "", rank > 0}};
              }));
    EXPECT_EQ("the call: the list of rank 0 has \"more\" where that of rank 1 has \"nothing\": all ranks need the same version "
              "of zoff. Do better",
              said(2, [](unsigned rank) {
                  std::vector<item> list{{"same", "x"}, {"more", "y"}};
                  list.resize(2 - rank);
                  return list;
              }));
}

TEST(EqualDiffers, NameEightRanksAtMost)
{
    const std::vector<std::set<unsigned>> cases = {{3}, {0, 3}, {0, 1, 2, 4}, {0, 1, 2, 3, 4, 5, 6, 7, 8}};
    const std::vector<std::string> words = {
        "0 on ranks 0, 1 and 2 and 1 on rank 3. ", "1 on ranks 0 and 3 and 0 on ranks 1 and 2. ",
        "1 on ranks 0, 1, 2 and 4 and 0 on ranks 3 and 5. ", "1 on ranks 0, 1, 2, 3, 4, 5, 6, 7 and 1 more and 0 on rank 9. "};
    const std::vector<unsigned> sizes = {4, 4, 6, 10};
    for (size_t i = 0; i < cases.size(); i++) {
        const std::string told = said(sizes[i], [&](unsigned rank) {
            return std::vector<item>{{"size", "", cases[i].count(rank)}};
        });
        EXPECT_NE(std::string::npos, told.find(words[i])) << told;
    }
}
} // namespace
