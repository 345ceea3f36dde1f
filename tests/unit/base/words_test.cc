/* SPDX-License-Identifier: Apache-2.0 */
// words_test.cc: sizes in readable units.
#include "zoff_test.h"

extern "C" {
#include "words.h"
}

namespace
{
TEST(Words, BytesHaveAUnitAndOneDecimal)
{
    EXPECT_STREQ("0 bytes", zoff_base_words_bytes(0));
    EXPECT_STREQ("1023 bytes", zoff_base_words_bytes(1023));
    EXPECT_STREQ("1.0 KiB", zoff_base_words_bytes(1024));
    EXPECT_STREQ("1.5 MiB", zoff_base_words_bytes(3 << 19));
    EXPECT_STREQ("2.0 GiB", zoff_base_words_bytes(2ull << 30));
    EXPECT_STREQ("16777216.0 TiB", zoff_base_words_bytes(UINT64_MAX)); // there is no larger unit
}

// One message may contain eight of them.
TEST(Words, EightTextsStandBesideEachOther)
{
    const char *texts[8];
    for (uint64_t i = 0; i < 8; i++)
        texts[i] = zoff_base_words_bytes(i);
    for (int i = 0; i < 8; i++)
        EXPECT_EQ(std::to_string(i) + " bytes", texts[i]);
}
TEST(Words, AStarStandsForAnyCharacters)
{
    const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {{"", "", true},
                 {"", "a", false},
                 {"*", "", true},
                 {"*", "a.b", true},
                 {"a", "a", true},
                 {"a", "ab", false},
                 {"a*", "ab", true},
                 {"*.bias", "h.0.bias", true},
                 {"*.bias", "bias", false},
                 {"h.*.w", "h.12.w", true},
                 {"h.*.w", "h.12.w2", false},
                 {"*a*b", "xaybzb", true},
                 {"**", "x", true},
                 {"a?", "ab", false}};
    for (const auto &c : cases)
        EXPECT_EQ(c.matches, zoff_base_words_match(c.pattern, strlen(c.pattern), c.name)) << c.pattern << " and " << c.name;
}
} // namespace
