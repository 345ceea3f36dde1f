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
} // namespace
