/* SPDX-License-Identifier: Apache-2.0 */
// table_test.cc: the table at the end of a file is read back, and one that contradicts itself is refused.
#include "sample.h"

using namespace zoff_test;

namespace
{
class table : public testing::Test
{
  protected:
    void SetUp() override
    {
        zoff_archive_region first = {4096, 8192, 4096, 0}, second = {12288, 4096, 1 << 22, 0};
        ASSERT_ZOFF_OK(zoff_archive_table_add_region(&t, &first));
        ASSERT_ZOFF_OK(zoff_archive_table_add_region(&t, &second));
        for (uint64_t i = 0; i < t.checksum_count; i++)
            t.checksums[i] = 100 + i;
        zoff_archive_piece piece = {};
        piece.param = 3;
        piece.kind = 1;
        piece.format = ZOFF_ARCHIVE_F32;
        piece.block = 1;
        piece.count = 1024;
        piece.at = 4096;
        ASSERT_ZOFF_OK(zoff_archive_table_add_piece(&t, &piece));
        zoff_archive_item item = {};
        strcpy(item.name, "rng");
        item.count = 5;
        item.region = 1;
        ASSERT_ZOFF_OK(zoff_archive_table_add_item(&t, &item));
    }
    void TearDown() override { zoff_archive_table_free(&t); }

    std::string text(size_t left_out = 0)
    {
        std::string bytes(zoff_archive_table_bytes(&t), 0);
        zoff_archive_table_write(&t, &bytes[0]);
        return bytes.substr(0, bytes.size() - left_out);
    }
    zoff_status read(const std::string &bytes)
    {
        zoff_archive_table out = {};
        const zoff_status status = zoff_archive_table_read("F", bytes.data(), bytes.size(), END, &out);
        zoff_archive_table_free(&out);
        return status;
    }
    void refuses(zoff_status status, const char *words)
    {
        EXPECT_ZOFF_FAILS(status, words, read(text()));
        EXPECT_EQ(0u, std::string(zoff_last_error()).find("the table of 'F' cannot be used: "));
    }
    enum { END = 16384 };
    zoff_archive_table t = {};
};
} // namespace

TEST_F(table, is_read_back)
{
    const std::string bytes = text();
    zoff_archive_table out = {};
    EXPECT_EQ(48u + 2 * 32 + 3 * 8 + 48 + 272, bytes.size());
    ASSERT_ZOFF_OK(zoff_archive_table_read("F", bytes.data(), bytes.size(), END, &out));
    EXPECT_EQ(2u, out.region_count);
    EXPECT_EQ(2u, zoff_archive_table_units(&out.regions[0]));
    EXPECT_EQ(1u, zoff_archive_table_units(&out.regions[1]));
    EXPECT_EQ(4096u, zoff_archive_table_unit_bytes(&out.regions[1], 0)); // less than a whole unit
    EXPECT_EQ(102u, out.checksums[2]);
    EXPECT_EQ(0, memcmp(t.pieces, out.pieces, sizeof *t.pieces));
    EXPECT_EQ(0, memcmp(t.items, out.items, sizeof *t.items));
    zoff_archive_table_free(&out);
}

TEST_F(table, has_the_length_it_says)
{
    for (size_t bytes : {1u, 8u, 272u, 300u, 440u, 456u})
        EXPECT_EQ(ZOFF_ERR_CORRUPT, read(text(bytes))) << bytes;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "longer than it says", read(text() + "x"));
    std::string huge = text();
    for (size_t at : {16u, 24u, 32u, 40u}) { // the four counts
        std::string bytes = huge;
        memset(&bytes[at], 0xff, 8);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "shorter than it says", read(bytes));
    }
}

TEST_F(table, refuses_versions_and_properties_it_does_not_know)
{
    std::string bytes = text();
    bytes[8] = 2;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "version 2", read(bytes));
    bytes = text();
    bytes[12] = 1;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_UNSUPPORTED, "property", read(bytes));
    bytes = text();
    bytes[0] = 'Z';
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "does not begin as a table", read(bytes));
    t.pieces[0].format = 5;
    refuses(ZOFF_ERR_UNSUPPORTED, "piece 0 has moments in 8 bits in the former format 5");
    t.pieces[0].format = 9;
    refuses(ZOFF_ERR_UNSUPPORTED, "piece 0 has its elements in format 9 with blocks of 1");
    t.pieces[0].format = 0;
    refuses(ZOFF_ERR_UNSUPPORTED, "format 0");
    t.pieces[0].format = ZOFF_ARCHIVE_F32;
    t.pieces[0].block = 256;
    refuses(ZOFF_ERR_UNSUPPORTED, "blocks of 256");
    t.pieces[0].block = 1;
    t.pieces[0].reserved = 1;
    refuses(ZOFF_ERR_UNSUPPORTED, "piece 0 has a property");
    t.pieces[0].reserved = 0;
    t.items[0].each_rank = 2;
    refuses(ZOFF_ERR_UNSUPPORTED, "program data 0 has a property");
}

TEST_F(table, refuses_regions_that_leave_gaps_or_overlap)
{
    const zoff_archive_region good = t.regions[1];
    const zoff_archive_region bad[] = {
        {12288 + 4096, 4096, 4096, 2}, {12288 - 4096, 8192, 8192, 2}, {12288, 8192, 8192, 2}, {12288, 0, 4096, 2},
        {12288, 4095, 4096, 2},        {12288, 1ull << 63, 4096, 2},  {12288, 4096, 4096, 1}, {12288, 4096, 4096, 3}};
    for (const auto &region : bad) {
        t.regions[1] = region;
        refuses(ZOFF_ERR_CORRUPT, "region 1 does not lie behind");
    }
    for (uint64_t unit : {0ull, 1ull, 6ull, 2048ull, 4097ull}) {
        t.regions[1] = good;
        t.regions[1].unit = unit;
        refuses(ZOFF_ERR_CORRUPT, "region 1 has units of");
    }
    t.regions[1] = good;
    EXPECT_ZOFF_OK(read(text()));
    t.region_count = 1;
    refuses(ZOFF_ERR_CORRUPT, "do not fill the file");
}

TEST_F(table, refuses_pieces_outside_of_their_region)
{
    const zoff_archive_piece good = t.pieces[0];
    for (int i = 0; i < 8; i++) {
        zoff_archive_piece &p = t.pieces[0] = good;
        if (i == 0)
            p.region = 2;
        else if (i == 1)
            p.kind = 5;
        else if (i == 2)
            p.count = 0;
        else if (i == 3)
            p.first = 1;
        else if (i == 4)
            p.at = 4096 + 32;
        else if (i == 5)
            p.at = 8192 + 64;
        else if (i == 6)
            p.count = 1025;
        else
            p.count = 1ull << 62;
        refuses(ZOFF_ERR_CORRUPT, "piece 0");
    }
}

TEST_F(table, refuses_program_data_outside_of_its_region)
{
    const zoff_archive_item good = t.items[0];
    t.items[0].count = 4097;
    refuses(ZOFF_ERR_CORRUPT, "program data 0");
    t.items[0] = good;
    t.items[0].region = 2;
    refuses(ZOFF_ERR_CORRUPT, "program data 0");
    t.items[0] = good;
    memset(t.items[0].name, 'x', sizeof t.items[0].name);
    refuses(ZOFF_ERR_CORRUPT, "program data 0");
}
