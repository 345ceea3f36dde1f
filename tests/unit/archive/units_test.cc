// units_test.cc: units are found, read and compared, and a damaged one is named with its parameters.
#include "ranks.h"

using namespace zoff_test;

namespace
{
using archive_handle = handle<zoff_archive, zoff_archive_close>;
}

TEST(units, lie_where_their_region_says)
{
    scratch_folder scratch;
    sample written;
    zoff_archive *opened = nullptr;
    ASSERT_ZOFF_OK(written.write(scratch.path));
    ASSERT_ZOFF_OK(zoff_archive_open(scratch.file("step-0000000012").c_str(), "", &opened));
    archive_handle a(opened);
    const zoff_archive_region *r = a->tables[0].regions;
    EXPECT_EQ(r[1].offset, zoff_archive_units_offset(a.get(), {0, 1, 0}));
    EXPECT_EQ(r[1].bytes, zoff_archive_units_bytes(a.get(), {0, 1, 0}));
    EXPECT_EQ(0u, zoff_archive_units_of(a.get(), 0, 1, ZOFF_ARCHIVE_UNIT - 1).unit);
    EXPECT_EQ(1u, zoff_archive_units_of(a.get(), 0, 1, ZOFF_ARCHIVE_UNIT).unit);
    EXPECT_EQ(r[0].bytes, zoff_archive_units_largest(a.get())); // less than a whole unit
    for (uint64_t unit : {0u, 1u}) {                            // the second one is behind the end of the region
        zoff_archive_units_expect(a.get(), {0, 1, unit});
        EXPECT_EQ(r[1].offset, zoff_archive_units_offset(a.get(), {0, 1, 0}));
    }
}

TEST(units, are_named_when_they_are_damaged)
{
    scratch_folder scratch;
    sample written;
    zoff_archive *opened = nullptr;
    ASSERT_ZOFF_OK(written.write(scratch.path));
    const std::string folder = scratch.file("step-0000000012"), path = part_in(folder), text = read_file(path);
    ASSERT_ZOFF_OK(zoff_archive_open(folder.c_str(), "", &opened));
    archive_handle a(opened);
    std::vector<char> bytes(zoff_archive_units_largest(a.get()));
    const struct {
        uint32_t region;
        const char *words;
    } cases[] = {{0, "which hold master of 'a%\xff b', master of 'a%\xff b', master of 'a%\xff b' and 3 more"},
                 {3, "which hold weights of 'frozen'"},
                 {4, "which hold the program's data 'rng'"}};
    ASSERT_EQ(5u, a->tables[0].region_count);
    for (const auto &one : cases) {
        ASSERT_ZOFF_OK(zoff_archive_units_read(a.get(), {0, one.region, 0}, bytes.data(), 1));
        std::string other = text;
        const zoff_archive_region &r = a->tables[0].regions[one.region];
        other[r.offset + r.bytes - 1] = (char)(other[r.offset + r.bytes - 1] ^ 1); // behind the last element
        write_file(path, other);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, one.words, zoff_archive_units_read(a.get(), {0, one.region, 0}, bytes.data(), 1));
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "'" + path + "' is damaged in the bytes from " + std::to_string(r.offset) + " to",
                          zoff_archive_units_check(a.get(), {0, one.region, 0}, bytes.data(), 1));
    }
    write_file(path, text.substr(0, 4096));
    EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "ends at byte 4096, too early",
                      zoff_archive_units_read(a.get(), {0, 0, 0}, bytes.data(), 1));
}
