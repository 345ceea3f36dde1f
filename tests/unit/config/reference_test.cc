// reference_test.cc: the schema as Markdown, whole or cut, is the page of the documentation.
#include "config_helpers.h"
#include "schema_rows.h"

using namespace config_test;

namespace
{
TEST(config_reference, the_reference_is_the_document)
{
    size_t bytes = 0, again = 0;
    ASSERT_ZOFF_OK(zoff_config_reference(nullptr, 0, &bytes));
    std::string text(bytes + 1, '?');
    ASSERT_ZOFF_OK(zoff_config_reference(text.data(), text.size(), &again));
    ASSERT_EQ(bytes, again);
    text.resize(bytes);
    EXPECT_EQ(file_text(ZOFF_CONFIG_DOC), text) << "docs/CONFIG.md is stale: write it anew with `zoff reference`";
    for (const auto *row : rows())
        EXPECT_TRUE(row->type == ZOFF_KEY_SECTION || text.find("`" + std::string(row->path) + "`") != std::string::npos)
            << row->path;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_reference(nullptr, 1, &bytes));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "NULL", zoff_config_reference(nullptr, 0, nullptr));
}

// Like zoff_config_dump(): the result is the whole length, for a buffer of any size.
TEST(config_reference, a_short_buffer_gets_the_beginning)
{
    size_t bytes = 0;
    ASSERT_ZOFF_OK(zoff_config_reference(nullptr, 0, &bytes));
    const std::string whole = file_text(ZOFF_CONFIG_DOC);
    for (const size_t room : {size_t{1}, size_t{2}, size_t{1000}, bytes}) {
        std::string text(room + 1, '?');
        size_t again = 0;
        ASSERT_ZOFF_OK(zoff_config_reference(text.data(), room, &again));
        EXPECT_EQ(bytes, again);
        EXPECT_EQ(whole.substr(0, room - 1) + '\0' + '?', text);
    }
}
} // namespace
