// part_test.cc: the file of one rank: regions, program data, space, and what stays after an error.
#include "sample.h"

#include "aio_fault.h"

#include <errno.h>
#include <sys/stat.h>

using namespace zoff_test;

namespace
{
const char *const ID = "0123456789abcdef";

struct part {
    explicit part(const std::string &folder) { EXPECT_ZOFF_OK(zoff_archive_part_open(folder.c_str(), "", ID, 3, &p)); }
    ~part() { zoff_archive_part_close(&p); }
    zoff_archive_part p = {};
};
} // namespace

TEST(part, has_regions_data_and_a_table)
{
    scratch_folder scratch;
    zoff_archive_file f = {};
    uint32_t region = 9;
    {
        part one(scratch.path);
        ASSERT_ZOFF_OK(zoff_archive_part_region(&one.p, 8192, 4096, &region));
        EXPECT_EQ(0u, region);
        ASSERT_ZOFF_OK(zoff_archive_part_reserve(&one.p));
        struct stat about;
        ASSERT_EQ(0, stat(one.p.path, &about));
        EXPECT_GE((size_t)about.st_blocks * 512, 12288u);
        ASSERT_ZOFF_OK(zoff_archive_part_item(&one.p, "rng", true, "hello", 5));
        ASSERT_ZOFF_OK(zoff_archive_part_item(&one.p, "none", false, nullptr, 0));
        EXPECT_EQ(1u, one.p.table.items[0].region);
        ASSERT_ZOFF_OK(zoff_archive_part_finish(&one.p, &f));
        const zoff_archive_file first = f;
        ASSERT_ZOFF_OK(zoff_archive_part_finish(&one.p, &f)); // again, as after an error behind it
        EXPECT_EQ(0, memcmp(&first, &f, sizeof f));
        one.p.keeps = true;
    }
    const std::string path = scratch.file("0123456789abcdef.rank-00003.states"), text = read_file(path);
    ASSERT_EQ(f.bytes, text.size());
    EXPECT_EQ(4096u + 8192 + 4096, f.table_offset);
    EXPECT_EQ("hello", text.substr(12288, 5));
    EXPECT_EQ(f.table_checksum, zoff_digest_blocks_small(&text[f.table_offset], f.table_bytes));
    EXPECT_ZOFF_OK(zoff_archive_part_check_head(path.c_str(), text.data(), ID, 3, f.table_offset, f.head_checksum));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "another checkpoint or rank",
                      zoff_archive_part_check_head(path.c_str(), text.data(), ID, 2, f.table_offset, f.head_checksum));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, path.c_str(),
                      zoff_archive_part_check_head(path.c_str(), text.data(), ID, 3, f.table_offset, f.head_checksum ^ 1));
}

TEST(part, is_removed_unless_it_is_kept)
{
    scratch_folder scratch;
    {
        part one(scratch.path);
        zoff_archive_part again = {};
        EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot create", zoff_archive_part_open(scratch.path.c_str(), "", ID, 3, &again));
    }
    EXPECT_TRUE(names_in(scratch.path).empty());
}

TEST(part, divides_long_data_into_units)
{
    scratch_folder scratch;
    part one(scratch.path);
    const std::string data(2 * (size_t)ZOFF_ARCHIVE_UNIT + 1, 'd');
    ASSERT_ZOFF_OK(zoff_archive_part_item(&one.p, "data", false, data.data(), data.size()));
    EXPECT_EQ(3u, one.p.table.checksum_count);
    EXPECT_EQ(zoff_digest_blocks_whole(data.data(), ZOFF_ARCHIVE_UNIT, 1), one.p.table.checksums[1]);
}

TEST(part, refuses_names_of_data)
{
    scratch_folder scratch;
    part one(scratch.path);
    ASSERT_ZOFF_OK(zoff_archive_part_item(&one.p, std::string(255, 'n').c_str(), false, "x", 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "already",
                      zoff_archive_part_item(&one.p, std::string(255, 'n').c_str(), false, "x", 1));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_INVALID, "256 bytes",
                      zoff_archive_part_item(&one.p, std::string(256, 'n').c_str(), false, "x", 1));
}

TEST(part, says_what_it_needs_where_the_disk_is_full)
{
    scratch_folder scratch;
    aio_fault fault;
    uint32_t region = 0;
    part one(scratch.path);
    ASSERT_ZOFF_OK(zoff_archive_part_region(&one.p, 1 << 20, 0, &region));
    fault.refuse_fallocate = ENOSPC;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "the checkpoint needs 1.0 MiB", zoff_archive_part_reserve(&one.p));
    fault.refuse_fallocate = EIO;
    EXPECT_ZOFF_FAILS(ZOFF_ERR_IO, "cannot reserve", zoff_archive_part_reserve(&one.p));
    fault.refuse_fallocate = EOPNOTSUPP; // then free space is compared
    EXPECT_ZOFF_OK(zoff_archive_part_reserve(&one.p));
    ASSERT_ZOFF_OK(zoff_archive_part_region(&one.p, 1ull << 60, 0, &region));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_NO_SPACE, "are free", zoff_archive_part_reserve(&one.p));
}
