/* SPDX-License-Identifier: Apache-2.0 */
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
        // the line ends, for `head -1`
        EXPECT_EQ(given + "\n", read_file(scratch.file("latest")).substr(0, given.size() + 1));
    }
}
