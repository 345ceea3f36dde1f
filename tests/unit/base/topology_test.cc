/* SPDX-License-Identifier: Apache-2.0 */
// topology_test.cc: lists of CPUs, masks, and the core and node of a CPU, on machines made of files and on this one.
#include "fake_root.h"

#include <sched.h>

#include <numeric>
#include <thread>

using namespace zoff_test;
using list = std::vector<unsigned>;

namespace
{
class topology : public ::testing::Test
{
  protected:
    bool parse(const std::string &text)
    {
        root.put("list", text);
        return zoff_base_topology_list((std::string(root.path()) + "/list").c_str(), &cpus);
    }
    void read(const zoff_cpus &of) { zoff_base_topology_read_under(root.path(), &of, &t); }
    fake_root root;
    zoff_cpus cpus = {};
    zoff_topology t;
};
} // namespace

TEST_F(topology, lists_are_read)
{
    EXPECT_TRUE(parse("0"));
    EXPECT_EQ((list{0}), members(cpus));
    EXPECT_TRUE(parse("0-3,8,10-11"));
    EXPECT_EQ((list{0, 1, 2, 3, 8, 10, 11}), members(cpus));
    // Each is a single word, as long as the kernel's lists ever get.
    std::string odd = "1";
    for (unsigned cpu = 3; cpu < ZOFF_CPUS_MAX; cpu += 2)
        odd += "," + std::to_string(cpu);
    EXPECT_TRUE(parse(odd));
    EXPECT_EQ(static_cast<size_t>(ZOFF_CPUS_MAX / 2), members(cpus).size());
}

TEST_F(topology, invalid_lists_change_nothing)
{
    cpus = cpu_set({5});
    for (const char *text : {"", "\n", "max", "-", ",1", "99999999"})
        EXPECT_FALSE(parse(text)) << text;
    EXPECT_FALSE(zoff_base_topology_list("/no/such/file", &cpus));
    EXPECT_EQ((list{5}), members(cpus));
}

TEST_F(topology, numbers_beyond_the_limit_are_left_out)
{
    EXPECT_TRUE(parse("4094-5000,4294967295"));
    EXPECT_EQ((list{4094, 4095}), members(cpus));
    EXPECT_FALSE(zoff_base_topology_has(&cpus, ZOFF_CPUS_MAX));
}

TEST_F(topology, siblings_are_one_core)
{
    root.cores(4, 2);
    const zoff_cpus all = cpu_range(0, 7);
    read(all);
    EXPECT_EQ(8u, t.end);
    for (unsigned cpu = 0; cpu < 8; cpu++)
        EXPECT_EQ(cpu % 4, t.core[cpu]);
    EXPECT_EQ(4u, zoff_base_topology_cores_under(root.path(), &all));
    // The second CPU of a pair stands for the core if the first one is not ours.
    const zoff_cpus mask = cpu_set({1, 5, 6, 7});
    read(mask);
    EXPECT_EQ(1u, t.core[5]);
    EXPECT_EQ(6u, t.core[6]);
    EXPECT_EQ(3u, zoff_base_topology_cores_under(root.path(), &mask));
}

TEST_F(topology, cpus_have_their_nodes)
{
    root.cores(4, 2);
    root.nodes({"0-1,4-5", "2-3,6-7", ""}); // the last node has memory alone
    read(cpu_range(0, 7));
    const list want = {0, 0, 1, 1, 0, 0, 1, 1};
    for (unsigned cpu = 0; cpu < 8; cpu++)
        EXPECT_EQ(want[cpu], t.node[cpu]) << cpu;
}

TEST_F(topology, without_files_each_cpu_is_a_core_of_node_0)
{
    const zoff_cpus mask = cpu_set({0, 7, 4000});
    read(mask);
    EXPECT_EQ(4001u, t.end);
    EXPECT_EQ(7u, t.core[7]);
    EXPECT_EQ(4000u, t.core[4000]);
    EXPECT_EQ(0u, t.node[4000]);
    EXPECT_EQ(3u, zoff_base_topology_cores_under(root.path(), &mask));
    EXPECT_FALSE(zoff_base_topology_online_under(root.path(), &cpus));
}

TEST_F(topology, the_mask_of_a_thread_is_read_and_set)
{
    // Use a new thread, because the mask belongs to a thread.
    std::thread([&] {
        zoff_cpus before, after;
        ASSERT_TRUE(zoff_base_topology_affinity(&before));
        cpu_set_t libc;
        if (sched_getaffinity(0, sizeof libc, &libc) == 0) {
            EXPECT_EQ(static_cast<size_t>(CPU_COUNT(&libc)), members(before).size());
        }
        const zoff_cpus one = cpu_set({members(before).back()});
        ASSERT_TRUE(zoff_base_topology_bind(&one));
        ASSERT_TRUE(zoff_base_topology_affinity(&after));
        EXPECT_EQ(members(one), members(after));
        const zoff_cpus none = {};
        EXPECT_FALSE(zoff_base_topology_bind(&none));
    }).join();
}

TEST_F(topology, a_thread_keeps_off_one_cpu)
{
    std::thread([&] {
        zoff_cpus before, after;
        zoff_elsewhere elsewhere = {};
        ASSERT_TRUE(zoff_base_topology_affinity(&before));
        const auto all = members(before);
        if (all.size() < 2)
            GTEST_SKIP() << "there is one CPU";
        for (unsigned cpu : {all[0], all[1], all[1], all[0]}) {
            EXPECT_TRUE(zoff_base_topology_keep_off(&elsewhere, cpu));
            EXPECT_NE(cpu, (unsigned)sched_getcpu());
            ASSERT_TRUE(zoff_base_topology_affinity(&after));
            EXPECT_EQ(all.size() - 1, members(after).size()) << "one CPU at a time";
            EXPECT_FALSE(zoff_base_topology_has(&after, cpu));
        }
        zoff_base_topology_come_back(&elsewhere);
        ASSERT_TRUE(zoff_base_topology_affinity(&after));
        EXPECT_EQ(all, members(after));
        EXPECT_TRUE(zoff_base_topology_keep_off(&elsewhere, all[0]));
        const zoff_cpus one = cpu_set({all[0]});
        ASSERT_TRUE(zoff_base_topology_bind(&one));
        zoff_base_topology_come_back(&elsewhere);
        ASSERT_TRUE(zoff_base_topology_affinity(&after));
        EXPECT_EQ(members(one), members(after)) << "the mask is somebody else's";
        EXPECT_FALSE(zoff_base_topology_keep_off(&elsewhere, all[0])) << "somebody else has bound it";
        ASSERT_TRUE(zoff_base_topology_affinity(&after));
        EXPECT_EQ(members(one), members(after));
        EXPECT_FALSE(zoff_base_topology_keep_off(&elsewhere, ZOFF_CPUS_MAX));
    }).join();
}

TEST_F(topology, this_machine_makes_sense)
{
    zoff_cpus mask;
    ASSERT_TRUE(zoff_base_topology_affinity(&mask));
    zoff_base_topology_read_under("", &mask, &t);
    for (unsigned cpu : members(mask)) {
        EXPECT_LT(cpu, t.end);
        EXPECT_LE(t.core[cpu], cpu);
        EXPECT_TRUE(zoff_base_topology_has(&mask, t.core[cpu]));
        EXPECT_EQ(t.node[t.core[cpu]], t.node[cpu]) << "a core lies on one node";
    }
    ASSERT_TRUE(zoff_base_topology_online_under("", &cpus));
    EXPECT_GE(zoff_base_topology_cores_under("", &cpus), zoff_base_topology_cores_under("", &mask));
}
