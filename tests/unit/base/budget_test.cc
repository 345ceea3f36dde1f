/* SPDX-License-Identifier: Apache-2.0 */
// budget_test.cc: memory and CPUs that are left, on machines made of files: without a group, version 1, version 2, nested,
// containers.
#include "zoff_test.h"

#include <stdint.h>
#include <stdio.h>

extern "C" {
#include "budget.h"
}

namespace
{
const uint64_t GIB = uint64_t{1} << 30;

// A root folder with the files of a kernel.
class machine : public ::testing::Test
{
  protected:
    void put(const std::string &path, const std::string &text)
    {
        const std::string full = root.file(path);
        ASSERT_EQ(0, system(("mkdir -p '" + full.substr(0, full.rfind('/')) + "'").c_str()));
        FILE *f = fopen(full.c_str(), "w");
        ASSERT_NE(nullptr, f);
        fputs(text.c_str(), f);
        fclose(f);
    }
    void available(uint64_t bytes)
    {
        put("proc/meminfo", "MemTotal:       99999999 kB\nMemFree:        1 kB\nMemAvailable:   " +
                                std::to_string(bytes / 1024) + " kB\nBuffers:        5 kB\n");
    }
    // A group with a limit (or "max"), its use, and the page cache within it.
    void group_v2(const std::string &folder, const std::string &limit, uint64_t used, uint64_t cache)
    {
        put("sys/fs/cgroup" + folder + "/memory.max", limit + "\n");
        put("sys/fs/cgroup" + folder + "/memory.current", std::to_string(used) + "\n");
        put("sys/fs/cgroup" + folder + "/memory.stat", "anon 5\ninactive_file " + std::to_string(cache) + "\nactive_file 9\n");
    }
    void group_v1(const std::string &folder, const std::string &limit, uint64_t used, uint64_t cache)
    {
        put("sys/fs/cgroup/memory" + folder + "/memory.limit_in_bytes", limit + "\n");
        put("sys/fs/cgroup/memory" + folder + "/memory.usage_in_bytes", std::to_string(used) + "\n");
        put("sys/fs/cgroup/memory" + folder + "/memory.stat",
            "inactive_file 1\ntotal_inactive_file " + std::to_string(cache) + "\n");
    }
    uint64_t memory() { return zoff_base_budget_memory(root.path.c_str(), &source); }
    unsigned cpus() { return zoff_base_budget_cpus(root.path.c_str()); }
    zoff_test::scratch_folder root;
    const char *source = nullptr;
};
} // namespace

TEST_F(machine, without_files_nothing_is_known)
{
    EXPECT_EQ(UINT64_MAX, memory());
    EXPECT_NE(nullptr, source);
    EXPECT_EQ(0u, cpus());
}

TEST_F(machine, without_groups_memory_available_decides)
{
    available(7 * GIB);
    EXPECT_EQ(7 * GIB, memory());
    EXPECT_STREQ("MemAvailable", source);
}

TEST_F(machine, version_2_limit_less_use_decides)
{
    available(7 * GIB);
    put("proc/self/cgroup", "0::/job\n");
    group_v2("/job", std::to_string(4 * GIB), 1 * GIB, 0);
    EXPECT_EQ(3 * GIB, memory());
    EXPECT_STREQ("cgroup limit", source);
}

TEST_F(machine, cache_of_the_group_can_be_dropped)
{
    available(7 * GIB);
    put("proc/self/cgroup", "0::/job\n");
    group_v2("/job", std::to_string(4 * GIB), 3 * GIB, 2 * GIB);
    EXPECT_EQ(3 * GIB, memory());
}

TEST_F(machine, max_is_no_limit)
{
    available(7 * GIB);
    put("proc/self/cgroup", "0::/job\n");
    group_v2("/job", "max", 1 * GIB, 0);
    EXPECT_EQ(7 * GIB, memory());
    EXPECT_STREQ("MemAvailable", source);
}

TEST_F(machine, the_tightest_of_nested_groups_decides)
{
    available(64 * GIB);
    put("proc/self/cgroup", "0::/slice/user/job\n");
    group_v2("/slice", std::to_string(20 * GIB), 15 * GIB, 0);
    group_v2("/slice/user", std::to_string(10 * GIB), 8 * GIB, 0);
    group_v2("/slice/user/job", std::to_string(8 * GIB), 2 * GIB, 0);
    EXPECT_EQ(2 * GIB, memory()) << "user has 2 GiB left, job 6, slice 5";
    group_v2("/slice", "max", 15 * GIB, 0);
    group_v2("/slice/user", "max", 8 * GIB, 0);
    EXPECT_EQ(6 * GIB, memory());
}

TEST_F(machine, a_group_over_its_limit_leaves_nothing)
{
    available(7 * GIB);
    put("proc/self/cgroup", "0::/job\n");
    group_v2("/job", std::to_string(1 * GIB), 2 * GIB, 0);
    EXPECT_EQ(0u, memory());
}

TEST_F(machine, more_than_the_machine_has_is_not_to_be_had)
{
    available(2 * GIB);
    put("proc/self/cgroup", "0::/job\n");
    group_v2("/job", std::to_string(100 * GIB), 0, 0);
    EXPECT_EQ(2 * GIB, memory());
    EXPECT_STREQ("MemAvailable", source);
}

TEST_F(machine, a_container_sees_its_own_group_at_the_top)
{
    available(7 * GIB);
    put("proc/self/cgroup", "5:memory:/docker/0123\n4:cpu,cpuacct:/docker/0123\n0::/\n");
    group_v1("", std::to_string(3 * GIB), 1 * GIB, GIB / 2);
    EXPECT_EQ(3 * GIB - GIB / 2, memory());
    EXPECT_STREQ("cgroup limit", source);
}

TEST_F(machine, version_1_nested_and_unlimited)
{
    available(7 * GIB);
    put("proc/self/cgroup", "11:devices:/x\n5:freezer,memory:/slice/job\n1:name=systemd:/y\n");
    group_v1("", "9223372036854771712", 6 * GIB, 0);
    group_v1("/slice", std::to_string(4 * GIB), 3 * GIB, 0);
    group_v1("/slice/job", "9223372036854771712", 1 * GIB, 0);
    EXPECT_EQ(1 * GIB, memory());
}

TEST_F(machine, hybrid_takes_the_tighter)
{
    available(7 * GIB);
    put("proc/self/cgroup", "5:memory:/a\n0::/b\n");
    group_v1("/a", std::to_string(5 * GIB), 0, 0);
    group_v2("/b", std::to_string(4 * GIB), 0, 0);
    EXPECT_EQ(4 * GIB, memory());
}

TEST_F(machine, garbage_in_the_files_is_no_limit)
{
    available(7 * GIB);
    put("proc/self/cgroup", "no colons here\n:\n0::/job\n");
    put("sys/fs/cgroup/job/memory.max", "");
    put("sys/fs/cgroup/job/memory.current", "many\n");
    put("sys/fs/cgroup/job/cpu.max", "\n");
    EXPECT_EQ(7 * GIB, memory());
    EXPECT_EQ(0u, cpus());
}

TEST_F(machine, version_2_quota_is_rounded_up)
{
    put("proc/self/cgroup", "0::/job\n");
    put("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
    EXPECT_EQ(2u, cpus());
    put("sys/fs/cgroup/job/cpu.max", "20000 100000\n");
    EXPECT_EQ(1u, cpus());
    put("sys/fs/cgroup/job/cpu.max", "max 100000\n");
    EXPECT_EQ(0u, cpus());
}

TEST_F(machine, the_quota_of_a_group_above_counts)
{
    put("proc/self/cgroup", "0::/slice/job\n");
    put("sys/fs/cgroup/slice/cpu.max", "300000 100000\n");
    put("sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
    EXPECT_EQ(3u, cpus());
    put("sys/fs/cgroup/slice/job/cpu.max", "800000 100000\n");
    EXPECT_EQ(3u, cpus());
}

TEST_F(machine, version_1_quota)
{
    put("proc/self/cgroup", "4:cpu,cpuacct:/job\n");
    put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(0u, cpus());
    put("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "250000\n");
    EXPECT_EQ(3u, cpus());
}

TEST_F(machine, each_level_has_an_id_of_its_own)
{
    zoff_budget_level one[ZOFF_BUDGET_LEVELS], other[ZOFF_BUDGET_LEVELS];
    available(7 * GIB);
    put("proc/sys/kernel/random/boot_id", "11111111-2222-3333-4444-555555555555\n");
    group_v2("/job", std::to_string(6 * GIB), 1 * GIB, 0);
    group_v2("/job/a", std::to_string(4 * GIB), 1 * GIB, 0);
    group_v2("/job/b", "max", 1 * GIB, 0);
    put("proc/self/cgroup", "0::/job/a\n");
    ASSERT_EQ(3u, zoff_base_budget_levels(root.path.c_str(), one));
    EXPECT_EQ(7 * GIB, one[0].bytes);
    EXPECT_EQ(3 * GIB, one[1].bytes);
    EXPECT_EQ(5 * GIB, one[2].bytes);
    put("proc/self/cgroup", "0::/job/b\n");
    ASSERT_EQ(2u, zoff_base_budget_levels(root.path.c_str(), other));
    EXPECT_EQ(one[0].id, other[0].id) << "one machine";
    EXPECT_EQ(one[2].id, other[1].id) << "one group above both";
    EXPECT_NE(one[1].id, one[2].id);
    EXPECT_NE(one[1].id, one[0].id);
    put("proc/sys/kernel/random/boot_id", "another machine, or the same one after a boot\n");
    ASSERT_EQ(2u, zoff_base_budget_levels(root.path.c_str(), other));
    EXPECT_NE(one[0].id, other[0].id);
    EXPECT_NE(one[2].id, other[1].id);
}

TEST_F(machine, more_groups_than_levels_are_those_next_to_us)
{
    zoff_budget_level all[ZOFF_BUDGET_LEVELS];
    std::string folder;
    for (int i = 0; i < 12; i++) {
        folder += "/g";
        group_v2(folder, std::to_string(20 * GIB), (uint64_t)i * GIB, 0);
    }
    put("proc/self/cgroup", "0::" + folder + "\n");
    ASSERT_EQ((size_t)ZOFF_BUDGET_LEVELS, zoff_base_budget_levels(root.path.c_str(), all));
    EXPECT_EQ(UINT64_MAX, all[0].bytes);
    EXPECT_EQ(9 * GIB, all[1].bytes);
}

TEST(budget, this_machine_has_memory)
{
    const char *source = nullptr;
    const uint64_t bytes = zoff_base_budget_memory("", &source);
    EXPECT_GT(bytes, uint64_t{1} << 20);
    EXPECT_LT(bytes, uint64_t{1} << 50) << "neither MemAvailable nor a group said anything";
    EXPECT_NE(nullptr, source);
}
