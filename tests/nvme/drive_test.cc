/* SPDX-License-Identifier: Apache-2.0 */
// drive_test.cc: run by run_nvme.py in its guest, where ZOFF_TEST_DIR is an ext4 on an NVMe drive. O_DIRECT must reach the
// drive, and finished writes must be on the drive.
#include "aio_place.h"

#include <sys/sysmacros.h>
#include <sys/vfs.h>

using namespace zoff_test;

namespace
{
// Field `field` of the drive's counters: 3 is sectors read, 7 is sectors written.
uint64_t sectors(dev_t device, int field)
{
    const std::string name = "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device)) + "/stat";
    FILE *file = fopen(name.c_str(), "r");
    unsigned long value = 0;
    for (int i = 1; i <= field; i++)
        EXPECT_TRUE(file && fscanf(file, "%lu", &value) == 1) << name;
    if (file)
        fclose(file);
    return value;
}

class Drive : public testing::TestWithParam<const char *>
{
  protected:
    void SetUp() override
    {
        struct stat st;
        struct statfs fs;
        ASSERT_EQ(0, stat(folder.path.c_str(), &st));
        ASSERT_EQ(0, statfs(folder.path.c_str(), &fs));
        ASSERT_EQ(0xEF53, fs.f_type) << folder.path << " is not on an ext4";
        device = st.st_dev;
        char target[4096] = "";
        const std::string link = "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
        ASSERT_GT(readlink(link.c_str(), target, sizeof target - 1), 0);
        ASSERT_NE(nullptr, strstr(target, "/nvme/")) << folder.path << " is on " << target;
    }
    scratch_folder folder;
    dev_t device = 0;
};
INSTANTIATE_TEST_SUITE_P(BackEnds, Drive, testing::Values("io_uring", "threads", "posix", "auto"),
                         [](const auto &p) { return std::string(p.param); });

TEST_P(Drive, ODirectReachesIt)
{
    log_catcher log;
    const size_t bytes = 8 << 20;
    aio_buffer out(bytes, 3), in(bytes);
    for (zoff_aio_direct direct : {ZOFF_DIRECT_REQUIRE, ZOFF_DIRECT_AUTO}) {
        zoff_aio_opts opts = aio_opts(GetParam(), direct);
        zoff_aio *raw = nullptr;
        ASSERT_ZOFF_OK(zoff_aio_open(folder.file("file").c_str(), &opts, &raw));
        aio q(raw);
        ASSERT_ZOFF_OK(zoff_aio_register(q.get(), out.data, bytes));
        ASSERT_ZOFF_OK(zoff_aio_reserve(q.get(), bytes));
        const uint64_t written = sectors(device, 7);
        ASSERT_ZOFF_OK(aio_write(q.get(), 0, out.data, bytes));
        EXPECT_GE(sectors(device, 7) - written, bytes / 512) << "some bytes are only in the page cache";
        const uint64_t read = sectors(device, 3);
        ASSERT_ZOFF_OK(aio_read(q.get(), 0, in.data, bytes));
        EXPECT_GE(sectors(device, 3) - read, bytes / 512) << "some bytes came from the page cache";
        EXPECT_TRUE(in == out);
        const zoff_aio_info info = aio_info(q.get());
        EXPECT_TRUE(info.direct);
        EXPECT_EQ(0u, info.bounce_bytes);
        EXPECT_EQ(std::string(GetParam()) == "auto" ? "io_uring" : GetParam(), std::string(info.backend));
        EXPECT_EQ(std::string("io_uring") == info.backend, info.registered);
    }
}
} // namespace
