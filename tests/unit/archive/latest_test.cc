// latest_test.cc: the file `latest` names a checkpoint, and any change of it is found.
#include "sample.h"

extern "C" {
#include "archive_priv.h"
}

using namespace zoff_test;

TEST(latest, is_read_back)
{
    scratch_folder scratch;
    char name[ZOFF_ARCHIVE_NAME_MOST + 1];
    EXPECT_ZOFF_FAILS(ZOFF_ERR_STATE, "cannot open", zoff_archive_latest_read(scratch.path.c_str(), name));
    for (const std::string &given : {std::string("step-0000000012"), std::string(255, 'n'), std::string("a")}) {
        ASSERT_ZOFF_OK(point_latest(scratch.path, given.c_str(), "tp0"));
        ASSERT_ZOFF_OK(zoff_archive_latest_read(scratch.path.c_str(), name));
        EXPECT_EQ(given, name);
        EXPECT_EQ(given + "\n", read_file(scratch.file("latest")).substr(0, given.size() + 1)); // for `head -1`
    }
}

TEST(latest, with_any_bit_flipped_is_refused)
{
    scratch_folder scratch;
    char name[ZOFF_ARCHIVE_NAME_MOST + 1];
    ASSERT_ZOFF_OK(point_latest(scratch.path, "step-0000000012", ""));
    const std::string text = read_file(scratch.file("latest"));
    for (size_t bit = 0; bit < text.size() * 8; bit++) {
        std::string other = text;
        other[bit / 8] = (char)(other[bit / 8] ^ 1 << bit % 8);
        write_file(scratch.file("latest"), other);
        ASSERT_EQ(ZOFF_ERR_CORRUPT, zoff_archive_latest_read(scratch.path.c_str(), name)) << "bit " << bit;
    }
    for (const std::string &other : {std::string(), std::string("step-0000000012\n"), text + "\n", text.substr(0, 20),
                                     std::string("../x\n") + hex_of(zoff_digest_blocks_small("../x", 4)) + "\n"}) {
        write_file(scratch.file("latest"), other);
        EXPECT_ZOFF_FAILS(ZOFF_ERR_CORRUPT, "latest", zoff_archive_latest_read(scratch.path.c_str(), name));
    }
}
