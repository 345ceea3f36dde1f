/* SPDX-License-Identifier: Apache-2.0 */
// throttle_test.cc: tests the bandwidth limit that benchmarks put on a disk. The process enters a cgroup and leaves it again,
// and the limit holds. If no limit can be set, the reason is given.
#include "shell.h"
#include "zoff_test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include <fstream>
#include <sstream>

extern "C" {
#include "throttle.h"
}

namespace
{
std::string own_cgroups()
{
    std::stringstream all;
    all << std::ifstream("/proc/self/cgroup").rdbuf();
    return all.str();
}

bool there(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

double now()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void expect_reason(const char *reason, const char *words)
{
    ASSERT_TRUE(reason) << "no reason with " << words;
    EXPECT_NE(std::string::npos, std::string(reason).find(words)) << reason;
}

class throttled : public testing::Test
{
  protected:
    void SetUp() override
    {
        home = own_cgroups();
        const char *reason = throttle_open(folder.path.c_str(), RATE);
        if (reason)
            GTEST_SKIP() << reason;
    }
    void TearDown() override { throttle_close(); }

    static constexpr uint64_t RATE = 100 * 1000 * 1000;
    zoff_test::scratch_folder folder;
    std::string home;
};

TEST_F(throttled, the_process_enters_and_leaves_the_cgroup)
{
    EXPECT_NE(home, own_cgroups());
    EXPECT_NE(std::string::npos, own_cgroups().find("zoff-bench-"));
    EXPECT_TRUE(there(throttle_cgroup));
    const std::string own = throttle_cgroup;
    throttle_close();
    EXPECT_EQ(home, own_cgroups());
    EXPECT_FALSE(there(own.c_str()));
    throttle_close(); // the second close has no effect
}

TEST_F(throttled, a_child_that_still_runs_leaves_the_cgroup_too)
{
    const std::string own = throttle_cgroup;
    ASSERT_EQ(0, system("sleep 5 >/dev/null 2>&1 &"));
    throttle_close();
    EXPECT_FALSE(there(own.c_str()));
}

TEST_F(throttled, the_limit_holds)
{
    // A slow machine takes longer still, so only a lower bound can be checked: 0.67 s, less the burst that the kernel allows.
    const size_t bytes = (size_t)64 << 20;
    void *memory = nullptr;
    ASSERT_EQ(0, posix_memalign(&memory, 4096, bytes));
    memset(memory, 1, bytes);
    zoff_aio_opts opts = {};
    opts.struct_size = sizeof opts;
    opts.writable = opts.create = true;
    opts.direct = ZOFF_DIRECT_REQUIRE;
    zoff_aio *q = nullptr;
    uint64_t ticket;
    ASSERT_ZOFF_OK(zoff_aio_open(folder.file("data").c_str(), &opts, &q));
    const double start = now();
    EXPECT_ZOFF_OK(zoff_aio_write(q, 0, bytes, memory, &ticket));
    EXPECT_ZOFF_OK(zoff_aio_wait(q, ticket));
    EXPECT_GT(now() - start, 0.3);
    zoff_aio_close(q);
    free(memory);
}

TEST_F(throttled, a_second_file_has_its_own_limit)
{
    EXPECT_STREQ(nullptr, throttle_add(folder.path.c_str(), 2 * RATE));
    expect_reason(throttle_add("/proc", RATE), "/proc");
    EXPECT_NE(home, own_cgroups()) << "the first limit still applies";
}

TEST(throttle, a_file_on_no_disk_is_refused_with_the_reason)
{
    const std::string before = own_cgroups();
    expect_reason(throttle_open("/proc", 1000), "no block device");
    expect_reason(throttle_open("/no/such/file", 1000), "/no/such/file");
    EXPECT_EQ(before, own_cgroups());
    expect_reason(throttle_add("/proc", 1000), "no throttle is open");
}
} // namespace
